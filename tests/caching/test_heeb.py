"""HEEB in a cache: every decision against the benefits added up, and the cases whose optimum is known."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock as ps
from penstock import caching, models
from penstock.errors import PenstockError, PolicyOptionError
from penstock.models import Past
from penstock.models.kernels.first_reference import first_benefit, first_directly
from penstock.policies.base import CacheSetting
from tests.oracles.heeb_cache import decisions

Heeb = ps.policies.Heeb

RISE = models.LinearTrend(1, 2, models.BoundedNormal(2, 6))
UNEVEN = models.LinearTrend(-0.3, 5.2, models.BoundedNormal(1.5, 5))
DRIFT = models.RandomWalk(1, 1.5)
HOME = models.RandomWalk(0, 1)
LEANING = models.AR1(0.7, 6, 3)
YEAR = models.Seasonal((0, 10, 20, 10), 0.4, 2)
KINDS = {"rise": RISE, "uneven": UNEVEN, "drift": DRIFT, "home": HOME, "leaning": LEANING, "year": YEAR}


@pytest.mark.parametrize("name", ["rise", "uneven", "drift", "home", "leaning"])
@pytest.mark.parametrize("L", ["exp", "fixed", "inf", "inv"])
def test_tables_and_sums_are_the_benefit(name: str, L: str) -> None:
    model = KINDS[name]
    options: dict[str, Any] = {"exp": {"alpha": 5}, "fixed": {"steps": 12}}.get(L, {})
    policy = Heeb(model=model, L=L, **options)
    outlook = policy.build_cache(CacheSetting(5)).outlook
    if L in ("exp", "fixed"):
        survival = models.survival_of(L, options.get("alpha"), options.get("steps"))
    else:
        survival = models.survival_of(L)
    # Added up, 512 steps of a walk take their time.
    around, moments = (4, [(7, 12)]) if L in ("inf", "inv") else (10, [(0, 3), (7, 12)])
    for now, last in moments:
        values = np.arange(last - around, last + around)
        expected = models.benefit(model, values, Past(now, float(last)), survival, problem="caching")
        for value, benefit in zip(values.tolist(), expected.tolist(), strict=True):
            close = 1e-3 * expected.max() if name == "leaning" else 1e-9  # a surface between points
            if name == "uneven":
                close = 0.05 * expected.max()  # a table of a sixteenth of a step
            assert first_benefit(outlook, value, now, last) == pytest.approx(benefit, abs=close)
            if L == "exp" or name not in ("drift", "home"):
                assert first_directly(outlook, value, now, last) == pytest.approx(benefit, abs=1e-9)


@pytest.mark.parametrize("name", KINDS)
@settings(max_examples=4, deadline=None)
@given(seed=st.integers(0, 999), capacity=st.integers(1, 5))
def test_who_goes_is_worth_least(name: str, seed: int, capacity: int) -> None:
    model = KINDS[name]
    keys = model.sample(40, seed)
    policy = Heeb(model=model, alpha=2, way="direct" if name in ("leaning", "uneven") else "auto")
    for now, went, stayed in decisions(policy, keys, capacity):
        worth = models.benefit(
            model, [went, *stayed], Past(now, float(keys[now])), "exp", alpha=2, problem="caching"
        )
        assert worth[0] <= worth[1:].min() + 1e-9


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 999), capacity=st.integers(1, 8))
def test_the_farthest_goes_for_a_driftless_walk(seed: int, capacity: int) -> None:
    """Section 7.5: all benefits are comparable there, and the order is that of the distances."""
    keys = HOME.sample(150, seed)
    for policy in (Heeb(model=HOME), Heeb(model=HOME, alpha=3), Heeb(model=HOME, L="fixed", steps=9)):
        for now, went, stayed in decisions(policy, keys, capacity):
            assert abs(went - keys[now]) >= max(abs(key - keys[now]) for key in stayed)


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 999), capacity=st.integers(1, 8))
def test_the_smallest_goes_for_a_trend_with_uniform_noise(seed: int, capacity: int) -> None:
    """Section 7.3: but for keys that the window has passed, any of which may go."""
    model = models.LinearTrend(1, 0, models.BoundedUniform(6))
    keys = model.sample(200, seed)
    for now, went, stayed in decisions(Heeb(model=model), keys, capacity):
        assert went <= min(stayed) or went < now + 1 - 6


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 999), capacity=st.integers(1, 6))
def test_the_least_probable_goes_for_a_stationary_stream(seed: int, capacity: int) -> None:
    """Section 7.2: A_o."""
    shares = np.array([0.3, 0.25, 0.15, 0.1, 0.08, 0.06, 0.04, 0.02])
    model = models.Stationary(range(8), shares)
    keys = model.sample(150, seed)
    for L in ("exp", "inv"):
        for _, went, stayed in decisions(Heeb(model=model, L=L), keys, capacity):
            assert shares[went] <= min(shares[key] for key in stayed)


@settings(max_examples=50, deadline=None)
@given(keys=st.lists(st.integers(0, 9), min_size=1, max_size=100), capacity=st.integers(1, 8))
def test_a_known_sequence_makes_it_the_optimum(keys: list[int], capacity: int) -> None:
    """Section 7.1: HEEB is LFD then, and no cache has more hits."""
    best = caching.replay(keys, "lfd:bypass=true", capacity).hits
    model = models.Sequence(keys)
    assert caching.replay(keys, Heeb(model=model, L="inv"), capacity).hits == best
    assert caching.replay(keys, Heeb(model=model, alpha=3), capacity).hits == best


def test_where_one_benefit_dominates_the_other_stays() -> None:
    """Theorem 1: whoever goes does not dominate anybody who stays, strongly."""
    for model in (RISE, DRIFT):
        keys = model.sample(60, 3)
        for now, went, stayed in decisions(Heeb(model=model, alpha=6), keys, 4):
            curves = models.ecb(model, [went, *stayed], 60, Past(now, float(keys[now])), problem="caching")
            for other in curves.T[1:]:
                assert not models.dominates(curves[:40, 0], other[:40] + 1e-9, strongly=True)


# Without a model.


def test_learns_a_walk() -> None:
    keys = np.concatenate([models.RandomWalk(0, sd).sample(6_000, seed) for sd, seed in ((2, 1), (40, 2))])
    learnt, lru = (caching.replay(keys, policy, 30).hits for policy in ("heeb", "lru"))
    told = sum(
        caching.replay(keys[part], Heeb(model=models.RandomWalk(0, sd)), 30).hits
        for sd, part in ((2, slice(0, 6_000)), (40, slice(6_000, None)))
    )
    assert learnt >= 0.95 * told
    assert learnt > 1.02 * lru
    assert caching.replay(keys, "heeb-hist", 30).hits >= 0.9 * told


def test_learns_a_trend_and_a_distribution() -> None:
    rising = models.LinearTrend(1, 0, models.BoundedNormal(8, 30))
    keys = rising.sample(5_000, 1)
    told, learnt, hist, lru = (
        caching.replay(keys, policy, 8).hits for policy in (Heeb(model=rising), "heeb", "heeb-hist", "lru")
    )
    assert learnt >= 0.95 * told > lru
    assert hist >= 0.9 * told
    random = np.random.default_rng(1)
    zipf = random.permutation(100_000)[np.minimum(random.zipf(1.2, 40_000), 99_999)]
    prob, learnt, lru = (caching.replay(zipf, policy, 200).hits for policy in ("prob", "heeb", "lru"))
    # It remembers some thousand requests, where counts for ever are the better the longer they last.
    assert learnt >= 0.9 * prob
    assert learnt > lru


def test_keys_of_any_type() -> None:
    names = np.array(["ant", "bee", "cat", "dog", "eel"])
    model = models.Stationary(names, [0.4, 0.3, 0.15, 0.1, 0.05])
    numbered = models.Stationary(range(5), model.probabilities)
    keys = numbered.sample(400, 1)
    expected = caching.replay(keys, Heeb(model=numbered), 2).hit
    assert (caching.replay(names[keys], Heeb(model=model), 2).hit == expected).all()
    fetch = lambda asked: [{"n": len(key)} for key in asked]  # noqa: E731
    run = ps.LookupCache(fetch, key="who", budget=2, policy=Heeb(model=model)).run({"who": names[keys]})
    assert run.stats.hits == expected.sum()
    assert caching.replay(names[keys], "heeb", 2).hits > 0.8 * expected.sum()
    walk = HOME.sample(500, 4)
    tenths = caching.replay(walk / 10, Heeb(model=models.RandomWalk(0, 0.1, step=0.1)), 4)
    assert (tenths.hit == caching.replay(walk, Heeb(model=HOME), 4).hit).all()
    lookup = ps.LookupCache(lambda asked: {}, key="k", budget=4, policy=Heeb(model=HOME))
    assert lookup.run({"k": walk}).stats.hits == tenths.hits


def test_a_restored_lookup_goes_on() -> None:
    walk = models.RandomWalk(0, 3).sample(3_000, 6)
    for policy in (Heeb(model=HOME), Heeb(model=LEANING), Heeb(), "heeb-hist", Heeb(model=YEAR)):
        lookup = ps.LookupCache(lambda asked: {}, key="k", budget=20, policy=policy)
        whole, state = lookup.start(), lookup.start()
        whole.process({"k": walk}, on="k")
        for part in np.array_split(walk, 7):
            state = lookup.start().restore(state.snapshot())
            state.process({"k": part}, on="k")
            state.check()
        assert state.stats.hits == whole.stats.hits > 0


def test_under_a_budget_in_bytes() -> None:
    random = np.random.default_rng(0)
    for policy in ("heeb", "heeb-hist"):
        lookup = ps.LookupCache(
            lambda asked: [{"v": "x" * (key % 90)} for key in asked], key="k", budget="48 KiB", policy=policy
        )
        state = lookup.start()
        for part in np.array_split(random.zipf(1.3, 6_000) % 2_000, 6):
            state.process({"k": part}, on="k")
            state.check()
        assert state.stats.hit_ratio > 0.5


def test_refusals() -> None:
    keys = [1, 2, 3]
    with pytest.raises(PolicyOptionError, match="give model="):
        caching.replay(keys, Heeb(left=HOME, right=RISE), 2)
    with pytest.raises(PolicyOptionError, match="left out"):
        Heeb(model=HOME, left=RISE)
    with pytest.raises(PolicyOptionError, match="is for joins"):
        caching.replay(keys, Heeb(model=RISE, way="time", alpha=3), 2)
    with pytest.raises(PolicyOptionError, match="needs L='exp'"):
        caching.replay(keys, Heeb(L="inv"), 2)
    with pytest.raises(PolicyOptionError, match="may have up to 512 steps"):
        caching.replay(keys, Heeb(model=HOME, L="fixed", steps=5_000), 2)
    with pytest.raises(PenstockError, match="not numbers"):
        caching.replay(["a", "b"], Heeb(model=HOME), 2)
    with pytest.raises(PenstockError, match="not numbers"):
        ps.LookupCache(lambda asked: {}, key="k", budget=2, policy=Heeb(model=HOME)).run({"k": ["a"]})
    with pytest.raises(PenstockError, match="one per request"):
        caching.Cache("heeb", 2).request([1, 2], values=[1.0])
