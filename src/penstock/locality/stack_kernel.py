"""LRU stack distances (Mattson et al. 1970)."""

from __future__ import annotations

import numpy as np

from penstock.compiler.jit import jit


@jit
def stack_distances(codes, distinct):
    """Per reference how many other keys were referred to since the last one to its key, -1 for the first.

    A Fenwick tree marks the last reference to each key; a distance is the number of marks in between.
    O(n log n).
    """
    n = len(codes)
    tree = np.zeros(n + 1, np.int64)
    last = np.full(distinct, -1, np.int64)
    distances = np.empty(n, np.int64)
    seen = 0
    for i in range(n):
        before = last[codes[i]]
        last[codes[i]] = i
        if before < 0:
            distances[i] = -1
            seen += 1
        else:
            older = 0
            node = before + 1
            while node > 0:
                older += tree[node]
                node -= node & -node
            distances[i] = seen - older
            node = before + 1
            while node <= n:
                tree[node] -= 1
                node += node & -node
        node = i + 1
        while node <= n:
            tree[node] += 1
            node += node & -node
    return distances
