"""Reductions against the scalar reference of docs/reduction.md, bit for bit: layouts, lengths, threads, sets."""

import itertools
import os
import subprocess
import sys
import zlib

import ml_dtypes
import numpy as np
import pytest
from isa_worker import sets
from reduction_oracle import reduce_oracle

import hyalite as hl

FOLDS = ["sum", "prod", "mean"]
EXTREMES = ["max", "min", "argmax", "argmin"]
OPS = FOLDS + EXTREMES + ["any", "all"]
INTEGERS = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
FLOATS = ["float16", "bfloat16", "float32", "float64"]
COMPLEX = ["complex64", "complex128"]
DTYPES = ["bool", *INTEGERS, *FLOATS, *COMPLEX]
LENGTHS = [1, 2, 3, 7, 8, 15, 16, 17, 31, 33, 63, 64, 65, 127, 1023, 1024, 1025, 1040, 2049, 3073, 5000]


def np_dtype(name):
    return np.dtype(getattr(ml_dtypes, name, None) or name)


def ops_of(name):
    return [op for op in OPS if not (name in COMPLEX and op in EXTREMES)]


def draw(name, shape, special=False):
    rng = np.random.default_rng(zlib.crc32(f"{name}{shape}{special}".encode()))
    dtype, n = np_dtype(name), int(np.prod(shape))
    if name == "bool":
        x = rng.random(n) < 0.9
    elif name in INTEGERS:
        x = rng.integers(np.iinfo(dtype).min, np.iinfo(dtype).max, n, dtype=dtype, endpoint=True)
    elif name in COMPLEX:
        x = (rng.standard_normal(n) + 1j * rng.standard_normal(n)).astype(dtype)
    else:
        x = (rng.standard_normal(n) * np.exp2(rng.integers(-3, 4, n))).astype(dtype)
    if special and n and name in FLOATS + COMPLEX:
        for i in rng.integers(0, n, 3):
            x[i] = rng.choice([np.nan, -np.nan, np.inf, -np.inf, 0.0, -0.0])
    return x.reshape(shape)


def layouts(x):
    """The same values in row-major, column-major, reversed and strided memory."""
    yield x
    yield np.asfortranarray(x)
    yield np.flip(np.flip(x).copy())
    wide = np.zeros([3 * s + 2 for s in x.shape], x.dtype)
    view = wide[tuple(slice(1, 1 + 3 * s, 3) for s in x.shape)]
    view[...] = x
    yield view


def assert_bits(got, want):
    got = np.asarray(got)
    assert got.dtype == want.dtype and got.shape == want.shape
    assert got.tobytes() == want.tobytes(), f"{got.ravel()[:4]} is not {want.ravel()[:4]}"


@pytest.mark.parametrize("special", [False, True])
@pytest.mark.parametrize("name", DTYPES)
def test_one_sequence(name, special):
    for n in LENGTHS:
        x = draw(name, (n,), special)
        for op in ops_of(name):
            want = reduce_oracle(op, x)
            for y in layouts(x):
                assert_bits(getattr(hl, op)(hl.asarray(y)), want)


@pytest.mark.parametrize(
    "shape", [(3, 5), (40, 3), (3, 40), (70, 70), (1100, 3), (3, 1100), (1, 7), (130, 65), (70, 1024)]
)
@pytest.mark.parametrize("name", ["float32", "float64", "bfloat16", "int16", "complex64", "bool"])
def test_matrices(name, shape):
    x = draw(name, shape, special=True)
    ops = ops_of(name) if x.size < 5000 else [op for op in ("sum", "max", "argmin", "all") if op in ops_of(name)]
    for op, axis in itertools.product(ops, (0, 1, None)):
        want = reduce_oracle(op, x, axis, keepdims=True)
        for y in layouts(x):
            assert_bits(getattr(hl, op)(hl.asarray(y), axis=axis, keepdims=True), want)


@pytest.mark.parametrize("shape", [(4, 5, 6), (70, 2, 3), (5, 64, 16), (65, 32, 32)])
@pytest.mark.parametrize("axis", [0, 1, 2, (0, 1), (0, 2), (1, 2), None])
def test_three_axes_in_any_memory_order(shape, axis):
    x = draw("float32", shape)
    want = reduce_oracle("sum", x, axis)
    for order in itertools.permutations(range(3)):
        y = x.transpose(order).copy().transpose(np.argsort(order))
        assert_bits(hl.sum(hl.asarray(y), axis=axis), want)


