"""DLPack structures made by hand: every field that a producer may fill, and those that lie."""

import ctypes

import numpy as np
import pytest
from test_interop import Managed, ManagedVersioned

import hyalite as hl

new = ctypes.pythonapi.PyCapsule_New
new.restype, new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
Deleter = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
KEPT = []  # structures live as long as the process, as ctypes frees what nobody in Python holds
FLOAT32 = (2, 32, 1)


def capsule(array, shape, strides, *, type=FLOAT32, versioned=True, offset=0, flags=0, version=(1, 0), device=1,
            ndim=None, data=0, deleted=None):  # fmt: skip
    """A capsule over `array`, with these fields whether they are true or not."""
    ints = ctypes.c_int64 * max(len(shape), 1)
    sizes, steps = ints(*shape), None if strides is None else ints(*strides)
    managed = (ManagedVersioned if versioned else Managed)()
    t = managed.tensor
    t.data = array.ctypes.data if data == 0 else data
    t.device_type, t.device_id, t.ndim = device, 0, len(shape) if ndim is None else ndim
    t.code, t.bits, t.lanes = type
    t.shape = sizes
    if steps is not None:
        t.strides = steps
    t.byte_offset = offset
    if versioned:
        managed.major, managed.minor = version
        managed.flags = flags
    done = Deleter(lambda _: deleted.append(1) if deleted is not None else None)
    managed.deleter = ctypes.cast(done, ctypes.c_void_p).value
    KEPT.append((array, sizes, steps, managed, done))
    return new(ctypes.addressof(managed), b"dltensor_versioned" if versioned else b"dltensor", None)


ARRAY = np.arange(24, dtype=np.float32)


@pytest.mark.parametrize("versioned", [True, False])
@pytest.mark.parametrize(
    "shape, strides, offset, first",
    [
        ((2, 3), None, 0, 0),
        ((2, 3), (3, 1), 0, 0),
        ((2, 3), (1, 2), 0, 0),
        ((3,), (-1,), 40, 10),
        ((2, 2), (-8, 2), 64, 16),
        ((4, 3), (-1, 4), 12, 3),
        ((), None, 8, 2),
        ((), (), 8, 2),
        ((3,), (0,), 4, 1),
        ((1, 3), (2**62, 1), 0, 0),
        ((1,), (-(2**63),), 0, 0),
        ((0, 4), (0, 0), 0, 0),
        ((0, 4), (7, 2**62), 0, 0),
        ((3, 0), (-5, 3), 0, 0),
        ((1, 1, 1), (9, -9, 0), 4, 1),
    ],
)
def test_strides_of_every_kind(versioned, shape, strides, offset, first):
    x = hl.from_dlpack(capsule(ARRAY, shape, strides, offset=offset, versioned=versioned))
    assert x.shape == shape and x.dtype is hl.float32
    if x.size:
        steps = x.strides if strides is None else [s if n > 1 else 0 for s, n in zip(strides, shape)]
        want = [
            float(ARRAY[first + sum(i * s for i, s in zip(index, steps))]) for index in np.ndindex(*shape)
        ]  # fmt: skip
        assert x.numpy().reshape(-1).tolist() == want
    else:
        assert x.tolist() == np.zeros(shape).tolist()
    again = np.from_dlpack(x)  # canonical strides go out
    dense = np.ascontiguousarray(again)
    assert all(n == 1 or again.size == 0 or s == w or n > 1 for n, s, w in zip(shape, again.strides, dense.strides))


@pytest.mark.parametrize(
    "code, bits, name",
    [
        (6, 8, "bool"),
        (0, 8, "int8"),
        (0, 16, "int16"),
        (0, 32, "int32"),
        (0, 64, "int64"),
        (1, 8, "uint8"),
        (1, 16, "uint16"),
        (1, 32, "uint32"),
        (1, 64, "uint64"),
        (2, 16, "float16"),
        (2, 32, "float32"),
        (2, 64, "float64"),
        (4, 16, "bfloat16"),
        (5, 64, "complex64"),
        (5, 128, "complex128"),
        (10, 8, "float8_e4m3fn"),
        (12, 8, "float8_e5m2"),
    ],
)
def test_type_codes(code, bits, name):
    zeros = np.zeros(8, np.float64)
    x = hl.from_dlpack(capsule(zeros, (3,), None, type=(code, bits, 1)))
    assert x.dtype.name == name and x.tolist() == hl.zeros(3, dtype=x.dtype).tolist()


@pytest.mark.parametrize(
    "type",
    [
        (2, 32, 2),
        (2, 32, 0),
        (2, 8, 1),
        (2, 128, 1),
        (0, 4, 1),
        (0, 128, 1),
        (3, 64, 1),
        (5, 32, 1),
        (6, 1, 1),
        (7, 8, 1),
        (99, 32, 1),
        (4, 32, 1),
        (0, 0, 1),
    ],
)
def test_types_that_are_not_ours_are_named(type):
    with pytest.raises(BufferError, match=rf"type code {type[0]} with {type[1]} bits and {type[2]} lanes has no dtype"):
        hl.from_dlpack(capsule(ARRAY, (2,), None, type=type))


