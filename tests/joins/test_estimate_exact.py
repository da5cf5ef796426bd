"""The estimate covers every way to lose a result, and never flatters: against an exact count of all arrivals.

A pane of a window of three units of time is one unit long, and four keys have a counter each, so that nothing
is left of the error of the sketch: what it counts must be right to the last pair, however rows come.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock as ps
from penstock.joins.estimate import estimate_recall
from penstock.joins.stream import StreamState

Row = tuple[int, int, int]  # stream, key, time
WITHIN = st.sampled_from([(3, 3), (0, 3), (3, 0), (2, 1), (0, 0)])

rows = st.tuples(st.integers(0, 1), st.integers(0, 3), st.integers(0, 60))
near = st.lists(st.lists(rows, max_size=25), max_size=6)  # batches, in any order of time


def pairs_of(arrivals: list[Row], before: int, after: int) -> int:
    """Results of the exact join."""
    left = [row for row in arrivals if row[0] == 0]
    right = [row for row in arrivals if row[0] == 1]
    return sum(lk == rk and -before <= rt - lt <= after for _, lk, lt in left for _, rk, rt in right)


def feed(state: StreamState, batch: list[Row]) -> None:
    ordered = sorted(batch, key=lambda row: (row[2], row[0]))
    stream, key, time = (np.array([row[i] for row in ordered], np.int64) for i in range(3))
    state.process(stream, key, time, np.arange(len(ordered)))


@pytest.mark.interpreted
@given(
    batches=near,
    within=WITHIN,
    tuples=st.integers(2, 40),
    policy=st.sampled_from(["fifo", "rand"]),
    allocation=st.sampled_from(["unified", "equal"]),
    drop_rate=st.sampled_from([0.0, 0.4]),
    drop_at=st.sampled_from(["admission", "arrival"]),
    lateness=st.sampled_from([0, 2, 30]),
    behind=st.booleans(),
    restart=st.booleans(),
)
def test_what_is_estimated_is_exact_or_at_most(
    batches: list[list[Row]],
    within: tuple[int, int],
    tuples: int,
    policy: str,
    allocation: str,
    drop_rate: float,
    drop_at: str,
    lateness: int,
    behind: bool,
    restart: bool,
) -> None:
    join = ps.WindowJoin(
        within=within,
        budget=ps.Tuples(tuples),
        policy=policy,
        allocation=allocation,
        drop_rate=drop_rate,
        drop_at=drop_at,
    )
    state = join.start(lateness=lateness, sketch_bytes=1 << 16)
    assert isinstance(state, StreamState)
    seen: list[Row] = []
    for batch in batches:
        late: list[Row] = []
        if behind and seen:  # as behind a watermark: these are dropped before the join
            mark = max(row[2] for row in seen) - 5
            late = [row for row in batch if row[2] <= mark]
            batch = [row for row in batch if row[2] > mark]
            state.miss(*(np.array([row[i] for row in late], np.int64) for i in range(3)))
        feed(state, batch)
        if restart:
            state = StreamState.restore(state.snapshot())
        seen += late + batch
        before, after = within
        counted = state.totals()["results"] + state.missed
        exact = pairs_of(seen, before, after)
        if state.unestimated == 0:
            assert counted == pytest.approx(exact)
        else:
            assert counted <= exact + 1e-9
            assert state.recall.at_most or state.recall.value is None


def test_a_budget_that_changes_keeps_the_estimate_honest() -> None:
    rng = np.random.default_rng(5)
    arrivals = [(int(s), int(k), t) for t, (s, k) in enumerate(rng.integers(0, (2, 4), (200, 2)).tolist())]
    join = ps.WindowJoin(within=3, budget=ps.Tuples(2), policy="fifo", allocation="unified")
    old = join.start(lateness=0)
    assert isinstance(old, StreamState)
    feed(old, arrivals[:100])
    for bytes_ in (1 << 16, 1 << 12):
        fresh = join.start(lateness=0, sketch_bytes=bytes_)
        assert isinstance(fresh, StreamState)
        fresh.take_over(StreamState.restore(old.snapshot()))
        feed(fresh, [*arrivals[100:], (0, 1, 97), (1, 1, 97)])
        exact = pairs_of([*arrivals, (0, 1, 97), (1, 1, 97)], 3, 3)
        counted = fresh.totals()["results"] + fresh.missed
        assert counted == pytest.approx(exact) if fresh.unestimated == 0 else counted <= exact


def test_without_room_for_a_sketch_nothing_is_promised() -> None:
    state = ps.WindowJoin(within=10, budget=ps.Tuples(2), policy="fifo").start(lateness=0, sketch_bytes=0)
    assert isinstance(state, StreamState)
    feed(state, [(t % 2, 1, t) for t in range(100)])
    assert state.recall.value is None
    assert str(state.recall) == "unknown"


def files(seed: int, late: float) -> tuple[list[list[Row]], list[Row]]:
    """Ten files of two streams with skewed keys; a share of the rows is one to three files too late, or all
    are shuffled.
    """
    rng = np.random.default_rng(seed)
    n = 20_000
    stream, key = rng.integers(0, 2, n), np.minimum(rng.zipf(1.4, n), 200)
    part = np.arange(n) * 10 // n
    if late == 1.0:
        part = rng.integers(0, 10, n)
    part = np.where(rng.random(n) < late, np.minimum(part + rng.integers(1, 4, n), 9), part)
    arrivals = list(zip(stream.tolist(), key.tolist(), range(n), strict=True))
    return [[arrivals[i] for i in np.flatnonzero(part == each)] for each in range(10)], arrivals


@pytest.mark.filterwarnings("ignore::penstock.errors.LateRowsWarning")
@pytest.mark.parametrize("late", [0.0, 0.01, 0.03, 1.0])
@pytest.mark.parametrize("options", [{}, {"drop_rate": 0.5}, {"drop_rate": 0.5, "drop_at": "arrival"}])
def test_out_of_order_files_do_not_flatter(late: float, options: dict[str, Any]) -> None:
    batches, arrivals = files(3, late)
    left = {"key": [k for s, k, _ in arrivals if s == 0], "ts": [t for s, _, t in arrivals if s == 0]}
    right = {"key": [k for s, k, _ in arrivals if s == 1], "ts": [t for s, _, t in arrivals if s == 1]}
    join = ps.WindowJoin(within=1_000, budget=ps.Tuples(400), policy="gdj", allocation="unified", **options)
    state = join.start(lateness=0)
    assert isinstance(state, StreamState)
    for batch in batches:
        feed(state, batch)
    exact = ps.WindowJoin(within=1_000, budget=ps.Tuples(2), policy="fifo").run(
        left, right, on="key", time="ts"
    )
    truth = state.totals()["results"] / exact.stats.exact
    told = state.recall
    print(f"{late:.0%} {options}: truth {truth:.3f}, told {told}, late {state.late}")
    if late == 1.0:
        assert told.value is None
    elif late == 0.0:
        assert not told.at_most
        assert told.value == pytest.approx(truth, abs=0.03)
    else:
        assert told.at_most
        assert told.value is not None
        assert truth - 0.03 < told.value < truth + 0.06


def test_a_tenth_of_unestimated_rows_makes_recall_unknown() -> None:
    assert estimate_recall(9, 1, 10, 100).value == 0.9
    assert estimate_recall(9, 1, 10, 100).at_most
    assert estimate_recall(9, 1, 11, 100).value is None
