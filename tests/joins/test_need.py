"""What the exact join needs: `Fraction`, what a plan says of it, and whether runs bear it out."""

from __future__ import annotations

import json
import math
import subprocess
import sys
import warnings
from typing import Any

import numpy as np
import pytest

import penstock as ps
from penstock.errors import ShortSampleWarning, UnitWarning

ON: dict[str, Any] = {"on": "key", "time": "ts"}


def stream(seed: int, arrivals: int, span: int, keys: int = 40, bursts: int = 1) -> dict[str, np.ndarray]:
    """Arrivals at random times over a span, in a given number of bursts if there is more than one."""
    random = np.random.default_rng(seed)
    times = random.integers(0, span, arrivals)
    if bursts > 1:
        period = span // bursts
        times = times // period * period + times % period // 8
    return {"key": random.integers(0, keys, arrivals), "ts": np.sort(times)}


def need(left: Any, right: Any, horizons: tuple[float, float], share: float = 1.0) -> int:
    span = max(left["ts"][-1], right["ts"][-1]) - min(left["ts"][0], right["ts"][0])
    total = len(left["ts"]) * horizons[0] + len(right["ts"]) * horizons[1]
    return math.floor(share * total / int(span))


@pytest.mark.interpreted
@pytest.mark.parametrize(
    ("within", "horizons"),
    [(300, (300, 300)), ((0, 300), (300, 0)), ((40, 300), (300, 40)), (ps.Landmark(250), (250, 250))],
)
def test_each_stream_needs_its_arrivals_times_its_own_horizon(within: Any, horizons: Any) -> None:
    left, right = stream(1, 900, 3_000), stream(2, 100, 3_000)
    plan = ps.plan(left, right, **ON, within=within, budgets=["100 %", "30 %"], policies=["fifo"])
    assert plan.need == need(left, right, horizons)
    assert [row.tuples for row in plan.rows] == [need(left, right, horizons, share) for share in (0.3, 1)]
    best = ps.optimal_join(left, right, **ON, within=within, budget=ps.Fraction(0.1))
    known = ps.optimal_join(
        left, right, **ON, within=within, budget=ps.Tuples(need(left, right, horizons, 0.1))
    )
    assert best.results == known.results


@pytest.mark.interpreted
def test_by_default_both_streams_share_one_pool_that_holds_what_a_one_sided_window_needs() -> None:
    left, right = stream(1, 900, 3_000), stream(2, 100, 3_000)
    plan = ps.plan(left, right, **ON, within=(0, 300), budgets=["100 %"], policies=["fifo", "age:k=300"])
    recall = {row.policy: row.recall for row in plan.rows}
    assert recall["fifo"] > 0.9
    assert recall["age:k=300"] > 0.8
    halves = ps.WindowJoin(within=(0, 300), budget=ps.Fraction(1.0), policy="fifo", allocation="equal")
    assert halves.run(left, right, **ON).stats.recall < 0.6


CHECK = """
import json, sys
import penstock as ps
within, rows, left, right = json.loads(sys.stdin.read())
within = tuple(within) if isinstance(within, list) else within
within = ps.Landmark(within["every"]) if isinstance(within, dict) else within
for policy, tuples in rows:
    join = ps.WindowJoin(within=within, budget=ps.Tuples(tuples), policy=policy)
    print(join.run(left, right, on="key", time="ts").stats.recall)
"""


@pytest.mark.parametrize(
    "within", [300, (0, 300), {"every": 250}], ids=["symmetric", "one-sided", "landmark"]
)
@pytest.mark.parametrize("bursts", [1, 6], ids=["steady", "bursty"])
def test_another_process_gets_the_recall_that_the_plan_shows(within: Any, bursts: int) -> None:
    left, right = stream(3, 900, 3_000, bursts=bursts), stream(4, 200, 3_000, bursts=bursts)
    window = ps.Landmark(within["every"]) if isinstance(within, dict) else within
    plan = ps.plan(left, right, **ON, within=window, budgets=["100 %"], policies=["fifo", "lru"])
    rows = [(row.policy, row.tuples) for row in plan.rows]
    tables = [{name: values.tolist() for name, values in side.items()} for side in (left, right)]
    given = json.dumps([within, rows, *tables])
    ran = subprocess.run(
        [sys.executable, "-c", CHECK], input=given, capture_output=True, text=True, timeout=300, check=True
    )
    assert [float(line) for line in ran.stdout.split()] == [row.recall for row in plan.rows]
    if bursts == 1:
        assert all(row.recall > 0.9 for row in plan.rows)


