"""Element types: singletons, hashable, pairwise unequal, and what one may ask about them."""

import builtins

from . import _C

__all__ = ["can_cast", "dtype", "finfo", "iinfo", "isdtype", "result_type"]


class dtype:  # noqa: N801
    """An element type, such as `hl.float32`."""

    __slots__ = ("_kind", "_signed", "itemsize", "name")

    def __new__(cls, *args):
        given = args[0] if args else None
        given = given if isinstance(given, dtype) else _by_name.get(given if isinstance(given, str) else "")
        raise TypeError(f"dtype(): dtypes are there already; write hl.{given or 'float32'}")

    def __repr__(self):
        return f"hyalite.{self.name}"

    def __str__(self):
        return self.name

    def __reduce__(self):
        return self.name

    @property
    def __numpy_dtype__(self):
        """NumPy's dtype, for np.dtype(hl.float32) and what takes one."""
        import numpy

        if self.name.startswith(("bfloat", "float8")):
            import ml_dtypes

            return numpy.dtype(getattr(ml_dtypes, self.name))
        return numpy.dtype(self.name)


_BOOLEAN, _INTEGER, _FLOATING, _COMPLEX = range(4)


def _made(name, itemsize, kind, signed):
    d = object.__new__(dtype)
    d.name, d.itemsize, d._kind, d._signed = name, itemsize, kind, signed
    return d


_all = [_made(*row) for row in _C._dtype_table()]
_by_name = {d.name: d for d in _all}
_C._register_dtypes(_all)
globals().update(_by_name)
__all__ += list(_by_name)


def _dtype_of(x, op, name):
    """The dtype that a dtype, a tensor or an array stands for."""
    if isinstance(x, _C.Tensor):
        return x.dtype
    if hasattr(x, "__array_interface__") and not isinstance(x, type):
        return _C._asarray(x, None, None).dtype
    return _C._dtype(x, op, name)


def result_type(*arrays_and_dtypes):
    """The dtype that tensors, dtypes and weak Python numbers give together.

    Raises DtypeMismatch where there is none (uint64 with a signed type, float8 with another), TypeError for others.
    """
    if not arrays_and_dtypes:
        raise ValueError("result_type(): needs at least one argument; write tensors, dtypes or numbers")
    weak, strong = [], []
    for x in arrays_and_dtypes:
        if isinstance(x, (_C.Tensor, dtype)):
            strong.append(x if isinstance(x, dtype) else x.dtype)
        elif isinstance(x, builtins.int | builtins.float | builtins.complex):
            weak.append(x)
        elif hasattr(x, "__array_interface__"):
            strong.append(_C._asarray(x, None, None).dtype)
        else:
            raise TypeError(
                f"result_type(): takes tensors, dtypes and numbers, not {_C._shown(x)}; write hl.asarray(x)"
            )
    return _C._promote(strong, weak)


def can_cast(from_, to, /):
    """Whether `result_type(from_, to)` is `to`."""
    from_, to = _dtype_of(from_, "can_cast", "from_"), _C._dtype(to, "can_cast", "to")
    try:
        return _C._promote([from_, to], []) is to
    except _C.DtypeMismatch:
        return False


_KINDS = {
    "bool": lambda d: d._kind == _BOOLEAN,
    "signed integer": lambda d: d._kind == _INTEGER and d._signed,
    "unsigned integer": lambda d: d._kind == _INTEGER and not d._signed,
    "integral": lambda d: d._kind == _INTEGER,
    "real floating": lambda d: d._kind == _FLOATING,
    "complex floating": lambda d: d._kind == _COMPLEX,
    "numeric": lambda d: d._kind > _BOOLEAN,
}


def isdtype(dtype, kind):
    """Whether a dtype is of a kind: a dtype, a name of the array API standard, or a tuple of these."""
    dtype = _C._dtype(dtype, "isdtype")
    return any([_is_kind(dtype, k) for k in (kind if isinstance(kind, tuple) else (kind,))])


def _is_kind(d, kind):
    if isinstance(kind, str):
        if kind not in _KINDS:
            raise ValueError(f"isdtype(): unknown kind {kind!r}; write one of {', '.join(_KINDS)}")
        return _KINDS[kind](d)
    if not isinstance(kind, dtype):
        raise TypeError(
            f"isdtype(): kind must be a dtype, a name or a tuple of them, not {_C._shown(kind)}; write 'integral'"
        )
    return d is kind


class finfo:  # noqa: N801
    """Limits of a floating type (of its components if complex), as Python numbers."""

    # exponent and mantissa bits; float8_e4m3fn spends only one pattern an infinity would take.
    _FORMATS = {"float16": (5, 10), "bfloat16": (8, 7), "float32": (8, 23), "float64": (11, 52)}
    _FORMATS |= {"complex64": (8, 23), "complex128": (11, 52), "float8_e4m3fn": (4, 3), "float8_e5m2": (5, 2)}

    def __init__(self, type, /):
        d = _dtype_of(type, "finfo", "type")
        if d.name not in self._FORMATS:
            raise TypeError(f"finfo(): needs a floating dtype or tensor, not {d}; write hl.iinfo() for integers")
        exponent, mantissa = self._FORMATS[d.name]
        bias = 2 ** (exponent - 1) - 1
        self.bits = d.itemsize * 8 // (2 if d._kind == _COMPLEX else 1)
        self.eps = 2.0**-mantissa
        largest = 448.0 if d.name == "float8_e4m3fn" else (2 - 2.0**-mantissa) * 2.0**bias
        self.max, self.min = largest, -largest
        self.smallest_normal = 2.0 ** (1 - bias)
        self.smallest_subnormal = 2.0 ** (1 - bias - mantissa)
        self.dtype = {"complex64": _by_name["float32"], "complex128": _by_name["float64"]}.get(d.name, d)

    def __repr__(self):
        return f"finfo(bits={self.bits}, eps={self.eps}, max={self.max}, min={self.min}, dtype={self.dtype})"


class iinfo:  # noqa: N801
    """Limits of an integer type, as Python ints."""

    def __init__(self, type, /):
        d = _dtype_of(type, "iinfo", "type")
        if d._kind != _INTEGER:
            raise TypeError(f"iinfo(): needs an integer dtype or tensor, not {d}; write hl.finfo() for floats")
        self.bits, self.dtype = d.itemsize * 8, d
        self.max = 2 ** (self.bits - d._signed) - 1
        self.min = -(2 ** (self.bits - 1)) if d._signed else 0

    def __repr__(self):
        return f"iinfo(bits={self.bits}, max={self.max}, min={self.min}, dtype={self.dtype})"
