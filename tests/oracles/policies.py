"""Windows and eviction policies of the plain simulations, as their definitions read.

Streams are numbered 0 (left) and 1 (right). Of two tuples the one with the lower score goes, of two
with one score the earlier arrival.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

LEFT, RIGHT = 0, 1


@dataclass(eq=False, slots=True)
class Arrival:
    """One tuple: where it came from, and the one thing its policy remembers of it."""

    stream: int
    row: int
    time: float
    key: Any
    number: int = -1  # among all arrivals, in the order of processing
    own: int = -1  # among the arrivals of its own stream
    mark: Any = 0  # use count, last use, credit or clock score

    @property
    def name(self) -> tuple[int, int]:
        return self.stream, self.row


# Windows: when a tuple expires, and how long it still has.


class TimeWindow:
    """A right tuple is at most `after` later or `before` earlier than the left one."""

    def __init__(self, before: float, after: float) -> None:
        if before < 0 or after < 0:
            raise ValueError("a window reaches into both directions by 0 or more")
        self.horizon = {LEFT: after, RIGHT: before}

    def expired(self, y: Arrival, now: Now) -> bool:
        return now.time - y.time > self.horizon[y.stream]

    def remaining(self, y: Arrival, now: Now) -> float:
        return y.time + self.horizon[y.stream] - now.time


class RowsWindow:
    """A tuple lives while it is one of the last n arrivals of its own stream."""

    def __init__(self, n: int) -> None:
        self.horizon = n - 1

    def expired(self, y: Arrival, now: Now) -> bool:
        return now.newest[y.stream] - y.own > self.horizon

    def remaining(self, y: Arrival, now: Now) -> float:
        return y.own + self.horizon - now.newest[y.stream]


class LandmarkWindow:
    """A tuple lives until its period, one of [i * every, (i + 1) * every), is over."""

    def __init__(self, every: float) -> None:
        self.every = every

    def expired(self, y: Arrival, now: Now) -> bool:
        return now.time // self.every > y.time // self.every

    def remaining(self, y: Arrival, now: Now) -> float:
        return (y.time // self.every + 1) * self.every - now.time


Window = TimeWindow | RowsWindow | LandmarkWindow


def window_of(within: Any) -> Window:
    """`within`: a number, (before, after), ("rows", n) or ("landmark", every)."""
    if not isinstance(within, tuple):
        return TimeWindow(within, within)
    if within[0] == "rows":
        return RowsWindow(within[1])
    if within[0] == "landmark":
        return LandmarkWindow(within[1])
    return TimeWindow(*within)


class Now:
    """What is known of the streams so far: the time, the arrivals of each and their keys."""

    def __init__(self, window: Window, streams: int = 2) -> None:
        self.window = window
        self.time: float = -math.inf
        self.newest = [-1] * streams  # own number of the newest arrival of each stream
        self.counts: list[Counter[Any]] = [Counter() for _ in range(streams)]


@dataclass(eq=False)
class Pool:
    """Tuples that share one capacity: the buffer of a stream, or all when unified."""

    capacity: int
    members: list[Arrival] = field(default_factory=list)  # in arrival order


# Policies: a score, and what changes it. The lowest score goes, then the earliest arrival.


POLICIES: dict[str, Callable[..., Policy]] = {}  # filled by the classes below


class Policy:
    """The methods a policy may have; as they stand here they are those of FIFO."""

    name = ""  # of the policy whose twin it is, by which it is found
    selective = False  # the newcomer itself may be the victim
    one_by_one = False  # arrivals of one tick are admitted singly, not in competition

    def __init_subclass__(cls) -> None:
        """Note down the twin of a policy; classes without a name of their own are variants of one."""
        if "name" in vars(cls):
            POLICIES[cls.name] = cls

    def prepare(self, arrivals: list[Arrival], pool_of: Sequence[Pool]) -> None:
        """Look at the streams and their pools before the first step."""

    def score(self, y: Arrival, now: Now) -> float:
        """FIFO: arrival number."""
        return y.number

    def matched(self, x: Arrival, hits: list[Arrival], pool: Pool) -> None:
        """Arrival `x` matched these tuples of `pool`."""

    def leaving(self, x: Arrival, pool: Pool) -> list[Arrival]:
        """Tuples that leave before the admission of `x`, whether or not there is room."""
        return []

    def victim(self, x: Arrival, pool: Pool, now: Now) -> Arrival:
        """The pool is full: the lowest score goes; among equal scores the earliest arrival."""
        candidates = list(pool.members)
        if self.selective or pool.capacity == 0:
            candidates.append(x)
        return min(candidates, key=lambda y: (self.score(y, now), y.number))

    def enter(self, newcomers: list[Arrival], pool: Pool) -> None:
        """Newcomers get their first mark; `pool` does not hold them yet."""

    def gone(self, y: Arrival, pool: Pool) -> None:
        """`y` expired or was evicted."""


class Fifo(Policy):
    """Score: arrival number."""

    name = "fifo"


class Lru(Policy):
    """Score: number of the last arrival that matched it, its own at first."""

    name = "lru"

    def score(self, y: Arrival, now: Now) -> float:
        return y.mark

    def matched(self, x: Arrival, hits: list[Arrival], pool: Pool) -> None:
        for y in hits:
            y.mark = x.number

    def enter(self, newcomers: list[Arrival], pool: Pool) -> None:
        for x in newcomers:
            x.mark = x.number


class Lfu(Policy):
    """Score: how often it matched since it entered."""

    name = "lfu"

    def score(self, y: Arrival, now: Now) -> float:
        return y.mark

    def matched(self, x: Arrival, hits: list[Arrival], pool: Pool) -> None:
        for y in hits:
            y.mark += 1


class Prob(Policy):
    """Score: how many arrivals so far of the other stream had its key."""

    name = "prob"
    selective = True

    def score(self, y: Arrival, now: Now) -> float:
        return float(now.counts[1 - y.stream][y.key])


class Life(Prob):
    """Score: that count times its remaining lifetime."""

    name = "life"

    def score(self, y: Arrival, now: Now) -> float:
        return super().score(y, now) * float(now.window.remaining(y, now))


class Gdj(Policy):
    """Score: credit. Methods 1, 2 and 3 differ in what a match adds and takes away."""

    name = "gdj"

    def __init__(self, initial: float = 0.9, method: int = 1) -> None:
        self.initial, self.method = initial, method

    def score(self, y: Arrival, now: Now) -> float:
        return y.mark

    def enter(self, newcomers: list[Arrival], pool: Pool) -> None:
        """The initial quantile of the credits in its buffer, 0 in an empty one."""
        credits = sorted(y.mark for y in pool.members)
        credit = credits[math.floor(self.initial * (len(credits) - 1))] if credits else 0
        for x in newcomers:
            x.mark = credit

    def matched(self, x: Arrival, hits: list[Arrival], pool: Pool) -> None:
        if self.method == 1:  # +1 per match
            for y in hits:
                y.mark += 1
        elif self.method == 2:  # + ascending rank, taken before this arrival's increments
            ascending = sorted(pool.members, key=lambda y: (y.mark, y.number))
            gains = [(y, ascending.index(y) + 1) for y in hits]
            for y, rank in gains:
                y.mark += rank
        elif self.method == 3 and hits:  # +1 per match, then the total is made constant again
            for y in hits:
                y.mark += 1
            for y in pool.members:
                y.mark -= Fraction(len(hits), len(pool.members))


class Ring:
    """The slots of a pool in a circle, and the hand."""

    def __init__(self, capacity: int) -> None:
        self.slots: list[Arrival | None] = [None] * capacity
        self.hand = 0


class Clock(Policy):
    """No score to compare: the hand depreciates what it passes and evicts what falls too low."""

    name = "clock"
    one_by_one = True
    threshold = 0.0

    def __init__(self, w0: float = 1.0) -> None:
        self.w0 = w0
        self.rings: dict[Pool, Ring] = {}

    def depreciate(self, w: float) -> float:
        return w - 1

    def prepare(self, arrivals: list[Arrival], pool_of: Sequence[Pool]) -> None:
        self.rings = {pool: Ring(pool.capacity) for pool in pool_of}

    def matched(self, x: Arrival, hits: list[Arrival], pool: Pool) -> None:
        for y in hits:
            y.mark += 1

    def victim(self, x: Arrival, pool: Pool, now: Now) -> Arrival:
        """The hand moves past every slot it depreciates, the victim's too."""
        if pool.capacity == 0:
            return x
        ring = self.rings[pool]
        while True:
            y = ring.slots[ring.hand]
            assert y is not None, "the hand walks in a full ring only"
            y.mark = self.depreciate(y.mark)
            ring.hand = (ring.hand + 1) % pool.capacity
            if y.mark < self.threshold:
                return y

    def enter(self, newcomers: list[Arrival], pool: Pool) -> None:
        """The first empty slot at or after the hand; after an eviction that is the victim's."""
        (x,) = newcomers
        x.mark = self.w0
        ring = self.rings[pool]
        place = ring.hand
        while ring.slots[place] is not None:
            place = (place + 1) % pool.capacity
        ring.slots[place] = x

    def gone(self, y: Arrival, pool: Pool) -> None:
        slots = self.rings[pool].slots
        slots[slots.index(y)] = None


