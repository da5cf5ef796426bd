"""Check a cache of a snapshot: its entries, their bytes, and the order of its policy."""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock.engine.byte_cache_loop import LIMIT, TAKEN, Room
from penstock.engine.cache_loop import (
    CAPACITY,
    FREE,
    HIGH,
    KEY,
    LINK,
    LIVE,
    OLDER,
    PLACE,
    REQUESTS,
    USED,
    YOUNGER,
    CacheEntries,
    Heap,
)
from penstock.policies.clock import ClockCache
from penstock.policies.clock_exp import ClockExpCache
from penstock.policies.fifo import FifoCache
from penstock.policies.gdj import GdjCache
from penstock.policies.greedy_dual import GreedyDualCache
from penstock.policies.lfd import LfdCache
from penstock.policies.lru import LruCache
from penstock.policies.rand import RandCache
from penstock.snapshots.array_checks import (
    FAR,
    check_hash,
    check_lists,
    check_numbers,
    check_same,
    check_shapes,
    check_within,
    followed,
    sound,
)
from penstock.states.checks.orders import check_positions
from penstock.states.checks.parts import CHECKS, anything, check_parts, checks
from penstock.states.checks.policies import ROUNDS, check_placed, check_tuning

CHECKS[RandCache] = anything


def live_entries(cache: CacheEntries) -> np.ndarray:
    """The entries that hold a key; the others up to the highest are in the free list."""
    high = int(cache.meta[HIGH])
    held = np.ones(high + 1, bool)
    held[0] = False
    if cache.meta[FREE]:
        held[followed(int(cache.meta[FREE]), cache.e32[: high + 1, LINK], "free entries")] = False
    return np.flatnonzero(held)


def check_cache(cache: CacheEntries, state: Any, room: Room | None, fresh: tuple[Any, Any, Any]) -> None:
    """Whether a cache and the state of its policy are sound, given empty ones."""
    check_shapes((cache, state, room), fresh, "the cache")
    sound((room is None) == (fresh[2] is None), "the limit in bytes is another")
    check_parts((cache, state, room), cache, fresh)
    if room is not None:
        live = live_entries(cache)
        check_within(room.size[live], 0, 2**62, "the size of an entry")
        sound(room.bytes[LIMIT] == fresh[2].bytes[LIMIT], "the limit in bytes is another")
        sound(room.bytes[TAKEN] == room.size[live].sum(), "the bytes of the entries are wrong")
        sound(0 <= room.bytes[TAKEN] <= room.bytes[LIMIT], "the entries take more than they may")


CHECKS[Room] = anything  # looked at together with the entries


@checks(CacheEntries)
def _check_entries(cache: CacheEntries, around: Any, fresh: CacheEntries) -> None:
    """Whether every entry is found under its key, or is free."""
    check_within(cache.meta, 0, FAR, "a counter")
    sound(cache.meta[CAPACITY] == fresh.meta[CAPACITY], "the number of entries is another")
    free, high = int(cache.meta[FREE]), int(cache.meta[HIGH])
    sound(free <= high < len(cache.e64), "more entries than there is room for")
    used = check_hash(cache.buckets, cache.e32[:, LINK], cache.e64[:, KEY], free, high)
    sound(len(used) == cache.meta[LIVE], "entries are lost")
    check_within(cache.e64[used, USED], -1, FAR, "when an entry was used")


@checks(Heap)
def _check_heap(heap: Heap, cache: CacheEntries, fresh: Any) -> None:
    """Whether the heap has every entry, at its place."""
    live = live_entries(cache)
    sound(heap.length[0] == len(live), "a heap has other entries")
    check_placed(heap.slot, live, cache.e32[live, PLACE])
    check_numbers(heap.score, "a score")


@checks(FifoCache, LruCache)
def _check_list(state: Any, cache: CacheEntries, fresh: Any) -> None:
    """Whether the list from the oldest to the youngest has every entry, and the one back too."""
    live = live_entries(cache)
    for end, near in ((YOUNGER, OLDER), (OLDER, YOUNGER)):
        check_lists(cache.e32[[0], end], cache.e32[:, end], live, "entries in order")
        there = cache.e32[live, end]
        sound((cache.e32[there, near] == live).all(), "the list of entries is broken")


@checks(GdjCache)
def _check_gdj(state: GdjCache, cache: CacheEntries, fresh: GdjCache) -> None:
    check_tuning(state.tuning, fresh.tuning)
    check_same(state.ranks, fresh.ranks, "the rule")
    blocks = state.blocks
    used = int(blocks.used[0])
    filled = np.arange(blocks.score.shape[2]) < blocks.length[0, :used, None]
    score, since, slot = (table[0, blocks.order[0, :used]][filled] for table in blocks[:3])
    filed = (score == state.credit[slot]) & (since == state.since[slot])
    sound(filed.all(), "an entry is not at its place")


@checks(GreedyDualCache)
def _check_greedy_dual(state: GreedyDualCache, cache: CacheEntries, fresh: Any) -> None:
    check_numbers(state.now, "a worth")


@checks(LfdCache)
def _check_lfd(state: LfdCache, cache: CacheEntries, fresh: LfdCache | None) -> None:
    check_within(cache.meta[[REQUESTS]], 0, len(state.coming), "the number of requests")


@checks(ClockCache)
def _check_clock(state: ClockCache, cache: CacheEntries, fresh: ClockCache) -> None:
    check_same(state.w0, fresh.w0, "the first score")
    _check_ring(state, cache)


def _check_ring(state: Any, cache: CacheEntries) -> np.ndarray:
    live = live_entries(cache)
    check_positions(state.ring, np.zeros(len(live), np.int64), state.position[live])
    check_within(state.heap.score, -FAR, FAR, "a step of the hand")
    return live


@checks(ClockExpCache)
def _check_clock_exp(state: ClockExpCache, cache: CacheEntries, fresh: ClockExpCache) -> None:
    check_same(state.parameters, fresh.parameters, "a parameter")
    check_same(state.powers, fresh.powers, "a parameter")
    live = _check_ring(state, cache)
    weight, hand, far = state.weight[live], int(state.ring.hand[0]), ROUNDS * int(state.ring.size[0])
    sound((np.isfinite(weight) & (weight >= 0.0)).all(), "a score is out of range")
    check_within(state.visit[live], max(0, hand - far), hand + far, "a step of the hand")
    check_within(state.heap.score[: len(live)], max(0, hand - far), hand + far, "a step of the hand")
