"""Move buffered tuples to another policy: they enter again in order, with their earlier matches.

What the new policy has not seen is told from the history: when each key came last in the other stream, and
about how often lately, up to `MOST` times.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from penstock.compiler.driver import driver
from penstock.compiler.jit import jit
from penstock.compiler.references import borrow
from penstock.engine import arrival_ring
from penstock.engine.hooks import before_tick, enter, match_key, match_one
from penstock.engine.pair_join import pin, unpin
from penstock.engine.score_queue import file_newcomer
from penstock.engine.store import COUNT, HEAD, NEXT, NUMBER, find_key, link, take_tuple
from penstock.structures.key_history import CLOCK, FADING, LAST, RATIO, SCALES, faded, find_row

MOST = 8  # matches that a policy is told of
LATELY = 2  # the time scale on which they count

SAME = 0  # how arrivals match: all tuples of a key alike
APART = 1  # or each by itself


class CarriedTuples(NamedTuple):
    """Tuples in order of arrival."""

    stream: np.ndarray
    key: np.ndarray
    time: np.ndarray
    row: np.ndarray
    size: np.ndarray
    arrival: np.ndarray


@driver
def last_matches(history, carried, newest):
    """Per tuple: the arrival that matched its key last, -1 if none since it came, and how often lately."""
    n = carried.key.shape[0]
    found = np.empty((n, 2), np.int64)
    for i in range(n):
        found[i, 0], found[i, 1] = -1, 0
        row, other = find_row(history, carried.key[i]), 1 - np.int64(carried.stream[i])
        if row >= 0 and history.word[row, LAST + other] > 0:
            ago = history.meta[CLOCK] - history.word[row, LAST + other]
            arrival = newest - ago
            if arrival > carried.arrival[i]:
                fading = faded(history, row) ** (RATIO ** (SCALES - 1 - LATELY))
                often = np.float64(history.part[row, FADING + other * SCALES + LATELY]) * fading
                found[i, 0] = arrival
                found[i, 1] = min(MOST, max(1, np.int64(np.rint(often))))
    return found


@driver
def reenter(policy, store, carried, events, matches, ticks, way):
    """Let the tuples enter and their keys be matched, in the order of events: n + i is a match of tuple i."""
    _reenter(borrow(policy), borrow(store), borrow(carried), events, matches, ticks, way)


@jit
def _reenter(policy, store, carried, events, matches, ticks, way):
    n = carried.key.shape[0]
    for event in events:
        if event < n:
            _settle(policy, store, carried, event, ticks)
        else:
            i = event - n
            entry, stream = find_key(store, carried.key[i]), np.int64(carried.stream[i])
            if store.k32[entry, COUNT + stream] > 0:
                for _ in range(matches[i, 1]):
                    if way == SAME:
                        match_key(policy, store, entry, stream, matches[i, 0])
                    else:
                        _match_each(policy, store, entry, stream, matches[i, 0])


@jit
def _match_each(policy, store, entry, stream, arrival):
    slot = store.k32[entry, HEAD + stream]
    while slot != 0:
        match_one(policy, store, slot, arrival)
        slot = store.t32[slot, NEXT]


@jit
def _settle(policy, store, carried, i, ticks):
    stream, key, arrival = np.int64(carried.stream[i]), carried.key[i], carried.arrival[i]
    if ticks:
        before_tick(policy, store)
    entry = pin(policy, store, key, find_key(store, key))
    store.entering[0] = carried.time[i]
    store.meta[NUMBER] = arrival
    slot = take_tuple(store, stream, stream, carried.row[i], carried.time[i], carried.size[i], arrival)
    link(store, slot, entry)
    arrival_ring.append(store, stream, slot)
    enter(policy, store, slot)
    unpin(store)


@jit
def refile(queue, store, streams, times, slots):
    """File tuples in the queue by which streams out of step expire."""
    _refile(borrow(queue), borrow(store), streams, times, slots)


@jit
def _refile(queue, store, streams, times, slots):
    for i in range(slots.shape[0]):
        file_newcomer(queue, store, np.int64(streams[i]), slots[i], np.float64(times[i]))
