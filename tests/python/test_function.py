"""hl.Function: what forward leaves, what backward may return, orders, memory, threads."""

import copy
import gc
import re
import threading
import weakref

import numpy as np
import pytest

import hyalite as hl


def f64(*values, grad=False):
    return hl.tensor(list(values), dtype=hl.float64, requires_grad=grad)


def equal(got, want):
    np.testing.assert_allclose(got.detach().numpy(), np.asarray(want), rtol=1e-12, atol=1e-12)


class Cube(hl.Function):
    """x ** 3, from its input and its output."""

    @staticmethod
    def forward(ctx, x):
        assert not hl.is_grad_enabled()
        out = x * x * x
        ctx.save_for_backward(x, out, None)
        return out

    @staticmethod
    def backward(ctx, g):
        x, out, nothing = ctx.saved_tensors
        assert nothing is None and out.shape == x.shape
        return 3 * g * x * x


class FromOutput(hl.Function):
    @staticmethod
    def forward(ctx, x):
        out = hl.exp(x)
        ctx.save_for_backward(out)
        return out

    @staticmethod
    def backward(ctx, g):
        (out,) = ctx.saved_tensors
        return g * out


class MulAdd(hl.Function):
    """(a * b + n, a + b, the larger index), with a number and a constant output."""

    @staticmethod
    def forward(ctx, a, n, b):
        ctx.save_for_backward(a, b)
        ctx.n = n
        top = hl.argmax(a)
        last = a * 2
        ctx.mark_non_differentiable(last)
        return a * b + n, a + b, top, last

    @staticmethod
    def backward(ctx, g, h, top, last):
        a, b = ctx.saved_tensors
        assert ctx.n == 2.5 and top.dtype is hl.int64 and not last.numpy().any()
        return (g * b + h if ctx.needs_input_grad[0] else None), None, (g * a + h if ctx.needs_input_grad[2] else None)


def test_first_order_by_every_road():
    x = f64(1, 2, grad=True)
    y = Cube.apply(x)
    assert y.grad_fn.name == "Cube" and y.requires_grad and not y.is_leaf
    assert y.grad_fn.next_functions[0][0].name == "AccumulateGrad"
    y.sum().backward()
    equal(x.grad, [3, 12])
    equal(hl.grad(lambda x: Cube.apply(x).sum())(f64(3, 4)), [27, 48])
    equal(hl.gradients(Cube.apply(x).sum(), x)[0], [3, 12])
    equal(hl.jacobian(Cube.apply)(f64(1, 2)), np.diag([3.0, 12.0]))
    assert not Cube.apply(f64(1, 2)).requires_grad
    with hl.no_grad():
        assert not Cube.apply(x).requires_grad


@pytest.mark.parametrize("function, power", [(Cube.apply, lambda x: x**3), (FromOutput.apply, hl.exp)])
def test_orders_to_three_when_backward_is_made_of_recorded_ops(function, power):
    x = f64(0.7, -1.2)

    def nth(f, n):
        return f if n == 0 else nth(hl.grad(lambda x: f(x).sum()), n - 1)

    for n in range(4):
        equal(nth(function, n)(x), nth(power, n)(x).numpy())
    w = f64(2, 3, grad=True)
    inner = hl.grad(lambda x: (function(w * x) * w).sum())
    want = hl.grad(lambda x: (power(w * x) * w).sum())
    (a,), (b,) = hl.gradients(inner(x).sum(), w), hl.gradients(want(x).sum(), w)
    equal(a, b.numpy())


def test_several_outputs_any_subset_of_them_used():
    a, b = np.array([1.0, 2.0]), np.array([3.0, 4.0])
    for use in range(1, 4):
        p, q = hl.tensor(a, requires_grad=True), hl.tensor(b, requires_grad=True)
        outs = MulAdd.apply(p, 2.5, q)
        assert isinstance(outs, tuple) and [o.requires_grad for o in outs] == [True, True, False, False]
        parts = [o for i, o in enumerate(outs[:2]) if use >> i & 1]
        hl.backward([o.sum() for o in parts])
        equal(p.grad, b * (use & 1) + (use >> 1))
        equal(q.grad, a * (use & 1) + (use >> 1))
    p = hl.tensor(a, requires_grad=True)
    MulAdd.apply(p, 2.5, hl.asarray(b))[0].sum().backward()
    equal(p.grad, b)


