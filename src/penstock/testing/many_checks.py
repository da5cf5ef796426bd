"""What holds for every policy in a join of many streams."""

from __future__ import annotations

from typing import Any

from penstock.budget import Tuples
from penstock.joins import join_many
from penstock.joins.many_stats import ManyRun
from penstock.policies import Policy
from penstock.testing.expectation import expect
from penstock.testing.sources import random_feed


def check_many(policy: Policy, allocation: str = "unified", seed: int = 1) -> None:
    """A join of three streams is repeatable, accounts for every arrival, and is exact with enough memory."""
    if allocation == "unified" and not policy.unified:
        allocation = "equal"
    first, second = (_run(policy, Tuples(12), allocation, seed) for _ in range(2))
    same = first.results[0].equals(second.results[0])  # type: ignore[index]
    expect(same, "two joins of many streams over the same input with the same seed differ")
    stats = first.stats
    expect(stats.peak_tuples <= 12, f"up to {stats.peak_tuples} tuples are buffered under a budget of 12")
    expect(
        stats.arrivals == stats.buffered + stats.expired + stats.evicted,
        f"{stats.arrivals} arrivals are not {stats.buffered} buffered + {stats.expired} expired + "
        f"{stats.evicted} evicted",
    )
    exact = _run(policy, Tuples(1_000), allocation, seed).stats
    expect(
        exact.results == exact.exact,
        f"a join of many streams has {exact.results} results although the exact join has {exact.exact} and "
        "memory was enough",
    )


def _run(policy: Policy, budget: Any, allocation: str, seed: int) -> ManyRun:
    feed = random_feed(240, seed, keys=6)
    streams = {name: {"key": feed.key[part::3], "ts": feed.time[part::3]} for part, name in enumerate("abc")}
    return join_many(
        streams, on="key", time="ts", within=15, budget=budget, policy=policy, allocation=allocation,
        seed=seed, collect=True,
    )  # fmt: skip
