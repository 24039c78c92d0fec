"""Tensors beside objects of other libraries: operators either way round, and where those libraries take arrays."""

import copy
import decimal
import fractions
import operator

import dask.array as da
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from PIL import Image

import hyalite as hl

ARITHMETIC = ["add", "sub", "mul", "truediv", "floordiv", "mod", "pow"]
COMPARISONS = ["eq", "ne", "lt", "le", "gt", "ge"]
BITS = ["and_", "or_", "xor"]
LEFT, RIGHT = [1.0, 2.0, 4.0], [2.0, 2.0, 3.0]

# What makes the object of a list, and whether its class answers operators when it stands left of a tensor. Polars does
# not: it takes a tensor for a number and raises a TypeError of its own, which no operand can prevent.
MAKERS = {
    "ndarray": (np.array, True),
    "Series": (pd.Series, True),
    "Index": (pd.Index, True),
    "DataFrame": (lambda v: pd.DataFrame([v], columns=["a", "b", "c"]), True),
    "pandas array": (pd.array, True),
    "polars Series": (pl.Series, False),
    "PyArrow": (pa.array, True),
    "chunked": (lambda v: pa.chunked_array([v[:1], v[1:]]), True),
    "Dask": (lambda v: da.from_array(np.array(v), chunks=2), True),
    "masked": (np.ma.array, True),
    "memmap": (lambda v: np.array(v).view(np.memmap), True),
    "matrix": (np.matrix, True),
}
makers = pytest.mark.parametrize("maker", MAKERS)


def values(result):
    """The elements of any kind of result, flat."""
    assert not isinstance(result, bool), "an operator fell back to identity"
    return np.asarray(result).ravel().tolist()


def both_ways(maker):
    make, left_answers = MAKERS[maker]
    yield lambda f, other, x: f(x, other)
    if left_answers:
        yield lambda f, other, x: f(other, x)


@makers
@pytest.mark.parametrize("name", ARITHMETIC + COMPARISONS)
def test_w17_operators_are_right_either_way_round(maker, name):
    if maker == "matrix" and name in ("mul", "pow"):
        return test_w17_a_matrix_multiplies_as_one()
    make, left_answers = MAKERS[maker]
    f = getattr(operator, name)
    for a, b in ((LEFT, RIGHT), (RIGHT, LEFT)):
        want = f(np.array(a), np.array(b)).tolist()
        x, other = hl.tensor(a, dtype=hl.float64), make(b)
        assert values(f(x, other)) == want
        assert x.version == 0 and x.tolist() == a
        if left_answers:
            assert values(f(make(a), hl.tensor(b, dtype=hl.float64))) == want


def test_w17_a_matrix_multiplies_as_one():
    m = np.matrix([[1.0, 2.0], [3.0, 4.0]])
    x = hl.tensor([[0.0, 1.0], [1.0, 0.0]], dtype=hl.float64)
    assert np.asarray(m * x).tolist() == [[2.0, 1.0], [4.0, 3.0]]
    assert np.asarray(x * m).tolist() == [[3.0, 4.0], [1.0, 2.0]]


@makers
@pytest.mark.parametrize("name", BITS)
def test_w17_bits_are_right_either_way_round(maker, name):
    make, left_answers = MAKERS[maker]
    f = getattr(operator, name)
    a, b = [1, 2, 7], [3, 2, 4]
    want = f(np.array(a), np.array(b)).tolist()
    if maker == "DataFrame":
        return
    assert values(f(hl.asarray(a), make(b))) == want
    if left_answers:
        assert values(f(make(a), hl.asarray(b))) == want


@makers
def test_w17_matmul_is_right_either_way_round(maker):
    if maker in ("matrix", "DataFrame", "pandas array", "masked"):  # of other ranks, or without @ in NumPy too
        return
    make, _ = MAKERS[maker]
    assert values(hl.tensor(LEFT, dtype=hl.float64) @ make(RIGHT)) == [18.0]
    assert values(make(LEFT) @ hl.tensor(RIGHT, dtype=hl.float64)) == [18.0]


