"""Modes as blocks and decorators: re-entrant, shared by threads, of generators and coroutines."""

import asyncio
import functools
import gc
import inspect
import threading

import pytest

import hyalite as hl
from hyalite import _C

PRODUCT = hl.ones((2, 2))


def state():
    """The thread's modes as their effects show them."""
    return _C.is_grad_enabled(), (PRODUCT @ PRODUCT).dtype


MODES = {
    "no_grad": (hl.no_grad, (False, hl.float32)),
    "enable_grad": (hl.enable_grad, (True, hl.float32)),
    "autocast": (hl.autocast, (True, hl.bfloat16)),
    "autocast_off": (functools.partial(hl.autocast, enabled=False), (True, hl.float32)),
    "float16": (functools.partial(hl.autocast, dtype=hl.float16), (True, hl.float16)),
}
OUTSIDE = (True, hl.float32)
every_mode = pytest.mark.parametrize("make, inside", MODES.values(), ids=MODES)


@pytest.fixture(autouse=True)
def modes_stay_as_they_were():
    assert state() == OUTSIDE
    yield
    gc.collect()
    assert state() == OUTSIDE


def run_threads(count, work):
    """Runs `work(i)` in threads that start together; raises what any of them raised."""
    barrier, errors = threading.Barrier(count), []

    def run(i):
        try:
            barrier.wait()
            work(i)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(i,)) for i in range(count)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    if errors:
        raise errors[0]


# ---- blocks -----------------------------------------------------------------------------------------------------


@every_mode
def test_one_object_is_entered_again_and_again_also_within_itself(make, inside):
    mode = make()
    for _ in range(3):
        with mode:
            assert state() == inside
            with mode, hl.enable_grad(), mode:
                assert state() == inside
            assert state() == inside
        assert state() == OUTSIDE


@every_mode
def test_w6_one_object_in_eight_threads_for_a_thousand_rounds(make, inside):
    mode = make()
    decorated = mode(state)

    @mode
    def generated():
        yield state()
        yield state()

    def work(_):
        for _ in range(1000):
            with mode:
                assert state() == inside
            assert state() == OUTSIDE
            assert decorated() == inside
            assert state() == OUTSIDE
            for seen in generated():
                assert seen == inside
                assert state() == OUTSIDE

    run_threads(8, work)


@every_mode
def test_blocks_that_end_out_of_order_leave_nothing_behind(make, inside):
    for order in ((0, 1, 2), (1, 0, 2), (1, 2, 0), (2, 0, 1), (0, 2, 1)):
        modes = [make(), hl.no_grad(), make()]
        for m in modes:
            m.__enter__()
        for i in order:
            modes[i].__exit__(None, None, None)
        assert state() == OUTSIDE


def test_a_later_block_goes_on_when_an_earlier_one_ends():
    first, second = hl.no_grad(), hl.no_grad()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert not _C.is_grad_enabled()
    second.__exit__(None, None, None)
    assert _C.is_grad_enabled()


# ---- functions --------------------------------------------------------------------------------------------------


@every_mode
def test_decorated_functions_recurse_raise_and_keep_their_names(make, inside):
    mode = make()

    @mode
    def down(n, *, fail=False):
        """Counts down."""
        assert state() == inside
        if n == 0:
            if fail:
                raise KeyError("at the bottom")
            return "done"
        with hl.enable_grad():
            out = down(n - 1, fail=fail)
        assert state() == inside
        return out

    assert down(5) == "done"
    assert state() == OUTSIDE
    with pytest.raises(KeyError):
        down(5, fail=True)
    assert state() == OUTSIDE
    assert down.__name__ == "down" and down.__doc__ == "Counts down."
    assert list(inspect.signature(down).parameters) == ["n", "fail"]


@every_mode
def test_decorates_methods_partials_and_callable_objects(make, inside):
    mode = make()

    class Model:
        @mode
        def method(self):
            return state()

        @classmethod
        @mode
        def of_class(cls):
            return state()

        @staticmethod
        @mode
        def static():
            return state()

        @mode
        @staticmethod
        def static_inside():
            return state()

        @mode
        @classmethod
        def of_class_inside(cls):
            return state()

        def __call__(self):
            return state()

        def generate(self):
            yield state()

    m = Model()
    found = (m.method, m.of_class, m.of_class_inside, m.static, m.static_inside)
    for call in (*found, mode(m), mode(functools.partial(state)), mode(state)):
        assert call() == inside
        assert state() == OUTSIDE
    for generate in (mode(m.generate), mode(functools.partial(m.generate))):
        assert list(generate()) == [inside]


@every_mode
def test_what_is_no_function_is_refused_by_name(make, inside):
    for wrong in (dict, 3, None, "x"):
        with pytest.raises(TypeError, match=r"decorates functions, not .*; write @hl\."):
            make()(wrong)


# ---- generators -------------------------------------------------------------------------------------------------


@every_mode
def test_w6_a_generator_is_in_its_mode_whenever_it_runs_and_its_caller_never(make, inside):
    events = []

    @make()
    def talk():
        try:
            received = None
            while received != "stop":
                assert state() == inside
                try:
                    received = yield received
                except KeyError as error:
                    events.append(("caught", state()))
                    received = f"caught {error}"
            return "returned"
        finally:
            events.append(("finally", state()))

    assert inspect.isgeneratorfunction(talk)
    g = talk()
    assert next(g) is None and state() == OUTSIDE
    assert g.send("hello") == "hello" and state() == OUTSIDE
    assert g.throw(KeyError("x")) == "caught 'x'" and state() == OUTSIDE
    with pytest.raises(StopIteration) as end:
        g.send("stop")
    assert end.value.value == "returned" and state() == OUTSIDE
    assert events == [("caught", inside), ("finally", inside)]

    events.clear()
    for finish in (lambda g: g.close(), lambda g: None):  # closed by hand, and by going out of use
        g = talk()
        next(g)
        finish(g)
        del g
        gc.collect()
        assert events.pop() == ("finally", inside)
        assert state() == OUTSIDE
    g = talk()
    next(g)
    with pytest.raises(ZeroDivisionError):
        g.throw(ZeroDivisionError)
    assert events.pop() == ("finally", inside) and state() == OUTSIDE


