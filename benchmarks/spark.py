"""Side by side on Spark: the bounded join, and Spark's own with both of its state stores.

On RocksDB Spark's join has two state formats: version 2, the default, and 4, which is faster (Spark 4.3).

The dense workload: 500,000 rows a side in five files, Zipf 0.75 over 100,000 keys, 1,000 rows a second and
side, 60 seconds each way, no-op sink. The sparse one: about one result per row, batches of 1,000,000 rows.
The first batch, which starts the workers, is told apart.
"""

from __future__ import annotations

import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from rich.console import Console
from rich.table import Table

from benchmarks.growth import mark

ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
IN_MEMORY = "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"
PROVIDER = "spark.sql.streaming.stateStore.providerClass"
FORMAT = "spark.sql.streaming.join.stateFormatVersion"
WITHIN = 60


def run(console: Console, quick: bool) -> list[dict[str, Any]]:
    """Both workloads; `quick` is a tenth."""
    session = local_session()
    folder = Path(tempfile.mkdtemp(prefix="penstock-bench-"))
    try:
        rows = [*_dense(session, folder, quick), *_sparse(session, folder, quick), *_small(session, folder)]
        rows += _split(session, folder, quick)
    finally:
        session.stop()
        shutil.rmtree(folder, ignore_errors=True)
    table = Table(title="Spark on local[2], steady state without the first batch")
    for heading in ("join", "first batch, s", "a batch, s", "input rows/s", "state, MiB", "results"):
        table.add_column(heading, justify="left" if heading == "join" else "right")
    for row in rows:
        table.add_row(
            row["join"],
            f"{row['first_batch_s']:.1f}",
            f"{row['steady_batch_s']:.2f}",
            f"{row['rows_per_s']:,}",
            f"{row['state_bytes'] / 2**20:,.1f}",
            f"{row['results']:,}" if row["results"] else "",
        )
    console.print(table)
    _compare(console, {row["join"]: row for row in rows})
    return rows


def _compare(console: Console, found: dict[str, dict[str, Any]]) -> None:
    """The bars, each with what was measured."""
    exact, tenth = found["bounded_join, exact budget"], found["bounded_join, 10 % of the memory"]
    rocksdb, memory = found["Spark, RocksDB"], found["Spark, in memory"]
    newest = found["Spark, RocksDB, version 4"]
    for text, value, bar in (
        ("exact budget against RocksDB", exact["rows_per_s"] / rocksdb["rows_per_s"], 10),
        ("exact budget against RocksDB, version 4", exact["rows_per_s"] / newest["rows_per_s"], 4),
        ("exact budget against the in-memory store", exact["rows_per_s"] / memory["rows_per_s"], 2),
        ("10 % of the memory against the exact budget", tenth["rows_per_s"] / exact["rows_per_s"], 1),
    ):
        console.print(f"{text}: {value:.1f}x ({mark(value >= bar, f'at least {bar}x')})")
    share = tenth["state_bytes"] / memory["state_bytes"]
    console.print(f"state at 10 % against Spark's: {share:.1%} ({mark(share <= 0.1, 'at most 10 %')})")
    sparse = found["bounded_join, sparse"]["rows_per_s"]
    console.print(f"sparse: {sparse:,} rows/s ({mark(sparse >= 300_000, 'at least 300,000')})")
    small = found["bounded_join, small batches"]["steady_batch_s"]
    for other in ("Spark, small batches", "Spark, small batches, version 4"):
        share = small / found[other]["steady_batch_s"]
        console.print(f"small batches against {other}: {share:.2f} ({mark(share <= 0.8, 'at most 0.8')})")
    both, alone = (found[f"write_split, {name}"]["steady_batch_s"] for name in ("both", "results alone"))
    told = mark(both <= 1.3 * alone, "at most 1.3")
    console.print(f"results and archive against results alone: {both / alone:.2f} ({told})")


