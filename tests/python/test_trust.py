"""docs/trust.md names what loops over each kind of fault: every line has its row, and every test on the page exists."""

import pathlib
import re

HERE = pathlib.Path(__file__).parent
PAGE = (HERE.parents[1] / "docs/trust.md").read_text()
LINES = {"M": range(1, 3), "C": range(1, 8), "W": range(1, 29), "L": range(1, 5), "G": range(1, 6), "F": range(1, 9)}
TRACE = ["P1", "T1", "T2", "T3", "T4", "T6", "T12"]


def test_every_line_has_a_row():
    rows = {line for cell in re.findall(r"^\| ([A-Z0-9, ]+) \|", PAGE, re.M) for line in cell.split(", ")}
    assert rows == {f"{kind}{i}" for kind, numbers in LINES.items() for i in numbers} | set(TRACE)


def test_every_test_on_the_page_exists():
    there = {name for path in HERE.glob("test_*.py") for name in re.findall(r"^def (test_\w+)", path.read_text(), re.M)}
    named = {name for name in re.findall(r"`(test_\w+)`", PAGE)}
    assert len(named) > 50 and named <= there, sorted(named - there)
    files = re.findall(r"`(?:tests/python/)?(test_\w+\.py)`", PAGE)
    assert files and all((HERE / f).is_file() for f in files)
