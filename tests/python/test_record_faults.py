"""In-place writes, views, hooks, failed and concurrent backwards, each line by its kind: C1, C6, L1, L2, G1, G2, G4,
W2, W5, W6, W13, W24, W25, W28."""

import gc
import itertools
import operator
import threading
import weakref

import numpy as np
import pytest
from test_autograd import check_gradients, leaf

import hyalite as hl

RNG = np.random.default_rng(11)


def plain(values, dtype=hl.float64):
    return hl.asarray(np.asarray(values), dtype=dtype)


# ---- several outputs: any of them, any of their gradients --------------------------------------------------------

SEVERAL = [name for name in hl._C._op_names() if hl._C._op_facts(name)["outputs"] > 1]


@pytest.mark.parametrize("name", SEVERAL)
def test_c1_any_subset_of_several_outputs_may_be_used(name):
    function, count = getattr(hl, name), hl._C._op_facts(name)["outputs"]
    a, b = RNG.uniform(4.3, 4.7, (3, 2)), RNG.uniform(1.55, 1.65, (3, 2))
    for size in range(1, count + 1):
        for used in itertools.combinations(range(count), size):

            def chosen(x, y, used=used):
                outputs = function(x * x, y * x)
                return sum((outputs[i] * (i + 2) * x * y for i in used), start=x * 0)

            check_gradients(chosen, [a, b])


def test_c1_an_output_that_no_gradient_reads_has_the_gradient_zero():
    x = leaf([7.0, 5.0])
    for steps in (divmod(x, 2)[0], x // 2, hl.floor(x / 2)):
        x.grad = None
        steps.sum().backward()
        assert x.grad.tolist() == [0, 0]


# ---- gradients are tensors of their own --------------------------------------------------------------------------

SHARING = {
    "a + b": lambda a, b: a + b,
    "a - (-b)": lambda a, b: a - (-b),
    "both twice": lambda a, b: a + b + a + b,
    "reshaped": lambda a, b: hl.reshape(a, (2, 2)) + hl.reshape(b, (2, 2)),
    "product": lambda a, b: a * b,
}


@pytest.mark.parametrize("create_graph", [False, True])
@pytest.mark.parametrize("name", SHARING)
def test_w2_gradients_share_no_memory(name, create_graph):
    def fresh():
        return leaf([1.0, 2.0, 3.0, 4.0]), leaf([5.0, 6.0, 7.0, 8.0])

    a, b = fresh()
    out = SHARING[name](a, b)
    seed = hl.ones(out.shape, dtype=hl.float64)
    out.backward(seed, create_graph=create_graph)
    tensors = [a.grad, b.grad, seed, a, b]
    assert len({t.data_ptr() for t in tensors}) == len(tensors)
    before = b.grad.tolist()
    (a * 3).sum().backward()
    assert b.grad.tolist() == before and seed.tolist() == hl.ones(out.shape).tolist()

    a, b = fresh()
    got = hl._C._grad([SHARING[name](a, b)], [a, b, a], [seed], True, create_graph)
    assert len({t.data_ptr() for t in [*got, seed, a, b]}) == 6


def test_w2_a_gradient_with_a_graph_keeps_it_when_more_is_added():
    x = leaf([1.0, 2.0])
    (x**3).sum().backward(create_graph=True)
    (x * 5).sum().backward()
    assert x.grad.tolist() == [8.0, 17.0] and x.grad.requires_grad
    first, x.grad = x.grad, None
    (first * first).sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), [2 * 8 * 6, 2 * 17 * 12])


def test_l2_a_tensor_is_not_its_own_gradient():
    x, y = leaf([1.0]), leaf([2.0])
    with pytest.raises(ValueError, match="cannot hold itself"):
        x.grad = x
    y.grad = x
    with pytest.raises(ValueError, match="cannot hold itself"):
        x.grad = y
    x.grad = x.copy().detach()


# ---- views, whatever mode they were made in ----------------------------------------------------------------------

