"""A uniform sample of the tuples and the weights of its results, as their definitions read.

Every arrival has a priority u. When memory is full, the highest one of the buffer and the arrival leaves. A
result of the kept tuple x has the weight 1/t; t is the smallest u that left x's pool by priority at or after
x's arrival, 1 if none did.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from .policies import Arrival, Now, Policy, Pool


@dataclass(eq=False)
class Sampled(Policy):
    """The policy with given priorities, one per arrival; it notes t for every match."""

    selective = True

    draws: Sequence[float]
    departed: list[tuple[Pool, int, float]] = field(default_factory=list)  # during which arrival, and u
    t: dict[tuple[tuple[int, int], tuple[int, int]], float] = field(default_factory=dict)  # (new, kept): t

    def score(self, y: Arrival, now: Now) -> float:
        return -self.draws[y.number]

    def matched(self, x: Arrival, hits: list[Arrival], pool: Pool) -> None:
        for y in hits:
            since = [u for where, during, u in self.departed if where is pool and during >= y.number]
            self.t[x.name, y.name] = min(since, default=1.0)

    def victim(self, x: Arrival, pool: Pool, now: Now) -> Arrival:
        gone = super().victim(x, pool, now)
        self.departed.append((pool, x.number, self.draws[gone.number]))
        return gone


def moments(results: Sequence[tuple[Any, float, float]]) -> tuple[float, float]:
    """The weighted sum of results (kept tuple, t, value) in order of appearance, and its variance."""
    total = sum(value / t for _, t, value in results)
    variance = 0.0
    for j, (kept, t, value) in enumerate(results):
        variance += value**2 * (1 - t) / t**2
        for other, before, v in results[:j]:
            if other == kept:
                variance += 2 * v * value * (1 - before) / (before * t)
    return total, variance


def t_from_log(
    draws: Sequence[float],
    evicted: Sequence[tuple[int, int, int]],
    pool_of: Sequence[int],
    kept: tuple[int, int],
    until: int,
) -> float:
    """The t of an arrival (stream, number) for a result that a later arrival completes.

    `evicted` has (stream, number of the arrival that left, number of the arrival during which it left).
    """
    stream, number = kept
    since = [
        draws[gone]
        for side, gone, during in evicted
        if pool_of[side] == pool_of[stream] and number <= during < until
    ]
    return min(since, default=1.0)
