"""Bad input: which class raises, what it carries, what it tells the user to write, and that nothing changes."""

import itertools
import operator
from collections.abc import Callable

import numpy as np
import pytest

import hyalite as hl

CLASSES = {
    "DtypeMismatch": TypeError,
    "DeviceMismatch": ValueError,
    "ShapeMismatch": ValueError,
    "VersionMismatch": RuntimeError,
    "OutOfMemory": MemoryError,
    "NotDeterministic": RuntimeError,
    "Unsupported": NotImplementedError,
}


def ones(*shape, dtype=None):
    return hl.ones(shape, dtype=dtype or hl.float32)


def dtype_text(value):
    """An attribute that is a dtype or its name, as the bare name."""
    return str(value).removeprefix("hyalite.").removeprefix("hl.")


# ---- classes ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", CLASSES)
def test_errors_belong_to_hyalite_and_to_python(name):
    error = getattr(hl, name)
    assert issubclass(error, hl.HyaliteError)
    assert issubclass(error, CLASSES[name])
    assert issubclass(hl.HyaliteError, Exception)
    assert error.__name__ == name
    for other in set(CLASSES) - {name}:
        assert not issubclass(error, getattr(hl, other))


# ---- dtypes -----------------------------------------------------------------------------------------------------


def test_engine_never_promotes():
    a, b = ones(3), ones(3, dtype=hl.float64)
    with pytest.raises(hl.DtypeMismatch) as caught:
        hl._C_engine.add(a, b)
    error = caught.value
    assert error.op == "add"
    assert dtype_text(error.left_dtype) == "float32"
    assert dtype_text(error.right_dtype) == "float64"
    text = str(error)
    assert "add()" in text and "float32" in text and "float64" in text
    assert "astype(hl.float32)" in text or "astype(hl.float64)" in text
    np.testing.assert_array_equal(hl._C_engine.add(a, a).numpy(), np.full(3, 2, np.float32))


@pytest.mark.parametrize(
    "left, right", itertools.permutations(["bool", "int8", "uint8", "float16", "float32", "complex64"], 2)
)
def test_engine_refuses_every_unequal_pair(left, right):
    a, b = ones(2, dtype=getattr(hl, left)), ones(2, dtype=getattr(hl, right))
    by_component = {left, right} == {"float32", "complex64"}  # the one unequal pair that arithmetic has kernels for
    for name in ("add", "multiply", "maximum"):
        if by_component and name != "maximum":
            assert getattr(hl._C_engine, name)(a, b).dtype == hl.complex64
            continue
        with pytest.raises(TypeError) as caught:
            getattr(hl._C_engine, name)(a, b)
        assert isinstance(caught.value, hl.HyaliteError)


def test_dtype_is_checked_before_the_shape():
    with pytest.raises(hl.DtypeMismatch):
        hl._C_engine.add(ones(2), ones(3, dtype=hl.float64))


@pytest.mark.parametrize("signed", ["int8", "int16", "int32", "int64"])
def test_uint64_with_a_signed_type_names_the_cast(signed):
    a, b = ones(2, dtype=hl.uint64), ones(2, dtype=getattr(hl, signed))
    for function in (operator.add, operator.floordiv, operator.and_, hl.maximum, hl.result_type):
        with pytest.raises(hl.DtypeMismatch, match=r"astype\(hl\.u?int64\)") as caught:
            function(a, b)
        assert {"uint64", signed} <= set(
            str(caught.value).replace("(", " ").replace(")", " ").replace(";", " ").split()
        )


def test_casts_in_place_go_only_to_what_promotion_gives():
    cases = [
        (ones(2, dtype=hl.int8), ones(2, dtype=hl.int64)),
        (ones(2), ones(2, dtype=hl.float64)),
        (ones(2, dtype=hl.int32), ones(2)),
        (ones(2, dtype=hl.int32), 1.5),
        (ones(2), 1j),
        (ones(2, dtype=hl.bool), 1),
        (ones(2, dtype=hl.uint8), ones(2, dtype=hl.int8)),
    ]
    for target, value in cases:
        for inplace in (operator.iadd, operator.imul):
            with pytest.raises(TypeError, match="astype|dtype"):
                inplace(target, value)
            assert target.tolist() == [1, 1]
    x = ones(2)
    x += ones(2, dtype=hl.int32)
    x += 3
    assert x.dtype == hl.float32 and x.tolist() == [5.0, 5.0]
    with pytest.raises(TypeError):
        integers = ones(2, dtype=hl.int32)
        integers /= 2