@makers
def test_w17_functions_and_in_place_operators_take_them_as_arrays(maker):
    make, _ = MAKERS[maker]
    x = hl.tensor(LEFT, dtype=hl.float64)
    other = make(RIGHT)
    added = hl.add(x, other)
    assert type(added) is hl.Tensor and values(added) == [3.0, 4.0, 7.0]
    assert values(hl.equal(other, x)) == [False, True, False]
    if maker in ("DataFrame", "matrix"):  # of two dimensions
        x = hl.reshape(x, (1, 3))
    y = x
    y += other
    assert y is x and x.version == 1 and values(x) == [3.0, 4.0, 7.0]
    assert values(hl.asarray(other)) == RIGHT
    with pytest.raises(hl.ShapeMismatch):
        y += make([1.0] * 3 + [2.0]) if maker != "DataFrame" else hl.ones(4)


def test_w17_results_keep_labels_masks_and_laziness():
    x = hl.tensor(LEFT, dtype=hl.float64)
    s = pd.Series(RIGHT, index=["p", "q", "r"])
    for result in (s + x, x + s, s == x, x < s):
        assert isinstance(result, pd.Series) and list(result.index) == ["p", "q", "r"]
    assert s[np.asarray(x > 1)].tolist() == [2.0, 3.0]
    masked = np.ma.array(RIGHT, mask=[False, True, False])
    for f in (operator.add, operator.mul, operator.eq, operator.lt):
        for result in (f(masked, x), f(x, masked)):
            assert isinstance(result, np.ma.MaskedArray) and result.mask.tolist() == [False, True, False]
    lazy = da.from_array(np.array(RIGHT), chunks=2)
    for result in (lazy + x, x + lazy, x == lazy, lazy @ x):
        assert isinstance(result, da.Array)
    frame = pd.DataFrame({"a": LEFT, "b": RIGHT})
    table = hl.tensor([[1.0, 2.0]] * 3, dtype=hl.float64)
    assert (frame == table).to_numpy().tolist() == (frame.to_numpy() == table.numpy()).tolist()
    assert (table - frame).equals(table.numpy() - frame)


@pytest.mark.parametrize("make", [pd.Series, np.ma.array, lambda v: da.from_array(np.array(v))])
def test_w17_what_requires_a_gradient_compares_but_does_not_lose_it(make):
    w, other = hl.tensor(LEFT, dtype=hl.float64, requires_grad=True), make(RIGHT)
    for f in (operator.eq, operator.ne, operator.lt, operator.ge):
        assert values(f(w, other)) == f(np.array(LEFT), np.array(RIGHT)).tolist()
        if make is not np.ma.array:  # which compares by itself when it stands left, and asks for the tensor as an array
            assert values(f(other, w)) == f(np.array(RIGHT), np.array(LEFT)).tolist()
    for f in (operator.add, operator.mul):
        for call in (lambda f=f: f(w, other), lambda f=f: f(other, w)):
            with pytest.raises(hl.AutogradError, match=r"requires a gradient.*x\.detach\(\)"):
                call()
    (hl.add(w, other) * 2).sum().backward()  # the function keeps it
    assert w.grad.tolist() == [2.0, 2.0, 2.0]


@pytest.mark.parametrize("f", [operator.eq, operator.ne, operator.lt, operator.add], ids=lambda f: f.__name__)
def test_w17_shapes_that_do_not_fit_raise(f):
    x = hl.tensor([1.0, 2.0])
    for other in (pd.Series(LEFT), np.array(LEFT), pa.array(LEFT), np.ma.array(LEFT), pl.Series(LEFT)):
        for call in (lambda o=other: f(x, o), lambda o=other: f(o, x)):
            with pytest.raises((ValueError, TypeError)):
                call()


def test_w17_nulls_and_texts():
    x = hl.tensor([1.0, 2.0], dtype=hl.float64)
    assert values(x == pa.array([1.0, None])) == [True, False]
    assert values(pl.Series([1.0, None]).to_numpy() == x) == [True, False]
    for other in (pa.array(["a", "b"]), pl.Series(["a", "b"]), np.array(["a", "b"]), np.array([object(), 1])):
        with pytest.raises(TypeError, match="no numbers|no tensor"):
            x == other  # noqa: B015 - it must not be False
    assert (pd.Series(["a", "b"]) == x).tolist() == [False, False]  # as pandas compares texts with numbers
    with pytest.raises(TypeError):
        x + "1"
    assert (x == "1") is False and (x == None) is False and (x == [1.0, 2.0]) is False  # noqa: E711


