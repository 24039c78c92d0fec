"""The section "Integers" of the specification: wraps, zero divisors, MIN // -1, shifts, against Python integers."""

import operator
import random

import numpy as np
import pytest

import hyalite as hl

SIGNED = ["int8", "int16", "int32", "int64"]
UNSIGNED = ["uint8", "uint16", "uint32", "uint64"]
INTEGERS = SIGNED + UNSIGNED


def wrap(number, name):
    """The value of a Python integer in a dtype that wraps."""
    info = np.iinfo(name)
    return (number - int(info.min)) % 2**info.bits + int(info.min)


def floor_divide(a, b):
    return a // b if b else 0


def remainder(a, b):
    return a % b if b else 0


def left_shift_by(bits):
    return lambda a, b: a << b if 0 <= b < bits else 0


def right_shift_by(bits):
    return lambda a, b: a >> b if 0 <= b < bits else (-1 if a < 0 else 0)


BINARY = {
    "add": operator.add, "subtract": operator.sub, "multiply": operator.mul,
    "floor_divide": floor_divide, "remainder": remainder, "maximum": max, "minimum": min,
    "bitwise_and": operator.and_, "bitwise_or": operator.or_, "bitwise_xor": operator.xor,
}  # fmt: skip
OPERATORS = {
    "add": operator.add, "subtract": operator.sub, "multiply": operator.mul, "floor_divide": operator.floordiv,
    "remainder": operator.mod, "bitwise_and": operator.and_, "bitwise_or": operator.or_, "bitwise_xor": operator.xor,
    "bitwise_left_shift": operator.lshift, "bitwise_right_shift": operator.rshift,
}  # fmt: skip


def python_function(name, dtype):
    bits = np.iinfo(dtype).bits
    shifts = {"bitwise_left_shift": left_shift_by(bits), "bitwise_right_shift": right_shift_by(bits)}
    return BINARY.get(name) or shifts[name]


FUNCTIONS = [*BINARY, "bitwise_left_shift", "bitwise_right_shift"]


def probes(name):
    """Values of a dtype around its limits and around powers of two, and random ones."""
    info, rng = np.iinfo(name), random.Random(name)
    low, high = int(info.min), int(info.max)
    numbers = [
        low,
        low + 1,
        low + 2,
        -3,
        -2,
        -1,
        0,
        1,
        2,
        3,
        5,
        7,
        info.bits - 1,
        info.bits,
        info.bits + 1,
        high - 1,
        high,
    ]
    numbers += [wrap(s * (2**p + d), name) for p in (7, 24, 31, 32, 53) for d in (-1, 0, 1) for s in (-1, 1)]
    numbers += [wrap(rng.getrandbits(64) >> rng.randrange(60), name) for _ in range(30)]
    return np.array([n for n in numbers if low <= n <= high], dtype=name)


def check(function, a, b, name, wanted):
    got = function(a, b)
    assert got.dtype == getattr(hl, name)
    np.testing.assert_array_equal(got.numpy(), np.array(wanted, dtype=name).reshape(got.shape))


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("name", ["int8", "uint8"])
def test_all_pairs_of_8_bit_integers(function, name):
    info = np.iinfo(name)
    numbers = list(range(int(info.min), int(info.max) + 1))
    python = python_function(function, name)
    want = [wrap(python(a, b), name) for a in numbers for b in numbers]
    x = hl.asarray(np.array(numbers, dtype=name))
    a, b = np.meshgrid(np.array(numbers, dtype=name), np.array(numbers, dtype=name), indexing="ij")
    check(getattr(hl, function), x[:, None], x[None, :], name, want)
    check(getattr(hl, function), hl.asarray(a.ravel()), hl.asarray(b.ravel()), name, want)
    if function in OPERATORS:
        check(OPERATORS[function], x[:, None], x[None, :], name, want)


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("name", INTEGERS)
def test_special_pairs_of_every_width(function, name):
    numbers = probes(name)
    python = python_function(function, name)
    want = [[wrap(python(int(a), int(b)), name) for b in numbers] for a in numbers]
    x = hl.asarray(numbers)
    check(getattr(hl, function), x[:, None], x[None, :], name, want)
    flipped = hl.asarray(numbers[::-1].copy())[::-1]
    check(getattr(hl, function), x[:, None], flipped[None, :], name, want)
    for j in range(0, len(numbers), 7):  # a scalar operand on either side, as 0-d tensor and as Python int
        column = [row[j] for row in want]
        check(getattr(hl, function), x, x[j], name, column)
        check(getattr(hl, function), x, int(numbers[j]), name, column)
        check(getattr(hl, function), x[j], x, name, want[j])
        check(getattr(hl, function), int(numbers[j]), x, name, want[j])


