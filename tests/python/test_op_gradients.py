"""Gradients of every op that has one: against finite differences to second order, fused against recorded, broadcast."""

import numpy as np
import pytest
from op_oracle import (
    COMPLEX,
    ELEMENTWISE,
    FLOATS,
    OPS,
    OTHERS,
    REAL_PART,
    REDUCTIONS,
    calls,
    declared,
    limits,
    operand_dtypes,
)
from test_casts import numpy_dtype

import hyalite as hl
from hyalite import _C

DIFFERENTIABLE = [op for op in OPS if OPS[op]["has_gradient"]]
SIMPLE = [op for op in ELEMENTWISE if op in DIFFERENTIABLE]
WHOLE = [op for op in REDUCTIONS + OTHERS if op in DIFFERENTIABLE]
COUNT = 48
STEP = 1e-5


# ---- generic points ---------------------------------------------------------------------------------------------


def points(name, shape, seed):
    """Numbers between 0.3 and 2.3 in size, away from multiples of 1/2; each dtype's own rounding of them."""
    rng = np.random.default_rng(seed)

    def real(count):
        x = rng.uniform(0.3, 2.3, 40 * count)
        return x[np.abs(2 * x - np.round(2 * x)) > 0.15][:count]

    count = int(np.prod(shape))
    x = real(count)
    if name in COMPLEX:
        x = x * np.exp(1j * rng.uniform(-3, 3, count))
    return x.reshape(shape).astype(numpy_dtype(name))


def signs(x, seed):
    return np.where(np.random.default_rng(seed).integers(0, 2, x.shape) == 0, x, -x).astype(x.dtype)


def apart(arrays):
    """Where no two operands are close to each other or to a multiple of each other, so that no kink is near."""
    keep = np.ones(arrays[0].shape, dtype=bool)
    for i, x in enumerate(arrays):
        for y in arrays[i + 1 :]:
            if x.dtype.kind == y.dtype.kind == "f":
                wide = x.astype(np.float64), y.astype(np.float64)
                ratio = wide[0] / wide[1]
                keep &= (np.abs(np.abs(wide[0]) - np.abs(wide[1])) > 0.08) & (np.abs(ratio - np.round(ratio)) > 0.08)
    return keep


def generic_operands(op, name, seed=1):
    """COUNT points of an elementwise op, negative ones too where the op has finite values there."""
    kinds = operand_dtypes(op, name)
    wide = [
        points(k, 8 * COUNT, seed + 7 * i) if k == name else np.arange(8 * COUNT) % 2 == 0 for i, k in enumerate(kinds)
    ]
    signed = [signs(x, seed + i) if x.dtype != bool else x for i, x in enumerate(wide)]
    outputs = call(op, [hl.asarray(x) for x in signed])
    finite = all(np.isfinite(o.numpy().astype(np.complex128)).all() for o in outputs)
    chosen = signed if finite else wide
    keep = np.flatnonzero(apart(chosen))[:COUNT]
    assert len(keep) == COUNT
    return [x[keep] for x in chosen]


def call(op, tensors):
    result = getattr(hl, op)(*tensors) if isinstance(op, str) else op(*tensors)
    return result if isinstance(result, tuple) else (result,)


# ---- gradients and differences ----------------------------------------------------------------------------------


def direction(x, seed):
    rng = np.random.default_rng(seed)
    d = np.asarray(rng.normal(size=x.shape))
    return np.asarray(d + 1j * rng.normal(size=x.shape) if x.dtype.kind == "c" else d).astype(x.dtype)


def inner(a, b):
    """Re <a, b>, the inner product under which a gradient is dL/dRe + i dL/dIm."""
    return float(np.sum(np.real(np.conj(a.astype(np.complex128)) * b)))


def weights_of(op, arrays):
    """A weight for each output that can require grad."""
    outputs = call(op, [hl.asarray(a) for a in arrays])
    return [direction(o.numpy(), 100 + i) if o.numpy().dtype.kind in "fcV" else None for i, o in enumerate(outputs)]


def leaves(arrays):
    return [hl.asarray(a.copy()).requires_grad_(True) if a.dtype.kind in "fcV" else hl.asarray(a) for a in arrays]


def wanted(tensors):
    return [t for t in tensors if t.requires_grad]


def gradients(op, inputs, weights, create=False):
    """By differentiable operand, in the order of the operands: its gradient, None where there is none."""
    outputs = call(op, inputs)
    roots = [(o, w) for o, w in zip(outputs, weights) if o.requires_grad]
    if not roots:
        return [None] * len(wanted(inputs))
    return _C._grad([o for o, _ in roots], wanted(inputs), [w for _, w in roots], create, create)


def as_array(g, like):
    return np.zeros(like.shape, dtype=numpy_dtype(like.dtype.name)) if g is None else g.detach().numpy()