def test_gradients_that_nobody_sent_are_zeros_or_none():
    seen = []

    class Two(hl.Function):
        @staticmethod
        def forward(ctx, x, zeros):
            ctx.set_materialize_grads(zeros)
            return x * 2, x * 3

        @staticmethod
        def backward(ctx, g, h):
            seen.append((g, h))
            return g * 2 if g is not None else h * 3, None

    x = f64(1, 2, grad=True)
    for zeros in (True, False):
        Two.apply(x, zeros)[1].sum().backward()
        g, h = seen.pop()
        assert (g.tolist() == [0, 0] and g.dtype is hl.float64) if zeros else g is None
        assert h.tolist() == [1, 1]


def wrong(returned, inputs=1):
    class Wrong(hl.Function):
        @staticmethod
        def forward(ctx, *xs):
            return xs[0] * 2

        @staticmethod
        def backward(ctx, g):
            return returned(g)

    xs = [f64(1, 2, grad=True) for _ in range(inputs)]
    Wrong.apply(*xs).sum().backward()
    return xs


@pytest.mark.parametrize(
    "returned, inputs, error, words",
    [
        (lambda g: (g, g), 1, TypeError, "Wrong.backward() returned 2 gradients for 1 argument of forward"),
        (lambda g: g, 2, TypeError, "Wrong.backward() returned 1 gradient for 2 arguments"),
        (lambda g: 1.0, 1, TypeError, "Wrong.backward() returned float for argument 0; return a tensor or None"),
        (lambda g: "x", 1, TypeError, "Wrong.backward() returned the str 'x' for argument 0"),
        (lambda g: g.numpy(), 1, TypeError, "Wrong.backward() returned ndarray for argument 0"),
        (lambda g: g[:1], 1, hl.ShapeMismatch, "Wrong.backward() returned shape (1,) for argument 0, which has (2,)"),
        (lambda g: (None, g.sum()), 2, hl.ShapeMismatch, "returned shape () for argument 1"),
        (lambda g: g.astype(hl.float32), 1, hl.DtypeMismatch, "returned float32 for argument 0, which is float64"),
        (lambda g: g.astype(hl.int64), 1, hl.DtypeMismatch, "write g.astype(hl.float64)"),
    ],
)
def test_what_backward_returns_wrongly_is_named(returned, inputs, error, words):
    with pytest.raises(error, match=re.escape(words)):
        wrong(returned, inputs)


def test_none_is_no_gradient():
    assert wrong(lambda g: None)[0].grad is None
    assert [x.grad is None for x in wrong(lambda g: None, 3)] == [True] * 3
    assert [x.grad is None for x in wrong(lambda g: (g, None), 2)] == [False, True]
    assert [x.grad is None for x in wrong(lambda g: (g, None, None), 1)] == [False]


def forward_only(result):
    class Forward(hl.Function):
        @staticmethod
        def forward(ctx, x):
            return result(ctx, x)

        @staticmethod
        def backward(ctx, g):
            return g

    return Forward


@pytest.mark.parametrize(
    "result, error, words",
    [
        (lambda ctx, x: None, TypeError, r"Forward.forward() returned None; return a tensor"),
        (lambda ctx, x: 3.0, TypeError, "Forward.forward() returned float"),
        (lambda ctx, x: [x], TypeError, "Forward.forward() returned list"),
        (lambda ctx, x: (x * 1, None), TypeError, "returned None as result 1"),
        (
            lambda ctx, x: ctx.save_for_backward(3),
            TypeError,
            "save_for_backward() takes tensors, and number 0 is the int",
        ),
        (lambda ctx, x: x.__iadd__(1), hl.AutogradError, "wrote its argument 0 in place; write to x.copy()"),
    ],
)
def test_what_forward_does_wrongly_is_named(result, error, words):
    for x in (f64(1, 2, grad=True), f64(1, 2, grad=True) * 1):
        with pytest.raises(error, match=re.escape(words)):
            forward_only(result).apply(x)


