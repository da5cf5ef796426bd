"""What `learned` is for: near the best policy whichever that is, in fixed memory."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import penstock as ps
from penstock.errors import PolicyOptionError
from penstock.experiments.streams import streams


def recall(name: str, policy: str, budget: float = 0.2) -> float:
    [stream] = streams(names=[name], quick=True)
    join = ps.WindowJoin(stream.within, ps.Fraction(budget), policy=policy, warmup=stream.warmup)
    return join.run(stream.left, stream.right, on=stream.on, time="ts").stats.recall


@pytest.mark.parametrize("name", ["zipf", "gdj", "drift"])
def test_it_is_near_the_best_whichever_that_is(name: str) -> None:
    best = max(recall(name, policy) for policy in ("lru", "prob"))
    assert recall(name, "learned") > 0.95 * best


def test_it_learns_what_comes_and_goes() -> None:
    """Keys are hot for a while and never again: the count since the beginning says nothing."""
    random = np.random.default_rng(1)
    n = 12_000
    hot = np.arange(n) // 300
    key = np.where(random.random(n) < 0.7, hot - (random.random(n) < 0.5), 10_000 + random.integers(0, 40, n))
    ts, left = np.arange(n), random.random(n) < 0.5
    sides = [pd.DataFrame({"key": key[mine], "ts": ts[mine]}) for mine in (left, ~left)]
    found = {
        policy: ps.WindowJoin(1_000, ps.Tuples(200), policy=policy)
        .run(*sides, on="key", time="ts")
        .stats.results
        for policy in ("learned", "prob", "lru")
    }
    assert found["learned"] > 1.2 * found["prob"]
    assert found["learned"] > 0.95 * found["lru"]


@pytest.mark.parametrize("options", ["span=0", "span=x", "memory=1", "memory=-3"])
def test_options_out_of_range_are_refused(options: str) -> None:
    with pytest.raises(PolicyOptionError, match="learned"):
        ps.policies.get(f"learned:{options}")


def test_its_memory_does_not_grow_with_the_keys() -> None:
    state = ps.WindowJoin(50, ps.Tuples(20), policy="learned").start()
    sizes = []
    for first in range(0, 30_000, 10_000):
        n = np.arange(first, first + 10_000)
        state.process(n % 2, n, n, n)
        sizes.append(state.peak_bytes)
    assert len(set(sizes)) == 1
    state.check()


@pytest.mark.parametrize("window", [ps.Rows(60), ps.Landmark(300), (0, 200)])
@pytest.mark.parametrize("allocation", ["equal", "proportional", "unified"])
def test_every_window_and_allocation(window: object, allocation: str) -> None:
    random = np.random.default_rng(2)
    n = 2_000
    table = {"key": random.zipf(1.4, n) % 50, "ts": np.sort(random.integers(0, 5_000, n))}
    for step in ("arrival", "tick"):
        join = ps.WindowJoin(window, ps.Tuples(30), policy="learned", allocation=allocation, step=step)
        stats = join.run(table, table, on="key", time="ts").stats
        assert 0 < stats.results < stats.exact
