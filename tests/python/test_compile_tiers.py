"""Tier 1 of hl.compile: generated kernels have the bits of the eager ones, come in when it pays, and are kept."""

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from op_oracle import COMPLEX, ELEMENTWISE, FLOATS, INTEGERS, accepted, operands, samples
from test_casts import numpy_dtype
from test_compile import bits, leaves, normal, random_function, same

import hyalite as hl
from hyalite import _C


def generated(compiled):
    """Kernels of the last call that run as generated code."""
    return [s for s in compiled.plan().steps if s["fused"] and s["tier"] == 1]


def in_both(f, *args, same=same):
    """The function in tier 1, after both tiers have given the eager bits."""
    expected = f(*args)
    first, second = hl.compile(f, tier=0), hl.compile(f, tier=1)
    for compiled in (first, second):
        for _ in range(2):
            got = compiled(*args)
            assert same(got, expected), (compiled.source(), compiled.source("llvm"))
    return second


def same_but_nans(a, b):
    """The same bits, but whatever NaNs for NaNs: which of two NaNs a product keeps is the C++ compiler's choice."""
    return len(leaves(a)) == len(leaves(b)) and all(
        _C._bits_apart(x, y, True)[0] == 0 for x, y in zip(leaves(a), leaves(b), strict=True)
    )


# ---- the same bits --------------------------------------------------------------------------------------------------

# What stays a call of the eager kernel: complex numbers, and quotients of integers and `//` of floats, which branch.
STAY = {"floor_divide", "remainder", "pow", "conj"}  # the last computes nothing


@pytest.mark.parametrize("op", ELEMENTWISE)
def test_every_op_and_dtype(op):
    for name in accepted(op):
        arrays = [hl.asarray(a) for a in operands(op, name, 83)]

        def f(*x):
            made = getattr(hl, op)(*x)
            made = made if isinstance(made, tuple) else (made,)
            return [*made, *(hl.not_equal(m, m) for m in made)]

        compiled = in_both(f, *arrays)
        if name not in COMPLEX and op not in STAY:
            assert generated(compiled), (op, name, compiled.plan())


@pytest.mark.parametrize("op", [op for op in ELEMENTWISE if set(accepted(op)) & set(FLOATS)])
def test_every_gradient(op):
    for name in set(accepted(op)) & set(FLOATS):
        arrays = [hl.asarray(a) for a in operands(op, name, 83, seed=1)]
        differentiated = tuple(i for i, a in enumerate(arrays) if a.dtype.name == name)

        def loss(*x, name=name):
            made = getattr(hl, op)(*x)
            made = made if isinstance(made, tuple) else (made,)
            return sum(hl.sum(m * 3) for m in made if m.dtype.name == name)

        try:
            gradient = hl.grad(loss, argnums=differentiated)
            gradient(*arrays)
        except (hl.HyaliteError, TypeError, AttributeError):
            continue  # it has no result with a gradient
        in_both(gradient, *arrays, same=same_but_nans)


@pytest.mark.parametrize("name", ["bool", *INTEGERS, *FLOATS])
def test_every_cast(name):
    x = hl.asarray(samples(name, 83, np.random.default_rng(2)))
    targets = [d for d in ["bool", *INTEGERS, *FLOATS] if d != name]
    in_both(lambda x: [x.astype(getattr(hl, d)) for d in targets], x)


def test_signs_of_nan_survive():
    """LLVM turns x - -y into x + y, x * -1 into -x: the NaN that comes out would have the other sign."""
    x = hl.asarray(np.float32([np.nan, -np.nan, 1, np.inf, -np.inf, -0.0]))

    def f(x):
        down, size = -x, abs(x)
        return [x - down, down * down, x / down, x * -1.0, -1.0 * x, -(x - size), size * size, -(down + 1),
                hl.copysign(size, down), down - size]  # fmt: skip

    for dtype in (hl.float32, hl.float64):
        in_both(f, x.astype(dtype))


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int8", "bool"])
@pytest.mark.parametrize("threads", [1, 2])
def test_every_length(dtype, threads):
    def f(x, y):
        a = hl.where(x == y, x, y)
        return a, a == x, a.astype(hl.float64) * 0.5

    compiled = hl.compile(f, tier=1)
    rng = np.random.default_rng(3)
    before = hl.get_num_threads()
    hl.set_num_threads(threads)
    try:
        for n in [*range(70), 127, 1023, 1025, 200_001]:
            x, y = (hl.asarray(samples(dtype, n, rng).astype(numpy_dtype(dtype))) for _ in range(2))
            assert same(compiled(x, y), f(x, y)), n
    finally:
        hl.set_num_threads(before)


