"""Every op of the list, in every dtype it declares: values against NumPy, shapes, strides, scalars, in-place writes."""

import operator

import numpy as np
import pytest
from op_oracle import (
    COMPLEX,
    ELEMENTWISE,
    FLOATS,
    INTEGERS,
    OPS,
    OTHERS,
    REAL_PART,
    REDUCTIONS,
    accepted,
    bits,
    calls,
    computed_in,
    declared,
    equal_values,
    limits,
    moderate,
    norm_error,
    numpy_of,
    operand_dtypes,
    operands,
    result_dtype,
    rounded,
    same_bits,
    ulp_error,
    value,
)
from test_casts import numpy_dtype

import hyalite as hl

ROWS, COLUMNS = 20, 14
COUNT = ROWS * COLUMNS
# Rounding errors of complex results, in units of epsilon times the result's magnitude.
COMPLEX_BOUND = 8
PAIRS = [(op, name) for op in ELEMENTWISE for name in accepted(op)]


def outputs(result):
    return [numpy_of(r) for r in (result if isinstance(result, tuple) else (result,))]


def call(op, *arguments):
    return outputs(getattr(hl, op)(*arguments))


def worst(wrong, arrays, got, want):
    """The first wrong element, for the message of a failed assertion."""
    i = int(np.flatnonzero(wrong)[0])
    return f"element {i} of {int(wrong.sum())} wrong: {[a[i] for a in arrays]} gives {got[i]!r}, not {want[i]!r}"


# ---- elementwise ops --------------------------------------------------------------------------------------------


def check_complex(op, arrays, got, name):
    keep = np.all(
        [np.isfinite(a) & (np.abs(a) < 1e15) & (np.abs(a) > 1e-15) if a.dtype.kind == "c" else a == a for a in arrays],
        axis=0,
    )
    narrow = [a[keep] for a in arrays]
    wide = [a.astype(np.clongdouble) if a.dtype.kind == "c" else a for a in narrow]
    want, part = value(op, *wide), got[keep]
    if want.dtype.kind in "bf":
        return check_real(op, narrow, part, want, name)
    finite = np.isfinite(rounded(want, name))
    error = norm_error(op, wide, part, want, name)
    wrong = finite & ~(error <= COMPLEX_BOUND) | (finite != np.isfinite(part))
    assert not wrong.any(), worst(wrong, narrow, part, want)


def check_real(op, arrays, got, want, name):
    if got.dtype == bool:
        wrong = got != want
    else:
        result = got.dtype.name
        error = ulp_error(got, want, result)
        wrong = ~(error <= (OPS[op]["ulp"] if result in ("float32", "float64") else 0.5))
    assert not wrong.any(), worst(wrong, arrays, got, want)


def check_values(op, arrays, results, name):
    """Exact ops exactly, in the dtype they compute in; functions within their declared bound of a wider result."""
    kind = computed_in(result_dtype(op, name) if OPS[op]["integers_to_default"] else name)
    if name in COMPLEX and OPS[op]["result"] != 1 and op not in ("conj", "negative", "positive", "where"):
        return check_complex(op, arrays, results[0], name)
    inputs = [a if a.dtype == bool and a.dtype != kind and OPS[op]["condition"] else a.astype(kind) for a in arrays]
    if OPS[op]["ulp"] == 0 or kind.kind in "biu" or op in ("abs", "sign"):
        wanted = value(op, *inputs)
    else:
        wanted = value(op, *(x.astype(np.float64 if kind == np.float32 else np.longdouble) for x in inputs))
    for got, want in zip(results, wanted if isinstance(wanted, tuple) else (wanted,)):
        if OPS[op]["ulp"] == 0 or got.dtype.kind in "biu" or op in ("abs", "sign"):
            want = rounded(want, got.dtype.name)
            wrong = ~equal_values(got, want)
            assert not wrong.any(), worst(wrong, arrays, got, want)
        elif got.dtype.name in ("float32", "float64"):
            check_real(op, arrays, got, want, name)
        else:  # the float32 result rounded once: half a unit, and what float32 may be off
            _, _, _, mantissa = limits(got.dtype.name)
            wrong = ~(ulp_error(got, want, got.dtype.name) <= 0.5 + OPS[op]["ulp"] * 2.0 ** (mantissa - 23))
            assert not wrong.any(), worst(wrong, arrays, got, want)


