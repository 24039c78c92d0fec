"""What a plan says of itself: kernels, reasons, temporaries; and hl.verify, which compares it with its ops."""

import re

import numpy as np
import pytest
from test_compile import FUNCTIONS, W, X, Y, check, normal, same

import hyalite as hl
from hyalite import _C, _compile

# ---- verify ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", FUNCTIONS)
def test_verify_finds_the_same_bits(name):
    made = FUNCTIONS[name]()
    found = hl.verify(*(made if isinstance(made, tuple) else (made,)))
    assert found and found.compared >= 1 and "the same bits" in str(found)
    (there,) = found.devices.values()
    assert there["problem"] == "" and there["compared"] >= 1
    for d in there["differences"]:
        assert 0 < d["largest_ulp"] and d["largest_ulp"] >= d["ulp"], d
        assert d["plan"] == pytest.approx(d["eager"], rel=1e-5, abs=1e-5), d
    if name in EXACT:
        assert there["differences"] == []


# Of these all ops are exact, so that a device has the CPU's bits.
EXACT = {"views", "where, casts", "integers", "unequal dtypes", "concat", "take", "equal calls", "nest", "no operands"}


def test_verify_on_a_device_says_what_it_cannot_and_raises_what_is_wrong():
    found = hl.verify(lambda x: x.astype(hl.float8_e5m2).astype(hl.float32), normal(4))
    (there,) = found.devices.values()
    assert found and there["compared"] == 0 and "opencl:0 (" in there["problem"] and "float8_e5m2" in there["problem"]
    assert "opencl:0 was not compared: astype(): opencl:0" in str(found)
    with pytest.raises(IndexError, match="index 9 is out of range"):
        hl.verify(lambda x, i: hl.take(x, i), normal(4), hl.asarray([1, 9]))


def test_verify_on_a_device_names_the_kernel():
    found = hl.verify(lambda x: hl.sum(hl.tanh(x @ x) * 2, axis=0), normal(64, 64))
    (there,) = found.devices.values()
    assert found and there["differences"][0]["kernel"] == 0 and there["differences"][0]["op"] == "matmul"
    assert "tier" not in there["differences"][0]
    assert re.search(r"opencl:0, kernel 0, matmul \(.*test_compile_plans.py:\d+\): element \(\d+, \d+\) is", str(found))


FORMATS = {
    "float64": (np.float64, 52, 0x7FF0000000000000), "float32": (np.float32, 23, 0x7F800000),
    "float16": (np.float16, 10, 0x7C00),
}  # fmt: skip


@pytest.mark.parametrize("name", FORMATS)
def test_ulp_counts_the_numbers_between(name):
    """Over every kind of number of a dtype: against NumPy's nextafter, both signs, subnormals, infinities, NaNs."""
    dtype, _, infinity = FORMATS[name]
    ends = [0.0, np.finfo(dtype).smallest_subnormal, np.finfo(dtype).tiny, 1.0, np.finfo(dtype).max]
    x = np.array(ends + [-e for e in ends], dtype)
    up = np.nextafter(x, dtype(np.inf), dtype=dtype)
    count, first, ulp, largest = _C._bits_apart(hl.asarray(x), hl.asarray(up), False)
    assert (count, first, ulp, largest) == (len(x), 0, 1, 1)
    bits = np.array([infinity, infinity + 1], np.dtype(f"u{x.itemsize}")).view(dtype)
    inf, nan = hl.asarray(bits[:1]), hl.asarray(bits[1:])
    other = hl.asarray(np.array([infinity + 2], np.dtype(f"u{x.itemsize}")).view(dtype))
    assert _C._bits_apart(nan, other, False)[0] == 1 and _C._bits_apart(nan, other, True)[0] == 0
    assert _C._bits_apart(inf, nan, True)[0] == 1


def test_ulp_of_integers_is_their_distance():
    for dtype in ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"):
        low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
        a, b = (hl.asarray(np.array([v], dtype)) for v in (low, high))
        assert _C._bits_apart(a, b, False) == (1, 0, *[min(high - low, 2**63 - 1)] * 2)
    a, b = hl.asarray([True, False, True]), hl.asarray([True, True, True])
    assert _C._bits_apart(a, b, False) == (1, 1, 1, 1)


