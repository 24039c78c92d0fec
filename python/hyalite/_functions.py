"""Functions of the namespace that say more than one op of the list, and helpers of the native module."""

from . import _C, _dtypes
from ._creation import _operand

__all__ = ["broadcast_arrays", "broadcast_shapes", "set_printoptions", "source", "unstack"]


_signatures = {}


def _signature(text):
    """The signature that a native function's text stands for."""
    if text not in _signatures:
        import inspect  # 14 ms that `import hyalite` must not wait for

        scope = dict(_dtypes._by_name)  # a default may be a dtype
        exec(f"def f{text}: pass", scope)  # noqa: S102 - the text comes from the op list
        _signatures[text] = inspect.signature(scope["f"])
    return _signatures[text]


def _iterate(self):
    """The tensors along the first axis, views."""
    if self.ndim == 0:
        raise TypeError("iteration over a 0-d tensor; write x.item()")
    return (self[i] for i in range(self.shape[0]))


def _reversed(self):
    """The tensors along the first axis, the last one first; views."""
    if self.ndim == 0:
        raise TypeError("reversed() of a 0-d tensor; write x.item()")
    return (self[i] for i in range(self.shape[0] - 1, -1, -1))


def _format(self, spec, /):
    """As Python formats the number of a tensor without dimensions; str(x) for an empty format."""
    if not isinstance(spec, str):
        raise TypeError(f"format(): the format must be a str, not {_C._shown(spec)}; write '.3f'")
    if not spec:
        return str(self)
    if self.ndim:
        raise TypeError(f"format(): {spec!r} is for one number, not for shape {self.shape}; write x.tolist() or str(x)")
    number = self.item()
    try:
        return format(number, spec)
    except ValueError:
        kind = type(number).__name__
        raise ValueError(
            f"format(): {spec!r} is no format of a Python {kind}; write one such as '>8' or '.3f'"
        ) from None


def _round(self, ndigits=None, /):
    """Each element rounded to so many decimal digits, to even halfway; a tensor of the same dtype."""
    digits = 0 if ndigits is None else _C._integer(ndigits, "round", "ndigits")
    whole = self.dtype._kind == _dtypes._INTEGER
    if digits == 0 or (whole and digits > 0):
        return _C.round(self)
    if whole:
        power = 10**-digits
        if power > _dtypes.iinfo(self.dtype).max:
            return _C.zeros_like(self)
        below, rest = _C.divmod(self, power)
        up = (rest > power - rest) | ((rest == power - rest) & (below % 2 == 1))
        return (below + up.astype(self.dtype)) * power
    power = 10.0 ** min(abs(digits), 300)
    return _C.round(self * power) / power if digits > 0 else _C.round(self / power) * power


def _array_namespace(self, /, *, api_version=None):
    """The module whose functions take this tensor, as the array API standard asks."""
    import hyalite

    known = api_version is None or isinstance(api_version, str)
    if not known or api_version not in (
        None,
        "2021.12",
        "2022.12",
        "2023.12",
        "2024.12",
        hyalite.__array_api_version__,
    ):
        raise ValueError(f"__array_namespace__(): version {_C._shown(api_version)} is unknown; write '2025.12'")
    return hyalite


def _operands(arrays, op):
    """A sequence of what an op takes, as tensors."""
    if isinstance(arrays, str | bytes) or not hasattr(arrays, "__iter__"):
        raise TypeError(f"{op}(): arrays must be a sequence of tensors, not {_C._shown(arrays)}; write [x, y]")
    arrays = list(arrays)
    return [_operand(a, op, f"arrays[{i}]") for i, a in enumerate(arrays)]


def unstack(x, /, *, axis=0):
    """The pieces of `x` along an axis, as a tuple of views."""
    x = _operand(x, "unstack")
    front = _C.moveaxis(x, _axis(axis, x.ndim, "unstack"), 0)
    return tuple(front[i] for i in range(front.shape[0]))


