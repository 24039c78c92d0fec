"""A traced call takes the route of the untraced one, and says only what the code on that route counted."""

import pathlib
import re
import sys

import numpy as np
import pytest
from op_oracle import OPS, OTHERS, REDUCTIONS, accepted, calls

import hyalite as hl

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "benchmarks"))
import counts  # noqa: E402


def explain(function, **options):
    return hl.explain(function, show=False, **options)


def kernels_of(trace):
    return [step for step in trace.steps if "kernel" in step["facts"]]


def kernel_of(trace):
    (step,) = kernels_of(trace)
    return step


# ---- T1: the route ------------------------------------------------------------------------------------------------

# Each takes another way through the slots, the guard or the backend.
STATEMENTS = {
    "small": "a + b",
    "number": "a + 1.5",
    "broadcast": "m + a",
    "promoted": "a * h",
    "unary": "-a",
    "recorded": "w + b",
    "in place": "c += b",
    "in place on a view": "v *= 2.0",
    "two outputs": "divmod(a, b)",
    "comparison of dtypes": "a < i",
    "powers of integers": "i ** i",
    "reduction": "m.sum()",
    "cast": "a.astype(hl.float64)",
    "view": "m.T",
    "copying reshape": "m.T.reshape(-1)",
    "product": "m @ m",
    "function": "hl.add(a, b)",
}

PROGRAM = """\
import contextlib, gc, itertools, sys
import hyalite as hl
def work(count, traced):
    a, b, c, h = hl.ones(8), hl.ones(8), hl.zeros(8), hl.ones(8, dtype=hl.bfloat16)
    m, i, w = hl.ones((8, 8)), hl.asarray([1, 2, 3, 4, 1, 2, 3, 4]), hl.ones(8).requires_grad_(True)
    v = hl.zeros((8, 8))[:, 2:5]
    with hl.explain(show=False) if traced else contextlib.nullcontext():
        for _ in itertools.repeat(None, count):
{statements}
gc.disable()
work(int(sys.argv[1]), {traced})
"""
# What belongs to the trace: the recorder, and the functions that put its facts into words out of line.
TRACING = re.compile(
    r"Recorder|Span|Heard|Said|describe|report|run_unusual|is_tensor|tell_|traced|slot_name|door_of|least_bytes|bytes_in_memory|extent\(|share_memory"
    r"|same_place|to_string|bytes_of_pass|reach_of|instruction_set|transposes\(|blas\(\)|saved_text|backend_names|apply_recorded|name\(|threads_text"
)
# Functions that both run, and that tell the recorder between their own instructions.
TELLS = re.compile(
    r"::(call_op|call_plainly|result_of|run_again|vectorcall|binary|unary|apply|cpu::run|matmul|in_place)\("
)
ROUTE = re.compile(r"hyalite::(cpu|python|N_\w+|SchemaGuard|TensorImpl|Storage|pool|apply|broadcast|record)")


def route_of(traced, statements):
    lines = "".join(f"            {line}\n" for line in statements)
    found = counts.callgrind_functions(PROGRAM.format(statements=lines, traced=traced), n=50)
    return {name: count for name, count in found.items() if ROUTE.search(name) and not TRACING.search(name)}


@pytest.mark.plain
def test_t1_traced_calls_take_the_untraced_route():
    """The same functions, called as often, with as many instructions, but for those that tell the recorder."""
    plain, traced = (route_of(traced, STATEMENTS.values()) for traced in (False, True))
    kernels = {name for name in plain if "hyalite::N_" in name}
    assert kernels and kernels == {name for name in traced if "hyalite::N_" in name}
    for name in kernels:
        assert traced[name] == pytest.approx(plain[name], rel=0.03), name
    shared = plain.keys() & traced.keys()
    assert len(shared) > 20
    # Of a release the compiler inlines the first step, and calls the rest where it likes.
    called = [n for n in shared if "release(" not in n]
    other = {n: (plain[n], traced[n]) for n in called if traced[n][0] != pytest.approx(plain[n][0], rel=0.02)}
    assert other == {}
    silent = [n for n in shared if not TELLS.search(n)]
    assert sum(traced[n][1] for n in silent) == pytest.approx(sum(plain[n][1] for n in silent), rel=0.03)
    # Destructors and cold paths stand out of line where the compiler likes.
    extra = {
        name for name in traced.keys() - plain.keys() if not re.search(r"~|release\(|\.cold|destroy|std::copy_n", name)
    }
    assert {name for name in extra if traced[name][0] >= 1} == set()


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int32"])
@pytest.mark.parametrize(
    "door, power", [("__pow__", lambda a: a**2), ("__pow__", lambda a: a**2.0), ("hl.pow", lambda a: hl.pow(a, 2))]
)
def test_t1_an_op_that_is_another_of_some_operands_is_shown_as_what_runs(door, power, dtype):
    a = hl.ones(8, dtype=getattr(hl, dtype))
    trace = explain(lambda: power(a))
    ran = trace.ops[-1]["name"]
    participants = trace.dict()["participants"]
    if len(trace.ops) == 1:  # else the front end's part is of several doors
        assert participants[1] == door and f"_C_engine.{ran}" in participants
    labels = {step["label"] for step in trace.steps}
    assert labels & {"pow(a, b)", "square(a)"} <= {"square(a)" if ran == "square" else "pow(a, b)"}
    if dtype != "int32":
        assert len(trace.ops) == 1 and ran == "square"


