"""Move the tuples of an as-of join: to another policy, where their slots change, or to another state.

What an index knows of its tuples goes with them: what is due when, which right rows are settled, announced
and doubtful.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from penstock.compiler.driver import driver
from penstock.compiler.jit import jit
from penstock.compiler.references import borrow
from penstock.engine.asof_index import FAR, LEFT, AsofIndex, link_in_time
from penstock.engine.asof_memory import let_in
from penstock.engine.pair_join import pin, unpin
from penstock.engine.score_queue import file_newcomer
from penstock.engine.store import ARRIVAL, ARRIVALS, HIGH_TUPLE, STREAM, TIME, Store, find_key, wants_rows


class Marks(NamedTuple):
    """What an index knows of tuples, in order of their arrival."""

    due: np.ndarray
    settled: np.ndarray
    doubt: np.ndarray
    done: np.ndarray


def _live(store: Store) -> np.ndarray:
    """The slots of the tuples in order of arrival."""
    arrival = store.t64[1 : int(store.meta[HIGH_TUPLE]) + 1, ARRIVAL]
    slots = np.flatnonzero(arrival >= 0)
    return slots[np.argsort(arrival[slots])] + 1


def marks_of(index: AsofIndex, slots: np.ndarray) -> Marks:
    """Return what an index knows of these tuples."""
    tables = index.agenda.due, index.settled, index.doubt, index.announced.done
    return Marks(*(table[slots].copy() for table in tables))


def carried_marks(store: Store, index: AsofIndex) -> Marks:
    """Return what an index knows of all tuples."""
    return marks_of(index, _live(store))


def restore_marks(store: Store, index: AsofIndex, marks: Marks) -> None:
    """Let an index know the same of the same tuples, which have other slots now."""
    slots = _live(store)
    tables = index.agenda.due, index.settled, index.doubt, index.announced.done
    for table, mine in zip(tables, marks, strict=True):
        table[slots] = mine
    if len(index.links) > 1:
        index.links[:], index.ends[:] = 0, 0
    for queue in (index.agenda.waiting, index.agenda.kept, index.announced.queue):
        queue.ends[:] = 0
    _link_all(store, index, slots[np.argsort(store.time[slots, TIME], kind="stable")])
    _file_all(store, index, slots[np.argsort(marks.due, kind="stable")])


@jit
def _link_all(store, index, slots):
    for i in range(slots.shape[0]):
        link_in_time(index, store, slots[i])


@jit
def _file_all(store, index, slots):
    for i in range(slots.shape[0]):
        file_tuple(store, index, slots[i])


@jit
def file_tuple(store, index, slot):
    """Put a tuple in the queues that it belongs in."""
    agenda, announced = index.agenda, index.announced
    due = np.float64(agenda.due[slot])
    if store.t32[slot, STREAM] == LEFT:
        file_newcomer(agenda.waiting, store, 0, slot, due)
        return
    if agenda.due[slot] < FAR:
        file_newcomer(agenda.kept, store, 0, slot, due)
    if announced.done[slot] == 0:
        file_newcomer(announced.queue, store, 0, slot, np.float64(store.time[slot, TIME]))


@driver
def reindex(policy, store, index, batch, out, marks, start):
    """Let tuples of another state enter; the first one not let in, if the tables have to grow."""
    return _reindex(
        borrow(policy), borrow(store), borrow(index), borrow(batch), borrow(out), borrow(marks), start
    )


@jit
def _reindex(policy, store, index, batch, out, marks, start):
    for i in range(start, batch.stream.shape[0]):
        if wants_rows(store, np.int64(batch.stream[i])):
            return i
        entry = pin(policy, store, batch.key[i], find_key(store, batch.key[i]))
        slot = let_in(index, policy, store, batch, out, i, entry)
        if slot != 0:
            index.agenda.due[slot] = marks.due[i]
            index.settled[slot] = marks.settled[i]
            index.doubt[slot] = marks.doubt[i]
            index.announced.done[slot] = marks.done[i]
            link_in_time(index, store, slot)
            file_tuple(store, index, slot)
        unpin(store)
        store.meta[ARRIVALS] += 1
    return batch.stream.shape[0]
