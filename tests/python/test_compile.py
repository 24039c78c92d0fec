"""hl.compile: the bits of the eager run, its effects, its errors, and what a plan says of itself."""

import collections
import gc
import sys
import threading
import warnings

import numpy as np
import program_engines
import programs
import pytest

import hyalite as hl


def bits(x):
    a = x.detach().numpy()
    return a.shape, a.dtype.str, a.strides, a.tobytes()


def leaves(tree):
    if isinstance(tree, hl.Tensor):
        return [tree]
    if isinstance(tree, dict):
        tree = list(tree.values())
    return [leaf for item in tree for leaf in leaves(item)] if isinstance(tree, (list, tuple)) else []


def same(a, b):
    return [bits(x) for x in leaves(a)] == [bits(x) for x in leaves(b)]


def check(f, *args, calls=3):
    """The eager results, after as many compiled calls have given the same bits, in both tiers."""
    expected = f(*args)
    first, second = hl.compile(f, tier=0), hl.compile(f, tier=1)
    for compiled in (first, second):
        for _ in range(calls):
            assert same(compiled(*args), expected)
        assert compiled.cache()["traces"] == 1
    return first


def normal(*shape, seed=0, dtype=np.float32):
    return hl.asarray(np.random.default_rng(seed).normal(size=shape).astype(dtype)).copy()


X, Y, W = normal(40, 50), normal(50, seed=1), normal(50, 30, seed=2)

FUNCTIONS = {
    "chain": lambda: (lambda x, y: hl.tanh(x * y + x) * hl.exp(-y * y) + 0.5 * x, X, Y),
    "softmax": lambda: (hl.softmax, X),
    "layer norm": lambda: (lambda x: (x - hl.mean(x, axis=-1, keepdims=True)) / hl.sqrt(
        hl.mean((x - hl.mean(x, axis=-1, keepdims=True)) ** 2, axis=-1, keepdims=True) + 1e-5), X),
    "matmul": lambda: (lambda x, w, y: hl.relu((x + y) @ w) * 2, X, W, Y),
    "views": lambda: (lambda x: (x.T * 2)[::2, ::-1] + 1, X),
    "where, casts": lambda: (lambda x, y: hl.where(x > y, x, y).astype(hl.float64) + 1, X, Y),
    "16 bits": lambda: (lambda x, y: (x.astype(hl.float16) * y.astype(hl.float16) + x.astype(hl.float16)).astype(
        hl.bfloat16) * 3, X, Y),
    "integers": lambda: (lambda x: divmod((x * 100).astype(hl.int32), 7), X),
    "complex": lambda: (lambda x, y: (x + 1j * y) * (y - 2j), X, Y),
    "unequal dtypes": lambda: (lambda x: (x * 5).astype(hl.int64) < x, X),
    "concat": lambda: (lambda x, y: hl.concat([x, x * 2]) + hl.concat([y, y])[:50], X, Y),
    "take": lambda: (lambda x: hl.take(x, hl.asarray([1, 2, 3]), axis=0) * 2, X),
    "equal calls": lambda: (lambda x: (x * 2 + 1, x * 2 + 1), X),
    "nest": lambda: (lambda d: {"a": d["x"] * 2, "b": [d["y"], 3, None, (hl.sum(d["x"]),)]}, {"x": X, "y": Y}),
    "grad": lambda: (lambda x, w: hl.grad(lambda w: hl.sum(hl.tanh(x @ w) ** 2))(w), X, W),
    "value and grad": lambda: (lambda x, w: hl.value_and_grad(lambda w: hl.mean(hl.log_softmax(x @ w)))(w), X, W),
    "second order": lambda: (lambda x: hl.grad(lambda x: hl.sum(hl.grad(lambda x: hl.sum(hl.sin(x) * x))(x)))(x), X),
    "forward mode": lambda: (lambda x, t: hl.jvp(lambda x: hl.exp(x) * hl.sin(x), (x,), (t,)), X, X),
    "no operands": lambda: (lambda: (hl.arange(7) * 2, hl.zeros((2, 3)) + 1, hl.eye(3))),
    "nothing": lambda: (lambda x: hl.exp(x) + x.sum(), normal(0, 3)),
    "one number": lambda: (lambda x: x * x + 1, hl.asarray(3.0)),
}  # fmt: skip


