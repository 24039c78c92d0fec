"""hl.jvp against hl.vjp and finite differences: every differentiable op, every layout, in place, nested either way."""

import gc

import numpy as np
import pytest
from op_oracle import COMPLEX, FLOATS, OPS, calls, declared, limits
from test_op_gradients import BASES, SIMPLE, WHOLE, call, direction, generic_operands, inner, points, signs

import hyalite as hl
from hyalite import _C


def f64(*values, grad=False):
    return hl.tensor(list(values), dtype=hl.float64, requires_grad=grad)


def equal(got, want, tolerance=1e-12):
    np.testing.assert_allclose(got.detach().numpy(), np.asarray(want), rtol=tolerance, atol=tolerance)


def floats_of(arrays):
    return [i for i, a in enumerate(arrays) if a.dtype.kind in "fcV"]


def of_floats(op, arrays):
    """The op as a function of its floating operands, whose results are those that have a gradient, and the operands."""
    at = floats_of(arrays)

    def f(*floats):
        tensors = [hl.asarray(a) for a in arrays]
        for i, t in zip(at, floats):
            tensors[i] = t
        return tuple(o for o in call(op, tensors) if o.dtype.name in FLOATS + COMPLEX)

    return f, [hl.asarray(arrays[i]) for i in at]


def check_pair(f, operands, tolerance):
    """<u, J v> = <J^T u, v> for random u and v, also by operands one at a time and in several layouts."""
    layouts = {
        "plain": lambda t: t,
        "transposed": lambda t: hl.permute_dims(hl.permute_dims(t, list(range(t.ndim))[::-1]).contiguous(),
                                                list(range(t.ndim))[::-1]),
        "reversed": lambda t: t[::-1].contiguous()[::-1] if t.ndim else t,
        "gaps": lambda t: hl.stack([t, t], axis=-1)[..., 0],
    }  # fmt: skip
    tangents = [hl.asarray(direction(t.numpy(), 7 + i)) for i, t in enumerate(operands)]
    values, pullback = hl.vjp(f, *operands)
    weights = tuple(hl.asarray(direction(o.numpy(), 70 + i)) for i, o in enumerate(values))
    back = pullback(weights)
    bits = {}
    for name, layout in layouts.items():
        laid = [layout(t) for t in operands]
        got, along = hl.jvp(f, laid, [layout(t) for t in tangents])
        assert [(o.shape, o.dtype) for o in along] == [(o.shape, o.dtype) for o in values]
        for o, v in zip(got, values):
            np.testing.assert_array_equal(o.numpy(), v.numpy())
        forward = sum(inner(u.numpy(), o.numpy()) for u, o in zip(weights, along))
        reverse = sum(inner(g.numpy(), t.numpy()) for g, t in zip(back, tangents))
        np.testing.assert_allclose(forward, reverse, rtol=tolerance, atol=tolerance)
        bits[name] = [o.numpy() for o in along]
    for i in range(len(operands) if len(operands) > 1 else 0):
        alone = [t if k == i else hl.zeros_like(t) for k, t in enumerate(tangents)]
        _, along = hl.jvp(f, operands, alone)
        forward = sum(inner(u.numpy(), o.numpy()) for u, o in zip(weights, along))
        np.testing.assert_allclose(forward, inner(back[i].numpy(), tangents[i].numpy()), rtol=tolerance, atol=tolerance)
    return bits


def tolerance_of(name):
    return 200 * 2.0 ** -limits({"complex64": "float32", "complex128": "float64"}.get(name, name))[3]


EVERY = ["float16", "bfloat16", "float32", "float64", *COMPLEX]


@pytest.mark.parametrize("op, name", [(op, n) for op in SIMPLE for n in EVERY if n in declared(op)])
def test_elementwise_ops(op, name):
    arrays = [a.reshape(6, 8) for a in generic_operands(op, name)]
    bits = check_pair(*of_floats(op, arrays), tolerance_of(name))
    if name not in COMPLEX:
        for laid in bits.values():
            for a, b in zip(bits["plain"], laid):
                np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("op, name", [(op, n) for op in WHOLE for n in BASES + ["float32"] if n in declared(op)])
