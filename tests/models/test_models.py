"""Models: probabilities that add up, agree with samples, and survive a fit."""

from __future__ import annotations

import itertools
import pickle
from typing import Any

import numpy as np
import pytest

from penstock import models
from penstock.models import (
    AR1,
    BoundedNormal,
    BoundedUniform,
    Empirical,
    LinearTrend,
    ModelError,
    Past,
    Pmf,
    RandomWalk,
    Sequence,
    Stationary,
)

ALL: list[Any] = [
    Stationary([1, 2, 5], [0.5, 0.25, 0.25]),
    Empirical.fit([1, 2, 2, 3], memory=2.0),
    LinearTrend(1, -1, BoundedNormal(2, 10)),
    LinearTrend(-0.4, 3, BoundedUniform(4)),
    LinearTrend(2, 0, Pmf([0.5, 0.2, 0.3], first=-1)),
    RandomWalk(drift=0.5, sd=2),
    AR1(phi=0.7, const=6, sd=3),
    AR1(phi=-0.5, const=6, sd=3),
    Sequence([4, 2, 4, 4, 1]),
]
every = pytest.mark.parametrize("model", ALL, ids=lambda model: repr(model)[:30])
WIDE = np.arange(-200, 300)


@every
def test_probabilities_add_up(model: Any) -> None:
    found = model.pmf(WIDE, [1, 2, 3], Past(0, 3.0))
    assert found.shape == (3, len(WIDE))
    assert (found >= 0).all()
    assert found.sum(axis=1) == pytest.approx(1.0, abs=1e-9)


@every
def test_models_are_values(model: Any) -> None:
    assert pickle.loads(pickle.dumps(model)) == model
    assert hash(model) == hash(pickle.loads(pickle.dumps(model)))


@pytest.mark.parametrize("model", ALL[:-1], ids=lambda model: repr(model)[:30])
def test_samples_follow_the_probabilities(model: Any) -> None:
    """Of many streams, the third value given the second."""
    draws = np.array([model.sample(3, seed) for seed in range(3_000)])
    seconds, counts = np.unique(draws[:, 1], return_counts=True)
    second = seconds[counts.argmax()]
    thirds = draws[draws[:, 1] == second, 2]
    expected = model.pmf(WIDE, [1], Past(1, float(second)))[0]
    if isinstance(model, AR1):  # its values are rounded, and the rest is forgotten
        assert thirds.mean() == pytest.approx(WIDE @ expected, abs=5 * thirds.std() / len(thirds) ** 0.5)
        return
    shares = np.array([(thirds == value).mean() for value in WIDE])
    assert np.abs(shares - expected).max() < 5 * 0.5 / len(thirds) ** 0.5


def brute_first_reference(table: np.ndarray, start: int, target: int, ahead: int) -> list[float]:
    """The first visits of a chain with these transitions, by following all paths that avoid the target."""
    at = np.zeros(len(table))
    at[start] = 1.0
    found = []
    for _ in range(ahead):
        at = at @ table
        found.append(float(at[target]))
        at[target] = 0.0
    return found


def test_first_references_of_a_walk() -> None:
    walk = RandomWalk(drift=0.3, sd=1.0)
    places = np.arange(-60, 61)
    table = np.array([walk.pmf(places, [1], Past(0, float(at)))[0] for at in places])
    for target in (-2, 0, 3):
        found = walk.first_reference([target], 6, Past(9, 0.0))[:, 0]
        assert found == pytest.approx(brute_first_reference(table, 60, target + 60, 6), abs=1e-9)


def test_first_references_of_independent_values() -> None:
    model = LinearTrend(1, 0, BoundedUniform(2))
    p = model.pmf([4], range(1, 7), Past(0))[:, 0]
    assert p.tolist() == pytest.approx([0, 0.2, 0.2, 0.2, 0.2, 0.2])
    missed = np.concatenate([[1.0], np.cumprod(1 - p)[:-1]])
    assert model.first_reference([4], 6, Past(0))[:, 0] == pytest.approx(p * missed)


# Fits.


@pytest.mark.parametrize("seed", range(3))
def test_parameters_are_found_again(seed: int) -> None:
    trend = LinearTrend.fit(LinearTrend(0.5, 7, BoundedNormal(3, 15)).sample(3_000, seed))
    assert (trend.slope, trend.intercept) == pytest.approx((0.5, 7), abs=0.4)
    assert trend.noise.sd == pytest.approx(3, abs=0.2)  # type: ignore[attr-defined]
    walk = RandomWalk.fit(RandomWalk(2, 4).sample(3_000, seed))
    assert (walk.drift, walk.sd) == pytest.approx((2, 4), abs=0.3)
    auto = AR1.fit(AR1(0.6, 40, 10).sample(3_000, seed))
    assert (auto.phi, auto.mean, auto.sd) == pytest.approx((0.6, 100, 10), abs=1.5)


