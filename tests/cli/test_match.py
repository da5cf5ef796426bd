"""`penstock match`: what it prints and writes, and its errors."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest
from typer.testing import CliRunner

from penstock.cli import app


def run(*arguments: object):
    return CliRunner().invoke(app, [str(argument) for argument in arguments], env={"COLUMNS": "120"})


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    query = tmp_path / "query.neel"
    query.write_text("# never dried\nPATTERN SEQ(Wash w, !Dry, Use u, w.tool = u.tool)\nWITHIN 1 hour\n")
    events = tmp_path / "events.csv"
    stamps = ["2024-05-01T12:00:00", "2024-05-01T12:10:00", "2024-05-01T12:20:00", "2024-05-01T14:00:00"]
    frame = pd.DataFrame({"kind": ["Wash", "Use", "Use", "Use"], "at": stamps, "tool": [1, 2, 1, 1]})
    frame.to_csv(events, index=False)
    return query, events


@pytest.mark.interpreted
def test_matches_are_printed_and_written(files, tmp_path: Path) -> None:
    common = (*files, "--type", "kind", "--time", "at")
    printed = run("match", *common)
    assert printed.exit_code == 0, printed.output
    assert "1 matches in 4 events" in printed.stdout
    for name, read in (("out.csv", pd.read_csv), ("out.parquet", pd.read_parquet)):
        assert run("match", *common, "--strategy", "semantic", "--out", tmp_path / name).exit_code == 0
        assert read(tmp_path / name).to_dict("list") == {"w": [0], "u": [2]}


@pytest.mark.interpreted
def test_json_has_the_rows_and_the_counts(files) -> None:
    result = run("match", *files, "--type", "kind", "--time", "at", "--json", "-")
    found = json.loads(result.stdout)
    assert found == {"matches": 1, "cut": 0, "events": 4, "rows": [{"w": 0, "u": 2}]}
    assert "1 matches in 4 events" in result.stderr


@pytest.mark.interpreted
def test_a_limit_says_that_there_are_more(files) -> None:
    files[0].write_text("PATTERN SEQ(Wash w, Use u) WITHIN 3 hours")
    common = (*files, "--type", "kind", "--time", "at", "--json", "-", "--limit")
    result = run("match", *common, 2)
    assert json.loads(result.stdout)["rows"] == [{"w": 0, "u": 1}, {"w": 0, "u": 2}]
    assert "2 matches (limit reached; there are more) in 4 events" in result.stderr
    assert "3 matches in 4 events" in run("match", *common, 3).stderr
    assert run("match", *common, 3, "--budget", "1 MiB").exit_code == 2  # there is no such option


@pytest.mark.interpreted
def test_explain_needs_no_events_to_be_read(files, tmp_path: Path) -> None:
    result = run("match", files[0], tmp_path / "absent.csv", "--explain")
    assert result.exit_code == 0
    assert "none of (after w, before u) Dry as Dry" in result.stdout


@pytest.mark.interpreted
def test_errors_are_one_line_but_for_a_caret(files, tmp_path: Path) -> None:
    bad = tmp_path / "bad.neel"
    bad.write_text("PATTERN SEQ(A+) WITHIN 5")
    broken = tmp_path / "broken.neel"
    broken.write_text("PATTERN SEQ(A a, B b WITHIN 5")
    junk = tmp_path / "junk.neel"
    junk.write_bytes(bytes(range(128, 256)))
    for arguments, said in (
        ((bad, files[1]), "Kleene"),
        ((junk, files[1]), "not a text file with a pattern"),
        ((broken, files[1]), "line 1, column"),
        ((tmp_path / "none.neel", files[1]), "no file"),
        ((*files, "--type", "knd", "--time", "at"), "did you mean 'kind'"),
        ((*files, "--time", "when"), "no column 'when'"),
    ):
        result = run("match", *arguments)
        assert result.exit_code == 2
        assert said in result.stderr
        first, *rest = result.stderr.splitlines()
        assert first.startswith("error: ")
        if "column" not in first:
            assert rest == []
        elif "broken" in str(arguments[0]):
            assert rest == ["  PATTERN SEQ(A a, B b WITHIN 5", " " * 23 + "^"]
        else:
            assert rest[1].strip() == "^"
