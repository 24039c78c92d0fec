"""The sections "Floats" and "Complex": exact rounding, floor division by rationals, special points, Annex G, ranges."""

import cmath
import itertools
import math
import operator
import random
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from test_casts import FLOATS as FORMATS
from test_casts import bits_dtype, decode, encode, encode_array, is_nan, numpy_dtype

import hyalite as hl

FLOATS = ["float16", "bfloat16", "float32", "float64"]
INF, NAN = math.inf, math.nan


def random_floats(name, n, seed):
    """Random bit patterns, so all exponents, subnormals, infinities and NaN, with zeros mixed in."""
    rng = random.Random(f"{name}{seed}")
    width = 8 * numpy_dtype(name).itemsize
    bits = [rng.choice([0, 1 << (width - 1)]) if rng.random() < 0.03 else rng.getrandbits(width) for _ in range(n)]
    return np.array(bits, dtype=bits_dtype(name)).view(numpy_dtype(name))


def close_floats(name, n, seed):
    """Random finite values whose exponents are close to zero."""
    rng = random.Random(f"{name}{seed}")
    values = [Fraction(rng.getrandbits(53) - 2**52, 2 ** rng.randrange(42, 58)) for _ in range(n)]
    return encode_array(values, name)


def assert_same(got, want, signed_zero=True):
    """Equal values: NaN equals NaN, and zeros have the same sign."""
    got = got.numpy() if isinstance(got, hl.Tensor) else np.asarray(got)
    want = np.asarray(want)
    assert got.dtype == want.dtype
    if got.dtype.kind != "c":
        got, want = got.astype(np.float64), want.astype(np.float64)
    np.testing.assert_array_equal(got, want)
    if signed_zero:
        zero = want == 0
        np.testing.assert_array_equal(np.signbit(got.real[zero]), np.signbit(want.real[zero]))


def f32(*values):
    return hl.asarray(np.array(values, dtype=np.float32))


# ---- one rounding -----------------------------------------------------------------------------------------------

EXACT = {"add": operator.add, "subtract": operator.sub, "multiply": operator.mul, "divide": operator.truediv}


def once_rounded(function, a, b, name):
    """The exact result of finite operands rounded once (float64 operands: NumPy's own, which the hardware rounds)."""
    out = []
    for x, y in zip(a, b):
        exact = EXACT[function](Fraction(float(x)), Fraction(float(y)))
        negative = exact < 0
        if exact == 0:  # the sign of a zero is the one float64 gives; an exact zero cannot be an underflow there
            with np.errstate(all="ignore"):
                negative = bool(np.signbit(EXACT[function](np.float64(x), np.float64(y))))
        out.append(encode(negative, abs(exact), name))
    return np.array(out, dtype=bits_dtype(name)).view(numpy_dtype(name))


@pytest.mark.parametrize("name", FLOATS)
@pytest.mark.parametrize("function", EXACT)
def test_arithmetic_is_correctly_rounded(name, function):
    for make in (random_floats, close_floats):
        a, b = make(name, 700, "a"), make(name, 700, "b")
        keep = np.isfinite(a.astype(np.float64)) & np.isfinite(b.astype(np.float64))
        if function == "divide":
            keep &= b.astype(np.float64) != 0
        a, b = a[keep], b[keep]
        want = once_rounded(function, a, b, name)
        assert_same(getattr(hl, function)(hl.asarray(a), hl.asarray(b)), want)
        assert_same(EXACT[function](hl.asarray(np.repeat(a, 2))[::2], hl.asarray(b)), want)


@pytest.mark.parametrize("name", ["float32", "float64"])
def test_arithmetic_of_infinities_and_nan_is_ieee(name):
    values = np.array([0.0, -0.0, 1.5, -2.0, INF, -INF, NAN], dtype=name)
    a, b = np.repeat(values, 7), np.tile(values, 7)
    with np.errstate(all="ignore"):
        for function in EXACT:
            assert_same(getattr(hl, function)(hl.asarray(a), hl.asarray(b)), getattr(np, function)(a, b))


@pytest.mark.parametrize("name", FLOATS)
def test_sqrt_is_correctly_rounded(name):
    x = np.abs(random_floats(name, 2000, "s"))
    with np.errstate(all="ignore"):
        wide = np.sqrt(x.astype(np.float64))
    assert_same(hl.sqrt(hl.asarray(x)), wide.astype(numpy_dtype(name)))  # twice-rounded sqrt is once-rounded here
    special = np.array([-0.0, 0.0, INF, -INF, -1.0, NAN]).astype(numpy_dtype(name))
    want = np.array([-0.0, 0.0, INF, NAN, NAN, NAN]).astype(numpy_dtype(name))
    assert_same(hl.sqrt(hl.asarray(special)), want)


