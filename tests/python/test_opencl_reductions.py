"""Reductions on OpenCL in one kernel with what comes before and after them: every op, dtype, pass and layout, against
the CPU's."""

import itertools

import numpy as np
import pytest
from op_oracle import REDUCTIONS, accepted, samples
from test_casts import numpy_dtype
from test_opencl import CL, facts, same_bits, there, within

import hyalite as hl

FOLDS = [op for op in REDUCTIONS if not op.startswith("arg")]
# How each is walked: an item a row, a group a row, many groups a row; an item a column, many items a column.
SHAPES = {
    "short rows": ((700, 5), -1), "rows": ((9, 300), -1), "one long row": ((70_000,), None),
    "long rows": ((3, 40_000), -1), "columns": ((5, 700), 0), "few columns": ((300, 9), 0),
    "one long column": ((50_000, 2), 0), "two axes": ((4, 6, 50), (1, 2)), "the first two": ((40, 6, 5), (0, 1)),
}  # fmt: skip


def launches_of(f):
    """What it gives, and how many kernels that took."""
    hl.synchronize()
    before = facts()["launches"]
    made = f()
    hl.eval(made)
    hl.synchronize()
    return made, facts()["launches"] - before


def elements(op, dtype, shape, seed):
    n = int(np.prod(shape))
    a = samples(dtype, n, np.random.default_rng(seed)).reshape(shape)
    if op in ("sum", "prod", "mean") and np.dtype(numpy_dtype(dtype)).kind in "fcV":
        a = 1 + np.random.default_rng(seed).normal(size=shape) * (1e-3 if op == "prod" else 1)
    return np.asarray(a).astype(numpy_dtype(dtype))


def chosen_sum(op, x, y, c, axis, keepdims):
    """Elements that are chosen before, and values that are chosen after: exact in every dtype."""
    r = getattr(hl, op)(hl.where(c, x, y), axis=axis, keepdims=keepdims)
    return hl.where(r == r, r, r)


def agree(op, dtype, a, b):
    assert a.shape == b.shape and a.dtype == b.dtype
    if (op in ("sum", "prod") and a.dtype.kind in "fcV") or op == "mean":
        return within(a, b, 4 if dtype not in ("float64", "complex128") else 3000)  # each step may round otherwise
    return same_bits(a, b)


def check(op, dtype, names):
    for seed, name in enumerate(names):
        shape, axis = SHAPES[name]
        if op == "prod" and np.prod(shape) > 10_000:  # overflows, or is rounded too often to compare
            continue
        x, y = (elements(op, dtype, shape, seed + k) for k in (0, 50))
        c = np.random.default_rng(seed).random(shape) < 0.5
        keepdims = seed % 2 == 1
        a = chosen_sum(op, hl.asarray(x), hl.asarray(y), hl.asarray(c), axis, keepdims).numpy()
        x_there, y_there, c_there = there(x, y, c)
        b, kernels = launches_of(lambda: chosen_sum(op, x_there, y_there, c_there, axis, keepdims))  # noqa: B023
        assert kernels <= 2, (name, kernels)
        assert agree(op, dtype, a, b.to("cpu").numpy()), (op, dtype, name)


CASES = [(op, dtype) for op in FOLDS for dtype in accepted(op)]


@pytest.mark.parametrize(("op", "dtype"), CASES)
def test_with_what_comes_before_and_after(op, dtype):
    """One of the passes for each; all of them for every op and dtype in the slow test."""
    check(op, dtype, [list(SHAPES)[CASES.index((op, dtype)) % len(SHAPES)]])


@pytest.mark.slow
@pytest.mark.parametrize(("op", "dtype"), CASES)
def test_with_what_comes_before_and_after_in_every_pass(op, dtype):
    check(op, dtype, SHAPES)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
