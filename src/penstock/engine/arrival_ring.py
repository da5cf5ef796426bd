"""The expiry ring of a stream: its tuples in order of arrival, which is the order of time.

A tuple that leaves makes its place in the ring empty; empty places are skipped at the front and packed away
when the ring is full, which is a third of its length after the last time at least, so both are O(1)
amortised. A ring may have any length: where it begins is below that, where it ends may be beyond it. The ring
and the places are dense arrays of their own: to skip or to pack touches no tuple.
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
    at = store.ends[stream, AFTER]
    if at >= size:
        at -= size
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
    size = store.ring.shape[1]
    at, after = store.ends[stream, FIRST], store.ends[stream, AFTER]
    slot = np.int64(0)
    while at < after:
        slot = np.int64(store.ring[stream, at])
        if slot != 0:
            break
        at += 1
        if at == size:
            at, after = np.int64(0), after - size
            store.ends[stream, AFTER] = after
    store.ends[stream, FIRST] = at
    return slot


@jit
def prepare(store, stream):
    """Have the memory on its way that the eviction of the next oldest tuples will need."""
    size = store.ring.shape[1]
    head = store.ends[stream, FIRST]
    if min(store.ends[stream, AFTER], size) - head > 6:
        ring = store.ring[stream]
        fetch_ahead(store, np.int64(ring[head + 6]), np.int64(ring[head + 4]), np.int64(ring[head + 2]))
        prefetch(ring, head + 2 * LINE)


@jit
def _pack(store, stream):
    """Close the gaps."""
    ring, ends = store.ring[stream], store.ends[stream]
    size = ring.shape[0]
    kept, to = np.int64(0), ends[FIRST]
    for i in range(ends[AFTER] - ends[FIRST]):
        at = ends[FIRST] + i
        if at >= size:
            at -= size
        slot = ring[at]
        if slot != 0:
            ring[to] = slot
            store.place[slot] = to
            kept += 1
            to = to + 1 if to + 1 < size else np.int64(0)
    ends[AFTER] = ends[FIRST] + kept
