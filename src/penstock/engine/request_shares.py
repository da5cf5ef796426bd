"""Count how often each key was requested recently: the empirical model of a stream of requests.

A request counts exp(-age / memory). What is kept of a key is the logarithm of the sum of exp(time / memory)
over its requests, which needs no updates while time passes: the keys keep their order. A ring has the last
requests; the table has the keys in it, and is made anew from it now and then, with another memory if that
would have predicted them better.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from penstock.compiler.jit import jit
from penstock.engine.store import power_of_two

NEVER = -1e300  # the score of a key that was not asked for lately
MEMORIES = 4  # that are tried, each four times as long as the one before

# Columns of `meta`.
SEEN = 0  # requests so far
KEYS = 1  # in the table


class Shares(NamedTuple):
    """The table (open addressing), the ring with values and keys, and the present memory."""

    key: np.ndarray
    score: np.ndarray
    used: np.ndarray
    ring_key: np.ndarray
    ring_value: np.ndarray
    meta: np.ndarray
    memory: np.ndarray


def new_shares(ring: int, keys: int) -> Shares:
    """Nothing has been asked for; room for so many requests in the ring and keys in the table."""
    size = power_of_two(2 * max(1, keys))
    return Shares(
        key=np.zeros(size, np.int64),
        score=np.full(size, NEVER),
        used=np.zeros(size, np.uint8),
        ring_key=np.zeros(max(1, ring), np.int64),
        ring_value=np.zeros(max(1, ring)),
        meta=np.zeros(2, np.int64),
        memory=np.array([float(max(1, ring))]),
    )


@jit
def _place(shares, key):
    """Where a key is in the table, or would be. O(1)."""
    mask = shares.key.shape[0] - 1
    mixed = np.uint64(key) * np.uint64(0x9E3779B97F4A7C15)
    at = np.int64((mixed ^ (mixed >> np.uint64(31))) & np.uint64(mask))
    while shares.used[at] != 0 and shares.key[at] != key:
        at = (at + 1) & mask
    return at


@jit
def share_of(shares, key):
    """The score of a key; of two, the one with the higher score is asked for more."""
    at = _place(shares, key)
    return shares.score[at] if shares.used[at] != 0 else NEVER


@jit
def set_share(shares, key, score):
    """Write a score down; where the table is full a new key has none."""
    at = _place(shares, key)
    if shares.used[at] == 0:
        if 2 * (shares.meta[KEYS] + 1) > shares.key.shape[0]:
            return
        shares.used[at] = 1
        shares.key[at] = key
        shares.meta[KEYS] += 1
    shares.score[at] = score


@jit
def _added(score, now):
    """log(exp(score) + exp(now))."""
    high, low = max(score, now), min(score, now)
    return high + math.log1p(math.exp(low - high)) if low > NEVER else high


@jit
def note(shares, key, value):
    """A request: it goes into the ring, not yet into the table."""
    at = shares.meta[SEEN] % shares.ring_key.shape[0]
    shares.ring_key[at] = key
    shares.ring_value[at] = value
    shares.meta[SEEN] += 1


@jit
def count(shares, key, time):
    """Count a request in the table."""
    set_share(shares, key, _added(share_of(shares, key), time / shares.memory[0]))


@jit
def _clear(shares):
    shares.used[:] = 0
    shares.score[:] = NEVER
    shares.meta[KEYS] = 0


@jit
def recount(shares):
    """Make the table anew from the ring, with the memory that predicts the ring's later part best."""
    seen, room = shares.meta[SEEN], np.int64(shares.ring_key.shape[0])
    n = min(seen, room)
    best, highest = 0, 0.0
    for trial in range(MEMORIES):
        shares.memory[0] = 0.5 * room / 4.0 ** (MEMORIES - 2 - trial)
        found = _predicted(shares, seen - n, n)
        if trial == 0 or found > highest:
            best, highest = trial, found
    shares.memory[0] = 0.5 * room / 4.0 ** (MEMORIES - 2 - best)
    _clear(shares)
    for time in range(seen - n, seen):
        count(shares, shares.ring_key[time % room], time)


@jit
def _predicted(shares, first, n):
    """The log-likelihood of the last three quarters of the ring, each request given those before it.

    A key that was not there counts as one request as old as the memory, so that no request is impossible.
    """
    _clear(shares)
    room, memory = np.int64(shares.ring_key.shape[0]), shares.memory[0]
    found, total = 0.0, 0.0
    for i in range(n):
        time = first + i
        key = shares.ring_key[time % room]
        if i >= n // 4:
            score = share_of(shares, key)
            own = math.exp(score - time / memory) if score > NEVER else 0.0
            found += math.log((own + math.exp(-1.0) / n) / (total + 1.0))
        count(shares, key, time)
        total = (total + 1.0) * math.exp(-1.0 / memory)
    return found
