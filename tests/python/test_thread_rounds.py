"""Threads that share leaves, graphs, hooks, modes and memory: each round the sum, one winner or the right error."""

import contextlib
import gc
import threading

import numpy as np
import pytest

import hyalite as hl

THREADS = 8
SHORT, FULL = 40, 1000

rounds = pytest.mark.parametrize(
    "count", [SHORT, pytest.param(FULL, marks=[pytest.mark.slow, pytest.mark.timeout(3000)])]
)


class Crew:
    """Threads that wait for one another before each call, so that the calls meet."""

    def __init__(self, threads=THREADS):
        self.threads = threads

    def run(self, work, count=1):
        """work(thread, round) in every thread at once, round after round; results by round, exceptions among them."""
        results = [[None] * self.threads for _ in range(count)]
        gate = threading.Barrier(self.threads)

        def loop(k):
            for i in range(count):
                gate.wait()
                try:
                    results[i][k] = work(k, i)
                except Exception as error:  # noqa: BLE001 - the test looks at it
                    results[i][k] = error

        crew = [threading.Thread(target=loop, args=(k,)) for k in range(self.threads)]
        for t in crew:
            t.start()
        for t in crew:
            t.join()
        return results


def leaf(shape, value=1.0, dtype=hl.float64):
    return hl.full(shape, value, dtype=dtype).requires_grad_()


def only_errors(results, kind=Exception):
    return [r for r in results if isinstance(r, kind)]


def raise_first(results):
    for row in results:
        for error in only_errors(row):
            raise error


# ---- one leaf -------------------------------------------------------------------------------------------------------

SHAPES = [(), (3,), (50, 7), (70_000,)]


@rounds
@pytest.mark.parametrize("shape", SHAPES)
def test_w6_all_gradients_arrive_in_one_leaf(shape, count):
    count = count if np.prod(shape) < 1000 else count // 10
    w = leaf(shape, 2.0)
    raise_first(Crew().run(lambda k, i: hl.sum(w * (k + 1)).backward(), count))
    # Sums of small integers, exact in whatever order they arrive.
    assert np.all(w.grad.numpy() == count * THREADS * (THREADS + 1) / 2)


