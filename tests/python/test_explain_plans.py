"""What explain shows of plans: kernels with their ops, texts, bytes and times, of compiled functions and of devices."""

import re

import numpy as np
import page_check
import pytest

import hyalite as hl

N = 300


def squash(x, w):
    return hl.softmax(hl.tanh(x * x + x) @ w, -1) * 2


def operands(device="cpu"):
    rng = np.random.default_rng(3)
    return [hl.asarray(rng.normal(size=(N, N)).astype(np.float32)).to(device) for _ in range(2)]


def compiled_trace(tier):
    f = hl.compile(squash, tier=tier)
    x, w = operands()
    f(x, w)
    return hl.explain(lambda: f(x, w), show=False)


def device_trace():
    x, w = operands("opencl")
    return hl.explain(lambda: print(end="") or hl.sum(squash(x, w), axis=0).to("cpu"), show=False)


TRACES = {"tier 0": lambda: compiled_trace(0), "tier 1": lambda: compiled_trace(1), "opencl": device_trace}


@pytest.fixture(scope="module", params=TRACES)
def named(request):
    return request.param, TRACES[request.param]()


def plan_steps(record, kernel):
    return [s for s in record["steps"] if s.get("plan") == 0 and s["plan_kernel"] == kernel]


def test_a_plan_is_a_graph_of_ops_in_kernels(named):
    way, trace = named
    record = trace.dict()
    (plan,) = record["plans"]
    nodes, kernels = plan["nodes"], plan["kernels"]
    ops = [n["name"] for n in nodes if "kernel" in n]
    assert [o for o in ops if o not in ("sum", "full", "copy")] == [
        "multiply", "add", "tanh", "matmul", "max", "subtract", "exp", "divide", "multiply",
    ]  # fmt: skip
    for i, node in enumerate(nodes):
        assert all(f < i for f in node["from"])
        assert re.fullmatch(r"float32 \(.*\)", node["makes"])
        assert ("kernel" not in node) or 0 <= node["kernel"] < len(kernels)
        assert ("kernel" not in node) or __file__.split("/")[-1] in node["where"]
    assert sum("given" in n for n in nodes) == 1 and "given" in nodes[-1]
    memory = [n["name"] for n in nodes if "kernel" not in n]
    assert memory == (["input", "input"] if way == "opencl" else ["x", "w"])
    assert len(kernels) == (3 if way != "opencl" else len({n["kernel"] for n in nodes if "kernel" in n}))
    assert all(k["reason"] for k in kernels)


def test_bytes_are_those_that_kernels_move_and_those_nobody_can_spare(named):
    way, trace = named
    (plan,) = trace.dict()["plans"]
    least = 2 * 4 * N * N + (4 * N if way == "opencl" else 4 * N * N)
    assert plan["bytes_least"] == least
    assert plan["bytes_moved"] == sum(k["bytes_read"] + k["bytes_written"] for k in plan["kernels"])
    if way != "opencl":
        # In: x, then tanh's and w, then matmul's; out: each kernel's.
        assert plan["bytes_moved"] == 4 * N * N * (4 + 3) and plan["temporary_bytes"] == 2 * 4 * N * N


def test_each_kernel_has_steps_times_and_texts(named):
    way, trace = named
    record = trace.dict()
    (plan,) = record["plans"]
    for i, kernel in enumerate(plan["kernels"]):
        steps = plan_steps(record, i)
        assert steps, kernel["name"]
        assert all(s["ns"] is not None for s in steps)
        if not kernel["fused"]:
            continue
        for name in kernel["name"].split(", "):
            assert f"= {name}(" in kernel["source"]
        (ran,) = [s for s in steps if "kernel" in s["facts"]]
        assert ran["bytes_moved"] >= ran["bytes_least"] == kernel["bytes_read"] + kernel["bytes_written"]
        if way == "tier 0":
            assert kernel["tier"] == 0 and kernel["why_tier"] == "tier 0 was asked for" and "generated" not in kernel
        elif way == "tier 1":
            assert kernel["language"] == "llvm" and "define void" in kernel["generated"]
            assert "ret" in kernel["assembly"] and kernel["functions"] >= 1 and kernel["compile_ns"] > 0
        else:
            assert kernel["language"] == "opencl" and "__kernel void" in kernel["generated"]


def test_a_device_says_how_each_kernel_was_asked_for_and_how_long_it_took_there():
    record = device_trace().dict()
    launches = [launch for s in record["steps"] for launch in s.get("launches", [])]
    assert len(launches) >= len(record["plans"][0]["kernels"])
    for launch in launches:
        assert launch["items"] > 0 and launch["device_ns"] >= 0
        if launch["name"] == "CLBlastSgemm":
            assert "text" not in launch
        else:
            assert f"__kernel void {launch['name']}(" in record["texts"][launch["text"]]
    for s in record["steps"]:
        assert ("device_ns" in s) == ("launches" in s)
        if "launches" in s:
            assert s["device_ns"] == pytest.approx(sum(launch["device_ns"] for launch in s["launches"]), abs=1)
            assert re.match(r"known|kept with its plan|(compiled|read from disk) in \d+ ms", s["facts"]["kernel"])


