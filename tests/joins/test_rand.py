"""`rand` has no oracle to agree with: its budget, its accounts, and whether its draws are uniform."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats as statistics

import penstock as ps
from penstock.structures.random import DROPS, POLICY, new_generators, uniform
from tests.joins.agreement import Case, cases, events, pairs
from tests.oracles.exact import exact_pairs


@pytest.mark.parametrize("step", ["arrival", "tick"])
@given(data=st.data())
def test_budget_and_accounts(step: str, data: st.DataObject) -> None:
    case = data.draw(cases(step))
    run = case.run("rand", seed=data.draw(st.integers(0, 99)))
    stats = run.stats
    assert stats.peak_tuples <= case.budget
    assert stats.arrivals == len(case.arrivals)
    assert stats.arrivals == stats.buffered + stats.expired + stats.evicted
    exact = Counter(exact_pairs(case.left, case.right, case.within, case.warmup, step))
    assert Counter(pairs(run)) <= exact
    gone = events(run, "evicted") + events(run, "expired")
    assert len(gone) == len(set(gone)), "a tuple left twice"


@pytest.mark.interpreted
def test_the_seed_decides() -> None:
    left = [(t, t % 5) for t in range(60)]
    right = [(t, (t * 7) % 5) for t in range(60)]
    case = Case(left, right, within=30, budget=6)
    first, again, other = (case.run("rand", seed=seed) for seed in (1, 1, 2))
    assert first.events.equals(again.events)
    assert first.pairs.equals(again.pairs)
    assert not first.events.equals(other.events)


def _evicted_first(budget: int, ticks: list[int], step: str, seed: int) -> list[int]:
    """Rows of the left stream that had to go when one arrival per entry of `ticks` came at that time."""
    join = ps.WindowJoin(
        within=10**6, budget=ps.Tuples(budget), policy="rand", allocation="equal", step=step, seed=seed
    )
    state, rows = join.start(), np.arange(len(ticks))
    outputs = [state.process(np.zeros(len(ticks)), rows, ticks, rows, log=True), state.finish(log=True)]
    return [row for out in outputs for row in out.log[:, 2].tolist()]


def test_every_buffered_tuple_is_as_likely_to_go() -> None:
    # A left buffer of 5 and a sixth arrival: one of the first five goes, never the sixth.
    gone = Counter(
        row for seed in range(2_000) for row in _evicted_first(10, [0, 1, 2, 3, 4, 5], "arrival", seed)
    )
    assert set(gone) <= set(range(5))
    assert statistics.chisquare([gone[row] for row in range(5)]).pvalue > 1e-3


def test_a_tick_draws_from_buffer_and_newcomers_alike() -> None:
    # A left buffer of 3, then four arrivals at once: 4 of the 7 go, each of the 7 as likely as any other.
    gone = Counter(
        row for seed in range(2_000) for row in _evicted_first(6, [0, 1, 2, 9, 9, 9, 9], "tick", seed)
    )
    assert sum(gone.values()) == 4 * 2_000
    # A draw without replacement varies less than independent draws would: the statistic is scaled by 1 - 4/7.
    counts = np.array([gone[row] for row in range(7)])
    expected = 4 * 2_000 / 7
    scaled = ((counts - expected) ** 2 / expected).sum() / (1 - 4 / 7) * 6 / 7
    assert statistics.chi2(6).sf(scaled) > 1e-3


def test_a_first_tick_larger_than_the_buffer_is_a_uniform_sample() -> None:
    # Six arrivals at once for an empty buffer of 2.
    kept = Counter()
    for seed in range(2_000):
        kept.update(set(range(6)) - set(_evicted_first(4, [0] * 6, "tick", seed)))
    counts = np.array([kept[row] for row in range(6)])
    assert counts.sum() == 2 * 2_000
    expected = 2 * 2_000 / 6
    scaled = ((counts - expected) ** 2 / expected).sum() / (1 - 2 / 6) * 5 / 6
    assert statistics.chi2(5).sf(scaled) > 1e-3


def test_drops_come_at_the_given_rate_whatever_the_policy_draws() -> None:
    n = 20_000
    table = {"key": np.zeros(n, np.int64), "ts": np.arange(n)}
    nothing = {"key": np.zeros(0, np.int64), "ts": np.zeros(0, np.int64)}
    rows = []
    for policy in ("fifo", "rand"):
        join = ps.WindowJoin(within=10, budget=ps.Tuples(4), policy=policy, drop_rate=0.3, seed=11)
        run = join.run(table, nothing, on="key", time="ts", log=True)
        rows.append(events(run, "dropped"))
        assert abs(run.stats.dropped / n - 0.3) < 4 * np.sqrt(0.3 * 0.7 / n)
    assert rows[0] == rows[1]


def test_unbiased_drop_rate_of_the_paper() -> None:
    # Rate 1 a stream, horizon 100, a buffer of 25 of the 50 tuples a stream: 3 of 4 are dropped.
    n = 20_001
    table = {"key": np.zeros(n, np.int64), "ts": np.arange(n)}
    join = ps.WindowJoin(
        within=100, budget=ps.Tuples(50), policy="fifo", allocation="equal", drop_rate="unbiased", seed=3
    )
    stats = join.run(table, table, on="key", time="ts").stats
    assert abs(stats.dropped / stats.arrivals - 0.75) < 0.01


@given(seed=st.integers(0, 2**63))
def test_numbers_of_the_generators(seed: int) -> None:
    random = new_generators(seed)
    numbers = [uniform(random, DROPS) for _ in range(50)]
    assert all(0 <= number < 1 for number in numbers)
    assert len(set(numbers)) == 50


def test_numbers_are_uniform_and_streams_of_them_unrelated() -> None:
    random = new_generators(0)
    drops = np.array([uniform(random, DROPS) for _ in range(20_000)])
    draws = np.array([uniform(random, POLICY) for _ in range(20_000)])
    assert statistics.kstest(drops, "uniform").pvalue > 1e-3
    assert statistics.kstest(draws, "uniform").pvalue > 1e-3
    assert abs(np.corrcoef(drops, draws)[0, 1]) < 0.03
    assert abs(np.corrcoef(drops[1:], drops[:-1])[0, 1]) < 0.03
