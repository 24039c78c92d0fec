"""What is not taken gets nothing, not zero (W10): over every op that makes nothings, every op that carries them, and
three orders of derivatives. A gradient that is the number 0 hides nothing."""

import numpy as np
import pytest
from op_oracle import COMPLEX, ELEMENTWISE, OPS, REDUCTIONS, calls, declared
from test_casts import numpy_dtype

import hyalite as hl
from hyalite import _C

DIFFERENTIABLE = [op for op in OPS if OPS[op]["has_gradient"]]


def f64(*values):
    return hl.tensor(list(values), dtype=hl.float64)


def gradients(function, x, orders=1):
    """The derivatives of the sum of function(x), each of the sum of the one before; None where that is constant."""
    x = x.requires_grad_(True)
    value, found = hl.sum(function(x)), []
    for order in range(orders):
        if value is None or not value.requires_grad:
            found.append(None)
            continue
        (g,) = _C._grad([value], [x], [hl.ones_like(value)], True, order + 1 < orders)
        found.append(None if g is None else g.detach().numpy())
        value = None if g is None else hl.sum(g)
    return found


def zero_if_none(g, like):
    return np.zeros(like.shape, like.dtype) if g is None else g


# ---- what makes nothings -------------------------------------------------------------------------------------------

# Each lets element 0 of a vector go, and takes all others once; lower and upper bounds on what it is used for follow.
KEEP = np.array([False, True, True, True])
NOT_TAKEN = {
    "where, first": lambda v: hl.where(hl.asarray(KEEP), v, hl.zeros_like(v)),
    "where, second": lambda v: hl.where(hl.asarray(~KEEP), hl.zeros_like(v), v),
    "slice": lambda v: v[1:],
    "slice with a step": lambda v: hl.concat([v[3:0:-2], v[2:3]]),
    "index": lambda v: v[1] + v[2] + v[3],
    "take": lambda v: hl.take(v, hl.asarray([1, 2, 3]), axis=0),
    "list": lambda v: v[[3, 1, 2]],
    "mask": lambda v: v[hl.asarray(KEEP)],
    "slice of a reshape": lambda v: hl.reshape(v, (2, 2))[1].sum() + hl.reshape(v, (2, 2))[0, 1],
    "written over": lambda v: overwritten(v),
    "unused after a concat": lambda v: hl.concat([v, v])[5:],
    "unused after a stack": lambda v: hl.stack([v, v])[1, 1:],
    "broadcast": lambda v: hl.where(hl.asarray(KEEP), hl.broadcast_to(v, (3, 4)), 0.0)[0],
    "nested": lambda v: hl.where(hl.asarray([False, True, False, True]), v[[0, 1, 2, 3]], 0.0)[1:] + skip(v, 2),
}


def skip(v, kept):
    return hl.where(hl.asarray(np.arange(4) == kept), v, 0.0)[1:]


def overwritten(v):
    y = v * 1
    y[:1] = 0.0
    return y


def apart(make, source, bad, good, orders, dtype="float64"):
    """The derivatives by x with an element 0 whose slope is bad, and with a harmless one."""
    rest = [0.7, 1.3, 2.1]
    both = [hl.asarray(np.array([first, *rest], dtype=np.float64).astype(numpy_dtype(dtype))) for first in (bad, good)]
    return [gradients(lambda x: make(source(x)), x, orders) for x in both], both[0].detach().numpy()


def check_nothing(make, source, bad, good, orders=3, dtype="float64"):
    (got, want), x = apart(make, source, bad, good, orders, dtype)
    for order, (a, b) in enumerate(zip(got, want)):
        a, b = (np.asarray(zero_if_none(g, x)).astype(np.float64) for g in (a, b))
        assert a[0] == 0 and not np.signbit(a[0]), f"order {order + 1}: {a}"
        np.testing.assert_array_equal(a[1:], b[1:], err_msg=f"order {order + 1}")


