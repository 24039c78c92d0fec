"""hl.checkpoint, backward(inputs=), retain_grad, gradcheck, anomaly mode."""

import gc

import numpy as np
import pytest

import hyalite as hl


def f64(*values, grad=False):
    return hl.tensor(list(values), dtype=hl.float64, requires_grad=grad)


def equal(got, want):
    np.testing.assert_allclose(got.detach().numpy(), np.asarray(want), rtol=1e-12, atol=1e-12)


# ---- checkpoint -------------------------------------------------------------------------------------------------


def block(w):
    def f(x, *, scale=1.0):
        y = hl.sin(x * w) * scale
        y *= hl.exp(x)
        return y

    return f


@pytest.mark.parametrize("wrap", [hl.checkpoint, lambda f, *a, **k: hl.checkpoint(lambda: f(*a, **k))])
def test_gradients_reach_arguments_and_closures_at_every_order(wrap):
    w0, x0 = np.array([0.3, -1.1]), np.array([0.7, 1.3])

    def loss(run):
        def f(w, x):
            h = w * x  # depends on w, and both reach the blocks
            y = run(block(w), h, scale=2.0)
            y = run(block(h), y + x)
            return (run(lambda a: run(block(w), a), y) * w).sum()  # nested

        return f

    plain, wrapped = loss(lambda f, *a, **k: f(*a, **k)), loss(wrap)
    w, x = hl.asarray(w0), hl.asarray(x0)
    for a, b in zip(hl.grad(wrapped, argnums=(0, 1))(w, x), hl.grad(plain, argnums=(0, 1))(w, x)):
        equal(a, b.numpy())
    equal(hl.hessian(lambda x: wrapped(w, x))(x), hl.hessian(lambda x: plain(w, x))(x).numpy())
    second = lambda f: hl.grad(lambda w: (hl.grad(f, argnums=1)(w, x) ** 2).sum())(w)  # noqa: E731
    equal(second(wrapped), second(plain).numpy())
    along = lambda f: hl.jvp(f, (w, x), (x, w))[1]  # noqa: E731
    equal(along(wrapped), along(plain).numpy())
    mixed = lambda f: hl.jvp(hl.grad(f), (w, x), (x, w))[1]  # noqa: E731
    equal(mixed(wrapped), mixed(plain).numpy())
    leaves = [hl.tensor(a, requires_grad=True) for a in (w0, x0, w0, x0)]
    wrapped(*leaves[:2]).backward()
    plain(*leaves[2:]).backward()
    equal(leaves[0].grad, leaves[2].grad.numpy())
    equal(leaves[1].grad, leaves[3].grad.numpy())
    got = hl.gradients(wrapped(*leaves[:2]), leaves[:2])
    equal(got[0], leaves[2].grad.numpy())


def test_checkpoint_keeps_nothing_in_between():
    x = hl.ones(100_000).requires_grad_()

    def deep(x):
        for _ in range(20):
            x = hl.sin(x)
        return x

    def bytes_of(run):
        gc.collect()
        before = hl.memory_stats()["allocated_bytes"]
        y = run(deep, x)
        kept = hl.memory_stats()["allocated_bytes"] - before
        y.sum().backward()
        del y
        grown = hl.memory_stats()["allocated_bytes"] - before
        return kept, grown

    bytes_of(hl.checkpoint)
    kept, grown = bytes_of(hl.checkpoint)
    whole, _ = bytes_of(lambda f, *a: f(*a))
    assert kept < 450_000 and whole > 7_000_000 and grown == 0


def test_checkpoint_takes_and_gives_trees_and_restores_modes():
    seen = []

    def f(p, k, *, flag):
        seen.append(((hl.ones((2, 2)) @ hl.ones((2, 2))).dtype, hl.is_grad_enabled(), k, flag))
        return {"a": [p["w"] * 2, None], "b": (p["w"] @ p["m"], "text", hl.argmax(p["w"]))}

    w, m = hl.ones(2).requires_grad_(), hl.ones((2, 2))
    with hl.autocast(dtype=hl.bfloat16):
        out = hl.checkpoint(f, {"w": w, "m": m}, 3, flag="x")
    assert out["a"][1] is None and out["b"][1] == "text" and out["b"][2].item() == 0
    assert out["b"][0].dtype is hl.bfloat16 and out["a"][0].requires_grad
    (out["a"][0].sum() + out["b"][0].astype(hl.float32).sum()).backward()
    assert seen == [(hl.bfloat16, True, 3, "x")] * 2
    assert w.grad.tolist() == [4, 4]
    seen.clear()
    with hl.no_grad():
        assert not hl.checkpoint(f, {"w": w, "m": m}, 3, flag="x")["a"][0].requires_grad
    hl.checkpoint(f, {"w": m[0], "m": m}, 3, flag="x")
    assert len(seen) == 2 and (hl.ones((2, 2)) @ hl.ones((2, 2))).dtype is hl.float32


