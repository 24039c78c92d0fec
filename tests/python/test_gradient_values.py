"""Values of gradients where formulas fail: special points, the ends of the range, sums that cancel, counts that do not
fit, memory. Right values are exact derivatives (gradient_oracle.py) or mpmath's."""

import itertools
import math
import pathlib

import mpmath
import numpy as np
import pytest
from gradient_oracle import AUDITED, FIRST, declared_error, orders, unit, worst
from mpmath import mpf
from op_oracle import ELEMENTWISE, FLOATS, OPS, declared
from test_casts import numpy_dtype

import hyalite as hl
from hyalite import _C

DIFFERENTIABLE = [op for op in OPS if OPS[op]["has_gradient"]]
inf, nan = math.inf, math.nan


def grads(function, *operands, incoming=None, dtype=np.float64, create=False):
    tensors = [
        hl.asarray(np.asarray(x, dtype=numpy_dtype(dtype) if isinstance(dtype, str) else dtype)) for x in operands
    ]
    for t in tensors:
        t.requires_grad_(True)
    value = function(*tensors)
    g = hl.ones_like(value) if incoming is None else hl.full(value.shape, incoming, dtype=value.dtype)
    return [None if g is None else g.detach().numpy() for g in _C._grad([value], tensors, [g], create, create)]


def hessian(function, x, dtype=np.float64):
    x = hl.asarray(np.asarray(x, dtype=dtype)).requires_grad_(True)
    (g,) = _C._grad([function(x)], [x], [None], True, True)
    rows = []
    for i in range(g.shape[0]):
        (row,) = _C._grad([g[i]], [x], [None], True, False)
        rows.append(np.zeros(x.shape) if row is None else row.numpy())
    return np.array(rows)


# ---- every elementwise op: first and second derivatives -------------------------------------------------------------

CASES = [
    (op, which, name)
    for op in AUDITED
    for which in itertools.chain(*orders(op))
    for name in FLOATS
    if name in declared(op) and (len(which) == 1 or name in ("float32", "float64"))
]


@pytest.mark.parametrize("op, which, name", CASES)
def test_w11_derivatives_are_within_the_declared_error(op, which, name):
    found, where = worst(op, which, name, 150)
    assert found <= declared_error(op, which, name) * 1.0000001, f"{found} ULP at {where}"


def test_every_op_that_declares_an_error_of_its_gradient_is_held_to_it():
    elsewhere = {"softmax", "log_softmax", "prod"}  # below
    for op in DIFFERENTIABLE:
        known = op in FIRST or op in elsewhere
        assert known or not any(OPS[op]["gradient_ulp"]), (
            f"{op}: write its derivatives into FIRST of gradient_oracle.py"
        )
    assert set(FIRST) <= set(ELEMENTWISE)


