"""The meta device: every op gives there the shape, dtype and strides that it gives on the CPU, and never a value."""

import functools
import itertools
import operator

import numpy as np
import pytest
from op_oracle import ELEMENTWISE, OPS, OTHERS, REDUCTIONS, accepted, calls, moderate, operand_dtypes

import hyalite as hl

DIFFERENTIABLE = ("float16", "bfloat16", "float32", "float64", "complex64", "complex128")


def outputs(result):
    return result if isinstance(result, tuple) else (result,)


def form(t):
    return t.dtype, t.shape, t.strides if t.size else None


def pair(name, shape, seed=0):
    """A tensor, and one on meta that lies alike."""
    if name.startswith("float8"):
        x = hl.asarray(moderate("float32", int(np.prod(shape)), np.random.default_rng(seed))).astype(getattr(hl, name))
        x = x.reshape(shape)
    else:
        x = hl.asarray(moderate(name, int(np.prod(shape)), np.random.default_rng(seed)).reshape(shape))
    return x, x.to_device("meta")


def check(function, operands):
    """`function` of the operands' first halves and of their second."""
    here, there = (outputs(function(*half)) for half in zip(*operands, strict=True))
    for a, b in zip(here, there, strict=True):
        assert b.device == "meta" and form(a) == form(b)
    return here, there


LAYOUTS = {
    "contiguous": lambda t: t,
    "transposed": lambda t: t.T,
    "strided": lambda t: t[::2, ::-1],
    "column": lambda t: t[:, :1],
    "spread": lambda t: hl.broadcast_to(t[:1], t.shape),
    "empty": lambda t: t[:0],
}


@pytest.mark.parametrize("op, name", [(op, name) for op in ELEMENTWISE for name in accepted(op)])
def test_elementwise_ops(op, name):
    operands = [pair(d, (4, 6), seed) for seed, d in enumerate(operand_dtypes(op, name))]
    for first in LAYOUTS.values():
        for other in (first, LAYOUTS["contiguous"], LAYOUTS["column"]):
            made = [tuple(map(first if i == 0 else other, p)) for i, p in enumerate(operands)]
            try:
                getattr(hl, op)(*(a for a, _ in made))
            except ValueError:  # shapes that do not broadcast, negative powers
                continue
            check(getattr(hl, op), made)


@pytest.mark.parametrize("op, name", [(op, name) for op in REDUCTIONS + OTHERS for name in accepted(op)])
def test_other_ops(op, name):
    for shapes, call, _ in calls(op):
        operands = [pair(name, shape, seed) for seed, shape in enumerate(shapes)]
        try:
            call(*(a for a, _ in operands))
        except (TypeError, ValueError):
            continue
        if op == "take":  # its indices lie inside the call, on the CPU
            with pytest.raises(hl.DeviceMismatch):
                call(*(b for _, b in operands))
            continue
        check(call, operands)


@pytest.mark.parametrize("op", [op for op in OPS if OPS[op]["has_gradient"] and op != "take"])
@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_gradients_have_the_forms_of_their_operands(op, name):
    if name not in accepted(op):
        return
    for shapes, call, _ in (
        [([(3, 4)] * len(operand_dtypes(op, name)), getattr(hl, op), None)] if op in ELEMENTWISE else calls(op)
    ):
        dtypes = operand_dtypes(op, name) if op in ELEMENTWISE else [name] * len(shapes)
        leaves = []
        for seed, (shape, dtype) in enumerate(zip(shapes, dtypes, strict=True)):
            t = pair(dtype, shape, seed)[1]
            leaves.append(t.requires_grad_(True) if dtype in DIFFERENTIABLE else t)
        results = [r for r in outputs(call(*leaves)) if r.requires_grad]
        for r in results:
            r.backward(hl.ones_like(r), retain_graph=True)
        for t in leaves:
            if t.requires_grad and t.grad is not None:
                assert t.grad.device == "meta" and t.grad.shape == t.shape and t.grad.dtype is t.dtype


def test_derivatives_of_programs():
    def loss(w, x):
        return (hl.softmax(hl.tanh(x @ w), axis=-1) ** 2).mean()

    w, x = (hl.ones(s, device="meta") for s in ((5, 3), (7, 5)))
    assert form(hl.grad(loss)(w, x)) == (hl.float32, (5, 3), (3, 1))
    assert hl.hessian(lambda w: loss(w, x))(hl.ones((5, 3), device="meta")).shape == (5, 3, 5, 3)
    value, gradient = hl.value_and_grad(loss)(w, x)
    assert value.shape == () and gradient.device == "meta"


@pytest.mark.parametrize("op", REDUCTIONS)
def test_reductions_of_nothing_are_refused_alike(op):
    """What only shapes decide, the guard says, before any device is asked."""
    for shape, axis in itertools.product([(0,), (3, 0), (0, 3), (2, 0, 0)], [None, 0, -1]):
        said = []
        for x in (hl.ones(shape, dtype=hl.float32), hl.ones(shape, device="meta")):
            try:
                said.append(getattr(hl, op)(x, axis=axis).shape)
            except ValueError as error:
                said.append(str(error))
        assert said[0] == said[1], (shape, axis)


