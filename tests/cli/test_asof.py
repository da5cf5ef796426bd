"""`penstock asof`: answers in a folder, figures as JSON, and errors before Spark starts."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from penstock.cli import app


@pytest.mark.spark
@pytest.mark.slow
def test_files(spark: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    random = np.random.default_rng(0)
    left, right = (
        pd.DataFrame(
            {"k": random.integers(0, 9, 200), "ts": np.sort(random.integers(0, 999, 200)), side: range(200)}
        )
        for side in ("l", "r")
    )
    left.to_parquet("left.parquet")
    right.to_parquet("right.parquet")
    options = ["--on", "k", "--time", "ts", "--tolerance", "20", "--direction", "nearest", "--json", "-"]
    for budget, all_decided in (("1000 tuples", True), ("6 tuples", False)):
        out = ["--budget", budget, "--policy", "lru", "--out", f"out-{budget[0]}", "--archive", "lost"]
        done = CliRunner().invoke(app, ["asof", "left.parquet", "right.parquet", *options, *out])
        assert done.exit_code == 0, done.output
        figures = json.loads(done.stdout)
        rows = pd.read_parquet(f"out-{budget[0]}")
        assert figures["results"] + figures["unmatched"] == len(rows)
        assert figures["undecided"] == 200 - len(rows)
        assert (figures["undecided"] == 0) == all_decided
        expected = pd.merge_asof(
            left,
            right.rename(columns={"ts": "ts_right"}),
            left_on="ts",
            right_on="ts_right",
            by="k",
            tolerance=20,
            direction="nearest",
        )
        wanted = dict(zip(expected["l"], expected["ts_right"].fillna(-1), strict=True))
        assert all(wanted[row] == at for row, at in zip(rows["l"], rows["ts_right"].fillna(-1), strict=True))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--direction", "sideways"], "direction='sideways' is not known"),
        (["--tolerance", "soon"], "is not a duration"),
        (["--policy", "age"], "cannot run an as-of join"),
    ],
)
def test_what_cannot_work_is_refused(options: list[str], message: str, tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("k,ts\n1,2\n")
    common = ["asof", str(path), str(path), "--on", "k", "--time", "ts", "--budget", "9", "--out", "out"]
    done = CliRunner().invoke(app, [*common, *options])
    assert done.exit_code == 2
    assert message in " ".join(done.output.split())
