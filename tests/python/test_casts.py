"""Casts between all dtypes against an oracle of exact rationals that rounds once, ties to even."""

import functools
import random
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest

import hyalite as hl

SIGNED = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}
UNSIGNED = {"uint8": 8, "uint16": 16, "uint32": 32, "uint64": 64}
INTEGERS = {**SIGNED, **UNSIGNED}
# name: (bits of the exponent, bits of the stored significand)
FLOATS = {
    "float16": (5, 10),
    "bfloat16": (8, 7),
    "float32": (8, 23),
    "float64": (11, 52),
    "float8_e4m3fn": (4, 3),
    "float8_e5m2": (5, 2),
}
COMPLEX = {"complex64": "float32", "complex128": "float64"}
REAL = ["bool", *INTEGERS, *FLOATS]
ALL = [*REAL, *COMPLEX]
INF, NAN = "inf", "nan"


def numpy_dtype(name):
    """The NumPy (or ml_dtypes) dtype that carries the bits of a Hyalite dtype."""
    if name in ("bfloat16", "float8_e4m3fn", "float8_e5m2"):
        return np.dtype(getattr(ml_dtypes, name))
    return np.dtype(name)


def bits_dtype(name):
    """The unsigned dtype whose elements are the bit patterns (of one component, for complex)."""
    name = COMPLEX.get(name, name)
    return np.dtype(f"u{numpy_dtype(name).itemsize}")


def decode(bits, name):
    """(negative, magnitude) of a float's bit pattern; the magnitude is a Fraction, INF or NAN."""
    exponent_bits, mantissa_bits = FLOATS[name]
    negative = bool(bits >> (exponent_bits + mantissa_bits))
    top = (1 << exponent_bits) - 1
    exponent = (bits >> mantissa_bits) & top
    mantissa = bits & ((1 << mantissa_bits) - 1)
    bias = top >> 1
    if name == "float8_e4m3fn":
        if exponent == top and mantissa == 7:
            return negative, NAN
    elif exponent == top:
        return negative, NAN if mantissa else INF
    if exponent == 0:
        return negative, mantissa * Fraction(2) ** (1 - bias - mantissa_bits)
    return negative, (mantissa + (1 << mantissa_bits)) * Fraction(2) ** (exponent - bias - mantissa_bits)


def nan_bits(name):
    """The largest bit pattern without a sign: a NaN in every format."""
    exponent_bits, mantissa_bits = FLOATS[name]
    return (1 << (exponent_bits + mantissa_bits)) - 1


def overflow_bits(name):
    """Where the magnitudes end: infinity, or the NaN of float8_e4m3fn."""
    exponent_bits, mantissa_bits = FLOATS[name]
    return nan_bits(name) if name == "float8_e4m3fn" else ((1 << exponent_bits) - 1) << mantissa_bits


def encode(negative, magnitude, name):
    """The bit pattern of the nearest value of a format, ties to even; inverse of decode."""
    exponent_bits, mantissa_bits = FLOATS[name]
    sign = int(negative) << (exponent_bits + mantissa_bits)
    if magnitude == NAN:
        return sign | nan_bits(name)
    if magnitude == INF:
        return sign | overflow_bits(name)
    if magnitude == 0:
        return sign
    bias = (1 << (exponent_bits - 1)) - 1
    exponent = magnitude.numerator.bit_length() - magnitude.denominator.bit_length()
    if Fraction(2) ** exponent > magnitude:
        exponent -= 1
    exponent = max(exponent, 1 - bias)
    significand = round(magnitude / Fraction(2) ** (exponent - mantissa_bits))  # Fraction rounds ties to even
    # A significand of 2 ** (mantissa_bits + 1) carries into the exponent by itself.
    return sign | min(((exponent + bias - 1) << mantissa_bits) + significand, overflow_bits(name))


