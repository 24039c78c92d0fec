"""Every float op within its declared error on a million inputs and all special values, with each instruction set."""

import math

import numpy as np
import pytest
from isa_worker import Worker, sets
from op_oracle import (
    COMPLEX,
    ELEMENTWISE,
    OPS,
    REAL_PART,
    WIDER,
    declared,
    equal_values,
    limits,
    norm_error,
    operand_dtypes,
    random_bits,
    result_dtype,
    rounded,
    specials,
    ulp_error,
    value,
)
from test_casts import bits_dtype, numpy_dtype

# Exact ops are compared in the operands' own dtype and must have its bits: the hardware rounds once, or moves them.
# Every other op declares an error, and is compared with a wider result.
FLOAT_RESULT = [op for op in ELEMENTWISE if OPS[op]["result"] in (0, 2) and "float32" in declared(op)]
EXACT = [op for op in FLOAT_RESULT if OPS[op]["ulp"] == 0 or op in ("abs", "sign")]
FUNCTIONS = [op for op in FLOAT_RESULT if op not in EXACT]
COMPLEX_FUNCTIONS = [op for op in FLOAT_RESULT if "complex64" in declared(op)]

MILLION = 1 << 20
# References whose scalars Python computes one by one are compared on fewer inputs.
SLOW_REFERENCE = {"floor_divide": 1 << 18, "divmod": 1 << 18, "remainder": 1 << 18}
SLOW_IN_LONGDOUBLE = {"erf": 20_000, "erfc": 20_000, "gelu": 20_000}

# Norm-wise bound of complex results, in units of epsilon times the magnitude (`norm_error` has the one exception).
COMPLEX_BOUND = 8


@pytest.fixture(scope="module", params=sets())
def worker(request):
    w = Worker(request.param)
    yield w
    w.close()


# ---- inputs -----------------------------------------------------------------------------------------------------

CENTRES = [
    0.0,
    0.25,
    0.5,
    1.0,
    2.0,
    3.0,
    10.0,
    17.0,
    88.5,
    103.9,
    709.5,
    745.0,
    math.pi / 2,
    math.pi,
    100.0,
    1e5,
    27.2,
    1e15,
]


def near_points(name, n, rng):
    """Numbers a few thousand steps around the places where functions change their way of computing, of both signs."""
    centres = np.array(CENTRES, dtype=np.float64).astype(numpy_dtype(name))
    base = rng.choice(centres, n).view(bits_dtype(name)).astype(np.int64)
    moved = np.maximum(base + np.rint(rng.normal(size=n) * 2000).astype(np.int64), 0)
    x = moved.astype(bits_dtype(name)).view(numpy_dtype(name))
    return np.where(rng.integers(0, 2, n) == 0, x, -x)


def usual(name, n, rng):
    """Half evenly spread up to sizes where results leave the range or go subnormal, half evenly by exponent."""
    size = rng.choice([1e-4, 1, 10, 14, 28, 39, 104, 745, 1000], n)
    even = rng.uniform(-1, 1, n) * size
    by_exponent = rng.choice([-1, 1], n) * 10 ** rng.uniform(-37, 37, n)
    return np.where(rng.integers(0, 2, n) == 0, even, by_exponent).astype(numpy_dtype(name))


