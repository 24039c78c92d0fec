"""Gradients: what is recorded, when it raises, views and in-place writes, and every rule against finite differences."""

import gc
import inspect
import itertools
import operator
import os
import weakref

import numpy as np
import pytest

import hyalite as hl

RNG = np.random.default_rng(2024)


@pytest.fixture(autouse=True)
def same_numbers_whatever_runs_before():
    RNG.bit_generator.state = np.random.default_rng(2024).bit_generator.state


def leaf(values, dtype=hl.float64):
    return hl.tensor(values, dtype=dtype, requires_grad=True)


def parents(node):
    """The nodes that a node's edges lead to."""
    found = []
    for edge in node.next_functions:
        parent = edge[0] if isinstance(edge, tuple) else edge
        if parent is not None:
            found.append(parent)
    return found


def count_nodes(node):
    """Nodes on all paths from a node; for a chain, its length."""
    return 1 + sum(count_nodes(parent) for parent in parents(node))


# ---- what is recorded -------------------------------------------------------------------------------------------


def test_leaves_and_results():
    x = leaf([1.0, 2.0])
    y = x * 3
    assert x.is_leaf and x.requires_grad and x.grad_fn is None and x.grad is None
    assert not y.is_leaf and y.requires_grad and y.grad_fn is not None
    plain = hl.asarray([1.0]) * 2
    assert plain.is_leaf and not plain.requires_grad and plain.grad_fn is None
    assert hl.asarray([1.0]).requires_grad_(True).requires_grad
    assert isinstance(y.grad_fn.name, str) and "multiply" in y.grad_fn.name.lower()
    assert count_nodes(y.grad_fn) >= 1


def test_names_of_nodes_follow_the_graph():
    x = leaf([1.0, 2.0])
    node = hl.sum(hl.exp(x) + 1).grad_fn
    assert "sum" in node.name.lower()
    (add,) = parents(node)
    assert "add" in add.name.lower()
    (exp,) = parents(add)
    assert "exp" in exp.name.lower()


def test_only_floating_tensors_require_grad():
    for values in ([1, 2], [True]):
        with pytest.raises((TypeError, ValueError, RuntimeError)):
            hl.tensor(values, requires_grad=True)
    assert hl.tensor([1j], requires_grad=True).requires_grad
    x = leaf([1.0, 2.0])
    for result in (x > 1, hl.argmax(x), hl.isnan(x), x.astype(hl.int64), hl.all(x)):
        assert not result.requires_grad and result.grad_fn is None


def test_no_grad_and_enable_grad():
    x = leaf([1.0])
    with hl.no_grad():
        assert not (x * 2).requires_grad
        with hl.enable_grad():
            assert (x * 2).requires_grad
        assert not (x * 2).requires_grad
    assert (x * 2).requires_grad
    with pytest.raises(KeyError), hl.no_grad():
        raise KeyError
    assert (x * 2).requires_grad


def test_detach_shares_memory_and_stops_gradients():
    x = leaf([1.0, 2.0])
    y = x * 2
    d = y.detach()
    assert not d.requires_grad and d.grad_fn is None and d.is_leaf
    assert d.data_ptr() == y.data_ptr()
    hl.sum(y * d).backward()
    assert x.grad.tolist() == [4.0, 8.0]


# ---- backward ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "left, right",
    [
        ((3, 4), (4,)),
        ((3, 4), ()),
        ((3, 1), (1, 4)),
        ((2, 3, 4), (3, 1)),
        ((1,), (5, 1)),
        ((4,), (4,)),
        ((1, 1), (2, 3, 4)),
    ],
)
def test_gradient_of_a_broadcast_operand_is_summed(left, right):
    a, b = RNG.normal(size=left), RNG.normal(size=right)
    x, y = leaf(a), leaf(b)
    out = x * y
    weights = RNG.normal(size=out.shape)
    out.backward(hl.asarray(weights))
    full = np.broadcast_shapes(left, right)

    def reduce(values, shape):
        lead = tuple(range(len(full) - len(shape)))
        values = values.sum(axis=lead)
        axes = tuple(i for i, n in enumerate(shape) if n == 1)
        return values.sum(axis=axes, keepdims=True)

    np.testing.assert_allclose(x.grad.numpy(), reduce(weights * np.broadcast_to(b, full), left), rtol=1e-13)
    np.testing.assert_allclose(y.grad.numpy(), reduce(weights * np.broadcast_to(a, full), right), rtol=1e-13)
    assert x.grad.shape == left and y.grad.shape == right


