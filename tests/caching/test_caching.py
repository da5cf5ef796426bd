"""Caches against their plain versions, all decisions there are, and the join they reduce to."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock as ps
from penstock import caching
from penstock.errors import BudgetError, PenstockError, PolicyOptionError, UnknownPolicyError
from penstock.joins import follow_decisions
from penstock.testing.cache_checks import ONLINE_CACHE_CHECKS, check_cache_accounts, check_cache_batches
from tests.oracles.caching import cheapest_hits, clock_hits, gdj_hits, hits_of, most_hits

POLICIES = ["fifo", "lru", "lfu", "prob", "lfd", "lfd:bypass=true"]
FIXED = [name for name in ps.policies.caching_names() if not ps.policies.get(name).chooses]
ALL = [*FIXED, "lfd:bypass=true"]
ONLINE = [name for name in FIXED if not ps.policies.get(name).needs_future]
every_policy = pytest.mark.parametrize("policy", POLICIES)

traces = st.lists(st.integers(0, 9), max_size=120)


@pytest.mark.interpreted
@every_policy
@settings(max_examples=60)
@given(requests=traces, capacity=st.integers(1, 12))
def test_same_hits_as_the_plain_cache(policy: str, requests: list[int], capacity: int) -> None:
    run = caching.replay(np.array(requests, np.int64), policy, capacity)
    assert run.hit.tolist() == hits_of(requests, policy, capacity)
    assert run.hits == sum(run.hit.tolist())
    assert run.misses == min(capacity, len(set(requests))) + run.evicted + run.refused


@pytest.mark.interpreted
@settings(max_examples=80)
@given(requests=traces, capacity=st.integers(1, 12))
def test_same_hits_as_the_plain_credits_and_hands(requests: list[int], capacity: int) -> None:
    keys = np.array(requests, np.int64)
    plain = {
        "gdj": gdj_hits(requests, capacity),
        "gdj:initial=0.3,method=3": gdj_hits(requests, capacity, 0.3),
        "gdj:method=2": gdj_hits(requests, capacity, ranks=True),
        "clock": clock_hits(requests, capacity),
        "clock-exp": clock_hits(requests, capacity, 0.95),
        "clock-exp:rho=0.4": clock_hits(requests, capacity, 0.4),
    }
    for policy, hits in plain.items():
        assert caching.replay(keys, policy, capacity).hit.tolist() == hits, policy


@pytest.mark.interpreted
@settings(max_examples=60)
@given(requests=traces, capacity=st.integers(1, 9), seed=st.integers(0, 99))
def test_costs_decide_who_goes(requests: list[int], capacity: int, seed: int) -> None:
    costs = np.random.default_rng(seed).integers(0, 20, 10)[requests].astype(float)
    cache = caching.Cache("gdj", capacity, costs=True)
    found = cache.request(np.array(requests, np.int64), costs=costs)
    cache.check()
    assert found.hit.tolist() == cheapest_hits(requests, costs.tolist(), capacity)


@settings(max_examples=100)
@given(requests=st.lists(st.integers(0, 5), max_size=14), capacity=st.integers(1, 4))
def test_no_decisions_have_more_hits_than_lfd_with_bypass(requests: list[int], capacity: int) -> None:
    best = most_hits(requests, capacity)
    assert caching.replay(requests, "lfd:bypass=true", capacity).hits == best
    for policy in ALL:
        assert caching.replay(requests, policy, capacity).hits <= best


# The reduction to joining.


def join_of(requests: list[int], capacity: int) -> tuple[tuple[pd.DataFrame, pd.DataFrame], dict[str, Any]]:
    options = {
        "on": ["value", "occurrence"],
        "time": "ts",
        "within": max(1, len(requests)),
        "budget": ps.Tuples(capacity),
        "step": "tick",
    }
    return caching.as_join(requests), options


@settings(max_examples=60)
@given(requests=traces, capacity=st.integers(2, 8))
def test_the_best_join_of_the_reduction_is_the_best_cache(requests: list[int], capacity: int) -> None:
    streams, options = join_of(requests, capacity)
    best = ps.optimal_join(*streams, **options)
    assert best.same_tick == 0
    assert best.results == caching.replay(requests, "lfd:bypass=true", capacity).hits


@pytest.mark.parametrize("policy", ALL)
@settings(max_examples=40)
@given(requests=traces, capacity=st.integers(2, 8))
def test_a_cache_and_the_join_it_reduces_to_have_the_same_hits(
    policy: str, requests: list[int], capacity: int
) -> None:
    """The join that keeps what the cache keeps has a result at each hit, and none elsewhere."""
    run = caching.replay(requests, policy, capacity, seed=5)
    streams, options = join_of(requests, capacity)
    found = follow_decisions(*streams, caching.as_decisions(run), collect=True, **options)
    assert found.stats.results == run.hits
    assert sorted(found.pairs.column("left_row").to_pylist()) == np.flatnonzero(run.hit).tolist()


def test_the_reduction_is_that_of_the_paper() -> None:
    references, supplies = caching.as_join(list("abaca"))
    pairs = [list(zip(s.value.tolist(), s.occurrence.tolist(), strict=True)) for s in (references, supplies)]
    assert pairs[0] == [(0, 0), (1, 0), (0, 1), (2, 0), (0, 2)]
    assert pairs[1] == [(0, 1), (1, 1), (0, 2), (2, 1), (0, 3)]


# A cache that is driven batch by batch.


@pytest.mark.parametrize("policy", ALL)
@settings(max_examples=30)
@given(requests=traces, cut=st.integers(0, 120), capacity=st.integers(1, 9))
def test_batches_change_nothing(policy: str, requests: list[int], cut: int, capacity: int) -> None:
    check_cache_batches(ps.policies.get(policy), np.array(requests, np.int64), cut, capacity)


@pytest.mark.parametrize("policy", ALL)
@settings(max_examples=20)
@given(requests=traces, capacity=st.integers(1, 9))
def test_misses_are_accounted_for(policy: str, requests: list[int], capacity: int) -> None:
    check_cache_accounts(ps.policies.get(policy), np.array(requests, np.int64), capacity)


@pytest.mark.parametrize("policy", ONLINE)
@pytest.mark.parametrize("check", ONLINE_CACHE_CHECKS, ids=lambda check: check.__name__)
def test_online(policy: str, check: Callable[..., None]) -> None:
    """Random requests and keys that are forgotten, and a copy in mid-stream."""
    check(ps.policies.get(policy))


def test_rand_evicts_every_entry_alike() -> None:
    cache = caching.Cache("rand", 5, seed=1)
    slots = cache.request(np.arange(20_005)).slot[5:]
    shares = np.bincount(slots, minlength=6)[1:] / len(slots)
    assert (np.abs(shares - 0.2) < 0.015).all()
    assert not np.array_equal(slots, caching.Cache("rand", 5, seed=2).request(np.arange(20_005)).slot[5:])


def test_keys_of_any_type() -> None:
    texts = ["x", "y", "x", "z", "y", None, "x"]
    numbers = [1, 2, 1, 3, 2, None, 1]
    runs = [
        caching.replay(given, "lru", 2)
        for given in (texts, numbers, pd.Series(texts), pa.array(texts), pa.chunked_array([numbers]))
    ]
    assert {(run.hits, run.nulls, run.requests) for run in runs} == {(1, 1, 6)}
    far = np.array([2**62, -(2**62), 2**62, 5], np.int64)
    assert caching.replay(far, "lfd", 2).hits == caching.replay(far, "prob", 2).hits == 1


def test_no_requests() -> None:
    for policy in ALL:
        run = caching.replay([], policy, 3)
        assert (run.requests, run.hits, run.hit_ratio) == (0, 0, 0.0)


# What is refused.


def test_policies_that_cannot_run_a_cache() -> None:
    for policy in ("age", "opt", "life"):
        with pytest.raises(UnknownPolicyError, match=r"cannot run a cache.*lru.*lfd"):
            caching.replay([1], policy, 2)
    with pytest.raises(UnknownPolicyError, match="did you mean 'lru'"):
        caching.replay([1], "lrru", 2)
    with pytest.raises(UnknownPolicyError, match="for caches, not for joins"):
        ps.WindowJoin(within=5, budget=ps.Tuples(2), policy="lfd")
    assert "lfd" not in ps.policies.names()


def test_bad_options_and_budgets() -> None:
    with pytest.raises(PolicyOptionError, match="true or false"):
        caching.replay([1], "lfd:bypass=3", 2)
    for budget in (0, -1, ps.Bytes("1 MiB"), ps.Fraction(0.5), "2 KiB", 1.5):
        with pytest.raises(BudgetError):
            caching.replay([1], "lru", budget)
    with pytest.raises(PenstockError, match="seed"):
        caching.Cache("rand", 2, seed=-1)


def test_requests_that_are_none() -> None:
    with pytest.raises(PenstockError, match="whole numbers"):
        caching.Cache("lru", 2).request(["a"])
    with pytest.raises(PenstockError, match="whole trace"):
        caching.Cache("lfd", 2)
    cache = caching.Cache("lfd", 2, requests=[1, 2])
    cache.request([1, 2])
    with pytest.raises(PenstockError, match="more have come"):
        cache.request([3])


# Counts of an independent simulator; the trace is no part of the repository.

DATA = Path(os.environ.get("PENSTOCK_DATA") or Path(__file__).parents[3] / "shared" / "data")
TRACE = DATA / "shop_requests.parquet"


@pytest.mark.skipif(
    not TRACE.exists(), reason=f"no {TRACE.name} in the directory of PENSTOCK_DATA or beside the repository"
)
@pytest.mark.parametrize(
    ("policy", "hits"), [("fifo", 39_735), ("lru", 42_106), ("lfu", 24_666), ("lfd", 59_819)]
)
def test_reference_counts_of_the_shop(policy: str, hits: int) -> None:
    requests = pd.read_parquet(TRACE, columns=["key"])["key"]
    run = caching.replay(requests, policy, 200)
    assert run.hits == hits
    assert run.hits <= caching.replay(requests, "lfd:bypass=true", 200).hits