# Points at which a derivative is a limit or a convention: op, operands, gradients by operand.
SPECIAL = [
    ("sigmoid", (20.0,), (mpmath.exp(-20) / (1 + mpmath.exp(-20)) ** 2,)),
    ("sigmoid", (37.43,), (mpmath.exp(-37.43),)),
    ("sigmoid", (inf,), (0,)),
    ("sigmoid", (-inf,), (0,)),
    ("tanh", (10.0,), (1 / mpmath.cosh(10) ** 2,)),
    ("tanh", (inf,), (0,)),
    ("tanh", (-inf,), (0,)),
    ("tanh", (0.0,), (1,)),
    ("expm1", (-20.0,), (mpmath.exp(-20),)),
    ("expm1", (-inf,), (0,)),
    ("exp", (-inf,), (0,)),
    ("exp", (inf,), (inf,)),
    ("gelu", (inf,), (1,)),
    ("gelu", (-inf,), (0,)),
    ("gelu", (0.0,), (0.5,)),
    ("erf", (inf,), (0,)),
    ("erfc", (-inf,), (0,)),
    ("sqrt", (0.0,), (inf,)),
    ("sqrt", (-0.0,), (inf,)),
    ("sqrt", (inf,), (0,)),
    ("sqrt", (-1.0,), (nan,)),
    ("log", (0.0,), (inf,)),
    ("log", (-0.0,), (inf,)),
    ("log", (inf,), (0,)),
    ("log1p", (-1.0,), (inf,)),
    ("log1p", (inf,), (0,)),
    ("reciprocal", (0.0,), (-inf,)),
    ("reciprocal", (-0.0,), (-inf,)),
    ("reciprocal", (inf,), (0,)),
    ("reciprocal", (1e-160,), (-inf,)),
    ("reciprocal", (1e200,), (0,)),
    ("abs", (0.0,), (0,)),
    ("abs", (-inf,), (-1,)),
    ("sign", (0.0,), (0,)),
    ("sign", (inf,), (0,)),
    ("relu", (0.0,), (0,)),
    ("relu", (-0.0,), (0,)),
    ("relu", (inf,), (1,)),
    ("relu", (nan,), (1,)),
    ("square", (inf,), (inf,)),
    ("square", (1e308,), (inf,)),
    ("divide", (0.0, 5e-324), (inf, 0)),
    ("divide", (1.0, inf), (0, 0)),
    ("divide", (1e300, 1e250), (1e-250, -1e-200)),
    ("divide", (1e-300, 1e-200), (1e200, -1e100)),
    ("multiply", (inf, 0.0), (0, inf)),
    ("maximum", (1.0, 1.0), (0.5, 0.5)),
    ("maximum", (0.0, -0.0), (0.5, 0.5)),
    ("maximum", (nan, 1.0), (1, 0)),
    ("maximum", (1.0, nan), (0, 1)),
    ("maximum", (nan, nan), (0.5, 0.5)),
    ("maximum", (inf, inf), (0.5, 0.5)),
    ("minimum", (1.0, 2.0), (1, 0)),
    ("minimum", (nan, 1.0), (1, 0)),
    ("minimum", (1.0, nan), (0, 1)),
    ("clip", (nan, 0.0, 1.0), (1, 0, 0)),
    ("clip", (0.5, nan, 1.0), (0, 1, 0)),
    ("clip", (0.5, 0.0, nan), (0, 0, 1)),
    ("clip", (2.0, 3.0, 1.0), (0, 0, 1)),
    ("pow", (0.0, 0.0), (0, 0)),
    ("pow", (0.0, 1.0), (1, 0)),
    ("pow", (0.0, 2.0), (0, 0)),
    ("pow", (0.0, 0.5), (inf, 0)),
    ("pow", (2.0, 0.0), (0, mpmath.log(2))),
    ("pow", (nan, 0.0), (0, nan)),
    ("pow", (inf, -1.0), (0, 0)),
    ("pow", (inf, 2.0), (inf, inf)),
    ("pow", (-2.0, 3.0), (12, nan)),
    ("remainder", (5.0, inf), (1, 0)),
    ("remainder", (-5.0, 3.0), (1, 2)),
    ("copysign", (-2.0, 3.0), (-1, 0)),
    ("floor", (1.5,), (0,)),
    ("floor_divide", (5.0, 3.0), (0, 0)),
]


@pytest.mark.parametrize("op, operands, want", SPECIAL)
@pytest.mark.parametrize("create", [False, True])
def test_w11_gradients_at_special_points(op, operands, want, create):
    """The fused and the recorded gradient."""
    got = grads(getattr(hl, op), *[[x] for x in operands], create=create)
    for i, (g, w) in enumerate(zip(got, want)):
        value = float(g[0])
        if math.isnan(float(w)):
            assert math.isnan(value), f"operand {i}: {value}"
        elif math.isinf(float(w)):
            assert value == float(w), f"operand {i}: {value}"
        else:
            bound = (declared_error(op, (i,), "float64") + 0.5) * unit(abs(mpf(w)), "float64")
            assert abs(mpf(value) - mpf(w)) <= bound, f"operand {i}: {value}, right {w}"


def test_w11_float32_and_bfloat16_gradients_that_used_to_cancel():
    for op, name, x, want in [
        ("sigmoid", "float32", 20, 2.0611537e-9),
        ("tanh", "float32", 10, 8.2446145e-9),
        ("tanh", "bfloat16", 4, 1.3409507e-3),
        ("expm1", "float32", -20, 2.0611537e-9),
    ]:
        (g,) = grads(getattr(hl, op), [x], dtype=name)
        np.testing.assert_allclose(float(g[0]), want, rtol=2.0 ** -(8 if name == "bfloat16" else 21))


