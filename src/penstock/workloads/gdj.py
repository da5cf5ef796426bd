"""The generator of the GreedyDual-Join experiments: Zipf popularity with Pareto gaps between equal values."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from penstock.arguments import draws
from penstock.errors import PenstockError
from penstock.workloads import _check
from penstock.workloads._draw import Correlation, Seed, is_inverse, ranks_to_keys
from penstock.workloads.zipf import StreamPair, zipf_probabilities

MINUTES_A_DAY = 1_440


def gdj_stream(
    *,
    keys: int = 100,
    alpha: float = 0.75,
    shape: float | None = 1.2,
    rate: float = 10.0,
    duration: int = MINUTES_A_DAY,
    seed: Seed = 0,
) -> pd.DataFrame:
    """One stream with locality at both time scales: values are popular by Zipf's law, and come in clusters.

    Each value is a renewal process with Pareto inter-arrival times, of the mean that its popularity implies;
    the stream is the merger of all of them. To be stationary, and to keep the popularity exact however heavy
    the tail, a value's process lives on a circle as long as the stream: it gets its number of arrivals, as
    many Pareto gaps, scaled to fill the circle, and a random point to start from. The Pareto law is that of
    the second kind, which begins at 0: one that begins at a shortest gap would also keep equal values apart.

    Parameters
    ----------
    keys
        Number of values; the keys are 1 to `keys`, and a key is its rank.
    alpha
        Skew of the popularity: the correlation over long time scales.
    shape
        Pareto index of the gaps: the correlation over short time scales. The lower, the more a value's
        arrivals cluster; 1.2 is strong, from about 10 on little is left. `None` draws exponential gaps, the
        limit of a large index: a stream without temporal correlation.
    rate
        Mean arrivals per tick; the stream has `round(rate * duration)` rows.
    duration
        Length in ticks. The paper's tick is a minute, and its streams last a day.
    seed
        Seed, or a NumPy generator to draw from.

    Returns
    -------
    DataFrame
        Columns `key` (int64) and `ts` (int64, ticks from 0 to `duration - 1`, sorted).

    Examples
    --------
    >>> from penstock.workloads import gdj_stream
    >>> stream = gdj_stream(rate=2)
    >>> len(stream), int(stream.ts.max()) < 1_440, int(stream.key.mode()[0])
    (2880, True, 1)

    References
    ----------
    Li et al., GreedyDual-Join (BUCS-TR-2004-028), section 5.1.1.
    """
    duration = _check.whole("duration", duration)
    rate = _check.positive("rate", rate, " It is in arrivals per tick.")
    probabilities = zipf_probabilities(keys, alpha)
    if shape is not None:
        shape = _check.number("shape", shape, 0.1, 1e6, " Use shape=None for no temporal correlation.")
    rng = draws(seed)
    counts = rng.multinomial(round(rate * duration), probabilities)
    times = _renewal_times(counts, duration, shape, rng)
    order = np.argsort(times)
    key = np.repeat(np.arange(1, keys + 1, dtype=np.int64), counts)[order]
    return pd.DataFrame({"key": key, "ts": np.minimum(times[order].astype(np.int64), duration - 1)})


def gdj_pair(
    *,
    keys: int = 100,
    alpha: float = 0.75,
    shape: float | None = 1.2,
    rate: float = 10.0,
    duration: int = MINUTES_A_DAY,
    correlation: Correlation = "direct",
    seed: Seed = 0,
) -> StreamPair:
    """Two such streams to join, directly correlated (same ranks) or inversely (ranks reversed).

    The streams are drawn independently of each other but for the ranks of their values. Directly correlated,
    what is popular on one stream is popular on the other and the join is large; inversely correlated, it is
    small. The experiment with unified buffers runs one pair of each kind, four streams, over one memory.

    Parameters
    ----------
    keys, alpha, shape, rate, duration
        As in `gdj_stream`; a key is its own rank on the left stream.
    correlation
        `"direct"` or `"inverse"`.
    seed
        Seed, or a NumPy generator to draw from.

    Returns
    -------
    StreamPair
        `left` and `right` with the columns `key` (int64) and `ts` (int64 ticks, sorted).

    Examples
    --------
    >>> from penstock.workloads import gdj_pair
    >>> left, right = gdj_pair(correlation="inverse")
    >>> int(left.key.mode()[0]), int(right.key.mode()[0])
    (1, 100)

    References
    ----------
    Li et al., GreedyDual-Join (BUCS-TR-2004-028), section 5.3.3.
    """
    mirrored = is_inverse(correlation)
    rng = draws(seed)
    left = gdj_stream(keys=keys, alpha=alpha, shape=shape, rate=rate, duration=duration, seed=rng)
    right = gdj_stream(keys=keys, alpha=alpha, shape=shape, rate=rate, duration=duration, seed=rng)
    right["key"] = ranks_to_keys(right["key"].to_numpy(), keys, mirrored)
    return StreamPair(left, right)


def gdj_attributes(
    attributes: int = 2,
    *,
    keys: int = 100,
    left_alphas: Sequence[float] | None = None,
    right_alphas: Sequence[float] | None = None,
    shape: float | None = 1.2,
    rate: float = 10.0,
    duration: int = MINUTES_A_DAY,
    seed: Seed = 0,
) -> StreamPair:
    """Two streams with several join attributes, ever more skewed on the left and uniform on the right.

    Each attribute is the sequence of values of a stream of its own, so each has its own popularity and its
    own clusters in time; the arrival times are those of the first.

    Parameters
    ----------
    attributes
        Number of attributes of each stream.
    keys
        Number of values of each attribute; the values are 1 to `keys`.
    left_alphas, right_alphas
        Skew per attribute. By default 0.75, 1.0, 1.25, ... on the left and 0 on the right. For the experiment
        with varying skewness: `left_alphas=(0, x), right_alphas=(0, y)` with x and y from 0.1 to 1.5.
    shape, rate, duration
        As in `gdj_stream`.
    seed
        Seed, or a NumPy generator to draw from.

    Returns
    -------
    StreamPair
        `left` and `right` with the columns `a1`, `a2`, ... (int64) and `ts` (int64 ticks, sorted).

    Examples
    --------
    >>> from penstock.workloads import gdj_attributes
    >>> left, right = gdj_attributes(3)
    >>> list(left.columns)
    ['a1', 'a2', 'a3', 'ts']
    >>> left[["a1", "a2", "a3"]].eq(1).mean().is_monotonic_increasing
    True

    References
    ----------
    Li et al., GreedyDual-Join (BUCS-TR-2004-028), section 5.3.4.
    """
    attributes = _check.whole("attributes", attributes)
    rng = draws(seed)

    def stream(name: str, alphas: Sequence[float]) -> pd.DataFrame:
        if len(alphas) != attributes:
            raise PenstockError(
                f"{name} has {len(alphas)} values for {attributes} attributes; give one per attribute, "
                f"e.g. {name}={tuple(0.75 for _ in range(attributes))}"
            )
        parts = [
            gdj_stream(keys=keys, alpha=alpha, shape=shape, rate=rate, duration=duration, seed=rng)
            for alpha in alphas
        ]
        columns = {f"a{i}": part["key"].to_numpy() for i, part in enumerate(parts, start=1)}
        return pd.DataFrame({**columns, "ts": parts[0]["ts"].to_numpy()})

    rising = [0.75 + 0.25 * i for i in range(attributes)]
    return StreamPair(
        stream("left_alphas", rising if left_alphas is None else left_alphas),
        stream("right_alphas", [0.0] * attributes if right_alphas is None else right_alphas),
    )


def _renewal_times(
    counts: NDArray[np.int64], duration: float, shape: float | None, rng: np.random.Generator
) -> NDArray[np.float64]:
    """Arrival times in [0, duration), value after value; each value's gaps go once round the circle."""
    counts = counts[counts > 0]
    total = int(counts.sum())
    if total == 0:
        return np.empty(0)
    gaps = rng.standard_exponential(total) if shape is None else rng.pareto(shape, total)
    lengths = np.add.reduceat(gaps, np.cumsum(counts) - counts)
    # Scaled before the running sum: a heavy-tailed gap would swallow the small ones of the values after it.
    laps = np.cumsum(gaps * np.repeat(duration / lengths, counts))
    return np.mod(laps + np.repeat(rng.random(len(counts)) * duration, counts), duration)