@pytest.mark.parametrize(
    "model",
    [
        Stationary([1, 2, 7, 40], [0.4, 0.3, 0.2, 0.1]),
        LinearTrend(1, 0, BoundedNormal(2, 15)),
        LinearTrend(-0.05, 0, BoundedUniform(9)),
        RandomWalk(0, 1),
        RandomWalk(3, 2),
        AR1(0.8, 20, 9),
    ],
    ids=repr,
)
@pytest.mark.parametrize("criterion", ["bic", "aic"])
def test_the_right_kind_is_selected(model: Any, criterion: str) -> None:
    for seed in range(3):
        assert type(models.select(model.sample(1_000, seed), criterion)) is type(model)


# Benefits.


def test_ecb_and_dominance() -> None:
    trend = LinearTrend(1, 0, BoundedUniform(3))
    curves = models.ecb(trend, [8, 9, 12, 30], 60, Past(9))
    assert curves[0].tolist() == pytest.approx([1 / 7, 1 / 7, 1 / 7, 0])
    assert curves[-1].tolist() == pytest.approx([2 / 7, 3 / 7, 6 / 7, 1.0], abs=1e-12)
    assert models.dominates(curves[:, 1], curves[:, 0])
    assert not models.dominates(curves[:, 1], curves[:, 0], strongly=True)
    assert models.comparable(curves[:, 0], curves[:, 2])
    assert not models.comparable(curves[:, 2], curves[:, 3])  # soon against more
    assert models.dominated_subset(curves, 2) == []
    assert models.dominated_subset(curves[:, :3], 2) == [0, 1]


def test_dominated_subsets_by_brute_force() -> None:
    random = np.random.default_rng(5)
    for _ in range(300):
        curves = np.cumsum(random.choice([0, 0.25, 0.5], (4, 5)), axis=0)
        for most in range(5):
            sizes = [
                size
                for size in range(most + 1)
                for subset in itertools.combinations(range(5), size)
                if all(
                    models.dominates(curves[:, u], curves[:, v])
                    for v in subset
                    for u in set(range(5)) - set(subset)
                )
            ]
            found = models.dominated_subset(curves, most)
            assert len(found) == max(sizes)
            assert models.is_dominated_subset(curves, found)


@pytest.mark.parametrize("problem", ["joining", "caching"])
def test_dominance_leads_to_benefit(problem: str) -> None:
    """Theorem 2: whose ECB is nowhere lower has no lower H, whatever the survival."""
    random = np.random.default_rng(2)
    survivals = [models.Survival("exp", alpha=6), models.Survival("fixed", steps=9), lambda dt: 0.8**dt]
    for _ in range(20):
        model = random.choice(
            np.array(
                [
                    LinearTrend(1, 0, BoundedNormal(3, 9)),
                    LinearTrend(-1, 0, BoundedUniform(5)),
                    Stationary(range(-40, 41), random.dirichlet(np.ones(81))),
                    RandomWalk(0, 2),
                ],
                object,
            )
        )
        values, past = random.integers(-20, 40, 6), Past(10, float(random.integers(-5, 5)))
        curves = models.ecb(model, values, 200, past, problem=problem)
        for L in survivals:
            found = models.benefit(model, values, past, L, problem=problem)
            for x, y in itertools.permutations(range(6), 2):
                if models.dominates(curves[:, x], curves[:, y]):
                    assert found[x] >= found[y] - 1e-12


def test_the_ways_agree() -> None:
    for slope, noise in ((1, BoundedNormal(2, 15)), (-1, BoundedUniform(6)), (3, BoundedNormal(4, 9))):
        model = LinearTrend(slope, 5, noise)
        low, table = models.benefit_table(model, alpha=12)
        values = np.arange(-60, 160)
        carried = models.benefit(model, values, Past(20), alpha=12)
        for now in range(21, 61):
            carried = models.benefit_later(carried, model.pmf(values, [1], Past(now - 1))[0], 12)
            direct = models.benefit(model, values, Past(now), alpha=12)
            assert carried == pytest.approx(direct, abs=1e-9)
            at = values - model.trend(now) - low
            inside = (at >= 0) & (at < len(table))
            assert direct[~inside] == pytest.approx(0.0, abs=1e-9)
            assert table[at[inside]] == pytest.approx(direct[inside], abs=1e-9)
        known = models.benefit(model, [40], Past(30), alpha=12)[0]
        for away in range(-5, 6):
            value = 40 - slope * away
            expected = models.benefit(model, [value], Past(30), alpha=12)[0]
            found = models.benefit_elsewhere(model, value, 40, known, Past(30), 12)
            assert found == pytest.approx(expected, abs=1e-9)


