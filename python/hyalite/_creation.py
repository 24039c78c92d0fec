"""Tensors from objects, from rules, and like others."""

import math

from . import _C, _dtypes

__all__ = ["eye", "from_dlpack", "full_like", "linspace", "tensor"]

_float32, _int64, _uint64, _float64 = (_dtypes._by_name[n] for n in ("float32", "int64", "uint64", "float64"))
_bool, _complex64 = _dtypes._by_name["bool"], _dtypes._by_name["complex64"]


def _operand(x, op, name="x"):
    """What an op takes as an operand, as a tensor: a tensor, an array, or a number."""
    if isinstance(x, _C.Tensor):
        return x
    if isinstance(x, int | float | complex) or (hasattr(x, "__array_interface__") and not isinstance(x, type)):
        return _C._asarray(x, None, None)
    raise TypeError(
        f"{op}(): {name} must be a tensor, an array or a number, not {type(x).__name__}; write hl.asarray({name})"
    )


def _place(t, device):
    return t if device is None else t.to_device(device)


def _there(device, op):
    """Raises for a device that is not there, before anything is made."""
    if device is not None:
        _C._empty((), None, device, op)


def tensor(obj, dtype=None, *, device=None, requires_grad=False):
    """A copy of `obj`; with `requires_grad` a new leaf."""
    _there(device, "tensor")
    if device is None and not isinstance(obj, _C.Tensor):
        device = _C._chosen_device()
    wanted = _C._flag(requires_grad, "tensor", "requires_grad")
    t = _place(_C._asarray(obj, dtype, True, "tensor"), device)
    return t.detach().requires_grad_(True) if wanted else t


def from_dlpack(x, /, *, device=None, copy=None):
    """A tensor over the memory of an object with `__dlpack__`."""
    _there(device, "from_dlpack")
    try:
        return _place(_C._from_dlpack(x, copy), device)
    except BufferError as error:
        if str(error).startswith("from_dlpack(): "):
            raise
        raise BufferError(f"from_dlpack(): the export failed: {error}; write hl.asarray(x)") from error


def _full(shape, fill_value, *, dtype=None, device=None):
    """A tensor filled with a number, a NumPy scalar or a tensor without dimensions, whose gradient is the sum.

    The default dtype is that of the number's kind, or the scalar's own. Raises OverflowError for an int that the dtype
    does not hold, TypeError for a number of a higher kind.
    """
    return _filled("full", shape, fill_value, dtype, device)


def _filled(op, shape, value, dtype, device):
    value, strong, recorded = _number(value, op, "fill_value")
    t = _C._full(shape, value, strong if dtype is None else dtype, device, op)
    if not recorded:
        return t
    return _C.contiguous(_C.broadcast_to(recorded[0].astype(t.dtype), t.shape))


def _like(op, x, dtype, device):
    x = _operand(x, op)
    return x.shape, x.dtype if dtype is None else dtype, x.device if device is None else device


def full_like(x, /, fill_value, *, dtype=None, device=None):
    """A number in the shape and dtype of `x`; as `full` otherwise."""
    shape, dtype, device = _like("full_like", x, dtype, device)
    return _filled("full_like", shape, fill_value, dtype, device)


def _number(x, op, name):
    """The value of a number or of a 0-d tensor, its dtype if it has one, and the tensor if it is recorded."""
    if isinstance(x, int | float | complex):
        return x, None, ()
    t = _operand(x, op, name)
    if t.ndim:
        raise TypeError(f"{op}(): {name} must be one number, not of shape {t.shape}; write {name}.item() or an index")
    return t.item(), t.dtype, (t,) if t.requires_grad and _C.is_grad_enabled() else ()


def _joined(numbers):
    """The dtype of several numbers together, None where none of them has one."""
    strong = [dtype for _, dtype, _ in numbers if dtype is not None]
    return _C._promote(strong, [v for v, dtype, _ in numbers if dtype is None]) if strong else None


def _real(value, op, name):
    if isinstance(value, complex):
        raise TypeError(f"{op}(): {name} must be a real number, not {_C._shown(value)}; write {name}.real")
    return value