def test_verify_writes_nothing():
    x = normal(4, 5)
    before = x.copy()

    def f(x, k=1):
        x += k
        x[1:] *= 2
        return x.sum()

    assert hl.verify(f, x, k=3) and same(x, before)


def test_verify_names_the_first_difference():
    a, b = hl.asarray([[1.0, 2.0], [3.0, -0.0]]), hl.asarray([[1.0, 2.0], [3.0, 0.0]])
    found = _compile.Verification([_compile._difference(1, 2, "exp", "file.py:7", a, b)], 5)
    assert not found
    assert found.differences[0]["element"] == (1, 1) and found.differences[0]["ulp"] == 0
    assert str(found) == (
        "tier 1, kernel 2, exp (file.py:7): element (1, 1) is -0.0 and 0.0 op by op, 0 ULP apart; 1 elements "
        "differ, by at most 0 ULP"
    )
    near = np.nextafter(np.float32(2), np.float32(3))
    for k, (x, y) in enumerate([(2.0, near), (-2.0, -near), (1e-45, -1e-45)]):
        d = _compile._difference(0, 0, "add", "", hl.asarray(np.float32([x])), hl.asarray(np.float32([y])))
        assert d["ulp"] == (2 if k == 2 else 1)
    z = _compile._difference(
        0, 0, "add", "", hl.asarray(np.complex64([1 + 2j])), hl.asarray(np.complex64([1 + near * 1j]))
    )
    assert z["ulp"] == 1


# ---- plans ----------------------------------------------------------------------------------------------------------


def test_the_chain_is_one_kernel_without_a_temporary():
    chain = FUNCTIONS["chain"]()[0]
    compiled = check(chain, X, X + 1)
    plan = compiled.plan()
    plan.assert_kernels(1)
    assert plan.nodes == 9 and plan.temporary_bytes == 0
    step = plan.steps[0]
    assert step["fused"] and step["shape"] == (40, 50) and step["bytes_written"] == X.nbytes
    assert step["bytes_read"] == 2 * X.nbytes
    with pytest.raises(AssertionError, match="1 kernels, not 2"):
        plan.assert_kernels(2)
    source = compiled.source()
    assert "t2 = tanh(t1)" in source and "test_compile.py" in source and source.count("\nstore") == 1


@pytest.mark.parametrize("name", ["softmax", "log_softmax", "layer norm", "cross entropy", "standardised rows"])
def test_one_kernel_a_row_at_a_time(name):
    ones = hl.take(hl.eye(50), hl.arange(40) % 50, axis=0)
    f = {
        "softmax": hl.softmax, "log_softmax": hl.log_softmax, "layer norm": FUNCTIONS["layer norm"]()[0],
        "cross entropy": lambda x: hl.sum(-hl.sum(hl.log_softmax(x) * ones, axis=1), keepdims=True),
        "standardised rows": lambda x: (x - hl.mean(x, axis=1, keepdims=True)) / (
            hl.max(x, axis=1, keepdims=True) - hl.min(x, axis=1, keepdims=True)),
    }[name]  # fmt: skip
    compiled = check(f, X)
    compiled.plan().assert_kernels(2 if name == "cross entropy" else 1)
    assert "for each of 40 rows of 50" in compiled.source()
    assert all(step["fused"] for step in compiled.plan().steps if step["shape"] == (40, 50))


def test_every_step_says_why_it_begins():
    compiled = check(lambda x, w: hl.sum(hl.exp(hl.take(x @ w, hl.asarray([0, 2]), axis=1))[:, ::2] * 2, axis=0), X, W)
    assert [s["reason"] for s in compiled.plan().steps] == [
        "its operands were there before", "it is no op that fuses", "its operand comes from no op that fuses",
    ]  # fmt: skip


VIEWS = {
    "transposed": lambda x, y: hl.exp(x).T * y.T + 1,
    "reversed, in steps": lambda x, y: (x * y)[::-2, 3:] * 2,
    "a view of a view": lambda x, y: hl.sin(hl.sin(x * 2)[3:, ::-2] * 2)[1:].T + 2,
    "two operands": lambda x, y: hl.exp(x)[::2] + hl.tanh(y)[1::2],
    "with a row": lambda x, y: (x + y[0])[:, ::-1] * 3,
    "an axis dropped": lambda x, y: hl.exp(x)[:, 4] * 2,
    "an axis more": lambda x, y: hl.exp(x)[:, None] * 2,
    "and reduced": lambda x, y: hl.sum(hl.exp(x)[::2] * y[::2], axis=1),
}