def test_a_node_says_what_waits_and_which_line_holds_it():
    hl.synchronize("opencl")
    x, _ = operands("opencl")
    kept = x + 1.0
    record = hl.explain(lambda: print(end="") or x * 2.0, show=False).dict()
    (node,) = [s for s in record["steps"] if s["label"] == "a node: multiply"]
    assert node["facts"]["bytes that wait"] >= 2 * 4 * N * N
    assert "test_explain_plans.py" in node["facts"]["most bytes wait since"]
    assert kept.shape == (N, N)


def test_text_says_what_a_plan_is_and_why_its_kernels_are_apart(named):
    text = " ".join(named[1].text(200).split())
    assert "Plan: " in text and "least possible" in text
    why = "it is no op that fuses" if named[0] == "opencl" else "a product needs all of its operands first"
    assert f"kernel 2, matmul: {why}" in text


# What the page has drawn of a plan, and what opens behind its first kernel that has an op fused.
OPEN = """(() => {
  const boxes = [...document.querySelectorAll('.kernel-box')];
  boxes[0].dispatchEvent(new MouseEvent('click', {bubbles: true}));
  return {boxes: boxes.map(box => box.textContent), dialog: document.querySelector('dialog[open]').innerText,
          text: document.body.innerText, wider: document.documentElement.scrollWidth - window.innerWidth,
          outside: boxes.filter(box => { const all = box.querySelector('rect').getBoundingClientRect();
            return [...box.querySelectorAll('g rect')].map(inner => inner.getBoundingClientRect()).some(r =>
              r.left < all.left || r.right > all.right || r.top < all.top || r.bottom > all.bottom); }).length};
})()"""


@pytest.mark.parametrize(("width", "height"), [(1400, 1000), (390, 844)])
def test_page_draws_the_plan_and_a_kernel_opens_to_its_texts(named, tmp_path, width, height):
    way, trace = named
    seen = page_check.check_page(trace.save(tmp_path / "plan.html"), width, height, script=OPEN)
    assert seen["console"] == [] and seen["requests"] == []
    value = seen["value"]
    record = trace.dict()
    assert len(value["boxes"]) == len(record["plans"][0]["kernels"])
    for node in record["plans"][0]["nodes"]:
        if "kernel" in node:
            assert node["name"] in value["boxes"][node["kernel"]]
    assert value["outside"] == 0 and value["wider"] <= 0
    wanted = {"tier 0": ["Ops", "= tanh("], "tier 1": ["LLVM", "define void", "Machine code"], "opencl": ["__kernel"]}
    for text in wanted[way]:
        assert text in value["dialog"]


def test_a_plan_of_very_many_ops_is_drawn_by_its_kernels(tmp_path):
    def long(x):
        for i in range(200):
            x = hl.tanh(x * 1.01 + i)
        return x

    f = hl.compile(long)
    x = hl.ones(1000)
    f(x)
    trace = hl.explain(lambda: f(x), show=False)
    seen = page_check.check_page(trace.save(tmp_path / "long.html"), 1400, 1000, script=OPEN)
    assert seen["console"] == [] and len(seen["value"]["boxes"]) == len(trace.dict()["plans"][0]["kernels"]) > 3


def test_a_function_says_after_how_many_calls_it_has_paid_for_itself():
    x, w = operands()
    f = hl.compile(squash)
    text = f.explain(x, w)
    assert re.search(r"a call takes [\d.]+ (s|ms|µs), its ops one by one [\d.]+ (s|ms|µs)", text)
    assert re.search(r"it pays after call \d+|it does not pay", text)
    assert f.cache()["traces"] == 1 and f.plan().calls == 0 and f.plan().ready_seconds > 0
    f(x, w)
    assert f.plan().calls == 1
    with pytest.raises(hl.Unsupported, match=r"explain\(\): a tensor is on a device that computes later"):
        f.explain(*operands("opencl"))


def test_measuring_writes_nothing_and_does_not_run_the_function_again():
    runs = []

    @hl.compile
    def step(p, g):
        runs.append(1)
        p -= 0.1 * g
        return hl.sum(p)

    p, g = operands()
    before = p.numpy().copy()
    step.explain(p, g)
    assert len(runs) == 1 and (p.numpy() == before).all()


def test_the_gradient_of_a_compiled_call_has_a_plan_too():
    f = hl.compile(lambda x: hl.sum(hl.tanh(x) * x))
    x = hl.ones(1000)
    x.requires_grad = True
    f(x).backward()
    with hl.explain(show=False) as trace:
        f(x).backward()
    record = trace.dict()
    forward, backward = (p["name"] for p in record["plans"])
    assert forward.endswith("<lambda>") and backward == "backward of a compiled function"
    for number in (0, 1):
        assert any(s.get("plan") == number and s["ns"] is not None for s in record["steps"])


def test_an_exception_ends_the_plan_in_the_trace():
    f = hl.compile(lambda x, i: hl.take(x * 2.0, i, axis=0) + 1.0)
    x = hl.arange(5, dtype=hl.float32)
    f(x, hl.asarray([1, 2]))
    with pytest.raises(IndexError), hl.explain(show=False) as trace:
        f(x, hl.asarray([1, 7]))
    record = trace.dict()
    assert len(record["plans"]) == 1
    with hl.explain(show=False) as trace:
        x + 1.0
    assert not any("plan" in s for s in trace.steps)
