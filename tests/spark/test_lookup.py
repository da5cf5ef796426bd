"""`lookup_join` beside Spark's own join with the table, in batch and over a restart of a stream."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import penstock as ps
from penstock.errors import PenstockError
from penstock.spark import lookup_join
from tests.lookup.postgres import away, postgres, url_of
from tests.spark.support import python_workers, rows_of, same_rows

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


def test_columns_with_dots_and_backticks(spark: Any, table: tuple[str, str]) -> None:
    frame = events(0, rows=200)
    odd = spark.createDataFrame(frame.rename(columns={"item": "the.item", "n": "n`n"}))
    found = lookup_join(odd, table, on="the.item", key="id", budget=40, how="left").toPandas()
    assert rows_of(found) == wanted(frame, "left")


def test_a_column_may_be_called_as_penstock_calls_its_own(spark: Any, table: tuple[str, str]) -> None:
    frame = spark.createDataFrame([(2, "a", 1), (4, "b", 2)], "item long, label string, side int")
    found = lookup_join(frame, table, on="item", key="id", budget=40).collect()
    assert sorted(map(tuple, found)) == [(2, "a", 1, "item 2"), (4, "b", 2, "item 4")]


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


@pytest.fixture(scope="module")
def server() -> Iterator[Any]:
    sa = pytest.importorskip("sqlalchemy")
    with postgres() as started:
        engine = sa.create_engine(url_of(started).replace("postgresql://", "postgresql+psycopg://"))
        with engine.begin() as connection:
            connection.execute(sa.text("CREATE TABLE items (id integer PRIMARY KEY, name text)"))
            connection.execute(
                sa.text("INSERT INTO items SELECT i, 'item ' || i FROM generate_series(0, 198, 2) AS i")
            )
        engine.dispose()
        yield started


@pytest.mark.parametrize(("how", "policy", "budget"), [("left", "lru", 40), ("inner", "heeb", "64 KiB")])
def test_the_join_of_spark_on_postgresql(spark: Any, server: Any, how: str, policy: str, budget: Any) -> None:
    """The same rows as a plain Spark join with the table."""
    frame = spark.createDataFrame(events(4))
    items = spark.createDataFrame([(i, f"item {i}") for i in range(0, 200, 2)], "item long, name string")
    joined = lookup_join(
        frame, (url_of(server), "items"), on="item", key="id", budget=budget, policy=policy, how=how
    )
    assert same_rows(joined, frame.join(items, "item", how).select(joined.columns))


def test_postgresql_is_killed_under_a_stream(spark: Any, server: Any, tmp_path: Path) -> None:
    """It is gone when the second batch comes and returns while that waits: every event once."""
    folder, parts = tmp_path / "in", {}
    folder.mkdir()
    frames = [events(seed, 1_000) for seed in (5, 6)]
    for i, frame in enumerate(frames):
        frame.to_parquet(folder / f"{i}.parquet")
        os.utime(folder / f"{i}.parquet", (1_700_000_000 + i, 1_700_000_000 + i))
    stream = spark.readStream.schema("item long, n long").option("maxFilesPerTrigger", 1).parquet(str(folder))
    joined = lookup_join(
        stream, (url_of(server), "items"), on="item", key="id", budget=20, buckets=1, timeout=120
    )
    killed: list[Any] = []

    def keep(frame: Any, number: int) -> None:
        parts[number] = frame.toPandas()
        if number == 0:
            killed.append(away(server, seconds=3))
            killed[0].__enter__()

    query = (
        joined.writeStream.foreachBatch(keep)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    try:
        query.awaitTermination()
    finally:
        for each in killed:
            each.__exit__(None, None, None)
    last = query.recentProgress[-1]["observedMetrics"]["penstock-lookup"]
    assert last["loadFailureCount"] > 0
    assert rows_of(pd.concat(parts.values())) == wanted(pd.concat(frames), "left")


def test_the_database_decides_what_is_equal(spark: Any, server: Any, tmp_path: Path) -> None:
    """UUIDs as texts, one of them malformed, in every batch: the query goes on and finds the others."""
    import psycopg
    from pyspark.sql import Observation

    known = [f"00000000-0000-0000-0000-00000000000{i}" for i in range(8)]
    with psycopg.connect(url_of(server), autocommit=True) as connection:
        connection.execute("CREATE TABLE things (id uuid, amount float)")
        for i, each in enumerate(known):
            connection.execute("INSERT INTO things VALUES (%s, %s), (%s, 1)", [each, i, each])
    asked = [*known, known[7].replace("-", ""), "{" + known[6] + "}", "not-a-uuid", None]
    totals = [float(i + 1) for i in range(8)] + [8.0, 7.0, None, None]
    folder, parts = tmp_path / "in", []
    folder.mkdir()
    for i in range(2):
        pd.DataFrame({"item": asked, "n": range(len(asked))}).to_parquet(folder / f"{i}.parquet")
    total = "SELECT sum(amount) AS total FROM things WHERE id = :id HAVING count(*) > 0"
    options: dict[str, Any] = {"on": "item", "key": "id", "budget": 40, "policy": "lru", "buckets": 2}
    options |= {"url": url_of(server), "schema": {"total": pa.float64()}}
    stream = spark.readStream.schema("item string, n long").option("maxFilesPerTrigger", 1)
    query = (
        lookup_join(stream.parquet(str(folder)), total, **options)
        .writeStream.foreachBatch(lambda frame, number: parts.append(frame.toPandas()))
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    assert len(parts) == 2
    for part in parts:
        found = part.sort_values("n")["total"].astype(object)
        assert found.where(found.notna(), None).tolist() == totals
    told = [progress["observedMetrics"]["penstock-lookup"] for progress in query.recentProgress]
    assert [each["malformedCount"] for each in told] == [1, 0]  # remembered as absent
    batch = lookup_join(spark.read.parquet(str(folder / "0.parquet")), total, **options).toPandas()
    found = batch.sort_values("n")["total"].astype(object)
    assert found.where(found.notna(), None).tolist() == totals
    dividing = "SELECT 6 / (CAST(sum(amount) AS integer) - 3) AS total FROM things WHERE id = :id"
    seen = Observation("dividing")
    batch = lookup_join(spark.read.parquet(str(folder / "0.parquet")), dividing, **options, name=seen)
    found = batch.toPandas().sort_values("n")["total"].tolist()
    assert found[:2] + found[3:4] == [-3.0, -6.0, 6.0]
    assert (seen.get["failedKeyCount"], seen.get["malformedCount"]) == (1, 1)
    assert pd.isna(found[2])


def test_a_model_of_the_whole_stream_needs_one_bucket(spark: Any, table: tuple[str, str]) -> None:
    frame = spark.createDataFrame(events(0, 200))
    walk = ps.policies.Heeb(model=ps.models.RandomWalk(0, 5))
    with pytest.raises(PenstockError, match="buckets=1"):
        lookup_join(frame, table, on="item", key="id", budget=40, policy=walk, buckets=2)
    joined = lookup_join(frame, table, on="item", key="id", budget=40, policy=walk, buckets=1)
    assert rows_of(joined.toPandas()) == wanted(events(0, 200), "left")


def test_what_is_refused(spark: Any, table: tuple[str, str]) -> None:
    frame = spark.createDataFrame([(1, 2)], "item long, n long")
    for wrong in ({"how": "full"}, {"policy": "lfd"}, {"on": "itm"}, {"missing": "drop"}, {"budget": "3 %"}):
        with pytest.raises(PenstockError):
            lookup_join(frame, table, **{"on": "item", "key": "id", "budget": 40, **wrong})
    with pytest.raises(PenstockError, match="schema="):
        lookup_join(frame, lambda keys: {}, on="item", budget=40)
    with pytest.raises(PenstockError, match="takes a Spark DataFrame"):
        lookup_join(pa.table({"item": [1]}), table, on="item", budget=40)  # type: ignore[arg-type]
