"""Online least squares with forgetting: the weights of observations that best predict the outcome.

Sums of products are kept, the weights solved for now and then. What the examples leave open is decided by a
pull towards weights known beforehand, so that a fit is possible from the first example on.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from penstock.compiler.jit import jit


class Regression(NamedTuple):
    """One fit per stream."""

    products: np.ndarray  # stream, feature, feature
    outcome: np.ndarray  # stream, feature
    weight: np.ndarray  # stream, feature
    prior: np.ndarray  # stream, feature
    examples: np.ndarray  # per stream


def new_regression(prior: np.ndarray, streams: int = 2) -> Regression:
    """A fit without examples: its weights are those known beforehand."""
    n = len(prior)
    return Regression(
        products=np.zeros((streams, n, n)),
        outcome=np.zeros((streams, n)),
        weight=np.tile(prior, (streams, 1)),
        prior=np.tile(prior, (streams, 1)),
        examples=np.zeros(streams, np.int64),
    )


@jit
def learn(regression, stream, features, outcome, importance, keep):
    """Take an example in; all before it count `keep` times as much from now on."""
    products, sums = regression.products[stream], regression.outcome[stream]
    n = sums.shape[0]
    for i in range(n):
        given = importance * features[i]
        for j in range(i + 1):
            products[i, j] = keep * products[i, j] + given * features[j]
        sums[i] = keep * sums[i] + given * outcome
    regression.examples[stream] += 1


@jit
def solve(regression, stream, pull):
    """Set the weights to those that fit the examples, by Cholesky's decomposition. O(features^3).

    `pull` is the weight of what was known beforehand, relative to the examples' mean square of a feature
    that has been seen.
    """
    n = regression.outcome.shape[1]
    lower = np.zeros((n + 1, n))  # the last row is the right side: making arrays is slow to compile
    right = lower[n]
    mean, seen = 0.0, 0
    for i in range(n):
        if regression.products[stream, i, i] > 0.0:
            mean += regression.products[stream, i, i]
            seen += 1
    if seen == 0:
        return
    mean /= seen
    for i in range(n):
        ridge = pull * mean
        right[i] = regression.outcome[stream, i] + ridge * regression.prior[stream, i]
        for j in range(i + 1):
            found = regression.products[stream, i, j]
            if i == j:
                found += ridge
            for k in range(j):
                found -= lower[i, k] * lower[j, k]
            if i == j:
                lower[i, i] = math.sqrt(max(found, 1e-12 * mean))
            else:
                lower[i, j] = found / lower[j, j]
    for i in range(n):
        for k in range(i):
            right[i] -= lower[i, k] * right[k]
        right[i] /= lower[i, i]
    for i in range(n - 1, -1, -1):
        for k in range(i + 1, n):
            right[i] -= lower[k, i] * right[k]
        right[i] /= lower[i, i]
    for i in range(n):
        regression.weight[stream, i] = right[i]
