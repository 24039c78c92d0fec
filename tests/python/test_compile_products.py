"""Matrix products with what is computed of them, a tile at a time: the eager bits, in one kernel."""

import itertools

import numpy as np
import pytest

import hyalite as hl

FLOATING = ["float16", "bfloat16", "float32", "float64", "complex64", "complex128"]
SIZES = [
    (1, 1, 1),
    (5, 3, 2),
    (70, 9, 33),
    (300, 40, 200),
    (40, 12, 1200),
    (4, 0, 3),
    (20, 9000, 5),
    (1, 30, 400),
    (400, 30, 1),
]


def tensor(shape, dtype="float32", seed=0):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal(shape)
    if dtype.startswith("complex"):
        x = x + 1j * rng.standard_normal(shape)
    return hl.asarray(x).astype(getattr(hl, dtype))


def bits(value):
    if value is None:
        return None
    if isinstance(value, tuple | list):
        return [bits(v) for v in value]
    value = value.astype(hl.float32) if value.dtype == hl.bfloat16 else value
    return value.shape, np.asarray(value).tobytes()


def same_in_both_tiers(f, make, kernels=1):
    """The function on fresh arguments, eager and in each tier, with one and two threads: results and arguments."""
    args = make()
    want = [bits(f(*args)), bits(args)]
    for tier, threads in itertools.product((0, 1), (1, 2)):
        compiled = hl.compile(f, tier=tier)
        with hl.set_num_threads(threads):
            args = make()
            assert [bits(compiled(*args)), bits(args)] == want, (tier, threads)
        if kernels is not None:
            compiled.plan().assert_kernels(kernels)
    return compiled


@pytest.mark.parametrize("dtype", FLOATING)
@pytest.mark.parametrize("size", SIZES, ids=lambda s: "x".join(map(str, s)))
def test_a_product_and_what_follows_are_one_kernel(dtype, size):
    m, k, n = size

    def f(x, w, b):
        y = x @ w + b
        return y * y - 1.0

    same_in_both_tiers(f, lambda: (tensor((m, k), dtype, 1), tensor((k, n), dtype, 2), tensor((n,), dtype, 3)))


