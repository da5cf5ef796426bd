"""Hypothesis profiles, and what tests of several packages share.

The profile `ci` is the same on every run, `soak` looks further each time it runs.
`HYPOTHESIS_PROFILE=soak` gives every test of the suite the long version.
"""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, settings

from penstock.engine import policy_race

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
    monkeypatch.setattr(policy_race, "EPOCH", (25, 25))
    monkeypatch.setattr(policy_race, "CERTAIN", 0.0)
    monkeypatch.setattr(policy_race, "AGREED", 0.0)
    monkeypatch.setattr(policy_race, "ENOUGH", 0)
    monkeypatch.setattr(policy_race, "FADE", 0.3)
    monkeypatch.setattr(policy_race, "TRIED", 2)
    monkeypatch.setattr(policy_race, "WATCHED", 5)
    monkeypatch.setattr(policy_race, "PAUSE", 2)
    monkeypatch.setattr(policy_race, "LOOK", 2)
    monkeypatch.setattr(policy_race, "BETWEEN", 2)


# Of the tests of Spark, `make test-fast` takes one per operator; of the others it leaves out what takes long.
QUICK_ON_SPARK = (
    "test_join.py::test_equals_sparks_join",
    "test_many.py::test_columns_of_other_names_and_types",
    "test_match.py::test_streams_and_batches_equal_the_run_in_process",
    "test_query.py::test_facts_of_two_streams_with_objects_of_two_types",
    "test_lookup.py::test_batch",
    "test_queue_source.py::test_a_stream_is_read_once",
)
LONG = (
    "tests/caching/test_caching.py::test_no_decisions_have_more_hits_than_lfd_with_bypass",
    "tests/caching/test_caching.py::test_the_best_join_of_the_reduction_is_the_best_cache",
    "tests/caching/test_heeb.py",
    "tests/cli/test_cli.py::test_as_a_process",
    "tests/cli/test_no_java.py",
    "tests/cli/test_signs_of_life.py",
    "tests/cli/test_warm.py",
    "tests/compiler/test_code_cache.py",
    "tests/compiler/test_parts.py::test_another_policy_in_another_process",
    "tests/compiler/test_switches.py",
    "tests/compiler/test_tiers.py",
    "tests/engine/test_tournament.py",
    "tests/reproduction/",
    "tests/flows/",
    "tests/joins/test_auto.py",
    "tests/joins/test_bytes.py",
    "tests/joins/test_contract.py",
    "tests/joins/test_estimate.py",
    "tests/joins/test_need.py::test_another_process_gets_the_recall_that_the_plan_shows",
    "tests/joins/test_oracle.py::test_large_buffers",
    "tests/joins/test_oracle.py::test_times_may_be_floats",
    "tests/linked/test_auto.py",
    "tests/linked/test_trees.py",
    "tests/lookup/",
    "tests/patterns/test_caches.py",
    "tests/patterns/test_limit.py",
    "tests/policies/",
    "tests/queues/test_flight.py::test_server_and_clients_killed",
    "tests/queues/test_kill",
    "tests/queues/test_damage.py",
    "tests/snapshots/",
    "tests/testing/test_check_policy.py::test_a_compiled_policy",
    "tests/site/",
    "tests/test_commands.py",
    "tests/test_docs.py",
    "src/penstock/",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what `make test-fast` leaves out."""
    seen: set[str] = set()
    for item in items:
        if "tests/spark/" in item.nodeid:
            quick = next((name for name in QUICK_ON_SPARK if name in item.nodeid), None)
            slow = quick is None or quick in seen
            seen.add(quick or "")
        else:
            slow = item.nodeid.startswith(LONG)
        if slow:
            item.add_marker(pytest.mark.slow)
