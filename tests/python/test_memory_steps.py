"""Memory after many steps of each form of writing in place: the bytes that live, exactly, and the process's size."""

import contextlib
import gc
import itertools
import operator
import os

import pytest

import hyalite as hl

N = 48
STEPS, MANY = 12, 100_000

FLOAT_OPERATORS = {
    "+=": operator.iadd, "-=": operator.isub, "*=": operator.imul, "/=": operator.itruediv, "%=": operator.imod,
    "//=": operator.ifloordiv, "**=": operator.ipow,
}  # fmt: skip
INTEGER_OPERATORS = {
    "+=": operator.iadd, "-=": operator.isub, "*=": operator.imul, "//=": operator.ifloordiv, "%=": operator.imod,
    "&=": operator.iand, "|=": operator.ior, "^=": operator.ixor, "<<=": operator.ilshift, ">>=": operator.irshift,
}  # fmt: skip

# What stands on the right of the operator, made from the target, the tensor that holds it, and a parameter.
OPERANDS = {
    "number": lambda t, y, w: 1.25,
    "constant": lambda t, y, w: CONSTANT[: t.shape[0]],
    "parameter": lambda t, y, w: w[: t.shape[0]],
    "0-d parameter": lambda t, y, w: w[3],
    "recorded": lambda t, y, w: w[: t.shape[0]] * 2,
    "float32": lambda t, y, w: SINGLE[: t.shape[0]],
    "itself": lambda t, y, w: t,
    "of itself": lambda t, y, w: hl.sin(t),
    "product of itself": lambda t, y, w: t * t,
    "overlapping": lambda t, y, w: y[N - t.shape[0] :],
    "mean of all": lambda t, y, w: hl.mean(y),
    "detached": lambda t, y, w: t.detach(),
    "NumPy array": lambda t, y, w: FOREIGN[: t.shape[0]],
}
SAVED = ["of itself", "product of itself"]
TARGETS = {
    "whole": lambda y: y,
    "view": lambda y: y[2:40],
    "every other": lambda y: y[::2],
    "reversed": lambda y: y[::-1],
    "column": lambda y: hl.reshape(y, (8, 6))[:, 1],
    "view of a view": lambda y: y[4:][::3],
    "made in no_grad": lambda y: unrecorded(lambda: y[1:30]),
}


def unrecorded(function):
    with hl.no_grad():
        return function()


# Persistent operands, so that only a step's own tensors come and go.
CONSTANT = hl.full((N,), 1.5, dtype=hl.float64)
SINGLE = hl.full((N,), 0.75, dtype=hl.float32)
FOREIGN = CONSTANT.numpy().copy()


def live():
    return hl.memory_stats()["allocated_bytes"]


def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def assert_flat(step, steps=STEPS, collect=False):
    """Runs a step many times: afterwards as many bytes live as before. `collect`: only once Python's collector ran."""
    for _ in range(5):
        step()
    gc.collect() if collect else None
    before, size = live(), resident()
    for _ in range(steps):
        step()
    gc.collect() if collect else None
    assert live() == before
    if steps >= MANY:
        assert resident() - size < 4 << 20


@pytest.fixture(autouse=True)
def nothing_is_freed_by_chance():
    """Python's collector runs when a test says so; what other tests left is no garbage of ours."""
    gc.collect()
    gc.freeze()
    gc.disable()
    yield
    gc.enable()
    gc.unfreeze()


def parameter(values=1.125):
    return hl.full((N,), values, dtype=hl.float64).requires_grad_()


