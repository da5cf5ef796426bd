"""GreedyDual-Join as the paper writes it, O(buffer) per arrival, compiled: the reference of the table."""

from __future__ import annotations

import time

import numba
import numpy as np


@numba.njit(cache=True)
def naive_gdj(stream, key, capacity, initial, first):
    """Results of arrivals from `first` on; the buffers have been filled with those before it."""
    keys = np.zeros((2, capacity), np.int64)
    credits = np.zeros((2, capacity), np.int64)
    numbers = np.zeros((2, capacity), np.int64)
    used = np.zeros(2, np.int64)
    results = 0
    for i in range(key.shape[0]):
        s, k = stream[i], key[i]
        if i >= first:
            for j in range(used[1 - s]):
                if keys[1 - s, j] == k:
                    credits[1 - s, j] += 1
                    results += 1
        if used[s] < capacity:
            slot = used[s]
            used[s] += 1
        else:
            slot = 0
            for j in range(1, capacity):
                if credits[s, j] < credits[s, slot] or (
                    credits[s, j] == credits[s, slot] and numbers[s, j] < numbers[s, slot]
                ):
                    slot = j
        credit = 0
        if i >= first:
            rank = int(initial * (used[s] - 1))
            credit = np.partition(credits[s, : used[s]], rank)[rank]
        keys[s, slot], credits[s, slot], numbers[s, slot] = k, credit, i
    return results


def seconds_per_arrival(stream: np.ndarray, key: np.ndarray, buffer: int, measured: int) -> float:
    """The time of one arrival once the buffers of half the size each are full."""
    naive_gdj(stream[:10], key[:10], 4, 0.9, 0)
    full = int(1.2 * buffer)
    began = time.perf_counter()
    naive_gdj(stream[:full], key[:full], buffer // 2, 0.9, full)
    filling = time.perf_counter() - began
    began = time.perf_counter()
    naive_gdj(stream[: full + measured], key[: full + measured], buffer // 2, 0.9, full)
    return (time.perf_counter() - began - filling) / measured
