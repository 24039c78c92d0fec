"""Random differentiable programs against PyTorch where it is installed, else against differences in long double."""

import collections
import contextlib
import threading

import numpy as np
import program_engines
import program_reference as reference
import programs
import pytest

import hyalite as hl

TORCH = program_engines.torch
ORACLE = "differences in long double" if TORCH is None else f"PyTorch {TORCH.__version__}"
BLOCK = 100


def check(seeds):
    """Fails with the script of the first program that is wrong, shrunk. Gives how the programs ended."""
    ends = collections.Counter()
    for seed in seeds:
        program = programs.Generator(seed).make()
        found = program_engines.judge(program, ends=ends)
        if found is not None:
            lines = programs.shrink(program, found)
            script = program_engines.HELPERS_TEXT + "\n".join(lines)
            pytest.fail(f"seed {seed} by {ORACLE}: {found}\n{script}", pytrace=False)
    return ends


@pytest.mark.parametrize("block", range(15))
def test_random_programs(block):
    ends = check(range(block * BLOCK, (block + 1) * BLOCK))
    # A generator whose programs all raised, or which no oracle judged, would test nothing.
    assert ends["compared"] > 0.6 * BLOCK and ends["as functions"] > 0.2 * BLOCK, ends
    assert ends["failed and retried"] > 2 * BLOCK, ends


@pytest.mark.slow
@pytest.mark.parametrize("block", range(15, 100))
def test_random_programs_ten_thousand(block):
    assert check(range(block * BLOCK, (block + 1) * BLOCK))["compared"] > 0.6 * BLOCK


def outcome(program):
    """The bits of a program's gradients, and the lines that raised."""
    env, failed = program_engines.run(program, hl)
    gradients = [getattr(env.get(name), "grad", None) for name in program.leaves]
    return [None if g is None else program_engines.array(g).tobytes() for g in gradients], sorted(failed)


def test_programs_in_eight_threads_at_once():
    made = [programs.Generator(seed).make() for seed in range(200)]
    wanted = [outcome(program) for program in made]
    wrong = []

    def work(k):
        for i in np.random.default_rng(k).permutation(len(made)):
            if outcome(made[i]) != wanted[i]:
                wrong.append((k, made[i].seed))

    crew = [threading.Thread(target=work, args=(k,)) for k in range(8)]
    for t in crew:
        t.start()
    for t in crew:
        t.join()
    assert not wrong


def test_programs_while_they_are_explained():
    for seed in range(150):
        program = programs.Generator(seed).make()
        wanted = outcome(program)
        with hl.explain(show=False):
            got = outcome(program)
        assert got == wanted, seed


def test_the_tool_prints_programs_that_run():
    for seed in range(20):
        program = programs.Generator(seed).make()
        raised = program_engines.run(program, hl)[1]
        scope = {}
        with pytest.raises(tuple({type(e) for e in raised.values()})) if raised else contextlib.nullcontext():
            exec(program.script(), scope)
        if not raised:
            assert all(scope[leaf].requires_grad for leaf in program.leaves)


def test_the_reference_finds_a_wrong_gradient(monkeypatch):
    """The oracle itself is tried: one rule made wrong must be seen, and shrunk to the lines that show it."""
    seeds = [s for s in range(400) if any("hl.sin(" in t for t in programs.Generator(s).make().lines)]
    wrong = 0
    monkeypatch.setattr(program_engines, "torch", None)
    right = reference.sin

    def steeper(x):
        out = right(x)
        out.near = [d * 2 for d in out.near]
        return out

    monkeypatch.setattr(reference, "sin", steeper)
    for seed in seeds:
        wrong += program_engines.judge(programs.Generator(seed).make()) is not None
    assert wrong > 0
