"""The section "Types and promotion" of the specification, line by line."""

import itertools
import operator

import ml_dtypes
import numpy as np
import pytest

import hyalite as hl

CODES = {
    "b": "bool", "i1": "int8", "i2": "int16", "i4": "int32", "i8": "int64",
    "u1": "uint8", "u2": "uint16", "u4": "uint32", "u8": "uint64",
    "h": "float16", "bf": "bfloat16", "f": "float32", "d": "float64", "c": "complex64", "z": "complex128",
}  # fmt: skip
# Written by hand from the prose: row with column, "--" where the two do not join.
TABLE = """
     b  i1 i2 i4 i8 u1 u2 u4 u8 h  bf f  d  c  z
b    b  i1 i2 i4 i8 u1 u2 u4 u8 h  bf f  d  c  z
i1   i1 i1 i2 i4 i8 i2 i4 i8 -- h  bf f  d  c  z
i2   i2 i2 i2 i4 i8 i2 i4 i8 -- h  bf f  d  c  z
i4   i4 i4 i4 i4 i8 i4 i4 i8 -- h  bf f  d  c  z
i8   i8 i8 i8 i8 i8 i8 i8 i8 -- h  bf f  d  c  z
u1   u1 i2 i2 i4 i8 u1 u2 u4 u8 h  bf f  d  c  z
u2   u2 i4 i4 i4 i8 u2 u2 u4 u8 h  bf f  d  c  z
u4   u4 i8 i8 i8 i8 u4 u4 u4 u8 h  bf f  d  c  z
u8   u8 -- -- -- -- u8 u8 u8 u8 h  bf f  d  c  z
h    h  h  h  h  h  h  h  h  h  h  f  f  d  c  z
bf   bf bf bf bf bf bf bf bf bf f  bf f  d  c  z
f    f  f  f  f  f  f  f  f  f  f  f  f  d  c  z
d    d  d  d  d  d  d  d  d  d  d  d  d  d  z  z
c    c  c  c  c  c  c  c  c  c  c  c  c  z  c  z
z    z  z  z  z  z  z  z  z  z  z  z  z  z  z  z
"""
HEADER, *ROWS = [line.split() for line in TABLE.strip().splitlines()]
JOIN = {(row[0], column): code for row in ROWS for column, code in zip(HEADER, row[1:])}
PAIRS = list(JOIN)
INTEGERS = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
FLOATS = ["float16", "bfloat16", "float32", "float64"]
EVERY = [*CODES.values(), "float8_e4m3fn", "float8_e5m2"]
COMPARISONS = {
    "equal": operator.eq, "not_equal": operator.ne, "less": operator.lt,
    "less_equal": operator.le, "greater": operator.gt, "greater_equal": operator.ge,
}  # fmt: skip


def dtype(code):
    return getattr(hl, CODES.get(code, code))


def numpy_dtype(name):
    return np.dtype(ml_dtypes.bfloat16) if name == "bfloat16" else np.dtype(name)


def tensor(values, name):
    return hl.asarray(np.array(values).astype(numpy_dtype(name)))


# ---- two dtypes -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("left, right", PAIRS)
def test_result_type_of_two_dtypes(left, right):
    want = JOIN[left, right]
    a, b = dtype(left), dtype(right)
    if want == "--":
        with pytest.raises(hl.DtypeMismatch, match="astype"):
            hl.result_type(a, b)
        return
    assert hl.result_type(a, b) == dtype(want)
    assert hl.result_type(hl.ones((2,), dtype=a), b) == dtype(want)
    assert hl.result_type(hl.ones((), dtype=a), hl.ones((3, 1), dtype=b)) == dtype(want)


@pytest.mark.parametrize("left, right", PAIRS)
def test_operators_promote_as_result_type_says(left, right):
    want = JOIN[left, right]
    a, b = hl.ones((3,), dtype=dtype(left)), hl.ones((3,), dtype=dtype(right))
    functions = [operator.mul, hl.add, hl.multiply]
    for function in functions:
        if want == "--":
            with pytest.raises(hl.DtypeMismatch, match="astype"):
                function(a, b)
        else:
            assert function(a, b).dtype == dtype(want)