def test_a_new_size_compiles_nothing():
    compiled = hl.compile(lambda x: hl.tanh(x) * 2 + x, tier=1)
    compiled(normal(100))
    before = compiled.cache()["generated"]["compiled"]
    for shape in [(7,), (64, 3), (2, 3, 4), (100_000,)]:
        x = normal(*shape)
        assert bits(compiled(x)) == bits(hl.tanh(x) * 2 + x)
    assert compiled.cache()["generated"]["compiled"] == before


@pytest.mark.parametrize("block", range(4))
def test_random_functions(block):
    for seed in range(1000 + 60 * block, 1060 + 60 * block):
        f = random_function(seed)
        rng = np.random.default_rng(seed)
        shape = tuple(int(n) for n in rng.choice([1, 2, 3, 7, 33, 100, 1030], size=rng.integers(1, 3)))
        x, y = normal(*shape, seed=seed), normal(*shape, seed=seed + 1)
        z = normal(shape[-1], seed=seed + 2)
        expected = f(x, y, z)
        assert same(hl.compile(f, tier=1)(x, y, z), expected), seed


def test_verify_compares_both_tiers():
    found = hl.verify(lambda x: hl.softmax(hl.tanh(x) * 2), normal(30, 40))
    assert found
    assert found.compared == 2


# ---- when -----------------------------------------------------------------------------------------------------------


def until(condition):
    for _ in range(600):
        if condition():
            return True
        time.sleep(0.05)
    return False


def test_calls_that_pay_for_it_are_compiled_in_the_background():
    def f(x):
        return hl.exp(-x * x) * 0.25 + x

    compiled, x = hl.compile(f), normal(100_003)
    expected = bits(f(x))
    assert bits(compiled(x)) == expected
    assert "not called enough" in compiled.plan().steps[0]["why_tier"]

    def arrived():
        for _ in range(20):
            assert bits(compiled(x)) == expected
        return bool(generated(compiled))

    assert until(arrived)
    assert "tier 1" in str(compiled.plan())


def test_few_calls_are_not_compiled():
    compiled, x = hl.compile(lambda x: hl.exp(x) + 1), normal(8)
    for _ in range(50):
        compiled(x)
    assert compiled.plan().steps[0]["tier"] == 0
    compiled = hl.compile(lambda x: hl.exp(x) + 1, tier=0)
    x = normal(1 << 20)
    for _ in range(60):
        compiled(x)
    assert compiled.plan().steps[0]["why_tier"] == "tier 0 was asked for"


def test_threads_call_while_it_is_swapped_in():
    def f(x, y):
        return hl.tanh(x * y) + hl.sum(x, axis=1, keepdims=True)

    compiled, x, y = hl.compile(f), normal(300, 400), normal(300, 400, seed=1)
    expected, wrong = bits(f(x, y)), []

    def work():
        for _ in range(150):
            if bits(compiled(x, y)) != expected:
                wrong.append(1)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong
    assert until(lambda: compiled(x, y) is not None and generated(compiled))


def test_single_steps_stay_the_eager_kernel():
    compiled = hl.compile(lambda x: hl.exp(x), tier=1)
    compiled(normal(10))
    assert compiled.plan().steps[0]["tier"] == 0
    assert "eager kernel" in compiled.plan().steps[0]["why_tier"]


def test_sources():
    compiled = hl.compile(lambda x: hl.exp(x) + x, tier=1)
    with pytest.raises(ValueError, match="has not been called"):
        compiled.source()
    compiled(normal(10))
    assert "exp(x0)" in compiled.source()
    llvm = compiled.source("llvm")
    assert "@hyalite_exp_float32" in llvm
    assert "fadd" in llvm
    assert "hyalite_kernel" in compiled.source("assembly")
    with pytest.raises(ValueError, match=r'"steps", "llvm" or "assembly"'):
        compiled.source("c")
    with pytest.raises(ValueError, match="tier must be"):
        hl.compile(lambda x: x, tier=2)


def test_the_trace_says_which_tier_ran():
    x = normal(2000)
    for tier in (0, 1):
        compiled = hl.compile(lambda x: hl.exp(x) + x, tier=tier)
        compiled(x)
        with hl.explain() as trace:
            compiled(x)
        assert f"tier {tier}" in str(trace)