VIEWS = {
    "slice": lambda t: t[1:3],
    "reversed": lambda t: t[::-1][:2],
    "reshape": lambda t: hl.reshape(t, (2, 2))[1],
    "transposed": lambda t: hl.reshape(t, (2, 2)).T[0],
    "view of a view": lambda t: t[:3][1:],
    "expanded": lambda t: hl.expand_dims(t, axis=0)[0, 1:3],
}
MODES = {"grad": hl.enable_grad, "no_grad": hl.no_grad}


@pytest.mark.parametrize("second", MODES)
@pytest.mark.parametrize("first", MODES)
@pytest.mark.parametrize("name", VIEWS)
def test_w5_a_view_is_known_to_its_base_whatever_mode_it_was_made_in(name, first, second):
    def program(x):
        y = x * x
        with MODES[first]():
            half = y[:]
        with MODES[second]():
            view = VIEWS[name](half)
        view *= 10
        view += 1
        return y * (view[0] + 2)

    check_gradients(program, [RNG.normal(size=4)])


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", VIEWS)
def test_w5_a_leaf_is_not_changed_through_a_view_of_any_mode(name, mode):
    x = leaf([1.0, 2.0, 3.0, 4.0])
    with MODES[mode]():
        view = VIEWS[name](x)
    with pytest.raises(hl.AutogradError, match="leaf"):
        view *= 10
    assert x.tolist() == [1.0, 2.0, 3.0, 4.0] and x.version == 0


@pytest.mark.parametrize("key", [slice(0, 0), slice(1, 2), 0, "no mask", "mask", "no indices", "indices"])
def test_w5_whether_a_write_of_a_leaf_is_refused_does_not_hang_on_values(key):
    keys = {"no mask": [False] * 3, "mask": [True, False, False], "no indices": [], "indices": [0]}
    x = leaf([1.0, 2.0, 3.0])
    with pytest.raises(hl.AutogradError, match="leaf"):
        x[hl.asarray(keys[key], dtype=hl.bool if "mask" in key else hl.int64) if isinstance(key, str) else key] = 2.0
    assert x.tolist() == [1.0, 2.0, 3.0] and x.version == 0


# ---- every operator in place: values, gradients of two orders, and nothing left behind ----------------------------

OPERATORS = {
    "+=": operator.iadd,
    "-=": operator.isub,
    "*=": operator.imul,
    "/=": operator.itruediv,
    "%=": operator.imod,
    "**=": operator.ipow,
}
TARGETS = {
    "whole": lambda y: y,
    "half": lambda y: y[:2],
    "strided": lambda y: y[::2],
    "reversed": lambda y: y[::-1],
    "view of a view": lambda y: y[1:][::2],
    "column": lambda y: hl.reshape(y, (2, 2))[:, 1],
}
OPERANDS = {
    "leaf": lambda view, y, w: w[: view.shape[0]],
    "constant": lambda view, y, w: hl.asarray([1.5, 2.5, 1.25, 2.25], dtype=hl.float64)[: view.shape[0]],
    "number": lambda view, y, w: 2,
    "itself": lambda view, y, w: view,
    "overlapping": lambda view, y, w: y[4 - view.shape[0] :],
    "of itself": lambda view, y, w: hl.exp(view),
    "broadcast": lambda view, y, w: w[1],
}


def write_in_place(symbol, target, operand):
    def program(x, w):
        y = x * 1.5
        view = TARGETS[target](y)
        OPERATORS[symbol](view, OPERANDS[operand](view, y, w))
        return y * view[0] + w[0] * w[1]

    return program


@pytest.mark.parametrize("operand", OPERANDS)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("symbol", OPERATORS)
def test_g1_g2_every_in_place_operator_of_first_and_second_order(symbol, target, operand):
    if symbol == "%=" and operand in ("itself", "overlapping"):
        operand = "leaf"  # x % x has a jump wherever it is
    x, w = RNG.uniform(1.1, 1.4, 4), RNG.uniform(0.55, 0.65, 4)
    check_gradients(write_in_place(symbol, target, operand), [x, w])


