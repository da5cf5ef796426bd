"""Check that the arrays of a restored two-stream join are safe for the kernels."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np

from penstock.engine.store import COMPETE, P_BYTES, P_GROW, POOL, Store
from penstock.joins.follower import new_predictor_for
from penstock.joins.growth import first_rooms, limit_pools, most_rooms, rooms_of
from penstock.policies import get
from penstock.states.checks import check_parts, check_shapes, check_store, sound

if TYPE_CHECKING:
    from penstock.joins.config import Config
    from penstock.joins.many_config import ManyConfig
    from penstock.joins.state import JoinState


def check_restored(state: JoinState) -> None:
    """Reject arrays that would crash the kernels."""
    config, running, follower, policy = state.config, state.running, state.follower, None
    rooms = checked_rooms(config, state.store)
    if running.needs_future:  # the snapshot does not contain the trace it is built from
        fresh, _ = dataclasses.replace(config, policy=get("fifo")).build(rooms=rooms)
        fresh.meta[COMPETE] = state.store.meta[COMPETE]
    else:
        fresh, policy = config.build(policy=running, rooms=rooms)
    _allow_limits(config, state.store, fresh)
    predictor = None if follower is None else new_predictor_for(config)
    if follower is not None and predictor is not None:
        check_shapes(follower.predictor, predictor, "the history")
        if running.predictor_of(policy) is not None:
            policy = running.inform(policy, predictor)
    if running.compiled and not running.needs_future:
        check_shapes(state.policy, policy, "the state of the policy")
    check_store(state.store, fresh)
    check_parts(state.policy, state.store, policy)
    if follower is not None:
        check_parts(follower.predictor, state.store, predictor)


def _allow_limits(config: Config, store: Store, fresh: Store) -> None:
    """Let the fresh store have the limits of the other, if they are those of a candidate.

    Which candidates bind depends on the rows that there were when the tables grew last.
    """
    if len(config.costs) < 2 or store.pools.shape != fresh.pools.shape:
        return
    rooms = rooms_of(fresh)
    for cost in config.costs:
        before = fresh.pools.copy()
        limit_pools(dataclasses.replace(config, costs=(cost,)), fresh, rooms)
        for limit in (P_BYTES, P_GROW):
            known = fresh.pools[:, limit] == store.pools[:, limit]
            known |= (limit == P_GROW) & (store.pools[:, limit] == -1)
            before[:, limit] = np.where(known, store.pools[:, limit], before[:, limit])
        fresh.pools[:] = before


def checked_rooms(config: Config | ManyConfig, store: Store) -> tuple[int, ...]:
    """Return for how many tuples of each pool there is room, which is what the tables have to agree with."""
    first = first_rooms(config)
    sound(store.pools.dtype == np.int64 and store.pools.shape == (len(first), POOL), "the pools are others")
    rooms = rooms_of(store)
    sound(len(store.t64) == sum(rooms) + 2, "the tables are not for the tuples that pools may hold")
    limits = most_rooms(config, 0, best=True) if config.costs else config.capacities
    fine = all(least <= room <= most for least, room, most in zip(first, rooms, limits, strict=True))
    sound(fine, "a pool has another limit")
    return rooms
