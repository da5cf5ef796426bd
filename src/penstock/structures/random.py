"""A random generator whose state is one word of an array, so that a snapshot holds it."""

from __future__ import annotations

import numpy as np

from penstock.compiler.jit import jit

DROPS = 0
POLICY = 1


def new_generators(seed: int) -> np.ndarray:
    """One state word per generator, far apart for any seed."""
    return np.random.SeedSequence(seed).generate_state(2, np.uint64)


@jit
def uniform(random, generator):
    """The next number in [0, 1) of a generator (splitmix64, 53 bits)."""
    state = random[generator] + np.uint64(0x9E3779B97F4A7C15)
    random[generator] = state
    mixed = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed = mixed ^ (mixed >> np.uint64(31))
    return np.float64(mixed >> np.uint64(11)) * (1.0 / 9007199254740992.0)


@jit
def below(random, generator, n):
    """The next integer in [0, n) of a generator."""
    return np.int64(uniform(random, generator) * n)
