"""Which source of locality dominates a stream, and which policies benefit from it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from penstock.arguments import draws
from penstock.locality._keys import Keys, encode
from penstock.locality.popularity import popularity
from penstock.locality.stack import StackDistance, distances_of

Source = Literal["popularity", "correlation", "both", "scan", "none"]

_ADVICE: dict[Source, tuple[str, tuple[str, ...]]] = {
    "popularity": ("popularity over long time scales dominates", ("prob", "life", "lfu", "gdj")),
    "correlation": ("correlation over short time scales dominates", ("lru", "clock-exp", "gdj", "clock")),
    "both": ("popularity and short-term correlation both matter", ("gdj", "clock-exp", "clock", "lru")),
    "scan": ("keys keep away from their last reference, as in a scan", ("rand", "prob", "heeb")),
    "none": ("there is no locality to exploit", ("fifo", "rand")),
}


@dataclass(frozen=True)
class Summary:
    """The locality of a stream in a few numbers.

    Attributes
    ----------
    references, distinct
        Length of the stream, and number of keys in it.
    slope, error
        Of the Zipf fit to the popularity.
    popularity
        What popularity adds to the hit rate: permuted stream less one in which all keys are equally frequent.
    correlation
        What short-term correlation adds to it: original stream less permuted one.
    dominant
        `"popularity"`, `"correlation"`, `"both"`, `"scan"` (correlation is negative), or `"none"`.
    policies
        Names of the policies that this favours, the most promising first.

    Examples
    --------
    >>> from penstock.locality import summary
    >>> print(summary([key for key in range(200) for _ in range(5)]))
    1000 references to 200 keys: correlation over short time scales dominates.
    Hit rate from popularity +0.01, from correlation +0.58.
    Policies to try: lru, clock-exp, gdj, clock
    """

    references: int
    distinct: int
    slope: float
    error: float
    popularity: float
    correlation: float
    dominant: Source
    policies: tuple[str, ...]

    def __str__(self) -> str:
        return (
            f"{self.references} references to {self.distinct} keys: {_ADVICE[self.dominant][0]}.\n"
            f"Hit rate from popularity {self.popularity:+.2f}, from correlation {self.correlation:+.2f}.\n"
            f"Policies to try: {', '.join(self.policies)}"
        )


def summary(keys: Keys, *, seed: int | np.random.Generator = 0) -> Summary:
    """Say which source of locality dominates a stream, by taking one after the other away from it.

    A random permutation takes away the correlation over short time scales; making all keys equally frequent
    then takes away the popularity as well. What the hit rate of an LRU cache loses each time, averaged over
    cache sizes from one key to all of them (evenly on a logarithmic scale, as small caches matter most), is
    the strength of that source. A source dominates when it is at least twice as strong as the other. Losses
    under 0.02, or under what chance alone explains in a short stream, count as none.

    This tells which policies are worth a trial on the stream, not how they will rank on a join: that also
    depends on the other stream, the window and the budget.

    Parameters
    ----------
    keys
        The stream: a list, array, Series, Arrow array or other iterable of hashable keys.
    seed
        Seed of the permutations, or a NumPy generator to draw them from.

    Examples
    --------
    >>> from penstock.locality import summary
    >>> from penstock.workloads import gdj_stream
    >>> summary(gdj_stream(alpha=1.0, shape=None).key).dominant
    'popularity'
    >>> summary(gdj_stream(alpha=0.0, shape=1.1).key).dominant
    'correlation'

    References
    ----------
    Li et al., GreedyDual-Join (BUCS-TR-2004-028), sections 2.1 and 2.2.
    """
    codes, values = encode(keys)
    n, distinct = len(codes), len(values)
    rng = draws(seed)
    shuffled = rng.permutation(codes)
    flattened = rng.permutation(np.arange(n) % distinct)
    original = StackDistance(distances_of(codes, distinct), distances_of(shuffled, distinct), distinct)
    flat = distances_of(flattened, distinct)
    sizes = np.unique(np.geomspace(1, distinct, 64).round()).astype(np.int64)
    permuted_rate = original.hit_rate(sizes, permuted=True)
    by_correlation = float(np.mean(original.hit_rate(sizes) - permuted_rate))
    by_popularity = float(np.mean(permuted_rate - _rate(flat, sizes)))
    dominant = _dominant(by_popularity, by_correlation, max(0.02, 2 / math.sqrt(n)))
    profile = popularity(codes)
    return Summary(
        references=n,
        distinct=distinct,
        slope=profile.slope,
        error=profile.error,
        popularity=by_popularity,
        correlation=by_correlation,
        dominant=dominant,
        policies=_ADVICE[dominant][1],
    )


def _rate(distances: NDArray[np.int64], sizes: NDArray[np.int64]) -> NDArray[np.float64]:
    """The hit rate at each cache size."""
    return np.searchsorted(np.sort(distances[distances >= 0]), sizes) / len(distances)


def _dominant(by_popularity: float, by_correlation: float, negligible: float) -> Source:
    """The source that is at least twice as strong as the other, if any is worth speaking of."""
    if by_correlation < -negligible and by_popularity < 2 * -by_correlation:
        return "scan"
    if max(by_popularity, by_correlation) < negligible:
        return "none"
    if by_popularity >= 2 * by_correlation:
        return "popularity"
    return "correlation" if by_correlation >= 2 * by_popularity else "both"
