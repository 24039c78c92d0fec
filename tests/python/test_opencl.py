"""Tensors on OpenCL, which PoCL plays here: the CPU's values, what waits, what is refused, and what goes wrong."""

import gc
import os
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import programs
import pytest
from op_oracle import COMPLEX, ELEMENTWISE, FLOATS, OPS, REDUCTIONS, accepted, operands, samples
from program_engines import helpers
from test_casts import numpy_dtype
from test_compile_tiers import run

import hyalite as hl

CL = "opencl:0"


def facts():
    return next(d for d in hl.devices() if d["name"] == CL)


def there(*arrays):
    return [hl.asarray(a).to(CL) for a in arrays]


def parts(a):
    a = np.ascontiguousarray(a).ravel()
    return a.view(a.real.dtype) if a.dtype.kind == "c" else a


def same_bits(a, b):
    """The same bits; one NaN is as good as another."""
    a, b = parts(a), parts(b)
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    unsigned = f"u{a.dtype.itemsize}"
    other = a.view(unsigned) != b.view(unsigned)
    if a.dtype.kind in "fV":
        other &= ~(np.isnan(a.astype(np.float64)) & np.isnan(b.astype(np.float64)))
    return not other.any()


def within(a, b, ulp):
    """Real results at most so many ULP apart, complex ones in the norm; zeros and infinities where the other has."""
    wide = np.clongdouble if a.dtype.kind == "c" else np.longdouble
    x, y = a.astype(wide).ravel(), b.astype(wide).ravel()
    name = "float32" if a.dtype.itemsize == (8 if a.dtype.kind == "c" else 4) else "float64"
    eps = {2: 2.0**-7 if a.dtype.kind == "V" else 2.0**-10}.get(
        a.dtype.itemsize, 2.0 ** (-23 if name == "float32" else -52)
    )
    with np.errstate(all="ignore"):
        size = np.maximum(np.abs(x), np.abs(y))
        close = np.abs(x - y) <= ulp * eps * size + 2 * ulp * np.finfo(name).smallest_subnormal
        if a.dtype.itemsize == 2:
            close |= np.abs(x - y) <= ulp * 2.0**-24
        same = (x == y) | (np.isnan(x) & np.isnan(y))
        return bool((close | same | ~np.isfinite(size)).all())


# ---- values ---------------------------------------------------------------------------------------------------------

# A complex quotient, or root, is composed otherwise than on the CPU: signs of zeros may differ, and the last place.
COMPOSED = {"divide", "reciprocal", "sqrt", "multiply"}


@pytest.mark.parametrize("op", ELEMENTWISE)
def test_every_op(op):
    """Some dtypes of an op, which wait together; test_opencl.cpp has all, by their formulas."""
    check_op(op, accepted(op)[ELEMENTWISE.index(op) % 4 :: 4])


@pytest.mark.slow
@pytest.mark.parametrize("op", ELEMENTWISE)
def test_every_op_and_dtype(op):
    check_op(op, accepted(op))


def check_op(op, names):
    expected, got = [], []
    for name in names:
        arrays = operands(op, name, 151)
        for result, to in (
            (getattr(hl, op)(*map(hl.asarray, arrays)), expected),
            (getattr(hl, op)(*there(*arrays)), got),
        ):
            to.append(result if isinstance(result, tuple) else (result,))
    hl.eval(got)
    for name, mine, theirs in zip(names, expected, got, strict=True):
        for x, y in zip(mine, theirs, strict=True):
            assert (x.dtype, x.shape) == (y.dtype, y.shape), name
            a, b = x.numpy(), y.to("cpu").numpy()
            exact = OPS[op]["ulp"] == 0 and not (name in COMPLEX and op in COMPOSED)
            assert same_bits(a, b) if exact else within(a, b, 2 * max(OPS[op]["ulp"], 4)), (op, name)


@pytest.mark.parametrize("op", REDUCTIONS)
def test_some_reductions(op):
    check_reduction(op, accepted(op)[REDUCTIONS.index(op) % 3 :: 3])


