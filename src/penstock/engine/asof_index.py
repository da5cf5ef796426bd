"""The index of an as-of join: right rows and waiting left rows of each key in order of time.

A left row is answered by right rows of its key near its time. It waits in memory while a better right row may
still come. A right row stays while it may still be an answer: the newest of its key, and those that left
rows to come may prefer to it. Where two streams are in step, rows come in order of time, and the chains of
the store serve as they are; otherwise the index has links of its own, because a row may be late.

Whatever is evicted is remembered: a right row by a mark on the row before it (`doubt`) and in a filter of
keys. So an answer that may have been evicted is known to be doubtful.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from penstock.compiler.jit import jit
from penstock.engine.evicted_keys import EvictedKeys, new_evicted_keys
from penstock.engine.hooks import filed, score
from penstock.engine.score_queue import Queue, new_queue
from penstock.engine.store import ENTRY, HEAD, NEXT, PREV, STREAM, TAIL, TIME
from penstock.structures.tables import enlarged, new_table

LEFT, RIGHT = 0, 1
BACKWARD, FORWARD, NEAREST = 0, 1, 2
ANY_ORDER, LEFT_FIRST, RIGHT_FIRST = 0, 1, 2

# Columns of `AsofIndex.meta`: settings, counters, and what has come.
DIRECTION = 0
EXACT = 1  # 1: a right row of the same time is an answer
IN_STEP = 2  # 1: an arrival tells how far both streams have come
TIES = 3  # how arrivals of one time are ordered
ENDED = 4  # 1: the right stream has ended
CLOSED = 5  # +stream: 1 if its rows with a time equal to its progress have come
UNMATCHED = 7
UNDECIDED = 8
RELEASED = 9  # left rows that are answered, or known to be undecided, and not evicted
LATE = 10
META = 12

UNLIMITED = 2**61  # a tolerance that every pair of times is within
FAR = 2**62  # when nothing is due that would ever be
END = 2**62 + 2**61  # the progress of a stream that has ended

EARLIER, LATER = 0, 1  # columns of `links`


class Agenda(NamedTuple):
    """When something becomes known about a tuple: left rows that wait, right rows that may go."""

    due: np.ndarray
    waiting: Queue
    kept: Queue


class Announced(NamedTuple):
    """Right rows before which other right rows may still come, in order of time."""

    queue: Queue
    done: np.ndarray


class AsofIndex(NamedTuple):
    """Progress, order of time, doubts, and what to do when."""

    progress: np.ndarray
    behind: np.ndarray
    tolerance: np.ndarray
    agenda: Agenda
    announced: Announced
    settled: np.ndarray  # 1: no left row needs the right rows before this one
    doubt: np.ndarray  # 1: a right row between this one and the next may have been evicted
    links: np.ndarray
    ends: np.ndarray  # per key the first row of each stream, then the last of each
    evicted: EvictedKeys
    matched: np.ndarray  # the tuple that answers
    meta: np.ndarray

    def grown(self, capacities: tuple[int, ...]) -> AsofIndex:
        """Return the same with room for more tuples."""
        rows, total = sum(capacities) + 2, sum(capacities)
        if rows <= len(self.settled):
            return self
        agenda, announced = self.agenda, self.announced
        waiting, kept, queue = (
            each.grown((total,)) if used else each
            for each, used in zip(
                (agenda.waiting, agenda.kept, announced.queue), queues_for(self), strict=True
            )
        )
        own = len(self.links) > 1
        return self._replace(
            agenda=Agenda(enlarged(agenda.due, rows), waiting, kept),
            announced=Announced(queue, enlarged(announced.done, rows)),
            settled=enlarged(self.settled, rows),
            doubt=enlarged(self.doubt, rows),
            links=enlarged(self.links, (rows, 2)) if own else self.links,
            ends=enlarged(self.ends, (rows, 4)) if own else self.ends,
        )


def queues_for(index: AsofIndex) -> tuple[bool, bool, bool]:
    """Return which queues are needed: of waiting left rows, of right rows to go, and to announce."""
    direction, _, in_step, ties = index.meta[: TIES + 1].tolist()
    in_order = bool(in_step) and ties != ANY_ORDER
    bounded = index.tolerance[0] < UNLIMITED
    waits = not (in_order and direction == BACKWARD)
    keeps = not in_order or (direction != FORWARD and bounded)
    return waits, bool(keeps), direction != BACKWARD and not in_step


def tie_order(direction: int, exact: bool) -> int:
    """Return which stream should come first at equal times, so that a left row waits least."""
    return RIGHT_FIRST if exact != (direction == FORWARD) else LEFT_FIRST


def new_asof_index(
    capacities: tuple[int, ...],
    time_dtype: np.dtype,
    *,
    direction: int,
    exact: bool,
    tolerance: float,
    behind: tuple[float, ...] | None,
    ties: int,
    beginning: float,
    filter_bytes: int,
) -> AsofIndex:
    """Return an index without tuples; `behind` is None if both streams are in step."""
    total = sum(capacities)
    meta = np.zeros(META, np.int64)
    meta[[DIRECTION, EXACT, IN_STEP, TIES]] = direction, exact, behind is None, ties
    rows, own = total + 2, behind is not None
    index = AsofIndex(
        progress=np.full(2, beginning, time_dtype),
        behind=np.array(behind or (0, 0), time_dtype),
        tolerance=np.array([tolerance], time_dtype),
        agenda=Agenda(new_table(rows, time_dtype), new_queue((0,)), new_queue((0,))),
        announced=Announced(new_queue((0,)), new_table(rows, np.int8)),
        settled=new_table(rows, np.int8),
        doubt=new_table(rows, np.int8),
        links=new_table((rows, 2) if own else (1, 2), np.int32),
        ends=new_table((rows, 4) if own else (1, 4), np.int32),
        evicted=new_evicted_keys(
            filter_bytes, tolerance if tolerance < UNLIMITED else 0, time_dtype, beginning
        ),
        matched=np.zeros(1, np.int64),
        meta=meta,
    )
    waiting, kept, queue = (new_queue((total if used else 0,)) for used in queues_for(index))
    return index._replace(
        agenda=index.agenda._replace(waiting=waiting, kept=kept),
        announced=index.announced._replace(queue=queue),
    )


@score.on(Agenda)
def _due(agenda, store, slot):
    return np.float64(agenda.due[slot])


@filed.on(Agenda)
def _is_due(agenda, store, slot):
    return agenda.due[slot] < FAR


@score.on(Announced)
def _time(announced, store, slot):
    return np.float64(store.time[slot, TIME])


@filed.on(Announced)
def _is_open(announced, store, slot):
    return announced.done[slot] == 0


@jit
def reached(index, stream, time):
    """Whether all rows of a stream before this time have come."""
    return index.progress[stream] >= time


@jit
def passed(index, stream, time):
    """Whether all rows of a stream up to this time, and with it, have come."""
    progress = index.progress[stream]
    return progress > time or (progress == time and index.meta[CLOSED + stream] != 0)


@jit
def within_reach(index, time):
    """The last time that is within the tolerance of this one; `FAR` without a limit."""
    if index.tolerance[0] >= UNLIMITED:
        return index.tolerance[0] + UNLIMITED
    return time + index.tolerance[0]


@jit
def left_done(index, time):
    """Whether no left row to come needs a right row before this time; for `forward`, the one of this time."""
    if (index.meta[DIRECTION] == FORWARD) == (index.meta[EXACT] != 0):
        return passed(index, LEFT, time)
    return reached(index, LEFT, time)


@jit
def first_of(index, store, entry, side):
    """The earliest row of a key and stream, 0 if there is none."""
    if index.links.shape[0] > 1:
        return np.int64(index.ends[entry, side])
    return np.int64(store.k32[entry, HEAD + side])


@jit
def last_of(index, store, entry, side):
    """The latest row of a key and stream, 0 if there is none."""
    if index.links.shape[0] > 1:
        return np.int64(index.ends[entry, 2 + side])
    return np.int64(store.k32[entry, TAIL + side])


@jit
def later_than(index, store, slot):
    """The next later row of the same key and stream."""
    if index.links.shape[0] > 1:
        return np.int64(index.links[slot, LATER])
    return np.int64(store.t32[slot, NEXT])


@jit
def earlier_than(index, store, slot):
    """The next earlier row of the same key and stream."""
    if index.links.shape[0] > 1:
        return np.int64(index.links[slot, EARLIER])
    return np.int64(store.t32[slot, PREV])


@jit
def link_in_time(index, store, slot):
    """Put a tuple among those of its key and stream by (time, arrival). O(rows of the key that are later)."""
    if index.links.shape[0] == 1:
        return
    entry, side, time = np.int64(store.t32[slot, ENTRY]), store.t32[slot, STREAM], store.time[slot, TIME]
    after = np.int64(0)
    before = np.int64(index.ends[entry, 2 + side])
    while before != 0 and store.time[before, TIME] > time:
        after = before
        before = np.int64(index.links[before, EARLIER])
    index.links[slot, EARLIER], index.links[slot, LATER] = before, after
    if before != 0:
        index.links[before, LATER] = slot
    else:
        index.ends[entry, side] = slot
    if after != 0:
        index.links[after, EARLIER] = slot
    else:
        index.ends[entry, 2 + side] = slot


@jit
def unlink_in_time(index, store, slot):
    """Take a tuple out of the order of time. O(1)."""
    if index.links.shape[0] == 1:
        return
    entry, side = np.int64(store.t32[slot, ENTRY]), store.t32[slot, STREAM]
    before, after = index.links[slot, EARLIER], index.links[slot, LATER]
    if before != 0:
        index.links[before, LATER] = after
    else:
        index.ends[entry, side] = after
    if after != 0:
        index.links[after, EARLIER] = before
    else:
        index.ends[entry, 2 + side] = before
