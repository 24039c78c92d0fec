"""What pickles of tensors name: the functions that make them again."""

from . import _C


def _storage(data, was_writable):
    """The storage in a buffer: the caller's memory, or a copy of what stood in the pickle."""
    return _C._storage_from(data, was_writable)


def _tensor(cls, storage, dtype, shape, strides, offset, requires_grad):
    """A tensor of `cls` over a storage; a subclass gets its attributes afterwards, and its __init__ does not run."""
    return _C._tensor_from(cls, storage, dtype, shape, strides, offset, requires_grad)


def _set_state(obj, state):
    """Gives `obj` the attributes that __getstate__ gave, as copy and pickle do."""
    if hasattr(obj, "__setstate__"):
        obj.__setstate__(state)
        return
    slots = None
    if isinstance(state, tuple) and len(state) == 2:
        state, slots = state
    if state:
        obj.__dict__.update(state)
    for name, value in (slots or {}).items():
        setattr(obj, name, value)