def encode_array(fractions, name):
    """A NumPy array of the format nearest to each rational (zero is +0)."""
    bits = [encode(f < 0, abs(Fraction(f)), name) for f in fractions]
    return np.array(bits, dtype=bits_dtype(name)).view(numpy_dtype(name))


def is_nan(bits, name):
    """Where an array of bit patterns holds NaN."""
    magnitude = bits & bits.dtype.type(nan_bits(name))
    limit = overflow_bits(name) - (name == "float8_e4m3fn")
    return magnitude > bits.dtype.type(limit)


def interesting_rationals():
    """Values around every limit of every type, and around ties of every format."""
    values = [Fraction(n, 4) for n in range(-13, 14)]
    for width in (7, 8, 15, 16, 31, 32, 63, 64):
        edge = Fraction(2) ** width
        values += [edge + d for d in (-1, Fraction(-1, 2), 0, Fraction(1, 2), 1)]
    for name, (_, mantissa_bits) in FLOATS.items():
        half = Fraction(2) ** -(mantissa_bits + 1)
        for one in (1 + half, 1 + 3 * half):
            values += [one, one + Fraction(1, 2**40), one - Fraction(1, 2**40), one * 2**40, one * 2**40 + 1]
        largest = decode(overflow_bits(name) - 1, name)[1]
        step = largest - decode(overflow_bits(name) - 2, name)[1]
        values += [largest, largest + step / 2, largest + step / 2 * Fraction(255, 256), largest + step]
        smallest = decode(1, name)[1]
        values += [smallest, smallest / 2, smallest * Fraction(3, 4), smallest * Fraction(3, 2), smallest / 4]
    return values + [-v for v in values]


