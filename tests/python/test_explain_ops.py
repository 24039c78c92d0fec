"""Every op under explain, in every dtype, with operands that require grad: what is traced is what runs untraced."""

import functools
import itertools

import numpy as np
import pytest
from op_oracle import ELEMENTWISE, OPS, OTHERS, REDUCTIONS, accepted, calls, moderate, operand_dtypes, same_bits

import hyalite as hl

DTYPES = sorted({name for op in OPS for name in accepted(op)} | {"float8_e4m3fn", "float8_e5m2"})
DIFFERENTIABLE = ("float16", "bfloat16", "float32", "float64", "complex64", "complex128")


def tensor(name, shape, seed=0):
    """A leaf that requires grad where its dtype has one."""
    if name.startswith("float8"):
        x = hl.asarray(moderate("float32", int(np.prod(shape)), np.random.default_rng(seed))).astype(getattr(hl, name))
        return x.reshape(shape)
    x = hl.asarray(moderate(name, int(np.prod(shape)), np.random.default_rng(seed)).reshape(shape))
    return x.requires_grad_(True) if name in DIFFERENTIABLE else x


def outputs(result):
    return result if isinstance(result, tuple) else (result,)


def bits_of(t):
    return t.astype(hl.float64) if t.dtype.name.startswith("float8") else t


def recorded(function):
    with hl.explain(show=False) as trace:
        result = outputs(function())
    return result, trace


def check_same(function):
    """The traced results, in both forms of explain, are those without it, and the trace tells of their nodes."""
    try:
        plain = outputs(function())
    except (TypeError, ValueError, NotImplementedError) as error:
        for explained in (lambda: hl.explain(function, show=False), lambda: recorded(function)):
            with pytest.raises(type(error)) as caught:
                explained()
            assert str(caught.value) == str(error)
        return None
    traced, trace = recorded(function)
    for a, b in zip(plain, traced, strict=True):
        assert a.dtype is b.dtype and a.shape == b.shape and a.requires_grad == b.requires_grad
        assert (a.grad_fn is None) == (b.grad_fn is None)
        assert same_bits(bits_of(a.detach()), bits_of(b.detach()))
    nodes = [s["label"] for s in trace.steps if s["phase"] == "Record"]
    if any(t.grad_fn is not None for t in traced):
        assert any(label.endswith(" node") and label != "no node" for label in nodes)
    elif trace.ops:
        assert set(nodes) == {"no node"}
    called = hl.explain(function, show=False)
    assert [op["name"] for op in called.ops] == [op["name"] for op in trace.ops]
    return trace


@pytest.mark.parametrize("op, name", [(op, name) for op in ELEMENTWISE for name in accepted(op)])
def test_c2_elementwise_ops(op, name):
    operands = [tensor(d, (3, 4), seed) for seed, d in enumerate(operand_dtypes(op, name))]
    check_same(lambda: getattr(hl, op)(*operands))


@pytest.mark.parametrize("op, name", [(op, name) for op in REDUCTIONS + OTHERS for name in accepted(op)])
def test_c2_other_ops(op, name):
    for shapes, call, _ in calls(op):
        operands = [tensor(name, shape, seed) for seed, shape in enumerate(shapes)]
        check_same(functools.partial(call, *operands))


@pytest.mark.parametrize("start", DTYPES)
def test_c2_casts_to_every_dtype(start):
    x = tensor(start, (3, 4))
    for end in DTYPES:
        trace = check_same(functools.partial(x.astype, getattr(hl, end)))
        if trace and start in DIFFERENTIABLE and end not in DIFFERENTIABLE:
            step = next(s for s in trace.steps if s["phase"] == "Record")
            assert step["why"] == "the result's dtype has no gradient"


@pytest.mark.parametrize("op, name", list(itertools.product(["sum", "prod"], DIFFERENTIABLE)))
def test_c2_reductions_into_other_dtypes(op, name):
    x = tensor(name, (3, 4))
    for end in accepted(op):
        if not (name.startswith("complex") and not end.startswith("complex")):
            check_same(functools.partial(getattr(hl, op), x, dtype=getattr(hl, end)))


# ---- writes in place ----------------------------------------------------------------------------------------------

WRITES = {
    "__iadd__": lambda v, w: v.__iadd__(w),
    "__isub__": lambda v, w: v.__isub__(w),
    "__imul__": lambda v, w: v.__imul__(hl.asarray(2.0)),
    "__itruediv__": lambda v, w: v.__itruediv__(hl.asarray(2.0)),
    "setitem": lambda v, w: v.__setitem__(slice(None), w),
}
VIEWS = {
    "itself": lambda y: y,
    "slice": lambda y: y[1:3],
    "slice of a slice": lambda y: y[:3][1:],
    "reshape": lambda y: y.reshape((2, 6))[:1],
    "transpose": lambda y: y.mT[1:3],
}


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("write", WRITES)
def test_t12_a_write_through_a_view_is_one_node_and_no_op_of_the_trace_s_own(view, write):
    """The ops of the traced write are those of a write without recorded history; its node is the write's."""

    def written(requires_grad):
        x = hl.asarray(np.arange(12.0).reshape(4, 3)).requires_grad_(requires_grad)
        y = x * 1.0
        v = VIEWS[view](y)
        w = hl.asarray(np.full(v.shape[-1:], 0.5)).requires_grad_(requires_grad)
        with hl.explain(show=False) as trace:
            WRITES[write](v, w)
        if not requires_grad:
            return trace, None
        y.sum().backward()
        return trace, (x.grad.tolist(), None if w.grad is None else w.grad.tolist(), y.tolist())

    trace, gradients = written(True)
    plain, _ = written(False)
    assert [op["name"] for op in trace.ops] == [op["name"] for op in plain.ops]
    last = [s for s in trace.steps if s["phase"] == "Record"][-1]
    op = {"__iadd__": "Add", "__isub__": "Subtract", "__imul__": "Multiply", "__itruediv__": "Divide"}
    assert last["label"] == f"{op.get(write, 'Astype')}Backward node"
    assert last["facts"]["next_edges"].startswith(("MultiplyBackward", "none", "AccumulateGrad", "Broadcast"))

    x = hl.asarray(np.arange(12.0).reshape(4, 3)).requires_grad_(True)
    y = x * 1.0
    v = VIEWS[view](y)
    w = hl.asarray(np.full(v.shape[-1:], 0.5)).requires_grad_(True)
    WRITES[write](v, w)
    y.sum().backward()
    assert gradients == (x.grad.tolist(), None if w.grad is None else w.grad.tolist(), y.tolist())