@pytest.mark.parametrize("name", FLOATS)
def test_subnormals_are_kept(name):
    exponent_bits, mantissa_bits = FORMATS[name]
    bits = np.arange(1, 1 << min(mantissa_bits, 10), dtype=bits_dtype(name))
    x = hl.asarray(bits.view(numpy_dtype(name)))
    for same in (x * 1, x + 0, x / 1, hl.maximum(x, -x), -(-x), hl.abs(-x)):
        np.testing.assert_array_equal(same.numpy().view(bits_dtype(name)), bits)
    np.testing.assert_array_equal((x + x).numpy().view(bits_dtype(name)), 2 * bits)


HALF_FUNCTIONS = ["sqrt", "exp", "expm1", "log", "log1p", "sin", "cos", "tanh", "erf", "sigmoid", "gelu", "square"]


@pytest.mark.parametrize("name", ["float16", "bfloat16"])
@pytest.mark.parametrize("function", HALF_FUNCTIONS)
def test_16_bit_functions_are_the_float32_result_rounded_once(name, function):
    bits = np.arange(1 << 16, dtype=np.uint16)
    x = hl.asarray(bits.view(numpy_dtype(name)))
    narrow = getattr(hl, function)(x)
    assert narrow.dtype == x.dtype
    wide = getattr(hl, function)(x.astype(hl.float32)).astype(x.dtype)
    got, want = narrow.numpy().view(np.uint16), wide.numpy().view(np.uint16)
    same = (got == want) | (is_nan(got, name) & is_nan(want, name))
    assert np.all(same), np.flatnonzero(~same)[:5]


# ---- declared accuracy ------------------------------------------------------------------------------------------


def reference(function):
    with_mp = {
        "expm1": mpmath.expm1, "log1p": lambda x: mpmath.log1p(x), "exp": mpmath.exp, "log": mpmath.log,
        "sin": mpmath.sin, "cos": mpmath.cos, "tanh": mpmath.tanh, "erf": mpmath.erf,
        "sigmoid": lambda x: 1 / (1 + mpmath.exp(-x)),
        "gelu": lambda x: x * mpmath.erfc(-x / mpmath.sqrt(2)) / 2,
    }  # fmt: skip
    return with_mp[function]


DOMAINS = {
    "exp": (-100, 88), "expm1": (-30, 80), "log": (1e-30, 1e30), "log1p": (-0.999, 1e6), "sin": (-1000, 1000),
    "cos": (-1000, 1000), "tanh": (-10, 10), "erf": (-4, 4), "sigmoid": (-95, 30), "gelu": (-12, 8),
}  # fmt: skip


@pytest.mark.parametrize("function", DOMAINS)
@pytest.mark.parametrize("name", ["float32", "float64"])
def test_functions_stay_within_4_ulp(function, name):
    low, high = DOMAINS[function]
    rng = np.random.default_rng(11)
    points = rng.uniform(low, high, 200)
    points = np.concatenate([points, rng.uniform(max(low, -1), min(high, 1), 100), rng.normal(size=40) * 1e-4])
    x = points[(points >= low) & (points <= high)].astype(name)
    got = getattr(hl, function)(hl.asarray(x)).numpy()
    assert got.dtype == x.dtype
    with mpmath.workdps(50):
        for value, result in zip(x, got):
            want = reference(function)(mpmath.mpf(float(value)))
            ulp = float(np.spacing(np.abs(np.array(float(want)).astype(name))))
            error = abs(mpmath.mpf(float(result)) - want) / ulp
            assert error <= 4, f"{function}({value!r}) = {result!r} is {float(error):.2f} ULP off"


