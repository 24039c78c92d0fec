"""The examples, run as a reader would run them."""

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import hyalite as hl

ROOT = Path(__file__).resolve().parents[2]
PHASES = ("Python", "Validate", "Compute", "Record", "Return")


def run(script, *arguments, cwd):
    """Runs an example with the package under test and returns what it printed."""
    package = Path(hl.__file__).absolute().parents[1]
    done = subprocess.run(
        [sys.executable, ROOT / "examples/python" / script, *map(str, arguments)],
        cwd=cwd,
        env=os.environ | {"PYTHONPATH": str(package), "COLUMNS": "160"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def accuracy(printed):
    return float(re.search(r"test accuracy (\d\.\d+)", printed)[1])


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    folder = tmp_path_factory.mktemp("demo")
    return run("digits.py", cwd=folder), folder


def test_digits_are_learnt(demo):
    printed, _ = demo
    assert accuracy(printed) >= 0.96
    assert "30/30" in printed  # the progress bar's end


def test_digits_end_with_a_trace_and_a_page(demo):
    printed, folder = demo
    for phase in PHASES:
        assert re.search(rf"^{phase}\b", printed, re.MULTILINE), f"{phase} is missing:\n{printed}"
    assert "page: build/demo/a_plus_b.html" in printed
    page = (folder / "build/demo/a_plus_b.html").read_text()
    assert page.lstrip().lower().startswith("<!doctype html>")
    assert "AddBackward" in page


def test_digits_give_the_same_numbers_again(demo, tmp_path):
    printed, _ = demo
    again = run("digits.py", "--page", tmp_path / "other/page.html", cwd=tmp_path)
    assert accuracy(again) == accuracy(printed)
    assert re.findall(r"loss [\d.]+", again)[-1] == re.findall(r"loss [\d.]+", printed)[-1]
    assert (tmp_path / "other/page.html").exists()


def test_digits_take_other_seeds_and_fewer_epochs(tmp_path):
    printed = run("digits.py", "--seed", 7, "--epochs", 3, cwd=tmp_path)
    assert accuracy(printed) > 0.8
    assert "3/3" in printed


README = (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("code", re.findall(r"```python\n(.*?)```", README, re.DOTALL), ids=lambda c: c.split("\n")[0])
def test_code_of_the_readme_runs(code, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    x, y = hl.ones((3, 2)), hl.ones(3)
    names = {"hl": hl, "np": np, "array": np.arange(6.0), "x": x, "y": y, "a": y, "b": y, "f": lambda t: (t * t).sum()}
    exec(compile(code, "README.md", "exec"), names)


def test_readme_names_the_pictures_and_both_commands():
    assert (ROOT / "docs/explain-desktop.png").exists() and (ROOT / "docs/explain-phone.png").exists()
    for wanted in ("docs/explain-desktop.png", "docs/explain-phone.png", "./dev demo", "./dev test"):
        assert wanted in README
