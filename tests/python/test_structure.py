"""Guards the design: which way includes go, what leaves an object file, what a formula may say, where ops are named."""

import fnmatch
import importlib.util
import os
import pathlib
import re
import shutil
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
SRC, INCLUDE = ROOT / "src", ROOT / "include"
BUILD = pathlib.Path(importlib.util.find_spec("hyalite").origin).parents[2]  # the build whose package is under test
FLAGS = ["-std=c++20", f"-I{INCLUDE}", f"-I{SRC}", f"-I{BUILD}/generated"]


def run(*command):
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True)
    assert done.returncode == 0, f"{' '.join(map(str, command))}\n{done.stderr[-4000:]}"
    return done.stdout


def sources(*folders):
    """The C++ files in the folders, by their path from the root."""
    found = [p for folder in folders for p in (ROOT / folder).rglob("*") if p.suffix in (".h", ".cpp")]
    return sorted(p.relative_to(ROOT).as_posix() for p in found)


def without_comments(text, strings=True):
    """The text with comments, and if asked string literals, emptied; lines keep their numbers."""
    part = re.compile(r'R"(\w*)\((?:.|\n)*?\)\1"|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])+\'|//[^\n]*|/\*(?:.|\n)*?\*/')

    def kept(match):
        comment = match[0].startswith("/")
        return "\n" * match[0].count("\n") if comment or not strings else match[0]

    return part.sub(kept, text)


# ---- includes -----------------------------------------------------------------------------------------------------

# Of each part of the tree: the parts it may include, beside itself. A part below, never one above or beside.
DIRECTION = {
    "public": set(),
    "tensor": {"public"},
    "ops": {"tensor", "public"},
    "validate": {"ops", "tensor", "public"},
    "compute": {"ops", "tensor", "public"},
    "compute/cpu": {"compute/codegen", "compute/jit", "compute", "ops", "tensor", "public"},
    "compute/meta": {"compute", "ops", "tensor", "public"},
    "compute/opencl": {"compute/codegen", "compute/jit", "compute/lazy", "compute", "ops", "tensor", "public"},
    "compute/jit": {"public"},
    "compute/codegen": {"ops", "tensor", "public"},
    "compute/lazy": {"compute", "ops", "tensor", "public"},
    "compile": {"apply", "compute/lazy", "compute", "record", "ops", "tensor", "public"},
    "record": {"ops", "tensor", "public"},
    "explain": {"ops", "tensor", "public"},
    "apply": {"validate", "compute", "record", "ops", "tensor", "public"},
    "python": {"apply", "compile", "validate", "compute", "record", "ops", "tensor", "public"},
}

# What goes another way: (includer, included, why). A row that nothing needs fails the test.
EXCEPTIONS = [
    # The recorder lies inside all phases, and what it shows comes from the op list.
    ("*", "explain/recorder.h", "every phase tells the recorder what it did"),
    ("comp*", "explain/record_op.h", "a plan's run stands in a trace as an op"),
    ("compute/lazy/kernel.h", "explain/plan_graph.h", "a plan says in a trace's words what it is"),
    ("python/*", "explain/*.h", "the module shows traces, sources and ceilings to Python"),
    ("explain/ceiling.h", "compute/cpu/cpu_info.h", "ceilings are measured at the sizes of this processor's caches"),
    ("explain/trace.cpp", "compute/cpu/*.h", "a trace names the instruction set and the threads of the machine"),
    # A backend computes only what the guard has passed: Validated is the argument's type.
    ("compute/backend.h", "validate/guard.h", "Validated is the only key to a backend"),
    ("compute/backend.cpp", "compute/*/backend.h", "the array of backends names each"),
    ("compute/cpu/*", "compute/lazy/*.h", "a backend makes a kernel of a fused group"),
    ("gradient_reads.cpp", "compute/meta/backend.h", "what gradients read is found where there is no memory"),
    # A gradient is ops again, and a fused one a kernel.
    ("record/*", "apply.h", "gradients are recorded ops"),
    ("record/node.cpp", "compute/backend.h", "a node asks its backend for the fused gradient"),
    ("record/backward.cpp", "compute/blocking.h", "who waits for a leaf lets other threads run"),
    # Settings of the process that Python's functions and hooks reach.
    ("python/module.cpp", "compute/cpu/*.h", "set_num_threads, about: threads, instruction set, OpenBLAS"),
    ("python/module.cpp", "compute/codegen/registry.h", "hl.source gives generated text"),
    ("python/devices.cpp", "compute/opencl/*.h", "hl.devices says what OpenCL has"),
    ("python/compile.cpp", "compute/jit/*.h", "a compiled function says what LLVM has made"),
    ("python/hooks.cpp", "compute/cpu/threads.h", "signals and forks reach the thread pool"),
]


