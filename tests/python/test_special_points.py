"""Programs at the ends of each dtype's range, at zeros, ties and infinities: gradients against exact slopes by mpmath.

A chain's gradient is the product, from its end, of each operation's slope at the value that its operand really has,
rounded to the dtype after each operation. The slopes come from mpmath, and limits where a point is at infinity.
"""

import itertools

import ml_dtypes
import mpmath
import numpy as np
import pytest

import hyalite as hl

NUMPY = {"float64": np.float64, "float32": np.float32, "float16": np.float16, "bfloat16": ml_dtypes.bfloat16}
INF, NAN = float("inf"), float("nan")
NOTHING = "nothing"  # the slope of a branch not taken, which nothing that arrives makes other than 0


def facts(dtype):
    """The largest number, the smallest normal one, the smallest of all, and the bits of precision."""
    info = ml_dtypes.finfo(NUMPY[dtype])
    return float(info.max), float(info.smallest_normal), float(info.smallest_subnormal), info.nmant + 1


# ---- slopes ---------------------------------------------------------------------------------------------------------


def at(special, rule):
    """A slope by a rule, and by a table where the rule has no limit of its own."""

    def slope(x):
        for point, value in special.items():
            if x == point:
                return value
        value = rule(mpmath.mpf(x))
        return value if value is NOTHING or mpmath.isfinite(value) else float(value)

    return slope


def exp(x):
    """e^x, and beyond all dtypes a number that is beyond them too."""
    return mpmath.exp(max(min(x, mpmath.mpf(10_000)), mpmath.mpf(-10_000)))


def normal_density(x):
    return exp(-x * x / 2) / mpmath.sqrt(2 * mpmath.pi)


def normal_below(x):
    return mpmath.erfc(-max(min(x, mpmath.mpf(200)), mpmath.mpf(-200)) / mpmath.sqrt(2)) / 2


SLOPES = {
    "negative": at({}, lambda x: mpmath.mpf(-1)),
    "square": at({}, lambda x: 2 * x),
    "reciprocal": at({0.0: -INF, INF: 0, -INF: 0}, lambda x: -1 / x**2),
    "sqrt": at({0.0: INF, INF: 0}, lambda x: 1 / (2 * mpmath.sqrt(x)) if x > 0 else NAN),
    "exp": at({INF: INF, -INF: 0}, exp),
    "expm1": at({INF: INF, -INF: 0}, exp),
    # Left of their domain the slopes of the logarithms are those of log |x|, as everywhere else.
    "log": at({0.0: INF, INF: 0, -INF: 0}, lambda x: 1 / x),
    "log1p": at({-1.0: INF, INF: 0, -INF: 0}, lambda x: 1 / (1 + x)),
    "sin": at({INF: NAN, -INF: NAN}, mpmath.cos),
    "cos": at({INF: NAN, -INF: NAN}, lambda x: -mpmath.sin(x)),
    "tanh": at({INF: 0, -INF: 0}, lambda x: 4 / (exp(x) + exp(-x)) ** 2),
    "sigmoid": at({INF: 0, -INF: 0}, lambda x: 1 / (exp(x / 2) + exp(-x / 2)) ** 2),
    "erf": at({INF: 0, -INF: 0}, lambda x: 2 / mpmath.sqrt(mpmath.pi) * exp(-x * x)),
    "erfc": at({INF: 0, -INF: 0}, lambda x: -2 / mpmath.sqrt(mpmath.pi) * exp(-x * x)),
    "relu": at({}, lambda x: mpmath.mpf(1) if x > 0 else NOTHING),
    "leaky_relu": at({}, lambda x: mpmath.mpf(1) if x > 0 else mpmath.mpf(0.01)),
    "gelu": at({INF: mpmath.mpf(1), -INF: 0}, lambda x: normal_below(x) + x * normal_density(x)),
    "abs": at({}, lambda x: mpmath.mpf((x > 0) - (x < 0))),
    "positive": at({}, lambda x: mpmath.mpf(1)),
}


def points(dtype):
    top, normal, tiny, bits = facts(dtype)
    eps = 2.0 ** (1 - bits)
    near = [0.0, tiny, 3 * tiny, normal, normal * (1 - eps), eps, 0.1, 0.5, 1 - eps, 1.0, 1 + eps, 2.0, 3.7, 6.0, 10.0]
    far = [17.5, 20.0, 37.5, 60.0, 88.5, 104.0, 300.0, 709.0, top**0.5, top / 4, top, INF]
    values = {float(np.array(v).astype(NUMPY[dtype])) for v in near + far}
    return [*sorted(values), *sorted(-v for v in values if v), NAN]