@pytest.mark.parametrize("name", FLOATS)
@pytest.mark.parametrize(
    "function, points",
    [
        ("exp", [(INF, INF), (-INF, 0.0), (0.0, 1.0), (-0.0, 1.0), (NAN, NAN)]),
        ("expm1", [(INF, INF), (-INF, -1.0), (0.0, 0.0), (-0.0, -0.0), (NAN, NAN)]),
        ("log", [(INF, INF), (0.0, -INF), (-0.0, -INF), (1.0, 0.0), (-1.0, NAN), (-INF, NAN), (NAN, NAN)]),
        ("log1p", [(INF, INF), (-1.0, -INF), (0.0, 0.0), (-0.0, -0.0), (-2.0, NAN), (NAN, NAN)]),
        ("sin", [(0.0, 0.0), (-0.0, -0.0), (INF, NAN), (-INF, NAN), (NAN, NAN)]),
        ("cos", [(0.0, 1.0), (-0.0, 1.0), (INF, NAN), (-INF, NAN), (NAN, NAN)]),
        ("tanh", [(0.0, 0.0), (-0.0, -0.0), (INF, 1.0), (-INF, -1.0), (NAN, NAN)]),
        ("erf", [(0.0, 0.0), (INF, 1.0), (-INF, -1.0), (NAN, NAN)]),
        ("sigmoid", [(0.0, 0.5), (INF, 1.0), (-INF, 0.0), (NAN, NAN)]),
        ("relu", [(3.0, 3.0), (-3.0, 0.0), (INF, INF), (-INF, 0.0), (NAN, NAN)]),
        ("square", [(-3.0, 9.0), (-INF, INF), (-0.0, 0.0), (NAN, NAN)]),
        ("abs", [(-3.0, 3.0), (-INF, INF), (-0.0, 0.0), (NAN, NAN)]),
        ("negative", [(0.0, -0.0), (-0.0, 0.0), (INF, -INF)]),
        ("floor", [(-0.5, -1.0), (0.5, 0.0), (2.0, 2.0), (-0.0, -0.0), (INF, INF), (NAN, NAN)]),
        ("ceil", [(-0.5, -0.0), (0.5, 1.0), (2.0, 2.0), (-0.0, -0.0), (-INF, -INF), (NAN, NAN)]),
        ("trunc", [(-1.5, -1.0), (1.5, 1.0), (-0.5, -0.0), (-0.0, -0.0), (INF, INF), (NAN, NAN)]),
        (
            "round",
            [(-2.5, -2.0), (-1.5, -2.0), (-0.5, -0.0), (0.5, 0.0), (1.5, 2.0), (2.5, 2.0), (-INF, -INF), (NAN, NAN)],
        ),
    ],
)
def test_special_points_of_unary_functions(name, function, points):
    x = np.array([point for point, _ in points]).astype(numpy_dtype(name))
    want = np.array([value for _, value in points]).astype(numpy_dtype(name))
    for n in (1, 5, 40):
        for i in range(len(x)):
            repeated, expected = np.resize(np.roll(x, -i), n), np.resize(np.roll(want, -i), n)
            assert_same(getattr(hl, function)(hl.asarray(repeated)), expected)


@pytest.mark.parametrize("name", FLOATS)
def test_sign(name):
    x = np.array([3.0, -0.25, 0.0, -0.0, INF, -INF, NAN] * 5).astype(numpy_dtype(name))
    want = np.array([1.0, -1.0, 0.0, 0.0, 1.0, -1.0, NAN] * 5).astype(numpy_dtype(name))
    assert_same(hl.sign(hl.asarray(x)), want, signed_zero=False)


@pytest.mark.parametrize("name", FLOATS)
def test_predicates(name):
    x = hl.asarray(np.array([0.0, -1.0, INF, -INF, NAN] * 7).astype(numpy_dtype(name)))
    assert hl.isnan(x).tolist() == [False, False, False, False, True] * 7
    assert hl.isinf(x).tolist() == [False, False, True, True, False] * 7
    assert hl.isfinite(x).tolist() == [True, True, False, False, False] * 7
    assert hl.isnan(x).dtype == hl.bool


@pytest.mark.parametrize("name", FLOATS)
def test_leaky_relu(name):
    x = np.array([2.0, -2.0, 0.0, INF, -INF, NAN] * 3).astype(numpy_dtype(name))
    want = np.array([2.0, -1.0, 0.0, INF, -INF, NAN] * 3).astype(numpy_dtype(name))
    assert_same(hl.leaky_relu(hl.asarray(x), slope=0.5), want, signed_zero=False)
    default = hl.leaky_relu(hl.asarray(np.array([-1.0, 4.0])))
    assert default.tolist() == [-0.01, 4.0]


@pytest.mark.parametrize("name", FLOATS)
def test_copysign(name):
    a, b = [1.0, 0.0, INF, NAN, -3.0], [1.0, -1.0, 0.0, -0.0, -INF]
    for x, y in itertools.product(a, b):
        got = hl.copysign(*(hl.asarray(np.array([v] * 5).astype(numpy_dtype(name))) for v in (x, y))).numpy()
        want = np.copysign(np.full(5, x), y)
        assert_same(got, want.astype(numpy_dtype(name)))
        np.testing.assert_array_equal(np.signbit(got.astype(np.float64)), np.signbit(want))


