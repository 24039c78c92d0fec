"""The rows of `./dev bench small` compute what NumPy does: one that raised would be a line without a figure."""

import pathlib
import sys

import numpy as np
import pytest

import hyalite as hl

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "benchmarks"))
import compiled_rows  # noqa: E402
import measure  # noqa: E402
import peers  # noqa: E402
import small_rows  # noqa: E402

ROWS = small_rows.small_rows()


LIBRARIES = {key: library for key, library in peers.catalogue().items() if key in ("numpy", "hyalite")}
LIBRARIES["numpy"].loaded, LIBRARIES["hyalite"].loaded = np, hl


@pytest.mark.parametrize("row", ROWS, ids=[row.key for row in ROWS])
def test_a_small_row_gives_numpys_value(row):
    arrays = row.inputs(np)
    expected = eval(row.reference, {"np": np, **arrays})
    for entry in row.entries:
        if entry.library in LIBRARIES and not entry.missing:
            measure.Statement(row, entry, LIBRARIES[entry.library], arrays, expected)


def test_keys_are_unique_and_no_row_is_named_like_a_family():
    keys = [row.key for row in ROWS]
    names = {small.name for family in small_rows.FAMILIES for small in family.rows}
    assert len(keys) == len(set(keys))
    assert names & {family.name for family in small_rows.FAMILIES} == set()


@pytest.mark.parametrize("key", [row.key for row in compiled_rows.compiled_rows()])
def test_a_compiled_row_gives_numpys_value(key, monkeypatch):
    monkeypatch.setattr(compiled_rows, "BIG", 5000)
    row = next(row for row in compiled_rows.compiled_rows() if row.key == key)
    whole = row.inputs(np)
    arrays = whole if key == "network" else {k: np.ascontiguousarray(a[..., :64][:64]) for k, a in whole.items()}
    expected = eval(row.reference, {"np": np, **row.names, **arrays})
    for entry in row.entries:
        if entry.library in LIBRARIES and not entry.missing:
            measure.Statement(row, entry, LIBRARIES[entry.library], arrays, expected)
