"""hl.grad, hl.vjp and their like: closures, trees of arguments, what there is no path to, what is refused, modes."""

import collections
import gc
import re
import threading

import numpy as np
import pytest

import hyalite as hl


def f64(*values, grad=False):
    return hl.tensor(list(values), dtype=hl.float64, requires_grad=grad)


def equal(got, want):
    np.testing.assert_allclose(got.detach().numpy(), np.asarray(want), rtol=1e-12, atol=1e-12)


def numeric(f, x, step=1e-6):
    """The gradient of a function of one float64 array by central differences."""
    out = np.zeros_like(x)
    for i in np.ndindex(*x.shape):
        ends = []
        for s in (step, -step):
            moved = x.copy()
            moved[i] += s
            ends.append(float(f(hl.asarray(moved))))
        out[i] = (ends[0] - ends[1]) / (2 * step)
    return out


# ---- W1: what a function closes over ----------------------------------------------------------------------------


def test_w1_the_two_instances():
    inner = lambda x: hl.grad(lambda y: x * y * y)(hl.asarray(3.0))  # noqa: E731
    assert hl.grad(lambda x: x + inner(x))(hl.asarray(2.0)).item() == 7

    def loss(w):
        return (w**2).sum() + (hl.grad(lambda x: (w * x * x).sum())(f64(1, 2)) ** 2).sum()

    equal(hl.grad(loss)(f64(3, 4)), [30, 136])
    equal(hl.grad(lambda w: hl.value_and_grad(lambda x: (w * x * x).sum())(f64(1, 2))[0])(f64(3, 4)), [1, 4])


INNER = {
    "grad": lambda f, x: hl.grad(f)(x),
    "value_and_grad": lambda f, x: sum(hl.value_and_grad(f)(x)),
    "vjp": lambda f, x: hl.vjp(f, x)[1](1.0)[0] * hl.vjp(f, x)[0],
    "jacobian": lambda f, x: hl.jacobian(f)(x),
    "hessian": lambda f, x: hl.hessian(f)(x).sum() * x,
    "has_aux": lambda f, x: hl.grad(lambda y: (f(y), f(y) * 2), has_aux=True)(x)[1] * x,
    "twice": lambda f, x: hl.grad(lambda y: hl.grad(f)(y).sum())(x),
}


@pytest.mark.parametrize("inner", INNER.values(), ids=INNER)
@pytest.mark.parametrize("outer", ["grad", "backward", "gradients", "vjp"])
def test_w1_what_an_inner_derivative_closes_over_is_differentiated_through(inner, outer):
    x = f64(0.7, -1.3)

    def loss(w):
        h = hl.sin(w)
        first = inner(lambda y: (hl.exp(w * y) * h).sum(), x)
        second = inner(lambda y: (w * y * y * y).sum(), w * x)  # the argument depends on w too
        return (first * first).sum() + (second * w).sum()

    start = np.array([0.4, 1.1])
    want = numeric(loss, start)
    if outer == "grad":
        got = hl.grad(loss)(hl.asarray(start))
    elif outer == "vjp":
        got = hl.vjp(loss, hl.asarray(start))[1](1.0)[0]
    else:
        w = f64(*start, grad=True)
        if outer == "backward":
            loss(w).backward()
            got = w.grad
        else:
            (got,) = hl.gradients(loss(w), w)
    np.testing.assert_allclose(got.detach().numpy(), want, rtol=2e-6, atol=1e-7)


def test_w1_at_any_depth_to_order_three():
    """d/da d/db d/dc of a * b * c at three levels of closures, and of a power of all."""

    def level1(a):
        def level2(b):
            def level3(c):
                return a**2 * b**3 * c**4 + a * b * c

            return hl.grad(level3)(b * a)  # the point depends on both

        return hl.grad(level2)(a + 1.0)

    # level3' at c = ab: 4 a^2 b^3 (ab)^3 + ab = 4 a^5 b^6 + ab; level2' at b = a + 1: 24 a^5 b^5 + a.
    a = 1.5
    b = a + 1
    want = 24 * (5 * a**4 * b**5 + 5 * a**5 * b**4) + 1
    got = hl.grad(level1)(hl.asarray(a, dtype=hl.float64)).item()
    assert abs(got - want) < 1e-9 * want


