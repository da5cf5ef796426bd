"""Joins of many streams whose budget is in bytes, and tables that grow with the tuples."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock as ps
from penstock.errors import PenstockError
from penstock.joins import ManyStreamState, growth, many_state, start_many
from penstock.payload import row_bytes
from tests.joins.test_many_windows import Case, cases, results_of

POLICIES = [p.name for p in ps.policies.registered() if p.many and p.__module__.startswith("penstock.")]


def texts(seed: int, rows: int, keys: int, length: int) -> dict[str, dict[str, Any]]:
    """Three streams whose rows have texts of up to so many letters."""
    rng = np.random.default_rng(seed)
    return {
        name: {
            "k": (keys * rng.random(rows) ** 2).astype(np.int64),
            "ts": np.sort(rng.integers(0, rows, rows)),
            "text": ["x" * n for n in rng.integers(0, length + 1, rows)],
        }
        for name in "abc"
    }


@pytest.mark.interpreted
@given(case=cases(ordered=True, most=3), policy=st.sampled_from(POLICIES))
@settings(max_examples=40)
def test_tables_that_grow_change_nothing(case: Case, policy: str) -> None:
    expected = case.run(policy)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(growth, "FIRST", 1)
        patched.setattr(many_state, "CHUNK", 5)
        run = case.run(policy)
    assert (run.results, run.events) == (expected.results, expected.events)
    assert run.stats.limits == expected.stats.limits


@pytest.mark.interpreted
@given(case=cases(ordered=False, most=3), policy=st.sampled_from(POLICIES))
@settings(max_examples=40)
def test_tables_that_grow_change_nothing_out_of_step(case: Case, policy: str) -> None:
    whole = case.start(policy)
    expected = case.feed(whole, 0, len(case.rows))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(growth, "FIRST", 1)
        state = case.start(policy)
        first = case.feed(state, 0, case.cut)
        state.check()
        state = ManyStreamState.restore(state.snapshot())
        second = case.feed(state, case.cut, len(case.rows))
    state.check()
    assert np.concatenate([first.log, second.log]).tolist() == expected.log.tolist()
    for j, rows in enumerate(expected.rows):
        assert np.concatenate([first.rows[j], second.rows[j]]).tolist() == rows.tolist()
    assert state.totals() == whole.totals()


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("allocation", ["unified", "equal"])
def test_a_byte_budget_is_kept_and_used(policy: str, allocation: str) -> None:
    data = texts(3, 1_500, 900, 200)
    given = {"on": "k", "time": "ts", "within": 700, "policy": policy, "allocation": allocation}
    run = ps.join_many(data, budget=ps.Bytes("200 KiB"), log=True, collect=True, **given)
    stats = run.stats
    assert stats.evicted > 0
    assert 0.8 * 200 * 1024 < stats.peak_bytes <= 200 * 1024
    assert stats.arrivals == stats.buffered + stats.expired + stats.evicted
    enough = ps.join_many(data, budget=ps.Bytes("8 MiB"), collect=True, **given)
    assert (enough.stats.results, enough.stats.evicted) == (stats.exact, 0)
    assert not results_of(run) - results_of(enough)


def test_a_budget_follows_the_size_of_the_rows() -> None:
    kept = {}
    for length in (0, 2_000):
        data = texts(4, 3_000, 3_000, length)
        given = {"on": "k", "time": "ts", "within": 3_000, "policy": "fifo"}
        kept[length] = ps.join_many(data, budget=ps.Bytes("1 MiB"), **given).stats
    assert kept[0].peak_tuples > 2.5 * kept[2_000].peak_tuples
    assert all(0.9 * 2**20 < stats.peak_bytes <= 2**20 for stats in kept.values())


@pytest.mark.parametrize("policy", ["gdj", "prob", "lru"])
@pytest.mark.parametrize("kind", ["one window", "windows", "chain"])
def test_batches_and_restarts_change_nothing(policy: str, kind: str) -> None:
    rng, n = np.random.default_rng(5), 1_200
    stream, key = rng.integers(0, 3, n), rng.integers(0, 60, (n, 2))
    time = np.arange(n) - rng.integers(0, 30, n)
    size = rng.integers(0, 3_000, n)
    size[::97] = 2**20  # larger than everything
    given: dict[str, Any] = {"within": 300, "joins": [(0, 1, 2)]}
    if kind == "chain":
        given = {"within": {(0, 1): 200, (1, 2): (100, 300)}, "joins": [(0, 1), (1, 2)], "chain": True}
        key[stream != 1, 1] = -1
    else:
        key = key[:, :1]
        given |= {"within": {0: 300, 1: 200, 2: 100}} if kind == "windows" else {}
    joins = given.pop("joins")

    def start() -> ManyStreamState:
        return start_many(3, joins, budget="256 KiB", policy=policy, lateness=40, **given)

    whole, state, parts = start(), start(), []
    columns = (stream, key, time, np.arange(n), size)
    expected = whole.process(*columns, collect=True, log=True)
    for cut in np.array_split(np.arange(n), 7):
        parts.append(state.process(*(column[cut] for column in columns), collect=True, log=True))
        state.check()
        state = ManyStreamState.restore(state.snapshot())
    assert np.concatenate([part.log for part in parts]).tolist() == expected.log.tolist()
    assert np.concatenate([part.counts for part in parts]).tolist() == expected.counts.tolist()
    assert state.totals() == whole.totals()
    totals = state.totals()
    assert totals["oversize"] == len(size[::97])
    assert totals["evicted"] > totals["oversize"]
    assert state.peak_bytes == whole.peak_bytes <= 256 * 1024


@pytest.mark.interpreted
@given(case=cases(ordered=True), policy=st.sampled_from(["gdj", "prob"]))
@settings(max_examples=10)
def test_enough_bytes_are_the_exact_join(case: Case, policy: str) -> None:
    run = case.run(policy, budget=ps.Bytes("1 MiB"))
    assert (run.stats.results, run.stats.evicted) == (run.stats.exact, 0)


def test_a_smaller_byte_budget_takes_over() -> None:
    rng, n = np.random.default_rng(6), 1_500
    rows = rng.integers(0, 3, n), rng.integers(0, 90, n), np.arange(n), np.arange(n)
    size = rng.integers(0, 900, n)
    old, fresh = (
        start_many(3, [(0, 1, 2)], within=800, budget=budget, policy="lru") for budget in ("1 MiB", "300 KiB")
    )
    old.process(*rows, size)
    sizes = [size] * 3
    log, _ = fresh.take_over(old, sizes)
    fresh.check()
    assert 0 < fresh.buffered == old.buffered - len(log) < old.buffered
    assert fresh.peak_bytes <= 300 * 1024


def test_the_sizes_of_rows_are_those_of_their_columns() -> None:
    data = texts(7, 50, 5, 30)
    total = sum(int(row_bytes(table).sum()) for table in data.values())
    run = ps.join_many(data, on="k", time="ts", within=100, budget=ps.Bytes("8 MiB"), policy="fifo")
    tables = ps.join_many(data, on="k", time="ts", within=100, budget=ps.Tuples(150), policy="fifo")
    assert run.stats.peak_tuples == tables.stats.peak_tuples == 150
    assert total < run.stats.peak_bytes


def test_arrivals_without_sizes_are_refused() -> None:
    state = start_many(2, [(0, 1)], within=10, budget="1 MiB")
    with pytest.raises(PenstockError, match="needs its size"):
        state.process([0], [1], [0], [0])
