"""The rows of exact outer, semi and anti joins, arrival by arrival: what unlimited memory would give."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from penstock.compiler.jit import jit
from penstock.engine.pair_join_decided import (
    ALL,
    EMIT,
    EMIT_LEFT,
    EMIT_PAIRS,
    MOST,
    NULLS,
    ONCE,
    RELEASES,
)
from penstock.engine.store import LANDMARK, ROWS

# Of a key and stream.
LIVE = 0
HEAD = 1  # its oldest tuple, -1 if there is none
TAIL = 2
LATEST = 3  # the latest arrival
COLUMNS = 4


class Lists(NamedTuple):
    """The tuples that can still match, and what is known of each."""

    key: np.ndarray
    of_key: np.ndarray  # per key and stream, the columns above
    after: np.ndarray  # the next younger tuple of the same key
    fate: np.ndarray  # matched, gone
    order: np.ndarray  # the tuples of each stream
    ends: np.ndarray  # how many of them have expired, and have come


def exact_decided(
    stream: np.ndarray,
    key: np.ndarray,
    time: np.ndarray,
    keys: int,
    window: int,
    horizon: np.ndarray,
    rules: np.ndarray,
    warmup: int,
) -> np.ndarray:
    """Rows of the exact join per arrival; keys are codes below `keys`. O(n).

    Results count for the arrival that completes them, rows without a partner for their own.
    """
    n = len(key)
    counts = np.zeros(n, np.int64)
    of_key = np.full((keys, 2, COLUMNS), -1, np.int64)
    of_key[:, :, LIVE] = 0
    lists = Lists(
        key=key,
        of_key=of_key,
        after=np.full(n, -1, np.int64),
        fate=np.zeros((n, 2), np.uint8),
        order=np.empty((2, n), np.int64),
        ends=np.zeros((2, 2), np.int64),
    )
    _count(stream, time, lists, counts, window, horizon, rules, warmup)
    return counts


@jit
def _count(stream, time, lists, counts, window, horizon, rules, warmup):
    key, order, after, fate = lists.key, lists.order, lists.after, lists.fate
    expired, seen = lists.ends[0], lists.ends[1]
    n = key.shape[0]
    for i in range(n):
        for s in range(2):
            while expired[s] < seen[s]:
                oldest = order[s, expired[s]]
                if window == ROWS:
                    alive = seen[s] - expired[s] - (0 if s == stream[i] else 1) <= horizon[s]
                elif window == LANDMARK:
                    alive = time[i] // horizon[s] <= time[oldest] // horizon[s]
                else:
                    alive = time[i] - time[oldest] <= horizon[s]
                if alive:
                    break
                if _leave(lists, rules, oldest, s) and i >= warmup:
                    counts[oldest] += 1
                expired[s] += 1
        side = np.int64(stream[i])
        found = _match(lists, rules, i, side)
        if i >= warmup:
            if rules[EMIT] == EMIT_PAIRS:
                counts[i] += found
            elif rules[EMIT] == EMIT_LEFT:
                counts[i] += found if side == 1 else min(found, np.int64(1))
        mine = lists.of_key[key[i], side]
        mine[LATEST] = i
        order[side, seen[side]] = i
        seen[side] += 1
        if found > 0 and rules[RELEASES + side] != 0:
            fate[i, 1] = 1
            continue
        if mine[LIVE] == 0:
            mine[HEAD] = i
        else:
            after[mine[TAIL]] = i
        mine[TAIL] = i
        mine[LIVE] += 1
    for s in range(2):
        while expired[s] < seen[s]:
            oldest = order[s, expired[s]]
            if _leave(lists, rules, oldest, s) and n >= warmup:
                counts[oldest] += 1
            expired[s] += 1


@jit
def _match(lists, rules, i, side):
    """How many partners arrival i finds; those that are released leave."""
    other, after, fate = 1 - side, lists.after, lists.fate
    theirs = lists.of_key[lists.key[i], other]
    found = theirs[LIVE]
    if found == 0:
        return found
    fate[i, 0] = 1
    if rules[MOST] == ALL and rules[RELEASES + other] == 0:
        return found  # that they have matched is told by the latest arrival of this stream
    if rules[MOST] == ONCE and side == 0:
        fate[theirs[HEAD], 0] = 1
        return np.int64(1)
    if rules[MOST] != ALL and rules[MOST] != ONCE:
        found = np.int64(1)
    for _ in range(found):
        taken = theirs[HEAD]
        fate[taken, 0] = fate[taken, 1] = 1
        theirs[HEAD] = after[taken]
        theirs[LIVE] -= 1
    return found


@jit
def _leave(lists, rules, i, side):
    """A tuple has expired: whether it comes out as a row without a partner."""
    if lists.fate[i, 1] != 0:
        return False
    of_key = lists.of_key[lists.key[i]]
    of_key[side, LIVE] -= 1
    of_key[side, HEAD] = lists.after[i]
    matched = lists.fate[i, 0] != 0 or (rules[MOST] == ALL and of_key[1 - side, LATEST] > i)
    return rules[NULLS + side] != 0 and not matched