def test_assignment_casts_only_by_promotion():
    x = hl.zeros((4,), dtype=hl.float32)
    x[1:3] = hl.asarray([1, 2])
    x[3] = 5
    assert x.tolist() == [0.0, 1.0, 2.0, 5.0]
    n = hl.zeros((4,), dtype=hl.int32)
    for value in (1.5, hl.asarray([1.0]), np.float32(2)):
        with pytest.raises(TypeError, match="float"):
            n[1:3] = value
    with pytest.raises(OverflowError):
        n[0] = 2**40
    assert n.tolist() == [0, 0, 0, 0]


# ---- shapes -----------------------------------------------------------------------------------------------------


def test_shapes_that_do_not_broadcast():
    for left, right in (((2, 3), (4,)), ((2, 3), (3, 2)), ((2,), (3,)), ((0,), (2,)), ((5, 1, 3), (2, 4))):
        with pytest.raises(hl.ShapeMismatch) as caught:
            ones(*left) + ones(*right)
        error = caught.value
        assert error.op == "add"
        assert tuple(error.left_shape) == left and tuple(error.right_shape) == right
        assert str(left) in str(error) and str(right) in str(error) and "add()" in str(error)


@pytest.mark.parametrize("left, right", [((2, 3), (4, 5)), ((3,), (4,)), ((2, 2, 3), (3, 3, 2)), ((2, 3), (4,))])
def test_matmul_shapes(left, right):
    with pytest.raises(hl.ShapeMismatch) as caught:
        ones(*left) @ ones(*right)
    assert caught.value.op == "matmul"
    assert tuple(caught.value.left_shape) == left and tuple(caught.value.right_shape) == right


def test_matmul_refuses_zero_dimensions():
    for a, b in ((ones(), ones(3)), (ones(3), ones()), (ones(), ones())):
        with pytest.raises(ValueError):
            hl.matmul(a, b)


SHAPE_ERRORS: list[tuple[str, type | tuple, Callable]] = [
    ("reshape of another size", ValueError, lambda: hl.reshape(ones(2, 3), (4, 2))),
    ("reshape with two unknowns", ValueError, lambda: hl.reshape(ones(2, 3), (-1, -1))),
    ("reshape whose unknown does not divide", ValueError, lambda: hl.reshape(ones(2, 3), (4, -1))),
    ("reshape that would need a copy", ValueError, lambda: hl.reshape(ones(2, 3).T, (6,), copy=False)),
    ("concat of unequal sizes", ValueError, lambda: hl.concat([ones(2, 3), ones(2, 4)], axis=0)),
    ("concat of unequal ranks", ValueError, lambda: hl.concat([ones(2, 3), ones(2)], axis=0)),
    ("concat of nothing", ValueError, lambda: hl.concat([])),
    ("stack of unequal shapes", ValueError, lambda: hl.stack([ones(2), ones(3)])),
    ("stack of nothing", ValueError, lambda: hl.stack([])),
    ("broadcast to a smaller shape", ValueError, lambda: hl.broadcast_to(ones(2, 3), (3,))),
    ("broadcast of 2 to 3", ValueError, lambda: hl.broadcast_to(ones(2), (3,))),
    ("squeeze of a size above 1", ValueError, lambda: hl.squeeze(ones(2, 1), 0)),
    ("permute with a repeated axis", ValueError, lambda: hl.permute_dims(ones(2, 3), (0, 0))),
    ("permute with too few axes", ValueError, lambda: hl.permute_dims(ones(2, 3), (0,))),
    ("sum over a repeated axis", ValueError, lambda: hl.sum(ones(2, 3), axis=(1, -1))),
    ("sum over an axis out of range", (IndexError, ValueError), lambda: hl.sum(ones(2, 3), axis=2)),
    ("expand_dims out of range", (IndexError, ValueError), lambda: hl.expand_dims(ones(2), axis=3)),
    ("negative size", ValueError, lambda: hl.zeros((2, -1))),
    ("negative eye", ValueError, lambda: hl.eye(-2)),
    ("negative linspace", ValueError, lambda: hl.linspace(0, 1, -3)),
    ("max of an empty axis", ValueError, lambda: hl.max(hl.zeros((0, 4)), axis=0)),
    ("argmin of nothing", ValueError, lambda: hl.argmin(hl.zeros((0,)))),
    ("where of unequal shapes", ValueError, lambda: hl.where(hl.asarray([True, False]), ones(3), ones(3))),
    ("in-place result larger than the target", ValueError, lambda: operator.iadd(ones(2), ones(3, 2))),
    (".mT of one axis", ValueError, lambda: ones(3).mT),
    (".T of three axes", ValueError, lambda: ones(2, 3, 4).T),
]  # fmt: skip


