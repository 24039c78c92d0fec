"""The stub that the build writes: pinned, complete, and of use to a type checker."""

import difflib
import inspect
import os
import subprocess
import sys
from pathlib import Path

import pytest

import hyalite as hl

ROOT = Path(__file__).resolve().parents[2]
REFERENCE = Path(__file__).with_name("stubs.pyi.ref")
PACKAGE = Path(hl.__file__).absolute().parent

sys.path.insert(0, str(ROOT / "tools"))
import generate_stubs  # noqa: E402

PUBLIC = [name for name in generate_stubs.public_names() if callable(getattr(hl, name))]
FUNCTIONS = [name for name in PUBLIC if not isinstance(getattr(hl, name), type)]
METHODS = [n for n in dir(hl.Tensor) if not n.startswith("_") and callable(getattr(hl.Tensor, n))]


def test_stub_is_the_pinned_one():
    stub = generate_stubs.stub()
    if os.environ.get("HYALITE_UPDATE_STUBS") == "1":
        REFERENCE.write_text(stub, encoding="utf-8")
    pinned = REFERENCE.read_text(encoding="utf-8")
    difference = "\n".join(difflib.unified_diff(pinned.splitlines(), stub.splitlines(), "pinned", "built", lineterm=""))
    assert not difference, f"write HYALITE_UPDATE_STUBS=1 if this is meant:\n{difference}"


def test_build_wrote_the_stub():
    assert (PACKAGE / "__init__.pyi").read_text(encoding="utf-8") == generate_stubs.stub(), "run ./dev build"
    assert (PACKAGE / "py.typed").exists()


@pytest.mark.parametrize("name", PUBLIC)
def test_has_a_docstring(name):
    assert (getattr(hl, name).__doc__ or "").strip()


@pytest.mark.parametrize("name", METHODS)
def test_method_has_a_docstring(name):
    assert (getattr(hl.Tensor, name).__doc__ or "").strip()


@pytest.mark.parametrize("name", FUNCTIONS)
def test_has_a_signature(name):
    function = getattr(hl, name)
    assert isinstance(inspect.signature(function), inspect.Signature)
    assert function.__name__ == name


@pytest.mark.parametrize("name", METHODS)
def test_method_has_a_signature(name):
    assert isinstance(inspect.signature(getattr(hl.Tensor, name)), inspect.Signature)


def test_signatures_of_ops_follow_the_list():
    assert str(inspect.signature(hl.add)) == "(x1, x2, /)"
    assert str(inspect.signature(hl.sum)) == "(x, /, axis=None, dtype=None, keepdims=False)"
    assert str(inspect.signature(hl.leaky_relu)) == "(x, /, slope=0.01)"
    assert str(inspect.signature(hl.clip)) == "(x, /, min=None, max=None)"


TYPED = """
import copy
import os
from typing import Any, assert_type

import hyalite as hl

a: hl.Tensor = hl.zeros((3, 4), dtype=hl.float32)
b = hl.tensor([1.0, 2.0, 3.0, 4.0], requires_grad=True)
assert_type(a + b, hl.Tensor)
assert_type(2.5 * a - 1, hl.Tensor)
assert_type(a == b, hl.Tensor)
assert_type(divmod(a, 2), tuple[hl.Tensor, hl.Tensor])
assert_type(hl.divmod(a, b), tuple[hl.Tensor, hl.Tensor])
assert_type(a.shape, tuple[int, ...])
assert_type(a.dtype, hl.dtype)
assert_type(a.requires_grad, bool)
assert_type(b.grad, hl.Tensor | None)
assert_type(hl.sum(a, axis=(0, 1), keepdims=True), hl.Tensor)
assert_type(a.sum(axis=-1, dtype=hl.float64), hl.Tensor)
assert_type(hl.isdtype(a.dtype, "real floating"), bool)
assert_type(float(a[0, 0]), float)
assert_type(memoryview(a).readonly, bool)
assert_type(bytes(a), bytes)
assert_type(a.tobytes(), bytes)
assert_type(copy.copy(a), hl.Tensor)
assert_type(copy.deepcopy(b), hl.Tensor)
a += b
a[1:, ::-2] = 7
b.grad = None
(a @ b).sum().backward(retain_graph=True)
hl.clip(a, min=0), hl.leaky_relu(a, slope=0.2), hl.where(a > 0, a, 0), hl.arange(10), hl.concat([a, a], axis=1)
gradient = hl.grad(lambda x: (x * x).sum())(b)
trace = hl.explain(lambda: a + b, show=False)
assert_type(trace, hl.Trace)
assert_type(trace.save("a.html"), os.PathLike[str])
with hl.explain() as recorded, hl.no_grad(), hl.set_num_threads(1), hl.autocast(dtype=hl.bfloat16):
    assert_type(recorded, hl.Trace)
try:
    a + hl.zeros(3)
except hl.ShapeMismatch as error:
    print(error.left_shape)

@hl.no_grad()
def update(x: hl.Tensor) -> hl.Tensor:
    return x
"""

UNTYPED = """
import hyalite as hl

hl.ad(1, 2)
hl.zeros((3, 4), dtype="float32")
hl.sum(hl.zeros(3), axs=0)
hl.zeros(3).shape = (1, 3)
hl.zeros(3) + "1"
hl.zeros(3).astype()
"""


def check_types(text, folder):
    (folder / "snippet.py").write_text(text)
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", "--cache-dir", folder / "cache", "snippet.py"],
        cwd=folder,
        env=os.environ | {"MYPYPATH": str(PACKAGE.parent), "PYTHONPATH": ""},
        capture_output=True,
        text=True,
    )
    return [line for line in (done.stdout + done.stderr).splitlines() if ": error:" in line or "snippet" not in line]


def test_type_checker_accepts_right_uses(tmp_path):
    assert check_types(TYPED, tmp_path) == []


def test_type_checker_refuses_wrong_ones(tmp_path):
    lines = {line.split(":")[1] for line in check_types(UNTYPED, tmp_path)}
    assert lines == {"4", "5", "6", "7", "8", "9"}
