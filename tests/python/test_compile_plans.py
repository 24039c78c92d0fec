"""What a plan says of itself: kernels, reasons, temporaries; and hl.verify, which compares it with its ops."""

import numpy as np
import pytest
from test_compile import FUNCTIONS, W, X, Y, check, normal, same

import hyalite as hl
from hyalite import _compile

# ---- verify ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", FUNCTIONS)
def test_verify_finds_the_same_bits(name):
    made = FUNCTIONS[name]()
    found = hl.verify(*(made if isinstance(made, tuple) else (made,)))
    assert found and found.compared >= 1 and "the same bits" in str(found)


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
        "tier 1, kernel 2, exp (file.py:7): element (1, 1) is -0.0 and 0.0 op by op, 0 ULP apart; 1 elements differ"
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
    compiled = check(lambda x, w: hl.sum(hl.exp(x @ w)[:, ::2] * 2, axis=0), X, W)
    assert [s["reason"] for s in compiled.plan().steps] == [
        "it is no op that fuses", "its operand comes from no op that fuses",
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
