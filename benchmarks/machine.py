"""What the figures depend on: processor, memory, load, versions, environment."""

import os
import platform
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS", "XLA_FLAGS")


def _read(path):
    try:
        return Path(path).read_text().strip()
    except OSError:
        return ""


def _processor():
    for line in _read("/proc/cpuinfo").splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _instruction_sets():
    flags = set()
    for line in _read("/proc/cpuinfo").splitlines():
        if line.startswith("flags"):
            flags = set(line.split())
            break
    return [name for name in ("avx2", "fma", "avx512f", "avx512_bf16") if name in flags]


def _caches():
    found = {}
    for folder in sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")):
        kind = _read(folder / "type")
        if kind != "Instruction":
            found[f"L{_read(folder / 'level')}"] = _read(folder / "size")
    return found


def _commit():
    done = subprocess.run(
        ["git", "-C", str(Path(__file__).resolve().parent), "rev-parse", "--short=12", "HEAD"],
        capture_output=True,
        text=True,
    )
    return done.stdout.strip() if done.returncode == 0 else ""


def load_average():
    return [round(value, 2) for value in os.getloadavg()]


def facts(libraries):
    """Everything a reader needs to judge the figures, ready for JSON."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": _commit(),
        "processor": _processor(),
        "cores": allowed,
        "instruction_sets": _instruction_sets(),
        "caches": _caches(),
        "huge_pages": _read("/sys/kernel/mm/transparent_hugepage/enabled"),
        "system": f"{platform.system()} {platform.release()}",
        "python": sys.version.split()[0],
        "load_before": load_average(),
        "versions": {lib.name: lib.version if lib.loaded else lib.missing for lib in libraries.values()},
        "environment": {name: os.environ[name] for name in THREAD_VARIABLES if name in os.environ}
        | {name: value for name, value in os.environ.items() if name.startswith("HYALITE_")},
    }
