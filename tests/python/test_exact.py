"""Exact values rounded once: float `//`, means of integers; bools of any byte; overlap in place over item sizes."""

import itertools
from fractions import Fraction

import numpy as np
import pytest
from op_oracle import ELEMENTWISE, INTEGERS, OPS, REDUCTIONS, accepted, declared, same_bits
from test_casts import numpy_dtype

import hyalite as hl

FLOATS = ["float16", "bfloat16", "float32", "float64"]
# Digits of the significand, exponent of the least subnormal, and the largest exponent.
FORMATS = {
    "float16": (11, -24, 16),
    "bfloat16": (8, -133, 128),
    "float32": (24, -149, 128),
    "float64": (53, -1074, 1024),
}


def rounded(x, name):
    """A fraction rounded once to a float format, ties to even, as a Python float."""
    digits, least, top = FORMATS[name]
    if x == 0:
        return 0.0
    size = abs(x)
    exponent = size.numerator.bit_length() - size.denominator.bit_length()
    exponent -= size < Fraction(2) ** exponent
    unit = Fraction(2) ** max(exponent - digits + 1, least)
    units = round(size / unit)  # Python's round is to even
    value = units * unit
    result = float("inf") if value >= Fraction(2) ** top else float(value)
    return -result if x < 0 else result


# ---- W26 --------------------------------------------------------------------------------------------------------


def pairs(name, n, rng):
    """Dividends and divisors of every size, most with quotients about and past the end of the whole numbers."""
    digits, least, top = FORMATS[name]
    kind = numpy_dtype(name)
    y = np.ldexp(rng.uniform(0.5, 1, n), rng.integers(max(least, -60), 4, n)) * rng.choice([-1, 1], n)
    q = np.ldexp(rng.uniform(0.5, 1, n), rng.integers(-2, min(2 * digits, top - 5), n))
    with np.errstate(all="ignore"):
        y = y.astype(kind)
        x = (y.astype(np.float64) * q * rng.choice([-1, 1], n)).astype(kind)
    x, y = x.astype(np.float64), y.astype(np.float64)
    good = np.isfinite(x) & np.isfinite(y) & (x != 0) & (y != 0)
    return x[good].astype(kind), y[good].astype(kind)


