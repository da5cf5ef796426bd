"""Which cache entry to evict when the caches of a pattern exceed their budget.

An entry is a partition (object caching) or the intervals that begin at one event (semantic caching). The
policies are those of every other cache (`penstock.caching`), and a use is a hit. Evaluations note what they
do in a log. The policy reads the log only when it has to choose an entry, or when the log is full.
"""

from __future__ import annotations

from itertools import count
from typing import Any

from penstock.caching import Cache
from penstock.engine.byte_cache_loop import FORGOTTEN, USED_ENTRY
from penstock.policies import Policy

RESULT_BYTES, SLOT_BYTES, ENTRY_BYTES = 140, 8, 900  # what Python objects of these take, measured
FIGURES = ("hits", "partial_hits", "recomputations", "evicted", "cache_bytes", "peak_bytes")
LOGGED = 256  # changes that a policy may not know yet


class CachePool:
    """The entries of all caches of a pattern, by name. Without a budget it only adds up their sizes.

    >>> from penstock import policies
    >>> from penstock.patterns.published.cache_pool import CachePool
    >>> pool = CachePool(2_000, policies.get("lru"))
    >>> pool.store("a", 1_200), pool.store("b", 1_200)
    ([], ['a'])
    """

    def __init__(self, budget: int | None, policy: Policy, seed: int = 0) -> None:
        self.budget = budget
        self.sizes: dict[Any, int] = {}
        self.bytes = self.peak = 0
        self.hits = self.partial = self.computed = self.evicted = 0
        self._cache: Cache | None = None
        if budget is not None:
            self._cache = Cache(policy, max(1, budget // ENTRY_BYTES), limit=budget, seed=seed % 2**62)
        self._keys: dict[Any, int] = {}  # the number by which the cache knows an entry
        self._names: dict[int, Any] = {}
        self._numbers = count()
        self._changed: list[int] = []  # the log: keys, and what happened to their entries
        self._changes: list[int] = []

    def figures(self) -> dict[str, int]:
        """The counters under the names of `PatternStats`."""
        values = (self.hits, self.partial, self.computed, self.evicted, self.bytes, self.peak)
        return dict(zip(FIGURES, values, strict=True))

    def use(self, name: Any) -> None:
        """An entry has answered a sub-query."""
        if self._cache is not None:
            self._note(self._keys[name], USED_ENTRY)

    def store(self, name: Any, size: int) -> list[Any]:
        """An entry has this size now; return the names of entries evicted for it, perhaps itself."""
        before = self.sizes.get(name)
        self.sizes[name] = size
        self.bytes += size - (before or 0)
        evicted: list[Any] = []
        if self._cache is not None:
            assert self.budget is not None
            if before is None:
                key = self._keys[name] = next(self._numbers)
                self._names[key] = name
            self._note(self._keys[name], size)
            if self.bytes > self.budget:
                evicted = [self._names[key] for key in self._read()]
                self.evicted += len(evicted)
                for each in evicted:
                    self._remove(each)
        self.peak = max(self.peak, self.bytes)
        return evicted

    def drop(self, name: Any) -> None:
        """An entry is no longer needed."""
        if name in self.sizes:
            if self._cache is not None:
                self._note(self._keys[name], FORGOTTEN)
            self._remove(name)

    def check(self) -> None:
        """Assert the invariants: the cache, once it has read the log, has the same entries."""
        assert self.bytes == sum(self.sizes.values()), "wrong bytes"
        if self._cache is not None:
            assert not self._read(), "entries within the budget were evicted"
            self._cache.check()
            assert self._cache.taken == self.bytes <= self._cache.limit, "the cache counts other bytes"
            assert {self._names[key] for key in self._cache.keys} == self.sizes.keys(), "other entries"

    def _remove(self, name: Any) -> None:
        self.bytes -= self.sizes.pop(name)
        if self._cache is not None:
            del self._names[self._keys.pop(name)]

    def _note(self, key: int, change: int) -> None:
        if len(self._changes) == LOGGED:
            self._read()
        self._changed.append(key)
        self._changes.append(change)

    def _read(self) -> list[int]:
        """Let the policy read the log; return the keys of evicted entries.

        Only the last change can cause evictions: before it, all entries were within the budget.
        """
        assert self._cache is not None
        evicted = self._cache.update(self._changed, self._changes)
        self._changed.clear()
        self._changes.clear()
        return evicted
