"""Check the store of a join in a snapshot: its tuples, pools, rings of arrivals and chains of keys."""

from __future__ import annotations

import numpy as np

from penstock.engine.store import (
    ARRIVAL,
    COMPETE,
    COUNT,
    ENTRY,
    FREE_KEY,
    FREE_TUPLE,
    HEAD,
    HIGH_KEY,
    HIGH_TUPLE,
    KEY,
    LINK,
    LIVE,
    NEXT,
    P_BYTES,
    P_GROW,
    P_LIMIT,
    P_LIVE,
    P_USED,
    PINNED,
    PREV,
    SHED,
    SIDE,
    SIZE,
    STREAM,
    TAIL,
    TIME,
    WARMUP,
    WINDOW,
    Store,
)
from penstock.snapshots.array_checks import (
    FAR,
    check_hash,
    check_lists,
    check_numbers,
    check_same,
    check_shapes,
    check_within,
    sound,
)

FIXED = ("pool_of", "horizon", "chance")  # what a store is built with and keeps
FIXED_META = (COMPETE, WINDOW, SHED, WARMUP)


def check_store(store: Store, fresh: Store) -> None:
    """Whether a store of two streams is sound."""
    live = check_tuples(store, fresh)
    check_rings(store, live)
    _check_keys(store, live)


def check_apart(store: Store, fresh: Store) -> np.ndarray:
    """Whether a store is sound in which every tuple has the key row of its own number; its tuples."""
    live = check_tuples(store, fresh)
    check_rings(store, live)
    rows = np.arange(1, int(store.meta[HIGH_TUPLE]) + 1)
    expected = np.zeros((len(store.k64), 2), np.int64)
    expected[live, 0] = 1
    sound(np.array_equal(store.k32[rows, COUNT : COUNT + 2], expected[rows]), "a tuple has another key")
    for table, column in ((store.k32, HEAD), (store.k32, TAIL), (store.t32, ENTRY)):
        sound((table[live, column] == live).all(), "a tuple has another key")
    sound((store.t32[live][:, [NEXT, PREV, SIDE]] == 0).all(), "a tuple is in a chain")
    sound(store.meta[HIGH_KEY] == 0 and store.meta[PINNED] == 0, "keys are counted apart from tuples")
    return live


def live_tuples(store: Store) -> np.ndarray:
    """The rows of tuples that are in use."""
    return np.flatnonzero(store.t64[1 : int(store.meta[HIGH_TUPLE]) + 1, ARRIVAL] >= 0) + 1


def pool_of_tuples(store: Store, slots: np.ndarray) -> np.ndarray:
    """The pool of each of some tuples."""
    return store.pool_of[store.t32[slots, STREAM]]


def highest_key(store: Store) -> int:
    """The last row of a key that is in use, whether keys have rows of their own or those of their tuples."""
    return int(max(store.meta[HIGH_KEY], store.meta[HIGH_TUPLE]))


def check_tuples(store: Store, fresh: Store) -> np.ndarray:
    """Whether the rows of tuples, their free list and the pools are sound; the rows in use."""
    check_shapes(store, fresh, "the store")
    for name in FIXED:
        check_same(getattr(store, name), getattr(fresh, name), name)
    check_same(store.meta[list(FIXED_META)], fresh.meta[list(FIXED_META)], "a setting")
    check_within(store.meta, 0, FAR, "a counter")
    high = int(store.meta[HIGH_TUPLE])
    sound(high < len(store.t64), "more tuples than there is room for")
    live = live_tuples(store)
    sound(len(live) == store.meta[LIVE], "the number of tuples is wrong")
    stream = store.t32[live, STREAM]
    check_within(stream, 0, len(store.clock) - 1, "the stream of a tuple")
    check_within(store.t32[live, SIDE], 0, 1, "the side of a tuple")
    check_within(store.t32[live, SIZE], 0, 2**31 - 1, "the size of a tuple")
    arrival = store.t64[live, ARRIVAL]
    check_within(arrival, 0, FAR, "the number of a tuple")
    sound(len(np.unique(arrival)) == len(live), "two tuples have one number")
    for times in (store.time[live, TIME], store.clock, store.entering):
        check_numbers(times, "a time")
    others = np.flatnonzero(store.t64[1 : high + 1, ARRIVAL] < 0) + 1
    check_lists(store.meta[[FREE_TUPLE]], store.t32[:, NEXT], others, "free tuples")
    _check_pools(store, fresh, live, stream)
    return live