def test_w17_masked_elements_do_not_become_values():
    masked = np.ma.array([1.0, 2.0, 3.0], mask=[False, True, True])
    for call in (
        lambda: hl.asarray(masked),
        lambda: hl.tensor(masked),
        lambda: hl.asarray([masked, masked]),
        lambda: hl.add(hl.ones(3), masked),
        lambda: operator.iadd(hl.ones(3, dtype=hl.float64), masked),
    ):
        with pytest.raises(ValueError, match=r"2 of the array's elements are masked.*x\.filled\(value\)"):
            call()
    with pytest.raises(ValueError, match="1 of the array's elements is masked"):
        hl.asarray(np.ma.masked)
    free = np.ma.array([1.0, 2.0], mask=False)
    assert hl.asarray(free).tolist() == [1.0, 2.0] and hl.asarray(free).data_ptr() == free.ctypes.data
    assert hl.asarray(masked.filled(0.0)).tolist() == [1.0, 0.0, 0.0]


NUMBERS = [decimal.Decimal("0.5"), fractions.Fraction(1, 2)]


@pytest.mark.parametrize("number", NUMBERS, ids=lambda n: type(n).__name__)
@pytest.mark.parametrize("name", ARITHMETIC + COMPARISONS)
def test_w17_numbers_without_a_dtype_raise_and_are_never_just_unequal(number, name):
    f, x = getattr(operator, name), hl.tensor([0.5, 1.0])
    kind = type(number).__name__
    calls = [lambda: f(x, number), lambda: f(number, x)]
    if kind == "Fraction" and name == "pow":  # Fraction itself knows powers of floats
        assert calls.pop()().tolist() == (0.5**x).tolist()
    for call in calls:
        with pytest.raises(TypeError, match=rf"\(\): a {kind} has no dtype.*write float\(x\)"):
            call()
    if name in ARITHMETIC:
        with pytest.raises(TypeError, match="write float"):
            getattr(operator, "i" + name)(copy.copy(x), number)
    assert f(x, float(number)).shape == (2,)


def test_w17_objects_of_a_users_own_are_still_asked():
    class Mine:
        def __radd__(self, other):
            return "radd"

        def __eq__(self, other):
            return "eq"

        def __gt__(self, other):
            return "gt"

    x = hl.ones(2)
    assert x + Mine() == "radd" and (x == Mine()) == "eq" and (x < Mine()) == "gt"
    with pytest.raises(TypeError):
        x - Mine()
    with pytest.raises(TypeError):
        x += object()


class OnlyArray:
    """An object that gives an array when asked, and is nothing else."""

    def __init__(self, array):
        self.array = array

    def __array__(self, dtype=None, copy=None):
        if copy is False and self.array.dtype == object:
            raise ValueError("a copy is needed")
        return self.array


def test_w17_whatever_gives_an_array_is_an_operand():
    x, other = hl.tensor(LEFT, dtype=hl.float64), OnlyArray(np.array(RIGHT))
    for name in ARITHMETIC + COMPARISONS:
        f = getattr(operator, name)
        want = f(np.array(LEFT), np.array(RIGHT)).tolist()
        result = f(x, other)
        assert type(result) is hl.Tensor and result.tolist() == want
        assert f(OnlyArray(np.array(LEFT)), hl.tensor(RIGHT, dtype=hl.float64)).tolist() == want
    assert hl.asarray(OnlyArray(np.arange(3)), copy=False).tolist() == [0, 1, 2]
    assert hl.asarray(OnlyArray(hl.ones(2)))[0].item() == 1

    class Old:
        def __array__(self):
            return np.arange(3)

    assert hl.asarray(Old()).tolist() == [0, 1, 2]
    with pytest.raises(ValueError, match="__array__ of a 'Old' does not say whether it makes one; write copy=None"):
        hl.asarray(Old(), copy=False)
    with pytest.raises(TypeError):
        hl.ones(3) + np.ndarray  # a class is no array


# ---- tensors where others take arrays -------------------------------------------------------------------------------

ARROW = ["bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float32", "float64"]
LAYOUTS = {
    "dense": lambda x: x,
    "reversed": lambda x: x[::-1],
    "steps": lambda x: x[::3],
    "empty": lambda x: x[:0],
    "broadcast": lambda x: hl.broadcast_to(x[1:2], (5,)),
    "offset": lambda x: x[3:],
}


