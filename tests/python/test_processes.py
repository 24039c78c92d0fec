"""Whole processes: threads that come first together, that are interrupted, and that still compute when all ends."""

import os
import subprocess
import sys

import pytest

ROUNDS = 1000  # of a stress test under the mark `slow`


def run(code, timeout=60, **environment):
    """Runs the code in a process of its own; its output."""
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    assert done.returncode == 0 and not done.stderr, f"{done.returncode}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    return done.stdout.split()


# ---- the first of everything ------------------------------------------------------------------------------------

TOGETHER = """
import sys, threading
import hyalite as hl
wrong, barrier = [], threading.Barrier(8)
def together(*work):
    def body(i):
        try:
            barrier.wait()
            for k in range(len(work)):
                work[(i + k) % len(work)]()
        except BaseException as e:
            wrong.append(repr(e))
    threads = [threading.Thread(target=body, args=(i,)) for i in range(8)]
    [t.start() for t in threads]
    [t.join(50) for t in threads]
    assert not any(t.is_alive() for t in threads), "threads that never end"
    assert not wrong, wrong
"""

FIRST_MATMUL = (
    TOGETHER
    + """
a, sums = hl.ones((8, 8)), []
together(lambda: sums.append((a @ a).sum().item()))
assert sums == [512.0] * 8, sums
"""
)


def test_c5_the_first_matmul_in_eight_threads():
    for _ in range(5):
        run(FIRST_MATMUL)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_c5_the_first_matmul_in_eight_threads_many_times():
    for _ in range(ROUNDS):
        run(FIRST_MATMUL)


def test_c5_the_first_of_everything_in_eight_threads():
    """Whatever a process does once - tables, imports, types, ceilings - eight threads ask for at the same time."""
    run(
        TOGETHER
        + """
import copy, pickle
import numpy as np
from hyalite import _C
x = hl.asarray([[1.0, 2.0], [3.0, 4.0]])
big = hl.ones((512, 1024))
def backward():
    w = hl.asarray([1.0, 2.0]).requires_grad_()
    (w * w).sum().backward()
    assert w.grad.tolist() == [2.0, 4.0]
together(
    lambda: x + 1, lambda: x @ x, lambda: (x * x).sum(), lambda: repr(x), lambda: hl.about(), lambda: x.numpy(),
    lambda: hl.from_dlpack(np.ones(3)), lambda: np.from_dlpack(x), lambda: memoryview(x), lambda: x[x > 1],
    lambda: hl.asarray(np.float32(1)), lambda: _C._op_facts("add"), lambda: hl.source("add"), lambda: _C._blas(),
    lambda: hl.exp(big), lambda: big + big, lambda: x.astype(hl.bfloat16).numpy(), backward,
    lambda: _C._generated_source("add", hl.float32, "cuda", -1), lambda: hl.memory_stats(), lambda: str(big),
)
"""
    )


@pytest.mark.plain  # TSan may deliver the signal to another thread, which wakes nobody
def test_c5_ctrl_c_during_the_first_matmul():
    """It is the import of OpenBLAS's package that is interrupted; the exception is Ctrl-C's, and the next one works."""
    run(
        """
import os, signal, sys, threading, time
import hyalite as hl
class Slow:
    slept = False
    def find_spec(self, name, path=None, target=None):
        if name == "scipy_openblas32" and not Slow.slept:
            Slow.slept = True
            time.sleep(60)
sys.meta_path.insert(0, Slow())
x = hl.ones((4, 4))
threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
begin = time.monotonic()
try:
    x @ x
except KeyboardInterrupt:
    pass
else:
    sys.exit("no KeyboardInterrupt")
assert Slow.slept and time.monotonic() - begin < 30
assert (x @ x).sum().item() == 64
"""
    )


def test_c5_without_the_package_the_message_says_what_to_install():
    run(
        """
import sys
import hyalite as hl
sys.modules["scipy_openblas32"] = None
x = hl.ones((4, 4))
try:
    x @ x
except hl.Unsupported as e:
    assert "pip install scipy-openblas32" in str(e), e
else:
    sys.exit("no error")
"""
    )


# ---- the end ----------------------------------------------------------------------------------------------------

# What a daemon thread may be at when the interpreter ends: native work with and without the GIL, and Python code that
# the library calls.
ENDLESS = {
    "elementwise": "y = x * 2.0 + x",
    "function": "y = hl.exp(x)",
    "in place": "x += 1.0",
    "reduction": "y = x.sum()",
    "small": "y = s + s",
    "matmul": "y = m @ m",
    "conversion": "y = hl.asarray(a, dtype=hl.float64, copy=True)",
    "export": "y = np.asarray(x.astype(hl.float64))",
    "indexing": "y = hl.take(x, i)",
    "backward": "(w * w).sum().backward()",
    "hook": "(h * h).sum().backward()",
    "python objects": "y = hl.asarray(l)",
    "text": "y = repr(x)",
}
DAEMONS = """
import os, sys, threading, time
import numpy as np
import hyalite as hl
a = np.ones(1 << 20, np.float32)
l = [float(i) for i in range(1000)]
def slow_hook(g):
    for _ in range(1000):
        pass
def body():
    x, s, m, i = hl.ones((1 << 20,)), hl.ones((8,)), hl.ones((256, 256)), hl.zeros((1 << 18,), dtype=hl.int64)
    w = hl.ones((1 << 18,)).requires_grad_()
    h = hl.ones((8,)).requires_grad_()
    h.register_hook(slow_hook)
    started.release()
    while True:
        WORK
started = threading.Semaphore(0)
for _ in range(8):
    threading.Thread(target=body, daemon=True).start()
for _ in range(8):
    started.acquire()
time.sleep(float(sys.argv[1]) if len(sys.argv) > 1 else 0.05)
"""


# At exit Python ends a thread that looks for OpenBLAS by unwinding its stack, which ASan takes for an overflow of its
# own frame (in sigaltstack, below __asan_handle_no_return).
ENDED_BY_FORCE = [pytest.param(w, marks=pytest.mark.plain) if w == "matmul" else w for w in ENDLESS]


@pytest.mark.parametrize("work", ENDED_BY_FORCE)
def test_c7_exit_while_daemon_threads_compute(work):
    for _ in range(2):
        run(DAEMONS.replace("WORK", ENDLESS[work]))


@pytest.mark.slow
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("work", ENDLESS)
def test_c7_exit_while_daemon_threads_compute_many_times(work):
    for k in range(ROUNDS // len(ENDLESS) + 1):
        run(DAEMONS.replace("WORK", ENDLESS[work]).replace("0.05", str(0.001 * (k % 50))))
