"""The array API standard's inspection of a namespace."""

from . import _dtypes

_NAMES = (
    "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float32", "float64", "complex64",
    "complex128",
)  # fmt: skip


class ArrayNamespaceInfo:
    """The result of `__array_namespace_info__()`."""

    def capabilities(self):
        """What the namespace can do beyond the required."""
        return {"boolean indexing": True, "data-dependent shapes": True, "max dimensions": 64}

    def default_device(self):
        """The device of new tensors."""
        return "cpu"

    def default_dtypes(self, *, device=None):
        """Dtypes of numbers without one."""
        names = {"real floating": "float32", "complex floating": "complex64", "integral": "int64", "indexing": "int64"}
        return {kind: _dtypes._by_name[name] for kind, name in names.items()}

    def dtypes(self, *, device=None, kind=None):
        """The standard's thirteen dtypes, or those of a kind."""
        if device not in (None, "cpu"):
            raise ValueError(f"dtypes(): device {device!r} is not there; write 'cpu'")
        found = {name: _dtypes._by_name[name] for name in _NAMES}
        return found if kind is None else {n: d for n, d in found.items() if _dtypes.isdtype(d, kind)}

    def devices(self):
        """Devices of this build and machine."""
        return ("cpu",)
