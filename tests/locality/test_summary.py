"""Which source of locality dominates."""

from __future__ import annotations

import numpy as np
import pytest

from penstock.locality import stack_distance, summary
from penstock.workloads import gdj_stream, zipf_pair


@pytest.mark.parametrize(
    ("keys", "dominant", "favoured"),
    [
        (zipf_pair(20_000, alpha=1.0).left.key, "popularity", "prob"),
        (gdj_stream(alpha=0.0, shape=1.0).key, "correlation", "lru"),
        (gdj_stream(alpha=0.75, shape=1.2).key, "both", "gdj"),
        (list(range(100)) * 20, "scan", "rand"),
        (zipf_pair(20_000, alpha=0.0).left.key, "none", "fifo"),
        (np.arange(1_000), "none", "fifo"),
        ("a", "none", "fifo"),
    ],
    ids=["zipf", "clusters", "gdj", "scan", "uniform", "unique", "one"],
)
def test_the_dominant_source_is_named(keys, dominant: str, favoured: str) -> None:
    found = summary(keys)
    assert found.dominant == dominant
    assert found.policies[0] == favoured


def test_chance_is_not_taken_for_locality() -> None:
    rng = np.random.default_rng(0)
    for n in (50, 200, 1_000, 5_000):
        for _ in range(20):
            assert summary(rng.integers(0, 20, n)).correlation < max(0.02, 2 / np.sqrt(n))


def test_strengths_follow_their_sources() -> None:
    by_skew = [summary(gdj_stream(alpha=alpha, shape=1.2).key).popularity for alpha in (0, 0.5, 1, 1.5)]
    by_shape = [summary(gdj_stream(shape=shape).key).correlation for shape in (None, 3, 1.5, 0.9)]
    assert by_skew == sorted(by_skew)
    assert by_shape == sorted(by_shape)


def test_numbers_agree_with_the_other_functions() -> None:
    keys = gdj_stream(rate=2).key
    found = summary(keys)
    assert (found.references, found.distinct) == (2_880, stack_distance(keys).distinct)
    assert found.slope == pytest.approx(0.75, abs=0.15)
    assert found == summary(keys, seed=0)


def test_it_reads_as_a_sentence() -> None:
    text = str(summary(list(range(100)) * 20))
    assert text.startswith("2000 references to 100 keys: keys keep away from their last reference")
    assert text.endswith("Policies to try: rand, prob, heeb")
