"""As-of joins in process: against the oracle, pandas, budgets, batches, snapshots."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock as ps
from penstock.engine.join_loop import LOG_UNDECIDED
from tests.oracles.asof import exact_answers

DIRECTIONS = ("backward", "forward", "nearest")
POLICIES = ("fifo", "rand", "lru", "lfu", "prob", "life", "gdj", "clock", "clock-exp", "learned", "auto")
PLENTY = ps.Tuples(10_000)

keys = st.one_of(st.none(), st.integers(0, 3))
rows = st.lists(st.tuples(keys, st.integers(0, 30)), max_size=25)
tolerances = st.one_of(st.none(), st.integers(0, 12))


def table(given: list[tuple[Any, Any]]) -> dict[str, Any]:
    return {
        "k": pd.array([key for key, _ in given], dtype="Int64"),
        "ts": np.array([time for _, time in given], np.int64),
    }


def answers(run: ps.AsofRun) -> dict[int, int | None]:
    assert run.pairs is not None
    found = run.pairs.to_pydict()
    assert found["left_row"] == sorted(set(found["left_row"]))
    return dict(zip(found["left_row"], found["right_row"], strict=True))


@pytest.mark.interpreted
@given(rows, rows, tolerances, st.sampled_from(DIRECTIONS), st.booleans())
@settings(max_examples=150, deadline=None)
def test_equals_the_oracle_if_memory_suffices(left, right, tolerance, direction, exact):
    join = ps.AsofJoin(
        PLENTY, tolerance=tolerance, direction=direction, allow_exact_matches=exact, policy="lru"
    )
    run = join.run(table(left), table(right), on="k", time="ts")
    expected = exact_answers(left, right, tolerance, direction, exact)
    assert answers(run) == dict(enumerate(expected))
    stats = run.stats
    assert stats.results == sum(each is not None for each in expected)
    assert (stats.unmatched, stats.undecided) == (len(left) - stats.results, 0)
    assert (stats.exact, stats.recall) == (len(left), 1.0)
    check_account(stats)


def check_account(stats: ps.AsofStats) -> None:
    gone = stats.expired + stats.evicted + stats.dropped + stats.released + stats.late
    assert stats.arrivals == stats.buffered + gone


@pytest.mark.interpreted
@given(
    rows,
    rows,
    tolerances,
    st.sampled_from(DIRECTIONS),
    st.booleans(),
    st.integers(1, 6),
    st.sampled_from(POLICIES),
)
@settings(max_examples=200, deadline=None)
def test_what_is_answered_is_right_whatever_is_evicted(
    left, right, tolerance, direction, exact, tuples, policy
):
    join = ps.AsofJoin(
        ps.Tuples(tuples), tolerance=tolerance, direction=direction, allow_exact_matches=exact, policy=policy
    )
    run = join.run(table(left), table(right), on="k", time="ts")
    expected = exact_answers(left, right, tolerance, direction, exact)
    found = answers(run)
    assert found == {row: expected[row] for row in found}
    stats = run.stats
    assert stats.undecided == len(left) - len(found)
    assert stats.results + stats.unmatched == len(found)
    assert stats.undecided == 0 or stats.evicted > 0
    assert stats.peak_tuples <= tuples
    check_account(stats)


def in_order(left, right) -> list[tuple[int, Any, int, int]]:
    both = [(0, *row, n) for n, row in enumerate(left)] + [(1, *row, n) for n, row in enumerate(right)]
    return sorted((each for each in both if each[1] is not None), key=lambda each: each[2])


def fed(state: ps.AsofState, part: list[tuple[int, Any, int, int]], **options: Any) -> Any:
    columns = list(zip(*part, strict=True)) or [[], [], [], []]
    return state.process(*columns, collect=True, log=True, **options)


batches = st.lists(st.integers(0, 60), max_size=4)


@pytest.mark.interpreted
@given(
    rows,
    rows,
    tolerances,
    st.sampled_from(DIRECTIONS),
    st.booleans(),
    st.sampled_from((2, 5, 1000)),
    st.sampled_from(POLICIES),
    batches,
    st.sampled_from((None, 0, 5)),
)
@settings(max_examples=250, deadline=None)
def test_batches_and_snapshots_change_nothing(
    left, right, tolerance, direction, exact, tuples, policy, cuts, lateness
):
    join = ps.AsofJoin(
        ps.Tuples(tuples), tolerance=tolerance, direction=direction, allow_exact_matches=exact, policy=policy
    )
    arrivals = in_order(left, right)
    whole = join.start(lateness=lateness)
    out = fed(whole, arrivals)
    pairs, log = [*out.pairs.tolist(), *whole.finish(collect=True).pairs.tolist()], out.log.tolist()
    state, pairs_of_parts, log_of_parts = join.start(lateness=lateness), [], []
    for first, last in itertools.pairwise(
        [0, *sorted(min(cut, len(arrivals)) for cut in cuts), len(arrivals)]
    ):
        out = fed(state, arrivals[first:last])
        pairs_of_parts += out.pairs.tolist()
        log_of_parts += out.log.tolist()
        state.check()
        state = ps.AsofState.restore(state.snapshot())
    pairs_of_parts += state.finish(collect=True).pairs.tolist()
    assert pairs_of_parts == pairs
    assert log_of_parts == log
    assert state.totals() == whole.totals()
    if tuples == 1000:
        expected = exact_answers(left, right, tolerance, direction, exact)
        assert sorted(pairs) == [
            [row, -1 if answer is None else answer]
            for row, answer in enumerate(expected)
            if left[row][0] is not None
        ]


@pytest.mark.interpreted
@given(
    rows,
    rows,
    tolerances,
    st.sampled_from(DIRECTIONS),
    st.booleans(),
    st.sampled_from((2, 4, 1000)),
    st.sampled_from(("fifo", "lru", "prob", "rand")),
    st.integers(0, 8),
    st.randoms(use_true_random=False),
)
@settings(max_examples=300, deadline=None)
def test_streams_that_advance_independently(
    left, right, tolerance, direction, exact, tuples, policy, lateness, random
):
    """Rows come in any order: those that are late are left out, all other answers are exact or undecided."""
    join = ps.AsofJoin(
        ps.Tuples(tuples), tolerance=tolerance, direction=direction, allow_exact_matches=exact, policy=policy
    )
    both = in_order(left, right)
    random.shuffle(both)
    state, late, latest = join.start(lateness=lateness), set(), [-(10**9), -(10**9)]
    pairs, log = [], []
    for side, key, time, row in both:
        if time < latest[side]:
            late.add((side, row))
        latest[side] = max(latest[side], time - lateness)
        out = fed(state, [(side, key, time, row)])
        state.check()
        pairs += out.pairs.tolist()
        log += out.log.tolist()
    out = state.finish(collect=True, log=True)
    pairs, log = pairs + out.pairs.tolist(), log + out.log.tolist()
    order = [(side, row) for side, _, _, row in both]
    come = [
        right[row] if (1, row) in order and (1, row) not in late else (None, 0) for row in range(len(right))
    ]
    # Of rows of one time, the first to come is the first: number them in order of arrival.
    numbers = sorted(range(len(right)), key=lambda row: order.index((1, row)) if (1, row) in order else -1)
    answers = exact_answers(left, [come[number] for number in numbers], tolerance, direction, exact)
    expected = {
        row: -1 if answers[row] is None else numbers[answers[row]]
        for row in range(len(left))
        if left[row][0] is not None and (0, row) not in late
    }
    found = dict(pairs)
    assert len(found) == len(pairs)
    assert found == {row: expected[row] for row in found}
    undecided = [row for kind, side, row, _ in log if kind == LOG_UNDECIDED]
    assert sorted([*undecided, *found]) == sorted(expected)
    assert state.undecided == len(undecided)
    assert state.late == len(late)
    assert not undecided or state.totals()["evicted"]
    if tuples == 1000:
        assert not undecided


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("exact", [True, False])
@pytest.mark.parametrize("tolerance", [None, 40])
def test_equals_pandas(direction, exact, tolerance):
    random = np.random.default_rng(5)
    left, right = (
        pd.DataFrame(
            {
                "a": random.integers(0, 30, 4_000),
                "b": random.choice(["x", "y"], 4_000),
                "ts": np.sort(random.integers(0, 20_000, 4_000)),
            }
        )
        for _ in range(2)
    )
    right["right_row"] = np.arange(len(right))
    expected = pd.merge_asof(
        left,
        right,
        on="ts",
        by=["a", "b"],
        tolerance=tolerance,
        direction=direction,
        allow_exact_matches=exact,
    )["right_row"]
    run = ps.asof_join(
        left,
        right,
        on=["a", "b"],
        time="ts",
        tolerance=tolerance,
        budget="64 MiB",
        policy="lru",
        direction=direction,
        allow_exact_matches=exact,
    )
    assert run.pairs["left_row"].to_pylist() == list(range(len(left)))
    assert run.pairs["right_row"].to_pylist() == [None if pd.isna(each) else int(each) for each in expected]


def test_a_sample_has_nothing_to_weigh() -> None:
    with pytest.raises(ps.PenstockError, match="sample estimates counts and sums of inner joins"):
        ps.AsofJoin(budget=ps.Tuples(4), policy="sample")