@pytest.mark.parametrize("make", NOT_TAKEN)
def test_w10_what_is_not_taken_gets_nothing_to_third_order(make):
    check_nothing(NOT_TAKEN[make], hl.log, 0.0, 1.0)
    check_nothing(NOT_TAKEN[make], hl.sqrt, 0.0, 1.0)
    check_nothing(NOT_TAKEN[make], lambda x: hl.sqrt(hl.log(x)) + hl.log(x), 0.0, 1.5)


CHOOSING = {
    "maximum, first": lambda v: hl.maximum(v, -50.0),
    "maximum, second": lambda v: hl.maximum(hl.full(v.shape, -50.0, dtype=v.dtype), v),
    "minimum": lambda v: hl.minimum(-v, 50.0),
    "clip": lambda v: hl.clip(v, -50.0, 50.0),
    "clip by a tensor": lambda v: hl.clip(v, hl.full(v.shape, -50.0, dtype=v.dtype), None),
    "relu": lambda v: hl.relu(v + 50.0),
    "max": lambda v: hl.max(hl.stack([v, hl.full(v.shape, -50.0, dtype=v.dtype)]), axis=0),
    "min": lambda v: hl.min(hl.stack([-v, hl.full(v.shape, 50.0, dtype=v.dtype)]), axis=0),
}


@pytest.mark.parametrize("make", CHOOSING)
def test_w10_the_side_that_is_not_the_result_gets_nothing(make):
    check_nothing(CHOOSING[make], hl.log, 0.0, np.exp(-60.0))


@pytest.mark.parametrize("make", CHOOSING)
def test_w10_a_clip_s_bound_gets_nothing_where_x_is_the_result(make):
    x = f64(1.0, 2.0).requires_grad_(True)
    low = f64(0.0, 0.0).requires_grad_(True)
    hl.sum(hl.clip(x, hl.log(low), None)).backward()
    np.testing.assert_array_equal(low.grad.numpy(), [0, 0])


# ---- what carries them ---------------------------------------------------------------------------------------------

UNARY = [op for op in DIFFERENTIABLE if op in ELEMENTWISE and OPS[op]["arity"] == 1 and "float64" in declared(op)]
BINARY = [op for op in DIFFERENTIABLE if op in ELEMENTWISE and OPS[op]["arity"] == 2 and "float64" in declared(op)]
DTYPES = ["float16", "bfloat16", "float32", "float64"]


def first_only(v):
    """The first output of an op with two, and both."""
    return v if isinstance(v, hl.Tensor) else v[0] + v[1]


@pytest.mark.parametrize("op", UNARY)
@pytest.mark.parametrize("dtype", DTYPES)
def test_w10_every_unary_op_carries_nothing(op, dtype):
    function = getattr(hl, op)
    orders = 3 if dtype == "float64" else 2
    for make in ("where, first", "take", "slice"):
        check_nothing(NOT_TAKEN[make], lambda x: function(hl.log(x)), 0.0, 1.0, orders, dtype)


@pytest.mark.parametrize("op", BINARY)
def test_w10_every_binary_op_carries_nothing_to_both_sides(op):
    function = getattr(hl, op)
    other = f64(0.9, 1.1, 0.4, 1.9)
    for make in ("where, first", "take", "slice"):
        check_nothing(NOT_TAKEN[make], lambda x: first_only(function(hl.log(x), other)), 0.0, 1.0)
        check_nothing(NOT_TAKEN[make], lambda x: first_only(function(other, hl.log(x))), 0.0, 1.0)
        check_nothing(NOT_TAKEN[make], lambda x: first_only(function(hl.log(x), 1.25)), 0.0, 1.0)


def rows(v):
    return hl.stack([v, v * 2, v * 3], axis=1)