@pytest.mark.parametrize("name", ["float32", "int8", "float16"])
@pytest.mark.parametrize("axis", [0, 1, None])
def test_broadcast_axes(name, axis):
    x = np.broadcast_to(draw(name, (40, 1)), (40, 50))
    for op in OPS:
        assert_bits(getattr(hl, op)(hl.asarray(x), axis=axis), reduce_oracle(op, x, axis))


@pytest.mark.parametrize("order", ["C", "F"])
def test_the_number_of_threads_changes_nothing(order):
    for shape in [(1024, 1024), (1000, 1001), (300000, 3), (3, 300000), (64, 128, 128)]:
        x = hl.asarray(np.array(draw("float32", shape), order=order))
        for axis in (None, 0, len(shape) - 1):
            results = []
            for n in (1, 2, 5):
                with hl.set_num_threads(n):
                    results.append(np.asarray(hl.sum(x, axis=axis)))
            assert results[0].tobytes() == results[1].tobytes() == results[2].tobytes()


CHILD = """
import sys, zlib
import hyalite as hl
import numpy as np
from test_reductions import DTYPES, draw, layouts, ops_of
crc = 0
for name in DTYPES:
    for shape in [(1,), (17,), (5000,), (40, 3), (3, 70), (130, 65)]:
        x = draw(name, shape, special=True)
        for op in ops_of(name):
            for y in layouts(x):
                for axis in (0, None):
                    crc = zlib.crc32(np.asarray(getattr(hl, op)(hl.asarray(y), axis=axis)).tobytes(), crc)
print(crc)
"""


def test_every_instruction_set_gives_the_same_bits():
    sums = {}
    for isa in sets():
        environment = {
            **os.environ,
            "HYALITE_ISA": isa,
            "PYTHONPATH": os.pathsep.join([os.path.dirname(__file__), *sys.path]),
        }
        run = subprocess.run(
            [sys.executable, "-c", CHILD], env=environment, capture_output=True, text=True, check=False
        )
        assert run.returncode == 0, run.stderr
        sums[isa] = run.stdout
    assert sums and len(set(sums.values())) == 1, sums


# ---- rules --------------------------------------------------------------------------------------------------------


def test_empty_sequences():
    x = hl.asarray(np.zeros((3, 0), np.float32))
    assert_bits(hl.sum(x, axis=1), np.zeros(3, np.float32))
    assert_bits(hl.prod(x, axis=1), np.ones(3, np.float32))
    assert np.isnan(np.asarray(hl.mean(x, axis=1))).all()
    assert_bits(hl.any(x, axis=1), np.zeros(3, bool))
    assert_bits(hl.all(x, axis=1), np.ones(3, bool))
    assert hl.max(x, axis=0).shape == (0,)
    for op in EXTREMES:
        with pytest.raises(ValueError, match=op):
            getattr(hl, op)(x, axis=1)


def test_no_axis_reduces_nothing():
    x = draw("float32", (3, 5))
    for op in ("sum", "max", "mean"):
        assert_bits(getattr(hl, op)(hl.asarray(x), axis=()), x)


def test_signed_zeros():
    for zeros in ([0.0, -0.0], [-0.0, 0.0]):
        x = hl.asarray(np.array(zeros, np.float32))
        assert not np.signbit(np.asarray(hl.max(x))) and np.signbit(np.asarray(hl.min(x)))
        assert int(hl.argmax(x)) == int(hl.argmin(x)) == 0
    assert np.signbit(np.asarray(hl.sum(hl.asarray(np.array([-0.0, -0.0], np.float32)))))
    assert not np.signbit(np.asarray(hl.sum(hl.asarray(np.array([], np.float32)))))