def test_w1_results_keep_a_graph_only_where_they_depend_on_something_else():
    w = f64(1, 2, grad=True)
    plain, x = f64(3, 4), f64(1, 2, grad=True)
    for make in (hl.grad, hl.jacobian):
        assert not make(lambda y: (y * plain).sum())(plain).requires_grad
        assert make(lambda y: (y * y * w).sum())(plain).requires_grad
        assert make(lambda y: (y * y).sum())(x).requires_grad
        with hl.no_grad():
            assert not make(lambda y: (y * y * w).sum())(plain).requires_grad
            assert not make(lambda y: (y * y).sum())(x).requires_grad
    value, gradient = hl.value_and_grad(lambda y: (y * y * w).sum())(plain)
    assert value.requires_grad and gradient.requires_grad
    (gradient.sum() + value).backward()
    equal(w.grad, [6 + 9, 8 + 16])
    value, gradient = hl.value_and_grad(lambda y: (y * y).sum())(plain)
    assert not value.requires_grad and not gradient.requires_grad and value.is_leaf
    (_, aux), _ = hl.value_and_grad(lambda y: ((y * y).sum(), [y * 2, w * 2, "text"]), has_aux=True)(plain)
    assert [getattr(a, "requires_grad", None) for a in aux] == [False, True, None]
    value, pullback = hl.vjp(lambda y: y * y, plain)
    assert not value.requires_grad and not pullback(plain)[0].requires_grad
    assert pullback(x)[0].requires_grad
    assert plain.grad is None and not plain.requires_grad and x.grad is None


# ---- G3: nothing to differentiate -------------------------------------------------------------------------------

CONSTANTS = {
    "tensor": lambda *_: hl.asarray(3.0),
    "number": lambda *_: 3.0,
    "integer": lambda *_: 3,
    "numpy": lambda *_: np.float64(3.0),
    "detached": lambda x, *_: x.detach().sum(),
    "no_grad": hl.no_grad()(lambda x, *_: (x * x).sum()),
    "stopped": lambda x, *_: hl.stop_gradient(x * x).sum(),
    "floor": lambda x, *_: hl.floor(x).sum() // 1,
}


@pytest.mark.parametrize("f", CONSTANTS.values(), ids=CONSTANTS)
@pytest.mark.parametrize("dtype", [hl.float16, hl.bfloat16, hl.float32, hl.float64])
def test_g3_a_constant_has_gradient_zero(f, dtype):
    x = hl.ones((2, 3), dtype=dtype)
    for g in (hl.grad(f)(x), hl.value_and_grad(f)(x)[1], hl.jacobian(f)(x), hl.grad(f, argnums=(0, 1))(x, x)[1]):
        assert g.shape == x.shape and g.dtype is dtype and not g.numpy().any() and not g.requires_grad
    assert hl.hessian(f)(x).shape == (2, 3, 2, 3)


def test_g3_twice_of_a_linear_function_and_unused_arguments():
    x, z = f64(1, 2), hl.tensor([1j, 2.0], dtype=hl.complex64)
    linear = lambda y: (3 * y).sum()  # noqa: E731
    equal(hl.grad(lambda y: hl.grad(linear)(y).sum())(x), [0, 0])
    equal(hl.hessian(linear)(x), np.zeros((2, 2)))
    equal(hl.grad(lambda y: hl.grad(lambda y: hl.grad(linear)(y).sum())(y).sum())(x), [0, 0])
    used, unused = hl.grad(lambda a, b: (a * a).sum(), argnums=(0, 1))(x, z)
    equal(used, [2, 4])
    assert unused.dtype is hl.complex64 and unused.shape == (2,) and unused.tolist() == [0, 0]
    assert [c.tolist() for c in hl.vjp(lambda a, b: a * 2, x, z)[1](x)] == [[2, 4], [0, 0]]
    g = hl.grad(lambda t: t["a"].sum())({"a": x, "b": [z, 2.0]})
    assert g["b"][0].tolist() == [0, 0] and g["b"][1].item() == 0 and g["b"][1].shape == ()