@pytest.mark.parametrize("kind, attempt", [row[1:] for row in SHAPE_ERRORS], ids=[row[0] for row in SHAPE_ERRORS])
def test_wrong_shapes_and_axes(kind, attempt):
    with pytest.raises(kind) as caught:
        attempt()
    assert len(str(caught.value)) > 10


def test_shape_whose_product_overflows():
    for shape in ((2**40, 2**40), (2**32, 2**32), (2**62, 4), (2**21, 2**21, 2**22)):
        for make in (hl.zeros, hl.empty, lambda s: hl.full(s, 1.0), lambda s: hl.broadcast_to(ones(1), s)):
            with pytest.raises((ValueError, OverflowError, MemoryError)):
                make(shape)
    with pytest.raises((ValueError, OverflowError, MemoryError, TypeError)):
        hl.zeros((2**64,))


def test_a_terabyte_of_zeros_is_out_of_memory():
    for make in (hl.zeros, hl.empty, hl.ones):
        with pytest.raises(hl.OutOfMemory) as caught:
            make((2**38,), dtype=hl.float32)
        assert caught.value.requested_bytes >= 2**40
        assert 0 < caught.value.limit_bytes < caught.value.requested_bytes
    assert hl.zeros((3,)).tolist() == [0.0, 0.0, 0.0]


def test_an_operation_whose_result_does_not_fit_is_out_of_memory():
    column, row = hl.broadcast_to(ones(1, 1), (2**20, 1)), hl.broadcast_to(ones(1, 1), (1, 2**20))
    with pytest.raises(hl.OutOfMemory):
        column + row


# ---- indices ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("index", [3, -4, 100, -(2**40), 2**70])
def test_integer_index_out_of_range_names_value_axis_and_size(index):
    x = ones(3, 4)
    with pytest.raises(IndexError) as caught:
        x[index]
    if abs(index) < 2**63:
        assert str(index) in str(caught.value) and "3" in str(caught.value) and "axis 0" in str(caught.value)
    with pytest.raises(IndexError):
        x[:, 4]


@pytest.mark.parametrize("bad", [4, 3, -4, 2**40])
def test_take_out_of_range_names_value_axis_and_size(bad):
    x = hl.reshape(hl.arange(12), (3, 4))
    for n, position in ((1, 0), (5, 2), (67, 66)):
        indices = np.zeros(n, dtype=np.int64)
        indices[position] = bad
        with pytest.raises(IndexError) as caught:
            hl.take(x, hl.asarray(indices), axis=0)
        text = str(caught.value)
        assert str(bad) in text and "axis 0" in text and "3" in text.replace(str(bad), "", 1)
    with pytest.raises(IndexError, match="axis 1"):
        hl.take(x, hl.asarray([0, 4]), axis=1)


def test_negative_indices_in_range_count_from_the_end():
    x = hl.reshape(hl.arange(12), (3, 4))
    assert x[-1].tolist() == [8, 9, 10, 11]
    assert x[-3, -4].item() == 0
    assert hl.take(x, hl.asarray([-1, 0, -3]), axis=0).tolist() == [[8, 9, 10, 11], [0, 1, 2, 3], [0, 1, 2, 3]]


def test_indices_of_other_kinds():
    x = ones(3, 4)
    for index in (1.0, "a", (0, 0, 0), (..., ...)):
        with pytest.raises((IndexError, TypeError)):
            x[index]
    with pytest.raises(ValueError, match="step"):
        x[::0]
    with pytest.raises((TypeError, IndexError)):
        hl.take(x, hl.asarray([0.0, 1.0]), axis=0)
    with pytest.raises((TypeError, IndexError)):
        ones()[0]


def test_slices_clip_as_in_python():
    data = list(range(7))
    x = hl.asarray(data)
    bounds = [None, -100, -8, -7, -3, -1, 0, 2, 6, 7, 8, 100]
    for start, stop, step in itertools.product(bounds, bounds, [None, 1, 2, 3, 10, -1, -2, -3, -10]):
        assert x[start:stop:step].tolist() == data[start:stop:step], (start, stop, step)


