"""docs/add_an_op.md applied to a copy of the tree: what it promises an op costs, and what follows from it."""

import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
SCRATCH = ROOT / "build" / "add_an_op"  # kept, so that a second run rebuilds only what changed
PAGE = (ROOT / "docs/add_an_op.md").read_text()
DIFFS = re.findall(r"^```diff\n(.*?)^```$", PAGE, re.M | re.S)

CHECKS = '''
"""Runs with the package built from the patched copy."""
import inspect
import numpy as np
import pyopencl as cl
import hyalite as hl

rng = np.random.default_rng(7)


def in_opencl(name, arrays, gradient=None):
    """The kernel that the text is, run on PoCL; its arguments are the inputs, the output, shape and strides."""
    text = hl.source(name, language="opencl", gradient=gradient)
    platform = next(p for p in cl.get_platforms() if "Portable" in p.name)
    context = cl.Context(platform.get_devices())
    queue = cl.CommandQueue(context)
    kernel = next(k for k in cl.Program(context, text).build().all_kernels() if "hyalite" in k.function_name)
    flags = cl.mem_flags
    n = arrays[0].size
    out = np.empty_like(arrays[0])
    buffers = iter([cl.Buffer(context, flags.READ_ONLY | flags.COPY_HOST_PTR, hostbuf=a) for a in arrays])
    target = cl.Buffer(context, flags.WRITE_ONLY, out.nbytes)
    header = text[text.index(kernel.function_name):]
    parameters = header[header.index("(") + 1 : header.index(")")].split(",")
    for i, parameter in enumerate(parameters):
        if "global" in parameter:
            kernel.set_arg(i, next(buffers) if "const" in parameter else target)
        else:
            kernel.set_arg(i, np.int64(n if parameter.split()[-1] == "n" else 1))
    cl.enqueue_nd_range_kernel(queue, kernel, (64,), None)
    cl.enqueue_copy(queue, out, target)
    return out


def ulps(got, want):
    """Distance of `got` from the wider `want`, in units in the last place."""
    return np.max(np.abs(got.astype(want.dtype) - want) / np.spacing(np.abs(want).astype(got.dtype)).astype(want.dtype))


def check(name, function, derivative, values, reads):
    op = getattr(hl, name)
    assert str(inspect.signature(op)) == "(x, /)"
    assert op.__doc__.splitlines()[0] == SENTENCES[name], op.__doc__
    assert "functions.h" in op.__doc__ and "Gradient: yes" in op.__doc__
    assert name in hl._C._op_names() and hasattr(hl._C_engine, name)
    x = hl.asarray(values)
    assert getattr(x, name)().tolist() == op(x).tolist()
    assert name in hl.source(op) and hl.source(op).file.endswith("functions.h")

    # The gradient along a random direction, and the second, against central differences.
    weights, direction = rng.standard_normal(values.shape), rng.standard_normal(values.shape)

    def scalar(t):
        return hl.sum(op(t) * hl.asarray(weights))

    def slope(t):
        return hl.sum(hl.grad(scalar)(t) * hl.asarray(direction))

    step = 1e-6
    for f in (scalar, slope):
        ahead, behind = (float(f(hl.asarray(values + s * step * direction))) for s in (1, -1))
        exact = float(np.sum(hl.grad(f)(hl.asarray(values)).numpy() * direction))
        np.testing.assert_allclose((ahead - behind) / (2 * step), exact, rtol=1e-6)
    np.testing.assert_allclose(hl.grad(scalar)(x).numpy(), weights * derivative(values), rtol=1e-14)
    leaf = hl.tensor(values, requires_grad=True)
    assert op(leaf).grad_fn.name == name.title().replace("_", "") + "Backward"

    # The text for other devices.
    single = values.astype(np.float32)
    wide = single.astype(np.float64)
    assert ulps(in_opencl(name, [single]), function(wide)) <= 4
    g = rng.standard_normal(values.shape).astype(np.float32)
    leaves = {"x": single, "out": function(wide).astype(np.float32)}
    np.testing.assert_allclose(in_opencl(name, [g, leaves[reads]], gradient=0), g * derivative(wide), rtol=2e-6)
    assert "__global__" in hl.source(name, language="cuda")


def squared_relu(x):
    return np.maximum(x, 0) ** 2


SENTENCES = {
    "squared_relu": "The square of x where x is positive, else 0.",
    "cbrt": "The cube root of x, negative for negative x. The gradient at 0 is infinite.",
}
values = np.concatenate([np.linspace(-3, 3, 50), rng.standard_normal(51) * 100])
check("squared_relu", squared_relu, lambda x: 2 * np.maximum(x, 0), values, "x")
check("cbrt", np.cbrt, lambda x: 1 / (3 * np.cbrt(x) ** 2), values, "out")

# A composite: array, method, view, source; its gradient is that of its parts.
x = hl.asarray(rng.standard_normal((2, 3, 4)))
assert str(inspect.signature(hl.swapaxes)) == "(x, /, axis1, axis2)"
assert np.array_equal(hl.swapaxes(x, 0, 2).numpy(), x.numpy().swapaxes(0, 2))
assert x.swapaxes(axis1=0, axis2=-1).shape == (4, 3, 2) and hl.swapaxes(np.ones((2, 3)), 0, 1).shape == (3, 2)
assert hl.swapaxes(x, 0, 1).data_ptr() == x.data_ptr() and "moveaxis" in hl.source("swapaxes")
g = hl.grad(lambda t: hl.sum(hl.swapaxes(t, 0, 2) * hl.arange(4.0, dtype=hl.float64)[:, None, None]))(x)
assert np.array_equal(g.numpy(), np.broadcast_to(np.arange(4.0), (2, 3, 4)))
assert hl.swapaxes(x.to_device("meta"), 0, 1).shape == (3, 2, 4)

# A primitive: two outputs, each subset of which may be used.
low, high = hl.extrema(x, axis=(0, 2))
assert np.array_equal(low.numpy(), x.numpy().min((0, 2))) and np.array_equal(high.numpy(), x.numpy().max((0, 2)))
assert [t.item() for t in hl.extrema(np.arange(5))] == [0, 4] and hl.extrema(x.to_device("meta"))[1].shape == ()
for weights in ((1.0, 0.0), (0.0, 1.0), (2.0, 3.0)):
    def spread(t):
        return sum(w * hl.sum(o) for w, o in zip(weights, hl.extrema(t, axis=1)) if w)
    got = hl.grad(spread)(x).numpy()
    a = x.numpy()
    want = weights[0] * (a == a.min(1, keepdims=True)) + weights[1] * (a == a.max(1, keepdims=True))
    assert np.array_equal(got, want)
leaf = hl.tensor(x.numpy(), requires_grad=True)
assert hl.extrema(leaf)[0].grad_fn.name == "ExtremaBackward"
trace = hl.explain(lambda: hl.extrema(x, axis=1), show=False)
assert [op["name"] for op in trace.ops] == ["extrema"]

# A creation op.
assert str(inspect.signature(hl.tri)) == "(n, m=None, k=0, dtype=hyalite.float32, device=None)"
assert np.array_equal(hl.tri(3, 4, k=1).numpy(), np.tri(3, 4, 1, dtype=np.float32))
assert hl.tri(3, dtype=hl.int8).dtype is hl.int8 and hl.tri(3, device="meta").device == "meta"
assert not hasattr(x, "tri")

print("checked")
'''