@pytest.mark.slow
@pytest.mark.parametrize("op", REDUCTIONS)
def test_every_reduction(op):
    check_reduction(op, accepted(op))


def check_reduction(op, names):
    """Rows, columns, all, a middle axis, empty ones; for few results, groups of items."""
    shapes = [((5, 70), 1), ((5, 70), 0), ((3, 40, 4), 1), ((3, 40, 4), None), ((6000, 3), 1), ((1,), 0), ((4, 1), 1)]
    for name in names:
        expected, got = [], []
        for i, (shape, axis) in enumerate(shapes):
            n = int(np.prod(shape))
            a = samples(name, n, np.random.default_rng(i)).reshape(shape)
            if op in ("sum", "prod", "mean") and np.dtype(numpy_dtype(name)).kind in "fcV":
                a = (np.random.default_rng(i).normal(size=shape) + 1.5).astype(numpy_dtype(name))
            a = np.asarray(a).astype(numpy_dtype(name))
            for keepdims in (False, True):
                expected.append(getattr(hl, op)(hl.asarray(a), axis=axis, keepdims=keepdims).numpy())
                got.append(getattr(hl, op)(there(a)[0], axis=axis, keepdims=keepdims))
            if a.ndim == 2:  # a view of it
                expected.append(getattr(hl, op)(hl.asarray(a)[::-1, ::2].T, axis=axis).numpy())
                got.append(getattr(hl, op)(there(a)[0][::-1, ::2].T, axis=axis))
        hl.eval(got)
        for k, (a, t) in enumerate(zip(expected, got, strict=True)):
            b = t.to("cpu").numpy()
            assert a.shape == b.shape and a.dtype == b.dtype
            summed = op in ("sum", "prod", "mean") and a.dtype.kind in "fcV"
            # In another order: of float64 each step may round otherwise.
            steps = 4 if name not in ("float64", "complex128") else 200
            assert within(a, b, steps) if summed or op == "mean" else same_bits(a, b), (op, name, k)


def test_empty_reductions():
    x = hl.zeros((0, 3), device=CL)
    assert hl.sum(x).item() == 0 and hl.prod(x).item() == 1 and hl.all(x).item() and not hl.any(x).item()
    assert np.isnan(hl.mean(x).item()) and hl.sum(x, axis=0).tolist() == [0, 0, 0] and hl.sum(x, axis=1).shape == (0,)
    with pytest.raises(ValueError, match="max"):
        hl.max(x)


@pytest.mark.parametrize("name", ["bool", "int8", "int64", "uint64", "float16", "float64", "complex64"])
def test_casts(name):
    a = samples(name, 300, np.random.default_rng(4))
    targets = [t for t in ["bool", "int8", "int64", "uint64", *FLOATS, "complex64"]
               if name not in COMPLEX or t in ("bool", "complex64")]  # fmt: skip
    expected = [hl.asarray(a).astype(getattr(hl, t)).numpy() for t in targets]
    x = there(a)[0]
    got = [x.astype(getattr(hl, t)) for t in targets]
    hl.eval(got)
    for t, e, g in zip(targets, expected, got, strict=True):
        assert same_bits(e, g.to("cpu").numpy()), t


@pytest.mark.parametrize("op", ["less", "less_equal", "equal", "not_equal", "greater", "greater_equal"])
def test_numbers_of_unlike_types_are_compared_exactly(op):
    ends = [0, 1, -1, 2**53, 2**53 + 1, 2**63 - 1, -(2**63), 2**24 + 1]
    i = np.repeat(np.array(ends, np.int64), 12)
    u = np.repeat(np.array([0, 1, 2**53 + 1, 2**63, 2**64 - 1, 7, 8, 9], np.uint64), 12)
    f = np.tile(np.array([0.0, -0.5, 1, 2.0**53, 2.0**63, -(2.0**63), 2.0**64, np.inf, -np.inf, np.nan, 1.5, 2**24]), 8)
    for a, b in [(i, u), (i, f), (u, f), (f, i), (u, i), (f, u), (i, f.astype(np.float32))]:
        e, g = getattr(hl, op)(hl.asarray(a), hl.asarray(b)), getattr(hl, op)(*there(a, b))
        assert (e.numpy() == g.to("cpu").numpy()).all()