SMOOTH = [op for op in AUDITED if OPS[op]["arity"] == 1 and op not in ("sign", "floor", "ceil", "trunc", "round")]


@pytest.mark.parametrize("op", AUDITED)
@pytest.mark.parametrize("incoming", [inf, -inf])
def test_w12_an_infinite_incoming_gradient_meets_a_finite_slope(op, incoming):
    points = {"sqrt": 4.0, "log": 2.0, "log1p": 0.5}
    x = [[points.get(op, 0.75)], [1.5], [2.5]][: OPS[op]["arity"]]
    if op == "clip":
        x = [[0.75], [0.5], [2.5]]
    with mpmath.workprec(100):
        for create in (False, True):
            for i, g in enumerate(grads(getattr(hl, op), *x, incoming=incoming, create=create)):
                slope = mpmath.mpmathify(FIRST[op][i](*[mpf(v[0]) for v in x]))
                taken = op in ("maximum", "minimum", "clip", "relu") or op in (
                    "sign",
                    "floor",
                    "ceil",
                    "trunc",
                    "round",
                )
                if slope != 0:
                    assert g[0] == incoming * (1 if slope > 0 else -1), (i, g)
                elif taken or op in ("floor_divide", "copysign"):
                    assert g[0] == 0, (i, g)


# ---- what a select hides from the next order ------------------------------------------------------------------------


@pytest.mark.parametrize("x", [0.5, 1.0, 2.0, 7.0])
@pytest.mark.parametrize("first, then", [(0, 1), (1, 0)])
def test_w4_the_mixed_second_derivative_of_a_power_at_exponent_0(x, first, then):
    tensors = [hl.tensor([v], dtype=hl.float64).requires_grad_(True) for v in (x, 0.0)]
    (g,) = _C._grad([tensors[0] ** tensors[1]], [tensors[first]], [None], True, True)
    (h,) = _C._grad([g], [tensors[then]], [None], True, True)
    np.testing.assert_allclose(h.detach().numpy(), [1 / x], rtol=1e-15)
    (t,) = _C._grad([h], [tensors[0]], [None], True, False)
    np.testing.assert_allclose(t.numpy(), [-1 / x**2], rtol=1e-15)


# Op, point, and its derivatives of order 1, 2, 3 there, where formulas have a select, a sign or a limit.
HIGHER = [
    ("tanh", 0.0, [1, 0, -2]),
    ("sigmoid", 0.0, [0.25, 0, -0.125]),
    ("gelu", 0.0, [0.5, math.sqrt(2 / math.pi), 0]),
    ("erf", 0.0, [2 / math.sqrt(math.pi), 0, -4 / math.sqrt(math.pi)]),
    ("erfc", 0.0, [-2 / math.sqrt(math.pi), 0, 4 / math.sqrt(math.pi)]),
    ("gelu", math.inf, [1, 0, 0]),
    ("gelu", -math.inf, [0, 0, 0]),
    ("gelu", 60.0, [1, 0, 0]),
    ("erf", 60.0, [0, 0, 0]),
    ("tanh", -400.0, [0, 0, 0]),
    ("square", 0.0, [0, 2, 0]),
    ("abs", 2.0, [1, 0, 0]),
    ("log1p", 0.0, [1, -1, 2]),
    ("expm1", 0.0, [1, 1, 1]),
    ("relu", 0.0, [0, 0, 0]),
    ("sin", 0.0, [1, 0, -1]),
]


@pytest.mark.parametrize("op, at, want", HIGHER)
def test_w4_no_select_hides_a_slope_of_the_next_order(op, at, want):
    x = hl.tensor([at], dtype=hl.float64).requires_grad_(True)
    value = getattr(hl, op)(x)
    for w in want:
        (g,) = _C._grad([value], [x], [hl.ones_like(value)], True, True)
        got = 0.0 if g is None else g.item()
        assert abs(got - w) <= 1e-15, f"{got}, right {w}"
        if g is None or not g.requires_grad:
            break
        value = g


POWERS = [
    (0.0, 1.0, [1, 0, 0]),
    (0.0, 2.0, [0, 2, 0]),
    (0.0, 3.0, [0, 0, 6]),
    (-2.0, 3.0, [12, -12, 6]),
    (3.0, 0.0, [0] * 3),
]


