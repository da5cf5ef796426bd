"""A filter of the keys that left early: whether a tuple may have lost a partner.

Tuples that were evicted, refused or dropped are entered with their key and time. Asked for a key and a span
of times, the filter may say yes wrongly, but it never says no wrongly. It is a Bloom filter by pane of time:
a key has `HASHES` places, and each place has a bit per pane. Panes are a share of the window; when tuples of
a pane can match no more, its bits are cleared. Tuples that are further ahead than there are panes, as they
are where one stream is ahead of the other, share one bit, whose span of times is kept.

Cost: O(1) per tuple that leaves early and per question; clearing goes through the places once per pane.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from penstock.compiler.jit import jit
from penstock.structures.tables import new_table

PANES = 15  # whose tuples may still match, and some that are ahead
PER_WINDOW = 13
AHEAD = PANES  # the bit of what is further ahead
HASHES = 7
LEAST = 32  # places of a stream
NOTHING = -(2**62)

# In `LostKeys.pane`, per stream.
BASE = 0  # the first pane whose tuples may still match
FIRST_AHEAD = 1  # the panes of what is further ahead
LAST_AHEAD = 2


class LostKeys(NamedTuple):
    """Per recorded stream the places with a bit per pane; which panes they are."""

    places: np.ndarray
    line: np.ndarray  # stream -> its line of places, -1 if nobody asks for its tuples
    pane: np.ndarray
    span: np.ndarray  # per stream, of a pane, in units of time


def new_lost_keys(
    bytes_: float, recorded: tuple[bool, bool], horizons: tuple[float, float], whole: bool, together: bool
) -> LostKeys:
    """A filter of at most so many bytes for the recorded streams.

    `whole` says that times are whole numbers, `together` that the streams advance in step.
    """
    lines = sum(recorded)
    width = max(LEAST, int(bytes_ // (2 * lines))) if lines else 0
    lengths = horizons if together else (max(horizons),) * 2
    span = [
        max(1.0, math.ceil((length + 1) / PER_WINDOW)) if whole else max(length / PER_WINDOW, 1e-9)
        for length in lengths
    ]
    pane = np.full((2, 3), NOTHING, np.int64)
    return LostKeys(
        places=new_table((lines, width), np.uint16),
        line=np.array([sum(recorded[:side]) if recorded[side] else -1 for side in (0, 1)], np.int64),
        pane=pane,
        span=np.array(span),
    )


def carry_lost(fresh: LostKeys, old: LostKeys) -> None:
    """Let a filter go on with what another one of the same window knows.

    If it has another size, it says yes to all that the other one may have had.
    """
    if fresh.places.shape == old.places.shape:
        fresh.places[:], fresh.pane[:] = old.places, old.pane
        return
    for stream, line in enumerate(old.line):
        base = old.pane[stream, BASE]
        if line < 0 or base == NOTHING:
            continue
        fresh.places[line] |= 1 << AHEAD
        fresh.pane[stream] = base, base, max(old.pane[stream, LAST_AHEAD], base + PANES - 1)


@jit
def note_lost(lost, stream, key, time, edge):
    """Enter a tuple that left early; tuples of its stream before `edge` can match no more."""
    line = lost.line[stream]
    if line < 0:
        return
    _clear(lost, stream, line, _pane(lost, stream, edge))
    pane, state = _pane(lost, stream, time), lost.pane[stream]
    if pane < state[BASE]:
        return
    bit = pane % PANES
    if pane >= state[BASE] + PANES:
        bit = np.int64(AHEAD)
        if state[LAST_AHEAD] == NOTHING:
            state[FIRST_AHEAD] = pane
        state[FIRST_AHEAD] = min(state[FIRST_AHEAD], pane)
        state[LAST_AHEAD] = max(state[LAST_AHEAD], pane)
    first, step = _hashes(key)
    width = np.uint64(lost.places.shape[1])
    mask = np.uint16(np.int64(1) << bit)
    for _ in range(HASHES):
        lost.places[line, np.int64((first * width) >> np.uint64(32))] |= mask
        first = (first + step) & np.uint64(0xFFFFFFFF)


@jit
def may_be_lost(lost, stream, key, low, high):
    """Whether a tuple of a stream with this key and a time from `low` to `high` may have left early.

    `low` is not before the edge that `note_lost` was told.
    """
    line = lost.line[stream]
    if line < 0:
        return False
    state = lost.pane[stream]
    if state[BASE] == NOTHING:
        return False
    bits = np.int64(0)
    first_pane = max(_pane(lost, stream, low), state[BASE])
    last_pane = _pane(lost, stream, high)
    for pane in range(first_pane, min(last_pane + 1, state[BASE] + PANES)):
        bits |= np.int64(1) << (pane % PANES)
    if state[LAST_AHEAD] != NOTHING and first_pane <= state[LAST_AHEAD] and last_pane >= state[FIRST_AHEAD]:
        bits |= np.int64(1) << AHEAD
    first, step = _hashes(key)
    width = np.uint64(lost.places.shape[1])
    for _ in range(HASHES):
        bits &= np.int64(lost.places[line, np.int64((first * width) >> np.uint64(32))])
        if bits == 0:
            return False
        first = (first + step) & np.uint64(0xFFFFFFFF)
    return True


@jit
def _pane(lost, stream, time):
    """The pane of a time. Later times are in no earlier pane, however they are rounded."""
    pane = np.floor(np.float64(time) / lost.span[stream])
    return np.int64(min(max(pane, -4e18), 4e18))


@jit
def _hashes(key):
    """Where the places of a key begin, and the step from one to the next."""
    mixed = np.uint64(key) ^ np.uint64(0x3C6EF372FE94F82B)
    mixed = (mixed ^ (mixed >> np.uint64(33))) * np.uint64(0xFF51AFD7ED558CCD)
    mixed = (mixed ^ (mixed >> np.uint64(33))) * np.uint64(0xC4CEB9FE1A85EC53)
    mixed = mixed ^ (mixed >> np.uint64(33))
    return mixed >> np.uint64(32), (mixed & np.uint64(0xFFFFFFFF)) | np.uint64(1)


@jit
def _clear(lost, stream, line, base):
    """Clear the panes before `base`."""
    state = lost.pane[stream]
    if state[BASE] == NOTHING:
        state[BASE] = base
    if base <= state[BASE]:
        return
    bits = np.int64(0)
    for pane in range(state[BASE], min(base, state[BASE] + PANES)):
        bits |= np.int64(1) << (pane % PANES)
    if state[LAST_AHEAD] != NOTHING and state[LAST_AHEAD] < base:
        bits |= np.int64(1) << AHEAD
        state[FIRST_AHEAD] = state[LAST_AHEAD] = NOTHING
    state[BASE] = base
    mask = np.uint16(np.int64(0xFFFF) ^ bits)
    for place in range(lost.places.shape[1]):
        lost.places[line, place] &= mask
