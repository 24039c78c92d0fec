"""Derivatives of every differentiable elementwise op in closed form, and how far Hyalite's are from them."""

import math

import ml_dtypes
import mpmath
import numpy as np
from mpmath import mpf
from op_oracle import COMPLEX, FLOATS, OPS, REAL_PART, declared, limits
from test_casts import numpy_dtype

import hyalite as hl
from hyalite import _C

ROOT_PI = mpmath.sqrt(mpmath.pi)


# ---- derivatives --------------------------------------------------------------------------------------------------
# By op: the value's derivatives, first order by operand, second order by pair of operands. A pair that is missing is 0.


def sigmoid(x):
    return 1 / (1 + mpmath.exp(-x))


def density(x):
    return sigmoid(x) * sigmoid(-x)


def normal(x):
    x = max(min(x, mpf(100)), mpf(-100))  # 0 in every dtype
    return mpmath.exp(-x * x / 2) / mpmath.sqrt(2 * mpmath.pi)


def cdf(x):
    x = max(min(x, mpf(100)), mpf(-100))
    return mpmath.erfc(-x / mpmath.sqrt(2)) / 2


def sech2(x):
    return 4 / (mpmath.exp(x) + mpmath.exp(-x)) ** 2


def sign(x):
    return (x > 0) - (x < 0)


def floor_quotient(x, y):
    return mpmath.floor(x / y)


def larger(x, y):
    return mpf(x > y) + mpf(x == y) / 2


FIRST = {
    "add": [lambda x, y: 1, lambda x, y: 1],
    "subtract": [lambda x, y: 1, lambda x, y: -1],
    "multiply": [lambda x, y: y, lambda x, y: x],
    "divide": [lambda x, y: 1 / y, lambda x, y: -x / y / y],
    "floor_divide": [lambda x, y: 0, lambda x, y: 0],
    "remainder": [lambda x, y: 1, lambda x, y: -floor_quotient(x, y)],
    "negative": [lambda x: -1],
    "positive": [lambda x: 1],
    "abs": [sign],
    "sign": [lambda x: 0],
    "square": [lambda x: 2 * x],
    "reciprocal": [lambda x: -1 / (x * x)],
    "floor": [lambda x: 0],
    "ceil": [lambda x: 0],
    "trunc": [lambda x: 0],
    "round": [lambda x: 0],
    "maximum": [larger, lambda x, y: larger(y, x)],
    "minimum": [lambda x, y: larger(y, x), larger],
    "clip": [
        lambda x, low, high: mpf(low <= x <= high),
        lambda x, low, high: mpf(x < low <= high),
        lambda x, low, high: mpf(high < max(x, low)),
    ],
    "copysign": [lambda x, y: sign(x) * (sign(y) or 1), lambda x, y: 0],
    "conj": [lambda x: 1],
    "sqrt": [lambda x: 1 / (2 * mpmath.sqrt(x))],
    "exp": [mpmath.exp],
    "expm1": [mpmath.exp],
    "log": [lambda x: 1 / x],
    "log1p": [lambda x: 1 / (1 + x)],
    "sin": [mpmath.cos],
    "cos": [lambda x: -mpmath.sin(x)],
    "tanh": [sech2],
    "erf": [lambda x: 2 / ROOT_PI * mpmath.exp(-x * x)],
    "erfc": [lambda x: -2 / ROOT_PI * mpmath.exp(-x * x)],
    "pow": [lambda x, y: y * x ** (y - 1), lambda x, y: x**y * mpmath.log(x)],
    "sigmoid": [density],
    "relu": [lambda x: mpf(x > 0)],
    "leaky_relu": [lambda x: 1 if x > 0 else mpf(0.01)],
    "gelu": [lambda x: cdf(x) + x * normal(x)],
}
SECOND = {
    "multiply": {(0, 1): lambda x, y: 1},
    "divide": {(0, 1): lambda x, y: -1 / (y * y), (1, 1): lambda x, y: 2 * x / y**3},
    "square": {(0, 0): lambda x: 2},
    "reciprocal": {(0, 0): lambda x: 2 / x**3},
    "sqrt": {(0, 0): lambda x: -1 / (4 * x * mpmath.sqrt(x))},
    "exp": {(0, 0): mpmath.exp},
    "expm1": {(0, 0): mpmath.exp},
    "log": {(0, 0): lambda x: -1 / (x * x)},
    "log1p": {(0, 0): lambda x: -1 / (1 + x) ** 2},
    "sin": {(0, 0): lambda x: -mpmath.sin(x)},
    "cos": {(0, 0): lambda x: -mpmath.cos(x)},
    "tanh": {(0, 0): lambda x: -2 * mpmath.tanh(x) * sech2(x)},
    "erf": {(0, 0): lambda x: -4 * x / ROOT_PI * mpmath.exp(-x * x)},
    "erfc": {(0, 0): lambda x: 4 * x / ROOT_PI * mpmath.exp(-x * x)},
    "pow": {
        (0, 0): lambda x, y: y * (y - 1) * x ** (y - 2),
        (0, 1): lambda x, y: x ** (y - 1) * (1 + y * mpmath.log(x)),
        (1, 1): lambda x, y: x**y * mpmath.log(x) ** 2,
    },
    "sigmoid": {(0, 0): lambda x: -density(x) * mpmath.tanh(x / 2)},
    "gelu": {(0, 0): lambda x: normal(x) * (2 - x * x)},
}
# Where a derivative passes through 0 as a sum, its error is one of its terms': their size is the unit there.
SIZE = {
    ("gelu", (0,)): lambda x: cdf(x) + abs(x) * normal(x),
    ("gelu", (0, 0)): lambda x: normal(x) * (2 + x * x),
    ("pow", (0, 1)): lambda x, y: x ** (y - 1) * (1 + abs(y * mpmath.log(x))),
}