@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_bits_of_the_eager_run(name):
    made = FUNCTIONS[name]()
    check(*(made if isinstance(made, tuple) else (made,)))


def layouts(x):
    """The same values, lying in memory in other ways."""
    wide = hl.zeros((2 * x.shape[0], 3 * x.shape[1]), dtype=x.dtype)
    wide[::2, ::3] = x
    return [x, x.T.copy().T, hl.contiguous(x.T).T, wide[::2, ::3], x[::-1].copy()[::-1], hl.flip(x, axis=1)[:, ::-1]]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64", "int8", "uint64", "complex64", "bool"])
def test_every_layout(dtype):
    dtype = getattr(hl, dtype)
    a = (normal(33, 65) * 10).astype(hl.int32)
    x, y = (a != 0 if dtype == hl.bool else hl.abs(a).astype(dtype)), normal(65) > 0

    def f(x, y):
        z = hl.where(y, x, x[::-1])
        return z, z.T == x.T, z[1:, 2:], (~z if x.dtype == hl.bool else z * x + z)

    for p in layouts(x) if dtype != hl.bool else [x, x[::-1], x[:, ::-1]]:
        check(f, p, y)


@pytest.mark.parametrize("n", [1, 7, 64, 1000, 1024, 1025, 100_000, 3_000_000])
@pytest.mark.parametrize("threads", [1, 2])
def test_every_length(n, threads):
    before = hl.about()["threads"]
    hl.set_num_threads(threads)
    try:
        x, y = normal(n), normal(n, seed=1)
        check(lambda x, y: (hl.exp(x) * y + 2.0, x - y, hl.sum(x * y)), x, y)
        check(lambda x, y: hl.exp(x) + y[:, None][:, 0] * x[::-1], x, y)
    finally:
        hl.set_num_threads(before)


@pytest.mark.parametrize("block", range(2))
def test_random_programs_compiled(block):
    random_programs(range(400 * block, 400 * (block + 1)))


@pytest.mark.slow
@pytest.mark.parametrize("block", range(2, 50))
def test_random_programs_compiled_twenty_thousand(block):
    random_programs(range(400 * block, 400 * (block + 1)))


def random_programs(seeds):
    """The seeded programs of test_programs: views, in-place writes, gradients of any order, hooks."""
    ends = collections.Counter()
    for seed in seeds:
        program = programs.Generator(seed).make()

        def run(lines=program.lines):
            env, failed = program_engines.helpers(hl), []
            for i, line in enumerate(lines):
                try:
                    exec(line, env)
                except Exception as error:  # noqa: BLE001 - both ways have to agree on it
                    failed.append((i, type(error).__name__, str(error).split("(<")[0]))
                    env["error"] = error = None
            result = {}
            for name, value in env.items():
                if isinstance(value, hl.Tensor):
                    result[name] = value.detach()
                    if value.is_leaf and value.grad is not None:
                        result[f"{name}.grad"] = value.grad.detach()
            env.clear()
            return result, failed

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            expected, failed = run()
            compiled = hl.compile(run)
            try:
                for _ in range(2):
                    result, refused = compiled()
                    if any("while the function is only traced" in text for *_, text in refused):
                        ends["asks for a value"] += 1
                        break
                    assert refused == failed, (seed, program.lines)
                    assert list(result) == list(expected)
                    wrong = [n for n in result if bits(result[n]) != bits(expected[n])]
                    assert not wrong, (seed, wrong, program.lines)
                else:
                    ends["compared"] += 1
            except hl.Unsupported as error:
                assert "still held" in str(error), (seed, error)
                ends["held"] += 1
    assert ends["compared"] > 0.85 * len(seeds), ends


