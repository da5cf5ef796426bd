"""FIFO: evicts the oldest tuple."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from penstock.engine import arrival_ring
from penstock.engine.cache_loop import append, entered, gone, oldest, take_out, worst
from penstock.engine.hooks import lowest, newcomer
from penstock.engine.store import ARRIVAL, ARRIVALS, Store
from penstock.policies.base import CacheSetting, Policy, Setting


class FifoState(NamedTuple):
    """Empty: the expiry ring already has the order of arrival."""

    nothing: np.ndarray

    def check_restored(self, store: Store, fresh: FifoState) -> None:
        """Nobody reads what is in there."""


class FifoCache(NamedTuple):
    """Empty: the cache's list of entries already has the order of arrival."""

    nothing: np.ndarray


@dataclass(frozen=True)
class Fifo(Policy):
    """Evict the tuple that arrived first.

    The data-agnostic baseline; in effect it shortens the window. Combined with random dropping it gives an
    unbiased sample of the exact result (section 4.2 of GreedyDual-Join).

    >>> import penstock as ps
    >>> join = ps.WindowJoin(within=10, budget=ps.Tuples(2), policy="fifo")
    >>> left, right = {"key": [1, 2, 3], "ts": [0, 1, 2]}, {"key": [1, 3], "ts": [3, 4]}
    >>> join.run(left, right, on="key", time="ts").stats.results
    1
    """

    name: ClassVar[str] = "fifo"
    summary: ClassVar[str] = "evicts the oldest tuple"
    wins: ClassVar[str] = (
        "matches are equally likely at any age, or come soon after arrival (a moving trend), or results must "
        "be a fair sample: it does not look at keys"
    )
    loses: ClassVar[str] = "some keys match far more often than others: it evicts popular and rare keys alike"
    cost: ClassVar[str] = "O(1) per arrival, nothing per match"
    paper: ClassVar[str] = "Gao, Scharrenbach and Bernstein 2014, section 3.1"
    caches: ClassVar[bool] = True
    grows: ClassVar[bool] = True
    starter: ClassVar[bool] = True

    def build(self, setting: Setting) -> FifoState:
        """Build the (empty) state."""
        return FifoState(np.zeros(1))

    def build_cache(self, setting: CacheSetting) -> FifoCache:
        """Build the (empty) state."""
        return FifoCache(np.zeros(1))


@lowest.on(FifoState)
def _lowest(policy, store, pool):
    best, arrival = 0, np.int64(0)
    for stream in range(store.pool_of.shape[0]):
        if store.pool_of[stream] == pool:
            slot = arrival_ring.oldest(store, stream)
            arrival_ring.prepare(store, stream)
            if slot != 0 and (best == 0 or store.t64[slot, ARRIVAL] < arrival):
                best, arrival = slot, store.t64[slot, ARRIVAL]
    return best, np.float64(arrival)


@newcomer.on(FifoState)
def _newcomer(policy, store, stream, entry):
    return np.float64(store.meta[ARRIVALS])


@entered.on(FifoCache)
def _entered(policy, cache, slot):
    append(cache, slot)


@gone.on(FifoCache)
def _gone(policy, cache, slot):
    take_out(cache, slot)


@worst.on(FifoCache)
def _worst(policy, cache):
    return oldest(cache)
