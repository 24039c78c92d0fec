"""What explain records, and the page it writes, opened in headless Chromium."""

import json
import re
import sys
import threading
import types
from pathlib import Path

import page_check
import pytest

import hyalite as hl

PHASES = ["Python", "Validate", "Compute", "Record", "Return"]
KINDS = {"request", "self", "guard", "return", "lazy"}


def explain(function, **options):
    return hl.explain(function, show=False, **options)


def facts_of(trace, label):
    """Facts of the first step whose label begins so."""
    return next(step for step in trace.steps if step["label"].startswith(label))["facts"]


def kernel_of(trace):
    return next(step for step in trace.steps if "kernel" in step["facts"])


@pytest.fixture(scope="module")
def operands():
    return hl.ones((359, 64)).requires_grad_(True), hl.ones(64).requires_grad_(True)


@pytest.fixture(scope="module")
def trace(operands):
    a, b = operands
    return explain(lambda: a + b)


# ---------------------------------------------------------------------------------------------------------- record


def test_steps_go_through_the_five_phases_in_order(trace):
    seen = [step["phase"] for step in trace.steps]
    assert list(dict.fromkeys(seen)) == PHASES
    assert seen == sorted(seen, key=PHASES.index)


def test_record_has_the_form_of_the_example(trace):
    # The keys of shared/mockups/trace_example.json, which fixes the form.
    record = trace.dict()
    assert record["schema"] == "hyalite-trace/1"
    assert set(record) >= {
        *("schema", "expression", "where", "result", "machine", "recorder", "total_ns", "participants", "steps")
    }
    assert record["result"] == {"shape": [359, 64], "dtype": "float32", "device": "cpu", "grad_fn": "AddBackward"}
    assert set(record["machine"]) >= {"cpu", "isa", "threads", "ceiling"}
    assert set(record["machine"]["ceiling"]) >= {"name", "gb_per_s"}
    assert set(record["recorder"]) >= {"events", "ns_per_event", "subtracted_ns"}
    assert record["recorder"]["events"] == len(record["steps"])
    for step in record["steps"]:
        assert set(step) >= {"phase", "from", "to", "kind", "label", "ns", "facts", "why"}
        assert step["kind"] in KINDS
        assert 0 <= step["from"] < len(record["participants"]) and 0 <= step["to"] < len(record["participants"])
        assert all(isinstance(value, (str, int)) for value in step["facts"].values())


def test_eight_participants_take_part(trace):
    isa = hl.about()["instruction_set"]
    names = trace.dict()["participants"]
    assert len(names) == 8
    assert set(names) >= {
        *("User", "_C_engine.add", "AddBackward", "SchemaGuard", "Backend cpu", f"Kernel {isa}", "Autograd")
    }


def test_names_the_expression_and_its_line(trace):
    assert trace.expression == "a + b"
    file, line = trace.where.rsplit(":", 1)
    assert Path(file).name == Path(__file__).name
    assert Path(__file__).read_text().splitlines()[int(line) - 1].strip() == "return explain(lambda: a + b)"


def test_says_what_the_operands_are(trace):
    assert trace.steps[0]["label"] == "__add__"
    facts = trace.steps[0]["facts"]
    assert facts["a"] == "float32 (359, 64) cpu, requires grad"
    assert facts["b"] == "float32 (64,) cpu, requires grad"


def test_a_number_is_a_weak_scalar(operands):
    trace = explain(lambda: operands[0] + 2.5)
    assert trace.steps[0]["facts"]["b"] == "float 2.5, a weak scalar"
    assert "weak scalar takes the tensor's dtype" in trace.steps[1]["why"]


@pytest.mark.parametrize(
    ("call", "label"),
    [
        (lambda x: x * 2, "__mul__"),
        (lambda x: 2 - x, "__rsub__"),
        (lambda x: -x, "__neg__"),
        (lambda x: x @ x.mT, "__matmul__"),
        (lambda x: x <= x, "__le__"),
    ],
)
def test_names_the_slot_that_python_called(call, label):
    x = hl.ones((2, 2))
    assert label in [step["label"] for step in explain(lambda: call(x)).steps]