def test_products_gathers_and_the_rest():
    rng = np.random.default_rng(5)
    n = lambda *s, t=np.float32: rng.normal(size=s).astype(t)  # noqa: E731
    x, i = n(6, 5, 4), np.array([[0, -1, 2], [3, 3, -5]])
    cases = {
        "matmul": (lambda a, b: a @ b, n(7, 13), n(13, 9)),
        "transposed": (lambda a, b: a.T @ b[::-1], n(13, 7), n(13, 9)),
        "batched": (lambda a, b: a @ b, n(3, 1, 7, 5), n(4, 5, 2)),
        "rows": (lambda a, b: (a @ b, b.T @ a), n(5), n(5, 3)),
        "dot": (lambda a, b: a @ b, n(50), n(50)),
        "empty inside": (lambda a, b: a @ b, n(3, 0), n(0, 4)),
        "float16": (lambda a, b: a @ b, n(5, 6, t=np.float16), n(6, 3, t=np.float16)),
        "complex": (lambda a, b: a @ b, (n(5, 6) + 1j * n(5, 6)), (n(6, 3) - 2j * n(6, 3))),
        "integers": (lambda a, b: a @ b, *(rng.integers(-99, 99, s, np.int8) for s in ((5, 6), (6, 3)))),
        "take": (lambda a, b: (hl.take(a, b, axis=1), a[b[0]], a[:, b], a[..., b[1] % 4]), x, i),
        "write by index": (_write_by_index, x, i),
        "mask": (lambda a, b: a[a > 0.3], x, i),
        "concat": (lambda a, b: (hl.concat([a, a[::-1]], axis=1), hl.concat([a, b], axis=None), hl.stack([a, a])),
                   x, n(2)),
        "creation": (lambda a, b: (hl.arange(3, 30, 4, device=a.device), hl.arange(0.0, 1.0, 0.1, device=a.device),
                                   hl.linspace(-1, 2, 7, device=a.device), hl.eye(3, 4, k=-1, device=a.device),
                                   hl.full((2, 2), 7, device=a.device), hl.zeros_like(a)), x, i),
        "softmax": (lambda a, b: (hl.softmax(a), hl.log_softmax(a, axis=0)), x, i),
        "integer powers": (lambda a, b: a ** abs(b), i, i),
    }  # fmt: skip
    for name, (f, *arrays) in cases.items():
        expected, got = f(*map(hl.asarray, arrays)), f(*there(*arrays))
        expected, got = (r if isinstance(r, tuple) else (r,) for r in (expected, got))
        for e, g in zip(expected, got, strict=True):
            a, b = e.numpy(), g.to("cpu").numpy()
            assert a.shape == b.shape and a.dtype == b.dtype, name
            assert np.allclose(a, b, rtol=2e-3 if a.dtype == np.float16 else 1e-5, atol=1e-6), name


def _write_by_index(a, b):
    a = a.copy()
    a[b[0]] = 3.0
    a[:, [1, 1]] += 2
    a[a < 0] = -1
    a[1:3, ::2] = a[2:4, ::2] * 2
    return a


@pytest.mark.parametrize("block", range(4))
def test_random_programs(block):
    """Values, views, in-place writes and gradients of any order, as on the CPU."""
    agreed = 0
    for seed in range(20_000 + 12 * block, 20_012 + 12 * block):
        program = programs.Generator(seed).make()
        results = []
        for device in ("cpu", CL):
            with hl.device(device):
                try:
                    results.append({k: v.to("cpu").numpy() for k, v in _run(program.lines).items()})
                except Exception as e:  # noqa: BLE001 - both must raise the same
                    results.append(type(e))
        mine, theirs = results
        if isinstance(mine, type) or isinstance(theirs, type):
            assert mine is theirs, (seed, program.lines)
            continue
        assert mine.keys() == theirs.keys()
        for k, a in mine.items():
            b = theirs[k]
            assert a.dtype == b.dtype and a.shape == b.shape
            wide = np.complex128 if a.dtype.kind == "c" else np.float64
            rtol = 2e-2 if a.dtype.itemsize == 2 else 1e-4
            assert np.allclose(a.astype(wide), b.astype(wide), rtol, 1e-5, equal_nan=True), (seed, k, program.lines)
        agreed += 1
    assert agreed > 3