def rounded(value, dtype):
    """A number of mpmath's as the dtype has it."""
    if isinstance(value, float) and (value != value or abs(value) == INF):
        return value
    value = mpmath.mpf(value)
    top, normal, tiny, bits = facts(dtype)
    if value == 0:
        return 0.0
    _, exponent = mpmath.frexp(value)
    unit = max(mpmath.mpf(2) ** (exponent - bits), mpmath.mpf(tiny))
    near = mpmath.nint(value / unit) * unit
    if abs(near) > top:
        return INF if value > 0 else -INF
    with mpmath.workprec(60):
        return float(+near)


def times(gradient, slope):
    """The product as IEEE has it; exact where both are finite."""
    if slope is NOTHING:
        return 0.0
    if gradient != gradient or slope != slope:
        return NAN
    if abs(gradient) == INF or (isinstance(slope, float) and abs(slope) == INF):
        if gradient == 0 or slope == 0:
            return NAN
        return INF if (gradient > 0) == (slope > 0) else -INF
    return mpmath.mpf(gradient) * slope


def close(got, want, ulp, dtype):
    """Whether a gradient is within some units of what is right, which is NaN, an infinity or a number of mpmath's."""
    if want != want:
        return got != got
    if got != got:
        return False
    top, normal, tiny, bits = facts(dtype)
    size = abs(want)
    if size == INF:
        return got == want
    unit = max(2.0 ** (1 - bits) * float(min(size, mpmath.mpf(top))), tiny)
    if abs(got) == INF:
        return size > top * (1 - ulp * 2.0 ** (1 - bits)) and (got > 0) == (want > 0)
    return abs(mpmath.mpf(got) - want) <= ulp * unit


def number(x):
    return float(x.astype(hl.float64).item())


# An operation's own slope has this error at most, in units of its dtype.
ULP = {"float64": 6, "float32": 6, "float16": 1.01, "bfloat16": 1.01}


@pytest.mark.parametrize("dtype", NUMPY)
@pytest.mark.parametrize("name", SLOPES)
def test_slopes_at_special_points(name, dtype):
    wrong = []
    with mpmath.workprec(2400):
        for x in points(dtype):
            leaf = hl.tensor([x], dtype=getattr(hl, dtype), requires_grad=True)
            getattr(hl, name)(leaf).backward(hl.ones((1,), dtype=leaf.dtype))
            want = NAN if x != x and name not in ("negative", "positive") else SLOPES[name](x)
            want = times(1.0, want)
            got = number(leaf.grad)
            if x == x and not close(got, want, ULP[dtype], dtype):
                wrong.append((x, got, rounded(want, dtype)))
    assert not wrong, wrong


@pytest.mark.parametrize("dtype", NUMPY)
@pytest.mark.parametrize("arriving", ["inf", "-inf", "nan", "top", "tiny"])
def test_w12_what_arrives_at_the_ends_of_the_range(arriving, dtype):
    top, normal, tiny, _ = facts(dtype)
    g = {"inf": INF, "-inf": -INF, "nan": NAN, "top": top, "tiny": tiny}[arriving]
    wrong = []
    with mpmath.workprec(2400):
        for name in SLOPES:
            for x in points(dtype)[:-1]:
                slope = SLOPES[name](x)
                if slope is NAN or slope != slope or (slope in (0, NOTHING) and abs(g) != top and abs(g) != tiny):
                    continue  # 0 * inf: see below
                leaf = hl.tensor([x], dtype=getattr(hl, dtype), requires_grad=True)
                getattr(hl, name)(leaf).backward(hl.tensor([g], dtype=leaf.dtype))
                want, got = times(g, slope), number(leaf.grad)
                exact = rounded(want, dtype)
                if abs(exact) == INF and abs(g) == INF and not isinstance(slope, float) and abs(slope) < tiny:
                    continue  # the slope itself is less than the dtype can say
                # A slope beyond the dtype's range may have been rounded there before it met what arrived.
                alone = times(g, rounded(slope, dtype)) if slope is not NOTHING else want
                if not any(close(got, right, 2 * ULP[dtype], dtype) for right in (want, alone)):
                    wrong.append((name, x, got, exact))
    assert not wrong, wrong[:20]


@pytest.mark.parametrize("dtype", NUMPY)
@pytest.mark.parametrize("arriving", [INF, -INF, NAN])
def test_w12_a_branch_not_taken_gets_nothing_whatever_arrives(arriving, dtype):
    for name, x in [("relu", -1.0), ("relu", 0.0), ("relu", -INF)]:
        leaf = hl.tensor([x], dtype=getattr(hl, dtype), requires_grad=True)
        getattr(hl, name)(leaf).backward(hl.tensor([arriving], dtype=leaf.dtype))
        assert number(leaf.grad) == 0, (name, x)
    for function in (
        lambda x: hl.where(x > 5, x, hl.tensor([1.0], dtype=x.dtype)),
        lambda x: hl.maximum(x, hl.tensor([7.0], dtype=x.dtype)),
        lambda x: hl.minimum(x, hl.tensor([-7.0], dtype=x.dtype)),
        lambda x: hl.clip(x, 3.0, 4.0),
        lambda x: hl.max(hl.concat([x, hl.tensor([9.0], dtype=x.dtype)]), keepdims=True),
    ):
        leaf = hl.tensor([1.0], dtype=getattr(hl, dtype), requires_grad=True)
        function(leaf).backward(hl.tensor([arriving], dtype=leaf.dtype))
        assert number(leaf.grad) == 0