@pytest.mark.parametrize("x, y, want", POWERS)
def test_w4_powers_by_their_base_to_third_order(x, y, want):
    for exponent in (y, hl.tensor([y], dtype=hl.float64)):
        t = hl.tensor([x], dtype=hl.float64).requires_grad_(True)
        value = t**exponent
        for w in want:
            (g,) = _C._grad([value], [t], [None], True, True)
            got = 0.0 if g is None else g.item()
            np.testing.assert_allclose(got, w, rtol=1e-15)
            if g is None or not g.requires_grad:
                break
            value = g


# ---- prod -----------------------------------------------------------------------------------------------------------


def exact_others(x):
    """The product of all others, in exact arithmetic where all are finite."""
    with mpmath.workprec(400):
        return [mpmath.fprod([mpf(float(v)) for j, v in enumerate(x) if j != i]) for i in range(len(x))]


PRODUCTS = [
    [2, 3, 4],
    [0, 2, 3],
    [0, 0, 3],
    [0, 0, 0],
    [-0.0, 2, 3],
    [1e-30, 1e-30],
    [1e30, 1e30],
    [1e30, 1e30, 1e-30, 1e-30],
    [1e-30, 1e-30, 1e30, 1e30, 1e30],
    [1e-40, 1e-40, 3e38, 3e38],
    [5],
    [],
    [1.5] * 50,
    [-2.0, 0.5] * 40,
]


@pytest.mark.parametrize("x", PRODUCTS)
@pytest.mark.parametrize("name", ["float32", "float64"])
@pytest.mark.parametrize("scale", [1, 3])
def test_w3_gradients_of_products(x, name, scale):
    x = np.array(x, dtype=name)
    if name == "float64":
        with np.errstate(all="ignore"):
            x = np.sign(x) * np.abs(x) ** scale  # to 1e90
    (got,) = grads(hl.prod, x, dtype=name)
    for g, w in zip(got, exact_others(x)):
        w = float(np.array(float(w) if abs(w) < 1e308 else math.inf, dtype=name)) if abs(w) < mpf(10) ** 400 else inf
        np.testing.assert_allclose(float(g), w, rtol=2.0**-22 if name == "float32" else 1e-14)


def test_w3_products_with_infinities():
    for x, want in [
        ([inf, 2, 3], [6, inf, inf]),
        ([inf, 0, 3], [0, inf, nan]),
        ([inf, -inf, 3], [-inf, inf, -inf]),
        ([nan, 2, 3], [6, nan, nan]),
    ]:
        for name in ("float32", "float64", "float16", "bfloat16"):
            np.testing.assert_array_equal(grads(hl.prod, x, dtype=name)[0].astype(np.float64), want)


@pytest.mark.parametrize(
    "x", [[0, 2, 3], [0, 0, 3], [2, 0, 3, 0], [1e-30, 1e-30, 2], [1e30, 1e30, 1e-30], [2, 3, 4, 5], [inf, 2, 3]]
)
@pytest.mark.parametrize("name", ["float32", "float64"])
def test_w3_hessians_of_products(x, name):
    got = hessian(hl.prod, x, name)
    x = np.array(x, dtype=name).astype(np.float64)
    for i in range(len(x)):
        for j in range(len(x)):
            rest = [v for k, v in enumerate(x) if k not in (i, j)]
            want = 0.0 if i == j else float(mpmath.fprod([mpf(v) for v in rest])) if np.isfinite(rest).all() else inf
            with np.errstate(over="ignore"):
                want = float(np.array(want).astype(name))
            np.testing.assert_allclose(got[i, j], want, rtol=2.0**-22, err_msg=f"{i}, {j}")


def test_w3_third_derivatives_of_products():
    x = hl.tensor([0.0, 0.0, 3.0, 5.0], dtype=hl.float64).requires_grad_(True)
    (g,) = _C._grad([hl.prod(x)], [x], [None], True, True)
    (h,) = _C._grad([g[0]], [x], [None], True, True)
    (t,) = _C._grad([h[1]], [x], [None], True, True)
    np.testing.assert_array_equal(t.detach().numpy(), [0, 0, 5, 3])
    (f,) = _C._grad([t[2]], [x], [None], True, False)
    np.testing.assert_array_equal(f.numpy(), [0, 0, 0, 1])