@pytest.mark.parametrize("symbol", OPERATORS)
def test_g1_the_product_and_its_like_take_gradients_for_both(symbol):
    y0, w = leaf([2.25, 3.25]), leaf([1.5, 2.0])
    y = y0 * 1
    OPERATORS[symbol](y, w)
    y.sum().backward()
    a, b = leaf([2.25, 3.25]), leaf([1.5, 2.0])
    getattr(operator, OPERATORS[symbol].__name__[1:])(a, b).sum().backward()
    assert y0.grad.tolist() == a.grad.tolist() and w.grad.tolist() == b.grad.tolist()


@pytest.mark.parametrize("key", [slice(1, 3), slice(None, None, -2), 1, ..., "mask"])
def test_g1_assignment_gives_its_gradient_to_the_value(key):
    index = hl.asarray([True, False, True, True]) if isinstance(key, str) else key

    def program(x, w):
        y = x * x
        y[index] = w[0] * w[0]
        return y * y[1] + w[0] * w[1]

    check_gradients(program, [RNG.normal(size=4), RNG.normal(size=4)])


def live_bytes():
    gc.collect()
    return hl.memory_stats()["allocated_bytes"]


LOOPS = {f"{s} {o} {t}": (s, t, o) for s in OPERATORS for t in ("whole", "strided") for o in OPERANDS}


@pytest.mark.parametrize("name", LOOPS)
@pytest.mark.parametrize("recorded", [True, False])
def test_l1_in_place_steps_leave_nothing_behind(name, recorded):
    x, w = plain([1.2, 1.3, 1.1, 1.25]).requires_grad_(recorded), leaf([0.6, 0.55, 0.65, 0.5])

    def step():
        write_in_place(*LOOPS[name])(x, w)

    for _ in range(3):
        step()
    before = live_bytes()
    for _ in range(30):
        step()
    assert live_bytes() <= before


@pytest.mark.parametrize(
    "step",
    [
        lambda w, v: operator.iadd(h := w * 1, hl.sin(h)),
        lambda w, v: operator.iadd(x := w * 1, x * x),
        lambda w, v: (w * v * v).sum().backward(create_graph=True),
        lambda w, v: (w**3).sum().backward(create_graph=True),
        lambda w, v: operator.imul(hl.zeros((4,), dtype=hl.float64), w),
    ],
)
def test_l2_graphs_hold_no_tensor_whose_history_they_are(step):
    def run():
        step(leaf([1.0, 2.0, 3.0, 4.0]), leaf([2.0, 3.0, 4.0, 5.0]))

    gc.disable()
    try:
        run()
        before = hl.memory_stats()["allocated_bytes"]
        for _ in range(20):
            run()
        assert hl.memory_stats()["allocated_bytes"] <= before
    finally:
        gc.enable()


# ---- what others may write ---------------------------------------------------------------------------------------

FOREIGN = {
    "asarray": lambda n: hl.asarray(n),
    "a slice of it": lambda n: hl.asarray(n)[::1],
    "from_dlpack": lambda n: hl.from_dlpack(n),
    "memoryview": lambda n: hl.asarray(memoryview(n)),
}
READERS = {
    "multiply": lambda w, f: w * f,
    "divide": lambda w, f: w / f,
    "pow": lambda w, f: f**w,
    "matmul": lambda w, f: hl.reshape(w, (1, 3)) @ hl.reshape(f, (3, 1)),
    "where": lambda w, f: hl.where(f > 1, w * f, w),
    "maximum": lambda w, f: hl.maximum(w, f) * f,
}


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("source", FOREIGN)
def test_w13_a_foreign_buffer_that_a_node_keeps_is_copied(source, reader):
    def gradient(spoil):
        memory = np.array([0.5, 2.0, 3.0])
        w = leaf([1.5, 2.5, 0.25])
        out = READERS[reader](w, FOREIGN[source](memory))
        if spoil:
            memory[:] = 100
        out.sum().backward()
        return w.grad.tolist()

    assert gradient(True) == gradient(False)


