"""How far the window around each event of a stream in order of time reaches."""

from __future__ import annotations

import numpy as np

from penstock.compiler.jit import jit


@jit
def window_ends(axis, width):
    """Per position the first position within the window before it, and the last within that after it."""
    size = len(axis)
    first, last = np.empty(size, np.int64), np.empty(size, np.int64)
    at = 0
    for position in range(size):
        while axis[position] - axis[at] > width:
            at += 1
        first[position] = at
    at = size - 1
    for position in range(size - 1, -1, -1):
        while axis[at] - axis[position] > width:
            at -= 1
        last[position] = at
    return first, last


@jit
def partition_window_ends(axis, starts, width):
    """The same where partitions stand one after the other: a window does not reach out of its own."""
    first, last = np.empty(len(axis), np.int64), np.empty(len(axis), np.int64)
    for part in range(len(starts) - 1):
        begin, end = starts[part], starts[part + 1]
        mine, theirs = window_ends(axis[begin:end], width)
        first[begin:end] = mine + begin
        last[begin:end] = theirs + begin
    return first, last