def value_along(op, arrays, weights):
    outputs = call(op, [hl.asarray(a) for a in arrays])
    return sum(inner(w, o.numpy()) for o, w in zip(outputs, weights) if w is not None)


def moved(arrays, directions, offset):
    # asarray: NumPy turns the sum of 0-d arrays into a scalar, which would be weak.
    return [a if d is None else np.asarray(a + offset * d) for a, d in zip(arrays, directions)]


def check_first_order(op, arrays):
    weights = weights_of(op, arrays)
    inputs = leaves(arrays)
    got = gradients(op, inputs, [hl.asarray(w) for w in weights])
    directions = [direction(a, 50 + i) if a.dtype.kind in "fc" else None for i, a in enumerate(arrays)]
    used = [d for d in directions if d is not None]
    slope = sum(inner(as_array(g, t), d) for g, t, d in zip(got, wanted(inputs), used))
    ends = [value_along(op, moved(arrays, directions, s), weights) for s in (STEP, -STEP)]
    np.testing.assert_allclose(slope, (ends[0] - ends[1]) / (2 * STEP), rtol=1e-6, atol=1e-7)
    for g, t in zip(got, wanted(inputs)):
        assert g is None or (g.dtype == t.dtype and g.shape == t.shape)


def probe_value(op, arrays, weights, probes):
    """<p, gradient of <w, op>>, with fused gradients."""
    inputs = leaves(arrays)
    got = gradients(op, inputs, [hl.asarray(w) for w in weights])
    return sum(inner(p, as_array(g, t)) for g, t, p in zip(got, wanted(inputs), probes))


def check_second_order(op, arrays):
    """The derivative of a gradient along a direction of the operands and of the incoming gradient."""
    weights = weights_of(op, arrays)
    inputs, incoming = leaves(arrays), leaves(weights)
    got = gradients(op, inputs, incoming, create=True)
    probes = [direction(a, 70 + i) for i, a in enumerate(a for a in arrays if a.dtype.kind in "fc")]
    pairs = [(g, hl.asarray(p)) for g, p in zip(got, probes) if g is not None and g.requires_grad]
    targets = wanted(inputs) + incoming
    if pairs:
        second = _C._grad([g for g, _ in pairs], targets, [p for _, p in pairs], True, False)
    else:
        second = [None] * len(targets)
    directions = [direction(a, 90 + i) if a.dtype.kind in "fc" else None for i, a in enumerate(arrays)]
    turned = [direction(w, 95 + i) for i, w in enumerate(weights)]
    along = [d for d in directions if d is not None] + turned
    slope = sum(inner(as_array(h, t), d) for h, t, d in zip(second, targets, along))
    ends = [probe_value(op, moved(arrays, directions, s), moved(weights, turned, s), probes) for s in (STEP, -STEP)]
    np.testing.assert_allclose(slope, (ends[0] - ends[1]) / (2 * STEP), rtol=1e-5, atol=1e-6)


BASES = ["float64", "complex128"]


@pytest.mark.parametrize("op, name", [(op, name) for op in SIMPLE for name in BASES if name in declared(op)])
def test_elementwise_gradients_of_first_and_second_order(op, name):
    arrays = generic_operands(op, name)
    check_first_order(op, arrays)
    check_second_order(op, arrays)


@pytest.mark.parametrize("op, name", [(op, name) for op in WHOLE for name in BASES if name in declared(op)])
def test_other_gradients_of_first_and_second_order(op, name):
    for shapes, function, _ in calls(op):
        arrays = [signs(points(name, s, 11 + i), i) for i, s in enumerate(shapes)]
        check_first_order(function, arrays)
        check_second_order(function, arrays)


def test_attributes_reach_the_gradient():
    """An op's attributes at another value than their default."""
    x = signs(points("float64", COUNT, 3), 4)
    check_first_order(lambda t: hl.leaky_relu(t, slope=0.3), [x])
    check_second_order(lambda t: hl.leaky_relu(t, slope=0.3), [x])


# ---- fused and recorded, layouts, broadcasting ------------------------------------------------------------------


def ulps_apart(got, want, name):
    """Distance of two results in units in the last place of the larger; of complex ones, of the larger part."""
    part = REAL_PART.get(name, name)
    least, _, _, mantissa = limits(part)
    wide = np.complex128 if name in COMPLEX else np.float64
    a, b = got.astype(wide), want.astype(wide)
    size = np.maximum(np.maximum(np.abs(a), np.abs(b)), limits(part)[1])
    apart = np.abs(a - b) / (np.exp2(np.floor(np.log2(size))) * 2.0**-mantissa)
    return np.where(np.isnan(a) & np.isnan(b) | (a == b), 0, apart)


