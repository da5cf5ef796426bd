"""`auto` in joins of many streams follows what does best on a sample, and loses nothing when it changes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import penstock as ps
from penstock.errors import PenstockError
from penstock.joins import ManyStreamState, start_many

CHANGES = "auto:candidates=fifo/prob"  # prob is far ahead where keys keep their popularity
KINDS: dict[str, dict[str, Any]] = {
    "one key": {"joins": [(0, 1, 2)], "within": 800},
    "two joins": {"joins": [(0, 1), (1, 2)], "within": 800},
    "chain": {"joins": [(0, 1), (1, 2)], "chain": True, "within": {(0, 1): 800, (1, 2): (700, 600)}},
}


def arrivals(kind: str, n: int = 6_000) -> tuple[np.ndarray, ...]:
    """Keys of lasting popularity, in the columns that the joins of a stream need."""
    rng = np.random.default_rng(1)
    stream, key = rng.integers(0, 3, n), (400 * rng.random((n, 2)) ** 3).astype(np.int64)
    key = key[:, :1] if kind == "one key" else np.where((stream != 1)[:, None] & [[False, True]], -1, key)
    return stream, key, np.arange(n) - rng.integers(0, 9, n), np.arange(n)


def feed(state: Any, columns: tuple[np.ndarray, ...], size: np.ndarray | None = None) -> Any:
    return state.process(*columns, size, collect=True, log=True)


@pytest.mark.parametrize("kind", KINDS)
def test_it_changes_to_the_better_and_restarts_change_nothing(kind: str) -> None:
    columns = arrivals(kind)

    def start(policy: str) -> ManyStreamState:
        return start_many(3, policy=policy, budget="300 tuples", lateness=9, **KINDS[kind])

    whole, state, parts = start(CHANGES), start(CHANGES), []
    expected = feed(whole, columns)
    for cut in np.array_split(np.arange(len(columns[0])), 9):
        parts.append(feed(state, tuple(column[cut] for column in columns)))
        state.check()
        state = ManyStreamState.restore(state.snapshot())
    assert np.concatenate([part.log for part in parts]).tolist() == expected.log.tolist()
    assert np.concatenate([part.counts for part in parts]).tolist() == expected.counts.tolist()
    assert state.totals() == whole.totals()
    totals = whole.totals()
    assert totals["arrivals"] == totals["buffered"] + totals["expired"] + totals["evicted"]
    assert totals["peak_tuples"] <= 300
    assert whole.choice is not None
    assert (whole.choice.policy, whole.choice.switches) == ("prob", 1)
    fixed = {}
    for policy in ("fifo", "prob"):
        one = start(policy)
        feed(one, columns)
        fixed[policy] = one.totals()["results"]
    assert fixed["fifo"] < totals["results"] < 1.05 * fixed["prob"]


@pytest.mark.parametrize("kind", ["one key", "chain"])
def test_one_candidate_is_that_policy(kind: str) -> None:
    columns = arrivals(kind, 1_000)
    given = {"budget": "200 tuples", "lateness": 9, **KINDS[kind]}
    auto, plain = (start_many(3, policy=policy, **given) for policy in ("auto:candidates=lru", "lru"))
    assert feed(auto, columns).log.tolist() == feed(plain, columns).log.tolist()
    assert auto.totals() == plain.totals()


def test_in_order_with_windows_of_rows() -> None:
    stream, key, _, row = arrivals("one key")
    data = {name: {"k": key[stream == s, 0], "ts": row[stream == s]} for s, name in enumerate("abc")}
    within = {"a": ps.Rows(300), "b": 800, "c": ps.Rows(250)}
    run = ps.join_many(
        data, on="k", time="ts", within=within, budget=ps.Tuples(300), policy=CHANGES, log=True
    )
    stats = run.stats
    assert stats.choice is not None
    assert (stats.choice.policy, stats.choice.switches) == ("prob", 1)
    assert stats.arrivals == stats.buffered + stats.expired + stats.evicted
    assert run.events is not None
    left = [e for e in run.events.to_pylist() if e["event"] == "expired" and e["stream"] == "a"]
    came = np.flatnonzero(stream == 0)
    for event in left:  # 300 later rows of its own stream have come, and no more
        assert came[event["row"] + 300] == event["step"] or event["step"] > came[event["row"] + 300]


def test_a_byte_budget_holds_while_it_changes() -> None:
    columns = arrivals("one key")
    size = np.random.default_rng(2).integers(0, 400, len(columns[0]))
    state = start_many(3, [(0, 1, 2)], within=800, budget="300 KiB", policy=CHANGES, lateness=9)
    feed(state, columns, size)
    state.check()
    assert state.choice is not None
    assert state.peak_bytes <= 300 * 1024
    again = ManyStreamState.restore(state.snapshot())
    assert again.choice == state.choice


def test_learned_is_refused_with_the_reason() -> None:
    with pytest.raises(PenstockError, match="needs several at once"):
        start_many(3, [(0, 1, 2)], within=10, budget="9 tuples", policy="learned")
