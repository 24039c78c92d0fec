"""Memory that lies on both sides of a border: who may write it, and who is told of a write."""

import array
import copy
import gc
import os
import pickle
import resource
import threading
from pathlib import Path

import numpy as np
import pytest

import hyalite as hl

as_strided = np.lib.stride_tricks.as_strided


def dlpack(x):
    return np.from_dlpack(x)


class Interface:
    """An object that only has an array interface."""

    def __init__(self, x):
        self.x, self.__array_interface__ = x, x.__array_interface__


EXPORTS = {
    "numpy": lambda x: x.numpy(),
    "asarray": np.asarray,
    "array protocol": lambda x: x.__array__(),
    "asarray of its dtype": lambda x: np.asarray(x, dtype=x.numpy().dtype),
    "memoryview": lambda x: np.asarray(memoryview(x)),
    "frombuffer": lambda x: np.asarray(memoryview(x).toreadonly()) if memoryview(x).readonly else np.asarray(x),
    "dlpack": dlpack,
    "array interface": lambda x: np.asarray(Interface(x)),
}
IMPORTS = {
    "asarray": hl.asarray,
    "from_dlpack": hl.from_dlpack,
    "memoryview": lambda n: hl.asarray(memoryview(n)),
    "asarray without a copy": lambda n: hl.asarray(n, copy=False),
    "Tensor": hl.Tensor,
}

# ---- W18: a stride of 0 is read-only outside ------------------------------------------------------------------------

REPEATED = {
    "broadcast_to": lambda: hl.broadcast_to(hl.ones(1), (3,)),
    "a new axis": lambda: hl.broadcast_to(hl.ones(3), (4, 3)),
    "an inner axis": lambda: hl.broadcast_to(hl.ones((2, 1, 3)), (2, 4, 3)),
    "a view of one": lambda: hl.broadcast_to(hl.ones((3, 1)), (3, 4))[1:, ::-2],
    "transposed": lambda: hl.broadcast_to(hl.ones((3, 1)), (3, 4)).T,
    "0-d": lambda: hl.broadcast_to(hl.asarray(1.0), (2, 2)),
    "broadcast_arrays": lambda: hl.broadcast_arrays(hl.ones(3), hl.ones((2, 3)))[0],
    "imported": lambda: hl.asarray(np.broadcast_to(np.ones(1, np.float32), (3,))),
    "imported and writable": lambda: hl.asarray(as_strided(np.ones(1, np.float32), (3,), (0,))),
    "detached": lambda: hl.broadcast_to(hl.tensor([1.0], requires_grad=True), (3,)).detach(),
    "real part": lambda: hl.broadcast_to(hl.ones(1, dtype=hl.complex64), (3,)).real,
}
WRITABLE = {
    "one element": lambda: hl.broadcast_to(hl.ones(1), (1,)),
    "an axis of one": lambda: hl.broadcast_to(hl.ones(3), (1, 3)),
    "a column of one": lambda: hl.broadcast_to(hl.ones((3, 1)), (3, 4))[:, :1],
    "a copy": lambda: hl.broadcast_to(hl.ones(1), (3,)).copy(),
    "reversed": lambda: hl.ones((3, 4))[::-1, ::-2],
    "transposed": lambda: hl.ones((3, 4)).T,
    "pickled": lambda: pickle.loads(pickle.dumps(hl.ones(3))),
    "copied": lambda: copy.deepcopy(hl.ones(3)),
}


@pytest.mark.parametrize("export", EXPORTS)
@pytest.mark.parametrize("make", REPEATED)
def test_w18_an_export_through_a_stride_of_0_is_read_only(make, export):
    x = REPEATED[make]()
    outside = EXPORTS[export](x)
    np.testing.assert_array_equal(outside, np.ones(x.shape))
    assert not outside.flags.writeable
    with pytest.raises(ValueError):
        outside.reshape(-1)[0] = 5 if outside.base is None else outside.__setitem__((0,) * outside.ndim, 5)
    with pytest.raises(ValueError):
        outside.flags.writeable = True
    assert memoryview(x).readonly
    assert bool(hl.all(x == 1))


