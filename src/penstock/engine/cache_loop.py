"""A cache of fixed size: which keys are in it, and the driver that answers requests one by one.

A request is a hit if its key is there. If not, the key enters; in a full cache the policy names the entry
that goes, or refuses the newcomer. The cache keeps keys and what policies need to rank them; values belong to
whoever owns the cache, who is told in which slot a key is.

The state of a policy is a NamedTuple of arrays whose class selects the hooks below. Two structures are here
for all of them: a list of entries from the oldest to the youngest, and a heap by (score, last use), so that
among equals the least recently used goes.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from penstock.compiler.driver import driver
from penstock.compiler.hook_calls import hook
from penstock.compiler.jit import jit
from penstock.compiler.references import borrow
from penstock.engine.store import power_of_two
from penstock.structures.random import new_generators

# Columns of an entry, 64 bits wide. Entry 0 is none.
KEY = 0
USED = 1  # number of the last request for it

# Columns of an entry, 32 bits wide.
LINK = 4  # next entry in the hash bucket, or in the free list
PLACE = 5  # where it is in the heap
OLDER = 6
YOUNGER = 7

# Counters in `meta`.
REQUESTS = 0  # answered so far, the number of the next one
HITS = 1
LIVE = 2
HIGH = 3  # highest entry used so far
FREE = 4  # head of the free list
EVICTED = 5
REFUSED = 6
CAPACITY = 7
META = 8


class CacheEntries(NamedTuple):
    """The entries, where they are found, and the counters."""

    e64: np.ndarray
    e32: np.ndarray
    buckets: np.ndarray
    random: np.ndarray
    meta: np.ndarray

    def without_views(self) -> CacheEntries:
        """The same without the array that is a view of another, to be stored."""
        return self._replace(e32=self.e32[:0])

    def with_views(self) -> CacheEntries:
        """The counterpart."""
        return self._replace(e32=self.e64.view(np.int32))


CacheEntries.widths = {"e64": 4, "e32": 8}  # type: ignore[attr-defined]
CacheEntries.hooks = __name__  # type: ignore[attr-defined]
CacheEntries.tables = ("e64", "e32")  # type: ignore[attr-defined]
Cache = CacheEntries  # its name in snapshots of version 0.1


class Answers(NamedTuple):
    """Per request: 1 if it was a hit, and the entry in which its key is afterwards, 0 if it was refused."""

    hit: np.ndarray
    slot: np.ndarray


def new_cache(capacity: int, seed: int) -> CacheEntries:
    """An empty cache."""
    e64 = np.zeros((capacity + 1, 4), np.int64)
    meta = np.zeros(META, np.int64)
    meta[CAPACITY] = capacity
    buckets = np.zeros(power_of_two(2 * capacity), np.int32)
    return CacheEntries(e64, e64.view(np.int32), buckets, new_generators(seed), meta)


# What a policy can hook into. `slot` is an entry; USED is set before `used` and `entered` are called.


@hook
def asked(policy, cache, key: int) -> None:
    """A request has come, hit or miss; policies that count keys count here."""


@hook
def used(policy, cache, slot: int) -> None:
    """A request has hit this entry."""


@hook
def entered(policy, cache, slot: int) -> None:
    """An entry has been filled."""


@hook
def gone(policy, cache, slot: int) -> None:
    """An entry is about to be emptied."""


@hook
def worst(policy, cache) -> int:
    """The entry that goes from a full cache."""
    return 0


@hook
def refuses(policy, cache, key: int, slot: int) -> bool:
    """Whether a newcomer is worth less than the entry that would go for it."""
    return False


@driver
def answer(policy, cache, keys, out):
    """Answer requests one by one. O(1) per request, and what the policy takes."""
    _answer(borrow(policy), borrow(cache), keys, borrow(out))


@jit
def _answer(policy, cache, keys, out):
    meta = cache.meta
    for i in range(keys.shape[0]):
        key = keys[i]
        slot = find(cache, key)
        asked(policy, cache, key)
        if slot != 0:
            meta[HITS] += 1
            cache.e64[slot, USED] = meta[REQUESTS]
            used(policy, cache, slot)
            out.hit[i] = 1
        else:
            slot = _admit(policy, cache, key)
        out.slot[i] = slot
        meta[REQUESTS] += 1


@jit
def tally(uses, hit, slot):
    """Count how often each entry was used since its key came."""
    for i in range(slot.shape[0]):
        if slot[i] != 0:
            uses[slot[i]] = uses[slot[i]] + 1 if hit[i] != 0 else 1


@driver
def restore_uses(policy, cache, slots, uses, most):
    """Tell a new policy of all entries, from the least recently used on, as if each had been used anew."""
    _restore_uses(borrow(policy), borrow(cache), slots, uses, most)


@jit
def _restore_uses(policy, cache, slots, uses, most):
    cache.e32[0, OLDER] = 0
    cache.e32[0, YOUNGER] = 0
    cache.meta[LIVE] = 0
    for slot in slots:
        key = cache.e64[slot, KEY]
        asked(policy, cache, key)
        cache.meta[LIVE] += 1
        entered(policy, cache, slot)
        for _ in range(min(np.int64(uses[slot]), most) - 1):
            asked(policy, cache, key)
            used(policy, cache, slot)


@driver
def forget(policy, cache, key):
    """Empty the entry of a key, if it has one: what it stands for has changed. O(1), and the policy's."""
    return _forget(borrow(policy), borrow(cache), key)