def test_what_checkpoint_cannot_do_again_is_refused():
    x, w = f64(1, 2, grad=True), f64(3, 4, grad=True)
    h = x * 1
    y = hl.checkpoint(lambda a: a * w, h)
    with hl.no_grad():
        h += 1
    with pytest.raises(
        hl.VersionMismatch, match=r"checkpoint\(\): argument\[0\] was at version 0.*and is at version 1"
    ):
        y.sum().backward()
    y = hl.checkpoint(lambda a: a * w, x)
    with hl.no_grad():
        w *= 2
    with pytest.raises(hl.VersionMismatch, match=r"parameter \d of the function was at version 0"):
        y.sum().backward()
    turns = iter([w, x * 2])
    y = hl.checkpoint(lambda: next(turns) * 2)
    with pytest.raises(hl.AutogradError, match="led to other tensors when it was called again"):
        y.sum().backward()
    shapes = iter([2, 1])
    y = hl.checkpoint(lambda a: [a * 2] * next(shapes), x)
    with pytest.raises(hl.AutogradError, match="returned something else"):
        (y[0] + y[1]).sum().backward()
    with pytest.raises(hl.VersionMismatch, match="f wrote it in place"):
        hl.checkpoint(lambda a: a.__imul__(2), x * 1)
    with pytest.raises(TypeError, match="f must be a function"):
        hl.checkpoint(x)
    fails = iter([False, True])
    y = hl.checkpoint(lambda a: a * 2 if not next(fails) else {}["no"], x)
    with pytest.raises(KeyError):
        y.sum().backward()
    assert x.grad is None and hl.is_grad_enabled()
    y = hl.checkpoint(lambda a: a * 2, x)
    y.sum().backward()
    with pytest.raises(hl.AutogradError, match="walked before"):
        y.sum().backward()


def test_checkpointed_identity_views_and_writes_after():
    x = f64(1, 2, grad=True)
    h = x * 1
    for f, want in ((lambda a: a, [5, 5]), (lambda a: a[::-1], [5, 5]), (lambda a: a[:1], [5, 0])):
        x.grad = None
        y = hl.checkpoint(f, h)
        y *= 5
        y.sum().backward(retain_graph=True)
        equal(x.grad, want)
        assert h.tolist() == [1, 2]


def test_memory_of_checkpoint_stays_flat():
    x, w = hl.ones(2000).requires_grad_(), hl.ones(2000).requires_grad_()

    def step():
        h = x * 1
        y = hl.checkpoint(lambda a: hl.sin(a * w), h)
        hl.checkpoint(lambda a: hl.sin(a * w), h)  # never walked
        y.sum().backward()
        x.grad = w.grad = None
        h *= hl.checkpoint(lambda a: hl.sin(a * w), h)  # the argument continues from the result

    step()
    gc.collect()
    before = hl.memory_stats()["allocated_bytes"]
    for _ in range(200):
        step()
    assert hl.memory_stats()["allocated_bytes"] == before


# ---- backward(inputs=), retain_grad -----------------------------------------------------------------------------