@pytest.mark.parametrize("left, right", PAIRS)
def test_can_cast_is_that_the_result_type_is_the_target(left, right):
    assert hl.can_cast(dtype(left), dtype(right)) is (JOIN[left, right] == right)
    assert hl.can_cast(hl.ones((2,), dtype=dtype(left)), dtype(right)) is (JOIN[left, right] == right)


def test_other_operations_promote_too():
    a, b = hl.ones((2, 2), dtype=hl.int8), hl.ones((2, 2), dtype=hl.uint8)
    for function in (hl.maximum, hl.floor_divide, hl.bitwise_or, hl.matmul, hl.remainder, hl.pow):
        assert function(a, b).dtype == hl.int16
    assert hl.concat([a, b]).dtype == hl.int16
    assert hl.stack([a, hl.ones((2, 2), dtype=hl.float16)]).dtype == hl.float16
    assert hl.where(hl.asarray(True), a, hl.ones((), dtype=hl.float64)).dtype == hl.float64
    assert hl.matmul(hl.ones((2, 2), dtype=hl.float16), hl.ones((2, 2), dtype=hl.bfloat16)).dtype == hl.float32


# ---- several ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "codes, want",
    [
        ("u8 i8 f", "f"),  # the float decides, so the integers need not join
        ("u8 i8 h", "h"),
        ("i8 h bf", "f"),
        ("h bf c", "c"),
        ("b u1 i1", "i2"),
        ("u1 u4 i1", "i8"),
        ("d c i8", "z"),
        ("f c b", "c"),
        ("b b b", "b"),
        ("u2 i1 u1", "i4"),
        ("u8 i1 c", "c"),
        ("u8 i1 b", "--"),
        ("i2 u8 u1", "--"),
    ],
)
def test_result_type_of_several_does_not_depend_on_order(codes, want):
    for order in itertools.permutations([dtype(c) for c in codes.split()]):
        if want == "--":
            with pytest.raises(hl.DtypeMismatch):
                hl.result_type(*order)
        else:
            assert hl.result_type(*order) == dtype(want)


# ---- weak scalars -----------------------------------------------------------------------------------------------


def weak_join(code, scalar):
    """The dtype of tensor with Python scalar, by kinds."""
    name = CODES[code]
    kinds = ["bool", "int", "float", "complex"]
    kind = next(k for k, part in ((3, "complex"), (2, "float"), (1, "int"), (0, "bool")) if part in name)
    scalar_kind = kinds.index(type(scalar).__name__)
    if scalar_kind <= kind:
        return name
    if scalar_kind == 3 and kind == 2:
        return "complex128" if name == "float64" else "complex64"
    return ["bool", "int64", "float32", "complex64"][scalar_kind]


@pytest.mark.parametrize("code", CODES)
@pytest.mark.parametrize("scalar", [True, 1, 1.0, 1j])
def test_python_scalars_are_weak(code, scalar):
    want = getattr(hl, weak_join(code, scalar))
    x = hl.ones((3,), dtype=dtype(code))
    assert hl.result_type(x, scalar) == want
    assert hl.result_type(scalar, dtype(code)) == want
    for result in (x * scalar, scalar * x, hl.multiply(x, scalar), hl.multiply(scalar, x)):
        assert result.dtype == want
        assert result.shape == (3,)
    assert hl.where(hl.asarray([True, False, True]), x, scalar).dtype == want
    assert hl.where(hl.asarray([True, False, True]), scalar, x).dtype == want


def test_weak_scalars_take_part_last_among_several():
    assert hl.result_type(hl.int8, 1, hl.float16) == hl.float16
    assert hl.result_type(1.0, hl.int8, hl.float16) == hl.float16
    assert hl.result_type(1j, hl.int8, hl.float64) == hl.complex128
    assert hl.result_type(1, hl.bool, hl.uint8) == hl.uint8


@pytest.mark.parametrize("name", ["int8", "uint16", "float16", "bfloat16", "float32", "float64"])
def test_clip_scalars_are_weak(name):
    x = hl.ones((3,), dtype=getattr(hl, name))
    assert hl.clip(x, 0, 1).dtype == x.dtype


def test_scalar_value_is_converted_to_the_tensors_dtype_first():
    x = tensor([0.0], "float32")
    assert (x + 0.1).item() == float(np.float32(0.1))
    assert bool(tensor(0.1, "float32") == 0.1)
    assert (tensor([1.0], "float16") + 0.1).item() == float(np.float16(1) + np.float16(0.1))


