"""How often explain calls a function: many times only where its code proves that calling it again changes nothing."""

import asyncio
import functools
import itertools
import warnings

import numpy as np
import pytest

import hyalite as hl
from hyalite import _repeatable

A, B = hl.ones((4, 4)), hl.ones((4, 4))
W = hl.ones((4, 4)).requires_grad_(True)
MASK = hl.asarray([[True, False, True, False]] * 4)
INDEX = hl.asarray([0, 2])
NUMBERS, PAIR = [1.0, 2.0], (A, B)
DTYPE = hl.float16
AXIS = 1
_C_engine = hl._C_engine


def captured(a, b):
    """Lambdas over a closure."""
    return [lambda: a + b, lambda: hl.exp(a) @ b.T, lambda: (a - b).sum(axis=0).astype(hl.int32)]


REPEATED = [
    lambda: A + B,
    lambda: A * 2.5 - B / 3,
    lambda: -A + ~MASK,
    lambda: +A,
    lambda: A @ B.T,
    lambda: 2**A,
    lambda: A // B % 2,
    lambda: A < B,
    lambda: (A == B) & MASK,
    lambda: abs(A),
    lambda: divmod(A, B),
    lambda: pow(A, 2),
    lambda: hl.exp(A),
    lambda: hl.sum(A, axis=AXIS, keepdims=True),
    lambda: hl.where(MASK, A, 0.0),
    lambda: hl.clip(A, max=0.5),
    lambda: hl.concat([A, B], axis=0),
    lambda: hl.concat(PAIR),
    lambda: hl.stack([A, B, W]),
    lambda: hl.zeros((3, 3)),
    lambda: hl.asarray(NUMBERS),
    lambda: hl.reshape(A, (-1,)),
    lambda: A.reshape(2, 8).mean(axis=0),
    lambda: A.T.astype(DTYPE),
    lambda: A.astype(hl.bfloat16, copy=False),
    lambda: A.sum().item(),
    lambda: W.mT * W,
    lambda: A.shape,
    lambda: A.dtype,
    lambda: A[0],
    lambda: A[1:3, ::2],
    lambda: A[:, None],
    lambda: A[..., 0],
    lambda: A[MASK],
    lambda: A[INDEX],
    lambda: A[[0, 1]],
    lambda: A[[0, 1, 2, 3]],
    lambda: A[[0, 1, 2], :2],
    lambda: _C_engine.add(A, B),
    lambda x=A, *, y=2.0: x * y,
    lambda: (A, B + 1),
    lambda: A,
    lambda: 1.5,
    *captured(A, W),
]


@pytest.mark.parametrize("function", REPEATED, ids=range(len(REPEATED)))
def test_t2_pure_expressions_are_called_again(function):
    assert _repeatable.reason_to_call_once(function) is None
    trace = hl.explain(function, runs=2, show=False)
    recorder = trace.dict()["recorder"]
    assert recorder["calls"] > 1
    assert f"called {recorder['calls']} times" in " ".join(trace.text(200).split())


class Box:
    """Counts what happens to it."""

    def __init__(self):
        self.reads = 0
        self.calls = 0

    @property
    def value(self):
        self.reads += 1
        return A

    def __call__(self):
        self.calls += 1
        return A + B

    def method(self):
        self.calls += 1
        return A + B


class Sub(hl.Tensor):
    calls = 0

    def __add__(self, other):
        Sub.calls += 1
        return other


def effects():
    """By name: a function, and what its one call must leave."""
    box, iterator, printed, written = Box(), iter([A, B, W] * 1000), [], hl.zeros(4)
    parameter = hl.asarray([1.0, 2.0]).requires_grad_(True)
    listed, mapping, other = [], {}, hl.asarray([1.0, 2.0]).requires_grad_(True)
    generator = (x for x in [A] * 1000)

    def trained():
        with hl.no_grad():
            parameter.__isub__(0.5 * parameter)

    def inner():
        box.calls += 1
        return A + B

    def assign():
        written[0] = written[0] + 1

    def looped():
        box.calls += 1
        return [A + 1 for _ in range(2)]

    return {
        "print": (lambda: printed.append(A + 1), lambda: len(printed)),
        "next": (lambda: A + next(iterator), lambda: 3000 - len(list(iterator))),
        "generator": (lambda: A + next(generator), lambda: 1000 - len(list(generator))),
        "sum of an iterator": (lambda: hl.stack(iterator), lambda: 1 + len(list(iterator))),
        "trained": (trained, lambda: int(np.log2(1 / parameter[0].item()))),
        "in place by a method": (lambda: written.__iadd__(1), lambda: int(written[1].item())),
        "assignment": (assign, lambda: int(written[0].item())),
        "setitem": (lambda: written.__setitem__(0, written[0] + 1), lambda: int(written[0].item())),
        "backward": (lambda: (other * 2).sum().backward(), lambda: int(other.grad[0].item() / 2)),
        "unknown function": (lambda: inner() * 2, lambda: box.calls),
        "function": (inner, lambda: box.calls),
        "method": (box.method, lambda: box.calls),
        "callable object": (box, lambda: box.calls),
        "lambda of a callable object": (lambda: box(), lambda: box.calls),
        "partial": (functools.partial(inner), lambda: box.calls),
        "property of an object": (lambda: box.value + 1, lambda: box.reads),
        "list": (lambda: listed.append(1) or A + 1, lambda: len(listed)),
        "dict": (lambda: mapping.__setitem__(len(mapping), A + 1), lambda: len(mapping)),
        "walrus": (lambda: [box.method(), (y := A + 1), y + 1], lambda: box.calls),
        "comprehension": (lambda: [inner() for _ in (1,)], lambda: box.calls),
        "conditional": (lambda: inner() if A.shape else None, lambda: box.calls),
        "loop": (looped, lambda: box.calls),
        "map": (lambda: list(map(lambda x: listed.append(x), [1])), lambda: len(listed)),
        "chained lambda": (lambda: (lambda: inner())(), lambda: box.calls),
        "format": (lambda: f"{box.value}", lambda: box.reads),
    }