@pytest.mark.parametrize("target", ["whole", "half", "reversed"])
@pytest.mark.parametrize("symbol", OPERATORS)
def test_w13_what_an_in_place_op_writes_into_a_foreign_buffer_is_copied(symbol, target):
    def gradient(spoil):
        memory = np.array([2.5, 3.5, 1.25])
        w = leaf([1.5])
        y = hl.asarray(memory)
        view = TARGETS[target](y)
        view = OPERATORS[symbol](view, w)
        if spoil:
            memory[:] = 100
        y.sum().backward()
        return w.grad.tolist()

    assert gradient(True) == gradient(False)


# ---- what fails leaves everything as it was ----------------------------------------------------------------------


def state(*tensors):
    return [
        (t.tolist(), t.version, t.grad_fn, t.requires_grad, None if t.grad is None else t.grad.tolist())
        for t in tensors
    ]


@pytest.mark.parametrize("symbol", OPERATORS)
@pytest.mark.parametrize("recorded", [True, False])
def test_w24_out_of_memory_comes_before_the_write(symbol, recorded):
    n = 1 << 18
    x = hl.ones((n,), dtype=hl.float64).requires_grad_(recorded)
    w = hl.full((n,), 1.5).requires_grad_(recorded)  # float32: it must be converted
    y = x * 2
    watched = [y[:1], x[:1], w[:1]]
    before = y.version, y.grad_fn, [t.tolist() for t in watched]
    hl.trim_memory()
    hl.set_memory_limit(hl.memory_stats()["allocated_bytes"] + (1 << 12))
    try:
        with pytest.raises(MemoryError):
            OPERATORS[symbol](y, w)
    finally:
        hl.set_memory_limit(0)
    assert before == (y.version, y.grad_fn, [t.tolist() for t in watched])
    OPERATORS[symbol](y, w)
    assert y.version == before[0] + 1


def chain(x):
    """A graph in which every node saves something, and two leaves' worth of paths."""
    a = hl.exp(x)
    b = a * x
    c = hl.tanh(b) / x
    return [a, b, c], (c * a).sum()


@pytest.mark.parametrize("place", [0, 1, 2, "leaf"])
@pytest.mark.parametrize("create_graph", [False, True])
def test_w28_a_backward_that_failed_can_be_called_again(place, create_graph):
    x = leaf([0.5, 0.25])
    (x * 3).sum().backward()
    inner, loss = chain(x)
    fails = [True]

    def hook(g):
        if fails[0]:
            raise KeyError("no")

    (x if place == "leaf" else inner[place]).register_hook(hook)
    before = state(x)
    with pytest.raises(KeyError):
        loss.backward(create_graph=create_graph)
    assert state(x) == before
    fails[0] = False
    loss.backward(create_graph=create_graph)
    y = leaf([0.5, 0.25])
    (y * 3).sum().backward()
    chain(y)[1].backward()
    np.testing.assert_allclose(x.grad.detach().numpy(), y.grad.numpy(), rtol=1e-15)


def test_w28_a_version_error_uses_nothing_up():
    x, memory = leaf([1.0, 2.0]), hl.ones((2,), dtype=hl.float64)
    first = x * memory
    second = hl.exp(x * x).sum() + (first * 2).sum()
    memory += 1
    for _ in range(2):
        with pytest.raises(hl.VersionMismatch):
            second.backward()
        assert x.grad is None