@pytest.mark.parametrize("op, name", PAIRS)
def test_values_and_result_dtypes(op, name):
    arrays = operands(op, name, COUNT)
    before = [a.copy() for a in arrays]
    results = call(op, *(hl.asarray(a) for a in arrays))
    assert len(results) == OPS[op]["outputs"]
    for got in results:
        assert got.dtype == numpy_dtype(result_dtype(op, name)) and got.shape == (COUNT,)
    check_values(op, arrays, results, name)
    assert all(same_bits(a, b) for a, b in zip(arrays, before)), "an operand was written"


def layouts(array):
    """The same (ROWS, COLUMNS) elements in other memory orders, each a tensor that views a larger or turned one."""
    grid = array.reshape(ROWS, COLUMNS)
    padded = np.zeros((ROWS + 1, 2 * COLUMNS + 3), dtype=array.dtype)
    padded[1:, 1 : 2 * COLUMNS : 2] = grid
    yield "contiguous", hl.asarray(grid)
    yield "sliced", hl.asarray(padded)[1:, 1 : 2 * COLUMNS : 2]
    yield "reversed", hl.asarray(np.ascontiguousarray(grid[::-1, ::-1]))[::-1, ::-1]
    yield "Fortran", hl.asarray(np.ascontiguousarray(grid.T)).T
    yield "reversed columns", hl.asarray(np.ascontiguousarray(grid[:, ::-1]))[:, ::-1]


@pytest.mark.parametrize("op, name", PAIRS)
def test_layouts_lengths_and_0d_give_the_bits_of_the_whole(op, name):
    """Values are right by the test above; here every other way through the loops gives the same bits."""
    arrays = operands(op, name, COUNT)
    tensors = [hl.asarray(a) for a in arrays]
    whole = call(op, *tensors)
    for n in range(71):
        start = (n * 11) % 13
        for got, want in zip(call(op, *(t[start : start + n] for t in tensors)), whole):
            assert same_bits(got, want[start : start + n]), f"length {n} from {start}"
    for n in (1, 7, 40):
        for got, want in zip(call(op, *(hl.asarray(np.repeat(a[:n], 3))[1::3] for a in arrays)), whole):
            assert same_bits(got, want[:n]), f"step 3, length {n}"
        for got, want in zip(call(op, *(t[n - 1 :: -1] if n < COUNT else t for t in tensors)), whole):
            assert same_bits(got, want[:n][::-1]), f"step -1, length {n}"
    for i in range(0, COUNT, 31):
        for got, want in zip(call(op, *(t[i] for t in tensors)), whole):
            assert same_bits(got, want[i]), f"0-d, element {i}"
    grids = [dict(layouts(a)) for a in arrays]
    for k, layout in enumerate(grids[0]):
        mixed = [list(g.values())[(k + i) % len(g)] for i, g in enumerate(grids)]
        for chosen in ([g[layout] for g in grids], mixed):
            for got, want in zip(call(op, *chosen), whole):
                assert same_bits(got, want.reshape(ROWS, COLUMNS)), layout


@pytest.mark.parametrize("op, name", PAIRS)
def test_broadcast_operands_are_as_if_repeated(op, name):
    arrays = operands(op, name, COUNT)
    shapes = [(1, COLUMNS), (ROWS, 1), (ROWS, COLUMNS)]
    for turn in range(3):
        parts = []
        for i, a in enumerate(arrays):
            shape = shapes[(i + turn) % 3]
            parts.append(a[: shape[0] * shape[1]].reshape(shape))
        common = np.broadcast_shapes(*(p.shape for p in parts))
        repeated = [hl.asarray(np.ascontiguousarray(np.broadcast_to(p, common))) for p in parts]
        views = [hl.broadcast_to(hl.asarray(p), common) for p in parts]
        want = call(op, *repeated)
        for variant in ([hl.asarray(p) for p in parts], views):
            for got, w in zip(call(op, *variant), want):
                assert same_bits(got, w), [p.shape for p in parts]
    for shape in ((0,), (3, 0), (0, 4)):
        empty = [hl.asarray(np.zeros(shape, dtype=numpy_dtype(d))) for d in operand_dtypes(op, name)]
        assert all(r.shape == shape and r.dtype == numpy_dtype(result_dtype(op, name)) for r in call(op, *empty))
        one = [hl.asarray(a[:1]) for a in arrays[1:]]
        assert all(r.shape == shape for r in call(op, empty[0], *one))