# ---- maximum, minimum, clip -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", FLOATS)
def test_maximum_and_minimum_of_zeros_and_nan_in_either_order(name):
    def pair(x, y, n):
        return (hl.asarray(np.full(n, v).astype(numpy_dtype(name))) for v in (x, y))

    for n in (1, 3, 8, 19, 64):
        for x, y in ((0.0, -0.0), (-0.0, 0.0)):
            a, b = pair(x, y, n)
            assert_same(hl.maximum(a, b), np.full(n, 0.0).astype(numpy_dtype(name)))
            assert_same(hl.minimum(a, b), np.full(n, -0.0).astype(numpy_dtype(name)))
            assert_same(hl.max(hl.stack([a, b]), axis=0), np.full(n, 0.0).astype(numpy_dtype(name)))
            assert_same(hl.min(hl.stack([a, b]), axis=0), np.full(n, -0.0).astype(numpy_dtype(name)))
        for x, y in ((NAN, 1.0), (1.0, NAN), (NAN, -INF), (INF, NAN)):
            a, b = pair(x, y, n)
            want = np.full(n, NAN).astype(numpy_dtype(name))
            assert_same(hl.maximum(a, b), want)
            assert_same(hl.minimum(a, b), want)


def test_all_and_any_count_nan_as_true():
    x = f32(NAN, NAN)
    assert hl.all(x).item() is True and hl.any(x).item() is True
    assert hl.any(f32(0.0, -0.0, NAN)).item() is True
    assert hl.all(f32(NAN, 0.0)).item() is False
    assert hl.any(f32(0.0, -0.0)).item() is False
    assert x.astype(hl.bool).tolist() == [True, True]


def test_argmax_of_equals_is_the_first_and_zeros_are_equal():
    assert hl.argmax(f32(1, 5, 5, 2, 5)).item() == 1
    assert hl.argmin(f32(3, 1, 1, 2, 1)).item() == 1
    assert hl.argmax(f32(-0.0, 0.0)).item() == 0
    assert hl.argmin(f32(0.0, -0.0)).item() == 0
    for n in (5, 17, 64, 100, 5000):
        assert hl.argmax(hl.ones((n,))).item() == hl.argmin(hl.ones((n,))).item() == 0


@pytest.mark.parametrize("name", FLOATS)
def test_clip(name):
    x = hl.asarray(np.array([-INF, -2.0, 0.5, 3.0, INF, NAN]).astype(numpy_dtype(name)))

    def same(got, *want):
        assert_same(got, np.array(want).astype(numpy_dtype(name)))

    same(hl.clip(x, 0, 1), 0, 0, 0.5, 1, 1, NAN)
    same(hl.clip(x, None, 1), -INF, -2, 0.5, 1, 1, NAN)
    same(hl.clip(x, 0), 0, 0, 0.5, 3, INF, NAN)
    same(hl.clip(x, None, None), -INF, -2, 0.5, 3, INF, NAN)
    same(hl.clip(x, NAN, 1), NAN, NAN, NAN, NAN, NAN, NAN)
    same(hl.clip(x, 0, NAN), NAN, NAN, NAN, NAN, NAN, NAN)
    low = hl.asarray(np.full(6, 2.0).astype(numpy_dtype(name)))
    high = hl.asarray(np.full(6, 1.0).astype(numpy_dtype(name)))
    same(hl.clip(x, low, high), 1, 1, 1, 1, 1, NAN)  # with arrays, hi wins


def test_clip_bounds_must_suit_x():
    x = f32(1, 2)
    for low, high in ((7, 3), (1.0, 0.5)):
        with pytest.raises(ValueError, match="clip"):
            hl.clip(x, low, high)
    with pytest.raises(ValueError):
        hl.clip(hl.asarray([1, 2], dtype=hl.int8), 5, 4)
    with pytest.raises(TypeError):
        hl.clip(x, hl.asarray([0.0, 0.0], dtype=hl.float64), None)
    with pytest.raises(TypeError):
        hl.clip(hl.asarray([1, 2]), 0.5, 1.5)
    assert hl.clip(x, hl.asarray([0, 5], dtype=hl.int8), None).dtype == hl.float32
    assert hl.clip(hl.asarray([1.0], dtype=hl.float64), f32(2), None).dtype == hl.float64