NOW = 1_700_000_000  # in seconds
PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}


def epoch(unit: str) -> dict[str, Any]:
    return {"key": [1, 2, 3] * 20, "ts": [(NOW + n) * PER_SECOND[unit] for n in range(60)]}


def said(call: Any) -> list[warnings.WarningMessage]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        call()
    return [one for one in caught if issubclass(one.category, UnitWarning)]


JOIN = ps.WindowJoin(within="10 s", budget=ps.Tuples(8), policy="fifo")


@pytest.mark.interpreted
@pytest.mark.parametrize(
    ("times", "unit", "hint"),
    [
        ("s", "ms", 'unit="s"'),
        ("us", "ms", 'unit="us"'),
        ("ns", "ms", 'unit="ns"'),
        ("ms", "s", 'unit="ms"'),
        ("us", "s", 'unit="us"'),
        ("ns", "s", 'unit="ns"'),
        ("ns", "us", 'unit="ns"'),
        ("s", "min", 'unit="s"'),
    ],
)
def test_times_that_look_like_another_unit_are_told_once(times: str, unit: str, hint: str) -> None:
    data = epoch(times)
    calls = [
        lambda: JOIN.run(data, data, **ON, unit=unit),
        lambda: ps.optimal_join(data, data, **ON, within="10 s", budget=ps.Tuples(8), unit=unit),
        lambda: ps.join_many(
            {"a": data, "b": data}, **ON, within="10 s", budget=ps.Tuples(8), policy="fifo", unit=unit
        ),
        lambda: ps.plan(
            data, data, **ON, within="10 s", budgets=["8 tuples"], policies=["fifo", "lru"], unit=unit
        ),
    ]
    for call in calls:
        [warning] = said(call)
        assert hint in str(warning.message)
        assert "2023" in str(warning.message)
        assert warning.filename == __file__


@pytest.mark.interpreted
@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_no_false_alarm(unit: str) -> None:
    right = epoch(unit)
    assert not said(lambda: JOIN.run(right, right, **ON, unit=unit))
    stamps = {"key": right["key"], "ts": np.array([NOW] * 60, "datetime64[s]") + np.arange(60)}
    assert not said(lambda: JOIN.run(stamps, stamps, **ON))
    early = {"key": right["key"], "ts": np.array(right["ts"]) // PER_SECOND[unit]}
    early["ts"] = early["ts"].astype("datetime64[ms]")  # in January 1970
    assert not said(lambda: JOIN.run(early, early, **ON))
    # A counter, and a window in the unit of the column.
    small = {"key": [1, 2], "ts": [5, 90_000_000]}
    assert not said(lambda: JOIN.run(small, small, **ON, unit=unit))
    data = epoch("s")
    for within in (10, (0, 10), ("0 s", 10), ps.Rows(3)):
        join = ps.WindowJoin(within=within, budget=ps.Tuples(8), policy="fifo")
        assert not said(lambda join=join: join.run(data, data, **ON))
    empty: dict[str, Any] = {"key": [], "ts": []}
    assert not said(lambda: JOIN.run(empty, empty, **ON, unit=unit))


@pytest.mark.interpreted
def test_a_plan_says_when_the_sample_is_shorter_than_the_window() -> None:
    data = {"key": [1, 2, 3, 1], "ts": [0, 1, 2, 3]}
    with pytest.warns(ShortSampleWarning, match="24 tuples.*8 rows") as caught:
        plan = ps.plan(data, data, **ON, within=9, budgets=["4 tuples"], policies=["fifo"])
    assert plan.need == 24
    [warning] = [one for one in caught if one.category is ShortSampleWarning]
    assert warning.filename == __file__
    assert plan.warnings == (str(warning.message),)


@pytest.mark.interpreted
def test_a_plan_says_which_unit_it_assumed() -> None:
    data = epoch("s")
    plan = ps.plan(data, data, **ON, within="10 s", budgets=["8 tuples"], policies=["fifo"], unit="seconds")
    assert (plan.unit, plan.warnings, plan.rows[0].unit) == ("s", (), "s")
    assert plan.need == math.floor(120 * 10 / 59)
