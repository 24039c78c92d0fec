"""Complex functions at zeros, infinities and NaN: the array API standard's tables, and decision 12 beside them."""

import cmath
import itertools
import math

import numpy as np
import pytest

import hyalite as hl

inf, nan, pi = math.inf, math.nan, math.pi
PARTS = [0.0, -0.0, 1.0, -1.0, 0.5, -2.0, 100.0, inf, -inf, nan]


class Either(float):
    """A part whose sign the standard leaves open."""


zero, infinite = Either(0.0), Either(inf)
KINDS = {
    "any": lambda v: True,
    "zero": lambda v: v == 0,
    "+0": lambda v: v == 0 and math.copysign(1, v) > 0,
    "-0": lambda v: v == 0 and math.copysign(1, v) < 0,
    "finite": math.isfinite,
    "nonzero": lambda v: math.isfinite(v) and v != 0,
    "positive": lambda v: math.isfinite(v) and v > 0,
    "not 0": lambda v: v != 0,
    "-1": lambda v: v == -1,
    "inf": lambda v: v == inf,
    "-inf": lambda v: v == -inf,
    "infinite": math.isinf,
    "nan": math.isnan,
}


def cis(r, minus=0.0):
    return lambda b: (r * math.cos(b) - minus, r * math.sin(b))


# Rows as the standard has them (2025.12), for imaginary parts that are not negative: both parts, then the result.
# The others follow from f(conj z) = conj f(z), and for odd and even functions from f(-z).
LOGARITHM = [
    ("finite", "inf", (inf, pi / 2)),
    ("finite", "nan", (nan, nan)),
    ("-inf", "positive", (inf, pi)),
    ("inf", "positive", (inf, 0.0)),
    ("-inf", "inf", (inf, 3 * pi / 4)),
    ("inf", "inf", (inf, pi / 4)),
    ("infinite", "nan", (inf, nan)),
    ("nan", "finite", (nan, nan)),
    ("nan", "inf", (inf, nan)),
    ("nan", "nan", (nan, nan)),
]
SINH = [
    ("+0", "+0", (0.0, 0.0)),
    ("+0", "inf", (zero, nan)),
    ("+0", "nan", (zero, nan)),
    ("positive", "inf", (nan, nan)),
    ("positive", "nan", (nan, nan)),
    ("inf", "+0", (inf, 0.0)),
    ("inf", "positive", cis(inf)),
    ("inf", "inf", (infinite, nan)),
    ("inf", "nan", (infinite, nan)),
    ("nan", "+0", (nan, 0.0)),
    ("nan", "nonzero", (nan, nan)),
    ("nan", "nan", (nan, nan)),
]
COSH = [
    ("+0", "+0", (1.0, 0.0)),
    ("+0", "inf", (nan, zero)),
    ("+0", "nan", (nan, zero)),
    ("nonzero", "inf", (nan, nan)),
    ("nonzero", "nan", (nan, nan)),
    ("inf", "+0", (inf, 0.0)),
    ("inf", "nonzero", cis(inf)),
    ("inf", "inf", (infinite, nan)),
    ("inf", "nan", (inf, nan)),
    ("nan", "zero", (nan, zero)),
    ("nan", "nonzero", (nan, nan)),
    ("nan", "nan", (nan, nan)),
]
TABLES = {
    "exp": [
        ("zero", "+0", (1.0, 0.0)),
        ("finite", "inf", (nan, nan)),
        ("finite", "nan", (nan, nan)),
        ("inf", "+0", (inf, 0.0)),
        ("-inf", "finite", cis(0.0)),
        ("inf", "nonzero", cis(inf)),
        ("-inf", "inf", (zero, zero)),
        ("inf", "inf", (infinite, nan)),
        ("-inf", "nan", (zero, zero)),
        ("inf", "nan", (infinite, nan)),
        ("nan", "+0", (nan, 0.0)),
        ("nan", "not 0", (nan, nan)),
    ],
    "expm1": [
        ("zero", "+0", (0.0, 0.0)),
        ("finite", "inf", (nan, nan)),
        ("finite", "nan", (nan, nan)),
        ("inf", "+0", (inf, 0.0)),
        ("-inf", "finite", cis(0.0, 1.0)),
        ("inf", "nonzero", cis(inf, 1.0)),
        ("-inf", "inf", (-1.0, zero)),
        ("inf", "inf", (infinite, nan)),
        ("-inf", "nan", (-1.0, zero)),
        ("inf", "nan", (infinite, nan)),
        ("nan", "+0", (nan, 0.0)),
        ("nan", "not 0", (nan, nan)),
    ],
    "log": [("-0", "+0", (-inf, pi)), ("+0", "+0", (-inf, 0.0)), *LOGARITHM],
    "log1p": [("-1", "+0", (-inf, 0.0)), *LOGARITHM],
    "sqrt": [
        ("zero", "+0", (0.0, 0.0)),
        ("any", "inf", (inf, inf)),
        ("finite", "nan", (nan, nan)),
        ("-inf", "positive", (0.0, inf)),
        ("inf", "positive", (inf, 0.0)),
        ("-inf", "nan", (nan, infinite)),
        ("inf", "nan", (inf, nan)),
        ("nan", "any", (nan, nan)),
    ],
    "tanh": [
        ("+0", "+0", (0.0, 0.0)),
        ("nonzero", "inf", (nan, nan)),
        ("+0", "inf", (0.0, nan)),
        ("nonzero", "nan", (nan, nan)),
        ("+0", "nan", (0.0, nan)),
        ("inf", "positive", (1.0, 0.0)),
        ("inf", "inf", (1.0, zero)),
        ("inf", "nan", (1.0, zero)),
        ("nan", "+0", (nan, 0.0)),
        ("nan", "nonzero", (nan, nan)),
        ("nan", "nan", (nan, nan)),
    ],
    "sign": [("zero", "zero", (0.0, 0.0)), ("nan", "any", (nan, nan)), ("any", "nan", (nan, nan))],
}
ODD = {"tanh", "sign", "sinh"}