def run(*command, folder, **extra):
    done = subprocess.run([str(c) for c in command], cwd=folder, capture_output=True, text=True, **extra)
    assert done.returncode == 0, f"{' '.join(map(str, command))}\n{done.stdout[-6000:]}\n{done.stderr[-6000:]}"
    return done.stdout


def tool(name):
    """The project's own, else the system's."""
    beside = pathlib.Path(sys.executable).parent / name
    found = str(beside) if beside.exists() else shutil.which(name)
    assert found, f"{name} is not installed"
    return found


def added(diff):
    """By file that a diff touches: how many lines that say something it grows by."""
    grown = {}
    for part in re.split(r"^(?=--- )", diff, flags=re.M)[1:]:
        _, after, *lines = part.splitlines()
        signs = [line[0] for line in lines if line[0] in "+-" and line[1:].strip()]
        grown[after.removeprefix("+++ b/")] = signs.count("+") - signs.count("-")
    return grown


def patched_files(folder):
    """The files that the diffs touch, formatted as lint wants them, before and after."""
    names = sorted({name for diff in DIFFS for name in added(diff)})
    headers = [name for name in names if name.endswith(".h")]
    (folder / ".clang-format").write_text((ROOT / ".clang-format").read_text())
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, folder / name)
    run(tool("clang-format"), "-i", *headers, folder=folder)
    for number, diff in enumerate(DIFFS):
        (folder / f"{number}.diff").write_text(diff)
        run("patch", "-p1", "--no-backup-if-mismatch", "-i", f"{number}.diff", folder=folder)
    run(tool("clang-format"), "--dry-run", "-Werror", *headers, folder=folder)
    return {name: (folder / name).read_bytes() for name in names}


