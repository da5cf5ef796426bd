"""The driver of stream queries: triples in many roles, partial solutions in caches, one pool for all.

A plan is a tree of joins. Its caches are those of single triples, one for all patterns that are equal up to
variable names, and those of partial solutions that wait for the other side of a join. A triple
is processed once, in all its roles: what is found goes to scratch memory first, so that an arrival for which
the room does not suffice can be taken up again. As for joins of many streams, every cached tuple has the key
row of its own number to itself, so that what a policy does to a key it does to this tuple.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from penstock.compiler.driver import driver
from penstock.compiler.jit import jit
from penstock.compiler.references import borrow, prefetch
from penstock.engine import arrival_ring
from penstock.engine.conditions import Columns, Conditions
from penstock.engine.hooks import changed, enter, leave, match_key
from penstock.engine.join_loop import LOG_EVICTED, LOG_EXPIRED, LOGGED, PAIRS, log
from penstock.engine.many_index import COUNTING, HEEDING
from penstock.engine.many_join import free_with_key_row, take_key_row, victim
from penstock.engine.pair_join_late import Expiry
from penstock.engine.score_queue import file_again, file_newcomer, front, new_queue
from penstock.engine.store import (
    ARRIVALS,
    EVICTED,
    EXPIRED,
    LIVE,
    MATCHED,
    REFUSED,
    RESULTS,
    ROW,
    STEPS,
    STREAM,
    TIME,
    USE,
    WARMUP,
    bucket_of,
    find_key,
    fits,
    lived_out,
    take_tuple,
)
from penstock.engine.triple_index import (
    EAGER,
    LAST_USE,
    OLDEST,
    TALLYING,
    USED,
    YOUNGER,
    first_key,
    link,
    unlink,
    younger_in,
)
from penstock.engine.triple_lifetime import leaf_life, partial_life
from penstock.engine.triple_search import (
    FOUND,
    PENDING,
    PROBES,
    SHORT,
    SHORT_COUNTS,
    SHORT_LOG,
    TOUCHED,
    find,
)
from penstock.structures.key_counts import count_key, has_room


class LinkedBatch(NamedTuple):
    """Triples, which of them arrive and in which order, and what solutions of them have to pass."""

    columns: Columns
    conditions: Conditions
    arrivals: np.ndarray  # rows of the columns
    closes: np.ndarray  # per arrival: the row of the fact that it closes, -1: it is a triple; empty: all are
    kept: np.ndarray  # per arrival: whether it is let into caches, or asks only; empty: all are


class LinkedOut(NamedTuple):
    """Where the driver writes; arrays without room mean that this is not wanted."""

    counts: np.ndarray  # results per arrival
    rows: np.ndarray  # of each result: the row of each pattern
    log: np.ndarray
    ends: np.ndarray


def new_expiry(tuples: int) -> Expiry:
    """An empty queue of the tuples by the time at which they expire.

    A tuple may be in it twice: since it entered, and since the fact that it is was closed.
    """
    return Expiry(new_queue((2 * tuples,)))


@driver
def drive_linked(policy, store, index, expiry, scheme, batch, scratch, out, start):
    """Process arrivals from `start`; the first one not processed, if some room was too small for it."""
    return _drive(
        borrow(policy),
        borrow(store),
        borrow(index),
        borrow(expiry),
        borrow(scheme),
        borrow(batch),
        borrow(scratch),
        borrow(out),
        start,
    )


@jit
def _drive(policy, store, index, expiry, scheme, batch, scratch, out, start):
    meta, arrivals, closes = store.meta, batch.arrivals, batch.closes
    columns, conditions = batch.columns, batch.conditions
    for i in range(start, arrivals.shape[0]):
        row = arrivals[i]
        look_ahead(index, scheme, columns, arrivals, i)
        store.clock[:] = columns.start[row]
        expire(policy, store, index, expiry, scheme, out)
        if closes.shape[0] > 0 and closes[i] >= 0:
            close(policy, store, index, expiry, scheme, columns, closes[i], columns.start[row])
            meta[STEPS] += 1
            continue
        if not find(store, index, scheme, conditions, columns, scratch, out, row):
            return i
        if not (room_to_log(store, scheme, scratch, out) and room_to_count(index, scratch)):
            return i
        arrival = meta[ARRIVALS]
        meta[MATCHED] += scratch.ends[FOUND]
        if scratch.ends[FOUND] > 0 and meta[STEPS] >= meta[WARMUP]:
            meta[RESULTS] += scratch.ends[FOUND]
            out.counts[i] += scratch.ends[FOUND]
            if out.rows.shape[0] > 0:
                out.ends[PAIRS] += scratch.ends[FOUND]
        if index.meta[TALLYING] != 0:
            count_probes(policy, store, index, scratch)
        reward(policy, store, index, scheme, scratch, arrival)
        kept = batch.kept.shape[0] == 0 or batch.kept[i]
        keep(policy, store, index, expiry, scheme, columns, scratch, out, row, kept)
        meta[STEPS] += 1
    return arrivals.shape[0]


@jit
def look_ahead(index, scheme, columns, arrivals, i):
    """Have the memory that the next arrivals will need on its way: first the bucket, then the key."""
    if i + 6 < arrivals.shape[0] and scheme.port_of.shape[0] > 1:
        port, ports = scheme.port_of[1, 1], scheme.port_roles.shape[0]
        prefetch(index.buckets, bucket_of(index, columns.leaf_key[port, arrivals[i + 6]] * ports + port))
        entry = index.buckets[bucket_of(index, columns.leaf_key[port, arrivals[i + 3]] * ports + port)]
        prefetch(index.k64, 8 * np.int64(entry))


@jit
def expire(policy, store, index, expiry, scheme, out):
    """Let every tuple go that can be in no further solution."""
    slot, _ = front(expiry, expiry.queue, store, 0)
    while slot != 0 and lived_out(store, slot):
        store.meta[EXPIRED] += 1
        log(store, out, LOG_EXPIRED, store.t32[slot, STREAM], store.t64[slot, ROW])
        remove(policy, store, index, scheme, slot)
        slot, _ = front(expiry, expiry.queue, store, 0)


@jit
def room_to_log(store, scheme, scratch, out):
    """Whether all can be noted that this arrival evicts and that expires before the next one."""
    entering = scheme.cache_roles.shape[0] + scratch.ends[PENDING]
    if out.log.shape[0] > 0 and out.ends[LOGGED] + store.meta[LIVE] + 2 * entering > out.log.shape[0]:
        scratch.ends[SHORT] = SHORT_LOG
        return False
    return True


@jit
def room_to_count(index, scratch):
    """Whether all can be counted that this arrival has asked for."""
    if index.meta[TALLYING] != 0 and not has_room(index.counts, scratch.ends[PROBES]):
        scratch.ends[SHORT] = SHORT_COUNTS
        return False
    return True


@jit
def reward(policy, store, index, scheme, scratch, arrival):
    """Tell the policy of the tuples that were in a solution; shares add up to whole matches."""
    tracking = index.uses.shape[0] > 0
    if index.meta[HEEDING] == 0 and not tracking:
        return
    for i in range(scratch.ends[TOUCHED]):
        slot = scratch.touched[i]
        if tracking:
            index.uses[slot, USED] += scratch.share[slot]
            index.uses[slot, LAST_USE] = arrival
            if index.meta[HEEDING] == 0:
                continue
        if index.meta[EAGER] != 0:
            match_key(policy, store, slot, 0, arrival)
            continue
        index.owed[slot] += scratch.share[slot]
        while index.owed[slot] >= 1.0:
            index.owed[slot] -= 1.0
            match_key(policy, store, slot, 0, arrival)


@jit
def count_probes(policy, store, index, scratch):
    """Count what was asked for; the tuples there may have it as their score."""
    times = 0
    for i in range(scratch.ends[PROBES]):
        code = scratch.probes[i]
        count_key(index.counts, 0, code)
        times += 1
        again = i + 1 < scratch.ends[PROBES] and scratch.probes[i + 1] == code  # two roles that ask alike
        if index.meta[COUNTING] == 0 or again:
            continue
        entry = find_key(index, code)
        slot = np.int64(index.k32[entry, OLDEST])
        while slot != 0:
            store.k64[slot, USE] += times
            changed(policy, store, slot)
            slot = younger_in(index, slot, entry)
        times = 0


@jit
def keep(policy, store, index, expiry, scheme, columns, scratch, out, row, kept):
    """Let an arrival into its caches, and what it has made into those of partial solutions.

    If it is not to be kept itself, then what it has made with others is.
    """
    caches = scheme.cache_roles.shape[0]
    still = columns.start[row] == -np.inf
    for cache in range(caches):
        if kept and columns.mask[row] & scheme.cache_roles[cache] != 0:
            scratch.now[:] = row
            store.entering[0] = np.inf if still else leaf_life(scheme, columns, row, cache)
            admit(policy, store, index, expiry, scheme, columns, out, scratch.now, cache, row)
    for at in range(scratch.ends[PENDING]):
        step = scratch.made[at]
        if step > 0 and (kept or scratch.via[at].any()):
            cache = caches + step - 1
            store.entering[0] = partial_life(scheme, columns, scratch.rows[at], step)
            admit(policy, store, index, expiry, scheme, columns, out, scratch.rows[at], cache, row)


@jit
def admit(policy, store, index, expiry, scheme, columns, out, rows, cache, row):
    """Let a tuple into a cache, at the expense of another where need be.

    `store.entering` says how long it lives. Triples without a time share the last pool.
    """
    arrival = store.meta[ARRIVALS]
    store.meta[ARRIVALS] += 1
    still = cache < scheme.cache_roles.shape[0] and columns.start[row] == -np.inf
    stream = store.pool_of.shape[0] - 1 if still else cache
    if store.entering[0] < store.clock[stream]:
        store.meta[EXPIRED] += 1
        return
    pool = store.pool_of[stream]
    first, count = first_key(index, scheme, columns, rows, cache)
    while not fits(store, pool, 0):
        slot = victim(policy, store, index, pool, stream, first, count)
        if slot == 0:
            store.meta[EVICTED] += 1
            store.meta[REFUSED] += 1
            log(store, out, LOG_EVICTED, stream, row)
            return
        store.meta[EVICTED] += 1
        log(store, out, LOG_EVICTED, store.t32[slot, STREAM], store.t64[slot, ROW])
        remove(policy, store, index, scheme, slot)
    slot = take_slot(store, index, stream, cache, row, arrival, first, count)
    let_in(policy, store, index, expiry, scheme, columns, rows, row, slot)


@jit
def take_slot(store, index, stream, cache, row, arrival, key, count):
    """Take the memory for a tuple that enters a cache; its slot."""
    slot = np.int64(take_tuple(store, stream, 0, row, store.entering[0], 0, arrival))
    take_key_row(store, slot, key, count)
    index.cache[slot] = cache
    index.owed[slot] = 0.0
    if index.uses.shape[0] > 0:
        index.uses[slot, USED] = 0.0
        index.uses[slot, LAST_USE] = -1.0
    return slot


@jit
def let_in(policy, store, index, expiry, scheme, columns, rows, row, slot):
    """Have a tuple that has its memory found by others, and scored."""
    cache = index.cache[slot]
    leaf = cache < scheme.cache_roles.shape[0]
    if not leaf:
        for i in range(rows.shape[0]):
            index.members[slot, i] = rows[i]
    for place in range(scheme.degree[cache]):
        link(index, scheme, columns, rows, slot, place, leaf, row)
    arrival_ring.append(store, store.t32[slot, STREAM], slot)
    enter(policy, store, slot)
    life = store.time[slot, TIME]
    if life < np.inf:
        file_newcomer(expiry.queue, store, 0, slot, life)


@jit
def remove(policy, store, index, scheme, slot):
    """Take a tuple out of the store and of all its chains."""
    leave(policy, store, slot)
    for place in range(scheme.degree[index.cache[slot]]):
        unlink(index, slot, place)
    arrival_ring.remove(store, slot)
    free_with_key_row(store, slot)


@jit
def close(policy, store, index, expiry, scheme, columns, row, time):
    """A fact has ended: from now on it counts as valid up to this time, and expires sooner."""
    columns.end[row] = time
    ports = scheme.port_roles.shape[0]
    for cache in range(scheme.cache_roles.shape[0]):
        if columns.mask[row] & scheme.cache_roles[cache] == 0:
            continue
        for place in range(scheme.degree[cache]):
            port = scheme.port[cache, place]
            if columns.mask[row] & scheme.port_roles[port] == 0 or columns.leaf_key[port, row] < 0:
                continue
            entry = find_key(index, columns.leaf_key[port, row] * ports + port)
            slot = np.int64(index.k32[entry, OLDEST])
            while slot != 0 and store.t64[slot, ROW] != row:
                slot = np.int64(index.links[slot, place, YOUNGER])
            if slot != 0:
                life = leaf_life(scheme, columns, row, cache)
                if life < store.time[slot, TIME]:
                    store.time[slot, TIME] = life
                    file_again(expiry.queue, store, 0, slot, life)
                    changed(policy, store, slot)
            break