@functools.cache
def sample_bits(name):
    """Bit patterns of one dtype: special values, then random ones, in a fixed shuffled order."""
    rng = random.Random(name)
    if name in COMPLEX:
        flat = sample_bits(COMPLEX[name])
        return flat[: len(flat) // 2 * 2]
    if name == "bool":
        patterns = [rng.randrange(2) for _ in range(240)]
    elif name in INTEGERS:
        width = INTEGERS[name]
        numbers = [int(v) for v in interesting_rationals()]
        lowest = -(1 << (width - 1)) if name in SIGNED else 0
        patterns = [v % (1 << width) for v in numbers if lowest <= v < lowest + (1 << width)]
        patterns += [rng.getrandbits(width) >> rng.randrange(width) for _ in range(160)]
    else:
        width = 8 * numpy_dtype(name).itemsize
        patterns = [encode(v < 0, abs(v), name) for v in interesting_rationals()]
        sign = 1 << (width - 1)
        patterns += [
            0,
            sign,
            nan_bits(name),
            sign | nan_bits(name),
            overflow_bits(name),
            sign | overflow_bits(name),
        ] * 3
        patterns += [overflow_bits(name) + 1 if name != "float8_e4m3fn" else nan_bits(name)]
        patterns += [rng.getrandbits(width) for _ in range(160)]
        patterns += [
            encode(rng.random() < 0.5, Fraction(rng.getrandbits(64), 1 << rng.randrange(64)), name) for _ in range(80)
        ]
    while len(patterns) < 240:
        patterns.append(rng.choice(patterns))
    rng.shuffle(patterns)
    return np.array(patterns, dtype=bits_dtype(name))


@functools.cache
def sample_values(name):
    """The exact values of sample_bits: (negative, magnitude, from an integer)."""
    numbers = [int(b) for b in sample_bits(name)]
    if name == "bool" or name in UNSIGNED:
        return [(False, Fraction(n), True) for n in numbers]
    if name in SIGNED:
        numbers = [n - (1 << SIGNED[name]) if n >> (SIGNED[name] - 1) else n for n in numbers]
        return [(n < 0, Fraction(abs(n)), True) for n in numbers]
    return [(*decode(n, COMPLEX.get(name, name)), False) for n in numbers]


def convert(value, target):
    """The bit pattern in a real target of one exact value, by the rules of semantics.md."""
    negative, magnitude, integral = value
    if target == "bool":
        return int(magnitude == NAN or magnitude == INF or magnitude != 0)
    if target in FLOATS:
        return encode(negative, magnitude, target)
    if magnitude == NAN:
        return 0
    width = INTEGERS[target]
    low, high = (-(1 << (width - 1)), (1 << (width - 1)) - 1) if target in SIGNED else (0, (1 << width) - 1)
    if magnitude == INF:
        number = low if negative else high
    else:
        number = -int(magnitude) if negative else int(magnitude)
        if not integral:
            number = min(max(number, low), high)
    return number % (1 << width)


@functools.cache
def expected_bits(source, target):
    """What astype must give for sample_bits(source); complex targets as a (n, 2) array of components."""
    values = sample_values(source)
    component = COMPLEX.get(target, target)
    if source in COMPLEX and target == "bool":
        bits = [convert(re, "bool") | convert(im, "bool") for re, im in zip(values[::2], values[1::2])]
    else:
        bits = [convert(v, component) for v in values]
    out = np.array(bits, dtype=bits_dtype(target))
    if target not in COMPLEX:
        return out
    if source in COMPLEX:
        return out.reshape(-1, 2)
    return np.stack([out, np.zeros_like(out)], axis=1)


@functools.cache
def sample_tensor(name):
    """sample_bits as a tensor (bool by value, all others by their bits)."""
    bits = sample_bits(name)
    return hl.asarray(bits.astype(np.bool_) if name == "bool" else bits.view(numpy_dtype(name)))


def result_bits(tensor, name):
    """The bits of a result, complex ones as (n, 2), after checking its dtype."""
    assert tensor.dtype == getattr(hl, name)
    out = np.ascontiguousarray(tensor.numpy())
    assert out.dtype == numpy_dtype(name)
    bits = out.view(bits_dtype(name))
    return bits.reshape(-1, 2) if name in COMPLEX else bits


def assert_bits(tensor, want, name):
    """Equal bit for bit, except that any NaN equals any NaN."""
    got = result_bits(tensor, name)
    assert got.shape == want.shape
    component = COMPLEX.get(name, name)
    wrong = got != want
    if component in FLOATS:
        wrong &= ~(is_nan(got, component) & is_nan(want, component))
    if wrong.any():
        where = np.argwhere(wrong)[0]
        at = tuple(where)
        raise AssertionError(f"element {at}: {int(got[at]):#x}, not {int(want[at]):#x} ({int(wrong.sum())} wrong)")


PAIRS = [(s, t) for s in ALL for t in ALL if not (s in COMPLEX and t not in COMPLEX and t != "bool")]


def test_oracle_agrees_with_numpy_where_numpy_is_right():
    """The oracle itself: float64 and float32 to the formats NumPy casts with one rounding."""
    for source, target in (
        ("float64", "float32"),
        ("float64", "float16"),
        ("float32", "float16"),
        ("int64", "float64"),
    ):
        bits = sample_bits(source)
        with np.errstate(all="ignore"):
            numpy_bits = bits.view(numpy_dtype(source)).astype(target).view(bits_dtype(target))
        want = expected_bits(source, target)
        same = numpy_bits == want
        assert np.all(same | (is_nan(numpy_bits, target) & is_nan(want, target)))


@pytest.mark.parametrize("source, target", PAIRS)
def test_cast_gives_the_exact_rules_value(source, target):
    assert_bits(sample_tensor(source).astype(getattr(hl, target)), expected_bits(source, target), target)


@pytest.mark.parametrize("source, target", PAIRS)
def test_cast_is_the_same_at_every_length_and_stride(source, target):
    x, dtype, want = sample_tensor(source), getattr(hl, target), expected_bits(source, target)
    for n in range(1, 68):
        assert_bits(x[:n].astype(dtype), want[:n], target)
    for n in (1, 2, 3, 5, 7, 8, 13, 16, 17, 31, 33, 40):
        assert_bits(x[1::3][:n].astype(dtype), want[1::3][:n], target)
        assert_bits(x[::-1][:n].astype(dtype), want[::-1][:n], target)
        assert_bits(x[::-2][:n].astype(dtype), want[::-2][:n], target)


@pytest.mark.parametrize("source", COMPLEX)
@pytest.mark.parametrize("target", [*INTEGERS, *FLOATS])
def test_complex_to_real_raises_and_says_take_real(source, target):
    with pytest.raises(TypeError, match="real"):
        sample_tensor(source).astype(getattr(hl, target))


@pytest.mark.parametrize(
    "source, bits, target, want",
    [
        (
            "float64",
            [0x3FF0020000001000],
            "float16",
            [0x3C01],
        ),  # 1 + 2^-11 + 2^-40: up, though float32 would make a tie
        ("float64", [0x3FF0100000001000], "bfloat16", [0x3F81]),  # 1 + 2^-8 + 2^-40
        ("float32", [0x7F800001, 0xFF800001], "bfloat16", None),  # NaN with a low payload stays NaN
        ("int64", [(1 << 60) + (1 << 36) + 1], "float32", [0x5D800001]),  # via float64 it would be a tie
        ("uint64", [(1 << 64) - 1], "float32", [0x5F800000]),
        ("float32", [0x43E80000, 0x43E88000, 0x7F800000], "float8_e4m3fn", [0x7E, 0x7F, 0x7F]),  # 464, 465, inf
        ("float32", [0x47700000, 0x476FFFFF], "float8_e5m2", [0x7C, 0x7B]),  # 61440 is the tie that overflows
    ],
)
def test_casts_written_out_by_hand(source, bits, target, want):
    x = hl.asarray(np.array(bits, dtype=bits_dtype(source)).view(numpy_dtype(source)))
    if want is None:
        want = [nan_bits(target)] * len(bits)
    assert_bits(x.astype(getattr(hl, target)), np.array(want, dtype=bits_dtype(target)), target)


@pytest.mark.parametrize("target", INTEGERS)
def test_float_to_int_saturates_in_every_position(target):
    info = np.iinfo(target)
    for special, want in ((np.nan, 0), (np.inf, info.max), (-np.inf, info.min), (1e30, info.max), (-1e30, info.min)):
        for n in (1, 2, 7, 16, 33):
            for position in range(n):
                x = np.full(n, 3.75, dtype=np.float32)
                x[position] = special
                expected = np.full(n, 3, dtype=target)
                expected[position] = want
                np.testing.assert_array_equal(hl.asarray(x).astype(getattr(hl, target)).numpy(), expected)


# ---- check=True -------------------------------------------------------------------------------------------------

BROKEN = [
    ("float32", "int32", np.nan, "nan"),
    ("float64", "int64", np.inf, "inf"),
    ("float32", "uint8", 1000.0, "1000"),
    ("float32", "uint16", -2.0, "-2"),
    ("int64", "int8", 1000, "1000"),
    ("int32", "uint32", -7, "-7"),
    ("uint64", "int64", 2**63, str(2**63)),
    ("float64", "float32", 1e300, "300"),
]


@pytest.mark.parametrize("source, target, value, text", BROKEN)
@pytest.mark.parametrize("step", [1, 2, -1])
def test_check_raises_naming_the_first_element_that_does_not_survive(source, target, value, text, step):
    data = np.ones(41, dtype=source)
    data[23] = data[31] = value
    x = hl.asarray(data)
    view = {1: x, 2: hl.asarray(np.repeat(data, 2))[::2], -1: hl.asarray(data[::-1].copy())[::-1]}[step]
    with pytest.raises((ValueError, OverflowError)) as caught:
        view.astype(getattr(hl, target), check=True)
    message = str(caught.value).lower()
    assert "23" in message and "31" not in message
    assert text in message
    view.astype(getattr(hl, target))  # without check the rule of the cast applies and nothing raises


@pytest.mark.parametrize(
    "source, target",
    [
        ("float32", "int8"),
        ("int64", "uint8"),
        ("uint64", "int64"),
        ("int64", "float64"),
        ("float64", "float32"),
        ("bool", "float16"),
        ("float32", "complex64"),
    ],
)
def test_check_lets_values_that_survive_pass(source, target):
    data = np.arange(67).astype(source)
    got = hl.asarray(data).astype(getattr(hl, target), check=True)
    np.testing.assert_array_equal(got.numpy(), data.astype(target))


# ---- copies -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ALL)
def test_copy_false_with_the_same_dtype_is_the_same_object(name):
    x = sample_tensor(name)
    assert x.astype(getattr(hl, name), copy=False) is x
    assert hl.astype(x, getattr(hl, name), copy=False) is x


@pytest.mark.parametrize("name", ALL)
def test_copy_true_is_new_writable_memory_with_the_same_bits(name):
    x = sample_tensor(name)
    for fresh in (x.astype(getattr(hl, name)), x.astype(getattr(hl, name), copy=True)):
        assert fresh is not x
        assert fresh.data_ptr() != x.data_ptr()
        assert fresh.numpy().flags.writeable
        np.testing.assert_array_equal(fresh.numpy().view(np.uint8), x.numpy().view(np.uint8))


def test_copy_false_with_another_dtype_still_casts():
    x = hl.asarray(np.array([1.5, -2.5], dtype=np.float32))
    got = x.astype(hl.int32, copy=False)
    assert got.dtype == hl.int32
    assert got.tolist() == [1, -2]
    assert x.tolist() == [1.5, -2.5]


def test_copy_of_a_view_writes_nothing_into_its_base():
    base = np.arange(10, dtype=np.float32)
    copy = hl.asarray(base)[::-2].astype(hl.float32)
    copy += 100
    np.testing.assert_array_equal(base, np.arange(10, dtype=np.float32))
    assert copy.tolist() == [109, 107, 105, 103, 101]


@pytest.mark.parametrize("name", ["float16", "bfloat16", "float32", "float64"])
def test_sign_of_nan_survives_copies_and_negation(name):
    quiet = overflow_bits(name) | (1 << (FLOATS[name][1] - 1))
    sign = 1 << (8 * numpy_dtype(name).itemsize - 1)
    bits = np.array([quiet, quiet | sign] * 9, dtype=bits_dtype(name))
    x = hl.asarray(bits.view(numpy_dtype(name)))
    signs = bits >> bits.dtype.type(sign.bit_length() - 1)

    def sign_bits(tensor):
        return result_bits(tensor, name) >> bits.dtype.type(sign.bit_length() - 1)

    np.testing.assert_array_equal(sign_bits(x.astype(getattr(hl, name))), signs)
    np.testing.assert_array_equal(sign_bits(hl.asarray(x, copy=True)), signs)
    np.testing.assert_array_equal(sign_bits(-x), 1 - signs)
    np.testing.assert_array_equal(sign_bits(-(-x)), signs)


def test_zero_keeps_its_sign_between_floats_and_counts_as_false():
    for source in FLOATS:
        zeros = np.array([0.0, -0.0] * 5, dtype=np.float32).astype(numpy_dtype(source))
        x = hl.asarray(zeros)
        for target in FLOATS:
            signs = result_bits(x.astype(getattr(hl, target)), target) != 0
            assert signs.tolist() == [False, True] * 5
        assert x.astype(hl.bool).tolist() == [False] * 10


def test_empty_and_zero_dimensional_tensors_cast():
    for source, target in PAIRS:
        empty = hl.zeros((0, 3), dtype=getattr(hl, source)).astype(getattr(hl, target))
        assert empty.shape == (0, 3) and empty.dtype == getattr(hl, target)
        scalar = hl.ones((), dtype=getattr(hl, source)).astype(getattr(hl, target))
        assert scalar.shape == ()
        assert scalar.astype(hl.bool).item() is True