def copy_tree(replaced):
    """Brings SCRATCH to the tree's present state with some files replaced; equal files are left alone."""
    listed = run("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--deduplicate", folder=ROOT)
    names = {name for name in listed.split("\0") if name and (ROOT / name).is_file()}
    for name in names:
        to, content = SCRATCH / name, replaced.get(name) or (ROOT / name).read_bytes()
        if not to.exists() or to.read_bytes() != content:
            to.parent.mkdir(parents=True, exist_ok=True)
            to.write_bytes(content)
            shutil.copymode(ROOT / name, to)
    for old in SCRATCH.rglob("*"):
        name = old.relative_to(SCRATCH)
        if old.is_file() and name.parts[0] != "build" and name.as_posix() not in names:
            old.unlink()


def test_the_page_promises_what_the_diffs_cost():
    elementwise, function, composite, primitive, creation = map(added, DIFFS)
    assert "1 file and 8 lines, and 1 line of tests" in PAGE
    assert elementwise == {"src/ops/functions.h": 8, "tests/python/op_oracle.py": 1}
    assert "with one more row" in PAGE
    assert function == {"src/ops/functions.h": 9, "src/ops/primitives.h": 1}  # its schema takes a second line
    files = [[name for name in grown if name.startswith("src/")] for grown in (composite, creation, primitive)]
    assert "A composite and a creation op are 1 file. A primitive is 2 files" in PAGE
    assert [len(f) for f in files] == [1, 1, 2]


def test_the_diffs_apply(tmp_path):
    assert len(patched_files(tmp_path)) == 7


@pytest.mark.slow
@pytest.mark.timeout(3000)  # every kernel is compiled anew
def test_an_op_added_as_the_page_says_is_complete(tmp_path):
    copy_tree(patched_files(tmp_path))
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    jobs = os.environ.get("CMAKE_BUILD_PARALLEL_LEVEL", str(len(os.sched_getaffinity(0))))
    cmake = tool("cmake")
    options = ["-DHYALITE_TESTS=OFF", f"-DPython_EXECUTABLE={sys.executable}"]
    run(cmake, "--preset", "release", *options, folder=SCRATCH, env=environment)
    run(cmake, "--build", "build/release", "--target", "_C", "-j", jobs, folder=SCRATCH, env=environment)
    environment["PYTHONPATH"] = str(SCRATCH / "build/release/python")
    assert run(sys.executable, "-c", CHECKS, folder=tmp_path, env=environment).strip().endswith("checked")

    # The tests that loop over the op list have found them.
    values = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "tests/python/test_op_values.py"]
    told = run(*values, "-k", "squared_relu or cbrt or swapaxes or extrema", "-vv", folder=SCRATCH, env=environment)
    for name in (
        "squared_relu-int8",
        "squared_relu-float16",
        "cbrt-float32",
        "cbrt-float64",
        "cbrt-bfloat16",
        "cbrt-int32",
    ):
        assert f"test_values_and_result_dtypes[{name}] PASSED" in told, told[-3000:]
    for name in ("swapaxes-int8", "swapaxes-complex64", "extrema-bool", "extrema-float32"):
        assert f"test_reductions_movement_and_products[{name}] PASSED" in told, told[-3000:]
    run(sys.executable, "tools/generate_stubs.py", tmp_path / "stub.pyi", folder=SCRATCH, env=environment)
    stub = (tmp_path / "stub.pyi").read_text()
    assert "def squared_relu(x: _Operand, /) -> Tensor" in stub and "    def cbrt(x, /) -> Tensor" in stub
    declared = (SCRATCH / "build/release/generated/hyalite/ops.h").read_text()
    assert "HYALITE_API Tensor squared_relu(const Tensor& x);" in declared
    assert "HYALITE_API Tensor cbrt(const Tensor& x);" in declared
    assert "HYALITE_API Tensor swapaxes(const Tensor& x, std::int64_t axis1, std::int64_t axis2);" in declared
    assert "HYALITE_API std::array<Tensor, 2> extrema(const Tensor& x, const Axes& axis = {});" in declared
    assert "HYALITE_API Tensor tri(std::int64_t n, std::optional<std::int64_t> m = {}" in declared