@pytest.mark.parametrize("name", VIEWS)
def test_what_is_read_through_a_view_is_computed_in_its_order(name):
    check(VIEWS[name], X, X + 1).plan().assert_kernels(1)


def test_parts_of_complex_numbers_are_other_elements():
    z = (X * (1 + 0j)) + 1j * X
    check(lambda z: (hl.real(z * z) * 2, hl.imag(z * 2)[::-1] + 1, hl.real((z * z)[1:, ::-2]) * 3), z)
    check(lambda x: hl.grad(lambda x: hl.sum(hl.real((x * (1 + 2j)) ** 2)))(x), X)


def test_what_others_read_too_is_computed_in_its_own_order():
    compiled = check(lambda x: (lambda e: (e.T * 2, e.sum()))(hl.exp(x)), X)
    compiled.plan().assert_kernels(2)
    check(lambda x: hl.reshape(x * 2, (50, 40)) + 1, X).plan().assert_kernels(2)
    check(lambda x, y: hl.exp(y)[None] * x, X, Y).plan().assert_kernels(2)


def test_what_is_broadcast_is_computed_once():
    compiled = check(*FUNCTIONS["chain"]())
    small, large = compiled.plan().steps
    assert small["name"] == "negative, multiply, exp" and small["shape"] == (50,) and large["shape"] == (40, 50)


def test_dead_and_equal_calls_do_not_run():
    def f(x):
        hl.exp(x)
        return hl.sin(x) + hl.sin(x), hl.sin(x)

    compiled = check(f, X)
    assert compiled.plan().nodes == 2 and compiled.plan().kernels == 1