class ClockExp(Clock):
    """The same with `w * rho` and a threshold above 0."""

    name = "clock-exp"

    def __init__(self, w0: float = 1.0, rho: float = 0.95, threshold: float = 0.01) -> None:
        super().__init__(w0)
        self.rho, self.threshold = rho, threshold

    def depreciate(self, w: float) -> float:
        return w * self.rho


class Age(Policy):
    """Staggered iff the buffer is smaller than rate times k_opt, else FIFO.

    `k` is a number, a pair of numbers, or {"left": [k of each row], "right": [...]}; `rate` is a
    pair, in arrivals per unit of time. With a k per tuple, k_opt of a stream is their mean.
    """

    name = "age"
    one_by_one = True

    def __init__(self, k: Any, rate: tuple[float, float]) -> None:
        self.k, self.rate = k, rate
        self.staggered = [False, False]

    def k_of(self, y: Arrival) -> float:
        if isinstance(self.k, dict):
            return self.k["left" if y.stream == LEFT else "right"][y.row]
        if isinstance(self.k, tuple):
            return self.k[y.stream]
        return self.k

    def prepare(self, arrivals: list[Arrival], pool_of: Sequence[Pool]) -> None:
        for s in (LEFT, RIGHT):
            ks = [self.k_of(x) for x in arrivals if x.stream == s]
            if isinstance(self.k, dict):
                k_opt = sum(ks) / len(ks) if ks else 0
            else:
                k_opt = ks[0] if ks else 0
            self.staggered[s] = pool_of[s].capacity < self.rate[s] * k_opt

    def leaving(self, x: Arrival, pool: Pool) -> list[Arrival]:
        """Staggered: tuples older than k_opt leave before admission."""
        if not self.staggered[x.stream]:
            return []
        return [y for y in pool.members if x.time - y.time > self.k_of(y)]

    def victim(self, x: Arrival, pool: Pool, now: Now) -> Arrival:
        """Staggered: a full buffer refuses the newcomer. Otherwise the oldest goes."""
        if self.staggered[x.stream]:
            return x
        return super().victim(x, pool, now)


