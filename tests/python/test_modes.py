"""Modes of a thread and of the process: autocast, determinism, threads, memory limit, signals."""

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time

import numpy as np
import pytest

import hyalite as hl


def run_python(code, **env):
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], env=os.environ | env, capture_output=True, text=True, timeout=120
    )


# ---- autocast ---------------------------------------------------------------------------------------------------


def test_autocast_runs_matrix_products_low_and_exponentials_in_float32():
    a = hl.ones((4, 4))
    with hl.autocast("cpu", dtype=hl.bfloat16):
        assert (a @ a).dtype == hl.bfloat16
        assert hl.exp(a.astype(hl.float16)).dtype == hl.float32
        assert hl.softmax(a.astype(hl.bfloat16)).dtype == hl.float32
        assert (a + a).dtype == hl.float32
        assert (a.astype(hl.bfloat16) + a.astype(hl.bfloat16)).dtype == hl.bfloat16
    assert (a @ a).dtype == hl.float32


@pytest.mark.parametrize("dtype", [hl.int32, hl.float64, hl.complex64])
def test_autocast_leaves_integers_float64_and_complex_alone(dtype):
    a = hl.ones((3, 3), dtype=dtype)
    with hl.autocast("cpu"):
        assert (a @ a).dtype == dtype


def test_autocast_skips_promotion_for_an_op_that_fixes_its_dtype():
    a, b = hl.ones((2, 2), dtype=hl.float32), hl.ones((2, 2), dtype=hl.float16)
    with hl.autocast("cpu", dtype=hl.float16):
        assert (a @ b).dtype == hl.float16


def test_autocast_casts_are_recorded_and_gradients_come_back_in_the_leaf_dtype():
    a = hl.tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
    with hl.autocast("cpu"):
        out = hl.sum(a @ hl.ones((2, 2)))
    out.backward()
    assert a.grad.dtype == hl.float32
    assert a.grad.tolist() == [[2.0, 2.0], [2.0, 2.0]]


def test_autocast_ends_with_its_block_also_by_an_exception_and_nests():
    a = hl.ones((2, 2))
    with pytest.raises(KeyError), hl.autocast("cpu"):
        raise KeyError
    assert (a @ a).dtype == hl.float32
    with hl.autocast("cpu"):
        with hl.autocast("cpu", enabled=False):
            assert (a @ a).dtype == hl.float32
        assert (a @ a).dtype == hl.bfloat16


def test_autocast_and_no_grad_are_each_threads_own():
    seen = {}

    def other():
        a = hl.tensor([[1.0]], requires_grad=True)
        seen["dtype"], seen["grad"] = (a @ a).dtype, (a @ a).requires_grad

    with hl.autocast("cpu"), hl.no_grad():
        worker = threading.Thread(target=other)
        worker.start()
        worker.join()
    assert seen == {"dtype": hl.float32, "grad": True}


def test_autocast_refuses_other_dtypes_and_devices():
    with pytest.raises(ValueError, match="bfloat16"):
        hl.autocast("cpu", dtype=hl.float64)
    with pytest.raises(ValueError, match="quantum"):
        hl.autocast("quantum")


# ---- determinism and threads ------------------------------------------------------------------------------------


def test_every_op_is_deterministic_so_asking_for_it_changes_nothing():
    x = hl.asarray(np.random.default_rng(0).normal(size=100_000).astype(np.float32))
    free = hl.sum(x).item()
    hl.use_deterministic_algorithms(True)
    try:
        assert hl.sum(x).item() == free
        assert (x + x).tolist()[:3] == [2 * v for v in x.tolist()[:3]]
    finally:
        hl.use_deterministic_algorithms(False)


def test_set_num_threads_sets_and_as_a_context_manager_sets_back():
    before = hl.get_num_threads()
    with hl.set_num_threads(1):
        assert hl.get_num_threads() == 1
        with pytest.raises(KeyError), hl.set_num_threads(3):
            assert hl.get_num_threads() == 3
            raise KeyError
        assert hl.get_num_threads() == 1
    assert hl.get_num_threads() == before
    with pytest.raises(ValueError):
        hl.set_num_threads(0)


def test_environment_variables_that_name_nothing_are_refused_at_import():
    for name, value in (("HYALITE_NUM_THREADS", "many"), ("HYALITE_ISA", "mmx")):
        done = run_python("import hyalite as hl; hl.ones((2,)) + 1", **{name: value})
        assert done.returncode != 0
        assert value in done.stderr and name in done.stderr