CARRYING = {
    "reshape": lambda s: hl.reshape(hl.reshape(s, (2, 2)), (4,)),
    "permute_dims": lambda s: hl.permute_dims(rows(s), (1, 0))[0],
    "broadcast_to": lambda s: hl.sum(hl.broadcast_to(s, (5, 4)), axis=0),
    "broadcasting": lambda s: hl.sum(s * hl.ones((5, 1), dtype=s.dtype), axis=0),
    "expand_dims, squeeze": lambda s: hl.squeeze(hl.expand_dims(s, axis=1), axis=1),
    "astype": lambda s: hl.astype(hl.astype(s, hl.float32), hl.float64),
    "astype to float16": lambda s: hl.astype(hl.astype(s, hl.float16), hl.float64),
    "complex and back": lambda s: hl.real(hl.astype(s, hl.complex128)),
    "imaginary part": lambda s: hl.imag(hl.astype(s, hl.complex128) * 1j),
    "conj": lambda s: hl.real(hl.conj(hl.astype(s, hl.complex128))),
    "complex beside real": lambda s: hl.real(s * hl.full((4,), 1 + 0j, dtype=hl.complex128)),
    "contiguous": lambda s: hl.contiguous(s[::-1])[::-1],
    "concat": lambda s: hl.concat([s[:2], s[2:]]),
    "stack": lambda s: hl.stack([s, s])[0],
    "sum": lambda s: hl.sum(rows(s), axis=1),
    "mean": lambda s: hl.mean(rows(s), axis=1),
    "prod": lambda s: hl.prod(rows(s), axis=1),
    "max": lambda s: hl.max(rows(s), axis=1),
    "min": lambda s: hl.min(rows(s), axis=1),
    "softmax": lambda s: hl.softmax(rows(s), axis=1)[:, 0],
    "log_softmax": lambda s: hl.log_softmax(rows(s), axis=1)[:, 0],
    "matmul, left": lambda s: (rows(s) @ hl.ones((3, 2), dtype=s.dtype))[:, 0],
    "matmul, right": lambda s: (hl.ones((2, 3), dtype=s.dtype) @ rows(s).T)[0],
    "matmul, a vector": lambda s: rows(s) @ hl.ones((3,), dtype=s.dtype),
    "matmul, broadcast": lambda s: hl.sum(rows(s) @ hl.ones((6, 3, 2), dtype=s.dtype), axis=(0, 2)),
    "take": lambda s: hl.take(s, hl.asarray([0, 1, 2, 3]), axis=0),
    "reversed": lambda s: s[::-1][::-1],
    "flip, moveaxis": lambda s: hl.moveaxis(hl.flip(rows(s), axis=0), 0, 1)[0, ::-1],
    "matrix_transpose": lambda s: hl.matrix_transpose(rows(s))[0],
    "in place": lambda s: in_place(s),
    "view written in place": lambda s: view_written(s),
    "where inside": lambda s: hl.where(hl.asarray([True, True, False, True]), s, s * 2),
    "maximum inside": lambda s: hl.maximum(s, -1e300),
    "remainder": lambda s: hl.remainder(s, 3.0),
}


def in_place(s):
    y = s * 1
    y *= 2
    y += s
    return y


def view_written(s):
    y = s * 1
    v = y[:2]
    v *= 3
    return y


@pytest.mark.parametrize("carry", CARRYING)
@pytest.mark.parametrize("make", ["where, first", "take", "slice", "mask", "written over"])
def test_w10_every_other_op_carries_nothing(carry, make):
    check_nothing(NOT_TAKEN[make], lambda x: CARRYING[carry](hl.log(x)), 0.0, 1.0)


def test_the_table_of_carrying_ops_is_whole():
    """Each differentiable op that is no elementwise one stands in it."""
    written = " ".join(CARRYING)
    for op in DIFFERENTIABLE:
        if op not in ELEMENTWISE:
            assert op in written or op in ("real", "imag"), op
    assert calls and REDUCTIONS and COMPLEX


@pytest.mark.parametrize("make", ["where, first", "take", "slice"])
def test_w10_complex_slopes_that_are_not_taken(make):
    for op in DIFFERENTIABLE:
        if op in ELEMENTWISE and OPS[op]["arity"] == 1 and "complex128" in declared(op):
            x = hl.asarray(np.array([0, 0.5 + 1j, 1 - 1j, 2j])).requires_grad_(True)
            kept = NOT_TAKEN[make](getattr(hl, op)(hl.log(x)))
            kept.backward(hl.ones_like(kept))
            assert x.grad.numpy()[0] == 0, op


