"""SAMPLE: keeps a uniform sample of the tuples, and knows with what probability each was kept."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from penstock.compiler.jit import jit
from penstock.engine.hooks import (
    arrive,
    enter,
    lowest,
    make_room,
    match_key,
    match_one,
    newcomer,
    score,
)
from penstock.engine.score_queue import Queue, file_one, front, new_queue
from penstock.engine.store import (
    ARRIVAL,
    BASE,
    HEAD,
    HIGH_TUPLE,
    NEXT,
    NUMBER,
    P_LIVE,
    STEPS,
    STREAM,
    WARMUP,
    Store,
)
from penstock.policies.base import Policy, Setting
from penstock.structures.random import POLICY, uniform
from penstock.structures.tables import enlarged, new_table

LEAST = 2.0**-54  # a priority is above 0

# Columns of `meta`.
DRAWN = 0  # priorities drawn so far
NOTED = 1  # results in the notes


class Departures(NamedTuple):
    """Per pool, the priorities with which tuples left by priority, as far as they still matter.

    `during` has the arrivals at which they left, in order, and `priority` rises with it: an earlier departure
    with a higher priority than a later one is the smallest for no tuple.
    """

    during: np.ndarray
    priority: np.ndarray
    length: np.ndarray

    def grown(self, rooms: tuple[int, ...]) -> Departures:
        """Return the same with room for the departures that so many tuples tell apart."""
        shape = len(rooms), _departures(rooms)
        return Departures(enlarged(self.during, shape), enlarged(self.priority, shape), self.length)


class SampleState(NamedTuple):
    """The tuples of each pool by priority, and what the weights of their results are made of."""

    queue: Queue
    departures: Departures
    drawn: np.ndarray  # the priority of the arrival that is being processed
    identity: np.ndarray  # per tuple: twice its number among all draws, plus its stream
    noted_t: np.ndarray  # per result, if results are collected: t
    noted_id: np.ndarray  # and the identity of the tuple that was kept
    meta: np.ndarray

    def check_restored(self, store: Store, fresh: SampleState) -> None:
        """Refuse what would take a kernel out of its arrays, or is no priority."""
        from penstock.snapshots.array_checks import check_within, sound
        from penstock.states.checks.store import live_tuples

        departures = self.departures
        check_within(departures.length, 0, departures.during.shape[1], "the number of departures")
        for pool, length in enumerate(departures.length.tolist()):
            priority = departures.priority[pool, :length]
            sound(((priority > 0.0) & (priority <= 1.0)).all(), "a priority is out of range")
        check_within(self.meta, 0, 2**62, "a number of draws")
        sound(self.meta[NOTED] == 0, "results are noted that nobody waits for")
        own = store.f64[live_tuples(store), BASE]
        sound(((own > 0.0) & (own <= 1.0)).all(), "a priority is out of range")


@dataclass(frozen=True)
class Sample(Policy):
    """Keep a uniform sample of the tuples, whatever the rates do, so that results can be weighted.

    Every arrival draws a priority between 0 and 1. When memory is full, the tuple with the highest priority
    is evicted, or the arrival is refused if its own is highest. A result of a kept tuple has the weight 1/t:
    t is the smallest priority that left the pool since the tuple arrived. Sums of weights are unbiased, so
    `run.estimate` answers with an interval what the exact join would answer exactly.

    >>> import penstock as ps
    >>> left = {"key": [1, 2, 3, 1], "ts": [0, 1, 2, 3]}
    >>> right = {"key": [1, 2, 3, 1], "ts": [4, 5, 6, 7], "amount": [5.0, 1.0, 2.0, 4.0]}
    >>> run = ps.WindowJoin(within=10, budget=ps.Tuples(100), policy="sample").run(
    ...     left, right, on="key", time="ts", collect=True
    ... )
    >>> run.estimate("count").value, run.estimate("sum", "amount").value
    (6.0, 21.0)
    """

    name: ClassVar[str] = "sample"
    summary: ClassVar[str] = "keeps a uniform sample, whose results estimate counts, sums and means"
    wins: ClassVar[str] = (
        "questions about the exact results must be answered with error bars, under bursts and drifting rates"
    )
    loses: ClassVar[str] = "as many results as possible are wanted: it keeps popular and rare keys alike"
    cost: ClassVar[str] = "O(log n) per arrival, and per match if results are collected"
    paper: ClassVar[str] = "Duffield, Lund and Thorup 2007 (priority sampling); Horvitz and Thompson 1952"
    selective: ClassVar[bool] = True
    many: ClassVar[bool] = False
    grows: ClassVar[bool] = True
    ticks: ClassVar[bool] = False
    weighs_results: ClassVar[bool] = True

    def build(self, setting: Setting) -> SampleState:
        """Build an empty queue and no departures."""
        rooms = setting.at_first
        shape = len(rooms), _departures(rooms)
        return SampleState(
            queue=new_queue(rooms),
            departures=Departures(
                new_table(shape, np.int64), new_table(shape), np.zeros(len(rooms), np.int64)
            ),
            drawn=np.ones(1),
            identity=new_table(sum(rooms) + 2, np.int64),
            noted_t=np.empty(0),
            noted_id=np.empty(0, np.int64),
            meta=np.zeros(2, np.int64),
        )

    def grow(self, state: SampleState, store: Store, rooms: tuple[int, ...]) -> SampleState:
        """Make room for more tuples."""
        return state._replace(
            queue=state.queue.grown(rooms),
            departures=state.departures.grown(rooms),
            identity=enlarged(state.identity, sum(rooms) + 2),
        )

    def note_results(self, state: SampleState, room: int) -> SampleState:
        """Note t and the kept tuple of so many results from now on."""
        return state._replace(noted_t=np.empty(room), noted_id=np.empty(room, np.int64))

    def noted_results(self, state: SampleState) -> tuple[np.ndarray, np.ndarray]:
        """Return t and the kept tuple of the results noted so far, and begin anew."""
        count, state.meta[NOTED] = int(state.meta[NOTED]), 0
        return state.noted_t[:count].copy(), state.noted_id[:count].copy()

    def check(self, state: Any, store: Store) -> None:
        """Assert that departures are in order, and that every buffered tuple has a priority below its t."""
        live = np.flatnonzero(store.t64[: int(store.meta[HIGH_TUPLE]) + 1, ARRIVAL] >= 0)
        live = live[live > 0]
        assert len(live) == store.pools[:, P_LIVE].sum()
        assert (state.identity[live] % 2 == store.t32[live, STREAM]).all()
        for pool, length in enumerate(state.departures.length.tolist()):
            during, priority = (part[pool, :length] for part in state.departures[:2])
            assert (np.diff(during) > 0).all()
            assert (np.diff(priority) > 0).all()
            mine = live[store.pool_of[store.t32[live, STREAM]] == pool]
            t = np.append(priority, 1.0)[np.searchsorted(during, store.t64[mine, ARRIVAL])]
            assert ((store.f64[mine, BASE] > 0.0) & (store.f64[mine, BASE] < t)).all()


def _departures(rooms: tuple[int, ...]) -> int:
    """Return how many departures a pool remembers: twice as many as can matter, and they are cleared out."""
    return 2 * max(rooms) + 16


@arrive.on(SampleState)
def _arrive(policy, store, stream, key, entry):
    policy.drawn[0] = max(uniform(store.random, POLICY), LEAST)
    policy.meta[DRAWN] += 1


@enter.on(SampleState)
def _enter(policy, store, slot):
    store.f64[slot, BASE] = policy.drawn[0]
    policy.identity[slot] = 2 * (policy.meta[DRAWN] - 1) + np.int64(store.t32[slot, STREAM])
    file_one(policy, policy.queue, store, slot)


@score.on(SampleState)
def _score(policy, store, slot):
    return -store.f64[slot, BASE]


@newcomer.on(SampleState)
def _newcomer(policy, store, stream, entry):
    return -policy.drawn[0]


@lowest.on(SampleState)
def _lowest(policy, store, pool):
    return front(policy, policy.queue, store, pool)


@make_room.on(SampleState)
def _make_room(policy, store, pool, stream, entry):
    slot, low = front(policy, policy.queue, store, pool)
    if -policy.drawn[0] < low:
        slot, low = 0, -policy.drawn[0]
    note_departure(policy, store, pool, -low)
    return slot


@match_key.on(SampleState)
def _match_key(policy, store, entry, stream, arrival):
    if policy.noted_t.shape[0] > 0:
        slot = store.k32[entry, HEAD + stream]
        while slot != 0:
            _note(policy, store, np.int64(slot))
            slot = store.t32[slot, NEXT]


@match_one.on(SampleState)
def _match_one(policy, store, slot, arrival):
    _note(policy, store, slot)


@jit
def _note(policy, store, slot):
    """Note t and the identity of a kept tuple that gives a result, if that is wanted."""
    at = policy.meta[NOTED]
    if at < policy.noted_t.shape[0] and store.meta[STEPS] >= store.meta[WARMUP]:
        policy.noted_t[at] = smallest_departed(policy, store, slot)
        policy.noted_id[at] = policy.identity[slot]
        policy.meta[NOTED] = at + 1


@jit
def note_departure(policy, store, pool, priority):
    """A tuple of this priority leaves its pool because of it, or does not enter. O(1), amortised."""
    during, departed = policy.departures.during[pool], policy.departures.priority[pool]
    at = policy.departures.length[pool]
    while at > 0 and departed[at - 1] >= priority:
        at -= 1
    if at == during.shape[0]:
        at = _clear_out(policy, store, pool, at)
    during[at] = store.meta[NUMBER]
    departed[at] = priority
    policy.departures.length[pool] = at + 1


@jit
def smallest_departed(policy, store, slot):
    """The smallest priority that left a tuple's pool since it arrived, 1 if there is none. O(log n)."""
    pool = store.pool_of[store.t32[slot, STREAM]]
    length = policy.departures.length[pool]
    at = _first_since(policy, pool, length, store.t64[slot, ARRIVAL])
    return policy.departures.priority[pool, at] if at < length else 1.0


@jit
def _first_since(policy, pool, length, arrival):
    """The first departure of a pool that was not before an arrival."""
    during = policy.departures.during[pool]
    low, high = np.int64(0), np.int64(length)
    while low < high:
        middle = (low + high) >> 1
        if during[middle] < arrival:
            low = middle + 1
        else:
            high = middle
    return low


@jit
def _clear_out(policy, store, pool, length):
    """Drop the departures that are the smallest for no buffered tuple; return how many are left."""
    during, departed = policy.departures.during[pool], policy.departures.priority[pool]
    for slot in range(1, store.meta[HIGH_TUPLE] + 1):
        if store.t64[slot, ARRIVAL] >= 0 and store.pool_of[store.t32[slot, STREAM]] == pool:
            at = _first_since(policy, pool, length, store.t64[slot, ARRIVAL])
            if at < length:
                departed[at] = -abs(departed[at])
    kept = np.int64(0)
    for at in range(length):
        if departed[at] < 0.0:
            during[kept] = during[at]
            departed[kept] = -departed[at]
            kept += 1
    return kept