def random_function(seed):
    """A function of a few tensors of one shape: elementwise ops, casts, views, and reductions over first, last, all
    axes."""

    def f(*tensors):
        rng = np.random.default_rng(seed)
        values, results = list(tensors), []
        pick = lambda options: options[int(rng.integers(len(options)))]  # noqa: E731
        for _ in range(int(rng.integers(3, 14))):
            kind, a = rng.random(), pick(values)
            number = a.astype(hl.float32) if a.dtype == hl.bool else a
            if kind < 0.3:
                v = pick([hl.exp, hl.tanh, hl.negative, hl.abs, hl.sin, hl.square, hl.floor, hl.sigmoid])(number)
            elif kind < 0.6:
                b = pick(values)
                b = b.astype(hl.float32) if b.dtype == hl.bool else b
                try:
                    v = pick([hl.add, hl.subtract, hl.multiply, hl.maximum, hl.divide])(number, b)
                except hl.ShapeMismatch:
                    continue
            elif kind < 0.62:
                v = a.astype(pick([hl.float16, hl.float64, hl.float32, hl.int32]))
            elif kind < 0.66 and a.ndim == 2:
                v = pick([a.T, a[::-1]])
            elif a.ndim == 0:
                continue
            else:
                first, last = int(rng.integers(a.ndim)), int(rng.integers(a.ndim))
                some = [tuple(range(last, a.ndim)), tuple(range(first + 1))]
                axis = pick([None, *some, *some, last])
                reduce = pick([hl.sum, hl.mean, hl.max, hl.min, hl.prod, hl.any, hl.all])
                v = reduce(a, axis=axis, keepdims=bool(rng.random() < 0.6))
            values.append(v)
            if rng.random() < 0.3:
                results.append(v)
        return [*results, values[-1]]

    return f


SIZES = {
    "small": ([1, 2, 3, 5, 7, 16, 33, 64, 100], 20_000),
    "long": ([1, 2, 3, 1000, 1024, 1025, 3000, 40_000], 200_000),
    "wide": ([1, 65, 300, 2047, 2049, 5000], 400_000),
}


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("threads", [1, 2])
def test_random_reductions(sizes, threads):
    options, most = SIZES[sizes]
    rng = np.random.default_rng(threads)
    before = hl.about()["threads"]
    hl.set_num_threads(threads)
    passes = collections.Counter()
    try:
        for seed in range(250 if sizes == "small" else 120):
            shape = [int(rng.choice(options)) for _ in range(int(rng.integers(1, 4 if sizes != "wide" else 3)))]
            while np.prod(shape) > most:
                shape[int(np.argmax(shape))] //= 2
            dtype = [np.float32, np.float32, np.float64, np.float16, np.int32][int(rng.integers(5))]
            x, y, z = ((rng.normal(size=s) * 3).astype(dtype) for s in (shape, shape, shape[-1:]))
            x, y, z = (hl.asarray(a).copy() for a in (x, y, z))
            f = random_function(1000 * threads + seed)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                compiled, expected = hl.compile(f), f(x, y, z)
                for _ in range(2):
                    assert same(compiled(x, y, z), expected), (seed, shape, dtype, compiled.explain())
            for step in compiled.plan().steps:
                head = step["source"].split("\n")[0].split()
                passes[head[4] if head[:1] == ["for"] else "flat" if step["fused"] else "call"] += 1
    finally:
        hl.set_num_threads(before)
    assert min(passes[k] for k in ("flat", "rows", "columns", "call")) >= (10 if sizes == "small" else 2), passes


# ---- other libraries' bug reports (cases.md) ------------------------------------------------------------------------


@pytest.mark.parametrize("to", ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "bool"])
def test_case_19_casts_of_what_an_integer_does_not_hold(to):
    values = [np.nan, np.inf, -np.inf, 2.0**31, -2.0, 68469.13, 1e30, -0.0, 3.7]
    for n in (1, 7, 9, 64, 1000):
        x = hl.asarray(np.resize(np.float32(values), 3 * n))
        for y in (x[:n], x[::3], x[::-1]):
            check(lambda x: (x * 1).astype(getattr(hl, to)), y)


def test_case_23_float8_is_rounded_as_eagerly():
    x = hl.asarray(np.float32([4.25, 4.75, 464, 2**-10, 1.5 * 2**-9, 465, 1000, np.inf, np.nan]))
    check(lambda x: (x * 1).astype(hl.float8_e4m3fn).astype(hl.float32) * 2, x)
    assert hl.compile(lambda x: x.astype(hl.float8_e4m3fn).astype(hl.float32))(x).tolist()[:5] == [
        4, 5, 448, 0, 2**-8,
    ]  # fmt: skip


