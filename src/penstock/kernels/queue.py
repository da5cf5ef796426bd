"""A queue that finds the tuple with the lowest score, for scores that only rise.

An entry keeps the score its tuple had when it was filed, a lower bound of the present one. The front is
looked at when a victim is needed: if its score has risen meanwhile it is filed again under the present
one, so that a match costs the queue nothing. Newcomers mostly enter with a score no lower than the
newcomer before them; those form a sorted run that takes an O(1) append, and only what is filed again, or
enters out of order, goes to a heap. Entries of tuples that have left are skipped, and packed away when
the room is used up.

Cost: O(1) for a newcomer in order, O(log n) for one filed again.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from penstock.kernels.hooks import filed, score
from penstock.kernels.jit import jit, prefetch, rare
from penstock.kernels.layout import (
    ARRIVAL,
    ENTRY,
    HEAD,
    NEXT,
    PLACE,
    PREV,
    SIDE,
    STREAM,
    fetch_ahead,
)

HEAD_AT = 0
RUN_LENGTH = 1
HEAP_LENGTH = 2


class Queue(NamedTuple):
    """Per pool a sorted run (a ring) and a heap of (score, arrival, tuple) entries."""

    run_score: np.ndarray
    run_tuple: np.ndarray
    heap_score: np.ndarray
    heap_tuple: np.ndarray
    ends: np.ndarray


def new_queue(capacities: tuple[int, ...]) -> Queue:
    """An empty queue for pools of at most so many tuples."""
    pools, size = len(capacities), max(capacities) + max(capacities) // 2 + 16  # room for what has left
    return Queue(
        run_score=np.zeros((pools, size)),
        run_tuple=np.zeros((pools, size, 2), np.int64),
        heap_score=np.zeros((pools, size)),
        heap_tuple=np.zeros((pools, size, 2), np.int64),
        ends=np.zeros((pools, 3), np.int64),
    )


@jit
def file_newcomer(queue, store, pool, slot, value):
    """File a tuple that has just entered with this score."""
    ends = queue.ends[pool]
    size = queue.run_score.shape[1]
    if ends[RUN_LENGTH] == size:
        _pack_run(queue, store, pool)
    at = ends[HEAD_AT] + ends[RUN_LENGTH]
    if at >= size:
        at -= size
    if ends[RUN_LENGTH] > 0:
        last = at - 1 if at > 0 else size - 1
        if queue.run_score[pool, last] > value:
            file_again(queue, store, pool, slot, value)
            return
    queue.run_score[pool, at] = value
    queue.run_tuple[pool, at, 0] = store.t64[slot, ARRIVAL]
    queue.run_tuple[pool, at, 1] = slot
    ends[RUN_LENGTH] += 1


@jit
def file_again(queue, store, pool, slot, value):
    """File a tuple under any score."""
    ends = queue.ends[pool]
    if ends[HEAP_LENGTH] == queue.heap_score.shape[1]:
        _pack_heap(queue, store, pool)
    at = ends[HEAP_LENGTH]
    ends[HEAP_LENGTH] += 1
    _sift_up(queue.heap_score[pool], queue.heap_tuple[pool], at, value, store.t64[slot, ARRIVAL], slot)


@jit
def file_first(policy, queue, store, slot):
    """File a newcomer if it is the first of its key: for policies that let the oldest of a key go first.

    Such a key is in the queue once, by its oldest tuple, so that a use of the key is one filing at most.
    """
    if store.k32[store.t32[slot, ENTRY], HEAD + store.t32[slot, SIDE]] == slot:
        file_one(policy, queue, store, slot)
    else:
        store.t32[slot, PLACE] = 0


@jit
def file_one(policy, queue, store, slot):
    """File a newcomer, and note at its tuple that it is filed."""
    store.t32[slot, PLACE] = 1
    pool = store.pool_of[store.t32[slot, STREAM]]
    file_newcomer(queue, store, pool, slot, score(policy, store, slot))


@jit
def file_next(policy, queue, store, slot):
    """A tuple leaves, and the next of its key takes its place in the queue if it was the oldest."""
    after = store.t32[slot, NEXT]
    if after != 0 and store.t32[slot, PREV] == 0 and store.t32[after, PLACE] == 0:
        store.t32[after, PLACE] = 1
        pool = store.pool_of[store.t32[slot, STREAM]]
        file_again(queue, store, pool, after, score(policy, store, after))


@jit
def front(policy, queue, store, pool):
    """The tuple with the lowest (score, arrival) of a pool and its score; (0, 0.0) if it is empty."""
    ends = queue.ends[pool]
    run_score, run_tuple = queue.run_score[pool], queue.run_tuple[pool]
    heap_score, heap_tuple = queue.heap_score[pool], queue.heap_tuple[pool]
    if ends[RUN_LENGTH] > 6 and ends[HEAD_AT] + 6 < run_score.shape[0]:
        at = ends[HEAD_AT]
        fetch_ahead(store, run_tuple[at + 6, 1], run_tuple[at + 4, 1], run_tuple[at + 2, 1])
        prefetch(run_tuple, 2 * (at + 24))
        prefetch(run_score, at + 24)
    if ends[HEAP_LENGTH] > 4:
        for i in range(1, 5):  # one of these will be the top next
            slot = heap_tuple[i, 1]
            prefetch(store.t64, 8 * slot)
            prefetch(store.k64, 8 * np.int64(store.t32[slot, ENTRY]))
    while True:
        at = ends[HEAD_AT]
        if ends[RUN_LENGTH] == 0:
            from_heap = True
            if ends[HEAP_LENGTH] == 0:
                return 0, 0.0
        elif ends[HEAP_LENGTH] == 0:
            from_heap = False
        else:
            from_heap = heap_score[0] < run_score[at] or (
                heap_score[0] == run_score[at] and heap_tuple[0, 0] < run_tuple[at, 0]
            )
        if from_heap:
            bound, arrival, slot = heap_score[0], heap_tuple[0, 0], heap_tuple[0, 1]
        else:
            bound, arrival, slot = run_score[at], run_tuple[at, 0], run_tuple[at, 1]
        if store.t64[slot, ARRIVAL] == arrival and filed(policy, store, slot):
            present = score(policy, store, slot)
            if present <= bound:
                return slot, present
            if from_heap:
                _sift_down(heap_score, heap_tuple, ends[HEAP_LENGTH], 0, present, arrival, slot)
            else:
                _drop_run_front(ends, run_score.shape[0])
                file_again(queue, store, pool, slot, present)
        elif from_heap:
            _drop_heap_top(heap_score, heap_tuple, ends)
        else:
            _drop_run_front(ends, run_score.shape[0])


@jit
def _drop_run_front(ends, size):
    ends[HEAD_AT] += 1
    if ends[HEAD_AT] == size:
        ends[HEAD_AT] = 0
    ends[RUN_LENGTH] -= 1


@jit
def _drop_heap_top(scores, tuples, ends):
    ends[HEAP_LENGTH] -= 1
    length = ends[HEAP_LENGTH]
    if length > 0:
        _sift_down(scores, tuples, length, 0, scores[length], tuples[length, 0], tuples[length, 1])


@jit
def _sift_up(scores, tuples, at, value, arrival, slot):
    """Place an entry at or above a hole at position `at` (four children to a node)."""
    while at > 0:
        up = (at - 1) >> 2
        if scores[up] < value or (scores[up] == value and tuples[up, 0] < arrival):
            break
        scores[at] = scores[up]
        tuples[at, 0] = tuples[up, 0]
        tuples[at, 1] = tuples[up, 1]
        at = up
    scores[at] = value
    tuples[at, 0] = arrival
    tuples[at, 1] = slot


@jit
def _sift_down(scores, tuples, length, at, value, arrival, slot):
    """Place an entry at or below a hole at position `at`."""
    while True:
        child = 4 * at + 1
        if child >= length:
            break
        best = child
        for other in range(child + 1, min(child + 4, length)):
            if scores[other] < scores[best] or (
                scores[other] == scores[best] and tuples[other, 0] < tuples[best, 0]
            ):
                best = other
        if value < scores[best] or (value == scores[best] and arrival < tuples[best, 0]):
            break
        scores[at] = scores[best]
        tuples[at, 0] = tuples[best, 0]
        tuples[at, 1] = tuples[best, 1]
        at = best
    scores[at] = value
    tuples[at, 0] = arrival
    tuples[at, 1] = slot


@rare
def _pack_run(queue, store, pool):
    """Drop the entries of tuples that have left from the run; their order stays."""
    scores, tuples, ends = queue.run_score[pool], queue.run_tuple[pool], queue.ends[pool]
    size = scores.shape[0]
    kept = 0
    for i in range(ends[RUN_LENGTH]):
        at = ends[HEAD_AT] + i
        if at >= size:
            at -= size
        if store.t64[tuples[at, 1], ARRIVAL] == tuples[at, 0]:
            to = ends[HEAD_AT] + kept
            if to >= size:
                to -= size
            scores[to] = scores[at]
            tuples[to, 0] = tuples[at, 0]
            tuples[to, 1] = tuples[at, 1]
            kept += 1
    ends[RUN_LENGTH] = kept


@rare
def _pack_heap(queue, store, pool):
    """Drop the entries of tuples that have left from the heap, and order it anew."""
    scores, tuples, ends = queue.heap_score[pool], queue.heap_tuple[pool], queue.ends[pool]
    kept = 0
    for at in range(ends[HEAP_LENGTH]):
        if store.t64[tuples[at, 1], ARRIVAL] == tuples[at, 0]:
            scores[kept] = scores[at]
            tuples[kept, 0] = tuples[at, 0]
            tuples[kept, 1] = tuples[at, 1]
            kept += 1
    ends[HEAP_LENGTH] = kept
    for at in range((kept - 2) >> 2, -1, -1):
        _sift_down(scores, tuples, kept, at, scores[at], tuples[at, 0], tuples[at, 1])
