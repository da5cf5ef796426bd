"""The frame of the experiments: the same tables wherever trials run, resumption, the report, the command."""

from __future__ import annotations

import dataclasses
import io
import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from typer.testing import CliRunner

from penstock.cli import app
from penstock.errors import PenstockError
from penstock.reproduction import EXPERIMENTS, Scope, Trial, figures_of, reproduce, write_report
from tests.reproduction import toy


def table(out: Path, figure: Any, **options: Any) -> pd.DataFrame:
    (outcome,) = reproduce({"queues": [figure]}, out, **options)
    assert outcome.png.read_bytes().startswith(b"\x89PNG")
    written = pd.read_csv(outcome.csv).drop(columns="log")
    pd.testing.assert_frame_equal(written, outcome.table.drop(columns="log"))
    return outcome.table


def test_in_this_process_and_in_others(tmp_path: Path) -> None:
    here = table(tmp_path / "a", toy.figure(), jobs=1)
    there = table(tmp_path / "b", toy.figure(), jobs=2)
    pd.testing.assert_frame_equal(here, there)
    assert here["n"].tolist() == [n for n in range(6) for _ in range(3)]


@pytest.mark.spark
def test_on_spark(tmp_path: Path, spark: Any) -> None:
    here = table(tmp_path / "a", toy.figure(), jobs=1)
    there = table(tmp_path / "b", toy.figure(), spark=spark)
    pd.testing.assert_frame_equal(here, there)


def test_a_run_goes_on_where_it_stopped(tmp_path: Path) -> None:
    log = tmp_path / "ran"
    with pytest.raises(RuntimeError, match="not yet"):
        reproduce({"queues": [toy.figure(log, failing=4)]}, tmp_path / "out", jobs=1)
    assert log.read_text().split() == ["0", "1", "2", "3", "4"]
    (tmp_path / "mended").touch()
    kept = tmp_path / "out" / "trials.jsonl"
    kept.write_bytes(kept.read_bytes()[:-10])  # the last line was being written
    told: list[tuple[int, int]] = []
    reproduce(
        {"queues": [toy.figure(log, failing=4)]},
        tmp_path / "out",
        jobs=1,
        progress=lambda done, total, label: told.append((done, total)),
    )
    assert log.read_text().split() == ["0", "1", "2", "3", "4", "3", "4", "5"]
    assert told == [(3, 6), (4, 6), (5, 6), (6, 6)]
    reproduce({"queues": [toy.figure(log, failing=4)]}, tmp_path / "out", jobs=1)
    assert len(log.read_text().split()) == 8


def test_nobody_waits_for_the_others_when_a_trial_fails(tmp_path: Path) -> None:
    trials = [Trial(toy.fails_or_lasts, {"fails": fails, "folder": str(tmp_path)}) for fails in (True, False)]
    with pytest.raises(RuntimeError, match="one has failed"):
        reproduce({"queues": [dataclasses.replace(toy.figure(), trials=trials)]}, tmp_path / "out", jobs=2)
    assert (tmp_path / "begun").exists()
    assert not (tmp_path / "over").exists()


def test_the_first_trial_of_a_policy_compiles_for_the_others(tmp_path: Path) -> None:
    trials = [
        Trial(toy.compiles, {"policy": policy, "n": n, "folder": str(tmp_path)})
        for n in range(4)
        for policy in ("lru:a=1", "gdj")
    ]
    found = table(tmp_path / "out", dataclasses.replace(toy.figure(), trials=trials), jobs=2)
    assert found["n"].tolist() == [0, 0, 1, 1, 2, 2, 3, 3]
    assert found["after"].all()


def test_the_report_stands_alone(tmp_path: Path) -> None:
    outcomes = reproduce({"queues": [toy.figure()]}, tmp_path, jobs=1)
    page = write_report(outcomes, tmp_path, Scope(quick=True)).read_text(encoding="utf-8")
    assert "A &lt;toy&gt;" in page
    assert page.count("data:image/png;base64,") == 1
    for outside in ("http://", "https://", "<script", "<link"):
        assert outside not in page
    for verdict in ("holds", "does not hold", "undecided"):
        assert f">{verdict}</td>" in page
    assert "| queues figure-1 | numbers are below 1 |" in (tmp_path / "summary.md").read_text()


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_trials_differ_and_a_quick_run_is_smaller(name: str) -> None:
    quick, full = (figures_of(name, Scope(quick=quick)) for quick in (True, False))
    assert [figure.name for figure in quick] == [figure.name for figure in full]
    assert len({figure.name for figure in quick}) == len(quick)
    for small, large in zip(quick, full, strict=True):
        assert len({trial.key for trial in small.trials}) == len(small.trials) <= len(large.trials)


def test_a_paper_that_is_not_there() -> None:
    with pytest.raises(PenstockError, match="did you mean 'clock'"):
        figures_of("clok", Scope())
    assert CliRunner().invoke(app, ["reproduce", "clok"]).exit_code == 2
    assert CliRunner().invoke(app, ["reproduce", "--data", "nowhere"]).exit_code == 2
    assert CliRunner().invoke(app, ["reproduce", "--out", __file__]).exit_code == 2


def test_one_figure_of_each_kind(tmp_path: Path) -> None:
    """Real figures, the cheapest ones: their trials, drawings and claims fit together."""
    scope = Scope(quick=True)
    chosen = {"clock": [figures_of("clock", scope)[0]], "gdj": [figures_of("gdj", scope)[1]]}
    outcomes = reproduce(chosen, tmp_path, jobs=1)
    assert [claim.holds for outcome in outcomes for claim in outcome.claims] == [True, True, True]
    assert outcomes[1].sources == ["generated trades"]


@pytest.mark.soak
def test_everything_quickly(tmp_path: Path) -> None:
    out = tmp_path / "out"
    result = CliRunner().invoke(app, ["reproduce", "all", "--quick", "--out", str(out), "--json", "-"])
    assert result.exit_code == 0, result.output
    claims = json.loads(result.stdout)
    assert {claim["paper"] for claim in claims} >= {"gdj", "clock", "queues", "neel"}
    assert (out / "report.html").exists()


def test_a_wide_table_is_shown_in_parts(tmp_path: Path) -> None:
    """No figure is cut, however narrow the terminal."""
    from rich.console import Console

    from penstock.cli.reproduce import _show

    figure = dataclasses.replace(toy.figure(), layout=("x", "n", "value"))
    outcomes = reproduce({"queues": [figure]}, tmp_path, jobs=1)
    shown = {}
    for width in (40, 200):
        out = Console(width=width, record=True, file=io.StringIO())
        _show(outcomes, out)
        shown[width] = out.export_text()
        for value in outcomes[0].table["value"]:
            assert f"{value:.3f}" in shown[width]
    assert "…" not in shown[40]
    assert len([line for line in shown[40].splitlines() if line.split()[:1] == ["x"]]) > 1