def test_case_30_subnormal_numbers_stay():
    x = hl.asarray(np.full(100_000, 2.0**-126, dtype=np.float32))
    out = check(lambda x: x * 0.25 + 0.0, x)(x)
    assert out[0].item() == out[-1].item() == 2.0**-128
    assert 2.0**-1022 * 0.25 > 0


@pytest.mark.parametrize("tier", [0, 1])
@pytest.mark.parametrize("op", ["exp", "tanh", "sigmoid", "sin", "log1p", "erf", "sqrt", "gelu"])
def test_case_35_strided_and_contiguous_operands(op, tier):
    values = np.linspace(-12, 12, 4001, dtype=np.float32)
    wide = hl.zeros(3 * 4001)
    wide[::3] = hl.asarray(values)
    compiled = hl.compile(lambda x: getattr(hl, op)(x) * 1, tier=tier)
    for n in (*range(1, 18), 4001):
        x = hl.asarray(values[:n].copy())
        assert bits(compiled(x)) == bits(compiled(wide[::3][:n])) == bits(getattr(hl, op)(x) * 1)


def test_case_63_more_elements_than_32_bits_count():
    n = 2**31 + 8
    compiled = hl.compile(
        lambda x: (hl.sum(hl.broadcast_to(x, (n,)), dtype=hl.int64), hl.argmax(hl.broadcast_to(x, n)))
    )
    total, place = compiled(hl.ones(1, dtype=hl.int8))
    assert total.item() == n and place.item() == 0


@pytest.mark.parametrize("tier", [0, 1])
def test_case_66_a_long_chain(tier):
    def chain(a):
        for _ in range(100_000):
            a = a * 0.5 + 1
        return a

    compiled = hl.compile(chain, tier=tier)
    assert compiled(hl.zeros(5)).tolist() == [2.0] * 5
    assert compiled.plan().temporary_bytes <= 40
    x = hl.zeros(5).requires_grad_(True)
    few = hl.compile(lambda a: hl.grad(lambda a: hl.sum(chain(a)))(a), tier=tier)
    assert few(x.detach()).tolist() == [0.0] * 5


def test_case_68_what_is_fused_has_the_bits_of_step_by_step():
    p = hl.asarray(np.float32([0.1, 0.2, 0.3, 0.4]))
    check(
        lambda p, u: hl.sum((hl.concat([p[:1], p[:1] + p[1:2]]) < u).astype(hl.int64)), p, hl.asarray(np.float32(0.25))
    )
    check(lambda x: hl.sigmoid(x) * 1, hl.asarray(np.linspace(-9, 9, 4001, dtype=np.float32)))

    def write(x):
        out = hl.zeros((3, 5, 2 * 1026))
        out[:, ::2, ::2] = hl.exp(x) * 2
        return out

    check(write, normal(3, 3, 1026))


def test_a_thousand_inputs():
    xs = [normal(16, seed=i) for i in range(1000)]

    def total(*xs):
        t = xs[0]
        for x in xs[1:]:
            t = t + x
        return t

    compiled = check(total, *xs)
    assert 50 <= compiled.plan().kernels <= 60
    assert {s["reason"] for s in compiled.plan().steps[1:]} == {"the group has as many operands as it can"}


# ---- effects --------------------------------------------------------------------------------------------------------


def test_writes_to_arguments_happen_at_each_call_and_count_versions():
    def f(x, y):
        x *= 2
        x[1:3] += y
        x[:, 0] = 7.0
        return x.sum()

    a, b, y = normal(5, 6), normal(5, 6), normal(6)
    compiled = hl.compile(f)
    for _ in range(3):
        assert same(compiled(b, y), f(a, y)) and same(a, b)
    leaf = normal(5, 6).requires_grad_(True)
    for way in (f, compiled):
        with pytest.raises(hl.AutogradError, match="a leaf that requires grad"):
            way(leaf, y)
    saved = normal(5, 6).requires_grad_(True) * b
    compiled(b, y)
    with pytest.raises(hl.VersionMismatch):
        hl.sum(saved).backward()