# ---- what becomes a tensor --------------------------------------------------------------------------------------


@pytest.mark.parametrize("ragged", [[[1, 2], [3]], [1, [2]], [[1], 2], [[[1]], [[1, 2]]], [[], [1]]])
def test_ragged_lists(ragged):
    with pytest.raises(ValueError, match="ragged|shape|length|nested|size"):
        hl.asarray(ragged)


@pytest.mark.parametrize("thing", [
    np.array([1, "a"], dtype=object), np.array([object()]), object(), None, [None], "text", ["a"], {"a": 1}, {1, 2},
    np.array(["a"]), np.array(["2020-01-01"], dtype="datetime64[D]"), np.array([(1, 2)], dtype="i4,i4"), [1, "a"],
    lambda: 1,
], ids=lambda thing: type(thing).__name__)  # fmt: skip
def test_objects_that_are_not_numbers(thing):
    with pytest.raises(TypeError):
        hl.asarray(thing)


@pytest.mark.parametrize("value, dtype", [
    (300, "int8"), (-1, "uint8"), (2**63, "int64"), (-(2**63) - 1, "int64"), (2**64, "uint64"), (2**31, "int32"),
    (-(2**15) - 1, "int16"), (2**200, "uint32"), (-1, "uint64"),
])  # fmt: skip
def test_int_too_large_for_the_dtype(value, dtype):
    d = getattr(hl, dtype)
    for attempt in (
        lambda: hl.asarray(value, dtype=d),
        lambda: hl.asarray([0, value], dtype=d),
        lambda: hl.asarray([[0], [value]], dtype=d),
        lambda: hl.full((3,), value, dtype=d),
    ):
        with pytest.raises(OverflowError, match=dtype):
            attempt()


def test_int_too_large_for_the_default_dtype():
    for attempt in (lambda: hl.asarray(2**64), lambda: hl.asarray([1, 2**100]), lambda: hl.full((2,), 2**80)):
        with pytest.raises(OverflowError):
            attempt()


def test_a_float_into_an_int_dtype_raises():
    for value in (1.5, [1, 2.5], [[1.0]]):
        with pytest.raises((TypeError, ValueError), match="float"):
            hl.asarray(value, dtype=hl.int32)
    with pytest.raises((TypeError, ValueError)):
        hl.asarray([1j], dtype=hl.float32)
    with pytest.raises((TypeError, ValueError)):
        hl.full((2,), 1.5, dtype=hl.int64)


def test_mixed_lists_take_the_highest_kind():
    assert hl.asarray([True, 2, 0.5]).dtype == hl.float32
    assert hl.asarray([True, 2]).dtype == hl.int64
    assert hl.asarray([1, 2j]).dtype == hl.complex64
    assert hl.asarray([]).dtype == hl.float32 and hl.asarray([]).shape == (0,)
    assert hl.asarray([[], []]).shape == (2, 0)


def test_unknown_device():
    for device in ("quantum", "", "cpu:99", 7):
        with pytest.raises((ValueError, TypeError)):
            hl.asarray([1.0], device=device)
    with pytest.raises(ValueError, match="quantum"):
        hl.zeros((2,), device="quantum")
    with pytest.raises(ValueError, match="quantum"):
        hl.zeros((2,)).to_device("quantum")
    assert hl.zeros((2,), device="cpu").tolist() == [0.0, 0.0]


def test_unknown_dtype():
    for bad in ("float33", 7, object()):
        with pytest.raises((TypeError, ValueError)):
            hl.zeros((2,), dtype=bad)


def test_wrong_arguments():
    for attempt in (
        lambda: hl.add(ones(2)),
        lambda: hl.add(ones(2), "a"),
        lambda: ones(2) + "a",
        lambda: hl.exp(),
        lambda: hl.sum(ones(2), axis="x"),
        lambda: hl.softmax(ones(2), axis=1.5),
        lambda: hl.exp(ones(2), 3),
        lambda: ones(2) + None,
        lambda: hl.add(ones(2), ones(2), wrong=1),
    ):
        with pytest.raises(TypeError):
            attempt()


# ---- NaN to integers --------------------------------------------------------------------------------------------


