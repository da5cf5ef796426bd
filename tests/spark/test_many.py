"""`bounded_join_many` with a budget that nothing exceeds is Spark's own join of them all; restarts go on."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pyspark.sql import Observation
from pyspark.sql import functions as F
from rich.console import Console

import penstock as ps
from penstock.errors import PenstockError, SnapshotError
from penstock.spark import PipelineMonitor, bounded_join_many
from penstock.spark.monitor.prometheus import Exporter
from penstock.spark.monitor.totals import RunningTotals
from penstock.spark.runtime.arrow_blobs import to_blob
from penstock.spark.runtime.join_spec import JoinSide
from penstock.spark.runtime.many_join import ManyBucket, ManySpec
from penstock.spark.runtime.packer import CHECK, KEY, TIME, PackedBatch
from penstock.spark.runtime.state_log import StateLog
from penstock.window import window_of
from tests.spark.conftest import write_files
from tests.spark.support import figures, rows_of
from tests.spark.test_state import variables

NAMES = ("seen", "clicked", "bought")
ENOUGH = ps.Tuples(100_000)
TWO_JOINS = [
    (("seen", "k"), ("clicked", "k")),
    (("clicked", "name"), ("bought", "name")),
]


def random_stream(rng: np.random.Generator, n: int, first: int, last: int, value: str) -> pd.DataFrame:
    """Rows with ties, nulls in keys and times, and times in no order."""
    keys = rng.integers(0, 12, n).astype(object)
    keys[rng.random(n) < 0.05] = None
    at = pd.Series(pd.to_datetime(1_700_000_000 + rng.integers(first, last, n), unit="s", utc=True))
    return pd.DataFrame(
        {
            "k": pd.array(keys, "Int64"),
            "name": pd.array(rng.choice(["x", "y", "z", None], n, p=[0.4, 0.3, 0.2, 0.1]), "string"),
            "ts": at.mask(rng.random(n) < 0.03).astype("datetime64[us, UTC]"),
            value: rng.random(n).round(3),
        }
    )


def streams_of(rng: np.random.Generator, starts: Any, rows: int, width: int) -> Any:
    """Per stream the frames of its files, each of which begins at the given second of all or its own."""
    starts = starts if isinstance(starts, dict) else dict.fromkeys(NAMES, starts)
    return {
        name: [random_stream(rng, rows, start, start + width, name[0]) for start in starts[name]]
        for name in NAMES
    }


def close(names: str, seconds: int) -> Any:
    """Whether the latest time of some aliases is within so many seconds of the earliest, and none is null."""
    times = F.array(*[F.unix_micros(f"{name}.ts") for name in names])
    there = ~F.exists(times, lambda time: time.isNull())
    return there & (F.array_max(times) - F.array_min(times) <= seconds * 1_000_000)


def native(frames: dict[str, Any], seconds: int) -> Any:
    """Spark's own join of the three streams on both columns."""
    a, b, c = (frame.alias(name) for name, frame in zip("abc", frames.values(), strict=True))
    same = [F.col(f"a.{column}") == F.col(f"{other}.{column}") for other in "bc" for column in ("k", "name")]
    joined = a.join(b, same[:2]).join(c, same[2:]).where(close("abc", seconds))
    return joined.selectExpr(
        "a.k", "a.name", "a.ts ts_seen", "a.s", "b.ts ts_clicked", "b.c", "c.ts ts_bought", "c.b"
    )


def native_pair(frames: dict[str, Any], column: str, left: str, right: str, seconds: int) -> Any:
    """Spark's own join of two of the streams on one column."""
    a, b = frames[left].alias("a"), frames[right].alias("b")
    return a.join(b, F.col(f"a.{column}") == F.col(f"b.{column}")).where(close("ab", seconds))