def steps_of(symbol, operand, target):
    """The ways in which one form of writing is repeated, by name."""
    write, right, place = FLOAT_OPERATORS[symbol], OPERANDS[operand], TARGETS[target]
    w, x = parameter(), parameter(0.875)
    kept = hl.full((N,), 0.5, dtype=hl.float64)

    def in_no_grad():
        with hl.no_grad():
            write(place(kept), right(place(kept), kept, w))

    def on_the_parameter():
        with hl.no_grad():
            write(place(x), right(place(x), x, w))

    def recorded():
        y = x * 1
        t = place(y)
        write(t, right(t, y, w))

    def on_plain_memory():
        y = hl.zeros((N,), dtype=hl.float64)
        t = place(y)
        write(t, right(t, y, w))

    def twice():
        y = x * 1
        for _ in range(2):
            t = place(y)
            write(t, right(t, y, w))

    def training():
        y = x * 1
        t = place(y)
        write(t, right(t, y, w))
        # What a function of the target saved is gone, and its backward says so.
        with contextlib.suppress(*[hl.VersionMismatch] if operand in SAVED else []):
            hl.sum(y).backward()
        x.grad = w.grad = None

    return {
        "in no_grad": in_no_grad, "a parameter in no_grad": on_the_parameter, "recorded": recorded,
        "plain memory": on_plain_memory, "twice": twice, "training": training,
    }  # fmt: skip


FORMS = list(itertools.product(FLOAT_OPERATORS, OPERANDS, TARGETS))
WAYS = list(steps_of("+=", "number", "whole"))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("symbol", FLOAT_OPERATORS)
def test_l1_three_hundred_steps_of_each_operator(symbol, way):
    for operand, target in [("parameter", "whole"), ("itself", "every other"), ("product of itself", "whole")]:
        with named(f"{operand}, {target}"):
            assert_flat(steps_of(symbol, operand, target)[way], 300)


@pytest.mark.parametrize("symbol", FLOAT_OPERATORS)
@pytest.mark.parametrize("operand", OPERANDS)
def test_l1_steps_in_place_leave_nothing_behind(symbol, operand):
    for target in TARGETS:
        for way, step in steps_of(symbol, operand, target).items():
            with named(f"{target}, {way}"):
                assert_flat(step)


@contextlib.contextmanager
def named(form):
    """An exception says of which form it is."""
    try:
        yield
    except BaseException as error:
        error.add_note(form)
        raise


@pytest.mark.slow
@pytest.mark.timeout(3000)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("operand", OPERANDS)
@pytest.mark.parametrize("symbol", FLOAT_OPERATORS)
def test_l1_a_hundred_thousand_steps(symbol, operand, way):
    for target in TARGETS:
        with named(target):
            assert_flat(steps_of(symbol, operand, target)[way], MANY)


@pytest.mark.parametrize("symbol", INTEGER_OPERATORS)
@pytest.mark.parametrize("dtype", ["int8", "int64", "uint16"])
def test_l1_steps_of_integers_in_place(symbol, dtype):
    y = hl.ones((N,), dtype=getattr(hl, dtype))
    operands = {"number": lambda t: 1, "itself": lambda t: t, "copy": lambda t: t.copy(), "broadcast": lambda t: t[:1]}
    for target, operand in itertools.product(TARGETS, operands):

        def step(place=TARGETS[target], right=operands[operand]):
            t = place(y)
            INTEGER_OPERATORS[symbol](t, right(t))

        with named(f"{target}, {operand}"):
            assert_flat(step)


# ---- assignments --------------------------------------------------------------------------------------------------

KEYS = {
    "one": 3, "all": ..., "slice": slice(4, 20), "step": slice(None, None, 3), "back": slice(None, None, -2),
    "mask": "mask",
}  # fmt: skip
VALUES = {
    "number": lambda part, y, w: 0.5,
    "parameter": lambda part, y, w: w[0],
    "recorded": lambda part, y, w: w[1] * w[2],
    "itself": lambda part, y, w: part,
    "of itself": lambda part, y, w: part * 2 + 1,
    "sum of all": lambda part, y, w: hl.sum(y),
}


