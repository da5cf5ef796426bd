"""CLOCK: a hand lowers each score it passes by 1 and evicts the first tuple that falls below 0.

The hand does not have to walk. A tuple at position p of a ring of M positions, with score w, is evicted when
the hand reaches it for the (floor(w) + 1)-th time. Counted over all steps of the hand, that step number is
known when the tuple enters, and a match adds M to it. The victim is the tuple with the lowest step number,
and the hand jumps there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from penstock.arguments import is_number
from penstock.compiler.jit import jit
from penstock.engine.cache_loop import (
    Heap,
    entered,
    gone,
    new_heap,
    push,
    raise_to,
    remove,
    score_of,
    used,
    worst,
)
from penstock.engine.hooks import enter, leave, lowest, make_room, match_key, match_one, score
from penstock.engine.score_queue import Queue, file_newcomer, front, new_queue
from penstock.engine.store import ARRIVAL, BASE, ENTRY, HIGH_TUPLE, PLACE, SIDE, STREAM, USE, Store
from penstock.policies.base import CacheSetting, Policy, Setting
from penstock.snapshots.array_checks import check_same
from penstock.structures.bitset import Bitset, bit_add, bit_next, bit_remove, new_bitset


class Ring(NamedTuple):
    """Per pool: its free positions, the steps its hand has made, and the position it freed last."""

    free: Bitset
    hand: np.ndarray
    size: np.ndarray
    landing: np.ndarray  # -1: none

    def grown(self, capacities: tuple[int, ...]) -> Ring:
        """Return rings of at least so many positions; the new ones are free, and behind all others."""
        sizes = np.maximum(self.size, capacities)
        free = self.free.extended(self.size.tolist(), sizes.tolist())
        return Ring(free, in_larger_ring(self.hand, self.size, sizes), sizes, self.landing)


class ClockState(NamedTuple):
    """The ring, and a queue of the tuples by the step at which the hand would evict them."""

    ring: Ring
    queue: Queue
    w0: np.ndarray

    def check_restored(self, store: Store, fresh: ClockState) -> None:
        """The first score is an option of the policy."""
        check_same(self.w0, fresh.w0, "the first score")


def in_larger_ring(step: np.ndarray, size: Any, larger: Any) -> np.ndarray:
    """Return steps of a hand in a ring that has got more positions: in the same round, at the same position.

    >>> import numpy as np
    >>> from penstock.policies.clock import in_larger_ring
    >>> in_larger_ring(np.array([0, 3, 4, 9]), 4, 6).tolist()
    [0, 3, 6, 13]
    """
    rounds = step // size
    return rounds * larger + (step - rounds * size)


def refile_in_larger_ring(queue: Queue, size: np.ndarray, larger: np.ndarray) -> None:
    """Move the steps by which tuples are filed to a larger ring; their order stays."""
    for pool in range(len(size)):
        for scores in (queue.run_score[pool], queue.heap[pool, ::2]):
            scores[:] = in_larger_ring(scores, size[pool], larger[pool])


def ring_for(setting: Setting) -> Ring:
    """Build the ring of a join: of the tuples that a pool may hold, or under a byte budget has room for."""
    return new_ring(setting.at_first if setting.in_bytes else setting.capacities)


class ClockCache(NamedTuple):
    """In a cache: the ring, and its entries by the step at which the hand would evict them."""

    ring: Ring
    heap: Heap
    position: np.ndarray  # per entry
    w0: np.ndarray


@dataclass(frozen=True)
class Clock(Policy):
    """Evict the first tuple whose score the hand lowers below 0.

    A newcomer starts at `w0` (default 1), each match adds 1, and each pass of the hand subtracts 1. The
    score thus combines how often and how recently a tuple matched.

    >>> import penstock as ps
    >>> left, right = {"key": [1, 2, 3], "ts": [0, 1, 3]}, {"key": [1, 1], "ts": [2, 4]}
    >>> join = ps.WindowJoin(within=10, budget=ps.Tuples(4), policy="clock")
    >>> join.run(left, right, on="key", time="ts").stats.results
    2
    """

    w0: float = 1.0

    name: ClassVar[str] = "clock"
    summary: ClassVar[str] = "a hand lowers each score it passes by 1 and evicts the first below 0"
    wins: ClassVar[str] = (
        "load and locality fluctuate and time per row matters: close to lru and gdj, at the lowest cost of "
        "the policies that look at matches"
    )
    loses: ClassVar[str] = (
        "popularity is fixed and memory is short: the hand passes too often for scores to grow"
    )
    cost: ClassVar[str] = "O(log n) per arrival, nothing per match"
    paper: ClassVar[str] = "Gao, Scharrenbach and Bernstein 2014, section 3.2"
    one_by_one: ClassVar[bool] = True
    caches: ClassVar[bool] = True
    grows: ClassVar[bool] = True

    def __post_init__(self) -> None:
        self.require(is_number(self.w0) and 0 <= self.w0 < 2**31, "w0", "a number from 0 up")

    def build(self, setting: Setting) -> ClockState:
        """Build an empty ring per pool."""
        return ClockState(
            ring=ring_for(setting),
            queue=new_queue(setting.at_first),
            w0=np.array([int(np.floor(self.w0))], np.int64),
        )

    def build_cache(self, setting: CacheSetting) -> ClockCache:
        """Build an empty ring with a position per entry."""
        return ClockCache(
            ring=new_ring((setting.capacity,)),
            heap=new_heap(setting.capacity),
            position=np.zeros(setting.capacity + 1, np.int64),
            w0=np.array([int(np.floor(self.w0))], np.int64),
        )

    def grow(self, state: ClockState, store: Store, rooms: tuple[int, ...]) -> ClockState:
        """Make room in the queue, and in the ring if it has fewer positions."""
        size, ring = state.ring.size, state.ring.grown(rooms)
        if not np.array_equal(size, ring.size):
            refile_in_larger_ring(state.queue, size, ring.size)
            slots = np.flatnonzero(store.t64[: store.meta[HIGH_TUPLE] + 1, ARRIVAL] >= 0)[1:]
            pool = store.pool_of[store.t32[slots, STREAM]]
            matches = store.k64[store.t32[slots, ENTRY], USE + store.t32[slots, SIDE]]
            due = store.t64[slots, BASE] + size[pool] * matches
            due = in_larger_ring(due, size[pool], ring.size[pool])
            store.t64[slots, BASE] = due - ring.size[pool] * matches
        return state._replace(ring=ring, queue=state.queue.grown(rooms))

    def check(self, state: Any, store: Store) -> None:
        """Assert that no position is taken twice."""
        check_ring(state.ring, store)


def new_ring(capacities: tuple[int, ...]) -> Ring:
    """Build rings whose positions are all free, with the hand at the first."""
    pools = len(capacities)
    free = new_bitset(pools, max(capacities))
    for pool, capacity in enumerate(capacities):
        _free_all(free, pool, capacity)
    return Ring(
        free=free,
        hand=np.zeros(pools, np.int64),
        size=np.array(capacities, np.int64),
        landing=np.full(pools, -1, np.int64),
    )


def check_ring(ring: Ring, store: Store) -> None:
    """Assert that taken and free positions complement each other."""
    live = np.flatnonzero(store.t64[: store.meta[4] + 1, 1] >= 0)
    live = live[live > 0]
    for pool, size in enumerate(ring.size):
        places = store.t32[live[store.pool_of[store.t32[live, STREAM]] == pool], PLACE]
        assert len(np.unique(places)) == len(places), "two tuples in one position"
        position, free = bit_next(ring.free, pool, 0), 0
        while position >= 0:
            assert position not in places
            position, free = bit_next(ring.free, pool, position + 1), free + 1
        assert free + len(places) == size


@jit
def _free_all(free, pool, capacity):
    for position in range(capacity):
        bit_add(free, pool, position)


@jit
def take_position(ring, pool):
    """Return the position of a newcomer, and the step at which the hand first reaches it.

    It is the position the hand has just freed, which the hand then passes, or the first free one at or
    after the hand, which stays.
    """
    size = ring.size[pool]
    position = ring.landing[pool]
    if position >= 0:
        ring.landing[pool] = -1
        ring.hand[pool] += 1
    else:
        at = ring.hand[pool] % size
        position = bit_next(ring.free, pool, at)
        if position < 0:
            position = bit_next(ring.free, pool, 0)
    bit_remove(ring.free, pool, position)
    return position, next_visit(ring, pool, position, ring.hand[pool])


@jit
def next_visit(ring, pool, position, step):
    """Return the first step from `step` on at which the hand is at a position."""
    size = ring.size[pool]
    return step + (position - step) % size


@jit
def strike(ring, pool, position, step):
    """Move the hand to the step at which it evicts the tuple at a position."""
    if ring.landing[pool] >= 0:  # under a byte budget one eviction may not be enough
        ring.landing[pool] = -1
    ring.hand[pool] = step
    ring.landing[pool] = position


@match_key.on(ClockState)
def _match_key(policy, store, entry, stream, arrival):
    store.k64[entry, USE + stream] += 1


@match_one.on(ClockState)
def _match_one(policy, store, slot, arrival):
    store.t64[slot, BASE] += policy.ring.size[store.pool_of[store.t32[slot, STREAM]]]


@enter.on(ClockState)
def _enter(policy, store, slot):
    pool = store.pool_of[store.t32[slot, STREAM]]
    size = policy.ring.size[pool]
    position, visit = take_position(policy.ring, pool)
    store.t32[slot, PLACE] = position
    due = visit + policy.w0[0] * size
    store.t64[slot, BASE] = due - size * store.k64[store.t32[slot, ENTRY], USE + store.t32[slot, SIDE]]
    file_newcomer(policy.queue, store, pool, slot, np.float64(due))


@leave.on(ClockState)
def _leave(policy, store, slot):
    bit_add(policy.ring.free, store.pool_of[store.t32[slot, STREAM]], store.t32[slot, PLACE])


@score.on(ClockState)
def _score(policy, store, slot):
    matches = store.k64[store.t32[slot, ENTRY], USE + store.t32[slot, SIDE]]
    size = policy.ring.size[store.pool_of[store.t32[slot, STREAM]]]
    return np.float64(store.t64[slot, BASE] + size * matches)


@lowest.on(ClockState)
def _lowest(policy, store, pool):
    return front(policy, policy.queue, store, pool)


@make_room.on(ClockState)
def _make_room(policy, store, pool, stream, entry):
    slot, step = lowest(policy, store, pool)
    strike(policy.ring, pool, store.t32[slot, PLACE], np.int64(step))
    return slot


@entered.on(ClockCache)
def _entered(policy, cache, slot):
    position, visit = take_position(policy.ring, 0)
    policy.position[slot] = position
    push(policy.heap, cache, slot, np.float64(visit + policy.w0[0] * policy.ring.size[0]))


@used.on(ClockCache)
def _used(policy, cache, slot):
    raise_to(policy.heap, cache, slot, score_of(policy.heap, cache, slot) + np.float64(policy.ring.size[0]))


@gone.on(ClockCache)
def _gone(policy, cache, slot):
    bit_add(policy.ring.free, 0, policy.position[slot])
    remove(policy.heap, cache, slot)


@worst.on(ClockCache)
def _worst(policy, cache):
    slot = policy.heap.slot[0]
    strike(policy.ring, 0, policy.position[slot], np.int64(policy.heap.score[0]))
    return slot