def test_other_ops(op, name):
    for shapes, function, _ in calls(op):
        arrays = [signs(points(name, s, 11 + i), i) for i, s in enumerate(shapes)]
        check_pair(*of_floats(function, arrays), tolerance_of(name))


def test_every_differentiable_op_has_a_rule_of_its_own():
    """None is left to the transpose of its backward."""
    names = [op for op in _C._op_names() if OPS[op]["has_gradient"]]
    assert names and all(_C._op_facts(op)["tangent"] in ("gradient", "linear", "rule", "parts") for op in names)


@pytest.mark.parametrize("op", [op for op in SIMPLE if OPS[op]["arity"] > 1])
@pytest.mark.parametrize("name", BASES)
def test_broadcast_operands(op, name):
    if name not in declared(op):
        return
    flat = generic_operands(op, name)
    shapes = [(6, 1), (1, 8), (6, 8)]
    for turn in range(3):
        parts = [a[: int(np.prod(s))].reshape(s) for a, s in zip(flat, shapes[turn:] + shapes[:turn])]
        check_pair(*of_floats(op, parts), 1e-10)


@pytest.mark.parametrize("op", ["add", "subtract", "multiply", "divide"])
def test_real_beside_complex(op):
    real, imaginary = points("float64", (4, 3), 1), points("complex128", (4, 3), 2)
    for arrays in ([real, imaginary], [imaginary, real], [real[:1], imaginary], [imaginary[:, :1], real]):
        check_pair(*of_floats(op, arrays), 1e-11)


def test_finite_differences_of_a_program():
    def f(x, w):
        h = hl.tanh(x @ w) + x[:, :1]
        y = hl.softmax(h, axis=0) * hl.where(h > 0, hl.log1p(hl.abs(h)), hl.sin(h))
        y[1:] *= hl.exp(y[:-1])
        y += hl.prod(h, axis=1, keepdims=True) * hl.max(y)
        return hl.concat([y, h.T[:, :3]], axis=0), hl.cumulative_sum(y[0]) if hasattr(hl, "cumulative_sum") else y[0]

    rng = np.random.default_rng(3)
    x, w, dx, dw = (rng.normal(size=s) for s in ((3, 2), (2, 3), (3, 2), (2, 3)))
    _, got = hl.jvp(f, (hl.asarray(x), hl.asarray(w)), (hl.asarray(dx), hl.asarray(dw)))
    e = 1e-6
    ends = [f(hl.asarray(x + s * dx), hl.asarray(w + s * dw)) for s in (e, -e)]
    for g, a, b in zip(got, *ends):
        np.testing.assert_allclose(g.numpy(), (a.numpy() - b.numpy()) / (2 * e), rtol=1e-7, atol=1e-8)


# ---- in place ---------------------------------------------------------------------------------------------------

IN_PLACE = {
    "overwritten output": lambda x, w: _run(hl.exp(x), lambda y: y.__iadd__(1)),
    "itself": lambda x, w: _run(x * w, lambda y: y.__imul__(y)),
    "power": lambda x, w: _run(x * x, lambda y: y.__ipow__(2)),
    "remainder": lambda x, w: _run(x * 2.9, lambda y: y.__imod__(w)),
    "divide": lambda x, w: _run(x * 1, lambda y: y.__itruediv__(w)),
    "view": lambda x, w: _run(x * w, lambda y: y[::2].__imul__(x[::2])),
    "view of view": lambda x, w: _run(x * w, lambda y: y.reshape(2, 2).T[1].__imul__(w[:2])),
    "overlap": lambda x, w: _run(x * w, lambda y: y[1:].__imul__(y[:-1])),
    "set item": lambda x, w: _run(x * w, lambda y: y.__setitem__(slice(1, 3), hl.sin(x[:2]))),
    "set number": lambda x, w: _run(x * w, lambda y: y.__setitem__(1, 5.0)),
    "mask": lambda x, w: _run(x * w, lambda y: y.__setitem__(y > 0, 5.0)),
    "constant target": lambda x, w: _run(hl.zeros(4, dtype=hl.float64), lambda y: y.__iadd__(x * w)),
    "view of constant": lambda x, w: _run(hl.ones(4, dtype=hl.float64), lambda y: y[:2].__imul__(x[2:])),
    "twice": lambda x, w: _run(hl.sin(x), lambda y: (y.__imul__(w), y[1:].__iadd__(y[:-1]), y.__imul__(x))),
    "expanded": lambda x, w: _run(x * w, lambda y: y.__iadd__(x[:1])),
}