def test_writes_to_two_arguments_and_swaps():
    def f(x, y):
        old = x * 1
        x[...] = y
        y[...] = old

    a, b = normal(5), normal(5, seed=1)
    p, q = a.copy(), b.copy()
    compiled = hl.compile(f)
    for _ in range(3):
        f(a, b)
        assert compiled(p, q) is None
        assert same([a, b], [p, q])


@pytest.mark.parametrize("shape", [(6, 5), (3, 40_000), (2000, 70), (300, 3000)])
@pytest.mark.parametrize("axis", [1, 0, None])
def test_what_is_overwritten_is_kept_where_it_is_a_result(shape, axis):
    def f(x, y):
        old = x.copy()
        s = hl.sum(x * y, axis=axis, keepdims=True)
        if axis is not None and shape[axis] < 3000:
            x -= hl.exp(y) * s
        else:
            x -= hl.exp(y)
        y[...] = old
        return old, s, hl.max(old, axis=axis)

    (a, b), (p, q) = ([normal(*shape), normal(*shape, seed=1)] for _ in range(2))
    compiled = hl.compile(f)
    for _ in range(3):
        assert same(compiled(p, q), f(a, b)) and same([p, q], [a, b])


def test_a_negative_step_written_through_a_view():  # case 43
    def f(base, x):
        base[::-1] += 2 * x[::-1]
        return base

    x = hl.arange(6, dtype=hl.float32)
    assert f(hl.zeros(6), x).tolist() == [0, 2, 4, 6, 8, 10]
    for tier in (0, 1):
        assert hl.compile(f, tier=tier)(hl.zeros(6), x).tolist() == [0, 2, 4, 6, 8, 10]


def test_what_the_function_makes_is_made_anew_at_each_call():
    def f(x):
        total = hl.asarray([0.0, 0.0])
        total += x
        table = hl.zeros(4)
        table[1:3] = total
        return total, table

    compiled = hl.compile(f)
    for _ in range(3):
        assert same(compiled(hl.ones(2)), f(hl.ones(2)))


def test_captured_tensors_are_read_anew():
    w = normal(5)
    compiled = hl.compile(lambda x: x * w)
    x = normal(5, seed=1)
    first = compiled(x)
    w += 1
    assert not same(first, compiled(x)) and same(compiled(x), x * w)
    assert compiled.cache()["traces"] == 1


def training(parameters, velocities):
    def step(x, y):
        w1, b1, w2, b2 = parameters
        scores = hl.relu(x @ w1 + b1) @ w2 + b2
        loss = -hl.mean(hl.sum(hl.log_softmax(scores) * y, axis=1))
        loss.backward()
        with hl.no_grad():
            for p, v in zip(parameters, velocities, strict=True):
                v *= 0.9
                v += p.grad
                p -= 0.1 * v
                p.grad = None
        return loss.detach()

    return step


def parameters():
    shapes = [(64, 32), (32,), (32, 10), (10,)]
    ps = [(normal(*s, seed=i) * 0.1).requires_grad_(True) for i, s in enumerate(shapes)]
    return ps, [hl.zeros(s) for s in shapes]


def test_a_training_step_in_one_plan():
    eager, compiled = parameters(), parameters()
    a, b = training(*eager), hl.compile(training(*compiled))
    for i in range(20):
        x, y = normal(32, 64, seed=i), hl.take(hl.eye(10), hl.arange(32) % 10)
        assert same(a(x, y), b(x, y))
        assert same(eager, compiled) and all(p.grad is None for p in compiled[0])
    assert {**b.cache(), "generated": 0} == {"signatures": 1, "traces": 1, "hits": 19, "entries": 1, "generated": 0}


def test_gradients_left_on_tensors():
    p = normal(5).requires_grad_(True)
    compiled = hl.compile(lambda x: hl.sum(x * p).backward())
    x = normal(5, seed=1)
    for n in (1, 2, 3):
        assert compiled(x) is None
        assert np.allclose(p.grad.numpy(), n * x.numpy())
    p.grad = None
    compiled(x)
    assert same(p.grad, x)


def test_results_that_were_there_before():
    w = normal(4)

    def f(x):
        return x, x[1:], x.T, w, 3, "text", None

    x = normal(3, 4)
    y, rest, turned, same_w, *others = hl.compile(f)(x)
    assert y is x and same_w is w and others == [3, "text", None]
    rest += 1
    assert same(rest, x[1:]) and turned.strides == x.T.strides


