"""The comparison of all policies: its streams, its table, and the command."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest
from typer.testing import CliRunner

from penstock.cli import app
from penstock.errors import PenstockError
from penstock.experiments import Options, policies
from penstock.experiments.streams import missing, streams
from tests.data import DATA, real


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two policies and one of those to be measured, on two streams."""
    monkeypatch.setattr(policies, "fixed", lambda: ["fifo", "prob"])
    monkeypatch.setattr(policies, "CHOSEN", ("learned",))
    monkeypatch.setattr(
        policies, "streams", lambda data, quick: streams(data, names=["zipf", "tower"], quick=quick)
    )
    monkeypatch.setattr(policies, "_RUNS", {})


def test_generated_streams_are_there_without_data() -> None:
    found = {stream.name: stream for stream in streams(quick=True)}
    assert {"zipf", "walk", "bursts", "gdj", "regimes"} <= set(found)
    assert not set(found) & set(missing())
    assert {stream.tuned for stream in found.values()} == {True, False}
    for stream in found.values():
        assert stream.arrivals > 0
        assert 0 < stream.warmup <= stream.arrivals // 2


def test_real_streams_are_there_with_data() -> None:
    real("stock_trades.parquet")
    names = [name for name in missing() if name not in missing(DATA)]
    for stream in streams(DATA, names=names, quick=True):
        assert stream.real
        assert stream.left["ts"].is_monotonic_increasing
        assert stream.right["ts"].is_monotonic_increasing


def test_unknown_streams_and_folders_are_refused(tmp_path: Path) -> None:
    with pytest.raises(PenstockError, match="zipfy"):
        streams(names=["zipfy"])
    with pytest.raises(PenstockError, match="directory"):
        streams(tmp_path / "nowhere")


@pytest.mark.usefixtures("few")
def test_the_table_has_every_policy_and_the_optimum_where_it_can_be_found() -> None:
    table = policies.recall(Options(quick=True))
    assert set(table["policy"]) == {"fifo", "prob", "learned", "opt"}
    opt = table[table["policy"] == "opt"].set_index(["stream", "budget"])["recall"]
    for row in table.itertuples():
        if (row.stream, row.budget) in opt.index:
            assert row.recall <= opt[row.stream, row.budget] + 1e-9
    bars = policies.bars(Options(quick=True))
    assert set(bars["what"]) >= {"least", "share at 0.98"}
    assert bars["value"].notna().all()


@pytest.mark.usefixtures("few")
def test_the_command(tmp_path: Path) -> None:
    result = CliRunner().invoke(
        app,
        ["reproduce", "policies", "--quick", "--only", "regimes", "--jobs", "1", "--out", str(tmp_path)],
    )
    assert result.exit_code == 0, result.output
    (written,) = tmp_path.rglob("*regimes.csv")
    table = pd.read_csv(written)
    assert set(table["part"]) == {"zipf", "walk", "bursts"}
    policies.plot_regimes(table, tmp_path / "regimes.png")
    assert (tmp_path / "regimes.png").stat().st_size > 1_000


def test_an_unknown_experiment_is_refused() -> None:
    result = CliRunner().invoke(app, ["reproduce", "polices"])
    assert result.exit_code == 2