def test_says_how_dtypes_were_aligned(trace):
    assert facts_of(trace, "unwrap_or_scalar, maybe_promote")["promotion"] == "none"
    x, y = hl.ones(3, dtype=hl.bfloat16), hl.ones(3)
    promoted = explain(lambda: x + y)
    step = next(s for s in promoted.steps if s["label"] == "unwrap_or_scalar, maybe_promote")
    assert step["facts"]["promotion"] == "to float32"
    assert "bfloat16 with float32" in step["why"]
    assert {op["name"] for op in promoted.ops} == {"add", "astype"}


def test_says_what_the_guard_checked(trace):
    facts = facts_of(trace, "dtype, device, shape")
    assert facts["dtype"] == "float32 = float32"
    assert facts["device"] == "cpu = cpu"
    assert facts["shape"] == "(359, 64) with (64,) gives (359, 64); x2 has stride 0 on axis 0"


def test_says_the_effective_dtype_and_why(trace):
    step = next(s for s in trace.steps if s["label"].startswith("effective dtype"))
    assert step["label"] == "effective dtype float32"
    assert step["facts"]["autocast"] == "off"
    assert step["facts"]["deterministic"]
    assert "AMP policy of add" in step["why"]


def test_says_which_backend_and_why(trace):
    assert facts_of(trace, "for_device(cpu)")["backends"] == "cpu"


def test_says_where_the_output_comes_from(trace):
    facts = facts_of(trace, "output from the pool")
    assert facts["bytes"] == f"{359 * 64 * 4} bytes"
    assert facts["pool"].split(",")[0] in ("hit", "miss")


def test_an_empty_pool_is_missed_then_hit():
    x = hl.ones(2**22)

    def pool(**options):
        return facts_of(explain(lambda: x + 1, **options), "output from the pool")["pool"].split(",")[0]

    hl.trim_memory()
    assert pool(once=True) == "miss"
    assert pool(once=True) == "hit"


def test_says_how_the_kernel_ran(trace):
    step = kernel_of(trace)
    facts = step["facts"]
    isa = hl.about()["instruction_set"]
    assert facts["kernel"] == f"add<float32> {isa}"
    assert facts["loop"] == "contiguous with broadcast"
    assert facts["stores"] == "cached"
    assert facts["threads"] == 1
    assert isa in step["why"]
    least = 4 * (359 * 64 + 64 + 359 * 64)
    assert step["bytes_moved"] == step["bytes_least"] == least


@pytest.mark.parametrize(
    ("call", "loop"),
    [
        (lambda x: x + x, "one call of the kernel"),
        (lambda x: hl.concat([x, x]) + hl.concat([x, x]), "contiguous"),
        (lambda x: x[::2] + x[::2], "strided"),
        (lambda x: x[::-1] + x, "strided"),
        (lambda x: x + 1, "calls of the kernel, a piece each"),
        (lambda x: hl.reshape(x, (64, 64)) + x[:64], "contiguous with broadcast"),
        (lambda x: x[:64] + x[:1], "one call of the kernel"),
    ],
)
def test_names_the_shape_of_the_loop(call, loop):
    x = hl.ones(4096)
    assert facts_of(explain(lambda: call(x)), "add_float32")["loop"] == loop


def test_large_outputs_are_streamed_by_all_threads():
    x = hl.ones(2**26)
    facts = kernel_of(explain(lambda: x + x, once=True))["facts"]
    assert facts["stores"].startswith("streaming")
    assert facts["threads"] == hl.get_num_threads()


