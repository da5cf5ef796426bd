"""`policy="sample"`: the tuples it keeps, the weights of their results, and what they estimate."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock as ps
from penstock.engine.join_loop import LOG_EVICTED
from penstock.errors import BiasedSampleWarning, ColumnError, UnknownPolicyError
from penstock.joins import JoinRun
from penstock.joins import state as join_state
from penstock.policies.sample import LEAST
from penstock.structures.random import POLICY, new_generators, uniform
from tests.joins.agreement import Case, cases, events, pairs
from tests.oracles.join import simulate
from tests.oracles.sample import Sampled, moments, t_from_log


def draws(seed: int, count: int) -> list[float]:
    """The priorities that the policy draws."""
    random = new_generators(seed)
    return [max(float(uniform(random, POLICY)), LEAST) for _ in range(count)]


def weights(run: JoinRun) -> list[tuple[int, int, float, int]]:
    """Left row, right row, t, and the stream of the kept tuple."""
    assert run.weighed is not None
    found = [
        (*pair, t, int(kept) & 1)
        for part in run.weighed.collect()
        for pair, t, kept in zip(part.pairs.tolist(), part.t.tolist(), part.kept.tolist(), strict=True)
    ]
    assert [each[:2] for each in found] == pairs(run)
    return found


def with_oracle(case: Case, seed: int) -> tuple[JoinRun, list[tuple[Any, float]]]:
    """A run that does what the oracle does; and the kept tuple and t of each of its results."""
    run = case.run("sample", seed=seed)
    rules = Sampled(draws(seed, len(case.arrivals)))
    expected = simulate(
        case.left,
        case.right,
        within=case.within,
        budget=case.budget,
        policy=rules,
        allocation=case.allocation,
        warmup=case.warmup,
    )
    assert pairs(run) == expected.pairs
    assert events(run, "evicted") == expected.evicted
    assert sorted(events(run, "expired")) == sorted(expected.expired)
    found = []
    for left, right, t, kept in weights(run):
        both = (0, left), (1, right)
        assert rules.t[both[1 - kept], both[kept]] == t
        found.append((both[kept], t))
    return run, found


@pytest.mark.interpreted
@settings(max_examples=60, deadline=None)
@given(case=cases("arrival"), seed=st.integers(0, 99))
def test_tuples_weights_and_estimates_are_those_of_the_oracle(case: Case, seed: int) -> None:
    run, found = with_oracle(case, seed)
    total, variance = moments([(kept, t, 1.0) for kept, t in found])
    answer = run.estimate("count")
    assert answer.value == pytest.approx(total)
    assert answer.variance == pytest.approx(variance, abs=1e-9)
    assert answer.lower <= answer.value <= answer.upper
    answer = run.estimate("sum", "left.ts")
    total, variance = moments(
        [(kept, t, case.left[row][0]) for (kept, t), (row, _) in zip(found, pairs(run), strict=True)]
    )
    assert answer.value == pytest.approx(total)
    assert answer.variance == pytest.approx(variance, rel=1e-6, abs=1e-6)


@settings(max_examples=25, deadline=None)
@given(case=cases("arrival"), seed=st.integers(0, 9))
def test_collecting_in_many_small_portions(case: Case, seed: int) -> None:
    usual = weights(case.run("sample", seed=seed))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(join_state, "FIRST_ROOM", 1)
        patch.setattr(join_state, "CHUNK", 3)
        assert weights(case.run("sample", seed=seed)) == usual


@pytest.mark.interpreted
@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 999),
    budget=st.sampled_from([ps.Tuples(5), ps.Tuples(12), ps.Bytes(12_000)]),
    allocation=st.sampled_from(["unified", "equal"]),
    lateness=st.sampled_from([0, 7, None]),
    cuts=st.lists(st.integers(0, 90), max_size=3),
)
def test_weights_on_streams_with_late_rows_and_snapshots(
    seed: int, budget: Any, allocation: str, lateness: int | None, cuts: list[int]
) -> None:
    """Whatever the budget and the order of time, t follows from what was evicted when."""
    random = np.random.default_rng(seed)
    count = 90
    time = np.arange(count) // 2 + (0 if lateness is None else random.integers(-9, 9, count))
    stream, key, row = random.integers(0, 2, count), random.integers(0, 3, count), np.arange(count)
    size = random.integers(1, 400, count) if isinstance(budget, ps.Bytes) else None
    join = ps.WindowJoin(within=30, budget=budget, policy="sample", allocation=allocation, seed=seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        state = join.start(lateness=lateness, sketch_bytes=0)
        outputs, arrived = [], []
        for first, last in zip([0, *sorted(cuts)], [*sorted(cuts), count], strict=True):
            part = slice(first, last)
            sizes = None if size is None else size[part]
            outputs.append(
                state.process(stream[part], key[part], time[part], row[part], sizes, collect=True, log=True)
            )
            state.check()
            state = type(state).restore(state.snapshot())
    assert state.totals()["oversize"] == 0
    log = np.concatenate([out.log for out in outputs])
    evicted = [(side, gone, during) for kind, side, gone, during in log.tolist() if kind == LOG_EVICTED]
    pool_of = (0, 0) if allocation == "unified" else (0, 1)
    u = draws(seed, count)
    arrived = [
        (*pair, t, kept)
        for out in outputs
        for pair, t, kept in zip(out.pairs.tolist(), out.t.tolist(), out.kept.tolist(), strict=True)
    ]
    assert arrived
    for left, right, t, identity in arrived:
        kept, later = min(left, right), max(left, right)
        assert identity == 2 * kept + stream[kept]
        assert t == t_from_log(u, evicted, pool_of, (int(stream[kept]), kept), later)
        assert u[kept] < t


# Estimates.


def bursty(rows: int, seed: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """Twelve times the rate for an eighth of the time; values with a heavy tail."""
    return _streams(np.where(np.arange(4_000) % 400 < 50, 12.0, 1.0), rows, seed)


def drifting(rows: int, seed: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """From a twentieth of the rate at the end to that rate."""
    return _streams(np.linspace(0.05, 1.0, 4_000), rows, seed)


def _streams(rate: np.ndarray, rows: int, seed: int) -> tuple[dict[str, Any], dict[str, Any]]:
    random = np.random.default_rng(seed)
    left, right = (
        {
            "key": np.minimum(random.zipf(1.5, rows), 30),
            "ts": np.sort(random.choice(len(rate), rows, p=rate / rate.sum())),
            "amount": random.lognormal(0.0, 1.0, rows),
        }
        for _ in range(2)
    )
    return left, right


def truth_of(left: dict[str, Any], right: dict[str, Any], within: int) -> dict[str, float]:
    """The exact answers, by comparing every row with every other."""
    near = np.abs(left["ts"][:, None] - right["ts"][None, :]) <= within
    joined = near & (left["key"][:, None] == right["key"][None, :])
    return {
        "count": float(joined.sum()),
        "left.amount": float((joined.sum(1) * left["amount"]).sum()),
        "right.amount": float((joined.sum(0) * right["amount"]).sum()),
    }


def check_bars(streams: Any, budget: int, rows: int, seeds: int = 200) -> None:
    """The mean is within 1 % or three standard errors of the truth; the intervals cover it in 92 %."""
    left, right = streams(rows, seed=3)
    truth = truth_of(left, right, within=200)
    found: dict[str, list[Any]] = {name: [] for name in truth}
    for seed in range(seeds):
        join = ps.WindowJoin(within=200, budget=ps.Tuples(budget), policy="sample", seed=seed)
        run = join.run(left, right, on="key", time="ts", collect=True)
        for name in truth:
            found[name].append(run.estimate("count") if name == "count" else run.estimate("sum", name))
    for name, exact in truth.items():
        values = np.array([each.value for each in found[name]])
        error = values.std() / np.sqrt(seeds)
        assert abs(values.mean() - exact) <= max(0.01 * exact, 3 * error), name
        assert values.std() > 0.001 * exact, "there is nothing to estimate"
        covered = np.mean([each.lower <= exact <= each.upper for each in found[name]])
        assert covered >= 0.92, f"{name}: {covered:.3f}"


@pytest.mark.parametrize("streams", [bursty, drifting])
def test_estimates_are_unbiased_and_intervals_cover(streams: Any) -> None:
    check_bars(streams, budget=60, rows=800)


@pytest.mark.soak
@pytest.mark.parametrize("budget", [60, 120, 300])
@pytest.mark.parametrize("streams", [bursty, drifting])
def test_estimates_of_longer_streams(streams: Any, budget: int) -> None:
    check_bars(streams, budget=budget, rows=4_000, seeds=1_000)


def small_run(collect: bool = True, **options: Any) -> JoinRun:
    left, right = bursty(150, seed=1)
    left["shop"] = ["a", "b", None] * 50
    right["amount"][::5] = np.nan
    join = ps.WindowJoin(within=200, budget=ps.Tuples(40), policy="sample", seed=2, **options)
    return join.run(left, right, on="key", time="ts", collect=collect)


def test_without_collect_the_run_is_repeated() -> None:
    one, other = small_run(collect=True), small_run(collect=False)
    assert other.pairs is None
    for question in (("count",), ("sum", "left.amount"), ("mean", "right.amount")):
        assert one.estimate(*question) == other.estimate(*question)


def test_groups_add_up_and_nulls_are_a_group() -> None:
    run = small_run()
    for by in ("shop", ["shop", "key"], "key"):
        table = run.estimate("sum", "left.amount", by=by)
        assert sum(table["value"].to_pylist()) == pytest.approx(run.estimate("sum", "left.amount").value)
    assert None in run.estimate("count", by="shop")["shop"].to_pylist()
    assert run.estimate("count", by=["shop", "key"]).column_names == [
        *("shop", "key", "value", "lower", "upper", "std_error")
    ]


def test_groups_are_estimated_as_if_there_was_nothing_else() -> None:
    run = small_run()
    assert run.pairs is not None
    keys = bursty(150, seed=1)[0]["key"][run.pairs["left_row"].to_numpy()]
    found = weights(run)
    for row in run.estimate("count", by="key").to_pylist():
        mine = [((side, (left, right)[side]), t, 1.0) for left, right, t, side in found]
        mine = [each for each, key in zip(mine, keys, strict=True) if key == row["key"]]
        total, variance = moments(mine)
        assert row["value"] == pytest.approx(total)
        assert row["std_error"] ** 2 == pytest.approx(variance)


def test_values_that_are_missing_do_not_count() -> None:
    run = small_run()
    with_value = run.estimate("count", "right.amount").value
    assert with_value < run.estimate("count").value
    mean = run.estimate("sum", "right.amount").value / with_value
    assert run.estimate("mean", "right.amount").value == pytest.approx(mean)


def test_with_room_for_all_there_is_no_doubt() -> None:
    left, right = bursty(100, seed=1)
    run = ps.WindowJoin(within=200, budget=ps.Tuples(300), policy="sample").run(
        left, right, on="key", time="ts"
    )
    answer = run.estimate("count")
    assert answer.lower == answer.value == answer.upper == run.stats.exact


@pytest.mark.interpreted
@pytest.mark.parametrize(
    ("question", "options", "message"),
    [
        (("median",), {}, "what='median' is not known"),
        (("sum",), {}, "needs a column"),
        (("sum", "amount"), {}, "'left.amount' or 'right.amount'"),
        (("sum", "left.amuont"), {}, "did you mean 'amount'"),
        (("sum", "price"), {}, "No stream has a column 'price'"),
        (("sum", 3), {}, "name of a column"),
        (("sum", "shop"), {}, "not one of numbers"),
        (("count",), {"confidence": 95}, "between 0 and 1"),
        (("count",), {"confidence": 1.0}, "between 0 and 1"),
        (("count",), {"by": "nothing"}, "No stream has a column"),
        (("count",), {"by": [7]}, "by takes a column name"),
        (("count",), {"by": 5}, "by takes a column name"),
        (("count",), {"by": []}, "by takes a column name"),
    ],
)
def test_questions_that_make_no_sense(question: Any, options: Any, message: str) -> None:
    with pytest.raises(ps.PenstockError, match=message):
        small_run().estimate(*question, **options)


def test_a_group_cannot_be_called_as_an_answer_is() -> None:
    left, right = {"key": [1], "ts": [0], "value": [1]}, {"key": [1], "ts": [0]}
    join = ps.WindowJoin(within=5, budget=ps.Tuples(4), policy="sample")
    with pytest.raises(ColumnError, match="rename"):
        join.run(left, right, on="key", time="ts").estimate("count", by="value")


def test_other_policies_do_not_estimate() -> None:
    join = ps.WindowJoin(within=5, budget=ps.Tuples(4), policy="lru")
    with pytest.raises(ps.PenstockError, match='policy="sample"'):
        join.run({"key": [1], "ts": [0]}, {"key": [1], "ts": [0]}, on="key", time="ts").estimate("count")


def test_ticks_and_many_streams_are_refused() -> None:
    with pytest.raises(UnknownPolicyError, match="step='arrival'"):
        ps.WindowJoin(within=5, budget=ps.Tuples(4), policy="sample", step="tick")
    rows = {"key": [1], "ts": [0]}
    with pytest.raises(UnknownPolicyError, match="not defined for joins of many streams"):
        ps.join_many(
            {"a": rows, "b": rows, "c": rows}, on="key", time="ts", within=5, budget=ps.Tuples(4),
            policy="sample",
        )  # fmt: skip


def test_rows_that_no_weight_makes_up_for_are_told() -> None:
    with pytest.warns(BiasedSampleWarning, match="dropped"):
        small_run(drop_rate=0.2).estimate("count")
    left = {"key": [1] * 40, "ts": range(40), "text": ["x" * 20_000] + ["y"] * 39}
    right = {"key": [1] * 40, "ts": range(40), "text": ["z"] * 40}
    run = ps.WindowJoin(within=9, budget=ps.Bytes(16_000), policy="sample").run(
        left, right, on="key", time="ts"
    )
    assert run.stats.oversize == 1
    with pytest.warns(BiasedSampleWarning, match="1 larger than their buffer"):
        run.estimate("count")


def test_unbiased_drops_name_the_sample_where_they_are_biased() -> None:
    left, right = bursty(800, seed=3)
    join = ps.WindowJoin(within=40, budget=ps.Tuples(60), policy="fifo", drop_rate="unbiased")
    with pytest.warns(BiasedSampleWarning, match="policy='sample'"):
        join.run(left, right, on="key", time="ts")
