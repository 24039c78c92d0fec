"""Copies that a plan need not make, and those that it must."""

import numpy as np
import pytest
from test_compile import same

import hyalite as hl


def exposed(*shape, seed=0):
    """Memory that NumPy may write: a node that keeps it for a gradient keeps a copy."""
    array = np.random.default_rng(seed).standard_normal(shape).astype(np.float32)
    return hl.asarray(array)


def kernels_of(plan):
    return [s["name"] for s in plan.steps]


def loss(w, x, y):
    return hl.sum((hl.tanh(x @ w) - y) ** 2)


def test_a_gradient_keeps_no_copy_of_what_lies_there_till_it_has_run():
    args = exposed(30, 5), exposed(64, 30), exposed(64, 5)
    f = hl.compile(hl.value_and_grad(loss))
    want = hl.value_and_grad(loss)(*args)
    assert all(same(a, b) for a, b in zip(f(*args), want, strict=True))
    assert not any("copy" in k for k in kernels_of(f.plan()))


def test_a_step_of_training_makes_none_either():
    def step(w, x, y):
        value, g = hl.value_and_grad(loss)(w, x, y)
        w -= g * 0.1
        return value

    f, args, twin = hl.compile(step), (exposed(64, 64), exposed(64, 64), exposed(64, 64)), exposed(64, 64)
    for _ in range(3):
        assert same(f(*args), step(twin, *args[1:])) and same(args[0], twin)
    assert not any("copy" in k for k in kernels_of(f.plan()))


def copy(x):
    return hl.asarray(x, copy=True)


def read_only(x):
    return copy(x) * 2 + copy(x)


def original_written_later(x):
    c = copy(x)
    y = c * 2
    x += 1
    return y


def original_written_before_it_is_read(x):
    c = copy(x)
    x += 1
    return c * 2


def original_written_in_part(x):
    c = copy(x)
    x[0] = 5
    x[:, 1] = 6
    return c + x


def copy_written(x):
    c = copy(x)
    c += 1
    return c + x


def copy_written_in_part(x):
    c = copy(x)
    c[1:] *= 3
    return c, x * 2


def view_of_the_copy_written(x):
    c = copy(x)
    c.T[0] = 9
    return c * 2, x * 3


def given(x):
    return copy(x)


def given_twice(x):
    c = copy(x)
    return c, c, copy(x)


def given_and_read(x):
    c = copy(x)
    return c, c * 2


def of_a_copy(x):
    c = copy(copy(x))
    d = copy(c)
    x -= 1
    return d * c


def of_a_part(x):
    return copy(x[1:]) * copy(x[:-1])


def in_another_order(x):
    return copy(x.T) * 2 + x.T


def of_something_computed(x):
    y = hl.exp(x)
    c = copy(y)
    y *= 2
    return c + y


def into_another_dtype(x):
    return copy(x.astype(hl.float64)) + x.astype(hl.float32)


def written_back(x):
    c = copy(x)
    x[...] = c * 2
    return c - x


def swapped(x):
    c = copy(x[0])
    x[0] = x[1]
    x[1] = c


def two_rows_by_way_of_copies(x):
    """The same copy twice: one is read, one is what another row becomes."""
    c, d = copy(x[0]), copy(x[0])
    x[1] = c
    x[2] = d + c


def given_back_as_the_argument(x):
    c = copy(x)
    x *= 2
    x[...] = c


FUNCTIONS = [
    read_only, original_written_later, original_written_before_it_is_read, original_written_in_part, copy_written,
    copy_written_in_part, view_of_the_copy_written, given, given_twice, given_and_read, of_a_copy, of_a_part,
    in_another_order, of_something_computed, into_another_dtype, written_back, swapped, two_rows_by_way_of_copies,
    given_back_as_the_argument,
]  # fmt: skip


def leaves(value):
    return [v for v in (value if isinstance(value, tuple) else (value,)) if v is not None]


@pytest.mark.parametrize("device", ["cpu", "opencl"])
@pytest.mark.parametrize("f", FUNCTIONS, ids=lambda f: f.__name__)
def test_every_copy_has_the_values_that_it_was_made_of(f, device):
    x = exposed(6, 7)
    want = leaves(f(x))
    for g in (hl.compile(f, tier=0), hl.compile(f, tier=1)) if device == "cpu" else (f,):
        y = exposed(6, 7).to(device)
        before = y.to("cpu").copy()
        got = leaves(g(y))
        assert len(got) == len(want)
        for a, b in zip(got, want, strict=True):
            assert same(hl.contiguous(a.to("cpu")), hl.contiguous(b))
        assert same(y.to("cpu"), x)
        # A result is nobody else's memory.
        for r in got:
            r[...] = 77
        assert same(y.to("cpu"), x) and before.shape == y.shape


@pytest.mark.parametrize("f", [read_only, of_a_part, of_a_copy, original_written_later], ids=lambda f: f.__name__)
def test_a_needless_copy_is_not_made(f):
    g = hl.compile(f)
    g(exposed(6, 7))
    assert "copy" not in g.source()
