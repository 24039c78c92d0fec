"""A call is a value: over a backend that keeps calls, and computes them when a value is asked for, the op list's own
tests pass unchanged. It is `tests/cpp/keeping_backend.cpp`; the package around it lies beside the one under test."""

import os
import pathlib
import subprocess
import sys

import pytest
from test_structure import BUILD

HERE = pathlib.Path(__file__).parent
# What these tests run, they loop over: every op, layout and dtype, each gradient to the second order.
OP_LIST = (
    "test_creation.py",
    "test_forward_mode.py",
    "test_indexing.py",
    "test_meta.py",
    "test_nothings.py",
    "test_op_gradients.py",
    "test_op_values.py",
    "test_reductions.py",
    "test_special_points.py",
)
# Calls that wait hold their operands, which is not flat.
LEFT_OUT = "not memory_stays_flat"


def run(code, *arguments):
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        cwd=HERE,
        env={**os.environ, "PYTHONPATH": str(BUILD / "keeping")},
        capture_output=True,
        text=True,
    )


COUNTS = """
import ctypes, sys
import hyalite as hl
engine = ctypes.CDLL(hl._C.__file__)
engine.hyalite_computed.restype = ctypes.c_long
"""


def test_calls_wait_until_a_value_is_asked_for():
    done = run(
        COUNTS
        + """
a, w = hl.asarray([1.0, 2.0]), hl.ones(2).requires_grad_(True)
done = engine.hyalite_computed()
loss = (hl.exp(w) * a[::-1]).sum()
loss.backward(retain_graph=True)
a += 1.0
assert engine.hyalite_waiting() > 0
print(w.grad.tolist(), a.tolist(), engine.hyalite_waiting(), engine.hyalite_computed() - done)
"""
    )
    assert done.returncode == 0, done.stderr
    e = 2.7182817459106445
    *values, waiting, computed = done.stdout.rsplit(maxsplit=2)
    assert values == [f"[{2 * e}, {e}] [2.0, 3.0]"] and int(waiting) == 0 and int(computed) >= 4


@pytest.mark.parametrize("file", OP_LIST)
def test_the_op_list_passes(file):
    done = run(
        COUNTS + "import pytest; code = pytest.main(sys.argv[1:]); print(engine.hyalite_computed()); sys.exit(code)",
        *("-q", "-p", "no:cacheprovider", "-m", "not slow and not plain", "-k", LEFT_OUT, file),
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    later = int(done.stdout.split()[-1])
    assert later > 1000, f"{later} calls were computed later than they were made"