# ---- G5: trees, argnums, has_aux --------------------------------------------------------------------------------

Layer = collections.namedtuple("Layer", "weight bias")


def test_g5_arguments_and_gradients_are_trees():
    x = f64(1, 2)
    trees = {
        "list": [f64(1, 2), f64(3, 4)],
        "tuple": (f64(1, 2), f64(3, 4)),
        "named": Layer(f64(1, 2), f64(3, 4)),
        "dict": {"b": f64(1, 2), "a": f64(3, 4)},
        "ordered": collections.OrderedDict([("b", f64(1, 2)), ("a", f64(3, 4))]),
        "default": collections.defaultdict(list, {1: f64(1, 2), "x": f64(3, 4)}),
        "nested": [Layer({"k": (f64(1, 2), None)}, []), [[f64(3, 4)]]],
        "arrays": [np.array([1.0, 2.0]), np.array([3.0, 4.0])],
    }

    def leaves(tree):
        if tree is None:
            return []
        if isinstance(tree, dict):
            tree = list(tree.values())
        if isinstance(tree, (list, tuple)):
            return [leaf for part in tree for leaf in leaves(part)]
        return [tree]

    def same_form(a, b):
        if isinstance(a, dict):
            assert type(a) is type(b) and list(a) == list(b)
            a, b = list(a.values()), list(b.values())
        if isinstance(a, (list, tuple)):
            assert type(a) is type(b) and len(a) == len(b)
            for p, q in zip(a, b):
                same_form(p, q)
        else:
            assert (a is None) == (b is None)

    for tree in trees.values():

        def f(t, factor):
            p, q = leaves(t)
            return (p * q * factor).sum()

        g = hl.grad(f)(tree, x)
        same_form(tree, g)
        equal(leaves(g)[0], [3, 8])
        equal(leaves(g)[1], [1, 4])
        value, (g, gx) = hl.value_and_grad(f, argnums=(0, 1))(tree, x)
        same_form(tree, g)
        equal(gx, [3, 8])
        assert value.item() == 19
        value, pullback = hl.vjp(f, tree, x)
        same_form(tree, pullback(1.0)[0])
        same_form(tree, hl.jacobian(f)(tree, x))
    assert g.default_factory is list if isinstance(g, collections.defaultdict) else True
    assert hl.grad(lambda t: t[0] * t[1])([2.0, 3.0])[0].item() == 3
    assert hl.grad(lambda t: (t[0] * t[1][0]).sum())((2.0, [hl.ones((2, 2))]))[1][0].tolist() == [[2, 2], [2, 2]]
    assert hl.grad(lambda t: hl.ones(1).sum())([]) == [] and hl.grad(lambda t: 1.0)(None) is None


@pytest.mark.parametrize("argnums", [0, 1, -1, 2, -3, np.int64(1), (0,), (2, 0), (-1, 0), [0, 1], ()])
def test_g5_argnums(argnums):
    args = [f64(1, 2), f64(3, 4), f64(5, 6)]
    product = [f64(15, 24), f64(5, 12), f64(3, 8)]
    got = hl.grad(lambda a, b, c, *, scale=1.0: (a * b * c).sum() * scale, argnums=argnums)(*args, scale=2.0)
    if hasattr(argnums, "__index__"):
        equal(got, product[argnums].numpy() * 2)
    else:
        assert isinstance(got, tuple) and len(got) == len(argnums)
        for g, n in zip(got, argnums):
            equal(g, product[n].numpy() * 2)