def test_backward_into_chosen_tensors_only():
    x, w, unused = f64(1, 2, grad=True), f64(3, 4, grad=True), f64(1, grad=True)
    h = x * w
    y = (h * h).sum()
    y.backward(inputs=[x, h, unused], retain_graph=True)
    equal(x.grad, [18, 64])
    equal(h.grad, [6, 16])
    assert w.grad is None and unused.grad is None
    hl.backward(y, inputs=w, retain_graph=True)
    equal(w.grad, [6, 32])
    hl.backward([h, y], [f64(1, 1), None], inputs=[x, x], retain_graph=True)
    equal(x.grad, np.array([18, 64]) * 2 + [3, 4])
    y.backward(inputs=[x], create_graph=True)
    assert x.grad.requires_grad
    for wrong in (3, [None], [x, 3.0]):
        with pytest.raises(TypeError, match=r"backward\(\): inputs"):
            y.backward(inputs=wrong)
    with pytest.raises(ValueError, match="inputs must not be empty"):
        y.backward(inputs=[])
    with pytest.raises(hl.AutogradError, match="does not require grad"):
        y.backward(inputs=[f64(1)])


def test_retain_grad():
    x = f64(1, 2, grad=True)
    h = x * 2
    h.retain_grad()
    h.retain_grad()
    h.register_hook(lambda g: g * 10)
    y = (h * h).sum()
    y.backward(retain_graph=True)
    equal(h.grad, [40, 80])
    equal(x.grad, [80, 160])
    y.backward()
    equal(h.grad, [80, 160])
    assert x.retain_grad() is None  # a leaf keeps its own
    with pytest.raises(hl.AutogradError, match="retain_grad"):
        f64(1).retain_grad()
    h = x * 2
    h.retain_grad()
    z = h.sum()
    del h
    z.backward()  # nobody is left to see it
    h = x * 3
    h.retain_grad()
    (h * 2).sum().backward(create_graph=True)
    equal(h.grad, [2, 2])
    h.grad += 1
    before = hl.memory_stats()["allocated_bytes"]
    for _ in range(100):
        h = x * 2
        h.retain_grad()
        hl.gradients(h.sum(), x)
    del h
    assert hl.memory_stats()["allocated_bytes"] <= before + 1024


# ---- gradcheck --------------------------------------------------------------------------------------------------