@pytest.mark.parametrize("pace", ["late rows", "one hours ahead"])
def test_equals_sparks_join(spark: Any, stream_of: Any, collected: Any, tmp_path: Path, pace: str) -> None:
    rng = np.random.default_rng(1)
    if pace == "late rows":
        starts = {"seen": [0, 60, 120], "clicked": [120, 60, 0], "bought": [60, 0, 120]}
        width, lateness = 150, "1 day"
    else:
        starts = {"seen": [0, 9_000, 18_000], "clicked": [-9_000, 0, 9_000], "bought": [0, 9_000, 18_000]}
        width, lateness = 120, "0 seconds"
    folders = {
        name: write_files(tmp_path / name, files)
        for name, files in streams_of(rng, starts, 150, width).items()
    }
    settings: dict[str, Any] = {
        "on": ["k", "name"],
        "time": "ts",
        "within": "40 seconds",
        "budget": ENOUGH,
        "lateness": lateness,
    }
    got, query = collected(
        bounded_join_many({name: stream_of(folder) for name, folder in folders.items()}, **settings)
    )
    whole = {name: spark.read.parquet(str(folder)) for name, folder in folders.items()}
    exact = native(whole, 40).toPandas()
    assert list(got.columns) == list(exact.columns)
    assert len(exact) > 100
    assert rows_of(got) == rows_of(exact)
    told = figures(query)
    assert len(told) == 3
    assert sum(each["results"] for each in told) == len(exact)
    arrived = sum(each[f"arrived_{name}"] for each in told for name in NAMES)
    skipped = sum(each["skipped"] for each in told)
    assert (arrived + skipped, skipped > 0) == (3 * 3 * 150, True)
    assert sum(each["evicted_bought"] for each in told) == 0
    assert abs(sum(each["missed"] for each in told)) < 0.02 * len(exact)  # memory loses nothing
    if pace == "late rows":
        batch = bounded_join_many(whole, **settings | {"name": (seen := Observation("batch"))})
        assert rows_of(batch.toPandas()) == rows_of(exact)
        assert seen.get["join"]["results"] == len(exact)


def test_several_joins_in_one_memory(spark: Any, stream_of: Any, collected: Any, tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    starts = {"seen": [0, 100], "clicked": [100, 0], "bought": [0, 100]}
    folders = {
        name: write_files(tmp_path / name, files) for name, files in streams_of(rng, starts, 60, 200).items()
    }
    settings: dict[str, Any] = {
        "on": TWO_JOINS,
        "time": dict.fromkeys(NAMES, "ts"),
        "within": "20 seconds",
        "budget": ENOUGH,
        "lateness": "1 day",
    }
    whole = {name: spark.read.parquet(str(folder)) for name, folder in folders.items()}
    first = native_pair(whole, "k", "seen", "clicked", 20).selectExpr(
        "0 _join", "a.k k_seen", "a.name name_seen", "a.ts ts_seen", "a.s",
        "b.k k_clicked", "b.name name_clicked", "b.ts ts_clicked", "b.c",
    )  # fmt: skip
    second = native_pair(whole, "name", "clicked", "bought", 20).selectExpr(
        "1 _join", "a.k k_clicked", "a.name name_clicked", "a.ts ts_clicked", "a.c",
        "b.k k_bought", "b.name name_bought", "b.ts ts_bought", "b.b",
    )  # fmt: skip
    joined = bounded_join_many({name: stream_of(folder) for name, folder in folders.items()}, **settings)
    exact = first.unionByName(second, allowMissingColumns=True).select(*joined.columns).toPandas()
    got, _ = collected(joined)
    assert min(exact["_join"].value_counts()) > 50
    assert len(exact["_join"].unique()) == 2
    assert rows_of(got) == rows_of(exact)
    assert rows_of(bounded_join_many(whole, **settings).toPandas()) == rows_of(exact)


def test_columns_of_other_names_and_types(spark: Any) -> None:
    a = spark.createDataFrame([(1, 0, "p"), (2, 3, "q")], "id int, at int, what string")
    b = spark.createDataFrame([(1, 4, "r"), (None, 3, "s")], "key long, ts long, what string")
    c = spark.sql("SELECT 6D moment, 1.00BD `the key` UNION ALL SELECT 5D, 2.00BD")
    joined = bounded_join_many(
        {"a": a, "b b": b, "c": c},
        on=[(("b b", "key"), ("c", "the key"), ("a", "id"))],
        time={"a": "at", "b b": "ts", "c": "moment"},
        within=6,
        budget="50 tuples",
        buckets=3,
    )
    assert joined.columns == ["key", "at", "what_a", "ts", "what_b b", "moment"]
    assert [tuple(row) for row in joined.collect()] == [(1, 0, "p", 4, "r", 6.0)]
    assert joined.schema["key"].dataType.simpleString() == "bigint"


def test_a_window_aggregation_can_follow(spark: Any, stream_of: Any, collected: Any, tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    starts = [0, 600, 1_200, 1_800]
    folders = {
        name: write_files(tmp_path / name, files) for name, files in streams_of(rng, starts, 60, 600).items()
    }
    marked = {name: stream_of(folder).withWatermark("ts", "1 minute") for name, folder in folders.items()}
    joined = bounded_join_many(marked, on="name", time="ts", within="30 seconds", budget=ENOUGH)
    assert joined.columns[-1] == "event_time"
    counts = joined.groupBy(F.window("event_time", "10 minutes")).agg(F.count("*").alias("n"))
    spark.conf.set("spark.sql.streaming.noDataMicroBatches.enabled", "true")
    try:
        got, _ = collected(counts)
    finally:
        spark.conf.set("spark.sql.streaming.noDataMicroBatches.enabled", "false")
    a, b, c = (
        spark.read.parquet(str(folder)).alias(alias)
        for alias, folder in zip("abc", folders.values(), strict=True)
    )
    same = [F.col("a.name") == F.col(f"{other}.name") for other in "bc"]
    latest = (
        a.join(b, same[0])
        .join(c, same[1])
        .where(close("abc", 30))
        .select(F.greatest("a.ts", "b.ts", "c.ts").alias("t"))
    )
    whole = latest.groupBy(F.window("t", "10 minutes")).agg(F.count("*").alias("n")).toPandas()
    exact, found = (
        {str(row["window"]["start"]): row["n"] for _, row in frame.iterrows()} for frame in (whole, got)
    )
    assert len(found) >= 3
    assert all(exact[start] == n for start, n in found.items())


JOIN: dict[str, Any] = {
    "on": "name",
    "time": "ts",
    "within": "30 seconds",
    "budget": ps.Tuples(60),
    "buckets": 2,
}


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, list[pd.DataFrame]]]:
    """A folder for streams, and the files that will come."""
    rng = np.random.default_rng(7)
    return tmp_path_factory.mktemp("begun"), streams_of(rng, [0, 60, 120, 180], 70, 60)


