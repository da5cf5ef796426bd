"""`stream_query` on Spark finds what the query finds in process: batch, streaming, late and restarted."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import penstock as ps
from penstock.errors import PenstockError, SnapshotError
from penstock.spark import stream_query
from penstock.spark.querying import Querier, QuerySpec
from tests.spark.conftest import write_files

TEXT = """SELECT ?a ?b ?v ?T FROM STREAM wind
    WHERE { ?a reports ?v ?T . ?b reports ?v ?U . FILTER (?a != ?b) . FILTER (?v >= 2) }
    CONTEXT ((?T - ?U) <= 2^^xsd:second)"""


def readings(n: int, seed: int = 3) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    at = pd.to_datetime(1_700_000_000_000 + np.cumsum(rng.integers(1, 900, n)), unit="ms", utc=True)
    return pd.DataFrame(
        {
            "s": [f"station{i}" for i in rng.integers(0, 8, n)],
            "p": rng.choice(["reports", "sleeps"], n, p=[0.8, 0.2]),
            "o": rng.integers(0, 6, n),
            "start": at.astype("datetime64[us, UTC]"),
        }
    )


def bag(frame: pd.DataFrame) -> Counter[Any]:
    return Counter(zip(frame["a"], frame["b"], frame["v"].astype(str), frame["T"], strict=True))


def in_process(frame: pd.DataFrame) -> Counter[Any]:
    rows = ps.StreamQuery.parse(TEXT).run({"wind": frame}).rows.to_pandas()
    epoch = pd.Timestamp(0, tz="UTC")
    return bag(rows.assign(T=(rows["T"] - epoch) // pd.Timedelta("1us")))


def on_spark(frame: Any) -> Any:
    """The query with times as microseconds, whatever the session's time zone is."""
    found = stream_query(TEXT, {"wind": frame}, budget="5000 tuples")
    return found.selectExpr("a", "b", "v", "unix_micros(T) AS T")


def test_streams_and_batches_equal_the_run_in_process(
    spark: Any, stream_of: Any, collected: Any, tmp_path: Path
) -> None:
    frame = readings(600)
    expected = in_process(frame)
    assert len(expected) > 50
    rng = np.random.default_rng(1)
    files = [frame.iloc[i : i + 150].sample(frac=1, random_state=rng) for i in range(0, 600, 150)]
    folder = write_files(tmp_path / "in", files)
    batch = on_spark(spark.read.parquet(str(folder)))
    assert bag(batch.toPandas()) == expected
    got, query = collected(on_spark(stream_of(folder)))
    assert bag(got) == expected
    told = [each["observedMetrics"]["penstock"] for each in query.recentProgress]
    assert sum(row["results"] for row in told) == sum(expected.values())
    assert sum(row["late"] + row["evicted"] + row["skipped"] for row in told) == 0


def test_a_restarted_query_goes_on_and_late_triples_are_counted(
    spark: Any, stream_of: Any, collected: Any, tmp_path: Path
) -> None:
    frame = readings(400, seed=5)
    expected = in_process(frame)
    early = frame.iloc[:1].assign(s="late", o=5)
    folder = write_files(tmp_path / "in", [frame.iloc[:200]])
    first, _ = collected(on_spark(stream_of(folder)))
    write_files(folder, [frame.iloc[:200], pd.concat([frame.iloc[200:], early])])
    second, query = collected(on_spark(stream_of(folder)))
    assert len(first) > 0
    assert len(second) > 0
    assert bag(first) + bag(second) == expected
    assert sum(row["observedMetrics"]["penstock"]["late"] for row in query.recentProgress) == 1


def test_facts_of_two_streams_with_objects_of_two_types(spark: Any) -> None:
    text = """SELECT ?u ?q FROM STREAM Log, EPG
        { ?u watches ?c ?T ?E . ?d plays ?q ?S ?F . ?d number ?c ?V ?W }
        CONTEXT (!?E < ?S && !?F < ?T && !?W < ?T && !?E < ?V && !?F < ?V && !?W < ?S)"""
    log = [("anna", "watches", 1, 0, 50), ("ben", "watches", 2, 10, 12)]
    guide = [
        ("c1", "number", '"1.0"^^<http://www.w3.org/2001/XMLSchema#decimal>', 0, 100),
        ("c1", "plays", "news", 20, 30),
        ("c1", "plays", "film", 60, 90),
    ]
    streams = {
        "Log": spark.createDataFrame(log, "s string, p string, o int, start long, end long"),
        "EPG": spark.createDataFrame(guide, "s string, p string, o string, start long, end long"),
    }
    with pytest.warns(UserWarning, match="one task"):
        found = stream_query(text, streams, budget="1000 tuples", policy="lru").collect()
    assert [(row.u, row.q) for row in found] == [("anna", "news")]


def test_bad_calls_are_refused(spark: Any) -> None:
    frame = spark.createDataFrame([("a", "reports", 1, 1)], "s string, p string, o int, start long")
    for call, said in (
        (lambda: stream_query(TEXT, {"wnd": frame}, budget="9 tuples"), "did you mean 'wnd'"),
        (lambda: stream_query(TEXT, {"wind": frame.drop("o")}, budget="9 tuples"), "no column 'o'"),
        (
            lambda: stream_query(TEXT, {"wind": frame.withColumn("start", frame.s)}, budget="9 tuples"),
            "allowed",
        ),
        (lambda: stream_query(TEXT, {"wind": frame}, budget="20 %"), "share of what the whole input"),
        (lambda: stream_query(TEXT, {"wind": frame}, budget="9 tuples", policy="life"), "not defined"),
        (lambda: stream_query("SELECT ?a", {"wind": frame}, budget="9 tuples"), "line 1, column"),
        (lambda: stream_query(TEXT, {"wind": {"s": []}}, budget="9 tuples"), "takes Spark DataFrames"),
    ):
        with pytest.raises(PenstockError, match=said):
            call()


def test_foreign_state_is_refused() -> None:
    spec = QuerySpec(TEXT, ps.Tuples(10), "clock", "literal", "ms", False, 0.0, 2)
    other = QuerySpec(
        TEXT.replace("reports", "tells"), ps.Tuples(10), "clock", "literal", "ms", False, 0.0, 2
    )
    data = Querier(spec, 0).to_bytes()
    assert Querier.from_bytes(spec, 0, data).latest is None
    for wrong in (b"", bytes(100), data[:-3]):
        with pytest.raises(SnapshotError):
            Querier.from_bytes(spec, 0, wrong)
    with pytest.raises(PenstockError, match="the query"):
        Querier.from_bytes(other, 0, data)
