"""Assert the invariants of a query's caches; for tests and debugging."""

from __future__ import annotations

from penstock.engine.store import (
    ARRIVAL,
    ARRIVALS,
    EVICTED,
    EXPIRED,
    HIGH_TUPLE,
    LIVE,
    P_LIMIT,
    P_LIVE,
    STREAM,
    Store,
)
from penstock.engine.triple_index import HELD, LENGTH, NEWEST, OLDER, OLDEST, YOUNGER, Index, Scheme


def check_linked(store: Store, index: Index, scheme: Scheme) -> None:
    """Assert that chains, pools and accounts agree."""
    meta = store.meta
    high = int(meta[HIGH_TUPLE])
    live = [slot for slot in range(1, high + 1) if store.t64[slot, ARRIVAL] >= 0]
    assert len(live) == meta[LIVE], "the number of live tuples is wrong"
    entries: dict[tuple[int, int], set[int]] = {}
    for slot in live:
        cache = index.cache[slot]
        for place in range(scheme.degree[cache]):
            entry = int(index.links[slot, place, HELD])
            if entry:
                entries.setdefault((entry, place), set()).add(slot)
    for (entry, place), slots in entries.items():
        chained, before, slot = set(), 0, int(index.k32[entry, OLDEST])
        while slot:
            assert index.links[slot, place, OLDER] == before, "a chain is broken"
            chained.add(slot)
            before, slot = slot, int(index.links[slot, place, YOUNGER])
        assert index.k32[entry, NEWEST] == before
        assert chained == slots, "a live tuple is in no chain, or a dead one is"
        assert index.k32[entry, LENGTH] == len(slots)
    for pool, row in enumerate(store.pools):
        mine = [slot for slot in live if store.pool_of[store.t32[slot, STREAM]] == pool]
        assert row[P_LIVE] == len(mine) <= row[P_LIMIT], "the budget is exceeded"
    assert meta[ARRIVALS] == meta[LIVE] + meta[EXPIRED] + meta[EVICTED], "bindings are unaccounted for"
