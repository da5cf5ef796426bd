"""A cache whose entries have sizes, with a limit in bytes.

`answer_sized` answers requests for keys whose sizes are known beforehand. `update_sized` is for owners that
compute the entries themselves: it takes a log of their uses, their changes of size and their removal.
"""

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
    KEY,
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

# What stands in a log instead of a size.
USED_ENTRY = -1
FORGOTTEN = -2


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
    unnoted = np.empty(0, np.int64)
    for i in range(keys.shape[0]):
        key = keys[i]
        slot = find(cache, key)
        asked(policy, cache, key)
        if slot != 0:
            _hit(policy, cache, slot)
            out.hit[i] = 1
        else:
            slot = _admit(policy, cache, room, key, sizes[i], unnoted)
        out.slot[i] = slot
        cache.meta[REQUESTS] += 1


@jit
def _hit(policy, cache, slot):
    cache.meta[HITS] += 1
    cache.e64[slot, USED] = cache.meta[REQUESTS]
    used(policy, cache, slot)


@jit
def _admit(policy, cache, room, key, size, evicted):
    meta, taken = cache.meta, room.bytes
    if size > taken[LIMIT]:
        meta[REFUSED] += 1
        return np.int64(0)
    while meta[LIVE] == meta[CAPACITY] or taken[TAKEN] + size > taken[LIMIT]:
        slot = np.int64(worst(policy, cache))
        if refuses(policy, cache, key, slot):
            meta[REFUSED] += 1
            return np.int64(0)
        _evict(policy, cache, room, slot, evicted)
    slot = fill(policy, cache, key)
    _resize(room, slot, size)
    return slot


@jit
def _evict(policy, cache, room, slot, evicted):
    _note(evicted, cache.e64[slot, KEY])
    cache.meta[EVICTED] += 1
    _resize(room, slot, 0)
    empty(policy, cache, slot)


@jit
def _note(evicted, key):
    """Append a key to a list whose first element is its length; to an empty array nothing is appended."""
    if evicted.shape[0] != 0:
        evicted[0] += 1
        evicted[evicted[0]] = key


@jit
def _resize(room, slot, size):
    room.bytes[TAKEN] += size - room.size[slot]
    room.size[slot] = size


@driver
def update_sized(policy, cache, room, keys, sizes, evicted):
    """Apply a log: each key was used, or was forgotten, or has an entry of this size now.

    `evicted` takes the keys that left to make room and those that were refused, after their number.
    """
    _update(borrow(policy), borrow(cache), borrow(room), keys, sizes, evicted)


@jit
def _update(policy, cache, room, keys, sizes, evicted):
    for i in range(keys.shape[0]):
        key, size = keys[i], sizes[i]
        slot = find(cache, key)
        if size == FORGOTTEN:
            if slot != 0:
                _resize(room, slot, 0)
                empty(policy, cache, slot)
        elif slot == 0 and size != USED_ENTRY:
            asked(policy, cache, key)
            if _admit(policy, cache, room, key, size, evicted) == 0:
                _note(evicted, key)
            cache.meta[REQUESTS] += 1
        elif size != USED_ENTRY:
            _grow(policy, cache, room, slot, size, evicted)
        elif slot != 0:
            asked(policy, cache, key)
            _hit(policy, cache, slot)
            cache.meta[REQUESTS] += 1


@jit
def _grow(policy, cache, room, slot, size, evicted):
    """Give an entry another size. The lowest scores leave until all fit, perhaps the entry itself."""
    taken = room.bytes
    while taken[TAKEN] - room.size[slot] + size > taken[LIMIT]:
        victim = np.int64(slot) if size > taken[LIMIT] else np.int64(worst(policy, cache))
        _evict(policy, cache, room, victim, evicted)
        if victim == slot:
            return
    _resize(room, slot, size)
