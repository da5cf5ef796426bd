"""The window join against its plain simulation, tuple for tuple, on random streams."""

from __future__ import annotations

import dataclasses
from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock as ps
from penstock.joins import state as join_state
from tests.joins.agreement import (
    VARIANTS,
    Case,
    Variant,
    assert_agrees,
    cases,
    events,
    pairs,
    streams,
    windows,
)
from tests.oracles.exact import exact_pairs
from tests.oracles.join import simulate
from tests.oracles.policies import POLICIES

STEPS = ("arrival", "tick")
every_variant = pytest.mark.parametrize("variant", VARIANTS, ids=str)
every_step = pytest.mark.parametrize("step", STEPS)


def built_in() -> list[str]:
    return [cls.name for cls in ps.policies.registered() if cls.__module__.startswith("penstock.")]


def test_every_built_in_policy_is_compared_with_an_oracle() -> None:
    """What holds for any policy is in test_contract.py; an oracle says what one of them does."""
    # Drawn at random (the second: test_sample.py); an estimate, compared with heeb; compared with all
    # decisions there are; a fit, whose parts are compared one by one; one that follows others.
    elsewhere = {"rand", "sample", "heeb-hist", "opt", "flowexpect", "learned", "auto"}
    assert {variant.oracle for variant in VARIANTS} == set(POLICIES) <= set(built_in())
    assert set(built_in()) - elsewhere <= set(POLICIES)


@every_step
@every_variant
@given(data=st.data())
def test_same_results_and_same_fate_of_every_tuple(variant: Variant, step: str, data: st.DataObject) -> None:
    case = data.draw(cases(step, variant.unified, kinds=variant.windows))
    policy = data.draw(variant.policies)
    assert_agrees(case, case.run(policy), variant, policy)


# A kernel is compiled anew for float times; two policies, one of which computes with the time, are enough.
@every_step
@pytest.mark.parametrize("variant", [v for v in VARIANTS if v.name in ("life", "gdj method 1")], ids=str)
@given(data=st.data())
def test_times_may_be_floats(variant: Variant, step: str, data: st.DataObject) -> None:
    case = data.draw(cases(step, floats=True))
    policy = data.draw(variant.policies)
    assert_agrees(case, case.run(policy), variant, policy)


@every_step
@pytest.mark.parametrize("drop_at", ["admission", "arrival"])
@pytest.mark.parametrize("variant", [v for v in VARIANTS if v.name in ("fifo", "prob", "clock")], ids=str)
@settings(max_examples=40)
@given(data=st.data())
def test_dropped_arrivals(variant: Variant, drop_at: str, step: str, data: st.DataObject) -> None:
    """Chance decides who is dropped; given that, everything else is determined."""
    case = data.draw(cases(step, variant.unified))
    policy = data.draw(variant.policies)
    rate, seed = data.draw(st.sampled_from([0.1, 0.5, 0.9, 1.0])), data.draw(st.integers(0, 1_000))
    run = case.run(policy, drop_rate=rate, drop_at=drop_at, seed=seed)
    gone = set(events(run, "dropped"))
    dropped = [(s, row) in gone for _, s, row in case.arrivals]
    assert_agrees(case, run, variant, policy, dropped, drop_at)


@every_step
@settings(max_examples=40)
@given(data=st.data())
def test_collecting_in_many_small_portions(step: str, data: st.DataObject) -> None:
    """Room for pairs that runs out takes back what the arrival at hand has done, draws included."""
    case = data.draw(cases(step))
    options: dict[str, Any] = {"drop_rate": data.draw(st.sampled_from([0.0, 0.3])), "seed": 5}
    usual = case.run("lru", **options)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(join_state, "FIRST_ROOM", 1)
        small = case.run("lru", **options)
    assert pairs(small) == pairs(usual)
    assert small.events.equals(usual.events)
    assert small.stats.results == usual.stats.results


