"""Outer, semi and anti joins and joins with one match, against their plain simulations."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock as ps
from tests.joins.agreement import Case, cases, events
from tests.oracles.kinds import Fate, exact_rows, simulate_kind

pytestmark = pytest.mark.interpreted

HOWS = ("inner", "left", "right", "full", "left_semi", "left_anti")
KINDS = [
    *((how, "all") for how in HOWS[1:]),
    *((how, matches) for matches in ("once", "one-to-one") for how in HOWS[:4]),
]
every_kind = pytest.mark.parametrize(("how", "matches"), KINDS)
POLICIES = ("fifo", "lru", "lfu", "prob", "life", "gdj", "clock", "clock-exp")
FINE = 12  # horizons up to which a pane of the filter is one unit of time


def rows(run: ps.JoinRun) -> list[tuple[int, int]]:
    """The rows that came out; -1 for no row."""
    assert run.pairs is not None
    sides = [
        [-1 if row is None else row for row in run.pairs.column(name).to_pylist()]
        for name in run.pairs.column_names
    ]
    return list(zip(*sides, strict=True))


def fine(within: Any) -> bool:
    """Whether the filter of lost keys cannot err by the width of its panes."""
    if isinstance(within, tuple) and within[0] in ("rows", "landmark"):
        return within[1] <= FINE
    return max(within if isinstance(within, tuple) else (within,)) <= FINE


def assert_fates(case: Case, run: ps.JoinRun, expected: Fate, how: str, matches: str) -> None:
    """The same results and the same fate of every tuple; no row that the exact join does not have."""
    stats, came = run.stats, Counter(rows(run))
    nulls = {
        (s, row)
        for s, stream in enumerate((case.left, case.right))
        for row, (_, key) in enumerate(stream)
        if key is None
    }
    sides = {"left": (0,), "left_anti": (0,), "right": (1,), "full": (0, 1)}.get(how, ())
    kept_nulls = {name for name in nulls if name[0] in sides}
    unmatched = {(0, a) if b < 0 else (1, b) for a, b in came if (a < 0 or b < 0) and how != "left_semi"}
    found = Counter({pair: n for pair, n in came.items() if how == "left_semi" or min(pair) >= 0})
    assert found == Counter(expected.pairs)
    assert Counter(events(run, "evicted")) == Counter(expected.evicted)
    assert Counter(events(run, "expired")) == Counter(expected.expired)
    assert Counter(events(run, "released")) == Counter(expected.released)
    assert Counter(events(run, "dropped")) == Counter(expected.dropped)
    undecided = events(run, "undecided")
    assert len(undecided) == len(set(undecided)) == stats.undecided
    assert stats.unmatched == len(unmatched)
    # The filter may say yes wrongly: then a row is undecided that is certain.
    certain = set(expected.unmatched)
    assert kept_nulls <= unmatched <= certain | kept_nulls
    assert set(expected.undecided) <= set(undecided)
    if how != "left_semi":
        assert unmatched | set(undecided) == certain | kept_nulls | set(expected.undecided)
    if fine(case.within) and matches != "one-to-one":
        assert unmatched == certain | kept_nulls
        assert set(undecided) == set(expected.undecided)
    exact = Counter(exact_rows(case.left, case.right, case.within, how, matches))
    assert stats.exact == exact.total()
    assert stats.results + stats.unmatched == came.total()
    if matches == "all":
        assert came <= exact
    assert {pair for pair in came if min(pair) < 0} <= set(exact)
    if not expected.evicted and not expected.dropped:
        assert came == exact
        assert stats.recall == 1
        assert stats.undecided == 0
    gone = stats.expired + stats.evicted + stats.dropped + stats.released
    assert stats.arrivals == stats.buffered + gone


@every_kind
@settings(max_examples=60)
@given(data=st.data())
def test_same_results_and_same_fate_of_every_tuple(how: str, matches: str, data: st.DataObject) -> None:
    case = data.draw(cases("arrival"))
    case = Case(case.left, case.right, case.within, case.budget, case.allocation)
    policy = data.draw(st.sampled_from(POLICIES))
    run = case.run(policy, how=how, matches=matches)
    expected = simulate_kind(
        case.left,
        case.right,
        within=case.within,
        budget=case.budget,
        policy=policy,
        how=how,
        matches=matches,
        allocation=case.allocation,
    )
    assert_fates(case, run, expected, how, matches)
