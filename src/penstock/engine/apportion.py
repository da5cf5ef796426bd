"""Divide a number of tuples in proportion to weights."""

from __future__ import annotations

import numpy as np

from penstock.compiler.jit import jit


@jit
def added_up(numbers):
    """The sum from the first to the last; NumPy's goes in blocks, and may differ in the last bit."""
    total = 0.0
    for number in numbers:
        total += number
    return total


@jit
def apportion(total, weights):
    """Shares of a total in proportion to weights by largest remainder, the first of equals; 1 at least."""
    shares = np.zeros(weights.shape[0], np.int64)
    rest = np.empty(weights.shape[0])
    whole = added_up(weights)
    for i in range(shares.shape[0]):
        quota = total * weights[i] / whole if whole > 0.0 else total / shares.shape[0]
        shares[i] = np.int64(np.floor(quota))
        rest[i] = quota - shares[i]
    while shares.sum() < total:
        most = np.argmax(rest)
        shares[most] += 1
        rest[most] -= 1.0
    for i in range(shares.shape[0]):
        if shares[i] == 0:
            shares[i] = 1
    while shares.sum() > total:
        shares[np.argmax(shares)] -= 1
    return shares