@jit
def _forget(policy, cache, key):
    slot = find(cache, key)
    if slot != 0:
        empty(policy, cache, slot)
    return slot


@jit
def _admit(policy, cache, key):
    meta = cache.meta
    if meta[LIVE] == meta[CAPACITY]:
        slot = np.int64(worst(policy, cache))
        if refuses(policy, cache, key, slot):
            meta[REFUSED] += 1
            return np.int64(0)
        meta[EVICTED] += 1
        empty(policy, cache, slot)
    return fill(policy, cache, key)


@jit
def empty(policy, cache, slot):
    """Take out what an entry has; it is the next to be filled."""
    gone(policy, cache, slot)
    _unhash(cache, slot)
    cache.e32[slot, LINK] = cache.meta[FREE]
    cache.meta[FREE] = slot
    cache.meta[LIVE] -= 1


@jit
def fill(policy, cache, key):
    """Put a key into a free entry; which one."""
    meta = cache.meta
    meta[LIVE] += 1
    slot = meta[FREE]
    if slot != 0:
        meta[FREE] = cache.e32[slot, LINK]
    else:
        meta[HIGH] += 1
        slot = meta[HIGH]
    bucket = _bucket(cache, key)
    cache.e64[slot, KEY] = key
    cache.e64[slot, USED] = meta[REQUESTS]
    cache.e32[slot, LINK] = cache.buckets[bucket]
    cache.buckets[bucket] = slot
    entered(policy, cache, slot)
    return slot


@jit
def _bucket(cache, key):
    mixed = np.uint64(key) * np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(29))) * np.uint64(0xBF58476D1CE4E5B9)
    return np.int64((mixed >> np.uint64(32)) & np.uint64(cache.buckets.shape[0] - 1))


@jit
def find(cache, key):
    """The entry of a key, 0 if it has none. O(1)."""
    slot = np.int64(cache.buckets[_bucket(cache, key)])
    while slot != 0 and cache.e64[slot, KEY] != key:
        slot = np.int64(cache.e32[slot, LINK])
    return slot


@jit
def find_all(cache, keys):
    """The entry of each key, 0 where it has none."""
    found = np.empty(keys.shape[0], np.int64)
    for i in range(keys.shape[0]):
        found[i] = find(cache, keys[i])
    return found


@jit
def live_slots(cache):
    """The entries that hold a key."""
    held = np.empty(cache.meta[LIVE], np.int64)
    count = 0
    for slot in range(1, cache.meta[HIGH] + 1):
        if find(cache, cache.e64[slot, KEY]) == slot:
            held[count] = slot
            count += 1
    return held


@jit
def _unhash(cache, slot):
    bucket = _bucket(cache, cache.e64[slot, KEY])
    at = cache.buckets[bucket]
    if at == slot:
        cache.buckets[bucket] = cache.e32[slot, LINK]
        return
    while cache.e32[at, LINK] != slot:
        at = cache.e32[at, LINK]
    cache.e32[at, LINK] = cache.e32[slot, LINK]


