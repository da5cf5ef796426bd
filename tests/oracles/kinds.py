"""Outer, semi and anti joins and joins with at most one match, as plain simulations.

`exact_rows` is the answer that unlimited memory gives. `simulate_kind` is the bounded join: which tuples are
evicted and released, and which are certain to have no partner. A row of -1 stands for no row.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from .exact import exact_pairs
from .join import Buffers, Outcome, arrivals_of, pools_of
from .policies import LEFT, POLICIES, RIGHT, Arrival, Now, window_of
from .stream import OwnClocks

PRESERVED = {
    "inner": (),
    "left": (LEFT,),
    "right": (RIGHT,),
    "full": (LEFT, RIGHT),
    "left_semi": (),
    "left_anti": (LEFT,),
}
TRACKED = {**PRESERVED, "left_semi": (LEFT,)}
Rows = list[tuple[int, int]]
Passing = Callable[[int, int], bool]  # whether a left and a right row, by their numbers, pass a condition


def exact_rows(
    left: list[Any],
    right: list[Any],
    within: Any,
    how: str,
    matches: str = "all",
    passing: Passing | None = None,
) -> Rows:
    """All rows of the exact join, null keys included."""
    pairs = exact_pairs(left, right, within)  # in the order in which an unbounded join finds them
    if passing is not None:
        pairs = [pair for pair in pairs if passing(*pair)]
    return rows_of(pairs, len(left), len(right), how, matches)


def rows_of(pairs: Rows, lefts: int, rights: int, how: str, matches: str) -> Rows:
    """What comes out, given all pairs in the order in which they are found."""
    taken: Rows = []
    for left, right in pairs:
        if matches != "all" and left in {a for a, _ in taken}:
            continue
        if matches == "one-to-one" and right in {b for _, b in taken}:
            continue
        taken.append((left, right))
    matched = {LEFT: {a for a, _ in taken}, RIGHT: {b for _, b in taken}}
    if how == "left_semi":
        return [(row, -1) for row in range(lefts) if row in matched[LEFT]]
    rows = [] if how == "left_anti" else list(taken)
    if LEFT in PRESERVED[how]:
        rows += [(row, -1) for row in range(lefts) if row not in matched[LEFT]]
    if RIGHT in PRESERVED[how]:
        rows += [(-1, row) for row in range(rights) if row not in matched[RIGHT]]
    return rows


@dataclass
class Fate(Outcome):
    """What a run did, and what became of its tuples; in semi joins `pairs` has left rows alone."""

    released: Rows = field(default_factory=list)
    unmatched: Rows = field(default_factory=list)
    undecided: Rows = field(default_factory=list)
    late: Rows = field(default_factory=list)


class Decisions:
    """Who has matched, and who may have lost a partner."""

    def __init__(self, how: str, matches: str, buffers: Buffers, out: Fate) -> None:
        self.how, self.matches, self.buffers, self.out = how, matches, buffers, out
        self.matched: set[int] = set()
        self.doubtful: set[int] = set()
        self.lost: list[Arrival] = []
        self.gone = 0  # how many of the evicted have been looked at
        self.alive: dict[tuple[int, int], Arrival] = {}

    def lose(self, y: Arrival) -> None:
        """A tuple leaves early."""
        self.lost.append(y)
        if y.stream in TRACKED[self.how] and y.number not in self.matched:
            self.out.undecided.append(y.name)

    def note_evicted(self) -> None:
        for name in self.buffers.evicted[self.gone :]:
            self.lose(self.alive[name])
        self.gone = len(self.buffers.evicted)

    def expire(self, y: Arrival) -> None:
        """A tuple can match no more."""
        if y.stream not in TRACKED[self.how] or y.number in self.matched:
            return
        if y.number in self.doubtful:
            self.out.undecided.append(y.name)
        elif y.stream in PRESERVED[self.how]:
            self.out.unmatched.append(y.name)

    def take(self, x: Arrival, fitting: list[Arrival]) -> list[Arrival]:
        """Those of the tuples that fit whom an arrival joins; results come out."""
        if self.matches == "one-to-one" or (self.matches == "once" and x.stream == LEFT):
            fitting = fitting[:1]
        for y in fitting:
            left, right = (x, y) if x.stream == LEFT else (y, x)
            if self.how == "left_semi":
                if left.number not in self.matched:
                    self.out.pairs.append((left.row, -1))
                    self.matched.add(left.number)
            elif self.how != "left_anti":
                self.out.pairs.append((left.row, right.row))
        self.matched.update(y.number for y in fitting)
        if fitting:
            self.matched.add(x.number)
        return fitting

    def leaves(self, y: Arrival) -> bool:
        """Whether a tuple that has matched leaves at once."""
        if self.matches == "one-to-one":
            return True
        once = self.matches == "once" or self.how in ("left_semi", "left_anti")
        return once and y.stream == LEFT


def simulate_kind(
    left: list[Any],
    right: list[Any],
    *,
    within: Any,
    budget: Any,
    policy: str,
    how: str,
    matches: str = "all",
    options: dict[str, Any] | None = None,
    allocation: str = "unified",
    dropped: Sequence[bool] | None = None,
    drop_at: str = "admission",
    passing: Passing | None = None,
) -> Fate:
    """Join two lists of (time, key) in bounded memory, in step."""
    arrivals = arrivals_of(left, right)
    now = Now(window_of(within))
    run = (budget, policy, how, matches, options, allocation, dropped, drop_at, None, passing)
    return _simulate(arrivals, now, *run)


def simulate_kind_late(
    rows: list[tuple[int, int, int]],
    *,
    within: tuple[float, float],
    budget: Any,
    policy: str,
    how: str,
    matches: str = "all",
    lateness: float = 0,
    dropped: Sequence[bool] | None = None,
    drop_at: str = "admission",
    passing: Passing | None = None,
) -> Fate:
    """Join (stream, time, key) rows in the order given; each stream has its own progress."""
    arrivals = [Arrival(s, row, time, key) for row, (s, time, key) in enumerate(rows)]
    for number, x in enumerate(arrivals):
        x.number = number
    now = Now(OwnClocks(*within))
    run = (budget, policy, how, matches, None, "unified", dropped, drop_at, lateness, passing)
    return _simulate(arrivals, now, *run)


def _simulate(
    arrivals: list[Arrival],
    now: Now,
    budget: Any,
    policy: str,
    how: str,
    matches: str,
    options: dict[str, Any] | None,
    allocation: str,
    dropped: Sequence[bool] | None,
    drop_at: str,
    lateness: float | None,
    passing: Passing | None,
) -> Fate:
    rules, out = POLICIES[policy](**(options or {})), Fate()
    buffers = Buffers(pools_of(budget, allocation, arrivals), rules, now)
    rules.prepare(arrivals, buffers.pool_of)
    decisions = Decisions(how, matches, buffers, out)
    decisions.alive = {x.name: x for x in arrivals}
    window: Any = now.window
    largest = {LEFT: -math.inf, RIGHT: -math.inf}

    def fits(x: Arrival, y: Arrival) -> bool:
        """Whether y, of the other stream, would be there for x and join it, had it stayed."""
        if lateness is None:
            return y.key == x.key and not window.expired(y, now)
        return y.key == x.key and window.joins(x, y)

    def joins(x: Arrival, y: Arrival) -> bool:
        """Whether they fit and pass the condition, too."""
        left, right = (x, y) if x.stream == LEFT else (y, x)
        return fits(x, y) and (passing is None or passing(left.row, right.row))

    def expire() -> None:
        before = len(buffers.expired)
        buffers.expire()
        for name in buffers.expired[before:]:
            decisions.expire(decisions.alive[name])

    for x in arrivals:
        doomed = dropped is not None and dropped[x.number]
        late = lateness is not None and x.time < largest[x.stream] - lateness
        if doomed and drop_at == "arrival":
            out.dropped.append(x.name)
            if not (late and how != "inner"):
                before, now.time = now.time, x.time  # it does not advance time
                for y in buffers.members():
                    if y.stream != x.stream and joins(x, y):
                        decisions.doubtful.add(y.number)
                now.time = before
                decisions.lose(x)
            continue
        now.time = x.time
        if lateness is not None:
            largest[x.stream] = max(largest[x.stream], x.time)
            window.clock[1 - x.stream] = largest[x.stream] - lateness
        now.newest[x.stream] += 1
        x.own = now.newest[x.stream]
        if late:
            out.late.append(x.name)
        if late and how != "inner":
            expire()
            buffers.expired.append(x.name)
            continue
        now.counts[x.stream][x.key] += 1
        expire()
        members = [y for y in buffers.members() if y.stream != x.stream and joins(x, y)]
        told = decisions.take(x, members)
        pool = buffers.pool_of[1 - x.stream]
        rules.matched(x, told, pool)
        for y in told:
            if decisions.leaves(y):
                buffers.remove(y)
                out.released.append(y.name)
        if told and decisions.leaves(x):
            out.released.append(x.name)
            continue
        if any(y.stream != x.stream and fits(x, y) for y in decisions.lost):
            decisions.doubtful.add(x.number)
        if doomed:
            out.dropped.append(x.name)
            decisions.lose(x)
        elif lateness is not None and window.old(x):
            buffers.expired.append(x.name)
            decisions.expire(x)
        else:
            buffers.admit(x)
            decisions.note_evicted()
    for y in buffers.members():
        buffers.remove(y)
        buffers.expired.append(y.name)
        decisions.expire(y)
    out.evicted, out.expired, out.peak = buffers.evicted, buffers.expired, buffers.peak
    return out