def _axis(axis, ndim, op, name="axis"):
    """An axis counted from the front. Raises IndexError outside."""
    a = _C._integer(axis, op, name)
    if not -ndim <= a < ndim:
        reach = f"write one from {-ndim} to {ndim - 1}" if ndim else "a tensor without dimensions has none"
        raise IndexError(f"{op}(): {name} {a} is out of range for {ndim} dimensions; {reach}")
    return a % ndim


def broadcast_shapes(*shapes):
    """The shape that the shapes broadcast to. Raises ShapeMismatch."""
    shapes = [_C._integers(s, "broadcast_shapes", "shapes") for s in shapes]
    out = []
    for shape in shapes:
        if any(n < 0 for n in shape):
            raise ValueError(f"broadcast_shapes(): {shape} has a negative size; write sizes of 0 or more")
        out = [1] * (len(shape) - len(out)) + out
        for i, n in enumerate(shape, len(out) - len(shape)):
            if n != 1 and out[i] not in (1, n):
                raise _C.ShapeMismatch(
                    f"broadcast_shapes(): {' and '.join(map(str, shapes))} do not broadcast; "
                    "sizes must be equal from the right, or 1"
                )
            out[i] = n if out[i] == 1 else out[i]
    return tuple(out)


def broadcast_arrays(*arrays):
    """The tensors as views of their common shape, a tuple."""
    arrays = _operands(arrays, "broadcast_arrays")
    shape = broadcast_shapes(*(a.shape for a in arrays))
    return tuple(_C.broadcast_to(a, shape) for a in arrays)


def set_printoptions(*, precision=None, threshold=None, edgeitems=None, linewidth=None, suppress=None):
    """Changes how tensors print: precision, threshold, edgeitems, linewidth, suppress, as NumPy names them.

    None leaves an option as it is.
    """
    options = {"precision": precision, "edgeitems": edgeitems, "linewidth": linewidth}
    options = {n: min(_C._integer(v, "set_printoptions", n), 2**31 - 1) for n, v in options.items() if v is not None}
    if threshold is not None:
        # NumPy's users write sys.maxsize, or an infinity.
        endless = isinstance(threshold, float | int) and threshold >= 2**63
        options["threshold"] = 2**63 - 1 if endless else _C._integer(threshold, "set_printoptions", "threshold")
    if suppress is not None:
        options["suppress"] = _C._flag(suppress, "set_printoptions", "suppress")
    for name in ("precision", "threshold", "linewidth"):
        if options.get(name, 0) < 0:
            raise ValueError(f"set_printoptions(): {name} is {options[name]}; write 0 or more")
    if options.get("edgeitems", 1) < 1:
        raise ValueError(f"set_printoptions(): edgeitems is {edgeitems}; write 1 or more")
    _C._set_printoptions(options)


class Source(str):
    """A piece of source text that knows where it stands."""

    file: str = ""
    line: int = 0


def source(op, *, language="c++", dtype=None, gradient=None):
    """The formula of an op, with `.file` and `.line`; or the kernel generated from it in "opencl" or "cuda".

    `gradient` names an operand by its number: the kernel is then the gradient for that operand.
    """
    name = op if isinstance(op, str) else getattr(op, "__name__", None)
    if name not in _C._op_names():
        raise ValueError(f"source(): {_C._shown(op)} is no op of the list; write hl.add, or its name")
    if not isinstance(language, str) or language not in ("c++", "opencl", "cuda"):
        raise ValueError(f"source(): language must be 'c++', 'opencl' or 'cuda', not {_C._shown(language)}")
    if language == "c++":
        file, line, text = _C._source(name)
    else:
        dtype = _dtypes._by_name["float32"] if dtype is None else _C._dtype(dtype, "source")
        number = -1 if gradient is None else _C._integer(gradient, "source", "gradient")
        operands = _C._op_facts(name)["params"]
        if number >= len(operands) or (number < 0 and gradient is not None):
            raise ValueError(f"source(): gradient is {number}; write one from 0 to {len(operands) - 1}")
        text = _C._generated_source(name, dtype, language, number)
        file, line, _ = _C._source(name)
    out = Source(text)
    out.file, out.line = file, line
    return out