# A list of entries. Entry 0 closes it: its OLDER is the youngest, its YOUNGER the oldest.


@jit
def append(cache, slot):
    """Make an entry the youngest. O(1)."""
    last = cache.e32[0, OLDER]
    cache.e32[slot, OLDER] = last
    cache.e32[slot, YOUNGER] = 0
    cache.e32[last, YOUNGER] = slot
    cache.e32[0, OLDER] = slot


@jit
def take_out(cache, slot):
    """Take an entry out of the list. O(1)."""
    older, younger = cache.e32[slot, OLDER], cache.e32[slot, YOUNGER]
    cache.e32[older, YOUNGER] = younger
    cache.e32[younger, OLDER] = older


@jit
def oldest(cache):
    """The first of the list."""
    return cache.e32[0, YOUNGER]


# A heap of entries by (score, last use), four children to a node.


class Heap(NamedTuple):
    """Scores and last uses stand in the heap itself, where their neighbours are compared with them."""

    score: np.ndarray
    used: np.ndarray
    slot: np.ndarray
    length: np.ndarray


def new_heap(capacity: int) -> Heap:
    """An empty heap."""
    return Heap(
        np.zeros(capacity), np.zeros(capacity, np.int64), np.zeros(capacity, np.int32), np.zeros(1, np.int64)
    )


@jit
def push(heap, cache, slot, score):
    """Add an entry. O(log n)."""
    at = heap.length[0]
    heap.length[0] = at + 1
    _rise(heap, cache, at, score, cache.e64[slot, USED], slot)


@jit
def remove(heap, cache, slot):
    """Take an entry out. O(log n)."""
    at = np.int64(cache.e32[slot, PLACE])
    last = heap.length[0] - 1
    heap.length[0] = last
    if at == last:
        return
    score, when, moved = heap.score[last], heap.used[last], heap.slot[last]
    up = (at - 1) >> 2
    if at > 0 and (score < heap.score[up] or (score == heap.score[up] and when < heap.used[up])):
        _rise(heap, cache, at, score, when, moved)
    else:
        _sink(heap, cache, at, score, when, moved)


@jit
def score_of(heap, cache, slot):
    """The score under which an entry is filed."""
    return heap.score[cache.e32[slot, PLACE]]


@jit
def lower(heap, cache, slot, score):
    """File an entry under a score below its former one. O(log n)."""
    _rise(heap, cache, np.int64(cache.e32[slot, PLACE]), score, cache.e64[slot, USED], slot)


@jit
def raise_to(heap, cache, slot, score):
    """File an entry under a score that is not below its former one, after a use. O(log n)."""
    _sink(heap, cache, np.int64(cache.e32[slot, PLACE]), score, cache.e64[slot, USED], slot)


@jit
def _put(heap, cache, at, score, when, slot):
    heap.score[at] = score
    heap.used[at] = when
    heap.slot[at] = slot
    cache.e32[slot, PLACE] = at


@jit
def _rise(heap, cache, at, score, when, slot):
    while at > 0:
        up = (at - 1) >> 2
        if heap.score[up] < score or (heap.score[up] == score and heap.used[up] < when):
            break
        _put(heap, cache, at, heap.score[up], heap.used[up], heap.slot[up])
        at = up
    _put(heap, cache, at, score, when, slot)


@jit
def _sink(heap, cache, at, score, when, slot):
    length = heap.length[0]
    while True:
        child = 4 * at + 1
        if child >= length:
            break
        best = child
        for other in range(child + 1, min(child + 4, length)):
            if heap.score[other] < heap.score[best] or (
                heap.score[other] == heap.score[best] and heap.used[other] < heap.used[best]
            ):
                best = other
        if score < heap.score[best] or (score == heap.score[best] and when < heap.used[best]):
            break
        _put(heap, cache, at, heap.score[best], heap.used[best], heap.slot[best])
        at = best
    _put(heap, cache, at, score, when, slot)


@jit
def next_requests(codes, count):
    """Per request the number of the next one with its code, and the number of all if there is none. O(n)."""
    n = codes.shape[0]
    coming = np.empty(n, np.int64)
    upcoming = np.full(count, n, np.int64)
    for i in range(n - 1, -1, -1):
        coming[i] = upcoming[codes[i]]
        upcoming[codes[i]] = i
    return coming
