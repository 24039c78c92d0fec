"""Gradients through compiled functions, of any order, against those of the functions themselves."""

import gc
import weakref

import numpy as np
import pytest
from test_compile import FUNCTIONS, bits, leaves, normal, same
from test_nothings import TWO_WAYS, numbers_by_every_way

import hyalite as hl


def gradients(f, args):
    """Of a weighted sum of the floating results, for the floating arguments."""
    floats = [a for a in leaves(args) if a.dtype.name.startswith(("float", "complex"))]
    for a in floats:
        a.requires_grad_(True)
        a.grad = None
    parts = [hl.abs(r) for r in leaves(f(*args)) if r.requires_grad]
    if parts:
        rng = np.random.default_rng(3)
        weights = [hl.asarray(rng.normal(size=p.shape)).astype(p.dtype) for p in parts]
        hl.backward([hl.sum(p * w) for p, w in zip(parts, weights, strict=True)])
    found = [a.grad for a in floats]
    for a in floats:
        a.requires_grad_(False)
        a.grad = None
    return [None if g is None else bits(g) for g in found]


@pytest.mark.parametrize("name", [n for n in FUNCTIONS if n not in ("grad", "value and grad", "second order")])
def test_backward_through_a_compiled_function(name):
    made = FUNCTIONS[name]()
    f, *args = made if isinstance(made, tuple) else (made,)
    compiled = hl.compile(f)
    for _ in range(2):
        assert gradients(compiled, args) == gradients(f, args)


def test_gradients_reach_what_was_there_before():
    x, w = normal(6, 5), normal(5, 4)
    for needs_history in (False, True):
        leaf = w.copy().requires_grad_(True)
        given = leaf * 2 if needs_history else leaf
        closed = normal(4).requires_grad_(True)
        compiled = hl.compile(lambda x, w, closed=closed: hl.tanh(x @ w) * closed)
        out = compiled(x, given)
        assert out.grad_fn.name == "CompiledBackward" and "test_compile_gradients.py" in out.grad_fn.where
        hl.sum(out).backward()
        mine = leaf.grad, closed.grad
        leaf.grad = closed.grad = None
        hl.sum(hl.tanh(x @ (leaf * 2 if needs_history else leaf)) * closed).backward()
        assert same([leaf.grad, closed.grad], mine)
        with hl.no_grad():
            assert not compiled(x, given).requires_grad


SCALED = hl.asarray(np.linspace(0.5, 1.5, 6, dtype=np.float64))
ABOVE = [
    lambda x, w: hl.exp(x) * w, lambda x, w: x @ hl.tanh(w) @ x.T, lambda x, w: hl.softmax(x * w) * x,
    lambda x, w: x + w, lambda x, w: (x * w).sum(axis=0), lambda x, w: x.reshape(-1)[::2] ** 3 + w[0, 0],
    lambda x, w: {"a": hl.sin(x), "b": [x * x * w, 3]}, lambda x, w: hl.where(x > 0, x * w, x**2),
    lambda x, w: x * x * SCALED[:, None] + w, lambda x, w: (x * x, x, hl.stop_gradient(w) * x, w * w),
]  # fmt: skip


@pytest.mark.parametrize("f", ABOVE)
@pytest.mark.parametrize("order", [2, 3])
def test_derivatives_of_any_order_through_a_compiled_function(f, order):
    """The function's own: it is called again, op by op. Sums of gradients may be made in another order."""
    compiled = hl.compile(f)

    def derived(f):
        x = hl.asarray(np.random.default_rng(0).normal(size=(6, 6))).requires_grad_(True)
        w = hl.asarray(np.random.default_rng(1).normal(size=(6, 6))).requires_grad_(True)
        found = []
        y = x * 1.5  # an argument with a history
        value = hl.add(0.0, sum(hl.sum(t * t) for t in leaves(f(y, w))))
        for _ in range(order):
            gradients = hl.gradients(value, [x, w], create_graph=True)
            found += [g.detach() for g in gradients if g is not None]
            value = hl.add(0.0, sum(hl.sum(g * g) for g in gradients if g is not None))
        return found

    mine, theirs = derived(compiled), derived(f)
    assert len(mine) == len(theirs) == 2 * order
    for a, b in zip(mine, theirs, strict=True):
        assert np.allclose(a.numpy(), b.numpy(), 1e-12, 1e-12 * np.abs(b.numpy()).max())