def test_numpy_subclasses_of_python_numbers_are_weak_and_other_numpy_scalars_are_not():
    x = hl.ones((2,), dtype=hl.float16)
    assert (x * np.float64(2)).dtype == hl.float16
    assert (np.float64(2) * x).dtype == hl.float16
    assert (x * np.complex128(2)).dtype == hl.complex64
    assert (x * np.float32(2)).dtype == hl.float32
    assert (np.float32(2) * x).dtype == hl.float32
    assert (hl.ones((2,), dtype=hl.int8) + np.int64(1)).dtype == hl.int64
    assert (hl.ones((2,), dtype=hl.int8) + np.uint8(1)).dtype == hl.int16
    assert (hl.ones((2,), dtype=hl.bool) | np.bool_(True)).dtype == hl.bool
    assert hl.result_type(hl.int8, np.int16(1)) == hl.int16

    class Number(float):
        """A subclass of float."""

    assert (x * Number(3.0)).dtype == hl.float16
    assert (x * Number(3.0)).tolist() == [3.0, 3.0]


# ---- Python integers that do not fit ----------------------------------------------------------------------------


@pytest.mark.parametrize("name", INTEGERS)
@pytest.mark.parametrize(
    "function",
    ["add", "subtract", "multiply", "floor_divide", "remainder", "maximum", "bitwise_and", "bitwise_or", "bitwise_xor"],
)
def test_python_int_that_does_not_fit_raises_overflow_error(name, function):
    info = np.iinfo(name)
    x = tensor([1, 2, 3], name)
    call = getattr(hl, function)
    for number in (int(info.max) + 1, int(info.min) - 1, 2**70, -(2**70)):
        with pytest.raises(OverflowError, match=name):
            call(x, number)
        with pytest.raises(OverflowError, match=name):
            call(number, x)
    for number in (int(info.max), int(info.min)):
        call(x, number or 1)


@pytest.mark.parametrize("name", INTEGERS)
def test_operators_with_an_int_that_does_not_fit_raise_and_change_nothing(name):
    x = tensor([1, 2, 3], name)
    big = int(np.iinfo(name).max) + 1
    attempts = (
        lambda: x + big,
        lambda: big + x,
        lambda: x - big,
        lambda: x * big,
        lambda: x // big,
        lambda: x % big,
        lambda: x & big,
        lambda: big | x,
        lambda: x ^ big,
        lambda: x << big,
        lambda: operator.iadd(x, big),
    )
    for attempt in attempts:
        with pytest.raises(OverflowError):
            attempt()
    assert x.tolist() == [1, 2, 3]


@pytest.mark.parametrize("name", INTEGERS)
def test_comparison_with_an_int_that_does_not_fit_is_exact(name):
    info = np.iinfo(name)
    x = tensor([info.min, 0, info.max], name)
    for number in (int(info.max) + 1, int(info.min) - 1, 2**70, -(2**70), 2**2000):
        for function, python in COMPARISONS.items():
            want = [python(int(v), number) for v in (info.min, 0, info.max)]
            assert getattr(hl, function)(x, number).tolist() == want
            assert python(x, number).tolist() == want
            assert python(number, x).tolist() == [python(number, int(v)) for v in (info.min, 0, info.max)]


def test_python_float_outside_float32_becomes_infinity():
    x = hl.ones((3,), dtype=hl.float32)
    assert (x + 1e300).tolist() == [float("inf")] * 3
    assert (x * -1e39).tolist() == [float("-inf")] * 3
    assert (hl.ones((3,), dtype=hl.float64) * 1e300).tolist() == [1e300] * 3


# ---- comparisons ------------------------------------------------------------------------------------------------


