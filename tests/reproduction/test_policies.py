"""The comparison of all policies: its streams, its table, and the command."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest
from typer.testing import CliRunner

import penstock as ps
from penstock.cli import app
from penstock.errors import PenstockError
from penstock.joins import arrivals_of
from penstock.reproduction import policies
from penstock.reproduction.generated import periodic, popularity, regimes, sessions
from penstock.reproduction.streams import missing, streams
from tests.data import DATA, real


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two policies and one of those to be measured, on two streams."""
    monkeypatch.setattr(policies, "fixed", lambda: ["fifo", "prob"])
    monkeypatch.setattr(policies, "CHOSEN", ("learned",))
    monkeypatch.setattr(policies, "available", lambda data: ["zipf", "tower"])


def test_generated_streams_are_there_without_data() -> None:
    found = {stream.name: stream for stream in streams(quick=True)}
    assert {"zipf", "walk", "bursts", "gdj", "regimes"} <= set(found)
    assert not set(found) & set(missing())
    assert {stream.kind for stream in found.values()} == {"tuned", "seen", "apart"}
    for stream in found.values():
        assert stream.arrivals > 0
        assert 0 < stream.warmup <= stream.arrivals // 2


def test_keys_of_generated_streams_come_as_told() -> None:
    for side in periodic(quick=False):
        gaps = side.groupby("key")["ts"].diff().dropna().groupby(side["key"])
        often = gaps.count() >= 5
        assert ((gaps.std() / gaps.mean())[often] < 0.15).all()
        assert gaps.mean()[often].max() > 20 * gaps.mean()[often].min()
    for side in sessions(quick=False):
        life = side.groupby("key")["ts"].agg(["min", "max"])
        assert (life["max"] - life["min"]).median() < 2_000 < side["ts"].max() / 20
    both = pd.concat(popularity(quick=False))
    early, late = (both["key"][mine].value_counts() for mine in (both["ts"] < 10_000, both["ts"] > 70_000))
    near = both["key"][(both["ts"] > 10_000) & (both["ts"] < 20_000)].value_counts()
    assert early.corr(near) > 0.4 > 0.2 > abs(early.corr(late))


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
def test_the_table_has_every_policy_and_the_optimum_where_it_can_be_found(tmp_path: Path) -> None:
    result = CliRunner().invoke(
        app, ["reproduce", "policies", "--quick", "--jobs", "1", "--out", str(tmp_path)]
    )
    assert result.exit_code == 0, result.output
    (written,) = tmp_path.rglob("*recall.csv")
    table = pd.read_csv(written)
    assert set(table["policy"]) == {"fifo", "prob", "learned", "opt"}
    assert set(table["budget"]) == set(policies.BUDGETS)
    opt = table[table["policy"] == "opt"].set_index(["stream", "budget"])["recall"]
    assert 0 < len(opt) <= 6
    for row in table.itertuples():
        if (row.stream, row.budget) in opt.index:
            assert row.recall <= opt[row.stream, row.budget] + 1e-9
    judged = policies.judge_cells(table)
    assert [claim.paper.split(":")[0] for claim in judged] == ["learned"] * 2 + [
        "no policy exceeds the optimum"
    ]
    assert judged[-1].holds
    (written,) = tmp_path.rglob("*regimes.csv")
    assert set(pd.read_csv(written)["part"]) == {"zipf", "walk", "bursts"}
    assert len(list(tmp_path.rglob("*.png"))) == 2


def test_streams_held_apart_are_judged_with_the_others_and_shown_apart() -> None:
    cells = [("a", "seen", 1.0), ("b", "tuned", 0.99), ("c", "apart", 0.7)]
    rows = [
        {"stream": stream, "kind": kind, "real": False, "budget": 0.2, "policy": policy, "recall": recall}
        for stream, kind, ratio in cells
        for policy, recall in (("lru", 0.5), ("learned", 0.5 * ratio))
    ]
    claim = policies.judge_cells(pd.DataFrame(rows))[0]
    assert claim.holds is False
    assert "known before 2 of 2, mean 0.995, the least 0.990 (b, 20%)" in claim.measured
    assert "held apart 0 of 1, mean 0.700, the least 0.700 (c, 20%)" in claim.measured
    assert policies.judge_cells(pd.DataFrame(rows[:4]))[0].holds


def test_the_course_of_a_policy_is_that_of_a_run() -> None:
    """Window by window as on a stream of the same keys, of which `learned` sees how near they are."""
    part, within = 2_000, 500
    left, right = regimes(part)
    both = pd.concat([left.assign(stream=0), right.assign(stream=1)]).sort_values("ts", kind="stable")
    join = ps.WindowJoin(within, ps.Fraction(0.2), policy="learned", allocation="equal")
    tuples = sum(join.configure(arrivals_of(left, right, "key", "ts")).capacities)
    exact = ps.WindowJoin(within, ps.Tuples(len(both)), policy="fifo").start()
    whole = exact.process(both["stream"], both["key"], both["ts"], both["ts"]).counts.reshape(-1, within)
    course = [row["recall"] for row in policies.windows("learned", part, within)]
    for numeric, same in ((True, True), (False, False)):
        state = ps.WindowJoin(within, ps.Tuples(tuples), policy="learned", allocation="equal").start(
            numeric=numeric
        )
        found = state.process(both["stream"], both["key"], both["ts"], both["ts"]).counts.reshape(-1, within)
        assert (course == (found.sum(axis=1) / whole.sum(axis=1)).tolist()) is same


def test_an_unknown_experiment_is_refused() -> None:
    result = CliRunner().invoke(app, ["reproduce", "polices"])
    assert result.exit_code == 2
