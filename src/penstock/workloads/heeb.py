"""The streams of section 8 of the HEEB paper: TOWER, ROOF, FLOOR and WALK."""

from __future__ import annotations

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from penstock.arguments import draws
from penstock.workloads import _check
from penstock.workloads._draw import Seed
from penstock.workloads.zipf import StreamPair

STEPS = 5_000
LEFT_BOUND, RIGHT_BOUND = 10, 15
LAG = 1  # steps that the left stream is behind the right one


def tower(*, steps: int = STEPS, seed: Seed = 0) -> StreamPair:
    """TOWER: two rising trends with bounded normal noise that is narrow.

    Both rise by 1 a step, the left one a step behind; the noise has a standard deviation of 1 (left, within
    10) and 2 (right, within 15).

    >>> from penstock.workloads import tower
    >>> left, right = tower(steps=100)
    >>> bool(abs(left.key - left.ts + 1).max() <= 10), bool(abs(right.key - right.ts).max() <= 15)
    (True, True)
    """
    return _trends(steps, seed, 1.0, 2.0)


def roof(*, steps: int = STEPS, seed: Seed = 0) -> StreamPair:
    """ROOF: TOWER with wider noise, of standard deviations 3.3 and 5.

    >>> from penstock.workloads import roof
    >>> left, right = roof(steps=100)
    >>> bool((right.key - right.ts).std() > 4)
    True
    """
    return _trends(steps, seed, 3.3, 5.0)


def floor(*, steps: int = STEPS, seed: Seed = 0) -> StreamPair:
    """FLOOR: TOWER with noise that is uniform within its bounds.

    >>> from penstock.workloads import floor
    >>> left, right = floor(steps=1_000)
    >>> int((left.key - left.ts).max())
    9
    """
    return _trends(steps, seed, None, None)


def trends(
    *, steps: int = STEPS, left_sd: float = 1.0, right_sd: float = 1.0, lag: int = LAG, seed: Seed = 0
) -> StreamPair:
    """TOWER with noises and a lag of one's own, as for the histograms and the memory allocation.

    >>> from penstock.workloads import trends
    >>> left, right = trends(steps=50, left_sd=8, right_sd=8)
    >>> len(left)
    50
    """
    left_sd = _check.positive("left_sd", left_sd)
    right_sd = _check.positive("right_sd", right_sd)
    return _trends(steps, seed, left_sd, right_sd, _check.whole("lag", lag, 0))


def walk(*, steps: int = STEPS, seed: Seed = 0) -> StreamPair:
    """WALK: two independent random walks from 0, whose steps are normal, rounded, with variance 1.

    >>> from penstock.workloads import walk
    >>> left, right = walk(steps=1_000)
    >>> round(float(left.key.diff().var()))
    1
    """
    steps = _check.whole("steps", steps)
    rng = draws(seed)
    left, right = (np.cumsum(np.rint(rng.normal(0.0, 1.0, steps)).astype(np.int64)) for _ in range(2))
    return _pair(left, right)


def _trends(
    steps: int, seed: Seed, left_sd: float | None, right_sd: float | None, lag: int = LAG
) -> StreamPair:
    steps = _check.whole("steps", steps)
    rng = draws(seed)
    left = _noise(rng, steps, left_sd, LEFT_BOUND)
    right = _noise(rng, steps, right_sd, RIGHT_BOUND)
    return _pair(np.arange(steps) - lag + left, np.arange(steps) + right)


def _noise(rng: np.random.Generator, n: int, sd: float | None, bound: int) -> NDArray[np.int64]:
    """n draws: uniform, or normal and rounded, drawn again while beyond the bound."""
    if sd is None:
        return rng.integers(-bound, bound, n, endpoint=True)
    found = np.rint(rng.normal(0.0, sd, n)).astype(np.int64)
    while len(beyond := np.flatnonzero(np.abs(found) > bound)):
        found[beyond] = np.rint(rng.normal(0.0, sd, len(beyond)))
    return found


def _pair(left: NDArray[np.int64], right: NDArray[np.int64]) -> StreamPair:
    ts = np.arange(len(left), dtype=np.int64)
    return StreamPair(pd.DataFrame({"key": left, "ts": ts}), pd.DataFrame({"key": right, "ts": ts}))