LIES = {
    "another device": (dict(device=2), "device type 2"),
    "a newer major version": (dict(version=(2, 0)), "DLPack 2.0 is newer"),
    "too many dimensions": (dict(ndim=65), "65 dimensions"),
    "negative dimensions": (dict(ndim=-1), "-1 dimensions"),
    "no data": (dict(data=None), "null pointer"),
}


@pytest.mark.parametrize("lie", LIES)
def test_structures_that_cannot_be_read(lie):
    fields, message = LIES[lie]
    with pytest.raises(BufferError, match=message):
        hl.from_dlpack(capsule(ARRAY, (2,), None, **fields))


@pytest.mark.parametrize(
    "shape, strides",
    [
        ((-1,), None),
        ((2**62, 2**62), None),
        ((2**62, 2**62), (0, 0)),
        ((3,), (2**62,)),
        ((2, 2), (2**62, 2**62)),
        ((2**63 - 1,), None),
        ((3,), (-(2**63),)),
    ],
)
def test_sizes_that_no_memory_has(shape, strides):
    with pytest.raises((BufferError, ValueError)):
        hl.from_dlpack(capsule(ARRAY, shape, strides))


@pytest.mark.parametrize("versioned", [True, False])
def test_the_deleter_runs_once(versioned):
    deleted = []
    x = hl.from_dlpack(capsule(ARRAY, (3,), None, versioned=versioned, deleted=deleted))
    view = x[1:]
    del x
    assert not deleted and view.tolist() == [1.0, 2.0]
    del view
    assert deleted == [1]
    deleted.clear()
    hl.from_dlpack(capsule(ARRAY, (3,), None, versioned=versioned, deleted=deleted), copy=True)
    assert deleted == [1]
    c = capsule(ARRAY, (3,), None, versioned=versioned, deleted=deleted)
    y = hl.from_dlpack(c)
    with pytest.raises(BufferError, match="consumed once"):
        hl.from_dlpack(c)
    assert y.tolist() == [0.0, 1.0, 2.0]


def test_flags():
    locked = hl.from_dlpack(capsule(ARRAY, (3,), None, flags=1))
    with pytest.raises(ValueError, match="read-only"):
        locked += 1
    copied = np.arange(3, dtype=np.float32)
    with pytest.raises(BufferError, match="made a copy") as error:
        hl.from_dlpack(capsule(copied, (3,), None, flags=2), copy=False)
    assert isinstance(error.value, ValueError)
    x = hl.from_dlpack(capsule(copied, (3,), None, flags=2), copy=True)
    assert x.data_ptr() == copied.ctypes.data  # it is a copy already
    free = hl.from_dlpack(capsule(copied, (3,), None, flags=3), copy=True)
    free += 1
    assert free.data_ptr() != copied.ctypes.data


@pytest.mark.parametrize("bad", [(1,), (1, 0, 0), [1, 0], "10", 1, (1.5, 0), ("1", 0), (None, 0)])
def test_versions_and_devices_that_are_no_pairs(bad):
    for keyword in ("max_version", "dl_device"):
        with pytest.raises(
            TypeError, match=rf"__dlpack__\(\): {keyword} has to be a tuple of two ints such as \(1, 0\)"
        ):
            hl.ones(2).__dlpack__(**{keyword: bad})


def test_versions_of_any_size():
    x = hl.ones(2)
    assert "dltensor_versioned" in repr(x.__dlpack__(max_version=(10**30, 0)))
    for old in ((0, 10**30), (-(10**30), 0)):
        assert '"dltensor"' in repr(x.__dlpack__(max_version=old))
    with pytest.raises(BufferError):
        x.__dlpack__(dl_device=(10**30, 0))


class Producer:
    def __init__(self, refuse):
        self.refuse = refuse

    def __dlpack_device__(self):
        return (1, 0)

    def __dlpack__(self, **keywords):
        if keywords.get("copy") is False:
            raise self.refuse("it cannot be shared")
        return ARRAY.__dlpack__(**keywords)


@pytest.mark.parametrize("refuse", [BufferError, ValueError])
def test_copy_false_that_needs_a_copy_is_both_errors(refuse):
    for call in (
        lambda: hl.from_dlpack(Producer(refuse), copy=False),
        lambda: hl.from_dlpack(np.arange(3, dtype=">f4"), copy=False),
        lambda: hl.from_dlpack(np.zeros(13, np.uint8)[1:].view(np.float32), copy=False),
    ):
        for error in (BufferError, ValueError):
            with pytest.raises(error, match=r"from_dlpack\(\): copy=False, but .*; write copy=None or copy=True"):
                call()
    assert hl.from_dlpack(Producer(refuse)).data_ptr() == ARRAY.ctypes.data
    assert hl.from_dlpack(Producer(refuse), copy=True).data_ptr() != ARRAY.ctypes.data
    with pytest.raises(RuntimeError, match="cannot be shared"):
        hl.from_dlpack(Producer(RuntimeError), copy=False)
