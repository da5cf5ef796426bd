"""Streams out of step: late arrivals, own progress, the estimate of what was lost."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock as ps
from penstock.errors import PenstockError
from penstock.joins.stream import StreamState
from tests.oracles.stream import simulate_stream

POLICIES = {
    "fifo": {},
    "lru": {},
    "lfu": {},
    "prob": {},
    "life": {},
    "gdj": {},
    "gdj:initial=0.5,method=2": {"initial": 0.5, "method": 2},
    "gdj:method=3": {"method": 3},
    "clock": {},
    "clock-exp": {},
}
EVICTED, EXPIRED, LATE = 0, 1, 3

ROWS = st.lists(st.tuples(st.integers(0, 1), st.integers(0, 60), st.integers(0, 4)), min_size=1, max_size=60)


def started(policy: Any, within: Any, budget: int, allocation: str, lateness: float) -> StreamState:
    join = ps.WindowJoin(within=within, budget=ps.Tuples(budget), policy=policy, allocation=allocation)
    state = join.start(lateness=lateness)
    assert isinstance(state, StreamState)
    return state


def feed(state: StreamState, rows: list[tuple[int, int, int]], first: int = 0) -> Any:
    stream, time, key = (list(part) for part in zip(*rows, strict=True))
    numbers = list(range(first, first + len(rows)))
    return state.process(stream, key, time, numbers, collect=True, log=True)


@pytest.mark.interpreted
@pytest.mark.parametrize("allocation", ["equal", "unified"])
@pytest.mark.parametrize("policy", POLICIES)
@given(
    rows=ROWS,
    within=st.tuples(st.integers(0, 25), st.integers(0, 25)),
    budget=st.integers(2, 12),
    lateness=st.integers(0, 20),
    cut=st.integers(0, 60),
)
def test_agrees_with_the_oracle(
    policy: str, allocation: str, rows: Any, within: Any, budget: int, lateness: int, cut: int
) -> None:
    expected, late = simulate_stream(
        rows,
        within=within,
        budget=budget,
        policy=policy.split(":")[0],
        options=POLICIES[policy],
        allocation=allocation,
        lateness=lateness,
    )
    state = started(policy, within, budget, allocation, lateness)
    parts = [feed(state, rows[:cut])] if rows[:cut] else []
    state.check()
    state = StreamState.restore(state.snapshot())
    parts += [feed(state, rows[cut:], len(rows[:cut]))] if rows[cut:] else []
    state.check()
    pairs = [tuple(pair) for part in parts for pair in part.pairs.tolist()]
    assert sorted(pairs) == sorted(expected.pairs)
    log = np.concatenate([part.log for part in parts])
    named = {
        kind: [(int(s), int(row)) for k, s, row, _ in log if k == kind] for kind in (EVICTED, EXPIRED, LATE)
    }
    assert named[EVICTED] == expected.evicted
    assert sorted(named[EXPIRED]) == sorted(expected.expired)
    assert [row for _, row in named[LATE]] == late
    assert state.late == len(late)
    for side in (0, 1):
        kept = [row for s, row in expected.buffered if s == side]
        assert sorted(state.rows(side).tolist()) == kept


def test_a_stream_hours_ahead_loses_nothing() -> None:
    state = started("gdj", 10, 1_000, "unified", 0)
    ahead = [(0, 10 * i, i % 7) for i in range(300)]
    behind = [(1, 10 * i + 3, i % 7) for i in range(300)]
    feed(state, ahead)
    out = feed(state, behind, 300)
    times = dict(enumerate([t for _, t, _ in ahead + behind]))
    keys = dict(enumerate([k for _, _, k in ahead + behind]))
    exact = sum(
        keys[a] == keys[b] and abs(times[a] - times[b]) <= 10 for a in range(300) for b in range(300, 600)
    )
    assert len(out.pairs) == exact > 0


def test_a_watermark_lets_tuples_go() -> None:
    state = started("fifo", 10, 100, "equal", 1_000)
    feed(state, [(0, 5, 1), (1, 6, 2)])
    state.advance(left=50, right=50)
    out = feed(state, [(0, 60, 3)], 2)
    assert [int(row) for kind, _, row, _ in out.log if kind == EXPIRED] == [0, 1]


def test_times_before_the_epoch() -> None:
    state = started("lru", 10, 100, "equal", 0)
    assert feed(state, [(0, -5_000, 1), (1, -4_995, 1)]).counts.tolist() == [0, 1]


def test_what_cannot_be_done_is_said_before_work() -> None:
    join = ps.WindowJoin(within=10, budget=ps.Tuples(4), step="tick")
    with pytest.raises(PenstockError, match="tick"):
        join.start(lateness=0)
    with pytest.raises(PenstockError, match="window of time"):
        ps.WindowJoin(within=ps.Rows(5), budget=ps.Tuples(4)).start(lateness=0)
    state = started("fifo", 10, 4, "equal", 0)
    with pytest.raises(PenstockError, match="finite"):
        state.process([0], [1], [2**62], [0])