@every_mode
def test_generators_take_turns_and_keep_what_their_own_blocks_set(make, inside):
    @make()
    def nested():
        for _ in range(5):
            assert state() == inside
            with hl.enable_grad(), hl.autocast(dtype=hl.float16):
                seen = yield state()
                assert seen == "go on"
                assert state()[0]
            assert state() == inside

    others = [nested() for _ in range(3)]
    assert len({next(g)[0] for g in others}) == 1
    del others
    gc.collect()

    @make()
    def plain():
        for _ in range(20):
            yield state()

    @hl.no_grad()
    def without():
        for _ in range(20):
            yield _C.is_grad_enabled()

    for a, b in zip(plain(), without()):
        assert a == inside and b is False
        assert state() == OUTSIDE

    @hl.no_grad()
    def with_a_block():
        with hl.enable_grad():
            yield _C.is_grad_enabled()
            yield _C.is_grad_enabled()
        yield _C.is_grad_enabled()

    first, second = with_a_block(), with_a_block()
    seen = []
    for g in (first, second, first, second, first, second):
        seen.append(next(g))
        assert state() == OUTSIDE
    assert seen == [True, True, True, True, False, False]


def test_a_generator_may_be_resumed_and_closed_by_other_threads():
    ended = []

    @hl.no_grad()
    def walk():
        try:
            with hl.enable_grad(), hl.no_grad():
                for _ in range(1000):
                    yield _C.is_grad_enabled()
        finally:
            ended.append(_C.is_grad_enabled())

    for _ in range(20):
        g, lock = walk(), threading.Lock()

        def work(i, g=g, lock=lock):
            for _ in range(50):
                with lock:
                    assert next(g) is False
                assert state() == OUTSIDE
            if i == 0:
                with lock:
                    g.close()
            assert state() == OUTSIDE

        try:
            run_threads(4, work)
        except StopIteration:
            pass  # another thread had closed it
        assert ended.pop() is False


# ---- coroutines -------------------------------------------------------------------------------------------------


@every_mode
def test_w6_coroutines_that_take_turns_on_one_thread(make, inside):
    mode = make()

    @mode
    async def inner(n):
        assert state() == inside
        await asyncio.sleep(0)
        assert state() == inside
        if n == 3:
            raise KeyError(n)
        return n

    @mode
    async def task(n):
        for _ in range(20):
            assert state() == inside
            await asyncio.sleep(0)
            try:
                assert await inner(n) == n
            except KeyError:
                assert n == 3
            assert state() == inside
        return n

    async def bystander():
        for _ in range(60):
            assert state() == OUTSIDE
            await asyncio.sleep(0)

    async def main():
        assert inspect.iscoroutinefunction(task)
        got = await asyncio.gather(*(task(n) for n in range(8)), bystander())
        assert got[:8] == list(range(8))
        assert state() == OUTSIDE

    asyncio.run(main())


@every_mode
def test_a_cancelled_coroutine_ends_in_its_mode(make, inside):
    seen = []

    @make()
    async def forever():
        try:
            await asyncio.sleep(3600)
        finally:
            seen.append(state())
            await asyncio.sleep(0)
            seen.append(state())

    async def main():
        t = asyncio.create_task(forever())
        await asyncio.sleep(0)
        t.cancel()
        with pytest.raises(asyncio.CancelledError):
            await t
        assert state() == OUTSIDE

    asyncio.run(main())
    assert seen == [inside, inside]


@every_mode
def test_asynchronous_generators(make, inside):
    seen = []

    @make()
    async def stream():
        try:
            for i in range(5):
                assert state() == inside
                await asyncio.sleep(0)
                assert state() == inside
                try:
                    got = yield i
                except KeyError:
                    got = "caught"
                seen.append((got, state()))
        finally:
            await asyncio.sleep(0)
            seen.append(("finally", state()))

    async def main():
        assert inspect.isasyncgenfunction(stream)
        assert [i async for i in stream()] == list(range(5))
        assert state() == OUTSIDE
        assert seen == [(None, inside)] * 5 + [("finally", inside)]
        seen.clear()
        g = stream()
        assert await g.asend(None) == 0
        assert await g.asend("sent") == 1
        assert await g.athrow(KeyError) == 2
        assert state() == OUTSIDE
        await g.aclose()
        assert state() == OUTSIDE
        assert seen == [("sent", inside), ("caught", inside), ("finally", inside)]

    asyncio.run(main())


def test_blocks_across_an_await_do_not_leave_the_thread_in_their_mode():
    """A block that is open while its task waits is seen by the others, but ends when the last of them does."""

    async def task(turns):
        with hl.no_grad():
            for _ in range(turns):
                await asyncio.sleep(0)

    async def main():
        await asyncio.gather(*(task(n) for n in (5, 1, 3, 2, 4)))
        assert state() == OUTSIDE

    asyncio.run(main())
    assert state() == OUTSIDE