def part_of(path):
    """The part of the tree that an included path, or a file under src or include, belongs to."""
    if path.startswith("hyalite/"):
        return "public"
    folders = path.split("/")[:-1]
    return "/".join(folders) if folders else "apply"


def quoted_includes():
    for name in sources("src", "include"):
        inside = name.split("/", 1)[1]
        for included in re.findall(r'^\s*#\s*include\s+"([^"]+)"', (ROOT / name).read_text(), re.M):
            yield inside, included


def test_includes_go_one_way():
    needed, wrong = set(), []
    for includer, included in quoted_includes():
        source, target = part_of(includer), part_of(included)
        if source == target or target in DIRECTION[source]:
            continue
        rows = [
            i for i, (a, b, _) in enumerate(EXCEPTIONS) if fnmatch.fnmatch(includer, a) and fnmatch.fnmatch(included, b)
        ]
        needed.update(rows)
        if not rows:
            wrong.append(f"{includer} includes {included}: {source} may include {sorted(DIRECTION[source])}")
    assert not wrong, "\n".join(wrong)
    stale = [row for i, row in enumerate(EXCEPTIONS) if i not in needed]
    assert not stale, f"exceptions that nothing needs: {stale}"


def test_every_quoted_include_exists_and_is_written_from_the_root():
    roots = (SRC, INCLUDE, BUILD / "generated")
    missing = [f"{a}: {b}" for a, b in quoted_includes() if not any((root / b).is_file() for root in roots)]
    assert not missing


def test_public_headers_include_only_public_headers_and_the_standard_library():
    for name in sources("include"):
        for included in re.findall(r"^\s*#\s*include\s+(\S+)", (ROOT / name).read_text(), re.M):
            if included.startswith('"'):
                assert included.startswith('"hyalite/'), f"{name} includes {included}"
            else:
                assert re.fullmatch(r"<[a-z_]+>", included), f"{name} includes {included}"


VENDORS = re.compile(
    r"^\s*#\s*include\s*<(?:hwy/|sleef|tbb/|oneapi/|cblas|CL/|cuda|nvrtc|mlx|llvm|fftw|\w*intrin|arm_neon)"
    r"|\b(?:hwy::|HWY_|Sleef_|tbb::|(?:scipy_)?cblas_\w|clEnqueue|clCreate|cuLaunch|cuMem|nvrtc[A-Z]|_mm\d*_|__m(?:128|256|512)"
    r"|__builtin_cpu_|__builtin_ia32_)",
    re.M,
)
# It measures what the machine can do at most, which no kernel of ours may decide.
VENDORS_ELSEWHERE = {"src/explain/ceiling.cpp"}


def test_only_compute_names_an_instruction_set_or_a_vendors_api():
    found = {
        name
        for name in sources("src", "include", "tools")
        if not name.startswith("src/compute/")
        and VENDORS.search(without_comments((ROOT / name).read_text(), strings=False))
    }
    assert found == VENDORS_ELSEWHERE


# ---- who asks where memory lies -------------------------------------------------------------------------------------