def test_gradients_accumulate():
    x = leaf([1.0, 2.0])
    hl.sum(x * 3).backward()
    hl.sum(x * x).backward()
    assert x.grad.tolist() == [5.0, 7.0]
    x.grad = None
    assert x.grad is None
    (x[0] * x[1]).backward()
    assert x.grad.tolist() == [2.0, 1.0]


def test_a_value_used_many_times_gets_the_sum():
    x = leaf(2.0)
    y = x * x
    (y * y + y + x).backward()
    assert x.grad.item() == 4 * 8 + 2 * 2 + 1


def test_grad_is_one_object():
    x = leaf([1.0])
    hl.sum(x * 2).backward()
    assert x.grad is x.grad
    assert x.grad.dtype == x.dtype and x.grad.shape == x.shape and not x.grad.requires_grad


def test_several_roots():
    x, y = leaf([1.0, 2.0]), leaf([3.0, 4.0])
    first, second = x * y, hl.sum(x)
    hl.backward([first, second], [hl.asarray([1.0, 10.0], dtype=hl.float64), hl.ones((), dtype=hl.float64)])
    assert x.grad.tolist() == [4.0, 41.0]
    assert y.grad.tolist() == [1.0, 20.0]


def test_backward_needs_a_gradient_for_more_than_one_element():
    x = leaf([1.0, 2.0])
    with pytest.raises((RuntimeError, ValueError), match="gradient|scalar"):
        (x * 2).backward()
    with pytest.raises(ValueError):
        (x * 2).backward(hl.ones((3,), dtype=hl.float64))
    with pytest.raises(RuntimeError):
        hl.sum(hl.asarray([1.0])).backward()
    assert x.grad is None


def test_second_backward_raises_unless_the_graph_was_retained():
    x = leaf([1.0, 2.0])
    y = hl.sum(x * x)
    y.backward(retain_graph=True)
    y.backward()
    assert x.grad.tolist() == [4.0, 8.0]
    with pytest.raises(RuntimeError, match="retain_graph"):
        y.backward()
    assert x.grad.tolist() == [4.0, 8.0]


def test_create_graph_gives_second_derivatives():
    x = leaf([1.0, 2.0])
    hl.sum(x * x * x).backward(create_graph=True)
    first = x.grad
    assert first.requires_grad and first.tolist() == [3.0, 12.0]
    x.grad = None
    hl.sum(first * first).backward()
    np.testing.assert_allclose(x.grad.numpy(), 36 * np.array([1.0, 8.0]))


def test_hl_grad_and_value_and_grad():
    def f(x, y):
        return hl.sum(x * x * y)

    x, y = hl.asarray([1.0, 2.0]), hl.asarray([3.0, 4.0])
    assert hl.grad(f)(x, y).tolist() == [6.0, 16.0]
    assert hl.grad(f, argnums=1)(x, y).tolist() == [1.0, 4.0]
    both = hl.grad(f, argnums=(0, 1))(x, y)
    assert [g.tolist() for g in both] == [[6.0, 16.0], [1.0, 4.0]]
    value, gradient = hl.value_and_grad(f)(x, y)
    assert value.item() == 19.0 and gradient.tolist() == [6.0, 16.0]
    assert x.grad is None and not x.requires_grad
    third = hl.grad(hl.grad(hl.grad(lambda t: t * t * t * t)))(hl.asarray(2.0))
    assert third.item() == 48.0


def test_hl_grad_leaves_accumulated_gradients_alone():
    x = leaf([1.0, 2.0])
    hl.sum(x).backward()
    assert hl.grad(lambda t: hl.sum(t * t))(x).tolist() == [2.0, 4.0]
    assert x.grad.tolist() == [1.0, 1.0]


def test_long_chains_neither_overflow_the_stack_when_walked_nor_when_freed():
    x = leaf(1.0)
    y = x
    for _ in range(100_000):
        y = y + 1
    y.backward()
    assert x.grad.item() == 1.0
    z = x
    for _ in range(100_000):
        z = z * 1.0
    del z


# ---- hooks ------------------------------------------------------------------------------------------------------