def _run(lines):
    env = helpers(hl)
    for line in lines:
        exec(line, env)
    found = {}
    for k, v in env.items():
        if isinstance(v, hl.Tensor):
            found[k] = v.detach()
            if v.is_leaf and v.grad is not None:
                found[k + ".grad"] = v.grad.detach()
    return found


# ---- what waits -----------------------------------------------------------------------------------------------------


def test_nothing_runs_until_a_value_is_asked_for():
    hl.synchronize()
    x = there(np.arange(6, dtype=np.float32))[0]
    before = facts()
    y = hl.tanh(x) * 2 + x
    z = y[1:3]
    hl.exp(x)  # nobody keeps it
    assert facts()["runs"] == before["runs"] and facts()["waiting_nodes"] >= 3
    assert facts()["waiting_bytes"] == 24 and "test_opencl.py" in facts()["waiting_line"]
    launched = facts()["launches"]
    assert np.allclose(y.tolist()[1:3], np.tanh([1, 2]) * 2 + [1, 2])
    assert facts()["launches"] == launched + 1  # one kernel
    assert z.tolist() == y.tolist()[1:3]
    assert facts()["runs"] == before["runs"] + 2 and facts()["waiting_bytes"] == 0  # the view's elements, made dense


def test_writes_and_views():
    x = hl.zeros((2, 3), device=CL)
    row, before = x[1], x + 0
    x[0, 1] = 5
    row += 1
    assert x.tolist() == [[0, 5, 0], [1, 1, 1]] and row.tolist() == [1, 1, 1] and before.tolist() == [[0] * 3] * 2
    x.T[2] = 7  # after it has run
    assert x.tolist() == [[0, 5, 7], [1, 1, 7]]
    flat = hl.reshape(x, -1)
    flat[::2] = -1
    assert x.tolist() == [[-1, 5, -1], [1, -1, 7]]


def test_a_million_nodes():
    x, before = hl.zeros(8, device=CL), facts()
    for _ in range(100_000):
        x = x + 1
    assert x.tolist() == [100_000.0] * 8
    assert facts()["compiled"] + facts()["from_disk"] - before["compiled"] - before["from_disk"] < 8