# The one function by which others learn an address, after the device has done what was asked of it.
BORDER = "src/compute/backend.h"
# A backend that brings tensors of the CPU to its own memory, and back.
MOVERS = {"src/compute/opencl/backend.cpp", "src/compute/opencl/primitives.cpp"}
# Who may call it: each gives elements to, or takes them from, what is no tensor.
BORDERS = {
    "src/compile/bits_apart.cpp": "what verify compares",
    "src/tensor_api.cpp": "Tensor::data, item and from_values of the C++ interface",
    "src/python/arrow.cpp": "Arrow",
    "src/python/dlpack.cpp": "DLPack",
    "src/python/foreign.cpp": "copies of foreign memory that cannot be shared",
    "src/python/format.cpp": "texts",
    "src/python/from_python.cpp": "Python's numbers and lists",
    "src/python/members.cpp": "data_ptr",
    "src/python/pickle.cpp": "pickles",
    "src/python/to_numpy.cpp": "NumPy and buffers",
    "src/python/to_python.cpp": "Python's numbers and lists",
}


def files_that_say(pattern):
    found = re.compile(pattern)
    return {n for n in sources("src", "include") if found.search(without_comments((ROOT / n).read_text()))}


def test_only_the_backend_of_a_tensor_and_the_borders_ask_for_its_address():
    asked = {
        n for n in files_that_say(r"(?:\.|->)address\(\)") if not n.startswith(("src/compute/cpu/", "src/tensor/"))
    }
    assert asked == {BORDER, *MOVERS}
    assert files_that_say(r"\bhost_address\(") == {BORDER, *BORDERS}


def test_memory_is_made_by_backends():
    made = files_that_say(r"Storage::(?:allocate|without_memory)\(")
    assert {re.sub(r"compute/(cpu|meta)/.*", r"compute/\1", n) for n in made} == {
        *("src/compute/cpu", "src/compute/meta", "src/tensor/storage.cpp")
    }


# ---- who finds the words of a trace --------------------------------------------------------------------------------


def test_phases_give_the_recorder_facts_and_only_explain_has_words():
    told = re.compile(r"(?:\.|->)end\(\s*(?!Event::)[^)\s]")
    wrong = [
        f"{n}:{i}: {line.strip()}"
        for n in sources("src")
        if not n.startswith("src/explain/")
        for i, line in enumerate(without_comments((ROOT / n).read_text()).splitlines(), 1)
        if told.search(line)
    ]
    assert not wrong, "\n".join(wrong)
    assert files_that_say(r"\bEvent::checked\b") == {"src/explain/words.cpp", "src/validate/guard.cpp"}


# ---- what a touched formula compiles -------------------------------------------------------------------------------

FAMILIES = re.findall(r"^  (ELEMENTWISE|OTHER)\((\w+), (\w+)\)", (SRC / "ops/families.h").read_text(), re.M)


def test_each_family_is_a_header_that_ends_with_its_list():
    assert {name for _, name, _ in FAMILIES} >= {"arithmetic", "functions", "reduce"}
    for _, name, ops in FAMILIES:
        assert re.search(rf"^using {ops} =\s+OpList<", (SRC / f"ops/{name}.h").read_text(), re.M), name


def test_a_formula_is_compiled_with_its_family_only():
    """What sees a formula is compiled again when it is touched: the family's own units, and what is listed here."""
    includes = {}
    for includer, included in quoted_includes():
        includes.setdefault(includer, set()).add(included)

    def reached(name):
        seen, rest = set(), [name]
        while rest:
            found = includes.get(rest.pop(), set()) - seen
            seen |= found
            rest += found
        return seen

    formulas = {f"ops/{name}.h" for kind, name, _ in FAMILIES if kind == "ELEMENTWISE"}
    units = [name.removeprefix("src/") for name in sources("src") if name.endswith(".cpp")]
    assert {name for name in units if reached(name) & formulas} == {"compute/cpu/compare.cpp"}


