"""The offline optimum against all decisions there are, and against every policy."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock as ps
from penstock.errors import PenstockError
from penstock.flows import Steps, keep_times
from penstock.joins.budgets import shares_of
from tests.joins.agreement import VARIANTS, Case, cases, table, window
from tests.oracles.optimal import best_results, follow

STEPS = ("arrival", "tick")
every_step = pytest.mark.parametrize("step", STEPS)


def optimum(case: Case) -> ps.Optimum:
    return ps.optimal_join(
        table(case.left),
        table(case.right),
        on="key",
        time="ts",
        within=window(case.within),
        budget=ps.Tuples(case.budget),
        allocation=case.allocation,
        step=case.step,
        warmup=case.warmup,
    )


def small(case: Case, budget: int) -> Case:
    return dataclasses.replace(case, budget=budget, warmup=min(case.warmup, 2))


@every_step
@settings(max_examples=60)
@given(data=st.data())
def test_no_decisions_are_better(step: str, data: st.DataObject) -> None:
    """Every decision is tried, on streams of up to nine tuples."""
    case = small(data.draw(cases(step, size=9)), data.draw(st.sampled_from([2, 2, 3, 4])))
    best = best_results(
        case.left,
        case.right,
        within=case.within,
        budget=case.budget,
        allocation=case.allocation,
        step=step,
        warmup=case.warmup,
    )
    assert optimum(case).results == best


@every_step
@settings(max_examples=60)
@given(data=st.data())
def test_the_decisions_lead_to_the_optimum(step: str, data: st.DataObject) -> None:
    """A plain replay that keeps what they say and nothing else has all the results, in that memory."""
    case = data.draw(cases(step))
    best = optimum(case)
    results, held = follow(
        case.left,
        case.right,
        best.decisions.to_pylist(),
        within=case.within,
        step=step,
        warmup=case.warmup,
    )
    assert results == best.results
    arrivals = case.arrivals
    weights = tuple(float(sum(s == side for _, s, _ in arrivals)) for side in (0, 1))
    shares = shares_of(case.budget, case.allocation, weights)
    for left, right in held:
        assert (left + right <= shares[0]) if len(shares) == 1 else (left <= shares[0] and right <= shares[1])
    assert best.replay().stats.results == best.results


@every_step
@settings(max_examples=40)
@given(data=st.data())
def test_no_policy_exceeds_it(step: str, data: st.DataObject) -> None:
    case = data.draw(cases(step, unified=False))
    best = optimum(case)
    for variant in VARIANTS:
        if set(variant.windows.split()) >= {"rows", "landmark"}:
            policy = data.draw(variant.policies)
            assert case.run(policy).stats.results <= best.results, variant
    assert case.run("rand").stats.results <= best.results
    stats = case.run("opt").stats
    assert (stats.results, stats.same_tick, stats.exact) == (best.results, best.same_tick, best.exact)


@every_step
@settings(max_examples=30)
@given(data=st.data())
def test_times_may_be_floats(step: str, data: st.DataObject) -> None:
    case = small(data.draw(cases(step, floats=True, size=8)), 2)
    best = best_results(
        case.left,
        case.right,
        within=case.within,
        budget=2,
        allocation=case.allocation,
        step=step,
        warmup=case.warmup,
    )
    assert optimum(case).results == best


def trend(steps: int, seed: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """Two streams whose keys rise by one a step, with normal noise, one a step behind the other."""
    random = np.random.default_rng(seed)
    time = np.arange(steps)
    left, right = (
        {"key": time - lag + np.rint(np.clip(random.normal(0, sd, steps), -15, 15)).astype(int), "ts": time}
        for lag, sd in ((1, 3), (0, 4))
    )
    return left, right


def test_ticks_of_a_trend() -> None:
    left, right = trend(5_000, 3)
    ask: dict[str, Any] = {"on": "key", "time": "ts"}
    options: dict[str, Any] = {"within": 5_000, "budget": ps.Tuples(10), "step": "tick", "warmup": 40}
    best = ps.optimal_join(left, right, **ask, **options)
    assert 0 < best.same_tick < best.results < best.exact
    assert best.seconds < 20  # a fraction of a second on an idle machine
    for policy in ("rand", "prob", "lru", "gdj"):
        join = ps.WindowJoin(policy=policy, allocation="unified", **options)
        stats = join.run(left, right, **ask).stats
        assert stats.same_tick == best.same_tick
        assert stats.results < best.results
    halves = ps.optimal_join(left, right, **ask, allocation="equal", **options)
    assert halves.results <= best.results


def test_room_for_all_that_is_worth_keeping_needs_no_flow() -> None:
    left, right = trend(500, 1)
    best = ps.optimal_join(left, right, on="key", time="ts", within=500, budget=ps.Tuples(1_000))
    assert best.results == best.exact
    assert best.recall == 1.0


def test_more_memory_is_never_worse() -> None:
    left, right = trend(400, 2)
    found = [
        ps.optimal_join(
            left, right, on="key", time="ts", within=400, budget=ps.Tuples(k), step="tick"
        ).results
        for k in (2, 3, 5, 9, 17, 33)
    ]
    assert found == sorted(found)
    # The optimum of a flow is concave in its size.
    gains = np.diff(found) / np.diff([2, 3, 5, 9, 17, 33])
    assert (np.diff(gains) <= 1e-9).all()


def test_no_rows() -> None:
    nothing: dict[str, list[int]] = {"key": [], "ts": []}
    best = ps.optimal_join(nothing, nothing, on="key", time="ts", within=5, budget=ps.Tuples(2))
    assert (best.results, best.exact, best.decisions.num_rows) == (0, 0, 0)


def test_other_decisions_can_be_replayed() -> None:
    left, right = {"key": [1, 2], "ts": [0, 1]}, {"key": [2, 1, 1], "ts": [2, 3, 4]}
    best = ps.optimal_join(
        left, right, on="key", time="ts", within=9, budget=ps.Tuples(2), allocation="equal"
    )
    assert best.results == 2
    worse = best.decisions.slice(0, 0).to_pandas()
    worse.loc[0] = ["left", 1, 1, 2]
    import pyarrow as pa

    assert best.replay(pa.Table.from_pandas(worse)).stats.results == 1


# What is refused.

DATA = {"key": [1, 2], "ts": [0, 1]}


def test_bytes_are_refused() -> None:
    with pytest.raises(PenstockError, match=r"tuples.*Fraction"):
        ps.optimal_join(DATA, DATA, on="key", time="ts", within=5, budget="1 MiB")
    with pytest.raises(PenstockError, match="opt needs a budget in tuples"):
        ps.WindowJoin(within=5, budget=ps.Bytes("1 MiB"), policy="opt").run(DATA, DATA, on="key", time="ts")


def test_a_stream_without_an_end_is_refused() -> None:
    with pytest.raises(PenstockError, match="whole stream"):
        ps.WindowJoin(within=5, budget=ps.Tuples(4), policy="opt").start()


def test_drops_before_the_probe_are_refused() -> None:
    with pytest.raises(PenstockError, match="drop_at"):
        ps.WindowJoin(within=5, budget=ps.Tuples(4), policy="opt", drop_rate=0.1, drop_at="arrival")


@pytest.mark.parametrize(
    ("changed", "message"),
    [({"row": [7]}, "not in the input"), ({"stream": ["middle"]}, "left"), ({"until": None}, "until")],
)
def test_decisions_that_are_none_are_refused(changed: dict[str, Any], message: str) -> None:
    import pyarrow as pa

    best = ps.optimal_join(DATA, DATA, on="key", time="ts", within=5, budget=ps.Tuples(2))
    columns = {"stream": ["left"], "row": [0], "arrives": [0], "until": [1]} | changed
    given = pa.table({name: values for name, values in columns.items() if values is not None})
    with pytest.raises(PenstockError, match=message):
        best.replay(given)


def test_arrays_must_fit_together() -> None:
    with pytest.raises(PenstockError, match="equally long"):
        Steps(np.zeros(2), np.zeros(2), np.zeros(3), np.zeros(2), (1, 1))
    with pytest.raises(PenstockError, match="order"):
        Steps(np.zeros(2), np.zeros(2), np.array([1, 0]), np.zeros(2), (1, 1))
    with pytest.raises(PenstockError, match="capacit"):
        keep_times(Steps(np.zeros(1), np.zeros(1), np.zeros(1), np.zeros(1), (1, 1)), [])
