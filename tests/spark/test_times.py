"""Times that cannot be used, near and beyond the limits of numbers, are skipped and counted like nulls."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import functions as F

import penstock as ps
from penstock.errors import ColumnError, UnitWarning
from penstock.spark import bounded_join, bounded_join_many, match_pattern, stream_query
from penstock.spark.runtime.arrow_blobs import to_blob
from penstock.spark.runtime.join_bucket import JoinBucket
from penstock.spark.runtime.packer import BUCKET, KEY, ArrivalPacking, PackedBatch, as_numbers, packer
from penstock.spark.runtime.pattern_bucket import PatternBucket, PatternSpec
from penstock.spark.runtime.query_bucket import END, START, STREAM, QueryBucket, QueryPacking, QuerySpec
from tests.spark.packed import divided, spec_of

WIDE = [0, 2**61 - 1, 2**61, -(2**61), 2**62, 2**63 - 1, -(2**63), None]


@pytest.mark.parametrize(
    ("times", "dtype", "usable"),
    [
        (pa.array(WIDE, pa.int64()), "int64", [0, 2**61 - 1]),
        (pa.array(WIDE, pa.int64()), "float64", [0.0]),  # the others would be rounded, or are too far
        (pa.array([0, 2**31 - 1, -(2**31)], pa.int32()), "int64", [0, 2**31 - 1, -(2**31)]),
        (pa.array([0.5, 1e300, float("inf"), float("nan"), 2.0**61, None]), "float64", [0.5]),
        (pa.array([0, 2**62, -(2**63)], pa.timestamp("us", "UTC")), "int64", [0]),
        (pa.array([1, 2**31 - 1, -(2**31)], pa.date32()), "int64", [86_400_000_000]),
        (pa.array([Decimal(7), Decimal(10**25)], pa.decimal128(38, 0)), "int64", [7]),
        (pa.array([Decimal("7.5"), Decimal("1e25")], pa.decimal128(38, 2)), "float64", [7.5]),
    ],
)
def test_times_as_numbers(times: pa.Array, dtype: str, usable: list[Any]) -> None:
    found = as_numbers(pa.chunked_array([times]), dtype)
    assert found.type == (pa.int64() if dtype == "int64" else pa.float64())
    assert found.drop_null().to_pylist() == usable


def packed_rows(times: list[Any], side: int) -> tuple[tuple[int, bytes], int]:
    """Rows of a join as its packer gives them, and how many it skipped."""
    rows = len(times)
    table = pa.table(
        {
            KEY: pa.array([1] * rows, pa.int64()),
            BUCKET: pa.array([0] * rows, pa.int32()),
            "c0": pa.array(times, pa.int64()),
            "c1": [str(n) for n in range(rows)],
            "k0": pa.array([1] * rows, pa.int64()),
        }
    )
    (packed,) = packer(ArrivalPacking((0,), side, "c0"))(iter(table.to_batches()))
    row = next(row for row in packed.to_pylist() if row["label"] == 0)
    return (side, row["blob"]), row["skipped"]


def test_a_join_skips_and_counts_them() -> None:
    left, right = packed_rows([5, *WIDE[2:]], 0), packed_rows([6, 2**62], 1)
    bucket = JoinBucket(spec_of())
    results, _ = divided(bucket.process(PackedBatch([left[0], right[0]], skipped=left[1] + right[1])))
    assert sum(table.num_rows for table in results) == 1
    assert bucket.figures.skipped == len(WIDE[2:]) + 1


def test_a_watermark_beyond_is_followed_to_the_limit() -> None:
    spec = spec_of()
    spec = replace(spec, left=replace(spec.left, watermark=True), right=replace(spec.right, watermark=True))
    bucket = JoinBucket(spec)
    bucket.process(PackedBatch(watermark=2**62 // 1_000))
    assert bucket.state.flow.progress.tolist() == [2**61 - 1] * 2


def test_a_pattern_skips_and_counts_them() -> None:
    spec = PatternSpec(
        ps.Pattern.parse("PATTERN SEQ(A a, B b) WITHIN 5"), "type", "ts", "int64", "ms", 0, (), (), "columnar"
    )
    matcher = PatternBucket(spec)
    far = [2**61, 2**62 + 1, 2**63 - 1, -(2**63), None]
    table = pa.table({"type": ["A", "B", *["A"] * 5, "B"], "ts": pa.array([1, 2, *far, 9], pa.int64())})
    found = matcher.process(PackedBatch([(0, to_blob(table))]))
    assert sum(each.num_rows for each in found) == 1
    assert matcher.figures.skipped == len(far)


QUERY = "SELECT ?a ?b FROM STREAM w { ?a r ?x ?T . ?b r ?x ?U } CONTEXT ((?U - ?T) <= 5)"


def test_a_query_skips_and_counts_them() -> None:
    spec = QuerySpec(QUERY, ps.Tuples(100), "gdj", "literal", "ms", False, 0.0, 1)
    far = [2**53 + 1, 2**62, -(2**63), None]
    rows = 2 + len(far) + 1
    table = pa.table(
        {
            "s": [f"s{n}" for n in range(rows)],
            "p": ["r"] * rows,
            "o": ["1"] * rows,
            START: pa.array([1, 2, *far, 3], pa.int64()),
            END: pa.array([1, 2, *far, 2**62], pa.int64()),
            STREAM: pa.array([0] * rows, pa.int32()),
        }
    )
    (packed,) = packer(QueryPacking((0,), spec=spec))(iter(table.to_batches()))
    piece = next(row for row in packed.to_pylist() if row["label"] == 0)
    querier = QueryBucket(spec)
    batch = PackedBatch([(0, piece["blob"])], skipped=piece["skipped"], latest=2.0)
    found = querier.process(batch)
    assert querier.figures.skipped == len(far) + 1
    assert sum(each.num_rows for each in found) == 4  # two triples, each also with itself


def write(spark: Any, folder: Path, rows: list[tuple[Any, ...]], schema: str, streaming: bool) -> Any:
    """Rows as a DataFrame, or as a stream of files."""
    frame = spark.createDataFrame(rows, schema)
    if not streaming:
        return frame
    frame.coalesce(1).write.parquet(str(folder))
    return spark.readStream.schema(schema).parquet(str(folder))


def collected(spark: Any, frame: Any, folder: Path, streaming: bool) -> list[Any]:
    if not streaming:
        return frame.collect()
    query = (
        frame.writeStream.format("parquet")
        .option("path", str(folder / "out"))
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return spark.read.schema(frame.schema).parquet(str(folder / "out")).collect()


@pytest.mark.parametrize("streaming", [False, True])
def test_one_far_time_does_not_end_a_job(spark: Any, tmp_path: Path, streaming: bool) -> None:
    far = [(1, 2**61), (1, 2**62), (1, 2**63 - 1), (1, -(2**63)), (1, None)]
    schema = "k int, ts bigint"
    left = write(spark, tmp_path / "left", [(1, 5), (1, 2**61 - 1), *far], schema, streaming)
    right = write(spark, tmp_path / "right", [(1, 6), *far], schema, streaming)
    two = bounded_join(left, right, on="k", time="ts", within=10, budget="100 tuples", policy="lru")
    assert len(collected(spark, two, tmp_path / "two", streaming)) == 1
    if streaming:
        return
    many = bounded_join_many(
        {"a": left, "b": right}, on="k", time="ts", within=10, budget="100 tuples", policy="lru"
    )
    assert len(many.collect()) == 1
    typed = [("A", 1, 5), ("B", 1, 6), *[("B", 1, ts) for _, ts in far]]
    events = spark.createDataFrame(typed, "type string, k int, ts bigint")
    pattern = "PATTERN SEQ(A a, B b) WITHIN 5"
    assert len(match_pattern(events, pattern, time="ts", partition_by="k").collect()) == 1
    triples = [("a", "r", 1, 5), ("b", "r", 1, 6), *[("b", "r", 1, ts) for _, ts in far]]
    wind = spark.createDataFrame(triples, "s string, p string, o int, start bigint")
    found = stream_query(QUERY, {"w": wind}, budget="100 tuples", policy="gdj").collect()
    assert len(found) == 4  # two triples, each also with itself


def test_times_of_a_kind_that_spark_cannot_join_say_what_to_cast(spark: Any) -> None:
    texts = spark.createDataFrame([("a", "2026-01-01")], "k string, ts string")
    numbers = spark.createDataFrame([("a", 1)], "k string, ts long")
    dates = texts.withColumn("ts", texts["ts"].cast("date"))
    for left, right, said in (
        (texts, texts, "Cast both, for example with to_timestamp"),
        (texts, numbers, "Cast 'ts' of the left stream"),
        (numbers, texts, "Cast 'ts' of the right stream"),
        (numbers, dates, "Cast one of them to the type of the other"),
    ):
        with pytest.raises(ColumnError, match=said):
            bounded_join(left, right, on="k", time="ts", within="1 minute", budget="1 MiB")


def test_a_bare_number_on_timestamps_is_told(spark: Any) -> None:
    stamps = spark.createDataFrame([("a", 1)], "k string, ts long").withColumn(
        "ts", F.timestamp_seconds("ts")
    )
    with pytest.warns(UnitWarning, match="within=10 is 10 microseconds"):
        bounded_join(stamps, stamps, on="k", time="ts", within=10, budget="1 MiB", policy="fifo")
