"""GreedyDual, the original of GreedyDual-Join, for caches whose misses differ in cost.

The value of an entry is the cost of its miss plus the value of the last evicted entry. An entry that is not
requested is therefore evicted the sooner, the cheaper it is (Young 1994). With equal costs it evicts the same
entries as LRU.
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
LEVEL = 0  # value of the last evicted entry
COST = 1  # cost of the current request


class GreedyDualCache(NamedTuple):
    """Entries ordered by value, and the costs of the coming requests."""

    heap: Heap
    now: np.ndarray
    costs: np.ndarray
    turn: np.ndarray

    def priced(self, costs: np.ndarray) -> GreedyDualCache:
        """Return the same state, with the costs of the coming requests."""
        return self._replace(costs=costs, turn=np.zeros(1, np.int64))


def new_greedy_dual(capacity: int) -> GreedyDualCache:
    """Build an empty heap."""
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