def test_names_the_kernel_source(trace):
    source = kernel_of(trace)["source"]
    assert source["file"] == "src/ops/arithmetic.h"
    written = (Path(__file__).resolve().parents[2] / source["file"]).read_text().splitlines()
    assert "formula" in written[source["line"] - 1]
    assert source["text"].splitlines()[source["line"] - source["first_line"]] == written[source["line"] - 1]


def test_says_what_was_recorded_or_why_not(trace):
    step = next(s for s in trace.steps if s["phase"] == "Record")
    assert step["label"] == "AddBackward node"
    assert step["facts"]["next_edges"] == "AccumulateGrad, AccumulateGrad"
    assert step["facts"]["saved"].startswith("nothing")
    x = hl.ones(3)
    step = next(s for s in explain(lambda: x + x).steps if s["phase"] == "Record")
    assert step["label"] == "no node"
    assert step["why"] == "no operand requires grad"


def test_times_are_there_and_add_up(trace):
    record = trace.dict()
    assert all(step["ns"] >= 0 for step in record["steps"])
    assert record["total_ns"] > 0
    assert record["recorder"]["runs"] > 1


# ---------------------------------------------------------------------------------------------------- ways to explain


def test_text_shows_every_phase_and_step(trace):
    text = trace.text(width=160)
    assert text == trace.text(160)
    for word in PHASES:
        assert re.search(rf"^{word}\b", text, re.MULTILINE)
    squeezed = " ".join(text.split())
    for step in trace.steps:
        assert step["label"] in squeezed
    assert all(len(line) <= 160 for line in text.splitlines())
    assert "\x1b" not in text


def test_prints_unless_told_not_to(operands, capsys):
    a, b = operands
    printed = hl.explain(lambda: a + b)
    out = capsys.readouterr().out
    assert all(phase in out for phase in PHASES)
    assert printed.steps
    hl.explain(lambda: a + b, show=False)
    assert capsys.readouterr().out == ""


def test_with_block_records_its_one_run(operands, capsys):
    a, b = operands
    with hl.explain() as trace:
        c = a + b
    assert c.shape == (359, 64)
    assert list(dict.fromkeys(step["phase"] for step in trace.steps)) == PHASES
    assert trace.expression == "c = a + b"
    assert trace.dict()["recorder"]["runs"] == 1
    assert "Validate" in capsys.readouterr().out


def test_trace_of_an_open_block_is_not_ready(operands):
    with pytest.raises(ValueError, match="complete only when"), hl.explain(show=False) as trace:
        trace.text()


def test_in_place_writes_run_once():
    x, calls = hl.zeros(3), []

    def write():
        calls.append(1)
        x.__iadd__(1)

    trace = explain(write)
    assert len(calls) == 1
    assert x.tolist() == [1, 1, 1]
    assert trace.steps[0]["label"] == "__iadd__"
    assert facts_of(trace, "dtype, device, shape")["in place"]
    assert trace.dict()["recorder"]["calls"] == 1


def test_assignment_runs_once():
    x, calls = hl.zeros(3), []

    def write():
        calls.append(1)
        x[0] = x[0] + 5

    explain(write)
    assert len(calls) == 1
    assert x.tolist() == [5, 0, 0]


def test_backward_runs_once():
    w, calls = hl.ones(3).requires_grad_(True), []

    def go():
        calls.append(1)
        (w * w).sum().backward()

    trace = explain(go)
    assert len(calls) == 1
    assert w.grad.tolist() == [2, 2, 2]
    assert {"multiply", "sum"} <= {op["name"] for op in trace.ops}


def test_once_is_once(operands):
    calls = []
    explain(lambda: calls.append(operands[0] + 1), once=True)
    assert len(calls) == 1


def test_a_pure_function_runs_again_for_its_times(operands):
    a, b = operands
    assert explain(lambda: a + b, runs=5).dict()["recorder"]["calls"] > 5