def inputs(name, n, seed):
    """All special values, then random bit patterns, usual numbers and numbers near special points."""
    rng = np.random.default_rng(seed)
    parts = [specials(name), random_bits(name, n // 2, rng), usual(name, n // 4, rng), near_points(name, n // 4, rng)]
    return np.concatenate(parts)[:n]


def pairs(op, name, n, seed):
    """Every pair of special values, then random ones; half of the powers lie where the result is neither 0 nor inf."""
    rng = np.random.default_rng(seed + 1)
    points = specials(name)
    x = np.concatenate([np.repeat(points, len(points)), inputs(name, n, seed)])[:n]
    y = np.concatenate([np.tile(points, len(points)), rng.permutation(inputs(name, n, seed + 2))])[:n]
    if op == "pow":
        half = slice(n // 2, n)
        y[half] = (rng.normal(size=n - n // 2) * rng.choice([1, 30, 3000], n - n // 2)).astype(name)
        with np.errstate(all="ignore"):
            reach = math.log(limits(name)[2]) / np.abs(y[half].astype(np.float64))
            x[half] = np.exp(rng.uniform(-1.1, 1.1, n - n // 2) * reach).astype(name)
    return [x, y]


def operands_of(op, name, n, seed):
    kinds = operand_dtypes(op, name)
    if len(kinds) == 1:
        return [inputs(name, n, seed)]
    if len(kinds) == 2:
        return pairs(op, name, n, seed)
    rng = np.random.default_rng(seed)
    return [inputs(name, n, seed + i) if k == name else rng.integers(0, 2, n).astype(bool) for i, k in enumerate(kinds)]


# ---- real types -------------------------------------------------------------------------------------------------


def described(arrays, i):
    return ", ".join(f"{a[i]!r}" for a in arrays)


@pytest.mark.parametrize("op", EXACT)
@pytest.mark.parametrize("name", ["float32", "float64"])
def test_exact_ops_have_the_bits_of_one_rounding(worker, op, name):
    arrays = operands_of(op, name, SLOW_REFERENCE.get(op, MILLION), 5)
    wanted = value(op, *arrays)
    for got, want in zip(worker.call(op, arrays), wanted if isinstance(wanted, tuple) else (wanted,)):
        wrong = ~equal_values(got, rounded(want, got.dtype.name))
        i = int(np.argmax(wrong))
        assert not wrong.any(), f"{op}({described(arrays, i)}) = {got[i]!r}, not {want[i]!r}; {int(wrong.sum())} wrong"


REFERENCES = {}


def function_reference(op, name):
    """Inputs and their wider results, computed once for all instruction sets."""
    if (op, name) not in REFERENCES:
        count = SLOW_IN_LONGDOUBLE.get(op, MILLION // 2) if name == "float64" else MILLION
        arrays = operands_of(op, name, count, 7)
        REFERENCES[op, name] = arrays, value(op, *(a.astype(WIDER[name]) for a in arrays))
    return REFERENCES[op, name]


def worst_error(worker, op, name):
    """The largest error in ULP, and a text that says where."""
    arrays, want = function_reference(op, name)
    (got,) = worker.call(op, arrays)
    error = ulp_error(got, want, name)
    # A missed NaN, infinity or sign counts as infinitely wrong and must not hide the largest error beside it.
    places = {int(np.argmax(error)), int(np.argmax(np.where(np.isfinite(error), error, -1)))}
    texts = [f"{op}({described(arrays, i)}) = {got[i]!r} is {error[i]:.3f} ULP off {want[i]!r}" for i in places]
    return error.max(), f"{'; '.join(texts)} with {worker.isa}"


@pytest.mark.parametrize("op", FUNCTIONS)
@pytest.mark.parametrize("name", ["float32", "float64"])
def test_functions_stay_within_their_declared_ulp(worker, op, name):
    error, text = worst_error(worker, op, name)
    assert error <= OPS[op]["ulp"], text


@pytest.mark.parametrize("op", [op for op in FLOAT_RESULT if OPS[op]["outputs"] == 1 and OPS[op]["arity"] == 1])
@pytest.mark.parametrize("name", ["float16", "bfloat16"])
def test_16_bit_results_are_the_float32_ones_rounded_once(worker, op, name):
    if name not in declared(op):
        return
    x = np.arange(1 << 16, dtype=np.uint16).view(numpy_dtype(name))
    (got,), (wide,) = worker.call(op, [x]), worker.call(op, [x.astype(np.float32)])
    wrong = ~equal_values(got, rounded(wide, name))
    i = int(np.argmax(wrong))
    assert not wrong.any(), f"{op}({x[i]!r}) = {got[i]!r}, float32 gives {wide[i]!r}; {int(wrong.sum())} wrong"


@pytest.mark.parametrize("op", FUNCTIONS + [op for op in EXACT if OPS[op]["outputs"] == 1 and OPS[op]["arity"] == 2])
@pytest.mark.parametrize("name", ["float16", "bfloat16"])
def test_16_bit_results_of_pairs(worker, op, name):
    if OPS[op]["arity"] != 2:
        return
    arrays = pairs("", name, MILLION // 16, 9)
    (got,), (wide,) = worker.call(op, arrays), worker.call(op, [a.astype(np.float32) for a in arrays])
    wrong = ~equal_values(got, rounded(wide, name))
    i = int(np.argmax(wrong))
    assert not wrong.any(), f"{op}({described(arrays, i)}) = {got[i]!r}, float32 gives {wide[i]!r}"


def test_the_wider_reference_agrees_with_mpmath():
    """float32 results are compared with float64 functions of NumPy, float64 results with longdouble ones."""
    import mpmath

    exact = {"exp": mpmath.exp, "expm1": mpmath.expm1, "log": mpmath.log, "log1p": mpmath.log1p, "sin": mpmath.sin,
             "cos": mpmath.cos, "tanh": mpmath.tanh}  # fmt: skip
    x = np.concatenate([usual("float32", 300, np.random.default_rng(3)), np.float32([1e-30, 1e30, -1e-20, 0.70710677])])
    for op, function in exact.items():
        for kind in (np.float64, np.longdouble):
            points = x[x > -0.9] if op == "log1p" else np.abs(x) if op == "log" else x
            points = points[np.abs(points) < 600]
            got = value(op, points.astype(kind))
            with mpmath.workprec(200):
                for point, g in zip(points, got):
                    want = function(mpmath.mpf(float(point)))
                    high = float(g)
                    error = abs(mpmath.mpf(high) + mpmath.mpf(float(g - kind(high))) - want)
                    assert error <= abs(want) * mpmath.mpf(2) ** (-50 if kind is np.float64 else -61), (op, point)


# ---- complex types ----------------------------------------------------------------------------------------------


def complex_inputs(name, n, seed):
    """Finite numbers of every size and direction whose squares stay in range, some close to an axis."""
    rng = np.random.default_rng(seed)
    reach = 10 if name == "complex64" else 60
    size = np.exp(rng.choice([0.5, 3, reach], n) * rng.normal(size=n) / 3)
    turn = rng.choice([0, np.pi / 2, np.pi, -np.pi / 2], n) + rng.choice([1e-6, 0.1, 1], n) * rng.normal(size=n)
    return (size * np.exp(1j * turn)).astype(name)


def complex_error(worker, op, name, n, seed=21):
    """The largest norm-wise error over inputs whose result is finite, and a text that says where."""
    kinds = operand_dtypes(op, name)
    arrays = [
        complex_inputs(name, n, seed + i) if k == name else random_bits(k, n, np.random.default_rng(i))
        for i, k in enumerate(kinds)
    ]
    (got,) = worker.call(op, arrays)
    wide = [a.astype(WIDER[name]) if a.dtype.kind == "c" else a for a in arrays]
    want = value(op, *wide)
    if want.dtype.kind != "c":
        error = ulp_error(got, want, REAL_PART[name])
    else:
        error = np.where(np.isfinite(rounded(want, name)), norm_error(op, wide, got, want, name), 0)
    i = int(np.argmax(np.nan_to_num(error, nan=math.inf)))
    return error[
        i
    ], f"{op}({described(arrays, i)}) = {got[i]!r} is {error[i]:.3f} epsilon off {want[i]!r} with {worker.isa}"


@pytest.mark.parametrize("op", COMPLEX_FUNCTIONS)
@pytest.mark.parametrize("name", COMPLEX)
def test_complex_results_are_close_in_norm(worker, op, name):
    error, text = complex_error(worker, op, name, 1 << 11 if op == "log1p" else 1 << 15)
    bound = COMPLEX_BOUND if result_dtype(op, name) == name else OPS[op]["ulp"]
    assert error <= bound, text


# ---- special values of complex functions --------------------------------------------------------------------------
#
# As the array API standard 2025.12 lists them, which is C99 Annex G; in `sqrt` of an infinite real part the standard's
# text exchanges two results, and C99 is followed. "finite" stands for several numbers, "?" for a part whose sign is not
# specified. Only operands with a non-negative imaginary part are listed: f(conj z) is conj f(z).

INF, NAN, PI = math.inf, math.nan, math.pi
FINITE, POSITIVE = (-2.5, -0.0, 0.0, 0.75, 4.0), (0.5, 1.0, 2.0, 3.5)
NONZERO = (-2.5, 0.75, 4.0)


def cis(b, size):
    return size * math.cos(b), size * math.sin(b)


def exponential(minus_one):
    """The table of exp, and of expm1, which is 1 less."""
    # expm1(-0) is -0 for reals; of a complex -0 the standard writes 0.
    yield from (((a, 0.0), ("?0" if minus_one else 1.0, 0.0)) for a in (0.0, -0.0))
    yield from (((a, b), (NAN, NAN)) for a in FINITE for b in (INF, NAN))
    yield (INF, 0.0), (INF, 0.0)
    for b in POSITIVE:
        re, im = cis(b, 0.0)
        yield (-INF, b), (re - minus_one if minus_one else re, im)
        yield (INF, b), cis(b, INF)
    for b in (INF, NAN):
        yield (-INF, b), (-1.0 if minus_one else "?0", "?0")
        yield (INF, b), ("?inf", NAN)
    yield (NAN, 0.0), (NAN, 0.0)
    yield from (((NAN, b), (NAN, NAN)) for b in (*POSITIVE, INF, NAN))


def logarithm(zero_at):
    """The table of log, and of log1p, whose pole is at -1."""
    if zero_at == 0:
        yield (-0.0, 0.0), (-INF, PI)
        yield (0.0, 0.0), (-INF, 0.0)
    else:
        yield (-1.0, 0.0), (-INF, 0.0)
    for a in FINITE:
        yield (a, INF), (INF, PI / 2)
        yield (a, NAN), (NAN, NAN)
    for b in POSITIVE:
        yield (-INF, b), (INF, PI)
        yield (INF, b), (INF, 0.0)
    yield (-INF, INF), (INF, 3 * PI / 4)
    yield (INF, INF), (INF, PI / 4)
    yield from (((a, NAN), (INF, NAN)) for a in (INF, -INF))
    yield from (((NAN, b), (NAN, NAN)) for b in (0.0, *POSITIVE, NAN))
    yield (NAN, INF), (INF, NAN)


def square_root():
    yield from (((a, 0.0), (0.0, 0.0)) for a in (0.0, -0.0))
    yield from (((a, INF), (INF, INF)) for a in (*FINITE, INF, -INF, NAN))
    yield from (((a, NAN), (NAN, NAN)) for a in FINITE)
    for b in POSITIVE:
        yield (-INF, b), (0.0, INF)
        yield (INF, b), (INF, 0.0)
    yield (-INF, NAN), (NAN, "?inf")
    yield (INF, NAN), (INF, NAN)
    yield from (((NAN, b), (NAN, NAN)) for b in (0.0, *POSITIVE, NAN))


def hyperbolic_sine():
    yield (0.0, 0.0), (0.0, 0.0)
    yield from (((0.0, b), ("?0", NAN)) for b in (INF, NAN))
    yield from (((a, b), (NAN, NAN)) for a in NONZERO for b in (INF, NAN))
    yield (INF, 0.0), (INF, 0.0)
    yield from (((INF, b), cis(b, INF)) for b in POSITIVE)
    yield from (((INF, b), ("?inf", NAN)) for b in (INF, NAN))
    yield (NAN, 0.0), (NAN, 0.0)
    yield from (((NAN, b), (NAN, NAN)) for b in (*POSITIVE, INF, NAN))


def hyperbolic_cosine():
    yield (0.0, 0.0), (1.0, 0.0)
    yield from (((0.0, b), (NAN, "?0")) for b in (INF, NAN))
    yield from (((a, b), (NAN, NAN)) for a in NONZERO for b in (INF, NAN))
    yield (INF, 0.0), (INF, 0.0)
    yield from (((INF, b), cis(b, INF)) for b in POSITIVE)
    yield (INF, INF), ("?inf", NAN)
    yield (INF, NAN), (INF, NAN)
    yield (NAN, 0.0), (NAN, "?0")
    yield from (((NAN, b), (NAN, NAN)) for b in (*POSITIVE, INF, NAN))


def hyperbolic_tangent():
    yield (0.0, 0.0), (0.0, 0.0)
    yield from (((0.0, b), (0.0, NAN)) for b in (INF, NAN))
    yield from (((a, b), (NAN, NAN)) for a in NONZERO for b in (INF, NAN))
    yield from (((INF, b), (1.0, 0.0)) for b in POSITIVE)  # C99 takes the sign of sin 2b; see decision 0012
    yield from (((INF, b), (1.0, "?0")) for b in (INF, NAN))
    yield (NAN, 0.0), (NAN, 0.0)
    yield from (((NAN, b), (NAN, NAN)) for b in (*POSITIVE, INF, NAN))


def turned(table, result):
    """The table of f(i z) by that of f: i (a + b i) is (-b, a), and `result` turns the value back."""
    for (a, b), value_of in table:
        yield (b, -a), result(value_of)


def negated(part):
    return part if isinstance(part, str) else -part


TABLES = {
    "exp": exponential(0), "expm1": exponential(1), "log": logarithm(0), "log1p": logarithm(1), "sqrt": square_root(),
    "tanh": hyperbolic_tangent(),
    "sin": turned(hyperbolic_sine(), lambda v: (v[1], negated(v[0]))),  # sin z = -i sinh(i z)
    "cos": turned(hyperbolic_cosine(), lambda v: v),  # cos z = cosh(i z)
}  # fmt: skip
TABLES = {op: list(table) for op, table in TABLES.items()}


def matches(got, want, tolerance):
    """Whether a part is as listed: NaN, an infinity or zero with its sign unless "?", or a number up to rounding."""
    if isinstance(want, str):
        return abs(got) == float(want[1:])
    if math.isnan(want):
        return math.isnan(got)
    if math.isinf(want) or want == 0:
        return got == want and math.copysign(1, got) == math.copysign(1, want)
    return abs(got - want) <= tolerance * abs(want)


@pytest.mark.parametrize("op", TABLES)
@pytest.mark.parametrize("name", COMPLEX)
def test_special_values_of_complex_functions(worker, op, name):
    z = np.array([complex(*operand) for operand, _ in TABLES[op]], dtype=name)
    tolerance = 4 * 2.0 ** -limits(REAL_PART[name])[3]
    wrong = []
    for sign in (1, -1):
        operands = np.array([complex(v.real, sign * v.imag) for v in z], dtype=name)
        (got,) = worker.call(op, [operands])
        for operand, (_, (re, im)), g in zip(operands, TABLES[op], got):
            # An unlisted sign of zero: the imaginary part of a real operand's result follows the operand's.
            part = im if isinstance(im, str) else sign * im
            if not (matches(float(g.real), re, tolerance) and matches(float(g.imag), part, tolerance)):
                wrong.append(f"{op}({operand}) = {g}, not {re}, {part}")
    assert not wrong, "; ".join(wrong)


@pytest.mark.parametrize("op", [op for op in COMPLEX_FUNCTIONS if OPS[op]["arity"] == 1 and OPS[op]["result"] == 0])
@pytest.mark.parametrize("name", COMPLEX)
def test_conjugates_give_conjugates(worker, op, name):
    """The same bits for special and for usual operands; where a sign is unspecified, the same sizes."""
    cut = np.array([complex(a, 0.0) for a in (-3.0, -1.0, -0.5, -1e-30, 0.0, 2.0, -1e30, -INF, INF)], dtype=name)
    z = np.concatenate([cut, specials(name), complex_inputs(name, 1 << 12, 31)])
    mirrored = z.real + np.zeros_like(z)
    mirrored.real, mirrored.imag = z.real, -z.imag
    (got,), (other,) = worker.call(op, [z]), worker.call(op, [mirrored])
    other.imag *= -1
    same = (equal_values(got.real, other.real)) & equal_values(got.imag, other.imag)
    unspecified = ~np.isfinite(got.real) | ~np.isfinite(got.imag) | ~np.isfinite(z.real) | ~np.isfinite(z.imag)
    size = np.abs(got.real) == np.abs(other.real)
    size &= (np.abs(got.imag) == np.abs(other.imag)) | np.isnan(got.imag) & np.isnan(other.imag)
    size |= np.isnan(got.real) & np.isnan(other.real)
    wrong = ~np.where(unspecified, size, same)
    if op == "sign":
        wrong &= z != 0  # 0+0j of every zero
    i = int(np.argmax(wrong))
    assert not wrong.any(), f"{op}({z[i]}) = {got[i]}, of the conjugate {other[i].conjugate()}"


@pytest.mark.parametrize("name", COMPLEX)
def test_branch_cuts_take_their_side_from_the_sign_of_zero(worker, name):
    """C99: the cuts of sqrt and log lie on the negative real axis, that of log1p below -1; a +0 is above the cut."""
    x = np.array([-4.0, -2.0, -1e10], dtype=REAL_PART[name])
    for op, start in (("sqrt", 0), ("log", 0), ("log1p", -1)):
        above = np.array([complex(v, 0.0) for v in x], dtype=name)
        below = np.array([complex(v, -0.0) for v in x], dtype=name)
        (up,), (down,) = worker.call(op, [above]), worker.call(op, [below])
        np.testing.assert_array_equal(up.imag, -down.imag)
        want = np.sqrt(-x) if op == "sqrt" else np.full(3, PI)
        np.testing.assert_allclose(up.imag, want, rtol=1e-6)
        real = np.zeros(3) if op == "sqrt" else np.log(np.abs(x.astype(np.float64) - start))
        np.testing.assert_allclose(up.real, real, rtol=1e-6, atol=1e-7)
    (power,) = worker.call(
        "pow", [np.array([complex(-4, 0.0), complex(-4, -0.0)], dtype=name), np.array([0.5, 0.5], dtype=name)]
    )
    np.testing.assert_allclose(power, [2j, -2j], rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("name", COMPLEX)
def test_complex_powers_at_special_points(worker, name):
    z = np.array([0, 0, 1, 2j, -1, 3 - 4j, 0, 1j, -2, 1.5 + 2j], dtype=name)
    w = np.array([0, 2, 5 - 3j, 0, 2, 1, 1.5, 4, 3, -1], dtype=name)
    want = np.array([1, 0, 1, 1, 1, 3 - 4j, 0, 1, -8, 1 / (1.5 + 2j)], dtype=name)
    (got,) = worker.call("pow", [z, w])
    np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-6)
