"""What the tests that loop over the op list share: each op's facts, sample operands, and references beside NumPy's."""

import itertools
import math
from fractions import Fraction

import ml_dtypes
import mpmath
import numpy as np
from test_casts import numpy_dtype

import hyalite as hl
from hyalite import _C

OPS = {name: _C._op_facts(name) for name in _C._op_names()}
ELEMENTWISE = [name for name, op in OPS.items() if op["elementwise"]]
REDUCTIONS = [name for name, op in OPS.items() if not op["elementwise"] and "keepdims" in op["fields"]]
OTHERS = [name for name in OPS if name not in ELEMENTWISE + REDUCTIONS and OPS[name]["arity"] != 0]

INTEGERS = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
FLOATS = ["float16", "bfloat16", "float32", "float64"]
COMPLEX = ["complex64", "complex128"]
REAL_PART = {"complex64": "float32", "complex128": "float64"}
WIDER = {"float32": np.float64, "float64": np.longdouble, "complex64": np.complex128, "complex128": np.clongdouble}


def declared(op):
    """The dtypes an op declares, by name."""
    return [d.name for d in OPS[op]["dtypes"]]


def accepted(op):
    """The dtypes an op declares, and those it turns into the default float."""
    return declared(op) + (["bool", *INTEGERS] if OPS[op]["integers_to_default"] else [])


def result_dtype(op, name):
    if OPS[op]["integers_to_default"] and name in ["bool", *INTEGERS]:
        name = "float32"
    return {0: name, 1: "bool", 2: REAL_PART.get(name, name), 3: "int64"}[OPS[op]["result"]]


def operand_dtypes(op, name):
    """The dtype of each operand: a condition is boolean."""
    return ["bool" if OPS[op]["condition"] and i == 0 else name for i in range(OPS[op]["arity"])]


# ---- samples ----------------------------------------------------------------------------------------------------


def limits(name):
    """Least subnormal, least normal and largest number, and the bits of the significand behind the point."""
    kind = numpy_dtype(name)
    info = ml_dtypes.finfo(kind) if name == "bfloat16" else np.finfo(kind)
    return float(info.smallest_subnormal), float(info.smallest_normal), float(info.max), info.nmant


def specials(name):
    """Zeros, infinities, NaN, the ends of the range, and numbers around which functions change."""
    if name in COMPLEX:
        part = np.array([0.0, -0.0, 1.0, -0.5, math.inf, -math.inf, math.nan], dtype=REAL_PART[name])
        return np.array([complex(a, b) for a in part for b in part], dtype=name)
    if name == "bool":
        return np.array([False, True])
    if name in INTEGERS:
        info = np.iinfo(name)
        return np.array(sorted({info.min, info.max, info.max - 1, 0, 1, max(info.min, -1), 2, 3, 7}), dtype=name)
    least, normal, most, _ = limits(name)
    points = [0.0, least, normal, normal - least, most, math.inf, math.nan, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 10.0, 88.5]
    points += [1 / 3, math.pi / 2, math.pi, math.log(2), 0.7071, 1e-3, 1e-4, 709.5, 103.9, 17.0]
    return np.array([s * p for p in points for s in (1, -1)], dtype=np.float64).astype(numpy_dtype(name))


def random_bits(name, n, rng):
    if name == "bool":
        return rng.integers(0, 2, n).astype(bool)
    kind = numpy_dtype(name)
    return np.frombuffer(rng.bytes(n * kind.itemsize), dtype=kind).copy()


def moderate(name, n, rng):
    """Values of usual size, of both signs where there are any."""
    if name == "bool" or name in INTEGERS:
        return random_bits(name, n, rng) if name == "bool" else rng.integers(0, 12, n).astype(name)
    if name in COMPLEX:
        return (rng.normal(size=n) * 2 + 2j * rng.normal(size=n)).astype(name)
    return (rng.normal(size=n) * rng.choice([0.1, 1, 10], size=n)).astype(numpy_dtype(name))


def samples(name, n, rng):
    """A third special values, a third random bit patterns, a third usual values, shuffled."""
    kinds = [rng.choice(specials(name), n), random_bits(name, n, rng), moderate(name, n, rng)]
    with np.errstate(invalid="ignore"):
        return np.choose(rng.integers(0, 3, n), kinds) if name != "bfloat16" else pick(kinds, rng.integers(0, 3, n))


def pick(kinds, which):
    return np.array([kinds[k][i] for i, k in enumerate(which)], dtype=kinds[0].dtype)


