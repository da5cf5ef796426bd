"""`bounded_join` with a budget that nothing exceeds gives what Spark's own join gives."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from pyspark.sql import functions as F

import penstock as ps
from penstock.errors import PenstockError
from penstock.spark import bounded_join
from penstock.spark.api import join as join_module
from penstock.spark.runtime.bucket_labels import labels, share
from tests.spark.conftest import write_files

ENOUGH = ps.Tuples(100_000)


def rows_of(frame: pd.DataFrame) -> Counter[Any]:
    """The rows as a multiset, whatever their order and whatever they hold."""
    return Counter(tuple(str(value) for value in row) for row in frame.itertuples(index=False))


def random_side(rng: np.random.Generator, n: int, first: int, last: int, value: str) -> pd.DataFrame:
    """Rows with ties, nulls and times in no order."""
    seconds = rng.integers(first, last, n)
    keys = rng.integers(0, 20, n).astype(object)
    keys[rng.random(n) < 0.05] = None
    return pd.DataFrame(
        {
            "k": pd.array(keys, "Int64"),
            "name": pd.array(rng.choice(["x", "y", None], n, p=[0.5, 0.4, 0.1]), "string"),
            "ts": pd.to_datetime(1_700_000_000 + seconds, unit="s", utc=True).astype("datetime64[us, UTC]"),
            value: rng.random(n).round(3),
        }
    )


def native(left: Any, right: Any, seconds: int) -> Any:
    """Spark's own join of two frames with these columns."""
    a, b = left.alias("a"), right.alias("b")
    near = F.abs(F.unix_micros("a.ts") - F.unix_micros("b.ts")) <= seconds * 1_000_000
    joined = a.join(b, (F.col("a.k") == F.col("b.k")) & (F.col("a.name") == F.col("b.name")) & near)
    return joined.selectExpr("a.k", "a.name", "a.ts as ts_left", "a.l", "b.ts as ts_right", "b.r")


@pytest.mark.parametrize("pace", ["late rows", "hours ahead"])
def test_equals_sparks_join(spark: Any, stream_of: Any, collected: Any, tmp_path: Path, pace: str) -> None:
    rng = np.random.default_rng(1)
    if pace == "late rows":
        starts, behind, width, lateness = [0, 100, 200], [200, 100, 0], 250, "1 day"
    else:
        starts, behind, width, lateness = [0, 14_400, 28_800], [-14_400, 0, 14_400], 300, "0 seconds"
    lefts = [random_side(rng, 300, start, start + width, "l") for start in starts]
    rights = [random_side(rng, 300, start, start + width, "r") for start in behind]
    left, right = write_files(tmp_path / "left", lefts), write_files(tmp_path / "right", rights)
    joined = bounded_join(
        stream_of(left),
        stream_of(right),
        on=["k", "name"],
        time="ts",
        within="1 minute",
        budget=ENOUGH,
        lateness=lateness,
    )
    got, _ = collected(joined)
    exact = native(spark.read.parquet(str(left)), spark.read.parquet(str(right)), 60).toPandas()
    assert list(got.columns) == list(exact.columns)
    assert len(exact) > 100
    assert rows_of(got) == rows_of(exact)
    batch = bounded_join(
        spark.read.parquet(str(left)),
        spark.read.parquet(str(right)),
        on=["k", "name"],
        time="ts",
        within="1 minute",
        budget=ENOUGH,
    )
    assert rows_of(batch.toPandas()) == rows_of(exact)