def test_index_arrays_have_shapes_there_and_masks_do_not():
    x = hl.ones((4, 5), device="meta")
    i = hl.asarray([0, 2, 1]).to_device("meta")
    assert x[i].shape == (3, 5) and x[:, i, None].shape == (4, 3, 1) and x[i, i].shape == (3,)
    x[x > 0] = 1.0
    with pytest.raises(hl.Unsupported, match="index"):
        x[hl.ones(4, dtype=hl.bool, device="meta")]


def test_creation():
    for make in (
        lambda **d: hl.zeros((2, 3), **d),
        lambda **d: hl.ones(4, dtype=hl.int8, **d),
        lambda **d: hl.full((2,), 7, **d),
        lambda **d: hl.arange(5, **d),
        lambda **d: hl.arange(0.0, 1.0, 0.25, **d),
        lambda **d: hl.linspace(0, 1, 5, **d),
        lambda **d: hl.eye(3, 4, k=1, **d),
        lambda **d: hl.empty((0, 3), **d),
        lambda **d: hl.asarray([[1, 2], [3, 4]], **d),
        lambda **d: hl.tensor([1.0, 2.0], **d),
    ):
        here, there = make(), make(device="meta")
        assert there.device == "meta" and form(here) == form(there)
    x = hl.ones((2, 3), device="meta")
    for like in (hl.zeros_like, hl.ones_like, hl.empty_like, lambda t: hl.full_like(t, 3.0)):
        assert like(x).device == "meta" and like(x).shape == (2, 3)


def test_it_costs_no_memory_of_its_size():
    before = hl.memory_stats()["allocated_bytes"]
    x = hl.ones((1 << 20, 1 << 20), device="meta")
    y = (x @ x).sum(axis=0) + x
    assert y.nbytes == 1 << 42 and hl.memory_stats()["allocated_bytes"] - before < 1 << 16


def test_views_and_writes():
    x = hl.ones((4, 5), device="meta")
    v = x[1:3, ::2]
    assert v.shape == (2, 3) and v.strides == (5, 2)
    version = x.version
    v += 1
    x[0] = 2.0
    x[:, 1] = hl.ones(4, device="meta")
    assert x.version == v.version == version + 3
    w = hl.ones((4,), device="meta").requires_grad_(True)
    y = w * 2
    y[1:] *= w[1:]
    y.sum().backward()
    assert w.grad.shape == (4,)


REFUSED = {
    "numpy": lambda x: x.numpy(),
    "asarray of NumPy": np.asarray,
    "tolist": lambda x: x.tolist(),
    "item": lambda x: x[0, 0].item(),
    "float": lambda x: float(x[0, 0]),
    "int": lambda x: int(x[0, 0]),
    "complex": lambda x: complex(x[0, 0]),
    "bool": lambda x: bool(x[0, 0]),
    "index": lambda x: operator.index(x[0, 0].astype(hl.int64)),
    "format": lambda x: f"{x[0, 0]:.3f}",
    "tobytes": lambda x: x.tobytes(),
    "bytes": bytes,
    "memoryview": memoryview,
    "dlpack": np.from_dlpack,
    "pickle": lambda x: x.__reduce__(),
    "to the CPU": lambda x: x.to_device("cpu"),
    "mask": lambda x: x[x > 0],
    "write through indices": lambda x: x.__setitem__([0, 1], 1.0),
    "mixed devices": lambda x: x + hl.ones((4, 5)),
    "written from the CPU": lambda x: x.__iadd__(hl.ones((4, 5))),
    "stored from the CPU": lambda x: x.__setitem__(0, hl.ones((5,))),
    "stored into the CPU": lambda x: hl.ones((4, 5)).__setitem__(0, x[0]),
    "write of the CPU": lambda x: hl.ones((4, 5)).__iadd__(x),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_needs_values_raises(what):
    with pytest.raises((hl.Unsupported, hl.DeviceMismatch, BufferError, TypeError)) as caught:
        REFUSED[what](hl.ones((4, 5), device="meta"))
    assert "meta" in str(caught.value), caught.value


def test_how_it_is_written():
    x = hl.ones((2, 3), device="meta")
    assert repr(x) == str(x) == "tensor(..., shape=(2, 3), dtype=float32, device='meta')"
    assert "requires_grad=True" in repr(x.requires_grad_(True))
    assert hl.arange(3).to_device("meta").dtype is hl.int64


def test_it_is_explained():
    x = hl.ones((2, 3), device="meta")
    trace = hl.explain(functools.partial(operator.add, x, x), show=False)
    assert [op["result"]["device"] for op in trace.ops] == ["meta"]
    assert any(s["label"] == "nothing to compute" for s in trace.steps)