def test_a_restarted_query_goes_on_exactly(
    spark: Any, stream_of: Any, collected: Any, begun: Any, tmp_path: Path
) -> None:
    from pyspark.errors import StreamingQueryException

    folder, files = begun

    def query(**changes: Any) -> Any:
        frames = {name: stream_of(folder / name) for name in NAMES}
        frames |= changes.pop("frames", {})
        return bounded_join_many(frames, **JOIN | changes)

    for name in NAMES:
        write_files(folder / name, files[name][:2])
    before, earlier = collected(query(), "restarted")
    assert sum(each["evicted_seen"] for each in figures(earlier)) > 0
    for name in NAMES:
        write_files(folder / name, files[name])
    for change, reason in [
        ({"buckets": 3}, "the number of buckets cannot change"),
        ({"on": "k"}, "the joins cannot change"),
        ({"within": "31 seconds"}, "the window cannot change"),
    ]:
        with pytest.raises(StreamingQueryException, match=reason):
            collected(query(**change), "restarted")
    StateLog.remembered.clear()
    after, later = collected(query(), "restarted")
    whole, _ = collected(query(), "whole")
    assert rows_of(pd.concat([before, after])) == rows_of(whole)
    assert min(len(before), len(after)) > 50
    assert all(sum(each[f"buffered_{name}"] for name in NAMES) <= 60 for each in figures(later))