def test_kernels_go_with_their_last_user():
    for k in range(30):
        compiled = hl.compile(lambda x, k=k: hl.sin(x) * k + x, tier=1)
        compiled(normal(10))
        del compiled


# ---- kept on disk ---------------------------------------------------------------------------------------------------

SCRIPT = """
import hyalite as hl
f = hl.compile(lambda x, y: hl.tanh(x * y) + hl.softmax(x - y), tier=1)
x = hl.ones((3, 5)); f(x, x * 2)
c = f.cache()["generated"]
print(c["compiled"], c["from_disk"], c["folder_problem"])
"""


def run(script=SCRIPT, **environment):
    done = subprocess.run(
        [sys.executable, "-c", script], env={**os.environ, **environment}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def counts(folder, **environment):
    compiled, from_disk, *problem = run(HYALITE_CACHE_DIR=str(folder), **environment).split(maxsplit=2)
    return int(compiled), int(from_disk), "".join(problem)


def test_a_second_process_compiles_nothing(tmp_path):
    folder = tmp_path / "cache" / "hyalite"
    made, read, problem = counts(folder)
    assert (made > 1, read, problem) == (True, 0, "")
    assert counts(folder) == (0, made, "")
    assert folder.stat().st_mode & 0o777 == 0o700
    files = sorted(folder.iterdir())
    assert len(files) == made
    # Another processor has other kernels.
    assert counts(folder, HYALITE_ISA="x86-64-v2")[0] == made


@pytest.mark.parametrize("damage", ["shorter", "empty", "a byte", "another key", "no object"])
def test_a_damaged_file_is_made_anew(tmp_path, damage):
    made, _, _ = counts(tmp_path)
    files = sorted(tmp_path.iterdir())
    contents = [f.read_bytes() for f in files]
    for f, content in zip(files, contents, strict=True):
        whole = bytearray(content)
        if damage == "shorter":
            whole = whole[:-7]
        elif damage == "empty":
            whole = b""
        elif damage == "a byte":
            whole[len(whole) // 2] ^= 1
        elif damage == "another key":
            whole = contents[(contents.index(content) + 1) % len(contents)]
        else:
            whole[-200:] = bytes(200)
        f.write_bytes(whole)
    assert counts(tmp_path) == (made, 0, "")
    assert counts(tmp_path) == (0, made, "")


def test_a_folder_that_is_not_ours_alone_is_not_used(tmp_path):
    tmp_path.chmod(0o777)
    made, read, problem = counts(tmp_path)
    assert made > 1
    assert read == 0
    assert "can be written by others" in problem
    assert not list(tmp_path.iterdir())
    tmp_path.chmod(0o700)
    file = tmp_path / "file"
    file.write_text("")
    assert "is no folder" in counts(file)[2]
    assert "cannot be made" in counts(file / "below")[2]
    counts(tmp_path)
    for f in tmp_path.glob("*.kernel"):
        f.chmod(0o666)
    assert counts(tmp_path)[:2] == (made, 0)


def test_off_and_bounded(tmp_path):
    assert counts("")[2].startswith("HYALITE_CACHE_DIR is empty")
    script = """
import hyalite as hl
ops = [hl.exp, hl.sin, hl.cos, hl.tanh, hl.log, hl.sqrt, hl.floor, hl.abs]
x = hl.ones(9)
for k in range(256):
    chosen = [op for i, op in enumerate(ops) if k >> i & 1]
    def f(x):
        for op in chosen:
            x = op(x) + x
        return x
    hl.compile(f, tier=1)(x)
"""
    run(script, HYALITE_CACHE_DIR=str(tmp_path), HYALITE_CACHE_MB="1")
    assert sum(f.stat().st_size for f in tmp_path.iterdir()) < 2 << 20
    assert list(tmp_path.iterdir())


def test_several_processes_at_once(tmp_path):
    environment = {**os.environ, "HYALITE_CACHE_DIR": str(tmp_path)}
    all_ = [subprocess.Popen([sys.executable, "-c", SCRIPT], env=environment, stdout=subprocess.PIPE) for _ in range(4)]
    made = [int(p.communicate()[0].split()[0]) for p in all_]
    assert all(p.returncode == 0 for p in all_)
    assert counts(tmp_path) == (0, max(made), "")
    assert not [f for f in tmp_path.iterdir() if f.name.startswith(".writing")]


# ---- no compiler, forks, other processors ---------------------------------------------------------------------------


def test_without_llvm_tier_0_stays_and_says_so():
    script = """
import hyalite as hl, time
x = hl.ones(1 << 20)
f = hl.compile(lambda x: hl.exp(x) + x)
for _ in range(60): f(x)
for _ in range(200):
    f(x)
    step = f.plan().steps[0]
    if "LLVM" in step["why_tier"]: break
    time.sleep(0.02)
print(step["tier"], step["why_tier"])
try: hl.compile(lambda x: hl.exp(x) + x, tier=1)(x)
except hl.Unsupported as e: print(e)
print(bool(hl.verify(lambda x: hl.exp(x) + x, x)))
"""
    for library, why in (("/no/such/file.so", "did not open"), ("libc.so.6", "is not LLVM 19")):
        tier, asked, verified = run(script, HYALITE_LLVM=library).splitlines()
        assert tier.startswith("0 ") and why in tier
        assert "tier 1 needs" in asked and why in asked
        assert verified == "True"


def test_a_fork_while_kernels_are_compiled():
    script = """
import os, hyalite as hl
x = hl.ones(1 << 16)
def heavy(k):
    def f(x):
        for i in range(12): x = hl.tanh(x) * (k + i) + x
        return x
    return f
functions = [hl.compile(heavy(k)) for k in range(8)]
for f in functions:
    for _ in range(40): f(x)
children = []
for _ in range(4):
    pid = os.fork()
    if pid == 0:
        g = hl.compile(lambda x: hl.exp(x) * 2 + x, tier=1)
        ok = g(x).tolist() == (hl.exp(x) * 2 + x).tolist() and len(functions[0](x)) == 1 << 16
        os._exit(0 if ok else 1)
    children.append(pid)
print(sum(os.waitpid(pid, 0)[1] for pid in children))
"""
    assert run(script) == "0"


def test_a_process_may_end_while_kernels_are_compiled():
    script = """
import hyalite as hl
x = hl.ones(1 << 16)
for k in range(12):
    def f(x):
        for i in range(20): x = hl.tanh(x) * (k + i) + x
        return x
    f = hl.compile(f)
    for _ in range(60): f(x)
print("end")
"""
    for _ in range(3):
        assert run(script, HYALITE_CACHE_DIR="") == "end"


@pytest.mark.parametrize("isa", hl.about()["instruction_sets"])
def test_every_instruction_set(isa):
    script = """
import sys; sys.path.insert(0, FOLDER)
from test_compile import random_function, normal, same
import hyalite as hl
for seed in range(40):
    f, x, y, z = random_function(seed), normal(30, 37, seed=seed), normal(30, 37, seed=seed + 1), normal(37, seed=seed)
    assert same(hl.compile(f, tier=1)(x, y, z), f(x, y, z)), seed
h, b, x = hl.ones(99).astype(hl.float16) / 3, hl.ones(99).astype(hl.bfloat16) / 3, normal(99)
g = lambda h, b, x: [(h * 3 + x).astype(hl.float16), (b * 3 + x).astype(hl.bfloat16), hl.maximum(x, x * h)]
assert same(hl.compile(g, tier=1)(h, b, x), g(h, b, x))
print(hl.about()["instruction_set"])
"""
    assert run(script.replace("FOLDER", repr(str(Path(__file__).parent))), HYALITE_ISA=isa) == isa


@pytest.mark.parametrize("what", ["numbers", "sizes"])
def test_plans_that_change_at_each_call_come_to_generated_code_too(what):
    """What one plan has paid for, the next ones, of other numbers or sizes, begin with."""

    @hl.compile
    def f(x, k):
        return hl.sin(x) * k + x * (k + 1) - hl.abs(x) * 0.5 + (1 if what == "numbers" else 2) * x * x

    tiers = []
    for i in range(400):
        x = normal(400_000 if what == "numbers" else 400_000 + i)
        k = 0.5 + i if what == "numbers" else 0.5
        assert i % 40 != 0 or same(f(x, k), f.__wrapped__(x, k))
        f(x, k) if i % 40 else None
        tiers.append(f.plan().steps[0]["tier"])
        if sum(tiers) > 5:
            break
        time.sleep(0.01)
    assert f.cache()["signatures"] == 1 and f.cache()["hits"] == 0, f.cache()
    assert sum(tiers) > 5 and tiers[0] == 0, tiers
