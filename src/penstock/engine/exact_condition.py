"""The rows of the exact join under a condition, arrival by arrival, by asking every pair of equal keys.

O(n + pairs), where `exact_join` and `exact_decided` are O(n).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from penstock.compiler.jit import jit
from penstock.compiler.references import borrow
from penstock.engine.join_loop import Batch
from penstock.engine.pair_condition import (
    BY_ZERO,
    ERROR,
    ERROR_LEFT,
    ERROR_RIGHT,
    KNOWN,
    PairCondition,
    outcome,
)
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


class _Tables(NamedTuple):
    chains: np.ndarray  # the oldest and the newest tuple of a key and stream
    links: np.ndarray  # the next tuple of the chain and the one before
    order: np.ndarray  # the arrivals of each stream
    fate: np.ndarray  # whether a tuple has matched, and whether it has left
    ends: np.ndarray  # per stream: how many have expired and how many have been seen


def exact_condition(
    arrivals: Batch,
    keys: int,
    window: tuple[int, np.ndarray],
    rules: np.ndarray,
    warmup: int,
    condition: PairCondition,
) -> np.ndarray:
    """Rows of the exact join per arrival; keys are codes below `keys`.

    `condition` has the leaves of all arrivals, for what arrives and for what is kept. Results count for the
    arrival that completes them, rows without a partner for their own.
    """
    n = len(arrivals.key)
    counts = np.zeros(n, np.int64)
    tables = _Tables(
        chains=np.full((keys, 2, 2), -1, np.int64),
        links=np.full((n, 2), -1, np.int64),
        order=np.empty((2, n), np.int64),
        fate=np.zeros((n, 2), np.uint8),
        ends=np.zeros((2, 2), np.int64),
    )
    _count(arrivals, counts, tables, *window, rules, warmup, condition)
    return counts


@jit
def _count(arrivals, counts, tables, window, horizon, rules, warmup, condition):
    stream, key, time = arrivals.stream, arrivals.key, arrivals.time
    chains, links, order, fate, ends = tables.chains, tables.links, tables.order, tables.fate, tables.ends
    expired, seen = ends[0], ends[1]
    asked = borrow(condition)
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
                if fate[oldest, 1] == 0:
                    _unlink(chains[key[oldest], s], links, oldest)
                    if rules[NULLS + s] != 0 and fate[oldest, 0] == 0 and i >= warmup:
                        counts[oldest] += 1
                expired[s] += 1
        side = np.int64(stream[i])
        found = np.int64(0)
        at = chains[key[i], 1 - side, 0]
        while at >= 0:
            after = links[at, 0]
            if _holds(asked, arrivals.row, side, i, at):
                found += 1
                fate[at, 0] = fate[i, 0] = 1
                if rules[RELEASES + 1 - side] != 0:
                    fate[at, 1] = 1
                    _unlink(chains[key[i], 1 - side], links, at)
                if rules[MOST] != ALL and (side == 0 or rules[MOST] != ONCE):
                    break
            at = after
        if i >= warmup:
            if rules[EMIT] == EMIT_PAIRS:
                counts[i] += found
            elif rules[EMIT] == EMIT_LEFT:
                counts[i] += found if side == 1 else min(found, np.int64(1))
        order[side, seen[side]] = i
        seen[side] += 1
        if found > 0 and rules[RELEASES + side] != 0:
            fate[i, 1] = 1
        else:
            _append(chains[key[i], side], links, i)
    for s in range(2):
        for number in range(expired[s], seen[s]):
            oldest = order[s, number]
            if fate[oldest, 1] == 0 and rules[NULLS + s] != 0 and fate[oldest, 0] == 0 and n >= warmup:
                counts[oldest] += 1


@jit
def _holds(condition, row, side, i, at):
    state, truth = outcome(condition, side, i, at)
    if state >= BY_ZERO and condition.meta[ERROR] == 0:
        condition.meta[ERROR] = state
        condition.meta[ERROR_LEFT + side] = row[i]
        condition.meta[ERROR_RIGHT - side] = row[at]
    return state == KNOWN and truth


@jit
def _append(chain, links, i):
    links[i, 0], links[i, 1] = -1, chain[1]
    if chain[1] >= 0:
        links[chain[1], 0] = i
    else:
        chain[0] = i
    chain[1] = i


@jit
def _unlink(chain, links, i):
    after, before = links[i, 0], links[i, 1]
    if before >= 0:
        links[before, 0] = after
    else:
        chain[0] = after
    if after >= 0:
        links[after, 1] = before
    else:
        chain[1] = before
