"""As-of joins: budgets of every kind, policies, restarts with another budget, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

import penstock as ps
from penstock.errors import ColumnError, PenstockError, SnapshotError
from penstock.joins.asof_config import CANDIDATES
from tests.oracles.asof import exact_answers

ROWS = 600
DIRECTIONS = ("backward", "forward", "nearest")


def streams(seed: int = 3, keys: int = 60) -> tuple[pd.DataFrame, pd.DataFrame]:
    random = np.random.default_rng(seed)
    left, right = (
        pd.DataFrame(
            {
                "k": (keys * random.random(ROWS) ** 2).astype(int),
                "ts": np.sort(random.integers(0, 2_000, ROWS)),
                "text": ["x" * int(length) for length in random.integers(0, 200, ROWS)],
            }
        )
        for _ in range(2)
    )
    return left, right


def wanted(left: pd.DataFrame, right: pd.DataFrame, tolerance: int, direction: str) -> list[int | None]:
    rows = [list(zip(each["k"], each["ts"], strict=True)) for each in (left, right)]
    return exact_answers(*rows, tolerance, direction)


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("budget", ["16 KiB", "40 KiB", "4 MiB", "10 %", "100 %", "3 tuples"])
def test_budgets_are_kept_and_answers_are_right(direction: str, budget: str) -> None:
    left, right = streams()
    run = ps.asof_join(
        left,
        right,
        on="k",
        time="ts",
        tolerance=100,
        budget=budget,
        policy="lru",
        direction=direction,
    )
    exact = wanted(left, right, 100, direction)
    found = dict(zip(*run.pairs.to_pydict().values(), strict=True))
    assert found == {row: exact[row] for row in found}
    assert run.stats.undecided == ROWS - len(found)
    parsed = ps.budget.budget_of(budget)
    if isinstance(parsed, ps.Bytes):
        assert run.stats.peak_bytes <= parsed.n
    if budget in ("4 MiB",):
        assert run.stats.undecided == 0


def test_policies_keep_the_keys_that_are_asked_for() -> None:
    """A tenth of the keys is asked for: those policies that see this answer more than the others."""
    random = np.random.default_rng(1)
    n, keys = 20_000, 1_000
    right = {"k": random.integers(0, keys, n), "ts": np.sort(random.integers(0, n, n))}
    left = {"k": random.integers(0, keys // 10, n), "ts": np.sort(random.integers(0, n, n))}
    recall = {
        policy: ps.asof_join(
            left, right, on="k", time="ts", budget=ps.Tuples(200), policy=policy
        ).stats.recall
        for policy in ("fifo", "lru", "lfu", "prob", "auto")
    }
    assert recall["lru"] > recall["fifo"] + 0.1
    assert recall["lfu"] > recall["fifo"] + 0.1
    assert recall["prob"] > 0.95
    assert recall["auto"] > 0.8


def test_auto_follows_a_candidate() -> None:
    join = ps.AsofJoin(ps.Tuples(100))
    assert join.policy.candidates == CANDIDATES
    left, right = streams()
    assert join.run(left, right, on="k", time="ts").stats.choice.policy in CANDIDATES


@pytest.mark.parametrize("tuples", [5, 1_000])
@pytest.mark.parametrize("direction", DIRECTIONS)
def test_a_state_goes_on_with_another_budget(tuples: int, direction: str) -> None:
    left, right = streams(keys=20)
    exact = wanted(left, right, 100, direction)
    arrivals = sorted(
        [(0, k, t, row) for row, (k, t) in enumerate(zip(left["k"], left["ts"], strict=True))]
        + [(1, k, t, row) for row, (k, t) in enumerate(zip(right["k"], right["ts"], strict=True))],
        key=lambda each: each[2],
    )
    before = ps.AsofJoin(ps.Tuples(500), tolerance=100, direction=direction, policy="lru").start(lateness=3)
    found = dict(before.process(*zip(*arrivals[:700], strict=True), collect=True).pairs.tolist())
    after = ps.AsofJoin(ps.Tuples(tuples), tolerance=100, direction=direction, policy="lfu")
    state = after.start(lateness=3, filter_bytes=5_000)
    log, _ = state.take_over(before)
    state.check()
    assert state.buffered == min(tuples, before.buffered)
    assert len(log) == before.buffered - state.buffered
    found |= dict(state.process(*zip(*arrivals[700:], strict=True), collect=True).pairs.tolist())
    found |= dict(state.finish(collect=True).pairs.tolist())
    state.check()
    assert found == {row: -1 if exact[row] is None else exact[row] for row in found}
    assert state.undecided == ROWS - len(found)
    assert state.undecided == 0 or tuples == 5


def test_timestamps_to_the_nanosecond() -> None:
    """Times that floats cannot tell apart."""
    random = np.random.default_rng(2)
    start = 1_700_000_000_000_000_000
    left, right = (
        pd.DataFrame(
            {
                "k": random.integers(0, 3, 300),
                "ts": pd.to_datetime(start + np.sort(random.integers(0, 900, 300))),
            }
        )
        for _ in range(2)
    )
    for direction in DIRECTIONS:
        run = ps.asof_join(
            left,
            right,
            on="k",
            time="ts",
            tolerance="20 ns",
            direction=direction,
            budget=ps.Tuples(1_000),
            policy="lru",
        )
        numbers = [each.assign(ts=each["ts"].astype("int64")) for each in (left, right)]
        assert run.pairs["right_row"].to_pylist() == wanted(*numbers, 20, direction)
        state = ps.AsofJoin(ps.Tuples(1_000), tolerance=20, direction=direction, policy="lru").start(
            lateness=10
        )
        rows = [
            (side, int(k), int(t), row)
            for side, frame in enumerate(numbers)
            for row, (k, t) in enumerate(zip(frame["k"], frame["ts"], strict=True))
        ]
        rows.sort(key=lambda each: each[2] + random.integers(0, 10))
        found: dict[int, int] = {}
        for first in range(0, len(rows), 50):
            part = state.process(*zip(*rows[first : first + 50], strict=True), collect=True)
            found |= dict(part.pairs.tolist())
            state.check()
        found |= dict(state.finish(collect=True).pairs.tolist())
        come = {row: (k, t) for side, k, t, row in rows if side == 1}
        order = [row for side, _, _, row in rows if side == 1]
        answers = exact_answers(
            list(zip(numbers[0]["k"], numbers[0]["ts"], strict=True)),
            [come[row] for row in order],
            20,
            direction,
        )
        assert found == {row: -1 if at is None else order[at] for row, at in enumerate(answers)}


def test_fractions_of_time_and_no_key() -> None:
    left, right = {"ts": [0.5, 2.25]}, {"at": [0.25, 2.5]}
    run = ps.asof_join(left, right, on=(), time=("ts", "at"), tolerance=0.25, budget=10 * "1" + " tuples")
    assert run.pairs["right_row"].to_pylist() == [0, None]


def test_empty_streams() -> None:
    empty = {"k": np.empty(0, np.int64), "ts": np.empty(0, np.int64)}
    some = {"k": [1], "ts": [2]}
    for left, right, found in ((empty, some, []), (some, empty, [None]), (empty, empty, [])):
        run = ps.asof_join(left, right, on="k", time="ts", budget=ps.Tuples(1))
        assert run.pairs["right_row"].to_pylist() == found
        assert run.stats.recall == 1.0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"direction": "backwards"}, "did you mean 'backward'"),
        ({"tolerance": -1}, "a span from 0 up"),
        ({"tolerance": "soon"}, "is not a duration"),
        ({"tolerance": [1]}, "tolerance takes a number"),
        ({"tolerance": float("nan")}, "a span from 0 up"),
        ({"policy": "age"}, "cannot manage one pool"),
        ({"policy": "opt"}, "plans for the results of a join"),
        ({"policy": "heeb-hist"}, "plans for the results of a join"),
        ({"policy": "lfd"}, "is for caches"),
        ({"policy": "lur"}, "did you mean 'lru'"),
        ({"allow_exact_matches": "no"}, "give True or False"),
        ({"seed": -1}, "whole number from 0 up"),
        ({"budget": "0.001 %"}, "at least one"),
        ({"budget": "100 bytes"}, "Give at least"),
    ],
)
def test_refusals(options: dict[str, Any], message: str) -> None:
    given: dict[str, Any] = {"budget": ps.Tuples(10), "on": "k", "time": "ts"} | options
    left, right = streams()
    with pytest.raises(PenstockError, match=message):
        ps.asof_join(left, right, **given)


def test_refusals_of_states() -> None:
    with pytest.raises(PenstockError, match="not known for a stream"):
        ps.AsofJoin("20 %").start()
    with pytest.raises(PenstockError, match="filter_bytes=-1"):
        ps.AsofJoin(ps.Tuples(5)).start(filter_bytes=-1)
    state = ps.AsofJoin(ps.Tuples(5), policy="lru").start()
    state.process([0], [1], [5], [0])
    with pytest.raises(PenstockError, match="in order of time"):
        state.process([0], [1], [4], [0])
    state.finish()
    with pytest.raises(PenstockError, match="have ended"):
        state.process([0], [1], [6], [0])
    with pytest.raises(SnapshotError):
        ps.JoinState.restore(state.snapshot())  # restores no as-of join
    with pytest.raises(ColumnError, match="no column 'key'"):
        ps.asof_join({"k": [1], "ts": [1]}, {"k": [1], "ts": [1]}, on="key", time="ts", budget=ps.Tuples(5))
