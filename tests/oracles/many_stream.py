"""The join of many streams out of step as a plain simulation.

Each stream has its own progress, its largest time minus the lateness. A tuple expires by the least progress
of the other streams that share a join with it, and a combination joins if its largest and its smallest time
are within the window of each other, whichever came first.
"""

from __future__ import annotations

import math
from itertools import product
from typing import Any

from .join import Buffers
from .many import Join, ManyOutcome, ManyProb, key_in
from .policies import POLICIES, Arrival, Now, Pool, TimeWindow


class ManyClocks(TimeWindow):
    """A window in which the tuples of each stream have a clock of their own."""

    def __init__(self, within: float, streams: int) -> None:
        super().__init__(within, within)
        self.horizon = dict.fromkeys(range(streams), within)
        self.clock = dict.fromkeys(range(streams), -math.inf)

    def old(self, y: Arrival) -> bool:
        return self.clock[y.stream] - y.time > self.horizon[y.stream]

    def expired(self, y: Arrival, now: Now) -> bool:
        return self.old(y)


def partners(joins: list[Join], stream: int) -> set[int]:
    """The other streams that share a join with a stream."""
    return {s for join in joins if stream in [m for m, _ in join] for s, _ in join} - {stream}


def simulate_many_stream(
    rows: list[tuple[int, int, dict[str, Any]]],
    joins: list[Join],
    *,
    streams: int,
    within: float,
    budget: int,
    policy: str,
    allocation: str = "unified",
    lateness: list[float] | None = None,
    watermarks: dict[int, list[float]] | None = None,
) -> tuple[ManyOutcome, list[int]]:
    """Join (stream, time, {column: key}) rows in the order given; the outcome, and the rows that were late.

    `watermarks` says at which rows a progress of each stream is told, before the row is processed.
    """
    rules = ManyProb(joins) if policy == "prob" else POLICIES[policy]()
    every = [Arrival(s, row, time, keys) for row, (s, time, keys) in enumerate(rows)]
    arrivals = [x for x in every if any(key_in(join, x) is not None for join in joins)]
    for number, x in enumerate(arrivals):
        x.number = number
    pool_of = [Pool(budget)] * streams
    if allocation == "equal":
        pool_of = [Pool(budget // streams + (s < budget % streams)) for s in range(streams)]
    window = ManyClocks(within, streams)
    buffers = Buffers(pool_of, rules, Now(window, streams))
    rules.prepare(arrivals, pool_of)
    out, late = ManyOutcome(nulls=len(every) - len(arrivals)), []
    progress = [-math.inf] * streams
    behind = lateness or [0.0] * streams

    for x in arrivals:
        if watermarks and x.row in watermarks:
            progress = [max(pair) for pair in zip(progress, watermarks[x.row], strict=True)]
        if x.time < progress[x.stream]:
            late.append(x.row)
        progress[x.stream] = max(progress[x.stream], x.time - behind[x.stream])
        window.clock = {s: min(progress[o] for o in partners(joins, s)) for s in range(streams)}
        if isinstance(rules, ManyProb):
            rules.count(x)
        buffers.expire()
        for j, join in enumerate(joins):
            key = key_in(join, x)
            if key is None:
                continue
            choices = []
            for s, _ in join:
                mine = [y for y in pool_of[s].members if y.stream == s and key_in(join, y) == key]
                choices.append([x] if s == x.stream else mine)
            found = [
                each
                for each in product(*choices)
                if max(y.time for y in each) - min(y.time for y in each) <= within
            ]
            out.results.extend((j, tuple(y.row for y in each)) for each in found)
            # A tuple gains once per join, in however many results it is.
            for y in {y: None for each in found for y in each if y is not x}:
                rules.matched(x, [y], pool_of[y.stream])
        if window.old(x):
            buffers.expired.append(x.name)
        else:
            buffers.admit(x)
    out.evicted, out.expired, out.peak = buffers.evicted, buffers.expired, buffers.peak
    out.buffered = [y.name for y in buffers.members()]
    return out, late