def test_a_monitor_tells_of_every_stream(spark: Any, stream_of: Any, tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    files = streams_of(rng, [0], 100, 60)
    frames = {name: stream_of(write_files(tmp_path / name, files[name])) for name in NAMES}
    with PipelineMonitor(spark, console=False) as monitor:
        joined = bounded_join_many(frames, **JOIN)
        query = joined.writeStream.format("noop").trigger(availableNow=True).start()
        query.awaitTermination()
    totals = monitor.totals
    assert monitor.streams == NAMES
    assert sum(totals[f"evicted_{name}"] for name in NAMES) == sum(totals["evicted_per_bucket"].values()) > 0
    assert 0 < totals["recall"] < 1
    assert totals["recall"] == pytest.approx(totals["results"] / (totals["results"] + totals["missed"]))
    console = Console(file=io.StringIO(), width=120)
    console.print(monitor)
    shown = console.file.getvalue()  # type: ignore[attr-defined]
    assert "evicted, bought" in shown
    assert "memory seen / clicked / bought" in shown
    told = {family.name: family for family in Exporter(monitor).collect()}
    assert {sample.labels["stream"] for sample in told["penstock_evicted_rows"].samples} == set(NAMES)
    assert [sample.value for sample in told["penstock_recall"].samples] == [totals["recall"]]


def test_bad_calls_are_refused_before_any_work(spark: Any, stream_of: Any, tmp_path: Path) -> None:
    frame = spark.createDataFrame([(1, 2, "x")], "k int, ts long, s string")
    stream = stream_of(write_files(tmp_path / "f", [pd.DataFrame({"k": [1], "ts": [2]})]))
    three = dict.fromkeys("abc", frame)
    fine: dict[str, Any] = {"streams": three, "on": "k", "time": "ts", "within": 10, "budget": ENOUGH}
    pair = (("a", "k"), ("b", "k"))
    cases: list[tuple[dict[str, Any], str]] = [
        ({"streams": {"a": frame}}, "at least two streams; a dict of 1"),
        ({"streams": [frame, frame]}, "at least two streams; list"),
        ({"streams": {"a": frame, 2: frame}}, "name of a stream is a text; 2"),
        ({"streams": {"a": frame, "b": {"k": [1]}}}, "Spark DataFrames; 'b' is a dict"),
        ({"streams": {"a": frame, "b": stream}}, "'a' is batch, 'b' is streaming"),
        ({"on": "key"}, "The 'a' stream has no column 'key'; did you mean 'k'"),
        ({"on": 7}, "list of joins"),
        ({"on": [pair]}, "but 'c' does not"),
        ({"on": [(("a", "k"), ("b", "s"), ("c", "k"))]}, "different types"),
        ({"on": [pair, (("b", "k"), ("d", "k"))]}, "no stream 'd'"),
        ({"on": [pair, (("b", "s"), ("c", "s"))], "buckets": 4}, "need buckets=1; buckets=4 was given"),
        ({"time": "s"}, "all timestamps, all dates or all numbers; 's' of 'a' is string"),
        ({"time": {"a": "ts"}}, "has none for 'b'"),
        ({"within": -1}, "not negative"),
        ({"within": (0, 10)}, "must be symmetric"),
        ({"within": ps.Rows(3)}, "need a window of time"),
        ({"within": ps.Landmark(10)}, "window of time"),
        ({"budget": "1 KiB"}, "too little for the tables"),
        ({"budget": ps.Fraction(0.5)}, "give Tuples or Bytes"),
        ({"budget": ps.Tuples(5), "buckets": 2}, "at least one tuple per stream, 3 in all"),
        ({"buckets": 0}, "buckets"),
        ({"policy": "gjd"}, "did you mean 'gdj'"),
        ({"policy": "life"}, "not defined for joins of many streams"),
        ({"policy": "age:curve=trace", "allocation": "equal"}, "not defined for joins of many streams"),
        ({"allocation": "proportional"}, "use 'unified'"),
        ({"allocation": "unifed"}, "did you mean 'unified'"),
        ({"lateness": "-1 s"}, "lateness|not negative|duration"),
        ({"streams": three | {"c": frame.withColumnRenamed("s", "s_b")}}, "'s_b'. more than once"),
    ]
    for change, message in cases:
        given = fine | change
        with pytest.raises(PenstockError, match=message):
            bounded_join_many(given.pop("streams"), **given)


# The rest needs no Spark.


def spec_of(budget: int = 40, policy: str = "gdj", joins: Any = ((0, 1, 2),)) -> ManySpec:
    """Joins of rows with a key, a time and a number within 300 ms, in one bucket."""
    return ManySpec(
        names=NAMES,
        parts=tuple(JoinSide(("ts", "n"), (f"ts_{name}", f"n_{name}"), (), "ts", False) for name in NAMES),
        joins=joins,
        on=str(joins),
        within=window_of(300),
        budget=ps.Tuples(budget),
        policy=ps.policies.get(policy),
        allocation="unified",
        lateness=("50 ms",) * 3,
        seed=0,
        buckets=1,
        unit="ms",
        dtype="int64",
        event_time=None,
    )


def packed(spec: ManySpec, number: int, rows: int = 30, span: int = 200) -> PackedBatch:
    """The batch with this number, as the packer packs it."""
    rng = np.random.default_rng(number)
    blobs: list[tuple[int, Any]] = []
    for side in range(3):
        key = rng.integers(0, 5, (rows, len(spec.codes(side))))
        time = np.sort(rng.integers(number * span, (number + 1) * span, rows))
        columns: dict[str, Any] = {"c0": time, "c1": np.arange(rows), TIME: time}
        for place, join in enumerate(spec.joins_of(side)):
            columns[f"{KEY}{join}"] = columns[f"{CHECK}{join}"] = pa.array(key[:, place])
        blobs.append((side, to_blob(pa.table(columns))))
    return PackedBatch(blobs, watermark=-1, skipped=1)


def told(tables: Iterator[pa.Table]) -> list[Any]:
    """All rows of some tables."""
    return [row for table in tables for row in table.to_pylist()]


@pytest.mark.parametrize("joins", [((0, 1, 2),), ((0, 1), (1, 2, 0))], ids=["one join", "two"])
def test_a_bucket_goes_on_from_snapshot_and_log(joins: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(StateLog, "remembered", {})
    spec = spec_of(joins=joins)
    state_log, plain, whole = StateLog(*variables()), ManyBucket(spec), spec.figures()
    for number in range(8):
        if number % 2:
            StateLog.remembered.clear()  # as another worker would, it reads the snapshot and replays the log
        batch = packed(spec, number)
        opened = state_log.open(spec)
        assert isinstance(opened.bucket, ManyBucket)
        assert (opened.read > 0) == bool(number % 2)
        got = told(opened.bucket.process(batch))
        assert got == told(plain.process(batch))
        assert opened.bucket.figures == plain.figures
        whole.add(plain.figures)
        opened.bucket.state.check()
        state_log.commit(opened, batch)
    assert whole.results > 100
    assert sum(whole.evicted.values()) > 0
    with pytest.raises(PenstockError, match="the joins cannot change"):
        state_log.open(spec_of(joins=((0, 1, 2), (0, 1))))


def test_a_bucket_adapts_to_another_budget_and_policy() -> None:
    spec = spec_of(budget=200)
    bucket = ManyBucket(spec)
    for number in range(3):
        told(bucket.process(packed(spec, number)))
    before = bucket.state.buffered
    other = ManyBucket.restore(spec_of(budget=25, policy="lru"), bucket.snapshot())
    assert other.adapt()
    assert not other.adapt()
    other.state.check()
    assert other.state.buffered == 25 < before
    told(other.process(packed(spec, 3)))
    assert sum(other.figures.evicted.values()) >= before - 25


def test_keys_that_only_share_a_hash_do_not_join() -> None:
    spec = spec_of()
    bucket = ManyBucket(spec)
    blobs: list[tuple[int, Any]] = []
    for side in range(3):
        time = np.array([1, 2])
        checks = {f"{KEY}0": [7, 7], f"{CHECK}0": [1, 1 if side == 1 else 2]}
        blobs.append((side, to_blob(pa.table({"c0": time, "c1": [0, 1], TIME: time, **checks}))))
    rows = told(bucket.process(PackedBatch(blobs)))
    assert [(row["n_seen"], row["n_clicked"], row["n_bought"]) for row in rows] == [(0, 0, 0), (0, 1, 0)]


def test_state_of_two_streams_is_refused_for_many() -> None:
    from penstock.spark.runtime.join_bucket import JoinBucket
    from tests.spark.packed import packed as packed_pair
    from tests.spark.packed import spec_of as pair_of

    pair = JoinBucket(pair_of())
    told(pair.process(packed_pair(0)))
    with pytest.raises(SnapshotError):
        ManyBucket.restore(spec_of(), pair.snapshot())


def test_figures_of_many_streams_add_up() -> None:
    running = RunningTotals()
    row = {"bucket": 0, "results": 3, "missed": None, "evicted_a": 2, "evicted_b": 1, "evicted_c d": 0}
    for batch in range(2):
        running.add(row | {"buckets": [row]}, batch=batch)
    totals = running.totals()
    assert (totals["results"], totals["recall"]) == (6, None)
    assert (totals["evicted_a"], totals["evicted_c d"]) == (4, 0)
    assert running.streams == ("a", "b", "c d")
    assert totals["evicted_per_bucket"] == {0: 6}


def test_the_monitor_estimates_the_recall_of_many_streams(spark: Any, stream_of: Any, tmp_path: Path) -> None:
    """In a fifth of the memory, late rows and rows behind a watermark included."""
    rng = np.random.default_rng(4)
    starts = {name: [0, 60, 120] for name in NAMES}
    folders = {
        name: write_files(tmp_path / name, files) for name, files in streams_of(rng, starts, 150, 70).items()
    }
    settings: dict[str, Any] = {"on": ["k", "name"], "time": "ts", "within": "40 seconds", "buckets": 2}
    exact = native({name: spark.read.parquet(str(folder)) for name, folder in folders.items()}, 40).count()
    assert exact > 100
    for marked in (False, True):
        streams = {name: stream_of(folder) for name, folder in folders.items()}
        if marked:
            streams = {name: stream.withWatermark("ts", "5 seconds") for name, stream in streams.items()}
        joined = bounded_join_many(streams, budget="120 tuples", policy="lru", **settings)
        with PipelineMonitor(spark, console=False) as monitor:
            query = joined.writeStream.format("noop").trigger(availableNow=True).start()
            query.awaitTermination()
        totals = monitor.totals
        truth = totals["results"] / exact
        assert truth < 0.9
        assert totals["recall"] is None or totals["recall_at_most"] or abs(totals["recall"] - truth) <= 0.05
        print(marked, truth, totals["recall"], totals["recall_at_most"], totals["unestimated"])
