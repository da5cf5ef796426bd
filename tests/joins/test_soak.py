"""The long versions: random operations with all invariants checked, fuzzed streams and snapshots."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock as ps
from penstock.errors import SnapshotError
from penstock.testing import Feed, random_feed, trajectory
from tests.joins.agreement import VARIANTS, Variant, assert_agrees, cases, events, online
from tests.joins.test_contract import specs

pytestmark = pytest.mark.soak

SOAK = settings.get_profile("soak")
every_step = pytest.mark.parametrize("step", ["arrival", "tick"])
every_variant = pytest.mark.parametrize("variant", VARIANTS, ids=str)
every_policy = pytest.mark.parametrize("spec", specs(online()))


@every_step
@every_variant
@settings(SOAK, max_examples=600)
@given(data=st.data())
def test_oracle(variant: Variant, step: str, data: st.DataObject) -> None:
    case = data.draw(cases(step, variant.unified, size=90, kinds=variant.windows))
    policy = data.draw(variant.policies)
    assert_agrees(case, case.run(policy), variant, policy)


@every_step
@every_variant
@settings(SOAK, max_examples=200)
@given(data=st.data())
def test_oracle_with_drops(variant: Variant, step: str, data: st.DataObject) -> None:
    case = data.draw(cases(step, variant.unified, kinds=variant.windows))
    if "age" in variant.name:
        return  # dropped arrivals count in its rate, about which the oracle is not asked here
    policy, drop_at = data.draw(variant.policies), data.draw(st.sampled_from(["admission", "arrival"]))
    run = case.run(policy, drop_rate=0.4, drop_at=drop_at, seed=data.draw(st.integers(0, 10**6)))
    gone = set(events(run, "dropped"))
    assert_agrees(case, run, variant, policy, [(s, row) in gone for _, s, row in case.arrivals], drop_at)


def random_join(spec: str, step: str, random: np.random.Generator) -> ps.WindowJoin:
    within: Any = [25, (0, 40), (9, 3), ps.Rows(30), ps.Landmark(37)][random.integers(5)]
    budget: Any = (
        ps.Tuples(int(random.integers(2, 60)))
        if random.random() < 0.6
        else ps.Bytes(int(random.integers(80, 160)) * 1024)
    )
    allocations = ["equal", "proportional"] + ["unified"] * ps.policies.get(spec).unified
    return ps.WindowJoin(
        within=within,
        budget=budget,
        policy=spec,
        step=step,
        allocation=allocations[random.integers(len(allocations))],
        drop_rate=float(random.choice([0.0, 0.0, 0.2])),
        drop_at=["admission", "arrival"][random.integers(2)],
        warmup=int(random.choice([0, 0, 10])),
        seed=int(random.integers(1_000)),
    )


@every_step
@every_policy
def test_random_operations(spec: str, step: str) -> None:
    """Batches of any size, snapshots in between, jumps in time, ticks closed early: all invariants hold."""
    for seed in range(12):
        random = np.random.default_rng(seed)
        join = random_join(spec, step, random)
        state = join.start(rates=(1.0, 2.0))
        arrivals = random_feed(2_500, seed, keys=int(random.choice([3, 30, 300])), largest=2_000)
        at, jump = 0, 0
        while at < len(arrivals):
            stop = at + int(random.choice([0, 1, 1, 2, 5, 40]))
            stream, key, time, row, size = arrivals.cut(at, stop)
            state.process(stream, key, time + jump, row, size, collect=bool(random.random() < 0.3))
            state.check()
            chance = random.random()
            if chance < 0.05:
                state = ps.JoinState.restore(state.snapshot())
                state.check()
            elif chance < 0.07:
                jump += int(random.integers(1, 200))
            elif chance < 0.09:
                state.finish()
                state.check()
            at = stop
        state.finish()
        state.check()
        totals = state.totals()
        assert totals["arrivals"] == len(arrivals)
        assert (
            totals["arrivals"]
            == totals["buffered"] + totals["expired"] + totals["evicted"] + totals["dropped"]
        )
        if isinstance(join.budget, ps.Tuples):
            assert totals["peak_tuples"] <= join.budget.n
        else:
            assert state.peak_bytes <= join.budget.n


@every_step
@every_policy
@settings(SOAK, max_examples=100)
@given(seed=st.integers(0, 10**6), cuts=st.lists(st.floats(0, 1), max_size=8))
def test_batches_with_snapshots_in_between(spec: str, step: str, seed: int, cuts: list[float]) -> None:
    random = np.random.default_rng(seed)
    join = random_join(spec, step, random)
    arrivals = random_feed(300, seed, largest=500)
    whole = trajectory(join.start(rates=(1.0, 1.0)), arrivals, [])
    state, pairs, log, at = join.start(rates=(1.0, 1.0)), [], [], 0
    for stop in [*sorted(int(cut * 300) for cut in cuts), 300]:
        out = state.process(*Feed(*arrivals.cut(at, stop)).cut(0, stop - at), collect=True, log=True)
        pairs += out.pairs.tolist()
        log += out.log.tolist()
        state = ps.JoinState.restore(state.snapshot())
        at = stop
    out = state.finish(collect=True, log=True)
    assert (pairs + out.pairs.tolist(), log + out.log.tolist(), state.totals()) == whole


@pytest.mark.parametrize("spec", ["gdj", "prob", "age"])
def test_damaged_snapshots(spec: str) -> None:
    """Flipped, cut, doubled or overwritten: a damaged snapshot is refused, and nothing worse happens."""
    state = ps.WindowJoin(within=30, budget=ps.Tuples(40), policy=spec, step="tick").start()
    state.process(*random_feed(200, 1).cut(0, 200))
    data = state.snapshot()
    random = np.random.default_rng(7)
    for _ in range(10_000):
        damaged = bytearray(data)
        kind = random.integers(4)
        at = int(random.integers(len(data)))
        if kind == 0:
            damaged[at] ^= 1 << int(random.integers(8))
        elif kind == 1:
            del damaged[at:]
        elif kind == 2:
            damaged[at:at] = random.bytes(int(random.integers(1, 20)))
        else:
            length = int(random.integers(1, 50))
            damaged[at : at + length] = random.bytes(length)
        if bytes(damaged) == data:
            continue
        with pytest.raises(SnapshotError):
            ps.JoinState.restore(bytes(damaged))
    ps.JoinState.restore(data).check()


@every_policy
def test_a_long_stream_at_scale(spec: str) -> None:
    """Half a million arrivals through buffers that fill and drain; invariants in between."""
    random = np.random.default_rng(3)
    n = 200_000 if "method=2" in spec else 500_000
    burst = np.repeat(random.choice([0, 0, 1, 30], n // 100), 100)
    time = np.cumsum(burst * (random.random(n) < 0.5))
    arrivals = Feed(
        random.integers(0, 2, n).astype(np.int8),
        random.zipf(1.2, n) % 5_000,
        time,
        np.arange(n),
        np.zeros(n, np.int64),
    )
    state = ps.WindowJoin(within=3_000, budget=ps.Tuples(5_000), policy=spec, seed=1).start()
    for start in range(0, n, 20_000):
        state.process(*arrivals.cut(start, start + 20_000))
        state.check()
    totals = state.totals()
    assert 0 < totals["peak_tuples"] <= 5_000
    assert totals["arrivals"] == n == totals["buffered"] + totals["expired"] + totals["evicted"]
