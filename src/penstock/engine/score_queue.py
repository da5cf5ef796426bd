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

from penstock.compiler.jit import jit
from penstock.compiler.references import prefetch
from penstock.engine.hooks import filed, score
from penstock.engine.store import (
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
from penstock.structures.tables import enlarged, new_table, unroll

HEAD_AT = 0
RUN_LENGTH = 1
HEAP_LENGTH = 2


class Queue(NamedTuple):
    """Per pool a sorted run (a ring) and a heap of (score, arrival, tuple) entries.

    Scores often tie, so an entry of the heap has its arrival beside its score, in one line of cache.
    """

    run_score: np.ndarray
    run_tuple: np.ndarray
    heap: np.ndarray  # score, arrival, score, arrival...
    heap_slot: np.ndarray
    ends: np.ndarray

    def grown(self, capacities: tuple[int, ...]) -> Queue:
        """Return the queue with room for pools of these capacities."""
        pools, size = len(capacities), _size(capacities)
        if size <= self.run_score.shape[1]:
            return self
        run_score, run_tuple = new_table((pools, size)), new_table((pools, size, 2), np.int64)
        for pool, first in enumerate(self.ends[:, HEAD_AT].tolist()):
            unroll(self.run_score[pool], first, run_score[pool])
            unroll(self.run_tuple[pool], first, run_tuple[pool])
        self.ends[:, HEAD_AT] = 0
        heap, heap_slot = enlarged(self.heap, (pools, 2 * size)), enlarged(self.heap_slot, (pools, size))
        return Queue(run_score, run_tuple, heap, heap_slot, self.ends)


def new_queue(capacities: tuple[int, ...]) -> Queue:
    """An empty queue for pools of at most so many tuples."""
    pools, size = len(capacities), _size(capacities)
    return Queue(
        run_score=new_table((pools, size)),
        run_tuple=new_table((pools, size, 2), np.int64),
        heap=new_table((pools, 2 * size)),
        heap_slot=new_table((pools, size), np.int32),
        ends=np.zeros((pools, 3), np.int64),
    )


def _size(capacities: tuple[int, ...]) -> int:
    return max(capacities) + max(capacities) // 2 + 16  # room for what has left


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
    if ends[HEAP_LENGTH] == queue.heap_slot.shape[1]:
        _pack_heap(queue, store, pool)
    at = ends[HEAP_LENGTH]
    ends[HEAP_LENGTH] += 1
    _sift_up(queue.heap[pool], queue.heap_slot[pool], at, value, np.float64(store.t64[slot, ARRIVAL]), slot)


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
    heap, heap_slot = queue.heap[pool], queue.heap_slot[pool]
    if ends[RUN_LENGTH] > 6 and ends[HEAD_AT] + 6 < run_score.shape[0]:
        at = ends[HEAD_AT]
        fetch_ahead(store, run_tuple[at + 6, 1], run_tuple[at + 4, 1], run_tuple[at + 2, 1])
        prefetch(run_tuple, 2 * (at + 24))
        prefetch(run_score, at + 24)
    if ends[HEAP_LENGTH] > 4:
        for i in range(1, 5):  # one of these will be the top next
            slot = np.int64(heap_slot[i])
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
            from_heap = heap[0] < run_score[at] or (heap[0] == run_score[at] and heap[1] < run_tuple[at, 0])
        if from_heap:
            bound, arrival, slot = heap[0], np.int64(heap[1]), np.int64(heap_slot[0])
        else:
            bound, arrival, slot = run_score[at], run_tuple[at, 0], run_tuple[at, 1]
        if store.t64[slot, ARRIVAL] == arrival and filed(policy, store, slot):
            present = score(policy, store, slot)
            if present <= bound:
                return slot, present
            if from_heap:
                _sift_down(heap, heap_slot, ends[HEAP_LENGTH], 0, present, np.float64(arrival), slot)
            else:
                _drop_run_front(ends, run_score.shape[0])
                file_again(queue, store, pool, slot, present)
        elif from_heap:
            _drop_heap_top(heap, heap_slot, ends)
        else:
            _drop_run_front(ends, run_score.shape[0])


@jit
def lowest_bound(queue, pool):
    """A lower bound of the scores of a pool, without a look at its tuples; infinite if the queue is empty."""
    ends = queue.ends[pool]
    lowest = np.inf
    if ends[RUN_LENGTH] > 0:
        lowest = queue.run_score[pool, ends[HEAD_AT]]
    if ends[HEAP_LENGTH] > 0:
        lowest = min(lowest, queue.heap[pool, 0])
    return lowest


@jit
def _drop_run_front(ends, size):
    ends[HEAD_AT] += 1
    if ends[HEAD_AT] == size:
        ends[HEAD_AT] = 0
    ends[RUN_LENGTH] -= 1


@jit
def _drop_heap_top(heap, slots, ends):
    ends[HEAP_LENGTH] -= 1
    length = ends[HEAP_LENGTH]
    if length > 0:
        _sift_down(heap, slots, length, 0, heap[2 * length], heap[2 * length + 1], np.int64(slots[length]))


@jit
def _sift_up(heap, slots, at, value, arrival, slot):
    """Place an entry at or above a hole at position `at` (four children to a node)."""
    while at > 0:
        up = (at - 1) >> 2
        if heap[2 * up] < value or (heap[2 * up] == value and heap[2 * up + 1] < arrival):
            break
        _move(heap, slots, up, at)
        at = up
    heap[2 * at] = value
    heap[2 * at + 1] = arrival
    slots[at] = slot


@jit
def _sift_down(heap, slots, length, at, value, arrival, slot):
    """Place an entry at or below a hole at position `at`."""
    while True:
        best = 4 * at + 1
        if best >= length:
            break
        low, early = heap[2 * best], heap[2 * best + 1]
        for other in range(best + 1, min(best + 4, length)):
            bound, number = heap[2 * other], heap[2 * other + 1]
            if bound < low or (bound == low and number < early):
                best, low, early = other, bound, number
        if value < low or (value == low and arrival < early):
            break
        _move(heap, slots, best, at)
        at = best
    heap[2 * at] = value
    heap[2 * at + 1] = arrival
    slots[at] = slot


@jit
def _move(heap, slots, source, target):
    heap[2 * target] = heap[2 * source]
    heap[2 * target + 1] = heap[2 * source + 1]
    slots[target] = slots[source]


@jit
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


@jit
def _pack_heap(queue, store, pool):
    """Drop the entries of tuples that have left from the heap, and order it anew."""
    heap, slots, ends = queue.heap[pool], queue.heap_slot[pool], queue.ends[pool]
    kept = np.int64(0)
    for at in range(ends[HEAP_LENGTH]):
        if store.t64[slots[at], ARRIVAL] == np.int64(heap[2 * at + 1]):
            _move(heap, slots, np.int64(at), kept)
            kept += 1
    ends[HEAP_LENGTH] = kept
    for at in range((kept - 2) >> 2, -1, -1):
        _sift_down(heap, slots, kept, np.int64(at), heap[2 * at], heap[2 * at + 1], np.int64(slots[at]))
