"""A histogram of the credits of a pool around a quantile that is requested repeatedly.

The histogram has a bin per credit over a stretch that contains the quantile; credits outside are only
known to be below or above it. A pointer keeps the quantile's bin and how many credits are below it, and
follows it bin by bin. When it would leave the stretch, the histogram is laid out anew around it from all
credits, which are those in the cells plus the uses of their keys.

Cost: O(1) to add, move or remove a credit, amortised O(1) to ask for the quantile.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from penstock.compiler.jit import jit
from penstock.engine.store import COUNT, HIGH_KEY, HIGH_TUPLE, STREAM, USE
from penstock.engine.tuple_cells import BLOCK, SLOT

ORIGIN = 0  # the credit of the first bin
POINTER = 1  # the quantile's bin
BELOW = 2  # credits below it
TOTAL = 3
CREDIT = 1  # column of a cell: the credit of its tuple less the uses of its key


class Histogram(NamedTuple):
    """Per pool the bins, and origin, pointer, below and total."""

    bins: np.ndarray
    meta: np.ndarray


def new_histogram(capacities: tuple[int, ...]) -> Histogram:
    """Empty histograms, wider for larger pools."""
    width = min(max(1 << (4 * max(capacities)).bit_length(), 64), 1 << 16)
    pools = len(capacities)
    return Histogram(np.zeros((pools, width), np.int32), np.zeros((pools, 4), np.int64))


@jit
def quantile(histogram, cells, store, pool, share, newcomer):
    """The credit of rank floor(share * (n - 1)), 0 if the pool is empty.

    `newcomer` is a tuple that has a cell already but is not counted yet.
    """
    bins, meta = histogram.bins[pool], histogram.meta[pool]
    if meta[TOTAL] == 0:
        return 0
    rank = np.int64(np.floor(share * (meta[TOTAL] - 1)))
    at, below = meta[POINTER], meta[BELOW]
    while below > rank and at > 0:
        at -= 1
        below -= bins[at]
    while at < bins.shape[0] and below + bins[at] <= rank:
        below += bins[at]
        at += 1
    if below > rank or at == bins.shape[0]:
        _lay_out(histogram, cells, store, pool, rank, newcomer)
    else:
        meta[POINTER], meta[BELOW] = at, below
    return meta[ORIGIN] + meta[POINTER]


@jit
def add_credit(histogram, pool, credit):
    """Count a tuple that has entered."""
    bins, meta = histogram.bins[pool], histogram.meta[pool]
    if meta[TOTAL] == 0:
        meta[POINTER], meta[BELOW] = bins.shape[0] // 4, 0
        meta[ORIGIN] = credit - meta[POINTER]
    at = credit - meta[ORIGIN]
    if 0 <= at < bins.shape[0]:
        bins[at] += 1
    if at < meta[POINTER]:
        meta[BELOW] += 1
    meta[TOTAL] += 1


@jit
def drop_credit(histogram, pool, credit):
    """Forget a tuple that leaves."""
    bins, meta = histogram.bins[pool], histogram.meta[pool]
    at = credit - meta[ORIGIN]
    if 0 <= at < bins.shape[0]:
        bins[at] -= 1
    if at < meta[POINTER]:
        meta[BELOW] -= 1
    meta[TOTAL] -= 1


@jit
def raise_credits(histogram, pool, cells, block, length, uses):
    """Move all tuples of a block, whose key had so many uses, to the next credit.

    Neighbours often have one credit, above all in a large block: its key's credit is the quantile then, with
    which tuples enter. They are counted first and moved together.
    """
    bins, meta, words = histogram.bins[pool], histogram.meta[pool], cells.words
    last = bins.shape[0] - 1
    shift, pointer, below = uses - meta[ORIGIN], meta[POINTER], meta[BELOW]
    cell, after = np.int64(block), np.int64(block) + length
    while cell < after:
        credit, number = words[cell, CREDIT], 1
        cell += 1
        while cell < after and words[cell, CREDIT] == credit:
            number += 1
            cell += 1
        at = credit + shift
        if 0 <= at < last:
            bins[at] -= number
            bins[at + 1] += number
        elif at == last:
            bins[at] -= number
        elif at == -1:
            bins[0] += number
        if at + 1 == pointer:
            below -= number
    meta[BELOW] = below


@jit
def _lay_out(histogram, cells, store, pool, rank, newcomer):
    """Lay the bins out anew around the credit of a rank."""
    bins, meta = histogram.bins[pool], histogram.meta[pool]
    credits = np.empty(meta[TOTAL], np.int64)
    found = 0
    for entry in range(1, max(store.meta[HIGH_KEY], store.meta[HIGH_TUPLE]) + 1):
        for side in range(2):
            block = store.k32[entry, BLOCK + side]
            for cell in range(block, block + store.k32[entry, COUNT + side]):
                slot = cells.words[cell, SLOT]
                if slot != newcomer and store.pool_of[store.t32[slot, STREAM]] == pool:
                    credits[found] = cells.words[cell, CREDIT] + store.k64[entry, USE + side]
                    found += 1
    middle = _ranked(credits, found, rank)
    meta[POINTER] = bins.shape[0] // 4
    meta[ORIGIN] = middle - meta[POINTER]
    meta[BELOW] = 0
    bins[:] = 0
    for i in range(found):
        at = credits[i] - meta[ORIGIN]
        if 0 <= at < bins.shape[0]:
            bins[at] += 1
        if at < meta[POINTER]:
            meta[BELOW] += 1


@jit
def _ranked(credits, length, rank):
    """The credit with this many before it: the lowest that more than `rank` do not exceed, by bisection."""
    low, high = credits[0], credits[0]
    for i in range(length):
        low, high = min(low, credits[i]), max(high, credits[i])
    while low < high:
        middle = low + (high - low) // 2
        within = 0
        for i in range(length):
            if credits[i] <= middle:
                within += 1
        if within > rank:
            high = middle
        else:
            low = middle + 1
    return low
