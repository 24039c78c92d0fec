"""Context managers over the state of a thread, and the gradient functions."""

import contextlib
import functools

from . import _C, _dtypes

__all__ = ["autocast", "backward", "enable_grad", "grad", "no_grad", "set_num_threads", "value_and_grad"]


class _GradMode(contextlib.ContextDecorator):
    _on = True

    def __init__(self):
        self._old = []

    def __enter__(self):
        self._old.append(_C._set_grad_mode(self._on))
        return self

    def __exit__(self, *_):
        _C._set_grad_mode(self._old.pop())


class no_grad(_GradMode):  # noqa: N801
    """Inside, nothing is recorded on this thread. Also a decorator."""

    _on = False


class enable_grad(_GradMode):  # noqa: N801
    """Inside, operations are recorded on this thread, also within no_grad. Also a decorator."""

    _on = True


class autocast(contextlib.ContextDecorator):
    """Inside, ops with a policy run in `dtype` (matrix products) or float32 (exp, softmax and their like).

    Integers, float64 and complex are untouched. Holds for this thread, and ends with the block, also by an exception.
    """

    def __init__(self, device="cpu", dtype=None, enabled=True):
        dtype = dtype or _dtypes._by_name["bfloat16"]
        if dtype.name not in ("bfloat16", "float16"):
            raise ValueError(f"autocast(): dtype must be bfloat16 or float16, not {dtype}")
        _C._empty([], _dtypes._by_name["float32"], device)
        self._new, self._old = (enabled, dtype), []

    def __enter__(self):
        self._old.append(_C._set_autocast(*self._new))
        return self

    def __exit__(self, *_):
        _C._set_autocast(*self._old.pop())


class set_num_threads:  # noqa: N801
    """Sets the threads an op may use, at once; as a context manager it sets them back at the end."""

    def __init__(self, n):
        self._old = _C.get_num_threads()
        _C._set_num_threads(n)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        _C._set_num_threads(self._old)


def backward(roots, gradients=None, *, retain_graph=False, create_graph=False):
    """Adds the gradient of the weighted sum of `roots` to the grad of every leaf they depend on."""
    roots = [roots] if isinstance(roots, _C.Tensor) else list(roots)
    gradients = [gradients] if isinstance(gradients, _C.Tensor) else list(gradients or [])
    _C._backward(roots, gradients, retain_graph, create_graph)


def value_and_grad(f, argnums=0):
    """A function giving `(f(*args), gradient)`, the gradient by the arguments in `argnums` (a tuple gives a tuple).

    `f` returns one element. The gradient has a graph of its own, so it can be differentiated again.
    """
    numbers = (argnums,) if isinstance(argnums, int) else tuple(argnums)

    @functools.wraps(f)
    def wrapped(*args, **kwargs):
        args = list(args)
        with enable_grad():
            nested = False
            for i in numbers:
                x = args[i] if isinstance(args[i], _C.Tensor) else _C._asarray(args[i], None, None)
                nested = nested or x.requires_grad
                # A new node, so that the caller's tensor and its grad stay as they are.
                args[i] = _C.positive(x) if x.requires_grad else x.detach().requires_grad_(True)
            value = f(*args, **kwargs)
            grads = _C._grad([value], [args[i] for i in numbers], [], True, True)
        if not nested:
            value = value.detach()
            grads = [g if g is None else g.detach() for g in grads]
        return value, grads[0] if isinstance(argnums, int) else tuple(grads)

    return wrapped


def grad(f, argnums=0):
    """A function giving the gradient of `f` by the arguments in `argnums`; it nests for higher orders."""
    both = value_and_grad(f, argnums)

    @functools.wraps(f)
    def wrapped(*args, **kwargs):
        return both(*args, **kwargs)[1]

    return wrapped