def operands(op, name, n, seed=0):
    """Sample operands as NumPy arrays; integers are raised to powers that are not negative."""
    rng = np.random.default_rng([seed, n, len(op), len(name)])
    arrays = [samples(d, n, rng) for d in operand_dtypes(op, name)]
    if op == "pow" and name in INTEGERS:
        arrays[1] = rng.integers(0, 20, n).astype(name)
    return arrays


# ---- references -------------------------------------------------------------------------------------------------


def to_wide(value):
    """An mpmath number as longdouble, whatever its exponent."""
    fraction, exponent = mpmath.frexp(value)
    high = float(fraction)
    return np.ldexp(np.longdouble(high) + np.longdouble(float(fraction - high)), int(exponent))


def scalar_function(in_double, in_mpmath):
    """A function NumPy lacks: by Python's math for float32 operands, by mpmath where the wider type is longdouble."""

    def exact(v):
        # Far out the value is a limit, which mpmath would compute with thousands of digits.
        usual = v != 0 and abs(v) < 300
        return to_wide(in_mpmath(mpmath.mpf(float(v)))) if usual else np.longdouble(in_double(float(v)))

    def function(x):
        if x.dtype != np.longdouble:
            return np.fromiter(map(in_double, x.ravel().tolist()), np.float64, x.size).reshape(x.shape).astype(x.dtype)
        with mpmath.workprec(120):
            return np.array([exact(v) for v in x.ravel()], dtype=np.longdouble).reshape(x.shape)

    return function


def maximum(x, y):
    larger = np.maximum(x, y)
    if x.dtype.kind in "iub":
        return larger
    return np.where((x == 0) & (y == 0), np.where(np.signbit(x), y, x), larger)


def minimum(x, y):
    smaller = np.minimum(x, y)
    if x.dtype.kind in "iub":
        return smaller
    return np.where((x == 0) & (y == 0), np.where(np.signbit(x), x, y), smaller)


def remainder(x, y):
    """Exact; the divisor's sign, also for zero; modulo zero 0 for integers."""
    if x.dtype.kind in "iu":
        safe = np.where(y == 0, np.ones_like(y), y)
        return np.where(
            (y == 0) | (safe == np.array(-1).astype(y.dtype)) & (x.dtype.kind == "i"),
            x.dtype.type(0),
            np.remainder(x, safe),
        )
    rest = np.fmod(x, y)  # exact
    rest = np.where((rest != 0) & (np.signbit(rest) != np.signbit(y)), rest + y, rest)
    return np.where(rest == 0, np.copysign(rest, y), rest)


def floor_divide(x, y):
    """The floor of the exact quotient, 0 for integers divided by zero; floor(x / y) at zeros and infinities."""
    if x.dtype.kind in "iu":
        safe = np.where(y == 0, np.ones_like(y), y)
        quotient = np.where(
            (safe == np.array(-1).astype(y.dtype)) & (x.dtype.kind == "i"), -x, np.floor_divide(x, safe)
        )
        return np.where(y == 0, x.dtype.type(0), quotient)
    ratio = x / y
    quotient = np.floor(ratio)
    exact = np.isfinite(x) & np.isfinite(y) & (x != 0) & (y != 0)
    exact &= (quotient == ratio) & np.isfinite(ratio)
    flat, places = quotient.ravel(), np.flatnonzero(exact)
    pairs = zip(x.ravel()[places].tolist(), y.ravel()[places].tolist())
    flat[places] = [shortened(whole_quotient(a, b), np.finfo(x.dtype).nmant + 1) for a, b in pairs]
    return flat.reshape(quotient.shape)


def whole_quotient(a, b):
    (p, q), (r, s) = a.as_integer_ratio(), b.as_integer_ratio()
    return (p * s) // (q * r)


def shortened(whole, digits):
    """An integer rounded to so many binary digits, ties to even."""
    unit = 1 << max(abs(whole).bit_length() - digits, 0)
    return round(Fraction(whole, unit)) * unit


def shift(left):
    def function(x, y):
        width = 8 * x.dtype.itemsize
        inside = (y >= 0) & (y < width)
        amount = np.where(inside, y, np.zeros_like(y))
        gone = (
            np.zeros_like(x)
            if left
            else np.where(x < 0, x.dtype.type(-1 if x.dtype.kind == "i" else 0), x.dtype.type(0))
        )
        return np.where(inside, np.left_shift(x, amount) if left else np.right_shift(x, amount), gone)

    return function


def complex_log1p(z):
    """NumPy's is the logarithm of a rounded 1 + z, so mpmath's for complex operands."""
    if z.dtype.kind != "c":
        return np.log1p(z)
    with mpmath.workprec(250):
        values = [mpmath.log(1 + mpmath.mpc(float(v.real), float(v.imag))) for v in z.ravel()]
        flat = np.array([to_wide(v.real) + 1j * to_wide(v.imag) for v in values], dtype=np.clongdouble)
    return flat.reshape(z.shape).astype(z.dtype)


