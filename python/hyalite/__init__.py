"""Hyalite: a tensor engine you can see through.

Write `import hyalite as hl`. `from hyalite import *` leaves out abs, all, any, bool, compile, divmod, eval, max, min,
pow, round and sum, which are Python's own names too.
"""

import gc

from . import _C
from ._C import (
    AutogradError,
    CompiledFunction,
    DeviceMismatch,
    DtypeMismatch,
    HyaliteError,
    NotDeterministic,
    OutOfMemory,
    ShapeMismatch,
    Tensor,
    Unsupported,
    VersionMismatch,
    _C_engine,
    arange,
    asarray,
    empty,
    empty_like,
    full,
    ones,
    ones_like,
    zeros,
    zeros_like,
)

_C._check_threads()
# Cycles through hooks and the graph, which Python's collector does not see.
gc.callbacks.append(_C._collect_cycles)

from . import _autograd, _compile, _creation, _device, _dtypes, _function, _functions, _modes, _system  # noqa: E402

globals().update({name: getattr(_C, name) for name in _C._op_names()})
for _module in (_dtypes, _creation, _functions, _modes, _autograd, _compile, _device, _function, _system):
    globals().update({name: getattr(_module, name) for name in _module.__all__})
# A node made by one of these names the line of its caller.
_C._hide_frames([vars(_module) for _module in (_autograd, _compile, _creation, _device, _function, _functions, _modes)])
Tensor.__format__ = _functions._format
Tensor.to = _device._to
Tensor.__reversed__ = _functions._reversed
Tensor.__round__ = _functions._round
Tensor.__iter__ = _functions._iterate
Tensor.__array_namespace__ = _functions._array_namespace

e, inf, nan, newaxis, pi = 2.718281828459045, float("inf"), float("nan"), None, 3.141592653589793
__version__ = _C.about()["version"]
__array_api_version__ = "2025.12"


def __getattr__(name):
    # Loaded at first use: explain needs modules that an import should not wait for.
    if name in ("explain", "Trace"):
        from . import _explain

        globals().update(explain=_explain.explain, Trace=_explain.Trace)
        return globals()[name]
    raise AttributeError(f"module 'hyalite' has no attribute {name!r}")


def __dir__():
    return sorted({*globals(), "explain", "Trace"})


# What `from hyalite import *` brings: everything public but the names that Python itself gives a meaning.
_builtin = vars(__import__("builtins"))
__all__ = [n for n in __dir__() if not n.startswith("_") and n not in _builtin]


def __array_namespace_info__():
    """What the array API standard asks of a namespace: devices, dtypes, capabilities."""
    from ._info import ArrayNamespaceInfo

    return ArrayNamespaceInfo()
