"""Stack distances, against a list kept in the order of last use."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import PenstockError
from penstock.locality import stack_distance

pytestmark = pytest.mark.interpreted


def naive_distances(keys: Sequence[Hashable]) -> list[int]:
    """Mattson's stack to the letter: where the key is in the stack, to whose top it then moves."""
    stack: list[Hashable] = []
    distances = []
    for key in keys:
        distances.append(stack.index(key) if key in stack else -1)
        if key in stack:
            stack.remove(key)
        stack.insert(0, key)
    return distances


def lru_hits(keys: Sequence[Hashable], capacity: int) -> int:
    """Hits of an LRU cache that is run."""
    cache: list[Hashable] = []
    hits = 0
    for key in keys:
        if key in cache:
            hits += 1
            cache.remove(key)
        cache.append(key)
        del cache[:-capacity]
    return hits


@settings(deadline=None)
@given(st.lists(st.integers(0, 12), min_size=1, max_size=200))
def test_distances_equal_the_oracle(keys: list[int]) -> None:
    assert stack_distance(keys).distances.tolist() == naive_distances(keys)


@settings(deadline=None)
@given(st.lists(st.integers(0, 12), min_size=1, max_size=200), st.integers(1, 15))
def test_hit_rate_is_that_of_a_cache_that_is_run(keys: list[int], capacity: int) -> None:
    assert stack_distance(keys).hit_rate(capacity) * len(keys) == pytest.approx(lru_hits(keys, capacity))


@settings(deadline=None)
@given(st.lists(st.integers(0, 12), min_size=1, max_size=100), st.booleans())
def test_cdf_and_hit_rate_agree(keys: list[int], permuted: bool) -> None:
    found = stack_distance(keys)
    sizes, rates = found.cdf(permuted=permuted)
    assert (np.diff(sizes) > 0).all()
    assert (np.diff(rates) > 0).all()
    assert found.hit_rate(sizes, permuted=permuted) == pytest.approx(rates)
    assert found.hit_rate(0, permuted=permuted) == 0
    assert found.hit_rate(found.distinct, permuted=permuted) == pytest.approx(1 - found.distinct / len(keys))


def test_the_permuted_copy_has_the_same_popularity() -> None:
    keys = np.repeat(np.arange(100), 20)
    found = stack_distance(keys)
    assert (found.permuted < 0).sum() == (found.distances < 0).sum() == 100
    assert found.hit_rate(1) == 0.95
    assert found.hit_rate(10, permuted=True) == pytest.approx(0.095, abs=0.03)


def test_a_long_stream_equals_the_oracle() -> None:
    keys = np.random.default_rng(0).zipf(1.3, 1_000) % 150
    assert stack_distance(keys).distances.tolist() == naive_distances(keys.tolist())


def test_the_seed_decides_the_permutation() -> None:
    keys = list(range(20)) * 5
    first, again, other = stack_distance(keys), stack_distance(keys, seed=0), stack_distance(keys, seed=1)
    assert first.permuted.tolist() == again.permuted.tolist() != other.permuted.tolist()
    assert first.distances.tolist() == other.distances.tolist()


def test_hit_rate_takes_one_size_or_many() -> None:
    found = stack_distance("abcabc")
    assert isinstance(found.hit_rate(3), float)
    assert found.hit_rate([2, 3]).tolist() == [0.0, 0.5]


def test_repr_is_short() -> None:
    text = repr(stack_distance("abab"))
    assert text == "StackDistance(2 keys, 4 references, hit_rate(1)=0.000, permuted 0.500)"


def test_an_empty_stream_is_refused() -> None:
    with pytest.raises(PenstockError, match="empty stream"):
        stack_distance([])