@rounds
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "complex64"])
def test_w6_all_gradients_of_other_dtypes_arrive(dtype, count):
    w = leaf((33,), 1.0, getattr(hl, dtype))
    for _ in range(count // 4):
        w.grad = None

        def step(k, i):
            out = hl.sum(w * 2)
            out.backward(hl.ones((), dtype=w.dtype)) if dtype == "complex64" else out.backward()

        raise_first(Crew().run(step, 4))
        assert w.grad.tolist() == [2.0 * 4 * THREADS] * 33


@rounds
def test_w6_the_first_gradient_of_a_leaf_arrives_from_every_thread(count):
    """Who comes first makes the tensor; nobody may take its place."""
    leaves = [leaf((5,)) for _ in range(count)]
    raise_first(Crew().run(lambda k, i: hl.sum(leaves[i] * 3).backward(), count))
    assert all(w.grad.tolist() == [3.0 * THREADS] * 5 for w in leaves)


@rounds
def test_w6_gradients_with_a_graph_arrive_and_keep_it(count):
    leaves = [leaf((4,), 2.0) for _ in range(count)]
    raise_first(Crew().run(lambda k, i: hl.sum(leaves[i] ** 3).backward(create_graph=True), count))
    for w in leaves:
        assert w.grad.tolist() == [12.0 * THREADS] * 4 and w.grad.requires_grad
        first, w.grad = w.grad, None
        hl.sum(first).backward()
        assert w.grad.tolist() == [12.0 * THREADS] * 4
        w.grad = None


@rounds
def test_w6_gradients_are_read_and_cleared_while_others_add(count):
    w = leaf((16,))
    taken = []

    def work(k, i):
        if k == 0:
            g, w.grad = w.grad, None
            taken.append(g)
        else:
            hl.sum(w * 1).backward()

    raise_first(Crew().run(work, count))
    for g in [*taken, w.grad]:
        # What was taken is a whole gradient: all elements alike.
        assert g is None or len(set(g.tolist())) == 1


# ---- one graph ------------------------------------------------------------------------------------------------------


def chain(x):
    return hl.sum(hl.exp(x) * hl.tanh(x * x) / (x + 3))


def gradient_of_chain(shape, value):
    x = leaf(shape, value)
    chain(x).backward()
    return x.grad.numpy()


@rounds
@pytest.mark.parametrize("shape", [(3,), (30_000,)])
def test_c6_one_of_many_backwards_of_a_graph_succeeds(shape, count):
    count = count if shape == (3,) else count // 8
    graphs = []
    for _ in range(count):
        x = leaf(shape, 0.5)
        graphs.append((x, chain(x)))
    results = Crew().run(lambda k, i: graphs[i][1].backward(), count)
    want = gradient_of_chain(shape, 0.5)
    for (x, _), row in zip(graphs, results):
        errors = only_errors(row)
        assert len(errors) == THREADS - 1, row
        assert all(isinstance(e, hl.AutogradError) and "retain_graph" in str(e) for e in errors), errors
        assert np.array_equal(x.grad.numpy(), want)


@rounds
def test_c6_every_backward_of_a_retained_graph_succeeds(count):
    x = leaf((64,), 0.5)
    out = chain(x)
    raise_first(Crew().run(lambda k, i: out.backward(retain_graph=True), count))
    want = gradient_of_chain((64,), 0.5)
    np.testing.assert_allclose(x.grad.numpy(), want * count * THREADS, rtol=1e-9)


@rounds
def test_c6_a_part_of_the_graph_that_is_shared(count):
    """Each thread has its own end, the middle is one; the first to come uses the middle up."""
    graphs = []
    for _ in range(count):
        x = leaf((5,), 0.5)
        graphs.append((x, hl.exp(x) * hl.sin(x)))

    def work(k, i):
        hl.sum(graphs[i][1] * (k + 1)).backward()
        return k

    for (x, _), row in zip(graphs, Crew().run(work, count)):
        winners = [r for r in row if isinstance(r, int)]
        assert len(winners) == 1
        assert all(isinstance(e, hl.AutogradError) and "retain_graph" in str(e) for e in only_errors(row))
        slope = np.exp(0.5) * (np.sin(0.5) + np.cos(0.5)) * (winners[0] + 1)
        np.testing.assert_allclose(x.grad.numpy(), slope, rtol=1e-14)


@rounds
def test_c6_graphs_are_walked_and_dropped_at_once(count):
    def work(k, i):
        out = graphs[i]
        if k % 2:
            with contextlib.suppress(hl.AutogradError):
                out.backward()
        else:
            del out
            graphs[i] = hl.zeros(())

    graphs = [chain(leaf((4,), 0.5)) for _ in range(count)]
    raise_first([[r for r in row if not isinstance(r, hl.AutogradError)] for row in Crew().run(work, count)])


@rounds
def test_c6_forwards_backwards_and_views_of_one_parameter(count):
    """Every thread takes views, hooks and gradients of one tensor that nobody writes."""
    w = leaf((6, 4), 0.5)
    base = w * 2

    def work(k, i):
        view = base[k % 6, ::2] if i % 2 else hl.reshape(base, (4, 6))[k % 4]
        handle = view.register_hook(lambda g: g * 2)
        hl.sum(view * view).backward(retain_graph=True)
        handle.remove()
        return view.grad_fn is not None and view.requires_grad

    results = Crew().run(work, count)
    raise_first(results)
    assert all(all(row) for row in results)
    total = sum(2 if i % 2 else 6 for i in range(count)) * THREADS
    # Each element that a view shows gets 2 (the hook) * 2 v (the square) * 2, with v = 1.
    assert hl.sum(w.grad).item() == total * 8


# ---- hooks ----------------------------------------------------------------------------------------------------------


@rounds
def test_shared_hooks_run_once_for_each_backward(count):
    x = leaf((3,), 2.0)
    y = x * 3
    calls, lock = [0], threading.Lock()

    def hook(g):
        with lock:
            calls[0] += 1
        return g * 2

    y.register_hook(hook)
    raise_first(Crew().run(lambda k, i: hl.sum(y).backward(retain_graph=True), count))
    assert calls[0] == count * THREADS
    assert x.grad.tolist() == [6.0 * count * THREADS] * 3


@rounds
def test_hooks_come_and_go_while_others_walk(count):
    x = leaf((3,), 2.0)
    y = x * 1

    def work(k, i):
        if k % 2:
            handle = y.register_hook(lambda g: None)
            hl.sum(x * 1).backward()
            handle.remove()
        else:
            hl.sum(y * 1).backward(retain_graph=True)

    raise_first(Crew().run(work, count))
    assert x.grad.tolist() == [1.0 * count * THREADS] * 3


@rounds
def test_a_hook_that_raises_in_one_thread_leaves_the_others_alone(count):
    x = leaf((4,))

    def fail(g):
        raise KeyError("on purpose")

    def work(k, i):
        y = x * 2
        if k == 0:
            y.register_hook(fail)
        hl.sum(y).backward()

    results = Crew().run(work, count)
    assert all([type(r) for r in row] == [KeyError] + [type(None)] * (THREADS - 1) for row in results)
    assert x.grad.tolist() == [2.0 * count * (THREADS - 1)] * 4


@rounds
def test_a_hook_may_call_backward_itself(count):
    outer, inner = leaf((3,)), leaf((3,))

    def hook(g):
        with hl.enable_grad():  # hooks run in the mode of their backward
            hl.sum(inner * 2).backward()

    def work(k, i):
        y = outer * 3
        y.register_hook(hook)
        hl.sum(y).backward()

    raise_first(Crew().run(work, count))
    assert outer.grad.tolist() == [3.0 * count * THREADS] * 3
    assert inner.grad.tolist() == [2.0 * count * THREADS] * 3


# ---- modes ----------------------------------------------------------------------------------------------------------


@rounds
def test_w6_decorators_of_modes_are_shared_by_threads(count):
    w = leaf((2,))
    meet = threading.Barrier(THREADS)

    @hl.no_grad()
    def off():
        meet.wait()
        return hl.is_grad_enabled(), (w * 2).requires_grad

    @hl.enable_grad()
    def on():
        meet.wait()
        return hl.is_grad_enabled(), (w * 2).requires_grad

    def work(k, i):
        before = hl.is_grad_enabled()
        got = off() if (k + i) % 2 else on()
        return got == ((False, False) if (k + i) % 2 else (True, True)) and hl.is_grad_enabled() == before is True

    results = Crew().run(work, count)
    raise_first(results)
    assert all(all(row) for row in results)


@rounds
def test_w6_one_mode_object_entered_by_many_threads(count):
    mode = hl.no_grad()
    meet = threading.Barrier(THREADS)

    def work(k, i):
        if k % 2:
            with mode:
                meet.wait()
                inside = hl.is_grad_enabled()
        else:
            meet.wait()
            inside = not hl.is_grad_enabled()
        return (not inside) and hl.is_grad_enabled()

    results = Crew().run(work, count)
    raise_first(results)
    assert all(all(row) for row in results)


@rounds
def test_w6_autocast_is_each_thread_s_own(count):
    a = hl.ones((4, 4))
    meet = threading.Barrier(THREADS)
    assert (a @ a).dtype == hl.float32

    @hl.autocast(dtype=hl.bfloat16)
    def product():
        meet.wait()
        return (a @ a).dtype

    def work(k, i):
        if k % 2:
            return product() == hl.bfloat16 and (a @ a).dtype == hl.float32
        meet.wait()
        return (a @ a).dtype == hl.float32

    results = Crew().run(work, count)
    raise_first(results)
    assert all(all(row) for row in results)


@rounds
def test_w6_generators_and_exceptions_leave_the_mode_as_it_was(count):
    @hl.no_grad()
    def numbers():
        for _ in range(3):
            yield hl.is_grad_enabled()

    @hl.no_grad()
    def fails():
        raise KeyError("on purpose")

    def work(k, i):
        seen = []
        for inside in numbers():
            seen.append((inside, hl.is_grad_enabled()))
            with contextlib.suppress(KeyError):
                fails()
        return seen == [(False, True)] * 3

    results = Crew().run(work, count)
    raise_first(results)
    assert all(all(row) for row in results)


# ---- writes beside backward -----------------------------------------------------------------------------------------


@pytest.mark.plain  # the two threads race by intent
@rounds
def test_writes_beside_backward_give_the_old_gradient_or_an_error(count):
    """One thread writes what the others' graph has saved: a gradient of a mixture is never given."""
    graphs = []
    for _ in range(count):
        x, memory = leaf((20_000,)), hl.full((20_000,), 3.0, dtype=hl.float64)
        graphs.append((x, memory, hl.sum(x * memory)))

    def work(k, i):
        x, memory, out = graphs[i]
        if k == 0:
            memory += 1
            return None
        if k == 1:
            try:
                out.backward()
            except hl.VersionMismatch:
                return "refused"
            return "walked"
        return None

    for (x, memory, _), row in zip(graphs, Crew(2).run(work, count)):
        assert row[0] is None and bool((memory == 4.0).all())
        if row[1] == "refused":
            assert x.grad is None
        else:
            assert row[1] == "walked", row
            assert bool((x.grad == 3.0).all())


@rounds
def test_writes_of_each_thread_s_own_memory_beside_backward(count):
    w = leaf((40,), 0.5)

    def work(k, i):
        y = w * (k + 1)
        t = y[::2]
        t *= w[:20]
        y += hl.sin(y * 1)
        y[3:9] = w[0]
        hl.sum(y).backward()

    raise_first(Crew().run(work, count))
    alone = leaf((40,), 0.5)
    w_grad, w = w.grad.numpy(), alone
    for k in range(THREADS):
        work(k, 0)
    np.testing.assert_allclose(w_grad, alone.grad.numpy() * count, rtol=1e-10)


@rounds
def test_an_update_in_no_grad_beside_other_leaves(count):
    weights = [leaf((64,)) for _ in range(THREADS)]

    def work(k, i):
        w = weights[k]
        hl.sum(w * w).backward()
        with hl.no_grad():
            w -= 0.25 * w.grad
            w.grad = None

    raise_first(Crew().run(work, count))
    assert all(w.tolist() == [0.5**count] * 64 for w in weights)


# ---- the first of each thing ----------------------------------------------------------------------------------------


@rounds
def test_c5_matrix_products_of_all_threads_at_once(count):
    a = hl.reshape(hl.arange(0, 12, dtype=hl.float32), (3, 4))
    want = (a.numpy() @ a.numpy().T).tolist()
    results = Crew().run(lambda k, i: (a @ a.T).tolist() == want, count)
    raise_first(results)
    assert all(all(row) for row in results)


@rounds
def test_threads_that_end_give_their_memory_back(count):
    def work(k, i):
        w = leaf((50,))
        hl.sum(w * w).backward()
        return w.grad[0].item()

    gc.collect()
    for _ in range(3):
        Crew().run(work, 2)
    before = hl.memory_stats()["allocated_bytes"]
    for _ in range(max(3, count // 10)):
        assert Crew().run(work, 2) == [[2.0] * THREADS] * 2
    gc.collect()
    assert hl.memory_stats()["allocated_bytes"] == before
