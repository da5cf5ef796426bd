"""LFU: evicts the tuple with the fewest matches."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from penstock.engine.cache_loop import (
    Heap,
    entered,
    gone,
    new_heap,
    push,
    raise_to,
    remove,
    score_of,
    used,
    worst,
)
from penstock.engine.hooks import enter, lowest, match_key, match_one, score
from penstock.engine.score_queue import Queue, file_newcomer, front, new_queue
from penstock.engine.store import BASE, ENTRY, SIDE, STREAM, USE
from penstock.policies.base import CacheSetting, Policy, Setting


class LfuState(NamedTuple):
    """Tuples ordered by matches; a key counts its matches once, and a tuple stores the count at its entry."""

    queue: Queue


class LfuCache(NamedTuple):
    """Entries of a cache ordered by hits since they entered."""

    heap: Heap


@dataclass(frozen=True)
class Lfu(Policy):
    """Evict the tuple with the fewest matches since it entered.

    Captures popularity, but a newcomer starts with a count of 0: once all other tuples have matched,
    newcomers evict each other before they can match.

    >>> import penstock as ps
    >>> left, right = {"key": [1, 2, 3], "ts": [0, 1, 3]}, {"key": [1, 1], "ts": [2, 4]}
    >>> join = ps.WindowJoin(within=10, budget=ps.Tuples(4), policy="lfu")
    >>> join.run(left, right, on="key", time="ts").stats.results
    2
    """

    name: ClassVar[str] = "lfu"
    summary: ClassVar[str] = "evicts the tuple with the fewest matches"
    wins: ClassVar[str] = (
        "keys keep their popularity while they are buffered, and past matches predict future ones, as "
        "near a random walk"
    )
    loses: ClassVar[str] = (
        "popularity changes: tuples that matched often long ago stay, and newcomers start at 0"
    )
    cost: ClassVar[str] = "O(log n) per arrival, nothing per match"
    paper: ClassVar[str] = "Li, Chang, Bestavros and Kollios 2004, section 2.2"
    candidate_for: ClassVar[Mapping[str, int]] = {"cache": 1}
    caches: ClassVar[bool] = True
    grows: ClassVar[bool] = True

    def build(self, setting: Setting) -> LfuState:
        """Build an empty queue."""
        return LfuState(new_queue(setting.at_first))

    def build_cache(self, setting: CacheSetting) -> LfuCache:
        """Build an empty heap."""
        return LfuCache(new_heap(setting.capacity))


@match_key.on(LfuState)
def _match_key(policy, store, entry, stream, arrival):
    store.k64[entry, USE + stream] += 1


@match_one.on(LfuState)
def _match_one(policy, store, slot, arrival):
    store.t64[slot, BASE] -= 1


@enter.on(LfuState)
def _enter(policy, store, slot):
    store.t64[slot, BASE] = store.k64[store.t32[slot, ENTRY], USE + store.t32[slot, SIDE]]
    file_newcomer(policy.queue, store, store.pool_of[store.t32[slot, STREAM]], slot, 0.0)


@score.on(LfuState)
def _score(policy, store, slot):
    used = store.k64[store.t32[slot, ENTRY], USE + store.t32[slot, SIDE]]
    return np.float64(used - store.t64[slot, BASE])


@lowest.on(LfuState)
def _lowest(policy, store, pool):
    return front(policy, policy.queue, store, pool)


@entered.on(LfuCache)
def _entered(policy, cache, slot):
    push(policy.heap, cache, slot, 0.0)


@used.on(LfuCache)
def _used(policy, cache, slot):
    raise_to(policy.heap, cache, slot, score_of(policy.heap, cache, slot) + 1.0)


@gone.on(LfuCache)
def _gone(policy, cache, slot):
    remove(policy.heap, cache, slot)


@worst.on(LfuCache)
def _worst(policy, cache):
    return policy.heap.slot[0]
