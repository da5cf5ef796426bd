"""`penstock query`: what it prints and writes, and its errors."""

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
    query = tmp_path / "similar.rq"
    query.write_text(
        "SELECT ?a ?b FROM STREAM wind WHERE { ?a reports ?v ?T . ?b reports ?v ?U . FILTER (?a != ?b) }\n"
        "CONTEXT ((?T - ?U) <= 1^^xsd:second)"
    )
    wind = tmp_path / "wind.nt"
    ten = '"10"^^<http://www.w3.org/2001/XMLSchema#int>'
    wind.write_text(
        f"# three readings\n<x> <reports> {ten} 0 .\n<y> <reports> {ten} 900 .\n<z> <reports> {ten} 1800 .\n"
    )
    return query, wind


def test_rows_are_printed_and_written(files, tmp_path: Path) -> None:
    query, wind = files
    printed = run("query", query, "--stream", f"wind={wind}", "--budget", "10 tuples", "--policy", "lru")
    assert printed.exit_code == 0, printed.output
    assert "4 results of 4 (recall 1.000) in 3 triples, 0 evicted" in printed.stdout
    followed = run("query", query, "--stream", f"wind={wind}", "--budget", "10 tuples")
    assert "0 evicted; auto has followed gdj since triple 0" in followed.stdout
    for name, read in (("out.csv", pd.read_csv), ("out.parquet", pd.read_parquet)):
        assert run("query", query, "--stream", f"wind={wind}", "--out", tmp_path / name).exit_code == 0
        assert read(tmp_path / name).to_dict("list") == {"a": ["y", "x", "z", "y"], "b": ["x", "y", "y", "z"]}


def test_json_has_the_rows_and_the_counts(files) -> None:
    query, wind = files
    result = run("query", query, "--stream", f"wind={wind}", "--json", "-")
    found = json.loads(result.stdout)
    assert (found["results"], found["exact"], found["recall"]) == (4, 4, 1.0)
    assert found["rows"][0] == {"a": "y", "b": "x"}
    assert found["choice"] is None  # without a budget nobody has to go


def test_json_has_the_policy_that_is_followed(files, tmp_path: Path) -> None:
    query, _ = files
    n = 3_000
    popular = pd.Series(range(n)).map(lambda i: i % 7 if i % 2 else 1_000 + i)
    wind = pd.DataFrame({"s": [f"s{i}" for i in range(n)], "p": "reports", "o": popular, "start": range(n)})
    wind.to_csv(tmp_path / "wind.csv", index=False)
    given = ("query", query, "--stream", f"wind={tmp_path / 'wind.csv'}", "--budget", "40 tuples")
    found, other, alone = (
        json.loads(run(*given, "--policy", policy, "--json", "-").stdout)["choice"]
        for policy in ("auto:candidates=fifo/prob", "auto:candidates=prob/fifo", "prob")
    )
    assert (found["policy"], found["switches"]) == ("prob", 1)
    assert 0 < found["since"] < n
    assert found["estimates"]["prob"] == 1.0 > found["estimates"]["fifo"]
    assert (other["policy"], other["since"], other["switches"]) == ("prob", 0, 0)
    assert alone is None


def test_tables_and_quads_are_streams_too(files, tmp_path: Path) -> None:
    query, _ = files
    quads = tmp_path / "wind.nq"
    quads.write_text('<x> <reports> "a" <time:0> .\n<y> <reports> "a" <time:900> .\n')
    pd.DataFrame({"s": ["x", "y"], "p": "reports", "o": [7, 7.0], "start": [0, 900]}).to_csv(
        tmp_path / "wind.csv", index=False
    )
    for path in (quads, tmp_path / "wind.csv"):
        printed = run("query", query, "--stream", f"wind={path}")
        assert "2 results of 2" in printed.stdout, printed.output


def test_the_plan_is_shown(files) -> None:
    printed = run("query", files[0], "--explain")
    assert printed.exit_code == 0
    assert "cache 1: ?a <reports> ?v ?T, shared with ?b <reports> ?v ?U" in printed.stdout
    assert "a triple expires 1,000 ms after its start" in printed.stdout


def test_the_plan_for_given_streams_goes_by_what_is_in_them(tmp_path: Path) -> None:
    query, table = tmp_path / "three.rq", tmp_path / "w.csv"
    query.write_text(
        "SELECT * FROM STREAM w { ?a p ?x ?T . ?a q ?y ?U . ?a r ?z ?V } CONTEXT ((?T - ?V) <= 9)"
    )
    pd.DataFrame({"s": "a", "p": [*"pppqqr"], "o": 1, "start": range(6)}).to_csv(table, index=False)
    bare, given = (run("query", query, "--explain", *more) for more in ((), ("--stream", f"w={table}")))
    assert "join 1: ?a <p> ?x ?T with ?a <q> ?y ?U" in bare.stdout
    assert "join 1: ?a <r> ?z ?V with ?a <q> ?y ?U" in given.stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--stream", "wind"], "NAME=FILE"),
        (["--stream", "wind=none.nt"], "no file"),
        (["--stream", "other=WIND"], "reads the stream 'wind'"),
        (["--stream", "wind=WIND", "--policy", "clok"], "did you mean 'clock'"),
        (["--stream", "wind=WIND", "--budget", "much"], "not a size"),
        (["--stream", "wind=WIND", "--out", "/none/x.csv"], "Cannot write to"),
    ],
)
def test_errors_in_one_line(files, arguments: list[str], said: str) -> None:
    query, wind = files
    printed = run("query", query, *(argument.replace("WIND", str(wind)) for argument in arguments))
    assert printed.exit_code == 2
    assert said in printed.stderr
    assert printed.stderr.count("\n") == 1