@pytest.mark.parametrize("axis", [None, 0, 1, 2, (0, 2), (1,), ()])
def test_w3_products_over_axes_with_zeros_to_second_order(axis):
    rng = np.random.default_rng(3)
    x = rng.normal(size=(2, 3, 2))
    x[0, 1, 0] = x[1, 2, 1] = x[0, 0, 0] = 0
    w = rng.normal(size=np.prod(x, axis=axis).shape)
    direction = rng.normal(size=x.shape)

    def slope(x):
        t = hl.asarray(x).requires_grad_(True)
        (g,) = _C._grad([hl.prod(t, axis=axis)], [t], [hl.asarray(w)], True, True)
        return t, g

    t, g = slope(x)
    if g.requires_grad:
        (h,) = _C._grad([g], [t], [hl.asarray(direction)], True, False)
        step = 1e-6
        # A product is linear in each element, so differences are exact but for rounding.
        want = [
            (slope(x + step * e)[1].detach().numpy() - slope(x - step * e)[1].detach().numpy()) / (2 * step)
            for e in np.eye(12).reshape(12, 2, 3, 2)
        ]
        np.testing.assert_allclose(h.numpy().ravel(), [np.sum(direction * d) for d in want], atol=1e-8)


def test_w3_complex_products():
    z = np.array([0, 2 + 1j, 3 - 1j])
    (g,) = grads(hl.prod, z, dtype=np.complex128)
    np.testing.assert_allclose(g, np.conj([(2 + 1j) * (3 - 1j), 0, 0]))


# ---- softmax and log_softmax ----------------------------------------------------------------------------------------


def exact_softmax(x):
    e = [mpmath.exp(mpf(float(v))) for v in x]
    total = sum(e)
    return [v / total for v in e]


def exact_slope(op, x, g):
    """The gradient as sums without cancelling, in 200 bits, and the size of its terms."""
    p, g = exact_softmax(x), [mpf(float(v)) for v in g]
    n = range(len(p))
    if op == "softmax":
        return [
            (p[i] * sum(p[j] * (g[i] - g[j]) for j in n), p[i] * sum(p[j] * abs(g[i] - g[j]) for j in n)) for i in n
        ]
    return [
        (sum(p[j] * g[i] for j in n if j != i) - p[i] * sum(g[j] for j in n if j != i),
         sum(p[j] * abs(g[i]) for j in n if j != i) + p[i] * sum(abs(g[j]) for j in n if j != i))
        for i in n
    ]  # fmt: skip


SOFT = [[20, 0], [0, 20], [0, 0], [50, 49, 0, -30], [3, 2.5, -1, 0.25, 1], [-80, 0], [88, 0, -88], [1e4, 0, 5]]


@pytest.mark.parametrize("op", ["softmax", "log_softmax"])
@pytest.mark.parametrize("x", SOFT)
@pytest.mark.parametrize("name", FLOATS)
def test_w11_softmax_gradients_do_not_cancel(op, x, name):
    x = np.array(x, dtype=np.float64).astype(numpy_dtype(name))
    for k in range(len(x)):
        for base in (0.0, 1.0):
            g = np.full(len(x), base)
            g[k] += 1
            t = hl.asarray(x).requires_grad_(True)
            (got,) = _C._grad([getattr(hl, op)(t, axis=0)], [t], [hl.asarray(g.astype(x.dtype))], False, False)
            with mpmath.workprec(200):
                for i, (value, size) in enumerate(exact_slope(op, x.astype(np.float64), g)):
                    bound = (0.6 if name in ("float16", "bfloat16") else 12) * unit(size, name)
                    assert abs(mpf(float(got.numpy()[i])) - value) <= bound, (i, got, value)