def _run(y, write):
    view = y[1:3]
    write(y)
    return y * 2 + hl.sum(view)


@pytest.mark.parametrize("f", IN_PLACE.values(), ids=IN_PLACE)
def test_writes_in_place(f):
    x, w = np.array([0.5, -1.2, 2.3, 0.7]), np.array([1.3, 0.4, -0.8, 2.1])
    dx, dw = np.array([1.0, -0.5, 0.3, 2.0]), np.array([0.2, 0.7, -1.0, 0.4])
    value, along = hl.jvp(f, (hl.asarray(x), hl.asarray(w)), (hl.asarray(dx), hl.asarray(dw)))
    equal(value, f(hl.asarray(x), hl.asarray(w)).numpy())
    e = 1e-6
    ends = [f(hl.asarray(x + s * dx), hl.asarray(w + s * dw)).numpy() for s in (e, -e)]
    np.testing.assert_allclose(along.numpy(), (ends[0] - ends[1]) / (2 * e), rtol=1e-7, atol=1e-8)
    # And the derivative of the derivative, through the writes.
    second = hl.jvp(lambda x: hl.jvp(f, (x, hl.asarray(w)), (hl.asarray(dx), hl.asarray(dw)))[1],
                    (hl.asarray(x),), (hl.asarray(dx),))[1]  # fmt: skip
    ends = [
        hl.jvp(f, (hl.asarray(x + s * dx), hl.asarray(w)), (hl.asarray(dx), hl.asarray(dw)))[1].numpy() for s in (e, -e)
    ]
    np.testing.assert_allclose(second.numpy(), (ends[0] - ends[1]) / (2 * e), rtol=1e-6, atol=1e-7)


# ---- nesting ----------------------------------------------------------------------------------------------------

X, V, U = f64(0.7, -1.3, 0.4), f64(0.3, 1.1, -0.6), f64(1.2, -0.2, 0.5)


def scalar(x):
    return hl.sum(hl.sin(x) * x[::-1] * hl.exp(x * 0.3)) * hl.prod(x)


ORDERS = {
    "reverse": lambda f: lambda x: hl.sum(hl.grad(f)(x) * V),
    "forward": lambda f: lambda x: hl.jvp(f, (x,), (V,))[1],
    "pulled": lambda f: lambda x: hl.sum(hl.vjp(f, x)[1](1.0)[0] * V),
}


def nested(names):
    f = scalar
    for name in names:
        f = ORDERS[name](f)
    return f


@pytest.mark.parametrize("a", ORDERS)
@pytest.mark.parametrize("b", ORDERS)
@pytest.mark.parametrize("c", ORDERS)
def test_forward_and_reverse_nest_to_order_three(a, b, c):
    got = nested([a, b, c])(X).item()
    second = nested([a, b])
    e = 1e-5
    want = (second(X + e * V) - second(X - e * V)).item() / (2 * e)
    assert abs(got - want) < 1e-6 * max(1, abs(want))
    assert abs(second(X).item() - nested(["reverse", "reverse"])(X).item()) < 1e-11
    assert abs(got - nested(["reverse"] * 3)(X).item()) < 1e-10


def test_levels_do_not_confuse_their_perturbations():
    one = f64(1.0)
    d = lambda f, x: hl.jvp(f, (x,), (hl.ones_like(x),))[1]  # noqa: E731
    equal(d(lambda x: x * d(lambda y: x + y, one), one), [1])
    equal(d(lambda x: x * d(lambda y: x * y, one), one), [2])
    equal(d(lambda x: d(lambda y: d(lambda z: x * y * y * z, y), x), f64(2.0)), [2 * 2 * 2])
    equal(d(lambda x: x * hl.grad(lambda y: (x * y * y).sum())(x), f64(3.0)), [18 * 3])
    equal(hl.grad(lambda x: (x * d(lambda y: x * y * y, x)).sum())(f64(3.0)), [18 * 3])


