"""Plans that a device keeps: a stretch of calls that was asked for before is not planned again."""

import gc
import threading

import numpy as np
import pytest

import hyalite as hl
from hyalite import _C


def facts():
    hl.synchronize("opencl")
    return next(d for d in _C._devices() if d["name"] == "opencl:0")


def made(f):
    """Its result, and how many plans were made for it."""
    before = facts()["plans_made"]
    result = f()
    return result, facts()["plans_made"] - before


def tensor(*shape, seed=0):
    return hl.asarray(np.random.default_rng(seed).standard_normal(shape).astype(np.float32)).to("opencl")


def chain(x, k=2.0):
    return (hl.tanh(x * k) + x[::-1]).to("cpu")


def test_the_same_calls_are_planned_once_whatever_their_values():
    chain(tensor(30, 4))
    for seed in range(5):
        x = tensor(30, 4, seed=seed)
        got, plans = made(lambda x=x: chain(x))
        assert plans == 0
        want = chain(x.to("cpu"))
        assert np.allclose(got.numpy(), want.numpy(), rtol=1e-5, atol=1e-6)


# Of one function: what makes another plan of it.
OTHERS = {
    "sizes": lambda x: chain(x[:10]),
    "strides": lambda x: chain(x[:, ::2]),
    "an offset": lambda x: chain(x[3:13]),
    "a number": lambda x: chain(x, 3.0),
    "a number's dtype": lambda x: chain(x.astype(hl.float64)),
    "another axis": lambda x: hl.sum(x * 2.0, axis=0).to("cpu"),
    "the last axis": lambda x: hl.sum(x * 2.0, axis=1).to("cpu"),
    "how operands hang together": lambda x: (lambda y: (y * y).to("cpu"))(x * 2.0),
    "the other way": lambda x: (lambda y: (y * x).to("cpu"))(x * 2.0),
    "what is held": lambda x: (lambda y: ((y * x).to("cpu"), y)[0])(x * 2.0),
    "a write": lambda x: (lambda y: (y.__setitem__(0, 5.0), y.to("cpu"))[1])(x * 2.0),
    "a write elsewhere": lambda x: (lambda y: (y.__setitem__(1, 5.0), y.to("cpu"))[1])(x * 2.0),
}


def test_what_a_plan_depends_on_tells_plans_apart():
    x = tensor(30, 4)
    host = x.to("cpu")
    for name, f in OTHERS.items():
        for _ in range(2):
            got = f(x)
            want = f(host)
            assert np.allclose(got.numpy(), want.numpy(), rtol=1e-5, atol=1e-6), name
    for name, f in OTHERS.items():
        got, plans = made(lambda f=f: f(x))
        assert plans == 0, name
        assert np.allclose(got.numpy(), f(host).numpy(), rtol=1e-5, atol=1e-6), name


def test_a_kept_plan_holds_no_memory():
    def used():
        gc.collect()
        return facts()["bytes_in_use"]

    before = used()
    x = tensor(1 << 20)
    assert used() >= before + (4 << 20)
    (x * 2.0 + 1.0).to("cpu")
    del x
    assert used() < before + (1 << 16)  # sizes and strides that a kernel reads are the plan's


def test_training_steps_are_planned_a_few_times():
    w, x, y = tensor(20, 5), tensor(64, 20, seed=1), tensor(64, 5, seed=2)
    v = hl.zeros((20, 5), device="opencl")

    def step(w, v):
        loss, g = hl.value_and_grad(lambda w: hl.mean((hl.tanh(x @ w) - y) ** 2))(w)
        v = v * 0.9 + g
        return w - v * 0.1, v, loss

    losses = []
    before = facts()["plans_made"]
    for _ in range(50):
        w, v, loss = step(w, v)
        losses.append(loss.item())
    assert facts()["plans_made"] - before <= 4
    assert losses[-1] < losses[0]


def test_errors_name_the_line_that_asked_not_one_that_asked_before():
    x = tensor(4)

    def one(i):
        return hl.take(x, i)

    def other(i):
        return hl.take(x, i)

    good, bad = hl.asarray([1, 2]).to("opencl"), hl.asarray([1, 9]).to("opencl")
    assert one(good).to("cpu").shape == (2,) and other(good).to("cpu").shape == (2,)
    lines = []
    for f in (one, other):
        with pytest.raises(IndexError) as raised:
            f(bad).to("cpu")
        lines.append(str(raised.value))
        assert f(good).to("cpu").tolist() == x.to("cpu")[1:3].tolist()
    assert lines[0] != lines[1] and all("test_opencl_plans.py" in line for line in lines)


def test_old_plans_are_given_up():
    """More different stretches than are kept: each is right, and the first is planned anew."""
    x = tensor(8)
    host = x.to("cpu")

    def many(k):
        y = x
        for _ in range(400):
            y = y + float(k)
        return y.to("cpu")

    assert made(lambda: many(0))[1] == 1 and made(lambda: many(0))[1] == 0
    for k in range(60):
        assert np.allclose(many(k).numpy(), host.numpy() + 400 * k, rtol=1e-4)
    assert made(lambda: many(0))[1] == 1


def test_threads_share_the_plans():
    results, errors = {}, []

    def work(k):
        try:
            x = hl.full((100,), float(k)).to("opencl")
            for _ in range(20):
                results[k] = (hl.exp(x * 0.0) + x).to("cpu").tolist()
        except Exception as error:  # noqa: BLE001 - told by the main thread
            errors.append(error)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not errors
    assert all(results[k] == [1.0 + k] * 100 for k in range(4))


def test_a_trace_says_that_the_kernel_was_kept():
    x = tensor(16)
    hl.synchronize("opencl")

    def f():
        print(end="")  # no pure expression, so that it is called once
        return hl.tanh(x * 3.25).to("cpu")

    def queued(trace):
        return [s["facts"]["kernel"] for s in trace.steps if s["label"].startswith("queued")]

    first, second = (queued(hl.explain(f, show=False)) for _ in range(2))
    assert first != second and second == ["kept with its plan"]


def test_verify_takes_copies_of_what_is_on_a_device():
    x = tensor(5, 4)
    found = hl.verify(lambda d, how: {"y": hl.exp(d["x"]) * d["k"]}, {"x": x, "k": 2, "n": None}, how=["a", (1.5,)])
    assert found and found.devices["opencl:0"]["compared"] >= 1 and x.device == "opencl:0"
