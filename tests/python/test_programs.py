"""Random differentiable programs against PyTorch where it is installed, else against differences in long double."""

import collections
import contextlib

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


@pytest.mark.parametrize("block", range(24))
def test_random_programs(block):
    ends = check(range(block * BLOCK, (block + 1) * BLOCK))
    # A generator whose programs all raised, or which no oracle judged, would test nothing.
    assert ends["compared"] > 0.6 * BLOCK and ends["as functions"] > 0.2 * BLOCK, ends


@pytest.mark.slow
@pytest.mark.parametrize("block", range(24, 100))
def test_random_programs_ten_thousand(block):
    assert check(range(block * BLOCK, (block + 1) * BLOCK))["compared"] > 0.6 * BLOCK


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
