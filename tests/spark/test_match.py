"""`match_pattern` on Spark finds what the pattern finds in process: batch, streaming, late and restarted."""

from __future__ import annotations

import struct
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import penstock as ps
from penstock.errors import PenstockError, SnapshotError
from penstock.patterns import snapshot
from penstock.spark import match_pattern
from penstock.spark.runtime.packer import BUCKET, EventPacking, PackedBatch, packer
from penstock.spark.runtime.pattern_bucket import PatternBucket, PatternSpec
from penstock.spark.runtime.state_log import SEAL
from tests.spark.conftest import write_files

TEXT = "PATTERN SEQ(A a, !B, C c, a.k = c.k = B.k) WITHIN 30 s RETURN a.n AS first, c.n AS last"
TRAILING = "PATTERN SEQ(A a, C c, !B, a.k = c.k = B.k) WITHIN 5 s RETURN a.n AS first, c.n AS last"


def events(n: int, seed: int = 3) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    at = np.cumsum(rng.integers(1, 900, n))
    return pd.DataFrame(
        {
            "type": rng.choice(list("ABCD"), n),
            "ts": pd.to_datetime(1_700_000_000_000 + at, unit="ms", utc=True).astype("datetime64[us, UTC]"),
            "k": rng.integers(0, 5, n),
            "n": np.arange(n),
        }
    )


def pairs(frame: pd.DataFrame) -> Counter[Any]:
    return Counter(zip(frame["first"].tolist(), frame["last"].tolist(), strict=True))


def test_foreign_state_is_refused_and_runs_nothing() -> None:
    spec = PatternSpec(ps.Pattern.parse(TEXT), "type", "ts", "int64", "us", 0.0, ("k", "n"), (), "columnar")
    harmful = b"cbuiltins\nexec\n(Vraise SystemExit\ntR."  # a pickle that calls exec
    header = snapshot.pack({})[:8]
    for data in (b"", bytes(100), harmful, SEAL.seal(harmful), header + harmful, packed_raw(harmful)):
        with pytest.raises(SnapshotError):
            PatternBucket.restore(spec, data)
    again = PatternBucket.restore(spec, PatternBucket(spec).snapshot())
    assert again.partitions.streams == {}


def packed_raw(body: bytes) -> bytes:
    """A body that was pickled elsewhere, with a header and a checksum that are right."""
    packed = pa.compress(body, codec="zstd", asbytes=True)
    return snapshot.SEAL.seal(struct.pack("<Q", len(body)) + packed)


@pytest.mark.parametrize("text", [TEXT, TRAILING])
def test_streams_and_batches_equal_the_run_in_process(
    spark: Any, stream_of: Any, collected: Any, tmp_path: Path, text: str
) -> None:
    frame = events(600)
    expected = pairs(ps.Pattern.parse(text).run(frame).matches.to_pandas())
    assert len(expected) > 20
    rng = np.random.default_rng(1)
    # The last file pushes the time on, so that all that waits is settled; within files nothing is in order.
    end = frame.tail(1).assign(type="D", ts=frame.ts.max() + pd.Timedelta("1 hour"), n=-1)
    files = [frame.iloc[i : i + 150].sample(frac=1, random_state=rng) for i in range(0, 600, 150)]
    folder = write_files(tmp_path / "in", [*files, end])
    batch = match_pattern(spark.read.parquet(str(folder)), text)
    assert pairs(batch.toPandas()) == expected
    got, query = collected(match_pattern(stream_of(folder), text))
    assert pairs(got) == expected
    told = [each["observedMetrics"]["penstock"] for each in query.recentProgress]
    assert sum(row["events"] for row in told) == 601
    assert sum(row["late"] for row in told) == 0


def test_a_restarted_query_goes_on(spark: Any, stream_of: Any, collected: Any, tmp_path: Path) -> None:
    frame = events(400, seed=5)
    expected = pairs(ps.Pattern.parse(TEXT).run(frame).matches.to_pandas())
    folder = write_files(tmp_path / "in", [frame.iloc[:200]])
    first, _ = collected(match_pattern(stream_of(folder), TEXT))
    write_files(folder, [frame.iloc[:200], frame.iloc[200:]])
    second, _ = collected(match_pattern(stream_of(folder), TEXT))
    assert len(first) > 0
    assert len(second) > 0
    assert pairs(first) + pairs(second) == expected


def test_late_events_are_put_in_order_or_counted(
    spark: Any, stream_of: Any, collected: Any, tmp_path: Path
) -> None:
    frame = events(300, seed=7)
    late = frame.ts + pd.to_timedelta(np.random.default_rng(2).integers(0, 20, 300), unit="s")
    shuffled = frame.iloc[np.argsort(late.to_numpy(), kind="stable")]
    end = frame.tail(1).assign(type="D", ts=frame.ts.max() + pd.Timedelta("1 hour"), n=-1)
    folder = write_files(tmp_path / "in", [*(shuffled.iloc[i : i + 60] for i in range(0, 300, 60)), end])
    got, _ = collected(match_pattern(stream_of(folder), TEXT, lateness="25 s"), "patient")
    assert pairs(got) == pairs(ps.Pattern.parse(TEXT).run(frame).matches.to_pandas())
    _, query = collected(match_pattern(stream_of(folder), TEXT), "hasty")
    told = [each["observedMetrics"]["penstock"] for each in query.recentProgress]
    assert sum(row["late"] for row in told) > 0