def weak(name):
    """Python numbers that take the dtype."""
    if name == "bool":
        return [True, False]
    if name in INTEGERS:
        return [3, 1, True]
    if name in COMPLEX:
        return [1.5 - 2j, 2.5, 3, True]
    return [1.5, -0.0, float("inf"), float("nan"), 3, True]


@pytest.mark.parametrize("op, name", [(op, name) for op, name in PAIRS if OPS[op]["arity"] > 1])
def test_weak_scalars_stand_for_filled_tensors(op, name):
    arrays = operands(op, name, 70)
    tensors = [hl.asarray(a) for a in arrays]
    kinds = operand_dtypes(op, name)
    for scalar in weak(name):
        real = name in COMPLEX and not isinstance(scalar, complex)  # a real partner works by component
        filled = hl.asarray(np.full(70, scalar).astype(numpy_dtype(REAL_PART[name] if real else name)))
        for i in range(OPS[op]["arity"]):
            if op == "clip" and i == 0 or kinds[i] != name or OPS[op]["condition"] and i == 0:
                continue
            if op == "pow" and name in INTEGERS and i == 0 and isinstance(scalar, bool):
                continue
            with_scalar = [scalar if k == i else t for k, t in enumerate(tensors)]
            with_filled = [filled if k == i else t for k, t in enumerate(tensors)]
            for got, want in zip(call(op, *with_scalar), call(op, *with_filled)):
                assert got.dtype == want.dtype and got.shape == want.shape
                assert equal_values(got, want).all(), (scalar, i)


PYTHON_OPERATORS = {
    "add": operator.add, "subtract": operator.sub, "multiply": operator.mul, "divide": operator.truediv,
    "floor_divide": operator.floordiv, "remainder": operator.mod, "pow": operator.pow, "divmod": divmod,
    "bitwise_and": operator.and_, "bitwise_or": operator.or_, "bitwise_xor": operator.xor,
    "bitwise_left_shift": operator.lshift, "bitwise_right_shift": operator.rshift, "matmul": operator.matmul,
    "negative": operator.neg, "positive": operator.pos, "abs": operator.abs, "bitwise_invert": operator.invert,
    "equal": operator.eq, "not_equal": operator.ne, "less": operator.lt, "less_equal": operator.le,
    "greater": operator.gt, "greater_equal": operator.ge,
}  # fmt: skip
IN_PLACE = {
    "add": operator.iadd, "subtract": operator.isub, "multiply": operator.imul, "divide": operator.itruediv,
    "floor_divide": operator.ifloordiv, "remainder": operator.imod, "pow": operator.ipow,
    "bitwise_and": operator.iand, "bitwise_or": operator.ior, "bitwise_xor": operator.ixor,
    "bitwise_left_shift": operator.ilshift, "bitwise_right_shift": operator.irshift,
}  # fmt: skip


@pytest.mark.parametrize("op, name", [p for p in PAIRS if p[0] in PYTHON_OPERATORS])
def test_operators_are_the_functions(op, name):
    tensors = [hl.asarray(a) for a in operands(op, name, 70)]
    for got, want in zip(outputs(PYTHON_OPERATORS[op](*tensors)), call(op, *tensors)):
        assert same_bits(got, want)


@pytest.mark.parametrize("op, name", [p for p in PAIRS if p[0] in IN_PLACE])
def test_in_place_operators_write_the_left_side(op, name):
    arrays = operands(op, name, COUNT)
    if result_dtype(op, name) != name:
        with pytest.raises(TypeError):
            IN_PLACE[op](hl.asarray(arrays[0].copy()), hl.asarray(arrays[1]))
        return
    want = call(op, *(hl.asarray(a) for a in arrays))[0].reshape(ROWS, COLUMNS)
    for (layout, left), (_, right) in zip(list(layouts(arrays[0].copy())), reversed(list(layouts(arrays[1])))):
        pointer, other = left.data_ptr(), right.numpy().copy()
        written = IN_PLACE[op](left, right)
        assert written is left and left.data_ptr() == pointer
        assert same_bits(left, want), layout
        assert same_bits(right, other)
    both = hl.asarray(arrays[0].copy())
    if op == "pow" and name in INTEGERS:
        both = hl.asarray(arrays[1].copy())
    want = call(op, both, both.copy())[0]
    assert same_bits(IN_PLACE[op](both, both), want)


