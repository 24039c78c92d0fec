"""Devices: what there is, where tensors are made, and when what waits on a device is computed."""

from . import _C, _tree
from ._autograd import _kind_of
from ._function import Function

__all__ = ["device", "devices", "eval", "synchronize"]


def devices():
    """Every device this build and machine have, and those that are missing, with the reason.

    Returns:
        list of dict: name, available, why (it is missing; else empty), lazy (ops wait until a value is asked for),
        dtypes (that it computes in), missing_ops (names of ops that it cannot do), and what is known of it: hardware,
        driver, memory in bytes; of a lazy one also nodes and bytes that wait, and the line that holds most of them.
    """
    return _C._devices()


class device:
    """The device on which tensors are made where none is named, within a `with` block, in this thread.

    Args:
        name: such as "cpu" or "opencl:0".

    Raises:
        Unsupported: there is no such device; devices() says why.
    """

    def __init__(self, name):
        self.name = _C._named_device(name, "device")
        self._before = []

    def __enter__(self):
        self._before.append(_C._default_device(self.name))
        return self

    def __exit__(self, *_):
        _C._default_device(self._before.pop())

    def __repr__(self):
        return f"hl.device({self.name!r})"


def eval(*tensors):
    """Computes what the tensors wait for, and waits until it is done.

    Nobody needs to call this: a value is computed when it is asked for. On the CPU there is nothing to do.

    Args:
        *tensors: tensors, or lists, tuples and dicts of them.

    Raises:
        IndexError, ValueError: what an op found wrong with a value, with the Python line that asked for it.
    """
    leaves, names, _ = _tree.flatten(tensors, "tensors")
    for leaf, name in zip(leaves, names, strict=True):
        if not isinstance(leaf, _C.Tensor):
            raise TypeError(f"eval(): {name} must be a tensor, or a list, tuple or dict of them, not {_kind_of(leaf)}")
    _C._evaluate(leaves)


def synchronize(device=None):
    """Computes all that waits on a device, and waits until it is done.

    Args:
        device: its name; None for all devices.

    Raises:
        IndexError, ValueError: what an op found wrong with a value, with the Python line that asked for it.
    """
    _C._synchronize(device)


class _To(Function):
    @staticmethod
    def forward(ctx, x, name):
        ctx.before = x.device
        return x.to_device(name)

    @staticmethod
    def backward(ctx, g):
        return g.to_device(ctx.before), None


def _to(self, device, /):
    """The tensor on another device, itself where it is there already. The gradient goes back the same way."""
    name = _C._named_device(device, "to")
    if name == self.device:
        return self
    return _To.apply(self, name) if self.requires_grad else self.to_device(name)
