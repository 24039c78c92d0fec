"""Tensors from rules: NumPy's scalars keep their dtype, what does not fit raises, recorded numbers keep their graph."""

import itertools
import math

import numpy as np
import pytest

import hyalite as hl

INTEGERS = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
FLOATS = ["float16", "float32", "float64"]


def scalar(name, value):
    """A NumPy scalar, a NumPy array and a tensor without dimensions, all of one dtype."""
    d = np.dtype(name)
    return [d.type(value), np.array(value, d), hl.asarray(np.array(value, d))]


# ---- W15: NumPy's scalars ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [*INTEGERS, *FLOATS, "bool", "complex64", "complex128"])
def test_w15_numpy_scalars_are_0d_arrays_of_their_dtype(name):
    weak = name in ("float64", "complex128")  # np.float64 is a Python float
    for number in scalar(name, 1)[1 if weak else 0 :]:
        d = getattr(hl, name)
        assert hl.full((2,), number).dtype is d and hl.full((2,), number).tolist() == [1, 1]
        assert name[:7] == "complex" or hl.full_like(hl.zeros(2), number).dtype is hl.float32
        assert hl.asarray([number]).dtype is d
        if name in INTEGERS:
            assert hl.arange(number).dtype is hl.arange(0, 5, number).dtype is hl.arange(number, 5).dtype is d
            assert hl.arange(0.5, 5, number).dtype is hl.float32
            assert hl.linspace(number, 5, 3).dtype is hl.float32
        elif name in FLOATS:
            assert hl.arange(number, 5).dtype is hl.linspace(number, 5, 3).dtype is hl.linspace(0, number, 3).dtype is d
        elif name[:7] == "complex":
            assert hl.linspace(number, 5, 3).dtype is d
            with pytest.raises(TypeError, match=r"arange\(\): start must be a real number, not complex"):
                hl.arange(number, 5)
    if weak and name == "float64":
        assert hl.full((2,), np.float64(1)).dtype is hl.arange(np.float64(3)).dtype is hl.float32


def test_w15_integers_beyond_doubles_keep_their_digits():
    for start in (2**53 + 1, 2**62 + 1, 2**63 - 3, -(2**63)):
        for first in (start, np.int64(start), hl.asarray(start)):
            assert hl.arange(first, start + 2).tolist() == [start, start + 1]
            assert hl.full((1,), first).tolist() == [start]
        assert hl.linspace(start, start + 2, 3, dtype=hl.int64).tolist() == [start, start + 1, start + 2]
    assert hl.arange(2**63, 2**63 + 2).tolist() == [2**63, 2**63 + 1]
    assert hl.arange(2**63, 2**63 + 2).dtype is hl.uint64
    assert hl.arange(2**64 - 1, 2**64 - 6, -2).tolist() == [2**64 - 1, 2**64 - 3, 2**64 - 5]
    assert hl.arange(2**63, 2**63 + 2**42, 2**41, dtype=hl.float32).tolist() == [2.0**63, 2.0**63 + 2.0**41]
    assert hl.arange(2**70, 2**70 + 2**60, 2**59, dtype=hl.float64).tolist() == [2.0**70, 2.0**70 + 2.0**59]
    assert hl.full((2,), 2**63).dtype is hl.uint64 and hl.full((1,), 2**70, dtype=hl.float32).tolist() == [2.0**70]


