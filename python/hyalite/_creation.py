"""Tensors from objects, from rules, and like others."""

import math

from . import _C, _dtypes

__all__ = [
    "arange", "asarray", "empty", "empty_like", "eye", "from_dlpack", "full", "full_like", "linspace", "ones",
    "ones_like", "tensor", "zeros", "zeros_like",
]  # fmt: skip

_float32, _int64, _bool, _complex64 = (_dtypes._by_name[n] for n in ("float32", "int64", "bool", "complex64"))


def _shape(shape):
    return [shape.__index__()] if hasattr(shape, "__index__") else [n.__index__() for n in shape]


def _place(t, device):
    return t if device is None else t.to_device(device)


def asarray(obj, /, *, dtype=None, device=None, copy=None):
    """A tensor of numbers, nested lists, an array or anything with a buffer or DLPack.

    Memory is shared where it can be, unless `copy` is true; `copy=False` raises ValueError where it cannot.
    """
    if device is not None:
        _C._empty([], _float32, device)  # raises for a device that is not there
    return _place(_C._asarray(obj, dtype, copy), device)


def tensor(obj, dtype=None, *, device=None, requires_grad=False):
    """A copy of `obj` as a new leaf."""
    t = asarray(obj, dtype=dtype, device=device, copy=True)
    return t.requires_grad_(True) if requires_grad else t


def from_dlpack(x, /, *, device=None, copy=None):
    """A tensor over the memory of an object with `__dlpack__`."""
    return _place(_C._from_dlpack(x, copy), device)


def empty(shape, *, dtype=None, device=None):
    """Memory that is not initialised. Raises OutOfMemory, or ValueError for a shape beyond 64 bits."""
    return _C._empty(_shape(shape), dtype or _float32, device or "cpu")


def full(shape, fill_value, *, dtype=None, device=None):
    """A tensor filled with a number; the default dtype is that of the number's kind."""
    if isinstance(fill_value, _C.Tensor):
        dtype = dtype or fill_value.dtype
        fill_value = fill_value.item()
    if dtype is None:
        dtype = _dtypes.result_type(fill_value)
    return _C._full(_shape(shape), fill_value, dtype, device or "cpu")


def zeros(shape, *, dtype=None, device=None):
    """A tensor of zeros, float32 by default."""
    return _C._full(_shape(shape), 0, dtype or _float32, device or "cpu")


def ones(shape, *, dtype=None, device=None):
    """A tensor of ones, float32 by default."""
    return _C._full(_shape(shape), 1, dtype or _float32, device or "cpu")


def empty_like(x, /, *, dtype=None, device=None):
    """Memory of the shape and dtype of `x`, not initialised."""
    return empty(x.shape, dtype=dtype or x.dtype, device=device or x.device)


def full_like(x, /, fill_value, *, dtype=None, device=None):
    """A number in the shape and dtype of `x`."""
    return full(x.shape, fill_value, dtype=dtype or x.dtype, device=device or x.device)


def zeros_like(x, /, *, dtype=None, device=None):
    """Zeros in the shape and dtype of `x`."""
    return zeros(x.shape, dtype=dtype or x.dtype, device=device or x.device)


def ones_like(x, /, *, dtype=None, device=None):
    """Ones in the shape and dtype of `x`."""
    return ones(x.shape, dtype=dtype or x.dtype, device=device or x.device)


def _number(x):
    return x.item() if isinstance(x, _C.Tensor) else x


def arange(start, /, stop=None, step=1, *, dtype=None, device=None):
    """ceil((stop - start) / step) elements start + i * step, each rounded once."""
    start, stop, step = _number(start), _number(stop), _number(step)
    if stop is None:
        start, stop = 0, start
    if step == 0:
        raise ValueError("arange(): step 0 never arrives; write another step")
    whole = all(isinstance(v, int) for v in (start, stop, step))
    dtype = dtype or (_int64 if whole else _float32)
    count = max(0, -((start - stop) // step) if whole else math.ceil((stop - start) / step))
    if device is not None:
        _C._empty([], _float32, device)
    if whole and all(-(2**63) <= v < 2**64 for v in (start, step)):
        # int64 arithmetic wraps, so it gives uint64 too.
        start, step = ((v + 2**63) % 2**64 - 2**63 for v in (start, step))
        return _C._range_int(start, step, count, dtype)
    return _C._range_float(float(start), float(step), count, dtype)


def linspace(start, stop, /, num, *, dtype=None, device=None, endpoint=True):
    """`num` evenly spaced elements, the last exactly `stop`."""
    start, stop = _number(start), _number(stop)
    if num < 0:
        raise ValueError(f"linspace(): num is {num}; write 0 or more")
    if device is not None:
        _C._empty([], _float32, device)
    if isinstance(start, complex) or isinstance(stop, complex):
        dtype = dtype or _complex64
        part = _dtypes.finfo(dtype).dtype
        start, stop = complex(start), complex(stop)
        real = _C._linspace(start.real, stop.real, num, part, endpoint)
        return real.astype(dtype) + _C._linspace(start.imag, stop.imag, num, part, endpoint).astype(dtype) * 1j
    return _C._linspace(float(start), float(stop), num, dtype or _float32, endpoint)


def eye(n_rows, n_cols=None, /, *, k=0, dtype=None, device=None):
    """Zeros with ones on diagonal `k`."""
    if device is not None:
        _C._empty([], _float32, device)
    return _C._eye(n_rows, n_rows if n_cols is None else n_cols, k, dtype or _float32)