@pytest.mark.parametrize("reserve", [0, 1 << 19, 1 << 20, 3 << 20])
def test_w28_a_backward_that_ran_out_of_memory_can_be_called_again(reserve):
    n = 1 << 17
    x = hl.full((n,), 0.5, dtype=hl.float64).requires_grad_()
    _, loss = chain(x)
    hl.trim_memory()
    hl.set_memory_limit(hl.memory_stats()["allocated_bytes"] + reserve)
    try:
        with pytest.raises(MemoryError):
            loss.backward()
    finally:
        hl.set_memory_limit(0)
    assert x.grad is None
    loss.backward()
    assert x.grad is not None


def test_a_graph_without_saved_values_is_never_used_up():
    a, b = leaf([1.0, 2.0]), leaf([3.0, 4.0])
    total = (a + b - a * 2).sum()
    plus = (a + b).sum()
    plus.backward()
    plus.backward()
    assert a.grad.tolist() == [2.0, 2.0]
    total.backward()


# ---- hooks belong to values --------------------------------------------------------------------------------------


@pytest.mark.parametrize("written", ["tensor", "base", "view", "sibling"])
@pytest.mark.parametrize("hung", ["tensor", "view"])
def test_w25_a_hook_stays_with_the_value_it_was_hung_on(hung, written):
    x = leaf([1.0, 2.0, 3.0])
    y = x * 2
    view, sibling = y[:2], y[:2]
    seen = []
    (y if hung == "tensor" else view).register_hook(lambda g: seen.append(g.tolist()))
    old = (view * 1).sum() if hung == "view" else (y * 1).sum()
    target = {"tensor": y, "base": y, "view": view, "sibling": sibling}[written]
    target *= 10
    new = [(view * 100).sum(), (y * 100).sum(), (sibling * 100).sum()]
    for loss in new:
        loss.backward(retain_graph=True)
    # The new values flow through the old one: only of a tensor that the hook was hung on itself.
    assert all(len(g) == (3 if hung == "tensor" else 2) for g in seen)
    through = len(seen)
    assert through == (3 if hung == "tensor" else 0)
    seen.clear()
    old.backward()
    assert seen == [[1.0] * (3 if hung == "tensor" else 2)]


# ---- threads -----------------------------------------------------------------------------------------------------


def in_threads(count, work):
    errors = []
    barrier = threading.Barrier(count)

    def run(i):
        barrier.wait()
        try:
            work(i)
        except Exception as e:  # noqa: BLE001
            errors.append(e)

    threads = [threading.Thread(target=run, args=(i,)) for i in range(count)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    return errors


@pytest.mark.parametrize("size", [10, 100_000])
def test_c6_of_several_backwards_of_one_graph_one_succeeds(size):
    for _ in range(10):
        x, w = hl.full((size,), 0.5).requires_grad_(), hl.full((size,), 2.0).requires_grad_()
        loss = (hl.tanh(x * w) * w).sum()
        errors = in_threads(8, lambda i, loss=loss: loss.backward())
        assert len(errors) == 7 and all(isinstance(e, hl.AutogradError) for e in errors)
        x2, w2 = hl.full((size,), 0.5).requires_grad_(), hl.full((size,), 2.0).requires_grad_()
        (hl.tanh(x2 * w2) * w2).sum().backward()
        assert bool(hl.all(x.grad == x2.grad)) and bool(hl.all(w.grad == w2.grad))


@pytest.mark.parametrize("size", [10, 100_000])
def test_c6_backwards_that_retain_the_graph_all_succeed(size):
    x = hl.full((size,), 0.5).requires_grad_()
    loss = (hl.exp(x) * x).sum()
    assert in_threads(8, lambda i: loss.backward(retain_graph=True)) == []
    y = hl.full((size,), 0.5).requires_grad_()
    (hl.exp(y) * y).sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), 8 * y.grad.numpy(), rtol=1e-6)


@pytest.mark.parametrize("create_graph", [False, True])
@pytest.mark.parametrize("size", [10, 300_000])
def test_w6_no_gradient_is_lost_when_threads_share_a_leaf(size, create_graph):
    for _ in range(5):
        x = hl.ones((size,)).requires_grad_()

        def work(i, x=x):
            for _ in range(4):
                (x * float(i + 1)).sum().backward(create_graph=create_graph)

        assert in_threads(8, work) == []
        assert x.grad[0].item() == x.grad[-1].item() == 4 * 36