def test_generated_files_are_rewritten_only_when_they_changed(tmp_path):
    made = [tmp_path / name for name in ("ops.h", "internal_ops.h", "ops.cpp")]
    run(BUILD / "generate_ops", *made)
    assert [p.read_bytes() for p in made] == [
        (BUILD / "generated" / name).read_bytes() for name in ("hyalite/ops.h", "internal_ops.h", "ops.cpp")
    ]
    for path in made:
        os.utime(path, (1, 1))
    made[2].write_text("")
    run(BUILD / "generate_ops", *made)
    assert [p.stat().st_mtime for p in made[:2]] == [1, 1]
    assert made[2].read_bytes() == (BUILD / "generated/ops.cpp").read_bytes()
    # A line number would change with each formula above it.
    assert not re.search(r"\.h:\d", made[0].read_text() + made[1].read_text())


# ---- headers alone --------------------------------------------------------------------------------------------------

PUBLIC = sorted(p.name for p in (INCLUDE / "hyalite").glob("*.h")) + ["ops.h"]


@pytest.mark.parametrize("compiler", ["g++", "clang++-14"])
@pytest.mark.parametrize("header", PUBLIC)
def test_public_headers_compile_alone(header, compiler, tmp_path):
    assert shutil.which(compiler), f"{compiler} is not installed"
    source = tmp_path / "alone.cpp"
    source.write_text(f"#include <hyalite/{header}>\n#include <hyalite/{header}>\n")
    run(
        compiler,
        "-std=c++20",
        "-Wall",
        "-Wextra",
        "-Werror",
        "-fsyntax-only",
        f"-I{INCLUDE}",
        f"-I{BUILD}/generated",
        source,
    )


# ---- what leaves an object ------------------------------------------------------------------------------------------

KERNELS = sorted((BUILD / "kernels").glob("*.o"))


def test_kernels_of_every_instruction_set_are_there():
    assert {"x86_64_v2", "avx2", "avx512"} <= {o.stem for o in KERNELS} or [o.stem for o in KERNELS] == ["neon"]


@pytest.mark.parametrize("obj", KERNELS, ids=lambda o: o.stem)
def test_only_the_entry_point_leaves_the_kernels(obj):
    """A weak symbol compiled for AVX-512 must never be what the linker picks for code that runs on less."""
    leaving = [(kind, name) for kind, name in symbols(obj) if kind != "U" and not kind.islower() or kind in "wvu"]
    # A variable of the set's own namespace is nobody else's; without optimisation some are left.
    leaving = [(kind, name) for kind, name in leaving if kind != "u" or not re.search(r"\bN_[A-Z]\w*::", name)]
    assert leaving == [("T", f"hyalite_fill_{obj.stem}")]


def symbols(path):
    for line in run("nm", "-C", path).splitlines():
        match = re.match(r"(?:[0-9a-f]+| +) (\S) (.*)", line)
        if match:
            yield match[1], match[2]


def exported(path, *options):
    """Names, demangled, of what a file defines for others with default visibility."""
    for line in run("readelf", "-sW", "-C", *options, path).splitlines():
        fields = line.split(None, 7)
        if len(fields) == 8 and fields[0].endswith(":") and fields[4] in ("GLOBAL", "WEAK", "UNIQUE"):
            if fields[5] == "DEFAULT" and fields[6] != "UND":
                yield fields[7]


def test_the_module_exports_its_entry_point_only():
    module = next((BUILD / "python/hyalite").glob("_C*.so"))
    assert sorted(set(exported(module, "--dyn-syms"))) == ["PyInit__C"]


# g++ 12 gives templates of variables default visibility in spite of -fvisibility=hidden.
VISIBLE_VARIABLES = re.compile(r"hyalite::cast_detail::differences_from<")


def test_the_library_exports_only_what_public_headers_mark():
    marked = set()
    for path in [*(ROOT / name for name in sources("include")), BUILD / "generated/hyalite/ops.h"]:
        text = without_comments(path.read_text())
        marked.update(re.findall(r"(?:class|struct) HYALITE_API (\w+)", text))
        marked.update(re.findall(r"HYALITE_API [^;{}()]*?(\w+)\(", text))
        marked.update(re.findall(r"HYALITE_ERROR\((\w+)", text))
    wrong = set()
    for name in set(exported(BUILD / "libhyalite_core.a")):
        what = re.sub(r"^(?:typeinfo name for|typeinfo for|vtable for|guard variable for|VTT for) ", "", name)
        if re.match(r"(?:\w[\w *&]*? )?(?:std|__gnu_cxx|void std)::", what) or VISIBLE_VARIABLES.match(what):
            continue
        ours = re.findall(r"\w+", re.sub(r"\(.*|<.*|\[.*", "", what))
        if not marked.intersection(ours):
            wrong.add(name)
    assert not wrong, "\n".join(sorted(wrong))


