"""str() and repr() of tensors, character by character against NumPy; bfloat16 and float8 against exact rationals."""

import contextlib
import sys
import threading
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import hyalite as hl

DEFAULTS = {"precision": 8, "threshold": 1000, "edgeitems": 3, "linewidth": 75, "suppress": False}
IMPLIED = {"bool", "int64", "float32", "complex64"}
FLOATS = ["float16", "float32", "float64"]
NUMPY_NAMES = (
    ["bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
    + FLOATS
    + ["complex64", "complex128"]
)
SMALL_NAMES = ["bfloat16", "float8_e4m3fn", "float8_e5m2"]
SPECIAL = [0.0, -0.0, float("nan"), float("inf"), -float("inf")]
# Where the notation changes, and where digits run out.
EDGES = [1e-4, 9.9e-5, 1e-3, 0.1, 1.0, 999.9, 1000.0, 1000.25, 999999.0, 1e6, 99999999.0, 1e8, 1e16, 2.0**-24, 2.0**-6]


@contextlib.contextmanager
def options(**changed):
    """Sets the same options in NumPy and in Hyalite, and puts them back."""
    hl.set_printoptions(**changed)
    try:
        with np.printoptions(**changed):
            yield
    finally:
        hl.set_printoptions(**DEFAULTS)


def numpy_repr(x, suffix=""):
    """What NumPy would write if its class were called tensor and its default type were float32."""
    limits = np.get_printoptions()
    text = "tensor(" + np.array2string(x, separator=", ", prefix="tensor(", suffix=")")
    extras = []
    if (x.size == 0 and x.shape != (0,)) or x.size > limits["threshold"]:
        extras.append(f"shape={x.shape}")
    if x.size == 0 or x.dtype.name not in IMPLIED:
        extras.append(f"dtype={x.dtype.name}")
    extras += [suffix] * bool(suffix)
    if not extras:
        return text + ")"
    text, extra = text + ",", ", ".join(extras) + ")"
    last_line = len(text) - (text.rfind("\n") + 1)
    return text + (" " if last_line + 1 + len(extra) <= limits["linewidth"] else "\n" + " " * 7) + extra


def check(x):
    """Compares both texts of an array with NumPy's."""
    t = hl.asarray(x)
    assert str(t) == str(x)
    assert repr(t) == numpy_repr(x)


def floats(dtype):
    """Values of one notation, of all magnitudes, and the special ones."""
    width = 8 * np.dtype(dtype).itemsize
    largest = float(np.finfo(dtype).max)
    return st.one_of(
        st.floats(width=width),
        st.integers(-2000, 2000).map(lambda n: n / 8),
        st.sampled_from([v for v in EDGES if v < largest] + SPECIAL),
        st.integers(0, 30).map(lambda n: n * float(np.finfo(dtype).smallest_subnormal)),
    )


@st.composite
def arrays(draw):
    """Arrays of any NumPy type and shape, some of them strided."""
    dtype = np.dtype(draw(st.sampled_from(NUMPY_NAMES)))
    shape = draw(st.one_of(hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=9), st.just((30,))))
    if dtype.kind in "fc":
        part = np.dtype(f"f{dtype.itemsize // (2 if dtype.kind == 'c' else 1)}")
        x = np.empty(shape, dtype)
        components = [x.real, x.imag] if dtype.kind == "c" else [x]
        for component in components:
            with np.errstate(over="ignore"):
                component[...] = draw(hnp.arrays(part, shape, elements=floats(part)))
    else:
        x = draw(hnp.arrays(dtype, shape))
    return draw(st.sampled_from([x, x.T, x[..., ::2] if x.ndim else x, x[::-1] if x.ndim else x]))


@given(arrays())
def test_random_arrays(x):
    check(x)


@given(
    arrays(),
    st.fixed_dictionaries(
        {},
        optional={
            "precision": st.integers(0, 20),
            "threshold": st.sampled_from([0, 1, 10, 50, sys.maxsize]),
            "edgeitems": st.integers(1, 5),
            "linewidth": st.sampled_from([1, 10, 20, 40, 80, 300]),
            "suppress": st.booleans(),
        },
    ),
)
def test_random_options(x, changed):
    with options(**changed):
        check(x)