def test_g5_has_aux():
    f = lambda x: ((x * x).sum(), {"double": x * 2, "n": 3})  # noqa: E731
    x = f64(1, 2)
    g, aux = hl.grad(f, has_aux=True)(x)
    equal(g, [2, 4])
    equal(aux["double"], [2, 4])
    assert aux["n"] == 3 and not aux["double"].requires_grad
    (value, aux), g = hl.value_and_grad(f, has_aux=True)(x)
    assert value.item() == 5 and aux["n"] == 3
    value, pullback, aux = hl.vjp(f, x, has_aux=True)
    equal(pullback(2.0)[0], [4, 8])
    assert aux["n"] == 3
    jac, aux = hl.jacobian(f, has_aux=True)(x)
    equal(jac, [2, 4])
    h, aux = hl.hessian(f, has_aux=True)(x)
    equal(h, [[2, 0], [0, 2]])
    assert aux["n"] == 3


# ---- C3, F4: what is refused, in our words ----------------------------------------------------------------------

DERIVATIVES = {
    "grad": hl.grad,
    "value_and_grad": hl.value_and_grad,
    "jacobian": hl.jacobian,
    "hessian": hl.hessian,
    "vjp": lambda f, **kw: lambda *args: hl.vjp(f, *args, **kw),
}
SCALAR_ONLY = ("grad", "value_and_grad")
x3 = hl.ones(3)
one = lambda x: (x * x).sum()  # noqa: E731

# name, function, positional arguments, options, error, words
REFUSED = [
    ("none", lambda w: None, (x3,), {}, TypeError, "f returned None.*is a return missing"),
    ("object", lambda w: object(), (x3,), {}, TypeError, "object"),
    ("text", lambda w: "x", (x3,), {}, TypeError, "the str 'x'"),
    ("aux_missing", one, (x3,), {"has_aux": True}, TypeError, r"pair \(value, aux\), not Tensor"),
    ("aux_three", lambda w: (w.sum(), 1, 2), (x3,), {"has_aux": True}, TypeError, "pair"),
    ("int_argument", one, (3,), {}, TypeError, "argument 0 is the int 3, which has no gradient; write 3.0"),
    ("bool_argument", one, (True,), {}, TypeError, "argument 0 is the bool True"),
    ("int_tensor", one, (hl.arange(3),), {}, TypeError, "argument 0 is int64, which has no gradient"),
    ("bool_tensor", one, (hl.arange(3) > 1,), {}, TypeError, "argument 0 is bool"),
    (
        "deep",
        lambda t: t["a"][1].sum(),
        ({"a": [x3, hl.arange(2)]},),
        {},
        TypeError,
        r"argument 0\['a'\]\[1\] is int64",
    ),
    ("text_argument", one, ("x",), {}, TypeError, "argument 0 is the str 'x'"),
    ("object_argument", one, (object(),), {}, TypeError, "argument 0 is object"),
]
SCALAR = [
    ("vector", lambda w: w, (x3,), {}, hl.ShapeMismatch, r"f returned shape \(3,\).*hl.sum"),
    ("empty", lambda w: w[:0], (x3,), {}, hl.ShapeMismatch, r"shape \(0,\)"),
    ("complex", lambda w: w.sum() * 1j, (x3,), {}, TypeError, "f returned complex64.*hl.real"),
    ("complex_number", lambda w: 1j, (x3,), {}, TypeError, "complex64"),
    ("integer", lambda w: (w > 0).sum(), (x3,), {}, TypeError, "f returned int64, which has no gradient"),
    ("bool", lambda w: True, (x3,), {}, TypeError, "the bool True"),
    ("pair", lambda w: (w.sum(), w), (x3,), {}, TypeError, "a tuple.*has_aux=True"),
    ("dict", lambda w: {"loss": w.sum()}, (x3,), {}, TypeError, "a dict, not a tensor of one element"),
]
NUMBERED = [
    ("beyond", one, (x3,), {"argnums": 1}, IndexError, "argnums 1 is out of range for 1 positional argument"),
    ("below", one, (x3,), {"argnums": -2}, IndexError, "argnums -2 is out of range"),
    ("in_tuple", one, (x3,), {"argnums": (0, 5)}, IndexError, "argnums 5"),
    ("twice", one, (x3,), {"argnums": (0, -1)}, ValueError, "names argument 0 twice"),
    ("text", one, (x3,), {"argnums": "a"}, TypeError, "an int or a tuple of ints, not the str 'a'"),
    ("float", one, (x3,), {"argnums": 1.0}, TypeError, "an int or a tuple of ints, not float"),
    ("bool", one, (x3,), {"argnums": True}, TypeError, "an int or a tuple of ints"),
]