class Heeb(Policy):
    """Score: the sum over the coming steps of the probability of a match times exp(-d / alpha).

    `pmfs` has for each stream a function (value, time) -> probability, for streams of independent values.
    A step is a tick, or an arrival of the stream that is waited for; `rates` are arrivals per unit of time.
    """

    name = "heeb"
    selective = True

    def __init__(self, pmfs: Any, alpha: float, rates: tuple[float, float], step: str) -> None:
        self.pmfs, self.alpha, self.step, self.rates = pmfs, alpha, step, rates
        self.times: list[float] = []

    def prepare(self, arrivals: list[Arrival], pool_of: Sequence[Pool]) -> None:
        self.times = sorted({x.time for x in arrivals})

    def score(self, y: Arrival, now: Now) -> float:
        r = 1 - y.stream
        known = min(self.rates) > 0
        rows = isinstance(now.window, RowsWindow)
        rates = (1.0, 1.0) if rows else self.rates
        share = 2.0 * rates[r] / (rates[0] + rates[1]) if known or rows else 1.0
        elapsed = now.time - self.times[0]
        if self.step == "tick":
            time, factor, alpha = self.times.index(now.time), share, self.alpha
            pace = time / elapsed if elapsed > 0 and not rows else 1.0
        else:
            time, factor, alpha = now.newest[r], 1.0, self.alpha * share
            pace = rates[r] if known else (now.newest[r] + 1) / elapsed if elapsed > 0 else 1.0
            pace = 1.0 if rows else pace
        left = float(now.window.remaining(y, now)) * pace
        if isinstance(now.window, LandmarkWindow):
            left = math.ceil(left - 1e-9) - 1.0
        left = min(max(0, math.floor(left + 1e-9)), math.ceil(-alpha * math.log(1e-12)))
        found = 0.0
        for d in range(1, left + 1):
            found += math.exp(-d / alpha) * self.pmfs[r](y.key, time + d)
        return factor * found