def _check_pools(store: Store, fresh: Store, live: np.ndarray, stream: np.ndarray) -> None:
    pool, pools = store.pool_of[stream], len(store.pools)
    tuples = np.bincount(pool, minlength=pools)
    used = np.bincount(pool, store.t32[live, SIZE], pools)
    sound(np.array_equal(store.pools[:, P_LIVE], tuples), "the tuples of a pool are not as many as it says")
    sound(np.array_equal(store.pools[:, P_USED], used), "the bytes of a pool are not as many as it says")
    for limit in (P_BYTES, P_GROW):
        sound(np.array_equal(store.pools[:, limit], fresh.pools[:, limit]), "a pool has another limit")
    check_within(store.pools[:, P_LIMIT], 0, len(store.t64), "the limit of a pool")
    sound(store.pools[:, P_LIMIT].sum() == fresh.pools[:, P_LIMIT].sum(), "a pool has another limit")
    sound((store.pools[:, P_LIVE] <= store.pools[:, P_LIMIT]).all(), "a pool has more than its limit")


def check_rings(store: Store, live: np.ndarray) -> None:
    """Whether the rings of arrivals have every tuple once, at its place."""
    size = store.ring.shape[1]
    check_within(store.ends[:, 0], 0, size - 1, "the beginning of a ring")
    length = store.ends[:, 1] - store.ends[:, 0]
    check_within(length, 0, size, "the length of a ring")
    stream, place = store.t32[live, STREAM], store.place[live]
    check_within(place, 0, size - 1, "a place in a ring")
    sound((store.ring[stream, place] == live).all(), "a tuple is not at its place")
    sound(((place - store.ends[stream, 0]) % size < length[stream]).all(), "a place is outside of its ring")
    for each in range(len(store.ring)):
        entries = store.ring[each, np.arange(store.ends[each, 0], store.ends[each, 1]) % size]
        sound(np.count_nonzero(entries) == np.count_nonzero(stream == each), "a ring has other tuples")
    check_within(store.ring, 0, len(store.t64) - 1, "an entry of a ring")


def check_links(
    slots: np.ndarray, chain: np.ndarray, older: np.ndarray, younger: np.ndarray, arrival: np.ndarray
) -> None:
    """Whether tuples are linked to those before and after them in their chain, in order of arrival.

    `slots` are the tuples and `chain` says in which each is; the neighbours, 0 for none, and the arrivals
    are found by the number of a tuple.
    """
    mine = np.full(len(older), -1, np.int64)
    mine[slots] = chain
    for near, back in ((older, younger), (younger, older)):
        there = near[slots]
        check_within(there, 0, len(older) - 1, "a link of a chain")
        linked, there = slots[there > 0], there[there > 0]
        sound((mine[there] == mine[linked]).all(), "a chain is broken")
        sound((back[there] == linked).all(), "a chain is broken")
    after = younger[slots]
    sound((arrival[after[after > 0]] > arrival[slots[after > 0]]).all(), "a chain is out of order")


def check_ends(slots: np.ndarray, chain: np.ndarray, near: np.ndarray, ends: np.ndarray, chains: int) -> None:
    """Whether each chain has one tuple with nobody before (or after) it, and says which."""
    last = near[slots] == 0
    expected = np.zeros(chains, np.int64)
    expected[chain[last]] = slots[last]
    sound(len(np.unique(chain[last])) == np.count_nonzero(last), "a chain has two ends")
    sound(np.array_equal(ends, expected), "a chain has other ends")


def _check_keys(store: Store, live: np.ndarray) -> None:
    """Whether every tuple is in the chain of its key, in order, and every key in its bucket."""
    high = int(store.meta[HIGH_KEY])
    sound(high < len(store.k64), "more keys than there is room for")
    t32, k32 = store.t32, store.k32
    entry, side = t32[live, ENTRY], t32[live, SIDE]
    check_within(entry, 1, high, "the key of a tuple")
    chain, chains = 2 * entry.astype(np.int64) + side, 2 * (high + 1)
    check_links(live, chain, t32[:, PREV], t32[:, NEXT], store.t64[:, ARRIVAL])
    count = np.bincount(chain, minlength=chains)
    sound(np.array_equal(k32[: high + 1, COUNT : COUNT + 2].reshape(-1), count), "a chain has another length")
    for end, near in ((HEAD, PREV), (TAIL, NEXT)):
        ends = k32[: high + 1, end : end + 2].reshape(-1)
        check_ends(live, chain, t32[:, near], ends, chains)
    sound(0 <= store.meta[PINNED] <= high, "a key that is in use is out of range")
    used = check_hash(store.buckets, k32[:, LINK], store.k64[:, KEY], int(store.meta[FREE_KEY]), high)
    busy = np.flatnonzero(count.reshape(-1, 2).any(axis=1))
    sound(np.array_equal(used, busy), "a bucket has a key without tuples")
