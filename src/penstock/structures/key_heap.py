"""A heap of keys by score, one entry per key and stream, whose scores may rise and fall.

Tuples of one key and stream differ only in age, and the oldest is worth least, so keys compete by their
oldest tuple. An item is `2 * entry + side`; where it is in the heap is known, so that a changed score moves
it in O(log n). Among equal scores the earlier arrival comes first.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from penstock.compiler.jit import jit
from penstock.structures.tables import enlarged, new_table


class Ranking(NamedTuple):
    """Per pool a heap of (score, arrival of the oldest tuple, item); `place` is the position plus one."""

    score: np.ndarray
    arrival: np.ndarray
    item: np.ndarray
    place: np.ndarray
    length: np.ndarray

    def grown(self, capacities: tuple[int, ...]) -> Ranking:
        """Return the heaps with room for pools of these capacities."""
        shape = len(capacities), max(max(capacities) + 2, self.score.shape[1])
        return Ranking(
            score=enlarged(self.score, shape),
            arrival=enlarged(self.arrival, shape),
            item=enlarged(self.item, shape),
            place=enlarged(self.place, 2 * (sum(capacities) + 2)),
            length=self.length,
        )


def new_ranking(capacities: tuple[int, ...]) -> Ranking:
    """An empty heap for pools of at most so many tuples."""
    pools, size = len(capacities), max(capacities) + 2
    return Ranking(
        score=new_table((pools, size)),
        arrival=new_table((pools, size), np.int64),
        item=new_table((pools, size), np.int32),
        place=new_table(2 * (sum(capacities) + 2), np.int32),
        length=np.zeros(pools, np.int64),
    )


@jit
def rank(ranking, pool, item, score, arrival):
    """File an item, or move it to where its present score belongs. O(log n)."""
    at = ranking.place[item] - 1
    if at < 0:
        at = ranking.length[pool]
        ranking.length[pool] += 1
        _up(ranking, pool, at, item, score, arrival)
    elif score < ranking.score[pool, at] or (
        score == ranking.score[pool, at] and arrival < ranking.arrival[pool, at]
    ):
        _up(ranking, pool, at, item, score, arrival)
    else:
        _down(ranking, pool, at, item, score, arrival)


@jit
def unrank(ranking, pool, item):
    """Take an item out. O(log n)."""
    at = ranking.place[item] - 1
    if at < 0:
        return
    ranking.place[item] = 0
    end = ranking.length[pool] - 1
    ranking.length[pool] = end
    if at == end:
        return
    score, arrival = ranking.score[pool, end], ranking.arrival[pool, end]
    moved = np.int64(ranking.item[pool, end])
    if at > 0 and _before(ranking, pool, score, arrival, (at - 1) >> 2):
        _up(ranking, pool, at, moved, score, arrival)
    else:
        _down(ranking, pool, at, moved, score, arrival)


@jit
def _before(ranking, pool, score, arrival, at):
    """Whether this score and arrival come before those at a position."""
    there = ranking.score[pool, at]
    return score < there or (score == there and arrival < ranking.arrival[pool, at])


@jit
def _put(ranking, pool, at, item, score, arrival):
    ranking.score[pool, at] = score
    ranking.arrival[pool, at] = arrival
    ranking.item[pool, at] = item
    ranking.place[item] = at + 1


@jit
def _move(ranking, pool, source, to):
    item = np.int64(ranking.item[pool, source])
    _put(ranking, pool, to, item, ranking.score[pool, source], ranking.arrival[pool, source])


@jit
def _up(ranking, pool, at, item, score, arrival):
    while at > 0:
        above = (at - 1) >> 2
        if not _before(ranking, pool, score, arrival, above):
            break
        _move(ranking, pool, above, at)
        at = above
    _put(ranking, pool, at, item, score, arrival)


@jit
def _down(ranking, pool, at, item, score, arrival):
    length = ranking.length[pool]
    while True:
        child = 4 * at + 1
        if child >= length:
            break
        best = child
        for other in range(child + 1, min(child + 4, length)):
            if _before(ranking, pool, ranking.score[pool, other], ranking.arrival[pool, other], best):
                best = other
        if _before(ranking, pool, score, arrival, best):
            break
        _move(ranking, pool, best, at)
        at = best
    _put(ranking, pool, at, item, score, arrival)


def check_ranking(ranking: Ranking) -> None:
    """Assert that every item is where it is said to be, and none before the one above it."""
    filed = 0
    for pool, length in enumerate(ranking.length):
        filed += int(length)
        for at in range(int(length)):
            item = ranking.item[pool, at]
            assert ranking.place[item] == at + 1, "an item is not where it is said to be"
            here = ranking.score[pool, at], ranking.arrival[pool, at]
            if at:
                above = (at - 1) >> 2
                assert (ranking.score[pool, above], ranking.arrival[pool, above]) <= here, "out of order"
    assert np.count_nonzero(ranking.place) == filed, "an item is filed that is in no heap"