def test_methods_must_be_there_and_static():
    class NoBackward(hl.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

    class NotStatic(hl.Function):
        def forward(ctx, x):
            return x * 2

    x = f64(1, 2, grad=True)
    with pytest.raises(NotImplementedError, match=r"write a static method backward\(ctx, \*gradients\)"):
        NoBackward.apply(x).sum().backward()
    with pytest.raises(TypeError, match="NotStatic.forward must be a static method; write @staticmethod above it"):
        NotStatic.apply(x)
    with pytest.raises(NotImplementedError, match="write a static method forward"):
        hl.Function.apply(x)


def test_saved_tensors_are_version_checked():
    for write in (
        lambda x, h, y: h.__imul__(2),  # the input
        lambda x, h, y: y.__imul__(2),  # the output
        lambda x, h, y: h[:1].__imul__(2),
    ):
        x = f64(1, 2, grad=True)
        h = x * 1
        y = Cube.apply(h)
        z = (y * 1).sum()
        with hl.no_grad():
            write(x, h, y)
        with pytest.raises(hl.VersionMismatch, match=r"Cube.backward\(\): saved (in|out)put \d at version 0, but") as e:
            z.backward()
        assert e.value.saved_version == 0 and e.value.current_version == 1


def test_a_second_backward_needs_a_retained_graph():
    x = f64(1, 2, grad=True)
    z = Cube.apply(x)
    z.backward(f64(1, 1), retain_graph=True)
    z.backward(f64(1, 1))
    equal(x.grad, [6, 24])
    with pytest.raises(hl.AutogradError, match="Cube has been walked before.*retain_graph=True"):
        z.backward(f64(1, 1))


def test_outputs_that_are_inputs_or_views_of_them_share_no_memory():
    for result in (lambda ctx, x: x, lambda ctx, x: x[:1], lambda ctx, x: x.detach(), lambda ctx, x: x[::-1]):
        x = f64(1, 2, grad=True)
        h = x * 1
        y = forward_only(result).apply(h)
        assert y is not h and y.data_ptr() not in (h.data_ptr(), h.data_ptr() + 8)
        before = h.tolist()
        y *= 5
        assert h.tolist() == before and h.version == 0
    x = f64(1, 2, grad=True)
    forward_only(lambda ctx, x: x).apply(x).sum().backward()
    equal(x.grad, [1, 1])


def test_outputs_may_be_written_in_place_and_seen_through_views():
    class Double(hl.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, g):
            return g * 2

    x = f64(1, 2, grad=True)
    y = Double.apply(x)
    y[:1] *= 10
    y += 1
    y.sum().backward()
    equal(x.grad, [20, 2])


def test_errors_and_hooks_inside_backward():
    class Fails(hl.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, g):
            raise ZeroDivisionError("in backward")

    x = f64(1, 2, grad=True)
    with pytest.raises(ZeroDivisionError, match="in backward"):
        Fails.apply(x).sum().backward()
    assert x.grad is None and hl.is_grad_enabled()
    y = Cube.apply(x)
    y.register_hook(lambda g: g * 10)
    y.sum().backward()
    equal(x.grad, [30, 120])


def test_a_backward_may_differentiate_inside():
    """The old way to recompute: a graph of its own inside backward."""

    class Again(hl.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return hl.sin(x) * x

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            with hl.enable_grad():
                x = x.detach().requires_grad_()
                y = hl.sin(x) * x
            return hl.gradients(y, x, g)[0]

    x = f64(1, 2, grad=True)
    Again.apply(x).sum().backward()
    equal(x.grad, np.sin([1, 2]) + np.cos([1, 2]) * [1, 2])


def test_the_line_of_the_call_is_the_callers():
    y = Cube.apply(f64(1, 2, grad=True))
    assert re.search(r"test_function\.py:\d+$", y.grad_fn.where)


@pytest.mark.parametrize("function", [Cube, FromOutput])
def test_memory_stays_flat_and_nothing_waits_for_the_collector(function):
    x = hl.ones(2000).requires_grad_()

    def step():
        y = function.apply(x * 1)
        (y.sum() + function.apply(y).sum()).backward()
        x.grad = None
        function.apply(x)  # never walked
        h = x * 1
        h *= function.apply(h)  # the input continues from the function

    step()
    gc.collect()
    gc.disable()
    try:
        before = hl.memory_stats()["allocated_bytes"]
        for _ in range(500):
            step()
        assert hl.memory_stats()["allocated_bytes"] == before
    finally:
        gc.enable()


def test_the_context_goes_with_the_graph():
    class Thing:
        pass

    refs = []

    class Holds(hl.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.thing = Thing()
            refs.append(weakref.ref(ctx.thing))
            return x * 2

        @staticmethod
        def backward(ctx, g):
            return g * 2

    x = f64(1, 2, grad=True)
    y = Holds.apply(x)
    assert refs[0]() is not None
    y.sum().backward()
    del y
    assert refs[0]() is None


def test_one_graph_with_a_function_from_several_threads():
    for _ in range(20):
        x = f64(1, 2, grad=True)
        z = Cube.apply(x * 1).sum()
        errors = []

        def work(z=z, errors=errors):
            try:
                z.backward(retain_graph=True)
            except hl.AutogradError as error:
                errors.append(error)

        threads = [threading.Thread(target=work) for _ in range(4)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        assert not errors
        equal(x.grad, [12, 48])


def test_subclasses_of_a_function_and_copies_of_the_class():
    class Quartic(Cube):
        @staticmethod
        def backward(ctx, g):
            return Cube.backward(ctx, g) * 2

    x = f64(1, 2, grad=True)
    Quartic.apply(x).sum().backward()
    equal(x.grad, [6, 24])
    assert copy.deepcopy(Cube) is Cube
