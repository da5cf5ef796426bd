"""The bounded two-stream join as a plain simulation: every rule is one loop over the buffer.

Nothing here is meant to be fast; it is meant to be believed by reading it beside the written
semantics. Streams are numbered 0 (left) and 1 (right).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import groupby
from typing import Any

from .policies import LEFT, POLICIES, RIGHT, Arrival, Now, Policy, Pool, window_of


@dataclass
class Outcome:
    """Everything a run did. Tuples are named (stream, row)."""

    pairs: list[tuple[int, int]] = field(default_factory=list)
    same_tick: int = 0
    evicted: list[tuple[int, int]] = field(default_factory=list)
    expired: list[tuple[int, int]] = field(default_factory=list)
    dropped: list[tuple[int, int]] = field(default_factory=list)
    buffered: list[tuple[int, int]] = field(default_factory=list)
    nulls: int = 0
    peak: int = 0

    @property
    def results(self) -> int:
        return len(self.pairs)


class Buffers:
    """The pools, and the rules by which tuples leave and enter them."""

    def __init__(self, pool_of: Sequence[Pool], policy: Policy, now: Now) -> None:
        self.pool_of = pool_of  # the pool of each stream, one and the same when unified
        self.pools = list(dict.fromkeys(pool_of))
        self.policy, self.now = policy, now
        self.evicted: list[tuple[int, int]] = []
        self.expired: list[tuple[int, int]] = []
        self.peak = 0

    def members(self) -> list[Arrival]:
        """All buffered tuples in arrival order."""
        everyone = [y for pool in self.pools for y in pool.members]
        return sorted(everyone, key=lambda y: y.number)

    def remove(self, y: Arrival) -> None:
        pool = self.pool_of[y.stream]
        pool.members.remove(y)
        self.policy.gone(y, pool)

    def expire(self) -> None:
        """Every buffered tuple past its horizon leaves; they are listed in arrival order."""
        late = [y for pool in self.pools for y in pool.members if self.now.window.expired(y, self.now)]
        for y in sorted(late, key=lambda y: y.number):
            self.remove(y)
            self.expired.append(y.name)

    def admit(self, x: Arrival) -> None:
        """With room, `x` enters. Otherwise one victim goes, perhaps `x` itself."""
        pool = self.pool_of[x.stream]
        for y in self.policy.leaving(x, pool):
            self.remove(y)
            self.evicted.append(y.name)
        if len(pool.members) >= pool.capacity:
            victim = self.policy.victim(x, pool, self.now)
            self.evicted.append(victim.name)
            if victim is x:
                return
            self.remove(victim)
        self.policy.enter([x], pool)
        pool.members.append(x)
        self.note_peak()

    def compete(self, newcomers: list[Arrival]) -> None:
        """All newcomers of a tick and the buffer compete; the lowest of them leave together."""
        for pool in self.pools:
            mine = [x for x in newcomers if self.pool_of[x.stream] is pool]
            self.policy.enter(mine, pool)
            pool.members.extend(mine)
            while len(pool.members) > pool.capacity:
                lowest = min(pool.members, key=lambda y: (self.policy.score(y, self.now), y.number))
                self.remove(lowest)
                self.evicted.append(lowest.name)
        self.note_peak()

    def note_peak(self) -> None:
        self.peak = max(self.peak, sum(len(pool.members) for pool in self.pools))


def arrivals_of(left: list[Any], right: list[Any]) -> list[Arrival]:
    """Order of processing: time, left before right, row. Null keys are no arrivals."""
    found = [
        Arrival(s, row, time, key)
        for s, stream in ((LEFT, left), (RIGHT, right))
        for row, (time, key) in enumerate(stream)
        if key is not None
    ]
    found.sort(key=lambda x: (x.time, x.stream, x.row))
    for number, x in enumerate(found):
        x.number = number
    return found


def pools_of(budget: Any, allocation: str, arrivals: list[Arrival]) -> list[Pool]:
    """The pool of the left stream and that of the right one."""
    if isinstance(budget, tuple):
        if allocation == "unified":
            raise ValueError("a unified pool has one capacity, not a pair")
        return [Pool(budget[LEFT]), Pool(budget[RIGHT])]
    if allocation == "unified":
        pool = Pool(budget)
        return [pool, pool]
    if allocation == "equal":
        share = (budget + 1) // 2
    elif allocation == "proportional":
        lefts = sum(x.stream == LEFT for x in arrivals)
        share = math.ceil(Fraction(budget * lefts, max(1, len(arrivals))))
        share = max(1, min(budget - 1, share))
    else:
        raise ValueError(f"unknown allocation {allocation!r}")
    return [Pool(share), Pool(budget - share)]


def simulate(
    left: list[Any],
    right: list[Any],
    *,
    within: Any,
    budget: Any,
    policy: str | Policy,
    options: dict[str, Any] | None = None,
    allocation: str | None = None,
    step: str = "arrival",
    warmup: int = 0,
    dropped: list[bool] | None = None,
    drop_at: str = "admission",
) -> Outcome:
    """Join two lists of (time, key) in bounded memory.

    `budget` is a number of tuples or a pair of capacities; `dropped` says of each arrival, in the
    order of processing and without null keys, whether it is dropped.
    """
    if allocation is None:
        allocation = "proportional" if policy == "age" else "unified"
    if policy == "age" and allocation == "unified":
        raise ValueError("age has no unified pool")
    rules = policy if isinstance(policy, Policy) else POLICIES[policy](**(options or {}))
    arrivals = arrivals_of(left, right)
    now = Now(window_of(within))
    buffers = Buffers(pools_of(budget, allocation, arrivals), rules, now)
    rules.prepare(arrivals, buffers.pool_of)
    out = Outcome(nulls=len(left) + len(right) - len(arrivals))

    # A step is one arrival, or all arrivals of one timestamp.
    together = {"arrival": lambda x: x.number, "tick": lambda x: x.time}[step]
    for step_number, (_, group) in enumerate(groupby(arrivals, key=together)):
        counted = step_number >= warmup
        tick = list(group)
        doomed = [x for x in tick if dropped is not None and dropped[x.number]]
        out.dropped.extend(x.name for x in doomed)
        if drop_at == "arrival":  # such a tuple touches nothing
            tick = [x for x in tick if x not in doomed]
        if not tick:
            continue

        # The whole step is counted first: keys, and arrival numbers within each stream.
        for x in tick:
            now.time = x.time
            now.newest[x.stream] += 1
            x.own = now.newest[x.stream]
            now.counts[x.stream][x.key] += 1

        # 1. Expire.
        buffers.expire()

        # 2. Probe: every buffered tuple of the other stream with this key yields one result.
        for x in tick:
            pool = buffers.pool_of[1 - x.stream]
            hits = [y for y in pool.members if y.stream != x.stream and y.key == x.key]
            rules.matched(x, hits, pool)
            if counted:
                out.pairs.extend(pair_of(x, y) for y in hits)

        # The arrivals of one tick match each other; that needs no memory and changes no score.
        for x in tick:
            for y in tick:
                if (y.stream, x.stream) == (LEFT, RIGHT) and x.key == y.key and counted:
                    out.pairs.append(pair_of(x, y))
                    out.same_tick += 1

        # 3. Admit.
        newcomers = [x for x in tick if x not in doomed]
        if step == "arrival" or rules.one_by_one:
            for x in newcomers:
                buffers.admit(x)
        else:
            buffers.compete(newcomers)

    out.evicted, out.expired, out.peak = buffers.evicted, buffers.expired, buffers.peak
    out.buffered = [y.name for y in buffers.members()]
    return out


def pair_of(x: Arrival, y: Arrival) -> tuple[int, int]:
    """The rows of two tuples, the left one first."""
    return (x.row, y.row) if x.stream == LEFT else (y.row, x.row)