def wrong_function(factor, second=1.0):
    class Wrong(hl.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x * x

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            return factor * g * x * (second * x + (1 - second) * x.detach())

    return Wrong.apply


def test_gradcheck_passes_what_is_right_and_names_what_is_wrong():
    x, w = f64(0.7, -1.3, 0.4), f64(0.3, 1.1, -0.6)
    z = hl.asarray(np.array([0.3 + 1j, -0.2 + 0.5j, 1.1 - 0.7j]))
    assert hl.gradcheck(hl.sin, x) is True
    assert hl.gradcheck(
        lambda p, n: {"y": p["a"] * p["b"][0] * n, "i": hl.argmax(p["a"])}, ({"a": x, "b": [w]}, 2), order=2
    )
    assert hl.gradcheck(lambda z, x: (z * z * x, hl.abs(z)), (z, x), order=2)
    assert hl.gradcheck(lambda x: hl.gradcheck(lambda y: y * x, x) and x * x, (x,))
    assert hl.gradcheck(wrong_function(3), x, order=2)
    with pytest.raises(hl.AutogradError, match=r"gradcheck\(\): the reverse derivative of order 1 by input\[0\]"):
        hl.gradcheck(wrong_function(2), x)
    with pytest.raises(hl.AutogradError, match=r"forward derivative of order 1 .* central differences give -?\d"):
        hl.gradcheck(wrong_function(2), x, modes="forward")
    assert hl.gradcheck(wrong_function(2), (x,), raise_exception=False) is False
    assert hl.gradcheck(wrong_function(3, 0.0), x)
    with pytest.raises(hl.AutogradError, match="derivative of order 2"):
        hl.gradcheck(wrong_function(3, 0.0), x, order=2)
    assert not x.requires_grad and x.grad is None and hl.is_grad_enabled()


@pytest.mark.parametrize(
    "run, error, words",
    [
        (lambda: hl.gradcheck(hl.sin, hl.ones(3)), TypeError, r"input\[0\] is float32.*astype\(hl.float64\)"),
        (lambda: hl.gradcheck(hl.sin, (3.0,)), TypeError, "no input is a tensor of float64"),
        (lambda: hl.gradcheck(hl.sin, 3.0), TypeError, "must be a tensor or a tuple"),
        (lambda: hl.gradcheck(None, f64(1)), TypeError, "f must be a function"),
        (lambda: hl.gradcheck(hl.sin, f64(1), order=3), ValueError, "order must be 1 or 2, not 3"),
        (lambda: hl.gradcheck(hl.sin, f64(1), modes="back"), ValueError, "modes must be"),
        (lambda: hl.gradcheck(lambda x: hl.argmax(x), f64(1, 2)), TypeError, "returned no float64"),
    ],
)
def test_what_gradcheck_refuses(run, error, words):
    with pytest.raises(error, match=words):
        run()


# ---- jacobian by either mode ------------------------------------------------------------------------------------


def test_tall_jacobians_are_those_of_wide_ones():
    a = np.arange(12.0).reshape(4, 3) / 7
    f = lambda x: hl.tanh(hl.asarray(a) @ x) * hl.sum(x)  # noqa: E731
    x = f64(0.3, -0.2, 0.5)
    tall = hl.jacobian(f)(x)
    rows = np.stack([hl.grad(lambda x, i=i: f(x)[i])(x).numpy() for i in range(4)])
    equal(tall, rows)
    w = f64(1, 2, grad=True)
    j = hl.jacobian(lambda x: hl.stack([x * w, x * x * w, w]))(f64(3.0))
    assert j.requires_grad and j.shape == (3, 2, 1) and j.reshape(-1).tolist() == [1, 2, 6, 12, 0, 0]
    third = hl.jacobian(hl.jacobian(hl.jacobian(lambda x: hl.concat([x**3, x**4]))))(f64(2.0))
    assert third.reshape(-1).tolist() == [6, 48]


# ---- anomaly mode -----------------------------------------------------------------------------------------------


def line_of(function):
    return function.__code__.co_firstlineno + 1


def test_anomaly_mode_names_the_line_of_the_first_nan():
    x = f64(0.0, 1.0, grad=True)

    def forward(x):
        return hl.sqrt(x * 0) * hl.asarray([float("inf")] * 2)

    with hl.anomaly_mode():
        y = forward(x).sum() * 1
        with pytest.raises(hl.AutogradError, match="NaN in the gradient for operand 0 of") as raised:
            y.backward(retain_graph=True)
    assert f"{__file__}:{line_of(forward)}" in str(raised.value)
    assert raised.value.forward.endswith(f"{__file__.rsplit('/', 1)[-1]}:{line_of(forward)}")
    assert x.grad is None
    y.backward()  # outside it is as ever
    assert np.isnan(x.grad.numpy()).any()


def test_anomaly_mode_names_the_line_of_an_error():
    x = f64(1, 2, grad=True)

    def forward(h):
        return h * h

    with hl.anomaly_mode():
        h = x * 1
        y = forward(h)
        with hl.no_grad():
            h += 1
        with pytest.raises(
            hl.VersionMismatch, match=r"written in place since.*; in the backward of Multiply"
        ) as raised:
            y.sum().backward()
    assert f"{__file__}:{line_of(forward)}" in str(raised.value)

    class Fails(hl.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, g):
            return {}["key"]

    def call(x):
        return Fails.apply(x)

    with pytest.raises(KeyError) as raised, hl.anomaly_mode():
        call(x).sum().backward()
    assert any(f"{__file__}:{line_of(call)}" in note for note in raised.value.__notes__)
    with hl.anomaly_mode():
        (x * 2).sum().backward()
    equal(x.grad, [2, 2])

    @hl.anomaly_mode()
    def decorated():
        (hl.sqrt(x * 0) * float("inf")).sum().backward()

    with pytest.raises(hl.AutogradError, match="NaN in the gradient for operand 0"):
        decorated()


def test_lines_are_the_users_also_of_functions_of_several_ops():
    x = f64(1, 2, grad=True)

    def stacked():
        return hl.stack([x, x])

    assert stacked().grad_fn.where == f"{__file__}:{line_of(stacked)}"


def test_what_a_slice_leaves_out_gets_zero_and_not_its_negative():
    x = hl.ones((4, 6)).requires_grad_(True)

    def f(x):
        return (x.T * 2)[::2, ::-1] + 1

    for create in (False, True):
        x.grad = None
        hl.sum(hl.checkpoint(f, x)).backward(create_graph=create)
        assert x.grad.detach().numpy().tobytes() == hl.grad(lambda x: hl.sum(f(x)))(x.detach()).numpy().tobytes()
