"""Assert the invariants of a join of many streams; for tests and debugging."""

from __future__ import annotations

from penstock.engine.many_index import (
    CHAIN,
    HELD,
    LENGTH,
    NEWEST,
    OLDER,
    OLDEST,
    TUPLES,
    YOUNGER,
    Index,
)
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
    STREAM,
    TAIL,
    Store,
    find_key,
)
from penstock.joins.invariants import _check_pools, _check_rings


def check_many(store: Store, index: Index) -> None:
    """Assert that chains, rows, pools and accounts agree."""
    meta = store.meta
    live = [slot for slot in range(1, int(meta[HIGH_TUPLE]) + 1) if store.t64[slot, ARRIVAL] >= 0]
    assert len(live) == meta[LIVE], "the number of live tuples is wrong"
    for slot in live:
        assert store.t32[slot, ENTRY] == store.k32[slot, HEAD] == store.k32[slot, TAIL] == slot
        assert store.k32[slot, COUNT] == 1
    held: dict[int, set[tuple[int, int]]] = {}  # row of the index -> (tuple, participant)
    for slot in live:
        stream = store.t32[slot, STREAM]
        for place in range(index.scheme.degree[stream]):
            if entry := int(index.links[slot, place, HELD]):
                held.setdefault(entry, set()).add((slot, int(index.scheme.part[stream, place])))
    for entry, tuples in held.items():
        assert find_key(index, index.k64[entry, KEY]) == entry, "a key cannot be found"
        assert index.k32[entry, TUPLES] == len(tuples)
        assert _chained(store, index, entry) == tuples, "a live tuple is in no chain, or a dead one is"
    _check_pools(store, live)
    _check_rings(store, live)
    gone = meta[EXPIRED] + meta[EVICTED] + meta[DROPPED]
    assert meta[ARRIVALS] == meta[LIVE] + gone, "arrivals are unaccounted for"


def _chained(store: Store, index: Index, entry: int) -> set[tuple[int, int]]:
    """Return the tuples in the chains of a row, with their participants."""
    join = int(index.k64[entry, KEY]) % len(index.scheme.size)
    found = []
    for part in range(index.scheme.size[join]):
        stream, place = index.scheme.stream[join, part], index.scheme.place[join, part]
        chain = CHAIN + 3 * part
        before, length, slot = 0, 0, int(index.k32[entry, chain + OLDEST])
        while slot:
            assert store.t32[slot, STREAM] == stream
            assert index.links[slot, place, OLDER] == before, "a chain is broken"
            if before:
                assert store.t64[slot, ARRIVAL] > store.t64[before, ARRIVAL], "a chain is out of order"
            found.append((slot, int(part)))
            before, length, slot = slot, length + 1, int(index.links[slot, place, YOUNGER])
        assert index.k32[entry, chain + NEWEST] == before
        assert index.k32[entry, chain + LENGTH] == length
    return set(found)