@pytest.mark.slow
def test_a_million_nodes_in_full():
    script = """
import resource, hyalite as hl
x = hl.zeros(1000, device="opencl")
(x + 1).tolist()
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
for _ in range(1_000_000): x = x + 1
print(x[0].item(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""
    value, kilobytes = run(script).split()
    assert float(value) == 1e6 and int(kilobytes) < 60_000


def test_bytes_that_wait_run_by_themselves():
    before = facts()["runs_by_budget"]
    kept = []
    for i in range(40):
        kept.append(hl.ones((1 << 23,), device=CL) * i)  # 32 MiB each
    assert facts()["runs_by_budget"] > before
    assert kept[7][:2].tolist() == [7, 7]
    del kept
    gc.collect()


def test_training_without_eval_keeps_memory_flat():
    sys.path.insert(0, str(Path(__file__).parents[2] / "examples" / "python"))
    import digits

    def train(device, steps):
        with hl.device(device):
            rng = np.random.default_rng(0)
            (pixels, labels), _ = digits.load(rng)
            weights = [*digits.layer(rng, 64, 32), *digits.layer(rng, 32, 10)]
            momenta, identity = [hl.zeros_like(w) for w in weights], hl.eye(10)
            losses, held = [], []
            for step in range(steps):
                at = hl.asarray(rng.integers(0, len(labels), 32))
                wanted = hl.take(identity, hl.take(labels, at), axis=0)
                loss = digits.cross_entropy(digits.logits(hl.take(pixels, at, axis=0), weights), wanted)
                loss.backward()
                with hl.no_grad():
                    for w, m in zip(weights, momenta, strict=True):
                        m *= 0.9
                        m += w.grad
                        w -= 0.1 * m
                        w.grad = None
                losses.append(loss.detach())
                if device != "cpu" and step % 100 == 99:
                    held.append(facts()["bytes_in_use"] + facts()["bytes_pooled"])
            return [x.item() for x in losses], held

    expected, _ = train("cpu", 300)
    got, held = train(CL, 300)
    assert np.allclose(expected[:60], got[:60], rtol=1e-3)
    assert np.allclose(expected[-1], got[-1], rtol=0.3, atol=0.05)
    assert held[-1] < held[0] * 1.5 + (1 << 20)


def test_threads_share_a_device():
    wrong = []

    def work(k):
        for i in range(20):
            x = hl.full((50,), float(k), device=CL)
            x += i
            if (x * 2).tolist() != [2.0 * (k + i)] * 50:
                wrong.append(k)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


# ---- moving ---------------------------------------------------------------------------------------------------------


def test_moving_is_asked_for():
    a = hl.asarray(np.arange(6, dtype=np.float32).reshape(2, 3))
    x = a.to(CL)
    assert x.device == CL and x.to("opencl") is x and a.to("cpu") is a and x.to("cpu").device == "cpu"
    assert (a.T.to(CL) + 1).to("cpu").tolist() == (a.T + 1).tolist()
    assert repr(x[0]) == "tensor([0., 1., 2.], device='opencl:0')"
    assert float(x[1, 2]) == 5 and int(x[0, 1]) == 1 and bool(x[0, 0]) is False and x.dtype == hl.float32
    with pytest.raises(hl.DeviceMismatch, match="do not match"):
        a + x
    for f in (lambda: x.numpy(), lambda: np.asarray(x), lambda: memoryview(x)):
        with pytest.raises((hl.HyaliteError, BufferError, TypeError), match="opencl"):
            f()
    assert (x + 1).device == CL and (x > 2).device == CL and hl.zeros_like(x).device == CL


def test_gradients_cross_devices():
    w = hl.asarray(np.float32([1, 2, 3])).requires_grad_(True)
    loss = hl.sum(hl.exp(w.to(CL)) * 2)
    loss.backward()
    assert w.grad.device == "cpu" and np.allclose(w.grad.numpy(), 2 * np.exp([1, 2, 3]))


def test_device_as_a_context():
    with hl.device("opencl") as d:
        made = [
            hl.zeros(2),
            hl.ones((2,)),
            hl.asarray([1, 2]),
            hl.tensor([1.0]),
            hl.arange(3),
            hl.eye(2),
            hl.full(2, 3),
        ]
        assert d.name == CL and all(t.device == CL for t in made)
        with hl.device("cpu"):
            assert hl.zeros(2).device == "cpu"
        assert hl.zeros(2, device="cpu").device == "cpu"
    assert hl.zeros(2).device == "cpu"
    with pytest.raises(hl.Unsupported, match="opencl:7"):
        hl.device("opencl:7")
    with pytest.raises(ValueError, match="unknown device"):
        hl.device("quantum")
    for wrong in (None, 3):
        with pytest.raises(TypeError, match=r"device\(\): device must be the name of a device"):
            hl.device(wrong)
    with pytest.raises(TypeError, match=r"eval\(\): tensors\[0\]\['a'\] must be a tensor"):
        hl.eval({"a": 3})
    hl.eval()
    hl.eval(hl.ones(3), [hl.zeros(2, device=CL), {"a": hl.ones(2)}], None)


def test_devices_says_what_there_is_and_what_not():
    by_name = {d["name"]: d for d in hl.devices()}
    assert by_name["cpu"]["available"] and not by_name["cpu"]["lazy"]
    mine = by_name[CL]
    assert mine["lazy"] and mine["missing_ops"] == [] and "float32" in mine["dtypes"]
    assert "float8_e5m2" not in mine["dtypes"]
    assert not by_name["cuda:0"]["available"] and "CUDA" in by_name["cuda:0"]["why"]


# ---- what goes wrong ------------------------------------------------------------------------------------------------


def test_an_index_out_of_range_names_the_line_and_the_device_stays_usable():  # case 64
    x = hl.ones((4, 2), device=CL)
    y = hl.exp(hl.take(x, hl.asarray([0, 9]).to(CL), axis=0) * 2)
    with pytest.raises(IndexError, match=r"take\(\): index 9 is out of range for axis 0 of size 4.*test_opencl.py"):
        y.tolist()
    assert (x + 1).tolist() == [[2, 2]] * 4
    with pytest.raises(IndexError, match="index -5 is out of range"):
        hl.synchronize() if hl.take(x, hl.asarray([-5]).to(CL), axis=0) is not None and x[[-5]] is None else x[
            [-5]
        ].tolist()
    assert hl.sum(x).item() == 8


def test_a_negative_power_of_an_integer():
    x = there(np.array([2, 3]))[0]
    with pytest.raises(ValueError, match="negative power -1"):
        (x ** there(np.array([1, -1]))[0]).tolist()
    assert (x ** there(np.array([1, 2]))[0]).tolist() == [2, 9]


def test_what_the_device_lacks_is_said_at_once():
    x = hl.ones(3, device=CL)
    for f in (lambda: x.astype(hl.float8_e5m2), lambda: hl.zeros(3, dtype=hl.float8_e4m3fn, device=CL)):
        with pytest.raises(hl.Unsupported, match=r"opencl:0 \(.*\) has no float8"):
            f()
    with pytest.raises(hl.Unsupported, match="check=True"):
        x.astype(hl.int32, check=True)
    with pytest.raises(hl.Unsupported, match="by another way than its arguments"):
        hl.compile(lambda y: (x * 2, y))(hl.ones(3))
    with pytest.raises(hl.Unsupported, match=r"explain\(\): a tensor is on a device that computes later"):
        hl.compile(lambda x: x + 1).explain(x)


def test_a_compiled_function_of_waiting_tensors():
    compiled = hl.compile(lambda x, more: (hl.tanh(x) * more[0], {"sum": hl.sum(x)}))
    x = hl.ones(3, device=CL)
    hl.synchronize()
    runs = facts()["runs"]
    y, sums = compiled(x, [x * 2])
    assert facts()["runs"] == runs and y.device == CL
    assert np.allclose(y.tolist(), np.tanh(1) * 2) and sums["sum"].item() == 3
    assert np.allclose(compiled(hl.ones(3), [hl.ones(3)])[0].numpy(), np.tanh(1))


def test_a_thousand_operands():
    xs = [hl.full((10,), float(i), device=CL) for i in range(1000)]
    total = xs[0]
    for x in xs[1:]:
        total = total + x
    assert total.tolist() == [499500.0] * 10


def test_out_of_memory_leaves_the_device_usable():
    x = hl.ones((1 << 20,), device=CL)
    with pytest.raises(hl.OutOfMemory, match="no room for"):
        hl.synchronize() if hl.broadcast_to(x, (1 << 20, 1 << 20)).copy() is None else hl.zeros(
            (1 << 40,), device=CL
        ).tolist()
    gc.collect()
    assert hl.sum(x).item() == 1 << 20


def test_without_a_platform():
    script = """
