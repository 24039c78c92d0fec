"""Products in tiles: the same bits for any number of threads, and every edge of a tile in its place."""

import itertools

import numpy as np
import pytest

import hyalite as hl

FLOATING = ["float16", "bfloat16", "float32", "float64", "complex64", "complex128"]
INTEGER = ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"]
# Rows, inner, columns: one tile, edges of tiles on either axis, one row or column, sums in parts, nothing to add.
SIZES = [
    (1, 1, 1),
    (3, 5, 7),
    (64, 64, 64),
    (65, 33, 129),
    (128, 70, 130),
    (257, 40, 33),
    (515, 9, 257),
    (40, 17, 1100),
    (1100, 12, 40),
    (1, 300, 700),
    (700, 300, 1),
    (1, 700, 1),
    (1, 9000, 1),
    (1, 20000, 33),
    (33, 9001, 1),
    (20, 8192, 30),
    (5, 300000, 3),
    (4, 0, 3),
    (0, 4, 3),
    (4, 3, 0),
]
LAYOUTS = ["rows", "columns", "steps", "reversed"]


def whole_numbers(shape, dtype, seed):
    """Small enough for every sum to be exact in every dtype: what is wrong is wrong by a whole number."""
    rng = np.random.default_rng(seed)
    most = 1 if dtype in ("float16", "bfloat16") else 3
    x = rng.integers(0 if dtype.startswith("u") else -most, most + 1, shape)
    if dtype.startswith("complex"):
        x = x + 1j * rng.integers(-most, most + 1, shape)
    return x


def laid(values, dtype, layout):
    """The values as a tensor that lies in memory in another way."""
    t = getattr(hl, dtype)
    if layout == "rows":
        return hl.asarray(values).astype(t)
    if layout == "columns":
        return hl.asarray(np.ascontiguousarray(values.T)).astype(t).T
    if layout == "reversed":
        return hl.asarray(np.ascontiguousarray(values[::-1, ::-1])).astype(t)[::-1, ::-1]
    wide = np.zeros((2 * values.shape[0], 2 * values.shape[1]), values.dtype)
    wide[::2, ::2] = values
    return hl.asarray(wide).astype(t)[::2, ::2]


@pytest.mark.parametrize("dtype", FLOATING + INTEGER)
@pytest.mark.parametrize("size", SIZES, ids=lambda s: "x".join(map(str, s)))
def test_every_element_is_in_its_place(size, dtype):
    if dtype in INTEGER and size[1] > 10000:
        size = (size[0], 1000, size[2])
    rows, inner, cols = size
    a, b = whole_numbers((rows, inner), dtype, 1), whole_numbers((inner, cols), dtype, 2)
    exact = a @ b
    for left, right in (
        itertools.product(LAYOUTS, LAYOUTS) if rows * cols < 5000 else [("rows", "rows"), ("columns",) * 2]
    ):
        x, y = laid(a, dtype, left), laid(b, dtype, right)
        got = (x @ y).astype(hl.complex128 if dtype.startswith("complex") else hl.float64)
        want = hl.asarray(exact).astype(getattr(hl, dtype)).astype(got.dtype)
        assert np.array_equal(np.asarray(got), np.asarray(want)), (left, right)


@pytest.mark.parametrize("dtype", FLOATING)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_no_bit_depends_on_how_many_threads_there_are(dtype, layout):
    rng = np.random.default_rng(0)
    for rows, inner, cols in SIZES:
        a, b = rng.standard_normal((rows, inner)), rng.standard_normal((inner, cols))
        if dtype.startswith("complex"):
            a, b = a + 1j * a[::-1, ::-1], b - 1j * b[::-1, ::-1]
        x, y = laid(a, dtype, layout), laid(b, dtype, layout)
        seen = set()
        for threads in (1, 2, 3, 5):
            with hl.set_num_threads(threads):
                got = x @ y
            seen.add(np.asarray(got if dtype != "bfloat16" else got.astype(hl.float32)).tobytes())
        assert len(seen) == 1, (rows, inner, cols)


