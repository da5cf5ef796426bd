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
