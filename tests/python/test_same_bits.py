"""The same bits of every elementwise op and reduction for any instruction set with FMA, thread count and layout."""

import numpy as np
import pytest
from isa_worker import Worker, sets
from op_oracle import (
    ELEMENTWISE,
    OPS,
    REDUCTIONS,
    accepted,
    bits,
    declared,
    operand_dtypes,
    random_bits,
    samples,
)
from test_casts import numpy_dtype

SETS = sets()
WITH_FMA = [isa for isa in SETS if isa != "x86-64-v2"]
LAYOUTS = ["contiguous", "sliced", "reversed", "fortran"]
# Elements of a large operand: enough bytes for two threads in every dtype that matters.
LARGE = (600, 500)


@pytest.fixture(scope="module")
def workers():
    started = {isa: Worker(isa) for isa in SETS}
    yield started
    for w in started.values():
        w.close()


def differing(got, want, any_nan):
    other = bits(got).ravel() != bits(want).ravel()
    if any_nan and got.dtype.kind in "fcV":
        parts = [
            x.view(x.real.dtype).ravel() if x.dtype.kind == "c" else x.ravel()
            for x in map(np.ascontiguousarray, (got, want))
        ]
        other &= ~(np.isnan(parts[0]) & np.isnan(parts[1]))
    return other


def same(got, want, any_nan):
    """The same bits; with `any_nan` one NaN is as good as another."""
    return all(
        g.dtype == w.dtype and g.shape == w.shape and not differing(g, w, any_nan).any() for g, w in zip(got, want)
    )


def difference(got, want, any_nan):
    for g, w in zip(got, want):
        other = differing(g, w, any_nan)
        if other.any():
            i = int(np.argmax(other))
            parts = [x.view(x.real.dtype) if x.dtype.kind == "c" else x for x in map(np.ascontiguousarray, (g, w))]
            return f"{int(other.sum())} differ, first at {i}: {parts[0].ravel()[i]!r} and {parts[1].ravel()[i]!r}"
    return "the dtypes differ"


def operands(op, name, shape, seed=0, finite=False):
    """Special and random values in the first rows, usual ones in the rest; integer powers of small exponents."""
    rng = np.random.default_rng(seed)
    count = int(np.prod(shape))
    arrays = []
    for kind in operand_dtypes(op, name):
        a = usual(kind, count, rng)
        head = min(count, 4096)
        if not finite:
            a[:head] = samples(kind, head, rng)
        arrays.append(a.reshape(shape))
    if op == "pow" and np.dtype(arrays[1].dtype).kind in "iu":
        arrays[1] = rng.integers(0, 20, shape).astype(name)
    return arrays


def usual(name, n, rng):
    kind = numpy_dtype(name)
    if name == "bool" or np.dtype(kind).kind in "iu":
        return random_bits(name, n, rng)
    if np.dtype(kind).kind == "c":
        return (rng.normal(size=n) + 1j * rng.normal(size=n)).astype(kind)
    return (rng.normal(size=n) * 3).astype(np.float32).astype(kind)


def exact(op):
    return OPS[op]["ulp"] == 0


def compared_sets(op, name):
    """x86-64-v2 has no fused multiply-add: the same bits are promised where a result is the exact one rounded once.

    There NaN counts as one value: of two NaN operands the encoding of its instructions decides which one survives.
    """
    simple = exact(op) and not (np.dtype(numpy_dtype(name)).kind == "c")
    return SETS if simple else WITH_FMA


def check(workers, op, name, arrays, layouts, threads, of="contiguous", **attributes):
    """All sets, thread counts and layouts against the best set's, contiguous, one thread; x86-64-v2 at least itself."""
    want = workers[SETS[-1]].call(op, arrays, of, **attributes)
    for isa in SETS:
        mine = want if isa in compared_sets(op, name) else workers[isa].call(op, arrays, of, **attributes)
        for layout in layouts:
            for count in threads:
                got = workers[isa].call(op, arrays, layout, count, **attributes)
                any_nan = isa not in WITH_FMA
                where = f"{op} {name}, {isa}, {layout}, {count} threads"
                assert same(got, mine, any_nan), f"{where}: {difference(got, mine, any_nan)}"


