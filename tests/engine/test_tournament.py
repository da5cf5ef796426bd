"""The tournament of falling scores against a scan, through `life`, whose victims it names."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock as ps
from penstock.compiler.jit import jit
from penstock.engine.hooks import lowest
from penstock.engine.store import ARRIVAL, ENTRY, HIGH_TUPLE, STREAM, TIME, USE, lifetime
from tests.joins.agreement import VARIANTS, Case, assert_agrees

LIFE = next(variant for variant in VARIANTS if variant.name == "life")


@jit
def named(policy, store, pool):
    return lowest(policy, store, pool)


def by_scan(state: ps.JoinState, pool: int) -> int:
    """The tuple with the lowest (score, arrival), looked for among all."""
    store = state.store
    slots = [s for s in range(1, int(store.meta[HIGH_TUPLE]) + 1) if store.t64[s, ARRIVAL] >= 0]
    mine = [s for s in slots if store.pool_of[store.t32[s, STREAM]] == pool]

    def value(slot: int) -> tuple[float, int]:
        stream = int(store.t32[slot, STREAM])
        count = store.k64[store.t32[slot, ENTRY], USE + stream]
        left = lifetime(store, stream, store.time[slot, TIME])
        return float(count) * float(left), int(store.t64[slot, ARRIVAL])

    return min(mine, key=value, default=0)


@pytest.mark.parametrize("dtype", [np.int64, np.float64])
@settings(max_examples=25)
@given(seed=st.integers(0, 10_000), keys=st.sampled_from([2, 6, 25]), window=st.sampled_from([5, 40, 300]))
def test_the_champion_is_the_lowest(dtype: type, seed: int, keys: int, window: int) -> None:
    random = np.random.default_rng(seed)
    n = 150
    steps = random.choice([0, 0, 1, 2, 9], n) if dtype is np.int64 else random.choice([0, 0.1, 0.37, 1.9], n)
    time = np.cumsum(steps).astype(dtype) + random.choice([0, 10**9])
    state = ps.WindowJoin(within=window, budget=ps.Tuples(14), policy="life").start(dtype=dtype)
    stream, key = np.sort(random.integers(0, 2, n)), random.integers(0, keys, n)
    stream = random.permutation(stream)
    for i in range(n):
        state.process(stream[i : i + 1], key[i : i + 1], time[i : i + 1], [i])
        for pool in (0, 1):
            assert named(state.policy, state.store, pool)[0] == by_scan(state, pool)


def test_lines_that_cross_in_one_point() -> None:
    # Counts 3, 2 and 1 with lifetimes 2, 3 and 6 meet at one instant: ties go to the earliest arrival.
    left = [(0, "c"), (1, "b"), (2, "a"), (3, "x"), (4, "x"), (5, "x")]
    right = [(0, "a"), (0, "a"), (0, "a"), (0, "b"), (0, "b"), (0, "c"), (3, "x"), (3, "x")]
    for within in range(1, 12):
        for budget in range(2, 9):
            case = Case(left, right, within=within, budget=budget)
            assert_agrees(case, case.run("life"), LIFE, "life")


def test_large_times_and_windows() -> None:
    """Products beyond 2**53, where float64 rounds: both sides round alike."""
    base = 1_700_000_000_000_000_000
    random = np.random.default_rng(8)
    for scale in (1, 10**6, 10**12):
        left, right = (
            [
                (base + int(t) * scale, int(k))
                for t, k in zip(np.sort(random.integers(0, 60, 80)), random.zipf(1.4, 80) % 7, strict=True)
            ]
            for _ in range(2)
        )
        case = Case(left, right, within=25 * scale, budget=12)
        assert_agrees(case, case.run("life"), LIFE, "life")
