"""The scalar reference of docs/reduction.md: slow, obvious, and the only oracle of the reduction tests."""

from fractions import Fraction

import numpy as np

BLOCK, LANES = 1024, 16


def c_multiply(x, y):
    """C Annex G.5.1 product of two complex128, every operation rounded by itself."""
    f = np.float64
    a, b, c, d = f(x.real), f(x.imag), f(y.real), f(y.imag)
    re, im = a * c - b * d, a * d + b * c
    if np.isnan(re) and np.isnan(im):
        inf_x, inf_y = np.isinf(a) or np.isinf(b), np.isinf(c) or np.isinf(d)
        lost = not (inf_x or inf_y) and any(np.isinf(p) for p in (a * c, b * d, a * d, b * c))
        one = lambda v: np.copysign(f(np.isinf(v)), v)  # noqa: E731
        zero = lambda v: np.copysign(f(0), v) if np.isnan(v) else v  # noqa: E731
        if inf_x:
            a, b, c, d = one(a), one(b), zero(c), zero(d)
        if inf_y:
            a, b, c, d = zero(a), zero(b), one(c), one(d)
        if lost:
            a, b, c, d = zero(a), zero(b), zero(c), zero(d)
        if inf_x or inf_y or lost:
            re, im = f(np.inf) * (a * c - b * d), f(np.inf) * (a * d + b * c)
    return join_parts(re, im)


def join_parts(re, im):
    return np.array([re, im], np.float64).view(np.complex128)[0]


def fold(values, op, identity):
    """Blocks, accumulators, joins and tree over a 1-D array that already has the accumulate type; `n >= 1`."""
    blocks = []
    for start in range(0, len(values), BLOCK):
        acc = [identity] * LANES
        for j, x in enumerate(values[start : start + BLOCK]):
            acc[j % LANES] = op(acc[j % LANES], x)
        for half in (8, 4, 2, 1):
            for i in range(half):
                acc[i] = op(acc[i], acc[i + half])
        blocks.append(acc[0])

    def tree(v):
        if len(v) == 1:
            return v[0]
        p = 1 << ((len(v) - 1).bit_length() - 1)
        return op(tree(v[:p]), tree(v[p:]))

    return tree(blocks)


def accumulate_dtype(op, dtype):
    if dtype.kind in "biu":
        return np.dtype("u8" if dtype.kind == "u" else "i8")
    if dtype.kind == "c":
        return np.dtype("c16")
    return np.dtype("f4") if dtype.itemsize == 2 else np.dtype("f8")


def result_dtype(op, dtype):
    if op in ("any", "all"):
        return np.dtype(bool)
    if op in ("argmax", "argmin"):
        return np.dtype("i8")
    if op == "mean" and dtype.kind in "biu":
        return np.dtype("f4")
    return accumulate_dtype(op, dtype) if dtype.kind in "biu" and op in ("sum", "prod") else dtype


def ordered_sum(values):
    if values.dtype.kind == "c":
        return join_parts(ordered_sum(values.real), ordered_sum(values.imag))
    zero = values.dtype.type(0)
    return zero if len(values) == 0 else fold(values, lambda a, b: a + b, zero if values.dtype.kind in "iu" else -zero)


def ordered_prod(values):
    one = values.dtype.type(1)
    multiply = c_multiply if values.dtype.kind == "c" else lambda a, b: a * b
    return one if len(values) == 0 else fold(values, multiply, one)


def extreme(op, x):
    """Index of the first NaN or first extreme; the value of `max` and `min` takes its zero's sign by the rule."""
    wide = x.astype(np.float32) if x.dtype.itemsize == 2 and x.dtype.kind in "fV" else x
    if len(wide) == 0:
        raise ValueError(f"{op}(): an empty sequence has no {op}")
    nans = np.flatnonzero(wide != wide)
    best = nans[0] if len(nans) else np.flatnonzero(wide == (wide.max() if "max" in op else wide.min()))[0]
    if op.startswith("arg"):
        return np.int64(best)
    value = wide[best]
    if value == 0 and wide.dtype.kind == "f":
        signs = np.signbit(wide[wide == 0])
        value = np.copysign(value, -1.0 if (signs.all() if op == "max" else signs.any()) else 1.0)
    return value


def canonical(value):
    """A 0-d result with every NaN component replaced by the positive quiet NaN with an empty payload."""
    value = np.array(value)
    if value.dtype.kind == "c":
        return join_parts(canonical(value.real), canonical(value.imag)).astype(value.dtype)
    if value.dtype.kind in "fV" and value != value:
        return np.array(np.nan, np.float32).astype(value.dtype)
    return value


def exact_mean(x):
    """The mean of integers: their exact sum, divided and rounded once to float32, the default float."""
    if len(x) == 0:
        return np.float32(np.nan)
    mean = Fraction(sum(int(v) for v in x), len(x))
    nearest = np.float32(float(mean))
    candidates = [nearest, np.nextafter(nearest, np.float32(np.inf)), np.nextafter(nearest, np.float32(-np.inf))]
    # Ties to the even significand.
    return min(candidates, key=lambda c: (abs(Fraction(float(c)) - mean), int(c.view(np.uint32)) & 1))


def reduce_sequence(op, x):
    """One output: the reduced elements in logical order, as a 1-D array of the input dtype."""
    with np.errstate(all="ignore"):
        if op in ("any", "all"):
            return np.array(getattr(np, op)(x != 0))
        if op in ("max", "min", "argmax", "argmin"):
            value = extreme(op, x)
        elif op == "mean" and x.dtype.kind in "biu":
            return exact_mean(x)
        else:
            wide = x.astype(accumulate_dtype(op, x.dtype))
            value = ordered_prod(wide) if op == "prod" else ordered_sum(wide)
            if op == "mean":
                parts = [value.real, value.imag] if x.dtype.kind == "c" else [value]
                parts = [np.float64(p) / np.float64(len(x)) for p in parts]
                value = join_parts(*parts) if len(parts) == 2 else parts[0]
        if (x.dtype.kind == "V" or x.dtype.name == "bfloat16") and op in ("sum", "prod", "mean", "max", "min"):
            value = round_to_bfloat16(np.float64(value))
        return canonical(np.array(value).astype(result_dtype(op, x.dtype)))


def round_to_bfloat16(value):
    """float64 to the nearest bfloat16 as float64: ml_dtypes rounds twice on the way (cases.md, 21)."""
    if not np.isfinite(value) or value == 0:
        return value
    exponent = max(int(np.frexp(value)[1]) - 8, -133)
    return np.float64(np.ldexp(np.rint(np.ldexp(value, -exponent)), exponent))


def reduce_oracle(op, array, axis=None, keepdims=False):
    """The array the engine must give, bit for bit; `op` is sum, prod, mean, max, min, argmax, argmin, any or all."""
    array = np.asarray(array)
    axes = tuple(range(array.ndim)) if axis is None else (axis,) if np.isscalar(axis) else tuple(axis)
    axes = sorted(a % array.ndim for a in axes)
    kept = [a for a in range(array.ndim) if a not in axes]
    n = int(np.prod([array.shape[a] for a in axes], dtype=np.int64))
    outputs = int(np.prod([array.shape[a] for a in kept], dtype=np.int64))
    rows = array.transpose(kept + axes).reshape(outputs, n)
    out = np.empty(outputs, result_dtype(op, array.dtype))
    for i in range(outputs):
        out[i] = reduce_sequence(op, rows[i])
    return out.reshape([1 if a in axes else s for a, s in enumerate(array.shape) if keepdims or a not in axes])
