"""The planners: the simulation does what the paper says, and the theorems hold."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from penstock.errors import PenstockError
from penstock.queues import ExtendedCost, least_accesses, optimum, planner, simulate
from penstock.queues.planning import planners
from tests.oracles.queues import Oracle

ONE = ["half", "half-late", "greedy", "greedy-chunk", "buffered-head"]
MANY = ["greedy", "greedy-chunk", "buffered-head", "buffered-head-rest", "buffered-head-halves"]

ticks = st.lists(st.integers(0, 4), min_size=1, max_size=40)


def two(rate: int) -> Any:
    """Ticks of two queues."""
    return st.lists(st.tuples(st.integers(0, rate), st.integers(0, rate)), min_size=1, max_size=30)


def same(name: str, memory: int, arrivals: Any, order: Any = ()) -> Oracle:
    """The oracle and the kernel agree; the oracle checks FIFO, memory and invariants on the way."""
    rows = [tuple(r) if isinstance(r, (tuple, list)) else (r,) for r in arrivals]
    queues = len(rows[0])
    block = max(1, memory // (4 * queues)) if name == "greedy-chunk" else 1
    oracle = Oracle(name, memory, queues, block).run(rows, order)
    policy = f"{name}:block={block}" if name == "greedy-chunk" else name
    run = simulate(rows, policy, memory=memory, consume=order if len(order) else "round-robin")
    assert (run.reads, run.writes, run.read, run.written) == (
        oracle.reads,
        oracle.writes,
        oracle.read,
        oracle.written,
    )
    assert run.rewritten == oracle.rewritten == 0  # acyclic
    assert run.peak <= memory
    return oracle


@pytest.mark.interpreted
@pytest.mark.parametrize("name", ONE)
@given(arrivals=ticks, memory=st.integers(4, 13))
def test_one_queue_as_the_paper_says(name: str, arrivals: list[int], memory: int) -> None:
    same(name, memory, arrivals)


@pytest.mark.parametrize("name", MANY)
@given(
    arrivals=two(3),
    memory=st.integers(2, 8).map(lambda k: 4 * k),
    order=st.lists(st.sampled_from([0, 1, 1, -1, -2]), max_size=30),
)
def test_many_queues_as_the_paper_says(name: str, arrivals: Any, memory: int, order: list[int]) -> None:
    same(name, memory, arrivals, order)


@given(arrivals=st.lists(st.tuples(*[st.integers(0, 2)] * 3), min_size=1, max_size=25))
def test_a_straddling_write_is_two(arrivals: Any) -> None:
    same("buffered-head", 12, arrivals)


# --- Theorems -----------------------------------------------------------------------------------------

small = st.lists(st.integers(0, 3), min_size=1, max_size=11)


@settings(max_examples=40)
@given(arrivals=small, memory=st.sampled_from([4, 6]))
def test_half_is_within_twice_the_optimum(arrivals: list[int], memory: int) -> None:
    best = optimum(arrivals, memory=memory)
    assert simulate(arrivals, "half", memory=memory).cost() <= 2 * best
    assert least_accesses(arrivals, memory=memory) <= best


def test_half_reaches_two() -> None:
    """Theorem 2.2: one tuple too many, and after the large read just enough to overflow once more."""
    from penstock.queues.planning.arrivals import half_adversary

    arrivals = half_adversary(memory=8, rounds=1)
    best, run = optimum(arrivals, memory=8), simulate(arrivals, "half", memory=8)
    assert run.cost() == 2 * best > 0
    many = simulate(half_adversary(memory=8, rounds=50), "half", memory=8)
    assert many.cost() == 50 * run.cost()


def test_the_late_variant_exceeds_two() -> None:
    arrivals = [3, 0, 3, 3, 0, 0, 3, 3, 1, 1]
    assert simulate(arrivals, "half-late", memory=6).cost() == 2.5 * optimum(arrivals, memory=6)


@settings(max_examples=50)
@given(arrivals=small, memory=st.sampled_from([4, 5, 6]))
def test_greedy_writes_fewest_tuples(arrivals: list[int], memory: int) -> None:
    """Theorem 3.1: in a model where only tuples count, and accesses next to nothing."""
    best = optimum(arrivals, memory=memory, model=ExtendedCost(c0=1e-6, c1=0.5))
    assert simulate(arrivals, "greedy", memory=memory).written == round(best)


@settings(max_examples=40)
@given(
    arrivals=st.lists(st.integers(0, 3), min_size=1, max_size=9),
    memory=st.sampled_from([6, 8]),
    block=st.integers(2, 3),
    policy=st.sampled_from(["greedy-chunk", "hybrid"]),
)
def test_greedy_chunk_and_hybrid_are_within_four(
    arrivals: list[int], memory: int, block: int, policy: str
) -> None:
    model = ExtendedCost(c0=block, c1=1)
    best = optimum(arrivals, memory=memory, model=model)
    assert simulate(arrivals, f"{policy}:block={block}", memory=memory).cost(model) <= 4 * best + 1e-9


@settings(max_examples=40)
@given(arrivals=small, block=st.integers(4, 9))
def test_hybrid_takes_half_for_large_blocks(arrivals: list[int], block: int) -> None:
    model = ExtendedCost(c0=block, c1=1)
    run = simulate(arrivals, f"hybrid:block={block}", memory=6)
    assert run.cost() == simulate(arrivals, "half", memory=6).cost()
    assert run.cost(model) <= 4 * optimum(arrivals, memory=6, model=model) + 1e-9


# At most M/2n tuples enter at a tick, which the paper assumes; M/2n is 2 or 1 here.
slow = st.lists(st.sampled_from([(0, 0), (1, 0), (0, 1), (1, 1), (2, 0), (0, 2)]), min_size=1, max_size=9)


@settings(max_examples=40)
@given(arrivals=slow)
def test_buffered_head_is_within_2n_for_round_robin(arrivals: Any) -> None:
    run = simulate(arrivals, "buffered-head", memory=4)
    assert run.cost() <= 4 * optimum(arrivals, memory=4)


@settings(max_examples=40)
@given(arrivals=slow, order=st.lists(st.integers(0, 1), max_size=20))
def test_buffered_head_is_within_2n_of_two_thirds_for_adversaries(arrivals: Any, order: list[int]) -> None:
    """Theorem 4.5."""
    run = simulate(arrivals, "buffered-head", memory=6, consume=order)
    assert run.cost() <= 4 * optimum(arrivals, memory=4, consume=order)


def test_lru_thrashes() -> None:
    """More queues than pages: what was read for one queue goes out again before its turn comes."""
    arrivals = np.zeros((2_000, 8), np.int64)
    arrivals[np.arange(2_000), np.arange(2_000) % 8] = 1
    arrivals[:10] = 2
    run = simulate(arrivals, "lru:block=10", memory=40)
    heads = simulate(arrivals, "buffered-head", memory=40)
    assert run.rewritten > 10 * run.ticks / 8
    assert heads.rewritten == 0
    assert run.written > 4 * heads.written


def test_the_static_split_loses_without_bound() -> None:
    """All tuples in one queue, nearly M of them: nothing need be written, but the split writes on and on."""
    costs = []
    for length in (1_000, 2_000, 4_000):
        arrivals = np.zeros((length, 4), np.int64)
        arrivals[:, 0] = 1
        arrivals[0, 0] = 79
        assert simulate(arrivals, "buffered-head", memory=80).cost() == 0
        costs.append(simulate(arrivals, "static", memory=80).cost())
    assert costs[0] > 100
    assert costs[2] > 3.5 * costs[0]


@example(arrivals=[9, 9, 9])
@given(arrivals=ticks)
def test_paging_loses_nothing(arrivals: list[int]) -> None:
    run = simulate(arrivals, "lru", memory=6)
    assert run.peak <= 6
    assert run.read == run.written


@pytest.mark.parametrize(
    "call",
    [
        lambda: planner("haf"),
        lambda: planner("half:block=2"),
        lambda: planner("hybrid:block=x"),
        lambda: planner("half").sized(10, queues=2),
        lambda: planner("half").sized(1),
        lambda: planner("greedy-chunk:block=9").sized(10),
        lambda: simulate([1.5], memory=4),
        lambda: simulate([-1], memory=4),
        lambda: simulate([1], memory=4, consume="newest"),
        lambda: simulate([1], memory=4, consume=[3]),
        lambda: optimum([9] * 20, memory=9, limit=1_000),
    ],
)
def test_bad_input_is_refused(call: Any) -> None:
    with pytest.raises(PenstockError):
        call()


def test_names() -> None:
    assert len(planners.names()) == len(set(planners.names())) >= 10