def probes(name):
    if name in INTEGERS:
        info = np.iinfo(name)
        numbers = {int(info.min), int(info.min) + 1, -1, 0, 1, 2, 127, 128, 255, 256, int(info.max) - 1, int(info.max)}
        for power in (11, 24, 31, 32, 53, 62, 63):
            numbers |= {s * (2**power + d) for d in (-1, 0, 1) for s in (1, -1)}
        numbers = sorted(n for n in numbers if info.min <= n <= info.max)
        return np.array(numbers, dtype=name)
    values = [-np.inf, -0.0, 0.0, 0.5, -0.5, 1, 1.5, -1, 127, 128, 255, 256, np.inf, np.nan]
    values += [s * 2.0**p for p in (11, 15, 24, 31, 32, 53, 62, 63, 64) for s in (1, -1)]
    with np.errstate(over="ignore"):
        narrow = np.array(values).astype(numpy_dtype(name))
    return np.concatenate([narrow, np.nextafter(narrow, narrow.dtype.type(0))]) if name != "bfloat16" else narrow


def python_values(array):
    return array.astype(np.float64).tolist() if array.dtype.kind not in "iu" else array.tolist()


@pytest.mark.parametrize("left", INTEGERS)
@pytest.mark.parametrize("right", INTEGERS + FLOATS)
def test_comparisons_are_exact_by_value(left, right):
    a, b = probes(left), probes(right)
    x, y = hl.asarray(a)[:, None], hl.asarray(b)[None, :]
    for function, python in COMPARISONS.items():
        want = np.array([[python(p, q) for q in python_values(b)] for p in python_values(a)])
        got = getattr(hl, function)(x, y)
        assert got.dtype == hl.bool
        np.testing.assert_array_equal(got.numpy(), want)
        flipped = np.array([[python(q, p) for q in python_values(b)] for p in python_values(a)])
        np.testing.assert_array_equal(getattr(hl, function)(y, x).numpy(), flipped)


def test_comparison_is_the_same_in_vector_body_and_tail():
    for n in (1, 3, 8, 16, 33, 67):
        a = hl.full((n,), 2**53 + 1, dtype=hl.int64)
        b = hl.full((n,), 2.0**53, dtype=hl.float64)
        assert hl.equal(a, b).tolist() == [False] * n
        assert (a > b).tolist() == [True] * n
        u = hl.full((n,), 2**63, dtype=hl.uint64)
        assert (hl.full((n,), 2**63 - 1, dtype=hl.int64) < u).tolist() == [True] * n
        assert (hl.full((n,), -1, dtype=hl.int64) < u).tolist() == [True] * n


# ---- integers where a float comes out ---------------------------------------------------------------------------


@pytest.mark.parametrize("name", INTEGERS)
def test_int_by_int_is_float32_rounded_once(name):
    a, b = np.array([1, 2, 7, 100, 0, 5], dtype=name), np.array([3, 7, 11, 9, 5, 0], dtype=name)
    got = hl.asarray(a) / hl.asarray(b)
    assert got.dtype == hl.float32
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(got.numpy(), a.astype(np.float32) / b.astype(np.float32))
    assert (hl.asarray(a) / 2).dtype == hl.float32
    assert (1 / hl.asarray(a)).dtype == hl.float32


@pytest.mark.parametrize("name", INTEGERS)
def test_functions_of_integers_give_the_default_float(name):
    x = tensor([1, 4, 9], name)
    for function in (hl.sqrt, hl.exp, hl.mean, hl.log, hl.sin, hl.tanh, hl.expm1, hl.log1p, hl.cos):
        assert function(x).dtype == hl.float32
    assert hl.sqrt(x).tolist() == [1.0, 2.0, 3.0]
    assert hl.mean(x).item() == float(np.float32(14) / np.float32(3))


def test_large_integers_reach_float32_with_one_rounding():
    n = 2**60 + 2**36 + 1  # through float64 this becomes a tie and rounds down
    want = float(2**60 + 2**37)
    x = hl.asarray([n] * 9, dtype=hl.int64)
    assert (x / 1).tolist() == [want] * 9
    assert hl.mean(x[:1]).item() == want
    assert (x + hl.zeros((9,), dtype=hl.float32)).tolist() == [want] * 9


# ---- sums, products, matmul -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name, want",
    [
        ("bool", "int64"),
        ("int8", "int64"),
        ("int16", "int64"),
        ("int32", "int64"),
        ("int64", "int64"),
        ("uint8", "uint64"),
        ("uint16", "uint64"),
        ("uint32", "uint64"),
        ("uint64", "uint64"),
        ("float16", "float16"),
        ("bfloat16", "bfloat16"),
        ("float32", "float32"),
        ("float64", "float64"),
        ("complex64", "complex64"),
        ("complex128", "complex128"),
    ],
)
def test_dtype_of_sum_and_prod(name, want):
    x = hl.ones((3, 4), dtype=getattr(hl, name))
    for function in (hl.sum, hl.prod):
        assert function(x).dtype == getattr(hl, want)
        assert function(x, axis=0).dtype == getattr(hl, want)
    assert hl.sum(x, axis=1).tolist() == [4, 4, 4]
    assert hl.prod(x).item() == 1