@pytest.mark.parametrize("op", ["softmax", "log_softmax"])
def test_w11_softmax_second_derivatives(op):
    x = np.array([1.5, -0.25, 0.75, 1.5])
    w, direction = np.array([0.3, -1, 2, 0.5]), np.array([1.0, 2, -1, 0.5])
    t = hl.asarray(x).requires_grad_(True)
    (g,) = _C._grad([getattr(hl, op)(t, axis=0)], [t], [hl.asarray(w)], True, True)
    (h,) = _C._grad([g], [t], [hl.asarray(direction)], True, False)

    def along(x):
        return sum(d * s for d, (s, _) in zip(direction, exact_slope(op, x, w)))

    with mpmath.workprec(200):
        step = mpf(2) ** -40
        for i in range(4):
            ends = [list(map(mpf, x)) for _ in range(2)]
            ends[0][i] += step
            ends[1][i] -= step
            p = [exact_along(op, e, w, direction) for e in ends]
            assert abs(float((p[0] - p[1]) / (2 * step)) - h.numpy()[i]) < 1e-12


def exact_along(op, x, w, direction):
    e = [mpmath.exp(v) for v in x]
    p = [v / sum(e) for v in e]
    n = range(len(p))
    if op == "softmax":
        slope = [p[i] * sum(p[j] * (w[i] - w[j]) for j in n) for i in n]
    else:
        slope = [w[i] - p[i] * sum(w) for i in n]
    return sum(d * s for d, s in zip(direction, slope))


# ---- counts and sums in 16 bits -------------------------------------------------------------------------------------

COUNT = 70_000


@pytest.mark.parametrize("name", ["float16", "bfloat16"])
def test_w9_gradients_over_more_elements_than_16_bits_count(name):
    x = np.ones(COUNT).astype(numpy_dtype(name))
    share = float(np.array(1 / COUNT).astype(numpy_dtype(name)))
    for op in ("mean", "max", "min"):
        for create in (False, True):
            (g,) = grads(getattr(hl, op), x, dtype=name, create=create)
            assert (g.astype(np.float64) == share).all(), (op, g[:3])
    p = hl.softmax(hl.asarray(x), axis=0).numpy().astype(np.float64)
    assert (p == share).all()
    logarithm = hl.log_softmax(hl.asarray(x), axis=0).numpy().astype(np.float64)
    assert (logarithm == float(np.array(-math.log(COUNT)).astype(numpy_dtype(name)))).all()


@pytest.mark.parametrize("name", ["float16", "bfloat16"])
@pytest.mark.parametrize("op", ["softmax", "log_softmax"])
def test_w9_narrow_softmax_is_float32_s_rounded_once(name, op):
    rng = np.random.default_rng(5)
    x = (rng.normal(size=(20, 33)) * 4).astype(numpy_dtype(name))
    function = getattr(hl, op)
    want = function(hl.asarray(x.astype(np.float32)), axis=1).numpy().astype(numpy_dtype(name))
    got = function(hl.asarray(x), axis=1).numpy()
    np.testing.assert_array_equal(got.astype(np.float64), want.astype(np.float64))


@pytest.mark.parametrize("op", [op for op in AUDITED if "float16" in declared(op)])
@pytest.mark.parametrize("name", ["float16", "bfloat16"])
def test_narrow_gradients_are_float32_s_rounded_once(op, name):
    """Fused and recorded."""
    rng = np.random.default_rng(7)
    arrays = [np.abs(rng.normal(size=200) * 2).astype(numpy_dtype(name)) for _ in range(OPS[op]["arity"])]
    if op == "clip":
        arrays.sort(key=lambda a: -float(a.sum()))
    want = grads(getattr(hl, op), *[a.astype(np.float32) for a in arrays], dtype=np.float32)
    for create in (False, True):
        for g, w in zip(grads(getattr(hl, op), *arrays, dtype=name, create=create), want):
            rounded = w.astype(numpy_dtype(name)).astype(np.float64)
            # The recorded gradient may round float32 elsewhere, and so fall beside a tie.
            off = np.abs(g.astype(np.float64) - rounded) > np.abs(rounded) * 2.0 ** (-7 if name == "bfloat16" else -10)
            assert not off.any()
            assert (g.astype(np.float64) == rounded).mean() > 0.98


# ---- memory ---------------------------------------------------------------------------------------------------------


def peak_of(function):
    """Bytes in use at most while it runs, above those before."""
    hl.reset_peak_memory()
    before = hl.memory_stats()["allocated_bytes"]
    function()
    return hl.memory_stats()["peak_bytes"] - before


