"""What is known of each buffered tuple, carried along when tuples get other slots."""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock.engine.pair_join_decided import ALIKE, HAS_MATCHED, Decided
from penstock.engine.store import ARRIVAL, ENTRY, HIGH_TUPLE, STREAM, Store


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


def set_fates(index: Any, store: Store, fates: np.ndarray) -> None:
    """Give the buffered tuples of another store, in order of arrival, what is known of them."""
    if isinstance(index, Decided):
        index.last[:], index.fate[:] = 0, 0
        index.fate[buffered_slots(store)] = fates
