"""The plan: its rows are runs, its answer is verified, bad input is refused before any work."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

import penstock as ps
from penstock.errors import BudgetError, ColumnError, ShortSampleWarning, UnknownPolicyError, WindowError
from penstock.workloads import gdj_pair
from tests.joins.agreement import online

LEFT, RIGHT = gdj_pair(keys=10, rate=0.1, duration=600, seed=3)
ON = {"on": "key", "time": "ts", "within": 120}
pytestmark = pytest.mark.interpreted


def recall(policy: str, tuples: int) -> float:
    join = ps.WindowJoin(within=120, budget=ps.Tuples(tuples), policy=policy)
    return join.run(LEFT, RIGHT, on="key", time="ts").stats.recall


def test_rows_equal_separate_runs() -> None:
    budgets = [ps.Tuples(6), ps.Fraction(0.5), ps.Bytes("16 KiB")]
    plan = ps.plan(LEFT, RIGHT, **ON, budgets=budgets, policies=["fifo", "rand"], seed=5)
    assert len(plan.rows) == 6
    for row in plan.rows:
        budget = ps.Bytes(row.bytes) if row.tuples is None else ps.Tuples(row.tuples)
        join = ps.WindowJoin(within=120, budget=budget, policy=row.policy, seed=5)
        stats = join.run(LEFT, RIGHT, on="key", time="ts").stats
        assert (row.results, row.exact, row.recall) == (stats.results, stats.exact, stats.recall)
        assert (row.peak_tuples, row.peak_bytes) == (stats.peak_tuples, stats.peak_bytes)


def test_table_has_policies_down_and_rising_budgets_across() -> None:
    plan = ps.plan(LEFT, RIGHT, **ON, budgets=["50 %", "2 tuples"], policies=["lru", "fifo"])
    assert list(plan.table.index) == ["lru", "fifo"]
    assert list(plan.table.columns) == ["2 tuples", "50 %"]
    assert plan.table.loc["fifo", "2 tuples"] == recall("fifo", 2)


@pytest.mark.parametrize("target", [0.3, 0.6, 0.9, 1.0])
def test_answer_is_the_smallest_budget(target: float) -> None:
    names = ["fifo", "lru"]
    plan = ps.plan(
        LEFT, RIGHT, **ON, budgets=[f"{n} tuples" for n in (5, 20, 60)], policies=names, target=target
    )
    reached = [n for n in range(2, 61) if max(recall(name, n) for name in names) >= target]
    assert plan.answer is not None
    assert plan.answer.tuples == reached[0]
    assert plan.answer.recall == recall(plan.answer.policy, reached[0]) >= target


def test_answer_in_bytes_is_verified_and_tight() -> None:
    plan = ps.plan(LEFT, RIGHT, **ON, budgets=["2 KiB", "32 KiB"], policies=["fifo"], target=0.6)
    answer = plan.answer
    assert answer is not None
    assert answer.bytes is not None
    assert 2048 < answer.bytes < 32768
    join = ps.WindowJoin(within=120, budget=ps.Bytes(answer.bytes), policy="fifo")
    assert join.run(LEFT, RIGHT, on="key", time="ts").stats.recall == answer.recall >= 0.6
    assert answer.peak_bytes <= answer.bytes


def test_no_answer_if_nothing_reaches_the_target() -> None:
    assert ps.plan(LEFT, RIGHT, **ON, budgets=["2 tuples"], policies=["fifo"], target=0.99).answer is None


def test_default_policies_come_from_the_registry() -> None:
    @ps.policies.register
    class Oracle(ps.policies.PythonPolicy):
        name = "oracle"
        needs_future = True

    try:
        with pytest.warns(ShortSampleWarning):
            plan = ps.plan(LEFT[:4], RIGHT[:4], **ON, budgets=["2 tuples"])
    finally:
        ps.policies.unregister("oracle")
    assert {row.policy for row in plan.rows} == set(online())
    assert plan.skipped["oracle"] == plan.skipped["opt"] == "needs to know the future"
    assert plan.skipped["flowexpect"] == "needs a model of the streams"


def test_the_optimum_is_the_top_line() -> None:
    plan = ps.plan(
        LEFT,
        RIGHT,
        **ON,
        budgets=["10 tuples", "40 tuples", "1 MiB"],
        policies=["fifo", "gdj", "opt"],
        target=0.5,
    )
    assert plan.table.index.tolist() == ["opt", "fifo", "gdj"]
    in_tuples = plan.table[["10 tuples", "40 tuples"]]
    assert (in_tuples.loc["opt"] >= in_tuples.max()).all()
    assert "needs a budget in tuples" in plan.skipped["opt in 1 MiB"]
    assert plan.answer is not None
    assert plan.answer.policy != "opt"  # nobody can run it on a stream
    assert [row.policy for row in plan.rows if row.bound] == ["opt", "opt"]
    assert plan.plot().axes[0].get_legend() is not None


def test_the_optimum_is_left_out_of_large_joins(monkeypatch: pytest.MonkeyPatch) -> None:
    # The module by its name in full: in the package it shares its name with the function.
    monkeypatch.setattr(sys.modules["penstock.joins.plan"], "MOST_MATCHES", 100)
    plan = ps.plan(LEFT, RIGHT, **ON, budgets=["10 tuples"], policies=["fifo", "opt"])
    assert [row.policy for row in plan.rows] == ["fifo"]
    assert "up to 100" in plan.skipped["opt"]
    with pytest.raises(UnknownPolicyError, match="No policy can run"):
        ps.plan(LEFT, RIGHT, **ON, budgets=["10 tuples"], policies=["opt"])


def test_a_policy_that_cannot_share_a_pool_is_skipped() -> None:
    plan = ps.plan(LEFT, RIGHT, **ON, budgets=["6 tuples"], policies=["fifo", "age"], allocation="unified")
    assert [row.policy for row in plan.rows] == ["fifo"]
    assert "one pool" in plan.skipped["age"]
    with pytest.raises(UnknownPolicyError, match="one pool"):
        ps.plan(LEFT, RIGHT, **ON, budgets=["6 tuples"], policies=["age"], allocation="unified")


def test_default_budgets_too_small_for_the_input_are_left_out() -> None:
    with pytest.warns(ShortSampleWarning):
        plan = ps.plan(LEFT[:6], RIGHT[:6], **ON, policies=["fifo"])
    assert plan.rows
    assert all(row.tuples >= 2 for row in plan.rows)


def test_json_and_plot(tmp_path: Path) -> None:
    plan = ps.plan(
        LEFT, RIGHT, **ON, budgets=["6 tuples", "20 %", "16 KiB"], policies=["fifo", "lru"], target=0.4
    )
    plan.to_json(tmp_path / "plan.json")
    rows = json.loads((tmp_path / "plan.json").read_text())
    assert [row["policy"] for row in rows] == [row.policy for row in plan.rows]
    assert {"policy", "budget", "results", "exact", "recall"} <= set(rows[0])
    figure = plan.plot(tmp_path / "plan.png")
    assert (tmp_path / "plan.png").read_bytes().startswith(b"\x89PNG")
    assert len(figure.axes) == 2  # tuples and bytes
    with pytest.raises(ps.PenstockError, match="cannot be written"):
        plan.plot(tmp_path / "plan.abc")


def test_progress_knows_the_total() -> None:
    calls: list[tuple[int, int, str]] = []
    budgets = ["4 tuples", "20 tuples"]
    ps.plan(LEFT, RIGHT, **ON, budgets=budgets, policies=["fifo"], progress=lambda *call: calls.append(call))
    assert calls == [(0, 2, "fifo, 4 tuples"), (1, 2, "fifo, 20 tuples"), (2, 2, "done")]


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"policies": ["gjd"]}, UnknownPolicyError, "did you mean 'gdj'"),
        ({"policies": []}, UnknownPolicyError, "No policy"),
        ({"budgets": []}, BudgetError, "No budget"),
        ({"budgets": ["plenty"]}, BudgetError, "plenty"),
        ({"budgets": ["1 tuple"]}, BudgetError, "at least"),
        ({"budgets": ["10 bytes"]}, BudgetError, "at least"),
        ({"within": -1}, WindowError, "not negative"),
        ({"on": "kay"}, ColumnError, "did you mean 'key'"),
        ({"target": 95}, ps.PenstockError, "target=95"),
        ({"allocation": "equl"}, ps.PenstockError, "did you mean 'equal'"),
        ({"step": "tock"}, ps.PenstockError, "step='tock'"),
        ({"seed": -1}, ps.PenstockError, "seed=-1"),
        ({"progress": 3}, ps.PenstockError, "progress=3"),
    ],
)
def test_bad_input_is_refused_before_any_run(changes, error, message) -> None:
    calls: list[object] = []
    arguments = {**ON, "policies": ["fifo"], "progress": lambda *call: calls.append(call), **changes}
    with pytest.raises(error, match=message):
        ps.plan(LEFT, RIGHT, **arguments)
    assert calls == []
