"""The expiry ring of a stream: its tuples in order of arrival, which is the order of time.

A tuple that was evicted leaves its entry behind; stale entries are skipped at the front and packed away
when the ring is full, which is half its length after the last time at least, so both are O(1) amortised
and all accesses but the check of the tuple are sequential.
"""

from __future__ import annotations

from penstock.kernels.jit import jit, rare
from penstock.kernels.layout import ARRIVAL, fetch_ahead


@jit
def append(store, stream, slot):
    """Put a tuple that has just arrived at the end of its stream's ring."""
    size = store.ring.shape[1]
    if store.ends[stream, 1] == size:
        _pack(store, stream)
    at = store.ends[stream, 0] + store.ends[stream, 1]
    if at >= size:
        at -= size
    store.ring[stream, at, 0] = store.t64[slot, ARRIVAL]
    store.ring[stream, at, 1] = slot
    store.ends[stream, 1] += 1


@jit
def oldest(store, stream):
    """The oldest buffered tuple of a stream, 0 if there is none."""
    ring, ends = store.ring[stream], store.ends[stream]
    while ends[1] > 0:
        slot = ring[ends[0], 1]
        if store.t64[slot, ARRIVAL] == ring[ends[0], 0]:
            return slot
        ends[0] += 1
        if ends[0] == ring.shape[0]:
            ends[0] = 0
        ends[1] -= 1
    return 0


@jit
def prepare(store, stream):
    """Have the memory on its way that the eviction of the next oldest tuples will need."""
    head, length = store.ends[stream, 0], store.ends[stream, 1]
    if length > 6 and head + 6 < store.ring.shape[1]:
        ring = store.ring[stream]
        fetch_ahead(store, ring[head + 6, 1], ring[head + 4, 1], ring[head + 2, 1])


@rare
def _pack(store, stream):
    """Drop the stale entries."""
    ring, ends = store.ring[stream], store.ends[stream]
    size = ring.shape[0]
    kept = 0
    for i in range(ends[1]):
        at = ends[0] + i
        if at >= size:
            at -= size
        if store.t64[ring[at, 1], ARRIVAL] == ring[at, 0]:
            to = ends[0] + kept
            if to >= size:
                to -= size
            ring[to, 0] = ring[at, 0]
            ring[to, 1] = ring[at, 1]
            kept += 1
    ends[1] = kept
