"""The results of the exact join, arrival by arrival: what unlimited memory would give."""

from __future__ import annotations

import numpy as np

from penstock.compiler.jit import jit
from penstock.engine.store import LANDMARK, ROWS


@jit
def exact_counts(stream, key, time, keys, window, horizon, ticks):
    """Results each arrival completes in the exact join; keys are codes below `keys`. O(n).

    With `ticks`, arrivals of one time are one step: they match what was there before them and each other.
    """
    n = key.shape[0]
    counts = np.zeros(n, np.int64)
    live = np.zeros((keys, 2), np.int64)
    among = np.zeros(keys, np.int64)  # left arrivals of the present step
    order = np.empty((2, n), np.int64)  # the arrivals of each stream; the first `gone` have expired
    seen = np.zeros(2, np.int64)
    gone = np.zeros(2, np.int64)
    first = 0
    while first < n:
        last = first + 1
        while ticks and last < n and time[last] == time[first]:
            last += 1
        for i in range(first, last):
            order[stream[i], seen[stream[i]]] = i
            seen[stream[i]] += 1
        for s in range(2):
            while gone[s] < seen[s]:
                oldest = order[s, gone[s]]
                if oldest >= first:
                    break
                if window == ROWS:
                    alive = seen[s] - 1 - gone[s] <= horizon[s]
                elif window == LANDMARK:
                    alive = time[first] // horizon[s] <= time[oldest] // horizon[s]
                else:
                    alive = time[first] - time[oldest] <= horizon[s]
                if alive:
                    break
                live[key[oldest], s] -= 1
                gone[s] += 1
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
    return counts
