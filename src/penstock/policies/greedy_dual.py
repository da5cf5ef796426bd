"""GreedyDual for caches whose misses differ in cost, the original of GreedyDual-Join.

An entry is worth what a miss of it costs, counted from the worth of the last entry that went: so an entry
that is not asked for loses against newcomers the sooner, the less it costs (Young 1994). With equal costs it
evicts what LRU evicts.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from penstock.engine.cache_loop import (
    Heap,
    asked,
    entered,
    gone,
    lower,
    new_heap,
    push,
    raise_to,
    remove,
    score_of,
    used,
    worst,
)

# Columns of `now`.
LEVEL = 0  # the worth of the last entry that went
COST = 1  # of the request at hand


class GreedyDualCache(NamedTuple):
    """Entries by worth, and the costs of the requests to come."""

    heap: Heap
    now: np.ndarray
    costs: np.ndarray
    turn: np.ndarray

    def priced(self, costs: np.ndarray) -> GreedyDualCache:
        """The same before requests of these costs."""
        return self._replace(costs=costs, turn=np.zeros(1, np.int64))


def new_greedy_dual(capacity: int) -> GreedyDualCache:
    """An empty heap."""
    return GreedyDualCache(new_heap(capacity), np.zeros(2), np.zeros(0), np.zeros(1, np.int64))


@asked.on(GreedyDualCache)
def _asked(policy, cache, key):
    policy.now[COST] = policy.costs[policy.turn[0]]
    policy.turn[0] += 1


@entered.on(GreedyDualCache)
def _entered(policy, cache, slot):
    push(policy.heap, cache, slot, policy.now[LEVEL] + policy.now[COST])


@used.on(GreedyDualCache)
def _used(policy, cache, slot):
    worth = policy.now[LEVEL] + policy.now[COST]
    if worth < score_of(policy.heap, cache, slot):
        lower(policy.heap, cache, slot, worth)
    else:
        raise_to(policy.heap, cache, slot, worth)


@gone.on(GreedyDualCache)
def _gone(policy, cache, slot):
    remove(policy.heap, cache, slot)


@worst.on(GreedyDualCache)
def _worst(policy, cache):
    slot = policy.heap.slot[0]
    policy.now[LEVEL] = policy.heap.score[0]
    return slot
