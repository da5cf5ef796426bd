"""The join of two streams out of step as a plain simulation.

Each stream has its own progress, its largest time minus the lateness. A tuple expires by the progress of the
other stream, and a pair joins if its times are within the window, whichever of the two came first.
"""

from __future__ import annotations

import math
from typing import Any

from .join import Buffers, Outcome, pair_of, pools_of
from .policies import LEFT, POLICIES, RIGHT, Arrival, Now, TimeWindow


class OwnClocks(TimeWindow):
    """A window in which each stream's tuples have a clock: the progress of the other stream."""

    def __init__(self, before: float, after: float) -> None:
        super().__init__(before, after)
        self.clock = {LEFT: -math.inf, RIGHT: -math.inf}

    def old(self, y: Arrival) -> bool:
        return self.clock[y.stream] - y.time > self.horizon[y.stream]

    def expired(self, y: Arrival, now: Now) -> bool:
        return self.old(y)

    def remaining(self, y: Arrival, now: Now) -> float:
        return y.time + self.horizon[y.stream] - self.clock[y.stream]

    def joins(self, x: Arrival, y: Arrival) -> bool:
        """Whether two tuples of different streams are close enough, whichever came first."""
        left, right = (x, y) if x.stream == LEFT else (y, x)
        return -self.horizon[RIGHT] <= right.time - left.time <= self.horizon[LEFT]


def simulate_stream(
    rows: list[tuple[int, int, int]],
    *,
    within: tuple[float, float],
    budget: Any,
    policy: str,
    options: dict[str, Any] | None = None,
    allocation: str | None = None,
    lateness: float = 0,
) -> tuple[Outcome, list[int]]:
    """Join (stream, time, key) rows in the order given; the outcome, and the rows that were late."""
    if allocation is None:
        allocation = "equal" if policy == "age" else "unified"
    arrivals = [Arrival(s, row, time, key) for row, (s, time, key) in enumerate(rows)]
    for number, x in enumerate(arrivals):
        x.number = number
    rules = POLICIES[policy](**(options or {}))
    window = OwnClocks(*within)
    now = Now(window)
    buffers = Buffers(pools_of(budget, allocation, arrivals), rules, now)
    rules.prepare(arrivals, buffers.pool_of)
    out, late = Outcome(), []
    largest = {LEFT: -math.inf, RIGHT: -math.inf}
    for x in arrivals:
        other = 1 - x.stream
        if x.time < largest[x.stream] - lateness:
            late.append(x.row)
        largest[x.stream] = max(largest[x.stream], x.time)
        window.clock[other] = largest[x.stream] - lateness
        now.newest[x.stream] += 1
        x.own = now.newest[x.stream]
        now.counts[x.stream][x.key] += 1
        buffers.expire()
        pool = buffers.pool_of[other]
        hits = [y for y in pool.members if y.stream == other and y.key == x.key and window.joins(x, y)]
        rules.matched(x, hits, pool)
        out.pairs.extend(pair_of(x, y) for y in hits)
        if window.old(x):
            buffers.expired.append(x.name)
        else:
            buffers.admit(x)
    out.evicted, out.expired, out.peak = buffers.evicted, buffers.expired, buffers.peak
    out.buffered = [y.name for y in buffers.members()]
    return out, late