def broadcast_products():
    """Shapes of operands, the operand that is broadcast, and whether its gradient needs no copy of the other."""
    yield (256, 4, 64), (64, 64), 1
    yield (64, 4, 8, 32), (32, 32), 1
    yield (64, 3, 4, 32), (3, 32, 32), 1
    yield (128, 5, 32), (32,), 1
    yield (128, 32), (32, 16), 1
    yield (4, 64), (256, 64, 16), 0
    yield (64,), (256, 64, 16), 0
    yield (1, 32, 16), (64, 16, 48), 0
    yield (32, 16), (8, 8, 16, 24), 0


@pytest.mark.parametrize("left, right, operand", broadcast_products())
def test_l3_the_gradient_of_a_broadcast_factor_is_no_larger_than_what_it_is_made_of(left, right, operand):
    rng = np.random.default_rng(2)
    arrays = [rng.normal(size=s) for s in (left, right)]
    a, b = (hl.asarray(x).requires_grad_(i == operand) for i, x in enumerate(arrays))
    value = a @ b
    g = hl.asarray(rng.normal(size=value.shape))
    x = (a, b)[operand]
    results = []
    used = peak_of(lambda: results.append(_C._grad([value], [x], [g], False, False)[0]))
    # What cannot be folded where it lies is copied in pieces of 32768 elements.
    pieces = 0 if operand == 1 and len(right) < 3 else 2 * 8 * 32768
    assert used <= 3 * results[0].nbytes + pieces + 65536, (used, results[0].nbytes)
    # Against NumPy, by the derivative along a direction.
    d = rng.normal(size=x.shape)
    moved = arrays[0] @ d if operand == 1 else d @ arrays[1]
    np.testing.assert_allclose(np.sum(results[0].numpy() * d), np.sum(g.numpy() * moved), rtol=1e-9)


def test_l3_the_line_itself():
    a = hl.ones((256, 4, 256))
    w = hl.ones((256, 256)).requires_grad_(True)
    loss = hl.sum(a @ w)
    used = peak_of(loss.backward)
    assert used < 2 * 2**20, used  # 0.25 MiB for the result, 1 MiB for the incoming gradient
    assert (w.grad.numpy() == 1024).all()


@pytest.mark.parametrize("op", ["sum", "mean"])
def test_l4_the_gradient_of_a_sum_takes_no_memory_of_its_own(op):
    x = hl.ones((1 << 20,)).requires_grad_(True)
    y = hl.exp(x)
    value = getattr(hl, op)(y)
    used = peak_of(lambda: _C._grad([value], [x], [None], False, False))
    assert used <= x.nbytes + 65536, used


# Their result is their gradient, or decides it.
READ_THEIR_RESULT = ("relu", "copysign", "conj", "exp", "sqrt")


@pytest.mark.parametrize("op", [op for op in AUDITED if op not in READ_THEIR_RESULT])
def test_l4_gradients_read_operands_and_no_result(op):
    """A result that goes on is not kept for its gradient: a write to it harms nothing."""
    n = OPS[op]["arity"]
    x = [hl.full((3,), 0.5 + i, dtype=hl.float64).requires_grad_(True) for i in range(n)]
    want = [
        None if g is None else g.numpy()
        for g in _C._grad([getattr(hl, op)(*x)], x, [hl.ones((3,), dtype=hl.float64)], False, False)
    ]
    y = getattr(hl, op)(*x)
    z = y + 1
    y += 1  # would change what was saved
    got = _C._grad([z], x, [hl.ones((3,), dtype=hl.float64)], False, False)
    for g, w in zip(got, want):
        np.testing.assert_array_equal(g.numpy(), w)


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex128"])
@pytest.mark.parametrize("op", ["exp", "sqrt"])
def test_l4_what_reads_its_result_lets_its_operand_be_written(op, dtype):
    x = hl.asarray([0.5, 1.5]).astype(getattr(hl, dtype)).requires_grad_()
    want = _C._grad([getattr(hl, op)(x * 1)], [x], [hl.ones((2,), dtype=x.dtype)], False, False)[0]
    y = x * 1
    z = getattr(hl, op)(y)
    y += 1
    assert _C._grad([z], [x], [hl.ones((2,), dtype=x.dtype)], False, False)[0].tolist() == want.tolist()


