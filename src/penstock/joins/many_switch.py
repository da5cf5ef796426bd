"""Switch the policy of a running join of many streams: the tuples stay, and are scored by the new policy."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from penstock.compiler.tiers import expecting
from penstock.engine.many_index import COUNTING, HELD, TALLYING
from penstock.engine.many_join import ManyBatch
from penstock.engine.many_switch import recount
from penstock.engine.store import ARRIVAL, HIGH_TUPLE, KEY, P_PEAK_USED, ROW, SIZE, STREAM, TIME
from penstock.joins.growth import rooms_of
from penstock.joins.many_left import switch_first, undecided_meanwhile
from penstock.joins.policy_switch import OF_THE_STORE
from penstock.policies.base import Policy

if TYPE_CHECKING:
    from penstock.joins.many_state import ManyState


def follow(state: ManyState, policy: Policy) -> None:
    """Switch to another policy: the tuples enter a fresh state of it in order of arrival.

    They match each other again as they come, and scores start from that.
    """
    assert state.follower is not None
    state._note_peak()
    state.follower.change(policy)
    old, rooms = state.store, rooms_of(state.store)
    fresh = type(state)(replace(state.config, policy=policy, warmup=0, chance=0.0), rooms)
    fresh._estimates = False
    slots = np.flatnonzero(old.t64[: int(old.meta[HIGH_TUPLE]) + 1, ARRIVAL] >= 0)
    slots = slots[slots > 0]
    slots = slots[np.argsort(old.t64[slots, ARRIVAL])]
    fresh._keep_progress(state)
    with undecided_meanwhile(fresh.known):
        fresh._run(_carried(state, slots), False, False)
    assert fresh.buffered == len(slots), "a tuple was lost at a change of policy"
    kept = fresh.store.meta[OF_THE_STORE].copy()
    fresh.store.meta[:] = old.meta
    fresh.store.meta[OF_THE_STORE] = kept
    for name in ("clock", "random", "chance"):
        getattr(fresh.store, name)[:] = getattr(old, name)
    fresh.store.pools[:, P_PEAK_USED] = old.pools[:, P_PEAK_USED]
    there = np.arange(1, len(slots) + 1)
    fresh.store.time[there, TIME] = old.time[slots, TIME]
    fresh.index.found[:] = state.index.found
    fresh.index.meta[TALLYING] = state.index.meta[TALLYING]
    index = fresh.index._replace(counts=state.index.counts)
    if state.known is not None:
        state.known = switch_first(fresh, state)
    state.store, state.index, state.policy = fresh.store, index, fresh.policy
    if index.meta[COUNTING]:
        with expecting(len(slots), apart=True):
            recount(state.store, index)
    state.search = state.config.build_search(index, rooms_of(state.store))
    state._take_progress(fresh)


def _carried(state: ManyState, slots: np.ndarray) -> ManyBatch:
    """Return buffered tuples as arrivals; those of windows of rows at the time of the one before."""
    store, index = state.store, state.index
    stream, time = store.t32[slots, STREAM].astype(np.int64), store.time[slots, TIME].copy()
    held, rows = index.links[slots, :, HELD], index.by_rows[stream] > 0
    if rows.any():
        time[rows] = time[~rows].min() if not rows.all() else 0
        time = np.maximum.accumulate(time)
    key = np.where(held > 0, index.k64[held, KEY], -1)
    size = store.t32[slots, SIZE].astype(np.int64)
    size = size if state.config.payload is not None else size[:0]
    return ManyBatch(stream, key, time, store.t64[slots, ROW], size, np.zeros(0, np.bool_))
