"""The generator of the GreedyDual-Join experiments."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import PenstockError
from penstock.locality import inter_arrival, popularity, stack_distance
from penstock.workloads import gdj_attributes, gdj_pair, gdj_stream


@settings(deadline=None, max_examples=50)
@given(
    keys=st.integers(1, 40),
    alpha=st.floats(0, 2),
    shape=st.none() | st.floats(0.1, 50),
    rate=st.floats(0.01, 5),
    duration=st.integers(1, 200),
    seed=st.integers(0, 2**32),
)
def test_stream_has_the_shape_that_was_asked_for(keys, alpha, shape, rate, duration, seed) -> None:
    stream = gdj_stream(keys=keys, alpha=alpha, shape=shape, rate=rate, duration=duration, seed=seed)
    assert list(stream.columns) == ["key", "ts"]
    assert (stream.dtypes == np.int64).all()
    assert len(stream) == round(rate * duration)
    assert stream.ts.is_monotonic_increasing
    assert stream.ts.between(0, duration - 1).all()
    assert stream.key.between(1, keys).all()


@pytest.mark.parametrize("shape", [None, 1.2, 0.8])
def test_slope_is_recovered_however_heavy_the_tail(shape) -> None:
    stream = gdj_stream(alpha=0.75, shape=shape, rate=200)
    assert popularity(stream.key).slope == pytest.approx(0.75, abs=0.02)


def test_gaps_follow_the_pareto_law() -> None:
    # One value in fine ticks: P[gap > x] = (1 + x / scale) ** -shape, so ratios of quantiles give the shape.
    stream = gdj_stream(keys=1, shape=1.5, rate=0.01, duration=20_000_000)
    gaps = inter_arrival(stream.key, stream.ts)
    for share in (0.25, 0.9, 0.99):
        ratio = np.quantile(gaps, share) / np.quantile(gaps, 0.5)
        law = ((1 - share) ** (-1 / 1.5) - 1) / (0.5 ** (-1 / 1.5) - 1)
        assert ratio == pytest.approx(law, rel=0.05)


def test_the_lower_the_shape_the_stronger_the_correlation() -> None:
    def gain(shape: float | None) -> float:
        found = stack_distance(gdj_stream(shape=shape).key)
        return found.hit_rate(10) - found.hit_rate(10, permuted=True)

    gains = [gain(shape) for shape in (None, 5, 2, 1.2, 0.8)]
    assert gains == sorted(gains)
    assert abs(gains[0]) < 0.02
    assert gains[3] > 0.2


def test_stream_is_stationary() -> None:
    thirds = np.bincount(gdj_stream(keys=2_000, alpha=0.0, rate=100).ts // 480)
    assert thirds / thirds.mean() == pytest.approx([1, 1, 1], abs=0.06)


def test_pair_is_directly_or_inversely_correlated() -> None:
    direct, inverse = gdj_pair(), gdj_pair(correlation="inverse")
    assert direct.left.equals(inverse.left)
    assert direct.right.key.equals(101 - inverse.right.key)
    assert direct.right.key.mode()[0] == 1
    assert not direct.left.equals(direct.right)


def test_attributes_have_increasing_skew_on_the_left_and_none_on_the_right() -> None:
    left, right = gdj_attributes(4, rate=50)
    names = ["a1", "a2", "a3", "a4"]
    assert list(left.columns) == list(right.columns) == [*names, "ts"]
    slopes = [popularity(left[name]).slope for name in names]
    assert slopes == pytest.approx([0.75, 1.0, 1.25, 1.5], abs=0.15)
    assert all(popularity(right[name]).slope < 0.1 for name in names)
    assert left.ts.is_monotonic_increasing


def test_attributes_of_the_skewness_experiment() -> None:
    left, right = gdj_attributes(left_alphas=(0, 1.5), right_alphas=(0, 0.5), rate=50)
    slopes = [popularity(stream[name]).slope for stream in (left, right) for name in ("a1", "a2")]
    assert slopes == pytest.approx([0, 1.5, 0, 0.5], abs=0.1)


def test_attributes_cluster_in_time_each_on_its_own() -> None:
    left, _ = gdj_attributes(2, left_alphas=(0, 0))
    for name in ("a1", "a2"):
        found = stack_distance(left[name])
        assert found.hit_rate(10) > 2 * found.hit_rate(10, permuted=True)
    assert (left.a1 == left.a2).mean() < 0.05


@pytest.mark.parametrize("make", [gdj_stream, lambda **options: gdj_pair(**options).right])
def test_the_seed_decides(make) -> None:
    assert make().equals(make(seed=0))
    assert make().equals(make(seed=np.random.default_rng(0)))
    assert not make().equals(make(seed=1))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: gdj_stream(shape=0), r"shape=0 was given; a number between 0\.1 .* shape=None"),
        (lambda: gdj_stream(duration=0), r"duration=0"),
        (lambda: gdj_stream(rate=-1), r"rate=-1.*arrivals per tick"),
        (lambda: gdj_pair(correlation="reverse"), r"correlation='reverse' is not known.*direct, inverse"),
        (lambda: gdj_attributes(0), r"attributes=0"),
        (lambda: gdj_attributes(2, left_alphas=(1,)), r"left_alphas has 1 values for 2 attributes"),
    ],
)
def test_errors_say_what_is_allowed(make, message: str) -> None:
    with pytest.raises(PenstockError, match=message):
        make()
