"""What an as-of join keeps in memory: rows enter at the expense of others, and leave before their time."""

from __future__ import annotations

import numpy as np

from penstock.compiler.jit import jit
from penstock.engine import arrival_ring, pair_join
from penstock.engine.asof_index import (
    LEFT,
    RIGHT,
    UNDECIDED,
    earlier_than,
    first_of,
    later_than,
    unlink_in_time,
)
from penstock.engine.evicted_keys import note_evicted
from penstock.engine.hooks import enter, make_room
from penstock.engine.join_loop import LOG_EVICTED, LOG_UNDECIDED, log
from penstock.engine.store import (
    ARRIVALS,
    ENTRY,
    EVICTED,
    KEY,
    NUMBER,
    OVERSIZE,
    P_BYTES,
    REFUSED,
    ROW,
    STREAM,
    TIME,
    fits,
    link,
    take_tuple,
)


@jit
def let_in(index, policy, store, batch, out, i, entry):
    """Let an arrival enter at the expense of others where need be; its tuple, 0 if it was refused."""
    stream, time, size = np.int64(batch.stream[i]), batch.time[i], np.int64(0)
    if batch.size.shape[0] > 0:
        size = batch.size[i]
    pool = store.pool_of[stream]
    if store.pools[pool, P_BYTES] >= 0 and size > store.pools[pool, P_BYTES]:
        store.meta[OVERSIZE] += 1
        refuse(index, store, out, batch, i, entry)
        return np.int64(0)
    store.entering[0] = time
    store.meta[NUMBER] = store.meta[ARRIVALS]
    while not fits(store, pool, size):
        slot = make_room(policy, store, pool, stream, entry)
        if slot == 0:
            refuse(index, store, out, batch, i, entry)
            return np.int64(0)
        evict(index, policy, store, out, slot)
    slot = take_tuple(store, stream, stream, batch.row[i], time, size, store.meta[ARRIVALS])
    link(store, slot, entry)
    arrival_ring.append(store, stream, slot)
    enter(policy, store, slot)
    return np.int64(slot)


@jit
def evict(index, policy, store, out, slot):
    """Take a tuple out before its time; remember that answers may be missing."""
    row, entry = store.t64[slot, ROW], np.int64(store.t32[slot, ENTRY])
    if store.t32[slot, STREAM] == LEFT:
        left_undecided(index, store, out, row)
    else:
        store.meta[EVICTED] += 1
        before = earlier_than(index, store, slot)
        if before != 0:
            index.doubt[before] = 1
        note_evicted(index.evicted, store.k64[entry, KEY], store.time[slot, TIME])
        log(store, out, LOG_EVICTED, RIGHT, row)
    remove(index, policy, store, slot)


@jit
def refuse(index, store, out, batch, i, entry):
    """An arrival does not enter, which counts as an eviction."""
    store.meta[REFUSED] += 1
    if batch.stream[i] == LEFT:
        left_undecided(index, store, out, batch.row[i])
        return
    store.meta[EVICTED] += 1
    slot = first_of(index, store, entry, RIGHT)
    before = np.int64(0)
    while slot != 0 and store.time[slot, TIME] <= batch.time[i]:
        before = slot
        slot = later_than(index, store, slot)
    if before != 0:
        index.doubt[before] = 1
    note_evicted(index.evicted, batch.key[i], batch.time[i])
    log(store, out, LOG_EVICTED, RIGHT, batch.row[i])


@jit
def left_undecided(index, store, out, row):
    """A left row is evicted before its answer is final."""
    store.meta[EVICTED] += 1
    index.meta[UNDECIDED] += 1
    log(store, out, LOG_UNDECIDED, LEFT, row)


@jit
def remove(index, policy, store, slot):
    """Take a tuple out of the store."""
    unlink_in_time(index, store, slot)
    pair_join.remove(policy, store, slot)
