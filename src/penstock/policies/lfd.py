"""LFD: evicts the entry whose next request is farthest in the future. For caches only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from penstock.engine.cache_loop import (
    REQUESTS,
    Heap,
    entered,
    gone,
    lower,
    new_heap,
    next_requests,
    push,
    refuses,
    remove,
    score_of,
    used,
    worst,
)
from penstock.errors import PolicyOptionError
from penstock.policies.base import CacheSetting, Policy


class LfdCache(NamedTuple):
    """Entries ordered by their next request, the farthest first."""

    heap: Heap
    coming: np.ndarray  # per request, the next one for its key
    bypass: np.ndarray  # 1: a newcomer may be refused


@dataclass(frozen=True)
class Lfd(Policy):
    """Evict the entry with the longest forward distance, that is, the latest next request (Belady's rule).

    It needs the whole trace. By default a missed key always enters, which is optimal for a cache that must
    hold what it has just fetched. With `bypass=true` the cache may also refuse the newcomer, and then no
    cache gets more hits.

    >>> from penstock.caching import replay
    >>> requests = ["a", "b", "c", "a", "b", "d", "a", "b"]
    >>> replay(requests, "lfd", budget=2).hits, replay(requests, "lfd:bypass=true", budget=2).hits
    (2, 4)
    """

    bypass: bool = False

    name: ClassVar[str] = "lfd"
    summary: ClassVar[str] = "evicts the entry whose next request is farthest away"
    wins: ClassVar[str] = "the whole trace is known, as in planning a cache: no policy gets more hits"
    loses: ClassVar[str] = "requests come one by one: it needs all of them in advance"
    cost: ClassVar[str] = "O(log n) per request"
    paper: ClassVar[str] = "Belady 1966; Xie, Yang and Chen 2005, section 7.1"
    joins: ClassVar[bool] = False
    caches: ClassVar[bool] = True
    many: ClassVar[bool] = False

    def __post_init__(self) -> None:
        self.require(isinstance(self.bypass, bool), "bypass", "true or false")

    @property
    def needs_future(self) -> bool:
        """True: it needs the whole trace of requests."""
        return True

    def build_cache(self, setting: CacheSetting) -> LfdCache:
        """Compute the next request of each request from the trace."""
        if setting.requests is None:
            raise PolicyOptionError(f"{self.spell()} needs the whole trace of requests before it starts.")
        codes = setting.requests
        if codes.min(initial=0) < 0 or codes.max(initial=0) > 4 * len(codes):  # arbitrary numbers, not codes
            codes = np.unique(codes, return_inverse=True)[1].astype(np.int64)
        coming = next_requests(codes, int(codes.max(initial=-1)) + 1)
        return LfdCache(new_heap(setting.capacity), coming, np.array([int(self.bypass)]))


@entered.on(LfdCache)
def _entered(policy, cache, slot):
    push(policy.heap, cache, slot, -np.float64(policy.coming[cache.meta[REQUESTS]]))


@used.on(LfdCache)
def _used(policy, cache, slot):
    lower(policy.heap, cache, slot, -np.float64(policy.coming[cache.meta[REQUESTS]]))


@gone.on(LfdCache)
def _gone(policy, cache, slot):
    remove(policy.heap, cache, slot)


@worst.on(LfdCache)
def _worst(policy, cache):
    return policy.heap.slot[0]


@refuses.on(LfdCache)
def _refuses(policy, cache, key, slot):
    farther = -np.float64(policy.coming[cache.meta[REQUESTS]]) < score_of(policy.heap, cache, slot)
    return policy.bypass[0] != 0 and farther