@pytest.mark.parametrize("make", REPEATED)
def test_w18_who_wants_to_write_is_refused(make):
    x = REPEATED[make]()
    with pytest.raises(BufferError, match="read-only"):
        x.__dlpack__()  # which cannot say so
    with pytest.raises((TypeError, BufferError)):
        (np.ctypeslib.ctypes.c_char * x.nbytes).from_buffer(x)
    assert x.__dlpack__(copy=True) is not None and x.__dlpack__(max_version=(1, 0)) is not None
    copied = np.array(x)
    copied[...] = 7
    assert bool(hl.all(x == 1))


@pytest.mark.parametrize("export", EXPORTS)
@pytest.mark.parametrize("make", WRITABLE)
def test_w18_an_export_without_repeats_is_writable(make, export):
    x = WRITABLE[make]()
    outside = EXPORTS[export](x)
    assert outside.flags.writeable
    outside[...] = 7
    assert bool(hl.all(x == 7))


@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (0,)])
def test_w18_without_elements_nothing_is_repeated(shape):
    x = hl.broadcast_to(hl.ones((1,) * len(shape)), shape)
    assert x.numpy().shape == np.from_dlpack(x).shape == np.asarray(x).shape == shape
    assert x.__dlpack__() is not None


def test_w18_the_message_names_the_stride():
    with pytest.raises(BufferError, match="a stride of 0 repeats elements.*copy=True"):
        hl.broadcast_to(hl.ones(1), (3,)).__dlpack__()


# ---- W27: one memory, one version -----------------------------------------------------------------------------------


@pytest.mark.parametrize("second", IMPORTS)
@pytest.mark.parametrize("first", IMPORTS)
def test_w27_imports_of_one_array_have_one_version(first, second):
    n = np.arange(4.0)
    a, b = IMPORTS[first](n), IMPORTS[second](n)
    assert a.version == b.version == 0
    a += 1
    assert a.version == b.version == 1 and b.tolist() == [1.0, 2.0, 3.0, 4.0]
    b[0] = 9
    assert a.version == b.version == 2
    c = IMPORTS[first](n)
    assert c.version == 2
    del a
    gc.collect()
    c *= 2
    assert b.version == c.version == 3


@pytest.mark.parametrize("export", EXPORTS)
@pytest.mark.parametrize("back", IMPORTS)
def test_w27_a_tensor_that_was_lent_and_borrowed_back(export, back):
    x = hl.arange(4.0)
    x += 1
    y = IMPORTS[back](EXPORTS[export](x))
    assert y.data_ptr() == x.data_ptr() and y.version == x.version == 1
    y += 1
    assert y.version == x.version == 2 and x.tolist() == [2.0, 3.0, 4.0, 5.0]
    x += 1
    assert y.version == x.version == 3
    z = x[1:]
    z += 1
    assert y.version == 4


def test_w27_versions_follow_overlap():
    n = np.arange(100.0)
    a, b, far = hl.asarray(n[:10]), hl.asarray(n[5:15]), hl.asarray(n[50:])
    every_second, other = hl.asarray(n[20:30:2]), hl.asarray(n[21:31:2])
    a += 1
    assert (a.version, b.version, far.version, other.version) == (1, 1, 0, 0)
    every_second += 1  # the ranges overlap, whatever lies between their elements
    assert other.version == every_second.version == 1
    far += 1
    far += 1
    whole = hl.asarray(n)  # from here on they are one
    before = [t.version for t in (a, b, far, every_second, other)]
    assert before == [1, 1, 2, 1, 1]
    whole += 1
    assert [t.version for t in (a, b, far, every_second, other)] == [v + 1 for v in before]
    del whole
    gc.collect()
    a += 1
    assert far.version == 4
    assert hl.asarray(n.view(np.uint8)[3:7]).version == a.version  # what else lies there
    m = hl.asarray(np.arange(3.0))
    m += 1
    assert m.version == 1 and a.version == 3


def test_w27_negative_steps_and_other_dtypes():
    n = np.arange(10, dtype=np.int32)
    a, b, c = hl.asarray(n[::-1]), hl.asarray(n.view(np.int16)[::-3]), hl.asarray(n.reshape(2, 5).T)
    for i, t in enumerate((a, b, c), 1):
        t += 1
        assert a.version == b.version == c.version == i