def test_closures_of_a_jvp():
    w = f64(2, 3, 4, grad=True)
    value, along = hl.jvp(lambda x: x * x * w, (X,), (V,))
    assert value.requires_grad and along.requires_grad
    (g,) = hl.gradients(along.sum(), w, retain_graph=True)
    equal(g, (2 * X * V).numpy())
    (g,) = hl.gradients(value.sum(), w)
    equal(g, (X * X).numpy())
    # The tangent itself may be what is differentiated by, and the primal may have a history.
    equal(hl.grad(lambda v: (hl.jvp(hl.sin, (X,), (v,))[1] * U).sum())(V), (hl.cos(X) * U).numpy())
    h = w * 1
    _, along = hl.jvp(lambda x: x**3, (h,), (f64(1, 1, 1),))
    (g,) = hl.gradients(along.sum(), w)
    equal(g, 6 * np.array([2.0, 3, 4]))
    with hl.no_grad():
        value, along = hl.jvp(lambda x: x * x * w, (X,), (V,))
        assert not value.requires_grad and not along.requires_grad
        equal(along, (2 * X * V * w).numpy())
    value, along = hl.jvp(lambda x: x * x, (X,), (V,))
    assert not value.requires_grad and not along.requires_grad and along.is_leaf


def test_trees_zeros_and_what_is_no_float():
    primals = ({"a": X, "b": [2.0]}, (V,))
    tangents = ({"a": V, "b": [1.0]}, (U,))
    f = lambda p, q: {"s": (p["a"] * q[0]).sum() * p["b"][0], "i": hl.argmax(p["a"]), "c": 3.0, "k": X * 2}  # noqa: E731
    value, along = hl.jvp(f, primals, tangents)
    assert list(along) == ["s", "i", "c", "k"] and along["i"].dtype is hl.int64
    assert along["i"].item() == 0 and along["c"].item() == 0 and along["k"].tolist() == [0, 0, 0]
    want = 2 * hl.sum(V * V + X * U) + hl.sum(X * V)
    equal(along["s"], want.numpy())
    value, along, aux = hl.jvp(lambda x: (x * 2, {"aux": x, "n": 1}), (X,), (V,), has_aux=True)
    equal(along, (V * 2).numpy())
    assert aux["n"] == 1 and not aux["aux"].requires_grad
    for stop in (lambda x: x.detach() * x, lambda x: hl.stop_gradient(x) * x):
        equal(hl.jvp(stop, (X,), (V,))[1], (X * V).numpy())


def test_results_share_no_memory_with_the_tangents_given():
    v = f64(1, 2, 3)
    a, b = hl.jvp(lambda x: (x, x[::-1]), (X,), (v,))[1]
    a *= 10
    assert v.tolist() == [1, 2, 3] and b.tolist() == [3, 2, 1] and v.version == 0


REFUSED = [
    (lambda: hl.jvp(hl.sin, X, (V,)), TypeError, r"primals must be a tuple of arguments, not Tensor; write \(x,\)"),
    (lambda: hl.jvp(hl.sin, (X,), V), TypeError, "tangents must be a tuple"),
    (lambda: hl.jvp(hl.sin, (X,), ()), ValueError, "0 tangents for 1 primals"),
    (lambda: hl.jvp(hl.sin, (X,), ([V],)), ValueError, "of the same form as the primals"),
    (lambda: hl.jvp(hl.sin, (X,), (None,)), ValueError, "of the same form as the primals"),
    (
        lambda: hl.jvp(hl.sin, (X,), (V[:2],)),
        hl.ShapeMismatch,
        r"tangents of argument 0 have shape \(2,\), it has \(3,\)",
    ),
    (lambda: hl.jvp(hl.sin, (X,), (hl.ones(3),)), hl.DtypeMismatch, r"float32, it is float64; write x.astype"),
    (lambda: hl.jvp(hl.sin, (hl.arange(3),), (hl.arange(3),)), TypeError, "argument 0 is int64"),
    (lambda: hl.jvp(None, (X,), (V,)), TypeError, "f must be a function"),
    (lambda: hl.jvp(lambda x: None, (X,), (V,)), TypeError, "is a return missing"),
]