CASES = [
    pytest.param(name, *row[1:], id=f"{name}-{row[0]}")
    for name in DERIVATIVES
    for row in REFUSED + (SCALAR if name in SCALAR_ONLY else []) + (NUMBERED if name != "vjp" else [])
]


@pytest.mark.parametrize("name, f, args, options, error, words", CASES)
def test_c3_what_has_no_gradient_is_refused_by_name(name, f, args, options, error, words):
    with pytest.raises(error) as raised:
        DERIVATIVES[name](f, **options)(*args)
    text = str(raised.value)
    assert re.search(words, text) and text.startswith("jacobian()" if name == "hessian" else f"{name}()"), text


@pytest.mark.parametrize("name", DERIVATIVES)
@pytest.mark.parametrize("f", [None, 3, "x", x3])
def test_c3_f_must_be_a_function(name, f):
    with pytest.raises(TypeError, match=rf"{name}\(\): f must be a function, not"):
        DERIVATIVES[name](f)(x3)


def test_c3_empty_handles_of_backward_and_gradients():
    x = f64(1, 2, grad=True)
    y = (x * x).sum()
    for call in (
        lambda: hl.backward([None]),
        lambda: hl.backward([y, None]),
        lambda: hl.backward(None),
        lambda: hl.gradients(None, x),
        lambda: hl.gradients([None], x),
        lambda: hl.gradients(y, None),
        lambda: hl.gradients(y, [x, None]),
        lambda: hl.gradients(y, [x, 3.0]),
        lambda: hl.gradients(3.0, x),
    ):
        with pytest.raises(TypeError, match=r"^(backward|gradients)\(\): .* not (a tensor|None|float)|is None"):
            call()
    with pytest.raises(ValueError, match="2 gradients for 1 tensors"):
        hl.gradients(y, x, [None, None])
    with pytest.raises(ValueError, match="must not be empty"):
        hl.gradients([], x)
    assert x.grad is None


# ---- gradients(outputs, inputs) ---------------------------------------------------------------------------------


def test_gradients_by_leaves_and_by_inner_tensors():
    x, w = f64(1, 2, grad=True), f64(3, 4, grad=True)
    h = x * w
    out = (h * h).sum()
    gx, gh = hl.gradients(out, [x, h], retain_graph=True)
    equal(gx, [18, 64])
    equal(gh, [6, 16])
    assert isinstance(hl.gradients(out, x, retain_graph=True), tuple)
    equal(hl.gradients(h, x, f64(1, 10), retain_graph=True)[0], [3, 40])
    both = hl.gradients([h, out], x, [f64(1, 10), None], retain_graph=True)[0]
    equal(both, [21, 104])
    assert x.grad is None and w.grad is None and h.grad is None
    equal(hl.gradients(out, [x, x], retain_graph=True)[1], [18, 64])
    (second,) = hl.gradients(hl.gradients(out, x, create_graph=True)[0].sum(), w, retain_graph=True)
    equal(second, [12, 32])
    hl.gradients(out, x)
    with pytest.raises(hl.AutogradError, match="walked before"):
        hl.gradients(out, x)


def test_gradients_of_what_has_no_path():
    x, other = f64(1, 2, grad=True), f64(1, 2, grad=True)
    y = (x * x).sum()
    with pytest.raises(hl.AutogradError, match=r"inputs\[1\] has no path to the outputs; write allow_unused=True"):
        hl.gradients(y, [x, other], retain_graph=True)
    got = hl.gradients(y, [x, other], allow_unused=True, retain_graph=True)
    equal(got[0], [2, 4])
    assert got[1] is None
    with pytest.raises(hl.AutogradError, match="does not require grad"):
        hl.gradients(y, f64(1))
    with pytest.raises(hl.AutogradError, match="root does not require grad"):
        hl.gradients(f64(1), x)
    with pytest.raises(hl.AutogradError, match="more than one element"):
        hl.gradients(x * x, x)