def same(got, want):
    if math.isnan(want):
        return math.isnan(got)
    if isinstance(want, Either):
        return abs(got) == float(want)
    if want in (0, inf, -inf):
        return got == want and math.copysign(1, got) == math.copysign(1, want)
    return math.isclose(got, want, rel_tol=1e-6)


def matches(got, want):
    return same(got.real, want[0]) and same(got.imag, want[1])


def listed(table, z):
    for a, b, result in table:
        if KINDS[a](z.real) and KINDS[b](z.imag):
            return result(z.imag) if callable(result) else result
    return None


def computed(op, z, dtype):
    return complex(getattr(hl, op)(hl.asarray(np.array([z], dtype=dtype)))[0])


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
@pytest.mark.parametrize("op", TABLES)
def test_w20_special_values_of_the_standard(op, dtype):
    found, wrong = 0, []
    for a, b in itertools.product(PARTS, PARTS):
        z = complex(a, b)
        want = listed(TABLES[op], z)
        if want is None or (math.copysign(1, b) < 0 and op != "sign"):
            continue
        found += 1
        got = computed(op, z, dtype)
        if not matches(got, want):
            wrong.append((z, got, want))
    assert found >= len(TABLES[op]) and not wrong


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
@pytest.mark.parametrize("op, of", [("sin", SINH), ("cos", COSH)])
def test_w20_sine_and_cosine_are_the_hyperbolic_ones_turned(op, of, dtype):
    """sin(z) = -i sinh(iz), cos(z) = cosh(iz): the standard defines them so."""
    wrong = []
    for a, b in itertools.product(PARTS, PARTS):
        want = listed(of, complex(a, b))
        if want is None:
            continue
        # i z = a + bi for z = b - ai.
        got = computed(op, complex(b, -a), dtype)
        turned = complex(-got.imag, got.real) if op == "sin" else got
        if not matches(turned, want):
            wrong.append((a, b, got, want))
    assert not wrong


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
@pytest.mark.parametrize("op", [*TABLES, "sin", "cos"])
def test_w20_symmetries(op, dtype):
    """f(conj z) is conj f(z), zeros with their signs; odd functions are odd. sign(0) is +0 + 0j whatever the zeros."""
    for a, b in itertools.product(PARTS, PARTS):
        z = complex(a, b)
        if op == "sign" and z == 0:
            continue
        got, other = computed(op, z, dtype), computed(op, z.conjugate(), dtype)
        assert matches(other, (got.real, -got.imag)), (z, got, other)
        if op in ODD | {"sin"}:
            turned = computed(op, complex(-a, -b), dtype)
            assert matches(turned, (-got.real, -got.imag)), (z, got, turned)


@pytest.mark.parametrize("op", ["exp", "log", "sqrt", "sin", "cos", "tanh"])
def test_w20_finite_values_are_those_of_python(op):
    for a, b in itertools.product([0.5, -0.5, 2.0, -3.0], repeat=2):
        z = complex(a, b)
        assert cmath.isclose(computed(op, z, "complex128"), getattr(cmath, op)(z), rel_tol=1e-14)


def test_w20_sign_of_infinities_is_their_direction():
    root = math.sqrt(0.5)
    for z, want in [
        (complex(inf, 1), (1.0, 0.0)),
        (complex(1, -inf), (0.0, -1.0)),
        (complex(-inf, inf), (-root, root)),
    ]:
        assert matches(computed("sign", z, "complex128"), want)
