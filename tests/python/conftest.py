"""What every test shares: Hypothesis without its deadline, since no test here depends on the clock."""

import pytest
from hypothesis import settings
from isa_worker import EMULATED, sets

settings.register_profile("hyalite", deadline=None)
settings.load_profile("hyalite")


@pytest.hookimpl(trylast=True)
def pytest_sessionstart(session):
    """The header, which -q would leave out."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    emulated = ", ".join(f"{isa} as {processor}" for processor, isa in EMULATED.items())
    reporter.write_line(f"instruction sets: {', '.join(sets())} on this processor; emulated: {emulated}")