@pytest.mark.parametrize("error", [hl.ShapeMismatch, ZeroDivisionError, KeyboardInterrupt])
def test_exceptions_pass_through_and_end_the_recording(error):
    calls = []

    def fail():
        calls.append(hl.ones(3) + 1)
        if error is hl.ShapeMismatch:
            return hl.ones(3) + hl.ones(4)
        raise error()

    with pytest.raises(error):
        explain(fail)
    assert len(calls) == 1
    with pytest.raises(error), hl.explain(show=False) as trace:
        fail()
    assert trace.steps[0]["phase"] in PHASES
    # Nothing of what follows lands in a trace, and the next one is whole.
    steps = len(trace.steps)
    hl.ones(3) + 1
    assert len(trace.steps) == steps
    x = hl.ones(3)
    assert list(dict.fromkeys(step["phase"] for step in explain(lambda: x + x).steps)) == PHASES


def test_another_thread_is_not_recorded(operands):
    a, b = operands
    with hl.explain(show=False) as trace:
        other = threading.Thread(target=lambda: a + b)
        other.start()
        other.join()
        a * 2
    assert [op["name"] for op in trace.ops] == ["multiply"]


def test_explaining_a_result_says_what_to_write(operands):
    with pytest.raises(TypeError, match=r"write explain\(lambda"):
        hl.explain(operands[0])


# ------------------------------------------------------------------------------------------------------------- files


@pytest.mark.parametrize("ending", ["html", "svg", "json", "mmd", "txt", "trace.json"])
def test_saves_by_ending(trace, tmp_path, ending):
    path = trace.save(tmp_path / f"a_plus_b.{ending}")
    text = path.read_text()
    assert "AddBackward" in text
    if ending == "json":
        assert json.loads(text) == trace.dict()
    if ending == "trace.json":
        names = {event["name"] for event in json.loads(text)["traceEvents"]}
        assert {step["label"] for step in trace.steps} <= names


def test_an_unknown_ending_names_the_known_ones(trace, tmp_path):
    with pytest.raises(ValueError, match="html"):
        trace.save(tmp_path / "trace.docx")
    assert list(tmp_path.iterdir()) == []


# -------------------------------------------------------------------------------------------------------------- page

# Text of the labels, which of them lie outside the window's width, and the number of clickable steps.
LOOK = """({
  text: document.body.innerText,
  wider: document.documentElement.scrollWidth - window.innerWidth,
  title: document.title,
})"""


@pytest.mark.parametrize(("width", "height"), [(1400, 1000), (390, 844)])
@pytest.mark.parametrize("dark", [False, True])
def test_page_shows_all_participants_and_phases(trace, tmp_path, width, height, dark):
    assert page_check.find_browser(), "Chromium is needed (Debian: chromium)"
    page = trace.save(tmp_path / "a_plus_b.html")
    picture = tmp_path / "page.png"
    seen = page_check.check_page(page, width, height, picture, dark=dark, script=LOOK)
    assert seen["console"] == []
    assert seen["requests"] == []
    assert picture.stat().st_size > 20_000
    text = " ".join(seen["value"]["text"].split())
    for word in [*PHASES, *(step["label"] for step in trace.steps)]:
        assert word in text
    for name in trace.dict()["participants"]:
        # Long names break in the middle of a line.
        assert name.replace(" ", "") in text.replace(" ", "")
    assert "a + b" in seen["value"]["title"]
    assert seen["value"]["wider"] <= 0


def test_page_is_one_file_without_addresses(trace, tmp_path):
    text = trace.save(tmp_path / "a_plus_b.html").read_text()
    assert not re.search(r"""(src|href)\s*=\s*["']?(https?:)?//""", text)
    assert "@import" not in text and "fetch(" not in text


# ------------------------------------------------------------------------------------------------ terminal and notebook


CONTROLS = [chr(c) for c in (*range(0x20), 0x7F, *range(0x80, 0xA0))]


