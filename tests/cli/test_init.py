"""`penstock init` asks three questions or reads options, and the job that it writes runs."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pandas as pd
import pytest
from typer.testing import CliRunner

from penstock.cli import app
from penstock.cli.init import init as command

RUNNER = CliRunner()
MINUTE = pd.Timedelta("1min")
START = pd.Timestamp("2026-01-01T10:00:00")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two streams in two files each, as CSV and as Parquet, whose columns have different names."""
    for name, key, time, rows in (("shown", "ad", "ts", 40), ("clicked", "ad_id", "at", 30)):
        (tmp_path / name).mkdir()
        table = pd.DataFrame({key: [f"a{i % 7}" for i in range(rows)], "n": range(rows)})
        table[time] = [START + MINUTE * i for i in range(rows)]
        for part, number in ((table[: rows // 2], 0), (table[rows // 2 :], 1)):
            path = tmp_path / name / f"{number}.{'csv' if name == 'shown' else 'parquet'}"
            if name == "shown":
                part.to_csv(path, index=False, date_format="%Y-%m-%dT%H:%M:%S")
            else:
                stamps = part[time].dt.tz_localize("UTC").astype("datetime64[us, UTC]")
                part.assign(**{time: stamps}).to_parquet(path, index=False)
            os.utime(path, (1_700_000_000 + number,) * 2)
    monkeypatch.chdir(tmp_path)
    return tmp_path


OPTIONS = {
    "--left": "shown",
    "--right": "clicked",
    "--on": "ad=ad_id",
    "--time": "ts=at",
    "--within": "5 minutes",
}


def words(changes: dict[str, str | None]) -> list[str]:
    merged = OPTIONS | changes
    return ["init", "job.py", *(word for pair in merged.items() if pair[1] for word in map(str, pair))]


def exact(folder: Path, within: pd.Timedelta = 5 * MINUTE) -> Counter[tuple[int, int]]:
    shown = pd.concat(pd.read_csv(path, parse_dates=["ts"]) for path in (folder / "shown").iterdir())
    clicked = pd.read_parquet(folder / "clicked")
    both = shown.merge(clicked, left_on="ad", right_on="ad_id", suffixes=("_left", "_right"))
    near = (both["ts"].dt.tz_localize("UTC") - both["at"]).abs() <= within
    return Counter(zip(both.loc[near, "n_left"], both.loc[near, "n_right"], strict=True))


@pytest.mark.spark
def test_the_job_runs_and_recovers_what_it_missed(folder: Path) -> None:
    done = RUNNER.invoke(app, words({"--within": "8 minutes", "--budget": "8 tuples", "--policy": "fifo"}))
    assert done.exit_code == 0, done.output
    assert "python job.py" in done.stdout

    def python(*arguments: str) -> str:
        ran = subprocess.run(
            [sys.executable, "job.py", *arguments], cwd=folder, env=os.environ | {"TZ": "UTC"},
            capture_output=True, text=True, timeout=300, check=False,
        )  # fmt: skip
        assert ran.returncode == 0, ran.stdout + ran.stderr
        return ran.stdout

    assert "new results in job-out/results; estimated recall of this run" in python()
    assert "recovered results" in python("--reconcile")
    out = folder / "job-out"
    found = [pd.read_parquet(out / name)[["n_left", "n_right"]] for name in ("results", "recovered")]
    assert len(found[1]) > 0  # 8 tuples are too few
    found_pairs = Counter(pd.concat(found).itertuples(index=False, name=None))
    assert found_pairs == exact(folder, 8 * MINUTE)


def test_three_questions_are_asked_until_the_answers_can_be_used(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = ["shown", "shown nowhere", "shown clicked", "add, ts", "ad=ad_id, ts=at", "10", "5 minutes"]
    monkeypatch.setattr(sys.modules[command.__module__], "is_interactive", lambda: True)
    done = RUNNER.invoke(app, ["init"], input="\n".join(answers) + "\n")
    assert done.exit_code == 0, done.output
    for said in ("Two are needed", "There is no 'nowhere'", "did you mean 'ad'?", "'10' needs a unit"):
        assert said in done.output
    by_questions = (folder / "job.py").read_text()
    assert RUNNER.invoke(app, [*words({}), "--force"]).exit_code == 0
    assert by_questions == (folder / "job.py").read_text()


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"--within": None}, "give --within as well"),
        ({"--within": "10"}, "needs a unit, such as '10 minutes'"),
        ({"--within": "5 rows"}, "not a window of time"),
        ({"--on": "add=ad_id"}, "did you mean 'ad'?"),
        ({"--time": "n=at"}, "One time column has timestamps and the other numbers"),
        ({"--time": "ad=at"}, "has 'a0'"),
        ({"--left": "nowhere"}, "There is no 'nowhere'"),
        ({"--budget": "20%"}, "is a share"),
        ({"--policy": "LRU"}, "did you mean 'lru'?"),
    ],
)
def test_what_cannot_be_is_refused_and_nothing_written(
    folder: Path, changes: dict[str, str | None], said: str
) -> None:
    done = RUNNER.invoke(app, words(changes))
    assert (done.exit_code, done.stderr.count("\n")) == (2, 1), done.output
    assert said in done.stderr
    assert not (folder / "job.py").exists()


def test_a_file_is_not_replaced_by_accident(folder: Path) -> None:
    (folder / "job.py").write_text("mine")
    done = RUNNER.invoke(app, words({}))
    assert done.exit_code == 2
    assert "--force" in done.stderr
    assert (folder / "job.py").read_text() == "mine"


def test_numbers_since_1970_get_their_unit(folder: Path) -> None:
    for name in ("shown", "clicked"):
        pd.DataFrame({"k": [1], "t": [1_700_000_000]}).to_csv(folder / f"{name}.csv", index=False)
    done = RUNNER.invoke(
        app, words({"--left": "shown.csv", "--right": "clicked.csv", "--on": "k", "--time": "t"})
    )
    assert done.exit_code == 0, done.output
    assert "'within': '5 minutes', 'unit': 's'}" in (folder / "job.py").read_text()