def sigmoid(x):
    e = np.exp(-np.abs(x))
    return np.where(x < 0, e, np.ones_like(x)) / (1 + e)


def gelu_double(x):
    return 0.5 * x * math.erfc(-x / math.sqrt(2)) if x != -math.inf else -0.0  # the limit


# What NumPy lacks, or answers otherwise than Hyalite promises. Arguments and results have one dtype.
FORMULAS = {
    "maximum": maximum,
    "minimum": minimum,
    "clip": lambda x, low, high: minimum(maximum(x, low), high),
    "remainder": remainder,
    "floor_divide": floor_divide,
    "divmod": lambda x, y: (floor_divide(x, y), remainder(x, y)),
    "bitwise_left_shift": shift(True),
    "bitwise_right_shift": shift(False),
    "sigmoid": sigmoid,
    "relu": lambda x: maximum(x, np.zeros_like(x)),
    "leaky_relu": lambda x: np.where(x > 0, x, x.dtype.type(0.01) * x),
    "log1p": complex_log1p,
    "erf": scalar_function(math.erf, mpmath.erf),
    "erfc": scalar_function(math.erfc, mpmath.erfc),
    "gelu": scalar_function(gelu_double, lambda x: x * mpmath.erfc(-x / mpmath.sqrt(2)) / 2),
    "sign": lambda x: np.where(x == 0, x, np.sign(x)),
}


def value(op, *arrays):
    """The op by NumPy, under its own name, the name the op declares, or a formula of this file."""
    function = FORMULAS.get(op)
    if function is None:
        name = OPS[op]["numpy"] or op
        assert name != "-", f"{op}: NumPy has no such function; write it into FORMULAS of {__file__}"
        function = getattr(np, name)
    with np.errstate(all="ignore"):
        return function(*arrays)


def computed_in(name):
    """The dtype in which results of a dtype are computed before they are rounded once."""
    return np.dtype("float32") if name in ("float16", "bfloat16") else numpy_dtype(name)


def rounded(x, name):
    """A wider result rounded to a dtype, out of range to infinity."""
    with np.errstate(all="ignore"):
        return np.asarray(x).astype(numpy_dtype(name))


def ulp_error(got, reference, name):
    """Distance in units in the last place of the correctly rounded result, subnormals included. Infinity counts as the
    next number after the largest; where NaN or a true infinity is missed the distance is infinite."""
    kind = np.longdouble if reference.dtype == np.longdouble else np.float64
    least, _, most, mantissa = limits(name)
    top = kind(2) ** (math.frexp(most)[1])
    with np.errstate(all="ignore"):
        nearest = np.abs(rounded(np.clip(reference, -most, most), name).astype(kind))
        ulp = np.maximum(np.ldexp(kind(1), np.frexp(nearest)[1] - 1 - mantissa), kind(least))
        distance = np.abs(np.clip(got.astype(kind), -top, top) - np.clip(reference, -top, top)) / ulp
    missed = np.isnan(got) != np.isnan(reference)
    missed |= np.isinf(reference) & (got.astype(kind) != reference)
    missed |= ~np.isnan(reference) & (np.signbit(got) != np.signbit(reference))
    distance = np.where(missed, math.inf, distance)
    return np.where(np.isnan(got) & np.isnan(reference), 0, distance).astype(np.float64)


# ---- comparing --------------------------------------------------------------------------------------------------


def numpy_of(t):
    return t.numpy() if isinstance(t, hl.Tensor) else np.asarray(t)


def bits(x):
    """The bit patterns of an array, complex numbers as pairs."""
    x = np.ascontiguousarray(x)
    if x.dtype.kind == "c":
        x = x.view(x.real.dtype)
    return x.view(f"u{x.dtype.itemsize}") if x.dtype != bool else x


def same_bits(got, want):
    got, want = numpy_of(got), numpy_of(want)
    return got.dtype == want.dtype and got.shape == want.shape and np.array_equal(bits(got), bits(want))


def equal_values(got, want):
    """By element: the same bits, or both NaN (by component)."""
    got, want = np.ascontiguousarray(got), np.ascontiguousarray(want)
    if got.dtype.kind == "c":
        got, want = got.view(got.real.dtype), want.view(want.real.dtype)
        return (equal_values(got, want)).reshape(*got.shape[:-1], -1, 2).all(-1) if got.ndim else got
    same = bits(got) == bits(want)
    return same if got.dtype.kind in "biu" else same | (np.isnan(got) & np.isnan(want))