def assignment(key, value, way):
    w, kept = parameter(), hl.full((N,), 0.5, dtype=hl.float64)
    index = hl.asarray([i % 3 == 0 for i in range(N)]) if key == "mask" else KEYS[key]
    make = VALUES["parameter" if key == "mask" and "itself" in value else value]

    def write(y):
        y[index] = make(y[index], y, w)

    def step():
        if way == "in no_grad":
            with hl.no_grad():
                write(kept)
            return
        y = w * 1 if way == "recorded" else hl.zeros((N,), dtype=hl.float64)
        write(y)
        write(y)
        if y.requires_grad and way == "recorded":
            hl.sum(y).backward()
            w.grad = None

    return step


@pytest.mark.parametrize("value", VALUES)
@pytest.mark.parametrize("key", KEYS)
def test_l1_assignments_leave_nothing_behind(key, value):
    for way in ("in no_grad", "recorded", "plain"):
        with named(way):
            assert_flat(assignment(key, value, way))


@pytest.mark.slow
@pytest.mark.timeout(3000)
@pytest.mark.parametrize("value", VALUES)
@pytest.mark.parametrize("key", KEYS)
def test_l1_a_hundred_thousand_assignments(key, value):
    for way in ("in no_grad", "recorded", "plain"):
        with named(way):
            assert_flat(assignment(key, value, way), MANY)


# ---- whole steps, graphs of gradients, hooks, and what hangs on a tensor --------------------------------------------


def sgd(w, b):
    x = hl.full((4, N), 0.25, dtype=hl.float64)

    def step():
        out = hl.tanh(x * w + b) @ hl.reshape(w, (N, 1))
        hl.mean(out * out).backward()
        with hl.no_grad():
            for p in (w, b):
                p -= p.grad * 0.01
                p.grad = None

    return step


def momentum(w, b):
    state = [hl.zeros((N,), dtype=hl.float64) for _ in range(2)]

    def step():
        hl.sum((w * b - 1) ** 2).backward()
        with hl.no_grad():
            for p, m in zip((w, b), state):
                m *= 0.9
                m += p.grad
                p -= 0.01 * m
                p.grad *= 0
        w.grad = b.grad = None

    return step


def running_mean(w, b):
    mean = hl.zeros((N,), dtype=hl.float64)

    def step():
        out = w * 2
        mean[...] = mean * 0.9 + 0.1 * out.detach()
        hl.sum((out - mean) ** 2 * b).backward()
        w.grad = b.grad = None

    return step


def recurrent(w, b):
    def step():
        h = hl.zeros((N,), dtype=hl.float64)
        for _ in range(3):
            h *= w
            h += hl.sin(h * 1)
            h += b
        hl.sum(h).backward()
        w.grad = b.grad = None

    return step


def kept_state(w, b):
    """A state that is carried on, cut off from its history."""
    state = {"h": hl.zeros((N,), dtype=hl.float64)}

    def step():
        h = state["h"]
        h *= w
        h += b
        hl.sum(h).backward()
        w.grad = b.grad = None
        state["h"] = h.detach()

    return step


def accumulating(w, b):
    def step():
        hl.sum(w * b).backward()
        hl.sum(w * w * b).backward()

    return step


def assigned_gradient(w, b):
    def step():
        w.grad = w.detach() * 2
        b.grad = w.grad
        w.grad = b.grad = None

    return step


def failed_backward(w, b):
    def step():
        y = w * b
        y.register_hook(fail)
        with contextlib.suppress(KeyError):
            hl.sum(y).backward()

    return step


def fail(gradient):
    raise KeyError("on purpose")


def refused_write(w, b):
    def step():
        with contextlib.suppress(RuntimeError):
            operator.imul(w, b)
        with contextlib.suppress(ValueError):
            operator.iadd(w * 1, hl.zeros((N + 1,), dtype=hl.float64))

    return step


def version_error(w, b):
    def step():
        y = w * 1
        z = y * y
        y += b
        with contextlib.suppress(hl.VersionMismatch):
            hl.sum(z).backward()

    return step


PLAIN = [
    sgd, momentum, running_mean, recurrent, kept_state, accumulating, assigned_gradient, failed_backward, refused_write,
    version_error,
]  # fmt: skip