def steady(batches: Sequence[pa.Table], ask: Callable[[Any], Any], count: str) -> tuple[float, int]:
    """Run a streaming query over files, one a batch: median seconds without the first, and its results.

    `ask` makes the query of the stream; `count` is the figure of its observed metrics that counts results.
    """
    folder = Path(tempfile.mkdtemp(prefix="penstock-bench-"))
    session = local_session()
    try:
        (folder / "in").mkdir()
        for i, batch in enumerate(batches):
            path = folder / "in" / f"{i}.parquet"
            pq.write_table(batch, path, row_group_size=100_000)
            os.utime(path, (1_700_000_000 + i,) * 2)
        schema = session.read.parquet(str(folder / "in")).schema
        source = session.readStream.schema(schema).option("maxFilesPerTrigger", 1)
        query = (
            ask(source.parquet(str(folder / "in")))
            .writeStream.format("noop")
            .option("checkpointLocation", str(folder / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        progress = [each for each in query.recentProgress if each["numInputRows"]]
        results = sum(each["observedMetrics"]["penstock"][count] for each in progress)
    finally:
        session.stop()
        shutil.rmtree(folder, ignore_errors=True)
    seconds = statistics.median(each["durationMs"]["triggerExecution"] / 1000 for each in progress[1:])
    return seconds, results


def local_session() -> Any:
    """Spark on two cores."""
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    from pyspark.sql import SparkSession

    import penstock.spark  # noqa: F401 (sets the Python of the workers)

    session = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.driver.memory", "4g")
        .config("spark.sql.streaming.noDataMicroBatches.enabled", "false")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    return session


def _dense(session: Any, folder: Path, quick: bool) -> list[dict[str, Any]]:
    rows = 10_000 if quick else 100_000
    _write(folder / "dense", rows, files=5, keys=100_000, skew=0.75, per_second=1_000)
    need = 2 * min(2 * WITHIN * 1_000, 5 * rows)  # rows of both sides that the exact join keeps
    found = [
        _measured("Spark, RocksDB", session, _native(session, folder / "dense"), folder, 2 * rows, ROCKSDB),
        _newest("Spark, RocksDB, version 4", session, folder, "dense", 2 * rows),
        _measured(
            "Spark, in memory", session, _native(session, folder / "dense"), folder, 2 * rows, IN_MEMORY
        ),
    ]
    for title, tuples in (("exact budget", 3 * need), ("10 % of the memory", need // 20)):
        joined = _bounded(session, folder / "dense", tuples)
        found.append(_measured(f"bounded_join, {title}", session, joined, folder, 2 * rows, ROCKSDB))
    return found


def _sparse(session: Any, folder: Path, quick: bool) -> list[dict[str, Any]]:
    rows = 50_000 if quick else 500_000
    _write(folder / "sparse", rows, files=4, keys=120_000, skew=0.0, per_second=1_000)
    joined = _bounded(session, folder / "sparse", 10**6)
    return [_measured("bounded_join, sparse", session, joined, folder, 2 * rows, ROCKSDB)]


def _small(session: Any, folder: Path) -> list[dict[str, Any]]:
    """Batches of 100 rows, where the time is that of starting tasks and of talking to Python."""
    _write(folder / "small", 50, files=30, keys=1_000, skew=0.0, per_second=10)
    native, bounded = _native(session, folder / "small"), _bounded(session, folder / "small", 10**4)
    return [
        _measured("Spark, small batches", session, native, folder, 100, ROCKSDB),
        _newest("Spark, small batches, version 4", session, folder, "small", 100),
        _measured("bounded_join, small batches", session, bounded, folder, 100, ROCKSDB),
    ]


def _newest(title: str, session: Any, folder: Path, which: str, rows: int) -> dict[str, Any]:
    """Spark's join with its newest state format."""
    before = session.conf.get(FORMAT)
    session.conf.set(FORMAT, "4")
    try:
        return _measured(title, session, _native(session, folder / which), folder, rows, ROCKSDB)
    finally:
        session.conf.set(FORMAT, before)


def _split(session: Any, folder: Path, quick: bool) -> list[dict[str, Any]]:
    """The dense workload at a tenth of its memory, into Parquet: results alone, and with the archive."""
    from penstock.spark import write_split

    rows = 10_000 if quick else 100_000
    tuples = 2 * min(2 * WITHIN * 1_000, 5 * rows) // 20

    def alone(batch: Any, number: int) -> None:
        batch.write.mode("overwrite").parquet(f"{folder}/alone/batch={number}")

    def both(joined: Any, checkpoint: str) -> Any:
        return write_split(
            joined,
            results=f"{folder}/results",
            archive=f"{folder}/archive",
            checkpoint=checkpoint,
            trigger={"availableNow": True},
        )

    plain, full = (_bounded(session, folder / "dense", tuples, emit) for emit in ("results", "all"))
    return [
        _measured("write_split, results alone", session, plain, folder, 2 * rows, ROCKSDB, _each(alone)),
        _measured("write_split, both", session, full, folder, 2 * rows, ROCKSDB, both),
    ]


def _each(function: Callable[[Any, int], None]) -> Callable[[Any, str], Any]:
    """Start a query that hands its batches to a function."""

    def start(frame: Any, checkpoint: str) -> Any:
        writer = frame.writeStream.foreachBatch(function).option("checkpointLocation", checkpoint)
        return writer.trigger(availableNow=True).start()

    return start


def _noop(frame: Any, checkpoint: str) -> Any:
    """Start a query that goes nowhere."""
    writer = frame.writeStream.format("noop").option("checkpointLocation", checkpoint)
    return writer.trigger(availableNow=True).start()


def _write(folder: Path, rows: int, files: int, keys: int, skew: float, per_second: int) -> None:
    rng = np.random.default_rng(1)
    weights = np.arange(1, keys + 1, dtype=float) ** -skew
    cumulated = np.cumsum(weights) / weights.sum()
    for side in ("left", "right"):
        (folder / side).mkdir(parents=True)
        for i in range(files):
            key = np.searchsorted(cumulated, rng.random(rows))
            micros = 1_700_000_000_000_000 + (i * rows + np.arange(rows)) * (1_000_000 // per_second)
            frame = pd.DataFrame(
                {"k": key, "ts": pd.to_datetime(micros, unit="us", utc=True), side: rng.random(rows)}
            )
            frame.to_parquet(folder / side / f"{i}.parquet", coerce_timestamps="us")


def _streams(session: Any, folder: Path) -> tuple[Any, Any]:
    def stream(side: str) -> Any:
        schema = session.read.parquet(str(folder / side)).schema
        return session.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(folder / side))

    return stream("left"), stream("right")


def _native(session: Any, folder: Path) -> Any:
    from pyspark.sql import functions as F

    left, right = (each.withWatermark("ts", "0 seconds") for each in _streams(session, folder))
    near = F.expr(f"b.ts >= a.ts - interval {WITHIN} seconds and b.ts <= a.ts + interval {WITHIN} seconds")
    return left.alias("a").join(right.alias("b"), (F.col("a.k") == F.col("b.k")) & near)


def _bounded(session: Any, folder: Path, tuples: int, emit: str = "results") -> Any:
    import penstock as ps
    from penstock.spark import bounded_join

    left, right = _streams(session, folder)
    within = f"{WITHIN} seconds"
    return bounded_join(
        left, right, on="k", time="ts", within=within, budget=ps.Tuples(tuples), policy="gdj", emit=emit
    )


def _measured(
    title: str,
    session: Any,
    joined: Any,
    folder: Path,
    rows: int,
    provider: str,
    start: Callable[[Any, str], Any] = _noop,
) -> dict[str, Any]:
    """Run a query to its end; seconds of the first batch and of the others."""
    from penstock.spark.runtime.figures import figures_of

    session.conf.set(PROVIDER, provider)
    checkpoint = folder / f"checkpoint-{time.monotonic_ns()}"
    query = start(joined, str(checkpoint))
    query.awaitTermination()
    batches = [p for p in query.recentProgress if p["numInputRows"]]
    seconds = [p["durationMs"]["triggerExecution"] / 1_000 for p in batches]
    steady = statistics.median(seconds[1:])
    state = batches[-1]["stateOperators"][0]
    told = [figures for figures in map(figures_of, batches) if figures is not None]
    return {
        "join": title,
        "first_batch_s": round(seconds[0], 2),
        "steady_batch_s": round(steady, 2),
        "rows_per_s": round(rows / steady),
        "state_rows": state["numRowsTotal"],
        "state_bytes": told[-1]["peak_bytes"] if told else state["memoryUsedBytes"],
        "state_on_disk": sum(f.stat().st_size for f in (checkpoint / "state").rglob("*") if f.is_file()),
        "results": sum(t["results"] or 0 for t in told) if told else None,
    }
