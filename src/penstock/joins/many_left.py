"""What a join of many streams knows of the tuples of its first stream, in left joins."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from penstock.engine.many_fates import (
    DECIDING,
    ENDED,
    EVENTS,
    FIRST,
    HAS_MATCHED,
    MAYBE,
    PART,
    PLACE,
    UNDECIDED,
    UNLINKED,
    UNMATCHED,
    ManyFates,
)
from penstock.engine.many_index import HELD, Index
from penstock.engine.many_join import ManyBatch, ManyOut
from penstock.engine.many_join_decided import ManyDecided, ManyDecisions
from penstock.engine.many_join_late import ManyFlow, new_many_flow
from penstock.engine.many_search import ManySearch
from penstock.engine.store import ROW, STREAM, Store
from penstock.errors import PenstockError
from penstock.joins.fates import buffered_slots
from penstock.joins.many_config import ManyConfig
from penstock.joins.many_output import NOBODY, ManyOutput


class DecidesFirst:
    """A join of many streams that may keep the rows of its first stream."""

    config: ManyConfig
    search: ManySearch | None
    known: ManyFates | None
    index: Index
    _alone: np.ndarray = NOBODY  # where rows that are in no result are written

    def finish(self, *, collect: bool = False, log: bool = False) -> ManyOutput:
        """A left join decides all that is still buffered, and takes no more batches."""
        if self.known is not None:
            self.known.meta[ENDED] = 1
        return self._run(self._nothing(), collect, log)

    def _nothing(self) -> ManyBatch:
        """An empty batch."""
        return self._batch([], np.empty((0, self.index.scheme.join.shape[1])), [], [])

    def _run(self, batch: ManyBatch, collect: bool, log: bool) -> ManyOutput:
        raise NotImplementedError

    def _batch(self, stream: Any, key: Any, time: Any, row: Any, size: Any = None) -> ManyBatch:
        raise NotImplementedError

    def _index(self, index: Index, flow: ManyFlow | None = None) -> ManyDecided:
        """The index of a left join."""
        assert self.search is not None
        assert self.known is not None
        return ManyDecided(self.search._replace(chains=index), flow or idle_flow(self.config), self.known)

    def _target(self, out: ManyOut, index: Any) -> Any:
        """What the driver writes to."""
        return ManyDecisions(*out, self._alone, index) if isinstance(index, ManyDecided) else out

    def _singles(self, alone: np.ndarray) -> np.ndarray:
        """Return rows of the first stream that are in no result as those of join 0."""
        single = np.full((len(alone), 1 + len(self.config.results[0])), -1, np.int64)
        single[:, 0], single[:, 1 + self.config.results[0].index(FIRST)] = 0, alone
        return single

    @property
    def unmatched(self) -> int:
        """Rows of the first stream that came out alone."""
        return 0 if self.known is None else int(self.known.meta[UNMATCHED])

    @property
    def undecided(self) -> int:
        """Rows of the first stream of which it is not known whether they are in a result."""
        return 0 if self.known is None else int(self.known.meta[UNDECIDED])

    @property
    def ended(self) -> bool:
        """Whether `finish` has decided all there was."""
        return self.known is not None and bool(self.known.meta[ENDED])

    def _check_open(self) -> None:
        if self.ended:
            raise PenstockError(
                "how='left': finish() has ended the streams, so that no row can come any more; start a new "
                "state."
            )


def idle_flow(config: ManyConfig) -> ManyFlow:
    """Return the progress of streams in step, of which nothing is used."""
    none = (0,) * config.streams
    return new_many_flow(config.results, (1, 1), none, config.time_dtype, none, 0)


@contextmanager
def undecided_meanwhile(known: ManyFates | None) -> Iterator[None]:
    """Let tuples enter meanwhile of which all that is known is known already."""
    if known is None:
        yield
        return
    known.rules[DECIDING] = 0
    try:
        yield
    finally:
        known.rules[DECIDING] = 1


def fates_of_first(known: ManyFates, store: Store, index: Index) -> tuple[np.ndarray, np.ndarray]:
    """Return what is known of the buffered tuples of the first stream, in order of arrival."""
    slots = first_slots(store)
    fate, met, born = known.fate[slots], known.met[slots].copy(), known.born[slots]
    for each, partner in enumerate(known.partner):
        stamp = known.stamp[index.links[slots, partner[PLACE], HELD]]
        met[:, each] |= stamp[:, partner[PART]] > born
        fate |= (MAYBE * (stamp[:, -1] > born)).astype(np.uint8)
    for stream in np.flatnonzero(known.role == UNLINKED):
        if stream != FIRST:
            fate |= (MAYBE * (known.left[stream] > born)).astype(np.uint8)
    return fate, met


def set_fates_of_first(known: ManyFates, store: Store, fate: np.ndarray, met: np.ndarray) -> None:
    """Give the buffered tuples of another store, in order of arrival, what is known of them."""
    slots = first_slots(store)
    known.stamp[:] = 0
    known.fate[slots], known.met[slots], known.born[slots] = fate, met, known.meta[EVENTS]


def carry_first(fresh: Any, old: Any, evicted: np.ndarray) -> None:
    """Let a state go on with what another one knows of the tuples that it has taken over.

    `evicted` has stream and row of those that did not fit in.
    """
    rows = old.store.t64[first_slots(old.store), ROW]
    fate, met = fates_of_first(old.known, old.store, old.index)
    gone = np.isin(rows, evicted[evicted[:, 0] == FIRST, 1])
    if (evicted[:, 0] != FIRST).any():
        fate |= MAYBE
    known = fresh.known
    known.meta[:] = old.known.meta
    known.meta[UNDECIDED] += np.count_nonzero(gone & (fate & HAS_MATCHED == 0))
    known.newest[:] = np.maximum(known.newest, old.known.newest)
    known.left[:] = 0
    set_fates_of_first(known, fresh.store, fate[~gone], met[~gone])


def switch_first(fresh: Any, old: Any) -> ManyFates:
    """Return what is known when all tuples have got other slots, under another policy."""
    fate, met = fates_of_first(old.known, old.store, old.index)
    known: ManyFates = fresh.known._replace(
        lost=old.known.lost, newest=old.known.newest, left=old.known.left, meta=old.known.meta
    )
    set_fates_of_first(known, fresh.store, fate, met)
    return known


def first_slots(store: Store) -> np.ndarray:
    """Return the slots of the buffered tuples of the first stream, in order of arrival."""
    slots = buffered_slots(store)
    return slots[store.t32[slots, STREAM] == FIRST]