# ---- autocast ----------------------------------------------------------------------------------------------------

SIXTEEN = [
    name
    for name in hl._C._op_names()
    for facts in [hl._C._op_facts(name)]
    if facts["elementwise"] and facts["has_gradient"] and hl.bfloat16 in facts["dtypes"] and not facts["condition"]
]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
@pytest.mark.parametrize("name", SIXTEEN)
def test_g4_formulas_of_gradients_do_not_run_under_autocast(name, dtype):
    facts = hl._C._op_facts(name)
    inputs = [hl.tensor([0.5, 0.75], dtype=getattr(hl, dtype), requires_grad=True) for _ in facts["params"]]
    with hl.autocast(dtype=hl.bfloat16):
        out = getattr(hl, name)(*inputs)
        for part in out if isinstance(out, tuple) else (out,):
            if part.requires_grad:
                part.sum().backward(create_graph=True)
    for x in inputs:
        assert x.grad is None or x.grad.dtype == x.dtype


# ---- cycles through hooks ----------------------------------------------------------------------------------------


class Marker:
    """Something a weak reference can watch."""


def hook_holds_descendant(x, marker):
    h = x * 2
    y = hl.exp(h * 3)
    h.register_hook(lambda g: [y, marker] and None)


def hook_on_a_leaf(x, marker):
    z = x * x
    x.register_hook(lambda g: [z, marker] and None)


def hook_on_a_view_of_a_written_base(x, marker):
    y = x * 2
    view = y[:1]
    view *= x[:1]
    view.register_hook(lambda g: [y, marker] and None)


def two_hooks_that_hold_each_others_tensors(x, marker):
    a, b = x * 2, x * 3
    a.register_hook(lambda g: [b, marker] and None)
    b.register_hook(lambda g: [a, marker] and None)


def hook_in_an_object(x, marker):
    class Owner:
        def __init__(self):
            self.y = x * 2
            self.marker = marker
            self.y.register_hook(self.seen)

        def seen(self, g):
            return None

    Owner()


def gradient_with_a_graph(x, marker):
    y = x * x
    y.register_hook(lambda g: [x.grad, marker] and None)
    y.sum().backward(create_graph=True)


def output_kept_by_a_function(x, marker):
    class Keeps(hl.Function):
        @staticmethod
        def forward(ctx, t):
            ctx.marker = marker
            return t * 2

        @staticmethod
        def backward(ctx, g):
            return g * 2

    y = Keeps.apply(x)
    y.grad_fn  # noqa: B018
    y.register_hook(lambda g: [y] and None)


CYCLES = [
    hook_holds_descendant, hook_on_a_leaf, hook_on_a_view_of_a_written_base, two_hooks_that_hold_each_others_tensors,
    hook_in_an_object, gradient_with_a_graph, output_kept_by_a_function,
]  # fmt: skip


@pytest.mark.parametrize("make", CYCLES)
def test_l2_cycles_through_hooks_are_collected(make):
    def run():
        marker = Marker()
        make(leaf([1.0, 2.0]), marker)
        return weakref.ref(marker)

    watch = run()
    gc.collect()
    assert watch() is None
    before = live_bytes()
    for _ in range(10):
        run()
    assert live_bytes() <= before


@pytest.mark.parametrize("make", CYCLES)
def test_l2_what_is_still_held_is_not_collected(make):
    x, marker = leaf([1.0, 2.0]), Marker()
    y = x * 5
    calls = []
    y.register_hook(lambda g, marker=marker: calls.append(marker))
    watch = weakref.ref(marker)
    make(x, marker)
    kept = y + 0
    del y, marker
    gc.collect()
    assert watch() is not None
    kept.sum().backward()
    assert len(calls) == 1 and calls[0] is watch()