def _double(value, op, name):
    """A number as a double, rounded once."""
    try:
        return float(value)
    except OverflowError:
        raise OverflowError(
            f"{op}(): {name} is {_C._shown(value)}, which is beyond a float; write a smaller one"
        ) from None


def _whole(values, dtype, op, advice):
    """The values as ints, for an integer dtype. Raises TypeError for a fraction."""
    for v in values:
        if isinstance(v, float) and not v.is_integer():
            raise TypeError(f"{op}(): {_C._shown(v)} does not go into {dtype}; write {advice}")
    return [int(v) for v in values]


def _check_held(values, dtype, op):
    limits = _dtypes.iinfo(dtype)
    for v in values:
        if not limits.min <= v <= limits.max:
            raise OverflowError(f"{op}(): {_C._shown(v)} does not fit {dtype}; write a wider dtype, or hl.float32")


def _signed(v):
    """A value of 64 bits as the int64 of the same bits."""
    return (v + 2**63) % 2**64 - 2**63


def _spread(base, numbers):
    """`base` with the gradients of recorded numbers, each with its weights. The values stay: nothing is subtracted."""
    for (_, _, recorded), weights in numbers:
        for t in recorded:
            base = base - (t.detach() - t).astype(base.dtype) * weights
    return base


def _arange(start, /, stop=None, step=1, *, dtype=None, device=None):
    """ceil((stop - start) / step) elements start + i * step, each rounded once.

    Integers give int64, or uint64 where only that holds them; with a NumPy scalar or a tensor among the numbers their
    common dtype. Raises OverflowError for an element that the dtype does not hold.
    """
    if stop is None:
        start, stop = 0, start
    _there(device, "arange")
    if dtype is not None:
        dtype = _C._dtype(dtype, "arange")
    numbers = [_number(v, "arange", n) for v, n in ((start, "start"), (stop, "stop"), (step, "step"))]
    start, stop, step = (_real(v, "arange", n) for (v, _, _), n in zip(numbers, ("start", "stop", "step"), strict=True))
    whole = all(isinstance(v, int) for v in (start, stop, step))
    dtype = dtype or _joined(numbers) or (None if whole else _float32)
    if dtype is not None and dtype._kind == _dtypes._INTEGER and not whole:
        start, stop, step = _whole((start, stop, step), dtype, "arange", "dtype=hl.float32, or int(x)")
        whole = True
    count = _count(start, stop, step, whole)
    if whole:
        ends = (start, start + (count - 1) * step) if count else ()
        if dtype is None or dtype is _bool:
            dtype = _uint64 if any(v >= 2**63 for v in ends) and min(ends) >= 0 else _int64
        if dtype._kind == _dtypes._INTEGER:
            _check_held(ends, dtype, "arange")
        if all(-(2**63) <= v < 2**63 for v in ends):
            out = _C._range_int(_signed(start), _signed(step), count, dtype)
        elif all(0 <= v < 2**64 for v in ends):
            # int64 arithmetic wraps, so it gives uint64 too.
            out = _C._range_int(_signed(start), _signed(step), count, _uint64)
            out = out if dtype is _uint64 else _C.astype(out, dtype)
        else:
            out = _C._range_float(_double(start, "arange", "start"), _double(step, "arange", "step"), count, dtype)
    else:
        out = _C._range_float(_double(start, "arange", "start"), _double(step, "arange", "step"), count, dtype)
    if (numbers[0][2] or numbers[2][2]) and dtype._kind > _dtypes._INTEGER:
        out = _spread(out, [(numbers[0], 1), (numbers[2], _C._range_int(0, 1, count, dtype))])
    return _place(out, device)