def test_one_kernel(dtype):
    """Of rows: one kernel, whatever is computed of them, with the CPU's values; of few columns a second joins parts."""

    def layer_norm(x, w):
        d = x - x.mean(axis=-1, keepdims=True)
        return d / hl.sqrt((d * d).mean(axis=-1, keepdims=True) + 1e-5) * w

    def both(x, w):
        e = hl.exp(x - x.max(axis=-1, keepdims=True))
        s = e.sum(axis=-1, keepdims=True)
        return [e / s, s, hl.log(s) * w[:1]]

    programs = [
        lambda x, w: hl.softmax(x, axis=-1), lambda x, w: hl.log_softmax(x * w, axis=-1), layer_norm, both,
        lambda x, w: ((x * x).sum(axis=-1) + 1) / x.shape[-1], lambda x, w: hl.tanh(x).mean(axis=0) * w,
        lambda x, w: (x * w + x.sum(axis=-1, keepdims=True)).astype(hl.int32),
    ]  # fmt: skip
    for shape in ((37, 300), (2000, 7), (4100, 33)):
        rng = np.random.default_rng(1)
        x, w = (
            hl.asarray(rng.normal(size=s).astype(np.float32)).astype(getattr(hl, dtype)) for s in (shape, shape[1:])
        )
        x_there, w_there = x.to(CL), w.to(CL)
        for k, f in enumerate(programs):
            expected = f(x, w)
            got, kernels = launches_of(lambda: f(x_there, w_there))  # noqa: B023
            assert kernels == 1 or (k == 5 and kernels == 2), (k, shape, kernels)
            for a, b in zip(*([t] if isinstance(t, hl.Tensor) else t for t in (expected, got)), strict=True):
                wide = [t.to("cpu").astype(hl.float64).numpy() for t in (a, b)]
                rtol = {"float64": 1e-13, "float32": 2e-6, "float16": 3e-3, "bfloat16": 3e-2}[dtype]
                atol = 1 if a.dtype == hl.int32 else rtol * np.abs(wide[0]).max()
                assert np.allclose(*wide, rtol, atol), (k, shape)


def test_layouts():
    """Operands that lie in any way the pass can follow: views, steps, backwards, repeated."""
    a = np.random.default_rng(0).normal(size=(24, 60, 2)).astype(np.float32)
    lies = {
        "a row again": lambda x: x[:1, :, 0], "steps": lambda x: x[::2, :, 0], "backwards": lambda x: x[::-1, ::-1, 0],
        "transposed": lambda x: x[:, :24, 1].T, "one column": lambda x: x[:, :1, 0], "one": lambda x: x[3, 4, 1],
        "three axes": lambda x: x, "a part": lambda x: x[2:7, 3:50],
    }  # fmt: skip
    # Each with each, but only once: which of two is chosen makes no other kernel.
    for (n, f), (m, g) in itertools.combinations_with_replacement(lies.items(), 2):
        results = []
        for x in (hl.asarray(a), there(a)[0]):
            try:
                y = hl.where(f(x) > 0, f(x), g(x))
                reduced = [y.max(), y.min(axis=-1, keepdims=True) if y.ndim else y.max()]
                reduced += [(hl.where(y > reduced[-1], y, -y)).max(axis=0)] if y.ndim else []
            except hl.ShapeMismatch as e:
                reduced = str(e)
            results.append(reduced)
        if isinstance(results[0], str):
            assert results[0] == results[1]
            continue
        for p, q in zip(*results, strict=True):
            assert same_bits(p.numpy(), q.to("cpu").numpy()), (n, m)


def test_writes():
    """What is overwritten while it is read, of elements and of values; both results as on the CPU."""
    a = np.random.default_rng(0).normal(size=(40, 70)).astype(np.float32)
    for shape in ((40, 70), (70, 40), (2800, 1), (1, 2800)):
        found = []
        for device in ("cpu", CL):
            x = hl.asarray(a.reshape(shape).copy()).to(device)
            s = (x * 2).max(axis=-1)
            s += x.min(axis=-1)
            x -= x.max(axis=-1, keepdims=True)
            x *= hl.abs(x).max(axis=0)
            s[...] = hl.where(s > 0, s, x.max())
            found.append([t.to("cpu").numpy() for t in (x, s)])
        for p, q in zip(*found, strict=True):
            assert same_bits(p, q), shape


def test_whole_reductions_keep_a_device_busy():
    """Few results of many elements: their parts are reduced side by side, then joined."""
    x = hl.ones((1 << 20,), device=CL)
    hl.synchronize()
    for f, value in ((lambda: x.sum(), 2.0**20), (lambda: (x * 2).sum() + 1, 2.0**21 + 1)):
        with hl.explain(show=False) as trace:
            assert f().item() == value
        launched = [launch for s in trace.steps for launch in s.get("launches", [])]
        assert [launch["items"] for launch in launched] == [256 * 64, 64]