@pytest.mark.parametrize("dtype", FLOATING)
def test_a_batch_is_its_products_one_by_one(dtype):
    rng = np.random.default_rng(3)
    for lead_a, lead_b in [((5,), (5,)), ((3, 1), (4,)), ((2, 3), ()), ((), (4,)), ((40,), (40,))]:
        a, b = rng.standard_normal((*lead_a, 70, 30)), rng.standard_normal((*lead_b, 30, 140))
        x, y = (hl.asarray(v).astype(getattr(hl, dtype)) for v in (a, b))
        got = x @ y
        lead = np.broadcast_shapes(lead_a, lead_b)
        assert got.shape == (*lead, 70, 140)
        x, y = hl.broadcast_to(x, (*lead, 70, 30)), hl.broadcast_to(y, (*lead, 30, 140))
        for at in np.ndindex(*lead):
            one, among = x[at] @ y[at], got[at]
            assert hl.all(one == among).item(), at


def test_vectors_of_any_step():
    rng = np.random.default_rng(4)
    m, v = rng.standard_normal((300, 500)).astype(np.float32), rng.standard_normal(1000).astype(np.float32)
    for step in (1, 2, -1):
        for matrix in (m, np.ascontiguousarray(m.T).T):
            w = v[:500] if step == 1 else v[::2] if step == 2 else v[:500][::-1]
            got = hl.asarray(matrix) @ hl.asarray(v)[: 500 * abs(step)][::step]
            np.testing.assert_allclose(np.asarray(got), matrix @ w, rtol=2e-4, atol=2e-4)
            back = hl.asarray(v)[: 300 * abs(step)][::step] @ hl.asarray(matrix)
            u = v[:300] if step == 1 else v[:600:2] if step == 2 else v[:300][::-1]
            np.testing.assert_allclose(np.asarray(back), u @ matrix, rtol=2e-4, atol=2e-4)


@pytest.mark.parametrize("dtype", FLOATING)
def test_where_a_vector_lies_changes_no_bit(dtype):
    """Neither its address nor its step, as long as the matrix lies the same way."""
    t = getattr(hl, dtype)
    rng = np.random.default_rng(6)
    for rows, cols in [(1, 33), (7, 33), (40, 1), (40, 300)]:
        for order in ("rows", "columns"):
            m = laid(rng.standard_normal((rows, cols)), dtype, order)
            v, u = hl.asarray(rng.standard_normal(cols)).astype(t), hl.asarray(rng.standard_normal(rows)).astype(t)
            for first, step in itertools.product(range(4), (1, 2, 3, -1)):
                places = [hl.zeros(first + 3 * n, dtype=t)[first:][: abs(step) * n : abs(step)] for n in (cols, rows)]
                seen = [p[::-1] if step < 0 else p for p in places]
                seen[0][...], seen[1][...] = v, u
                assert hl.all(m @ v == m @ seen[0]).item() and hl.all(u @ m == seen[1] @ m).item(), (first, step)


def test_long_sums_are_no_worse_than_in_one_piece():
    """Parts of the sums are added in their order; each is exact to some ULP of itself."""
    rng = np.random.default_rng(5)
    v = rng.random(1 << 20).astype(np.float32)
    exact = float(v.astype(np.float64) @ v.astype(np.float64))
    assert abs((hl.asarray(v) @ hl.asarray(v)).item() - exact) / exact < 2e-6


def test_results_that_are_not_finite_come_through_parts_and_tiles():
    for rows, inner, cols in [(1, 9000, 1), (70, 20, 1), (1, 20, 200), (130, 10, 200), (20, 8192, 30)]:
        a, b = np.ones((rows, inner), np.float32), np.ones((inner, cols), np.float32)
        a[0, inner - 1] = np.inf
        a[rows - 1, 0] = np.nan
        b[inner - 1, cols - 1] = -1
        with np.errstate(invalid="ignore"):
            want = a.astype(np.float64) @ b.astype(np.float64)
        got = np.asarray(hl.asarray(a) @ hl.asarray(b))
        np.testing.assert_array_equal(np.isnan(got), np.isnan(want))
        np.testing.assert_array_equal(got[np.isinf(want)], want[np.isinf(want)])


def test_the_trace_says_into_what_a_product_was_cut():
    def cut(call):
        return next(s["facts"]["tiles"] for s in hl.explain(call, once=True).steps if "tiles" in s.get("facts", {}))

    x, v = hl.ones((512, 100)), hl.ones(1 << 20)
    assert cut(lambda: x @ x.T) == "8 of at most 64 x 512"
    assert cut(lambda: v @ v) == "1 of at most 1 x 1, sums in 64 parts"
