"""Random programs across the borders: any array, through any door, and back, equal element for element."""

import gc
import os

import ml_dtypes
import numpy as np
import pytest

import hyalite as hl

SEED = int(os.environ.get("HYALITE_FUZZ_SEED", "1"))
PLAIN = ["?", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8", "c8", "c16"]
NAMED = [ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2]


# ---- arrays ---------------------------------------------------------------------------------------------------------


def random_elements(rng, dtype, count):
    """Any bits; NaNs of every payload among them. Booleans are 0 and 1."""
    if dtype == np.bool_:
        return rng.integers(0, 2, count).astype(bool)
    return np.frombuffer(rng.bytes(count * dtype.itemsize), dtype).copy()


def random_array(rng):
    """An array of random dtype, byte order, shape, strides (negative, 0, with gaps), alignment and writability."""
    if rng.random() < 0.2:
        dtype = np.dtype(NAMED[rng.integers(len(NAMED))])
    else:
        dtype = np.dtype(PLAIN[rng.integers(len(PLAIN))])
        if rng.random() < 0.2:
            dtype = dtype.newbyteorder()
    ndim = int(rng.integers(0, 5))
    shape = [int(rng.choice([0, 1, 1, 2, 3, 4, 5], p=[0.04, 0.1, 0.06, 0.3, 0.2, 0.2, 0.1])) for _ in range(ndim)]
    base = random_elements(rng, dtype, 1 + 4 * int(np.prod([s + 1 for s in shape])))
    if rng.random() < 0.15 and dtype.itemsize > 1:  # not aligned
        raw = np.zeros(base.nbytes + 1, np.uint8)
        raw[1:] = base.view(np.uint8)
        base = raw[1:].view(dtype)
    strides, low, high = [], 0, 0
    step = 1
    for axis in rng.permutation(ndim):
        gap = int(rng.choice([1, 1, 1, 2]))
        s = 0 if rng.random() < 0.1 else step * gap
        if (high - low) + abs(s) * max(shape[axis] - 1, 0) >= base.size:
            s = 0
        if s and rng.random() < 0.3:
            s = -s
        reach = s * max(shape[axis] - 1, 0)
        low, high = low + min(reach, 0), high + max(reach, 0)
        step = max(step, abs(s) * max(shape[axis], 1))
        strides.append((axis, s))
    strides = [s for _, s in sorted(strides)]
    room = base.size - 1 - (high - low)
    offset = -low + int(rng.integers(0, room + 1))
    size = dtype.itemsize
    a = np.ndarray(shape, dtype, base.view(np.uint8), offset * size, [s * size for s in strides])
    if rng.random() < 0.15:
        a.flags.writeable = False
    return base, a


def bits(a):
    """The elements' bytes in native order."""
    a = np.asarray(a)
    if not a.dtype.isnative:
        a = a.astype(a.dtype.newbyteorder("="))
    return np.ascontiguousarray(a).reshape(-1).view(np.uint8).tobytes()


def is_plain(a):
    return a.dtype.kind != "V" and a.dtype.name not in ("bfloat16", "float8_e4m3fn", "float8_e5m2")


def aligned(a):
    part = a.dtype.itemsize // (2 if a.dtype.kind == "c" else 1)
    return a.size == 0 or (
        a.__array_interface__["data"][0] % part == 0
        and all(n <= 1 or s % a.dtype.itemsize == 0 for n, s in zip(a.shape, a.strides))
    )


def repeats(a):
    return a.size != 0 and any(n > 1 and s == 0 for n, s in zip(a.shape, a.strides))


class Interface:
    """An object that only has an array interface."""

    def __init__(self, a):
        self.a, self.__array_interface__ = a, a.__array_interface__


class Versioned:
    """An object that only has DLPack with versions."""

    def __init__(self, a):
        self.a = a

    def __dlpack__(self, **keywords):
        return self.a.__dlpack__(**keywords)

    def __dlpack_device__(self):
        return self.a.__dlpack_device__()


def dlpack_takes(a):
    return is_plain(a) and a.dtype.isnative and all(s % a.dtype.itemsize == 0 for s in a.strides)


IMPORTS = {
    "asarray": (hl.asarray, lambda a: True),
    "tensor": (hl.tensor, lambda a: True),
    "Tensor": (hl.Tensor, lambda a: True),
    "memoryview": (lambda a: hl.asarray(memoryview(a)), is_plain),
    "array interface": (lambda a: hl.asarray(Interface(a)), is_plain),
    "from_dlpack": (hl.from_dlpack, dlpack_takes),
    "versioned": (lambda a: hl.from_dlpack(Versioned(a)), dlpack_takes),
    "copy": (lambda a: hl.asarray(a, copy=True), lambda a: True),
}
NEW = {"tensor", "copy"}
EXPORTS = {
    "numpy()": (lambda x: x.numpy(), lambda a: True),
    "np.asarray": (np.asarray, lambda a: True),
    "memoryview": (lambda x: np.asarray(memoryview(x)), is_plain),
    "np.from_dlpack": (np.from_dlpack, is_plain),
    "array interface": (lambda x: np.asarray(Interface(x)), is_plain),
}


# ---- there and back -------------------------------------------------------------------------------------------------


def there_and_back(rng):
    base, a = random_array(rng)
    door = rng.choice([k for k, (_, takes) in IMPORTS.items() if takes(a)])
    x = IMPORTS[door][0](a)
    native = a.dtype if a.dtype.isnative else a.dtype.newbyteorder("=")
    assert x.shape == a.shape and x.dtype.name == native.name and x.tobytes() == bits(a), door
    shares = door not in NEW and a.dtype.isnative and aligned(a)
    if a.size:
        assert (x.data_ptr() == a.__array_interface__["data"][0]) == shares, door
    x, a = random_view(rng, x, a)
    out = rng.choice([k for k, (_, takes) in EXPORTS.items() if takes(a)])
    back = EXPORTS[out][0](x)
    assert back.dtype == native and back.shape == a.shape and bits(back) == bits(a), (door, out)
    if a.size:
        assert back.__array_interface__["data"][0] == x.data_ptr(), out
        read_only = (shares and not a.flags.writeable) or repeats(back)
        assert back.flags.writeable != read_only, (door, out)
    if shares and a.size and a.flags.writeable and back.flags.writeable and x.version == 0:
        write_on_each_side(rng, base, a, x, back)


def random_view(rng, x, a):
    """The same view of a tensor and of an array."""
    if a.ndim and rng.random() < 0.5:
        key = tuple(
            slice(None, None, int(rng.choice([1, 1, 2, -1, -2])))
            if rng.random() < 0.8 or n == 0 else int(rng.integers(n)) for n in a.shape
        )  # fmt: skip
        x, a = x[key], a[(*key, ...)]
    if a.ndim > 1 and rng.random() < 0.3:
        axes = [int(i) for i in rng.permutation(a.ndim)]
        x, a = hl.permute_dims(x, axes), a.transpose(axes)
    return x, a


def write_on_each_side(rng, base, a, x, back):
    """A write by any of the three is seen by the others; only ours counts."""
    for _ in range(3):
        value = bool(rng.integers(2)) if a.dtype == np.bool_ else int(rng.integers(1, 5))
        before = x.version
        who = rng.integers(3)
        if who == 0:
            x[...] = value
        elif who == 1:
            a[...] = value
        else:
            back[...] = value
        assert bits(a) == x.tobytes() == bits(back) and np.all(a == value)
        assert x.version == before + (who == 0)


@pytest.mark.parametrize("part", range(8))
def test_any_array_goes_through_any_door_and_back(part):
    rng = np.random.default_rng([SEED, part])
    for _ in range(250):
        there_and_back(rng)


# ---- many tensors over one memory -----------------------------------------------------------------------------------


def test_random_programs_over_one_memory():
    """Tensors and arrays over one memory come, write and go; versions and values follow a model in NumPy."""
    rng = np.random.default_rng([SEED, 99])
    doors = [hl.asarray, hl.from_dlpack, lambda a: hl.asarray(memoryview(a)), lambda a: hl.asarray(Interface(a))]
    for _ in range(60):
        memory, model = np.arange(24, dtype=np.int64), np.arange(24, dtype=np.int64)
        whole = hl.asarray(memory)  # it spans all, so every write counts for everybody
        writes, live, arrays = 0, [(whole, model)], []
        for _ in range(25):
            x, m = live[rng.integers(len(live))]
            what = rng.integers(6)
            if what == 0 and m.size:
                start = int(rng.integers(m.size))
                step = int(rng.choice([1, 2, -1, -3]))
                live.append((x[start::step], m[start::step]))
            elif what == 1:
                start, stop = sorted(int(i) for i in rng.integers(0, 25, 2))
                step = int(rng.choice([1, 2, 5]))
                door = doors[rng.integers(len(doors))]
                live.append((door(memory[start:stop:step][::-1]), model[start:stop:step][::-1]))
            elif what == 2 and m.size:
                x += 3
                m += 3
                writes += 1
            elif what == 3 and m.size:
                arrays.append((x.numpy(), m))
            elif what == 4 and arrays:
                a, n = arrays[rng.integers(len(arrays))]
                a *= 2
                n *= 2
            elif len(live) > 1:
                live.pop(1 + int(rng.integers(len(live) - 1)))
                gc.collect(0)
            assert memory.tolist() == model.tolist()
            for t, n in live:
                assert t.tolist() == n.tolist()
                assert t.size == 0 or t.version == writes, (t.version, writes)