def test_small_integers_do_not_wrap_in_sum_and_prod():
    assert hl.sum(tensor([200, 100, 50], "uint8")).item() == 350
    assert hl.sum(tensor([-100, -100], "int8")).item() == -200
    assert hl.prod(tensor([100, 100, 100], "int8")).item() == 1_000_000
    assert hl.sum(tensor([True, True, False], "bool")).item() == 2
    assert hl.sum(tensor([2**31 - 1] * 100, "int32")).item() == 100 * (2**31 - 1)


def test_dtype_argument_casts_before_summing():
    assert hl.sum(tensor([200, 100], "uint8"), dtype=hl.uint8).item() == 44
    assert hl.sum(tensor([1.9, 1.9], "float32"), dtype=hl.int64).item() == 2
    assert hl.prod(tensor([16, 16, 2], "int64"), dtype=hl.int8).item() == 0
    assert hl.sum(tensor([60000, 60000], "float16"), dtype=hl.float32).item() == 2 * float(np.float16(60000))
    for name in ("uint8", "float64", "int32"):
        assert hl.sum(hl.ones((3,), dtype=hl.int8), dtype=getattr(hl, name)).dtype == getattr(hl, name)


@pytest.mark.parametrize("name", INTEGERS)
def test_matmul_keeps_the_dtype_and_wraps(name):
    info = np.iinfo(name)
    a = np.array([[info.max, info.max, 3], [1, 2, info.min]], dtype=name)
    b = np.array([[2, 1], [3, info.max], [info.max, 5]], dtype=name)
    got = hl.asarray(a) @ hl.asarray(b)
    assert got.dtype == getattr(hl, name)
    width = info.bits
    exact = a.astype(object) @ b.astype(object)
    wrapped = [[(int(v) - int(info.min)) % 2**width + int(info.min) for v in row] for row in exact]
    assert got.tolist() == wrapped


# ---- bool -------------------------------------------------------------------------------------------------------


def test_bool_arithmetic_is_logic():
    a, b = hl.asarray([False, False, True, True] * 5), hl.asarray([False, True, False, True] * 5)
    for total in (a + b, hl.add(a, b)):
        assert total.dtype == hl.bool
        assert total.tolist() == [False, True, True, True] * 5
    for product in (a * b, hl.multiply(a, b)):
        assert product.dtype == hl.bool
        assert product.tolist() == [False, False, False, True] * 5


def test_bool_minus_raises():
    a = hl.asarray([True, False])
    for attempt in (lambda: a - a, lambda: hl.subtract(a, a), lambda: -a, lambda: hl.negative(a)):
        with pytest.raises(TypeError):
            attempt()


def test_bool_joins_numbers_as_zero_and_one():
    a = hl.asarray([True, False, True])
    assert (a + tensor([5, 5, 5], "uint8")).tolist() == [6, 5, 6]
    assert (a * tensor([2.5, 2.5, 2.5], "float32")).tolist() == [2.5, 0.0, 2.5]
    assert (a + 1).tolist() == [2, 1, 2]


# ---- dtypes as objects ------------------------------------------------------------------------------------------


def test_dtypes_are_hashable_and_pairwise_unequal():
    dtypes = [getattr(hl, name) for name in EVERY]
    assert len(set(dtypes)) == len(EVERY) == 17
    for a, b in itertools.product(dtypes, repeat=2):
        assert (a == b) is (a is b)
        assert (a != b) is (a is not b)
    for a in dtypes:
        assert a != None and not a == None  # noqa: E711
        assert hash(a) == hash(a)


def test_names_of_dtypes_are_readable():
    for name in EVERY:
        assert name in str(getattr(hl, name))


