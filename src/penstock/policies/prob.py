"""PROB: evicts the tuple whose key is rarest in the other stream."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from penstock.engine.cache_loop import (
    KEY as CACHED_KEY,
)
from penstock.engine.cache_loop import (
    Heap,
    asked,
    entered,
    gone,
    new_heap,
    push,
    raise_to,
    refuses,
    remove,
    score_of,
    used,
    worst,
)
from penstock.engine.hooks import arrive, enter, leave, lowest, newcomer, open_key, score
from penstock.engine.match_predictor import MatchPredictor
from penstock.engine.score_queue import Queue, file_first, file_next, front, new_queue
from penstock.engine.store import ENTRY, KEY, SIDE, USE
from penstock.policies.base import CacheSetting, Policy, Setting
from penstock.structures.key_counts import (
    SKETCH,
    Counts,
    count_key,
    counted,
    new_counts,
    new_sketch,
    reserve,
    sketch_bytes_per_key,
)
from penstock.structures.key_history import TAKEN, count_from_history


class ProbState(NamedTuple):
    """Keys ordered by their count in the other stream, which is copied to the key's row."""

    queue: Queue
    counts: Counts


class ProbCache(NamedTuple):
    """Entries of a cache ordered by all requests so far for their key, whether it was cached or not."""

    heap: Heap
    counts: Counts


@dataclass(frozen=True)
class Prob(Policy):
    """Evict the tuple whose key had the fewest arrivals in the other stream so far, or refuse the arrival.

    The frequency-based model: correct if keys are drawn independently from one distribution, but it does
    not notice popularity that changes. Under a tuple budget counts are exact; they grow with the number of
    keys and are reported separately. Under a byte budget they are kept in a space-saving sketch of at most
    a fifth of the budget.

    >>> import penstock as ps
    >>> left, right = {"key": [1, 2, 1], "ts": [1, 2, 4]}, {"key": [1, 1, 2], "ts": [0, 3, 5]}
    >>> join = ps.WindowJoin(within=10, budget=ps.Tuples(2), policy="prob")
    >>> join.run(left, right, on="key", time="ts").stats.results
    3
    """

    name: ClassVar[str] = "prob"
    summary: ClassVar[str] = "evicts the tuple whose key is rarest in the other stream"
    wins: ClassVar[str] = "the popularity of keys lasts: for independent draws it is nearly optimal"
    loses: ClassVar[str] = "keys lose their popularity, or follow a trend: it keeps keys that no longer match"
    cost: ClassVar[str] = "O(log n) per arrival, nothing per match"
    paper: ClassVar[str] = "Li, Chang, Bestavros and Kollios 2004, section 3.1; Das et al. 2003"
    candidate_for: ClassVar[Mapping[str, int]] = {"join": 1, "cache": 1, "query": 1}
    caches: ClassVar[bool] = True
    grows: ClassVar[bool] = True
    starter: ClassVar[bool] = True
    selective: ClassVar[bool] = True
    counts_keys: ClassVar[bool] = True

    def build(self, setting: Setting) -> ProbState:
        """Build an empty queue and empty counts."""
        return ProbState(new_queue(setting.at_first), key_counts(setting))

    def build_cache(self, setting: CacheSetting) -> ProbCache:
        """Build an empty heap and empty counts."""
        return ProbCache(new_heap(setting.capacity), key_counts(setting))

    def reserve(self, state: ProbState, arrivals: int) -> ProbState:
        """Make room for more exact counts."""
        return state._replace(counts=reserve(state.counts, arrivals))

    def inform(self, state: ProbState, predictor: MatchPredictor) -> ProbState:
        """Take the counts from a history of the stream."""
        counts = reserve(state.counts, int(predictor.history.meta[TAKEN]))
        count_from_history(counts, predictor.history)
        return state._replace(counts=counts)

    def bytes_beyond(self, state: Any) -> int:
        """Bytes of the exact counts."""
        return counts_beyond(state.counts)


def key_counts(setting: Setting | CacheSetting) -> Counts:
    """Build exact counts, a sketch if their memory is limited, or the minimum if the operator counts."""
    if getattr(setting, "apart", False):
        return new_sketch(1)
    if setting.count_bytes is None:
        return new_counts()
    return new_sketch(max(1, setting.count_bytes // sketch_bytes_per_key()))


def counts_beyond(counts: Counts) -> int:
    """Return the bytes of exact counts; the bytes of a sketch are part of the budget."""
    return 0 if counts.meta[SKETCH] else sum(array.nbytes for array in counts)


@arrive.on(ProbState)
def _arrive(policy, store, stream, key, entry):
    count_key(policy.counts, stream, key)
    if entry != 0:
        store.k64[entry, USE + 1 - stream] += 1


@open_key.on(ProbState)
def _open_key(policy, store, entry):
    key = store.k64[entry, KEY]
    store.k64[entry, USE] = counted(policy.counts, 1, key)
    store.k64[entry, USE + 1] = counted(policy.counts, 0, key)


@enter.on(ProbState)
def _enter(policy, store, slot):
    file_first(policy, policy.queue, store, slot)


@leave.on(ProbState)
def _leave(policy, store, slot):
    file_next(policy, policy.queue, store, slot)


@score.on(ProbState)
def _score(policy, store, slot):
    used = store.k64[store.t32[slot, ENTRY], USE + store.t32[slot, SIDE]]
    return np.float64(used)


@newcomer.on(ProbState)
def _newcomer(policy, store, stream, entry):
    return np.float64(store.k64[entry, USE + stream])


@lowest.on(ProbState)
def _lowest(policy, store, pool):
    return front(policy, policy.queue, store, pool)


@asked.on(ProbCache)
def _asked(policy, cache, key):
    count_key(policy.counts, 0, key)


@entered.on(ProbCache)
def _entered(policy, cache, slot):
    count = np.float64(counted(policy.counts, 0, cache.e64[slot, CACHED_KEY]))
    push(policy.heap, cache, slot, count)


@used.on(ProbCache)
def _used(policy, cache, slot):
    raise_to(policy.heap, cache, slot, score_of(policy.heap, cache, slot) + 1.0)


@gone.on(ProbCache)
def _gone(policy, cache, slot):
    remove(policy.heap, cache, slot)


@worst.on(ProbCache)
def _worst(policy, cache):
    return policy.heap.slot[0]


@refuses.on(ProbCache)
def _refuses(policy, cache, key, slot):
    return np.float64(counted(policy.counts, 0, key)) < score_of(policy.heap, cache, slot)