# ---- contraction ----------------------------------------------------------------------------------------------------

FUSED = re.compile(r"\b(fused_multiply_add|floor_divide|remainder)\(")


def fused_on_purpose():
    """Patterns of the demangled kernels whose formula, or gradient, asks for a fused multiply-add."""
    asked = [r"\b(?:remainder|floor_divide|fused_multiply_add)<"]  # the primitives themselves, in vec.h
    ops = []
    for header in sorted((SRC / "ops").glob("*.h")):
        for op, body in re.findall(r"^struct (\w+Backward) .*?\{\n(.*?)^\};", header.read_text(), re.M | re.S):
            name = re.search(r'\.name = "(\w+)"', body)
            ops.append((op, name and name[1], *without_comments(body).partition(" gradient(")[::2]))
    # The gradients of others are written with some ops, whose formulas are part of them.
    parts = [rf"\b{name}\(" for _, name, formula, _ in ops if name and FUSED.search(formula)]
    fused = re.compile("|".join([FUSED.pattern, *parts]))
    for op, _, formula, gradient in ops:
        for kernel, text in (("forward", formula), ("gradient", gradient)):
            if fused.search(text):
                asked.append(rf"\b{kernel}<hyalite::{op}\b")
        if fused.search(formula):
            asked.append(rf"\bhyalite::{op}::formula<")  # where it is not inlined
    return re.compile("|".join(asked))


@pytest.mark.parametrize("obj", KERNELS, ids=lambda o: o.stem)
def test_nothing_is_contracted(obj):
    """a * b + c in a formula is two roundings on every instruction set; g++ 12 would make it one by default."""
    asked, seen, unasked, function = fused_on_purpose(), set(), {}, ""
    for line in run("objdump", "-d", "-C", "--no-show-raw-insn", obj).splitlines():
        if line.endswith(">:"):
            function = line[line.index("<") + 1 : -2]
        elif match := re.search(r"\s(v?fn?m(?:add|sub)\w*|fml[as])\s", line):
            if asked.search(function):
                seen.add(function)
            else:
                unasked.setdefault(function, set()).add(match[1])
    assert not unasked, "\n".join(f"{name}: {sorted(ops)}" for name, ops in unasked.items())
    # Where the set has the instruction, the ops that ask for it have it: or this test has read nothing.
    assert bool(seen) == (obj.stem != "x86_64_v2")


# ---- formulas -------------------------------------------------------------------------------------------------------

VOCABULARIES = {
    "Vec": ("compute/cpu/vec.h", "hyalite::HWY_NAMESPACE::Vec<float>"),
    "Expr": ("compute/codegen/expr.h", "hyalite::Expr"),
    "Mark": ("ops/mark.h", "hyalite::Mark"),
}
MISUSES = [
    "x * 0.5",
    "0.5 * x",
    "x + 1.f",
    "x + tanh(0.5)",
    "tanh(0.5)",
    "select(x < 0_c, x, 0.5)",
    "maximum(x, 0.5)",
    "power(x, 2.0)",
]
CORRECT = [
    "x * 0.5_c",
    "0.5_c * x",
    "x + 1_c",
    "x + tanh(x)",
    "tanh(x * 0.5_c)",
    "select(x < 0_c, x, 0.5_c)",
    "maximum(x, 0_c)",
]