@every_step
@settings(max_examples=40)
@given(data=st.data())
def test_many_chunks_are_one_stream(step: str, data: st.DataObject) -> None:
    case = data.draw(cases(step))
    usual = case.run("life")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(join_state, "CHUNK", data.draw(st.integers(1, 5)))
        cut = case.run("life")
    assert pairs(cut) == pairs(usual)
    assert cut.events.equals(usual.events)


@every_step
@given(both=streams(keys=2), within=windows(), warmup=st.sampled_from([0, 3]), data=st.data())
def test_enough_memory_gives_the_exact_join(
    step: str, both: Any, within: Any, warmup: int, data: st.DataObject
) -> None:
    case = Case(*both, within=within, budget=200, allocation="unified", step=step, warmup=warmup)
    policy = data.draw(st.sampled_from(["fifo", "prob", "gdj", "clock", "rand"]))
    run = case.run(policy)
    expected = exact_pairs(case.left, case.right, within, warmup, step)
    assert Counter(pairs(run)) == Counter(expected)
    if step == "arrival":
        assert pairs(run) == expected
    assert run.stats.results == run.stats.exact == len(expected)
    assert run.stats.recall == 1
    assert run.stats.evicted == 0


@settings(max_examples=40)
@given(case=cases("arrival"), data=st.data())
def test_counting_and_collecting_agree(case: Case, data: st.DataObject) -> None:
    policy = data.draw(st.sampled_from(["lru", "gdj", "gdj:method=2", "clock-exp"]))
    collected = case.run(policy)
    left, right = ({"key": [k for _, k in s], "ts": [t for t, _ in s]} for s in (case.left, case.right))
    counted = case.join(policy).run(left, right, on="key", time="ts")
    assert counted.pairs is None
    assert counted.events is None
    assert counted.stats.results == collected.stats.results == len(pairs(collected))
    assert counted.stats.evicted == collected.stats.evicted


@every_step
@given(data=st.data())
def test_methods_1_and_3_of_gdj_evict_alike(step: str, data: st.DataObject) -> None:
    """What all credits of a buffer lose alike changes no order."""
    case, initial = data.draw(cases(step)), data.draw(st.sampled_from([0.0, 0.5, 0.9, 1.0]))
    first, third = (case.run(ps.policies.GreedyDualJoin(initial=initial, method=m)) for m in (1, 3))
    assert first.events.equals(third.events)
    assert first.pairs.equals(third.pairs)


# Cases by hand, small enough for the interpreter: left a0 b1 c2, right b3 a4 c5 in a buffer of 2 + 2.
# The third left tuple displaces one of the first two, whose right partner then comes too late.
BY_HAND = Case(
    left=[(0, "a"), (1, "b"), (2, "c"), (6, "b")],
    right=[(3, "b"), (4, "a"), (5, "c"), (6, "b"), (6, "a")],
    within=10,
    budget=4,
)


@pytest.mark.interpreted
@every_step
@every_variant
def test_by_hand(variant: Variant, step: str) -> None:
    case = Case(BY_HAND.left, BY_HAND.right, BY_HAND.within, BY_HAND.budget, step=step)
    named = {"age with a number": ps.policies.Age(k=3), "age with a pair": ps.policies.Age(k=(3, 2))}
    named |= {f"gdj method {m}": ps.policies.GreedyDualJoin(method=m) for m in (1, 2, 3)}
    model = ps.models.Stationary("abc", [0.5, 0.125, 0.375])
    named["heeb"] = ps.policies.Heeb(left=model, right=model, alpha=3.0)
    policy = named.get(variant.name, ps.policies.Age(k="tuple") if "age" in variant.name else variant.oracle)
    assert_agrees(case, case.run(policy), variant, policy)


