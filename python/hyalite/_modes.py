"""Context managers over the state of a thread, which are decorators too: of functions, generators and coroutines."""

import types
from _thread import _local  # threading's, without the time that its module takes

from . import _C, _dtypes

__all__ = ["anomaly_mode", "autocast", "enable_grad", "no_grad", "set_num_threads"]

_GENERATOR, _COROUTINE, _ASYNC_GENERATOR = 0x20, 0x80, 0x200  # co_flags; importing inspect would take 14 ms


def _wraps(function):
    """functools.wraps. Like other modules here, functools is imported where it is used: it takes 1.5 ms."""
    import functools

    return functools.wraps(function)


class _Kind(_local):
    """One field of a thread's modes: how it is exchanged, and the blocks that this thread is in."""

    def __init__(self, current, exchange):
        self.current, self.exchange = current, exchange
        self.blocks = []  # pairs [mode, value before]


_grad_mode = _Kind(_C.is_grad_enabled, _C._set_grad_mode)
_anomaly = _Kind(_C._get_anomaly, _C._set_anomaly)
_autocast = _Kind(_C._get_autocast, lambda value: _C._set_autocast(*value))


class _Mode:
    """Holds nothing of a `with` block itself, so that one object may be in use many times and on many threads."""

    def __enter__(self):
        self._kind.blocks.append([self, self._kind.exchange(self._value)])
        return self

    def __exit__(self, *_):
        blocks = self._kind.blocks
        at = next((i for i in range(len(blocks) - 1, -1, -1) if blocks[i][0] is self), None)
        if at is None:
            return  # entered on another thread, by a generator that this one closes
        before = blocks.pop(at)[1]
        if at < len(blocks):
            # Blocks of coroutines that take turns need not end in their order: the later one goes on.
            blocks[at][1] = before
        else:
            self._kind.exchange(before)

    def __call__(self, function, /):
        if isinstance(function, (staticmethod, classmethod)):
            return type(function)(self(function.__func__))
        name = type(self).__name__
        if isinstance(function, type) or not callable(function):
            what = f"the class {function.__name__}" if isinstance(function, type) else type(function).__name__
            raise TypeError(f"{name}(): decorates functions, not {what}; write @hl.{name}() above each of its methods")
        flags = _flags(function)
        if flags & _ASYNC_GENERATOR:
            return _around_async_generator(self, function)
        if flags & _COROUTINE:
            return _around_coroutine(self, function)
        if flags & _GENERATOR:
            return _around_generator(self, function)

        @_wraps(function)
        def wrapped(*args, **kwargs):
            with self:
                return function(*args, **kwargs)

        return wrapped


def _flags(function):
    """Whether calling it makes a generator or a coroutine, as flags of its code."""
    import functools

    while isinstance(function, (functools.partial, types.MethodType)):
        function = function.func if isinstance(function, functools.partial) else function.__func__
    if not hasattr(function, "__code__"):
        function = type(function).__call__
    return getattr(getattr(function, "__code__", None), "co_flags", 0)


class _Suspended:
    """What a generator's modes are between its resumptions: its own are entered at each and left again at each yield.

    Of the other kind they are its caller's, but while a block of its own is open.
    """

    def __init__(self, mode):
        self.kinds = [[kind, [], mode._value, kind is mode._kind] for kind in (_grad_mode, _autocast, _anomaly)]

    def __enter__(self):
        self.outside = []
        for kind, blocks, value, fixed in self.kinds:
            current = kind.current()
            self.outside.append((kind.blocks, current))
            kind.blocks = blocks
            kind.exchange(value if fixed or blocks else current)

    def __exit__(self, *_):
        for state, (blocks, value) in zip(self.kinds, self.outside, strict=True):
            kind = state[0]
            state[2] = kind.exchange(value)
            kind.blocks = blocks


def _driven(suspended, inner):
    """Runs a generator, or what `await` runs, each step of it within its own mode."""
    step, argument = inner.send, None
    while True:
        try:
            with suspended:
                item = step(argument)
        except StopIteration as end:
            return end.value
        argument = None  # a suspended frame must not keep an exception, and its traceback, alive
        try:
            sent = yield item
        except GeneratorExit:
            with suspended:
                inner.close()
            raise
        except BaseException as error:  # noqa: BLE001 - it is the generator's to handle
            step, argument = inner.throw, error
        else:
            step, argument = inner.send, sent


_awaited = types.coroutine(_driven)


def _around_generator(mode, function):
    @_wraps(function)
    def wrapped(*args, **kwargs):
        return (yield from _driven(_Suspended(mode), function(*args, **kwargs)))

    return wrapped


def _around_coroutine(mode, function):
    @_wraps(function)
    async def wrapped(*args, **kwargs):
        return await _awaited(_Suspended(mode), function(*args, **kwargs))

    return wrapped


def _around_async_generator(mode, function):
    @_wraps(function)
    async def wrapped(*args, **kwargs):
        suspended, inner = _Suspended(mode), function(*args, **kwargs)
        step = inner.asend(None)
        while True:
            try:
                item = await _awaited(suspended, step)
            except StopAsyncIteration:
                return
            try:
                sent = yield item
            except GeneratorExit:
                await _awaited(suspended, inner.aclose())
                raise
            except BaseException as error:  # noqa: BLE001 - it is the generator's to handle
                step = inner.athrow(error)
            else:
                step = inner.asend(sent)

    return wrapped


class no_grad(_Mode):  # noqa: N801
    """Inside, nothing is recorded on this thread. Also a decorator.

    A decorated generator or coroutine is in the mode whenever it runs, and its caller never is.
    """

    _kind, _value = _grad_mode, False


class enable_grad(_Mode):  # noqa: N801
    """Inside, operations are recorded on this thread, also within no_grad. Also a decorator, as no_grad is."""

    _kind, _value = _grad_mode, True


class autocast(_Mode):  # noqa: N801
    """Inside, ops with a policy run in `dtype` (matrix products) or float32 (exp, softmax and their like).

    Integers, float64 and complex are untouched. Holds for this thread, and ends with the block, also by an exception.
    Also a decorator, as no_grad is.
    """

    _kind = _autocast

    def __init__(self, device="cpu", dtype=None, enabled=True):
        dtype = _dtypes._by_name["bfloat16"] if dtype is None else _C._dtype(dtype, "autocast")
        if dtype.name not in ("bfloat16", "float16"):
            raise ValueError(f"autocast(): dtype must be bfloat16 or float16, not {dtype}; write hl.bfloat16")
        _C._empty((), None, device, "autocast")
        self._value = (_C._flag(enabled, "autocast", "enabled"), dtype)


class anomaly_mode(_Mode):  # noqa: N801
    """Inside, an error in backward, or the first NaN that it computes, is told with the line of the forward op.

    A NaN raises AutogradError. Hyalite's errors say the line in their text, others carry it as a note. Every gradient
    is looked through, so backward is slower. Also a decorator, as no_grad is.
    """

    _kind, _value = _anomaly, True

    def __exit__(self, *raised):
        place = _C._anomaly_place()
        if place and raised[1] is not None:
            raised[1].add_note(f"in the backward of {place}")
        super().__exit__(*raised)


class set_num_threads:  # noqa: N801
    """Sets the threads an op may use, at once; as a context manager it sets them back at the end."""

    def __init__(self, n):
        n = _C._integer(n, "set_num_threads", "n")
        if not 1 <= n < 2**31:
            raise ValueError(f"set_num_threads(): n is {n}; write 1 or more")
        self._old = _C.get_num_threads()
        _C._set_num_threads(n)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        _C._set_num_threads(self._old)