@pytest.mark.parametrize("name", NUMPY_NAMES)
@pytest.mark.parametrize("shape", [(999,), (1000,), (1001,), (40, 40), (7, 6, 30), (2, 3, 400), (1, 2, 1, 600)])
def test_long_and_summarised(name, shape):
    rng = np.random.default_rng(7)
    for scale in (1, 50, 1e4):
        with np.errstate(over="ignore", invalid="ignore"):
            x = (rng.standard_normal(shape) * scale).astype(np.complex128 if name.startswith("c") else np.float64)
            check(x.astype(np.int64).astype(name) if name[0] in "iu" else x.astype(name))


@pytest.mark.parametrize("name", NUMPY_NAMES)
def test_empty(name):
    for shape in [(0,), (0, 3), (2, 0), (3, 0, 5)]:
        check(np.empty(shape, name))


@pytest.mark.parametrize("name", FLOATS)
def test_powers_of_two_and_neighbours(name):
    """Above a power of two the next number is twice as far as below, which is where digits go wrong."""
    limits = np.finfo(name)
    for exponent in range(int(np.log2(limits.smallest_subnormal)), limits.maxexp):
        x = np.ldexp(np.array(1, name), exponent)
        for value in (x, np.nextafter(x, np.array(0, name)), np.nextafter(x, np.array(np.inf, name))):
            assert str(hl.asarray(np.asarray(value))) == str(value)
            check(np.array([value, 1], name))


def test_every_float16():
    for value in np.arange(65536, dtype=np.uint16).view(np.float16):
        assert str(hl.asarray(np.asarray(value))) == str(value)


def exact(value):
    """The rational that a finite small float is."""
    return Fraction(float(value))


def decimal(text):
    """(value, digits, exponent of the last digit) of a printed number."""
    mantissa, _, exponent = text.partition("e")
    whole, _, fraction = mantissa.partition(".")
    digits = (whole + fraction).lstrip("0").rstrip("0")
    return Fraction(text), len(digits)