def _count(start, stop, step, whole):
    if step == 0:
        raise ValueError("arange(): step 0 never arrives; write another step")
    if whole:
        count = -((start - stop) // step)
    else:
        for v, name in ((start, "start"), (stop, "stop"), (step, "step")):
            if not math.isfinite(_double(v, "arange", name)) and not (name == "step" and math.isinf(v)):
                raise ValueError(f"arange(): {name} is {v}; write a finite number")
        count = 0 if math.isinf(step) else math.ceil(_quotient(start, stop, step))
    count = max(0, count)
    if count >= 2**63:
        raise OverflowError(f"arange(): {_C._shown(count)} elements are more than 64 bits count; write a larger step")
    return count


def _quotient(start, stop, step):
    """(stop - start) / step in doubles, exactly where these overflow."""
    try:
        ratio = (stop - start) / step
        if math.isfinite(ratio):
            return ratio
    except OverflowError:
        pass
    import fractions  # 6 ms that `import hyalite` must not wait for

    return (fractions.Fraction(stop) - fractions.Fraction(start)) / fractions.Fraction(step)


def linspace(start, stop, /, num, *, dtype=None, device=None, endpoint=True):
    """`num` evenly spaced elements, the last exactly `stop`.

    float32 or complex64, or the common dtype of NumPy scalars and tensors, if it is floating. Raises OverflowError and
    TypeError for an element that an integer dtype does not hold.
    """
    _there(device, "linspace")
    if dtype is not None:
        dtype = _C._dtype(dtype, "linspace")
    num = _C._integer(num, "linspace", "num")
    endpoint = _C._flag(endpoint, "linspace", "endpoint")
    numbers = [_number(start, "linspace", "start"), _number(stop, "linspace", "stop")]
    start, stop = numbers[0][0], numbers[1][0]
    if num < 0:
        raise ValueError(f"linspace(): num is {num}; write 0 or more")
    compound = isinstance(start, complex) or isinstance(stop, complex)
    if dtype is None:
        dtype = _joined(numbers)
        if dtype is None or dtype._kind < _dtypes._FLOATING:
            dtype = _complex64 if compound else _float32
    if compound and dtype._kind < _dtypes._COMPLEX:
        raise TypeError(f"linspace(): a complex number does not go into {dtype}; write dtype=hl.complex64, or x.real")
    if dtype._kind <= _dtypes._INTEGER:
        out = _whole_steps(start, stop, num, dtype, endpoint)
    elif compound:
        part = _dtypes.finfo(dtype).dtype
        start, stop = complex(start), complex(stop)
        real = _C._linspace(start.real, stop.real, num, part, endpoint)
        out = real.astype(dtype) + _C._linspace(start.imag, stop.imag, num, part, endpoint).astype(dtype) * 1j
    else:
        ends = _double(start, "linspace", "start"), _double(stop, "linspace", "stop")
        out = _C._linspace(*ends, num, dtype, endpoint)
    if dtype._kind >= _dtypes._FLOATING and (numbers[0][2] or numbers[1][2]):
        part = _dtypes.finfo(dtype).dtype
        ahead = _C._linspace(0.0, 1.0, num, part, endpoint)
        out = _spread(out, [(numbers[0], 1 - ahead), (numbers[1], ahead)])
    return _place(out, device)


def _whole_steps(start, stop, num, dtype, endpoint):
    """The elements of an integer dtype, where all of them are integers."""
    if dtype is _bool:
        raise TypeError("linspace(): bool has no steps; write dtype=hl.float32")
    start, stop = _whole((start, stop), dtype, "linspace", "dtype=hl.float32")
    parts = max(num - 1 if endpoint else num, 1)
    step, rest = divmod(stop - start, parts)
    if num > 1 and rest:
        raise TypeError(
            f"linspace(): a step of {stop - start} / {parts} does not go into {dtype}; write dtype=hl.float32"
        )
    _check_held((start, start + (num - 1) * step)[: min(num, 2)], dtype, "linspace")
    return _C._range_int(_signed(start), _signed(step), num, dtype)


def eye(n_rows, n_cols=None, /, *, k=0, dtype=None, device=None):
    """Zeros with ones on diagonal `k`."""
    _there(device, "eye")
    rows = _C._integer(n_rows, "eye", "n_rows")
    columns = rows if n_cols is None else _C._integer(n_cols, "eye", "n_cols")
    if rows < 0 or columns < 0:
        raise ValueError(f"eye(): {rows} rows and {columns} columns; write 0 or more")
    try:
        k = _C._integer(k, "eye", "k")
    except OverflowError:
        k = 2**62 if k > 0 else -(2**62)  # a diagonal that no matrix has
    return _place(_C._eye(rows, columns, k, _float32 if dtype is None else _C._dtype(dtype, "eye")), device)
