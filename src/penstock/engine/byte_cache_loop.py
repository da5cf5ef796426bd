"""A cache whose entries have sizes, with a limit in bytes."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from penstock.compiler.driver import driver
from penstock.compiler.jit import jit
from penstock.compiler.references import borrow
from penstock.engine.cache_loop import (
    CAPACITY,
    EVICTED,
    HITS,
    LIVE,
    REFUSED,
    REQUESTS,
    USED,
    asked,
    empty,
    fill,
    find,
    refuses,
    used,
    worst,
)

# Columns of `bytes`.
TAKEN = 0
LIMIT = 1


class Room(NamedTuple):
    """What each entry takes, what all take together, and what they may take."""

    size: np.ndarray
    bytes: np.ndarray


def new_room(capacity: int, limit: int) -> Room:
    """Nothing is taken yet."""
    return Room(np.zeros(capacity + 1, np.int64), np.array([0, limit], np.int64))


@driver
def answer_sized(policy, cache, room, keys, sizes, out):
    """Answer requests one by one, as `answer` does; a newcomer displaces others until it fits."""
    _answer(borrow(policy), borrow(cache), borrow(room), keys, sizes, borrow(out))


@jit
def _answer(policy, cache, room, keys, sizes, out):
    meta = cache.meta
    for i in range(keys.shape[0]):
        key = keys[i]
        slot = find(cache, key)
        asked(policy, cache, key)
        if slot != 0:
            meta[HITS] += 1
            cache.e64[slot, USED] = meta[REQUESTS]
            used(policy, cache, slot)
            out.hit[i] = 1
        else:
            slot = _admit(policy, cache, room, key, sizes[i])
        out.slot[i] = slot
        meta[REQUESTS] += 1


@jit
def _admit(policy, cache, room, key, size):
    meta, taken = cache.meta, room.bytes
    if size > taken[LIMIT]:
        meta[REFUSED] += 1
        return np.int64(0)
    while meta[LIVE] == meta[CAPACITY] or taken[TAKEN] + size > taken[LIMIT]:
        slot = np.int64(worst(policy, cache))
        if refuses(policy, cache, key, slot):
            meta[REFUSED] += 1
            return np.int64(0)
        meta[EVICTED] += 1
        taken[TAKEN] -= room.size[slot]
        empty(policy, cache, slot)
    slot = fill(policy, cache, key)
    room.size[slot] = size
    taken[TAKEN] += size
    return slot