def compile_formulas(expressions, vocabulary, tmp_path):
    """Compiles ops with these formulas over one argument type, as the engine's ops are: they come before it."""
    header, argument = VOCABULARIES[vocabulary]
    ops = "".join(
        f"struct Op{i} {{\n  static auto formula(auto x) {{ return {e}; }}\n}};\n" for i, e in enumerate(expressions)
    )
    uses = "".join(
        f"{argument} use{i}({argument} x) {{ return hyalite::Op{i}::formula(x); }}\n" for i in range(len(expressions))
    )
    source = tmp_path / "formula.cpp"
    source.write_text(
        f'#include <cmath>\n#include "ops/op.h"\nnamespace hyalite {{\n{ops}}}\n#include "{header}"\n{uses}'
    )
    flags = (
        ["-mavx2", "-mfma", "-mf16c", "-mbmi", "-mbmi2", "-maes", "-mpclmul"] if os.uname().machine == "x86_64" else []
    )
    command = ["g++", *FLAGS, *flags, "-fsyntax-only", str(source)]
    return subprocess.run(command, capture_output=True, text=True, env={**os.environ, "LC_ALL": "C"})


@pytest.mark.parametrize("vocabulary", VOCABULARIES)
def test_constants_in_formulas_compile(vocabulary, tmp_path):
    done = compile_formulas(CORRECT, vocabulary, tmp_path)
    assert done.returncode == 0, done.stderr[:3000]


@pytest.mark.parametrize("vocabulary", VOCABULARIES)
@pytest.mark.parametrize("expression", MISUSES)
def test_bare_numbers_in_formulas_do_not_compile(expression, vocabulary, tmp_path):
    done = compile_formulas([expression], vocabulary, tmp_path)
    assert done.returncode != 0, f"{expression} compiles on {vocabulary}"
    errors = [line for line in done.stderr.splitlines() if "error:" in line]
    assert "formula.cpp" in errors[0], errors[0]
    assert re.search(r"double|float", errors[0]), errors[0]


# ---- one list of ops ------------------------------------------------------------------------------------------------

# String literals in src/, outside src/ops/, that are names of ops: {file: (names, why)}.
OP_NAMES_ELSEWHERE = {
    "apply.cpp": ({"add", "permute_dims"}, "sums and transposes of gradients with find_op"),
    "python/operands.cpp": ({"astype", "min", "max"}, "promotion casts with find_op; clip's bounds in an error"),
    "python/indexing.cpp": ({"astype", "where", "slice", "full"}, "indexing and assignment with find_op"),
    "python/native_functions.cpp": (None, "functions that take more than the op of their name"),
    "python/module.cpp": ({"empty", "full"}, "functions that take more than the op of their name"),
    "python/from_python.cpp": ({"astype", "reshape", "concat"}, "nested lists of tensors with find_op"),
    "python/to_numpy.cpp": ({"astype"}, "NumPy's method"),
    "python/members.cpp": ({"real", "imag", "contiguous"}, "properties and a method of Tensor"),
    "python/slots.cpp": ({"abs", "add", "divmod", "matmul", "pow"}, "Python's names of its slots, by Slot"),
    "python/node_object.cpp": ({"where"}, "property of a node: its line"),
    "python/others.cpp": ({"numbers"}, "a module of Python's"),
    "python/explain_bindings.cpp": ({"where"}, "key of the record: a line"),
    "explain/json.cpp": ({"where"}, "key of the record: a line"),
    "tensor/pool.cpp": ({"max"}, "the text of a cgroup's limit"),
    "compute/codegen/expr.h": ({"negative", "isnan", "isinf", "isfinite"}, "names of ExprOp"),
    "compute/codegen/prelude_text.h": (None, "helpers of generated kernels, by ExprOp"),
    "compute/codegen/print_c.cpp": ({"pow"}, "C's function"),
    "compute/codegen/print_llvm.cpp": (
        {"abs", "add", "ceil", "floor", "sqrt", "trunc"},
        "LLVM's instructions and intrinsics",
    ),
    "compute/codegen/registry.cpp": ({"min", "max"}, "names that C has taken"),
    "compute/cpu/primitives.cpp": (None, "the CPU's own list: an entry for each primitive"),
    "compute/opencl/primitives.cpp": (None, "OpenCL's own list: an entry for each primitive"),
    "compute/opencl/folds.cpp": ({"maximum", "minimum"}, "helpers of generated kernels"),
    "compute/opencl/backend.cpp": ({"empty"}, "in an error about a dtype"),
    "compute/cpu/elementwise.cpp": ({"pow"}, "in the errors of checks on values"),
    "record/node.cpp": ({"permute_dims"}, "a write through a view of a base in another order, with find_op"),
    "compute/cpu/indexing.cpp": (
        {"add", "take", "scatter_add", "concat"},
        "scatter_add adds with find_op; in the errors of checks on indices and axes",
    ),
    "compute/cpu/loops.h": ({"contiguous"}, "a shape of loop"),
    "compute/cpu/loops.cpp": ({"contiguous"}, "a shape of loop"),
    "compute/cpu/reduce.cpp": (
        {"sum", "prod", "mean", "max", "min", "any", "all", "argmax", "argmin"},
        "names of ReduceOp",
    ),
}


