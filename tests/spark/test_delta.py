"""Tables of Delta Lake as sinks of `write_split` and as inputs of `reconcile`.

A release of Delta Lake is built for some versions of Spark. Where there is none for this one, the program
runs with another PySpark, which is installed into the cache of jars for that.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from penstock.errors import PenstockError
from penstock.spark import bounded_join, reconcile, write_split
from tests.spark.conftest import write_files
from tests.spark.support import join_program, pieces
from tests.spark.systems.jars import MissingJarsError, delta
from tests.spark.test_kill import run_with_kills

pytestmark = pytest.mark.spark

JOIN = {"on": "k", "time": "ts", "within": "2 minutes", "budget": 120, "buckets": 2, "policy": "lru"}
DELTA = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.databricks.delta.snapshotPartitions": "2",  # 50 by default, a task each
}


@pytest.fixture(scope="module")
def with_delta() -> tuple[dict[str, str], dict[str, str]]:
    """The options of a session that has Delta Lake, and the environment of a program that starts it."""
    try:
        jars, packages = delta()
    except MissingJarsError as error:
        pytest.skip(str(error))
    return DELTA | {"spark.jars": ",".join(map(str, jars))}, packages


def plan_of(folder: Path, inputs: Path, conf: dict[str, str], check: bool) -> dict[str, Any]:
    """The plan of a query with its tables and checkpoint in a folder."""
    folder.mkdir()
    data = {side: str(inputs / side) for side in ("left", "right")}
    places = {"folder": str(folder), "checkpoint": str(folder / "checkpoint")}
    return {"program": "delta", "join": JOIN, "check": check, "conf": conf, **data, **places}


def inputs_of(folder: Path, files: int, rows: int) -> Path:
    for seed, side in enumerate(("left", "right")):
        write_files(folder / side, pieces(seed, files, rows, side[0]))
    return folder


def test_tables_take_each_batch_once_and_are_reconciled(
    with_delta: tuple[dict[str, str], dict[str, str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    conf, environment = with_delta
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    plan = plan_of(tmp_path / "query", inputs_of(tmp_path, 3, 200), conf, check=True)
    with join_program(tmp_path / "query", plan) as program:
        assert program.wait(300) == 0, program.said()
    figures = json.loads((tmp_path / "query" / "figures.json").read_text())
    assert figures["first"]["hits log"] == figures["first"]["lost log"] == [3]
    assert [batch for batch, _ in figures["first"]["hits"]] == [0, 1, 2]
    assert figures["rerun"] == [2]
    assert figures["second"] == figures["first"]
    assert figures["found"] == sum(rows for _, rows in figures["first"]["hits"]) > 100
    assert figures["missed"] > 100
    assert figures["differ"] == 0
    table, another, files = figures["refused"]
    assert table.endswith("is a Delta table; give format='delta', or another path.")
    assert "a query with a new checkpoint would add its own to them" in another
    assert "holds Parquet files that are no Delta table" in files


@pytest.mark.soak
def test_killed_eight_times(
    with_delta: tuple[dict[str, str], dict[str, str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    conf, environment = with_delta
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    data = inputs_of(tmp_path, 40, 300)
    killed, whole = (plan_of(tmp_path / name, data, conf, check=False) for name in ("killed", "whole"))
    assert run_with_kills(tmp_path / "killed", killed, kills=8, longest=5, seed=1) >= 1
    check = killed | {"check": True}
    for plan in (check, whole | {"check": True}):
        with join_program(Path(plan["folder"]), plan) as program:
            assert program.wait(900) == 0, program.said()
    for plan in (killed, whole):
        figures = json.loads(Path(plan["folder"], "figures.json").read_text())
        batches = [batch for batch, _ in figures["first"]["hits"]]
        assert figures["first"]["hits log"] == [len(batches)]
        assert figures["differ"] == 0


def test_a_session_without_delta_lake_is_refused(spark: Any, tmp_path: Path) -> None:
    data = inputs_of(tmp_path, 1, 20)
    schema = spark.read.parquet(str(data / "left")).schema
    left = spark.readStream.schema(schema).parquet(str(data / "left"))
    joined = bounded_join(left, left, on="k", time="ts", within="1 minute", budget="1 MiB", emit="all")
    places = {"results": str(tmp_path / "hits"), "archive": str(tmp_path / "lost")}
    with pytest.raises(
        PenstockError, match=r"format='delta' was given, but this session has no Delta Lake;.*"
    ):
        write_split(joined, **places, format="delta")
    with pytest.raises(PenstockError, match="format='detla' is not known; did you mean 'delta'"):
        write_split(joined, **places, format="detla")
    (tmp_path / "lost" / "_delta_log").mkdir(parents=True)
    whole = spark.read.parquet(str(data / "left"))
    with pytest.raises(PenstockError, match="lost' is a Delta table, but this session has no Delta Lake"):
        reconcile(places["archive"], whole, whole, on="k", time="ts", within="1 minute", results=whole)
    with pytest.raises(
        PenstockError, match=r"lost' is a Delta table; give format='delta', or another path\."
    ):
        write_split(joined, **places)
