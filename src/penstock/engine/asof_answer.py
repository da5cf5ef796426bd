"""The answer of a left row in an as-of join, and whether it is final.

An answer is final once no right row can come any more that would be preferred. It is undecided if a row that
would be preferred may have been evicted.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from penstock.compiler.jit import jit
from penstock.engine.asof_index import (
    BACKWARD,
    DIRECTION,
    EXACT,
    FORWARD,
    RIGHT,
    first_of,
    later_than,
    passed,
    reached,
    within_reach,
)
from penstock.engine.evicted_keys import maybe_evicted
from penstock.engine.store import ROW, TIME

OPEN, MATCHED, UNMATCHED, UNDECIDED = 0, 1, 2, 3


class NewRow(NamedTuple):
    """A right row that has just come and is not in memory."""

    there: bool
    time: float
    row: np.int64


@jit
def neighbours(index, store, entry, time):
    """The last right row before a left row's time, the first one after it, and whether one may be missing.

    "Before" includes the time itself where such a row would be the best answer, and for `forward` without
    exact matches, where it is none.
    """
    meta = index.meta
    includes = (meta[DIRECTION] == FORWARD) != (meta[EXACT] != 0)
    before, doubtful = np.int64(0), False
    slot = first_of(index, store, entry, RIGHT) if entry != 0 else np.int64(0)
    while slot != 0:
        then = store.time[slot, TIME]
        if then > time or (then == time and not includes):
            break
        before = slot
        slot = later_than(index, store, slot)
    if before != 0:
        doubtful = index.doubt[before] != 0
    if meta[DIRECTION] != FORWARD:
        while slot != 0 and store.time[slot, TIME] == time:
            doubtful = doubtful or index.doubt[slot] != 0
            slot = later_than(index, store, slot)
    return before, slot, doubtful


@jit
def find_answer(index, store, entry, key, time, other):
    """The outcome for a left row of this key and time; the right row, its tuple (0: `other`), and when next
    to look if the outcome is open.
    """
    meta, tolerance = index.meta, index.tolerance[0]
    direction, exact = meta[DIRECTION], meta[EXACT] != 0
    before, after, doubtful = neighbours(index, store, entry, time)
    ahead, ahead_time, ahead_row = after != 0, time, np.int64(-1)
    if after != 0:
        ahead_time, ahead_row = store.time[after, TIME], store.t64[after, ROW]
    if other.there and (not ahead or other.time < ahead_time):
        ahead, ahead_time, ahead_row, after = True, other.time, other.row, np.int64(0)
    near = False
    if before != 0 and direction != FORWARD:
        near = time - store.time[before, TIME] <= tolerance
    next_known = ahead and reached(index, RIGHT, ahead_time)
    ahead = ahead and direction != BACKWARD and ahead_time - time <= tolerance
    # When is it final?
    due = time
    if direction == FORWARD:
        due = within_reach(index, time)
        final = next_known or passed(index, RIGHT, due)
    else:
        final = passed(index, RIGHT, time) if exact else reached(index, RIGHT, time)
        if direction != BACKWARD and final:
            due = within_reach(index, time)
            if near:
                due = time + (time - store.time[before, TIME])
            final = next_known or passed(index, RIGHT, due)
    if not final:
        return OPEN, np.int64(-1), np.int64(0), due
    # What is it?
    outcome, row, slot, distance = UNMATCHED, np.int64(-1), np.int64(0), tolerance
    if ahead and not (near and time - store.time[before, TIME] <= ahead_time - time):
        outcome, row, slot, distance = MATCHED, ahead_row, after, ahead_time - time
    elif near:
        outcome, row, slot = MATCHED, store.t64[before, ROW], before
    # Is it certain?
    if before == 0:
        since = time
        if direction != FORWARD:
            since = time - distance
        doubtful = maybe_evicted(index.evicted, key, since)
    if doubtful:
        return UNDECIDED, np.int64(-1), np.int64(0), due
    return outcome, row, slot, due


@jit
def nobody_new(time):
    """No right row besides those in memory."""
    return NewRow(False, time, np.int64(-1))
