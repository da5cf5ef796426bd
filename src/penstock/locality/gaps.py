"""Inter-arrival times: the time between two references to a key."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from penstock.errors import PenstockError
from penstock.locality._keys import Keys, encode, previous


def inter_arrival(keys: Keys, times: Any = None) -> NDArray[Any]:
    """The gaps between consecutive references to the same key, in the order of the references that end them.

    Their distribution is the second measure of locality, after the stack distance. A skewed popularity alone
    already makes short gaps frequent, so compare it with the gaps of a permuted copy before reading
    correlation into it.

    Parameters
    ----------
    keys
        The stream: a list, array, Series, Arrow array or other iterable of hashable keys.
    times
        The time of each reference, never decreasing: numbers or datetimes. Without it, a gap is counted in
        references.

    Returns
    -------
    ndarray
        One gap for every reference but the first of each key; int64 without times, otherwise what subtracting
        two of the times gives.

    Examples
    --------
    >>> from penstock.locality import inter_arrival
    >>> inter_arrival("abba").tolist()
    [1, 3]
    >>> inter_arrival("abba", times=[0, 10, 15, 60]).tolist()
    [5, 60]

    References
    ----------
    Li et al., GreedyDual-Join (BUCS-TR-2004-028), section 2.1.
    """
    before = previous(encode(keys).codes)
    at = np.arange(len(before)) if times is None else _as_times(times, len(before))
    again = np.flatnonzero(before >= 0)
    gaps: NDArray[Any] = at[again] - at[before[again]]
    return gaps


def _as_times(times: Any, n: int) -> NDArray[Any]:
    """The times as an array of numbers or datetimes, one per reference and in order."""
    if isinstance(times, pa.Array | pa.ChunkedArray):
        times = times.to_pandas()
    at = np.asarray(times)
    if at.shape != (n,):
        raise PenstockError(f"times of shape {at.shape} were given for {n} keys; one time per key is needed.")
    if at.dtype.kind not in "iufmM":
        raise PenstockError(
            f"times of type {at.dtype} were given; numbers or datetimes are allowed. "
            "Hint: pandas.to_datetime reads text."
        )
    if at.dtype.kind == "u":
        at = at.astype(np.int64)
    if n > 1 and not (at[1:] >= at[:-1]).all():
        raise PenstockError("times must never decrease, and none may be missing; sort the stream by time.")
    return at
