"""The driver of the window join, one tick at a time: all arrivals with one timestamp form a step.

They probe the buffer, match each other, and then compete with the buffer for the room.
"""

from __future__ import annotations

import numpy as np

from penstock.compiler.driver import driver
from penstock.compiler.jit import jit
from penstock.compiler.references import borrow
from penstock.engine.hooks import arrive, before_tick, match_key
from penstock.engine.join_loop import PAIRS, count_dropped, draw_drop
from penstock.engine.pair_join import emit, expire, let_in, pin, set_clocks, unpin
from penstock.engine.store import (
    ARRIVALS,
    COUNT,
    MATCHED,
    RESULTS,
    ROWS,
    SAME_TICK,
    SHED,
    STEPS,
    WARMUP,
    WINDOW,
    find_key,
)
from penstock.structures.random import DROPS

ADMITTED = 0
UNADMITTED = 1  # dropped after it has probed
GONE = 2  # dropped before it probes


@driver
def drive_ticks(policy, store, index, batch, out, start):
    """Process whole ticks from `start`; the first arrival of the first tick not processed."""
    return _drive_ticks(borrow(policy), borrow(store), borrow(batch), borrow(out), start)


@jit
def _drive_ticks(policy, store, batch, out, start):
    n = batch.key.shape[0]
    first = start
    while first < n:
        last = first + 1
        while last < n and batch.time[last] == batch.time[first]:
            last += 1
        if not _tick(policy, store, batch, out, first, last):
            return first
        first = last
    return n


@jit
def _tick(policy, store, batch, out, first, last):
    """One step; False if its pairs would not find room, in which case nothing has changed but expiry."""
    meta = store.meta
    generator = store.random[DROPS]
    clock = store.clock.copy()
    fate = np.zeros(last - first, np.int8)
    coming = 0
    for i in range(first, last):
        if draw_drop(store, batch.stream[i]):
            fate[i - first] = GONE if meta[SHED] != 0 else UNADMITTED
        if fate[i - first] != GONE:
            coming += 1
        if fate[i - first] != GONE or meta[WINDOW] != ROWS:
            set_clocks(store, batch.stream[i], batch.time[i])
    if coming > 0:  # else nothing happens in this tick, but time passes
        expire(policy, store, out)
    left, right = _sides(batch, fate, first, last)
    if out.pairs.shape[0] > 0:
        needed = _pairs_among(batch, out, left, right, False)
        for i in range(first, last):
            if fate[i - first] != GONE:
                needed += store.k32[find_key(store, batch.key[i]), COUNT + 1 - batch.stream[i]]
        if out.ends[PAIRS] + needed > out.pairs.shape[0]:
            store.random[DROPS] = generator
            store.clock[:] = clock
            return False
    counted = meta[STEPS] >= meta[WARMUP]
    first_number = meta[ARRIVALS]
    for i in range(first, last):
        if fate[i - first] != GONE:
            _probe(policy, store, batch, out, i, counted)
    if counted:
        among = _pairs_among(batch, out, left, right, True)
        meta[RESULTS] += among
        meta[SAME_TICK] += among
    for i in range(first, last):
        if fate[i - first] != GONE:
            arrive(policy, store, batch.stream[i], batch.key[i], find_key(store, batch.key[i]))
    before_tick(policy, store)
    number = first_number
    for i in range(first, last):
        stream = batch.stream[i]
        if fate[i - first] != GONE:
            if meta[WINDOW] == ROWS:
                clock[stream] += 1
            else:
                clock[stream] = store.clock[stream]
        if fate[i - first] == ADMITTED:
            entry = pin(policy, store, batch.key[i], find_key(store, batch.key[i]))
            let_in(policy, store, batch, out, i, clock[stream], entry, number)
            unpin(store)
        else:
            count_dropped(store, out, batch, i)
        if fate[i - first] != GONE:
            number += 1
    meta[STEPS] += 1
    return True


@jit
def _probe(policy, store, batch, out, i, counted):
    """Match an arrival with the buffer."""
    stream = batch.stream[i]
    arrival = store.meta[ARRIVALS]
    store.meta[ARRIVALS] += 1
    entry = find_key(store, batch.key[i])
    matches = store.k32[entry, COUNT + 1 - stream]
    if matches > 0:
        match_key(policy, store, entry, 1 - stream, arrival)
        store.meta[MATCHED] += matches
        if counted:
            store.meta[RESULTS] += matches
            out.counts[i] += matches
            if out.pairs.shape[0] > 0:
                emit(store, out, entry, stream, batch.row[i])


@jit
def _sides(batch, fate, first, last):
    """The arrivals of the tick that take part: left ones in order of their keys, right ones in order."""
    lefts = 0
    rights = 0
    for i in range(first, last):
        if fate[i - first] != GONE:
            if batch.stream[i] == 0:
                lefts += 1
            else:
                rights += 1
    left = np.empty(lefts, np.int64)
    right = np.empty(rights, np.int64)
    lefts = 0
    rights = 0
    for i in range(first, last):
        if fate[i - first] != GONE:
            if batch.stream[i] == 0:
                left[lefts] = i
                lefts += 1
            else:
                right[rights] = i
                rights += 1
    if lefts > 1:
        left = left[np.argsort(batch.key[left], kind="mergesort")]
    return left, right


@jit
def _pairs_among(batch, out, left, right, write):
    """How many pairs the arrivals of a tick form with each other; written out and credited if asked."""
    total = 0
    left_keys = batch.key[left]
    for i in right:
        low = np.searchsorted(left_keys, batch.key[i], side="left")
        high = np.searchsorted(left_keys, batch.key[i], side="right")
        total += high - low
        if write:
            out.counts[i] += high - low
            if out.pairs.shape[0] > 0:
                for j in range(low, high):
                    at = out.ends[PAIRS]
                    out.pairs[at, 0] = batch.row[left[j]]
                    out.pairs[at, 1] = batch.row[i]
                    out.ends[PAIRS] = at + 1
    return total
