"""The driver of the window join, one arrival at a time: expire, probe, admit.

A batch is processed up to its end or to the point where the room for pairs is used up; what the driver
returns is where to go on.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from penstock.kernels import ring
from penstock.kernels.hooks import (
    arrive,
    enter,
    fetch,
    leave,
    lost,
    make_room,
    match_key,
    open_key,
    overdue,
)
from penstock.kernels.jit import borrow, driver, jit, prefetch
from penstock.kernels.layout import (
    ARRIVALS,
    COUNT,
    DROPPED,
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
    SHED,
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
from penstock.kernels.random import DROPS, uniform

# What a log entry says of a tuple.
LOG_EVICTED = 0
LOG_EXPIRED = 1
LOG_DROPPED = 2

AHEAD = 3  # arrivals

PAIRS = 0
LOGGED = 1


class Batch(NamedTuple):
    """Arrivals in the order in which they are processed."""

    stream: np.ndarray
    key: np.ndarray
    time: np.ndarray
    row: np.ndarray
    size: np.ndarray


class Out(NamedTuple):
    """Where a driver writes; arrays without room mean that this is not wanted."""

    counts: np.ndarray  # results per arrival
    pairs: np.ndarray  # left and right row of each result
    log: np.ndarray  # what became of tuples: (kind, stream, row, arrival during which it happened)
    ends: np.ndarray  # how much of pairs and log is filled


@driver
def drive(policy, store, batch, out, start):
    """Process a batch from `start`; the first arrival not processed, if pairs ran out of room."""
    return _drive(borrow(policy), borrow(store), borrow(batch), borrow(out), start)


@jit
def _drive(policy, store, batch, out, start):
    meta = store.meta
    collect = out.pairs.shape[0] > 0
    for i in range(start, batch.key.shape[0]):
        look_ahead(policy, store, batch, i)
        stream = np.int64(batch.stream[i])
        dropped = draw_drop(store, stream)
        if dropped and meta[SHED] != 0:
            count_dropped(store, out, batch, i)
            meta[STEPS] += 1
            continue
        advance(store, stream, batch.time[i])
        expire(policy, store, out)
        other = 1 - stream
        key = batch.key[i]
        entry = find_key(store, key)
        matches = store.k32[entry, COUNT + other]
        if collect and out.ends[PAIRS] + matches > out.pairs.shape[0]:
            undraw_drop(store, stream)
            retreat(store, stream)
            return i
        arrival = meta[ARRIVALS]
        meta[ARRIVALS] += 1
        arrive(policy, store, stream, key, entry)
        if matches > 0:
            match_key(policy, store, entry, other, arrival)
            meta[MATCHED] += matches
            if meta[STEPS] >= meta[WARMUP]:
                meta[RESULTS] += matches
                out.counts[i] += matches
                if collect:
                    emit(store, out, entry, stream, batch.row[i])
        if dropped:
            count_dropped(store, out, batch, i)
        else:
            entry = pin(policy, store, key, entry)
            admit(policy, store, batch, out, i, store.clock[stream], entry, arrival)
            unpin(store)
        meta[STEPS] += 1
    return batch.key.shape[0]


@jit
def look_ahead(policy, store, batch, i):
    """Have the memory on its way that the next arrivals will need: the bucket, the key, and more."""
    if i + 3 * AHEAD < batch.key.shape[0]:
        prefetch(store.buckets, bucket_of(store, batch.key[i + 3 * AHEAD]))
        entry = store.buckets[bucket_of(store, batch.key[i + 2 * AHEAD])]
        prefetch(store.k64, 8 * np.int64(entry))
        entry = store.buckets[bucket_of(store, batch.key[i + AHEAD])]
        fetch(policy, store, np.int64(entry), 1 - np.int64(batch.stream[i + AHEAD]))


@jit
def advance(store, stream, time):
    """Set the clocks to the time of an arrival; in a window of rows each stream counts its own."""
    if store.meta[WINDOW] == ROWS:
        store.clock[stream] += 1
    else:
        for each in range(2):
            store.clock[each] = time


@jit
def retreat(store, stream):
    """Take back the advance for an arrival that will be processed later."""
    if store.meta[WINDOW] == ROWS:
        store.clock[stream] -= 1


@jit
def expire(policy, store, out):
    """Take out every tuple that can match no more."""
    for stream in range(store.ends.shape[0]):
        slot = ring.oldest(store, stream)
        while slot != 0 and lived_out(store, slot):
            store.meta[EXPIRED] += 1
            log(store, out, LOG_EXPIRED, stream, store.t64[slot, ROW])
            remove(policy, store, slot)
            slot = ring.oldest(store, stream)


@jit
def admit(policy, store, batch, out, i, time, entry, arrival):
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
    ring.append(store, stream, slot)
    enter(policy, store, slot)
    return np.int64(slot)


@jit
def remove(policy, store, slot):
    """Take a tuple out of the store."""
    leave(policy, store, slot)
    unlink(store, slot)
    ring.remove(store, slot)
    free_tuple(store, slot)


@jit
def evict(policy, store, out, slot):
    """Take a tuple out of the store before its time."""
    stream = np.int64(store.t32[slot, STREAM])
    store.meta[EVICTED] += 1
    lost(out, store, stream, store.k64[store.t32[slot, ENTRY], KEY], store.time[slot, TIME])
    log(store, out, LOG_EVICTED, stream, store.t64[slot, ROW])
    remove(policy, store, slot)


@jit
def refuse(store, out, batch, i):
    """Count an arrival that does not enter as evicted."""
    stream = np.int64(batch.stream[i])
    store.meta[EVICTED] += 1
    store.meta[REFUSED] += 1
    lost(out, store, stream, batch.key[i], batch.time[i])
    log(store, out, LOG_EVICTED, stream, batch.row[i])


@jit
def count_dropped(store, out, batch, i):
    """Count an arrival that was dropped by chance."""
    stream = np.int64(batch.stream[i])
    store.meta[DROPPED] += 1
    lost(out, store, stream, batch.key[i], batch.time[i])
    log(store, out, LOG_DROPPED, stream, batch.row[i])


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
def draw_drop(store, stream):
    """Whether chance drops this arrival: one draw, none if the probability is 0."""
    return store.chance[stream] > 0.0 and uniform(store.random, DROPS) < store.chance[stream]


@jit
def undraw_drop(store, stream):
    """Take back the draw for an arrival that will be processed later."""
    if store.chance[stream] > 0.0:
        store.random[DROPS] -= np.uint64(0x9E3779B97F4A7C15)


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


@jit
def log(store, out, kind, stream, row):
    """Note what became of a tuple, if that is wanted."""
    at = out.ends[LOGGED]
    if at < out.log.shape[0]:
        out.log[at, 0] = kind
        out.log[at, 1] = stream
        out.log[at, 2] = row
        out.log[at, 3] = store.meta[STEPS]
        out.ends[LOGGED] = at + 1
