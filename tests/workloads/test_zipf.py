"""Stationary Zipf streams, and those with bursts."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import PenstockError
from penstock.locality import popularity, stack_distance
from penstock.workloads import bursty_pair, zipf_pair, zipf_probabilities


@given(keys=st.integers(1, 300), alpha=st.floats(0, 3))
def test_probabilities_fall_with_the_rank_and_sum_to_one(keys: int, alpha: float) -> None:
    probabilities = zipf_probabilities(keys, alpha)
    assert len(probabilities) == keys
    assert probabilities.sum() == pytest.approx(1)
    assert (np.diff(probabilities) <= 0).all()
    assert probabilities[-1] / probabilities[0] == pytest.approx(keys**-alpha)


@settings(deadline=None, max_examples=30)
@given(
    arrivals=st.integers(0, 300),
    keys=st.integers(1, 50),
    correlation=st.sampled_from(["direct", "inverse"]),
    seed=st.integers(0, 2**32),
)
def test_pair_has_the_shape_that_was_asked_for(arrivals, keys, correlation, seed) -> None:
    for stream in zipf_pair(arrivals, keys=keys, correlation=correlation, seed=seed):
        assert list(stream.columns) == ["key", "ts"]
        assert (stream.dtypes == np.int64).all()
        assert len(stream) == arrivals
        assert stream.ts.is_monotonic_increasing
        assert stream.key.between(1, keys).all()


@pytest.mark.parametrize("alpha", [0.5, 0.75, 1.2])
def test_slope_is_recovered(alpha: float) -> None:
    left, _ = zipf_pair(300_000, keys=100, alpha=alpha)
    assert popularity(left.key).slope == pytest.approx(alpha, abs=0.04)


@pytest.mark.parametrize(("correlation", "sign"), [("direct", 1), ("inverse", -1)])
def test_correlation_has_its_direction(correlation, sign: int) -> None:
    left, right = (
        stream.key.value_counts().reindex(range(1, 51), fill_value=0)
        for stream in zipf_pair(50_000, keys=50, correlation=correlation)
    )
    assert sign * left.corr(right, method="spearman") > 0.9


def test_direct_pairs_join_more_than_inverse_ones() -> None:
    def results(correlation) -> int:
        left, right = zipf_pair(20_000, keys=200, alpha=1.0, correlation=correlation)
        return int((left.key.value_counts() * right.key.value_counts()).sum())

    assert results("direct") > 3 * results("inverse")


def test_references_are_independent() -> None:
    found = stack_distance(zipf_pair(50_000, keys=300).left.key)
    sizes = np.arange(1, 301)
    assert np.abs(found.hit_rate(sizes) - found.hit_rate(sizes, permuted=True)).max() < 0.02


def test_rate_is_in_arrivals_per_second() -> None:
    left, right = zipf_pair(50_000, rate=500)
    assert left.ts.iloc[-1] == pytest.approx(100_000, rel=0.02)
    assert right.ts.iloc[-1] == pytest.approx(100_000, rel=0.02)


def test_streams_of_a_pair_differ_and_the_seed_decides() -> None:
    pair, again, other = zipf_pair(500), zipf_pair(500, seed=0), zipf_pair(500, seed=1)
    assert not pair.left.equals(pair.right)
    assert pair.left.equals(again.left)
    assert pair.right.equals(again.right)
    assert not pair.left.equals(other.left)


def test_bursts_multiply_the_rate_where_they_are_expected() -> None:
    for stream in bursty_pair(60, rate=100, factor=50, bursts=3, burst_seconds=2):
        inside = (stream.ts.to_numpy()[:, None] // 1_000 == [[9, 10, 29, 30, 49, 50]]).any(axis=1)
        assert inside.sum() / 6 == pytest.approx(50 * 100, rel=0.05)
        assert (~inside).sum() / 54 == pytest.approx(100, rel=0.05)
        assert stream.ts.is_monotonic_increasing
        assert stream.ts.between(0, 59_999).all()


@pytest.mark.parametrize("quiet", [{"bursts": 0}, {"factor": 1}])
def test_without_bursts_the_rate_is_even(quiet) -> None:
    left, _ = bursty_pair(100, rate=200, **quiet)
    assert (left.ts // 1_000).value_counts().max() < 300


def test_bursty_pairs_are_deterministic_and_can_be_inverse() -> None:
    assert bursty_pair(5).right.equals(bursty_pair(5).right)
    left, right = bursty_pair(60, keys=20, alpha=1.5, correlation="inverse")
    assert left.key.mode()[0] == 1
    assert right.key.mode()[0] == 20


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: zipf_pair(-1), r"arrivals=-1 was given; whole numbers from 0 on"),
        (lambda: zipf_pair(10, keys=0), r"keys=0 was given; whole numbers from 1 on"),
        (lambda: zipf_pair(10, keys=2.5), r"keys=2\.5"),
        (lambda: zipf_pair(10, alpha=-1), r"alpha=-1 was given; a number at least 0"),
        (lambda: zipf_pair(10, alpha=float("nan")), r"alpha=nan was given; a finite number"),
        (lambda: zipf_pair(10, rate=0), r"rate=0 was given; a number above 0.*per second"),
        (lambda: zipf_pair(10, correlation="invers"), r"did you mean 'inverse'\? Allowed: direct, inverse"),
        (lambda: bursty_pair(factor=0.5), r"factor=0\.5.*at least 1.*1 means no bursts"),
        (lambda: bursty_pair(10, bursts=3, burst_seconds=5), r"bursts=3.*Hint: burst_seconds=3\.3"),
        (lambda: bursty_pair(True), r"seconds=True"),
    ],
)
def test_errors_say_what_is_allowed(make, message: str) -> None:
    with pytest.raises(PenstockError, match=message):
        make()