def test_the_table_of_a_walk_is_the_sum() -> None:
    walk = RandomWalk(drift=1, sd=2)
    low, table = models.benefit_table(walk, alpha=5)
    values = np.arange(-30, 60)
    assert table[values - low] == pytest.approx(models.benefit(walk, values, Past(3, 0.0), alpha=5), abs=1e-9)


def test_caching_carried_on() -> None:
    """Corollary 4, also without decay."""
    model = LinearTrend(1, 0, BoundedNormal(2, 6))
    values = np.arange(12, 30)
    for alpha, L in ((8.0, models.Survival("exp", alpha=8)), (np.inf, models.Survival("inf"))):
        found = models.benefit(model, values, Past(10), L, problem="caching")
        for now in range(11, 20):
            p = model.pmf(values, [1], Past(now - 1))[0]
            found = models.benefit_later(found, p, alpha, problem="caching")
            direct = models.benefit(model, values, Past(now), L, problem="caching")
            assert found == pytest.approx(direct, abs=1e-9)


def test_a_driftless_walk_is_ranked_by_distance() -> None:
    """Section 7.5: it is optimal to let go who is farthest from the last reference."""
    walk = RandomWalk(drift=0, sd=1)
    values = np.arange(0, 9)
    for problem in ("joining", "caching"):
        curves = models.ecb(walk, values, 60, Past(5, 0.0), problem=problem)
        for near, far in itertools.pairwise(values):
            assert (curves[:, near] >= curves[:, far] - 1e-12).all()
        found = models.benefit(walk, values, Past(5, 0.0), alpha=10, problem=problem)
        assert (np.diff(found) < 0).all()


def test_caching_with_returns_is_the_sum_of_first_visits() -> None:
    walk, past = RandomWalk(drift=0, sd=1), Past(5, 0.0)
    L = models.Survival("exp", alpha=4)
    summed = L.weights(L.reach) @ walk.first_reference([0, 1, 5], L.reach, past)
    assert models.benefit(walk, [0, 1, 5], past, L, problem="caching") == pytest.approx(summed, abs=1e-9)


def test_a_function_is_pickled_by_its_values() -> None:
    own = models.OwnSurvival(lambda dt: 0.5**dt)
    again = pickle.loads(pickle.dumps(own))
    assert again.weights(60).tolist() == pytest.approx(own.weights(60).tolist(), abs=1e-11)


# Refusals.


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Stationary([1, 2], [0.5, 0.6]), "add up to 1"),
        (lambda: Stationary([1, 1], [0.5, 0.5]), "more than once"),
        (lambda: Stationary([1], [0.5, 0.5]), "one probability per value"),
        (lambda: LinearTrend(1, 0, 3), "BoundedNormal"),
        (lambda: LinearTrend("1", 0, BoundedUniform(2)), "finite number"),
        (lambda: BoundedNormal(0, 3), "above 0"),
        (lambda: BoundedUniform(-1), "from 0 up"),
        (lambda: RandomWalk(0, -1), "above 0"),
        (lambda: AR1(1.0, 0, 1), "RandomWalk for 1"),
        (lambda: RandomWalk(0, 1).pmf([1], [0]), "from 1 up"),
        (lambda: models.select([1, 2]), "at least 8"),
        (lambda: models.select(range(20), "bci"), "did you mean 'bic'"),
        (lambda: models.Survival("expo", alpha=1), "did you mean 'exp'"),
        (lambda: models.Survival("exp"), "alpha=None"),
        (lambda: models.OwnSurvival(lambda dt: 2.0), "property 1"),
        (lambda: models.OwnSurvival(lambda dt: 0.1 if dt == 1 else 0.2), "property 2"),
        (lambda: models.OwnSurvival(lambda dt: 1.0), "property 3"),
        (lambda: models.OwnSurvival(lambda dt: 0.0), "property 5"),
        (lambda: models.benefit(RandomWalk(0, 1), [1], (), "inv"), "without bound"),
        (lambda: models.alpha_for(1.0), "above 1"),
        (lambda: models.dominates([1], [1, 2]), "step by step"),
        (lambda: Sequence([1, 2]).sample(5), "the sequence has 2"),
    ],
)
def test_refusals_say_what_is_allowed(make: Any, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        make()
