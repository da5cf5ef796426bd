"""Credits of a buffer as a list of the distinct values, with a pointer that keeps a quantile.

Each node counts the tuples that have its credit. A match moves a tuple to the next value, which is the
neighbouring node or a new one beside it; the pointer follows by as many nodes as tuples have moved past
it. All operations are O(1), amortised for the quantile.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from penstock.kernels.jit import jit

FREE = 0
HIGH = 1
POINTER = 2
BELOW = 3  # tuples with a lower credit than the pointer's
TUPLES = 4
FIRST = 5


class Credits(NamedTuple):
    """Per pool the nodes of its list; node 0 is null."""

    value: np.ndarray
    count: np.ndarray
    after: np.ndarray
    before: np.ndarray
    meta: np.ndarray


def new_credits(capacities: tuple[int, ...]) -> Credits:
    """Empty lists for pools of at most so many tuples."""
    shape = (len(capacities), max(capacities) + 3)
    return Credits(
        value=np.zeros(shape, np.int64),
        count=np.zeros(shape, np.int32),
        after=np.zeros(shape, np.int32),
        before=np.zeros(shape, np.int32),
        meta=np.zeros((len(capacities), 6), np.int64),
    )


@jit
def credit_quantile(credits, pool, quantile):
    """The credit of rank floor(quantile * (n - 1)), 0 if the pool is empty."""
    meta = credits.meta[pool]
    if meta[TUPLES] == 0:
        return 0
    count, after, before = credits.count[pool], credits.after[pool], credits.before[pool]
    rank = np.int64(np.floor(quantile * (meta[TUPLES] - 1)))
    while meta[BELOW] > rank:
        meta[POINTER] = before[meta[POINTER]]
        meta[BELOW] -= count[meta[POINTER]]
    while meta[BELOW] + count[meta[POINTER]] <= rank:
        meta[BELOW] += count[meta[POINTER]]
        meta[POINTER] = after[meta[POINTER]]
    return credits.value[pool, meta[POINTER]]


@jit
def credit_add(credits, pool, value):
    """Count a tuple with this credit; its node. The search starts at the quantile, where newcomers enter."""
    meta = credits.meta[pool]
    values, after, before = credits.value[pool], credits.after[pool], credits.before[pool]
    node = meta[POINTER]
    if node == 0:
        node = _insert_after(credits, pool, 0, value)
        meta[POINTER] = node
        meta[BELOW] = 0
    else:
        while values[node] < value and after[node] != 0:
            node = after[node]
        while values[node] > value and before[node] != 0:
            node = before[node]
        if values[node] < value:
            node = _insert_after(credits, pool, node, value)
        elif values[node] > value:
            node = _insert_after(credits, pool, before[node], value)
    credits.count[pool, node] += 1
    meta[TUPLES] += 1
    if value < values[meta[POINTER]]:
        meta[BELOW] += 1
    return node


@jit
def credit_raise(credits, pool, node):
    """Move one tuple of a node to the next higher credit; its new node."""
    meta = credits.meta[pool]
    value = credits.value[pool, node] + 1
    above = credits.after[pool, node]
    if above == 0 or credits.value[pool, above] != value:
        if credits.count[pool, node] == 1:  # alone: the node moves up with it
            credits.value[pool, node] = value
            return node
        above = _insert_after(credits, pool, node, value)
    credits.count[pool, above] += 1
    credits.count[pool, node] -= 1
    pointed = credits.value[pool, meta[POINTER]]
    if value == pointed:
        meta[BELOW] -= 1
    if credits.count[pool, node] == 0:
        _remove(credits, pool, node)
    return above


@jit
def credit_drop(credits, pool, node):
    """Forget one tuple of a node."""
    meta = credits.meta[pool]
    credits.count[pool, node] -= 1
    meta[TUPLES] -= 1
    if credits.value[pool, node] < credits.value[pool, meta[POINTER]]:
        meta[BELOW] -= 1
    if credits.count[pool, node] == 0:
        _remove(credits, pool, node)


@jit
def _insert_after(credits, pool, node, value):
    """A new node behind another, or at the front for 0."""
    meta = credits.meta[pool]
    after, before = credits.after[pool], credits.before[pool]
    new = meta[FREE]
    if new != 0:
        meta[FREE] = after[new]
    else:
        meta[HIGH] += 1
        new = meta[HIGH]
    follower = after[node] if node != 0 else meta[FIRST]
    credits.value[pool, new] = value
    credits.count[pool, new] = 0
    before[new] = node
    after[new] = follower
    if node != 0:
        after[node] = new
    else:
        meta[FIRST] = new
    if follower != 0:
        before[follower] = new
    return new


@jit
def _remove(credits, pool, node):
    """Take out an empty node; the pointer moves off it first."""
    meta = credits.meta[pool]
    after, before = credits.after[pool], credits.before[pool]
    if meta[POINTER] == node:
        if after[node] != 0:
            meta[POINTER] = after[node]
        else:
            meta[POINTER] = before[node]
            meta[BELOW] -= credits.count[pool, before[node]]
            if before[node] == 0:
                meta[BELOW] = 0
    if before[node] != 0:
        after[before[node]] = after[node]
    else:
        meta[FIRST] = after[node]
    if after[node] != 0:
        before[after[node]] = before[node]
    after[node] = meta[FREE]
    meta[FREE] = node
