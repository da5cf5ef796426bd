"""The parts of `learned` against plain ones: histories, rankings, and the fit."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.engine.match_predictor import attend_batch, check_predictor, new_predictor, rate
from penstock.structures import key_history
from penstock.structures.key_heap import check_ranking, new_ranking, rank, unrank
from penstock.structures.key_history import EVER, FADING, KEY, LAST, RATIO, SCALES, WAYS
from penstock.structures.regression import learn, new_regression, solve

ARRIVALS = st.lists(st.tuples(st.integers(0, 1), st.integers(-3, 3)), min_size=1, max_size=80)


def fill(history: key_history.History, arrivals: list[tuple[int, int]]) -> None:
    for stream, key in arrivals:
        key_history.tick(history)
        row = key_history.take_row(history, key)
        if row >= 0:
            key_history.note(history, row, stream)


@given(arrivals=ARRIVALS, shortest=st.sampled_from([2.0, 4.0, 30.0]))
def test_a_history_is_a_sum_of_fading_arrivals(arrivals: list[tuple[int, int]], shortest: float) -> None:
    history = key_history.new_history(64, shortest)
    fill(history, arrivals)
    for key in {key for _, key in arrivals}:
        row = key_history.find_row(history, key)
        last = max(i + 1 for i, (_, k) in enumerate(arrivals) if k == key)
        assert key_history.last_of(history, row) == last
        for stream in (0, 1):
            mine = [i + 1 for i, arrival in enumerate(arrivals) if arrival == (stream, key)]
            assert history.word[row, LAST + stream] == max(mine, default=0)
            assert history.part[row, EVER + stream] == len(mine)
            for i in range(SCALES):
                expected = sum(math.exp((at - last) / (shortest * RATIO**i)) for at in mine)
                assert history.part[row, FADING + stream * SCALES + i] == pytest.approx(expected, rel=1e-4)
    assert key_history.find_row(history, 99) == -1


@pytest.mark.interpreted
def test_a_full_history_forgets_who_came_least() -> None:
    history = key_history.new_history(16, 4.0)
    fill(history, [(0, 5)] * 30 + [(1, key) for key in range(100, 400)] + [(0, 5)])
    assert history.part[key_history.find_row(history, 5), EVER] >= 1
    used = [row for row in range(16 + WAYS) if key_history.last_of(history, row) != 0]
    assert len(used) == len({int(history.word[row, KEY]) for row in used}) <= 16 + WAYS


@pytest.mark.interpreted
def test_pinned_rows_stay() -> None:
    history = key_history.new_history(16, 4.0)
    fill(history, [(0, key) for key in range(300)])
    history.pins[:] = 1
    before = history.word.copy()
    key_history.tick(history)
    assert key_history.take_row(history, 10_000) == -1
    assert np.array_equal(history.word, before)


@settings(max_examples=40)
@given(
    steps=st.lists(
        st.tuples(st.integers(2, 15), st.sampled_from([-1.0, 0.0, 0.5, 0.5, 2.0, 7.0]), st.integers(0, 3)),
        max_size=60,
    )
)
def test_a_ranking_is_sorted(steps: list[tuple[int, float, int]]) -> None:
    ranking, plain = new_ranking((10, 10)), {}
    for item, score, what in steps:
        pool = item & 1
        if what == 0:
            unrank(ranking, pool, item)
            plain.pop(item, None)
        else:
            rank(ranking, pool, item, score, 100 - item)
            plain[item] = (score, 100 - item)
        check_ranking(ranking)
        for each in (0, 1):
            mine = {found: i for i, found in plain.items() if i & 1 == each}
            assert ranking.length[each] == len(mine)
            if mine:
                assert ranking.item[each, 0] == mine[min(mine)]


def test_the_fit_is_that_of_weighted_least_squares() -> None:
    random = np.random.default_rng(3)
    prior, keep, pull = np.array([0.5, 0.0, 0.1]), 0.99, 0.01
    fit = new_regression(prior)
    features, weights = random.random((200, 3)), random.random(200)
    outcome = features @ [1.0, -2.0, 3.0] + random.normal(0, 0.1, 200)
    for x, y, w in zip(features, outcome, weights, strict=True):
        learn(fit, 1, x, y, w, keep)
    solve(fit, 1, pull)
    faded = weights * keep ** np.arange(199, -1, -1)
    products = (features * faded[:, None]).T @ features
    ridge = pull * np.trace(products) / 3
    expected = np.linalg.solve(
        products + ridge * np.eye(3), (features * faded[:, None]).T @ outcome + ridge * prior
    )
    assert fit.weight[1] == pytest.approx(expected)
    assert fit.weight[0] == pytest.approx(prior)
    solve(fit, 0, pull)  # without examples nothing changes
    assert fit.weight[0] == pytest.approx(prior)


def test_a_predictor_learns_the_rates_of_independent_keys() -> None:
    """Keys of which the first comes half the time: what is foretold is near what is so."""
    random = np.random.default_rng(0)
    n = 20_000
    stream, key = random.integers(0, 2, n).astype(np.int8), random.choice(4, n, p=[0.5, 0.25, 0.2, 0.05])
    predictor = new_predictor(100, 0.3, 4_000, np.dtype(np.int64), (500, 500), 0)
    attend_batch(predictor, stream, key, np.arange(n), 0, n)
    check_predictor(predictor)
    for code, share in enumerate([0.5, 0.25, 0.2, 0.05]):
        row = key_history.find_row(predictor.history, code)
        for side in (0, 1):
            assert rate(predictor, row, side) == pytest.approx(share / 2, rel=0.5)
