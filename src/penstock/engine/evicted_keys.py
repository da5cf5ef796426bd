"""A filter of keys that left early: when was a tuple of this key last evicted?

A cell holds the pane of time of the latest eviction that was noted in it. A key has `HASHES` cells, and the
earliest of what they hold is an upper bound of the key's latest eviction: the filter may say yes wrongly, but
never no. Old evictions age by themselves, so nothing is ever taken out.

Cost: O(1) per eviction and per question.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from penstock.compiler.jit import jit
from penstock.structures.tables import new_table

HASHES = 4
CELL = 4  # bytes
LEAST = 1 << 10  # cells
LAST = 2**31 - 2  # pane
PANES = 32  # per span of time that is asked for


class EvictedKeys(NamedTuple):
    """The cells, and how times become panes; pane 0 is an empty cell."""

    cells: np.ndarray
    pane: np.ndarray  # length of a pane; 0: there is one pane for all times
    origin: np.ndarray  # time at which pane 1 begins
    latest: np.ndarray  # time of the latest eviction, and of the latest one whose key was forgotten
    noted: np.ndarray  # evictions so far


def new_evicted_keys(size: int, span: float, time_dtype: np.dtype, beginning: float) -> EvictedKeys:
    """Return an empty filter of at most so many bytes for questions about the last `span` units of time.

    A span of 0 means that questions reach back to the beginning.
    """
    cells = 1 << (max(size // CELL, LEAST).bit_length() - 1)
    pane = span / PANES
    if np.dtype(time_dtype) == np.int64 and span:
        pane = max(1, int(pane))
    return EvictedKeys(
        cells=new_table(cells, np.int32),
        pane=np.array([pane], time_dtype),
        origin=np.zeros(1, time_dtype),
        latest=np.full(2, beginning, time_dtype),
        noted=np.zeros(1, np.int64),
    )


@jit
def _mixed(key):
    mixed = np.uint64(key) * np.uint64(0xD6E8FEB86659FD93)
    mixed = (mixed ^ (mixed >> np.uint64(32))) * np.uint64(0xD6E8FEB86659FD93)
    return mixed ^ (mixed >> np.uint64(32))


@jit
def _cell(keys, mixed, number):
    """The cell of a key under one of its hashes: double hashing with an odd step."""
    step = (mixed >> np.uint64(32)) | np.uint64(1)
    return np.int64((mixed + np.uint64(number) * step) & np.uint64(keys.cells.shape[0] - 1))


@jit
def _pane_of(keys, time):
    """The pane of a time, from 1 up; times before the origin are in the first."""
    pane = keys.pane[0]
    if pane == 0:
        return np.int64(1)
    ahead = (time - keys.origin[0]) // pane
    if ahead >= LAST:
        return np.int64(LAST)
    return np.int64(1) if ahead < 0 else np.int64(ahead) + 1


@jit
def note_evicted(keys, key, time):
    """Note that a tuple of a key with this time was evicted."""
    if keys.noted[0] == 0:
        keys.origin[0] = time
    keys.noted[0] += 1
    keys.latest[0] = max(keys.latest[0], time)
    pane, mixed = _pane_of(keys, time), _mixed(key)
    for number in range(HASHES):
        at = _cell(keys, mixed, number)
        keys.cells[at] = max(np.int64(keys.cells[at]), pane)


@jit
def maybe_evicted(keys, key, since):
    """Whether a tuple of a key with this time or a later one may have been evicted."""
    if keys.noted[0] == 0 or keys.latest[0] < since:
        return False
    if keys.latest[1] >= since:
        return True
    pane, mixed = _pane_of(keys, since), _mixed(key)
    for number in range(HASHES):
        held = np.int64(keys.cells[_cell(keys, mixed, number)])
        if held == 0 or held < pane:
            return False
    return True


def forget_keys(keys: EvictedKeys, before: EvictedKeys) -> None:
    """Go on from a filter of another size, whose keys are not known: any key may have been evicted."""
    if before.noted[0]:
        keys.noted[0] = before.noted[0]
        keys.origin[:] = before.origin
        keys.latest[:] = before.latest[0]
