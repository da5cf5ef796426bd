"""Left joins of many streams as a plain simulation: which rows of the first are certainly in no result.

A row is named by its number in the list of all rows. With a budget that nothing exceeds, the outcome is that
of the exact join.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from .join import Buffers
from .many import Join, ManyOutcome, ManyProb, key_in
from .many_windows import EachItsOwn, Windows, combinations
from .policies import POLICIES, Arrival, Now, Pool

FIRST = 0


@dataclass
class LeftOutcome(ManyOutcome):
    """What a run did, and what became of the rows of the first stream that it found in no result."""

    unmatched: list[int] = field(default_factory=list)
    undecided: list[int] = field(default_factory=list)
    late: list[int] = field(default_factory=list)


@dataclass
class Fate:
    """What is known of a buffered row of the first stream."""

    had: list[bool]  # per partner: whether there was one, or may have been
    doubt: bool
    matched: bool


class Decisions:
    """Who has been in a result, and what has left early."""

    def __init__(self, joins: list[Join], windows: Windows, window: EachItsOwn, together: bool) -> None:
        self.windows, self.window, self.together = windows, window, together
        self.links = [join for join in joins if FIRST in dict(join)]
        # Who must have a key of the first stream, and which join says so.
        self.partners = [(join, s) for join in self.links for s, _ in join if s != FIRST]
        self.fates: dict[int, Fate] = {}
        self.lost: list[Arrival] = []

    def low(self, x: Arrival, s: int, now: Now) -> float:
        """No tuple of a stream before this suits x: a time, or a number in a window of rows."""
        if self.by_rows(s):
            return now.newest[s] - self.windows.spans[s][1] + 1
        return (now.time if self.together else x.time) - self.window.horizon[s]

    def by_rows(self, s: int) -> bool:
        return self.windows.spans.get(s, ("time", 0))[0] == "rows"

    def lost_for(self, x: Arrival, join: Join, s: int, now: Now) -> bool:
        """Whether a partner of x may have left before it came."""
        mine = [y for y in self.lost if y.stream == s]
        if self.by_rows(s):  # only the latest is known
            return any(y.own >= self.low(x, s, now) for y in mine)
        high = math.inf if self.together else x.time + self.window.horizon[FIRST]
        fitting = [y for y in mine if self.low(x, s, now) <= y.time <= high]
        return any(key_in(join, y) == key_in(join, x) for y in fitting)

    def meet(self, x: Arrival, buffered: list[Arrival], matched: bool, now: Now) -> Fate:
        """What is known of a row of the first stream when it has come."""
        lost = [self.lost_for(x, join, s, now) for join, s in self.partners]
        there = [
            any(y.stream == s and key_in(join, y) == key_in(join, x) for y in buffered)
            for join, s in self.partners
        ]
        doubt, linked = any(lost), {FIRST, *(s for _, s in self.partners)}
        for y in self.lost:
            if y.stream not in linked:
                at = y.own if self.by_rows(y.stream) else y.time
                doubt = doubt or at >= self.low(x, y.stream, now)
        return Fate([one or other for one, other in zip(there, lost, strict=True)], doubt, matched)

    def came(self, x: Arrival, buffered: list[Arrival]) -> None:
        """A row of another stream: those with its key have had a partner."""
        for y in buffered:
            if y.stream == FIRST:
                for n, (join, s) in enumerate(self.partners):
                    if s == x.stream and key_in(join, x) == key_in(join, y):
                        self.fates[y.row].had[n] = True

    def lose(self, x: Arrival, buffered: list[Arrival]) -> None:
        """A row of another stream leaves early."""
        self.lost.append(x)
        mine = [join for join, s in self.partners if s == x.stream]
        for y in buffered:
            if y.stream == FIRST and (not mine or any(key_in(join, x) == key_in(join, y) for join in mine)):
                self.fates[y.row].doubt = True


def simulate_left(
    rows: list[tuple[int, float, dict[str, Any]]],
    joins: list[Join],
    windows: Windows,
    *,
    streams: int,
    budget: int,
    policy: str,
    allocation: str = "unified",
    lateness: list[float] | None = None,
    warmup: int = 0,
    dropped: set[int] | None = None,
) -> LeftOutcome:
    """Join (stream, time, {column: key}) rows in the order given, as `simulate_windows` does, and decide.

    There is one join over all streams, or a chain of links. Rows behind their stream's progress take no part.
    """
    rules = ManyProb(joins) if policy == "prob" else POLICIES[policy]()
    every = [Arrival(s, row, time, keys) for row, (s, time, keys) in enumerate(rows)]
    arrivals = [
        x
        for x in every
        if all(x.key[column] is not None for join in joins for s, column in join if s == x.stream)
    ]
    for number, x in enumerate(arrivals):
        x.number = number
    pool_of = [Pool(budget)] * streams
    if allocation == "equal":
        pool_of = [Pool(budget // streams + (s < budget % streams)) for s in range(streams)]
    window = EachItsOwn(windows, [list(range(streams))], streams)
    now = Now(window, streams)  # type: ignore[arg-type]
    buffers = Buffers(pool_of, rules, now)
    rules.prepare(arrivals, pool_of)
    out, progress = LeftOutcome(nulls=len(every) - len(arrivals)), [-math.inf] * streams
    decisions, named, gone, left = Decisions(joins, windows, window, lateness is None), {}, 0, 0
    step = 0

    def settle(row: int) -> None:
        fate = decisions.fates[row]
        if fate.matched:
            return
        if fate.doubt and all(fate.had):
            out.undecided.append(row)
        elif step >= warmup:
            out.unmatched.append(row)

    for step, x in enumerate(arrivals):
        named[x.name] = x
        if lateness is not None and x.time < progress[x.stream]:
            out.late.append(x.row)
            continue
        now.time = x.time
        now.newest[x.stream] += 1
        x.own = now.newest[x.stream]
        if lateness is None:
            window.clock = dict.fromkeys(range(streams), x.time)
        else:
            progress[x.stream] = max(progress[x.stream], x.time - lateness[x.stream])
            for s in range(streams):
                window.clock[s] = min(progress[other] for other in range(streams) if other != s)
        if isinstance(rules, ManyProb):
            rules.count(x)
        buffers.expire()
        for s, row in buffers.expired[left:]:
            if s == FIRST:
                settle(row)
        left = len(buffers.expired)
        found = combinations(x, pool_of, joins, windows, list(range(streams)))
        for each in found:
            if step >= warmup:
                out.results.append((0, tuple(y.row for y in each)))
            if x.stream != FIRST:
                mine = next(y for y in each if y.stream == FIRST)
                decisions.fates[mine.row].matched = True
        for y in {y: None for each in found for y in each if y is not x}:
            rules.matched(x, [y], pool_of[y.stream])
        if x.stream != FIRST:
            decisions.came(x, buffers.members())
        buffered = buffers.members()
        if dropped is not None and x.row in dropped:
            if x.stream != FIRST:
                decisions.lose(x, buffered)
            elif not found:
                out.undecided.append(x.row)
            continue
        if lateness is not None and window.expired(x, now):
            buffers.expired.append(x.name)
            left += 1
            if x.stream == FIRST:
                decisions.fates[x.row] = decisions.meet(x, buffered, bool(found), now)
                settle(x.row)
            continue
        decisions.fates[x.row] = Fate([], False, bool(found))  # until it has entered
        buffers.admit(x)
        for name in buffers.evicted[gone:]:
            y = named[name]
            if y.stream != FIRST:
                decisions.lose(y, [z for z in buffered if z.name not in buffers.evicted])
            elif not decisions.fates[y.row].matched:
                out.undecided.append(y.row)
        if x.stream == FIRST and x.name not in buffers.evicted[gone:]:
            decisions.fates[x.row] = decisions.meet(x, buffers.members(), bool(found), now)
        gone = len(buffers.evicted)
    step = len(arrivals)
    out.buffered = [y.name for y in buffers.members()]
    for y in buffers.members():
        if y.stream == FIRST:
            settle(y.row)
    out.evicted, out.expired, out.peak = buffers.evicted, buffers.expired, buffers.peak
    return out
