"""The libraries that are compared: how each is imported, given an array, waited for and read back."""

import importlib
import importlib.metadata
import importlib.util
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any


def _hyalite_requires_grad(tensor):
    if hasattr(tensor, "requires_grad_"):
        return tensor.requires_grad_(True)
    tensor.requires_grad = True
    return tensor


@dataclass
class Library:
    """One library. `sync` wraps an expression so that its value is there when the statement ends."""

    key: str
    name: str
    module: str
    alias: str
    array: Callable[[Any, Any], Any] = lambda module, a: a
    sync: str = "{}"
    requires_grad: Callable[[Any], Any] | None = None
    distributions: tuple[str, ...] = ()
    loaded: Any = None
    version: str = ""
    missing: str = field(default="not installed")

    def is_there(self):
        """Whether the module can be found, without importing it."""
        try:
            return importlib.util.find_spec(self.module) is not None
        except ModuleNotFoundError:
            return False

    def load(self):
        """Imports the library; afterwards either `loaded` is set or `missing` says why not."""
        if not self.is_there():
            return
        try:
            self.loaded = importlib.import_module(self.module)
        except Exception as error:  # a broken peer must not end the run, nor leave the table
            self.missing = f"import failed: {type(error).__name__}: {error}"
            return
        self.version = self._version()

    def _version(self):
        for distribution in self.distributions:
            try:
                return importlib.metadata.version(distribution)
            except importlib.metadata.PackageNotFoundError:
                continue
        return str(getattr(self.loaded, "__version__", "unknown"))


def catalogue():
    """All libraries by key; NumPy first, so that its OpenBLAS reads the environment before another library sets it."""
    libraries = [
        Library("numpy", "NumPy", "numpy", "np", distributions=("numpy",)),
        Library(
            "torch",
            "PyTorch",
            "torch",
            "torch",
            array=lambda torch, a: torch.from_numpy(a.copy()),
            requires_grad=lambda t: t.requires_grad_(True),
            distributions=("torch",),
        ),
        Library(
            "jax",
            "JAX",
            "jax.numpy",
            "jnp",
            array=lambda jnp, a: jnp.array(a).block_until_ready(),
            sync="({}).block_until_ready()",
            distributions=("jax", "jaxlib"),
        ),
        Library(
            "mlx",
            "MLX",
            "mlx.core",
            "mx",
            array=lambda mx, a: mx.array(a),
            sync="mx.eval({})",
            distributions=("mlx", "mlx-cpu", "mlx-metal", "mlx-cuda"),
        ),
        Library("numexpr", "numexpr", "numexpr", "ne", distributions=("numexpr",)),
        Library("numba", "numba", "numba", "numba", distributions=("numba", "llvmlite")),
        Library("tinygrad", "tinygrad", "tinygrad", "tinygrad", distributions=("tinygrad",)),
        Library(
            "hyalite",
            "Hyalite",
            "hyalite",
            "hl",
            array=lambda hl, a: hl.asarray(a, copy=True),
            requires_grad=_hyalite_requires_grad,
        ),
    ]
    return {library.key: library for library in libraries}


def load(libraries, excluded):
    """Imports every library that is not excluded."""
    for library in libraries.values():
        if library.key in excluded:
            library.missing = "excluded"
        else:
            library.load()


def to_numpy(value):
    """A result of any library as a NumPy array."""
    import numpy

    if hasattr(value, "detach"):
        value = value.detach()
    return value.numpy() if hasattr(value, "numpy") else numpy.asarray(value)