def orders(op):
    """The derivatives that are checked: each operand, and each pair of operands, the later one last."""
    n = len(FIRST[op])
    return [(i,) for i in range(n)], [(i, j) for i in range(n) for j in range(i, n)]


def reference(op, which, point):
    """The derivative at a point of mpmath numbers, and the size of its terms."""
    function = FIRST[op][which[0]] if len(which) == 1 else SECOND.get(op, {}).get(which, lambda *_: 0)
    value = mpmath.mpmathify(function(*point))
    size = SIZE.get((op, which))
    return value, abs(value) if size is None else size(*point)


# ---- points -------------------------------------------------------------------------------------------------------

CENTRES = [0.5, 0.75179, 1, 1.4142, 2, 3, 4, 5.5, 8, 9.2, 12, 13.1, 17, 20, 25, 26.5, 37.4, 44, 88, 100, 103, 700, 745]


def rounded(values, name):
    with np.errstate(all="ignore"):
        return np.asarray(values, dtype=np.float64).astype(numpy_dtype(name))


def numbers(name, count, seed):
    """Finite numbers of both signs: the ends of the range, places where functions change, and every size between."""
    least, normal_, most, _ = limits(name)
    rng = np.random.default_rng([seed, count])
    ends = [least, 3 * least, normal_ - least, normal_, 1.5 * normal_, most, most * 0.6, math.sqrt(normal_)]
    usual = rng.normal(size=count) * rng.choice([0.01, 0.3, 1, 4, 15], size=count)
    sizes = np.exp2(rng.uniform(np.log2(normal_), np.log2(most) - 1, count // 2)) * rng.choice([-1, 1], count // 2)
    near = np.array(CENTRES) * (1 + rng.normal(size=len(CENTRES)) * 0.01)
    x = np.concatenate([usual, sizes, near, -near, np.array(ends), -np.array(ends), CENTRES, -np.array(CENTRES)])
    x = rounded(x, name)
    return x[np.isfinite(x.astype(np.float64)) & (x.astype(np.float64) != 0)]


def points(op, name, count, seed=0):
    """Operands at which the op has a finite value and a derivative: one array each."""
    arrays = [numbers(name, count, seed + 31 * i) for i in range(len(FIRST[op]))]
    rng = np.random.default_rng([seed, len(op)])
    arrays = [rng.permutation(a) for a in arrays]
    if op == "pow":
        near_one = rounded(np.exp(rng.normal(size=len(arrays[0])) * 0.3), name)
        arrays[0] = np.where(rng.integers(0, 2, len(arrays[0])) == 0, np.abs(arrays[0]), near_one)
        small = rounded(rng.normal(size=len(arrays[1])) * 3, name)
        arrays[1] = np.where(rng.integers(0, 3, len(arrays[1])) == 0, arrays[1], small)
    wide = [a.astype(np.float64) for a in arrays]
    keep = np.ones(len(wide[0]), dtype=bool)
    if op in ("sqrt", "log"):
        keep &= wide[0] > 0
    if op == "log1p":
        keep &= wide[0] > -1
    if op in ("remainder", "divmod", "floor_divide"):
        with np.errstate(all="ignore"):
            keep &= np.abs(wide[0] / wide[1]) < 2.0**20
    values = getattr(hl, op)(*[hl.asarray(a) for a in arrays]).numpy().astype(np.float64)
    keep &= np.isfinite(values)
    if op == "gelu":
        keep &= np.abs(wide[0]) < (37 if name == "float64" else 13)  # the density is no normal number further out
    if op == "pow":
        # The derivatives are multiples of x ** y to x ** (y - 2): what is no normal number of these has its error.
        for less in (0, 1, 2):
            with np.errstate(all="ignore"):
                keep &= np.abs((wide[1] - less) * np.log2(wide[0])) < np.log2(limits(name)[2]) - 14
    if op == "divide":
        with np.errstate(all="ignore"):
            keep &= np.abs(wide[0] / wide[1]) >= limits(name)[1]
    return [a[keep] for a in arrays]


# ---- Hyalite's derivatives, and their errors ------------------------------------------------------------------------


def derivative(op, which, arrays):
    """The derivative by the operands `which`, one after the other, at each point."""
    tensors = [hl.asarray(a).requires_grad_(True) for a in arrays]
    result = getattr(hl, op)(*tensors)
    for depth, operand in enumerate(which):
        if not result.requires_grad:
            return np.zeros(result.shape, dtype=np.float64)
        more = depth + 1 < len(which)
        (result,) = _C._grad([result], [tensors[operand]], [hl.ones_like(result)], more, more)
        if result is None:
            return np.zeros(arrays[0].shape, dtype=np.float64)
    return result.detach().numpy()


def unit(size, name):
    """The place of the last bit of a number of that size."""
    least, normal_, _, mantissa = limits(name)
    if size < normal_:
        return mpf(least)
    return mpf(2) ** (mpmath.frexp(size)[1] - 1 - mantissa)


def error(got, value, size, name):
    """In units in the last place of the right derivative, or of its terms where they cancel."""
    _, _, most, mantissa = limits(name)
    got = float(got)
    edge = mpf(most) * (1 + mpf(2) ** (-mantissa - 2))
    if abs(value) > edge:  # infinity, or within an error of it
        return 0 if math.isinf(got) and sign(got) == sign(value) else abs(value - got) / unit(mpf(most), name)
    if math.isnan(got) or (math.isinf(got) and size < mpf(most) * (1 - mpf(2) ** (3 - mantissa))):
        return mpmath.inf
    if math.isinf(got):
        return abs(abs(value) - mpf(most)) / unit(mpf(most), name)
    return abs(mpf(got) - value) / unit(max(size, abs(value)), name)


def worst(op, which, name, count, seed=0):
    """The largest error over the points, and where it is."""
    arrays = points(op, name, count, seed)
    got = derivative(op, which, arrays)
    most = (mpf(0), -1)
    with mpmath.workprec(200):
        for i, found in enumerate(np.asarray(got).astype(np.float64)):
            point = [mpf(float(a[i])) for a in arrays]
            value, size = reference(op, which, point)
            if mpmath.im(value) != 0 or mpmath.isnan(value):
                continue
            most = max(most, (error(found, value, size, name), i))
    where = [] if most[1] < 0 else [float(a[most[1]]) for a in arrays]
    return float(most[0]), where


def declared_error(op, which, name):
    """What the schema promises, in units of the dtype: 16-bit types are float32's result, rounded once."""
    ulps = OPS[op]["gradient_ulp"][len(which) - 1]
    if name not in ("float16", "bfloat16"):
        return max(ulps, 0.5)
    _, _, _, mantissa = limits(name)
    return 0.5 + ulps * 2.0 ** (mantissa - 23)


AUDITED = [op for op in FIRST if op in OPS]
REAL = FLOATS
assert ml_dtypes and COMPLEX and REAL_PART and declared