def test_ops_from_many_threads_at_once():
    x = hl.asarray(np.arange(300_000, dtype=np.float32))
    want = float(np.arange(300_000, dtype=np.float64).sum())
    wrong = []

    def work():
        for _ in range(20):
            y = hl.exp(x * 0.0) * x
            if hl.sum(y, dtype=hl.float64).item() != want:
                wrong.append(1)

    workers = [threading.Thread(target=work) for _ in range(4)]
    for w in workers:
        w.start()
    for w in workers:
        w.join()
    assert not wrong


def test_other_python_threads_run_during_a_long_op():
    x = hl.ones((1 << 25,))
    ticks, stop = [], threading.Event()

    def tick():
        while not stop.is_set():
            ticks.append(1)
            time.sleep(0.001)

    worker = threading.Thread(target=tick)
    worker.start()
    for _ in range(5):
        hl.exp(x)
    stop.set()
    worker.join()
    assert len(ticks) > 3


# ---- signals ----------------------------------------------------------------------------------------------------

LONG_WORK = """
    import sys
    import hyalite as hl
    x = hl.full((1 << 24,), 0.5)
    print("ready", flush=True)
    try:
        for _ in range(100_000):
            {statement}
    except KeyboardInterrupt:
        print("interrupted", x.shape, round(hl.max(x).item(), 3), flush=True)
        sys.exit(3)
"""


@pytest.mark.parametrize("statement", ["hl.tanh(hl.exp(x))", "hl.sum(x)", "x *= 1.0", "x + x"])
def test_ctrl_c_ends_long_work_with_keyboard_interrupt(statement):
    code = textwrap.dedent(LONG_WORK).format(statement=statement)
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stdout.readline().strip() == "ready"
        time.sleep(0.3)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 3, err
    assert out.startswith("interrupted (16777216,) 0.5")


# ---- memory -----------------------------------------------------------------------------------------------------


def test_the_memory_limit_raises_and_nothing_is_lost():
    done = run_python(
        """
        import hyalite as hl
        hl.set_memory_limit(64 << 20)
        kept = hl.ones((1 << 20,))
        try:
            hl.zeros((1 << 26,))
        except hl.OutOfMemory as e:
            assert isinstance(e, MemoryError) and isinstance(e, hl.HyaliteError)
            assert e.requested_bytes == 1 << 28 and e.limit_bytes == 64 << 20
        else:
            raise SystemExit("no error")
        assert hl.sum(kept).item() == 1 << 20
        print("fine")
        """
    )
    assert done.stdout.strip() == "fine", done.stderr


def test_trim_gives_cached_memory_back():
    x = hl.zeros((1 << 24,))
    del x
    assert hl.memory_stats()["cached_bytes"] >= 1 << 26
    assert hl.trim_memory() >= 1 << 26
    stats = hl.memory_stats()
    assert stats["allocated_bytes"] + stats["cached_bytes"] == stats["system_bytes"]


def test_a_weak_scalar_never_becomes_a_buffer():
    x = hl.ones((1 << 20,))
    x + 1
    hl.reset_peak_memory()
    held = hl.memory_stats()["allocated_bytes"]
    y = x * 2.5 + 1
    assert hl.memory_stats()["peak_bytes"] - held <= 2 * x.nbytes + (1 << 16)
    assert y.tolist()[:2] == [3.5, 3.5]


def test_fresh_memory_is_never_read():
    done = run_python(
        """
        import hyalite as hl
        assert hl.matmul(hl.zeros((4, 0)), hl.zeros((0, 4))).tolist() == [[0.0] * 4] * 4
        assert hl.sum(hl.zeros((3, 0)), axis=1).tolist() == [0.0] * 3
        assert hl.zeros((1000,)).tolist() == [0.0] * 1000
        assert hl.eye(30).tolist()[3][:5] == [0, 0, 0, 1, 0]
        x = hl.asarray([[1.0, 2.0, 3.0]])
        assert hl.concat([x, x]).tolist() == [[1.0, 2.0, 3.0]] * 2
        assert hl.take(x, hl.asarray([2, 0]), axis=1).tolist() == [[3.0, 1.0]]
        """,
        HYALITE_POISON="1",
    )
    assert done.returncode == 0, done.stderr
