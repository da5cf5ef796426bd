"""The commands that run on Spark, as processes of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest


def run(*arguments: object, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run the command line; its output."""
    command = [sys.executable, "-m", "penstock.cli", *map(str, arguments)]
    given = os.environ | {"PENSTOCK_TIER": ""}  # as users have it
    return subprocess.run(
        command, cwd=cwd, env=given, capture_output=True, text=True, timeout=800, check=False
    )


def test_demo_ends_with_the_exact_join(tmp_path: Path) -> None:
    result = run("demo", "--quick", cwd=tmp_path)
    assert result.returncode == 0, result.stdout + result.stderr
    assert "the same as the exact join" in " ".join(result.stdout.split())
    assert (tmp_path / "demo.png").stat().st_size > 10_000


def test_join_and_reconcile_files(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    frames = {}
    for side in ("left", "right"):
        times = 1_700_000_000 + np.sort(rng.integers(0, 4_000, 400))
        frames[side] = pd.DataFrame({"k": rng.integers(0, 30, 400), "ts": times, side: range(400)})
        frames[side].to_csv(tmp_path / f"{side}.csv", index=False)
    common = ["left.csv", "right.csv", "--on", "k", "--time", "ts", "--within", "100 ms"]
    budget = ["--budget", "12 tuples", "--policy", "lru"]
    joined = run("join", *common, *budget, "--out", "hits", "--archive", "lost", "--json", "-", cwd=tmp_path)
    assert joined.returncode == 0, joined.stdout + joined.stderr
    assert 'give unit="s"' in " ".join(joined.stderr.split())  # such times look like seconds since 1970
    figures = json.loads(joined.stdout)
    assert figures["results"] == len(pd.read_parquet(tmp_path / "hits"))
    assert 0 < figures["recall"] < 1
    assert not figures["recall_at_most"]
    missed = run(
        "reconcile", *common, "--results", "hits", "--archive", "lost", "--out", "rest", cwd=tmp_path
    )
    assert missed.returncode == 0, missed.stdout + missed.stderr
    columns = ["k", "ts_left", "left", "ts_right", "right"]
    got = pd.concat([pd.read_parquet(tmp_path / name)[columns] for name in ("hits", "rest")])
    exact = frames["left"].merge(frames["right"], on="k", suffixes=("_left", "_right"))
    exact = exact[(exact["ts_left"] - exact["ts_right"]).abs() <= 100][columns]
    assert len(pd.read_parquet(tmp_path / "rest")) > 0
    assert sorted(map(tuple, got.to_numpy().tolist())) == sorted(map(tuple, exact.to_numpy().tolist()))


@pytest.mark.parametrize(
    ("changes", "code", "said"),
    [
        ({"left": "b.csv"}, 2, "error: There is no 'b.csv'."),
        ({"--within": "soon"}, 2, "is not a duration"),
        ({"--budget": "much"}, 2, "is not a size"),
        ({"--unit": "moon"}, 2, "is not a unit of time"),
        ({"--policy": "gjd"}, 2, "did you mean 'gdj'"),
        ({"--on": "z"}, 2, "no column 'z'"),
        ({"left": "junk.parquet"}, 1, "Spark's log: "),
    ],
)
def test_errors_are_one_line(tmp_path: Path, changes: dict[str, str], code: int, said: str) -> None:
    (tmp_path / "a.csv").write_text("k,t\n1,2\n")
    (tmp_path / "junk.parquet").write_bytes(bytes(range(256)))
    asked = {"left": "a.csv", "--on": "k", "--time": "t", "--within": "1 s", "--budget": "9 tuples"} | changes
    left = asked.pop("left")
    options = [word for pair in asked.items() for word in pair]
    result = run("join", left, "a.csv", *options, "--out", "out", cwd=tmp_path)
    assert (result.returncode, result.stderr.count("\n")) == (code, 1), result.stderr
    assert result.stderr.splitlines()[-1].startswith("error: ")
    assert said in result.stderr