def count_candidates(low, high, digits):
    """The decimal numbers of so many digits between two positive rationals, both included."""
    found = set()
    exponent = len(str(high.numerator)) - len(str(high.denominator)) + 1
    for e in (exponent, exponent - 1, exponent - 2):
        unit = Fraction(10) ** (e - digits + 1)
        first, last = -(-low // unit), high // unit
        if first <= last < 10**digits and last - first < 10**4:
            found.update(n * unit for n in range(first, last + 1) if n >= 10 ** (digits - 1))
    return found


@pytest.mark.parametrize("name", SMALL_NAMES)
def test_small_floats_have_the_fewest_digits(name):
    """Every value: the text lies where the type rounds to the value, no shorter number does, and no nearer as short."""
    dtype = np.dtype(getattr(ml_dtypes, name))
    bits = np.dtype(f"u{dtype.itemsize}")
    largest = int(np.asarray(ml_dtypes.finfo(dtype).max, dtype).view(bits))
    values = np.arange(largest + 1, dtype=bits).view(dtype)
    rationals = [exact(v) for v in values]
    rationals.append(2 * rationals[-1] - rationals[-2])
    for i in range(1, largest + 1):
        low, high = (rationals[i - 1] + rationals[i]) / 2, (rationals[i] + rationals[i + 1]) / 2
        text = str(hl.asarray(np.asarray(values[i])))
        value, digits = decimal(text)
        even = i % 2 == 0
        assert low <= value <= high and (even or value not in (low, high)), text
        shorter = count_candidates(low, high, digits - 1) if digits > 1 else set()
        assert shorter - (set() if even else {low, high}) == set(), text
        rivals = count_candidates(low, high, digits) - (set() if even else {low, high})
        assert all(abs(value - rationals[i]) <= abs(r - rationals[i]) for r in rivals), text


@pytest.mark.parametrize("name", SMALL_NAMES)
def test_small_floats_are_laid_out_like_float64(name):
    """Without exponents, the columns are those of the float64 numbers with the same digits."""
    dtype = np.dtype(getattr(ml_dtypes, name))
    rng = np.random.default_rng(3)
    for shape in [(1,), (5,), (100,), (1001,), (6, 7), (3, 2, 20)]:
        x = (rng.uniform(0.01, 7, shape) * rng.choice([1, -1], shape)).astype(dtype)
        x[rng.random(shape) < 0.1] = np.nan
        t = hl.asarray(x)
        decimals = np.array([float(str(hl.asarray(np.asarray(v)))) for v in x.ravel()]).reshape(shape)
        assert str(t) == str(decimals)
        with np.printoptions(threshold=sys.maxsize):
            long = np.array2string(decimals, separator=", ", prefix="tensor(", suffix=")")
        if x.size <= 1000:
            assert repr(t).startswith("tensor(" + long + ",") and repr(t).endswith(f"dtype={name})")


@pytest.mark.parametrize(
    "name, values, text",
    [
        ("bfloat16", [0.1, 2.5, -3], "[ 0.1  2.5 -3. ]"),
        ("bfloat16", [1, 99, np.inf, -np.inf], "[  1.  99.  inf -inf]"),
        ("bfloat16", [1, 100], "[1.e+00 1.e+02]"),
        ("bfloat16", [1, 2.0**120], "[1.00e+00 1.33e+36]"),
        ("float8_e4m3fn", [0.25, -8, np.nan], "[ 0.25 -8.     nan]"),
        ("float8_e4m3fn", [1, 448], "[1.0e+00 4.5e+02]"),
        ("float8_e5m2", [0, -0.0, 1.5, np.inf], "[ 0.  -0.   1.5  inf]"),
    ],
)
def test_small_floats_by_example(name, values, text):
    x = np.array(values).astype(getattr(ml_dtypes, name))
    assert str(hl.asarray(x)) == text
    joined = ", ".join(text[1:-1].split())
    assert "".join(repr(hl.asarray(x)).split()) == "".join(f"tensor([{joined}], dtype={name})".split())


def test_scalars():
    for name in NUMPY_NAMES:
        values = [0, 1] if name == "bool" else [0, 1, 7, 100]
        if name in FLOATS or name.startswith("c"):
            values += [-0.0, 0.1, 1e-5, 1234.5, 16777216, 1e15, 1e17, *SPECIAL]
        if name.startswith("c"):
            values += [1 + 2j, 2j, complex(0, -0.0), complex(-0.0, 1), complex(np.nan, np.inf), complex(1, -np.inf)]
        for value in values:
            with np.errstate(over="ignore"):
                x = np.array(value).astype(name)
            check(x)


def test_gradient_is_named():
    x = hl.tensor([1.0, 2.0], requires_grad=True)
    assert repr(x) == "tensor([1., 2.], requires_grad=True)"
    assert str(x) == "[1. 2.]"
    y = x + x
    assert repr(y).startswith("tensor([2., 4.], grad_fn=<") and repr(y).endswith(">)")
    wide = hl.tensor(np.arange(9, dtype=np.float64) + 0.25, requires_grad=True)
    assert repr(wide) == numpy_repr(np.arange(9) + 0.25, "requires_grad=True")


def test_only_what_is_shown_is_read():
    shape = (10**6, 10**6)
    t, x = hl.broadcast_to(hl.asarray(np.array([1.5], np.float32)), shape), np.broadcast_to(np.float32(1.5), shape)
    assert str(t) == str(x)
    assert repr(t) == numpy_repr(x)


@pytest.mark.parametrize(
    "option, value, least", [("precision", -1, 0), ("threshold", -5, 0), ("edgeitems", 0, 1), ("linewidth", -1, 0)]
)
def test_wrong_options(option, value, least):
    with pytest.raises(ValueError, match=rf"set_printoptions\(\): {option} is {value}; write {least} or more"):
        hl.set_printoptions(**{option: value})
    check(np.array([1.0, 1 / 3]))


def test_options_change_while_threads_print():
    """A text is that of one set of options, never of a mixture."""
    x = hl.asarray(np.array([1 / 3, 2 / 3]))
    with options(precision=2):
        short = str(x)
    allowed, seen = {str(x), short}, set()
    stop = threading.Event()

    def printer():
        while not stop.is_set():
            seen.add(str(x))

    threads = [threading.Thread(target=printer) for _ in range(3)]
    for t in threads:
        t.start()
    for _ in range(300):
        hl.set_printoptions(precision=2)
        hl.set_printoptions(**DEFAULTS)
    stop.set()
    for t in threads:
        t.join()
    assert seen <= allowed