@pytest.mark.parametrize("name", effects())
def test_t2_everything_else_is_called_once(name):
    function, left = effects()[name]
    trace = hl.explain(function, runs=50, show=False)
    assert left() == 1
    recorder = trace.dict()["recorder"]
    assert recorder["calls"] == 1 and recorder["note"]
    assert f"called once: {recorder['note']}" in " ".join(trace.text(400).split())


def test_t2_a_print_is_printed_once(capsys):
    hl.explain(lambda: print("seen") or A + 1, show=False)
    assert capsys.readouterr().out.count("seen") == 1


def test_t2_a_subclass_may_do_anything():
    x = Sub([1.0, 2.0])
    Sub.calls = 0
    hl.explain(lambda: x + 1, show=False)
    assert Sub.calls == 1


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (lambda: print(1), "it uses print"),
        (lambda: np.exp(1), "it uses numpy.exp"),
        (lambda: A + ARRAY, "it captures ARRAY, a ndarray"),
        (lambda: A + missing, "missing has no value"),  # noqa: F821
        (lambda: A.backward(), "it calls backward"),
        (lambda: A.requires_grad_(True), "it calls requires_grad_"),
        (lambda: hl.set_num_threads(1), "it uses set_num_threads"),
        (lambda: hl.set_printoptions(), "it uses set_printoptions"),
        (lambda: hl.grad(abs), "it uses grad"),
        (lambda: A.no_such_thing, "it reads no_such_thing"),
        (lambda: A + 1 if A.ndim else B, "its code is more than one expression"),
        (lambda: (yield A), "its code is more than one expression"),
        (abs, "it is no lambda"),
    ],
)
def test_t2_says_why_a_function_is_called_once(function, reason):
    assert _repeatable.reason_to_call_once(function).startswith(reason)


ARRAY = np.ones(4)


def test_t2_in_place_bytecode_is_seen():
    # A lambda cannot hold `x += 1`, but code can.
    scope = {"x": A}
    exec("def f():\n global x\n x += 1", scope)
    function = scope["f"]
    function.__name__ = "<lambda>"
    assert _repeatable.reason_to_call_once(function) in (
        "it writes in place",
        "its code is more than one expression (STORE_GLOBAL)",
    )


def test_t2_once_is_once_and_says_so():
    recorder = hl.explain(lambda: A + B, once=True, show=False).dict()["recorder"]
    assert recorder["calls"] == 1 and recorder["note"] == "as asked"


def test_t2_a_hundred_random_expressions_without_effects_leave_everything_as_it_was():
    rng = np.random.default_rng(0)
    names = {"a": hl.asarray(rng.normal(size=(3, 3))), "b": hl.asarray(rng.normal(size=(3, 3))).requires_grad_(True)}
    leaves = ["a", "b", "a.T", "b[0]", "2.5", "hl.exp(a)", "b.sum(axis=0)", "a[1:, :]", "hl.zeros(3)"]
    joints = ["({} + {})", "({} * {})", "hl.maximum({}, {})", "({} < {})", "hl.stack([{}, {}])[0]"]
    seen = 0
    for left, right, joint in itertools.islice(itertools.product(leaves, leaves, joints), 0, None, 4):
        function = eval(f"lambda: {joint.format(left, right)}", {"hl": hl, **names})
        assert _repeatable.reason_to_call_once(function) is None, (left, right, joint)
        before = [(t.tolist(), t.version, t.grad) for t in names.values()]
        try:
            function()
        except ValueError:
            continue
        hl.explain(function, runs=1, show=False)
        assert [(t.tolist(), t.version, t.grad) for t in names.values()] == before
        seen += 1
    assert seen > 50


# ---- functions whose call runs nothing ----------------------------------------------------------------------------


async def coroutine():
    return A + B


def generator():
    yield A + B


async def both():
    yield A + B


class Awaited:
    async def __call__(self):
        return A + B

    async def method(self):
        return A + B


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (coroutine, r"coroutine is a coroutine function.*write explain\(lambda: asyncio.run\(coroutine\(\)\)\)"),
        (functools.partial(coroutine), "coroutine function"),
        (Awaited(), "coroutine function"),
        (Awaited().method, "coroutine function"),
        (generator, r"generator is a generator function.*write explain\(lambda: list\(generator\(\)\)\)"),
        (both, "asynchronous generator function"),
        (lambda: coroutine(), "gave a coroutine, and nobody awaits it"),
    ],
)
def test_t13_functions_whose_call_runs_nothing_are_refused(function, message):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(TypeError, match=message):
            hl.explain(function, show=False)


def test_t13_a_coroutine_is_explained_where_it_is_run():
    trace = hl.explain(lambda: asyncio.run(coroutine()), show=False)
    assert [op["name"] for op in trace.ops] == ["add"]
    trace = hl.explain(lambda: list(generator()), show=False)
    assert [op["name"] for op in trace.ops] == ["add"]


def test_runs_must_be_an_integer():
    with pytest.raises(TypeError, match=r"explain\(\): runs must be an integer"):
        hl.explain(lambda: A + B, runs="many", show=False)
