"""How often keys occurred recently and overall, in fixed memory: one cache line per key.

Per stream a key has its arrivals at four time scales, each four times as long as the one before, as counts
that fade exponentially, the count since the beginning, and when it came last. Time is the number of arrivals
so far. One exponential brings a row up to date: the factor of a shorter scale is the fourth power of that of
the next.

A key is looked for in eight places. If none is free, the row whose key has come least on the longest scale
is replaced, unless it is pinned; if all are pinned, the newcomer is not noted.

A place says which row its key has, and a part of the key's hash, so that other keys' rows are not read. Rows
are taken one after the other: memory that no key has needed yet is never touched.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from penstock.compiler.jit import jit
from penstock.compiler.references import borrow
from penstock.structures.key_counts import count_more
from penstock.structures.tables import new_table

SCALES = 4
RATES = SCALES + 1  # per stream: the scales, and the time since the beginning
RATIO = 4.0
WAYS = 8
ROW_BYTES = 74
ROW_BITS = 33  # of a place, for its row + 1; the others are of the hash

# Columns of a row, 64 bits wide.
KEY = 0
LAST = 1  # + stream: the arrival with which it came last, 0 if never; a row without either is free

# Columns of a row, 32 bits wide.
FADING = 6  # + stream * SCALES: as of the later of the two
EVER = 14  # + stream

# Of `meta`.
CLOCK = 0
TAKEN = 1  # rows


class History(NamedTuple):
    """The rows, and when they are pinned."""

    place: np.ndarray  # row + 1 and a part of the hash; 0 if it is free
    word: np.ndarray
    part: np.ndarray  # the same as 32-bit floats
    pins: np.ndarray
    scale: np.ndarray  # the time scales, in arrivals, shortest first
    norm: np.ndarray  # by which counts are divided to be rates
    meta: np.ndarray

    def without_views(self) -> History:
        """The same without the array that is a view of another, to be stored."""
        return self._replace(part=self.part[:0])

    def with_views(self) -> History:
        """The counterpart."""
        return self._replace(part=self.word.view(np.float32))


History.widths = {"word": 8, "part": 16}  # type: ignore[attr-defined]
History.tables = ("part",)  # type: ignore[attr-defined]


def new_history(rows: int, shortest: float) -> History:
    """An empty history with so many rows, a power of two."""
    word = new_table((rows + WAYS, 8), np.int64)
    return History(
        place=new_table(rows + WAYS, np.int64, scattered=True),
        word=word,
        part=word.view(np.float32),
        pins=new_table(rows + WAYS, np.int16),
        scale=shortest * RATIO ** np.arange(SCALES),
        norm=np.ones(RATES),
        meta=np.zeros(2, np.int64),
    )


@jit
def tick(history):
    """One more arrival; counts of a stream that has just begun are over the time that it had."""
    history.meta[CLOCK] += 1
    now = np.float64(history.meta[CLOCK])
    if now > 64.0 and history.meta[CLOCK] % 64 != 0:
        history.norm[SCALES] = now
        return
    fading = math.exp(-now / history.scale[SCALES - 1])
    for i in range(SCALES - 1, -1, -1):
        history.norm[i] = max(1.0, history.scale[i] * (1.0 - fading))
        fading = fading * fading
        fading = fading * fading
    history.norm[SCALES] = now


@jit
def _mixed(key):
    mixed = np.uint64(key) * np.uint64(0x9E3779B97F4A7C15)
    return (mixed ^ (mixed >> np.uint64(29))) * np.uint64(0xBF58476D1CE4E5B9)


@jit
def _first(history, mixed):
    return np.int64((mixed >> np.uint64(32)) & np.uint64(history.place.shape[0] - WAYS - 1))


@jit
def _mark(mixed):
    """The part of a hash that a place has, where the bits of a row are 0."""
    return np.int64((mixed & np.uint64((1 << (63 - ROW_BITS)) - 1)) << np.uint64(ROW_BITS))


@jit
def _row_at(place):
    return (place & np.int64((1 << ROW_BITS) - 1)) - 1


@jit
def last_of(history, row):
    """The arrival with which the key of a row came last in either stream, 0 if the row is free."""
    return max(history.word[row, LAST], history.word[row, LAST + 1])


@jit
def faded(history, row):
    """By what the counts on the longest scale have faded since the key came last."""
    return math.exp(np.float64(last_of(history, row) - history.meta[CLOCK]) / history.scale[SCALES - 1])


@jit
def find_row(history, key):
    """The row of a key, -1 if it has none."""
    mixed = _mixed(key)
    first, mark = _first(history, mixed), _mark(mixed)
    for at in range(first, first + WAYS):
        row = _row_at(history.place[at])
        if row >= 0 and history.place[at] - row - 1 == mark and history.word[row, KEY] == key:
            return row
    return np.int64(-1)


@jit
def take_row(history, key):
    """The row of a key, its own or a new one; -1 if all it could have are pinned."""
    mixed = _mixed(key)
    first, mark, free = _first(history, mixed), _mark(mixed), -1
    for at in range(first, first + WAYS):
        row = _row_at(history.place[at])
        if row < 0:
            if free < 0:
                free = at
        elif history.place[at] - row - 1 == mark and history.word[row, KEY] == key:
            return row
    if free >= 0:
        row, history.meta[TAKEN] = history.meta[TAKEN], history.meta[TAKEN] + 1
        history.place[free] = mark + row + 1
    else:
        at = _lightest(history, first)
        if at < 0:
            return np.int64(-1)
        row = _row_at(history.place[at])
        history.place[at] = mark + row + 1
        history.word[row] = 0
    history.word[row, KEY] = key
    return row


@jit
def _lightest(history, first):
    """Of eight places that are all taken, the one whose key has come least; -1 if all are pinned."""
    best, least = -1, np.inf
    for at in range(first, first + WAYS):
        row = _row_at(history.place[at])
        if history.pins[row] == 0:
            heavy = np.float64(history.part[row, FADING + SCALES - 1])
            heavy += np.float64(history.part[row, FADING + 2 * SCALES - 1])
            heavy *= faded(history, row)
            if heavy < least:
                best, least = at, heavy
    return best


@jit
def note(history, row, stream):
    """An arrival of a stream with the key of this row."""
    part = history.part[row]
    fading = faded(history, row)
    for i in range(SCALES - 1, -1, -1):
        part[FADING + i] *= np.float32(fading)
        part[FADING + SCALES + i] *= np.float32(fading)
        fading = fading * fading
        fading = fading * fading
    mine = FADING + stream * SCALES
    for i in range(SCALES):
        part[mine + i] += np.float32(1.0)
    part[EVER + stream] += np.float32(1.0)
    history.word[row, LAST + stream] = history.meta[CLOCK]


@jit
def count_from_history(counts, history):
    """Count every key as often as it has come since the beginning."""
    _count(borrow(counts), borrow(history))


@jit
def _count(counts, history):
    for row in range(history.meta[TAKEN]):
        for stream in range(2):
            ever = np.int64(history.part[row, EVER + stream])
            if ever > 0:
                count_more(counts, stream, history.word[row, KEY], ever)
