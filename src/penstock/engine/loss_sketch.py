"""A sketch of lost tuples: it estimates how many results an arrival would have found among them.

Tuples that left are counted by key in a count sketch: a key has one counter and a sign, so that the keys that
share a counter cancel out on average and the sum over many arrivals is unbiased. Time is cut into panes, a
quarter of the window each, so that what has left the window leaves the count. The panes of a counter share a
cache line.

Tuples that expired are counted too, for arrivals that come late. Those in the pane that is still partly in
the window have a slot of their own, the fringe, until the whole pane has expired: arrivals in time must not
count them. What a pane held when its slot was needed for another is forgotten; an arrival that asks
for times that far back is counted as unestimated, for what it missed is not known. A guess is
made: what an arrival in time finds with its key, those included that came too late themselves; or, if that is
more, what there was of its key, or of an average one, in the fullest pane that has been forgotten. It is
meant to be too high rather than too low: who shows a recall has to know that it may not be far lower.

Cost: O(1) per tuple that leaves, O(panes) per arrival.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from penstock.compiler.jit import jit
from penstock.engine.hooks import lost

PANES = 11  # two and a half windows back from the newest tuple that is counted
FRINGE = PANES
TOO_LATE = PANES + 1  # a counter for arrivals that no pane is there for
PEAK = PANES + 2  # the highest count of a forgotten pane in which the counter stood out
COLUMNS = PANES + 3
PER_WINDOW = 4
EMPTY = -(2**62)
BYTES_PER_COUNTER = 2 * COLUMNS * 4
OUTSTANDING = 4.0  # standard deviations of the counters of a pane; the counters of rare keys are noise
BY_CHANCE = 2.0  # square roots of a count: that much of the highest of many counts may be chance
ENOUGH = 256.0  # tuples of which an average means something

# In `Sketch.missed`.
MISSED = 0
UNESTIMATED = 1
GUESSED = 2  # what the unestimated arrivals missed

# In `Sketch.extent`.
FIRST = 0
LAST = 1
ENTERED = 2

# In `Sketch.shared`.
MOST = 0
SQUARES = 1
TUPLES = 2


class Sketch(NamedTuple):
    """Per stream and counter: panes, fringe, what came too late, a peak; per stream which pane is where."""

    counters: np.ndarray
    pane: np.ndarray
    span: np.ndarray  # of a pane, in units of time, and the least difference of two times, 0 for fractions
    missed: np.ndarray  # results that arrivals would have found, and arrivals for which that is not known
    extent: np.ndarray  # per stream and pane the first and the last time of what is in it, and how many
    forgotten: np.ndarray  # per stream the last time that was counted once and is not any more
    # Per stream the most tuples that a tuple of forgotten panes shared its key with, on average; and of the
    # panes that are not enough for an average yet, the squares of the counts and the tuples.
    shared: np.ndarray


class Tally(NamedTuple):
    """What the driver of streams writes to: as `drive.Out`, and the sketch."""

    counts: np.ndarray
    pairs: np.ndarray
    log: np.ndarray
    ends: np.ndarray
    sketch: Sketch


def new_sketch(bytes_: int, horizons: tuple[float, float], whole: bool) -> Sketch:
    """A sketch of at most so many bytes, of none if there is no room for a counter.

    `whole` says that times are whole numbers.
    """
    width = max(0, bytes_ // BYTES_PER_COUNTER)
    longest = max(horizons)
    span = max(1.0, math.ceil((longest + 1) / PER_WINDOW)) if whole else max(longest / PER_WINDOW, 1e-9)
    return Sketch(
        counters=np.zeros((2, width, COLUMNS), np.int32),
        pane=np.full((2, PANES + 1), EMPTY, np.int64),
        span=np.array([span, 1.0 if whole else 0.0]),
        missed=np.zeros(3),
        extent=np.zeros((2, PANES + 1, 3)),
        forgotten=np.full(2, -np.inf),
        shared=np.zeros((2, 3)),
    )


def forget_all(sketch: Sketch, last: np.ndarray) -> None:
    """All that was counted up to these times, one per stream, is not known any more."""
    sketch.forgotten[:] = np.maximum(sketch.forgotten, last)


def last_counted(sketch: Sketch) -> np.ndarray:
    """Per stream the last time of anything that the sketch has ever counted."""
    known = np.where(sketch.pane == EMPTY, -np.inf, sketch.extent[:, :, LAST])
    return np.maximum(known.max(axis=1), sketch.forgotten)


@jit
def _mixed(key):
    mixed = np.uint64(key) ^ np.uint64(0x5851F42D4C957F2D)
    mixed = (mixed ^ (mixed >> np.uint64(33))) * np.uint64(0xFF51AFD7ED558CCD)
    mixed = (mixed ^ (mixed >> np.uint64(33))) * np.uint64(0xC4CEB9FE1A85EC53)
    return mixed ^ (mixed >> np.uint64(33))


@jit
def _counter(sketch, mixed):
    width = np.uint64(sketch.counters.shape[1])
    return np.int64(((mixed >> np.uint64(32)) * width) >> np.uint64(32))


@lost.on(Tally)
def _lost(out, store, stream, key, time):
    """Count a tuple that is gone."""
    count_gone(out.sketch, store, stream, key, time)


@jit
def count_gone(sketch, store, stream, key, time):
    """Count a tuple that is gone: evicted, refused or dropped, expired, or never admitted."""
    at = np.float64(time)
    pane = np.int64(np.floor(at / sketch.span[0]))
    expired = store.clock[stream] - time > store.horizon[stream]
    if expired and sketch.counters.shape[1] > 0:
        edge = np.float64(store.clock[stream]) - np.float64(store.horizon[stream])
        if pane >= np.int64(np.floor(edge / sketch.span[0])):
            if sketch.pane[stream, FRINGE] != pane:
                _fold(sketch, stream)
                _open(sketch, stream, FRINGE, pane)
            _enter(sketch, stream, FRINGE, key, at)
            return
    slot = pane % PANES
    if sketch.counters.shape[1] == 0 or sketch.pane[stream, slot] > pane:
        _forget(sketch, stream, at)
        if sketch.counters.shape[1] > 0:
            mixed = _mixed(key)
            sketch.counters[stream, _counter(sketch, mixed), TOO_LATE] += 1 if mixed & np.uint64(1) else -1
        return
    if sketch.pane[stream, slot] < pane:
        _open(sketch, stream, slot, pane)
    _enter(sketch, stream, slot, key, at)


@jit
def _forget(sketch, stream, time):
    sketch.forgotten[stream] = max(sketch.forgotten[stream], time)


@jit
def _open(sketch, stream, slot, pane):
    """Give a slot to another pane; what it held is forgotten, that of the fringe has been folded."""
    if slot != FRINGE and sketch.pane[stream, slot] != EMPTY:
        _forget(sketch, stream, sketch.extent[stream, slot, LAST])
        _note_peaks(sketch, stream, slot)
    for each in range(sketch.counters.shape[1]):
        sketch.counters[stream, each, slot] = 0
    sketch.pane[stream, slot] = pane
    sketch.extent[stream, slot, FIRST] = np.inf
    sketch.extent[stream, slot, LAST] = -np.inf
    sketch.extent[stream, slot, ENTERED] = 0.0


@jit
def _note_peaks(sketch, stream, slot):
    """Remember of a pane that is forgotten how full it was: on average, and where a key stood out.

    The squares of all counters add up to those of the counts of all keys, on average.
    """
    squares, entered = 0.0, sketch.extent[stream, slot, ENTERED]
    for each in range(sketch.counters.shape[1]):
        count = np.float64(sketch.counters[stream, each, slot])
        squares += count * count
    if entered <= 0.0:
        return
    shared = sketch.shared[stream]
    shared[SQUARES] += squares
    shared[TUPLES] += entered
    if shared[TUPLES] >= ENOUGH:
        shared[MOST] = max(shared[MOST], shared[SQUARES] / shared[TUPLES] - 1.0)
        shared[SQUARES] = shared[TUPLES] = 0.0
    least = OUTSTANDING * math.sqrt(squares / sketch.counters.shape[1])
    for each in range(sketch.counters.shape[1]):
        count = abs(sketch.counters[stream, each, slot])
        if count > least and count > sketch.counters[stream, each, PEAK]:
            sketch.counters[stream, each, PEAK] = count


@jit
def _enter(sketch, stream, slot, key, time):
    mixed = _mixed(key)
    sketch.counters[stream, _counter(sketch, mixed), slot] += 1 if mixed & np.uint64(1) else -1
    sketch.extent[stream, slot, FIRST] = min(sketch.extent[stream, slot, FIRST], time)
    sketch.extent[stream, slot, LAST] = max(sketch.extent[stream, slot, LAST], time)
    sketch.extent[stream, slot, ENTERED] += 1.0


@jit
def _fold(sketch, stream):
    """Add the fringe to its pane, all of which has expired."""
    pane = sketch.pane[stream, FRINGE]
    if pane == EMPTY:
        return
    slot = pane % PANES
    if sketch.pane[stream, slot] > pane:
        _forget(sketch, stream, sketch.extent[stream, FRINGE, LAST])
        return
    if sketch.pane[stream, slot] < pane:
        _open(sketch, stream, slot, pane)
    for each in range(sketch.counters.shape[1]):
        sketch.counters[stream, each, slot] += sketch.counters[stream, each, FRINGE]
    first, last = sketch.extent[stream, FRINGE, FIRST], sketch.extent[stream, FRINGE, LAST]
    sketch.extent[stream, slot, FIRST] = min(sketch.extent[stream, slot, FIRST], first)
    sketch.extent[stream, slot, LAST] = max(sketch.extent[stream, slot, LAST], last)
    sketch.extent[stream, slot, ENTERED] += sketch.extent[stream, FRINGE, ENTERED]


@jit
def count_missed(sketch, stream, key, low, high):
    """Add up how many tuples of a stream with this key that are gone have times from `low` to `high`.

    Returns how many, and whether that is known.
    """
    found, known = gone_between(sketch, stream, key, low, high)
    sketch.missed[MISSED] += found
    if not known:
        sketch.missed[UNESTIMATED] += 1.0
    return found, known


@jit
def guess_missed(sketch, stream, key, low, high, others):
    """Guess what an arrival missed that came too late for the sketch to know.

    An arrival in time finds what is gone from `low` to `high`, and `others`. It may also have met arrivals
    that came too late themselves. At its own time there may have been more: as much as ever was in a pane.
    """
    found, _ = gone_between(sketch, stream, key, low, high)
    peak = 0.0
    if sketch.counters.shape[1] > 0:
        mixed = _mixed(key)
        counter = _counter(sketch, mixed)
        late = sketch.counters[stream, counter, TOO_LATE]
        found += late if mixed & np.uint64(1) else -late
        peak = np.float64(sketch.counters[stream, counter, PEAK])
        peak = max(peak - BY_CHANCE * math.sqrt(peak), sketch.shared[stream, MOST])
    panes = (np.float64(high) - np.float64(low)) / sketch.span[0] + 1.0
    sketch.missed[GUESSED] += max(found + others, peak * panes)


@jit
def gone_between(sketch, stream, key, low, high):
    """How many tuples with this key and times from `low` to `high` are gone, and whether that is known."""
    first, last, grain = np.float64(low), np.float64(high), sketch.span[1]
    known, found = first > sketch.forgotten[stream], 0.0
    if sketch.counters.shape[1] == 0:
        return found, known
    mixed = _mixed(key)
    counter = _counter(sketch, mixed)
    for slot in range(PANES + 1):
        if sketch.pane[stream, slot] == EMPTY:
            continue
        begin, end = sketch.extent[stream, slot, FIRST], sketch.extent[stream, slot, LAST]
        if end < first or begin > last:
            continue
        whole = end - begin + grain
        covered = min(end, last) - max(begin, first) + grain
        if covered >= whole:
            found += sketch.counters[stream, counter, slot]
        elif covered > 0.0:
            found += sketch.counters[stream, counter, slot] * (covered / whole)
        else:
            known = False  # a single moment of many: fractions of a pane say nothing
    return (found if mixed & np.uint64(1) else -found), known
