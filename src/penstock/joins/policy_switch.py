"""Switch the policy of a running join: the tuples stay and get scores from the new policy."""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock.compiler.tiers import expecting
from penstock.engine.match_predictor import MatchPredictor
from penstock.engine.policy_switch import APART, SAME, CarriedTuples, last_matches, reenter
from penstock.engine.store import (
    ARRIVAL,
    ARRIVALS,
    COMPETE,
    ENTRY,
    FREE_KEY,
    FREE_TUPLE,
    HIGH_KEY,
    HIGH_TUPLE,
    KEY,
    LIVE,
    P_PEAK_USED,
    ROW,
    SIZE,
    STREAM,
    TIME,
    Store,
)
from penstock.joins.config import Config
from penstock.joins.growth import rooms_of
from penstock.policies.base import Policy

OF_THE_STORE = [FREE_KEY, HIGH_KEY, FREE_TUPLE, HIGH_TUPLE, LIVE, COMPETE]  # of `meta`; the rest is kept


def carried_tuples(store: Store) -> CarriedTuples:
    """Return the buffered tuples in order of arrival."""
    high = int(store.meta[HIGH_TUPLE]) + 1
    slots = np.flatnonzero(store.t64[:high, ARRIVAL] >= 0)
    slots = slots[slots > 0]
    slots = slots[np.argsort(store.t64[slots, ARRIVAL])]
    few = store.t32[slots]
    return CarriedTuples(
        stream=few[:, STREAM].astype(np.int64),
        key=store.k64[few[:, ENTRY], KEY],
        time=store.time[slots, TIME].copy(),
        row=store.t64[slots, ROW],
        size=few[:, SIZE].astype(np.int64),
        arrival=store.t64[slots, ARRIVAL],
    )


def switch_policy(
    config: Config, policy: Policy, carried: CarriedTuples, before: Store, predictor: MatchPredictor
) -> tuple[Store, Any]:
    """Build a store with the same tuples, counters and clocks, and the state of the new policy.

    Of the store before, only these counters and clocks are asked for, not the tables.
    """
    store, state = config.build(policy=policy, rooms=rooms_of(before))
    state = policy.inform(state, predictor)
    kept = store.meta[OF_THE_STORE].copy()
    store.meta[:] = before.meta
    store.meta[OF_THE_STORE] = kept
    store.clock[:], store.random[:] = before.clock, before.random
    n, newest = len(carried.key), int(before.meta[ARRIVALS]) - 1
    with expecting(n, apart=True):
        matches = last_matches(predictor.history, carried, newest)
    # One match per key and stream, that of its oldest tuple: the last match is the same for all of them.
    first = np.unique(np.stack([carried.key, carried.stream]), axis=1, return_index=True)[1]
    first = first[matches[first, 0] >= 0]
    events = np.concatenate([np.arange(n), n + first])
    number = np.concatenate([2 * carried.arrival, 2 * matches[first, 0] + 1])
    events = events[np.argsort(number, kind="stable")]
    way = APART if config.partial else SAME
    with expecting(n, apart=True):
        reenter(state, store, carried, events, matches, config.step == "tick", way)
    store.pools[:, P_PEAK_USED] = before.pools[:, P_PEAK_USED]
    return store, state
