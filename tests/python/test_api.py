"""The shape of the namespace: the standard's signatures, `import *`, stubs against run time, C++ symbols."""

import builtins
import importlib.util
import inspect
import os
import pathlib
import pydoc
import re
import subprocess
import sys

import numpy as np
import pytest

import hyalite as hl

HERE = pathlib.Path(__file__).resolve()
ROOT = HERE.parents[2]
PACKAGE = pathlib.Path(hl.__file__).absolute().parent
BUILD = pathlib.Path(importlib.util.find_spec("hyalite").origin).parents[2]

# ---- F1: signatures of the standard -----------------------------------------------------------------------------

STANDARD = {
    line.partition("(")[0]: line.strip()
    for line in HERE.with_name("array_api_2025_12.txt").read_text().splitlines()
    if hasattr(hl, line.partition("(")[0])
}
# Where our default is another: {function.parameter: why}.
DEFAULTS = {"take.axis": "the first axis, which is the only one where the standard's None has a meaning"}


def standard_signature(line):
    scope = {}
    exec(f"def f({line.partition('(')[2]}: pass", scope)  # noqa: S102 - a line of the file beside this one
    return inspect.signature(scope["f"])


def test_f1_the_standards_functions_are_compared():
    assert len(STANDARD) >= 95


@pytest.mark.parametrize("name", STANDARD)
def test_f1_signature_of_the_standard(name):
    ours = list(inspect.signature(getattr(hl, name)).parameters.values())
    theirs = list(standard_signature(STANDARD[name]).parameters.values())
    for mine, wanted in zip(ours, theirs, strict=False):
        if wanted.kind is not wanted.KEYWORD_ONLY:  # ours may have a name where the standard has a place only
            assert mine.name == wanted.name, (ours, theirs)
            assert mine.kind in (wanted.kind, mine.POSITIONAL_OR_KEYWORD), (ours, theirs)
    named = {p.name: p for p in ours}
    for wanted in theirs:
        mine = named[wanted.name]
        if wanted.kind is wanted.KEYWORD_ONLY:  # ours may be positional too
            assert mine.kind in (mine.KEYWORD_ONLY, mine.POSITIONAL_OR_KEYWORD)
        if wanted.default is not wanted.empty and f"{name}.{wanted.name}" not in DEFAULTS:
            assert mine.default == wanted.default and type(mine.default) is type(wanted.default)
    extra = set(named) - {p.name for p in theirs}
    assert all(named[n].default is not inspect.Parameter.empty for n in extra)


def test_f1_keywords_of_the_standard_work():
    x = hl.arange(6)
    assert hl.reshape(x, shape=(2, 3)).shape == hl.reshape(x, (2, 3), copy=True).shape == (2, 3)
    assert x.reshape(2, 3).shape == x.reshape((2, 3)).shape == x.reshape(shape=(2, 3)).shape == (2, 3)
    assert hl.expand_dims(x, axis=0).shape == hl.expand_dims(x, (0,)).shape == (1, 6)
    assert hl.broadcast_to(x, shape=(2, 6)).shape == (2, 6) and hl.permute_dims(hl.ones((2, 3)), axes=(1, 0)).shape == (
        3,
        2,
    )
    assert hl.take(x, hl.asarray([1]), axis=None).tolist() == [1]
    assert hl.isdtype(dtype=hl.int8, kind="integral") and hl.squeeze(hl.ones((1, 2)), axis=0).shape == (2,)
    for shape in (np.array([2, 3]), hl.asarray([2, 3]), [2, 3], range(2, 4), (np.int64(2), hl.asarray(3))):
        assert hl.zeros(shape).shape == hl.reshape(x, shape).shape == (2, 3)
    assert hl.zeros(np.int64(2)).shape == hl.zeros(hl.asarray(2)).shape == (2,)


def test_f1_the_inspection_of_the_namespace():
    info = hl.__array_namespace_info__()
    assert info.devices() == ("cpu",) and isinstance(info.devices(), tuple)
    assert info.default_device() == "cpu" and len(info.dtypes()) == len(info.dtypes(device="cpu")) == 13
    with pytest.raises(ValueError, match="write 'cpu'"):
        info.dtypes(device="cuda")


# ---- F5: names, docstrings, stubs -------------------------------------------------------------------------------


def run(*command, **options):
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, **options)
    assert done.returncode == 0, f"{done.stdout[-6000:]}\n{done.stderr[-3000:]}"
    return done.stdout


