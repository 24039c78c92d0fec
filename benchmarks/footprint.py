"""The two rows that are not statements: time to import, and size on disk."""

import importlib.metadata
import os
import subprocess
import sys
import time
from pathlib import Path

from measure import Result, Table, judge
from rows import Goal

IMPORTS = {
    "hyalite": ("Hyalite", "import hyalite"),
    "numpy": ("NumPy", "import numpy"),
    "torch": ("PyTorch", "import torch"),
    "jax": ("JAX", "import jax"),
    "mlx": ("MLX", "import mlx.core"),
    "numexpr": ("numexpr", "import numexpr"),
    "numba": ("numba", "import numba"),
    "tinygrad": ("tinygrad", "import tinygrad"),
}
# A library's own parts that are distributions of their own; what it shares with others (NumPy, SciPy) is left out.
PARTS = {
    "numpy": ("numpy",),
    "torch": ("torch",),
    "jax": ("jax", "jaxlib"),
    "mlx": ("mlx", "mlx-cpu", "mlx-metal", "mlx-cuda", "mlx-cuda-12", "mlx-cuda-13"),
    "numexpr": ("numexpr",),
    "numba": ("numba", "llvmlite"),
    "tinygrad": ("tinygrad",),
}


def _start_up(statement, environment):
    start = time.perf_counter_ns()
    subprocess.run([sys.executable, "-c", statement], env=environment, cwd="/", check=True, capture_output=True)
    return (time.perf_counter_ns() - start) * 1e-6


def run_import(libraries, rounds):
    """Milliseconds of an import in a new process, less the best of a bare interpreter, started in the same rounds."""
    environment = dict(os.environ)
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # installed packages have their .pyc, so ours may have them
    bare = Result("floor", "python", "pass", variant=True, note="a bare interpreter; the others come on top of it")
    results = []
    for key, (label, statement) in IMPORTS.items():
        library = libraries[key]
        result = Result(label, key, statement, "" if library.loaded else library.missing)
        results.append(result)
        if library.loaded:
            try:
                _start_up(statement, environment)
            except subprocess.CalledProcessError as error:
                result.missing = "failed: " + error.stderr.decode(errors="replace").strip().splitlines()[-1]
    for _ in range(rounds):
        for result in [bare, *results]:
            if not result.missing:
                result.samples.append(_start_up(result.statement, environment))
    for result in results:
        result.samples = [sample - bare.value for sample in result.samples]
    goals = [Goal("<=", 30, None)]
    return Table("import", "import", "ms", False, [*results, bare], judge(goals, results, "ms"))


def _bytes_of(paths):
    """Sum of file sizes; byte-code caches do not count, since any Python makes them."""
    return sum(path.stat().st_size for path in paths if path.is_file() and path.suffix != ".pyc")


def _distribution_files(name):
    try:
        distribution = importlib.metadata.distribution(name)
    except importlib.metadata.PackageNotFoundError:
        return []
    return [Path(distribution.locate_file(file)).resolve() for file in distribution.files or []]


def _package_files(module):
    """The files below an imported package, and libraries of its name that the process has loaded from elsewhere."""
    found = {
        (Path(folder) / name).resolve()
        for root in module.__path__
        for folder, _, names in os.walk(root, followlinks=True)
        for name in names
    }
    maps = Path("/proc/self/maps")
    if maps.exists():
        for line in maps.read_text().splitlines():
            path = line.partition("/")
            if path[1] and module.__name__ in path[2].rpartition("/")[2]:
                found.add(Path("/" + path[2]).resolve())
    return sorted(found)


def run_size(libraries):
    """Megabytes (10^6 bytes) of each library's own files."""
    results = []
    for key, (label, _) in IMPORTS.items():
        library = libraries[key]
        result = Result(label, key, "own files")
        results.append(result)
        if not library.loaded:
            result.missing = library.missing
            continue
        # Hyalite is measured where it was imported from: a build folder has no list of installed files.
        files = _package_files(library.loaded) if key == "hyalite" else sum(map(_distribution_files, PARTS[key]), [])
        if key != "hyalite":
            result.statement = " + ".join(name for name in PARTS[key] if _distribution_files(name))
        if files:
            result.samples = [_bytes_of(files) / 1e6]
        else:
            result.missing = "its distribution lists no files"
    return Table("size", "installed size", "MB", False, results, judge([Goal("<=", 12, None)], results, "MB"))
