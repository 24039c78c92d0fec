"""Questions to the build and the machine, and settings of the process, as functions with signatures of their own."""

from . import _C

__all__ = [
    "about", "get_num_threads", "is_grad_enabled", "memory_stats", "reset_peak_memory", "set_memory_limit",
    "trim_memory", "use_deterministic_algorithms",
]  # fmt: skip


def about():
    """Facts about this build and machine: version, processor, instruction sets, threads, backends."""
    return _C.about()


def get_num_threads():
    """Threads an op may use, the caller included."""
    return _C.get_num_threads()


def is_grad_enabled():
    """Whether operations are recorded on this thread."""
    return _C.is_grad_enabled()


def memory_stats():
    """Bytes and calls of the CPU's pool: allocated + cached = system."""
    return _C.memory_stats()


def reset_peak_memory():
    """Starts a new peak at the bytes in use now."""
    _C.reset_peak_memory()


def set_memory_limit(bytes):
    """Most bytes that may be in use; 0 means the default."""
    limit = _C._integer(bytes, "set_memory_limit", "bytes")
    if limit < 0:
        raise ValueError(f"set_memory_limit(): bytes is {limit}; write 0 or more")
    _C.set_memory_limit(limit)


def trim_memory():
    """Gives cached memory back to the system; returns the bytes given."""
    return _C.trim_memory()


def use_deterministic_algorithms(mode):
    """Makes ops without a deterministic kernel raise NotDeterministic, in the whole process."""
    _C.use_deterministic_algorithms(_C._flag(mode, "use_deterministic_algorithms", "mode"))
