"""Caches in plain Python: every rule is a search through all entries."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any


@dataclass
class Entry:
    """A cached key."""

    key: Any
    entered: int
    used: int
    hits: int = 0


def next_request(requests: list[Any], now: int, key: Any) -> float:
    """When a key is asked for again."""
    return next((i for i in range(now + 1, len(requests)) if requests[i] == key), float("inf"))


def hits_of(requests: list[Any], policy: str, capacity: int) -> list[bool]:
    """Which requests are hits. Ties go to the least recently used."""
    entries: list[Entry] = []
    asked: Counter[Any] = Counter()
    found = []
    for now, key in enumerate(requests):
        asked[key] += 1
        hit = next((e for e in entries if e.key == key), None)
        found.append(hit is not None)
        if hit is not None:
            hit.hits += 1
            hit.used = now
            continue

        def score(e: Entry, now: int = now) -> float:
            if policy == "fifo":
                return e.entered
            if policy == "lru":
                return e.used
            if policy == "lfu":
                return e.hits
            if policy == "prob":
                return asked[e.key]
            return -next_request(requests, now, e.key)  # lfd

        newcomer = Entry(key, now, now)
        if len(entries) == capacity:
            worst = min(entries, key=lambda e: (score(e), e.used))
            selective = policy in ("prob", "lfd:bypass=true")
            if selective and score(newcomer) < score(worst):
                continue
            entries.remove(worst)
        entries.append(newcomer)
    return found


def clock_hits(requests: list[Any], capacity: int, rho: float | None = None) -> list[bool]:
    """Which requests are hits of CLOCK, of CLOCK-EXP with a `rho`: a hand that walks."""
    ring: list[list[Any] | None] = [None] * capacity  # key and score
    hand, found = 0, []
    for key in requests:
        there = next((each for each in ring if each is not None and each[0] == key), None)
        found.append(there is not None)
        if there is not None:
            there[1] += 1
            continue
        empty = [(hand + i) % capacity for i in range(capacity) if ring[(hand + i) % capacity] is None]
        if empty:
            ring[empty[0]] = [key, 1.0]
            continue
        while True:
            here = ring[hand]
            assert here is not None
            here[1] = here[1] - 1 if rho is None else here[1] * rho
            gone = here[1] < (0 if rho is None else 0.01)
            if gone:
                ring[hand] = [key, 1.0]
            hand = (hand + 1) % capacity
            if gone:
                break
    return found


def gdj_hits(requests: list[Any], capacity: int, initial: float = 0.9, ranks: bool = False) -> list[bool]:
    """Which requests are hits of GreedyDual-Join: the least credit goes, then the least recently used."""
    credits: dict[Any, list[float]] = {}  # key -> credit, last use
    found = []
    for now, key in enumerate(requests):
        found.append(key in credits)
        if key in credits:
            order = sorted(credits, key=lambda k: tuple(credits[k]))
            credits[key][0] += order.index(key) + 1 if ranks else 1
            credits[key][1] = now
            continue
        if len(credits) == capacity:
            del credits[min(credits, key=lambda k: tuple(credits[k]))]
        ascending = sorted(credit for credit, _ in credits.values())
        credits[key] = [ascending[int(initial * (len(ascending) - 1))] if ascending else 0.0, now]
    return found


def cheapest_hits(requests: list[Any], costs: list[float], capacity: int) -> list[bool]:
    """Which requests are hits of GreedyDual with these costs of misses."""
    worth: dict[Any, list[float]] = {}
    level, found = 0.0, []
    for now, (key, cost) in enumerate(zip(requests, costs, strict=True)):
        found.append(key in worth)
        if key not in worth and len(worth) == capacity:
            goes = min(worth, key=lambda k: tuple(worth[k]))
            level = worth.pop(goes)[0]
        worth[key] = [level + cost, now]
    return found


def most_hits(requests: list[Any], capacity: int) -> int:
    """The most hits of any decisions: after a request any part of what was there or has come may stay."""
    best: dict[frozenset[Any], int] = {frozenset(): 0}
    for key in requests:
        following: dict[frozenset[Any], int] = {}
        for held, hits in best.items():
            total = hits + (key in held)
            everything = held | {key}
            choices = [held, everything] + [everything - {gone} for gone in everything]
            for choice in choices:
                if len(choice) <= capacity:
                    following[choice] = max(following.get(choice, 0), total)
        best = following
    return max(best.values())


class SizedCache:
    """Entries with sizes that may change: the lowest score leaves until all fit, and among equals the oldest.

    CLOCK has a ring with room for `capacity` entries and a hand that walks.
    """

    def __init__(self, policy: str, limit: int, capacity: int) -> None:
        self.policy, self.limit = policy, limit
        self.size: dict[Any, int] = {}
        self.entered: dict[Any, int] = {}
        self.used: dict[Any, int] = {}
        self.worth: dict[Any, float] = {}  # hits, credit, or the score of a clock
        self.ring: list[Any] = [None] * capacity
        self.hand = self.requests = 0
        self.struck = False  # whether the hand points at a slot that it has just emptied

    def use(self, key: Any) -> None:
        self.worth[key] += 1
        self._requested(key)

    def store(self, key: Any, size: int) -> list[Any]:
        """Which keys leave, the stored one among them if it does not stay."""
        if size > self.limit:
            if key in self.size:
                self.drop(key)
            else:
                self.requests += 1
            return [key]
        left = []
        while sum(self.size.values()) - self.size.get(key, 0) + size > self.limit:
            left.append(self._lowest())
            self.drop(left[-1])
            if left[-1] == key:
                return left
        if key not in self.size:
            self._enter(key)
        self.size[key] = size
        return left

    def drop(self, key: Any) -> None:
        for each in (self.size, self.entered, self.used, self.worth):
            del each[key]
        self.ring[self.ring.index(key)] = None

    def _requested(self, key: Any) -> None:
        self.used[key] = self.requests
        self.requests += 1

    def _enter(self, key: Any) -> None:
        ascending = sorted(self.worth.values())
        start = {"gdj": ascending[int(0.9 * (len(ascending) - 1))] if ascending else 0.0, "lfu": 0.0}
        self.worth[key] = start.get(self.policy, 1.0)
        self.entered[key] = self.requests
        self._requested(key)
        around = [(self.hand + step) % len(self.ring) for step in range(len(self.ring))]
        self.ring[next(at for at in around if self.ring[at] is None)] = key
        self.hand += self.struck
        self.struck = False

    def _lowest(self) -> Any:
        if self.policy.startswith("clock"):
            return self._struck()
        scores = {"fifo": self.entered, "lru": self.used}.get(self.policy, self.worth)
        return min(self.size, key=lambda key: (scores[key], self.used[key]))

    def _struck(self) -> Any:
        """The entry that the hand evicts; the hand stays until the next newcomer takes its slot."""
        self.struck = True
        while True:
            key = self.ring[self.hand % len(self.ring)]
            if key is not None:
                weight = self.worth[key]
                self.worth[key] = weight - 1 if self.policy == "clock" else weight * 0.95
                if self.worth[key] < (0 if self.policy == "clock" else 0.01):
                    return key
            self.hand += 1
