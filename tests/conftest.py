"""Hypothesis profiles: `ci` is the same on every run, `soak` looks further each time it runs.

`HYPOTHESIS_PROFILE=soak` gives every test of the suite the long version.
"""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

# Kernels that are not cached yet compile inside the first example, so nothing here is timed.
_PATIENT = {
    "deadline": None,
    "suppress_health_check": [HealthCheck.too_slow, HealthCheck.data_too_large],
}
settings.register_profile("ci", derandomize=True, max_examples=60, **_PATIENT)
settings.register_profile("soak", max_examples=1_500, print_blob=True, **_PATIENT)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))
