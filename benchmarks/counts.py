"""Counts that a test can hold where a time would waver: instructions per statement, and calls of the C allocator."""

import argparse
import ctypes
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import native

# In the order of `Field` in malloc_hook.cpp; `mmap` counts maps made outside the C allocator, `bytes` what was asked.
MALLOC_FIELDS = ("malloc", "calloc", "realloc", "aligned_alloc", "posix_memalign", "mmap", "bytes")
WARM_UP = 300  # the interpreter specialises the loop, free lists and pools fill

# Names are locals and the collector is off, as in run.py; the marks are empty where nothing needs them.
PROGRAM = """\
import gc, itertools, sys
def work(count, begin, end):
{setup}
    for _ in itertools.repeat(None, {warm_up}):
        {statement}
    begin()
    for _ in itertools.repeat(None, count):
        {statement}
    end()
"""


class CannotCount(RuntimeError):
    """The tool that counts is not there, or the counted program failed."""


def _program(setup, statement, tail):
    indented = "\n".join("    " + line for line in setup.splitlines()) or "    pass"
    return PROGRAM.format(setup=indented, statement=statement, warm_up=WARM_UP) + "gc.disable()\n" + tail


def _environment(extra):
    fixed = {"PYTHONHASHSEED": "0", "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "LC_ALL": "C"}
    kept = {name: value for name, value in os.environ.items() if name not in ("PYTHONDONTWRITEBYTECODE", "LD_PRELOAD")}
    return kept | fixed | (extra or {})


def _run(command, environment):
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    if done.returncode != 0:
        raise CannotCount(f"{command[0]} ended with {done.returncode}:\n{done.stdout[-2000:]}{done.stderr[-4000:]}")
    return done.stdout


def _python(program):
    # -s and -P: nothing from the user's site or the working folder; frozen modules whatever the build's default is.
    return [sys.executable, "-s", "-P", "-X", "frozen_modules=on", "-c", program]


def callgrind_instructions(setup, statement, n=2000, env=None):
    """Instructions per statement, of all threads: those of 2n repetitions less those of n, divided by n.

    The interpreter's own instructions are among them (74 for an empty statement in CPython 3.11). Valgrind shows the
    program a processor without AVX-512, so the kernels counted are those for AVX2. `env` adds to the environment.
    """
    valgrind = shutil.which("valgrind")
    if not valgrind:
        raise CannotCount("valgrind is not on PATH")
    environment = _environment(env)
    call = "work(int(sys.argv[1]), lambda: None, lambda: None)\n"
    program = _program(setup, statement, call)
    # Without valgrind first: errors come at once and readable, and the .pyc files are there for both counted runs.
    _run([*_python(program), "1"], environment)
    few, many = (_instructions(valgrind, program, count, environment) for count in (n, 2 * n))
    return (many - few) / n


def _callgrind(valgrind, program, count, environment):
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "callgrind.out"
        tool = [valgrind, "--tool=callgrind", f"--callgrind-out-file={out}", "--quiet", "--error-exitcode=99"]
        # The argument has the same width in both runs: the stack's alignment depends on it.
        _run([*tool, *_python(program), f"{count:012d}"], environment)
        return out.read_text()


def _instructions(valgrind, program, count, environment):
    found = re.findall(r"^(?:summary|totals):\s*(\d+)", _callgrind(valgrind, program, count, environment), re.MULTILINE)
    if not found:
        raise CannotCount("callgrind wrote no total")
    return int(found[-1])


def callgrind_functions(program, n=200, env=None):
    """By function: calls and instructions of its own, for one more repetition of what the program does.

    `program` is Python source; it reads the number of repetitions from `sys.argv[1]`.
    """
    valgrind = shutil.which("valgrind")
    if not valgrind:
        raise CannotCount("valgrind is not on PATH")
    environment = _environment(env)
    _run([*_python(program), "1"], environment)
    few, many = (_functions(_callgrind(valgrind, program, count, environment)) for count in (n, 2 * n))
    one_more = {f: tuple((b - a) / n for a, b in zip(few.get(f, (0, 0)), many[f], strict=True)) for f in many}
    return {f: found for f, found in one_more.items() if any(found)}


def _functions(text):
    """Calls and own instructions by function, out of callgrind's file: its manual, section "File Format"."""
    names, calls, own = {}, {}, {}
    current = called = None
    skip = False
    for line in text.splitlines():
        if match := re.match(r"(c?fn)=\((\d+)\)(?: (.*))?", line):
            kind, number, name = match.groups()
            name = names.setdefault(number, name)
            current, called = (name, called) if kind == "fn" else (current, name)
        elif line.startswith("calls="):
            calls[called] = calls.get(called, 0) + int(line[6:].split()[0])
            skip = True  # the next line is what the call cost in all
        elif current and re.match(r"[+*\d-]", line):
            if not skip:
                own[current] = own.get(current, 0) + int(line.split()[1])
            skip = False
    return {name: (calls.get(name, 0), own.get(name, 0)) for name in {*calls, *own}}


def malloc_calls(setup, statement, n=1000, python_objects=False, env=None):
    """Calls of the C allocator per statement, by name, and the bytes asked for; an empty statement's are subtracted.

    Python's own objects up to 512 bytes come from pymalloc, which maps arenas (256 KiB to 1 MiB) and does not call
    malloc; `python_objects=True` sets PYTHONMALLOC=malloc, and then every Python object that is allocated counts too.
    """
    environment = _environment(env)
    if python_objects:
        environment["PYTHONMALLOC"] = "malloc"
    hook = str(native.library("malloc_hook.cpp"))
    environment["LD_PRELOAD"] = hook
    found, empty = (_allocator_counts(hook, setup, text, n, environment) for text in (statement, "pass"))
    return {name: (a - b) / n for name, a, b in zip(MALLOC_FIELDS, found, empty, strict=True)}


def _allocator_counts(hook, setup, statement, n, environment):
    tail = f"""\
import ctypes
hook = ctypes.CDLL({hook!r})
counts = (ctypes.c_uint64 * {len(MALLOC_FIELDS)})()
begin, end = hook.hyalite_count_begin, hook.hyalite_count_end
begin(); end(counts)
work({n}, begin, lambda: end(counts))
print("counts", *counts)
"""
    output = _run(_python(_program(setup, statement, tail)), environment)
    line = next(line for line in reversed(output.splitlines()) if line.startswith("counts "))
    return [ctypes.c_uint64(int(word)).value for word in line.split()[1:]]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--setup", default="", help="Python lines that define the names of the statement")
    parser.add_argument("--count", type=int, default=2000, help="repetitions")
    parser.add_argument("--only", choices=("instructions", "allocations"))
    parser.add_argument("statement")
    options = parser.parse_args()
    found = {}
    if options.only != "allocations":
        found["instructions"] = callgrind_instructions(options.setup, options.statement, options.count)
    if options.only != "instructions":
        found["allocations"] = malloc_calls(options.setup, options.statement, options.count)
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
