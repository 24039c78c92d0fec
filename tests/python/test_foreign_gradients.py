"""W13: what a gradient needs of memory that somebody else can write is kept as it was when it was read."""

import array
import operator

import numpy as np
import pytest
from test_op_gradients import DIFFERENTIABLE, SIMPLE, WHOLE, calls, declared, direction, generic_operands, points, signs

import hyalite as hl
from hyalite import _C


def lent(n):
    """A tensor of our own whose memory NumPy has as well."""
    x = hl.tensor(n)
    lent.arrays.append(x.numpy())
    return x


def lent_buffer(n):
    x = hl.tensor(n)
    lent.arrays.append(np.asarray(memoryview(x)))
    return x


def lent_dlpack(n):
    x = hl.tensor(n)
    lent.arrays.append(np.from_dlpack(x))
    return x


def read_only(n):
    """Read-only here, and written by its owner all the same."""
    locked = n.view()
    locked.flags.writeable = False
    return hl.asarray(locked)


WAYS = {
    "asarray": hl.asarray,
    "from_dlpack": hl.from_dlpack,
    "memoryview": lambda n: hl.asarray(memoryview(n)),
    "read-only": read_only,
    "a view": lambda n: hl.asarray(n.reshape(1, *n.shape))[0],
    "numpy()": lent,
    "memoryview(x)": lent_buffer,
    "np.from_dlpack": lent_dlpack,
}


def spoil(arrays):
    for n in arrays:
        n[...] = ~n if n.dtype == bool else -7


def gradients(function, tensors, weights, between=lambda: None):
    inputs = [t.requires_grad_(True) if t.dtype in (hl.float64, hl.complex128) else t for t in tensors]
    outputs = function(*inputs)
    outputs = outputs if isinstance(outputs, tuple) else (outputs,)
    between()
    roots = [(o, hl.tensor(w)) for o, w in zip(outputs, weights) if o.requires_grad]
    leaves = [t for t in inputs if t.requires_grad]
    got = _C._grad([o for o, _ in roots], leaves, [w for _, w in roots], False, False)
    return [None if g is None else g.tolist() for g in got]


def weights_of(function, arrays):
    outputs = function(*[hl.tensor(a) for a in arrays])
    outputs = outputs if isinstance(outputs, tuple) else (outputs,)
    return [direction(o.numpy(), 100 + i) if o.numpy().dtype.kind in "fc" else None for i, o in enumerate(outputs)]


def check(function, arrays, way):
    weights = weights_of(function, arrays)
    want = gradients(function, [hl.tensor(a) for a in arrays], weights)
    arrays = [a.copy() for a in arrays]
    lent.arrays = []
    tensors = [WAYS[way](a) for a in arrays]
    assert gradients(function, tensors, weights, lambda: spoil(arrays + lent.arrays)) == want


@pytest.mark.parametrize("way", WAYS)
def test_w13_every_elementwise_op_keeps_what_it_read(way):
    tried = 0
    for op in SIMPLE:
        for name in {"float64", "complex128"} & set(declared(op)):
            check(getattr(hl, op), generic_operands(op, name), way)
            tried += 1
    assert tried >= len(SIMPLE)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("op", WHOLE)
def test_w13_every_other_op_keeps_what_it_read(op, way):
    name = "complex128" if op == "imag" else "float64"
    for shapes, function, _ in calls(op):
        check(function, [signs(points(name, s, 11 + i), i) for i, s in enumerate(shapes)], way)
    assert op in DIFFERENTIABLE


@pytest.mark.parametrize("way", WAYS)
def test_w13_indices_and_masks_that_are_written_later(way):
    arrays = [np.array([1.0, 2.0, 3.0, 4.0]), np.array([2, 0, 2])]
    check(lambda x, i: x[i] * x[i], arrays, "asarray")
    check(lambda x, i: hl.take(x, i, 0) ** 2, arrays, "asarray")
    masked = [np.array([1.0, 2.0, 3.0]), np.array([True, False, True])]
    check(lambda x, m: x[m] ** 3, masked, way if way != "a view" else "asarray")
    check(lambda x, m: hl.where(m, x * x, 2 * x), masked, way)


IN_PLACE = ["iadd", "isub", "imul", "itruediv", "ipow", "imod"]


@pytest.mark.parametrize("name", IN_PLACE)
@pytest.mark.parametrize("way", [w for w in WAYS if w != "read-only"])
@pytest.mark.parametrize("view", [lambda t: t, lambda t: t[1:], lambda t: t[::-1]], ids=["all", "a part", "reversed"])
def test_w13_a_target_in_foreign_memory(name, way, view):
    """In place on memory that NumPy has: neither the old value nor the new one comes from what NumPy writes later."""
    f = getattr(operator, name)

    def run(t, spoiled):
        w = hl.tensor([1.5, 2.0, 0.75], dtype=hl.float64, requires_grad=True)
        v = view(t)
        f(v, w[: v.shape[0]])
        weight = hl.tensor([3.0, 5.0, 7.0], dtype=hl.float64)
        out = (t * weight).sum()
        spoil(spoiled)
        out.backward()
        return None if w.grad is None else w.grad.tolist()

    n = np.array([2.0, 3.0, 0.5])
    want = run(hl.tensor(n), [])
    lent.arrays = []
    t = WAYS[way](n)
    assert run(t, [n, *lent.arrays]) == want


def test_w13_the_line_itself():
    n = np.array([2.0, 3.0])
    w = hl.tensor([1.0, 1.0], dtype=hl.float64, requires_grad=True)
    y = w * n
    n[:] = 0
    y.sum().backward()
    assert w.grad.tolist() == [2.0, 3.0]
    for source in (array.array("d", [2.0, 3.0]), bytearray(np.array([2.0, 3.0]).tobytes())):
        w.grad = None
        given = source if isinstance(source, array.array) else np.frombuffer(source, np.float64)
        y = w * hl.asarray(given)
        memoryview(source).cast("B")[:] = bytes(16)
        y.sum().backward()
        assert w.grad.tolist() == [2.0, 3.0]


def test_w13_second_derivatives_too():
    n = np.array([2.0, 3.0])
    w = hl.tensor([1.0, 4.0], dtype=hl.float64, requires_grad=True)
    y = (w**3 * n).sum()
    n[:] = 0
    (g,) = _C._grad([y], [w], [None], True, True)
    (h,) = _C._grad([g.sum()], [w], [None], False, False)
    assert g.tolist() == [6.0, 144.0] and h.tolist() == [12.0, 72.0]


def test_w13_once_the_array_is_gone_nothing_is_copied():
    x = hl.ones(1_000_000)
    w = hl.ones(1_000_000).requires_grad_()

    def kept():
        before = hl.memory_stats()["allocated_bytes"]
        y = w * x
        return hl.memory_stats()["allocated_bytes"] - before - y.nbytes

    assert kept() < 200_000
    n = x.numpy()
    assert kept() >= 4_000_000
    del n
    assert kept() < 200_000
    locked = hl.broadcast_to(x[:1], (3,)).numpy()  # read-only: nobody can write it
    assert not locked.flags.writeable and kept() < 200_000