import hyalite as hl
print([d["why"] for d in hl.devices() if d["name"].startswith("opencl")][0])
try: hl.zeros(3, device="opencl")
except hl.Unsupported as e: print(e)
print(hl.zeros(3).tolist())
"""
    missing = run(script, OCL_ICD_VENDORS="/no/such/folder").splitlines()
    assert "no OpenCL platform" in missing[0] and "write device=" in missing[1] and missing[2] == "[0.0, 0.0, 0.0]"
    loader = run(script, HYALITE_OPENCL="/no/such/file.so").splitlines()
    assert "loader did not open" in loader[0] and "loader did not open" in loader[1]


def test_the_child_of_a_fork_is_told():
    script = """
import os, hyalite as hl
x = hl.ones(10, device="opencl")
(x + 1).tolist()
pid = os.fork()
if pid == 0:
    try: (x + 1).tolist()
    except hl.Unsupported as e: os._exit(0 if "forked" in str(e) and (hl.ones(2) + 1).tolist() == [2, 2] else 2)
    os._exit(1)
print(os.waitpid(pid, 0)[1], (x + 2).tolist()[0])
"""
    assert run(script) == "0 3.0"


def test_kernels_of_an_earlier_process_are_found(tmp_path):
    script = """
import hyalite as hl
x = hl.ones((3, 50), device="opencl")
(hl.exp(x) * 2 + hl.sum(x, axis=1, keepdims=True)).tolist()
d = next(d for d in hl.devices() if d["name"] == "opencl:0")
print(d["compiled"], d["from_disk"])
"""
    made, read = map(int, run(script, HYALITE_CACHE_DIR=str(tmp_path)).split())
    assert made >= 1 and read == 0
    assert run(script, HYALITE_CACHE_DIR=str(tmp_path)) == f"0 {made}"


# ---- what a trace says ----------------------------------------------------------------------------------------------


def test_a_trace_shows_nodes_and_what_ran():
    x = hl.ones((3, 4), device=CL)
    hl.synchronize()
    with hl.explain() as trace:
        y = hl.tanh(x) * 2 + x
        y.tolist()
    text = str(trace)
    assert text.count("a node: ") == 3 and "what waits on opencl:0" in text
    assert "queued: tanh, multiply, add" in text and "values arrive" in text


def test_every_kind_of_step_has_words_on_every_page(tmp_path):
    x, i = hl.ones((3, 4), device=CL), hl.asarray([0, -1]).to(CL)
    w = hl.ones((4, 2), device=CL).requires_grad_(True)
    with hl.explain() as trace:
        hl.softmax(x @ w).sum().backward()
        x[i] = 2
        kept = [w.grad, x[x > 1], hl.concat([x, x]), hl.argmax(x, axis=1), hl.take(x, i), hl.eye(2, device=CL)]
        hl.eval(kept)
        [t.tolist() for t in kept]
        with pytest.raises(IndexError):
            hl.take(x, i + 7).tolist()
    for kind in ("html", "svg", "json", "mmd", "txt", "trace.json"):
        trace.save(tmp_path / f"page.{kind}")
        assert (tmp_path / f"page.{kind}").stat().st_size > 1000
    for op in ("matmul", "sum", "take", "concat", "argmax"):
        assert f"queued: {op}" in str(trace)


# ---- other libraries' bug reports (cases.md) ------------------------------------------------------------------------


@pytest.mark.parametrize("to", ["int8", "uint8", "int32", "uint32", "int64", "uint64", "bool"])
def test_case_19_casts_of_what_an_integer_does_not_hold(to):
    values = [np.nan, np.inf, -np.inf, 2.0**31, -2.0, 68469.13, 1e30, -0.0, 3.7]
    dtype, a = getattr(hl, to), np.resize(np.float32(values), 3 * 64)
    x = there(a)[0]
    for y, b in ((x[:64], a[:64]), (x[::3], a[::3]), (x[::-1], a[::-1])):
        assert (y * 1).astype(dtype).tolist() == hl.asarray(b.copy()).astype(dtype).tolist()


def test_case_30_subnormal_numbers_stay():
    x = hl.full((1000,), 2.0**-126, device=CL)
    assert (x * 0.25 + 0.0)[-1].item() == 2.0**-128


@pytest.mark.parametrize("op", ["exp", "tanh", "sigmoid", "sin", "log1p", "erf", "sqrt", "gelu"])
def test_case_35_strided_and_contiguous_operands(op):
    values = np.linspace(-12, 12, 1001, dtype=np.float32)
    wide = hl.zeros(3 * 1001, device=CL)
    wide[::3] = values
    x, y = there(values)[0], wide[::3]
    got = [getattr(hl, op)(t).to("cpu").numpy() for t in (x, y)]
    assert same_bits(*got)


def test_case_43_a_negative_step_written_through_a_view():
    base, x = hl.zeros(6, device=CL), hl.arange(6, dtype=hl.float32, device=CL)
    base[::-1] += 2 * x[::-1]
    assert base.tolist() == [0, 2, 4, 6, 8, 10]


@pytest.mark.slow
def test_case_63_more_elements_than_32_bits_count():
    n = 2**31 + 8
    x = hl.broadcast_to(hl.ones(1, dtype=hl.int8, device=CL), (n,))
    assert hl.sum(x, dtype=hl.int64).item() == n and hl.argmax(x).item() == 0


def test_case_66_a_long_chain_and_its_gradient():
    x = hl.ones(5, device=CL).requires_grad_(True)
    y = x
    for _ in range(3000):
        y = y * 0.5 + 1
    hl.sum(y).backward()
    assert y.tolist() == [2.0] * 5 and x.grad.tolist() == [0.0] * 5


def test_case_68_what_is_fused_has_the_bits_of_step_by_step():
    x = there(np.linspace(-9, 9, 4001, dtype=np.float32))[0]
    steps = [lambda t: t * x, hl.exp, lambda t: t - x, lambda t: t / 3, hl.sqrt, lambda t: t + x, hl.sigmoid]
    together = alone = x
    for f in steps:
        together = f(together)
    for f in steps:
        alone = f(alone)
        hl.eval(alone)
    assert same_bits(together.to("cpu").numpy(), alone.to("cpu").numpy())


# ---- memory and races, as oclgrind simulates them -------------------------------------------------------------------

SIMULATED = """
import numpy as np, hyalite as hl
def moved(a): return hl.asarray(a).to("opencl")
rng = np.random.default_rng(0)
x, i = moved(rng.normal(size=(5, 6)).astype(np.float32)), moved(np.array([0, 2, -1]))
y = hl.tanh(x)[::-1] * 2 + x
for axis in (None, 0, 1):
    for f in (hl.sum, hl.mean, hl.prod, hl.max, hl.argmax, hl.any): f(y, axis=axis).tolist()