def test_f5_import_star_shadows_nothing():
    scope = {}
    exec("from hyalite import *", scope)  # noqa: S102
    brought = set(scope) - {"__builtins__"}
    assert not brought & set(dir(builtins)) and not any(n.startswith("_") for n in brought)
    public = {n for n in dir(hl) if not n.startswith("_")}
    of_python = {"abs", "all", "any", "bool", "compile", "divmod", "eval", "max", "min", "pow", "round", "sum"}
    assert public - brought == of_python
    assert scope["explain"] is hl.explain and {"reshape", "flip", "grad", "zeros", "Tensor", "float32"} <= brought
    for name in public - brought:
        assert name in hl.__doc__


def test_f5_help_shows_the_functions_written_in_python():
    text = pydoc.plain(pydoc.render_doc(hl))
    for name in hl.__all__:
        if callable(getattr(hl, name)) and not isinstance(getattr(hl, name), type | hl.dtype):
            assert re.search(rf"\b{name}\b", text), name


def test_f5_sources_in_docstrings_are_paths_of_the_tree():
    seen = 0
    for name in hl._C._op_names():
        found = re.search(r"Source: (\S+):(\d+)\.$", getattr(hl._C_engine, name).__doc__)
        assert found, name
        lines = (ROOT / found[1]).read_text().splitlines()
        assert lines[int(found[2]) - 1].startswith("///"), found[0]
        seen += 1
    assert seen > 50


# What stubtest may say: {pattern of a name: why}.
ALLOWED = {
    r"hyalite\._.*": "modules of our own have no stubs",
    r"hyalite\.Tensor\.__buffer__": "Python shows it from 3.12 on",
    r"hyalite\.Tensor": "its mark as a disjoint base is not known to every type checker yet",
    r"hyalite\.HyaliteError\.__getattr__": "the values of an error are attributes of the instance",
    r"hyalite\.Trace\.__init__": "a trace comes from explain()",
    r"hyalite\.dtype\.__new__": "it always raises",
    r"hyalite\.Tensor\.__ipow__": "type checkers want it to take what __pow__ takes",
}


def test_f5_stubs_agree_with_run_time(tmp_path):
    stubs = tmp_path / "stubs/hyalite"  # alone: beside them mypy would check the modules too
    stubs.mkdir(parents=True)
    (stubs / "__init__.pyi").write_text((PACKAGE / "__init__.pyi").read_text())
    (tmp_path / "allowed").write_text("".join(f"{pattern}\n" for pattern in ALLOWED))
    environment = os.environ | {"MYPYPATH": str(stubs.parent), "PYTHONPATH": str(PACKAGE.parent)}
    run(sys.executable, "-m", "mypy.stubtest", "hyalite", "--concise", "--ignore-missing-stub",
        "--allowlist", tmp_path / "allowed", "--ignore-unused-allowlist", cwd=tmp_path, env=environment)  # fmt: skip


ACCEPTED = [
    "np.ones(3) + x", "x + np.ones(3)", "x + np.float32(1)", "hl.add(np.ones(3), 1)", "memoryview(x)", "np.asarray(x)",
    "x.argmax(axis=0)", "hl.argmin(x, axis=None)", "x[0]", "x[None, ..., 1:]", "x[[0, 1]]", "x[x > 0]",
    'f"{x.sum():.3f}"', "round(x)", "round(x, 2)", "list(reversed(x))", "x.__array_namespace__(api_version='2025.12')",
    "hl.reshape(x, shape=(3, 1))", "x.reshape(3, 1)", "x.reshape((3, 1))", "hl.full((2,), np.float32(3))",
    "hl.full(2, x.sum())", "hl.arange(np.int64(3))", "hl.zeros(3, dtype=float)", "hl.sum(x, axis=(0,))",
    "hl.where(x > 0, x, 0)",
    "hl.clip(x, None, 2)", "divmod(x, 2)", "hl.concat([x, x])", "hl.flip(x, axis=(0,))",
    "hl.set_printoptions(precision=3)", "hl.isdtype(hl.int8, ('bool', hl.int8))", "hl.finfo(x)",
    "hl.take(x, np.array([0]))", "hl.sum(x, dtype=hl.float64)",
    "bool(x.all())", "int(x[0])", "complex(x[0])", "hl.asarray([[1, 2], [3, 4]])", "hl.expand_dims(x, (0,))",
]  # fmt: skip
REFUSED = [
    "x + 'a'", "x + None", "hl.add(x)", "hl.add(x, 1, 2)", "hl.zeros('a')", "hl.zeros(2.0)",
    "hl.zeros(2, dtype='float32')",
    "hl.zeros(2, hl.float32)", "hl.arange('a')", "hl.eye(2.0)", "x.argmax(axis=(0, 1))", "hl.sum(x, axis='a')",
    "hl.reshape(x)", "hl.linspace(0, 1, 5.0)", "hl.isdtype('float32', 'integral')", "hl.expand_dims(x)",
    "hl.dtype('float32')", "hl.set_num_threads('a')", "hl.set_memory_limit('a')", "hl.set_printoptions(precision='a')",
    "hl.set_printoptions(widths=3)", "hl.concat(x, x)", "x.to_device(3)", "hl.flip(x, axis='a')", "hl.stack(3)",
    "x.reshape('a')", "hl.full((2,), 'a')", "hl.sum(x, axs=0)", "hl.where(x > 0, x)", "hl.softmax(x, axis=None)",
]  # fmt: skip