def near_ties(name, n, rng):
    """Quotients a little above the middle between two floats: the quotient goes up, its floor is a tie."""
    digits, _, top = FORMATS[name]
    kind, found = numpy_dtype(name), []
    while len(found) < n:
        y = int(rng.integers(2 ** (digits - 1), 2**digits))
        k = int(rng.integers(0, max(1, min(digits - 2, 8))))
        odd = 2 * int(rng.integers(2 ** (digits - 1), 2**digits - 1)) + 1  # of one digit more: the middle of two floats
        middle = odd * 2**k
        # The dividend next above y * middle that has few enough digits.
        unit = 2 ** max((y * middle).bit_length() - digits, 0)
        x = (y * middle // unit + 1) * unit
        if x.bit_length() - digits > 0 and x % unit:
            continue
        down = Fraction(2) ** -(digits + k + 8)
        a, b = float(x * down * down), float(y * down * down)
        if np.isfinite(np.array([a, b]).astype(kind).astype(np.float64)).all() and b != 0:
            found.append((a, b) if rng.random() < 0.5 else (-a, -b))
    x, y = np.array(found).T
    return x.astype(kind), y.astype(kind)


@pytest.mark.parametrize("name", FLOATS)
def test_w26_floor_of_the_exact_quotient(name):
    rng = np.random.default_rng(26)
    for make in (pairs, near_ties) if name in ("float32", "float64") else (pairs,):
        x, y = make(name, 4000, rng)
        got = (hl.asarray(x) // hl.asarray(y)).numpy().astype(np.float64)
        both, rest = divmod(hl.asarray(x), hl.asarray(y))
        assert same_bits(both, hl.asarray(x) // hl.asarray(y)) and same_bits(rest, hl.asarray(x) % hl.asarray(y))
        for a, b, g in zip(x.astype(np.float64), y.astype(np.float64), got):
            exact = Fraction(float(a)) / Fraction(float(b))
            want = rounded(Fraction(exact.numerator // exact.denominator), name)
            assert g == want, (float(a), float(b), g, want)


def test_w26_the_quotients_of_the_report():
    x, y = hl.asarray([-3449.9853515625]), hl.asarray([1.4766615095140878e-05])
    assert x.dtype == hl.float32 and (x // y).item() == -233634144.0


# ---- W8 ---------------------------------------------------------------------------------------------------------


def sample(name, shape, rng):
    if name == "bool":
        return rng.integers(0, 2, shape).astype(bool)
    info = np.iinfo(name)
    whole = rng.integers(info.min, info.max, shape, dtype=name, endpoint=True)
    near = np.asarray(info.max, dtype=name) - rng.integers(0, 3, shape).astype(name)
    return np.where(rng.random(shape) < 0.5, whole, near)


@pytest.mark.parametrize("name", ["bool", *INTEGERS])
def test_w8_means_of_integers(name):
    rng = np.random.default_rng(8)
    for shape in [(1,), (7,), (3, 5), (40, 33), (2, 3, 1100)]:
        a = sample(name, shape, rng)
        if len(shape) > 1:
            a[0] = a[0].max()  # nothing cancels
        layouts = [a, np.asfortranarray(a), a[::-1].copy()[::-1], np.repeat(a, 2, axis=-1)[..., ::2]]
        for axis in [None, 0, -1, tuple(range(len(shape)))[:2]]:
            axes = range(a.ndim) if axis is None else (axis,) if isinstance(axis, int) else axis
            axes = sorted(k % a.ndim for k in axes)
            n = int(np.prod([shape[k] for k in axes]))
            sums = np.array(a.astype(object).sum(axis=tuple(axes)), dtype=object).ravel()
            for dtype in (None, "float64", "float16", "bfloat16"):
                want = [rounded(Fraction(int(s), n), dtype or "float32") for s in sums]
                for layout in layouts:
                    got = hl.mean(hl.asarray(layout), axis=axis, dtype=getattr(hl, dtype) if dtype else None)
                    assert got.dtype == getattr(hl, dtype or "float32")
                    assert got.numpy().astype(np.float64).ravel().tolist() == want, (name, shape, axis, dtype)


def test_w8_the_mean_of_the_report():
    assert hl.mean(hl.asarray([123456789, -123456788, 0, 0])).item() == 0.25
    assert hl.mean(hl.asarray([2**63 - 1] * 3)).item() == float(2**63)
    assert hl.mean(hl.asarray([2**63 - 1] * 3), dtype=hl.float64).item() == float(2**63)
    top = hl.mean(hl.broadcast_to(hl.asarray([-(2**63)]), (1000, 100)), axis=0)
    assert top.tolist() == [-float(2**63)] * 100
    assert np.isnan(hl.mean(hl.zeros((0,), dtype=hl.int32)).item())


# ---- W19 --------------------------------------------------------------------------------------------------------


def any_bytes(shape, rng):
    """Memory of bools written by somebody else: every byte, half of them 0."""
    raw = np.where(rng.random(shape) < 0.5, 0, rng.integers(1, 256, shape)).astype(np.uint8)
    return raw, hl.asarray(raw.view(bool))


@pytest.mark.parametrize("n", [1, 5, 33, 200, 3000])
def test_w19_every_op_reads_a_bool_by_nonzero(n):
    rng = np.random.default_rng(19)
    for transposed in (False, True):
        raw, x = any_bytes((3, n), rng)
        if transposed:
            raw, x = raw.T, x.T
        y = hl.asarray(raw != 0)
        for op in ELEMENTWISE:
            if "bool" not in accepted(op) and not OPS[op]["condition"]:
                continue
            if OPS[op]["condition"]:
                for name in ("int8", "float16", "float32", "float64", "complex128", "bool"):
                    a, b = hl.ones(x.shape, dtype=getattr(hl, name)), hl.zeros(x.shape, dtype=getattr(hl, name))
                    assert same_bits(getattr(hl, op)(x, a, b), getattr(hl, op)(y, a, b)), (op, name)
                continue
            arity = OPS[op]["arity"]
            assert_same(getattr(hl, op)(*[x] * arity), getattr(hl, op)(*[y] * arity), op)
            if arity == 2:
                assert_same(getattr(hl, op)(x, y), getattr(hl, op)(y, y), op)
                if OPS[op]["result"] == 1:
                    for other in (hl.int64, hl.float32):
                        one = hl.ones(x.shape, dtype=other)
                        assert_same(getattr(hl, op)(x, one), getattr(hl, op)(y, one), op)
        for op in REDUCTIONS:
            if "bool" in declared(op):
                for axis in (None, 0, 1):
                    assert same_bits(getattr(hl, op)(x, axis=axis), getattr(hl, op)(y, axis=axis)), (op, axis)
        for to in ("int8", "int64", "float16", "bfloat16", "float32", "float64", "complex64", "uint8", "float8_e5m2"):
            assert same_bits(hl.astype(x, getattr(hl, to)), hl.astype(y, getattr(hl, to))), to
        assert x.tolist() == y.tolist() and repr(x) == repr(y) and hl.all(x == y).item()
        data = hl.asarray(np.arange(x.numel() if hasattr(x, "numel") else raw.size).reshape(raw.shape))
        assert data[x].tolist() == data[y].tolist()
        target = hl.zeros(raw.shape)
        target[x] = 1.0
        assert same_bits(target, hl.astype(y, hl.float32))
        assert [bool(v) for v in x[0]] == [bool(v) for v in y[0]] and int(hl.sum(x)) == int((raw != 0).sum())


def assert_same(got, want, op):
    for g, w in zip(got if isinstance(got, tuple) else (got,), want if isinstance(want, tuple) else (want,)):
        assert same_bits(g, w), op


def test_w19_bytes_written_after_sharing():
    raw = np.zeros(40, np.uint8)
    x = hl.asarray(raw.view(bool))
    raw[::3] = 254
    assert hl.sum(x).item() == 14 and hl.where(x, 1, 0).tolist() == [int(i % 3 == 0) for i in range(40)]


# ---- W23 --------------------------------------------------------------------------------------------------------

IN_PLACE = {
    "__iadd__": np.add, "__isub__": np.subtract, "__imul__": np.multiply, "__itruediv__": np.true_divide,
}  # fmt: skip


@pytest.mark.parametrize("n", [4, 60, 10_000, 200_000])
@pytest.mark.parametrize("op", IN_PLACE)
def test_w23_in_place_over_memory_of_another_item_size(op, n):
    """As if the operand were copied first: complex targets with their own real and imaginary parts, any overlap."""
    rng = np.random.default_rng(23)
    for dtype in ("complex64", "complex128"):
        start = (rng.normal(size=n) + 1j * rng.normal(size=n) + 3).astype(dtype)
        views = [
            (lambda z: z[::2], lambda z: z.real[: n // 2]), (lambda z: z[::2], lambda z: z.imag[: n // 2]),
            (lambda z: z[: n // 2], lambda z: z.real[: n // 2]), (lambda z: z[: n // 2], lambda z: z.real[::2]),
            (lambda z: z, lambda z: z.real), (lambda z: z, lambda z: z.imag[::-1]),
            (lambda z: z[::-1], lambda z: z.real),
            (lambda z: z.real, lambda z: z.imag), (lambda z: z.real[1:], lambda z: z.imag[:-1]),
            (lambda z: z[1:], lambda z: z[:-1]), (lambda z: z[: n // 2], lambda z: z[::2]),
        ]  # fmt: skip
        for target, operand in views:
            z, want = hl.asarray(start.copy()), start.copy()
            t = target(z)
            getattr(t, op)(operand(z))
            copy = operand(want).copy()
            IN_PLACE[op](target(want), copy, out=target(want))
            np.testing.assert_allclose(z.numpy(), want, rtol=1e-6 if dtype == "complex64" else 1e-14)


@pytest.mark.parametrize("n", [5, 64, 5000, 300_000])
def test_w23_in_place_over_shared_memory_of_any_dtypes(n):
    """Two arrays over one memory, of dtypes of any sizes: what is read is what was there before."""
    rng = np.random.default_rng(3)
    for wide, narrow in itertools.product(
        ("float64", "float32", "int64", "complex64"), ("float32", "float16", "int8", "bool")
    ):
        memory = rng.integers(0, 2, 16 * n + 64).astype(np.uint8)
        memory.view(np.uint16)[::2] &= 0x3C01
        size = np.dtype(wide).itemsize
        for shift in (0, 1, 3):
            m = memory.copy()
            x = m[: n * size].view(wide)
            y = m[shift * 16 :][: n * np.dtype(narrow).itemsize].view(narrow)
            x[...] = np.nan_to_num(x.astype(wide)) if x.dtype.kind != "i" else x
            t, u = hl.asarray(x), hl.asarray(y)
            if narrow == "bool":
                want = np.where(y.copy(), np.ones(1, wide), x.copy())
                t[u] = 1
            elif hl.result_type(t, u) == t.dtype:
                with np.errstate(all="ignore"):
                    want = x + y.copy()
                t += u
            else:
                continue
            np.testing.assert_array_equal(t.numpy(), want, err_msg=f"{wide} {narrow} {shift}")