@pytest.mark.parametrize("name", INTEGERS)
def test_division_by_zero_is_zero_and_never_a_signal(name):
    info = np.iinfo(name)
    for n in (*range(1, 20), 31, 32, 33, 64, 65, 127, 1000):
        data = np.resize(np.array([info.min, 5, info.max, 0, 1], dtype=name), n)
        x, zeros, expected = hl.asarray(data), hl.zeros((n,), dtype=getattr(hl, name)), [0] * n
        wide = hl.asarray(np.repeat(data, 3))[::3]
        for left in (x, wide):
            for right in (zeros, hl.zeros((), dtype=getattr(hl, name)), 0):
                assert (left // right).tolist() == expected
                assert (left % right).tolist() == expected
                quotient, rest = hl.divmod(left, right)
                assert quotient.tolist() == rest.tolist() == expected


@pytest.mark.parametrize("name", SIGNED)
def test_minimum_by_minus_one_wraps_in_body_tail_scalar_and_stride(name):
    low = int(np.iinfo(name).min)
    for n in (*range(1, 20), 31, 33, 64, 67):
        for position in {0, n // 2, n - 1}:
            data = np.full(n, 7, dtype=name)
            data[position] = low
            want = [-7] * n
            want[position] = low
            for x in (hl.asarray(data), hl.asarray(np.repeat(data, 2))[::2], hl.asarray(data[::-1].copy())[::-1]):
                for divisor in (-1, hl.full((n,), -1, dtype=x.dtype), hl.asarray(-1, dtype=x.dtype)):
                    assert (x // divisor).tolist() == want
                    assert (x % divisor).tolist() == [0] * n


@pytest.mark.parametrize("name", INTEGERS)
def test_divmod_agrees_with_floor_divide_and_remainder(name):
    x = hl.asarray(probes(name))
    a, b = x[:, None], x[None, :]
    for quotient, rest in (hl.divmod(a, b), divmod(a, b)):
        np.testing.assert_array_equal(quotient.numpy(), (a // b).numpy())
        np.testing.assert_array_equal(rest.numpy(), (a % b).numpy())
        assert quotient.dtype == rest.dtype == x.dtype


@pytest.mark.parametrize("name", INTEGERS)
def test_unary_operations_wrap(name):
    numbers = [int(v) for v in probes(name)]
    x = hl.asarray(np.array(numbers, dtype=name))
    rows = {
        "negative": lambda v: -v, "abs": abs, "square": lambda v: v * v, "bitwise_invert": lambda v: ~v,
        "sign": lambda v: (v > 0) - (v < 0),
        "round": int, "floor": int, "ceil": int, "trunc": int,
    }  # fmt: skip
    for function, python in rows.items():
        for view, values in ((x, numbers), (x[::-1], numbers[::-1]), (x[::3], numbers[::3])):
            got = getattr(hl, function)(view)
            assert got.dtype == x.dtype
            assert got.tolist() == [wrap(python(v), name) for v in values], function
    assert (-x).tolist() == [wrap(-v, name) for v in numbers]
    assert abs(x).tolist() == [wrap(abs(v), name) for v in numbers]
    assert (~x).tolist() == [wrap(~v, name) for v in numbers]


@pytest.mark.parametrize("name", SIGNED)
def test_abs_of_the_minimum_is_the_minimum(name):
    low = int(np.iinfo(name).min)
    for n in (1, 3, 16, 33):
        assert hl.abs(hl.full((n,), low, dtype=getattr(hl, name))).tolist() == [low] * n


@pytest.mark.parametrize("name", INTEGERS)
def test_pow_with_non_negative_exponents_wraps(name):
    bases = probes(name)
    exponents = np.array([0, 1, 2, 3, 5, 8, 31, 63, 64, 100], dtype=name)
    bits = np.iinfo(name).bits
    want = [[wrap(pow(int(a), int(e), 2**bits), name) for e in exponents] for a in bases]
    x, e = hl.asarray(bases), hl.asarray(exponents)
    check(hl.pow, x[:, None], e[None, :], name, want)
    check(operator.pow, x[:, None], e[None, :], name, want)
    for j, exponent in enumerate(exponents):
        check(operator.pow, x, int(exponent), name, [row[j] for row in want])


@pytest.mark.parametrize("name", SIGNED)
def test_negative_integer_exponent_raises_before_anything_is_written(name):
    x = hl.asarray(np.array([2, 3, 4, 5], dtype=name))
    exponents = hl.asarray(np.array([1, 2, 3, -1], dtype=name))
    for attempt in (lambda: x**exponents, lambda: x**-1, lambda: hl.pow(x, exponents), lambda: 2 ** (-x)):
        with pytest.raises(ValueError, match="negative"):
            attempt()
    with pytest.raises(ValueError, match="negative"):
        operator.ipow(x, exponents)
    assert x.tolist() == [2, 3, 4, 5]


@pytest.mark.parametrize("name", INTEGERS)
def test_shift_by_the_width_or_more_or_by_a_negative_amount(name):
    info = np.iinfo(name)
    low, high, bits = int(info.min), int(info.max), info.bits
    amounts = [bits, bits + 1, 100, high] + ([-1, -5, low] if name in SIGNED else [])
    values = [low, low + 1, 0, 1, high]
    for n in (1, 4, 17, 67):
        x = hl.asarray(np.resize(np.array(values, dtype=name), n))
        numbers = [int(v) for v in x.numpy()]
        for amount in amounts:
            by = hl.full((n,), amount, dtype=x.dtype)
            sign = [-1 if v < 0 else 0 for v in numbers]
            assert (x << by).tolist() == [0] * n
            assert (x >> by).tolist() == sign
            assert (x << amount).tolist() == [0] * n
            assert (x >> amount).tolist() == sign


@pytest.mark.parametrize("name", INTEGERS)
def test_scalar_shift_must_fit_the_dtype(name):
    x = hl.asarray(np.array([1, 2, 3], dtype=name))
    for amount in (int(np.iinfo(name).max) + 1, int(np.iinfo(name).min) - 1):
        with pytest.raises(OverflowError):
            x << amount
        with pytest.raises(OverflowError):
            hl.bitwise_right_shift(x, amount)


@pytest.mark.parametrize("name", INTEGERS)
def test_in_place_operations_wrap_in_the_same_memory(name):
    numbers = probes(name)
    for function in (
        "add",
        "subtract",
        "multiply",
        "floor_divide",
        "remainder",
        "bitwise_and",
        "bitwise_or",
        "bitwise_xor",
        "bitwise_left_shift",
        "bitwise_right_shift",
    ):
        inplace = getattr(
            operator,
            {
                "add": "iadd",
                "subtract": "isub",
                "multiply": "imul",
                "floor_divide": "ifloordiv",
                "remainder": "imod",
                "bitwise_and": "iand",
                "bitwise_or": "ior",
                "bitwise_xor": "ixor",
                "bitwise_left_shift": "ilshift",
                "bitwise_right_shift": "irshift",
            }[function],
        )
        x, other = hl.asarray(numbers.copy()), hl.asarray(numbers[::-1].copy())
        pointer, original = x.data_ptr(), x
        want = [wrap(python_function(function, name)(int(a), int(b)), name) for a, b in zip(numbers, numbers[::-1])]
        x = inplace(x, other)
        assert x is original and x.data_ptr() == pointer
        assert x.tolist() == want


@pytest.mark.parametrize("name", INTEGERS)
def test_clip_with_an_integer_bound_outside_the_range_saturates(name):
    info = np.iinfo(name)
    x = hl.asarray(np.array([info.min, 0, 1, 50, info.max], dtype=name))
    assert hl.clip(x, -(2**70), 2**70).tolist() == x.tolist()
    assert hl.clip(x, -(2**70), 10).tolist() == [min(v, 10) for v in x.tolist()]
    assert hl.clip(x, 10, 2**70).tolist() == [max(v, 10) for v in x.tolist()]
    assert hl.clip(x, 2**70).tolist() == [int(info.max)] * 5
    assert hl.clip(x, None, -(2**70)).tolist() == [int(info.min)] * 5
    assert hl.clip(x, None, None).tolist() == x.tolist()
    assert hl.clip(x, 3, 3).tolist() == [3] * 5
    assert hl.clip(x, 0, 9).dtype == x.dtype


@pytest.mark.parametrize("name", INTEGERS)
def test_reductions_of_integers(name):
    info = np.iinfo(name)
    rng = np.random.default_rng(5)
    data = rng.integers(info.min, info.max, size=(7, 131), dtype=name, endpoint=True)
    data[3, 17], data[4, 99], data[5, 100] = info.max, info.min, info.max
    x, wide = hl.asarray(data), "int64" if name in SIGNED else "uint64"
    for axis in (None, 0, 1):
        np.testing.assert_array_equal(hl.max(x, axis=axis).numpy(), data.max(axis=axis))
        np.testing.assert_array_equal(hl.min(x, axis=axis).numpy(), data.min(axis=axis))
        np.testing.assert_array_equal(hl.argmax(x, axis=axis).numpy(), data.argmax(axis=axis))
        np.testing.assert_array_equal(hl.argmin(x, axis=axis).numpy(), data.argmin(axis=axis))
        np.testing.assert_array_equal(hl.any(x, axis=axis).numpy(), (data != 0).any(axis=axis))
        np.testing.assert_array_equal(hl.all(x, axis=axis).numpy(), (data != 0).all(axis=axis))
        exact = data.astype(object).sum(axis=axis)
        want = np.vectorize(lambda v: wrap(int(v), wide), otypes=[wide])(exact)
        np.testing.assert_array_equal(hl.sum(x, axis=axis).numpy(), want)
    assert hl.max(x).dtype == x.dtype
    product = 1
    for v in data[0]:
        product *= int(v) | 1
    odd = hl.bitwise_or(x[0], 1)
    assert hl.prod(odd).item() == wrap(product, wide)


def test_bitwise_operations_of_bool():
    a, b = hl.asarray([False, False, True, True] * 9), hl.asarray([False, True, False, True] * 9)
    assert (a & b).tolist() == [False, False, False, True] * 9
    assert (a | b).tolist() == [False, True, True, True] * 9
    assert (a ^ b).tolist() == [False, True, True, False] * 9
    assert (~a).tolist() == [True, True, False, False] * 9
    assert hl.logical_not(a).tolist() == [True, True, False, False] * 9
    for result in (a & b, ~a, hl.logical_xor(a, b)):
        assert result.dtype == hl.bool


def test_bitwise_operations_refuse_floats():
    x = hl.asarray([1.0, 2.0])
    for attempt in (lambda: x & x, lambda: ~x, lambda: x << 1, lambda: hl.bitwise_xor(x, x)):
        with pytest.raises(TypeError):
            attempt()


@pytest.mark.parametrize("name", INTEGERS)
def test_arange_of_integers_is_exact(name):
    info = np.iinfo(name)
    d = getattr(hl, name)
    assert hl.arange(5, 100, 7, dtype=d).tolist() == list(range(5, 100, 7))
    assert hl.arange(100, 5, -7, dtype=d).tolist() == list(range(100, 5, -7))
    assert hl.arange(5, 5, dtype=d).tolist() == hl.arange(6, 5, dtype=d).tolist() == []
    top = int(info.max)
    assert hl.arange(top - 3, top, dtype=d).tolist() == [top - 3, top - 2, top - 1]


def test_arange_of_large_integers_does_not_pass_through_floats():
    start = 2**53 + 1
    assert hl.arange(start, start + 5, 2).tolist() == [start, start + 2, start + 4]
    assert hl.arange(-(2**62) - 3, -(2**62), 1).tolist() == [-(2**62) - 3, -(2**62) - 2, -(2**62) - 1]