# ---- numbers hide nothing ------------------------------------------------------------------------------------------


def test_w10_a_slope_lost_to_underflow_is_seen():
    (g,) = gradients(lambda x: hl.log1p(hl.exp(x)), f64(800.0, 1.0))
    assert np.isnan(g[0]) and np.isfinite(g[1])
    (g,) = gradients(lambda x: hl.sqrt(x * x), f64(np.inf, 1.0))
    assert np.isnan(g[0]) and g[1] == 1


def narrow(s):
    return hl.where(hl.asarray([True, True, False, False]), hl.astype(s, hl.float16), 1.0)


SEEN = {
    "times zero": lambda s, zero: s * zero,
    "divided by infinity": lambda s, zero: s / (1 / zero),
    "underflow": lambda s, zero: s * (zero + 1e-200) * 1e-200,
    "minus zero": lambda s, zero: -(s * zero),
    "a weak number": lambda s, zero: s * 0.0,
    "floor": lambda s, zero: hl.floor(s),
    "through a reshape": lambda s, zero: hl.reshape(hl.reshape(s, (2, 2)) * hl.reshape(zero, (2, 2)), (4,)),
    "through a slice": lambda s, zero: (s[0:3] * zero[0:3]),
    "through a slice, minus zero": lambda s, zero: -(s[0:3] * zero[0:3]),
    "through take, minus zero": lambda s, zero: -(hl.take(s, hl.asarray([0, 1]), axis=0) * zero[:2]),
    "taken by where": lambda s, zero: hl.where(zero == 0, s * zero, 1.0),
    "taken by where, minus zero": lambda s, zero: -hl.where(zero == 0, s, 1.0) * zero,
    "taken by maximum": lambda s, zero: -hl.maximum(s, -np.inf) * zero,
    "summed with nothing": lambda s, zero: s[0:2] * zero[0:2] + hl.where(zero[0:2] != 0, s[0:2], 1.0),
    "broadcast": lambda s, zero: s * hl.zeros((3, 1), dtype=s.dtype),
    "matmul": lambda s, zero: hl.reshape(s, (4, 1)) @ hl.zeros((1, 2), dtype=s.dtype),
    "in float16": lambda s, zero: narrow(s) * -1e-7 * hl.astype(zero + 1e-4, hl.float16),
}  # fmt: skip


@pytest.mark.parametrize("name", SEEN)
@pytest.mark.parametrize("create", [False, True])
def test_w10_a_gradient_of_zero_meets_an_infinite_slope_and_is_seen(name, create):
    x = f64(0.0, 1.0, 2.0, 3.0).requires_grad_(True)
    value = hl.sum(SEEN[name](hl.log(x), hl.zeros((4,), dtype=hl.float64)))
    (g,) = _C._grad([value], [x], [hl.ones_like(value)], create, create)
    assert np.isnan(g.detach().numpy()[0]), g


# ---- what users see --------------------------------------------------------------------------------------------------


def test_w10_no_minus_zero_that_stands_for_nothing_is_ever_seen():
    seen = []
    x = f64(-1.0, 2.0, -3.0).requires_grad_(True)
    y = x * 1
    y.register_hook(lambda g: seen.append(g.numpy().copy()))
    hl.sum(hl.relu(y)).backward()
    (captured,) = _C._grad([hl.sum(hl.relu(x * 1))], [x], [None], False, False)
    for g in (*seen, x.grad.numpy(), captured.numpy(), hl.grad(lambda t: hl.sum(t[1:]))(x.detach()).numpy()):
        assert not np.signbit(g).any(), g
        assert len(g) == 3


def test_w10_a_hook_that_only_looks_changes_nothing():
    x = f64(0.0, 1.0).requires_grad_(True)
    y = hl.log(x)
    y.register_hook(lambda g: None)
    hl.sum(hl.where(x > 0, y, 0.0)).backward()
    np.testing.assert_array_equal(x.grad.numpy(), [0, 1])
    x.grad = None
    y = hl.log(x)
    y.register_hook(lambda g: g)
    hl.sum(hl.where(x > 0, y, 0.0)).backward()
    np.testing.assert_array_equal(x.grad.numpy(), [0, 1])