@pytest.mark.interpreted
def test_fifo_by_hand() -> None:
    run = BY_HAND.run("fifo")
    # c displaces a (left 0); the right a4 finds nothing; c5 displaces b3; the left b6 displaces b1 and finds
    # nothing, b3 being gone; the right b6 finds b6 and displaces a4; the right a6 displaces c5.
    assert events(run, "evicted") == [(0, 0), (1, 0), (0, 1), (1, 1), (1, 2)]
    assert pairs(run) == [(1, 0), (2, 2), (3, 3)]
    assert run.stats.exact == 7
    assert run.events.column("step").to_pylist() == [2, 5, 6, 7, 8]


@pytest.mark.interpreted
def test_proportional_shares_are_not_rounded_down_by_the_way() -> None:
    # 5 left and 2 right arrivals share 7 tuples as 5 and 2, whatever the time between them: the shares are
    # those of whole numbers, not of rates whose quotient may fall a hair below 2.
    for span in range(1, 60):
        left = [(t, t) for t in (0, 0, 0, 0, span)]
        right = [(0, 8), (0, 9)]
        case = Case(left, right, within=100, budget=7, allocation="proportional")
        assert case.run("fifo").stats.evicted == 0, f"a span of {span}"


# At tick 6 the right tuple (arrival 2) matches the first left one, whose score becomes 2; the second left one
# (arrival 1) enters with its own number, 1, although its key was used by a later arrival of its tick: matches
# within a tick change no score. At tick 7 it is therefore the one that goes.
TICK_OF_LRU = Case(
    left=[(3, "a"), (6, "a")],
    right=[(6, "a"), (7, "b")],
    within=24,
    budget=3,
    allocation="unified",
    step="tick",
)


@pytest.mark.interpreted
def test_lru_does_not_count_a_match_before_the_entry() -> None:
    run = TICK_OF_LRU.run("lru")
    assert events(run, "evicted") == [(0, 1)]
    assert_agrees(TICK_OF_LRU, run, next(v for v in VARIANTS if v.name == "lru"), "lru")


# In a window of 4 rows a tuple lives until the fourth arrival behind it, so of the two that come
# at tick 2 the first has less left (2) than the second (3). Key y was seen 5 times on the right, a twice:
# y is worth 5 * 1, a 2 * 2, b nothing. With room for one on the left, a and b go.
TICK_OF_LIFE = Case(
    left=[(1, "y"), (2, "a"), (2, "b")],
    right=[(0, key) for key in "yyyyyaa"],
    within=("rows", 4),
    budget=2,
    step="tick",
)


@pytest.mark.interpreted
def test_life_knows_how_long_each_newcomer_of_a_tick_has() -> None:
    run = TICK_OF_LIFE.run("life")
    assert sorted(row for side, row in events(run, "evicted") if side == 0) == [1, 2]
    assert_agrees(TICK_OF_LIFE, run, next(v for v in VARIANTS if v.name == "life"), "life")


def test_the_oracle_agrees_with_the_definition_of_exact() -> None:
    """With room for all, the simulation is the exact join: the two oracles vouch for each other."""
    for within in (3, (0, 4), ("rows", 2), ("landmark", 5)):
        simulated = simulate(BY_HAND.left, BY_HAND.right, within=within, budget=50, policy="fifo")
        assert simulated.pairs == exact_pairs(BY_HAND.left, BY_HAND.right, within)


# Buffers of a thousand tuples and few keys: blocks split, rings and queues are packed, credits spread far.
@pytest.mark.parametrize(
    "variant", [v for v in VARIANTS if v.name not in ("age per tuple", "gdj method 3")], ids=str
)
def test_large_buffers(variant: Variant) -> None:
    random = np.random.default_rng(12)
    n = 1_500
    left, right = (
        list(
            zip(
                np.sort(random.integers(0, 4_000, n)).tolist(),
                (random.zipf(1.3, n) % 60).tolist(),
                strict=True,
            )
        )
        for _ in range(2)
    )
    case = Case(left, right, within=1_500, budget=900, allocation="proportional")
    named = {"age with a number": ps.policies.Age(k=400), "age with a pair": ps.policies.Age(k=(2_000, 100))}
    named |= {f"gdj method {m}": ps.policies.GreedyDualJoin(initial=0.5, method=m) for m in (1, 2, 3)}
    shares = random.permutation(np.arange(1, 61)) / 1830  # of a key each, so that no two tie
    model = ps.models.Stationary(range(60), shares)
    named["heeb"] = ps.policies.Heeb(left=model, right=model, alpha=3.0)
    policy = named.get(variant.name, variant.oracle)
    assert_agrees(case, case.run(policy), variant, policy)