# ---- chains ---------------------------------------------------------------------------------------------------------

CHAINABLE = [n for n in SLOPES if n not in ("abs", "erfc")]


def follow_chain(names, x, dtype):
    """What the gradient of a chain is, and the values on its way, which the library itself computed."""
    value, values = hl.tensor([x], dtype=getattr(hl, dtype)), []
    for name in names:
        values.append(number(value))
        value = getattr(hl, name)(value)
    gradient, ulp = 1.0, 0
    hidden = False
    for name, v in zip(reversed(names), reversed(values), strict=True):
        if v != v:
            return 0.0, 0, True
        slope = SLOPES[name](v)
        if slope is NOTHING:
            return 0.0, 0, False
        was = gradient
        # A slope that sinks to 0 in the dtype meets an infinity as 0 does. Where gelu turns, its slope is a difference.
        hidden = hidden or rounded(slope, dtype) == 0 or (name == "gelu" and abs(slope) < 0.1)
        gradient = rounded(times(gradient, slope), dtype)
        # Where 0 meets an infinity, or a number sank below the range, NaN and a finite truth are both fair.
        hidden = hidden or gradient == 0 or (gradient != gradient and was == was and slope == slope)
        sank = gradient != 0 and abs(gradient) < facts(dtype)[1]
        ulp += ULP[dtype] + 1 if not sank else 0
        hidden = hidden or sank
    return gradient, ulp, hidden


@pytest.mark.parametrize("dtype", NUMPY)
@pytest.mark.parametrize("length", [2, 3])
def test_chains_at_special_points(length, dtype):
    rng = np.random.default_rng(length)
    chains = list(itertools.product(CHAINABLE, repeat=length))
    chosen = [chains[i] for i in rng.permutation(len(chains))[:150]]
    wrong = []
    with mpmath.workprec(1200):
        for names in chosen:
            for x in rng.permutation(points(dtype)[:-1])[:8]:
                want, ulp, hidden = follow_chain(names, float(x), dtype)
                if hidden:
                    continue
                leaf = hl.tensor([x], dtype=getattr(hl, dtype), requires_grad=True)
                out = leaf
                for name in names:
                    out = getattr(hl, name)(out)
                out.backward(hl.ones((1,), dtype=leaf.dtype))
                got = number(leaf.grad)
                if not close(got, want if abs(want) == INF or want != want else mpmath.mpf(want), ulp, dtype):
                    wrong.append((names, float(x), got, want))
    assert not wrong, wrong[:10]


# ---- programs whose right gradient is known in closed form, where peers are wrong -----------------------------------


def grad_of(function, *values, dtype="float32"):
    leaves = [hl.tensor(v, dtype=getattr(hl, dtype), requires_grad=True) for v in values]
    hl.sum(function(*leaves)).backward()
    return [leaf.grad.astype(hl.float64).tolist() for leaf in leaves]


@pytest.mark.parametrize("dtype", NUMPY)
def test_ties_share_and_nothing_leaks_from_what_lost(dtype):
    for n in (2, 3, 5, 700):
        for function in (hl.max, hl.min):
            (g,) = grad_of(function, [1.5] * n + [1.5 + (3 if function is hl.min else -3)], dtype=dtype)
            one = float(np.array(1 / n).astype(NUMPY[dtype]))
            assert g == [one] * n + [0.0], (n, function)
    for a in (0.0, INF, -INF, facts(dtype)[2]):
        assert grad_of(hl.maximum, [a], [a], dtype=dtype) == [[0.5], [0.5]]
        assert grad_of(hl.minimum, [a], [a], dtype=dtype) == [[0.5], [0.5]]
    assert grad_of(hl.maximum, [0.0], [-0.0], dtype=dtype) == [[0.5], [0.5]]


