"""The samples on which candidates are tried: how many keys they have, and which.

A small join or cache serves the keys of a sample in memory that is scaled alike, so that it behaves as the
real one does.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable

import numpy as np

SHARE = 0.05  # of the memory, for the small ones together
LEAST = 16  # tuples of a small one, unless the real one has fewer
COUNTS = 0.3  # of a small one's memory, for its key counts
MOST_HALVINGS = 20
EIGHTHS = 8


def halvings_for(candidates: int, most: float, sized: Callable[[float], tuple[int, float]]) -> float | None:
    """How often the keys are halved until the small ones fit into so many bytes; None if never.

    `sized` tells the tuples of one and the bytes of all, after so many halvings, which go in eighths: the few
    tuples that suffice nearly fill the least that small ones may take.

    >>> from penstock.engine.key_sample import halvings_for
    >>> halvings_for(3, 5_000, lambda halvings: (round(1_000 * 0.5**halvings), 90_000 * 0.5**halvings))
    4.25
    """
    steps = range(EIGHTHS * MOST_HALVINGS if candidates > 1 else 0)
    found = bisect_left(steps, True, key=lambda step: sized(step / EIGHTHS)[1] <= most)
    if found == len(steps) or (found > 0 and sized(found / EIGHTHS)[0] < LEAST):
        return None
    return found / EIGHTHS


def sampled(key: np.ndarray, halvings: float) -> np.ndarray:
    """Which keys are in a sample of one in 2^halvings.

    >>> import numpy as np
    >>> from penstock.engine.key_sample import sampled
    >>> int(sampled(np.arange(1_000), 0).sum()), 80 < int(sampled(np.arange(1_000), 3).sum()) < 170
    (1000, True)
    """
    whole = int(halvings)
    hashed = mixed(key)
    inside = (hashed >> np.uint64(40)) & np.uint64((1 << whole) - 1) == 0
    if whole != halvings:
        share = np.uint64(round(0.5 ** (halvings - whole) * (1 << 16)))
        inside &= (hashed >> np.uint64(8)) & np.uint64((1 << 16) - 1) < share
    return inside


def mixed(key: np.ndarray) -> np.ndarray:
    """A hash that no table uses.

    >>> import numpy as np
    >>> from penstock.engine.key_sample import mixed
    >>> len(set(mixed(np.arange(1_000)).tolist()))
    1000
    """
    found = (key.astype(np.uint64) + np.uint64(0x632BE59BD9B4E019)) * np.uint64(0xD6E8FEB86659FD93)
    return (found ^ (found >> np.uint64(32))) * np.uint64(0xD6E8FEB86659FD93)
