"""Hypothesis profiles, and what tests of several packages share.

The profile `ci` is the same on every run, `soak` looks further each time it runs.
`HYPOTHESIS_PROFILE=soak` gives every test of the suite the long version.
"""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, settings

from penstock import contest

# Kernels that are not cached yet compile inside the first example, so nothing here is timed.
_PATIENT = {
    "deadline": None,
    "suppress_health_check": [HealthCheck.too_slow, HealthCheck.data_too_large],
}
settings.register_profile("ci", derandomize=True, max_examples=60, **_PATIENT)
settings.register_profile("soak", max_examples=1_500, print_blob=True, **_PATIENT)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """`auto` looks at the results often and changes on weak evidence, so that it changes in a short test."""
    monkeypatch.setattr(contest, "EPOCH", (25, 25))
    monkeypatch.setattr(contest, "CERTAIN", 0.0)
    monkeypatch.setattr(contest, "AGREED", 0.0)
    monkeypatch.setattr(contest, "ENOUGH", 0)
    monkeypatch.setattr(contest, "FADE", 0.3)
    monkeypatch.setattr(contest, "TRIED", 2)
    monkeypatch.setattr(contest, "WATCHED", 5)
    monkeypatch.setattr(contest, "PAUSE", 2)
    monkeypatch.setattr(contest, "LOOK", 2)
    monkeypatch.setattr(contest, "BETWEEN", 2)
