"""The ages at which tuples match: curves from a whole trace or learnt online, and the best age to keep.

The curve p(k) of a stream is how many results its tuples produce between the ages k-1 and k; C(k) is its
sum up to k, and the best age to keep a tuple to is the k with the largest C(k)/k.
"""

from __future__ import annotations

import numpy as np

from penstock.compiler.jit import jit

BINS = 128


@jit
def best_age(curve, width):
    """The age with the largest C(k)/k, where curve[b] belongs to the ages up to (b+1) * width; 0 if none."""
    total, best, age = 0.0, 0.0, 0.0
    for b in range(curve.shape[0]):
        total += curve[b]
        k = (b + 1) * width
        if total / k > best:
            best, age = total / k, k
    return age


@jit
def age_bin(age, width, bins):
    """The bin of an age: ages in (b * width, (b + 1) * width] belong to bin b, 0 to the first."""
    b = np.int64(np.ceil(age / width)) - 1
    return min(max(b, 0), bins - 1)


@jit
def trace_ages(stream, key, time, keys, horizon, curve, width, best):
    """Walk all results of the exact join: add each to its stream's curve, and find each arrival's best age.

    `best` (per arrival) gets the age a with the largest number of results up to a, divided by a, no less
    than `width[s] / 1000` so that results at age 0 count; 0 for an arrival without results. O(results).
    """
    n = key.shape[0]
    # Positions of each key's arrivals in order.
    start = np.zeros(keys + 1, np.int64)
    for i in range(n):
        start[key[i] + 1] += 1
    for k in range(keys):
        start[k + 1] += start[k]
    order = np.empty(n, np.int64)
    fill = start[:-1].copy()
    for i in range(n):
        order[fill[key[i]]] = i
        fill[key[i]] += 1
    for k in range(keys):
        for a in range(start[k], start[k + 1]):
            i = order[a]
            s = stream[i]
            found, ratio = 0, 0.0
            for b in range(a + 1, start[k + 1]):
                j = order[b]
                age = time[j] - time[i]
                if age > horizon[s]:
                    break
                if stream[j] != s:
                    curve[s, age_bin(age, width[s], curve.shape[1])] += 1.0
                    found += 1
                    at = max(np.float64(age), width[s] / 1000.0)
                    if found / at > ratio:
                        ratio = found / at
                        best[i] = at