@pytest.mark.parametrize(
    "op, name", [(op, name) for op in SIMPLE for name in ("float32", "float64", *COMPLEX) if name in declared(op)]
)
def test_fused_gradients_are_the_recorded_ones(op, name):
    arrays = generic_operands(op, name)
    weights = [hl.asarray(w) for w in weights_of(op, arrays)]
    fused = gradients(op, leaves(arrays), weights)
    recorded = gradients(op, leaves(arrays), weights, create=True)
    for i, (f, r) in enumerate(zip(fused, recorded)):
        assert (f is None) == (r is None)
        if f is not None:
            apart = ulps_apart(f.numpy(), r.detach().numpy(), name)
            assert apart.max() <= 8, (
                f"operand {i}: {f.numpy()[apart.argmax()]} and {r.detach().numpy()[apart.argmax()]}"
            )


@pytest.mark.parametrize("op, name", [(op, name) for op in SIMPLE for name in FLOATS[:3] if name in declared(op)])
def test_narrow_gradients_are_close_to_float64s(op, name):
    arrays = generic_operands(op, name)
    weights = weights_of(op, arrays)
    narrow = gradients(op, leaves(arrays), [hl.asarray(w) for w in weights])
    widened = [a if a.dtype == bool else a.astype(np.float64) for a in arrays]
    wide = gradients(op, leaves(widened), [hl.asarray(w.astype(np.float64)) for w in weights])
    epsilon = 2.0 ** -limits(name)[3]
    for got, want in zip(narrow, wide):
        assert (got is None) == (want is None)
        if got is not None:
            assert got.dtype.name == name
            np.testing.assert_allclose(
                got.numpy().astype(np.float64), want.numpy(), rtol=16 * epsilon, atol=16 * epsilon
            )


@pytest.mark.parametrize("op", [op for op in SIMPLE if "float32" in declared(op)])
def test_gradients_have_the_same_bits_in_every_layout(op):
    arrays = [a.reshape(6, 8) for a in generic_operands(op, "float32")]
    weights = [w.reshape(6, 8) for w in weights_of(op, arrays)]
    want = gradients(op, leaves(arrays), [hl.asarray(w) for w in weights])

    def transposed(a):
        return hl.asarray(np.ascontiguousarray(a.T)).T

    def reversed_and_sliced(a):
        return hl.asarray(np.repeat(a[::-1, ::-1], 2, axis=1).copy())[::-1, ::-2]

    for layout in (transposed, reversed_and_sliced):
        inputs = [layout(a).requires_grad_(True) if a.dtype != bool else layout(a) for a in arrays]
        for got, w in zip(gradients(op, inputs, [layout(w) for w in weights]), want):
            assert (got is None) == (w is None)
            if got is not None:
                np.testing.assert_array_equal(got.numpy(), w.numpy())


@pytest.mark.parametrize("op", [op for op in SIMPLE if OPS[op]["arity"] > 1])
@pytest.mark.parametrize("name", BASES)
def test_gradients_of_broadcast_operands_are_summed(op, name):
    if name not in declared(op):
        return
    flat = generic_operands(op, name)
    shapes = [(6, 1), (1, 8), (6, 8)]
    for turn in range(3):
        parts = [a[: int(np.prod(s))].reshape(s) for a, s in zip(flat, shapes[turn:] + shapes[:turn])]
        common = np.broadcast_shapes(*(p.shape for p in parts))
        full = [np.broadcast_to(p, common).copy() for p in parts]
        weights = [hl.asarray(w) for w in weights_of(op, full)]
        inputs = leaves(parts)
        got = gradients(op, inputs, weights)
        repeated = gradients(op, leaves(full), weights)
        for g, whole, t in zip(got, repeated, wanted(inputs)):
            assert (g is None) == (whole is None)
            if g is None:
                continue
            axes = tuple(i for i in range(2) if t.shape[i] == 1 and common[i] != 1)
            np.testing.assert_allclose(g.numpy(), whole.numpy().sum(axis=axes, keepdims=True), rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("op", [op for op in SIMPLE if OPS[op]["arity"] == 2 and "float64" in declared(op)])
def test_gradients_beside_a_weak_scalar(op):
    x, _ = generic_operands(op, "float64")
    for function in (lambda t: call(op, [t, 1.37]), lambda t: call(op, [1.37, t])):
        positive = np.abs(x)
        keep = np.abs(positive - 1.37) > 0.08
        for ratio in (positive / 1.37, 1.37 / positive):
            keep &= np.abs(ratio - np.round(ratio)) > 0.08
        check_first_order(lambda t, f=function: tuple(f(t)), [positive[keep]])
        check_second_order(lambda t, f=function: tuple(f(t)), [positive[keep]])


def test_ops_without_a_gradient_record_nothing():
    for op in ELEMENTWISE:
        if op in DIFFERENTIABLE:
            assert any(OPS[op]["gradients"]), op
        elif "float64" in declared(op):
            inputs = leaves([np.array([1.5, 2.5])] * OPS[op]["arity"])
            assert not any(o.requires_grad for o in call(op, inputs)), op
