"""`stream_query` on Spark finds what the query finds in process: batch, streaming, late and restarted."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import penstock as ps
from penstock.errors import PenstockError, SnapshotError
from penstock.patterns import snapshot
from penstock.spark import stream_query
from penstock.spark.monitor.totals import RunningTotals
from penstock.spark.runtime.arrow_blobs import to_blob
from penstock.spark.runtime.figures import figures_of
from penstock.spark.runtime.packer import PackedBatch
from penstock.spark.runtime.query_bucket import STREAM, QueryBucket, QuerySpec
from penstock.spark.runtime.state_log import refuse_changes
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
    choices = [json.loads(choice) for row in told for choice in row["choices"]]
    assert {choice["policy"] for choice in choices} == {"gdj"}


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
    told = [row["observedMetrics"]["penstock"] for row in query.recentProgress]
    assert sum(row["late"] for row in told) == 1
    assert sum(row["state_written"] for row in told) > 0


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
        (lambda: stream_query(TEXT, {"wind": frame}, budget="9 tuples", policy="age"), "not defined"),
        (lambda: stream_query("SELECT ?a", {"wind": frame}, budget="9 tuples"), "line 1, column"),
        (lambda: stream_query(TEXT, {"wind": {"s": []}}, budget="9 tuples"), "takes Spark DataFrames"),
    ):
        with pytest.raises(PenstockError, match=said):
            call()


SPEC = QuerySpec(TEXT, ps.Tuples(1_000), "lru", "literal", "us", True, 0.0, 1)


def packed(frame: pd.DataFrame) -> PackedBatch:
    """A batch as the packer makes it for the one bucket."""
    table = pa.Table.from_pandas(frame.assign(end=frame.start), preserve_index=False)
    table = table.append_column(STREAM, pa.array(np.zeros(len(frame), np.int32)))
    return PackedBatch([(0, to_blob(table))])


def rows_of(tables: list[pa.Table]) -> Counter[Any]:
    return Counter(repr(row) for table in tables for row in table.to_pylist())


@pytest.mark.usefixtures("hasty")
@pytest.mark.parametrize(("policy", "tuples"), [("lru", 1_000), ("auto:candidates=fifo/prob/lru", 4)])
def test_a_bucket_goes_on_from_a_snapshot_and_a_log(policy: str, tuples: int) -> None:
    """What the state_log does when a worker is lost: the snapshot is read, and later batches are replayed."""
    spec = replace(SPEC, policy=policy, budget=ps.Tuples(tuples))
    parts = [packed(readings(600, seed=9).iloc[i : i + 100]) for i in range(0, 600, 100)]
    whole = QueryBucket(spec)
    found = [rows_of(whole.process(part)) for part in parts]
    first = QueryBucket(spec)
    for part in parts[:2]:
        first.process(part)
    again = QueryBucket.restore(spec, first.snapshot())
    for part in parts[2:4]:
        assert again.process(PackedBatch.from_bytes(part.to_bytes()), quiet=True) == []
    assert not again.adapt()
    assert [rows_of(again.process(part)) for part in parts[4:]] == found[4:]
    again.state.check()
    assert again.state.totals == whole.state.totals
    assert again.figures.choice == whole.figures.choice
    assert (policy == "lru") == (whole.figures.choice is None)


@pytest.mark.parametrize("policy", ["lru", "clock", "gdj", "auto"])
@pytest.mark.parametrize("tuples", [4, 20, 5_000])
def test_another_budget_and_policy_take_over(tuples: int, policy: str) -> None:
    frame = readings(600, seed=4)
    parts = [packed(frame.iloc[i : i + 100]) for i in range(0, 600, 100)]
    before = QueryBucket(SPEC)
    found = Counter[Any]()
    for part in parts[:3]:
        found += rows_of(before.process(part))
    held = before.state.totals["buffered"]
    changed = replace(SPEC, budget=ps.Tuples(tuples), policy=policy)
    after = QueryBucket.restore(changed, before.snapshot())
    assert after.adapt()
    assert not after.adapt()
    after.state.check()
    assert after.state.totals["buffered"] == min(held, tuples)
    assert after.state.totals["results"] == sum(found.values())
    after.process(parts[3])
    assert after.figures.evicted >= max(0, held - tuples)
    exact = QueryBucket(SPEC)
    for part in parts[:4]:
        exact.process(part)
    later = [rows_of(after.process(part)) for part in parts[4:]]
    expected = [rows_of(exact.process(part)) for part in parts[4:]]
    for mine, all_of_them in zip(later, expected, strict=True):
        assert mine <= all_of_them
    if tuples == 5_000:
        assert later == expected


def test_figures_have_what_was_missed() -> None:
    """Added up over batches, a restart between them; the monitor makes a recall of them."""
    frame = readings(600, seed=9)
    parts = [packed(frame.iloc[i : i + 100]) for i in range(0, 600, 100)]
    spec = replace(SPEC, budget=ps.Tuples(2), policy="fifo")
    whole, small = QueryBucket(SPEC), QueryBucket(spec)
    exact, totals = 0, RunningTotals()
    for number, part in enumerate(parts):
        whole.process(part)
        exact += whole.figures.results
        small = QueryBucket.restore(spec, small.snapshot())
        small.process(part)
        told = figures_of({"observedMetrics": {"penstock": small.figures.flat()}})
        assert told is not None
        totals.add(told, batch=number)
    found = totals.totals()
    assert found["results"] + found["missed"] == pytest.approx(exact)
    assert found["recall"] == pytest.approx(found["results"] / exact)
    assert found["results"] < exact
    assert (found["arrived_triples"], found["buffered_triples"]) == (600, 2)
    assert not found["recall_at_most"]
    late = packed(frame.iloc[:100])
    small.process(late)
    assert small.figures.late == small.figures.unestimated == 100
    assert small.figures.guessed > 0


def test_foreign_state_is_refused() -> None:
    data = QueryBucket(SPEC).snapshot()
    assert QueryBucket.restore(SPEC, data).latest is None
    for wrong in (b"", bytes(100), data[:-3], snapshot.pack({"state": b""})):
        with pytest.raises(SnapshotError):
            QueryBucket.restore(SPEC, wrong)
    other = replace(SPEC, text=TEXT.replace("reports", "tells"))
    with pytest.raises(PenstockError, match="the query cannot change"):
        refuse_changes(SPEC.fixed(), other.fixed())
