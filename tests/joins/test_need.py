"""What the exact join needs: `Fraction`, what a plan says of it, and whether runs bear it out."""

from __future__ import annotations

import json
import math
import subprocess
import sys
import warnings
from typing import Any

import numpy as np
import pandas as pd
import pytest

import penstock as ps
from penstock.errors import ShortSampleWarning, UnitWarning
from penstock.joins import start_many

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
@pytest.mark.parametrize("lateness", [None, "1 s"])
def test_batches_that_look_like_another_unit_are_told_once(lateness: str | None) -> None:
    def feed(state: Any, scale: int = 1) -> None:
        state.process([], [], [], [])
        for n in range(3):
            state.process([0, 1], [5, 5], [scale * (NOW + n)] * 2, [n, n])

    many: dict[str, Any] = {"within": "10 s", "budget": "8 tuples", "policy": "fifo"}
    for call in (
        lambda: feed(JOIN.start(lateness=lateness)),
        lambda: feed(start_many(2, [(0, 1)], **many)),
    ):
        [warning] = said(call)
        assert 'unit="s"' in str(warning.message)
        assert warning.filename == __file__
    assert not said(lambda: feed(JOIN.start(lateness=lateness), 1_000))
    assert not said(lambda: feed(JOIN.start(lateness=lateness, unit="s")))
    assert not said(lambda: feed(start_many(2, [(0, 1)], **many, unit="s")))
    bare = ps.WindowJoin(within=10, budget=ps.Tuples(8), policy="fifo")
    assert not said(lambda: feed(bare.start(lateness=lateness)))


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


WINDOWS: list[Any] = [300, (0, 300), (40, 300), (7, 5_000), 0, ps.Rows(20), ps.Landmark(250), 0.5]


@pytest.mark.interpreted
@pytest.mark.filterwarnings("ignore::penstock.errors.ShortSampleWarning")
@pytest.mark.parametrize("within", WINDOWS, ids=str)
@pytest.mark.parametrize("bursts", [1, 6], ids=["steady", "bursty"])
def test_the_peak_need_is_what_an_unlimited_join_keeps(within: Any, bursts: int) -> None:
    left, right = stream(5, 300, 3_000, bursts=bursts), stream(6, 80, 3_000, bursts=bursts)
    if within == 0.5:
        left, right = ({**side, "ts": side["ts"] / 97} for side in (left, right))
    free = ps.WindowJoin(within=within, budget=ps.Tuples(1_000), policy="fifo").run(left, right, **ON).stats
    plan = ps.plan(
        left, right, **ON, within=within, budgets=[ps.Tuples(max(2, free.peak_tuples))], policies=["fifo"]
    )
    assert plan.peak_need == plan.rows[0].peak_need == free.peak_tuples
    assert plan.rows[0].need == plan.need
    assert plan.rows[0].recall == 1
    if free.peak_tuples > 2:
        less = ps.Tuples(free.peak_tuples - 1)
        short = ps.WindowJoin(within=within, budget=less, policy="fifo").run(left, right, **ON).stats
        assert short.peak_tuples == less.n


@pytest.mark.interpreted
@pytest.mark.parametrize(("arrivals", "bursts"), [(60, 1), (900, 6)], ids=["under 20 tuples", "bursty"])
def test_a_plan_says_when_its_need_is_not_enough(arrivals: int, bursts: int) -> None:
    left, right = (stream(seed, arrivals, 3_000, keys=4, bursts=bursts) for seed in (7, 8))
    plan = ps.plan(left, right, **ON, within=300, budgets=["50 %", "100 %"], policies=["fifo", "lru"])
    best = max(row.recall for row in plan.rows)
    assert best < 0.97
    [note] = plan.notes
    assert note.startswith("100 % of the need is not enough for all results")
    for figure in (f"{plan.need:,} tuples", f"up to {plan.peak_need:,}", f"{100 * best:.1f} %"):
        assert figure in note


@pytest.mark.interpreted
def test_a_plan_is_silent_where_the_need_is_enough() -> None:
    even = {"key": [1, 2] * 50, "ts": list(range(100))}
    plan = ps.plan(even, even, **ON, within=ps.Rows(5), budgets=["100 %"], policies=["fifo", "age:k=5"])
    assert (plan.need, plan.peak_need, plan.notes) == (10, 10, ())


@pytest.mark.interpreted
def test_a_plan_says_why_age_is_far_below_others() -> None:
    """A one-sided window needs left tuples only, and the part of the right stream is reserved for nothing."""
    left, right = stream(1, 450, 3_000), stream(2, 450, 3_000)
    options: dict[str, Any] = {"budgets": ["100 %"], "policies": ["fifo", "age:k=300"]}
    plan = ps.plan(left, right, **ON, within=(0, 300), **options)
    recall = {row.policy: row.recall for row in plan.rows}
    assert recall["fifo"] - recall["age:k=300"] > 0.1
    [note] = [note for note in plan.notes if note.startswith("age")]
    assert "because of its allocation" in note
    assert "'proportional'" in note
    halves = ps.plan(left, right, **ON, within=(0, 300), allocation="proportional", **options)
    divided = next(row.recall for row in halves.rows if row.policy == "fifo")
    assert f"fifo reaches {100 * divided:.1f} %" in note
    assert not [note for note in halves.notes if note.startswith("age")]


STAMPED = {"key": [1, 2, 3] * 20, "ts": pd.to_datetime([NOW + n for n in range(60)], unit="s")}


@pytest.mark.interpreted
@pytest.mark.parametrize("within", [10, (0, 10), 86_400])
def test_a_bare_number_on_timestamps_is_told(within: Any) -> None:
    given = max(within) if isinstance(within, tuple) else within
    join = ps.WindowJoin(within=within, budget=ps.Tuples(8), policy="fifo")
    (warning,) = said(lambda: join.run(STAMPED, STAMPED, on="key", time="ts"))
    for part in (f"within={given:g} is {given:g} ", "seconds. Give a duration", f"'{given:g} minutes'"):
        assert part in str(warning.message)
    plan: list[Any] = []
    common = {"on": "key", "time": "ts", "within": within, "budgets": ["8 tuples"], "policies": ["fifo"]}
    assert len(said(lambda: plan.append(ps.plan(STAMPED, STAMPED, **common)))) == 1
    assert plan[0].warnings == (str(warning.message),)


@pytest.mark.interpreted
@pytest.mark.parametrize("within", ["10 s", ("0 s", "10 ns"), 0, 5 * 10**9, ps.Rows(10)])
def test_other_windows_on_timestamps_are_not(within: Any) -> None:
    join = ps.WindowJoin(within=within, budget=ps.Tuples(8), policy="fifo")
    assert said(lambda: join.run(STAMPED, STAMPED, on="key", time="ts")) == []
