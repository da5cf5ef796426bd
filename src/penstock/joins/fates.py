"""What is known of each buffered tuple, carried along when tuples get other slots."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from penstock.engine.pair_condition import PairCondition
from penstock.engine.pair_join_decided import (
    ALIKE,
    HAS_MATCHED,
    TOGETHER,
    TRACKED,
    UNDECIDED,
    Decided,
)
from penstock.engine.store import ARRIVAL, ENTRY, HIGH_TUPLE, RELEASED, ROW, STREAM, Store
from penstock.joins.kinds import INNER


def buffered_slots(store: Store) -> np.ndarray:
    """Return the slots of the buffered tuples in order of arrival."""
    slots = np.flatnonzero(store.t64[: int(store.meta[HIGH_TUPLE]) + 1, ARRIVAL] >= 0)
    slots = slots[slots > 0]
    return slots[np.argsort(store.t64[slots, ARRIVAL])]


def fates_of(index: Any, store: Store) -> np.ndarray:
    """Return what is known of each buffered tuple, in order of arrival; nothing for plain inner joins."""
    if not isinstance(index, Decided):
        return np.empty(0, np.uint8)
    slots = buffered_slots(store)
    fates = index.fate[slots]
    if index.rules[ALIKE]:
        few = store.t32[slots]
        matched = index.last[few[:, ENTRY], few[:, STREAM]] > store.t64[slots, ARRIVAL]
        fates = fates | (HAS_MATCHED * matched).astype(np.uint8)
    return fates


@contextmanager
def as_inner(index: Any) -> Iterator[None]:
    """Let arrivals enter meanwhile as they do in an inner join: none is released, and nothing is decided."""
    if not isinstance(index, Decided):
        yield
        return
    rules = index.rules.copy()
    index.rules[:] = INNER.rules(bool(rules[TOGETHER]), conditional=True)
    try:
        yield
    finally:
        index.rules[:] = rules


def carry_fates(fresh: Any, old: Any, evicted: np.ndarray) -> None:
    """Let a state go on with what another one knows of the tuples that it has taken over.

    `evicted` has stream and row of those that did not fit in.
    """
    slots = buffered_slots(old.store)
    names = list(zip(old.store.t32[slots, STREAM].tolist(), old.store.t64[slots, ROW].tolist(), strict=True))
    gone = set(map(tuple, evicted.tolist()))
    stays = np.array([name not in gone for name in names], bool)
    fates = fates_of(old.index, old.store)
    set_fates(fresh.index, fresh.store, fates[stays])
    tracked = fresh.index.rules[[TRACKED + stream for stream, _ in names]]
    fresh.index.meta[:] = old.index.meta
    fresh.index.meta[UNDECIDED] += np.count_nonzero(~stays & (tracked != 0) & (fates & HAS_MATCHED == 0))
    fresh.store.meta[RELEASED] = old.store.meta[RELEASED]


def kept_leaves(index: Any, store: Store) -> np.ndarray:
    """Return what a condition needs of the buffered tuples, in order of arrival; nothing if there is none."""
    condition = getattr(index, "condition", None)
    if not isinstance(condition, PairCondition):
        return np.empty((0, 0), np.int64)
    return condition.kept[buffered_slots(store)]


def set_leaves(index: Any, store: Store, leaves: np.ndarray) -> None:
    """Give the buffered tuples of another store, in order of arrival, what a condition needs of them."""
    condition = getattr(index, "condition", None)
    if isinstance(condition, PairCondition):
        condition.kept[buffered_slots(store)] = leaves


def set_fates(index: Any, store: Store, fates: np.ndarray) -> None:
    """Give the buffered tuples of another store, in order of arrival, what is known of them."""
    if isinstance(index, Decided):
        index.last[:], index.fate[:] = 0, 0
        index.fate[buffered_slots(store)] = fates
