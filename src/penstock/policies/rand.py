"""RAND: evicts a random tuple."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from penstock.compiler.jit import jit
from penstock.compiler.references import prefetch
from penstock.engine.cache_loop import HIGH, KEY, find, worst
from penstock.engine.hooks import before_tick, enter, leave, make_room
from penstock.engine.store import COMPETE, P_LIVE, PLACE, STREAM, Store, fetch_ahead
from penstock.policies.base import CacheSetting, Policy, Setting
from penstock.structures.random import POLICY, below, uniform
from penstock.structures.tables import enlarged, new_table

AHEAD = 8  # draws


class RandState(NamedTuple):
    """The tuples of each pool in an array without gaps; `waiting` counts the newcomers of a tick.

    `drawn` holds the next draws of each pool, so that the memory of their tuples can be prefetched.
    """

    members: np.ndarray
    length: np.ndarray
    waiting: np.ndarray
    drawn: np.ndarray
    turn: np.ndarray


class RandCache(NamedTuple):
    """Empty: an entry is drawn by its number, and in a full cache every number has an entry."""

    nothing: np.ndarray


@dataclass(frozen=True)
class Rand(Policy):
    """Evict a tuple drawn uniformly from the buffer (in tick steps, from buffer and newcomers).

    >>> import penstock as ps
    >>> left, right = {"key": [1, 2, 3], "ts": [0, 1, 2]}, {"key": [1, 2, 3], "ts": [3, 4, 5]}
    >>> join = ps.WindowJoin(within=10, budget=ps.Tuples(3), policy="rand", seed=7)
    >>> join.run(left, right, on="key", time="ts").stats.results
    1
    """

    name: ClassVar[str] = "rand"
    summary: ClassVar[str] = "evicts a random tuple"
    wins: ClassVar[str] = (
        "nothing is known about the streams and no arrival order may be favoured; the baseline for the others"
    )
    loses: ClassVar[str] = (
        "keys differ in popularity or come in clusters: it keeps no more of what matches than of what "
        "does not"
    )
    cost: ClassVar[str] = "O(1) per arrival, nothing per match"
    paper: ClassVar[str] = "Gao, Scharrenbach and Bernstein 2014, section 3.1"
    caches: ClassVar[bool] = True
    grows: ClassVar[bool] = True

    def build(self, setting: Setting) -> RandState:
        """Build empty arrays of members."""
        pools = len(setting.capacities)
        return RandState(
            members=new_table((pools, max(setting.at_first) + 1), np.int32),
            length=np.zeros(pools, np.int64),
            waiting=np.zeros(pools, np.int64),
            drawn=np.full((pools, AHEAD), -1.0),
            turn=np.zeros(pools, np.int64),
        )

    def build_cache(self, setting: CacheSetting) -> RandCache:
        """Build the (empty) state; the cache has the random generator."""
        return RandCache(np.zeros(1))

    def grow(self, state: RandState, store: Store, rooms: tuple[int, ...]) -> RandState:
        """Make room for more members."""
        return state._replace(members=enlarged(state.members, (len(rooms), max(rooms) + 1)))

    def check(self, state: Any, store: Store) -> None:
        """Assert that every member knows its place."""
        for pool in range(len(state.length)):
            assert state.length[pool] == store.pools[pool, P_LIVE]
            for place in range(state.length[pool]):
                assert store.t32[state.members[pool, place], PLACE] == place


@enter.on(RandState)
def _enter(policy, store, slot):
    pool = store.pool_of[store.t32[slot, STREAM]]
    place = policy.length[pool]
    policy.members[pool, place] = slot
    store.t32[slot, PLACE] = place
    policy.length[pool] = place + 1


@leave.on(RandState)
def _leave(policy, store, slot):
    pool = store.pool_of[store.t32[slot, STREAM]]
    place, last = store.t32[slot, PLACE], policy.length[pool] - 1
    moved = policy.members[pool, last]
    policy.members[pool, place] = moved
    store.t32[moved, PLACE] = place
    policy.length[pool] = last


@before_tick.on(RandState)
def _before_tick(policy, store):
    policy.waiting[:] = 0


@jit
def _draw(policy, store, pool):
    """Return the next random number in [0, 1) of a pool."""
    drawn, size = policy.drawn[pool], policy.length[pool]
    turn = policy.turn[pool]
    if drawn[turn] < 0.0:
        for i in range(AHEAD):
            drawn[i] = uniform(store.random, POLICY)
    number = drawn[turn]
    drawn[turn] = uniform(store.random, POLICY)
    policy.turn[pool] = (turn + 1) % AHEAD
    members = policy.members[pool]
    prefetch(members, np.int64(drawn[turn] * size))
    fetch_ahead(
        store,
        np.int64(members[np.int64(drawn[(turn + 6) % AHEAD] * size)]),
        np.int64(members[np.int64(drawn[(turn + 4) % AHEAD] * size)]),
        np.int64(members[np.int64(drawn[(turn + 2) % AHEAD] * size)]),
    )
    return number


@make_room.on(RandState)
def _make_room(policy, store, pool, stream, entry):
    """Reservoir sampling: the i-th newcomer of a tick without room stays with probability B/(B+i)."""
    size = policy.length[pool]
    number = _draw(policy, store, pool)
    if store.meta[COMPETE] != 0:
        policy.waiting[pool] += 1
        chosen = np.int64(number * (size + policy.waiting[pool]))
        return policy.members[pool, chosen] if chosen < size else 0
    return policy.members[pool, np.int64(number * size)]


@worst.on(RandCache)
def _worst(policy, cache):
    slot = 1 + below(cache.random, POLICY, cache.meta[HIGH])
    while find(cache, cache.e64[slot, KEY]) != slot:  # under a byte budget entries may be empty
        slot = 1 + below(cache.random, POLICY, cache.meta[HIGH])
    return slot