def test_t1_a_small_sum_is_one_call_of_its_kernel():
    a, b = hl.ones(8), hl.ones(8)
    trace = explain(lambda: a + b)
    assert kernel_of(trace)["facts"]["loop"] == "one call of the kernel"
    promote = next(s for s in trace.steps if s["label"] == "unwrap_or_scalar, maybe_promote")
    assert promote["facts"]["promotion"] == "none" and promote["why"].endswith("nothing to align")


def test_t1_what_is_around_the_kernel_is_no_more_than_the_whole():
    a, b = hl.ones(8), hl.ones(8)
    record = explain(lambda: a + b).dict()
    assert record.get("around_ns", 0) <= record["total_ns"]


# ---- T3, T4: what no code counted is absent -------------------------------------------------------------------------

LOOP_FACTS = {"loop", "operands", "stores", "rows"}


@pytest.mark.parametrize("op", REDUCTIONS + ["matmul", "take", "concat"])
def test_t3_what_reports_no_loop_has_no_facts_of_one(op):
    name = "float32" if "float32" in accepted(op) else accepted(op)[0]
    for shapes, call, _ in calls(op):
        operands = [hl.asarray(np.ones(shape)).astype(getattr(hl, name)) for shape in shapes]
        trace = explain(lambda: call(*operands), once=True)  # noqa: B023
        step = [s for s in kernels_of(trace) if s["label"].startswith(op)][-1]
        assert not LOOP_FACTS & step["facts"].keys()
        for key in ("bytes_moved", "bytes_least", "gb_per_s", "ceiling"):
            assert key not in step
        assert not {"bytes moved", "bandwidth", "ceiling", "limited by"} & step["facts"].keys()


@pytest.mark.parametrize("op", list(OPS))
def test_t3_no_step_states_a_number_of_copies_that_it_did_not_count(op):
    name = "float32" if "float32" in accepted(op) else accepted(op)[0]
    cases = calls(op) if op in REDUCTIONS + OTHERS else [([(3, 4)] * OPS[op]["arity"], getattr(hl, op), None)]
    for shapes, call, _ in cases:
        operands = [hl.asarray(np.ones(shape)).astype(getattr(hl, name)) for shape in shapes]
        if op == "where":
            operands[0] = operands[0].astype(hl.bool)
        trace = explain(lambda: call(*operands), once=True)  # noqa: B023
        for step in trace.steps:
            assert ("copies" in step["facts"]) == ("copies" in step) == ("copied_bytes" in step)
            if "copies" in step:
                assert step["copies"] > 0 and "cop" in step["label"]


# By name: the call, and the bytes that a reading of it by hand gives; None where nobody can count them yet.
N = 1 << 16
X, Y, M = hl.ones(N), hl.ones(N), hl.ones((256, 256))
COUNTED = {
    "two vectors": (lambda: X + Y, 3 * 4 * N),
    "the same twice": (lambda: X + X, 2 * 4 * N),
    "a number": (lambda: X * 2.5, 2 * 4 * N),
    "a row": (lambda: M + M[0].copy(), 4 * (2 * 256 * 256 + 256)),
    "a column": (lambda: M + M[:, :1].copy(), 4 * (2 * 256 * 256 + 256)),
    "a cast": (lambda: X.astype(hl.float64), 12 * N),
    "of 16 bits": (lambda: X.astype(hl.bfloat16) * 2.0, 2 * 2 * N),
    "small": (lambda: X[:8].copy() + Y[:8].copy(), 3 * 4 * 8),
    "every second": (lambda: X[::2] + Y[::2], None),
    "backwards": (lambda: X[::-1] + Y, None),
    "overlapping": (lambda: X[1:] + X[:-1], None),
    "transposed": (lambda: M.T + M, None),
    "a copy of a transpose": (lambda: hl.contiguous(M.T), None),
    "a long row, again and again": (lambda: hl.ones((4, N)) + X, None),
}