@pytest.mark.parametrize("make", PLAIN)
def test_l2_whole_steps_leave_nothing_behind(make):
    assert_flat(make(parameter(), parameter(0.5)), collect=make is failed_backward)


@pytest.mark.slow
@pytest.mark.timeout(3000)
@pytest.mark.parametrize("make", PLAIN)
def test_l2_a_hundred_thousand_whole_steps(make):
    assert_flat(make(parameter(), parameter(0.5)), MANY, collect=make is failed_backward)


def losses():
    return {
        "one leaf": lambda w, b: hl.sum(w * w * w),
        "two leaves": lambda w, b: hl.sum(w * b * b),
        "two leaves alike": lambda w, b: hl.sum(w + b),
        "shared inner": lambda w, b: hl.sum(hl.exp(w * b) * b),
        "in place": lambda w, b: hl.sum(operator.imul(w * 1, b)),
        "view in place": lambda w, b: hl.sum(half_written(w * 1, b)),
        "several outputs": lambda w, b: hl.sum(hl.divmod(w, b)[1]),
        "matmul": lambda w, b: w @ (b * w),
    }


def half_written(y, b):
    t = y[::2]
    t *= b[: t.shape[0]]
    return y


@pytest.mark.parametrize("name", losses())
def test_l2_gradients_with_a_graph_are_freed(name):
    loss = losses()[name]

    def fresh():
        # The leaves themselves go, with the gradients that hold the graph of the leaves.
        loss(parameter(), parameter(0.5)).backward(create_graph=True)

    def second():
        w, b = parameter(), parameter(0.5)
        loss(w, b).backward(create_graph=True)
        total = hl.sum(w.grad * w)
        w.grad = b.grad = None
        total.backward(create_graph=True)

    w, b = parameter(), parameter(0.5)

    def cleared():
        loss(w, b).backward(create_graph=True)
        w.grad = b.grad = None

    for step in (fresh, second, cleared):
        with named(step.__name__):
            assert_flat(step, collect=True)


def hook_of_descendant(w, b):
    y = w * b
    z = hl.exp(y)
    y.register_hook(lambda g, z=z: g * z.detach())
    return hl.sum(z)


def hook_of_itself(w, b):
    y = w * b
    y.register_hook(lambda g, y=y: g * y.detach())
    return hl.sum(y)


def hook_of_leaf(w, b):
    handle = w.register_hook(lambda g, w=w: g * w.detach())
    out = hl.sum(w * b)
    handle.remove()
    return out


def hook_of_view(w, b):
    y = w * b
    v = y[2:9]
    v.register_hook(lambda g, y=y: g * 2)
    v *= v
    return hl.sum(y)


def hook_on_written(w, b):
    y = w * 1
    y.register_hook(lambda g, y=y: None)
    y *= b
    y.register_hook(lambda g, y=y: None)
    return hl.sum(y)


@pytest.mark.parametrize("make", [hook_of_descendant, hook_of_itself, hook_of_leaf, hook_of_view, hook_on_written])
@pytest.mark.parametrize("ending", ["backward", "create_graph", "none"])
def test_l2_hooks_that_hold_tensors_of_their_own_graph_are_collected(make, ending):
    def step():
        out = make(parameter(), parameter(0.5))
        if ending != "none":
            out.backward(create_graph=ending == "create_graph")

    assert_flat(step, collect=True)


def test_l2_gradients_that_hold_their_tensor_are_collected():
    def assigned():
        w = parameter()
        y = w * 2
        w.grad = y

    def mutual():
        a, b = parameter(), parameter()
        a.grad, b.grad = b * 2, a * 2

    def product():
        w = parameter()
        hl.sum(w * w).backward(create_graph=True)
        w.grad = w.grad * w

    for step in (assigned, mutual, product):
        with named(step.__name__):
            assert_flat(step, collect=True)
