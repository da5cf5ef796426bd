"""Which cache entry goes when the caches of a pattern exceed their budget.

An entry is a partition (object caching) or the intervals that begin at one event (semantic caching). The
policies are those of joins in the words of a cache: a use is a match. Entries are few and large, so a victim
may be looked for one by one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any

from penstock.policies import Policy

RESULT_BYTES, SLOT_BYTES, ENTRY_BYTES = 140, 8, 900  # what Python objects of these take, measured
FIGURES = ("hits", "partial_hits", "recomputations", "evicted", "cache_bytes", "peak_bytes")


@dataclass
class _Entry:
    """What is known of an entry."""

    bytes: int
    number: int
    used: int
    uses: int = 0
    score: float = 0.0


class CachePool:
    """The entries of all caches of a pattern, by name.

    >>> from penstock import policies
    >>> from penstock.patterns.published.cache_pool import CachePool
    >>> pool = CachePool(1_000, policies.get("lru"))
    >>> pool.store("a", 600), pool.store("b", 600)
    ([], ['a'])
    """

    def __init__(self, budget: int | None, policy: Policy, seed: int = 0) -> None:
        self.budget, self.policy, self.random = budget, policy, Random(seed)
        self.entries: dict[Any, _Entry] = {}
        self.ring: list[Any] = []
        self.hand = 0
        self.clock = 0
        self.bytes = self.peak = 0
        self.hits = self.partial = self.computed = self.evicted = 0

    def figures(self) -> dict[str, int]:
        """The counters under the names of `PatternStats`."""
        values = (self.hits, self.partial, self.computed, self.evicted, self.bytes, self.peak)
        return dict(zip(FIGURES, values, strict=True))

    def use(self, name: Any) -> None:
        """An entry has answered a sub-query."""
        self.clock += 1
        entry = self.entries.get(name)
        if entry is not None:
            entry.used, entry.uses, entry.score = self.clock, entry.uses + 1, entry.score + 1

    def store(self, name: Any, size: int) -> list[Any]:
        """An entry has this size now; the names of those that must go for it, perhaps itself."""
        self.clock += 1
        entry = self.entries.get(name)
        if entry is None:
            entry = self.entries[name] = _Entry(0, self.clock, self.clock, score=self._initial())
            self.ring.insert(self.hand, name)
            self.hand += 1
        self.bytes += size - entry.bytes
        entry.bytes = size
        gone: list[Any] = []
        while self.budget is not None and self.bytes > self.budget:
            victim = self._victim()
            self.drop(victim)
            gone.append(victim)
        self.evicted += len(gone)
        self.peak = max(self.peak, self.bytes)
        return gone

    def drop(self, name: Any) -> None:
        """An entry is gone."""
        entry = self.entries.pop(name, None)
        if entry is None:
            return
        self.bytes -= entry.bytes
        at = self.ring.index(name)
        del self.ring[at]
        self.hand -= at < self.hand

    def _initial(self) -> float:
        if self.policy.name.startswith("clock"):
            return float(getattr(self.policy, "w0", 1.0))
        if self.policy.name != "gdj" or not self.entries:
            return 0.0
        credits = sorted(entry.score for entry in self.entries.values())
        share = getattr(self.policy, "initial", 0.9)
        share = share if isinstance(share, int | float) else 0.9
        return credits[int(share * (len(credits) - 1))]

    def _victim(self) -> Any:
        name = self.policy.name
        if name == "rand":
            return self.random.choice(self.ring)
        if name.startswith("clock"):
            return self._struck()
        scores: dict[str, Callable[[_Entry], float]] = {
            "fifo": lambda entry: entry.number,
            "lru": lambda entry: entry.used,
            "lfu": lambda entry: entry.uses,
            "gdj": lambda entry: entry.score,
        }
        score = scores[name]
        return min(self.entries, key=lambda each: (score(self.entries[each]), self.entries[each].number))

    def _struck(self) -> Any:
        """The entry that the hand of the clock evicts."""
        rho, threshold = getattr(self.policy, "rho", None), getattr(self.policy, "threshold", 0.0)
        while True:
            self.hand %= len(self.ring)
            entry = self.entries[self.ring[self.hand]]
            entry.score = entry.score - 1 if rho is None else entry.score * rho
            if entry.score < threshold:
                return self.ring[self.hand]
            self.hand += 1
