"""Groups H, J and K of the public bug reports as kinds: other shapes, dtypes, layouts and operations."""

import contextlib
import itertools
import operator

import numpy as np
import pytest
from numpy.lib.stride_tricks import as_strided

import hyalite as hl

INF = float("inf")
FACTS = {name: hl._C._op_facts(name) for name in hl._C._op_names()}
ELEMENTWISE = [name for name, f in FACTS.items() if f["elementwise"] and name not in ("where", "clip", "astype")]
DTYPES = ["bool", "int8", "uint16", "int64", "float16", "bfloat16", "float32", "float64", "complex64", "complex128"]
OPERATORS = {
    "+=": operator.iadd, "-=": operator.isub, "*=": operator.imul, "//=": operator.ifloordiv, "%=": operator.imod,
    "&=": operator.iand, "|=": operator.ior, "^=": operator.ixor, "/=": operator.itruediv, "**=": operator.ipow,
}  # fmt: skip


def bits(x):
    return x.contiguous().numpy().tobytes() if x.size else b""


def values(shape, dtype, seed):
    r = np.random.default_rng(seed)
    if dtype == "bool":
        return hl.asarray(r.random(shape) < 0.5)
    if "int" in dtype:
        return hl.asarray(r.integers(1, 7, shape).astype(dtype))
    v = hl.asarray(r.uniform(0.25, 3, shape)).astype(getattr(hl, dtype))
    return v if "complex" not in dtype else v * hl.asarray(r.uniform(0.5, 1, shape) + 0.5j).astype(v.dtype)


def laid_out(x, r):
    """The same elements in memory of another layout: steps, reversed, transposed, with an offset."""
    if x.ndim == 0:
        return hl.stack([x, x])[1]
    order = r.permutation(x.ndim)
    steps = [int(r.choice([1, 1, 2, 3, -1, -2])) for _ in order]
    room = [int(x.shape[a] * abs(s) + r.integers(1, 3)) for a, s in zip(order, steps)]
    base = hl.zeros(tuple(room), dtype=x.dtype)
    view = base[tuple(slice(None, None, s) for s in steps)][tuple(slice(0, x.shape[a]) for a in order)]
    view = hl.permute_dims(view, tuple(int(a) for a in np.argsort(order)))
    view[...] = x
    return view


SHAPES = [(), (1,), (7,), (65,), (3, 5), (4, 1, 6), (2, 3, 4), (0, 3), (33, 18)]


# ---- H. Strides, views, aliasing --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ELEMENTWISE)
def test_case_041_every_operation_gives_the_same_bits_in_every_layout(name):
    function, arity, tried = getattr(hl, name), FACTS[name]["arity"], 0
    for dtype, (k, shape) in itertools.product(DTYPES, enumerate(SHAPES)):
        if getattr(hl, dtype) not in FACTS[name]["dtypes"]:
            continue
        r = np.random.default_rng([k, DTYPES.index(dtype)])
        inputs = [values(shape, dtype, k + 100 * i) for i in range(arity)]
        wanted = function(*inputs)
        for _ in range(3):
            got = function(*(laid_out(x, r) for x in inputs))
            pairs = zip(got, wanted) if isinstance(got, tuple) else [(got, wanted)]
            assert all(bits(g) == bits(w) for g, w in pairs), (dtype, shape)
            tried += 1
    assert tried > 0


@pytest.mark.parametrize("name", ["sum", "prod", "max", "min", "mean", "any", "all", "argmax", "argmin", "softmax"])
def test_case_041_every_reduction_gives_the_same_bits_in_every_layout(name):
    function = getattr(hl, name)
    for dtype, (k, shape) in itertools.product(DTYPES, enumerate(SHAPES)):
        if 0 in shape or getattr(hl, dtype) not in FACTS[name]["dtypes"]:
            continue
        r, x = np.random.default_rng([k, 7]), values(shape, dtype, k)
        axes = [-1] if name == "softmax" else [None, *range(len(shape))]
        for axis in axes if shape else [None] if name != "softmax" else []:
            wanted = function(x) if axis is None else function(x, axis=axis)
            for _ in range(2):
                y = laid_out(x, r)
                got = function(y) if axis is None else function(y, axis=axis)
                assert bits(got) == bits(wanted), (dtype, shape, axis)


