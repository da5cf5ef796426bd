"""Streams of independent references with Zipf popularity: the simplest and fastest workload."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from penstock.arguments import draws
from penstock.workloads import _check
from penstock.workloads._draw import Correlation, Seed, draw_ranks, is_inverse, ranks_to_keys


class StreamPair(NamedTuple):
    """Two streams to join, each a data frame sorted by its column `ts`.

    >>> from penstock.workloads import zipf_pair
    >>> left, right = zipf_pair(100)
    >>> len(left), list(right.columns)
    (100, ['key', 'ts'])
    """

    left: pd.DataFrame
    right: pd.DataFrame


def zipf_probabilities(keys: int, alpha: float = 0.75) -> NDArray[np.float64]:
    """The Zipf law: how probable the value of each rank is, `P(r) ~ r**-alpha` for r = 1 to `keys`.

    Parameters
    ----------
    keys
        Number of values in the domain.
    alpha
        Skew; 0 makes all values equally likely.

    Examples
    --------
    >>> from penstock.workloads import zipf_probabilities
    >>> zipf_probabilities(4, alpha=1.0).round(2).tolist()
    [0.48, 0.24, 0.16, 0.12]

    References
    ----------
    Li et al., GreedyDual-Join (BUCS-TR-2004-028), section 5.1.1.
    """
    ranks = np.arange(1, _check.whole("keys", keys) + 1, dtype=np.float64)
    weights = ranks ** -_check.number("alpha", alpha, least=0.0)
    return weights / weights.sum()


def zipf_pair(
    arrivals: int = 100_000,
    *,
    keys: int = 1_000,
    alpha: float = 0.75,
    correlation: Correlation = "direct",
    rate: float = 1_000.0,
    seed: Seed = 0,
) -> StreamPair:
    """Two stationary streams under the independent reference model: popularity, and nothing else.

    Every arrival draws its key anew from the Zipf law and the arrivals form a Poisson process, so the past
    of a key says only how popular it is. Frequency (PROB) is the best predictor here. A stream of
    5,000,000 arrivals over 1,000,000 keys takes about a second.

    Parameters
    ----------
    arrivals
        Rows of each stream.
    keys
        Number of values; the keys are 1 to `keys`, and a key is its own rank on the left stream.
    alpha
        Skew of the popularity.
    correlation
        `"direct"`: a key has the same rank on both streams. `"inverse"`: the most popular on the left is
        the least popular on the right.
    rate
        Mean arrivals a second on each stream.
    seed
        Seed, or a NumPy generator to draw from.

    Returns
    -------
    StreamPair
        `left` and `right` with the columns `key` (int64) and `ts` (int64, milliseconds from 0, sorted).

    Examples
    --------
    >>> from penstock.workloads import zipf_pair
    >>> left, right = zipf_pair(10_000, keys=50, correlation="inverse")
    >>> int(left.key.mode()[0]), int(right.key.mode()[0])
    (1, 50)

    References
    ----------
    Li et al., GreedyDual-Join (BUCS-TR-2004-028), sections 3.1 and 5.3.3.
    """
    arrivals = _check.whole("arrivals", arrivals, least=0)
    rate = _check.positive("rate", rate, " It is in arrivals per second.")
    probabilities = zipf_probabilities(keys, alpha)
    rng = draws(seed)

    def stream(mirrored: bool) -> pd.DataFrame:
        key = ranks_to_keys(draw_ranks(arrivals, probabilities, rng), keys, mirrored)
        seconds = np.cumsum(rng.standard_exponential(arrivals)) / rate
        return pd.DataFrame({"key": key, "ts": (seconds * 1_000).astype(np.int64)})

    mirrored = is_inverse(correlation)
    return StreamPair(stream(False), stream(mirrored))