@pytest.mark.parametrize("name", ARROW)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_f8_columns_of_arrow_and_polars(name, layout):
    x = LAYOUTS[layout](hl.astype(hl.arange(19) % 3, getattr(hl, name)))
    want = x.tolist()
    column = pa.array(x)
    column.validate(full=True)
    assert column.to_pylist() == want and column.type == pa.from_numpy_dtype(x.numpy().dtype)
    assert pl.Series("s", x).to_list() == want and pl.Series(x).to_list() == want
    assert pl.DataFrame({"a": x, "b": x})["b"].to_list() == want
    assert pa.table({"a": x})["a"].to_pylist() == want
    assert pa.chunked_array([x, x]).to_pylist() == want * 2
    if layout == "dense" and name != "bool":
        assert column.buffers()[1].address == x.data_ptr()


def test_f8_more_axes_are_lists_of_fixed_size():
    x = hl.reshape(hl.arange(24, dtype=hl.int32), (2, 3, 4))
    column = pa.array(x)
    column.validate(full=True)
    assert column.to_pylist() == x.tolist() and column.type == pa.list_(pa.list_(pa.int32(), 4), 3)
    assert pl.Series(x).to_list() == x.tolist() and pl.Series(x).dtype == pl.Array(pl.Int32, (3, 4))
    assert pa.array(hl.permute_dims(x, (2, 0, 1))).to_pylist() == hl.permute_dims(x, (2, 0, 1)).tolist()
    assert pa.array(x > 5).to_pylist() == (x > 5).tolist()
    assert pa.array(hl.zeros((0, 3))).type == pa.list_(pa.float32(), 3)


def test_f8_the_type_that_arrow_asks_for():
    x = hl.tensor([1.0, 2.0, 300.0])
    assert pa.array(x, type=pa.float64()).type == pa.float64()
    assert pa.array(x, type=pa.int32()).to_pylist() == [1, 2, 300]
    with pytest.raises(ValueError, match="300"):
        pa.array(x, type=pa.int8())
    assert pa.field(x).type == pa.float32()


@pytest.mark.parametrize("x, message", [
    (hl.zeros(2, dtype=hl.complex64), r"Arrow has no complex64.*x\.real and x\.imag"),
    (hl.zeros(2, dtype=hl.bfloat16), r"Arrow has no bfloat16; write x\.astype\(hl\.float32\)"),
    (hl.asarray(1.0), r"a 0-d tensor is none; write hl\.reshape\(x, \(1,\)\)"),
    (hl.tensor([1.0], requires_grad=True), r"requires a gradient.*x\.detach\(\)"),
])  # fmt: skip
def test_f8_what_arrow_does_not_have(x, message):
    for call in (pa.array, pl.Series):
        with pytest.raises((TypeError, hl.AutogradError), match=message):
            call(x)


def test_f8_arrow_memory_lives_and_dies_with_its_column():
    before = hl.memory_stats()["allocated_bytes"]
    column = pa.array(hl.ones(100_000) * 3)
    assert column.to_pylist()[-1] == 3.0
    assert hl.memory_stats()["allocated_bytes"] - before >= 400_000
    piece = column[10:20]
    del column
    assert piece.to_pylist() == [3.0] * 10
    del piece
    nested = pa.array(hl.ones((100, 1000)))
    inner = nested.flatten()
    del nested
    assert inner.to_pylist()[:2] == [1.0, 1.0]
    del inner
    hl.ones(10).__arrow_c_array__()  # capsules that nobody takes free themselves
    assert hl.memory_stats()["allocated_bytes"] - before < 100_000


def test_f8_pandas_makes_columns_and_tables():
    x = hl.reshape(hl.arange(6.0), (2, 3)) + 0
    assert pd.Series(x[0]).tolist() == [0.0, 1.0, 2.0] and pd.Series(x[0]).dtype == np.float32
    assert pd.DataFrame(x).to_numpy().tolist() == x.tolist()
    assert pd.DataFrame({"a": x[0], "b": x[1] > 3})["b"].tolist() == [False, True, True]
    assert pd.Index(x[1]).tolist() == [3.0, 4.0, 5.0]
    frame = pd.DataFrame({"a": [1.0, 2.0, 3.0]})
    frame["b"] = x[1]
    assert frame["b"].tolist() == [3.0, 4.0, 5.0]
    assert hl.asarray(frame["b"]).tolist() == [3.0, 4.0, 5.0]
    assert pd.Series([1, 2]).astype(hl.float32.__numpy_dtype__).dtype == np.float32