@pytest.mark.parametrize("control", CONTROLS, ids=lambda c: f"{ord(c):02x}")
def test_t13_no_control_character_of_the_source_reaches_a_terminal(control, operands):
    a, _ = operands
    native = hl._C.explain_run(lambda: a + 1, f"a{control}[31m + b", f"f{control}.py:1", False, f"x{control}y", 1)
    text = native.text(120, False)
    assert not set(text) & (set(CONTROLS) - {"\n"})
    assert "\ufffd" in text


class ZMQInteractiveShell:
    execution_count = 3


def test_t13_a_notebook_shows_the_page_once(operands, monkeypatch, capsys):
    shell, shown = ZMQInteractiveShell(), []
    ipython, display = types.ModuleType("IPython"), types.ModuleType("IPython.display")
    ipython.get_ipython = lambda: shell
    display.HTML, display.display = str, shown.append
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    monkeypatch.setitem(sys.modules, "IPython.display", display)
    a, b = operands
    trace = hl.explain(lambda: a + b)
    assert len(shown) == 1 and shown[0].startswith("<iframe")
    assert capsys.readouterr().out == ""
    assert trace._repr_html_() is None  # what the notebook asks of a cell's last value
    shell.execution_count += 1
    assert trace._repr_html_() == shown[0]
    silent = hl.explain(lambda: a + b, show=False)
    assert silent._repr_html_().startswith("<iframe") and len(shown) == 1


# ---------------------------------------------------------------------------------------------------------------- axis

UNITS = {"ns": 1, "µs": 1e3, "ms": 1e6, "s": 1e9}


def test_t6_labels_of_the_axis_say_where_they_stand(tmp_path):
    """Every mark of the linear axis, for lengths from 1 ns to 1000 s."""
    source = (Path(__file__).resolve().parents[2] / "src/explain/page_tools.js").read_text()

    def function(name):
        start = source.index(f"function {name}(")
        return source[start : source.index("\n}\n", start) + 3]

    helpers = "\n".join(re.findall(r"^const (?:significant|isNumber) = .*$", source, re.MULTILINE))
    program = f"""(() => {{
      {helpers}
      {"".join(function(name) for name in ("duration", "roundDuration", "evenMarks"))}
      const wholes = [];
      for (let power = 0; power < 12; ++power)
        for (const digits of [1, 1.01, 1.5, 1.99, 2, 2.5, 3, 3.99, 4, 4.01, 5, 6.1, 7.7, 8, 9.5, 9.996, 9.9999])
          wholes.push(digits * 10 ** power);
      return wholes.map(whole => [whole, evenMarks(whole).map(ns => [ns, roundDuration(ns)])]);
    }})()"""
    page = tmp_path / "empty.html"
    page.write_text("<!doctype html><title>axis</title>")
    seen = page_check.check_page(page, 400, 300, script=program)["value"]
    assert len(seen) == 12 * 17
    for whole, marks in seen:
        assert 1 <= len(marks) <= 5 and marks[0] == [0, "0"] and marks[-1][0] <= whole * (1 + 1e-9)
        values = []
        for ns, text in marks[1:]:
            number, unit = text.split(" ")
            assert float(number) * UNITS[unit] == pytest.approx(ns, rel=1e-9), (whole, text)
            assert number == f"{float(number):g}"
            values.append(text)
        assert len(set(values)) == len(values)


def test_t13_the_page_has_the_recorder_s_note_and_the_number_of_calls(operands, tmp_path):
    a, _ = operands
    trace = hl.explain(lambda: print(end="") or a + 1, show=False)
    seen = page_check.check_page(trace.save(tmp_path / "once.html"), 1200, 900, script=LOOK)["value"]["text"]
    text = " ".join(seen.split())
    assert "The function was called once." in text and "It uses print." in text
    a_once = hl.explain(lambda: a + 1, show=False)
    calls = a_once.dict()["recorder"]["calls"]
    seen = page_check.check_page(a_once.save(tmp_path / "often.html"), 1200, 900, script=LOOK)["value"]["text"]
    assert f"The function was called {calls:,} times." in " ".join(seen.split())