# How the operands of the product lie, and those of what follows.
LAYOUTS = {
    "transposed left": lambda x, w, b: (hl.asarray(x.T, copy=True).T, w, b),
    "transposed right": lambda x, w, b: (x, hl.asarray(w.T, copy=True).T, b),
    "steps": lambda x, w, b: (x[::2, ::3], w[: (x.shape[1] + 2) // 3], b[: (x.shape[0] + 1) // 2]),
    "reversed": lambda x, w, b: (x[::-1, ::-1], w[::-1, ::-1], b[::-1, ::-1]),
    "row": lambda x, w, b: (x, w, b[0]),
    "column": lambda x, w, b: (x, w, b[:, :1]),
    "one": lambda x, w, b: (x, w, b[:1, :1]),
    "columns": lambda x, w, b: (x, w, hl.asarray(b.T, copy=True).T),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_operands_may_lie_as_they_like(layout):
    def make():
        return LAYOUTS[layout](tensor((150, 60), seed=1), tensor((60, 130), seed=2), tensor((150, 130), seed=3))

    same_in_both_tiers(lambda x, w, b: hl.tanh(x @ w) * b, make)


@pytest.mark.parametrize(
    "lead", [((3,), (3,), (3,)), ((2, 1), (4,), (1, 1)), ((), (5,), (5,)), ((6,), (), ())], ids=str
)
def test_batches(lead):
    a, b, c = lead
    shapes = (*a, 70, 20), (*b, 20, 30), (*c, 70, 30)
    same_in_both_tiers(
        lambda x, w, r: hl.relu(x @ w - r), lambda: tuple(tensor(s, seed=i) for i, s in enumerate(shapes))
    )


def both(x, w):
    y = x @ w
    return y, hl.exp(-y * y)


def dtype_changes(x, w):
    return (x @ w).astype(hl.float64) + 1.0, (x @ w) > 0


def two_products(x, w):
    return hl.sigmoid(x @ w + (x * 2.0) @ w)


def chain(x, w):
    return hl.relu(hl.relu(x @ w) @ w.T) + 1.0


def used_elsewhere(x, w):
    y = x @ w
    return hl.sum(y * 2.0), (y + 1.0).T, hl.max(y, axis=0)


def through_views(x, w):
    y = (x @ w) * 2.0
    return y.T + 1.0, y[::2] - 1.0, y.reshape(-1) * 3.0


def where_and_numbers(x, w):
    y = x @ w
    return hl.where(y > 0, y, 0.1 * y)


def beside(x, w):
    """Elementwise calls of that shape that need no product, and one that needs both."""
    z = hl.exp(x[:, :1] * w[:1])
    return x @ w + z * z, z - 1.0


def beside_what_ends_there(x, w):
    """Memory that ends with this kernel, in which a result may stand: not the product, which is there first."""
    t = hl.take(w[: x.shape[0]], hl.asarray([1] * w.shape[1]), axis=1)
    y = x @ w[: x.shape[1]]
    return y * t, hl.max(y, axis=0)


FUNCTIONS = [
    beside_what_ends_there,
    both,
    dtype_changes,
    two_products,
    chain,
    used_elsewhere,
    through_views,
    where_and_numbers,
    beside,
]


@pytest.mark.parametrize("f", FUNCTIONS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("dtype", ["bfloat16", "float32", "float64"])
def test_whatever_is_done_with_it(f, dtype):
    same_in_both_tiers(f, lambda: (tensor((40, 40), dtype, 1), tensor((40, 140), dtype, 2)), kernels=None)


def test_two_products_of_one_shape_share_their_tiles():
    same_in_both_tiers(two_products, lambda: (tensor((90, 40)), tensor((40, 140))), kernels=2)  # x * 2 comes before


def update(w, x, g):
    w -= 0.1 * (x.T @ g)


def square_update(w, x, g):
    """The product reads all of what is written in place."""
    w += w @ w * 0.01


def overwritten(w, x, g):
    w[...] = hl.relu(w @ w)
    return w + 1.0


def momentum(w, x, g):
    v = w * 0.5
    v += x.T @ g
    w -= v * 0.1
    return v


def part_of_it(w, x, g):
    w[1:] -= (x.T @ g)[1:]


def twice(w, x, g):
    w += x.T @ g
    w += x.T @ (g * w[:1])


UPDATES = [update, square_update, overwritten, momentum, part_of_it, twice]


@pytest.mark.parametrize("f", UPDATES, ids=lambda f: f.__name__)
@pytest.mark.parametrize("n", [3, 80, 300])
def test_updates_in_place(f, n):
    same_in_both_tiers(
        f, lambda: (tensor((n, n), seed=1), tensor((50, n), seed=2), tensor((50, n), seed=3)), kernels=None
    )


def test_a_step_of_training_updates_in_the_product_s_kernel():
    f = same_in_both_tiers(update, lambda: (tensor((64, 200)), tensor((50, 64)), tensor((50, 200))))
    assert "matmul, multiply, subtract" in str(f.plan())


def test_what_is_no_tile_by_tile_work_is_a_kernel_of_its_own_and_says_why():
    f = hl.compile(lambda x, w: hl.sum(hl.relu(x @ w), axis=1))
    f(tensor((90, 40)), tensor((40, 140)))
    f.plan().assert_kernels(2)
    assert "it reduces what a product makes by tiles" in str(f.plan())
    f = hl.compile(lambda x, w: hl.relu(x + 1.0) @ w)
    f(tensor((90, 40)), tensor((40, 140)))
    f.plan().assert_kernels(2)
    # Integers are multiplied by loops of our own; a vector's product has no tiles.
    for x, w in [(hl.ones((4, 5), dtype=hl.int32), hl.ones((5, 6), dtype=hl.int32)), (hl.ones(5), hl.ones((5, 6)))]:
        f = hl.compile(lambda x, w: (x @ w) * 2)
        assert bits(f(x, w)) == bits((x @ w) * 2)
        f.plan().assert_kernels(2)


def test_gradients_of_a_layer():
    def f(w, b, x):
        def loss(w, b):
            return hl.mean(hl.relu(x @ w + b) ** 2)

        return hl.value_and_grad(loss, argnums=(0, 1))(w, b)

    same_in_both_tiers(
        f, lambda: (tensor((30, 90), seed=1), tensor((90,), seed=2), tensor((128, 30), seed=3)), kernels=None
    )


def test_a_trace_has_the_product_in_its_kernel():
    f = hl.compile(lambda x, w, b: hl.relu(x @ w + b))
    x, w, b = tensor((512, 64)), tensor((64, 512)), tensor((512,))
    f(x, w, b)
    (step,) = [s for s in hl.explain(lambda: f(x, w, b), once=True).steps if "product" in s.get("facts", {})]
    assert step["facts"]["product"] == "sgemm"
    assert step["facts"]["tiles"] == "8 of at most 64 x 512"
    assert step["facts"]["ops"] == "matmul, add, relu"
    assert "arithmetic" in step["facts"]


def test_nothing_is_allocated_for_the_product():
    f = hl.compile(lambda x, w, b: hl.relu(x @ w + b))
    f(tensor((512, 64)), tensor((64, 512)), tensor((512,)))
    assert "0 bytes between them" in str(f.plan())
