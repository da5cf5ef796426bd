"""What is known of sequences without building any: how many there are, and where the latest begins."""

from __future__ import annotations

import numpy as np

from penstock.compiler.jit import jit


@jit
def count_keyed(first_in, fills, key_order, key_starts, slots, count_from):
    """Sequences of one event per slot, in order and of one key, that end at or after a position.

    `key_order` has the positions group by group. `counts[i, j]` are the sequences of slots i to j within the
    window. An event at its right end prolongs what ends before it; one that leaves on the left removes
    what begins with it. That is all: no match is built, and an event costs the square of the number of slots,
    however many match.
    """
    total = 0
    counts = np.zeros((slots, slots), np.int64)
    for group in range(len(key_starts) - 1):
        begin, end = key_starts[group], key_starts[group + 1]
        counts[:] = 0
        head = begin
        for at in range(begin, end):
            right = key_order[at]
            while head < at and key_order[head] < first_in[right]:
                left = fills[key_order[head]]
                for i in range(slots - 1, -1, -1):
                    if left >> i & 1:
                        for j in range(slots - 1, i, -1):
                            counts[i, j] -= counts[i + 1, j]
                        counts[i, i] -= 1
                head += 1
            came = fills[right]
            for j in range(slots - 1, -1, -1):
                if came >> j & 1:
                    if j == slots - 1 and right >= count_from:
                        total += 1 if j == 0 else counts[0, j - 1]
                    for i in range(j):
                        counts[i, j] += counts[i, j - 1]
                    counts[j, j] += 1
    return total


@jit
def latest_chain(fills, slots):
    """Per position the latest start of a sequence of the slots that ends at or before it, -1 if none."""
    best = np.full(slots, -1, np.int64)
    latest = np.empty(len(fills), np.int64)
    now = -1
    for position in range(len(fills)):
        fill = fills[position]
        for j in range(slots - 1, -1, -1):
            if fill >> j & 1:
                start = position if j == 0 else best[j - 1]
                if start > best[j]:
                    best[j] = start
                if j == slots - 1 and start > now:
                    now = start
        latest[position] = now
    return latest
