"""A process of the demo: one side of the race, or the exact answer. It tells what happens as JSON lines.

python -m penstock.cli.demo.side spark|penstock|answer FOLDER SCENARIO CORE
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from penstock.cli.demo.scenario import KEY, MIB, SIDES, SUFFIXES, TEXTS, TIME, WITHIN, Scenario

POLL = 0.25  # seconds
# As on YARN, a JVM that has run out of memory ends. So does one that spends 90 % of its time on garbage
# collections that free less than 5 % of its heap.
# It lives too briefly to be worth optimizing further, which takes time on one core, and memory.
JVM = (
    "-XX:+ExitOnOutOfMemoryError -XX:+UseParallelGC -XX:GCTimeLimit=90 -XX:GCHeapFreeLimit=5 "
    "-XX:TieredStopAtLevel=1"
)
# The state store of Penstock, outside of the heap.
ROCKSDB = {"boundedMemoryUsage": "true", "maxMemoryUsageMB": "64"}
ENOUGH = 3_072 * MIB  # the heap of the process that computes the exact answer


def tell(event: str, **about: Any) -> None:
    """Tell the demo what has happened."""
    print(json.dumps({"event": event} | about), flush=True)


def session(heap: int, cores: int, folder: Path) -> Any:
    """Start Spark with a heap of its own."""
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    made = (
        SparkSession.builder.master(f"local[{cores}]")
        .appName("penstock demo")
        .config("spark.driver.memory", f"{heap // MIB}m")
        .config("spark.driver.extraJavaOptions", f"{JVM} -XX:-UsePerfData -Djava.io.tmpdir={folder}")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", str(cores))
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.local.dir", str(folder / "scratch"))
        .config("spark.sql.warehouse.dir", str(folder / "warehouse"))
        .getOrCreate()
    )
    made.sparkContext.setLogLevel("ERROR")
    return made


def streams(spark: Any, folder: Path) -> list[Any]:
    """The two streams, one file of each per batch."""
    schemas = [spark.read.parquet(str(folder / name)).schema for name in SIDES]
    return [
        spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(folder / name))
        for name, schema in zip(SIDES, schemas, strict=True)
    ]


def joined_by_spark(views: Any, buys: Any) -> Any:
    """Spark's own join, with the columns that Penstock's has."""
    from pyspark.sql import functions as F  # noqa: N812

    near = F.expr(f"a.{TIME} between b.{TIME} - interval {WITHIN} and b.{TIME} + interval {WITHIN}")
    both = views.alias("a").join(buys.alias("b"), (F.col(f"a.{KEY}") == F.col(f"b.{KEY}")) & near)
    return both.select(
        f"a.{KEY}",
        F.col(f"a.{TIME}").alias(TIME + SUFFIXES[0]),
        "a.view_id",
        f"a.{TEXTS[0]}",
        F.col(f"b.{TIME}").alias(TIME + SUFFIXES[1]),
        "b.buy_id",
        f"b.{TEXTS[1]}",
    )


def follow(query: Any, told: Callable[[Any], dict[str, Any]]) -> None:
    """Tell of every batch until the query ends."""
    last = -1
    over = False
    while not over:
        over = query.awaitTermination(POLL)
        for progress in query.recentProgress:
            if progress["batchId"] > last and progress["numInputRows"]:
                last = progress["batchId"]
                tell(
                    "batch",
                    batch=last,
                    rows=progress["numInputRows"],
                    seconds=progress["durationMs"]["triggerExecution"] / 1_000,
                    **told(progress),
                )


def run_spark(folder: Path, scenario: Scenario) -> None:
    """Spark's own streaming join, with its default settings."""
    from pyspark.sql import functions as F  # noqa: N812

    spark = session(scenario.spark_heap, 1, folder / "spark")
    marked = [stream.withWatermark(TIME, "0 seconds") for stream in streams(spark, folder)]
    joined = joined_by_spark(*marked).observe("demo", F.count(F.lit(1)).alias("results"))
    tell("started")
    query = (
        joined.writeStream.format("parquet")
        .option("path", str(folder / "spark" / "results"))
        .option("checkpointLocation", str(folder / "spark" / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )

    def told(progress: Any) -> dict[str, Any]:
        (state,) = progress["stateOperators"]
        return {
            "results": progress["observedMetrics"]["demo"]["results"],
            "kept": state["numRowsTotal"],
            "late": state["numRowsDroppedByWatermark"],
            "state": state["memoryUsedBytes"],
        }

    follow(query, told)
    spark.stop()


def run_penstock(folder: Path, scenario: Scenario) -> None:
    """The bounded join."""
    spark = session(scenario.penstock_heap, 1, folder / "penstock")
    for option, value in ROCKSDB.items():
        spark.conf.set(f"spark.sql.streaming.stateStore.rocksdb.{option}", value)
    from penstock.spark import bounded_join, write_split
    from penstock.spark.monitor.totals import RunningTotals
    from penstock.spark.runtime.figures import figures_of

    joined = bounded_join(
        *streams(spark, folder),
        on=KEY,
        time=TIME,
        within=WITHIN,
        budget=scenario.budget,
        policy=scenario.policy,
        suffixes=SUFFIXES,
        emit="all",
    )
    tell("started")
    query = write_split(
        joined,
        results=folder / "penstock" / "results",
        archive=folder / "penstock" / "archive",
        checkpoint=folder / "penstock" / "checkpoint",
        trigger={"availableNow": True},
    )
    totals = RunningTotals()

    def told(progress: Any) -> dict[str, Any]:
        figures = figures_of(progress)
        assert figures is not None
        totals.add(figures, batch=progress["batchId"], rows=progress["numInputRows"])
        last = totals.history[-1]
        return {
            "results": last["results"],
            "kept": sum(last[f"buffered_{side}"] for side in totals.streams),
            "evicted": sum(last[f"evicted_{side}"] for side in totals.streams),
            "late": last["late"],
            "recall": last["overall_recall"],
            "at_most": last["overall_recall_at_most"],
            "state": last["peak_bytes"],
        }

    follow(query, told)
    spark.stop()


def run_answer(folder: Path, scenario: Scenario) -> None:
    """Reconcile, and compare with Spark's join of the same files as tables, with enough memory."""
    spark = session(ENOUGH, os.cpu_count() or 2, folder / "answer")
    from penstock.spark import reconcile

    out = folder / "penstock"
    views, buys = (spark.read.parquet(str(folder / name)) for name in SIDES)
    missed = reconcile(str(out / "archive"), views, buys, on=KEY, time=TIME, within=WITHIN, suffixes=SUFFIXES,
                       results=str(out / "results"))  # fmt: skip
    exact, found = joined_by_spark(views, buys), {}
    for name, frame in (
        ("online", spark.read.parquet(str(out / "results"))),
        ("recovered", missed),
        ("exact", exact),
    ):
        found[name] = fingerprint(frame.select(*exact.columns))  # files of results also have their batch
        tell("counted", what=name, rows=found[name][0])
    rows, checksum = (a + b for a, b in zip(found["online"], found["recovered"], strict=True))
    tell("compared", same=(rows, checksum) == found["exact"])
    spark.stop()


def fingerprint(frame: Any) -> tuple[int, int]:
    """Return the number of rows, and the sum of a hash of each row: equal for the same rows in any order."""
    from pyspark.sql import functions as F  # noqa: N812

    hashed = F.xxhash64(*(F.col(name) for name in sorted(frame.columns))).cast("decimal(38,0)")
    row = frame.agg(F.count(F.lit(1)).alias("rows"), F.sum(hashed).alias("checksum")).first()
    return row["rows"], int(row["checksum"] or 0)


def end_with_the_demo() -> None:
    """End when the demo has ended, however that was: it holds the other end of our stdin."""

    def wait() -> None:
        sys.stdin.read()
        os._exit(1)  # Spark's JVM ends with the process that has started it

    threading.Thread(target=wait, daemon=True).start()


def main(arguments: list[str]) -> None:
    """Run one of the processes."""
    which, folder, scenario, core = arguments
    end_with_the_demo()
    if core != "-":
        os.sched_setaffinity(0, {int(core)})
    runs = {"spark": run_spark, "penstock": run_penstock, "answer": run_answer}
    values = json.loads(scenario)
    runs[which](Path(folder), Scenario(**values | {"bursts": tuple(values["bursts"])}))
    tell("done")


if __name__ == "__main__":
    main(sys.argv[1:])