def test_nan_to_int_with_check_names_the_element():
    data = np.ones(70, dtype=np.float32)
    data[41] = np.nan
    x = hl.asarray(data)
    with pytest.raises((ValueError, OverflowError)) as caught:
        x.astype(hl.int32, check=True)
    text = str(caught.value)
    assert "41" in text and "nan" in text.lower() and "int32" in text
    assert x.astype(hl.int32)[41].item() == 0


# ---- conversions to Python --------------------------------------------------------------------------------------


def test_python_conversions_are_for_zero_dimensions_only():
    for convert in (bool, int, float, complex):
        for x in (ones(2), ones(1), ones(1, 1), ones(0)):
            with pytest.raises(TypeError):
                convert(x)
    assert (bool(ones()), int(ones() * 3.7), float(ones()), complex(ones())) == (True, 3, 1.0, 1 + 0j)
    with pytest.raises(ValueError):
        int(hl.asarray(float("nan")))
    with pytest.raises(OverflowError):
        int(hl.asarray(float("inf")))
    with pytest.raises(TypeError):
        float(hl.asarray(1j))
    with pytest.raises(TypeError):
        operator.index(ones())
    assert operator.index(hl.asarray(7)) == 7 and [10, 20, 30][hl.asarray(1)] == 20
    with pytest.raises((TypeError, ValueError)):
        ones(2).item()


def test_equality_with_other_things_and_identity_hash():
    x = ones(3)
    for other in (None, "text", [1, 1, 1], (1, 1, 1), object()):
        assert (x == other) is False
        assert (x != other) is True
        assert hl.Tensor.__eq__(x, other) is NotImplemented
    assert {x: "value"}[x] == "value"
    assert hash(x) != hash(ones(3))


# ---- read-only memory -------------------------------------------------------------------------------------------


def test_read_only_buffers_are_read_but_never_written():
    locked = np.arange(4, dtype=np.float32)
    locked.flags.writeable = False
    raw = np.arange(4, dtype=np.float32).tobytes()
    for source in (locked, np.frombuffer(raw, dtype=np.float32), memoryview(raw).cast("f")):
        x = hl.asarray(source)
        assert x.tolist() == [0.0, 1.0, 2.0, 3.0]
        assert (x + 1).tolist() == [1.0, 2.0, 3.0, 4.0]
        for view in (x, x[1:], x[::-1], hl.reshape(x, (2, 2))):
            with pytest.raises((ValueError, RuntimeError, BufferError), match="read-?only"):
                view += 1
        assert x.numpy().flags.writeable is False
        assert x.tolist() == [0.0, 1.0, 2.0, 3.0]
        copy = hl.asarray(source, copy=True)
        copy += 1
        assert copy.tolist() == [1.0, 2.0, 3.0, 4.0]
    assert np.frombuffer(raw, dtype=np.float32).tolist() == [0.0, 1.0, 2.0, 3.0]


# ---- nothing half-written ---------------------------------------------------------------------------------------


def test_a_failed_in_place_operation_changes_neither_values_nor_version():
    exponents = hl.asarray([1] * 99 + [-1], dtype=hl.int32)
    attempts = [
        (ones(100, dtype=hl.int32) * 3, lambda x: operator.ipow(x, exponents)),
        (ones(100) * 3, lambda x: operator.iadd(x, ones(101))),
        (ones(100) * 3, lambda x: operator.iadd(x, ones(100, dtype=hl.float64))),
        (ones(100, dtype=hl.int8) * 3, lambda x: operator.iadd(x, 300)),
        (ones(100, dtype=hl.int8) * 3, lambda x: operator.ilshift(x, 2**10)),
        (ones(100, dtype=hl.int32) * 3, lambda x: operator.imul(x, 0.5)),
    ]
    for x, attempt in attempts:
        before, version, pointer = x.numpy().copy(), x.version, x.data_ptr()
        with pytest.raises(Exception) as caught:
            attempt(x)
        assert isinstance(caught.value, (TypeError, ValueError, OverflowError))
        np.testing.assert_array_equal(x.numpy(), before)
        assert x.version == version and x.data_ptr() == pointer


def test_a_failed_operation_leaves_the_engine_usable():
    for _ in range(3):
        with pytest.raises(hl.ShapeMismatch):
            ones(2) + ones(3)
        with pytest.raises(hl.DtypeMismatch):
            hl._C_engine.add(ones(2), ones(2, dtype=hl.int8))
        assert (ones(2) + ones(2)).tolist() == [2.0, 2.0]