def test_hooks_see_and_replace_gradients():
    x = leaf([1.0, 2.0])
    y = x * 3
    seen = []
    handle = y.register_hook(lambda g: seen.append(g.tolist()))
    hl.sum(y * y).backward()
    assert seen == [[6.0, 12.0]]
    assert x.grad.tolist() == [18.0, 36.0]
    handle.remove()
    x.grad = None
    z = x * 3
    z.register_hook(lambda g: g * 10)
    hl.sum(z).backward()
    assert x.grad.tolist() == [30.0, 30.0]
    assert len(seen) == 1


def test_hook_on_a_leaf_runs_before_accumulation_and_can_be_removed():
    x = leaf([1.0])
    handle = x.register_hook(lambda g: g * 2)
    hl.sum(x * 5).backward()
    assert x.grad.tolist() == [10.0]
    handle.remove()
    hl.sum(x * 5).backward()
    assert x.grad.tolist() == [15.0]


def test_hooks_run_inside_the_graph():
    x = leaf([3.0])
    y = x * 1
    handle = y.register_hook(lambda g: g * g)
    hl.sum(y * y).backward(create_graph=True)
    handle.remove()
    first = x.grad
    assert first.tolist() == [36.0]
    x.grad = None
    hl.sum(first).backward()
    assert x.grad.tolist() == [24.0]  # the gradient is (2x)^2, its derivative 8x


def test_an_exception_in_a_hook_reaches_the_caller():
    def fail(gradient):
        raise KeyError("from the hook")

    x = leaf([1.0])
    y = x * 2
    y.register_hook(fail)
    with pytest.raises(KeyError, match="from the hook"):
        hl.sum(y).backward()
    assert x.grad is None


def test_cycles_through_hooks_are_collected():
    class Marker:
        """Something a weak reference can watch."""

    x = leaf([1.0])
    y = x * 2
    marker = Marker()
    watch = weakref.ref(marker)
    y.register_hook(lambda g, y=y, marker=marker: None)
    del x, y, marker
    gc.collect()
    assert watch() is None


# ---- in place ---------------------------------------------------------------------------------------------------


def test_in_place_is_really_in_place_under_autograd():
    x = leaf([1.0, 2.0, 3.0])
    y = x * 1
    same, pointer, version = y, y.data_ptr(), y.version
    y *= 3
    y += 1
    assert y is same and y.data_ptr() == pointer and y.version == version + 2
    assert y.tolist() == [4.0, 7.0, 10.0]
    hl.sum(y * y).backward()
    assert x.grad.tolist() == [24.0, 42.0, 60.0]


def test_in_place_with_an_operand_that_requires_grad_begins_recording():
    x, y = leaf([2.0, 3.0]), hl.asarray([5.0, 7.0], dtype=hl.float64)
    y += x
    assert y.requires_grad and not y.is_leaf
    hl.sum(y * y).backward()
    assert x.grad.tolist() == [14.0, 20.0]


def test_in_place_product_never_uses_the_overwritten_value_silently():
    x, y = leaf([2.0, 3.0]), hl.asarray([5.0, 7.0], dtype=hl.float64)
    y *= x
    assert y.tolist() == [10.0, 21.0]
    try:
        hl.sum(y).backward()
    except hl.VersionMismatch:
        assert x.grad is None
    else:
        assert x.grad.tolist() == [5.0, 7.0]


def test_in_place_on_a_leaf_that_requires_grad_raises():
    x = leaf([1.0, 2.0])
    with pytest.raises(RuntimeError, match="leaf"):
        x += 1
    with pytest.raises(RuntimeError, match="leaf"):
        view = x[0:1]
        view *= 2
    assert x.tolist() == [1.0, 2.0]
    with hl.no_grad():
        x += 1
    assert x.tolist() == [2.0, 3.0] and x.requires_grad and x.is_leaf


def test_a_view_written_in_place_gives_its_base_one_node():
    x = leaf([1.0, 2.0, 3.0, 4.0])
    base = x * 1
    view = base[1:3]
    before, pointer = count_nodes(base.grad_fn), base.data_ptr()
    view *= 10
    assert count_nodes(base.grad_fn) == before + 1
    assert base.data_ptr() == pointer and base.tolist() == [1.0, 20.0, 30.0, 4.0]
    hl.sum(base * hl.asarray([1.0, 2.0, 3.0, 4.0], dtype=hl.float64)).backward()
    assert x.grad.tolist() == [1.0, 20.0, 30.0, 4.0]