many = moved(rng.normal(size=300).astype(np.float64))
[f(many).item() for f in (hl.sum, hl.max, hl.argmin, hl.all)]
longest = moved(rng.normal(size=9000).astype(np.float32))
longest.sum().item(), (longest * 2).min().item(), (hl.abs(longest).max() - 1).item()
rows = moved(rng.normal(size=(3, 40)).astype(np.float32))
rows -= rows.mean(axis=-1, keepdims=True)
rows /= hl.sqrt((rows * rows).mean(axis=-1, keepdims=True) + 1e-5)
((rows * rows).sum(axis=0) + 1).tolist(), hl.log_softmax(rows, axis=-1).tolist()
hl.softmax(x).tolist(), (x @ x.T).tolist(), hl.take(x, i, axis=0).tolist(), hl.concat([x, x], axis=1).tolist()
x[1:4, ::2] = -1
x[i] = 5
x[x > 0] += 1
x.tolist(), x.astype(hl.float16).astype(hl.int8).tolist(), hl.eye(4, device="opencl").tolist()
w = moved(rng.normal(size=(6, 3)).astype(np.float32)).requires_grad_(True)
hl.sum(hl.take(w, i, axis=0) * hl.prod(w, axis=0)).backward()
print(next(d for d in hl.devices() if d["name"] == "opencl:0")["hardware"], w.grad.shape)
"""


def test_oclgrind_finds_nothing():
    library = "/usr/lib/oclgrind/liboclgrind-rt.so"
    assert Path(library).exists(), "oclgrind is missing: apt-get install oclgrind"
    environment = {"HYALITE_OPENCL": library, "HYALITE_CACHE_DIR": "", "OCLGRIND_DATA_RACES": "1",
                   "OCLGRIND_CHECK_API": "1"}  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-c", SIMULATED],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.strip() == "Oclgrind Simulator (6, 3)", done.stderr
    said = [line for line in done.stderr.splitlines() if "warning" not in line and line.strip()]
    assert not said, "\n".join(said[:20])