@pytest.mark.parametrize("name", INTEGERS)
def test_w15_arange_holds_what_its_dtype_holds_or_raises(name):
    d = getattr(hl, name)
    low, high = hl.iinfo(d).min, hl.iinfo(d).max
    span = high - low
    for start, stop, step in [
        (high - 1, high + 1, 1), (high, high + 2, 1), (low, low + 3, 2), (low - 1, low + 1, 1), (0, 300, 50),
        (200, 300, 50), (high, high - 5, -2), (low + 1, low - 2, -1), (low, high + 1, max(1, span // 3)), (5, 5, 1),
        (0, 2 * high, high), (2**70, 2**70 + 2, 1), (2**70, 2**70, 1),
    ]:  # fmt: skip
        want = list(range(start, stop, step))
        if all(low <= v <= high for v in want):
            assert hl.arange(start, stop, step, dtype=d).tolist() == want
        else:
            with pytest.raises(OverflowError, match=rf"arange\(\): int -?\d+ does not fit {name}; write"):
                hl.arange(start, stop, step, dtype=d)
    assert hl.arange(0.0, 3.0, dtype=d).tolist() == [0, 1, 2]
    with pytest.raises(TypeError, match=rf"arange\(\): float 0.5 does not go into {name}; write"):
        hl.arange(0, 2, 0.5, dtype=d)


def test_w15_arange_counts_what_the_standard_counts():
    for start, stop, step in itertools.product(
        [0, 1.5, -3, 1e300], [0, 7, -7.25, -1e300], [1, -2, 0.5, 1e300, -1e-300]
    ):
        if abs(stop - start) / abs(step) > 100:
            continue
        count = max(0, math.ceil((stop - start) / step))
        assert hl.arange(start, stop, step, dtype=hl.float64).tolist() == [start + i * step for i in range(count)]
    assert hl.arange(0, 5, math.inf).tolist() == hl.arange(0, -5, math.inf).tolist() == []
    assert hl.arange(-1e308, 1e308, 1e308, dtype=hl.float64).size == 2


@pytest.mark.parametrize("name", INTEGERS)
def test_w15_full_and_linspace_hold_what_the_dtype_holds_or_raise(name):
    d = getattr(hl, name)
    info = hl.iinfo(d)
    for value in (info.min, info.max, info.min - 1, info.max + 1, 2**70, -(2**70)):
        fits = info.min <= value <= info.max
        forms = [value]
        forms += scalar("int64", value) if -(2**63) <= value < 2**63 else []
        for number in forms:
            attempts = [
                lambda v: hl.full((2,), v, dtype=d),
                lambda v: hl.full_like(hl.zeros(2, dtype=d), v),
                lambda v: hl.linspace(v, v, 2, dtype=d),
            ]
            for attempt in attempts:
                if fits:
                    assert attempt(number).tolist() == [value] * 2 and attempt(number).dtype is d
                else:
                    with pytest.raises(OverflowError, match=name):
                        attempt(number)
    assert hl.linspace(0, 10, 3, dtype=d).tolist() == [0, 5, 10]
    for bad in (
        lambda: hl.linspace(0, 10, 4, dtype=d),
        lambda: hl.linspace(0.5, 10, 3, dtype=d),
        lambda: hl.full(2, 1.5, dtype=d),
    ):
        with pytest.raises(TypeError, match=rf"does not go into {name}; write"):
            bad()


def test_f3_full_takes_numpy_scalars():
    x = hl.full((2,), np.float32(3))
    assert x.dtype is hl.float32 and x.tolist() == [3.0, 3.0]
    assert hl.full((2,), np.bool_(True)).dtype is hl.bool
    with pytest.raises(TypeError, match=r"full\(\): fill_value must be one number, not of shape \(2,\); write"):
        hl.full((2,), np.ones(2))


def test_f1_eye_has_diagonals_as_far_away_as_you_like():
    for k in (2**63, -(2**63), 2**200, -(2**200), 2**62, 7, -7):
        assert hl.eye(0, k=k).shape == (0, 0) and not hl.any(hl.eye(2, 3, k=k))
    for rows, columns, k in itertools.product(range(4), range(4), range(-5, 6)):
        assert hl.eye(rows, columns, k=k).tolist() == np.eye(rows, columns, k=k).tolist()


# ---- W14: the graph of a recorded number ------------------------------------------------------------------------

CREATIONS = {
    "full": (lambda a: hl.full((2, 3), a), 1, np.full((1, 6), 1.0)),
    "full_like": (lambda a: hl.full_like(hl.zeros((2, 3), dtype=hl.float64), a), 1, np.full((1, 6), 1.0)),
    "asarray": (lambda a: hl.asarray([a, 2.0, a]), 1, np.array([[1.0, 0.0, 1.0]])),
    "asarray of it": (lambda a: hl.asarray(a), 1, np.array([[1.0]])),
    "asarray cast": (lambda a: hl.asarray(a, dtype=hl.float32), 1, np.array([[1.0]])),
    "arange from": (lambda a: hl.arange(a, 5.0), 1, np.ones((1, 4))),
    "arange by": (lambda a, b: hl.arange(a, 5.0, b), 2, np.array([[1.0, 1.0], [0.0, 1.0]])),
    "linspace": (lambda a, b: hl.linspace(a, b, 5), 2, np.array([[1, 0.75, 0.5, 0.25, 0], [0, 0.25, 0.5, 0.75, 1]])),
    "linspace open": (lambda a, b: hl.linspace(a, b, 2, endpoint=False), 2, np.array([[1, 0.5], [0, 0.5]])),
    "linspace of one": (lambda a, b: hl.linspace(a, b, 1), 2, np.array([[1.0], [0.0]])),
}


@pytest.mark.parametrize("make, arity, slopes", CREATIONS.values(), ids=CREATIONS)
def test_w14_a_recorded_number_keeps_its_graph(make, arity, slopes):
    values = [1.3, 2.6][:arity]
    plain = make(*(hl.asarray(v, dtype=hl.float64) for v in values))
    leaves = [hl.tensor(v, dtype=hl.float64, requires_grad=True) for v in values]
    out = make(*leaves)
    assert not plain.requires_grad and out.requires_grad
    assert out.tolist() == plain.tolist() and out.dtype is plain.dtype and out.shape == plain.shape
    out[()] if out.ndim == 0 else out[0]
    weights = hl.asarray(np.arange(1.0, out.size + 1).reshape(out.shape))
    (out * weights).sum().backward()
    for leaf, row in zip(leaves, slopes, strict=True):
        got = 0.0 if leaf.grad is None else leaf.grad.item()
        assert got == float(row @ np.arange(1.0, out.size + 1))
    with hl.no_grad():
        assert make(*leaves).is_leaf


def test_w14_a_recorded_complex_end_keeps_its_graph():
    a = hl.tensor(1 + 2j, requires_grad=True)
    out = hl.linspace(a, 3 + 0j, 3)
    assert out.tolist() == [1 + 2j, 2 + 1j, 3 + 0j] and out.dtype is hl.complex64
    out.real.sum().backward()
    assert a.grad.item() == 1.5


def test_w14_results_can_be_written():
    a = hl.tensor(2.0, requires_grad=True)
    x = hl.full((3,), a)
    x[0] = 5.0
    (x * x).sum().backward()
    assert x.tolist() == [5.0, 2.0, 2.0] and a.grad.item() == 8.0


def test_w14_a_leaf_is_a_leaf():
    a = hl.tensor(2.0, requires_grad=True)
    leaf = hl.tensor(a * 3, requires_grad=True)
    assert leaf.is_leaf and leaf.requires_grad and leaf.item() == 6.0