def test_history_of_views_is_regenerated_from_their_base():
    x = leaf([1.0, 2.0, 3.0, 4.0])
    base = x * 1
    early = base[1:]
    view = base[::-1][1:3]  # elements 2 and 1, a view of a view
    view *= 10
    assert early.tolist() == [20.0, 30.0, 4.0]
    assert view.tolist() == [30.0, 20.0]
    hl.sum(early * early).backward(retain_graph=True)
    assert x.grad.tolist() == [0.0, 400.0, 600.0, 8.0]
    x.grad = None
    hl.sum(view * hl.asarray([1.0, 2.0], dtype=hl.float64)).backward()
    assert x.grad.tolist() == [0.0, 20.0, 10.0, 0.0]


def test_writes_into_overlapping_views_follow_one_another():
    x = leaf([1.0, 2.0, 3.0])
    base = x * 1
    head, tail = base[:2], base[1:]
    head *= 2
    tail *= 5
    base += 1
    assert base.tolist() == [3.0, 21.0, 16.0]
    hl.sum(head).backward(retain_graph=True)
    assert x.grad.tolist() == [2.0, 10.0, 0.0]
    x.grad = None
    hl.sum(base).backward()
    assert x.grad.tolist() == [2.0, 10.0, 5.0]


def test_a_view_of_plain_memory_written_with_a_recorded_value():
    base = hl.zeros((2, 3), dtype=hl.float64)
    x = leaf([1.0, 2.0])
    column = base[:, 1]
    column += x
    assert base.requires_grad
    hl.sum(base * base).backward()
    assert x.grad.tolist() == [2.0, 4.0]


# ---- versions ---------------------------------------------------------------------------------------------------


def line():
    """The line of the caller, as the errors write it."""
    frame = inspect.currentframe().f_back
    return f"{os.path.basename(__file__)}:{frame.f_lineno}"


def test_version_error_names_both_lines():
    w, a = leaf([1.0, 2.0]), hl.asarray([3.0, 4.0], dtype=hl.float64)
    y, saved_at = a * w, line()
    _, written_at = operator.iadd(a, 1), line()
    with pytest.raises(hl.VersionMismatch) as caught:
        hl.sum(y).backward()
    error = caught.value
    assert error.saver.endswith(saved_at)
    assert error.writer.endswith(written_at)
    assert error.current_version == error.saved_version + 1 == a.version
    assert saved_at in str(error) and written_at in str(error) and "multiply" in str(error).lower()
    assert w.grad is None


def test_version_error_through_a_view():
    w, a = leaf([1.0, 2.0, 3.0]), hl.asarray([3.0, 4.0, 5.0], dtype=hl.float64)
    y = a * w
    view = a[1:][::-1]
    view += 1
    with pytest.raises(hl.VersionMismatch):
        hl.sum(y).backward()


def test_version_error_through_memory_saved_as_a_result():
    x = leaf([1.0, 2.0])
    y = hl.relu(x)  # its gradient reads the result
    y += 1
    with pytest.raises(hl.VersionMismatch):
        hl.sum(y).backward()


def test_a_write_to_what_no_gradient_reads_is_fine():
    x = leaf([1.0, 2.0])
    y = x * 1
    z = y + 5  # an addition saves nothing
    y *= 7
    hl.sum(z).backward()
    assert x.grad.tolist() == [1.0, 1.0]


def test_versions_are_shared_by_views_and_move_with_writes():
    a = hl.zeros((4,))
    view, other, start = a[1:], hl.zeros((4,)), a.version
    assert view.version == start
    view += 1
    assert a.version == view.version == start + 1
    with hl.no_grad():
        a += 1
    assert view.version == start + 2 and other.version == start
    assert (a + 1).version == start


# ---- special points ---------------------------------------------------------------------------------------------