# ---- floor division and remainder -------------------------------------------------------------------------------


def floor_and_remainder(a, b, name):
    """Bits of a // b and a % b for finite a and nonzero finite b, from exact rationals."""
    x, y = Fraction(float(a)), Fraction(float(b))
    quotient = math.floor(x / y)
    rest = x - y * quotient
    negative_divisor = bool(np.signbit(np.float64(b)))
    negative_zero = bool(np.signbit(np.float64(a))) != negative_divisor
    return (
        encode(quotient < 0 or (quotient == 0 and x == 0 and negative_zero), abs(Fraction(quotient)), name),
        encode(negative_divisor, abs(rest), name),
    )


@pytest.mark.parametrize("name", FLOATS)
def test_floor_divide_and_remainder_by_exact_rationals(name):
    lists = []
    for i in range(4):
        lists.append((close_floats(name, 400, f"a{i}"), close_floats(name, 400, f"b{i}")))
    if name != "bfloat16":  # there a quotient needs so many bits that float32 and one rounding may differ
        lists.append((random_floats(name, 400, "fa"), random_floats(name, 400, "fb")))
    a, b = (np.concatenate(part) for part in zip(*lists))
    wide_a, wide_b = a.astype(np.float64), b.astype(np.float64)
    keep = np.isfinite(wide_a) & np.isfinite(wide_b) & (wide_b != 0)
    a, b = a[keep], b[keep]
    bits = np.array([floor_and_remainder(p, q, name) for p, q in zip(a, b)], dtype=bits_dtype(name))
    quotient = np.ascontiguousarray(bits[:, 0]).view(numpy_dtype(name))
    rest = np.ascontiguousarray(bits[:, 1]).view(numpy_dtype(name))
    x, y = hl.asarray(a), hl.asarray(b)
    assert_same(x // y, quotient)
    assert_same(x % y, rest)
    assert_same(hl.floor_divide(hl.asarray(np.repeat(a, 2))[::2], y), quotient)
    both = hl.divmod(x, y)
    assert_same(both[0], quotient)
    assert_same(both[1], rest)


# a, b, a // b, a % b
DIVISION = [
    (INF, 2.0, INF, NAN), (INF, -2.0, -INF, NAN), (-INF, 2.0, -INF, NAN), (INF, INF, NAN, NAN), (INF, 0.0, INF, NAN),
    (-1.0, INF, -0.0, INF), (1.0, INF, 0.0, 1.0), (1.0, -INF, -0.0, -INF), (-1.0, -INF, 0.0, -1.0),
    (5.0, -INF, -0.0, -INF), (-5.0, INF, -0.0, INF), (0.0, INF, 0.0, 0.0), (0.0, -INF, -0.0, -0.0),
    (1.0, 0.0, INF, NAN), (-1.0, 0.0, -INF, NAN), (1.0, -0.0, -INF, NAN), (0.0, 0.0, NAN, NAN), (-0.0, 0.0, NAN, NAN),
    (0.0, 5.0, 0.0, 0.0), (-0.0, 5.0, -0.0, 0.0), (0.0, -5.0, -0.0, -0.0), (-0.0, -5.0, 0.0, -0.0),
    (NAN, 1.0, NAN, NAN), (1.0, NAN, NAN, NAN), (6.0, -3.0, -2.0, -0.0), (-6.0, 3.0, -2.0, 0.0),
    (7.5, 2.0, 3.0, 1.5), (-7.5, 2.0, -4.0, 0.5), (7.5, -2.0, -4.0, -0.5), (-7.5, -2.0, 3.0, -1.5),
]  # fmt: skip


@pytest.mark.parametrize("name", FLOATS)
@pytest.mark.parametrize("a, b, quotient, rest", DIVISION)
def test_floor_divide_and_remainder_at_special_points(name, a, b, quotient, rest):
    for n in (1, 3, 21):
        x, y = (hl.asarray(np.full(n, v).astype(numpy_dtype(name))) for v in (a, b))
        q, r = (np.full(n, v).astype(numpy_dtype(name)) for v in (quotient, rest))
        for got in (x // y, x // b, a // y, hl.divmod(x, y)[0]):
            assert_same(got, q)
        for got in (x % y, x % b, a % y, divmod(x, y)[1]):
            assert_same(got, r)


def test_remainder_of_a_tiny_negative_is_the_divisor():
    assert (f32(-1e-30) % 5.0).item() == 5.0
    assert (f32(-1e-30) // 5.0).item() == -1.0


# ---- pow --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", FLOATS)
@pytest.mark.parametrize("x, y, want", [
    (1.0, NAN, 1.0), (NAN, 0.0, 1.0), (NAN, -0.0, 1.0), (1.0, INF, 1.0), (-1.0, INF, 1.0), (0.0, 0.0, 1.0),
    (INF, 0.0, 1.0), (NAN, 1.0, NAN), (2.0, NAN, NAN), (2.0, INF, INF), (2.0, -INF, 0.0), (0.5, INF, 0.0),
    (0.5, -INF, INF), (INF, 2.0, INF), (INF, -2.0, 0.0), (-INF, 3.0, -INF), (-INF, 2.0, INF), (-INF, -3.0, -0.0),
    (0.0, 3.0, 0.0), (-0.0, 3.0, -0.0), (-0.0, 2.0, 0.0), (0.0, -3.0, INF), (-0.0, -3.0, -INF), (-0.0, -2.0, INF),
    (-8.0, 0.5, NAN), (-2.0, 3.0, -8.0), (-2.0, 2.0, 4.0), (2.0, -2.0, 0.25), (9.0, 0.5, 3.0),
])  # fmt: skip
def test_pow_special_points(name, x, y, want):
    for n in (1, 5, 18):
        a, b = (hl.asarray(np.full(n, v).astype(numpy_dtype(name))) for v in (x, y))
        for got in (hl.pow(a, b), a**y, x**b):
            assert_same(got, np.full(n, want).astype(numpy_dtype(name)))


# ---- softmax ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("axis", [-1, 0, 1])
def test_softmax_and_log_softmax(axis):
    x = np.random.default_rng(3).normal(size=(5, 7, 4)) * 30 + 1000
    shifted = np.exp(x - x.max(axis=axis, keepdims=True))
    want = shifted / shifted.sum(axis=axis, keepdims=True)
    np.testing.assert_allclose(hl.softmax(hl.asarray(x), axis=axis).numpy(), want, rtol=1e-13)
    got = hl.log_softmax(hl.asarray(x), axis=axis).numpy()
    log_sum = np.log(shifted.sum(axis=axis, keepdims=True))
    np.testing.assert_allclose(got, x - x.max(axis=axis, keepdims=True) - log_sum, rtol=1e-12, atol=1e-12)


# ---- arange, linspace -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["float32", "float64"])
@pytest.mark.parametrize(
    "start, stop, step",
    [
        (0.1, 100.0, 0.1),
        (0, 1, 0.1),
        (5.0, -3.0, -0.7),
        (-1e6, 1e6, 1e4 / 3),
        (0.0, 1e-40, 1e-43),
        (1e10, 1e10 + 50, 0.3),
        (3, 4, 10),
        (1, 1.25, 0.125),
    ],
)
def test_arange_rounds_each_element_once(name, start, stop, step):
    got = hl.arange(start, stop, step, dtype=getattr(hl, name)).numpy()
    count = math.ceil((stop - start) / step)
    want = encode_array([Fraction(start) + i * Fraction(step) for i in range(count)], name)
    assert_same(got, want)


def test_arange_forms():
    assert hl.arange(4).tolist() == [0, 1, 2, 3]
    assert hl.arange(1, 3).tolist() == [1, 2]
    assert hl.arange(2.5).tolist() == [0.0, 1.0, 2.0]
    assert hl.arange(3, 0).shape == hl.arange(0, 3, -1).shape == (0,)
    with pytest.raises(ValueError):
        hl.arange(0, 3, 0)


@pytest.mark.parametrize("name", ["float32", "float64"])
def test_linspace_ends_exactly_at_stop(name):
    d, kind = getattr(hl, name), np.dtype(name).type
    for start, stop, count in ((0.0, 0.1, 11), (-1.0, 0.3, 7), (1e-30, 1e30, 5), (2.0, -7.7, 1001), (0.1, 0.7, 50)):
        got = hl.linspace(start, stop, count, dtype=d).numpy()
        assert got.shape == (count,)
        assert got[0] == kind(start) and got[-1] == kind(stop)
        want = [Fraction(start) + i * (Fraction(stop) - Fraction(start)) / (count - 1) for i in range(count)]
        scale = 4 * np.spacing(kind(max(abs(start), abs(stop))))
        assert np.max(np.abs(got - encode_array(want, name))) <= scale
        open_ended = hl.linspace(start, stop, count, dtype=d, endpoint=False).numpy()
        want = [Fraction(start) + i * (Fraction(stop) - Fraction(start)) / count for i in range(count)]
        assert np.max(np.abs(open_ended - encode_array(want, name))) <= scale
    assert hl.linspace(3.0, 9.0, 1, dtype=d).tolist() == [3.0]
    assert hl.linspace(3.0, 9.0, 0, dtype=d).tolist() == []


# ---- complex ----------------------------------------------------------------------------------------------------


def c_multiply(z, w):
    """C Annex G.5.1, example 1."""
    a, b, c, d = z.real, z.imag, w.real, w.imag
    x, y = a * c - b * d, a * d + b * c
    if math.isnan(x) and math.isnan(y):
        again = False
        if math.isinf(a) or math.isinf(b):
            a, b = (math.copysign(float(math.isinf(v)), v) for v in (a, b))
            c, d = (math.copysign(0.0, v) if math.isnan(v) else v for v in (c, d))
            again = True
        if math.isinf(c) or math.isinf(d):
            c, d = (math.copysign(float(math.isinf(v)), v) for v in (c, d))
            a, b = (math.copysign(0.0, v) if math.isnan(v) else v for v in (a, b))
            again = True
        if again:
            x, y = INF * (a * c - b * d), INF * (a * d + b * c)
    return complex(x, y)


SPECIAL = [complex(re, im) for re in (0.0, -0.0, 1.0, -2.0, INF, -INF, NAN) for im in (0.0, 1.5, -INF, INF, NAN)]


@pytest.mark.parametrize("name", ["complex64", "complex128"])
def test_complex_multiply_follows_annex_g(name):
    pairs = list(itertools.product(SPECIAL, SPECIAL))
    a, b = (np.array(part, dtype=name) for part in zip(*pairs))
    want = np.array([c_multiply(z, w) for z, w in pairs], dtype=name)
    got = hl.multiply(hl.asarray(a), hl.asarray(b)).numpy()
    for z, w, result, expected in zip(a, b, got, want):
        assert repr(result.real + 0.0) == repr(expected.real + 0.0), (z, w, result, expected)
        assert repr(result.imag + 0.0) == repr(expected.imag + 0.0), (z, w, result, expected)


@pytest.mark.parametrize("name", ["complex64", "complex128"])
def test_complex_divide_keeps_infinities_and_zeros(name):
    """Annex G.5.1: which operands give infinity, zero or a finite value."""
    pairs = list(itertools.product(SPECIAL, SPECIAL))
    a, b = (np.array(part, dtype=name) for part in zip(*pairs))
    got = hl.divide(hl.asarray(a), hl.asarray(b)).numpy()
    for z, w, result in zip(a, b, got):
        infinite_z, infinite_w = np.isinf(z), np.isinf(w)
        finite_z, finite_w = np.isfinite(z), np.isfinite(w)
        if infinite_z and finite_w:
            assert np.isinf(result), (z, w, result)
        elif finite_z and infinite_w:
            assert result == 0, (z, w, result)
        elif w == 0 and z != 0 and not np.isnan(z):
            assert np.isinf(result), (z, w, result)
        elif w == 0 and z == 0:
            assert np.isnan(result.real) and np.isnan(result.imag), (z, w, result)
        elif finite_z and finite_w:
            np.testing.assert_allclose(result, complex(z) / complex(w), rtol=1e-6)


@pytest.mark.parametrize("name", ["complex64", "complex128"])
def test_complex_arithmetic_on_random_values(name):
    rng = np.random.default_rng(17)
    z, w = (np.array(rng.normal(size=67) + 1j * rng.normal(size=67), dtype=name) for _ in range(2))
    tolerance = 1e-6 if name == "complex64" else 1e-14
    for function in ("add", "subtract", "multiply", "divide"):
        want = getattr(np, function)(z.astype(np.complex128), w.astype(np.complex128))
        for x in (hl.asarray(z), hl.asarray(np.repeat(z, 2))[::2]):
            np.testing.assert_allclose(getattr(hl, function)(x, hl.asarray(w)).numpy(), want, rtol=tolerance)
    assert_same(-hl.asarray(z), -z)
    np.testing.assert_allclose(hl.abs(hl.asarray(z)).numpy(), np.abs(z), rtol=tolerance)
    assert hl.abs(hl.asarray(z)).dtype == (hl.float32 if name == "complex64" else hl.float64)
    np.testing.assert_allclose(hl.sum(hl.asarray(z)).numpy(), z.sum(), rtol=tolerance * 10)
    np.testing.assert_allclose(hl.square(hl.asarray(z)).numpy(), z * z, rtol=tolerance)


def test_complex_division_does_not_overflow_in_the_middle():
    big = hl.asarray(np.array([1e30 + 1e30j, 3e-30 + 4e-30j], dtype=np.complex64))
    np.testing.assert_allclose((big / big).numpy(), [1, 1], rtol=1e-6)
    np.testing.assert_allclose(hl.abs(big).numpy(), np.array([2**0.5 * 1e30, 5e-30], np.float32), rtol=1e-6)


@pytest.mark.parametrize("name", ["complex64", "complex128"])
def test_real_with_complex_works_by_component(name):
    real = np.dtype("float32" if name == "complex64" else "float64")
    z = np.array([complex(INF, 0.0), complex(1.0, -0.0), complex(NAN, 2.0), complex(-INF, 3.0)], dtype=name)
    x, r = hl.asarray(z), hl.asarray(np.full(4, 2.0, dtype=real))
    for product in (x * r, r * x, x * 2.0, 2.0 * x):
        got = product.numpy()
        assert got.dtype == z.dtype
        assert_same(got.real, np.array([INF, 2.0, NAN, -INF], dtype=real))
        assert_same(got.imag, np.array([0.0, -0.0, 4.0, 6.0], dtype=real))
    for quotient in (x / r, x / 2.0):
        got = quotient.numpy()
        assert_same(got.real, np.array([INF, 0.5, NAN, -INF], dtype=real))
        assert_same(got.imag, np.array([0.0, -0.0, 1.0, 1.5], dtype=real))
    for total in (x + r, r + x, x + 2.0, 2.0 + x):
        got = total.numpy()
        assert_same(got.real, np.array([INF, 3.0, NAN, -INF], dtype=real))
        assert_same(got.imag, np.array([0.0, -0.0, 2.0, 3.0], dtype=real))


def test_sign_of_complex_is_the_unit_vector():
    z = np.array([3 + 4j, -5j, 0j, -2 + 0j], dtype=np.complex128)
    np.testing.assert_allclose(hl.sign(hl.asarray(z)).numpy(), [0.6 + 0.8j, -1j, 0, -1], rtol=1e-15)


COMPLEX_FUNCTIONS = {
    "exp": cmath.exp,
    "log": cmath.log,
    "sqrt": cmath.sqrt,
    "sin": cmath.sin,
    "cos": cmath.cos,
    "tanh": cmath.tanh,
    "expm1": lambda z: cmath.exp(z) - 1,
    "log1p": lambda z: cmath.log(1 + z),
}


@pytest.mark.parametrize("function", COMPLEX_FUNCTIONS)
def test_complex_functions_and_their_conjugate_symmetry(function):
    rng = np.random.default_rng(23)
    z = rng.uniform(-2, 2, size=67) + 1j * rng.uniform(-2, 2, size=67)
    got = getattr(hl, function)(hl.asarray(z)).numpy()
    want = np.array([COMPLEX_FUNCTIONS[function](complex(v)) for v in z])
    np.testing.assert_allclose(got, want, rtol=1e-12)
    mirrored = getattr(hl, function)(hl.asarray(z.conj())).numpy()
    np.testing.assert_array_equal(mirrored, got.conj())


def test_complex_branch_cuts_are_c99s():
    z = hl.asarray(np.array([complex(-4, 0.0), complex(-4, -0.0)]))
    np.testing.assert_allclose(hl.sqrt(z).numpy(), [2j, -2j], atol=1e-15)
    np.testing.assert_allclose(hl.log(z).numpy().imag, [math.pi, -math.pi], rtol=1e-15)


def test_complex_has_no_order():
    z = hl.asarray([1 + 1j, 2 + 2j])
    for function in (hl.max, hl.min, hl.argmax, hl.argmin):
        with pytest.raises((TypeError, NotImplementedError)):
            function(z)
    for function in (hl.maximum, hl.minimum, hl.less, hl.greater_equal, operator.lt):
        with pytest.raises((TypeError, NotImplementedError)):
            function(z, z)
    assert hl.equal(z, z).tolist() == [True, True]
    assert (z != hl.asarray([1 + 1j, 2 - 2j])).tolist() == [False, True]


def test_decode_and_encode_are_inverse():
    """The oracle's own check: every 16-bit pattern survives the way through an exact rational."""
    for name in ("float16", "bfloat16"):
        for bits in range(0, 1 << 16, 7):
            negative, magnitude = decode(bits, name)
            if magnitude != "nan":
                assert encode(negative, magnitude, name) == bits
