"""The expiry ring of a stream: its tuples in order of arrival, which is the order of time.

A tuple that leaves makes its place in the ring empty; empty places are skipped at the front and packed away
when the ring is full, which is half its length after the last time at least, so both are O(1) amortised.
The ring and the places are dense arrays of their own: to skip or to pack touches no tuple.
"""

from __future__ import annotations

import numpy as np

from penstock.compiler.jit import jit
from penstock.compiler.references import prefetch
from penstock.engine.store import STREAM, fetch_ahead

FIRST = 0
AFTER = 1
LINE = 16  # entries in a cache line


@jit
def append(store, stream, slot):
    """Put a tuple that has just arrived at the end of its stream's ring."""
    size = store.ring.shape[1]
    if store.ends[stream, AFTER] - store.ends[stream, FIRST] == size:
        _pack(store, stream)
    at = store.ends[stream, AFTER] & (size - 1)
    store.ring[stream, at] = slot
    store.place[slot] = at
    store.ends[stream, AFTER] += 1


@jit
def remove(store, slot):
    """Take a tuple out, wherever it is."""
    store.ring[store.t32[slot, STREAM], store.place[slot]] = 0


@jit
def oldest(store, stream):
    """The oldest buffered tuple of a stream, 0 if there is none."""
    mask = store.ring.shape[1] - 1
    at, after = store.ends[stream, FIRST], store.ends[stream, AFTER]
    slot = np.int64(0)
    while at < after:
        slot = np.int64(store.ring[stream, at & mask])
        if slot != 0:
            break
        at += 1
    store.ends[stream, FIRST] = at
    return slot


@jit
def prepare(store, stream):
    """Have the memory on its way that the eviction of the next oldest tuples will need."""
    size = store.ring.shape[1]
    head = store.ends[stream, FIRST]
    if store.ends[stream, AFTER] - head > 6:
        ring, mask = store.ring[stream], size - 1
        fetch_ahead(
            store,
            np.int64(ring[(head + 6) & mask]),
            np.int64(ring[(head + 4) & mask]),
            np.int64(ring[(head + 2) & mask]),
        )
        prefetch(ring, (head + 2 * LINE) & mask)


@jit
def _pack(store, stream):
    """Close the gaps."""
    ring, ends = store.ring[stream], store.ends[stream]
    mask = ring.shape[0] - 1
    kept = ends[FIRST]
    for at in range(ends[FIRST], ends[AFTER]):
        slot = ring[at & mask]
        if slot != 0:
            ring[kept & mask] = slot
            store.place[slot] = kept & mask
            kept += 1
    ends[AFTER] = kept