def test_stop_gradient():
    x = f64(1, 2, grad=True)
    y = hl.stop_gradient(x * x)
    assert not y.requires_grad and y.grad_fn is None
    equal(hl.grad(lambda x: (x * hl.stop_gradient(x)).sum())(f64(3, 4)), [3, 4])
    h = x * 2
    tree = hl.stop_gradient({"a": [h, 3, "text"], "b": (None, h)})
    assert tree["a"][1:] == [3, "text"] and tree["b"][0] is None
    assert not tree["a"][0].requires_grad and tree["a"][0].data_ptr() == h.data_ptr()


# ---- vjp, jacobian, hessian -------------------------------------------------------------------------------------


def test_jacobian_and_hessian_of_several_results_and_arguments():
    a, b = np.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]), np.array([0.5, -1.0, 2.0])
    f = lambda m, v: {"p": m @ v, "s": [hl.sin(v)]}  # noqa: E731
    j = hl.jacobian(f, argnums=(0, 1))(hl.asarray(a), hl.asarray(b))
    (pm, pv), (sm, sv) = j["p"], j["s"][0]
    assert pm.shape == (2, 2, 3) and sm.shape == (3, 2, 3)
    equal(pm, np.einsum("ij,k->ijk", np.eye(2), b))
    equal(pv, a)
    equal(sm, np.zeros((3, 2, 3)))
    equal(sv, np.diag(np.cos(b)))
    equal(hl.jacobian(lambda x: x[:0])(f64(1, 2)), np.zeros((0, 2)))
    equal(hl.jacobian(lambda x: x)(f64()), np.zeros((0, 0)))

    q = np.array([[2.0, 1.0], [3.0, -1.0]])
    quadratic = lambda x: x @ hl.asarray(q) @ x  # noqa: E731
    equal(hl.hessian(quadratic)(f64(5, 7)), q + q.T)
    equal(hl.hessian(lambda x: x * x * x)(f64(1, 2)), 6 * np.einsum("i,ij,ik->ijk", [1.0, 2.0], np.eye(2), np.eye(2)))
    mixed = hl.hessian(lambda x, y: (x * x * y).sum(), argnums=(0, 1))(f64(1, 2), f64(3, 4))
    equal(mixed[0][0], np.diag([6.0, 8.0]))
    equal(mixed[0][1], np.diag([2.0, 4.0]))
    equal(mixed[1][0], np.diag([2.0, 4.0]))
    equal(mixed[1][1], np.zeros((2, 2)))
    third = hl.jacobian(hl.hessian(lambda x: (x**4).sum()))(f64(1, 2))
    assert third[1, 1, 1].item() == 48 and third[0, 1, 1].item() == 0


def test_vjp_is_called_again_and_checks_what_it_is_given():
    x, y = f64(1, 2), f64(3, 4)
    value, pullback = hl.vjp(lambda a, b: {"p": a * b, "s": (a.sum(), 3.0)}, x, y)
    assert value["s"][1].item() == 3
    for _ in range(3):
        gx, gy = pullback({"p": f64(1, 10), "s": (1.0, 7.0)})
        equal(gx, [4, 41])
        equal(gy, [1, 20])
    with pytest.raises(ValueError, match="do not have the form of"):
        pullback(f64(1, 10))
    with pytest.raises(hl.ShapeMismatch, match=r"shape \(3,\), it has \(2,\)"):
        pullback({"p": f64(1, 2, 3), "s": (1.0, 7.0)})
    with pytest.raises(hl.DtypeMismatch, match=r"float32, it is float64; write x.astype\(hl.float64\)"):
        pullback({"p": hl.ones(2), "s": (1.0, 7.0)})


