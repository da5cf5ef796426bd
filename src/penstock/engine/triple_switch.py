"""Move the cached tuples of a query to another policy: they enter again in order, with their uses."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from penstock.compiler.driver import driver
from penstock.compiler.jit import jit
from penstock.compiler.references import borrow
from penstock.engine.hooks import match_key
from penstock.engine.many_index import HEEDING
from penstock.engine.triple_index import LAST_USE, USED, first_key
from penstock.engine.triple_join import let_in, take_slot


class CarriedTriples(NamedTuple):
    """Tuples in order of arrival."""

    stream: np.ndarray
    cache: np.ndarray
    row: np.ndarray
    life: np.ndarray
    arrival: np.ndarray
    members: np.ndarray  # of partial solutions: the row of each pattern
    uses: np.ndarray
    matches: np.ndarray  # how many of the uses the policy is told of


@driver
def reenter_triples(policy, store, index, expiry, scheme, columns, carried, events):
    """Let the tuples enter and be matched, in the order of events: n + i is the last use of tuple i."""
    _settle(
        borrow(policy),
        borrow(store),
        borrow(index),
        borrow(expiry),
        borrow(scheme),
        borrow(columns),
        borrow(carried),
        events,
    )


@jit
def _settle(policy, store, index, expiry, scheme, columns, carried, events):
    n, caches = carried.row.shape[0], scheme.cache_roles.shape[0]
    rows = np.zeros(scheme.partners.shape[0], np.int64)
    slots = np.zeros(n, np.int64)
    for event in events:
        if event < n:
            cache, row = carried.cache[event], carried.row[event]
            for pattern in range(rows.shape[0]):
                rows[pattern] = row if cache < caches else carried.members[event, pattern]
            first, count = first_key(index, scheme, columns, rows, cache)
            store.entering[0] = carried.life[event]
            stream, arrival = carried.stream[event], carried.arrival[event]
            slot = take_slot(store, index, stream, cache, row, arrival, first, count)
            let_in(policy, store, index, expiry, scheme, columns, rows, row, slot)
            index.uses[slot] = carried.uses[event]
            index.owed[slot] = carried.uses[event, USED] % 1.0
            slots[event] = slot
        elif index.meta[HEEDING] != 0:
            i = event - n
            for _ in range(carried.matches[i]):
                match_key(policy, store, slots[i], 0, np.int64(carried.uses[i, LAST_USE]))