def test_hessians_and_gradients_of_gradients_of_compiled_functions():
    x = hl.asarray(np.linspace(-1, 1, 5))
    f = lambda x: hl.sum(hl.tanh(x) * x * x)  # noqa: E731
    compiled = hl.compile(f)
    assert same(hl.hessian(compiled)(x), hl.hessian(f)(x))
    assert same(
        hl.grad(lambda x: hl.sum(hl.grad(compiled)(x) ** 2))(x), hl.grad(lambda x: hl.sum(hl.grad(f)(x) ** 2))(x)
    )
    x.requires_grad_(True)  # the same tensor twice, by position and by name
    both = hl.compile(lambda a, *, b: (a * b * b).sum())
    (g,) = hl.gradients(both(x, b=x), [x], create_graph=True)
    (h,) = hl.gradients(g.sum(), [x])
    assert np.allclose(g.detach().numpy(), 3 * x.detach().numpy() ** 2)
    assert np.allclose(h.numpy(), 6 * x.detach().numpy())
    found = []
    for g in (lambda x: (x @ x) ** 2, hl.compile(lambda x: (x @ x) ** 2)):
        z = hl.asarray(np.linspace(-1, 1, 5, dtype=np.float32)).requires_grad_(True)
        with hl.autocast():
            y = g(z)
        (first,) = hl.gradients(y.astype(hl.float32), [z], create_graph=True)
        found += [first.detach(), *hl.gradients(first.sum(), [z])]
    assert same(found[:2], found[2:])


def test_what_a_second_derivative_of_a_compiled_function_keeps_and_refuses():
    x = hl.asarray(np.linspace(-1, 1, 5)).requires_grad_(True)
    y = hl.compile(lambda x: hl.sum(hl.exp(x)))(x)  # nobody else holds the function
    gc.collect()
    with pytest.raises(hl.AutogradError, match="compiled function is gone"):
        y.backward(create_graph=True)
    state = hl.ones(5, dtype=hl.float64)

    @hl.compile
    def counts(x):
        with hl.no_grad():
            state.__iadd__(1)
        return hl.sum(x * x)

    with pytest.raises(hl.Unsupported, match="writes in place"):
        counts(x).backward(create_graph=True)


def test_what_is_recorded_does_not_keep_a_function_alive_that_leads_to_it():
    x = hl.ones(5).requires_grad_(True)

    def make():
        reached = {}
        reached["f"] = hl.compile(lambda x: hl.exp(x) * x + len(reached))
        reached["y"] = reached["f"](x)
        return weakref.ref(reached["f"])

    gone = make()
    gc.collect()
    assert gone() is None


def test_a_compiled_function_keeps_a_copy_of_what_others_may_write():
    a = np.linspace(-1, 1, 5)
    x = hl.asarray(a).requires_grad_(True)
    f = hl.compile(lambda x: hl.sum(x * x * x))
    y = f(x)
    a[:] = 7
    (g,) = hl.gradients(y, [x], create_graph=True)
    assert np.allclose(g.detach().numpy(), 3 * np.linspace(-1, 1, 5) ** 2)
    assert np.allclose(hl.gradients(g.sum(), [x])[0].numpy(), 6 * np.linspace(-1, 1, 5))


def test_of_what_others_may_write_only_what_is_read_is_copied():
    """A batch of a large array of NumPy's: the bytes of the batch, not of the array."""
    a = np.random.default_rng(0).normal(size=(40_000, 50)).astype(np.float32)
    data, w = hl.asarray(a), normal(50, 3).requires_grad_(True)
    f = hl.compile(
        lambda x, y, w: hl.tanh(x[::-1, 5:15] @ w[5:15]).sum() * 2 + (x[1:, 30:] * y[:-1, 30:]).sum() * w[0, 0]
    )
    for rows in (slice(100, 200), slice(39_000, 39_100)):
        x, y = data[rows], data[rows][:, ::-1]
        before = hl.memory_stats()["allocated_bytes"]
        value = f(x, y, w)
        assert hl.memory_stats()["allocated_bytes"] - before < 4 * 2 * 100 * 50 * 4
        kept = a.copy()
        a[rows] = 0
        (g,) = hl.gradients(value, [w])
        a[:] = kept
        plain = hl.tanh(x[::-1, 5:15] @ w[5:15]).sum() * 2 + (x[1:, 30:] * y[:-1, 30:]).sum() * w[0, 0]
        assert same(g, hl.gradients(plain, [w])[0])


def test_what_backward_of_a_compiled_function_refuses():
    p = normal(5).requires_grad_(True)
    compiled = hl.compile(lambda p: hl.exp(p) * p)
    loss = hl.sum(compiled(p))
    with hl.no_grad():
        p += 1
    with pytest.raises(hl.VersionMismatch, match="written in place since at .*test_compile_gradients.py"):
        loss.backward()
    loss = hl.sum(compiled(p))
    loss.backward(retain_graph=True)
    loss.backward()
    with pytest.raises(hl.AutogradError, match="walked before"):
        loss.backward()
    value, tangent = hl.jvp(compiled, (normal(5),), (hl.ones(5),))
    again, other = hl.jvp(lambda p: hl.exp(p) * p, (normal(5),), (hl.ones(5),))
    assert same([value, tangent], [again, other])


@pytest.mark.parametrize("f", TWO_WAYS)
def test_a_leaf_gets_numbers_through_a_compiled_function_too(f):
    numbers_by_every_way(f, hl.compile(f))
    compiled = hl.compile(hl.grad(f))(hl.ones((6, 3))).numpy()
    assert np.array_equal(compiled, hl.grad(f)(hl.ones((6, 3))).numpy()) and not np.signbit(compiled).any()