def check_types(lines, folder):
    """Numbers of the lines that mypy refuses."""
    (folder / "program.py").write_text(
        "import numpy as np\n\nimport hyalite as hl\n\nx = hl.ones(3)\n" + "\n".join(lines)
    )
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", "--cache-dir", folder / "cache", "program.py"],
        cwd=folder, env=os.environ | {"MYPYPATH": str(PACKAGE.parent), "PYTHONPATH": ""},
        capture_output=True, text=True,
    )  # fmt: skip
    found = {int(m[1]): m[0] for m in re.finditer(r"program\.py:(\d+): error: .*", done.stdout)}
    return {lines[n - 6]: text for n, text in found.items() if n >= 6}


def test_f5_the_type_checker_accepts_what_runs_and_refuses_what_raises(tmp_path):
    refused = check_types([*ACCEPTED, *REFUSED], tmp_path)
    assert not set(refused) & set(ACCEPTED), {k: v for k, v in refused.items() if k in ACCEPTED}
    assert not set(REFUSED) - set(refused)
    scope = {"hl": hl, "np": np}
    for line in ACCEPTED:
        exec(f"x = hl.ones(3)\n{line}", scope)  # noqa: S102
    for line in REFUSED:
        with pytest.raises((TypeError, ValueError)):
            exec(f"x = hl.ones((3, 1))\n{line}", scope)  # noqa: S102
    hl.set_printoptions(precision=8)


# ---- F6: C++ symbols --------------------------------------------------------------------------------------------


def test_f6_users_binaries_name_ops_and_hold_no_numbers(tmp_path):
    header = (BUILD / "generated/hyalite/ops.h").read_text()
    assert "detail::" not in header and not re.search(r"\bcall\w*\(\s*\d", header)
    for name in hl._C._op_names():
        assert re.search(rf"^HYALITE_API \S.* {name}\(", header, re.M), name
    (tmp_path / "user.cpp").write_text(
        "#include <hyalite/hyalite.h>\nusing namespace hyalite;\n"
        "Tensor f(const Tensor& a) { return softmax(-a * 2 + sum(exp(a)), 0) / divmod(a, a)[0]; }\n"
    )
    obj = tmp_path / "user.o"
    run(
        "g++",
        "-std=c++20",
        "-O2",
        "-c",
        "-I",
        ROOT / "include",
        "-I",
        BUILD / "generated",
        tmp_path / "user.cpp",
        "-o",
        obj,
    )
    asked = {line.split(" U ")[1] for line in run("nm", "-C", "-u", obj).splitlines() if " U hyalite::" in line}
    ops = {re.match(r"hyalite::(\w+)\(", a)[1] for a in asked if re.match(r"hyalite::(\w+)\(", a)}
    assert {"softmax", "negative", "multiply", "add", "sum", "exp", "divide", "divmod"} <= ops
    assert not any("detail::call" in a for a in asked)
    library = run("nm", "-D", "-C", "--defined-only", BUILD / "libhyalite.so")
    missing = [a for a in asked if a not in library]
    assert not missing


def test_f6_the_library_exports_a_function_for_every_op():
    library = run("nm", "-D", "-C", "--defined-only", BUILD / "libhyalite.so")
    for name in hl._C._op_names():
        assert f" T hyalite::{name}(" in library, name
    assert "hyalite::detail::call" not in library and "hyalite::slice(" not in library


# ---- F7: the script ---------------------------------------------------------------------------------------------


def test_f7_dev_python_takes_paths_as_the_caller_sees_them(tmp_path):
    (tmp_path / "relative.py").write_text(
        "import os, sys, hyalite\nprint(os.getcwd(), sys.argv[1], hyalite.ones(1).size)\n"
    )
    for folder, script in ((tmp_path, "relative.py"), (tmp_path.parent, f"{tmp_path.name}/relative.py")):
        environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
        out = run(ROOT / "dev", "python", script, "word", cwd=folder, env=environment)
        assert out.split() == [str(folder), "word", "1"]
