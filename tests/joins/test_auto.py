"""`auto`: it follows the leader, and a change of policy loses nothing and is as if it had always been so."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock as ps
from penstock.arrays import table_bytes
from penstock.caching import Cache
from penstock.engine import policy_race
from penstock.engine.key_sample import sampled
from penstock.errors import PenstockError, PolicyOptionError
from penstock.joins.policy_switch import carried_tuples, switch_policy
from penstock.joins.stream import StreamState
from penstock.reproduction.generated import crowds
from penstock.testing import Feed, random_feed, trajectory
from penstock.workloads import viewers_and_guide, zipf_pair

FEW = "auto:candidates=fifo/prob/lru"
LEARNING = "auto:candidates=fifo/learned/lru"


def started(policy: str, budget: Any = None, **options: Any) -> ps.JoinState:
    return ps.WindowJoin(within=40, budget=budget or ps.Tuples(16), policy=policy, **options).start()


def test_it_follows_the_leader() -> None:
    left, right = zipf_pair(15_000, keys=1_000)
    found = {}
    for policy in ("fifo", "prob", "auto:candidates=fifo/prob"):
        stats = (
            ps.WindowJoin(2_000, ps.Fraction(0.2), policy=policy).run(left, right, on="key", time="ts").stats
        )
        found[policy] = stats
    choice = found["auto:candidates=fifo/prob"].choice
    assert choice is not None
    assert (choice.policy, choice.switches) == ("prob", 1)
    assert choice.since < 8_000
    assert choice.estimates["prob"] == 1.0 > choice.estimates["fifo"]
    assert found["auto:candidates=fifo/prob"].recall > 0.85 * found["prob"].recall
    assert found["fifo"].choice is None


def test_a_change_that_costs_results_is_taken_back() -> None:
    """The sample says that the second candidate is better; what the real one finds says otherwise."""
    epoch = 512
    game, total, followed = policy_race.PolicyRace(2, size=epoch, margin=0.01, halvings=2), 0, []
    for _ in range(200):
        for candidate, found in enumerate((50, 60)):
            game.add(candidate, np.arange(1_000), np.full(1_000, found))
        total += 400 if game.running == 0 else 200
        leader = game.after(epoch, total)
        if leader is not None:
            game.change(leader)
        followed.append(game.running)
    assert followed[-1] == 0
    assert game.switches in (4, 6)  # and tried again, each time after twice as long
    assert sum(followed) <= 3 * (policy_race.TRIED + 1)
    assert set(followed) == {0, 1}


def test_a_sample_without_the_keys_that_matter_does_not_mislead_for_long() -> None:
    left, right = crowds(quick=False)
    recall = {
        policy: ps.WindowJoin(4_000, ps.Fraction(0.05), policy=policy)
        .run(left, right, on="key", time="ts")
        .stats.recall
        for policy in ("lru", "prob", "auto:candidates=lru/prob")
    }
    assert recall["prob"] < 0.3 * recall["lru"]
    assert recall["auto:candidates=lru/prob"] > 0.93 * recall["lru"]


@pytest.mark.usefixtures("hasty")
@pytest.mark.parametrize("policy", [FEW, LEARNING])
@pytest.mark.parametrize("step", ["arrival", "tick"])
@settings(max_examples=10, suppress_health_check=[], deadline=None)
@given(seed=st.integers(0, 99), cuts=st.lists(st.floats(0, 1), max_size=5))
def test_changes_do_not_depend_on_batches(policy: str, step: str, seed: int, cuts: list[float]) -> None:
    arrivals = random_feed(400, seed, keys=20)
    options: dict[str, Any] = {"step": step, "seed": seed, "drop_rate": 0.2 if seed % 3 == 0 else 0.0}
    one = started(policy, **options)
    whole = trajectory(one, arrivals, [])
    one.check()
    many = started(policy, **options)
    assert trajectory(many, arrivals, sorted(int(cut * 400) for cut in cuts)) == whole
    assert many.choice == one.choice


@pytest.mark.usefixtures("hasty")
@pytest.mark.parametrize("policy", [FEW, LEARNING])
@pytest.mark.parametrize("step", ["arrival", "tick"])
def test_a_restored_state_chooses_alike(policy: str, step: str) -> None:
    changed = 0
    for seed in range(6):
        arrivals = random_feed(500, seed, keys=20)
        original = started(policy, step=step)
        original.process(*arrivals.cut(0, 260))
        copy = ps.JoinState.restore(original.snapshot())
        copy.check()
        assert copy.peak_bytes == original.peak_bytes
        rest = Feed(*arrivals.cut(260, 500))
        assert trajectory(copy, rest, [50, 51]) == trajectory(original, rest, [])
        assert copy.choice == original.choice
        copy.check()
        assert original.choice is not None
        changed += original.choice.switches
    assert changed > 0


@pytest.mark.filterwarnings("ignore::penstock.errors.LateRowsWarning")
@pytest.mark.usefixtures("hasty")
def test_streams_out_of_step_change_too() -> None:
    changed = 0
    for seed in range(5):
        random = np.random.default_rng(seed)
        arrivals = random_feed(500, seed, keys=20)
        time = arrivals.time + random.integers(-8, 9, 500)
        join = ps.WindowJoin(within=40, budget=ps.Tuples(16), policy=FEW)
        states = [join.start(lateness=5) for _ in range(2)]
        outputs: list[list[Any]] = [[], []]
        for cut, state in ((500, states[0]), (120, states[1])):
            for first in range(0, 500, cut):
                part = slice(first, first + cut)
                if state is states[1] and first == 240:
                    state = states[1] = StreamState.restore(state.snapshot())
                out = state.process(
                    arrivals.stream[part], arrivals.key[part], time[part], arrivals.row[part], collect=True
                )
                outputs[states.index(state)] += out.pairs.tolist()
                state.check()
        assert outputs[0] == outputs[1]
        assert states[0].choice == states[1].choice
        assert states[0].choice is not None
        changed += states[0].choice.switches
    assert changed > 0


@pytest.mark.parametrize("policy", ["lru", "prob", "life"])
def test_a_change_is_as_if_it_had_always_been_so(policy: str) -> None:
    """Where nothing was evicted before, scores after a change are those of the policy from the beginning."""
    arrivals = random_feed(400, 7, keys=9)
    budget = ps.Tuples(30)
    always = ps.WindowJoin(within=25, budget=budget, policy=policy).start()
    other = ps.WindowJoin(within=25, budget=budget, policy=f"auto:candidates=fifo/{policy}").start()
    assert other.follower is not None
    at = 20
    for state in (always, other):
        state.process(*arrivals.cut(0, at))
        assert state.totals()["evicted"] == 0
    before = sorted(carried_tuples(other.store).row.tolist())
    new = ps.policies.get(policy)
    other.follower.change(new)
    other.store, other.policy = switch_policy(
        other.config, new, carried_tuples(other.store), other.store, other.follower.predictor
    )
    other.check()
    assert sorted(carried_tuples(other.store).row.tolist()) == before
    assert other.totals() == always.totals()
    rest = Feed(*arrivals.cut(at, 200))
    assert trajectory(other, rest, [])[:2] == trajectory(always, rest, [])[:2]


def bytes_when_full(state: Any) -> int:
    """What the tables of a join take that has as many tuples as its budget allows, and its small joins."""
    config, follower = state.config, state.follower
    store, policy = config.build(policy=state.running, rooms=config.capacities)
    return table_bytes(store, policy, follower.predictor) + follower.bytes


def test_the_small_joins_keep_to_their_share() -> None:
    for budget in (ps.Tuples(2_000), ps.Tuples(100_000), ps.Bytes("2 MiB"), ps.Bytes("64 KiB")):
        state = started("auto", budget)
        assert state.follower is not None
        memory = budget.n if isinstance(budget, ps.Bytes) else bytes_when_full(state)
        assert state.follower.bytes <= max(0.05 * memory, 64 << 10)
        if isinstance(budget, ps.Bytes):
            assert state.peak_bytes <= budget.n
    assert ps.WindowJoin(40, ps.Bytes("64 KiB"), policy="auto").start().choice is not None


def test_there_is_a_sample_for_every_size_of_buffer() -> None:
    """As small as the 16 tuples that suffice, which nearly fill the 64 KiB that there are at least."""
    for n in (16, 24, 30, 40, 60, 98, 229, 500, 916, 2_292, 5_000):
        state = started("auto", ps.Tuples(n))
        assert state.follower is not None
        for small in state.follower.small:
            assert sum(small.config.capacities) >= 16
        assert len(state.follower.small) == 6
        assert state.follower.bytes <= max(0.05 * bytes_when_full(state), 64 << 10)
    keys = np.arange(100_000)
    groups = [policy_race.PolicyRace(1, 512, 0.01, halvings) for halvings in (2, 2.5)]
    for asked in groups:
        mine = keys[sampled(keys, asked.halvings or 0)]
        asked.add(0, mine, np.ones(len(mine)))
        assert asked.gained.min() > 0.8 * asked.gained.max()


def test_the_small_join_of_learned_has_the_weights_of_all_keys() -> None:
    """Of which a sample has too few examples to find them by itself."""
    state = ps.WindowJoin(2_000, ps.Tuples(600), policy="auto:candidates=lru/learned").start()
    assert state.follower is not None
    real, small = state.follower.predictor, state.follower.small[1].policy.predictor
    keys = np.random.default_rng(0).zipf(1.3, 24_000) % 500
    n = np.arange(24_000)
    state.process(n % 2, keys, n, n)
    assert (small.regression.weight == real.regression.weight).all()
    assert (real.regression.weight != real.regression.prior).any()
    assert 0 < small.regression.examples.sum() < real.regression.examples.sum()


def test_a_lead_in_a_few_results_is_chance() -> None:
    """However sure epochs and groups of keys are of it."""
    key = np.arange(16)
    for each, follows in ((0.1, None), (10.0, 1)):
        asked = policy_race.PolicyRace(2, size=512, margin=0.01, halvings=3)
        for _ in range(40):
            asked.add(0, key, np.full(16, 0.8 * each))
            asked.add(1, key, np.full(16, each))
            leader = asked.after(512)
        assert leader == follows


def test_candidates_have_options() -> None:
    """In text, on objects, and through a snapshot."""
    text = "auto:candidates=gdj:initial=0.3:method=2/clock-exp:rho=0.5/lru,margin=0.02"
    policy = ps.policies.get(text)
    assert policy.among() == [
        ps.policies.GreedyDualJoin(initial=0.3, method=2), ps.policies.ClockExp(rho=0.5), ps.policies.Lru()
    ]  # fmt: skip
    assert policy == ps.policies.Auto(policy.among(), margin=0.02) == ps.policies.get(policy.spell())
    assert pickle.loads(pickle.dumps(policy)) == policy
    arrivals = random_feed(1_200, 3, keys=40)
    state = ps.WindowJoin(40, ps.Tuples(16), policy="auto:candidates=gdj:initial=0.3/gdj:initial=0.9").start()
    state.process(*arrivals.cut(0, 700))
    state = ps.JoinState.restore(state.snapshot())
    state.process(*arrivals.cut(700, 1_200))
    assert state.choice is not None
    assert list(state.choice.estimates) == ["gdj:initial=0.3", "gdj"]
    assert len(set(state.choice.estimates.values())) == 2


def test_a_sample_of_keys_is_a_share_of_them() -> None:
    keys = np.arange(-50_000, 50_000)
    for halvings in (0, 0.25, 1, 1.5, 3, 5.875, 6):
        assert sampled(keys, halvings).mean() == pytest.approx(0.5**halvings, rel=0.1)


@pytest.mark.parametrize("given", ["auto", "opt", "heeb", "age", "flowexpect"])
def test_who_cannot_be_a_candidate(given: str) -> None:
    with pytest.raises(PolicyOptionError, match="candidate"):
        ps.policies.Auto(candidates=("lru", given))


@pytest.mark.parametrize("viewers_first", [True, False])
def test_rho_follows_a_change_of_regime(viewers_first: bool) -> None:
    """Viewers are best forgotten fast, popular keys slowly; no one rho is best for both."""
    pair = viewers_and_guide(120_000, 12_000, channels=300)
    after, before = (int((each.end - each.start).mean()) for each in pair)
    n, horizon, within = 60_000, max(before, after), (before, after)
    popular = zipf_pair(n, keys=1_000, alpha=1.0, seed=1)
    streams = []
    for valid, side in zip(pair, popular, strict=True):
        viewing = valid.rename(columns={"channel": "key", "start": "ts"})[["key", "ts"]]
        parts = [viewing, side.assign(key=side.key + 10**9, ts=np.arange(n) * horizon // 500)]
        first, second = parts if viewers_first else parts[::-1]
        later = second.assign(ts=second.ts + first.ts.max() + 10 * horizon)
        streams.append(pd.concat([first, later]))
    found = {}
    for rho in (0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 0.998, "auto"):
        join = ps.WindowJoin(within, ps.Tuples(150), policy=f"clock-exp:rho={rho}", allocation="unified")
        found[rho] = join.run(*streams, on="key", time="ts").stats
    choice = found["auto"].choice
    assert choice is not None
    assert choice.switches > 0
    best = found.pop("auto").results
    assert best > max(stats.results for stats in found.values())


def test_rho_is_tuned_in_joins_of_two_streams_only() -> None:
    tuned = ps.policies.ClockExp(rho="auto")
    assert pickle.loads(pickle.dumps(tuned)) == tuned == ps.policies.get(tuned.spell())
    assert tuned.chooses
    assert not ps.policies.ClockExp().chooses
    table = {"key": [1], "ts": [0]}
    with pytest.raises(PenstockError, match="clock-exp:rho=auto is not defined for joins of many"):
        ps.join_many(dict.fromkeys("abc", table), on="key", time="ts", within=1, budget=ps.Tuples(3), policy=tuned)
    with pytest.raises(PenstockError, match="clock-exp:rho=auto cannot run a cache"):
        Cache(tuned, 2)
    with pytest.raises(PolicyOptionError, match="threshold"):
        ps.policies.ClockExp(rho="auto", threshold=0)


def test_what_is_refused() -> None:
    with pytest.raises(PenstockError, match="nobody"):
        ps.policies.get("auto:candidates=lru/nobody")
    with pytest.raises(PolicyOptionError, match="margin"):
        ps.policies.get("auto:margin=2")
    for candidates in (7, (), ("lru", 7)):
        with pytest.raises(PolicyOptionError, match="names of policies"):
            ps.policies.Auto(candidates=candidates)  # type: ignore[arg-type]
    with pytest.raises(PolicyOptionError, match="initial"):
        ps.policies.get("auto:candidates=lru/gdj:initial=7")
    assert ps.policies.get("auto:candidates=lru").among() == [ps.policies.Lru()]


def test_in_little_memory_the_first_candidate_runs_alone() -> None:
    join = ps.WindowJoin(400, ps.Bytes("96 KiB"), policy="auto", allocation="unified")
    state = join.start(lateness=0)
    assert state.choice is not None
    assert (state.choice.policy, state.choice.sample) == ("learned", 0.0)
    arrivals = random_feed(600, 3, keys=300)
    state.process(*arrivals.cut(0, 600))
    state.check()
    assert state.peak_bytes <= 96 << 10
    assert state.totals()["evicted"] > 0