def test_a_window_aggregation_can_follow(spark: Any, stream_of: Any, collected: Any, tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    sides = [[random_side(rng, 200, i * 600, i * 600 + 600, value) for i in range(4)] for value in ("l", "r")]
    left, right = (write_files(tmp_path / name, side) for name, side in zip("lr", sides, strict=True))
    joined = bounded_join(
        stream_of(left).withWatermark("ts", "1 minute"),
        stream_of(right).withWatermark("ts", "1 minute"),
        on="k",
        time="ts",
        within="1 minute",
        budget=ENOUGH,
    )
    counts = joined.groupBy(F.window("event_time", "10 minutes")).agg(F.count("*").alias("n"))
    spark.conf.set("spark.sql.streaming.noDataMicroBatches.enabled", "true")
    try:
        got, _ = collected(counts)
    finally:
        spark.conf.set("spark.sql.streaming.noDataMicroBatches.enabled", "false")
    a, b = spark.read.parquet(str(left)).alias("a"), spark.read.parquet(str(right)).alias("b")
    near = F.abs(F.unix_micros("a.ts") - F.unix_micros("b.ts")) <= 60_000_000
    later = a.join(b, (F.col("a.k") == F.col("b.k")) & near).select(F.greatest("a.ts", "b.ts").alias("t"))
    whole = later.groupBy(F.window("t", "10 minutes")).agg(F.count("*").alias("n")).toPandas()
    exact, found = (
        {str(row["window"]["start"]): row["n"] for _, row in frame.iterrows()} for frame in (whole, got)
    )
    assert len(found) >= 3
    assert all(exact[start] == n for start, n in found.items())


def test_labels_put_buckets_into_partitions_of_their_own(spark: Any) -> None:
    for buckets in (1, 2, 5, 16):
        frame = spark.createDataFrame([(label,) for label in labels(buckets)], "label int")
        placed = frame.selectExpr(f"pmod(hash(label), {buckets}) as p").collect()
        assert [row["p"] for row in placed] == list(range(buckets))


def test_bad_calls_are_refused_before_any_work(spark: Any, stream_of: Any, tmp_path: Path) -> None:
    frame = spark.createDataFrame([(1, 2, "x")], "k int, ts long, s string")
    stream = stream_of(write_files(tmp_path / "f", [pd.DataFrame({"k": [1], "ts": [2]})]))
    fine = {"on": "k", "time": "ts", "within": 10, "budget": ENOUGH}
    cases: list[tuple[Any, Any, dict[str, Any], str]] = [
        (frame, frame, {"on": "key"}, "no column 'key'; did you mean 'k'"),
        (frame, frame, {"on": [("k", "s")]}, "different types"),
        (frame, frame, {"time": "s"}, "timestamps"),
        (frame, frame, {"how": "lefty"}, "did you mean 'left'"),
        (frame, frame, {"emit": "everything"}, "emit"),
        (frame, frame, {"policy": "gjd"}, "did you mean 'gdj'"),
        (frame, frame, {"within": -1}, "not negative"),
        (frame, frame, {"within": ps.Rows(3)}, "window of time"),
        (frame, frame, {"buckets": 0}, "buckets"),
        (frame, frame, {"budget": ps.Tuples(3), "buckets": 2}, "at least one tuple per stream"),
        (frame, stream, {}, "not one of each"),
        (stream, stream, {"budget": ps.Fraction(0.5)}, "Tuples or Bytes"),
        (frame, frame, {"policy": "age:curve=trace", "allocation": "equal"}, "whole stream"),
        ({"k": [1]}, frame, {}, "Spark DataFrames"),
    ]
    for left, right, change, message in cases:
        with pytest.raises(PenstockError, match=message):
            bounded_join(left, right, **(fine | change))


def test_a_fraction_is_of_what_each_stream_needs(spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows without a key are no arrivals, and a one-sided window keeps left rows only."""
    budgets: list[Any] = []

    def noted(budget: Any, buckets: int) -> Any:
        budgets.append(budget)
        return share(budget, buckets)

    monkeypatch.setattr(join_module, "share", noted)
    left = spark.createDataFrame([(n % 5 if n % 10 else None, n) for n in range(100)], "k long, ts long")
    right = spark.createDataFrame([(n % 5, 5 * n) for n in range(20)], "k long, ts long")
    # From 0, the first right row, to 99, the last left one with a key.
    for within, kept in (((0, 30), 90 * 30), (30, 110 * 30), ((30, 0), 20 * 30)):
        bounded_join(left, right, on="k", time="ts", within=within, budget=ps.Fraction(1.0), policy="fifo")
        assert budgets.pop() == ps.Tuples(kept // 99)