def test_f8_dask_takes_tensors():
    x = hl.reshape(hl.arange(6.0), (2, 3)) + 0
    lazy = da.from_array(x, chunks=2)
    assert np.dtype(lazy.dtype) == np.float32 and lazy.chunks == ((2,), (2, 1))
    assert np.asarray(lazy.compute()).tolist() == x.tolist()
    assert np.asarray((lazy + 1)[1].compute()).tolist() == [4.0, 5.0, 6.0]
    assert np.asarray(lazy.T.compute()).tolist() == x.T.tolist()
    assert hl.asarray(da.from_array(x.numpy(), chunks=2).sum(axis=0)).tolist() == [3.0, 5.0, 7.0]


@pytest.mark.parametrize("name", ["uint8", "bool", "float32", "int32"])
@pytest.mark.parametrize("view", [
    lambda x: x, lambda x: x.T, lambda x: x[::-1, ::2], lambda x: hl.broadcast_to(x[:1], (5, 4)), lambda x: x[1:, 1:],
])  # fmt: skip
def test_f8_pillow_makes_images(name, view):
    x = view(hl.astype(hl.reshape(hl.arange(12) % 5, (3, 4)), getattr(hl, name)))
    image = Image.fromarray(x)
    assert image.size == x.shape[::-1] and np.asarray(image).tolist() == x.tolist()
    if name != "bool":  # whose bytes are 0 and 255 there
        assert hl.asarray(image).tolist() == x.tolist()


def test_f8_pillow_in_colour():
    x = hl.astype(hl.reshape(hl.arange(24), (2, 4, 3)), hl.uint8)
    assert np.asarray(Image.fromarray(x)).tolist() == x.tolist()
    assert hl.asarray(Image.fromarray(x)).tolist() == x.tolist()


@pytest.mark.parametrize(
    "dtype", [d for d in map(hl.__dict__.get, ARROW + ["float16", "complex64", "complex128"])], ids=str
)
def test_f8_the_array_interface_tells_the_truth(dtype):
    base = hl.astype(hl.reshape(hl.arange(12) % 2, (3, 4)), dtype)
    for x in (base, base.T, base[::-1, ::2], base[:0], base[1, 2], hl.broadcast_to(base[:1], (2, 4))):
        interface = x.__array_interface__

        class Holder:
            __array_interface__ = interface

        seen = np.asarray(Holder())
        assert seen.dtype == x.numpy().dtype and seen.tolist() == x.tolist()
        assert seen.size == 0 or seen.flags.writeable == x.numpy().flags.writeable
        assert x.tobytes() == np.ascontiguousarray(x.numpy()).tobytes()


def test_f8_without_an_array_interface_numpy_asks_on():
    for x in (hl.zeros(2, dtype=hl.bfloat16), hl.tensor([1.0], requires_grad=True)):
        assert not hasattr(x, "__array_interface__")
        with pytest.raises(AttributeError, match="write x"):
            x.__array_interface__  # noqa: B018
    assert np.asarray(hl.ones(2, dtype=hl.bfloat16)).dtype == "bfloat16"
    with pytest.raises(hl.AutogradError):
        np.asarray(hl.tensor([1.0], requires_grad=True))
    assert hl.ones(3, dtype=hl.bfloat16).tobytes() == b"\x80\x3f" * 3


@pytest.mark.parametrize("dtype", [getattr(hl, row[0]) for row in hl._C._dtype_table()], ids=str)
def test_f8_dtypes_are_numpys_too(dtype):
    assert np.dtype(dtype) == np.asarray(hl.zeros(1, dtype=dtype)).dtype
    assert np.zeros(2, dtype=dtype).dtype == np.dtype(dtype)


def test_f8_a_tensor_is_a_sequence():
    x = hl.reshape(hl.arange(6.0), (3, 2))
    assert operator.length_hint(x) == 3 and [row.tolist() for row in reversed(x)] == [
        [4.0, 5.0],
        [2.0, 3.0],
        [0.0, 1.0],
    ]
    assert x[1:].shape == (2, 2) and x.__getitem__(slice(1, 2)).shape == (1, 2) and x[-1].tolist() == [4.0, 5.0]
    assert len(x) == x.__len__() == 3 and not pd.api.types.is_scalar(x)
    assert list(zip(*x))[0][1].item() == 2.0
    with pytest.raises(IndexError):
        x[3]
    with pytest.raises(TypeError):
        len(hl.asarray(1.0))
