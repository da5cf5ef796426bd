"""LRU stack distances: the number of other keys between two references to a key."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from penstock.arguments import draws
from penstock.locality._keys import Keys, encode
from penstock.locality.stack_kernel import stack_distances


@dataclass(frozen=True, eq=False)
class StackDistance:
    """The stack distances of a stream and of a randomly permuted copy of it.

    The copy has the same popularity, but no correlation over short time scales: where the two distributions
    differ, such correlation is at work.

    Attributes
    ----------
    distances
        Per reference, how many other keys were referenced since the last reference to this one; -1 for the
        first reference to a key, which no cache can serve.
    permuted
        The same for the permuted copy.
    distinct
        Number of keys: the working set, and the size of a cache that holds everything.

    Examples
    --------
    >>> from penstock.locality import stack_distance
    >>> stack_distance("aabcb").distances.tolist()
    [-1, 0, -1, -1, 1]
    """

    distances: NDArray[np.int64]
    permuted: NDArray[np.int64]
    distinct: int

    @overload
    def hit_rate(self, capacity: float, *, permuted: bool = False) -> float: ...
    @overload
    def hit_rate(self, capacity: ArrayLike, *, permuted: bool = False) -> NDArray[np.float64]: ...
    def hit_rate(self, capacity: ArrayLike, *, permuted: bool = False) -> float | NDArray[np.float64]:
        """`H(C) = P[D < C] = F_D(C)`: the share of references that an LRU cache of `capacity` keys answers.

        >>> from penstock.locality import stack_distance
        >>> stack_distance("aabcb").hit_rate([1, 2]).tolist()
        [0.2, 0.4]
        """
        ordered = self._ordered[permuted]
        below = np.searchsorted(ordered, np.asarray(capacity), side="left")
        rate = below / len(self.distances)
        return float(rate) if np.ndim(rate) == 0 else rate

    def cdf(self, *, permuted: bool = False) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """The cache sizes at which `hit_rate` rises, and the rate from there on.

        >>> from penstock.locality import stack_distance
        >>> sizes, rates = stack_distance("aabcb").cdf()
        >>> sizes.tolist(), rates.tolist()
        ([1, 2], [0.2, 0.4])
        """
        values, counts = np.unique(self._ordered[permuted], return_counts=True)
        return values + 1, np.cumsum(counts) / len(self.distances)

    @cached_property
    def _ordered(self) -> dict[bool, NDArray[np.int64]]:
        """The finite distances, sorted, of the original and of the permuted stream."""
        return {
            False: np.sort(self.distances[self.distances >= 0]),
            True: np.sort(self.permuted[self.permuted >= 0]),
        }

    def __repr__(self) -> str:
        tenth = max(1, round(self.distinct / 10))
        return (
            f"StackDistance({self.distinct} keys, {len(self.distances)} references, "
            f"hit_rate({tenth})={self.hit_rate(tenth):.3f}, "
            f"permuted {self.hit_rate(tenth, permuted=True):.3f})"
        )


def stack_distance(keys: Keys, *, seed: int | np.random.Generator = 0) -> StackDistance:
    """Stack distances of every reference, and those of a permuted copy to compare with, in O(n log n).

    The distribution of the distances predicts the hit rate of an LRU cache of any size. If the original's is
    well above the permuted one's, keys cluster in time and a policy that heeds recency (LRU, CLOCK, GDJ) does
    better than one that counts (PROB).

    Parameters
    ----------
    keys
        The stream: a list, array, Series, Arrow array or other iterable of hashable keys.
    seed
        Seed of the permutation, or a NumPy generator to draw it from.

    Examples
    --------
    >>> from penstock.locality import stack_distance
    >>> visits = [key for key in range(50) for _ in range(4)]
    >>> found = stack_distance(visits)
    >>> found.hit_rate(5), found.hit_rate(5, permuted=True) < 0.1
    (0.75, True)

    References
    ----------
    Li et al., GreedyDual-Join (BUCS-TR-2004-028), sections 2.1 and 2.2.
    """
    codes, values = encode(keys)
    shuffled = draws(seed).permutation(codes)
    return StackDistance(distances_of(codes, len(values)), distances_of(shuffled, len(values)), len(values))


def distances_of(codes: NDArray[np.int64], distinct: int) -> NDArray[np.int64]:
    """Stack distances of references given as codes below `distinct`.

    >>> import numpy as np
    >>> from penstock.locality.stack import distances_of
    >>> distances_of(np.array([0, 1, 2, 0]), 3).tolist()
    [-1, -1, -1, 2]
    """
    distances: NDArray[np.int64] = stack_distances(codes, distinct)
    return distances
