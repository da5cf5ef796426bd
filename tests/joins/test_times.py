"""Times near the limits of their types: the answer of unlimited integers, or a refusal before work starts."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from fractions import Fraction as Ratio
from typing import Any

import numpy as np
import pytest

import penstock as ps
from penstock.errors import ColumnError, PenstockError, ShortSampleWarning, WindowError
from penstock.joins import start_many

BIG = 2**62
LIMITS = {
    "both ends of 62 bits": [-BIG, BIG],
    "inside of 62 bits": [100 - BIG, BIG - 100],
    "both ends of 64 bits": [-(2**63), 2**63 - 1],
    "the end of 64 bits": [2**63 - 3, 2**63 - 2, 2**63 - 1],
    "the beginning of 64 bits": [-(2**63), 1 - 2**63],
    "zero and the end": [0, 2**63 - 1],
    "zero and the beginning": [-(2**63), 0],
    "beyond the range of a window": [2**61, 2**61 + 5, BIG + 5],
    "plain": [0, 3, 5, 40],
}
WINDOWS: dict[str, tuple[Any, Callable[[Any, Any], bool]]] = {
    "both ways": (10, lambda left, right: abs(left - right) <= 10),
    "after": ((0, 10), lambda left, right: 0 <= right - left <= 10),
    "before": ((10, 0), lambda left, right: 0 <= left - right <= 10),
    "wide": (BIG - 1, lambda left, right: abs(left - right) <= BIG - 1),
    "too wide": (2**63 - 1, lambda left, right: abs(left - right) <= 2**63 - 1),
    "endless": (10**30, lambda left, right: abs(left - right) <= 10**30),
    "a period": (ps.Landmark(10), lambda left, right: left // 10 == right // 10),
    "a wide period": (ps.Landmark(BIG - 1), lambda left, right: left // (BIG - 1) == right // (BIG - 1)),
}
OPEN: dict[str, Any] = {"budget": ps.Tuples(100), "policy": "lru"}


def exactly(times: Any) -> list[Ratio]:
    return [Ratio(time.item() if isinstance(time, np.generic) else time) for time in times]


def expected(left: Any, right: Any, joins: Callable[[Any, Any], bool]) -> int:
    return sum(joins(mine, theirs) for mine in exactly(left) for theirs in exactly(right))


def tables(left: Any, right: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    return {"key": [1] * len(left), "ts": left}, {"key": [1] * len(right), "ts": right}


def assert_right_or_refused(count: Callable[[], int], right: int) -> bool:
    """Whether the answer came out; if not it was refused in our own words."""
    try:
        found = count()
    except PenstockError:
        return False
    assert found == right
    return True


def by_run(within: Any, left: Any, right: Any, **options: Any) -> int:
    run = ps.WindowJoin(within=within, **(OPEN | options)).run(*tables(left, right), on="key", time="ts")
    assert run.stats.exact == run.stats.results
    return run.stats.results


def in_order(left: Any, right: Any) -> tuple[list[int], list[Any]]:
    arrivals = sorted([(time, 0) for time in left] + [(time, 1) for time in right])
    return [side for _, side in arrivals], [time for time, _ in arrivals]


def by_process(within: Any, left: Any, right: Any) -> int:
    state = ps.WindowJoin(within=within, **OPEN).start()
    found = 0
    for side, time in zip(*in_order(left, right), strict=True):
        found += int(state.process([side], [1], [time], [0]).counts.sum())
        state = ps.JoinState.restore(state.snapshot())
    return found


def by_streams(within: Any, left: Any, right: Any) -> int:
    sides, times = in_order(left, right)
    state = ps.WindowJoin(within=within, **OPEN).start(lateness=0)
    return int(state.process(sides, [1] * len(sides), times, [0] * len(sides)).counts.sum())


def by_many(within: Any, left: Any, right: Any) -> int:
    a, b = tables(left, right)
    run = ps.join_many({"a": a, "b": b}, on="key", time="ts", within=within, **OPEN)
    assert run.stats.exact == run.stats.results
    return run.stats.results


def by_many_streams(within: Any, left: Any, right: Any) -> int:
    sides, times = in_order(left, right)
    state = start_many(2, [(0, 1)], within=within, **OPEN)
    return int(state.process(sides, [1] * len(sides), times, [0] * len(sides)).counts.sum())


def by_optimum(within: Any, left: Any, right: Any) -> int:
    best = ps.optimal_join(*tables(left, right), on="key", time="ts", within=within, budget=ps.Tuples(100))
    return best.results


def by_plan(within: Any, left: Any, right: Any) -> int:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ShortSampleWarning)
        planned = ps.plan(
            *tables(left, right),
            on="key",
            time="ts",
            within=within,
            budgets=[ps.Tuples(100)],
            policies=["lru"],
        )
    return planned.rows[0].exact


OPERATORS: dict[str, Callable[[Any, Any, Any], int]] = {
    "run": by_run,
    "tick": lambda *parts: by_run(*parts, step="tick"),
    "life": lambda *parts: by_run(*parts, policy="life"),
    "age": lambda *parts: by_run(*parts, policy="age", allocation="equal"),
    "heeb": lambda *parts: by_run(*parts, policy="heeb"),
    "auto": lambda *parts: by_run(*parts, policy="auto"),
    "a share": lambda *parts: by_run(*parts, budget=ps.Bytes("1 MiB")),
    "process": by_process,
    "out of step": by_streams,
    "many": by_many,
    "many out of step": by_many_streams,
    "optimum": by_optimum,
    "plan": by_plan,
}


@pytest.mark.parametrize("operator", OPERATORS)
def test_whole_times_at_their_limits(operator: str) -> None:
    answered = []
    for reach, times in LIMITS.items():
        for window, (within, joins) in WINDOWS.items():
            if assert_right_or_refused(
                lambda times=times, within=within: OPERATORS[operator](within, times, times),
                expected(times, times, joins),
            ):
                answered.append((reach, window))
    assert ("plain", "both ways") in answered
    if "out of step" not in operator:  # those have the narrower limit of streams
        assert ("inside of 62 bits", "both ways") in answered
        assert ("zero and the beginning", "both ways") not in answered


def test_the_pair_of_the_report_does_not_match() -> None:
    left, right = {"key": [1], "ts": [-BIG]}, {"key": [1], "ts": [BIG]}
    with pytest.raises(ColumnError, match="too far apart"):
        ps.WindowJoin(within=10, **OPEN).run(left, right, on="key", time="ts")


@pytest.mark.parametrize("dtype", [np.int8, np.int32, np.uint8, np.uint32, np.uint64, np.float16, np.float32])
def test_narrow_types_at_their_limits(dtype: Any) -> None:
    limits = np.iinfo(dtype) if np.issubdtype(dtype, np.integer) else np.finfo(dtype)
    times = np.array([limits.min, 0, 3, limits.max], dtype)
    for operator in ("run", "tick", "many", "optimum", "plan"):
        for within, joins in WINDOWS.values():
            right = expected(times, times, joins)
            assert_right_or_refused(lambda op=operator, w=within: OPERATORS[op](w, times, times), right)


def test_large_floats() -> None:
    times = [-1.7e308, -(2.0**62), 0.0, 2.0**62, 1.7e308]
    for operator in ("run", "tick", "life", "many", "optimum"):
        for within, joins in WINDOWS.values():
            right = expected(times, times, joins)
            assert_right_or_refused(lambda op=operator, w=within: OPERATORS[op](w, times, times), right)


def test_whole_times_beside_fractions_are_not_rounded() -> None:
    left, right = [2**53, 2**53 + 1], [0.5, 2.0**53 + 2]
    for operator in ("run", "many", "optimum", "plan"):
        with pytest.raises(ColumnError, match="rounded"):
            OPERATORS[operator](1, left, right)
    with pytest.raises(ColumnError, match="rounded"):  # a period of 1.5 needs fractions too
        by_run(ps.Landmark(1.5), left, left)


def test_times_that_a_batch_would_round_or_wrap() -> None:
    whole = ps.WindowJoin(within=10, **OPEN).start()
    for time in (1.5, float("nan"), float("inf"), 2**63, 2**70, -(2**63) - 1, np.uint64(2**63), "1", None):
        with pytest.raises(PenstockError):
            whole.process([0], [1], [time], [0])
    floats = ps.WindowJoin(within=10, **OPEN).start(dtype=float)
    for time in (float("nan"), float("inf"), 2**53 + 1, "1", None):
        with pytest.raises(PenstockError):
            floats.process([0], [1], [time], [0])
    assert whole.process([0, 1], [1, 1], [3.0, 4.0], [0, 0]).counts.tolist() == [0, 1]
    assert floats.process([0, 1], [1, 1], [3, 4.5], [0, 0]).counts.tolist() == [0, 1]


@pytest.mark.parametrize(
    "within", [10**400, "9" * 400 + " days", "9" * 400 + ".5 ns"], ids=["n", "days", "ns"]
)
def test_windows_that_no_number_holds(within: Any) -> None:
    for times in ([0, 1], [0.0, 1.5]):
        with pytest.raises(WindowError):
            by_run(within, times, times)


@pytest.mark.parametrize("rows", [2**63, 10**400], ids=["2^63", "10^400"])
def test_windows_of_more_rows_than_can_be_counted(rows: int) -> None:
    with pytest.raises(WindowError):
        ps.Rows(rows)
    most = ps.Rows(2**62)
    for times in ([0, 1], [0.0, 1.5]):
        assert_right_or_refused(lambda times=times: by_run(most, times, times), 4)


def test_an_early_time_is_remembered_across_batches() -> None:
    """A batch is refused by what came before it, also after a restart, and then the state goes on."""
    state = ps.WindowJoin(within=10, **OPEN).start()
    state.process([0], [1], [-BIG], [0])
    for each in (state, ps.JoinState.restore(state.snapshot())):
        with pytest.raises(ColumnError, match="too far apart"):
            each.process([1], [1], [BIG], [0])
        assert each.process([1], [1], [5 - BIG], [0]).counts.tolist() == [1]
