"""Other processors: what is built is not taken for what is there, and every op runs on machines without AVX."""

import os
import pickle
import subprocess
import sys

import ml_dtypes  # noqa: F401 - bfloat16 by name
import numpy as np
import pytest
from isa_worker import EMULATED, sets
from op_oracle import COMPLEX, FLOATS, INTEGERS, OPS, OTHERS, REDUCTIONS, WIDER, declared, norm_error, ulp_error
from test_casts import numpy_dtype

import hyalite as hl

HERE = os.path.dirname(__file__)


# Ops made of others, whose error is the sum of theirs: of those that are not elementwise, the ones for floats only.
COMPOSED = [op for op in OTHERS if set(declared(op)) <= {*FLOATS, *COMPLEX} and op != "imag"]


def array(part):
    name, shape, data = part
    return np.frombuffer(data, dtype=numpy_dtype(name)).reshape(shape)


def same(got, want):
    """The same bits; one NaN is as good as another, since instructions differ in which of two they keep."""
    got, want = np.atleast_1d(got), np.atleast_1d(want)
    if got.dtype.kind == "c":
        got, want = got.view(got.real.dtype), want.view(want.real.dtype)
    equal = got.view(f"u{got.itemsize}") == want.view(f"u{want.itemsize}")
    if got.dtype.kind in "fV":
        equal |= np.isnan(got) & np.isnan(want)
    return bool(equal.all())


def near(op, name, got, want):
    """Both within the declared error of the exact value, so within twice of each other; a 16-bit result is rounded."""
    bound = 2 * (8 if op in COMPOSED else OPS[op]["ulp"]) + 1
    with np.errstate(all="ignore"):
        if name in COMPLEX:
            wide = want.astype(WIDER[name])
            finite = np.isfinite(wide) & np.isfinite(got)
            apart = norm_error(op, [np.ones_like(wide), np.ones_like(wide)], got, wide, name)
            return bool((apart[finite] <= 64 * bound).all()) and bool((np.isfinite(got) == np.isfinite(want)).all())
        return bool((ulp_error(got, want.astype(WIDER.get(name, np.float64)), name) <= bound).all())


@pytest.fixture(scope="module")
def native(tmp_path_factory):
    return run([], tmp_path_factory.mktemp("native") / "results")


def run(emulator, path):
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([HERE, *sys.path]), "HYALITE_ISA": ""}
    environment.pop("LD_PRELOAD", None)  # a sanitizer does not start under the emulator
    command = [*emulator, sys.executable, os.path.join(HERE, "emulated.py"), str(path)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    with open(path, "rb") as file:
        return pickle.load(file)


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="the emulated processors are x86-64")
@pytest.mark.plain
@pytest.mark.parametrize("processor", EMULATED)
def test_m1_every_op_on_an_older_processor(native, tmp_path, processor):
    """Import, every op once over its dtypes, and the bits of exact operations as on this machine."""
    here, want = native
    there, got = run(["qemu-x86_64", "-cpu", processor], tmp_path / "results")
    assert there["instruction_set"] == EMULATED[processor] == there["instruction_sets"][-1]
    assert there["built_instruction_sets"] == here["built_instruction_sets"]
    assert got.keys() == want.keys()
    fused = EMULATED[processor] != "x86-64-v2" and here["instruction_set"] != "x86-64-v2"
    wrong = []
    for key, parts in want.items():
        op, name, _ = key
        assert [p[:2] for p in got[key]] == [p[:2] for p in parts], key
        for a, b in zip(map(array, got[key]), map(array, parts)):
            if op == "matmul":  # exact, but the sign of a zero is the order in which OpenBLAS adds
                a, b = a + 0, b + 0
            promised = fused or op in REDUCTIONS or op == "matmul"
            promised |= OPS[op]["ulp"] == 0 and name not in COMPLEX and op not in COMPOSED
            result = name if name not in ("bool", *INTEGERS) else "float32"
            if not (same(a, b) if promised or a.dtype.kind in "biu" else near(op, result, a, b)):
                wrong.append(key)
    assert not wrong


def test_m1_sets_built_are_not_taken_for_sets_present():
    about = hl.about()
    assert set(about["instruction_sets"]) <= set(about["built_instruction_sets"])
    assert about["instruction_set"] in about["instruction_sets"]
    assert sets() == about["instruction_sets"]
    for isa in about["built_instruction_sets"]:
        done = subprocess.run(
            [sys.executable, "-c", "import hyalite as hl; print(hl.about()['instruction_set'])"],
            env={**os.environ, "HYALITE_ISA": isa},
            capture_output=True,
            text=True,
            check=False,
        )
        if isa in about["instruction_sets"]:
            assert done.stdout.strip() == isa, done.stderr
        else:
            assert done.returncode != 0 and "this processor lacks it" in done.stderr
