"""`lookup_join` beside Spark's own join with the table, in batch and over a restart of a stream."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import penstock as ps
from penstock.errors import PenstockError
from penstock.spark import lookup_join
from tests.spark.support import python_workers, rows_of

pytestmark = pytest.mark.spark
pytest.importorskip("sqlalchemy", reason="SQLAlchemy is an extra")


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    path = tmp_path_factory.mktemp("lookup") / "shop.db"
    database = sqlite3.connect(path)
    database.execute("CREATE TABLE items (id INTEGER PRIMARY KEY, name TEXT)")
    database.executemany("INSERT INTO items VALUES (?, ?)", [(i, f"item {i}") for i in range(0, 200, 2)])
    database.commit()
    database.close()
    return f"sqlite:///{path}", "items"


def events(seed: int, rows: int = 2_000) -> pd.DataFrame:
    keys = np.random.default_rng(seed).zipf(1.3, rows) % 150
    return pd.DataFrame({"item": keys, "n": np.arange(rows) + rows * seed})


def wanted(frame: pd.DataFrame, how: str) -> Any:
    items = pd.DataFrame({"item": range(0, 200, 2)})
    items["name"] = [f"item {i}" for i in items["item"]]
    joined = frame.merge(items, on="item", how=how)
    return rows_of(joined.astype(object).where(joined.notna(), None))


@pytest.mark.parametrize(("how", "policy"), [("left", "lru"), ("inner", "gdj")])
def test_batch(spark: Any, table: tuple[str, str], how: str, policy: str) -> None:
    from pyspark.sql import Observation

    seen = Observation("lookup")
    frame = events(0)
    joined = lookup_join(
        spark.createDataFrame(frame), table, on="item", key="id", budget=40, policy=policy, how=how, name=seen
    )
    assert rows_of(joined.toPandas()) == wanted(frame, how)
    assert seen.get["hitCount"] + seen.get["missCount"] == len(frame)
    assert seen.get["cachedRecords"] <= 40


def test_a_stream_that_is_restarted(spark: Any, table: tuple[str, str], tmp_path: Path) -> None:
    folder, parts = tmp_path / "in", []
    folder.mkdir()

    def run() -> list[Any]:
        stream = (
            spark.readStream.schema("item long, n long").option("maxFilesPerTrigger", 1).parquet(str(folder))
        )
        joined = lookup_join(
            stream, table, on="item", key="id", budget=ps.Tuples(300), policy="lfu", buckets=2
        )
        query = (
            joined.writeStream.foreachBatch(lambda frame, number: parts.append(frame.toPandas()))
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        return [progress["observedMetrics"]["penstock-lookup"] for progress in query.recentProgress]

    frames = [events(seed) for seed in range(3)]
    for i, frame in enumerate(frames[:2]):
        frame.to_parquet(folder / f"{i}.parquet")
    run()
    for worker in python_workers():  # those that come next must restore the state
        worker.kill()
    frames[2].to_parquet(folder / "2.parquet")
    (last,) = run()
    assert rows_of(pd.concat(parts)) == wanted(pd.concat(frames), "left")
    known = set(frames[0]["item"]) | set(frames[1]["item"])
    assert last["missCount"] == len(set(frames[2]["item"]) - known)  # the keys have survived


def test_what_is_refused(spark: Any, table: tuple[str, str]) -> None:
    frame = spark.createDataFrame([(1, 2)], "item long, n long")
    for wrong in ({"how": "full"}, {"policy": "lfd"}, {"on": "itm"}, {"missing": "drop"}, {"budget": "3 %"}):
        with pytest.raises(PenstockError):
            lookup_join(frame, table, **{"on": "item", "key": "id", "budget": 40, **wrong})
    with pytest.raises(PenstockError, match="schema="):
        lookup_join(frame, lambda keys: {}, on="item", budget=40)
    with pytest.raises(PenstockError, match="takes a Spark DataFrame"):
        lookup_join(pa.table({"item": [1]}), table, on="item", budget=40)  # type: ignore[arg-type]
