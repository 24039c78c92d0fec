"""What every test shares: Hypothesis without its deadline, since no test here depends on the clock."""

import os
import tempfile

import pytest
from hypothesis import settings
from isa_worker import EMULATED, sets

from hyalite import _C

# Generated kernels of the tests go where they are forgotten.
_folder = tempfile.TemporaryDirectory(prefix="hyalite-cache-")
os.environ["HYALITE_CACHE_DIR"] = _folder.name

settings.register_profile("hyalite", deadline=None)
settings.load_profile("hyalite")
_C._check_schedules(True)


@pytest.hookimpl(trylast=True)
def pytest_sessionstart(session):
    """The header, which -q would leave out."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    emulated = ", ".join(f"{isa} as {processor}" for processor, isa in EMULATED.items())
    reporter.write_line(f"instruction sets: {', '.join(sets())} on this processor; emulated: {emulated}")