PAIRS = [(op, name) for op in ELEMENTWISE for name in declared(op)]


@pytest.mark.parametrize("op, name", PAIRS)
def test_small_operands_of_every_layout(workers, op, name):
    for seed, shape in enumerate([(1, 1), (1, 7), (3, 5), (2, 33), (3, 67), (5, 64)]):
        check(workers, op, name, operands(op, name, shape, seed), LAYOUTS, [1])


@pytest.mark.parametrize("op, name", PAIRS + [(op, name) for op in REDUCTIONS for name in declared(op)])
def test_every_length_from_1_to_70(workers, op, name):
    check(workers, op, name, operands(op, name, (75,), 8), ["tails"], [1], of="tails")


def large(workers, op, name):
    arrays = operands(op, name, LARGE, 4)
    check(workers, op, name, arrays, LAYOUTS, [1, 2])
    repeated = [np.repeat(a[:1], LARGE[0], axis=0) for a in arrays]
    check(workers, op, name, repeated, ["broadcast"], [1, 2])


# Of the other dtypes, too, an op of one operand and one of two: the blocks of a loop are as large as its elements.
OFTEN = [p for p in PAIRS if p[1] in ("float32", "float64") or p[0] in ("abs", "logical_not", "maximum", "equal")]


@pytest.mark.parametrize("op, name", OFTEN)
def test_large_operands_with_threads(workers, op, name):
    large(workers, op, name)


@pytest.mark.slow
@pytest.mark.parametrize("op, name", [p for p in PAIRS if p not in OFTEN])
def test_large_operands_of_the_other_dtypes(workers, op, name):
    large(workers, op, name)


# ---- reductions -------------------------------------------------------------------------------------------------

SMALL_SHAPES = [(1, 1), (1, 70), (70, 1), (3, 67), (33, 5), (2, 300)]


def reduced_axes(op):
    return [None, 0, 1]


@pytest.mark.parametrize("op, name", [(op, name) for op in REDUCTIONS for name in accepted(op)])
def test_reductions_of_small_operands(workers, op, name):
    for seed, shape in enumerate(SMALL_SHAPES):
        for finite in (False, True):
            arrays = operands(op, name, shape, seed, finite)
            for axis in reduced_axes(op):
                check(workers, op, name, arrays, LAYOUTS, [1], axis=axis)


def large_reduction(workers, op, name):
    arrays = operands(op, name, LARGE, 6, finite=True)
    if op == "prod" and arrays[0].dtype.kind not in "iub":
        arrays = [
            np.exp(a.astype(np.complex128 if a.dtype.kind == "c" else np.float64) / 300).astype(a.dtype) for a in arrays
        ]
    for axis in reduced_axes(op):
        check(workers, op, name, arrays, LAYOUTS, [1, 2], axis=axis)
        check(workers, op, name, [np.repeat(arrays[0][:1], LARGE[0], axis=0)], ["broadcast"], [1, 2], axis=axis)


@pytest.mark.parametrize(
    "op, name", [(op, name) for op in REDUCTIONS for name in ("float32", "float64", "float16") if name in declared(op)]
)
def test_reductions_of_large_operands_with_threads(workers, op, name):
    large_reduction(workers, op, name)


@pytest.mark.slow
@pytest.mark.parametrize(
    "op, name",
    [(op, name) for op in REDUCTIONS for name in declared(op) if name not in ("float32", "float64", "float16")],
)
def test_reductions_of_large_operands_of_the_other_dtypes(workers, op, name):
    large_reduction(workers, op, name)


def test_the_workers_run_what_they_are_asked_for(workers):
    """Otherwise all of the above would compare one instruction set with itself."""
    assert len(SETS) >= 1 and all(w.isa == isa for isa, w in workers.items())
    x = np.linspace(-3, 3, 1 << 16, dtype=np.float64)
    assert all(w.call("exp", [x])[0].shape == x.shape for w in workers.values())
