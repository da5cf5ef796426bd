"""The queue of lowest scores against a scan, through the policy that uses it most plainly."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from penstock.compiler.interpreter import interpreted
from penstock.compiler.jit import jit
from penstock.engine import score_queue
from penstock.engine.hooks import score
from penstock.engine.store import ARRIVAL, BASE, new_store


class Scores(NamedTuple):
    """A policy whose scores are what the test says."""

    queue: score_queue.Queue


@score.on(Scores)
def _score(policy: Any, store: Any, slot: int) -> Any:
    return store.f64[slot, BASE]


@jit
def lowest(policy, queue, store, pool):
    return score_queue.front(policy, queue, store, pool)


class Model:
    """Tuples with scores; a score only rises."""

    def __init__(self, capacity: int) -> None:
        self.store = new_store((capacity,), (capacity,), np.dtype(np.int64), 0)
        self.state = Scores(score_queue.new_queue((capacity,)))
        self.free = list(range(capacity, 0, -1))
        self.live: dict[int, int] = {}  # slot -> arrival
        self.arrivals = 0

    def enter(self, value: float) -> None:
        slot = self.free.pop()
        self.store.t64[slot, ARRIVAL] = self.arrivals
        self.store.f64[slot, BASE] = value
        self.live[slot] = self.arrivals
        self.arrivals += 1
        score_queue.file_newcomer(self.state.queue, self.store, 0, slot, value)

    def leave(self, slot: int) -> None:
        self.store.t64[slot, ARRIVAL] = -1
        del self.live[slot]
        self.free.append(slot)

    def check(self) -> None:
        slot, value = lowest(self.state, self.state.queue, self.store, 0)
        if not self.live:
            assert slot == 0
            return
        expected = min(self.live, key=lambda s: (self.store.f64[s, BASE], self.live[s]))
        assert (slot, value) == (expected, self.store.f64[expected, BASE])


OPERATIONS = st.lists(
    st.tuples(
        st.sampled_from(["enter", "enter", "leave", "evict", "raise", "ask"]),
        st.integers(0, 8),
        st.integers(0, 10**6),
    ),
    max_size=250,
)


@given(capacity=st.integers(1, 9), operations=OPERATIONS)
def test_the_front_is_the_lowest_then_the_earliest(
    capacity: int, operations: list[tuple[str, int, int]]
) -> None:
    model = Model(capacity)
    for what, value, which in operations:
        slots = list(model.live)
        if what == "enter" and model.free:
            model.enter(float(value))
        elif what == "leave" and slots:
            model.leave(slots[which % len(slots)])
        elif what == "evict" and slots:
            slot, _ = lowest(model.state, model.state.queue, model.store, 0)
            model.leave(int(slot))
        elif what == "raise" and slots:
            model.store.f64[slots[which % len(slots)], BASE] += value
        elif what == "ask":
            model.check()
    model.check()


def test_room_is_found_again_and_again() -> None:
    """Entries of tuples that have left fill the run and the heap many times over."""
    model, random = Model(20), np.random.default_rng(3)
    for i in range(5_000):
        if not model.free:
            slots = list(model.live)
            model.leave(slots[int(random.integers(len(slots)))])
        model.enter(float(random.integers(0, 5) if i % 3 else i))
        if i % 7 == 0:
            model.check()


def test_the_interpreted_twin_agrees() -> None:
    model = Model(6)
    for value in (3.0, 1.0, 2.0, 1.0):
        model.enter(value)
    slow = interpreted(score_queue.front)(model.state, model.state.queue, model.store, 0)
    assert tuple(slow) == tuple(lowest(model.state, model.state.queue, model.store, 0))
