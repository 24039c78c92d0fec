"""Functions of the namespace that say more than one op of the list, and helpers of the native module."""

import functools

from . import _C, _creation, _dtypes

__all__ = [
    "astype", "broadcast_arrays", "broadcast_shapes", "concat", "expand_dims", "flip", "matrix_transpose", "moveaxis",
    "reshape", "set_printoptions", "source", "squeeze", "stack", "unstack",
]  # fmt: skip

_native_astype, _native_reshape, _native_concat = _C.astype, _C.reshape, _C.concat
_native_expand_dims, _native_squeeze = _C.expand_dims, _C.squeeze


@functools.cache
def _signature(text):
    """The signature that a native function's text stands for."""
    import inspect  # 14 ms that `import hyalite` must not wait for

    scope = {}
    exec(f"def f{text}: pass", scope)  # noqa: S102 - the text comes from the op list
    return inspect.signature(scope["f"])


def astype(x, dtype, /, *, copy=True, check=False, device=None):
    """`x` in another dtype, rounded once; `check=True` raises ValueError naming the first element not to survive.

    New memory, unless `copy=False` and the dtype is the same: then `x` itself.
    """
    x = x if device is None else x.to_device(device)
    if not copy and x.dtype is dtype:
        return x
    return _native_astype(x, dtype, check)


def _iterate(self):
    """The tensors along the first axis, views."""
    if self.ndim == 0:
        raise TypeError("iteration over a 0-d tensor; write x.item()")
    return (self[i] for i in range(self.shape[0]))


def _array_namespace(self, /, *, api_version=None):
    """The module whose functions take this tensor, as the array API standard asks."""
    import hyalite

    if api_version not in (None, "2021.12", "2022.12", "2023.12", "2024.12", hyalite.__array_api_version__):
        raise ValueError(
            f"__array_namespace__(): version {api_version} is unknown; write {hyalite.__array_api_version__}"
        )
    return hyalite


def reshape(x, /, *shape, copy=None):
    """The same elements in row-major order under another shape; one size may be -1.

    A view where the strides allow it. `copy=False` raises ValueError where they do not, `copy=True` always copies.
    """
    if len(shape) == 1 and not hasattr(shape[0], "__index__"):
        shape = tuple(shape[0])
    out = _native_reshape(x, shape)
    if copy is None:
        return out
    shared = out.size == 0 or x.data_ptr() == out.data_ptr()
    if copy is False and not shared:
        raise ValueError(
            f"reshape(): {x.shape} with strides {x.strides} has no view as {tuple(shape)}; write copy=None"
        )
    return out.copy() if copy and shared else out


def expand_dims(x, /, axis=0):
    """With new axes of size 1 at the named places of the result, a view."""
    return _native_expand_dims(x, axis)


def squeeze(x, /, axis=None):
    """Without the named axes (None: every axis) of size 1, a view. Raises ValueError where a size is another."""
    return _native_squeeze(x, axis)


def concat(arrays, /, *, axis=0):
    """The tensors one behind the other along an axis, in their common dtype; None: flattened first."""
    arrays = list(arrays)
    if axis is None:
        arrays, axis = [_native_reshape(a, -1) for a in arrays], 0
    return _native_concat(arrays, axis)


def stack(arrays, /, *, axis=0):
    """The tensors, all of one shape, along a new axis."""
    arrays = [a if isinstance(a, _C.Tensor) else _creation.asarray(a) for a in arrays]
    shapes = {a.shape for a in arrays}
    if len(shapes) > 1:
        raise _C.ShapeMismatch(f"stack(): {' and '.join(map(str, sorted(shapes)))} differ; all shapes must be equal")
    return concat([_native_expand_dims(a, axis) for a in arrays], axis=axis)


def unstack(x, /, *, axis=0):
    """The pieces of `x` along an axis, as a tuple of views."""
    front = moveaxis(x, axis, 0)
    return tuple(front[i] for i in range(front.shape[0]))


def moveaxis(x, source, destination, /):
    """Axes moved to other places, the others in their order; a view."""
    listed = [(v,) if hasattr(v, "__index__") else tuple(v) for v in (source, destination)]
    normal = [[a.__index__() + (x.ndim if a < 0 else 0) for a in v] for v in listed]
    if any(not 0 <= a < x.ndim for v in normal for a in v):
        raise IndexError(f"moveaxis(): {source} or {destination} is out of range for {x.ndim} dimensions")
    if len(normal[0]) != len(normal[1]) or any(len(set(v)) != len(v) for v in normal):
        raise ValueError("moveaxis(): source and destination must name as many axes, each once")
    order = [a for a in range(x.ndim) if a not in normal[0]]
    for to, a in sorted(zip(normal[1], normal[0], strict=True)):
        order.insert(to, a)
    return _C.permute_dims(x, order)


def flip(x, /, *, axis=None):
    """The elements in reverse order along axes (None: all); a view."""
    axes = range(x.ndim) if axis is None else [axis] if hasattr(axis, "__index__") else axis
    axes = {a + x.ndim if a < 0 else a for a in axes}
    if any(not 0 <= a < x.ndim for a in axes):
        raise IndexError(f"flip(): axis {axis} is out of range for {x.ndim} dimensions")
    return x[tuple(slice(None, None, -1) if a in axes else slice(None) for a in range(x.ndim))]


def matrix_transpose(x, /):
    """The last two axes exchanged, a view."""
    return x.mT


def broadcast_shapes(*shapes):
    """The shape that the shapes broadcast to. Raises ShapeMismatch."""
    out = []
    for shape in shapes:
        out = [1] * (len(shape) - len(out)) + out
        for i, n in enumerate(shape, len(out) - len(shape)):
            if n != 1 and out[i] not in (1, n):
                raise _C.ShapeMismatch(f"broadcast_shapes(): {' and '.join(map(str, shapes))} do not broadcast")
            out[i] = n if out[i] == 1 else out[i]
    return tuple(out)


def broadcast_arrays(*arrays):
    """The tensors as views of their common shape, a tuple."""
    shape = broadcast_shapes(*(a.shape for a in arrays))
    return tuple(_C.broadcast_to(a, shape) for a in arrays)


def set_printoptions(**options):
    """Changes how tensors print: precision, threshold, edgeitems, linewidth, suppress, as NumPy names them."""
    unknown = set(options) - {"precision", "threshold", "edgeitems", "linewidth", "suppress"}
    if unknown:
        raise TypeError(f"set_printoptions(): unknown option {sorted(unknown)[0]}")
    if "threshold" in options:
        options["threshold"] = min(options["threshold"], 2**63 - 1)
    _C._set_printoptions(options)


class Source(str):
    """A piece of source text that knows where it stands."""

    file: str = ""
    line: int = 0


def source(op, *, language="c++", dtype=None, gradient=None):
    """The formula of an op, with `.file` and `.line`; or the kernel generated from it in "opencl" or "cuda".

    `gradient` names an operand by its number: the kernel is then the gradient for that operand.
    """
    name = op if isinstance(op, str) else op.__name__
    if language == "c++":
        file, line, text = _C._source(name)
    else:
        text = _C._generated_source(
            name, dtype or _dtypes._by_name["float32"], language, -1 if gradient is None else gradient
        )
        file, line, _ = _C._source(name)
    out = Source(text)
    out.file, out.line = file, line
    return out
