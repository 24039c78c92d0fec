"""What every test shares: Hypothesis without its deadline, since no test here depends on the clock."""

from hypothesis import settings

settings.register_profile("hyalite", deadline=None)
settings.load_profile("hyalite")
