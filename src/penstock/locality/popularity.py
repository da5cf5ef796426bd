"""Popularity over long time scales: how often each key occurs, and how well Zipf's law describes it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from penstock.errors import PenstockError
from penstock.locality._keys import Keys, encode


@dataclass(frozen=True, eq=False)
class Popularity:
    """The popularity profile of a stream, most popular key first.

    Attributes
    ----------
    keys
        The keys by rank; equally frequent ones in order of first appearance.
    counts
        How often each occurs.
    slope, error
        `b` of the fitted law `frequency ~ rank**-b`, and its standard error. Not a number with fewer than
        two (three) ranks to fit.
    intercept
        Natural logarithm of the fitted count at rank 1.

    Examples
    --------
    >>> from penstock.locality import popularity
    >>> popularity("abracadabra").keys.tolist()
    ['a', 'b', 'r', 'c', 'd']
    """

    keys: Any
    counts: NDArray[np.int64]
    slope: float
    error: float
    intercept: float

    @property
    def frequencies(self) -> NDArray[np.float64]:
        """The share of the references that each key has."""
        return self.counts / self.counts.sum()

    def fitted(self, rank: ArrayLike) -> NDArray[np.float64]:
        """The count that the fitted law gives to a rank, counted from 1."""
        ranks = np.asarray(rank, dtype=np.float64)
        return np.exp(self.intercept - self.slope * np.log(ranks))

    def __repr__(self) -> str:
        return (
            f"Popularity({len(self.counts)} keys, {self.counts.sum()} references, "
            f"slope={self.slope:.3f} +/- {self.error:.3f})"
        )


def popularity(keys: Keys, *, min_count: int = 1) -> Popularity:
    """Count the keys, rank them by frequency, and fit Zipf's law by regression on a log-log scale.

    A slope near 0 means that all keys are alike; stock trades have about 0.71, web requests up to 1. The
    steeper the profile, the more a policy gains that keeps what is frequent.

    Parameters
    ----------
    keys
        The stream: a list, array, Series, Arrow array or other iterable of hashable keys.
    min_count
        Fit only ranks with at least this many references. The long tail of keys that occur once lies on a
        step rather than on a line, and in a short stream of many keys it outweighs the rest; 5 leaves it out.

    Examples
    --------
    >>> from penstock.locality import popularity
    >>> profile = popularity("aaaabbcd")
    >>> profile.counts.tolist(), profile.frequencies.tolist()
    ([4, 2, 1, 1], [0.5, 0.25, 0.125, 0.125])
    >>> profile
    Popularity(4 keys, 8 references, slope=1.081 +/- 0.159)

    References
    ----------
    Li et al., GreedyDual-Join (BUCS-TR-2004-028), section 2.1.
    """
    if isinstance(min_count, bool) or not isinstance(min_count, Integral) or min_count < 1:
        raise PenstockError(f"min_count={min_count!r} was given; a whole number of at least 1 is allowed.")
    coded = encode(keys)
    counts = np.bincount(coded.codes)
    order = np.argsort(-counts, kind="stable")
    counts = counts[order]
    used = int(np.count_nonzero(counts >= min_count))
    slope, error, intercept = _fit_line(np.log(np.arange(1, used + 1)), np.log(counts[:used]))
    return Popularity(coded.keys[order], counts, -slope, error, intercept)


def _fit_line(x: NDArray[np.float64], y: NDArray[np.float64]) -> tuple[float, float, float]:
    """Slope, its standard error, and intercept of the least-squares line."""
    if len(x) < 2:
        return math.nan, math.nan, math.nan
    centred = x - x.mean()
    spread = float(centred @ centred)
    slope = float(centred @ y) / spread
    intercept = float(y.mean() - slope * x.mean())
    residual = y - intercept - slope * x
    error = math.sqrt(float(residual @ residual) / (len(x) - 2) / spread) if len(x) > 2 else math.nan
    return slope, error, intercept
