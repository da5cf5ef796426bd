"""Check the index of an as-of join: of a restored snapshot, and its invariants for tests and debugging."""

from __future__ import annotations

import numpy as np

from penstock.engine.asof_index import (
    DIRECTION,
    EARLIER,
    ENDED,
    EXACT,
    FORWARD,
    IN_STEP,
    LATE,
    LATER,
    LEFT,
    RELEASED,
    RIGHT,
    TIES,
    Agenda,
    Announced,
    AsofIndex,
    queues_for,
)
from penstock.engine.asof_index import FAR as NEVER
from penstock.engine.evicted_keys import EvictedKeys
from penstock.engine.score_queue import HEAD_AT, HEAP_LENGTH, RUN_LENGTH, Queue
from penstock.engine.store import (
    ARRIVAL,
    ARRIVALS,
    ENTRY,
    EVICTED,
    EXPIRED,
    HIGH_KEY,
    LIVE,
    ROW,
    STREAM,
    TIME,
    Store,
)
from penstock.joins.invariants import check_tables
from penstock.snapshots.array_checks import FAR, check_numbers, check_same, check_shapes, check_within
from penstock.states.checks import check_queue
from penstock.states.checks.parts import CHECKS, anything
from penstock.states.checks.store import check_ends, check_links, live_tuples

SETTINGS = [DIRECTION, EXACT, IN_STEP, TIES]

for _kind in (Agenda, Announced, EvictedKeys):
    CHECKS[_kind] = anything  # looked at with the index that they belong to


def check_asof_index(index: AsofIndex, store: Store, fresh: AsofIndex) -> None:
    """Whether a restored index has its tuples in order, and every queue tuples that there are."""
    check_shapes(index, fresh, "the index")
    check_same(index.meta[SETTINGS], fresh.meta[SETTINGS], "a setting")
    check_within(index.meta, 0, FAR, "a counter")
    check_within(index.meta[ENDED], 0, 2, "the end of a stream")
    for name in ("behind", "tolerance"):
        check_same(getattr(index, name), getattr(fresh, name), name)
    for times in (index.progress, index.agenda.due, index.evicted.origin, index.evicted.latest):
        check_numbers(times, "a time")
    check_same(index.evicted.pane, fresh.evicted.pane, "the span of a pane")
    check_within(index.evicted.cells, 0, 2**31 - 1, "a pane")
    check_within(index.evicted.noted, 0, FAR, "a counter")
    for flags in (index.settled, index.doubt, index.announced.done):
        check_within(flags, 0, 1, "a mark")
    check_within(index.matched, 0, len(store.t64) - 1, "a tuple")
    streams = store.t32[:, STREAM]
    agenda = index.agenda
    for queue, side in ((agenda.waiting, LEFT), (agenda.kept, RIGHT), (index.announced.queue, RIGHT)):
        check_queue(queue, store, owner=np.where(streams == side, 0, -1))
    if len(index.links) > 1:
        _check_links(index, store)


CHECKS[AsofIndex] = check_asof_index


def _check_links(index: AsofIndex, store: Store) -> None:
    """Whether the rows of each key and stream are linked in order of time."""
    live = live_tuples(store)
    order = live[np.lexsort((store.t64[live, ARRIVAL], store.time[live, TIME]))]
    rank = np.zeros(len(store.t64), np.int64)
    rank[order] = np.arange(len(order))
    chains = 2 * (int(store.meta[HIGH_KEY]) + 1)
    chain = 2 * store.t32[live, ENTRY].astype(np.int64) + store.t32[live, STREAM]
    check_links(live, chain, index.links[:, EARLIER], index.links[:, LATER], rank)
    rows = index.ends[: chains // 2]
    check_ends(live, chain, index.links[:, EARLIER], rows[:, :2].reshape(-1), chains)
    check_ends(live, chain, index.links[:, LATER], rows[:, 2:].reshape(-1), chains)


def check_asof_store(store: Store, index: AsofIndex) -> None:
    """Assert that chains, queues, progress and accounts agree."""
    check_tables(store)
    meta = store.meta
    gone = meta[EXPIRED] + meta[EVICTED] + index.meta[RELEASED] + index.meta[LATE]
    assert meta[ARRIVALS] == meta[LIVE] + gone, "arrivals are unaccounted for"
    live = live_tuples(store)
    if len(index.links) > 1:
        _check_links(index, store)
    left = live[store.t32[live, STREAM] == LEFT]
    right = live[store.t32[live, STREAM] == RIGHT]
    waits, keeps, announces = queues_for(index)
    assert waits or len(left) == 0, "a left row waits that should have been answered"
    assert keeps or index.meta[DIRECTION] != FORWARD or len(right) == 0, "a right row is of no use"
    if waits and index.meta[ENDED] == 0:
        _check_filed(index.agenda.waiting, store, left[index.agenda.due[left] < NEVER])
    if keeps:
        _check_filed(index.agenda.kept, store, right[index.agenda.due[right] < NEVER])
    if announces:
        _check_filed(index.announced.queue, store, right[index.announced.done[right] == 0])
    assert (store.t64[live, ROW] >= 0).all(), "a tuple has no row"


def _check_filed(queue: Queue, store: Store, slots: np.ndarray) -> None:
    """Assert that tuples are in a queue."""
    head, length, heaped = (int(queue.ends[0, at]) for at in (HEAD_AT, RUN_LENGTH, HEAP_LENGTH))
    at = (head + np.arange(length)) % queue.run_score.shape[1]
    number, slot = queue.run_tuple[0, at].T
    filed = set(slot[store.t64[slot, ARRIVAL] == number].tolist())
    slot, number = queue.heap_slot[0, :heaped], queue.heap[0, 1 : 2 * heaped : 2]
    filed |= set(slot[store.t64[slot, ARRIVAL] == number.astype(np.int64)].tolist())
    assert set(slots.tolist()) <= filed, "a tuple is in no queue"