@pytest.mark.parametrize("name", FLOATS)
def test_nan_in_each_lane(name):
    """cases.md, 24: NaN wins in max and min, and the first one is found."""
    for n in (3, 4, 5, 16, 17, 64, 100, 1025, 5000):
        for i in {*range(min(n, 34)), n // 2, n - 1}:
            x = np.ones(n, np_dtype(name))
            x[i] = -np.nan if i % 2 else np.nan
            t = hl.asarray(x)
            assert int(hl.argmax(t)) == int(hl.argmin(t)) == i
            for op in ("max", "min", "sum"):
                assert_bits(getattr(hl, op)(t), reduce_oracle(op, x))


@pytest.mark.parametrize(
    "name, quiet", [("float16", 0x7E00), ("bfloat16", 0x7FC0), ("float32", 0x7FC00000), ("float64", 0x7FF8 << 48)]
)
def test_nan_has_one_encoding(name, quiet):
    bits = np.dtype(f"u{np_dtype(name).itemsize}")
    for values in ([np.inf, -np.inf], [-np.nan], [1, -np.nan, np.nan], [np.nan, -np.nan]):
        t = hl.asarray(np.array(values).astype(np_dtype(name)))
        assert int(np.asarray(hl.sum(t)).view(bits)) == int(np.asarray(hl.mean(t)).view(bits)) == quiet


def test_small_integers_widen_and_wrap():
    assert_bits(hl.sum(hl.asarray(np.array([200, 100, 50], np.uint8))), np.array(350, np.uint64))
    assert_bits(hl.sum(hl.asarray(np.array([True, True, False]))), np.array(2, np.int64))
    x = np.array([127, 1], np.int8)
    assert_bits(hl.sum(hl.asarray(x), dtype=hl.int8), np.array(-128, np.int8))
    assert_bits(hl.sum(hl.asarray(np.array([2**63 - 1, 1]))), np.array(-(2**63)))


def test_dtype_casts_before_reducing():
    x = draw("float16", (3000,))
    assert_bits(hl.sum(hl.asarray(x), dtype=hl.float32), reduce_oracle("sum", x.astype(np.float32)))
    y = draw("float64", (3000,))
    assert_bits(hl.sum(hl.asarray(y), dtype=hl.float32), reduce_oracle("sum", y.astype(np.float32)))
    z = draw("int32", (3000,))
    assert_bits(hl.sum(hl.asarray(z), dtype=hl.float64), reduce_oracle("sum", z.astype(np.float64)))


@pytest.mark.parametrize("op", EXTREMES)
def test_complex_has_no_order(op):
    with pytest.raises(TypeError):
        getattr(hl, op)(hl.asarray(np.ones(3, np.complex64)))


# ---- bug reports (cases.md, A, 18 and 63) ---------------------------------------------------------------------------


def test_case_001_long_columns():
    column = np.concatenate([[2.0**24], np.ones(64)]).astype(np.float32)
    two = hl.asarray(np.stack([column, column], 1))
    assert np.asarray(hl.sum(two, axis=0)).tolist() == [16777280.0, 16777280.0]
    assert float(hl.sum(hl.asarray(column))) == 16777280.0
    ones = hl.asarray(np.broadcast_to(np.float32(1), (17000000, 2)))
    assert np.asarray(hl.mean(ones, axis=0)).tolist() == [1.0, 1.0]


def test_case_003_reshaped_sums():
    x = hl.asarray(np.broadcast_to(np.float32(2.0**-26), (2**25, 2)))
    assert float(hl.sum(hl.sum(x, axis=0))) == float(hl.sum(hl.sum(x, axis=1))) == float(hl.sum(x)) == 1.0


def test_case_004_constant_columns():
    x = hl.asarray(np.tile(np.array([100, -100], np.float32), (1000000, 1)))
    assert np.asarray(hl.mean(x, axis=0)).tolist() == [100.0, -100.0]


def test_case_006_and_007_float16_means():
    ones = hl.asarray(np.ones(65520, np.float16))
    assert float(hl.mean(ones)) == 1.0 and float(hl.sum(ones)) == np.inf
    x = hl.asarray(np.full((4350, 2), 256, np.float16))
    assert np.asarray(hl.mean(x, axis=0)).tolist() == [256.0, 256.0]


def test_case_063_past_two_to_the_31():
    x = hl.asarray(np.broadcast_to(np.int8(1), (2**31 + 8,)))
    assert int(hl.sum(x)) == 2147483656 and int(hl.argmax(x)) == 0
