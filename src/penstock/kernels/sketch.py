"""A sketch of what is gone: how many results an arrival would have found among the tuples that were lost.

Lost tuples are counted by key in a count sketch: a key has one counter and a sign, so that the keys that
share a counter cancel out on average and the sum over many arrivals is unbiased. Time is cut into panes, a
quarter of the window each, so that what has left the window leaves the count. The panes of a counter share a
cache line.

Cost: O(1) per lost tuple, O(panes) per arrival.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from penstock.kernels.hooks import lost
from penstock.kernels.jit import jit

PANES = 8
PER_WINDOW = 4
EMPTY = -(2**62)
BYTES_PER_COUNTER = 2 * PANES * 4


class Sketch(NamedTuple):
    """Per stream and counter the panes, and per stream which pane is where."""

    counters: np.ndarray
    pane: np.ndarray
    span: np.ndarray  # of a pane, in units of time
    missed: np.ndarray  # results that arrivals would have found so far


class Tally(NamedTuple):
    """What the driver of streams writes to: as `drive.Out`, and the sketch."""

    counts: np.ndarray
    pairs: np.ndarray
    log: np.ndarray
    ends: np.ndarray
    sketch: Sketch


def new_sketch(bytes_: int, horizons: tuple[float, float]) -> Sketch:
    """A sketch of at most so many bytes; of none if there is no room for a single counter."""
    width = bytes_ // BYTES_PER_COUNTER
    width = 1 << (width.bit_length() - 1) if width > 0 else 0
    return Sketch(
        counters=np.zeros((2, width, PANES), np.int32),
        pane=np.full((2, PANES), EMPTY, np.int64),
        span=np.array([max(max(horizons) / PER_WINDOW, 1e-9)]),
        missed=np.zeros(1),
    )


@jit
def _mixed(key):
    mixed = np.uint64(key) ^ np.uint64(0x5851F42D4C957F2D)
    mixed = (mixed ^ (mixed >> np.uint64(33))) * np.uint64(0xFF51AFD7ED558CCD)
    mixed = (mixed ^ (mixed >> np.uint64(33))) * np.uint64(0xC4CEB9FE1A85EC53)
    return mixed ^ (mixed >> np.uint64(33))


@lost.on(Tally)
def _lost(out, store, stream, key, time):
    """Count a tuple that is gone."""
    sketch = out.sketch
    width = sketch.counters.shape[1]
    if width == 0:
        return
    pane = np.int64(np.floor(time / sketch.span[0]))
    at = pane % PANES
    if sketch.pane[stream, at] != pane:
        if sketch.pane[stream, at] > pane:
            return  # older than anything that can still be asked for
        for each in range(width):
            sketch.counters[stream, each, at] = 0
        sketch.pane[stream, at] = pane
    mixed = _mixed(key)
    counter = np.int64((mixed >> np.uint64(1)) & np.uint64(width - 1))
    sketch.counters[stream, counter, at] += 1 if mixed & np.uint64(1) else -1


@jit
def count_missed(sketch, stream, key, low, high):
    """Add up how many lost tuples of a stream with this key have times from `low` to `high`."""
    width = sketch.counters.shape[1]
    if width == 0:
        return
    span = sketch.span[0]
    mixed = _mixed(key)
    counter = np.int64((mixed >> np.uint64(1)) & np.uint64(width - 1))
    found = 0.0
    for pane in range(PANES):
        begin = sketch.pane[stream, pane] * span
        covered = min(begin + span, np.float64(high)) - max(begin, np.float64(low))
        if covered > 0.0:
            found += sketch.counters[stream, counter, pane] * min(1.0, covered / span)
    sketch.missed[0] += found if mixed & np.uint64(1) else -found
