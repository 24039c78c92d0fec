"""What fails for want of memory leaves values, versions, graphs and gradients as they were: W24, W28."""

import os
import pathlib
import re
import subprocess
import sys

HERE = pathlib.Path(__file__).parent


def test_w24_w28_each_request_of_memory_of_each_op_may_fail():
    environment = dict(os.environ, HYALITE_POISON="1", PYTHONDONTWRITEBYTECODE="1")
    done = subprocess.run(
        [sys.executable, HERE / "allocation_worker.py"], capture_output=True, text=True, env=environment, cwd=HERE
    )
    assert done.returncode == 0, done.stdout + done.stderr
    programs, failures = map(int, re.fullmatch(r"(\d+) programs, (\d+) failed requests\n", done.stdout).groups())
    assert programs > 500 and failures > 5 * programs
