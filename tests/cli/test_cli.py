"""The command line: what it prints and writes, its errors and exit codes, and that it starts fast."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import typer
from typer.testing import CliRunner

import penstock as ps
from penstock.cli import app
from penstock.workloads import gdj_pair

LEFT, RIGHT = gdj_pair(keys=10, rate=0.1, duration=600, seed=3)
RUNNER = CliRunner()


def run(*arguments: object):
    return RUNNER.invoke(app, [str(argument) for argument in arguments], env={"COLUMNS": "120"})


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    LEFT.to_csv(tmp_path / "left.csv", index=False)
    RIGHT.rename(columns={"key": "id", "ts": "at"}).to_parquet(tmp_path / "right.parquet")
    return tmp_path / "left.csv", tmp_path / "right.parquet"


OPTIONS = ("--on", "key=id", "--time", "ts=at", "--policies", "fifo,lru", "--budgets", "6,50%")


@pytest.mark.interpreted
def test_plan_of_a_csv_and_a_parquet_file(files, tmp_path: Path) -> None:
    out, png = tmp_path / "plan.json", tmp_path / "curve.png"
    result = run("plan", *files, *OPTIONS, "--within", 120, "--target", 0.3, "--json", out, "--plot", png)
    assert result.exit_code == 0, result.output
    expected = ps.plan(LEFT, RIGHT, on="key", time="ts", within=120, budgets=["6 tuples", "50 %"],
                       policies=["fifo", "lru"], target=0.3)  # fmt: skip
    rows = json.loads(out.read_text())
    assert [(row["policy"], row["results"]) for row in rows] == [
        (row.policy, row.results) for row in expected.rows
    ]
    assert png.read_bytes().startswith(b"\x89PNG")
    assert f"{100 * expected.table.loc['lru', '50 %']:.1f}" in result.stdout
    assert f"30 % of the results need {expected.answer.budget} with {expected.answer.policy}" in result.stdout


def test_candidates_with_options(files) -> None:
    """Commas are between policies and between options, colons between those of a candidate."""
    wanted = ["lru", "auto:candidates=gdj:initial=0.3:method=2/lru,margin=0.05", "fifo"]
    words = [*OPTIONS[:5], ",".join(wanted), *OPTIONS[6:]]
    result = run("plan", *files, *words, "--within", "120", "--json", "-", "--no-plot")
    assert result.exit_code == 0, result.output
    assert {row["policy"] for row in json.loads(result.stdout)} == set(wanted)


@pytest.mark.interpreted
def test_json_to_stdout_stands_alone(files) -> None:
    result = run("plan", *files, *OPTIONS, "--within", "120", "--json", "-", "--no-plot")
    assert result.exit_code == 0, result.output
    assert len(json.loads(result.stdout)) == 4


@pytest.mark.interpreted
def test_plan_says_its_unit_and_doubts_it(tmp_path: Path) -> None:
    seconds = pd.DataFrame({"key": [1, 2, 3] * 20, "ts": 1_700_000_000 + pd.RangeIndex(60)})
    file = tmp_path / "seconds.csv"
    seconds.to_csv(file, index=False)
    words = ("--on", "key", "--time", "ts", "--policies", "fifo", "--budgets", "6", "--within", "10 s")
    doubtful = run("plan", file, file, *words, "--no-plot")
    shown = " ".join(doubtful.stdout.split())
    assert doubtful.exit_code == 0, doubtful.output
    assert "Times are read as milliseconds." in shown
    assert "look like seconds since 1970" in shown
    assert 'give unit="s"' in shown
    assert "keeps 20,338 tuples, but the sample has 120 rows" in shown
    for more, where in (((), "stdout"), (("--json", "-"), "stderr")):
        right = run("plan", file, file, *words, "--no-plot", "--unit", "s", *more)
        assert "Times are read as seconds." in getattr(right, where)
        assert "Warning" not in getattr(right, where)
    assert json.loads(right.stdout)[0]["unit"] == "s"


@pytest.mark.interpreted
def test_iso_timestamps_in_csv(tmp_path: Path) -> None:
    for name, frame in (("left.csv", LEFT), ("right.csv", RIGHT)):
        stamps = pd.to_datetime(frame.ts, unit="s").dt.strftime("%Y-%m-%dT%H:%M:%S")
        frame.assign(ts=stamps).to_csv(tmp_path / name, index=False)
    common = (
        "--on",
        "key",
        "--time",
        "ts",
        "--policies",
        "fifo",
        "--budgets",
        "6",
        "--json",
        "-",
        "--no-plot",
    )
    sides = (tmp_path / "left.csv", tmp_path / "right.csv")
    expected = ps.plan(LEFT, RIGHT, on="key", time="ts", within=120, budgets=["6 tuples"], policies=["fifo"])
    for within in (("2 minutes",), ("120", "--unit", "s"), ("2 min..120 s",)):
        result = run("plan", *sides, *common, "--within", *within)
        assert json.loads(result.stdout)[0]["results"] == expected.rows[0].results


@pytest.mark.interpreted
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({0: "lefty.csv"}, "did you mean 'left.csv'"),
        ({0: "left.xls"}, "allowed are .csv"),
        ({"--on": "kye"}, "did you mean 'key'"),
        ({"--time": "st"}, "no column 'st'"),
        ({"--policies": "gjd"}, "did you mean 'gdj'"),
        ({"--within": "soon"}, "not a duration"),
        ({"--within": "-5 s"}, "not negative"),
        ({"--budgets": "much"}, "not a size"),
        ({"--budgets": "-5"}, "Fraction takes"),
        ({"--target": "2"}, "target=2"),
        ({"--json": "nowhere/plan.json"}, "folder that exists"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(tmp_path: Path, changes, message) -> None:
    for name, frame in (("left.csv", LEFT), ("right.csv", RIGHT)):
        frame.to_csv(tmp_path / name, index=False)
    options = {"--on": "key", "--time": "ts", "--within": "120", "--policies": "fifo", "--budgets": "6"}
    options |= {key: value for key, value in changes.items() if key != 0}
    left = tmp_path / changes.get(0, "left.csv")
    words = [word for pair in options.items() for word in pair]
    result = run("plan", left, tmp_path / "right.csv", *words, "--no-plot")
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr.splitlines()[-1].startswith("error: ")
    assert result.stderr.count("\n") == 1
    assert message in result.stderr


@pytest.mark.interpreted
def test_unreadable_times_and_files(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("key,ts\n1,noon\n")
    (tmp_path / "b.csv").write_text("")
    common = ("--on", "key", "--time", "ts", "--within", "1 s", "--no-plot")
    said = run("plan", tmp_path / "a.csv", tmp_path / "a.csv", *common).stderr
    for part in ("'ts' of the left stream has 'noon' in row 0", "'ts' of the right stream", "cast both"):
        assert part in said
    assert "cannot be read" in run("plan", tmp_path / "a.csv", tmp_path / "b.csv", *common).stderr


@pytest.mark.interpreted
@pytest.mark.parametrize("name", ["a.csv", "a.csv.gz", "a.parquet"])
def test_what_is_no_table_is_refused_in_one_line(tmp_path: Path, name: str) -> None:
    common = (tmp_path / name, "--on", "key", "--time", "ts", "--within", "1 s", "--no-plot")
    for content in (b"", bytes(range(256)) * 4, b'"key,ts\n1,2'):
        (tmp_path / name).write_bytes(content)
        result = run("plan", tmp_path / name, *common)
        assert (result.exit_code, result.stderr.count("\n")) == (2, 1), result.stderr
        assert result.stderr.splitlines()[-1].startswith("error: ")
    (tmp_path / name).unlink()
    (tmp_path / name).mkdir()
    assert "is a folder" in run("plan", tmp_path / name, *common).stderr


@pytest.mark.interpreted
def test_policies_lists_the_registry(tmp_path: Path) -> None:
    result = run("policies", "--json", tmp_path / "policies.json")
    assert result.exit_code == 0
    listed = json.loads((tmp_path / "policies.json").read_text())
    assert [entry["policy"] for entry in listed] == ps.policies.names()
    assert all(name in result.stdout for name in ps.policies.names())


def commands(command: Any, *path: str) -> Iterator[tuple[str, ...]]:
    """Every command there is, and the groups above them."""
    yield path
    for name, each in getattr(command, "commands", {}).items():
        yield from commands(each, *path, name)


@pytest.mark.interpreted
@pytest.mark.parametrize("command", list(commands(typer.main.get_command(app))), ids=" ".join)
def test_help_shows_an_example_that_is_understood(command) -> None:
    result = run(*command, "--help")
    assert result.exit_code == 0
    told = re.search(r"Example: (penstock .*?)(?:Exit codes|$)", " ".join(result.stdout.split()))
    assert told, result.stdout
    parsed, rest = typer.main.get_command(app), shlex.split(told[1])[1:]
    while hasattr(parsed, "commands"):
        parsed, rest = parsed.commands[rest[0]], rest[1:]
    parsed.make_context(parsed.name, rest)


@pytest.mark.interpreted
def test_every_command_and_exit_code_is_in_the_documentation() -> None:
    page = (Path(__file__).parents[2] / "docs" / "command-line.md").read_text(encoding="utf-8")
    for path in commands(typer.main.get_command(app)):
        assert len(path) != 1 or f"`penstock {path[0]}`" in page
    for code in (0, 1, 2):
        assert f"| {code} |" in page


@pytest.mark.interpreted
def test_version() -> None:
    assert run("--version").stdout == f"penstock {ps.__version__}\n"


def test_as_a_process(files, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "penstock.cli", "plan", *map(str, files), *OPTIONS, "--within", "120"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0
    # Nothing but progress, and that only where it takes longer than a second.
    progress = r"(reading \.\.\.|\d+ of \d+: .*|Compiling kernels .*)"
    assert all(re.fullmatch(progress, line) for line in done.stderr.splitlines()), done.stderr
    assert (tmp_path / "plan.png").is_file()
    failed = subprocess.run(
        [*command, "--unit", "moon"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert failed.returncode == 2
    assert failed.stderr.removeprefix("reading ...\n").startswith("error: 'moon' is not a unit of time")


@pytest.mark.interpreted
def test_the_command_line_starts_without_numba() -> None:
    code = "import sys, penstock.cli; sys.exit(bool({'numba', 'pandas', 'matplotlib'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_plan_shows_the_peak_need_beside_the_average(tmp_path: Path) -> None:
    times = [*range(0, 1_000, 50), *range(500, 520)]
    rows = "\n".join(f"{number % 3},{ts}" for number, ts in enumerate(sorted(times)))
    for name in ("a.csv", "b.csv"):
        (tmp_path / name).write_text(f"key,ts\n{rows}\n")
    line = ["plan", str(tmp_path / "a.csv"), str(tmp_path / "b.csv"), "--on", "key", "--time", "ts"]
    line += ["--within", "100", "--policies", "fifo", "--budgets", "50%,100%", "--no-plot"]
    said = run(*line).stdout
    assert "It keeps 8 tuples at the average rate" in said
    assert "At its peak it keeps 46." in said
    words = [row.split() for row in said.splitlines()]
    assert ["tuples", "4", "8"] in words
    assert ["%", "of", "need", "50", "100"] in words
    assert ["%", "of", "peak", "9", "17"] in words
    assert "Note: 100 % of the need is not enough for all results" in said


@pytest.mark.interpreted
def test_a_plan_with_a_condition(tmp_path: Path) -> None:
    for name, column in (("a.csv", "bid"), ("b.csv", "ask")):
        rows = "\n".join(f"{number % 3},{50 * number},{number % 7}" for number in range(40))
        (tmp_path / name).write_text(f"key,ts,{column}\n{rows}\n")
    line = ["plan", str(tmp_path / "a.csv"), str(tmp_path / "b.csv"), "--on", "key", "--time", "ts"]
    line += ["--within", "200", "--policies", "fifo", "--budgets", "100%", "--no-plot"]
    said = run(*line, "--where", "left.bid < right.ask").stdout
    sides = range(40)
    exact = sum(a % 3 == b % 3 and abs(a - b) <= 4 and a % 7 < b % 7 for a in sides for b in sides)
    assert f"{exact} results in the exact join" in said
    wrong = run(*line, "--where", "left.bid < right.asks")
    assert wrong.exit_code != 0
    assert "did you mean 'ask'" in " ".join(wrong.stderr.split())


@pytest.mark.interpreted
def test_a_plan_starts_with_what_is_fast(files) -> None:
    words = (
        "plan",
        *files,
        "--on",
        "key=id",
        "--time",
        "ts=at",
        "--within",
        120,
        "--budgets",
        "6",
        "--no-plot",
    )
    few = run(*words, "--json", "-")
    assert [row["policy"] for row in json.loads(few.stdout)] == ["fifo", "lru", "prob", "gdj"]
    assert "--policies all" in few.stderr
    assert "all" in run("plan", "--help").stdout


def test_all_policies_on_request(files) -> None:
    words = (
        "plan",
        *files,
        "--on",
        "key=id",
        "--time",
        "ts=at",
        "--within",
        120,
        "--budgets",
        "6",
        "--no-plot",
    )
    every = run(*words, "--policies", "all,gdj:initial=0.3", "--json", "-")
    assert every.exit_code == 0, every.output
    found = [row["policy"] for row in json.loads(every.stdout)]
    assert {"fifo", "auto", "learned", "clock-exp", "gdj", "gdj:initial=0.3"} <= set(found)
    assert "Left out: flowexpect: needs a model of the streams" in every.stderr
    assert "--policies all" not in every.stderr
