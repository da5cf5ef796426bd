"""Joins of many streams with a window per stream or pair, chains, drops and warm-up, as a plain simulation.

In step, a result's newest member is the arrival. Out of step, each stream has its own progress, and members
may come in any order.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from itertools import pairwise, permutations, product
from typing import Any

from .join import Buffers
from .many import Join, ManyOutcome, ManyProb
from .policies import POLICIES, Arrival, Now, Pool


@dataclass
class Windows:
    """`spans`: per stream, ("time", w) or ("rows", n). `pairs`: (one, other) -> (before, after)."""

    spans: dict[int, tuple[str, float]] = field(default_factory=dict)
    pairs: dict[tuple[int, int], tuple[float, float]] = field(default_factory=dict)


def later(windows: Windows, a: int, b: int) -> float:
    """How much later stream b may be than stream a, by a window that names both or the first."""
    most = math.inf
    if windows.spans.get(a, ("rows", 0))[0] == "time":
        most = windows.spans[a][1]
    if (a, b) in windows.pairs:
        most = min(most, windows.pairs[a, b][1])
    if (b, a) in windows.pairs:
        most = min(most, windows.pairs[b, a][0])
    return most


def reach(windows: Windows, stream: int, members: list[int]) -> float:
    """How much later than a tuple of a stream the last member may be, through whichever others."""
    longest = 0.0
    others = [m for m in members if m != stream]
    for last in others:
        between = [m for m in others if m != last]
        ways = [(stream, *way, last) for n in range(len(between) + 1) for way in permutations(between, n)]
        longest = max(longest, min(sum(later(windows, *leg) for leg in pairwise(w)) for w in ways))
    return longest


class EachItsOwn:
    """When tuples expire: by the time, by their stream's arrivals, or by the progress of their partners."""

    def __init__(self, windows: Windows, joins: list[list[int]], streams: int) -> None:
        self.windows, self.clock = windows, dict.fromkeys(range(streams), -math.inf)
        self.horizon = {}
        for s in range(streams):
            if windows.spans and not windows.pairs:
                kind, width = windows.spans[s]
                self.horizon[s] = width if kind == "time" else math.inf
            else:
                self.horizon[s] = max(reach(windows, s, join) for join in joins if s in join)

    def expired(self, y: Arrival, now: Now) -> bool:
        kind, width = self.windows.spans.get(y.stream, ("time", 0))
        if kind == "rows":
            return now.newest[y.stream] - y.own >= width
        return self.clock[y.stream] - y.time > self.horizon[y.stream]


def together(found: dict[int, Arrival], windows: Windows) -> bool:
    """Whether the members of a combination are in each other's windows; rows are looked after elsewhere."""
    newest = max(y.time for y in found.values())
    for s, (kind, width) in windows.spans.items():
        if kind == "time" and s in found and newest - found[s].time > width:
            return False
    for (a, b), (before, after) in windows.pairs.items():
        if a in found and b in found and not -before <= found[b].time - found[a].time <= after:
            return False
    return True


def combinations(
    x: Arrival, pool_of: list[Pool], joins: list[Join], windows: Windows, members: list[int]
) -> list[tuple[Arrival, ...]]:
    """The results of an arrival with what is buffered of the other members; each join says what is equal."""
    choices = [[x] if s == x.stream else [y for y in pool_of[s].members if y.stream == s] for s in members]
    results = []
    for each in product(*choices):
        found = dict(zip(members, each, strict=True))
        keys = [{found[s].key[column] for s, column in join} for join in joins]
        if all(len(key) == 1 and None not in key for key in keys) and together(found, windows):
            results.append(each)
    return results


def simulate_windows(
    rows: list[tuple[int, float, dict[str, Any]]],
    joins: list[Join],
    windows: Windows,
    *,
    streams: int,
    chain: bool,
    budget: int,
    policy: str,
    allocation: str = "unified",
    lateness: list[float] | None = None,
    warmup: int = 0,
    dropped: set[int] | None = None,
) -> ManyOutcome:
    """Join (stream, time, {column: key}) rows in the order given; in step if there is no lateness.

    In a chain `joins` are links of two streams. `dropped` are numbers of rows that probe but do not enter.
    """
    rules = ManyProb(joins) if policy == "prob" else POLICIES[policy]()
    needed = all if chain else any
    every = [Arrival(s, row, time, keys) for row, (s, time, keys) in enumerate(rows)]
    arrivals = [
        x
        for x in every
        if needed(x.key[column] is not None for join in joins for s, column in join if s == x.stream)
    ]
    for number, x in enumerate(arrivals):
        x.number = number
    results = [list(range(streams))] if chain else [[s for s, _ in join] for join in joins]
    pool_of = [Pool(budget)] * streams
    if allocation == "equal":
        pool_of = [Pool(budget // streams + (s < budget % streams)) for s in range(streams)]
    window = EachItsOwn(windows, results, streams)
    now = Now(window, streams)  # type: ignore[arg-type]
    buffers = Buffers(pool_of, rules, now)
    rules.prepare(arrivals, pool_of)
    out, progress = ManyOutcome(nulls=len(every) - len(arrivals)), [-math.inf] * streams

    for x in arrivals:
        now.newest[x.stream] += 1
        x.own = now.newest[x.stream]
        if lateness is None:
            window.clock = dict.fromkeys(range(streams), x.time)
        else:
            progress[x.stream] = max(progress[x.stream], x.time - lateness[x.stream])
            for s in range(streams):
                partners = {other for join in results if s in join for other in join} - {s}
                window.clock[s] = min(progress[other] for other in partners)
        if isinstance(rules, ManyProb):
            rules.count(x)
        buffers.expire()
        for j, members in enumerate(results):
            if x.stream not in members:
                continue
            matched: dict[Arrival, None] = {}
            equal = joins if chain else [joins[j]]
            for each in combinations(x, pool_of, equal, windows, members):
                if x.number >= warmup:
                    out.results.append((j, tuple(y.row for y in each)))
                matched |= dict.fromkeys(y for y in each if y is not x)
            for y in matched:
                rules.matched(x, [y], pool_of[y.stream])
        if dropped is not None and x.row in dropped:
            continue
        if lateness is not None and window.expired(x, now):
            buffers.expired.append(x.name)
        else:
            buffers.admit(x)
    out.evicted, out.expired, out.peak = buffers.evicted, buffers.expired, buffers.peak
    out.buffered = [y.name for y in buffers.members()]
    return out