CONSTANTS = {
    "ones": (lambda x: x + hl.ones(x.shape), 1), "zeros like": (lambda x: hl.where(x > 0, x, hl.zeros_like(x)), 1),
    "a number": (lambda x: hl.where(x > hl.full((), 0.25), x, -1e9), 1), "of both": (lambda x: hl.full_like(x, 3), 1),
    "the larger": (lambda x: hl.ones(x.shape) * x[0], 1), "two": (lambda x: hl.ones(7) * hl.full(7, 2.5), 1),
    "an exponent": (lambda x: x ** hl.full(x.shape, 2.0), 1),
    "broadcast": (lambda x: hl.full(x.shape[1:], 2.0) * x, 1), "cast": (lambda x: hl.full(x.shape[1:], 2) * x, 2),
    "bools": (lambda x: (x > 0) & hl.ones(x.shape, dtype=hl.bool), 1),
    "reduced": (lambda x: hl.ones(x.shape).sum() + x, 3),
    "written": (lambda x: hl.zeros_like(x).__iadd__(x), 1), "a part": (lambda x: part_of_ones(x), 3),
    "float16": (lambda x: x.astype(hl.float16) * hl.full(x.shape, 0.1, dtype=hl.float16), 1),
    "complex": (lambda x: x.astype(hl.complex64) * hl.full(x.shape, 1 + 2j), 1),
    "views": (lambda x: hl.ones((x.shape[1], 1)).T * x + hl.ones((3, *x.shape))[1], 1),
    "a gradient": (lambda x: hl.grad(lambda x: (hl.tanh(x) * hl.full(x.shape, 2.0)).sum())(x), 1),
    "an integer": (lambda x: (x * 9).astype(hl.int32) // hl.full(x.shape, -2), 1),
}  # fmt: skip


def part_of_ones(x):
    y = hl.ones(x.shape)
    y[:, ::2] = x[:, ::2]
    return y * 2


@pytest.mark.parametrize("name", CONSTANTS)
def test_what_is_one_number_is_no_memory(name):
    f, kernels = CONSTANTS[name]
    compiled = check(f, X)
    assert compiled.plan().kernels <= kernels, compiled.plan()
    assert hl.verify(f, X)
    (there,) = hl.verify(f, X).devices.values()
    assert there["problem"] == "" and (there["differences"] == [] or name in ("a gradient", "an exponent")), there


CONCATS = {
    "two": (lambda x, y: hl.concat([x * 2, hl.sin(x)]), 2),
    "of three": (lambda x, y: hl.concat([x * 2, x, -x], axis=1), 3),
    "then more": (lambda x, y: hl.concat([x * y, x + y], axis=-1) * 3, 3),
    "used again": (lambda x, y: used_again(x), 3),
    "of parts": (lambda x, y: hl.concat([(x * 2)[1:3], (x * 3)[::-1]]), 3),
    "stack": (lambda x, y: hl.stack([x + 1, x + 2]), 4),
    "of inputs": (lambda x, y: hl.concat([x, x, x]), 1),
    "all of it": (lambda x, y: hl.concat([x * 2, y * 2], axis=None), 3),
    "an empty one": (lambda x, y: hl.concat([x[:0] * 2, x * 3, x[:0]]), 2), "nested": (lambda x, y: nested(x), 6),
    "the same": (lambda x, y: hl.concat([t := x * 2, t, t]), 3),
    "of casts": (lambda x, y: hl.concat([x, x.astype(hl.int32)]), 2),
    "gradients": (lambda x, y: hl.grad(lambda x: (hl.concat([hl.tanh(x), x * 2]) ** 2).sum())(x), 5),
    "written after": (lambda x, y: written_after(x), 3),
}  # fmt: skip


def used_again(x):
    t = hl.exp(x)
    return hl.concat([t, t * 2]), t, hl.sum(t)


def nested(x):
    inner = hl.concat([x * 2, x * 3])
    return hl.concat([inner * 2, x + 1, inner[: x.shape[0]]]), inner


def written_after(x):
    t = hl.concat([x * 2, x * 3])
    t[1] = 5
    return t


@pytest.mark.parametrize("name", CONCATS)
def test_parts_are_computed_where_they_belong(name):
    f, kernels = CONCATS[name]
    y = Y if name != "then more" else X
    compiled = check(f, X, y)
    assert compiled.plan().kernels <= kernels, compiled.plan()
    assert hl.verify(f, X, y)


PLACES = ["float16", "bfloat16", "float32", "float64", "int8", "uint16", "int32", "uint64", "bool"]


@pytest.mark.parametrize("dtype", PLACES)
@pytest.mark.parametrize(
    "shape", [(256, 10), (300, 3), (7, 1000), (5, 1024), (4, 5000), (1, 2000), (2, 3, 40)], ids=str
)
def test_places_of_extremes_stay_in_the_kernel(dtype, shape):
    """The first of equal ones, the first NaN, in whichever block of a row they are."""
    rng = np.random.default_rng(len(shape))
    x = np.round(rng.standard_normal(shape) * 3)  # many are equal
    if "float" in dtype:
        x[rng.random(shape) < 0.002] = np.nan
        x[rng.random(shape) < 0.01] = -0.0
    x = hl.asarray(x if "float" in dtype else np.abs(x).astype(np.int64)).astype(getattr(hl, dtype))

    def f(x):
        y = hl.where(x != 1, x, x[..., ::-1])
        first, last = hl.argmax(y, axis=-1), hl.argmin(y, axis=-1, keepdims=True)
        return first, last, hl.max(y, axis=-1), last == hl.arange(x.shape[-1]), hl.argmax(y * y, axis=-1) + first

    compiled = check(f, x)
    assert "argmax, argmin" in compiled.source()


def test_where_rows_do_not_stay_places_are_a_call():
    for f, x in [
        (lambda x: hl.argmax(x * 2, axis=0), X),
        (lambda x: hl.argmax(x * 2, axis=1), normal(2, 100_000)),
        (lambda x: hl.argmin(x * 2, axis=1), normal(3, 4, 5)),
    ]:
        check(f, x).plan().assert_kernels(2)
    check(lambda x: hl.argmax(x * 2), X).plan().assert_kernels(1)


def test_cross_entropy_and_its_gradient_are_one_kernel_beside_two_sums():
    def loss(a, y):
        return -hl.mean(hl.sum(hl.log_softmax(a) * y, axis=1))

    compiled = check(hl.value_and_grad(loss), normal(33, 65), normal(33, 65, seed=1))
    names = [s["name"] for s in compiled.plan().steps]
    assert [n for n in names if "exp" in n] == [n for n in names if "argmax" in n] and len(names) == 4
