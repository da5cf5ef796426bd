"""The commands that run on Spark, as processes of their own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd


def run(*arguments: object, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run the command line; its output."""
    command = [sys.executable, "-m", "penstock.cli", *map(str, arguments)]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=800, check=False)


def test_demo_ends_with_the_exact_join(tmp_path: Path) -> None:
    result = run("demo", "--quick", cwd=tmp_path)
    assert result.returncode == 0, result.stdout + result.stderr
    assert "which is the exact join" in " ".join(result.stdout.split())
    assert (tmp_path / "demo.png").stat().st_size > 10_000


def test_join_and_reconcile_files(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    frames = {}
    for side in ("left", "right"):
        frames[side] = pd.DataFrame(
            {"k": rng.integers(0, 30, 400), "ts": np.sort(rng.integers(0, 4_000, 400)), side: range(400)}
        )
        frames[side].to_csv(tmp_path / f"{side}.csv", index=False)
    common = ["left.csv", "right.csv", "--on", "k", "--time", "ts", "--within", "100"]
    joined = run("join", *common, "--budget", "12 tuples", "--out", "hits", "--archive", "lost", cwd=tmp_path)
    assert joined.returncode == 0, joined.stdout + joined.stderr
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


def test_errors_are_one_line(tmp_path: Path) -> None:
    result = run(
        "join", "a.csv", "b.csv", "--on", "k", "--time", "t", "--within", "1 s", "--budget", "9 tuples",
        "--out", "out", cwd=tmp_path,
    )  # fmt: skip
    assert result.returncode == 2
    assert result.stderr.splitlines()[-1] == "error: There is no 'a.csv'."
