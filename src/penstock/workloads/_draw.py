"""Shared helpers of the generators: seeds, ranks drawn by probability, and the keys of ranks."""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from penstock.arguments import one_of

Correlation = Literal["direct", "inverse"]
Seed = int | np.random.Generator


def draw_ranks(n: int, probabilities: NDArray[np.float64], rng: np.random.Generator) -> NDArray[np.int64]:
    """`n` independent ranks, counted from 1.

    A multinomial draw in random order is the same as independent draws. 5,000,000 of them over 1,000,000
    ranks take 0.5 s; inverting the distribution function, which outgrows the processor's cache, takes 1.5 s.
    """
    counts = rng.multinomial(n, probabilities)
    ranks = np.repeat(np.arange(1, len(probabilities) + 1, dtype=np.int64), counts)
    rng.shuffle(ranks)
    return ranks


def is_inverse(correlation: Correlation) -> bool:
    """Whether the right stream of a pair has its ranks reversed."""
    return one_of("correlation", correlation, ("direct", "inverse")) == "inverse"


def ranks_to_keys(ranks: NDArray[np.int64], keys: int, mirrored: bool) -> NDArray[np.int64]:
    """The key of each rank: the rank itself, or counted from the other end."""
    return keys + 1 - ranks if mirrored else ranks
