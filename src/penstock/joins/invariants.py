"""Assert the invariants of a join's store; for tests and debugging."""

from __future__ import annotations

import numpy as np

from penstock.engine.store import (
    ARRIVAL,
    ARRIVALS,
    COUNT,
    DROPPED,
    ENTRY,
    EVICTED,
    EXPIRED,
    HEAD,
    HIGH_TUPLE,
    KEY,
    LIVE,
    NEXT,
    P_BYTES,
    P_LIMIT,
    P_LIVE,
    P_USED,
    PREV,
    RELEASED,
    SHED,
    SIZE,
    STREAM,
    TAIL,
    Store,
    find_key,
)


def check_store(store: Store) -> None:
    """Assert that chains, tables, pools and accounts agree."""
    check_tables(store)
    meta = store.meta
    dropped_unseen = meta[DROPPED] if meta[SHED] else 0
    gone = meta[EXPIRED] + meta[EVICTED] + meta[DROPPED] + meta[RELEASED]
    assert meta[ARRIVALS] + dropped_unseen == meta[LIVE] + gone, "arrivals are unaccounted for"


def check_tables(store: Store) -> None:
    """Assert that chains, tables and pools agree."""
    meta = store.meta
    high = int(meta[HIGH_TUPLE])
    live = [slot for slot in range(1, high + 1) if store.t64[slot, ARRIVAL] >= 0]
    assert len(live) == meta[LIVE], "the number of live tuples is wrong"
    chained: set[int] = set()
    for entry in {int(store.t32[slot, ENTRY]) for slot in live}:
        assert find_key(store, store.k64[entry, KEY]) == entry, "a key cannot be found"
        for stream in (0, 1):
            chained |= _check_chain(store, entry, stream)
    assert chained == set(live), "a live tuple is in no chain, or a dead one is"
    _check_pools(store, live)
    _check_rings(store, live)


def _check_chain(store: Store, entry: int, stream: int) -> set[int]:
    slots, before, slot = [], 0, int(store.k32[entry, HEAD + stream])
    while slot:
        assert store.t32[slot, PREV] == before, "a chain is broken"
        assert store.t32[slot, ENTRY] == entry
        assert store.t32[slot, STREAM] == stream
        if before:
            assert store.t64[slot, ARRIVAL] > store.t64[before, ARRIVAL], "a chain is out of order"
        slots.append(slot)
        before, slot = slot, int(store.t32[slot, NEXT])
    assert store.k32[entry, TAIL + stream] == before
    assert store.k32[entry, COUNT + stream] == len(slots)
    return set(slots)


def _check_pools(store: Store, live: list[int]) -> None:
    for pool, row in enumerate(store.pools):
        mine = [slot for slot in live if store.pool_of[store.t32[slot, STREAM]] == pool]
        assert row[P_LIVE] == len(mine)
        assert row[P_USED] == sum(int(store.t32[slot, SIZE]) for slot in mine)
        assert row[P_LIVE] <= row[P_LIMIT], "the budget is exceeded"
        assert row[P_BYTES] < 0 or row[P_USED] <= row[P_BYTES], "the budget in bytes is exceeded"


def _check_rings(store: Store, live: list[int]) -> None:
    for stream in range(len(store.ends)):
        first, after = store.ends[stream]
        places = np.arange(first, after) % store.ring.shape[1]
        entries = store.ring[stream, places]
        valid = [int(slot) for slot in entries if slot != 0]
        assert np.array_equal(store.place[entries[entries != 0]], places[entries != 0])
        mine = {slot for slot in live if store.t32[slot, STREAM] == stream}
        assert set(valid) == mine, "the ring misses a tuple"
        assert len(valid) == len(mine)
        arrivals = [int(store.t64[slot, ARRIVAL]) for slot in valid]
        assert arrivals == sorted(arrivals), "the ring is out of order"