def test_partitions_that_are_given_and_structs(spark: Any) -> None:
    rows = [("A", 1, "x"), ("A", 2, "y"), ("B", 3, "x"), ("B", 4, "x")]
    frame = spark.createDataFrame(rows, "type string, ts long, who string")
    text = "PATTERN SEQ(A a, OR(B b, C c)) WITHIN 2 EVENTS"
    found = match_pattern(frame, text, partition_by="who").collect()
    assert [(row.a.who, row.a.ts, row.b.ts, row.c, row.match_start, row.match_end) for row in found] == [
        ("x", 1, 3, None, 1, 3)
    ]
    with pytest.warns(UserWarning, match="partition_by"):
        assert match_pattern(frame, text).count() == 1


@pytest.mark.filterwarnings("ignore:No equality predicate")
def test_ties_stand_in_one_order_in_batches_and_streams(
    spark: Any, stream_of: Any, collected: Any, tmp_path: Path
) -> None:
    frame = pd.DataFrame(
        {"type": list("ABAB"), "ts": [1] * 4, "k": [None, "x", "z", None], "n": [1, 2, 3, 4]}
    )
    text = "PATTERN SEQ(A a, B b) WITHIN 5 RETURN a.n AS first, b.n AS last"
    folder = write_files(tmp_path / "in", [frame])
    expected = {(3, 4): 1, (1, 4): 1}  # by k, nulls last: 2, 3, 1, 4
    batch = match_pattern(spark.read.parquet(str(folder)), text, order=["k", "n"])
    assert pairs(batch.toPandas()) == expected
    stream = match_pattern(stream_of(folder), text, order=["k", "n"])
    assert pairs(collected(stream)[0]) == expected


def test_whole_times_that_no_float_has_are_not_late() -> None:
    first = 1_700_000_000_000_000_200  # the nearest float is 56 later
    spec = PatternSpec(
        ps.Pattern.parse("PATTERN SEQ(A a, B b) WITHIN 9"), "type", "ts", "int64", "ns", 2, (), (), "columnar"
    )
    matcher, found = PatternBucket(spec), 0
    for i, kind in enumerate("AABBx"):
        table = pa.table({"type": [kind], "ts": [first + 3 * i], BUCKET: pa.array([0], pa.int32())})
        (piece,) = packer(EventPacking((0,), time="ts"))(iter(table.to_batches()))
        (packed,) = (row for row in piece.to_pylist() if row["label"] == 0)
        assert packed["latest"] <= first + 3 * i
        found += sum(
            t.num_rows for t in matcher.process(PackedBatch([(0, packed["blob"])], latest=packed["latest"]))
        )
        assert matcher.figures.late == 0
    assert found == 4


def test_bad_calls_are_refused(spark: Any) -> None:
    frame = spark.createDataFrame([("A", 1, "x")], "type string, ts long, who string")
    good = "PATTERN SEQ(A a, B b, a.who = b.who) WITHIN 5"
    for call, said in (
        (lambda: match_pattern(frame, good, time="at"), "no column 'at'"),
        (lambda: match_pattern(frame, good, time="who"), "allowed are timestamps"),
        (lambda: match_pattern(frame, good, strategy="fast"), "strategy='fast'"),
        (lambda: match_pattern(frame, good, budget="10 %", strategy="object"), "in bytes"),
        (lambda: match_pattern(frame, good, budget="1 MiB"), "budget=.* for the caches"),
        (lambda: match_pattern(frame, good, policy="lru"), "policy=.* for the caches"),
        (lambda: match_pattern(frame, good, policy="gdj", strategy="iterative"), "policy=.* for the caches"),
        (lambda: match_pattern(frame, good, policy="gdj", strategy="object"), "without budget="),
        (lambda: match_pattern({"type": []}, good), "takes a Spark DataFrame"),
        (lambda: match_pattern(frame, "PATTERN SEQ(A WITHIN 5"), "line 1, column"),
        (lambda: match_pattern(frame, 5), "A pattern is a text"),
        (lambda: match_pattern(frame, good, order=5), "order takes the name"),
        (lambda: match_pattern(frame, good, partition_by=5), "partition_by takes the name"),
        (lambda: match_pattern(frame, good, name=""), "a text"),
        (lambda: match_pattern(frame, good, budget=0, strategy="object"), "at least one byte"),
        (lambda: match_pattern(frame, "PATTERN SEQ(A a, B b, a.who = 3) WITHIN 5"), "a text with a number"),
        (
            lambda: match_pattern(frame, "PATTERN SEQ(A a, B b, a.who = b.ts) WITHIN 5"),
            "a number with a text",
        ),
        (lambda: match_pattern(frame, "PATTERN SEQ(A match_start, B b) WITHIN 5"), "with AS"),
        (lambda: match_pattern(frame.withColumnRenamed("who", BUCKET), "PATTERN A WITHIN 5"), "rename it"),
        (
            lambda: match_pattern(frame.selectExpr("array(type) type", "ts"), "PATTERN A WITHIN 5"),
            "cannot be types",
        ),
    ):
        with pytest.raises(PenstockError, match=said):
            call()


ODD = {"type": "a.type", "ts": "t`s", "k": "k.`k", "n": "n."}


def test_columns_with_dots_and_backticks(spark: Any, stream_of: Any, collected: Any, tmp_path: Path) -> None:
    frame = events(120)
    expected = pairs(ps.Pattern.parse(TEXT).run(frame).matches.to_pandas())
    odd = frame.rename(columns=ODD)
    text = TEXT.replace(".k", '."k.`k"').replace(".n", '."n."')
    options = {"type": "a.type", "time": "t`s"}
    found = match_pattern(spark.createDataFrame(odd), text, **options).toPandas()
    assert pairs(found) == expected
    folder = write_files(tmp_path / "in", [odd])
    streamed, _ = collected(match_pattern(stream_of(folder), text, **options))
    assert pairs(streamed) == expected