# Keys with so many tuples that the policy notes their matches and tells the tuples later, all at once.
@every_step
@settings(max_examples=15)
@given(data=st.data())
def test_clock_exp_with_many_tuples_of_a_key(step: str, data: st.DataObject) -> None:
    variant = next(variant for variant in VARIANTS if variant.name == "clock-exp")
    random = np.random.default_rng(data.draw(st.integers(0, 10**6)))
    keys, gap = data.draw(st.sampled_from([1, 2, 5, 20])), data.draw(st.sampled_from([1, 3]))
    left, right = (
        list(zip(np.cumsum(random.integers(0, gap + 1, n)).tolist(), keyed.tolist(), strict=True))
        for n in random.integers(50, 150, 2)
        for keyed in [(random.random(n) ** 2 * keys).astype(int)]
    )
    case = Case(
        left,
        right,
        within=data.draw(st.sampled_from([20, 50, 1_000])),
        budget=data.draw(st.sampled_from([20, 36])),
        allocation=data.draw(st.sampled_from(["equal", "unified"])),
        step=step,
    )
    policy = data.draw(variant.policies.filter(lambda policy: policy.rho < 0.99))  # the oracle walks
    assert_agrees(case, case.run(policy), variant, policy)


def test_a_newcomer_may_be_older_than_a_use_in_its_tick() -> None:
    # Left 1 arrives before right 0, whose match with left 0 is therefore the later event: left 1 goes.
    case = Case([(0, "a"), (1, "a")], [(1, "a")], within=1, budget=2, step="tick")
    lru = next(variant for variant in VARIANTS if variant.name == "lru")
    assert_agrees(case, case.run("lru"), lru, "lru")


@pytest.mark.interpreted
def test_a_tick_that_is_dropped_on_arrival_touches_nothing() -> None:
    """Not even what the arrivals of the tick before have pushed out of a window of rows."""
    left, right = {"key": [0] * 32, "ts": [0] * 31 + [1]}, {"key": [], "ts": []}
    join = ps.WindowJoin(
        within=ps.Rows(1), budget=ps.Tuples(2), policy="fifo", allocation="unified", step="tick"
    )
    alone = 0
    for seed in range(12):
        shed = dataclasses.replace(join, drop_rate=0.4, drop_at="arrival", seed=seed)
        run = shed.run(left, right, on="key", time="ts", log=True)
        if {"event": "dropped", "row": 31} in run.events.select(["event", "row"]).to_pylist():
            alone += 1
            assert run.stats.expired == 0
    assert alone > 0


@pytest.mark.interpreted
def test_time_begins_with_a_first_tick_that_is_dropped_whole() -> None:
    """HEEB sees 6 ticks in 19 units of time: of the 3 that a tuple of key 0 has left, no step remains."""
    heeb = next(variant for variant in VARIANTS if variant.name == "heeb")
    model = ps.models.Stationary([0, 1, 2], [0.5, 0.25, 0.25])
    policy = ps.policies.Heeb(left=model, right=model, alpha=0.5)
    case = Case([*((t, 0) for t in (0, 2, 9, 10, 11, 12, 12)), (19, 2)], [], within=10, budget=2, step="tick")
    without_first = 0
    for seed in range(12):
        run = case.run(policy, drop_rate=0.4, drop_at="arrival", seed=seed)
        gone = set(events(run, "dropped"))
        without_first += (0, 0) in gone
        dropped = [(s, row) in gone for _, s, row in case.arrivals]
        assert_agrees(case, run, heeb, policy, dropped, "arrival")
    assert without_first > 0
