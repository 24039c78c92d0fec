"""Compiles the benchmarks' C++ helpers on first use into build/benchmarks/, and wraps them."""

import ctypes
import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
OUTPUT = HERE.parent / "build" / "benchmarks"
FLAGS = ["-std=c++20", "-O3", "-ffp-contract=off", "-fPIC", "-shared", "-pthread", "-Wall", "-Wextra"]
ADD, COPY, READ = 0, 1, 2
ARRAYS = {ADD: 3, COPY: 2, READ: 1}


class CannotCompile(RuntimeError):
    """There is no C++ compiler, or it refused."""


def compiler():
    """The path of the C++ compiler: $CXX, g++, clang++ or c++, whichever is found first."""
    for name in (os.environ.get("CXX"), "g++", "clang++", "c++"):
        if name and (path := shutil.which(name)):
            return path
    raise CannotCompile("no C++ compiler: neither $CXX, g++, clang++ nor c++ is on PATH")


def library(source_name):
    """The path of the shared library made from a source beside this file; a changed source is compiled anew."""
    source = HERE / source_name
    cxx = compiler()
    mark = hashlib.sha256(repr((cxx, FLAGS)).encode() + source.read_bytes()).hexdigest()[:16]
    target = OUTPUT / f"{source.stem}-{mark}.so"
    if target.exists():
        return target
    OUTPUT.mkdir(parents=True, exist_ok=True)
    # Two processes may come here at once, so the name appears only when the file is whole.
    handle, partial = tempfile.mkstemp(suffix=".so", dir=OUTPUT)
    os.close(handle)
    done = subprocess.run([cxx, *FLAGS, str(source), "-o", partial], capture_output=True, text=True)
    if done.returncode != 0:
        os.unlink(partial)
        raise CannotCompile(f"{cxx} refused {source_name}:\n{done.stderr}")
    os.replace(partial, target)
    return target


class Floor:
    """The measured floor of memory traffic: the fastest of several hand-written loops on all allowed cores."""

    def __init__(self):
        self._call = ctypes.CDLL(str(library("floor.cpp"))).hyalite_floor
        self._call.restype = ctypes.c_double
        self._call.argtypes = [
            ctypes.c_int,
            ctypes.c_int64,
            ctypes.c_int,
            ctypes.c_int,
            ctypes.POINTER(ctypes.c_char_p),
        ]
        self.threads = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        self.winner = ""

    def seconds(self, pattern, moved_bytes, repeats=8):
        """Seconds that moving so many bytes takes at the least; ADD reads two for each one it writes."""
        winner = ctypes.c_char_p()
        floats = max(1, moved_bytes // (4 * ARRAYS[pattern]))
        nanoseconds = self._call(pattern, floats, self.threads, repeats, ctypes.byref(winner))
        if nanoseconds <= 0:
            raise MemoryError(f"the floor's buffers for {moved_bytes} bytes could not be mapped")
        self.winner = f"{self.threads} threads, {(winner.value or b'').decode()}"
        return nanoseconds * 1e-9