# ---- whole numbers out of floats ------------------------------------------------------------------------------------

ROUNDING = {
    "floor": hl.floor,
    "ceil": hl.ceil,
    "trunc": hl.trunc,
    "round": hl.round,
    "sign": hl.sign,
    "x // 2": lambda x: x // 2,
    "2 // x": lambda x: 2 // x,
    "floor_divide": lambda x: hl.floor_divide(x, x),
    "divmod[0]": lambda x: divmod(x, 2)[0],
    "copysign's sign": lambda x: hl.copysign(1.0, x),
}


@pytest.mark.parametrize("name", ROUNDING)
def test_w14_steps_require_grad_alike_and_give_zero(name):
    x = hl.tensor([1.5, -2.5]).requires_grad_(True)
    y = ROUNDING[name](x)
    assert y.requires_grad
    hl.sum(y).backward()
    np.testing.assert_array_equal(x.grad.numpy(), [0, 0])


@pytest.mark.parametrize("op", ELEMENTWISE)
def test_w14_every_float_of_floats_requires_grad(op):
    if "float64" not in declared(op) or OPS[op]["condition"]:
        return
    x = [hl.full((2,), 1.5 + i, dtype=hl.float64).requires_grad_(True) for i in range(OPS[op]["arity"])]
    y = getattr(hl, op)(*x)
    for out in y if isinstance(y, tuple) else (y,):
        assert out.requires_grad == (out.dtype == hl.float64), op


# ---- what is declared ------------------------------------------------------------------------------------------------


def test_docstrings_tell_the_error_of_gradients():
    first, second = OPS["tanh"]["gradient_ulp"]
    assert f"within {first} ULP, the second within {second}" in hl.tanh.__doc__
    assert "Gradient: yes, of any order.\n" in hl.maximum.__doc__
    assert "Gradient: none." in hl.less.__doc__


def test_the_page_of_accuracy_says_what_the_schema_does():
    page = (pathlib.Path(__file__).resolve().parents[2] / "docs" / "accuracy.md").read_text()
    seen = set()
    for line in page.splitlines():
        cells = [c.strip() for c in line.strip("|").split("|")]
        if not line.startswith("|") or cells[0] not in OPS:
            continue
        order = cells[1].count(",") + 1
        declared_ulp = OPS[cells[0]]["gradient_ulp"][order - 1]
        assert float(cells[2]) == declared_ulp, line
        for cell in cells[3:5]:
            assert cell == "" or float(cell) <= max(declared_ulp, 0.5), line
        seen.add(cells[0])
    assert seen >= {op for op in AUDITED}, set(AUDITED) - seen


# ---- complex --------------------------------------------------------------------------------------------------------

ANALYTIC = [op for op in AUDITED if "complex128" in declared(op) and op not in ("abs", "sign", "conj", "round")]


@pytest.mark.parametrize("op", ANALYTIC)
@pytest.mark.parametrize("name", ["complex64", "complex128"])
@pytest.mark.parametrize("create", [False, True])
def test_w11_complex_gradients_are_the_conjugate_derivatives(op, name, create):
    """In units of epsilon times the size: of functions with poles near them too."""
    rng = np.random.default_rng(11)
    n = OPS[op]["arity"]
    arrays = [rng.normal(size=60) * 3 + 1j * rng.normal(size=60) * 3 for _ in range(n)]
    arrays[0][:3] = [1j * (math.pi / 2 + 1e-3), 12 + 1j, -12 + 2j]
    arrays = [a.astype(name) for a in arrays]
    epsilon = np.finfo(name).eps
    with mpmath.workprec(120):
        for i, g in enumerate(grads(getattr(hl, op), *arrays, dtype=name, create=create)):
            for k, found in enumerate(g):
                point = [mpmath.mpc(complex(a[k])) for a in arrays]
                want = mpmath.conj(mpmath.mpmathify(FIRST[op][i](*point)))
                unit = epsilon * max(abs(want), mpf(10) ** -30)
                if op == "pow":
                    unit *= 1 + abs(point[1] * mpmath.log(point[0]))
                assert abs(mpmath.mpc(complex(found)) - want) <= 16 * unit, (i, point, found)