def test_results_have_memory_of_their_own():
    def f(x):
        a = x + 1
        return a, a[1:], a * 1, x * 1, x * 1

    a, tail, b, c, d = hl.compile(f)(normal(5))
    tail += 1
    assert same(a[1:], tail)
    before = d.copy()
    c += 5
    assert same(d, before) and not same(b[1:], tail)


def test_overlapping_arguments():
    def f(x, y):
        x += y
        return x * 2, y * 3

    for make in (lambda t: (t[1:], t[:-1]), lambda t: (t[2:6], t[2:6]), lambda t: (t, t), lambda t: (t[::2], t[1::2])):
        a, b = normal(8), normal(8)
        compiled = hl.compile(f)
        for _ in range(2):
            assert same(compiled(*make(b)), f(*make(a))) and same(a, b)


# ---- signatures -----------------------------------------------------------------------------------------------------


def test_what_makes_another_signature():
    compiled = hl.compile(lambda x, k=1: x * k)
    for x in (hl.ones(3), hl.ones(3, dtype=hl.int32), hl.ones((3, 2)), hl.ones((3, 1))):
        compiled(x)
    assert compiled.cache()["signatures"] == 4
    compiled(hl.ones(7)), compiled(hl.ones((5, 6)))  # sizes do not
    assert compiled.cache()["signatures"] == 4
    compiled(hl.ones(3), 2), compiled(hl.ones(3), 2.0), compiled(hl.ones(3), k=2)
    assert compiled.cache()["signatures"] == 7
    compiled(hl.ones(3), 3), compiled(hl.ones(6), 2.5), compiled(hl.ones(4), k=4)  # nor do numbers
    assert compiled.cache()["signatures"] == 7
    compiled(hl.ones(6, dtype=hl.float64), 2.5)  # but a dtype does, whatever else is new
    assert compiled.cache()["signatures"] == 8
    with hl.autocast():
        compiled(hl.ones(3))
    assert compiled.cache()["signatures"] == 9
    assert compiled(hl.ones(1), 0.0).tolist() == [0.0] and str(compiled(hl.ones(1), -0.0).tolist()) == "[-0.0]"


def test_too_many_signatures_name_what_changed():
    compiled = hl.compile(lambda x, k: x * (2 if k == "two" else 3), max_recompiles=3)
    for k in ("one", "two", "three"):
        compiled(hl.ones(2), k)
    with pytest.raises(hl.Unsupported, match=r"k is 'four', and was 'three'; pass what changes as a tensor"):
        compiled(hl.ones(2), "four")
    compiled(hl.ones(2), "two")
    with pytest.raises(hl.Unsupported, match="x is float64, and was float32"):
        compiled(hl.ones(2, dtype=hl.float64), "two")


def test_without_dynamic_each_size_and_number_is_a_signature():
    compiled = hl.compile(lambda x, k: x * k, dynamic=False, max_recompiles=3)
    for n, k in ((2, 0.5), (3, 0.5), (3, 1.5), (2, 0.5)):
        assert compiled(hl.ones(n), k).tolist() == [k] * n
    with pytest.raises(hl.Unsupported, match=r"k is 2.5, and was 0.5; .* compile\(f, dynamic=True\)"):
        compiled(hl.ones(2), 2.5)
    with pytest.raises(ValueError, match="dynamic must be True or False, not 1"):
        hl.compile(hl.sin, dynamic=1)


def test_a_number_that_changes_at_each_call():
    """A schedule of learning rates: always the value of this call, one signature, plans that do not pile up."""

    @hl.compile
    def step(w, g, lr, settings):
        w -= lr * (g + settings["decay"] * w) / (1 - settings["beta"][0] ** settings["t"])

    w, v, g = hl.ones(50), hl.ones(50), hl.asarray(np.linspace(-1, 1, 50, dtype=np.float32))
    for t in range(1, 400):
        lr, settings = 0.1 / t, {"decay": 1e-3 * t, "beta": (0.9, "adam"), "t": t}
        with hl.no_grad():
            step(w, g, lr, settings)
            v -= lr * (g + settings["decay"] * v) / (1 - 0.9**t)
    assert same(w, v)
    assert step.cache()["signatures"] == 1 and step.cache()["entries"] <= 256