def norm_error(op, arrays, got, reference, name):
    """Of complex results: |error| in units of epsilon * |result|, tiny results in units of the least normal.

    A power is exp(y * log x), whose relative error is that of its exponent: there the unit grows by 1 + |y * log x|.
    """
    wide = WIDER[name]
    _, normal, _, mantissa = limits(REAL_PART[name])
    with np.errstate(all="ignore"):
        unit = np.maximum(np.abs(reference), wide(normal).real) * 2.0**-mantissa
        if op == "pow":
            unit = unit * (1 + np.abs(arrays[1] * np.log(arrays[0])))
        return (np.abs(got.astype(wide) - reference) / unit).astype(np.float64)


# ---- calls of ops that are not elementwise -----------------------------------------------------------------------


def softmax(x, axis):
    x = x.astype(np.float64)
    e = np.exp(x - x.max(axis=axis, keepdims=True))
    return e / e.sum(axis=axis, keepdims=True)


def log_softmax(x, axis):
    x = x.astype(np.float64)
    shifted = x - x.max(axis=axis, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=axis, keepdims=True))


def both(function, *shapes):
    return [(list(shapes), lambda *x: function(hl, *x), lambda *x: function(np, *x))]


def take_call(indices, axis):
    return both(lambda m, x: m.take(x, m.asarray(indices), axis=axis), (3, 4))


def along(function, reference):
    return [([(3, 4)], lambda x, a=a: function(x, axis=a), lambda x, a=a: reference(x, a)) for a in (-1, 0)]


PRODUCTS = [((3, 4), (4, 2)), ((4,), (4, 3)), ((2, 3, 4), (4,)), ((5, 1, 3, 4), (2, 4, 3)), ((4,), (4,))]
# By op: shapes of the operands, the call, and the same by NumPy.
CALLS = {
    "reshape": both(lambda m, x: m.reshape(x, (2, 6)), (3, 4)) + both(lambda m, x: m.reshape(x.T, (-1,)), (3, 4)),
    "permute_dims": both(lambda m, x: m.permute_dims(x, (2, 0, 1)), (2, 3, 4)),
    "broadcast_to": both(lambda m, x: m.broadcast_to(x, (5, 3, 4)), (3, 1)),
    "squeeze": both(lambda m, x: m.squeeze(x, axis=1), (3, 1, 4)),
    "expand_dims": both(lambda m, x: m.expand_dims(x, axis=1), (3, 4)),
    "real": both(lambda m, x: m.real(x), (3, 4)),
    "imag": both(lambda m, x: m.imag(x), (3, 4)),
    "astype": [([(3, 4)], lambda x: hl.astype(x, x.dtype), np.copy)],
    "contiguous": [([(3, 4)], lambda x: hl.contiguous(x.T), lambda x: x.T.copy())],
    "concat": both(lambda m, x, y: m.concat([x, y, x], axis=1), (3, 4), (3, 2))
    + both(lambda m, x, y: m.concat([x, y.T], axis=None), (3, 4), (2, 3)),
    "flip": both(lambda m, x: m.flip(x), (3, 4)) + both(lambda m, x: m.flip(x, axis=-1), (3, 4)),
    "moveaxis": both(lambda m, x: m.moveaxis(x, (0, -1), (1, 0)), (2, 3, 4)),
    "matrix_transpose": both(lambda m, x: m.matrix_transpose(x), (2, 3, 4)),
    "stack": both(lambda m, x, y: m.stack([x, y, x], axis=-1), (3, 4), (3, 4)),
    "matmul": [call for shapes in PRODUCTS for call in both(lambda m, x, y: m.matmul(x, y), *shapes)],
    "take": take_call([2, 0, -1, 2], 1) + take_call([[1, 0], [2, 2]], 0),
    "softmax": along(hl.softmax, softmax),
    "log_softmax": along(hl.log_softmax, log_softmax),
}  # fmt: skip


def calls(op):
    """The calls of an op that is not elementwise: reductions over every kind of axis, others from CALLS."""
    if op not in REDUCTIONS:
        assert op in CALLS, f"{op}: add a call of it to CALLS of {__file__}"
        return CALLS[op]
    axes = [None, 0, -1] if op.startswith("arg") else [None, 0, -1, (0, 2)]
    return [
        (
            [(3, 4, 2)],
            lambda x, a=a, k=k: getattr(hl, op)(x, axis=a, keepdims=k),
            lambda x, a=a, k=k: value_reduced(op, x, a, k),
        )
        for a, k in itertools.product(axes, (False, True))
    ]


def value_reduced(op, x, axis, keepdims):
    return getattr(np, OPS[op]["numpy"] or op)(x, axis=axis, keepdims=keepdims)
