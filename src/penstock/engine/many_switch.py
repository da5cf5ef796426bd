"""Key counts of buffered tuples in joins of many streams, when a policy takes over that is scored by them."""

from __future__ import annotations

import numpy as np

from penstock.compiler.driver import driver
from penstock.compiler.jit import jit
from penstock.compiler.references import borrow
from penstock.engine.many_index import HELD
from penstock.engine.store import ARRIVAL, HIGH_TUPLE, KEY, STREAM, USE
from penstock.structures.key_counts import counted


@driver
def recount(store, index):
    """Set the count of every tuple to the arrivals of its partners so far, as the index has counted them."""
    return _recount(borrow(store), borrow(index))


@jit
def _recount(store, index):
    scheme, live = index.scheme, 0
    widest = scheme.stream.shape[1]
    for slot in range(1, store.meta[HIGH_TUPLE] + 1):
        if store.t64[slot, ARRIVAL] < 0:
            continue
        live += 1
        stream, total = np.int64(store.t32[slot, STREAM]), np.int64(0)
        for place in range(scheme.degree[stream]):
            held = index.links[slot, place, HELD]
            if held != 0:
                key, own = index.k64[held, KEY], scheme.part[stream, place]
                for part in range(scheme.size[scheme.join[stream, place]]):
                    if part != own:
                        total += counted(index.counts, 0, key * widest + part)
        store.k64[slot, USE] = max(store.k64[slot, USE], total)
    return live