@pytest.mark.parametrize("run, error, words", REFUSED)
def test_what_jvp_refuses(run, error, words):
    with pytest.raises(error, match=words) as raised:
        run()
    assert str(raised.value).startswith("jvp()")


def test_custom_functions_follow_from_their_backward():
    class Cube(hl.Function):
        @staticmethod
        def forward(ctx, x, w):
            ctx.save_for_backward(x, w)
            return x * x * x * w, x + w

        @staticmethod
        def backward(ctx, g, h):
            x, w = ctx.saved_tensors
            return 3 * g * x * x * w + h, g * x * x * x + h

    class Opaque(hl.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx, g):
            return hl.asarray(g.detach().numpy() * 2 * ctx.saved_tensors[0].detach().numpy())

    class Constant(hl.Function):
        @staticmethod
        def forward(ctx, x):
            return hl.sign(x)

        @staticmethod
        def backward(ctx, g):
            return hl.zeros_like(g)

    plain = lambda x, w: (x * x * x * w, x + w)  # noqa: E731
    for f in (Cube.apply, lambda x, w: (Cube.apply(x, w)[0], x + w)):
        got, want = (hl.jvp(g, (X, U), (V, f64(1, 2, 3)))[1] for g in (f, plain))
        for a, b in zip(got, want):
            equal(a, b.numpy())
    twice = lambda f: hl.jvp(lambda x: hl.jvp(f, (x, U), (V, V))[1][0], (X,), (V,))[1]  # noqa: E731
    equal(twice(Cube.apply), twice(plain).numpy())
    mixed = lambda f: hl.grad(lambda x: hl.jvp(f, (x, x), (V, V))[1][0].sum())(X)  # noqa: E731
    equal(mixed(Cube.apply), mixed(plain).numpy())
    equal(hl.jvp(lambda x: hl.grad(lambda y: Cube.apply(y, y)[0].sum())(x), (X,), (V,))[1], (12 * X * X * V).numpy())
    with pytest.raises(hl.AutogradError, match="backward of Opaque is not made of recorded ops"):
        hl.jvp(Opaque.apply, (X,), (V,))
    assert hl.jvp(Constant.apply, (X,), (V,))[1].tolist() == [0, 0, 0]


def test_nothing_is_walked_backward():
    """A hook would run in a walk, and a walk that frees the graph would leave nothing to a second derivative."""
    calls = []

    def f(x):
        y = x * x
        y.register_hook(lambda g: calls.append(g))
        return y * x

    hl.jvp(f, (X,), (V,))
    assert not calls


def test_an_exception_inside_leaves_the_level():
    def fails(x):
        y = x * x
        hl.jvp(lambda z: z * y, (x,), (V,))
        raise KeyError

    for _ in range(3):
        with pytest.raises(KeyError):
            hl.jvp(fails, (X,), (V,))
        assert hl.is_grad_enabled()
        equal(hl.jvp(lambda x: x * x, (X,), (V,))[1], (2 * X * V).numpy())


def test_values_from_other_threads_and_from_before_are_followed():
    import threading

    def f(x):
        out = []
        t = threading.Thread(target=lambda: out.append(hl.sin(x) * 2))
        t.start()
        t.join()
        return out[0] * x

    equal(hl.jvp(f, (X,), (V,))[1], (2 * V * (hl.cos(X) * X + hl.sin(X))).numpy())


def test_long_chains_neither_overflow_the_stack_nor_take_quadratic_time():
    def f(x):
        y = x
        for _ in range(100_000):
            y = y + x
        return y

    assert hl.jvp(f, (hl.asarray(1.0),), (hl.asarray(1.0),))[1].item() == 100_001


@pytest.mark.parametrize("nest", [1, 2])
def test_memory_stays_flat(nest):
    x, v, w = hl.ones(2000), hl.ones(2000), hl.ones(2000).requires_grad_()

    def step():
        f = lambda x: hl.sin(x * w) * hl.sum(x)  # noqa: E731
        g = f if nest == 1 else lambda x: hl.jvp(f, (x,), (v,))[1]
        hl.jvp(g, (x,), (v,))

    step()
    gc.collect()
    before = hl.memory_stats()["allocated_bytes"]
    for _ in range(200):
        step()
    assert hl.memory_stats()["allocated_bytes"] == before
