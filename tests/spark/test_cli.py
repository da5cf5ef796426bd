"""The commands that run on Spark, as processes of their own."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
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


def processes_of(folder: Path) -> list[str]:
    """The command lines of processes that were given this folder."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            words = entry.read_bytes().replace(b"\0", b" ").decode(errors="replace")
            found += [words] if str(folder) in words else []
    return found


def test_demo_ends_with_the_exact_join(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setenv("TMPDIR", str(scratch))
    result = run("demo", "--quick", "--json", "demo.json", cwd=tmp_path)
    assert result.returncode == 0, result.stdout + result.stderr
    assert "are the exact join" in " ".join(result.stdout.split())
    assert (tmp_path / "demo.png").stat().st_size > 10_000
    assert list(scratch.glob("penstock-demo-*")) == []
    figures = json.loads((tmp_path / "demo.json").read_text())
    assert figures["answer"]["same"]
    assert 0 < figures["recall"] < 1  # it did not keep all rows
    assert abs(figures["estimated_recall"] - figures["recall"]) < 0.1
    assert figures["penstock"]["late"] > 0
    assert {figures[side]["fate"] for side in ("spark", "penstock")} == {"done"}
    assert figures["spark"]["results"] <= figures["answer"]["exact"]  # it drops late rows
    for side in ("spark", "penstock"):
        assert 100 * 2**20 < figures[side]["peak_bytes"] < figures["scenario"]["limit"]
        assert any(sample["java"] > 0 for sample in figures[side]["memory"])


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc").is_dir(), reason="looks for processes in /proc")
def test_ctrl_c_ends_the_demo_and_leaves_nothing(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "penstock.cli", "demo", "--quick"], cwd=tmp_path,
        env=os.environ | {"TMPDIR": str(tmp_path)}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler), start_new_session=True,
    )  # fmt: skip
    try:
        until = time.monotonic() + 120
        while not any("java" in words for words in processes_of(tmp_path)):
            assert time.monotonic() < until, "Spark did not start"
            assert process.poll() is None
            time.sleep(0.1)
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 130
        until = time.monotonic() + 10
        while processes_of(tmp_path) and time.monotonic() < until:
            time.sleep(0.1)
        assert processes_of(tmp_path) == []
        assert list(tmp_path.iterdir()) == []
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize("where", [None, "left.left < right.right + 40"])
def test_join_and_reconcile_files(tmp_path: Path, where: str | None) -> None:
    rng = np.random.default_rng(0)
    frames = {}
    for side in ("left", "right"):
        times = 1_700_000_000 + np.sort(rng.integers(0, 4_000, 400))
        frames[side] = pd.DataFrame({"k": rng.integers(0, 30, 400), "ts": times, side: range(400)})
        frames[side].to_csv(tmp_path / f"{side}.csv", index=False)
    common = ["left.csv", "right.csv", "--on", "k", "--time", "ts", "--within", "100 ms"]
    if where is not None:
        common += ["--where", where]
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
    if where is not None:
        exact = exact[exact["left"] < exact["right"] + 40]
    assert len(pd.read_parquet(tmp_path / "rest")) > 0
    assert sorted(map(tuple, got.to_numpy().tolist())) == sorted(map(tuple, exact.to_numpy().tolist()))


def test_asof_of_files(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    left, right = (
        pd.DataFrame({"k": random.integers(0, 9, 200), "ts": np.sort(random.choice(999, 200, replace=False))})
        for _ in range(2)
    )
    left.to_csv(tmp_path / "left.csv", index=False)
    right.to_csv(tmp_path / "right.csv", index=False)
    ask = [
        "left.csv",
        "right.csv",
        "--on",
        "k",
        "--time",
        "ts",
        "--tolerance",
        "20",
        "--direction",
        "nearest",
    ]
    budget = ["--budget", "6 tuples", "--policy", "lru", "--out", "out", "--archive", "lost", "--json", "-"]
    done = run("asof", *ask, *budget, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    figures, rows = json.loads(done.stdout), pd.read_parquet(tmp_path / "out")
    assert figures["results"] + figures["unmatched"] == len(rows)
    assert figures["undecided"] == 200 - len(rows) > 0
    lost = pd.read_parquet(tmp_path / "lost")
    assert (lost["_event"] == "undecided").sum() == figures["undecided"]
    answers = pd.merge_asof(
        left.assign(ts_left=left["ts"]),
        right.assign(ts_right=right["ts"]),
        on="ts",
        by="k",
        tolerance=20,
        direction="nearest",
    )
    exact = dict(zip(answers["ts_left"], answers["ts_right"].fillna(-1), strict=True))
    found = dict(zip(rows["ts_left"], rows["ts_right"].fillna(-1), strict=True))
    assert found == {at: exact[at] for at in found}


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