def test_gradients_at_special_points():
    def gradient(function, *values):
        inputs = [leaf(v) for v in values]
        hl.sum(function(*inputs)).backward()
        return [x.grad.item() for x in inputs]

    inf = float("inf")
    assert gradient(hl.sqrt, 0.0) == [inf]
    assert gradient(hl.abs, 0.0) == [0.0] and gradient(hl.relu, 0.0) == [0.0]
    assert gradient(hl.maximum, 2.0, 2.0) == [0.5, 0.5] and gradient(hl.minimum, 2.0, 2.0) == [0.5, 0.5]
    assert gradient(hl.maximum, 3.0, 2.0) == [1.0, 0.0]
    assert gradient(hl.pow, 0.0, 0.0) == [0.0, 0.0]
    assert gradient(hl.pow, 0.0, 2.0) == [0.0, 0.0]
    assert gradient(lambda x: x**2, 3.0) == [6.0]
    assert gradient(lambda x: x**0, 0.0) == [0.0]


@pytest.mark.parametrize(
    "values, want",
    [([0.0, 2, 3], [6.0, 0, 0]), ([0.0, 2, 0], [0.0, 0, 0]), ([2.0, 3, 4], [12.0, 8, 6]), ([0.0], [1.0])],
)
def test_gradient_of_prod_with_zeros_is_exact(values, want):
    x = leaf(values)
    hl.prod(x).backward()
    assert x.grad.tolist() == want


def test_where_gives_nothing_to_the_side_not_taken():
    x = leaf([-1.0, 4.0])
    hl.sum(hl.where(x > 0, hl.sqrt(x), x * 2)).backward()
    assert x.grad.tolist() == [2.0, 0.25]


# ---- finite differences -----------------------------------------------------------------------------------------


def away(low, high):
    """Points between two bounds, at least 0.05 from each other's ties and from integers and halves."""

    def sample(shape):
        values = RNG.uniform(low, high, size=shape)
        near = np.abs(values * 2 - np.round(values * 2)) < 0.1
        return np.where(near, (np.floor(values * 2) + 0.5) / 2 + RNG.uniform(-0.1, 0.1, size=shape), values)

    return sample


ANY, POSITIVE = away(-2, 2), away(0.4, 3)
UNARY = {
    "negative": (hl.negative, ANY), "abs": (hl.abs, ANY), "square": (hl.square, ANY), "sqrt": (hl.sqrt, POSITIVE),
    "exp": (hl.exp, ANY), "expm1": (hl.expm1, ANY), "log": (hl.log, POSITIVE), "log1p": (hl.log1p, POSITIVE),
    "sin": (hl.sin, ANY), "cos": (hl.cos, ANY), "tanh": (hl.tanh, ANY), "erf": (hl.erf, ANY),
    "sigmoid": (hl.sigmoid, ANY), "relu": (hl.relu, ANY), "leaky_relu": (lambda x: hl.leaky_relu(x, slope=0.2), ANY),
    "gelu": (hl.gelu, ANY), "pow 3": (lambda x: x**3, ANY), "2 pow x": (lambda x: 2**x, ANY),
    "1 / x": (lambda x: 1 / x, POSITIVE), "3 - x": (lambda x: 3 - x, ANY),
    "clip": (lambda x: hl.clip(x, -0.9, 0.9), ANY),
    "astype": (lambda x: hl.square(x.astype(hl.float64)), ANY),
    "sum": (lambda x: hl.square(hl.sum(x, axis=1)), ANY), "sum all": (lambda x: hl.square(hl.sum(x)), ANY),
    "sum keepdims": (lambda x: x * hl.sum(x, axis=0, keepdims=True), ANY),
    "mean": (lambda x: hl.square(hl.mean(x, axis=-1)), ANY), "prod": (lambda x: hl.prod(x, axis=1), ANY),
    "prod all": (hl.prod, ANY),
    "max": (lambda x: hl.square(hl.max(x, axis=1)), ANY),
    "min": (lambda x: hl.exp(hl.min(x)), ANY),
    "softmax": (lambda x: hl.softmax(x, axis=0), ANY), "log_softmax": (hl.log_softmax, ANY),
    "reshape": (lambda x: hl.square(hl.reshape(x, (2, 6))), ANY), "T": (lambda x: hl.square(x.T), ANY),
    "permute": (lambda x: hl.square(hl.permute_dims(x, (1, 0))), ANY), "mT": (lambda x: x.mT @ x, ANY),
    "slice": (lambda x: hl.square(x[::-2, 1:3]), ANY), "index": (lambda x: hl.square(x[1]) * x[0, 2], ANY),
    "broadcast_to": (lambda x: hl.square(hl.broadcast_to(x, (2, 3, 4))), ANY),
    "expand_dims": (lambda x: hl.square(hl.expand_dims(x, axis=1)), ANY),
    "squeeze": (lambda x: hl.square(hl.squeeze(hl.reshape(x, (3, 1, 4)), 1)), ANY),
    "take": (lambda x: hl.square(hl.take(x, hl.asarray([2, 0, 2]), axis=0)), ANY),
    "where": (lambda x: hl.where(x > 0, hl.square(x), hl.sin(x)), ANY),
    "copysign": (lambda x: hl.square(hl.copysign(x, hl.asarray(-1.0, dtype=hl.float64))), ANY),
    "in place": (lambda x: inplace(x), ANY),
}  # fmt: skip