def op_names():
    text = "".join(p.read_text() for p in (SRC / "ops").glob("*.h"))
    return set(re.findall(r'\.name = "(\w+)"', text))


def test_no_op_is_named_outside_the_list():
    ops, found = op_names(), {}
    assert {"add", "exp", "sum", "reshape", "matmul"} <= ops
    for name in sources("src"):
        inside = name.split("/", 1)[1]
        if inside.startswith("ops/"):
            continue
        named = ops.intersection(re.findall(r'"(\w+)"', without_comments((ROOT / name).read_text())))
        allowed = OP_NAMES_ELSEWHERE.get(inside, (set(), ""))[0]
        if allowed is not None and named - allowed:
            found[inside] = sorted(named - allowed)
    assert not found


# ---- files ----------------------------------------------------------------------------------------------------------


def test_no_file_is_long():
    long = {}
    for folder in ("src", "include", "python", "tests", "benchmarks"):
        for path in (ROOT / folder).rglob("*"):
            if path.is_file() and path.suffix in (".h", ".cpp", ".py", ".js", ".css", ".html", ".pyi", ".cmake", ".md"):
                lines = path.read_bytes().count(b"\n")
                if lines > 800:
                    long[path.relative_to(ROOT).as_posix()] = lines
    assert not long


def test_every_source_opens_with_a_sentence():
    silent = [n for n in sources("src", "include", "tools") if not (ROOT / n).read_text().startswith("/// ")]
    assert not silent


# ---- src/README.md --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("page", ["src/README.md", "docs/lazy.md"])
def test_the_walk_names_what_is_there(page):
    """Each path exists, and each other name in backticks stands in one of the files that its line names."""
    text = (ROOT / page).read_text()
    hops = 0
    for number, line in enumerate(text.splitlines(), 1):
        quoted = re.findall(r"`([^`]+)`", line)
        paths = [q for q in quoted if "/" in q or re.search(r"\.(h|cpp|py|md)$", q)]
        files = []
        for q in paths:
            # On a line about a folder, a bare file name may be one inside it.
            places = [
                SRC / q,
                *(SRC / other / q for other in paths if other.endswith("/")),
                *(f.parent / q for f in files),
            ]
            places.append(BUILD / "generated/hyalite" / q)
            there = [p for p in places if p.exists()]
            assert there, f"{page}:{number}: {q} does not exist"
            files += [p for p in there[:1] if p.is_file()]
        if not re.match(r"\d+\. ", line):
            continue
        hops += 1
        assert files, f"{page}:{number}: a hop without a file"
        content = "\n".join(p.read_text() for p in files)
        for q in quoted:
            if q in paths or q == "a + b":
                continue
            for word in re.findall(r"\w+", q):
                assert re.search(rf"\b{re.escape(word)}\b", content), f"{page}:{number}: {q} is not in {paths}"
    assert hops >= 20


def test_the_walk_passes_the_phases_in_order():
    text = (SRC / "README.md").read_text()
    places = [text.index(f"**{phase}**") for phase in ("Python", "Validate", "Compute", "Record", "Return")]
    assert places == sorted(places)