def test_methods_decorators_recursion_and_threads():
    class Layer:
        def __init__(self, scale):
            self.scale = scale

        @hl.compile
        def forward(self, x):
            """Doc."""
            return x * self.scale

    assert Layer.forward.__name__ == "forward" and Layer.forward.__doc__ == "Doc."
    two, three = Layer(2), Layer(3)
    assert two.forward(hl.ones(1)).item() == 2 and three.forward(hl.ones(1)).item() == 3

    @hl.compile(max_recompiles=9)
    def power(x, n):
        return x if n == 0 else x * power(x, n - 1)

    assert power(hl.asarray([2.0]), 5).tolist() == [64.0]
    x = normal(1000)
    expected, wrong = x * 3 + hl.sin(x), []
    shared = hl.compile(lambda x: x * 3 + hl.sin(x))

    def work():
        for _ in range(200):
            if not same(shared(x), expected):
                wrong.append(1)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


# ---- what is refused ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "f",
    [
        lambda x: x if x.sum() > 0 else -x, lambda x: x * x[0].item(), lambda x: x + np.asarray(x), lambda x: list(
            range(int(x[0]))), lambda x: x[x > 0], lambda x: float(x[0]), lambda x: x.tolist(),
    ],
)  # fmt: skip
def test_asking_for_values_names_the_line(f):
    with pytest.raises(hl.Unsupported, match=r"test_compile.py:\d+ asks for a value.*hl.where\(condition, a, b\)"):
        hl.compile(f)(hl.ones(3))
    assert (hl.ones(3) + 1).tolist() == [2, 2, 2]


def test_values_that_leave_the_function():
    kept = []

    def f(x):
        kept.append(x * 2)
        return x + 1

    with pytest.raises(hl.Unsupported, match=r"multiply \(.*test_compile.py:\d+\) makes is still held after .*f has"):
        hl.compile(f)(hl.ones(3))
    for use in (lambda t: t + 1, lambda t: t.sum(), lambda t: t[0], lambda t: t.tolist(), lambda t: hl.ones(3) * t,
                lambda t: hl.compile(lambda: t + 1)(), lambda t: hl.compile(lambda x: x + t)(hl.ones(3))):  # fmt: skip
        with pytest.raises(hl.Unsupported, match="left its function"):
            use(kept[0])
    x = hl.ones(3)
    with pytest.raises(hl.Unsupported, match="left its function"):
        x += kept[0]
    assert x.tolist() == [1, 1, 1]


def test_a_function_that_raises_leaves_everything_as_it_was():
    p = hl.ones(3).requires_grad_(True)

    def f(x):
        hl.sum(p * x).backward()
        x += 1
        raise ZeroDivisionError

    x = hl.ones(3)
    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            hl.compile(f)(x)
    assert x.tolist() == [1, 1, 1] and p.grad is None
    assert (x + 1).tolist() == [2, 2, 2]


def test_index_out_of_range_inside_a_plan_names_the_line():  # case 64
    compiled = hl.compile(lambda x, i: hl.exp(hl.take(x, i, axis=0) * 2))
    assert compiled(hl.ones((3, 2)), hl.asarray([2])).shape == (1, 2)
    with pytest.raises(IndexError, match=r"4.*\(.*test_compile.py:\d+\)") as error:
        compiled(hl.ones((3, 2)), hl.asarray([4]))
    assert "test_compile.py" in error.value.line


def test_nothing_is_kept_alive():
    gc.collect()
    x = normal(1000)
    hl.compile(lambda x: hl.exp(x) + 1)(x)
    gc.collect()
    before = hl.memory_stats()["allocated_bytes"]
    for _ in range(50):
        hl.compile(lambda x: hl.grad(lambda x: hl.sum(hl.exp(x) + 1))(x))(x)
    gc.collect()
    assert hl.memory_stats()["allocated_bytes"] - before < 4096
    users = sys.getrefcount(x)
    compiled = hl.compile(lambda x: x * 2)
    compiled(x)
    del compiled
    assert sys.getrefcount(x) == users