def places(n, r):
    """Two ways to take as many elements of n, overlapping as chance has it."""
    count = int(r.integers(1, n // 2))
    found = []
    while len(found) < 2:
        step = int(r.choice([1, 1, 2, 3, -1, -2, -3]))
        length = (count - 1) * abs(step) + 1
        if length <= n:
            start = int(r.integers(0, n - length + 1))
            at = list(range(start, start + length, abs(step)))
            found.append((start, start + length, step, at[::-1] if step < 0 else at))
    return found


def cut(x, start, stop, step):
    return x[start:stop][::step] if step > 0 else x[start:stop][::-1][::-step]


@pytest.mark.parametrize(
    "dtype", ["int8", "uint16", "int64", "float16", "bfloat16", "float32", "float64", "complex128"]
)
@pytest.mark.parametrize("symbol", OPERATORS)
def test_case_045_any_overlap_reads_before_it_writes(symbol, dtype):
    r = np.random.default_rng(len(symbol) + len(dtype))
    for n, columns in itertools.product((9, 40, 3000), (0, 3)):
        for _ in range(12 if n < 100 else 3):
            start = values((n, columns) if columns else (n,), dtype, int(r.integers(1 << 30)))
            (a, b) = places(n, r)
            x = start.copy()
            target, source = cut(x, *a[:3]), cut(x, *b[:3])
            if columns and r.random() < 0.5:
                target, source = target.T, source.T
            wanted = target.copy()
            try:
                OPERATORS[symbol](wanted, source.copy())
            except (TypeError, ValueError, hl.HyaliteError):
                with pytest.raises((TypeError, ValueError, hl.HyaliteError)):
                    OPERATORS[symbol](target, source)
                break
            OPERATORS[symbol](target, source)
            assert bits(target) == bits(wanted), (n, a[:3], b[:3])
            untouched = sorted(set(range(n)) - set(a[3]))
            assert x.numpy()[untouched].tobytes() == start.numpy()[untouched].tobytes()


@pytest.mark.parametrize("dtype", DTYPES)
def test_case_043_any_overlap_in_an_assignment(dtype):
    r = np.random.default_rng(43)
    for n in (6, 30, 2000):
        for _ in range(20 if n < 100 else 4):
            start = values((n,), dtype, int(r.integers(1 << 30)))
            a, b = places(n, r)
            x, wanted = start.copy(), start.numpy().copy()
            wanted[a[3]] = wanted[b[3]].copy()
            cut(x, *a[:3])[...] = cut(x, *b[:3])
            assert x.numpy().tobytes() == wanted.tobytes(), (n, a[:3], b[:3])


@pytest.mark.parametrize(
    "pair", [("float64", "float32"), ("float32", "float16"), ("int64", "int32"), ("int64", "int8")]
)
@pytest.mark.parametrize("symbol", ["+=", "-=", "*="])
def test_w23_one_memory_seen_as_two_dtypes(symbol, pair):
    wide, narrow = (np.dtype(d) for d in pair)
    ratio = wide.itemsize // narrow.itemsize
    for n, step, start in itertools.product((6, 70, 5000), (1, 2, -1), (0, 1)):
        memory = np.zeros(n * wide.itemsize, dtype=np.uint8)
        memory.view(narrow)[:] = np.arange(n * ratio) % 5 + 1
        if pair[0].startswith("float"):
            memory.view(wide)[n // 2 :] = 1.5
        target = hl.asarray(memory.view(wide))[::step]
        source = hl.asarray(memory.view(narrow))[start : start + target.shape[0]][:: 1 if step > 0 else -1]
        wanted = target.copy()
        OPERATORS[symbol](wanted, source.copy())
        OPERATORS[symbol](target, source)
        assert bits(target) == bits(wanted), (n, step, start)


EXPANDED = {
    "broadcast": lambda x: (hl.broadcast_to(x, (3, *x.shape)), 0),
    "broadcast of a view": lambda x: (hl.broadcast_to(x[:, :1], (*x.shape[:1], 5)), 1),
    "slice of a broadcast": lambda x: (hl.broadcast_to(x, (4, *x.shape))[1:, ::-1], 0),
    "transposed": lambda x: (hl.permute_dims(hl.broadcast_to(x, (4, *x.shape)), (2, 0, 1)), 1),
    "from NumPy": lambda x: (hl.asarray(as_strided(x.numpy(), (2, 3), (0, x.itemsize))), 0),
}


@pytest.mark.parametrize("dtype", ["int8", "float32", "float64", "complex64"])
@pytest.mark.parametrize("form", EXPANDED)
def test_case_044_no_write_goes_through_an_expanded_view(form, dtype):
    x = values((4, 3), dtype, 44)
    before = bits(x)
    view, axis = EXPANDED[form](x)
    one = hl.ones((), dtype=x.dtype)
    for write in (
        lambda: operator.iadd(view, 1), lambda: operator.imul(view, view), lambda: operator.isub(view, one),
        lambda: view.__setitem__(..., one), lambda: view.__setitem__(slice(None), 1),
        lambda: view[..., :1].__setitem__(..., one) if axis != view.ndim - 1 else operator.iadd(view, 1),
    ):  # fmt: skip
        with pytest.raises(ValueError, match="stride 0"):
            write()
        assert bits(x) == before


# ---- J. Autograd ------------------------------------------------------------------------------------------------

# Operations and points where their slopes are infinite or NaN, or where they overflow.
STEEP = {
    "sqrt": (hl.sqrt, [0.0, -1.0, INF]), "log": (hl.log, [0.0, -2.0]), "log1p": (hl.log1p, [-1.0, -3.0]),
    "reciprocal": (hl.reciprocal, [0.0]), "exp": (hl.exp, [1000.0, INF]), "expm1": (hl.expm1, [1000.0]),
    "sin": (hl.sin, [INF, -INF]), "cos": (hl.cos, [INF]), "pow": (lambda x: x**0.5, [0.0, -1.0]),
    "power of itself": (lambda x: x**x, [0.0, -0.5]), "1 / x": (lambda x: 1 / x, [0.0]),
    "x / abs x": (lambda x: x / hl.abs(x), [0.0]), "square": (hl.square, [INF]),
    "norm": (lambda x: hl.sqrt(x * x), [0.0]), "entropy": (lambda x: x * hl.log(x), [0.0, -1.0]),
    "sine over x": (lambda x: hl.sin(x) / x, [0.0]), "remainder": (lambda x: x % 0.0, [1.0]),
    "softplus": (lambda x: hl.log1p(hl.exp(x)), [1000.0]),
}  # fmt: skip
# Ways to choose: of the steep function at x, and of another one, the other.
GUARDS = {
    "where left": lambda f, x, other: hl.where(hl.isnan(x * 0 + hl.inf - hl.inf), other, f(x)) * 1.0,
    "where right": lambda f, x, other: hl.where(x == x, other, f(x)),
    "where nested": lambda f, x, other: hl.where(x == x, hl.where(x != x, f(x), other), f(x) * 2),
    "index": lambda f, x, other: hl.stack([other, f(x)])[0],
    "take": lambda f, x, other: hl.take(hl.stack([f(x), other]), hl.asarray([1]), axis=0)[0],
    "slice": lambda f, x, other: hl.concat([f(x), other])[x.shape[0] :],
}


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize("guard", [g for g in GUARDS if g != "where left"])
@pytest.mark.parametrize("name", STEEP)
def test_case_055_nothing_comes_from_what_was_not_chosen(name, guard, dtype):
    function, steep = STEEP[name]
    for point, shape in itertools.product(steep, [(1,), (3,), (17,)]):
        if point == INF or point == -INF:
            other, slope = (lambda x: hl.where(hl.isinf(x), 0 * hl.ones_like(x), x) * 3), 0.0
        else:
            other, slope = (lambda x: x * 3), 3.0
        x = hl.full(shape, point, dtype=getattr(hl, dtype)).requires_grad_()
        out = GUARDS[guard](function, x, other(x))
        hl.sum(out).backward(create_graph=True)
        g, x.grad = x.grad, None
        assert g.tolist() == [slope] * shape[0], (point, shape)
        if g.requires_grad:
            hl.sum(g * 2).backward()
            assert x.grad is None or x.grad.tolist() == [0.0] * shape[0], (point, shape)


@pytest.mark.parametrize("seed", range(12))
def test_case_059_products_with_zeros_have_exact_derivatives(seed):
    """Small integers in float64, so that every product of the others is exact; two orders, axes and layouts."""
    r = np.random.default_rng(seed)
    shape = [(5,), (3, 4), (2, 3, 4)][seed % 3]
    data = r.integers(-3, 4, shape).astype(np.float64)
    data[r.random(shape) < 0.35] = 0
    for axis in (None, *range(len(shape))):
        x = hl.tensor(data, dtype=hl.float64, requires_grad=True)
        weights = r.integers(-2, 3, np.prod(data, axis=axis).shape).astype(np.float64)
        probe = r.integers(-2, 3, shape).astype(np.float64)

        def value(d, axis=axis, weights=weights):
            return np.sum(np.prod(d, axis=axis) * weights)

        hl.sum(hl.prod(laid_out(x, r), axis=axis) * hl.asarray(weights)).backward(create_graph=True)
        g, x.grad = x.grad, None
        # The product is linear in each element, so a difference of one is its exact slope.
        want, second = np.zeros(shape), np.zeros(shape)

        def slopes(d):
            out = np.zeros(shape)
            for i in np.ndindex(*shape):
                up, down = d.copy(), d.copy()
                up[i], down[i] = 1, 0
                out[i] = value(up) - value(down)
            return out

        want = slopes(data)
        assert np.array_equal(g.detach().numpy(), want)
        if g.requires_grad:
            hl.sum(g * hl.asarray(probe)).backward()
        for i in np.ndindex(*shape):
            up, down = data.copy(), data.copy()
            up[i], down[i] = 1, 0
            second[i] = np.sum((slopes(up) - slopes(down)) * probe)
        got = np.zeros(shape) if x.grad is None else x.grad.numpy()
        assert np.array_equal(got, second), axis


DIFFERENTIABLE = [
    name for name, f in FACTS.items()
    if f["has_gradient"] and f["elementwise"] and f["outputs"] == 1 and name not in ("astype", "clip", "where", "conj")
]  # fmt: skip
OTHERS = {
    "where": lambda x, y: hl.where(x > 1, x, y), "clip": lambda x, y: hl.clip(x, y - 0.5, y + 0.5),
    "matmul": lambda x, y: hl.reshape(x, (2, 3)) @ hl.reshape(y, (3, 2)), "sum": lambda x, y: hl.sum(x) * y,
    "prod": lambda x, y: hl.prod(x) * hl.prod(y), "max": lambda x, y: hl.max(x) * y, "mean": lambda x, y: hl.mean(x),
    "softmax": lambda x, y: hl.softmax(x) * y, "log_softmax": lambda x, y: hl.log_softmax(x),
    "concat": lambda x, y: hl.concat([x, y]), "take": lambda x, y: hl.take(x, hl.asarray([1, 1, 0]), axis=0),
    "divmod": lambda x, y: hl.divmod(x, y)[1], "index": lambda x, y: x[::2] * y[::2],
    "astype": lambda x, y: x.astype(hl.float32).astype(hl.float64) * y,
}  # fmt: skip
WRITES = {
    "add": lambda t: operator.iadd(t, 1),
    "assign": lambda t: t.__setitem__(..., 7.0),
    "element": lambda t: t.__setitem__(0, 5.0),
    "view": lambda t: operator.imul(t[::2], 3),
    "no_grad": lambda t: silent(t),
}


def silent(t):
    with hl.no_grad():
        t *= 2


@pytest.mark.parametrize("written", ["first", "second", "output"])
@pytest.mark.parametrize("name", DIFFERENTIABLE + list(OTHERS))
def test_case_061_a_write_after_the_forward_is_refused_or_harmless(name, written):
    function = OTHERS.get(name) or getattr(hl, name)
    arity = 2 if name in OTHERS else FACTS[name]["arity"]
    if written == "second" and arity == 1:
        written = "first"
    data = [np.array([1.25, 0.75, 2.5, 0.5, 1.75, 1.5]), np.array([0.8, 1.2, 2.1, 0.7, 1.1, 1.9])][:arity]

    def forward():
        leaves = [hl.tensor(d, dtype=hl.float64, requires_grad=True) for d in data]
        inner = [x * 1 for x in leaves]
        return leaves, inner, function(*inner)

    leaves, _, out = forward()
    if not out.requires_grad:
        return
    weights = hl.asarray(np.arange(1.0, out.size + 1).reshape(out.shape))
    out.backward(weights)
    wanted = [x.grad for x in leaves]
    for write, do in WRITES.items():
        leaves, inner, out = forward()
        target = {"first": inner[0], "second": inner[-1], "output": out}[written]
        if target.ndim == 0 and write in ("element", "view"):
            continue
        root = out if written != "output" else out * 1  # the value before the write, by a node that reads nothing
        do(target)
        try:
            root.backward(weights)
        except hl.VersionMismatch as error:
            assert "version" in str(error)
            assert all(x.grad is None for x in leaves)
            continue
        for x, w in zip(leaves, wanted):
            assert (x.grad is None) == (w is None) or not np.any((x.grad or w).numpy())
            if w is not None and x.grad is not None:
                np.testing.assert_allclose(x.grad.numpy(), w.numpy(), rtol=1e-14, err_msg=write)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_case_058_powers_of_differences_that_vanish(dtype):
    for q, by_p, by_q in ((1.0, 1.0, 0.0), (2.0, 0.0, 0.0), (3.0, 0.0, 0.0), (0.0, 0.0, 0.0)):
        for n in (1, 5, 40):
            a = hl.full((n,), 1.5, dtype=getattr(hl, dtype)).requires_grad_()
            b = hl.full((n,), 1.5, dtype=getattr(hl, dtype)).requires_grad_()
            e = hl.full((n,), q, dtype=getattr(hl, dtype)).requires_grad_()
            hl.sum((a - b) ** e).backward()
            assert a.grad.tolist() == [by_p] * n and b.grad.tolist() == [-by_p] * n and e.grad.tolist() == [by_q] * n


# ---- K. Size ----------------------------------------------------------------------------------------------------

HUGE = 2**31 + 8


@pytest.mark.parametrize("dtype", ["int8", "uint8", "bool"])
def test_case_063_past_two_to_the_31_without_memory(dtype):
    x = hl.broadcast_to(hl.ones((1,), dtype=getattr(hl, dtype)), (HUGE,))
    assert x.size == HUGE and x[HUGE - 1].item() == 1 and x[-HUGE].item() == 1
    assert x[HUGE - 3 :].shape == (3,) and x[::-1].shape == (HUGE,) and x[:: 2**31].shape == (2,)
    assert hl.reshape(x, (2, HUGE // 2)).shape == (2, HUGE // 2) if HUGE % 2 == 0 else True
    with pytest.raises(IndexError, match=str(HUGE)):
        x[HUGE]
    with pytest.raises(IndexError, match=str(HUGE)):
        x[-HUGE - 1]
    assert hl.broadcast_to(hl.ones((), dtype=x.dtype), (2**33, 3))[2**33 - 1].tolist() == [1, 1, 1]


@pytest.mark.parametrize(
    "make",
    [
        lambda: hl.zeros((2**40, 2**40)), lambda: hl.ones((2**31, 2**31, 2**31), dtype=hl.int8),
        lambda: hl.full((2**62, 4), 1.0), lambda: hl.empty((2**61,), dtype=hl.float64),
        lambda: hl.broadcast_to(hl.ones((1,)), (2**62, 2**62)), lambda: hl.zeros((2**63,)),
        lambda: hl.reshape(hl.zeros((0,)), (2**62, 2**62)), lambda: hl.zeros((-1,)),
        lambda: hl.stack([hl.broadcast_to(hl.ones((1,), dtype=hl.int8), (2**61,))] * 8),
        lambda: hl.concat([hl.broadcast_to(hl.ones((1,), dtype=hl.int8), (2**62,))] * 4),
        lambda: hl.broadcast_to(hl.ones((1,), dtype=hl.int8), (2**62,)) + 1,
    ],
)  # fmt: skip
def test_c7_sizes_that_overflow_raise(make):
    with pytest.raises((ValueError, MemoryError, OverflowError, hl.HyaliteError)):
        make()


def ways_to_index(x, axis, bad, kind):
    lead, index = (slice(None),) * axis, hl.asarray([0, bad], dtype=getattr(hl, kind))
    ways = [lambda: hl.take(x, index, axis=axis), lambda: x[(*lead, index)], lambda: x[(*lead, [bad])]]
    if kind == "int64":
        ways += [lambda: x[(*lead, bad)], lambda: x.__setitem__((*lead, bad), 1)]
    return ways


@pytest.mark.parametrize("kind", ["int8", "int16", "int64", "uint8", "uint64"])
def test_case_064_indices_out_of_range_name_value_axis_and_size(kind):
    x = hl.reshape(hl.arange(60), (3, 4, 5))
    before = x.tolist()
    for axis, bad in itertools.product(range(3), (5, 100, -6, -100)):
        if bad < 0 and kind.startswith("u"):
            continue
        for attempt in ways_to_index(x, axis, bad, kind):
            with pytest.raises(IndexError) as caught:
                attempt()
            text = str(caught.value)
            assert str(bad) in text and f"axis {axis}" in text and str(x.shape[axis]) in text, text
    assert x.tolist() == before


@pytest.mark.parametrize("threads", [1, 4])
def test_case_066_long_chains_of_every_form(threads):
    """Steps that each hang on the last: built, walked and dropped without recursion, in place, views and hooks too."""
    steps = 20_000
    with hl.set_num_threads(threads):
        for step, slope in (
            (lambda y: y * 0.5 + 1, 0.0),
            (lambda y: operator.iadd(y, 1), 1.0),
            (lambda y: y[...], 1.0),
            (lambda y: hl.reshape(y, (1, 2))[0], 1.0),
            (lambda y: hl.concat([y[:1], y[1:]]), 1.0),
            (lambda y: hl.where(y > 0, y, -y), 1.0),
        ):
            x = hl.tensor([1.0, 2.0], dtype=hl.float64, requires_grad=True)
            y = x * 1
            for _ in range(steps):
                y = step(y)
            hl.sum(y).backward()
            assert x.grad.tolist() == [slope, slope]
            del y
    with contextlib.suppress(AttributeError):
        x = hl.tensor([1.0, 2.0], dtype=hl.float64, requires_grad=True)
        y = x * 1
        for _ in range(2000):
            view = y[:1]
            view *= 1.0
        hl.sum(y).backward()
        assert x.grad.tolist() == [1.0, 1.0]
