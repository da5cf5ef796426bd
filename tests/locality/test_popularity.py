"""Popularity by rank, and the Zipf fit."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import linregress

from penstock.errors import PenstockError
from penstock.locality import popularity


@given(st.lists(st.integers(0, 20), min_size=1, max_size=200))
def test_counts_equal_those_of_a_counter(keys: list[int]) -> None:
    profile = popularity(keys)
    # Counter.most_common, too, orders equal counts by first appearance.
    ranked = list(zip(profile.keys.tolist(), profile.counts.tolist(), strict=True))
    assert ranked == Counter(keys).most_common()
    assert profile.frequencies.sum() == pytest.approx(1)


@given(st.lists(st.integers(0, 20), min_size=30, max_size=200))
def test_fit_is_the_least_squares_line(keys: list[int]) -> None:
    profile = popularity(keys)
    if len(profile.counts) < 3:
        return
    line = linregress(np.log(np.arange(1, len(profile.counts) + 1)), np.log(profile.counts))
    assert profile.slope == pytest.approx(-line.slope, abs=1e-9)
    assert profile.error == pytest.approx(line.stderr, abs=1e-6)
    assert profile.fitted(1) == pytest.approx(math.exp(line.intercept))


def test_an_exact_law_is_found_exactly() -> None:
    counts = [2520 // rank for rank in range(1, 11)]
    profile = popularity(np.repeat(np.arange(10), counts))
    assert profile.slope == pytest.approx(1.0)
    assert profile.error == pytest.approx(0, abs=1e-9)
    assert profile.fitted([1, 10]) == pytest.approx([2520, 252])


def test_rare_keys_can_be_left_out_of_the_fit() -> None:
    counts = [1000 // rank for rank in range(1, 21)] + [1] * 5_000
    keys = np.repeat(np.arange(len(counts)), counts)
    assert popularity(keys, min_count=2).slope == pytest.approx(1.0, abs=0.02)
    assert abs(popularity(keys).slope - 1.0) > 0.1


def test_too_few_keys_have_no_slope() -> None:
    assert math.isnan(popularity("aaa").slope)
    profile = popularity("aab")
    assert profile.slope == pytest.approx(1.0)
    assert math.isnan(profile.error)


@pytest.mark.parametrize("min_count", [0, 1.5, True])
def test_errors_say_what_is_allowed(min_count) -> None:
    with pytest.raises(PenstockError, match=r"min_count=.* whole number of at least 1"):
        popularity("ab", min_count=min_count)