@pytest.mark.parametrize("dtype", NUMPY)
def test_guards_by_where_keep_both_orders(dtype):
    """The usual guard: the slope of the side not taken is infinite or NaN, and must not be seen, twice over."""
    for guarded, x, first, second in (
        (lambda x: hl.where(x > 0, hl.sqrt(x), x * x), 0.0, 0.0, 2.0),
        (lambda x: hl.where(x > 0, hl.log(x), x), -1.0, 1.0, 0.0),
        (lambda x: hl.where(x == 0, x * 3, hl.sin(x) / x), 0.0, 3.0, 0.0),
        (lambda x: hl.where(x < 1, x**3, hl.exp(x * 1000)), 0.5, 0.75, 3.0),
        (lambda x: hl.where(x < 2, hl.square(x), 1 / (x - 1)), 1.0, 2.0, 2.0),
        (lambda x: hl.where(hl.isfinite(x), x * x, x), 2.0, 4.0, 2.0),
    ):
        leaf = hl.tensor([x], dtype=getattr(hl, dtype), requires_grad=True)
        hl.sum(guarded(leaf)).backward(create_graph=True)
        g, leaf.grad = leaf.grad, None
        assert number(g) == first
        if g.requires_grad:
            hl.sum(g).backward()
        assert (0.0 if leaf.grad is None else number(leaf.grad)) == second


@pytest.mark.parametrize("dtype", NUMPY)
def test_sums_of_many_equal_parts(dtype):
    """Means and shares of many elements: 1 / n is a number of the dtype, or the nearest one."""
    for n in (1, 7, 1000, 70_000):
        one = float(np.array(1 / n).astype(NUMPY[dtype]))
        (g,) = grad_of(hl.mean, [1.0] * n, dtype=dtype)
        assert set(g) == {one}
        (g,) = grad_of(hl.sum, [1.0] * n, dtype=dtype)
        assert set(g) == {1.0}


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("spread", [0.0, 1.0, 20.0, 80.0, 500.0])
def test_softmax_and_its_logarithm_far_apart(spread, dtype):
    """The Jacobian row of the likelier class, which is all differences of nearly equal numbers."""
    x = [spread, 0.0, -1.0]
    with mpmath.workdps(400):
        e = [mpmath.exp(v) for v in x]
        p = [v / mpmath.fsum(e) for v in e]
        for k in range(3):
            rest = mpmath.fsum(p[i] for i in range(3) if i != k)
            (g,) = grad_of(lambda t, k=k: hl.softmax(t)[k], x, dtype=dtype)
            want = [p[k] * rest if i == k else -p[k] * p[i] for i in range(3)]
            assert all(close(a, b, 12, dtype) for a, b in zip(g, want)), (g, [float(v) for v in want])
            (g,) = grad_of(lambda t, k=k: hl.log_softmax(t)[k], x, dtype=dtype)
            want = [rest if i == k else -p[i] for i in range(3)]
            assert all(close(a, b, 12, dtype) for a, b in zip(g, want)), (g, [float(v) for v in want])


@pytest.mark.parametrize("dtype", NUMPY)
def test_products_at_the_ends_of_the_range(dtype):
    top, normal, tiny, _ = facts(dtype)
    small, large = normal, top / 2
    for values in (
        [small, small], [large, large], [0.0, large, 2.0], [0.0, 0.0, 3.0], [small, large, 1.0], [INF, 2.0, 3.0],
        [large, large, small, small], [0.0], [tiny, 1.0], [0.0, INF, 2.0],
    ):  # fmt: skip
        values = [float(np.array(v).astype(NUMPY[dtype])) for v in values]
        (g,) = grad_of(hl.prod, values, dtype=dtype)
        for i in range(len(values)):
            others = [v for k, v in enumerate(values) if k != i]
            if 0.0 in others and INF in others:
                assert g[i] != g[i], (values, g)
                continue
            want = INF if INF in others else mpmath.fprod(others)
            assert close(g[i], want, 3, dtype), (values, g)


@pytest.mark.parametrize("dtype", NUMPY)
def test_powers_at_their_corners(dtype):
    """d(x^y): y x^(y-1) and x^y log x, with 0 * log 0 counted as 0."""
    for x, y, by_x, by_y in (
        (0.0, 0.0, 0.0, 0.0), (0.0, 1.0, 1.0, 0.0), (0.0, 2.0, 0.0, 0.0), (0.0, 0.5, INF, 0.0), (2.0, 0.0, 0.0, None),
        (1.0, 5.0, 5.0, 0.0), (-2.0, 2.0, -4.0, NAN), (-2.0, 3.0, 12.0, NAN), (INF, 0.0, 0.0, None),
        (0.5, -1.0, -4.0, None), (-1.0, 2.0, -2.0, NAN), (0.0, 3.0, 0.0, 0.0),
    ):  # fmt: skip
        a, b = grad_of(hl.pow, [x], [y], dtype=dtype)
        assert by_x is None or a == [by_x], (x, y, a)
        assert by_y is None or b == [by_y] or (by_y != by_y and (b[0] != b[0] or x < 0)), (x, y, b)
    for base in (2.0, 0.5):
        (_, b) = grad_of(hl.pow, [base], [0.0], dtype=dtype)
        assert close(b[0], mpmath.log(base), ULP[dtype], dtype)
