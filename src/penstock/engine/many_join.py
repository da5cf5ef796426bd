"""Joins of many streams in step: several joins at once, each over two or more streams.

A tuple takes part in every join of its stream, so it cannot hang in the chain of one key: the chains of
the joins are in an index of their own (`many_index`). In the store every tuple has the key row of its own
number to itself, so that what a policy does to a key it does to this one tuple.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from penstock.compiler.driver import driver
from penstock.compiler.hook_calls import hook
from penstock.compiler.jit import jit
from penstock.compiler.references import borrow, prefetch
from penstock.engine import arrival_ring
from penstock.engine.apportion import added_up, apportion
from penstock.engine.hooks import arrive, enter, leave, left_early, lowest, make_room, match_key, score
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
from penstock.engine.many_index import (
    CHAIN,
    COUNTING,
    HEEDING,
    MIXED,
    OLDEST,
    TALLYING,
    YOUNGER,
    Index,
    capped,
    find_all,
    link,
    unlink,
)
from penstock.engine.store import (
    ARRIVAL,
    COUNT,
    DROPPED,
    ENTRY,
    EVICTED,
    EXPIRED,
    HEAD,
    HIGH_TUPLE,
    KEY,
    MATCHED,
    NEXT,
    OVERSIZE,
    P_BYTES,
    P_LIMIT,
    P_LIVE,
    PREV,
    REFUSED,
    RESULTS,
    ROW,
    STEPS,
    STREAM,
    TAIL,
    USE,
    WARMUP,
    bucket_of,
    fits,
    free_tuple,
    lived_out,
    take_tuple,
)
from penstock.structures.key_counts import count_key, counted

AHEAD = 3  # arrivals


class ManyBatch(NamedTuple):
    """Arrivals in the order in which they are processed; a key says also which join it is of."""

    stream: np.ndarray
    key: np.ndarray  # arrival, place; -1: null
    time: np.ndarray
    row: np.ndarray
    size: np.ndarray  # in bytes; empty if it does not count
    kept: np.ndarray  # whether it may enter; empty if all may


class ManyOut(NamedTuple):
    """Where the driver writes; arrays without room mean that this is not wanted."""

    counts: np.ndarray  # results per arrival
    rows: np.ndarray  # of each result: the join, the rows of its participants
    each: np.ndarray  # results per arrival and place: in each of the joins of its stream
    log: np.ndarray
    ends: np.ndarray  # how much of rows and log is filled


@hook
def note_evicted(out, store, slot):
    """A tuple is about to be evicted. What a driver writes to selects the implementation."""


@room_for_results.on(Index)
def _room(index, out):
    return out.rows.shape[0]


@look_ahead.on(Index)
def _look_ahead(index, policy, store, batch, i):
    fetch_next(index, batch, i)


@advance.on(Index)
def _advance(index, policy, store, out, stream, time):
    set_clocks(store, index, stream, time)
    expire(policy, store, index, out)
    return False


@retreat.on(Index)
def _retreat(index, store, stream):
    turn_back(store, index, stream)


@probe.on(Index)
def _probe(index, store, batch, i):
    return find_all(index, batch.key[i], np.int64(batch.stream[i])), np.int64(0)


@arrived.on(Index)
def _arrived(index, policy, store, batch, out, i, late, entry):
    return count_or_tell(policy, store, index, batch, i)


@matched.on(Index)
def _matched(index, policy, store, batch, out, i, found, entry, arrival):
    stream = np.int64(batch.stream[i])
    counts = count_results(store, index, out, i, stream, found)
    for place in range(index.scheme.degree[stream]):
        if index.product[place] > 0:
            if index.meta[HEEDING] != 0:
                match(policy, store, index, stream, place, arrival)
            if counts and out.rows.shape[0] > 0:
                emit(store, index, out, stream, place, batch.row[i])


@admit.on(Index)
def _admit(index, policy, store, batch, out, i, entry, arrival):
    let_in(policy, store, index, batch, out, i, store.clock[np.int64(batch.stream[i])], entry, arrival)


@jit
def set_clocks(store, index, stream, time):
    """Set the clocks to the time of an arrival; a stream with a window of rows counts its own."""
    if index.meta[MIXED] == 0:
        store.clock[:] = time
        return
    for each in range(store.clock.shape[0]):
        if index.by_rows[each] == 0:
            store.clock[each] = time
        elif each == stream:
            store.clock[each] += 1


@jit
def turn_back(store, index, stream):
    """Take back the advance for an arrival that will be processed later."""
    if index.by_rows[stream] != 0:
        store.clock[stream] -= 1


@jit
def count_or_tell(policy, store, index, batch, i):
    """Count an arrival, or tell the policy of it; how many partners it has had, if that is counted."""
    stream = np.int64(batch.stream[i])
    if index.meta[COUNTING] != 0:
        return count_arrival(store, index, batch.key[i], stream)
    if index.meta[TALLYING] != 0:
        tally(index, batch.key[i], stream)
    arrive(policy, store, stream, first_key(batch.key[i]), 0)
    return np.int64(0)


@jit
def count_found(store, index, out, i, found):
    """Count the results of an arrival in all, unless it is of the warm-up; whether they count."""
    store.meta[MATCHED] = capped(store.meta[MATCHED], found)
    if store.meta[STEPS] < store.meta[WARMUP]:
        return False
    out.counts[i] = found
    store.meta[RESULTS] = capped(store.meta[RESULTS], found)
    return True


@jit
def count_results(store, index, out, i, stream, found):
    """Count the results of an arrival, in all and per join; whether they count."""
    if not count_found(store, index, out, i, found):
        return False
    for place in range(index.scheme.degree[stream]):
        if index.product[place] > 0:
            join = index.scheme.join[stream, place]
            index.found[join] = capped(index.found[join], index.product[place])
            if out.each.shape[0] > 0:
                out.each[i, place] = index.product[place]
    return True


@jit
def fetch_next(index, batch, i):
    """Have the memory that the next arrivals will need on its way: first the bucket, then the key."""
    if i + 2 * AHEAD < batch.stream.shape[0]:
        for place in range(batch.key.shape[1]):
            prefetch(index.buckets, bucket_of(index, batch.key[i + 2 * AHEAD, place]))
            entry = index.buckets[bucket_of(index, batch.key[i + AHEAD, place])]
            prefetch(index.k64, index.k64.shape[1] * entry)


@jit
def expire(policy, store, index, out):
    """Let every tuple go that can match no more."""
    for stream in range(store.clock.shape[0]):
        slot = arrival_ring.oldest(store, stream)
        while slot != 0 and lived_out(store, slot):
            store.meta[EXPIRED] += 1
            log(store, out, LOG_EXPIRED, stream, store.t64[slot, ROW])
            remove(policy, store, index, slot)
            slot = arrival_ring.oldest(store, stream)


@jit
def first_key(keys):
    """The key by which an arrival is known to policies that know only one."""
    place = 0
    while keys[place] < 0:
        place += 1
    return keys[place]


@jit
def count_arrival(store, index, keys, stream):
    """Count an arrival for its partners in every join; how many partners it has had itself."""
    scheme, total = index.scheme, np.int64(0)
    widest = scheme.stream.shape[1]
    for place in range(scheme.degree[stream]):
        if keys[place] >= 0:
            join, own = scheme.join[stream, place], scheme.part[stream, place]
            entry = index.entry[place]
            count_key(index.counts, 0, keys[place] * widest + own)
            for part in range(scheme.size[join]):
                if part != own:
                    total += counted(index.counts, 0, keys[place] * widest + part)
                    slot = index.k32[entry, CHAIN + 3 * part + OLDEST]
                    while slot != 0:
                        younger = index.links[slot, scheme.place[join, part], YOUNGER]
                        prefetch(store.k64, 8 * younger)
                        store.k64[slot, USE] += 1
                        slot = younger
    return total


@jit
def tally(index, keys, stream):
    """Count an arrival in every join."""
    scheme = index.scheme
    for place in range(scheme.degree[stream]):
        if keys[place] >= 0:
            count_key(index.counts, 0, keys[place] * scheme.stream.shape[1] + scheme.part[stream, place])


@jit
def match(policy, store, index, stream, place, arrival):
    """Tell the policy of every tuple that is in a result of this arrival and join."""
    scheme, entry = index.scheme, index.entry[place]
    join = scheme.join[stream, place]
    for part in range(scheme.size[join]):
        if part != scheme.part[stream, place]:
            slot = index.k32[entry, CHAIN + 3 * part + OLDEST]
            while slot != 0:
                younger = index.links[slot, scheme.place[join, part], YOUNGER]
                prefetch(store.k64, 8 * younger)
                match_key(policy, store, slot, 0, arrival)
                slot = younger


@jit
def emit(store, index, out, stream, place, row):
    """Write the results of an arrival in one join, the tuples of the last participant changing fastest."""
    scheme, entry, cursor = index.scheme, index.entry[place], index.cursor
    join, own = scheme.join[stream, place], scheme.part[stream, place]
    size, at = scheme.size[join], out.ends[PAIRS]
    for part in range(size):
        cursor[part] = index.k32[entry, CHAIN + 3 * part + OLDEST]
    for _ in range(index.product[place]):
        out.rows[at, 0] = join
        for part in range(size):
            out.rows[at, 1 + part] = row if part == own else store.t64[cursor[part], ROW]
        at += 1
        for back in range(size):
            part = size - 1 - back
            if part != own:
                cursor[part] = index.links[cursor[part], scheme.place[join, part], YOUNGER]
                if cursor[part] != 0:
                    break
                cursor[part] = index.k32[entry, CHAIN + 3 * part + OLDEST]
    out.ends[PAIRS] = at


@jit
def let_in(policy, store, index, batch, out, i, time, count, arrival):
    """Let an arrival enter its pool, at the expense of another where need be; its tuple, 0 if it may not.

    `time` is that of its stream's clock: its own, or its number in the stream for a window of rows.
    """
    if batch.kept.shape[0] > 0 and not batch.kept[i]:
        store.meta[DROPPED] += 1
        return np.int64(0)
    stream, keys = np.int64(batch.stream[i]), batch.key[i]
    size = batch.size[i] if batch.size.shape[0] > 0 else np.int64(0)
    pool = store.pool_of[stream]
    if store.pools[pool, P_BYTES] >= 0 and size > store.pools[pool, P_BYTES]:
        store.meta[OVERSIZE] += 1
        refuse(store, out, batch, i)
        return np.int64(0)
    store.entering[0] = time
    while not fits(store, pool, size):
        slot = victim(policy, store, index, pool, stream, first_key(keys), count)
        if slot == 0:
            refuse(store, out, batch, i)
            return np.int64(0)
        evict(policy, store, index, out, slot)
    slot = take_tuple(store, stream, 0, batch.row[i], time, size, arrival)
    take_key_row(store, slot, first_key(keys), count)
    for place in range(index.scheme.degree[stream]):
        link(index, slot, place, index.scheme.part[stream, place], keys[place])
    arrival_ring.append(store, stream, slot)
    enter(policy, store, slot)
    return np.int64(slot)


@jit
def victim(policy, store, index, pool, stream, key, count):
    """The tuple that goes so that an arrival can enter; 0 if it is the arrival itself."""
    spare = store.place.shape[0] - 1  # stands for the arrival as long as it has no row
    store.k64[spare, KEY] = key
    store.k64[spare, USE] = count
    if index.meta[COUNTING] != 0:
        stream = np.int64(0)  # the side of its row, where such a policy looks
    return np.int64(make_room(policy, store, pool, stream, spare))


@jit
def take_key_row(store, slot, key, count):
    """Make the key row of a tuple's own number a chain of this one tuple."""
    store.k64[slot] = 0
    store.k64[slot, KEY] = key
    store.k64[slot, USE] = count
    store.k32[slot, HEAD] = slot
    store.k32[slot, TAIL] = slot
    store.k32[slot, COUNT] = 1
    store.t32[slot, ENTRY] = slot
    store.t32[slot, NEXT] = 0
    store.t32[slot, PREV] = 0


