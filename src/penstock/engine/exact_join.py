"""The results of the exact join, arrival by arrival: what unlimited memory would give."""

from __future__ import annotations

import numpy as np

from penstock.compiler.jit import jit
from penstock.engine.store import LANDMARK, ROWS


def exact_counts(
    stream: np.ndarray,
    key: np.ndarray,
    time: np.ndarray,
    keys: int,
    window: int,
    horizon: np.ndarray,
    ticks: bool,
) -> np.ndarray:
    """Results each arrival completes in the exact join; keys are codes below `keys`. O(n).

    With `ticks`, arrivals of one time are one step: they match what was there before them and each other.
    """
    n = len(key)
    counts = np.zeros(n, np.int64)
    # Made here, since a kernel that makes arrays takes half as long again to compile.
    live = np.zeros((keys, 3), np.int64)
    order = np.empty((2, n), np.int64)
    _count_exact(stream, key, time, counts, live, order, np.zeros((2, 2), np.int64), window, horizon, ticks)
    return counts


@jit
def _count_exact(stream, key, time, counts, live, order, ends, window, horizon, ticks):
    """Write the results of each arrival to `counts`.

    `live` has, per key, the tuples of each stream and the left arrivals of the present step; `order` has the
    arrivals of each stream, and `ends` how many of them have expired and how many have been seen.
    """
    among = live[:, 2]
    expired, seen = ends[0], ends[1]
    n = key.shape[0]
    first = 0
    while first < n:
        last = first + 1
        while ticks and last < n and time[last] == time[first]:
            last += 1
        for i in range(first, last):
            order[stream[i], seen[stream[i]]] = i
            seen[stream[i]] += 1
        for s in range(2):
            while expired[s] < seen[s]:
                oldest = order[s, expired[s]]
                if oldest >= first:
                    break
                if window == ROWS:
                    alive = seen[s] - 1 - expired[s] <= horizon[s]
                elif window == LANDMARK:
                    alive = time[first] // horizon[s] <= time[oldest] // horizon[s]
                else:
                    alive = time[first] - time[oldest] <= horizon[s]
                if alive:
                    break
                live[key[oldest], s] -= 1
                expired[s] += 1
        for i in range(first, last):
            counts[i] = live[key[i], 1 - stream[i]]
            if stream[i] == 0:
                among[key[i]] += 1
            elif ticks:
                counts[i] += among[key[i]]
        for i in range(first, last):
            live[key[i], stream[i]] += 1
            among[key[i]] = 0
        first = last