@pytest.mark.parametrize("name", COUNTED)
def test_t3_bytes_are_those_that_were_counted_or_absent(name):
    call, expected = COUNTED[name]
    trace = explain(call, once=True)
    step = kernels_of(trace)[-1]
    assert step.get("bytes_moved") == expected
    assert ("bytes moved" in step["facts"]) == (expected is not None)
    if expected is None:
        assert not {"bytes_least", "gb_per_s", "ceiling"} & step.keys()
        assert not {"bandwidth", "ceiling", "limited by"} & step["facts"].keys()
        assert "GB/s" not in trace.text(300)
        assert "ceiling" not in trace.dict()["machine"]


def test_t3_a_copying_reshape_says_that_it_copies_and_how_much():
    step = next(s for s in explain(lambda: M.T.reshape(-1)).steps if s["label"].startswith("copy, then view"))
    assert step["copies"] == 1 and step["copied_bytes"] == 4 * 256 * 256
    assert step["facts"]["copies"] == "1, 262 kB written"
    assert "copied" in step["why"]
    for step in explain(lambda: M.reshape(-1)).steps:
        assert "copies" not in step


COPIES = {
    "take of a transpose": (lambda: hl.take(M.T, hl.asarray([0])), 1, 4 * 256 * 256),
    "product in 16 bits": (lambda: M.astype(hl.bfloat16) @ M.astype(hl.bfloat16), 2, (4 + 4) * 256 * 256),
    "product of every second": (lambda: M[::2, ::2] @ M[::2, ::2], 2, 2 * 4 * 128 * 128),
    "product of transposes": (lambda: M.T @ M.T, 0, 0),
}


@pytest.mark.parametrize("name", COPIES)
def test_t3_hidden_copies_are_counted_where_they_are_made(name):
    call, copies, written = COPIES[name]
    step = kernels_of(explain(call, once=True))[-1]
    assert step.get("copies", 0) == copies
    assert step.get("copied_bytes", 0) == written


def test_t3_an_overlapping_write_counts_the_copy_that_it_needs():
    x = hl.ones(N)

    def shift():
        x[1:] += x[:-1]

    step = next(s for s in kernels_of(explain(shift)) if s["label"].startswith("add"))
    assert step["copies"] == 1 and step["copied_bytes"] == 4 * (N - 1)
    # The copy reads and writes, then the sum reads two and writes one.
    assert step["bytes_moved"] == 5 * 4 * (N - 1)


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "complex128", "bfloat16", "int32"])
def test_t4_a_product_names_what_computed_it_and_counts_its_arithmetic(dtype):
    a = hl.ones((64, 32)).astype(getattr(hl, dtype))
    b = hl.ones((32, 16)).astype(getattr(hl, dtype))
    trace = explain(lambda: a @ b)
    step = kernel_of(trace)
    letters = {"float32": "s", "float64": "d", "complex64": "c", "complex128": "z", "bfloat16": "s"}
    if dtype == "int32":
        assert "library" not in step["facts"]
    else:
        assert step["facts"]["kernel"] == letters[dtype] + "gemm"
        assert step["facts"]["library"].startswith("OpenBLAS ")
        assert any(name.startswith("OpenBLAS") for name in trace.dict()["participants"])
    assert step["operations"] == (8 if dtype.startswith("complex") else 2) * 64 * 32 * 16
    assert "GB/s" not in trace.text(300) and "gb_per_s" not in step and "ceiling" not in trace.dict()["machine"]


def test_t4_each_kernel_has_the_ceiling_of_its_own_bytes():
    small, large = hl.ones(1 << 14), hl.ones(1 << 22)
    with hl.explain(show=False) as trace:
        small + small.copy()
        large + large.copy()
    first, second = (s for s in kernels_of(trace) if s["label"].startswith("add"))
    assert second["ceiling"]["name"] != first.get("ceiling", {}).get("name")
    longest = max(kernels_of(trace), key=lambda step: step["ns"])
    assert trace.dict()["machine"]["ceiling"] == longest["ceiling"]
