"""The driver of stream queries: triples in many roles, partial solutions in caches, one pool for all.

A plan joins the patterns one after the other. Its caches are those of single triples, one for all patterns
that are equal up to variable names, and those of partial solutions that wait for the next pattern. A triple
is processed once, in all its roles: what is found goes to scratch memory first, so that an arrival for which
the room does not suffice can be taken up again. As for joins of many streams, every cached tuple has the key
row of its own number to itself, so that what a policy does to a key it does to this tuple.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from penstock.kernels import ring
from penstock.kernels.counts import Counts, count_key, counted, new_counts
from penstock.kernels.drive import LOG_EVICTED, LOG_EXPIRED, LOGGED, PAIRS, log
from penstock.kernels.hooks import enter, leave, match_key
from penstock.kernels.jit import borrow, jit, prefetch
from penstock.kernels.layout import (
    ARRIVALS,
    EVICTED,
    EXPIRED,
    FREE_KEY,
    HIGH_KEY,
    LIVE,
    META,
    REFUSED,
    RESULTS,
    ROW,
    STEPS,
    STREAM,
    TIME,
    USE,
    WARMUP,
    add_key,
    bucket_of,
    drop_key,
    find_key,
    fits,
    lived_out,
    power_of_two,
    take_tuple,
)
from penstock.kernels.many import free_with_key_row, take_key_row, victim
from penstock.kernels.many_index import COUNTING, HEEDING
from penstock.kernels.programs import passes
from penstock.kernels.queue import file_again, file_newcomer, front, new_queue
from penstock.kernels.stream import Expiry

# Columns of a row of the index, 32 bits wide; KEY and LINK are as in the store.
OLDEST, NEWEST, LENGTH = 8, 9, 10

# Columns of a link.
HELD, YOUNGER, OLDER, LINK_WIDTH = 0, 1, 2, 4

EAGER = 10  # in the `meta` of the index: 1 if a share of a match counts as a match (scores by recency)

# Ends of the scratch memory.
PENDING, TOUCHED, FOUND, PROBES, SHORT = 0, 1, 2, 3, 4
SHORT_RESULTS, SHORT_SCRATCH, SHORT_LOG = 1, 2, 3  # what room was too small
STAMP = 6  # not an end: how often it was used

ORIGIN = 2  # beside start and end, the third time that may bound a life


class Scheme(NamedTuple):
    """A plan: the order of the patterns, the caches, and under which keys their tuples can be found."""

    order: np.ndarray  # patterns in the order in which they are joined
    cache_roles: np.ndarray  # per cache of single triples: the patterns that use it, a bit each
    degree: np.ndarray  # per cache: its ports
    port: np.ndarray  # cache, place -> port
    port_roles: np.ndarray  # the patterns for which a triple needs to be in a port
    port_step: np.ndarray  # of a port of partial solutions: the step they wait for
    left_port: np.ndarray  # per step: where what has been joined so far is found
    right_port: np.ndarray  # and where the triples of the pattern that is joined are
    key_size: np.ndarray  # per step: the variables of the key
    key_part: np.ndarray  # step, variable -> pattern and position on the left side
    limit: np.ndarray  # pattern, other pattern, time -> how long after that time the other one may start
    partners: np.ndarray  # per pattern: those that can find it in its cache
    gain: np.ndarray  # what a full result and what a partial one adds to a score


class Index(NamedTuple):
    """The caches: chains of tuples by port and key, and what partial solutions consist of."""

    k64: np.ndarray
    k32: np.ndarray
    buckets: np.ndarray
    links: np.ndarray
    members: np.ndarray  # per tuple of a partial solution: the row of each pattern
    cache: np.ndarray  # per tuple
    owed: np.ndarray  # per tuple: shares of matches that are not a whole one yet
    counts: Counts  # probes by port and key, if they are the score
    meta: np.ndarray


class Scratch(NamedTuple):
    """What an arrival has found, until it is put into effect."""

    rows: np.ndarray  # partial solutions
    step: np.ndarray  # and what each waits for
    via: np.ndarray  # the tuples that they were made with
    now: np.ndarray  # the solution at hand
    seen: np.ndarray  # per tuple: the last arrival that touched it
    share: np.ndarray  # per tuple: how much it has gained by it
    touched: np.ndarray
    probes: np.ndarray
    ends: np.ndarray


class LinkedOut(NamedTuple):
    """Where the driver writes; arrays without room mean that this is not wanted."""

    counts: np.ndarray  # results per arrival
    rows: np.ndarray  # of each result: the row of each pattern
    log: np.ndarray
    ends: np.ndarray


def new_index(scheme: Scheme, tuples: int, counting: bool, heeding: bool, eager: bool) -> Index:
    """Empty caches for so many tuples."""
    places, patterns = scheme.port.shape[1], len(scheme.order)
    keys = tuples * places + 2
    k64 = np.zeros((keys, 8), np.int64)
    meta = np.zeros(META, np.int64)
    meta[COUNTING], meta[HEEDING], meta[EAGER] = counting, heeding, eager
    return Index(
        k64=k64,
        k32=k64.view(np.int32),
        buckets=np.zeros(power_of_two(2 * keys), np.int32),
        links=np.zeros((tuples + 2, places, LINK_WIDTH), np.int32),
        members=np.zeros((tuples + 2 if patterns > 2 else 0, patterns), np.int64),
        cache=np.zeros(tuples + 2, np.int32),
        owed=np.zeros(tuples + 2),
        counts=new_counts(),
        meta=meta,
    )


Index.widths = {"k64": 8, "k32": 16}  # type: ignore[attr-defined]
Index.tables = ("k64", "k32")  # type: ignore[attr-defined]


def new_scratch(patterns: int, tuples: int, room: int) -> Scratch:
    """Scratch memory for arrivals that make up to so many partial solutions."""
    return Scratch(
        rows=np.zeros((room, patterns), np.int64),
        step=np.zeros(room, np.int64),
        via=np.zeros((room, patterns), np.int64),
        now=np.zeros(patterns, np.int64),
        seen=np.full(tuples + 2, -1, np.int64),
        share=np.zeros(tuples + 2),
        touched=np.zeros(tuples + 2, np.int64),
        probes=np.zeros(2 * room + patterns, np.int64),
        ends=np.zeros(8, np.int64),
    )


def new_expiry(tuples: int) -> Expiry:
    """An empty queue of the tuples by the time at which they expire.

    A tuple may be in it twice: since it entered, and since the fact that it is was closed.
    """
    return Expiry(new_queue((2 * tuples,)))


@jit
def drive_linked(
    policy, store, index, expiry, scheme, conditions, columns, scratch, arrivals, closes, out, start
):
    """Process arrivals from `start`; the first one not processed, if some room was too small for it."""
    return _drive(
        borrow(policy),
        borrow(store),
        borrow(index),
        borrow(expiry),
        borrow(scheme),
        borrow(conditions),
        borrow(columns),
        borrow(scratch),
        arrivals,
        closes,
        borrow(out),
        start,
    )


@jit
def _drive(policy, store, index, expiry, scheme, conditions, columns, scratch, arrivals, closes, out, start):
    meta = store.meta
    for i in range(start, arrivals.shape[0]):
        row = arrivals[i]
        look_ahead(index, scheme, columns, arrivals, i)
        store.clock[:] = columns.start[row]
        expire(policy, store, index, expiry, scheme, out)
        if closes.shape[0] > 0 and closes[i] >= 0:
            close(store, index, expiry, scheme, columns, closes[i], columns.start[row])
            meta[STEPS] += 1
            continue
        if not find(store, index, scheme, conditions, columns, scratch, out, row):
            return i
        if not room_to_log(store, scheme, scratch, out):
            return i
        arrival = meta[ARRIVALS]
        if scratch.ends[FOUND] > 0 and meta[STEPS] >= meta[WARMUP]:
            meta[RESULTS] += scratch.ends[FOUND]
            out.counts[i] += scratch.ends[FOUND]
            if out.rows.shape[0] > 0:
                out.ends[PAIRS] += scratch.ends[FOUND]
        if index.meta[COUNTING] != 0:
            count_probes(store, index, scratch)
        reward(policy, store, index, scheme, scratch, arrival)
        keep(policy, store, index, expiry, scheme, columns, scratch, out, row)
        meta[STEPS] += 1
    return arrivals.shape[0]


@jit
def look_ahead(index, scheme, columns, arrivals, i):
    """Have the memory that the next arrivals will need on its way: first the bucket, then the key."""
    if i + 6 < arrivals.shape[0] and scheme.right_port.shape[0] > 1:
        port, ports = scheme.right_port[1], scheme.port_roles.shape[0]
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
def find(store, index, scheme, conditions, columns, scratch, out, row):
    """Note all solutions that a triple completes, the partial ones too; False if the room is too small.

    With x the triple, a step joins what x has made so far with the cached triples of the next pattern and
    with x itself, and what is cached with x: every solution with x comes out once.
    """
    ends, order = scratch.ends, scheme.order
    ends[:STAMP] = 0
    ends[STAMP] += 1
    mask = columns.mask[row]
    if (mask >> order[0]) & 1 != 0:
        scratch.rows[0, order[0]] = row
        scratch.step[0] = 1
        scratch.via[0, :] = 0
        ends[PENDING] = 1
    now, first = scratch.now, np.int64(0)
    ports = scheme.port_roles.shape[0]
    for step in range(1, order.shape[0]):
        after, pattern = ends[PENDING], order[step]
        takes = (mask >> pattern) & 1 != 0
        port = scheme.right_port[step]
        for at in range(first, after):
            key = left_key(scheme, columns, scratch.rows[at], step, row)
            if key < 0:
                continue
            for i in range(step):
                now[order[i]] = scratch.rows[at, order[i]]
            entry = find_key(index, key * ports + port)
            note_probe(index, scratch, key * ports + port)
            slot = np.int64(index.k32[entry, OLDEST])
            place = place_of(index, scheme, slot, port)
            while slot != 0:
                partner = store.t64[slot, ROW]
                if (columns.mask[partner] >> pattern) & 1 != 0:
                    now[pattern] = partner
                    if passes(conditions, columns, now, step):
                        if not note(store, scheme, scratch, out, step, at, slot):
                            return False
                slot = np.int64(index.links[slot, place, YOUNGER])
            if takes and columns.leaf_key[port, row] == key:
                now[pattern] = row
                if passes(conditions, columns, now, step):
                    if not note(store, scheme, scratch, out, step, at, 0):
                        return False
        if takes:
            key = columns.leaf_key[port, row]
            if key >= 0:
                left = scheme.left_port[step]
                entry = find_key(index, key * ports + left)
                note_probe(index, scratch, key * ports + left)
                slot = np.int64(index.k32[entry, OLDEST])
                place = place_of(index, scheme, slot, left)
                while slot != 0:
                    if recall(store, scheme, index, columns, now, slot, step):
                        now[pattern] = row
                        if passes(conditions, columns, now, step):
                            if not note(store, scheme, scratch, out, step, -1, slot):
                                return False
                    slot = np.int64(index.links[slot, place, YOUNGER])
        first = after
    return True


@jit
def room_to_log(store, scheme, scratch, out):
    """Whether all can be noted that this arrival evicts and that expires before the next one."""
    entering = scheme.cache_roles.shape[0] + scratch.ends[PENDING]
    if out.log.shape[0] > 0 and out.ends[LOGGED] + store.meta[LIVE] + 2 * entering > out.log.shape[0]:
        scratch.ends[SHORT] = SHORT_LOG
        return False
    return True


@jit
def left_key(scheme, columns, rows, step, row):
    """The key under which a partial solution looks for the triples of the next pattern."""
    if step == 1:
        return columns.leaf_key[scheme.left_port[1], row]
    if scheme.key_size[step] == 0:
        return np.int64(0)
    key = np.int64(0)
    for i in range(scheme.key_size[step]):
        part = scheme.key_part[step, i]
        value = columns.value[rows[part[0]], part[1]]
        if value < 0:
            return np.int64(-1)
        key = value if i == 0 else mixed(key, value)
    return key


@jit
def mixed(key, value):
    """The key of several values: a hash; the values themselves are compared later."""
    hashed = np.uint64(key) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(value)
    hashed = (hashed ^ (hashed >> np.uint64(31))) * np.uint64(0xBF58476D1CE4E5B9)
    return np.int64(hashed >> np.uint64(16))


@jit
def mixed_keys(keys, values):
    """The same for arrays."""
    out = np.empty(keys.shape[0], np.int64)
    for i in range(keys.shape[0]):
        out[i] = mixed(keys[i], values[i]) if keys[i] >= 0 and values[i] >= 0 else -1
    return out


@jit
def place_of(index, scheme, slot, port):
    """Which link of a tuple is that of a port."""
    cache, place = index.cache[slot], np.int64(0)
    while place < scheme.degree[cache] - 1 and scheme.port[cache, place] != port:
        place += 1
    return place


@jit
def recall(store, scheme, index, columns, now, slot, step):
    """Bring what a tuple on the left side consists of to hand; False if it has not the role."""
    if step == 1:
        row = store.t64[slot, ROW]
        now[scheme.order[0]] = row
        return (columns.mask[row] >> scheme.order[0]) & 1 != 0
    for i in range(step):
        now[scheme.order[i]] = index.members[slot, scheme.order[i]]
    return True


@jit
def note_probe(index, scratch, code):
    """Remember that a key was asked for, if this is counted."""
    if index.meta[COUNTING] != 0 and scratch.ends[PROBES] < scratch.probes.shape[0]:
        scratch.probes[scratch.ends[PROBES]] = code
        scratch.ends[PROBES] += 1


@jit
def note(store, scheme, scratch, out, step, at, slot):
    """Note the solution at hand, made from the partial one `at` (-1: none) with a tuple (0: the arrival)."""
    ends, patterns = scratch.ends, scheme.order.shape[0]
    full = step == patterns - 1
    if full:
        if out.rows.shape[0] > 0 and store.meta[STEPS] >= store.meta[WARMUP]:
            place = out.ends[PAIRS] + ends[FOUND]
            if place >= out.rows.shape[0]:
                ends[SHORT] = SHORT_RESULTS
                return False
            for i in range(patterns):
                out.rows[place, i] = scratch.now[i]
        ends[FOUND] += 1
    else:
        place = ends[PENDING]
        if place >= scratch.rows.shape[0]:
            ends[SHORT] = SHORT_SCRATCH
            return False
        for i in range(step + 1):
            scratch.rows[place, scheme.order[i]] = scratch.now[scheme.order[i]]
        for i in range(patterns):
            scratch.via[place, i] = scratch.via[at, i] if at >= 0 else 0
        scratch.via[place, step] = slot
        scratch.step[place] = step + 1
        ends[PENDING] += 1
    gain = scheme.gain[0] if full else scheme.gain[1]
    if slot != 0:
        touch(scratch, slot, gain)
    if at >= 0 and step > 1:
        for i in range(1, step):
            if scratch.via[at, i] != 0:
                touch(scratch, scratch.via[at, i], gain)
    return True


@jit
def touch(scratch, slot, gain):
    """A tuple is in a solution of the arrival: it gains once, the most."""
    if scratch.seen[slot] != scratch.ends[STAMP]:
        scratch.seen[slot] = scratch.ends[STAMP]
        scratch.share[slot] = 0.0
        scratch.touched[scratch.ends[TOUCHED]] = slot
        scratch.ends[TOUCHED] += 1
    scratch.share[slot] = max(scratch.share[slot], gain)


@jit
def reward(policy, store, index, scheme, scratch, arrival):
    """Tell the policy of the tuples that were in a solution; shares add up to whole matches."""
    if index.meta[HEEDING] == 0:
        return
    for i in range(scratch.ends[TOUCHED]):
        slot = scratch.touched[i]
        if index.meta[EAGER] != 0:
            match_key(policy, store, slot, 0, arrival)
            continue
        index.owed[slot] += scratch.share[slot]
        while index.owed[slot] >= 1.0:
            index.owed[slot] -= 1.0
            match_key(policy, store, slot, 0, arrival)


@jit
def count_probes(store, index, scratch):
    """Count what was asked for; the tuples there have it as their score."""
    for i in range(scratch.ends[PROBES]):
        code = scratch.probes[i]
        count_key(index.counts, 0, code)
        entry = find_key(index, code)
        slot = np.int64(index.k32[entry, OLDEST])
        while slot != 0:
            store.k64[slot, USE] += 1
            slot = younger_in(index, slot, entry)


@jit
def younger_in(index, slot, entry):
    """The next tuple of the chain of a row of the index."""
    for place in range(index.links.shape[1]):
        if index.links[slot, place, HELD] == entry:
            return np.int64(index.links[slot, place, YOUNGER])
    return np.int64(0)


@jit
def keep(policy, store, index, expiry, scheme, columns, scratch, out, row):
    """Let an arrival into its caches, and what it has made into those of partial solutions."""
    caches = scheme.cache_roles.shape[0]
    still = columns.start[row] == -np.inf
    for cache in range(caches):
        if columns.mask[row] & scheme.cache_roles[cache] != 0:
            scratch.now[:] = row
            stream = store.pool_of.shape[0] - 1 if still else cache
            life = np.inf if still else leaf_life(scheme, columns, row, cache)
            admit(policy, store, index, expiry, scheme, columns, out, scratch.now, cache, stream, row, life)
    for at in range(scratch.ends[PENDING]):
        step = scratch.step[at]
        if step > 1:
            cache = caches + step - 2
            life = partial_life(scheme, columns, scratch.rows[at], step)
            admit(
                policy, store, index, expiry, scheme, columns, out, scratch.rows[at], cache, cache, row, life
            )


@jit
def admit(policy, store, index, expiry, scheme, columns, out, rows, cache, stream, row, life):
    """Let a tuple into a cache, at the expense of another where need be."""
    arrival = store.meta[ARRIVALS]
    store.meta[ARRIVALS] += 1
    if life < store.clock[stream]:
        store.meta[EXPIRED] += 1
        return
    pool = store.pool_of[stream]
    store.entering[0] = store.clock[stream]
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
    slot = np.int64(take_tuple(store, stream, 0, row, life, 0, arrival))
    take_key_row(store, slot, first, count)
    index.cache[slot] = cache
    index.owed[slot] = 0.0
    leaf = cache < scheme.cache_roles.shape[0]
    if not leaf:
        for i in range(rows.shape[0]):
            index.members[slot, i] = rows[i]
    for place in range(scheme.degree[cache]):
        link(index, scheme, columns, rows, slot, place, leaf, row)
    ring.append(store, stream, slot)
    enter(policy, store, slot)
    if life < np.inf:
        file_newcomer(expiry.queue, store, 0, slot, life)


@jit
def port_key(scheme, columns, rows, port, leaf, row):
    """The key of a tuple in a port, -1 if it has no place there."""
    if leaf:
        if columns.mask[row] & scheme.port_roles[port] == 0:
            return np.int64(-1)
        return columns.leaf_key[port, row]
    return left_key(scheme, columns, rows, scheme.port_step[port], row)


@jit
def first_key(index, scheme, columns, rows, cache):
    """The key by which a policy knows a newcomer, and how often it was asked for in all its ports."""
    leaf, ports = cache < scheme.cache_roles.shape[0], scheme.port_roles.shape[0]
    first, count = np.int64(-1), np.int64(0)
    for place in range(scheme.degree[cache]):
        port = scheme.port[cache, place]
        key = port_key(scheme, columns, rows, port, leaf, rows[0])
        if key >= 0:
            if first < 0:
                first = key
            if index.meta[COUNTING] != 0:
                count += counted(index.counts, 0, key * ports + port)
    return max(first, 0), count


@jit
def link(index, scheme, columns, rows, slot, place, leaf, row):
    """Append a tuple to its chain in one port. O(1)."""
    port = scheme.port[index.cache[slot], place]
    key = port_key(scheme, columns, rows, port, leaf, row)
    links, k32 = index.links, index.k32
    entry = np.int64(0)
    if key >= 0:
        code = key * scheme.port_roles.shape[0] + port
        entry = np.int64(find_key(index, code))
        if entry == 0:
            entry = np.int64(add_key(index, code))
        newest = k32[entry, NEWEST]
        links[slot, place, YOUNGER] = 0
        links[slot, place, OLDER] = newest
        if newest != 0:
            links[newest, place, YOUNGER] = slot
        else:
            k32[entry, OLDEST] = slot
        k32[entry, NEWEST] = slot
        k32[entry, LENGTH] += 1
    links[slot, place, HELD] = entry


@jit
def unlink(index, slot, place):
    """Take a tuple out of its chain in one port, and the key out of the index if that was the last. O(1)."""
    links, k32 = index.links, index.k32
    entry = np.int64(links[slot, place, HELD])
    if entry == 0:
        return
    older, younger = links[slot, place, OLDER], links[slot, place, YOUNGER]
    if older != 0:
        links[older, place, YOUNGER] = younger
    else:
        k32[entry, OLDEST] = younger
    if younger != 0:
        links[younger, place, OLDER] = older
    else:
        k32[entry, NEWEST] = older
    k32[entry, LENGTH] -= 1
    if k32[entry, LENGTH] == 0:
        drop_key(index, entry)


@jit
def remove(policy, store, index, scheme, slot):
    """Take a tuple out of the store and of all its chains."""
    leave(policy, store, slot)
    for place in range(scheme.degree[index.cache[slot]]):
        unlink(index, slot, place)
    ring.remove(store, slot)
    free_with_key_row(store, slot)


@jit
def leaf_life(scheme, columns, row, cache):
    """The last time at which a cached triple can meet a partner: in the best of its roles."""
    roles = columns.mask[row] & scheme.cache_roles[cache]
    latest = -np.inf
    for pattern in range(scheme.order.shape[0]):
        if (roles >> pattern) & 1 != 0:
            for other in range(scheme.order.shape[0]):
                if (scheme.partners[pattern] >> other) & 1 != 0:
                    latest = max(latest, until(scheme, columns, row, pattern, other))
    return latest


@jit
def until(scheme, columns, row, pattern, other):
    """The last time at which a triple of another pattern can start and go together with this one."""
    if columns.start[row] == -np.inf:
        return np.inf
    limit = scheme.limit[pattern, other]
    latest = min(columns.start[row] + limit[0], limit[ORIGIN])
    if limit[1] < np.inf:
        latest = min(latest, columns.end[row] + limit[1])
    return latest


@jit
def partial_life(scheme, columns, rows, step):
    """The last time at which a triple can come that a partial solution waits for."""
    latest = np.inf
    for i in range(step):
        pattern = scheme.order[i]
        latest = min(latest, until(scheme, columns, rows[pattern], pattern, scheme.order[step]))
    return latest


@jit
def lives(scheme, columns):
    """How long each triple can be of use in the cache that keeps it longest; 0 for background."""
    return _lives(borrow(scheme), borrow(columns))


@jit
def _lives(scheme, columns):
    out = np.zeros(columns.start.shape[0])
    for row in range(out.shape[0]):
        if columns.start[row] > -np.inf:
            for cache in range(scheme.cache_roles.shape[0]):
                if columns.mask[row] & scheme.cache_roles[cache] != 0:
                    out[row] = max(out[row], leaf_life(scheme, columns, row, cache) - columns.start[row])
    return out


@jit
def close(store, index, expiry, scheme, columns, row, time):
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
            break


@jit
def relink(store, index, scheme, columns, slots):
    """Build the chains anew from the tuples in order of arrival: their keys have new numbers.

    The rows of the index have been zeroed before.
    """
    _relink(borrow(store), borrow(index), borrow(scheme), borrow(columns), slots)


@jit
def _relink(store, index, scheme, columns, slots):
    index.buckets[:] = 0
    index.meta[FREE_KEY] = 0
    index.meta[HIGH_KEY] = 0
    rows = np.zeros(scheme.order.shape[0], np.int64)
    for i in range(slots.shape[0]):
        slot = slots[i]
        leaf = index.cache[slot] < scheme.cache_roles.shape[0]
        row = store.t64[slot, ROW]
        for pattern in range(rows.shape[0]):
            rows[pattern] = row if leaf else index.members[slot, pattern]
        for place in range(scheme.degree[index.cache[slot]]):
            link(index, scheme, columns, rows, slot, place, leaf, row)
