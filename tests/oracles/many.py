"""Bounded joins of many streams over several attributes, as a plain simulation."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from functools import partial
from itertools import product
from typing import Any

from .join import Buffers
from .policies import POLICIES, Arrival, Now, Policy, Pool, TimeWindow

Join = tuple[tuple[int, str], ...]  # its participants: (stream, column)


@dataclass
class ManyOutcome:
    """Everything a run did. Tuples are named (stream, row), results (join, rows)."""

    results: list[tuple[int, tuple[int, ...]]] = field(default_factory=list)
    evicted: list[tuple[int, int]] = field(default_factory=list)
    expired: list[tuple[int, int]] = field(default_factory=list)
    buffered: list[tuple[int, int]] = field(default_factory=list)
    nulls: int = 0
    peak: int = 0


class ManyProb(Policy):
    """Score: over its joins, how many arrivals so far of the other participants had its key."""

    selective = True

    def __init__(self, joins: list[Join]) -> None:
        self.joins = joins
        self.counts: Counter[Any] = Counter()  # of (join, stream, key)

    def count(self, x: Arrival) -> None:
        for j, join in enumerate(self.joins):
            for s, column in join:
                if s == x.stream:
                    self.counts[j, s, x.key.get(column)] += 1

    def score(self, y: Arrival, now: Now) -> float:
        total = 0
        for j, join in enumerate(self.joins):
            key = key_in(join, y)
            if key is not None:
                total += sum(self.counts[j, s, key] for s, _ in join if s != y.stream)
        return float(total)


def key_in(join: Join, y: Arrival) -> Any:
    """The key of a tuple in a join; None if it is null or its stream takes no part."""
    for s, column in join:
        if s == y.stream:
            return y.key.get(column)
    return None


def simulate_many(
    streams: list[list[Any]],
    joins: list[Join],
    *,
    within: float,
    budget: int,
    policy: str,
    options: dict[str, Any] | None = None,
    allocation: str = "unified",
) -> ManyOutcome:
    """Join lists of (time, {column: key}); a row without a key in any of its joins is a null."""
    for join in joins:
        if len(join) < 2 or len({s for s, _ in join}) < len(join):
            raise ValueError("a join has two or more different streams")
    if policy == "gdj" and (options or {}).get("method", 1) != 1:
        raise ValueError("joins of many streams have method 1 only")
    kind = partial(ManyProb, joins) if policy == "prob" else POLICIES[policy]
    rules = kind(**(options or {}))

    # Order of processing: time, stream, row.
    rows = [
        Arrival(s, row, time, keys)
        for s, stream in enumerate(streams)
        for row, (time, keys) in enumerate(stream)
    ]
    arrivals = [x for x in rows if any(key_in(join, x) is not None for join in joins)]
    arrivals.sort(key=lambda x: (x.time, x.stream, x.row))
    for number, x in enumerate(arrivals):
        x.number = number

    m = len(streams)
    if allocation == "unified":
        pool_of = [Pool(budget)] * m
    elif allocation == "equal":
        pool_of = [Pool(budget // m + (s < budget % m)) for s in range(m)]
    else:
        raise ValueError(f"unknown allocation {allocation!r}")

    window = TimeWindow(within, within)
    window.horizon = dict.fromkeys(range(m), within)
    now = Now(window, m)
    buffers = Buffers(pool_of, rules, now)
    rules.prepare(arrivals, pool_of)
    out = ManyOutcome(nulls=len(rows) - len(arrivals))

    for x in arrivals:
        now.time = x.time
        if isinstance(rules, ManyProb):
            rules.count(x)

        # 1. Expire.
        buffers.expire()

        # 2. Probe: one buffered tuple of each other participant, in all combinations.
        for j, join in enumerate(joins):
            key = key_in(join, x)
            if key is None:
                continue
            choices = []
            for s, _ in join:
                if s == x.stream:
                    choices.append([x])
                else:
                    mine = [y for y in buffers.pool_of[s].members if y.stream == s]
                    choices.append([y for y in mine if key_in(join, y) == key])
            combinations = list(product(*choices))
            out.results.extend((j, tuple(y.row for y in found)) for found in combinations)
            # A tuple gains once per join, in however many results it is.
            gaining = {y: None for found in combinations for y in found if y is not x}
            for y in gaining:
                rules.matched(x, [y], buffers.pool_of[y.stream])

        # 3. Admit.
        buffers.admit(x)

    out.evicted, out.expired, out.peak = buffers.evicted, buffers.expired, buffers.peak
    out.buffered = [y.name for y in buffers.members()]
    return out