def inplace(x):
    y = x * 1
    y += hl.sin(x)
    view = y[1:, ::2]
    view -= hl.square(x[:2, 1::2])
    y *= 2
    return y


BINARY = {
    "add": (lambda a, b: hl.square(hl.add(a, b)), ANY), "subtract": (lambda a, b: hl.square(hl.subtract(a, b)), ANY),
    "multiply": (hl.multiply, ANY), "divide": (hl.divide, POSITIVE), "pow": (hl.pow, POSITIVE),
    "maximum": (lambda a, b: hl.square(hl.maximum(a, b)), ANY),
    "minimum": (lambda a, b: hl.square(hl.minimum(a, b)), ANY),
    "remainder": (lambda a, b: hl.square(hl.remainder(a * 10, b)), POSITIVE),
    "concat": (lambda a, b: hl.square(hl.concat([a, b, a], axis=1)), ANY),
    "stack": (lambda a, b: hl.prod(hl.stack([a, b]), axis=0), ANY),
    "where": (lambda a, b: hl.where(a > b, hl.square(a), hl.exp(b)), ANY),
    "matmul": (lambda a, b: a @ b.T, ANY),
    "matmul batch": (lambda a, b: hl.matmul(a[:, None, :], b[:, :, None]), ANY),
    "matvec": (lambda a, b: a @ b[0], ANY), "vecmat": (lambda a, b: a[0] @ b.T, ANY),
    "dot": (lambda a, b: a[1] @ b[2], ANY),
    "broadcast": (lambda a, b: hl.square(a[:, :1] - b[:1]), ANY),
    "clip": (lambda a, b: hl.square(hl.clip(a, b - 0.3, b + 0.7)), ANY),
}  # fmt: skip


def weighted(function, example):
    """sum(w * out * (out + 1)) with fixed random weights w: its gradient tests every output and is never constant."""
    weights = hl.asarray(RNG.normal(size=example.shape))

    def scalar(*inputs):
        out = function(*inputs)
        return hl.sum(weights * out * (out + 1))

    return scalar