def test_w10_what_a_hook_gives_is_a_number():
    x = f64(0.0, 1.0).requires_grad_(True)
    y = hl.log(x)
    y.register_hook(lambda g: g * 2)
    hl.sum(hl.where(x > 0, y, 0.0)).backward()
    assert np.isnan(x.grad.numpy()[0]) and x.grad.numpy()[1] == 2


def test_w10_gradients_that_are_not_taken_add_up_to_what_is():
    """One use takes an element that another does not: bit for bit the gradient of the one."""
    x = f64(0.3, 0.7, 1.9).requires_grad_(True)
    y = hl.sin(x)
    hl.sum(hl.where(x > 0.5, y, 0.0) + hl.where(x > 0.5, 0.0, y)).backward()
    z = x.detach().requires_grad_(True)
    hl.sum(hl.sin(z)).backward()
    np.testing.assert_array_equal(x.grad.numpy(), z.grad.numpy())


def test_cases_55_and_56():
    x = f64(-1.0, -4.0)
    np.testing.assert_array_equal(gradients(lambda x: hl.where(x > 0, hl.sqrt(x), x), x)[0], [1, 1])
    a = hl.tensor([100.0])
    np.testing.assert_array_equal(gradients(lambda a: hl.where(a <= 0, hl.exp(a), 1 + a), a)[0], [1])
    x = f64(0.0, np.inf)
    np.testing.assert_array_equal(gradients(lambda x: hl.where(x < 1, hl.cos(x), 0.0), x)[0], [0, 0])
    x, y = f64(0.0).requires_grad_(True), f64(0.0).requires_grad_(True)
    hl.sum(hl.maximum(hl.sqrt(x * x + y * y), 1e-10)).backward()
    assert x.grad.numpy()[0] == 0 and y.grad.numpy()[0] == 0
    assert gradients(hl.sqrt, f64(0.0, -0.0))[0].tolist() == [np.inf, np.inf]


# ---- every way to a gradient ----------------------------------------------------------------------------------------

FOUR = hl.asarray(np.ones((4, 4), np.float32))
TWO_WAYS = [
    lambda w: (FOUR[:, :2] @ w[2:4]).sum() + FOUR.sum() * w[0, 0], lambda w: w[2:4].sum(),
    lambda w: hl.where(w > 2, w, 0).sum() + w[1].sum() + w[0].sum(), lambda w: w[1:][1:].sum() * w[-1].sum(),
    lambda w: hl.max(w[:2]) + hl.take(w, hl.asarray([1, 3])).sum(), lambda w: (w[:1] * w[1:2]).sum() + hl.max(w),
]  # fmt: skip


def numbers_by_every_way(f, *others):
    """Gradients of f and of what stands for it; raises where one is not the first, or has a -0."""

    def leaf():
        return hl.asarray(np.ones((6, 3), np.float32)).requires_grad_(True)

    def walked(f, **options):
        w = leaf()
        f(w).backward(**{k: [w] for k in options})
        return w.grad

    def asked(f, **options):
        w = leaf()
        return hl.gradients(f(w), [w], **options)[0].detach()

    plain, found = hl.ones((6, 3)), []
    for g in (f, *others):
        found += [walked(g), walked(g, inputs=1), asked(g), asked(g, create_graph=True), hl.grad(g)(plain)]
    found += [hl.value_and_grad(f)(plain)[1], hl.jacobian(f)(plain), *[hl.vjp(f, plain)[1](hl.ones(()))][:1]]
    found = [g[0] if isinstance(g, list | tuple) else g for g in found]
    for g in found:
        a = g.numpy()
        assert np.array_equal(a, found[0].numpy()) and not np.signbit(a[a == 0]).any()


@pytest.mark.parametrize("f", TWO_WAYS)
def test_by_every_way_a_leaf_gets_numbers(f):
    """Of what several nothings add up to, +0 arrives, whatever walks the graph."""
    numbers_by_every_way(f, lambda w: hl.checkpoint(f, w))