def test_every_python_operator_of_the_type_is_tested_here():
    for op in OPS:
        if op in PYTHON_OPERATORS:
            assert op in ELEMENTWISE or op == "matmul"
    assert set(IN_PLACE) <= set(PYTHON_OPERATORS) <= set(OPS)


# ---- reductions and the rest ------------------------------------------------------------------------------------


def plain_operands(op, name, shapes, seed=3):
    """Small whole numbers, so that sums and products of them are exact in every dtype; true floats for softmax."""
    rng = np.random.default_rng(seed)
    if name.startswith("float8"):
        return [rng.integers(0, 3, s).astype(np.float32).astype(numpy_dtype(name)) for s in shapes]
    if name == "bool":
        return [rng.integers(0, 2, s).astype(bool) for s in shapes]
    low = 0 if name.startswith("uint") else -2
    return [rng.integers(low, 3, s).astype(numpy_dtype(name)) for s in shapes]


def reference_of(function, arrays, name):
    wide = {"float16": np.float64, "bfloat16": np.float64, "float8_e4m3fn": np.float64, "float8_e5m2": np.float64}
    result = function(*(a.astype(wide.get(name, a.dtype)) for a in arrays))
    return tuple(map(np.asarray, result)) if isinstance(result, tuple) else np.asarray(result)


def wanted_dtype(op, name, got):
    if op in ("sum", "prod") and (name == "bool" or name in INTEGERS):
        return "uint64" if name.startswith("uint") else "int64"
    return result_dtype(op, name)


@pytest.mark.parametrize("op, name", [(op, name) for op in REDUCTIONS + OTHERS for name in accepted(op)])
def test_reductions_movement_and_products(op, name):
    for shapes, function, reference in calls(op):
        arrays = plain_operands(op, name, shapes)
        wanted = reference_of(reference, arrays, name)
        for variant in range(3):
            tensors = [hl.asarray(a.copy()) for a in arrays]
            if variant == 1:  # Fortran order
                tensors = [hl.asarray(np.ascontiguousarray(a.T)).mT if a.ndim == 2 else hl.asarray(a) for a in arrays]
            if variant == 2:  # every second element of a reversed, longer array
                tensors = [hl.asarray(np.repeat(a[::-1], 2, axis=0).copy())[::-2] for a in arrays]
            results = outputs(function(*tensors))
            assert len(results) == OPS[op]["outputs"]
            for got, want in zip(results, wanted if isinstance(wanted, tuple) else (wanted,)):
                assert got.shape == want.shape
                assert got.dtype == numpy_dtype(wanted_dtype(op, name, got))
                if op in ("softmax", "log_softmax", "mean"):
                    _, _, _, mantissa = limits(got.dtype.name if got.dtype.kind != "c" else got.real.dtype.name)
                    np.testing.assert_allclose(
                        got.astype(want.dtype), want, rtol=8 * 2.0**-mantissa, atol=8 * 2.0**-mantissa
                    )
                else:
                    np.testing.assert_array_equal(got.astype(want.dtype), want)
            assert all(same_bits(t, a) for t, a in zip(tensors, arrays))


@pytest.mark.parametrize("op", ["min", "max", "argmin", "argmax"])
def test_reductions_of_nan_and_infinities(op):
    rng = np.random.default_rng(8)
    for name in FLOATS:
        for n in range(1, 71):
            x = moderate(name, n, rng)
            x[rng.integers(0, n)] = rng.choice([np.inf, -np.inf, np.nan])
            want = getattr(np, op)(x.astype(np.float64))
            got = numpy_of(getattr(hl, op)(hl.asarray(x))).astype(np.float64)
            np.testing.assert_array_equal(got, want)


def test_every_public_op_is_reached_by_this_file():
    for op in OPS:
        assert callable(getattr(hl, op))
        assert declared(op), op
        if op in OTHERS:
            assert calls(op)
    assert sorted(ELEMENTWISE + REDUCTIONS + OTHERS) == sorted(op for op in OPS if OPS[op]["arity"] != 0)


def test_bits_of_zero_dimensional_arrays():
    """The oracle's own check."""
    assert same_bits(np.float32(-0.0), np.float32(-0.0)) and not same_bits(np.float32(0.0), np.float32(-0.0))
    assert bits(np.array([1 - 0j])).shape == (2,)
    assert equal_values(np.array([np.nan + 1j]), np.array([np.nan + 1j])).tolist() == [True]