@jit
def free_with_key_row(store, slot):
    """Give back a tuple and the key row of its number, which then counts no tuples. O(1)."""
    store.k32[slot, COUNT] = 0
    free_tuple(store, slot)


@jit
def remove(policy, store, index, slot):
    """Take a tuple out of the store and of the chains of all its joins."""
    leave(policy, store, slot)
    stream = store.t32[slot, STREAM]
    for place in range(index.scheme.degree[stream]):
        unlink(index, slot, place, index.scheme.part[stream, place])
    arrival_ring.remove(store, slot)
    free_with_key_row(store, slot)


@jit
def evict(policy, store, index, out, slot):
    """Take a tuple out before its time."""
    store.meta[EVICTED] += 1
    log(store, out, LOG_EVICTED, store.t32[slot, STREAM], store.t64[slot, ROW])
    note_evicted(out, store, slot)
    remove(policy, store, index, slot)


@jit
def refuse(store, out, batch, i):
    """Count an arrival that does not enter as evicted."""
    stream = np.int64(batch.stream[i])
    store.meta[EVICTED] += 1
    store.meta[REFUSED] += 1
    log(store, out, LOG_EVICTED, stream, batch.row[i])
    left_early(out, store, stream, np.int64(0), batch.row[i], batch.key[i], batch.time[i])


@driver
def apportion_anew(policy, store, index, out):
    """Set the limits of the pools in proportion to the average score of their tuples. O(tuples)."""
    _apportion_anew(borrow(policy), borrow(store), borrow(index), borrow(out))


@jit
def _apportion_anew(policy, store, index, out):
    pools = store.pools
    average = np.zeros(pools.shape[0])
    for slot in range(1, store.meta[HIGH_TUPLE] + 1):
        if store.t64[slot, ARRIVAL] >= 0:
            average[store.pool_of[store.t32[slot, STREAM]]] += score(policy, store, slot)
    for pool in range(pools.shape[0]):
        average[pool] /= max(pools[pool, P_LIVE], 1)
    if added_up(average) <= 0.0:
        return
    limits = apportion(pools[:, P_LIMIT].sum(), average)
    for pool in range(pools.shape[0]):
        while pools[pool, P_LIVE] > limits[pool]:
            slot, _ = lowest(policy, store, pool)
            evict(policy, store, index, out, slot)
        pools[pool, P_LIMIT] = limits[pool]
