"""The pool of pattern caches evicts what the plain rules evict, however its log is cut."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock import policies
from penstock.patterns.published import cache_pool
from penstock.patterns.published.cache_pool import ENTRY_BYTES, CachePool
from tests.oracles.caching import SizedCache


def run_randomly(pool: CachePool, oracle: SizedCache | None, random: Random, steps: int = 120) -> None:
    """Uses, new entries, entries that grow or shrink, and entries that nobody needs any more."""
    names: set[int] = set()
    for step in range(steps):
        kind = random.random()
        if names and kind < 0.4:
            name = random.choice(sorted(names))
            pool.use(name)
            if oracle is not None:
                oracle.use(name)
        elif names and kind < 0.5:
            name = random.choice(sorted(names))
            names.discard(name)
            pool.drop(name)
            if oracle is not None:
                oracle.drop(name)
        else:
            name = random.choice(sorted(names)) if names and kind < 0.7 else random.randrange(12)
            size = ENTRY_BYTES + random.choice([0, 0, 140, 700, 9_000])
            left = pool.store(name, size)
            names = (names | {name}) - set(left)
            if oracle is not None:
                assert left == oracle.store(name, size), f"step {step}"
        assert set(pool.sizes) == names
        if step % 20 == 0:
            pool.check()


@pytest.mark.parametrize("policy", ["fifo", "lru", "lfu", "gdj", "clock", "clock-exp"])
@settings(max_examples=12)
@given(seed=st.integers(0, 10**6), budget=st.sampled_from([800, 2_000, 4_000, 8_000]))
def test_the_plain_rules(policy: str, seed: int, budget: int) -> None:
    pool = CachePool(budget, policies.get(policy))
    run_randomly(pool, SizedCache(policy, budget, max(1, budget // ENTRY_BYTES)), Random(seed))


@pytest.mark.parametrize("seed", [-3, 0, 2**70])
def test_rand_draws_by_its_seed(seed: int) -> None:
    runs = []
    for _ in range(2):
        pool = CachePool(4_000, policies.get("rand"), seed)
        run_randomly(pool, None, Random(1))
        runs.append((dict(pool.sizes), pool.figures()))
    assert runs[0] == runs[1]
    assert runs[0][1]["evicted"] > 0


def test_the_length_of_the_log_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = []
    for length in (1, 3, 256):
        monkeypatch.setattr(cache_pool, "LOGGED", length)
        pool = CachePool(5_000, policies.get("gdj"))
        run_randomly(pool, None, Random(7))
        runs.append((dict(pool.sizes), pool.figures()))
    assert runs[0] == runs[1] == runs[2]


def test_an_entry_that_outgrows_the_budget_leaves_the_others_alone() -> None:
    pool = CachePool(4_000, policies.get("lru"))
    assert pool.store("a", 1_000) == pool.store("b", 1_000) == []
    assert pool.store("a", 5_000) == ["a"]
    assert pool.store("c", 4_001) == ["c"]
    assert pool.sizes == {"b": 1_000}


def test_without_a_budget_nothing_is_evicted() -> None:
    pool = CachePool(None, policies.get("lru"))
    run_randomly(pool, None, Random(3))
    assert pool.evicted == 0
    pool.check()
