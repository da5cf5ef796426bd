"""Joins of two streams in step: the index is the store itself, where the tuples of a key form a chain."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from penstock.compiler.jit import jit
from penstock.compiler.references import prefetch
from penstock.engine import arrival_ring
from penstock.engine.hooks import (
    arrive,
    enter,
    fetch,
    leave,
    left_early,
    lost,
    make_room,
    match_key,
    open_key,
    overdue,
)
from penstock.engine.join_loop import (
    LOG_EVICTED,
    LOG_EXPIRED,
    PAIRS,
    admit,
    advance,
    arrived,
    log,
    look_ahead,
    matched,
    probe,
    retreat,
    room_for_results,
)
from penstock.engine.store import (
    COUNT,
    ENTRY,
    EVICTED,
    EXPIRED,
    HEAD,
    KEY,
    MATCHED,
    NEXT,
    NUMBER,
    OVERSIZE,
    P_BYTES,
    PINNED,
    REFUSED,
    RESULTS,
    ROW,
    ROWS,
    STEPS,
    STREAM,
    TIME,
    WARMUP,
    WINDOW,
    add_key,
    bucket_of,
    drop_key,
    find_key,
    fits,
    free_tuple,
    link,
    lived_out,
    take_tuple,
    unlink,
)

AHEAD = 3  # arrivals


class PairIndex(NamedTuple):
    """All is in the store."""

    nothing: np.ndarray


def new_pair_index() -> PairIndex:
    """The index of two streams in step."""
    return PairIndex(np.zeros(1))


@room_for_results.on(PairIndex)
def _room(index, out):
    return out.pairs.shape[0]


@look_ahead.on(PairIndex)
def _look_ahead(index, policy, store, batch, i):
    fetch_next(policy, store, batch, i)


@advance.on(PairIndex)
def _advance(index, policy, store, out, stream, time):
    set_clocks(store, stream, time)
    expire(policy, store, out)
    return False


@retreat.on(PairIndex)
def _retreat(index, store, stream):
    turn_back(store, stream)


@probe.on(PairIndex)
def _probe(index, store, batch, i):
    entry = find_key(store, batch.key[i])
    return np.int64(store.k32[entry, COUNT + 1 - np.int64(batch.stream[i])]), entry


@arrived.on(PairIndex)
def _arrived(index, policy, store, batch, out, i, late, entry):
    arrive(policy, store, np.int64(batch.stream[i]), batch.key[i], entry)
    return entry


@matched.on(PairIndex)
def _matched(index, policy, store, batch, out, i, found, entry, arrival):
    stream = np.int64(batch.stream[i])
    match_key(policy, store, entry, 1 - stream, arrival)
    store.meta[MATCHED] += found
    if store.meta[STEPS] >= store.meta[WARMUP]:
        store.meta[RESULTS] += found
        out.counts[i] += found
        if out.pairs.shape[0] > 0:
            emit(store, out, entry, stream, batch.row[i])


@admit.on(PairIndex)
def _admit(index, policy, store, batch, out, i, entry, arrival):
    entry = pin(policy, store, batch.key[i], entry)
    let_in(policy, store, batch, out, i, store.clock[np.int64(batch.stream[i])], entry, arrival)
    unpin(store)


@jit
def fetch_next(policy, store, batch, i):
    """Have the memory on its way that the next arrivals will need: the bucket, the key, and more."""
    if i + 3 * AHEAD < batch.key.shape[0]:
        prefetch(store.buckets, bucket_of(store, batch.key[i + 3 * AHEAD]))
        entry = store.buckets[bucket_of(store, batch.key[i + 2 * AHEAD])]
        prefetch(store.k64, 8 * np.int64(entry))
        entry = store.buckets[bucket_of(store, batch.key[i + AHEAD])]
        fetch(policy, store, np.int64(entry), 1 - np.int64(batch.stream[i + AHEAD]))


@jit
def set_clocks(store, stream, time):
    """Set the clocks to the time of an arrival; in a window of rows each stream counts its own."""
    if store.meta[WINDOW] == ROWS:
        store.clock[stream] += 1
    else:
        for each in range(2):
            store.clock[each] = time


@jit
def turn_back(store, stream):
    """Take back the advance for an arrival that will be processed later."""
    if store.meta[WINDOW] == ROWS:
        store.clock[stream] -= 1


@jit
def expire(policy, store, out):
    """Take out every tuple that can match no more."""
    for stream in range(store.ends.shape[0]):
        slot = arrival_ring.oldest(store, stream)
        while slot != 0 and lived_out(store, slot):
            store.meta[EXPIRED] += 1
            log(store, out, LOG_EXPIRED, stream, store.t64[slot, ROW])
            remove(policy, store, slot)
            slot = arrival_ring.oldest(store, stream)


@jit
def let_in(policy, store, batch, out, i, time, entry, arrival):
    """Let an arrival enter its pool, at the expense of others where need be.

    `time` is that of its stream's clock: its own, or its number in the stream for a window of rows. Gives the
    tuple's row, 0 if the arrival was refused.
    """
    stream, size = np.int64(batch.stream[i]), np.int64(0)
    if batch.size.shape[0] > 0:
        size = batch.size[i]
    pool = store.pool_of[stream]
    if store.pools[pool, P_BYTES] >= 0 and size > store.pools[pool, P_BYTES]:
        store.meta[OVERSIZE] += 1
        refuse(store, out, batch, i)
        return np.int64(0)
    store.entering[0] = time
    store.meta[NUMBER] = arrival
    while True:
        slot = overdue(policy, store, stream)
        if slot == 0:
            if fits(store, pool, size):
                break
            slot = make_room(policy, store, pool, stream, entry)
            if slot == 0:
                refuse(store, out, batch, i)
                return np.int64(0)
        evict(policy, store, out, slot)
    slot = take_tuple(store, stream, stream, batch.row[i], time, size, arrival)
    link(store, slot, entry)
    arrival_ring.append(store, stream, slot)
    enter(policy, store, slot)
    return np.int64(slot)


@jit
def remove(policy, store, slot):
    """Take a tuple out of the store."""
    leave(policy, store, slot)
    unlink(store, slot)
    arrival_ring.remove(store, slot)
    free_tuple(store, slot)


@jit
def evict(policy, store, out, slot):
    """Take a tuple out of the store before its time."""
    stream = np.int64(store.t32[slot, STREAM])
    store.meta[EVICTED] += 1
    key, time = store.k64[store.t32[slot, ENTRY], KEY], store.time[slot, TIME]
    lost(out, store, stream, key, time)
    log(store, out, LOG_EVICTED, stream, store.t64[slot, ROW])
    left_early(out, store, stream, slot, store.t64[slot, ROW], key, time)
    remove(policy, store, slot)


@jit
def refuse(store, out, batch, i):
    """Count an arrival that does not enter as evicted."""
    stream = np.int64(batch.stream[i])
    store.meta[EVICTED] += 1
    store.meta[REFUSED] += 1
    lost(out, store, stream, batch.key[i], batch.time[i])
    log(store, out, LOG_EVICTED, stream, batch.row[i])
    left_early(out, store, stream, np.int64(0), batch.row[i], batch.key[i], batch.time[i])


@jit
def pin(policy, store, key, entry):
    """Give a key a row that stays while its arrival is admitted."""
    if entry == 0:
        entry = add_key(store, key)
        open_key(policy, store, entry)
    store.meta[PINNED] = entry
    return entry


@jit
def unpin(store):
    """The arrival is done: its key goes if no tuple of it is buffered."""
    entry = store.meta[PINNED]
    store.meta[PINNED] = 0
    if store.k32[entry, COUNT] + store.k32[entry, COUNT + 1] == 0:
        drop_key(store, entry)


@jit
def emit(store, out, entry, stream, row):
    """Write the pairs of an arrival with the other stream's tuples of its key, oldest first."""
    at = out.ends[PAIRS]
    slot = store.k32[entry, HEAD + 1 - stream]
    while slot != 0:
        out.pairs[at, stream] = row
        out.pairs[at, 1 - stream] = store.t64[slot, ROW]
        at += 1
        slot = store.t32[slot, NEXT]
    out.ends[PAIRS] = at