@pytest.mark.parametrize("name", EVERY)
def test_isdtype_kinds(name):
    d = getattr(hl, name)
    kinds = {
        "bool": name == "bool",
        "signed integer": name.startswith("int"),
        "unsigned integer": name.startswith("uint"),
        "integral": "int" in name,
        "real floating": name.startswith(("float", "bfloat")),
        "complex floating": name.startswith("complex"),
        "numeric": name != "bool",
    }
    for kind, want in kinds.items():
        assert hl.isdtype(d, kind) is want
    assert hl.isdtype(d, d) is True
    assert hl.isdtype(d, ("bool", "integral")) is (kinds["bool"] or kinds["integral"])
    assert hl.isdtype(d, (hl.float32, "complex floating")) is (name == "float32" or kinds["complex floating"])


@pytest.mark.parametrize("name", INTEGERS)
def test_iinfo(name):
    want = np.iinfo(name)
    for info in (hl.iinfo(getattr(hl, name)), hl.iinfo(hl.zeros((2,), dtype=getattr(hl, name)))):
        assert (info.bits, info.min, info.max) == (want.bits, want.min, want.max)
        assert type(info.min) is int and type(info.max) is int and type(info.bits) is int
        assert info.dtype == getattr(hl, name)


@pytest.mark.parametrize(
    "name, bits, eps, largest, normal",
    [
        ("float16", 16, 2.0**-10, 65504.0, 2.0**-14),
        ("bfloat16", 16, 2.0**-7, 255 * 2.0**120, 2.0**-126),
        ("float32", 32, 2.0**-23, (2 - 2.0**-23) * 2.0**127, 2.0**-126),
        ("float64", 64, 2.0**-52, float(np.finfo(np.float64).max), 2.0**-1022),
        ("float8_e4m3fn", 8, 2.0**-3, 448.0, 2.0**-6),
        ("float8_e5m2", 8, 2.0**-2, 57344.0, 2.0**-14),
        ("complex64", 32, 2.0**-23, (2 - 2.0**-23) * 2.0**127, 2.0**-126),
        ("complex128", 64, 2.0**-52, float(np.finfo(np.float64).max), 2.0**-1022),
    ],
)
def test_finfo(name, bits, eps, largest, normal):
    d = getattr(hl, name)
    for info in (hl.finfo(d), hl.finfo(hl.zeros((2,), dtype=d))):
        assert (info.bits, info.eps, info.max, info.min, info.smallest_normal) == (bits, eps, largest, -largest, normal)
        assert all(type(v) is float for v in (info.eps, info.max, info.min, info.smallest_normal))
        assert type(info.bits) is int
        assert info.dtype == {"complex64": hl.float32, "complex128": hl.float64}.get(name, d)


def test_defaults():
    assert hl.asarray([1.5]).dtype == hl.zeros((1,)).dtype == hl.ones((1,)).dtype == hl.float32
    assert hl.asarray([1]).dtype == hl.arange(3).dtype == hl.int64
    assert hl.asarray([1j]).dtype == hl.complex64
    assert hl.asarray([True]).dtype == hl.bool
    assert hl.arange(3.0).dtype == hl.linspace(0, 1, 3).dtype == hl.eye(2).dtype == hl.float32
    assert hl.argmax(hl.ones((3,))).dtype == hl.int64
    assert hl.full((1,), 7).dtype == hl.int64 and hl.full((1,), 7.0).dtype == hl.float32
    assert hl.full((1,), True).dtype == hl.bool


def test_namespace_info_lists_the_standards_thirteen():
    info = hl.__array_namespace_info__()
    defaults = info.default_dtypes()
    assert defaults["real floating"] == hl.float32 and defaults["complex floating"] == hl.complex64
    assert defaults["integral"] == hl.int64 and defaults["indexing"] == hl.int64
    standard = [n for n in CODES.values() if n not in ("float16", "bfloat16")]
    assert info.dtypes(device="cpu") == {n: getattr(hl, n) for n in standard}
    assert info.capabilities()["max dimensions"] == 64


def test_float8_is_for_storage_and_casts():
    x = hl.ones((3,), dtype=hl.float8_e4m3fn)
    assert x.astype(hl.float32).tolist() == [1.0] * 3
    for attempt in (lambda: x + x, lambda: x * 2.0, lambda: hl.exp(x), lambda: hl.matmul(x, x)):
        with pytest.raises((TypeError, NotImplementedError)):
            attempt()