def check_gradients(function, inputs):
    """First and second derivatives along random directions against central differences, in float64."""
    tensors = [hl.asarray(v) for v in inputs]
    scalar = weighted(function, function(*tensors))
    numbers = tuple(range(len(inputs)))
    directions = [RNG.normal(size=v.shape) for v in inputs]
    step = 1e-5

    def at(offset):
        return [hl.asarray(v + offset * d) for v, d in zip(inputs, directions)]

    gradients = hl.grad(scalar, argnums=numbers)(*tensors)
    slope = sum(float(hl.sum(g * hl.asarray(d))) for g, d in zip(gradients, directions))
    difference = (float(scalar(*at(step))) - float(scalar(*at(-step)))) / (2 * step)
    np.testing.assert_allclose(slope, difference, rtol=1e-6, atol=1e-7)

    probes = [hl.asarray(RNG.normal(size=v.shape)) for v in inputs]

    def probe(*arguments):
        total = hl.asarray(0.0, dtype=hl.float64)
        for g, p in zip(hl.grad(scalar, argnums=numbers)(*arguments), probes):
            total = total + hl.sum(g * p)
        return total

    second = hl.grad(probe, argnums=numbers)(*tensors)
    curvature = sum(float(hl.sum(g * hl.asarray(d))) for g, d in zip(second, directions))
    difference = (float(probe(*at(step))) - float(probe(*at(-step)))) / (2 * step)
    np.testing.assert_allclose(curvature, difference, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", UNARY)
def test_unary_gradients_of_first_and_second_order(name):
    function, sample = UNARY[name]
    check_gradients(function, [sample((3, 4))])


@pytest.mark.parametrize("name", BINARY)
def test_binary_gradients_of_first_and_second_order(name):
    function, sample = BINARY[name]
    a, b = sample((3, 4)), sample((3, 4))
    close = np.abs(a - b) < 0.05
    check_gradients(function, [a, np.where(close, b + 0.1, b)])


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_gradients_have_the_dtype_of_their_input(dtype):
    x = hl.tensor([1.0, 2.0, 4.0], dtype=getattr(hl, dtype), requires_grad=True)
    y = hl.sum(hl.square(x.astype(hl.float64)) * 2)
    y.backward()
    assert x.grad.dtype == getattr(hl, dtype)
    assert x.grad.tolist() == [4.0, 8.0, 16.0]


def test_gradient_of_mixed_precision_operands():
    x, y = leaf([1.0, 2.0], dtype=hl.float32), leaf([3.0, 5.0], dtype=hl.float64)
    hl.sum(x * y).backward()
    assert x.grad.dtype == hl.float32 and x.grad.tolist() == [3.0, 5.0]
    assert y.grad.dtype == hl.float64 and y.grad.tolist() == [1.0, 2.0]


# ---- complex ----------------------------------------------------------------------------------------------------

Z = np.array([1 + 2j, -0.5 + 0.25j, 3 - 1j])
W = np.array([0.5 - 1j, 2 + 2j, -1 - 0.75j])
G = np.array([1 - 1j, 0.5 + 2j, -3 + 0.5j])


def test_complex_product_and_quotient_pass_the_conjugate():
    z, w = leaf(Z, dtype=hl.complex128), leaf(W, dtype=hl.complex128)
    (z * w).backward(hl.asarray(G))
    np.testing.assert_allclose(z.grad.numpy(), G * W.conj(), rtol=1e-14)
    np.testing.assert_allclose(w.grad.numpy(), G * Z.conj(), rtol=1e-14)
    z.grad = w.grad = None
    (z / w).backward(hl.asarray(G))
    np.testing.assert_allclose(z.grad.numpy(), G / W.conj(), rtol=1e-14)
    np.testing.assert_allclose(w.grad.numpy(), -G * (Z / W**2).conj(), rtol=1e-13)


def test_gradient_of_a_real_partner_is_real():
    x, z = leaf([1.0, 2.0, 3.0]), leaf(Z, dtype=hl.complex128)
    (x * z).backward(hl.asarray(G))
    assert x.grad.dtype == hl.float64
    np.testing.assert_allclose(x.grad.numpy(), (G * Z.conj()).real, rtol=1e-14)
    np.testing.assert_allclose(z.grad.numpy(), G * np.array([1.0, 2.0, 3.0]), rtol=1e-14)


@pytest.mark.parametrize(
    "name, function",
    [
        ("abs squared", lambda z: hl.square(hl.abs(z))),
        ("abs", hl.abs),
        ("product", lambda z: hl.abs(z * z * (1 + 2j))),
        ("quotient", lambda z: hl.abs((z + 1j) / (z - 2))),
        ("exp", lambda z: hl.abs(hl.exp(z) + 1)),
        ("sum", lambda z: hl.abs(hl.sum(z * z))),
        ("matmul", lambda z: hl.abs(z[None, :] @ (z * 1j)[:, None])),
        ("view", lambda z: hl.abs(z[::-1] * z)),
    ],
)
def test_complex_gradients_by_differences(name, function):
    scalar = weighted(function, function(hl.asarray(Z)))
    got = hl.grad(scalar)(hl.asarray(Z)).numpy()
    step, want = 1e-6, np.zeros(3, dtype=np.complex128)
    for i, unit in itertools.product(range(3), (1, 1j)):
        shift = np.zeros(3, dtype=np.complex128)
        shift[i] = unit * step
        slope = (float(scalar(hl.asarray(Z + shift))) - float(scalar(hl.asarray(Z - shift)))) / (2 * step)
        want[i] += slope * unit  # dL/dRe + i dL/dIm
    np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-8)


def test_abs_of_complex_zero_has_gradient_zero():
    z = leaf([0j, 3 + 4j], dtype=hl.complex128)
    hl.sum(hl.abs(z)).backward()
    np.testing.assert_allclose(z.grad.numpy(), [0, 0.6 + 0.8j], rtol=1e-15)
