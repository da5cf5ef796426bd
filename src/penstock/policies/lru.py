"""LRU: evicts the tuple whose last match is longest ago."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from penstock.engine.cache_loop import append, entered, gone, oldest, take_out, used, worst
from penstock.engine.hooks import enter, leave, lowest, match_key, match_one, newcomer, score
from penstock.engine.score_queue import Queue, file_newcomer, file_next, file_one, front, new_queue
from penstock.engine.store import ARRIVAL, BASE, ENTRY, HEAD, NUMBER, PLACE, SIDE, STREAM, USE
from penstock.policies.base import CacheSetting, Policy, Setting


class LruState(NamedTuple):
    """Keys ordered by the last use of their oldest tuple; last use is stored per key."""

    queue: Queue


class LruEachState(NamedTuple):
    """Tuples ordered by last use, for joins in which an arrival may match only some tuples of a key."""

    queue: Queue


class LruCache(NamedTuple):
    """Empty: the cache's list of entries is ordered by last use."""

    nothing: np.ndarray


@dataclass(frozen=True)
class Lru(Policy):
    """Evict the tuple that was matched, or arrived, longest ago.

    Captures recency: works well if keys are popular for a short time only.

    >>> import penstock as ps
    >>> left = {"key": [1, 2, 3], "ts": [0, 1, 3]}
    >>> right = {"key": [1, 1], "ts": [2, 4]}
    >>> join = ps.WindowJoin(within=10, budget=ps.Tuples(4), policy="lru")
    >>> join.run(left, right, on="key", time="ts").stats.results  # key 2 was evicted when 3 arrived
    2
    """

    name: ClassVar[str] = "lru"
    summary: ClassVar[str] = "evicts the tuple whose last match is longest ago"
    wins: ClassVar[str] = (
        "keys come in clusters, as in sessions and trades: keys that just matched match again"
    )
    loses: ClassVar[str] = (
        "popularity is fixed: one recent match of a rare key counts as much as a hundred of a popular one"
    )
    cost: ClassVar[str] = "O(log n) per arrival, nothing per match"
    paper: ClassVar[str] = "Gao, Scharrenbach and Bernstein 2014, section 3.1"
    candidate_for: ClassVar[Mapping[str, int]] = {"join": 2, "cache": 0, "query": 2}
    caches: ClassVar[bool] = True
    grows: ClassVar[bool] = True
    starter: ClassVar[bool] = True
    by_recency: ClassVar[bool] = True

    def build(self, setting: Setting) -> LruState | LruEachState:
        """Build an empty queue."""
        kind = LruEachState if setting.partial else LruState
        return kind(new_queue(setting.at_first))

    def build_cache(self, setting: CacheSetting) -> LruCache:
        """Build the (empty) state."""
        return LruCache(np.zeros(1))


@match_key.on(LruState)
def _match_key(policy, store, entry, side, arrival):
    store.k64[entry, USE + side] = arrival + 1  # 0: never used


@enter.on(LruState)
def _enter(policy, store, slot):
    entry, side = store.t32[slot, ENTRY], store.t32[slot, SIDE]
    store.t64[slot, BASE] = store.k64[entry, USE + side]  # earlier uses of the key do not count for it
    head = store.k32[entry, HEAD + side]
    # In tick steps a later arrival of the tick may have used the key before this tuple entered. The older
    # tuples of the key were then used after this one arrived, so it is evicted before them.
    if head == slot or score(policy, store, slot) < score(policy, store, head):
        file_one(policy, policy.queue, store, slot)
    else:
        store.t32[slot, PLACE] = 0


@leave.on(LruState)
def _leave(policy, store, slot):
    file_next(policy, policy.queue, store, slot)


@score.on(LruState)
def _score(policy, store, slot):
    used = store.k64[store.t32[slot, ENTRY], USE + store.t32[slot, SIDE]]
    return np.float64(used - 1 if used != store.t64[slot, BASE] else store.t64[slot, ARRIVAL])


@match_one.on(LruEachState)
def _match_one(policy, store, slot, arrival):
    store.t64[slot, BASE] = arrival


@enter.on(LruEachState)
def _enter_each(policy, store, slot):
    number = store.t64[slot, ARRIVAL]
    store.t64[slot, BASE] = number
    file_newcomer(policy.queue, store, store.pool_of[store.t32[slot, STREAM]], slot, np.float64(number))


@score.on(LruEachState)
def _score_each(policy, store, slot):
    return np.float64(store.t64[slot, BASE])


@newcomer.on(LruState, LruEachState)
def _newcomer(policy, store, stream, entry):
    return np.float64(store.meta[NUMBER])


@lowest.on(LruState, LruEachState)
def _lowest(policy, store, pool):
    return front(policy, policy.queue, store, pool)


@entered.on(LruCache)
def _entered(policy, cache, slot):
    append(cache, slot)


@used.on(LruCache)
def _used(policy, cache, slot):
    take_out(cache, slot)
    append(cache, slot)


@gone.on(LruCache)
def _gone(policy, cache, slot):
    take_out(cache, slot)


@worst.on(LruCache)
def _worst(policy, cache):
    return oldest(cache)
