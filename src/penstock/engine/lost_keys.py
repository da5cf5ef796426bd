"""A filter of the keys that left early: whether a tuple may have lost a partner.

Tuples that were evicted, refused or dropped are entered with their key and time. Asked for a key and a span
of times, the filter may say yes wrongly, but it never says no wrongly. Time is cut into panes, a share of the
window, and each pane has a Bloom filter of its own, which is cleared when the tuples of the pane can match no
more. The more panes, the less is lost at the ends of a span, and the less memory each has: at a tenth of the
memory, a filter of fifteen panes is wrong two and a half times as often as one of seven. A window of a few
units of time has a pane for each. Tuples that are further ahead than there are panes, as they are where one
stream is ahead of the other, share a filter, whose span of times is kept.

Cost: O(1) per tuple that leaves early, O(panes) per question.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from penstock.compiler.jit import jit
from penstock.structures.tables import new_table

IN_STEP = (7, 6)  # panes, and how many there are to a window, if both streams have come equally far
APART = (8, 7)  # otherwise: some are ahead
BY_UNIT = (15, 13)  # in a window of at most this many units of time
HASHES = 5
LEAST = 64  # bytes of a stream
NOTHING = -(2**62)

# In `LostKeys.pane`, per stream.
BASE = 0  # the first pane whose tuples may still match
FIRST_AHEAD = 1  # the panes of what is further ahead
LAST_AHEAD = 2


class LostKeys(NamedTuple):
    """Per recorded stream a filter per pane, and one of what is further ahead; which panes they are."""

    panes: np.ndarray  # stream's line, pane -> bits
    ahead: np.ndarray  # stream's line -> bits
    line: np.ndarray  # stream -> its line, -1 if nobody asks for its tuples
    pane: np.ndarray
    span: np.ndarray  # per stream, of a pane, in units of time


def new_lost_keys(
    bytes_: float, recorded: tuple[bool, bool], horizons: tuple[float, float], whole: bool, together: bool
) -> LostKeys:
    """A filter of at most so many bytes for the recorded streams.

    `whole` says that times are whole numbers, `together` that the streams advance in step.
    """
    lines = sum(recorded)
    panes, per_window = IN_STEP if together else APART
    if whole and max(horizons) < BY_UNIT[1]:
        panes, per_window = BY_UNIT
    each = max(LEAST, int(bytes_ // lines)) if lines else 0
    width = (each - 8) // panes if together else each // (panes + 1)
    lengths = horizons if together else (max(horizons),) * 2
    span = [
        max(1.0, math.ceil((length + 1) / per_window)) if whole else max(length / (per_window - 0.1), 1e-9)
        for length in lengths
    ]
    return LostKeys(
        panes=new_table((lines, panes, width if lines else 0), np.uint8),
        ahead=new_table((lines, 8 if together else width), np.uint8),
        line=np.array([sum(recorded[:side]) if recorded[side] else -1 for side in (0, 1)], np.int64),
        pane=np.full((2, 3), NOTHING, np.int64),
        span=np.array(span),
    )


def carry_lost(fresh: LostKeys, old: LostKeys) -> None:
    """Let a filter go on with what another one of the same window knows.

    If it has another size, it says yes to all that the other one may have had.
    """
    if fresh.panes.shape == old.panes.shape:
        fresh.panes[:], fresh.ahead[:], fresh.pane[:] = old.panes, old.ahead, old.pane
        return
    for stream, line in enumerate(old.line):
        base = old.pane[stream, BASE]
        if line < 0 or base == NOTHING:
            continue
        fresh.ahead[line] = 255
        last = max(old.pane[stream, LAST_AHEAD], base + old.panes.shape[1] - 1)
        fresh.pane[stream] = base, base, last


@jit
def note_lost(lost, stream, key, time, edge):
    """Enter a tuple that left early; tuples of its stream before `edge` can match no more."""
    line = lost.line[stream]
    if line < 0:
        return
    _clear(lost, stream, line, _pane(lost, stream, edge))
    pane, state, panes = _pane(lost, stream, time), lost.pane[stream], lost.panes.shape[1]
    if pane < state[BASE]:
        return
    if pane < state[BASE] + panes:
        _set(lost.panes[line, pane % panes], key)
        return
    if state[LAST_AHEAD] == NOTHING:
        state[FIRST_AHEAD] = pane
    state[FIRST_AHEAD] = min(state[FIRST_AHEAD], pane)
    state[LAST_AHEAD] = max(state[LAST_AHEAD], pane)
    _set(lost.ahead[line], key)


@jit
def may_be_lost(lost, stream, key, low, high):
    """Whether a tuple of a stream with this key and a time from `low` to `high` may have left early.

    `low` is not before the edge that `note_lost` was told.
    """
    line = lost.line[stream]
    if line < 0:
        return False
    state, panes = lost.pane[stream], lost.panes.shape[1]
    if state[BASE] == NOTHING:
        return False
    first_pane = max(_pane(lost, stream, low), state[BASE])
    last_pane = _pane(lost, stream, high)
    for pane in range(first_pane, min(last_pane + 1, state[BASE] + panes)):
        if _has(lost.panes[line, pane % panes], key):
            return True
    if state[LAST_AHEAD] != NOTHING and first_pane <= state[LAST_AHEAD] and last_pane >= state[FIRST_AHEAD]:
        return _has(lost.ahead[line], key)
    return False


@jit
def _set(bits, key):
    """Enter a key into a filter."""
    first, step = _hashes(key)
    width = np.uint64(8 * bits.shape[0])
    for _ in range(HASHES):
        place = np.int64((first * width) >> np.uint64(32))
        bits[place >> 3] |= np.uint8(1 << (place & 7))
        first = (first + step) & np.uint64(0xFFFFFFFF)


@jit
def _has(bits, key):
    """Whether a filter may have a key."""
    first, step = _hashes(key)
    width = np.uint64(8 * bits.shape[0])
    for _ in range(HASHES):
        place = np.int64((first * width) >> np.uint64(32))
        if (np.int64(bits[place >> 3]) >> (place & 7)) & 1 == 0:
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
    state, panes = lost.pane[stream], lost.panes.shape[1]
    if state[BASE] == NOTHING:
        state[BASE] = base
    if base <= state[BASE]:
        return
    for pane in range(state[BASE], min(base, state[BASE] + panes)):
        _empty(lost.panes[line, pane % panes])
    if state[LAST_AHEAD] != NOTHING and state[LAST_AHEAD] < base:
        _empty(lost.ahead[line])
        state[FIRST_AHEAD] = state[LAST_AHEAD] = NOTHING
    state[BASE] = base


@jit
def _empty(bits):
    for place in range(bits.shape[0]):
        bits[place] = 0
