"""AUTO in a cache: it follows the policy that does best on a sample of the keys."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock as ps
from penstock.caching import Cache
from penstock.errors import PolicyOptionError, UnknownPolicyError
from penstock.workloads import zipf_probabilities


def popular(n: int, keys: int, seed: int = 0) -> np.ndarray:
    """Independent requests by Zipf's law: LFU's case."""
    return np.random.default_rng(seed).choice(keys, n, p=zipf_probabilities(keys, 0.9))


def recent(n: int, seed: int = 0) -> np.ndarray:
    """Requests for what came a little while ago: LRU's case."""
    return 10**6 + np.arange(n) - np.random.default_rng(seed).exponential(150, n).astype(int)


def hits(policy: str, keys: np.ndarray) -> int:
    cache = Cache(policy, 200)
    cache.request(keys)
    cache.check()
    return cache.hits


def test_it_follows_the_leader() -> None:
    cache = Cache("auto", 200)
    assert cache.choice is not None
    assert cache.choice.policy == "lru"
    cache.request(popular(60_000, 5_000))
    assert cache.choice.policy in ("lfu", "prob")
    assert cache.choice.switches >= 1
    assert cache.choice.estimates["lru"] < 0.95
    assert Cache("lru", 200).choice is None


def test_it_is_ahead_of_each_policy_where_the_best_one_changes() -> None:
    keys = np.concatenate([popular(60_000, 5_000), recent(60_000)])
    found = {policy: hits(policy, keys) for policy in ("lru", "lfu", "prob", "gdj", "clock-exp", "auto")}
    assert max(found, key=found.__getitem__) == "auto", found


@pytest.mark.usefixtures("hasty")
@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 99), cuts=st.lists(st.integers(0, 400), max_size=5))
def test_changes_do_not_depend_on_batches_nor_on_snapshots(seed: int, cuts: list[int]) -> None:
    keys = np.concatenate([popular(200, 60, seed), recent(200, seed)])
    whole, parts = Cache("auto", 20), Cache("auto", 20)
    expected = whole.request(keys)
    found = []
    for start, stop in zip([0, *sorted(cuts)], [*sorted(cuts), len(keys)], strict=True):
        found.append(parts.request(keys[start:stop]))
        copy = Cache("auto", 20)
        copy.parts = parts.parts
        parts = copy
        parts.check()
    assert np.array_equal(np.concatenate([each.hit for each in found]), expected.hit)
    assert np.array_equal(np.concatenate([each.slot for each in found]), expected.slot)
    assert parts.choice == whole.choice


@pytest.mark.usefixtures("hasty")
@pytest.mark.parametrize("policy", ["lru", "lfu", "prob", "gdj", "clock", "clock-exp", "fifo", "rand"])
def test_a_change_keeps_the_entries_in_their_slots(policy: str) -> None:
    cache = Cache(f"auto:candidates=fifo/{policy}", 20)
    assert cache.follower is not None
    cache.request(popular(300, 60))
    before = cache.slots(sorted(cache.keys)).tolist()
    cache._follow(ps.policies.get(policy))
    assert cache.slots(sorted(cache.keys)).tolist() == before
    cache.check()
    cache.request(popular(300, 60, seed=1))
    cache.check()
    assert len(cache) == 20


def test_after_a_change_entries_have_the_scores_of_the_new_policy() -> None:
    """The least recently used goes under LRU, the least used under LFU."""
    requests = [1, 2, 3, 3, 1, 2, 2]  # 2 is used three times, 3 and 1 twice; 3 was used first
    for policy, gone in (("lru", 3), ("lfu", 3), ("fifo", 3)):
        cache = Cache(f"auto:candidates=rand/{policy}", 3)
        cache.request(requests)
        cache._follow(ps.policies.get(policy))
        cache.request([4])
        assert gone not in cache, policy
    cache = Cache("auto:candidates=rand/lfu", 3)
    cache.request([1, 1, 1, 2, 2, 2, 3])
    cache._follow(ps.policies.get("lfu"))
    cache.request([1, 4])
    assert 3 not in cache
    assert 1 in cache


def test_the_small_caches_keep_to_their_share() -> None:
    for entries in (10, 1_000, 200_000):
        cache = Cache("auto", entries)
        assert cache.follower is not None
        small = sum(each.table_bytes for each in cache.follower.small)
        assert small <= max(0.05 * cache.table_bytes, 64 << 10)


@pytest.mark.parametrize(
    ("policy", "error"),
    [
        ("auto:candidates=lru/life", "life cannot be a candidate for a cache"),
        ("auto:candidates=learned", "learned cannot be a candidate for a cache"),
    ],
)
def test_who_cannot_be_a_candidate(policy: str, error: str) -> None:
    with pytest.raises(PolicyOptionError, match=error):
        Cache(policy, 10)


def test_costs_are_refused() -> None:
    with pytest.raises(UnknownPolicyError, match="auto does not support costs"):
        Cache("auto", 10, costs=True)


def fetch(keys: list[Any]) -> list[dict[str, Any]]:
    return [{"name": f"n{key}"} for key in keys]


@pytest.mark.parametrize("budget", [ps.Tuples(50), ps.Bytes("64 KiB"), ps.Bytes("8 KiB")])
def test_a_lookup_goes_on_from_a_snapshot(budget: Any) -> None:
    keys = popular(4_000, 500)
    lookup = ps.LookupCache(fetch, key="id", budget=budget)
    assert lookup.policy.name == "auto"
    whole, parts = lookup.start(), lookup.start()
    whole.process({"id": keys[:2_000]}, on="id")
    parts.process({"id": keys[:2_000]}, on="id")
    parts = lookup.start().restore(parts.snapshot())
    for state in (whole, parts):
        found = state.process({"id": keys[2_000:]}, on="id")
        assert found["name"].to_pylist() == [f"n{key}" for key in keys[2_000:].tolist()]
        state.check()
    assert whole.stats.hits == parts.stats.hits
    assert whole.stats.choice == parts.stats.choice is not None