def test_w27_other_exporters():
    source = array.array("f", [1, 2, 3])
    a, b, c = hl.asarray(source), hl.asarray(memoryview(source)[1:]), hl.asarray(np.frombuffer(source, np.float32))
    a += 1
    assert a.version == b.version == c.version == 1 and b.tolist() == [3.0, 4.0]
    with pytest.raises(BufferError):
        source.append(4.0)
    raw = bytearray(8)
    d, e = hl.asarray(raw), hl.asarray(raw)
    d += 1
    assert e.version == 1 and e.tolist() == [1] * 8


def test_w27_the_gradient_is_that_of_the_value_that_was_read():
    for first in IMPORTS.values():
        for second in IMPORTS.values():
            n = np.array([1.0, 2.0])
            a, b = first(n), second(n)
            w = hl.tensor([1.0, 1.0], dtype=hl.float64, requires_grad=True)
            y = (w * a).sum()
            b *= 10
            y.backward()
            assert w.grad.tolist() == [1.0, 2.0] and a.version == b.version == 1


def test_w27_versions_of_many_rows_are_cheap():
    n = np.zeros((20_000, 4))
    rows = [hl.asarray(row) for row in n]
    whole = hl.asarray(n)
    for row in rows:
        row += 1
    assert whole.version == rows[0].version == rows[-1].version == len(rows)
    del rows
    gc.collect()
    whole += 1
    assert whole.version == 20_001 and float(hl.sum(whole)) == 160_000


def test_w27_imports_that_come_and_go_leave_nothing_behind():
    n = np.zeros(100)
    kept = hl.asarray(n[40:50])

    def come_and_go(count):
        for i in range(count):
            hl.asarray(n)
            hl.asarray(n[i % 90 : i % 90 + 10])
            hl.asarray(kept.numpy())
        gc.collect()
        return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()  # resident now

    before = come_and_go(20_000)
    assert come_and_go(200_000) - before < 6_000_000
    kept += 1
    assert kept.version == hl.asarray(n).version == 1


def test_w27_random_ranges_against_a_model():
    """Ranges come and go at random; a write raises exactly the versions of those it is joined with by overlaps."""
    rng = np.random.default_rng(11)
    for _ in range(60):
        memory = np.zeros(60, np.uint8)
        live, joined = [], []  # tensors with their model: [tensor, version, group]
        for _ in range(40):
            what = rng.integers(3)
            if what == 0 or not live:
                low = int(rng.integers(0, 59))
                high = int(rng.integers(low + 1, 61))
                hit = [g for g in joined if g["low"] < high and low < g["high"]]
                group = {"low": min([low] + [g["low"] for g in hit]), "high": max([high] + [g["high"] for g in hit])}
                for entry in live:
                    if any(entry[2] is g for g in hit):
                        entry[2] = group
                joined = [g for g in joined if not any(g is h for h in hit)] + [group]
                t = hl.asarray(memory[low:high])
                live.append([t, t.version, group])
            elif what == 1:
                t, _, group = live[rng.integers(len(live))]
                t += 1
                for entry in live:
                    entry[1] += entry[2] is group
            else:
                entry = live.pop(rng.integers(len(live)))
                if not any(e[2] is entry[2] for e in live):
                    joined = [g for g in joined if g is not entry[2]]
                entry = t = None
            assert [e[0].version for e in live] == [e[1] for e in live]


def test_w27_a_fork_while_others_import_does_not_hang():
    n = np.zeros(100)
    stop = threading.Event()

    def work():
        while not stop.is_set():
            hl.asarray(n[10:]).numpy()

    threads = [threading.Thread(target=work) for _ in range(3)]
    [t.start() for t in threads]
    try:
        for _ in range(20):
            child = os.fork()
            if child == 0:
                x = hl.asarray(n)
                x += 1
                os._exit(0 if x.version == 1 and x[0].item() == 1 else 1)
            assert os.waitpid(child, 0)[1] == 0
    finally:
        stop.set()
        [t.join() for t in threads]
