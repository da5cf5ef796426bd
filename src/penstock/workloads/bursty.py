"""Two streams whose rate multiplies in bursts, which makes the state of an unbounded join explode."""

from __future__ import annotations

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from penstock.arguments import draws
from penstock.errors import PenstockError
from penstock.workloads import _check
from penstock.workloads._draw import Correlation, Seed, draw_ranks, is_inverse, ranks_to_keys
from penstock.workloads.zipf import StreamPair, zipf_probabilities


def bursty_pair(
    seconds: float = 60.0,
    *,
    keys: int = 1_000,
    alpha: float = 0.75,
    correlation: Correlation = "direct",
    rate: float = 100.0,
    factor: float = 50.0,
    bursts: int = 3,
    burst_seconds: float = 1.0,
    seed: Seed = 0,
) -> StreamPair:
    """Two Zipf streams with a steady rate that multiplies by `factor` in bursts common to both.

    The time is divided into as many equal parts as there are bursts, with a burst in the middle of each:
    where they are is known beforehand, so that a plot or a test can point at them. Arrivals form a Poisson
    process whose intensity is constant inside and outside of the bursts.

    Parameters
    ----------
    seconds
        Length of the streams.
    keys, alpha, correlation
        As in `zipf_pair`.
    rate
        Mean arrivals a second on each stream outside of the bursts.
    factor
        How many times that rate a burst has.
    bursts, burst_seconds
        How many bursts there are, and how long each lasts.
    seed
        Seed, or a NumPy generator to draw from.

    Returns
    -------
    StreamPair
        `left` and `right` with the columns `key` (int64) and `ts` (int64, milliseconds from 0, sorted).

    Examples
    --------
    >>> from penstock.workloads import bursty_pair
    >>> left, right = bursty_pair(10, bursts=1, rate=100, factor=50)
    >>> a_second = (left.ts // 1_000).value_counts().sort_index()
    >>> bool(a_second.max() > 10 * a_second.median())
    True

    References
    ----------
    Gao et al., The CLOCK Data-Aware Eviction Approach (ESWC 2014), section 2: stress by bursts.
    """
    seconds = _check.positive("seconds", seconds)
    rate = _check.positive("rate", rate, " It is in arrivals per second.")
    factor = _check.number("factor", factor, least=1.0, advice=" It multiplies the rate; 1 means no bursts.")
    bursts = _check.whole("bursts", bursts, least=0)
    burst_seconds = _check.positive("burst_seconds", burst_seconds)
    if bursts * burst_seconds > seconds:
        raise PenstockError(
            f"bursts={bursts} of burst_seconds={burst_seconds:g} were given for seconds={seconds:g}; "
            f"they may fill that at most. Hint: burst_seconds={seconds / bursts:g} does."
        )
    probabilities = zipf_probabilities(keys, alpha)
    middles = (np.arange(bursts) + 0.5) * seconds / max(bursts, 1)
    edges = np.column_stack((middles - burst_seconds / 2, middles + burst_seconds / 2)).ravel()
    edges = np.concatenate(([0.0], edges, [seconds]))
    rates = np.where(np.arange(len(edges) - 1) % 2 == 1, rate * factor, rate)
    rng = draws(seed)

    def stream(mirrored: bool) -> pd.DataFrame:
        times = _piecewise_poisson(edges, rates, rng)
        key = ranks_to_keys(draw_ranks(len(times), probabilities, rng), keys, mirrored)
        return pd.DataFrame({"key": key, "ts": (times * 1_000).astype(np.int64)})

    mirrored = is_inverse(correlation)
    return StreamPair(stream(False), stream(mirrored))


def _piecewise_poisson(
    edges: NDArray[np.float64], rates: NDArray[np.float64], rng: np.random.Generator
) -> NDArray[np.float64]:
    """Sorted times of a Poisson process with one rate between each two edges."""
    lengths = np.diff(edges)
    counts = rng.poisson(rates * lengths)
    times = np.repeat(edges[:-1], counts) + rng.random(counts.sum()) * np.repeat(lengths, counts)
    return np.sort(times)