def test_complex_arguments_and_holomorphic_jacobians():
    z = np.array([1 + 2j, -0.5 + 0.3j])
    g = hl.grad(lambda z: hl.abs(z).sum())(hl.asarray(z))
    equal(g, z / np.abs(z))
    equal(hl.jacobian(lambda z: z * z)(hl.asarray(z)), np.diag(np.conj(2 * z)))
    equal(hl.vjp(lambda z: z * z, hl.asarray(z))[1](hl.asarray(z))[0], z * np.conj(2 * z))


# ---- modes, exceptions, threads, memory -------------------------------------------------------------------------


@pytest.mark.parametrize("name", DERIVATIVES)
def test_an_exception_anywhere_leaves_modes_and_arguments_as_they_were(name):
    x = f64(1, 2)

    def failing(stage):
        def f(x):
            if stage == 0:
                raise KeyError
            y = x * x
            with hl.no_grad():
                if stage == 1:
                    raise KeyError
                hl.grad(lambda t: failing(0)(t) if stage == 2 else t.sum())(x)
            y.register_hook(lambda g: (_ for _ in ()).throw(KeyError) if stage == 3 else None)
            return y.sum()

        return f

    for recording in (True, False):
        for stage in range(4):
            with hl.enable_grad() if recording else hl.no_grad(), hl.autocast():
                with pytest.raises(KeyError):
                    out = DERIVATIVES[name](failing(stage))(x)
                    out[1](1.0)  # vjp walks later
                assert hl.is_grad_enabled() is recording
                assert (hl.ones((2, 2)) @ hl.ones((2, 2))).dtype is hl.bfloat16
            assert hl.is_grad_enabled() and not x.requires_grad and x.grad is None
        DERIVATIVES[name](failing(9))(x)


def test_under_no_grad_the_derivative_is_computed_and_plain():
    w = f64(1, 2, grad=True)
    with hl.no_grad():
        g = hl.grad(lambda x: (x * x * w).sum())(f64(3, 4))
        equal(g, [6, 16])
        equal(hl.hessian(lambda x: (x * x * w).sum())(f64(3, 4)), np.diag([2.0, 4.0]))
        value, pullback = hl.vjp(lambda x: x * w, f64(3, 4))
        equal(pullback(f64(1, 1))[0], [1, 2])
        assert not value.requires_grad and not g.requires_grad
    assert w.grad is None


def test_eight_threads_differentiate_at_once():
    w = f64(1, 2, grad=True)
    errors = []

    def work(i):
        try:
            for k in range(200):
                x = f64(i + 1, k + 1)
                g = hl.grad(lambda x: (hl.grad(lambda y: (w * y**3).sum())(x) * x).sum())(x)
                equal(g, [9 * (i + 1) ** 2, 18 * (k + 1) ** 2])
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not errors, errors[0]
    assert w.grad is None


MEMORY = {
    "grad": lambda x, w: hl.grad(lambda y: (y * y).sum())(x),
    "closure": lambda x, w: hl.grad(lambda y: (y * y * w).sum())(x),
    "nested": lambda x, w: hl.grad(lambda y: (hl.grad(lambda z: (z**3).sum())(y) * y).sum())(x),
    "requires": lambda x, w: hl.grad(lambda y: (y * y).sum())(w),
    "vjp": lambda x, w: hl.vjp(lambda y: hl.sin(y) * w, x)[1](x),
    "jacobian": lambda x, w: hl.jacobian(lambda y: y[:2] * w[:2])(x),
    "aux": lambda x, w: hl.grad(lambda y: ((y * y).sum(), y * 2), has_aux=True)(x),
    "raises": lambda x, w: pytest.raises(KeyError, lambda: hl.grad(lambda y: (y * y)[{}["no"]])(x)),
}


@pytest.mark.parametrize("step", MEMORY.values(), ids=MEMORY)
def test_memory_stays_flat(step):
    x, w = hl.ones(2000), hl.ones(2000).requires_grad_()
    step(x, w)
    gc.collect()
    before = hl.memory_stats()["allocated_bytes"]
    for _ in range(300):
        step(x, w)
    assert hl.memory_stats()["allocated_bytes"] == before  # without the garbage collector's help
