"""`penstock plan-lookup` and `penstock enrich`, as a user runs them."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from typer.testing import CliRunner

from penstock import caching
from penstock.cli import app


def run(*arguments: Any) -> Any:
    return CliRunner().invoke(app, [str(argument) for argument in arguments], env={"COLUMNS": "200"})


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "trace.csv"
    pd.DataFrame({"item": [1, 2, 1, 3, 1, 2, 9] * 30}).to_csv(path, index=False)
    return path


def test_plan_lookup(trace: Path, tmp_path: Path) -> None:
    options = ("--policies", "lru,fifo,lfd", "--sizes", "2,50%", "--target", "0.9")
    out, picture = tmp_path / "plan.json", tmp_path / "plan.png"
    result = run("plan-lookup", trace, "--key", "item", *options, "--json", out, "--plot", picture)
    assert result.exit_code == 0, result.output
    rows = json.loads(out.read_text())
    requests = pd.read_csv(trace)["item"]
    assert [(row["policy"], row["size"]) for row in rows] == [("lru", 2), ("fifo", 2), ("lfd", 2)]
    for row in rows:
        assert row["hits"] == caching.replay(requests, row["policy"], row["size"]).hits
        assert row["requests"] == len(requests)
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert "needs 4 entries" in result.output
    piped = run("plan-lookup", trace, "--key", "item", *options, "--json", "-", "--no-plot")
    assert json.loads(piped.stdout) == rows


def test_plan_lookup_refuses(trace: Path) -> None:
    for wrong in (
        ["--key", "itm"],
        ["--key", "item", "--sizes", "1 MiB"],
        ["--key", "item", "--target", "7"],
    ):
        result = run("plan-lookup", trace, "--no-plot", *wrong)
        assert result.exit_code == 2
        assert result.stderr.splitlines()[-1].startswith("error: ")


def test_enrich(trace: Path, tmp_path: Path) -> None:
    pytest.importorskip("sqlalchemy", reason="SQLAlchemy is an extra")
    database = sqlite3.connect(tmp_path / "shop.db")
    database.execute("CREATE TABLE items (id INTEGER PRIMARY KEY, name TEXT)")
    database.execute("INSERT INTO items VALUES (1, 'tea'), (2, 'milk'), (3, 'rum')")
    database.commit()
    database.close()
    table = f"sqlite:///{tmp_path}/shop.db"
    common = ("--key", "item=id", "--budget", "2", "--policy", "lru", "--out", tmp_path / "out")
    for given in (table, table + "#items"):
        result = run("enrich", trace, "--table", given, *common)
        assert result.exit_code == 0, result.output
        names = pd.read_parquet(tmp_path / "out")["name"].tolist()
        assert names == ["tea", "milk", "tea", "rum", "tea", "milk", None] * 30
    assert "hits" in result.output
    refused = run("enrich", trace, "--table", table + "#item", *common)
    assert refused.exit_code == 2
    assert "did you mean 'items'" in refused.stderr
