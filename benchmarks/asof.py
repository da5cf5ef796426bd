"""As-of joins: left rows a second in process, and on Spark against two ways of doing it without Penstock.

Both sides have as many rows as keys times a few hundred, in order of time; the tolerance is wide. Without
Penstock, Spark users union both sides and take the last right row with a window function, or call
`pyspark.pandas.merge_asof`. pandas' own `merge_asof` is told for comparison.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from rich.console import Console
from rich.table import Table

import penstock as ps
from benchmarks.growth import mark
from benchmarks.spark import local_session

KEYS = 1_000
GOAL = 2_000_000  # left rows a second in process
TIMES = 5  # as fast as Spark's own
LONG = 20  # seconds


def run(console: Console, quick: bool) -> list[dict[str, Any]]:
    """In process, then on Spark; `quick` is a tenth."""
    return [*_in_process(console, 200_000 if quick else 2_000_000), *_on_spark(console, quick)]


def sides(rows: int, keys: int, spacing: int = 10) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Two tables in order of time, with uniform keys."""
    rng = np.random.default_rng(1)
    left, right = (
        pd.DataFrame(
            {
                "k": rng.integers(0, keys, rows),
                "ts": np.sort(rng.integers(0, spacing * rows, rows)),
                value: np.arange(rows),
            }
        )
        for value in ("l", "r")
    )
    return left, right


def _in_process(console: Console, rows: int) -> list[dict[str, Any]]:
    left, right = sides(rows, KEYS)
    found = []
    for direction in ("backward", "forward", "nearest"):
        for policy, tuples in (("lru", 1_000_000), ("auto", 1_000_000), ("lru", KEYS // 2)):
            join = ps.AsofJoin(ps.Tuples(tuples), tolerance=20 * KEYS, direction=direction, policy=policy)
            stats = [join.run(left, right, on="k", time="ts").stats for _ in range(4)]
            best = min(stats[1:], key=lambda each: each.seconds)
            began = time.perf_counter()
            join.run(left, right, on="k", time="ts")
            found.append(
                {
                    "join": f"{direction}, {policy}, {tuples:,} tuples",
                    "rows_per_s": round(rows / best.seconds),
                    "rows_per_s_with_conversion": round(rows / (time.perf_counter() - began)),
                    "undecided": best.undecided,
                    "recall": best.recall,
                }
            )
    began = time.perf_counter()
    pd.merge_asof(left, right, on="ts", by="k", tolerance=20 * KEYS)
    pandas = round(rows / (time.perf_counter() - began))
    found.append({"join": "pandas.merge_asof, backward", "rows_per_s_with_conversion": pandas})
    table = Table(title=f"As-of joins in process, {rows:,} rows a side, {KEYS:,} keys")
    for heading in ("join", "left rows/s", "with conversion", "undecided"):
        table.add_column(heading, justify="left" if heading == "join" else "right")
    for row in found:
        speed = f"{row['rows_per_s']:,}" if "rows_per_s" in row else ""
        table.add_row(
            row["join"], speed, f"{row['rows_per_s_with_conversion']:,}", f"{row.get('undecided', 0):,}"
        )
    console.print(table)
    speed = found[0]["rows_per_s"]
    console.print(f"in process: {speed:,} left rows/s ({mark(speed >= GOAL, f'at least {GOAL:,}')})")
    return found


def _on_spark(console: Console, quick: bool) -> list[dict[str, Any]]:
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    from penstock.spark import asof_join

    rows = 100_000 if quick else 1_000_000
    folder = Path(tempfile.mkdtemp(prefix="penstock-bench-"))
    session = local_session()
    try:
        for name, frame in zip(("left", "right"), sides(rows, KEYS), strict=True):
            frame.to_parquet(folder / f"{name}.parquet", row_group_size=100_000)
        left, right = (session.read.parquet(str(folder / f"{name}.parquet")) for name in ("left", "right"))
        tolerance = 20 * KEYS

        def ours() -> Any:
            return asof_join(
                left, right, on="k", time="ts", tolerance=tolerance, budget="64 MiB", policy="lru"
            )

        def window() -> Any:
            both = left.select("k", "ts", "l", F.lit(1).alias("side")).withColumns(
                {"ts_right": F.lit(None).cast("long"), "r": F.lit(None).cast("long")}
            )
            both = both.unionByName(
                right.select(
                    "k",
                    "ts",
                    F.lit(None).cast("long").alias("l"),
                    F.lit(0).alias("side"),
                    F.col("ts").alias("ts_right"),
                    "r",
                )
            )
            latest = Window.partitionBy("k").orderBy("ts", "side").rowsBetween(Window.unboundedPreceding, 0)
            filled = both.withColumns(
                {name: F.last(name, ignorenulls=True).over(latest) for name in ("ts_right", "r")}
            ).filter("side = 1")
            near = F.col("ts") - F.col("ts_right") <= tolerance
            return filled.withColumns({name: F.when(near, F.col(name)) for name in ("ts_right", "r")})

        def native() -> Any:  # what pyspark.pandas.merge_asof calls
            other = right.withColumnsRenamed({"k": "k_right", "ts": "ts_right"})
            return left._joinAsOf(
                other,
                left["ts"],
                other["ts_right"],
                on=left["k"] == other["k_right"],
                how="left",
                tolerance=F.lit(tolerance),
            )

        found = []
        for name, make in (
            ("asof_join", ours),
            ("Spark, window function", window),
            ("Spark, merge_asof of its pandas API", native),
        ):
            seconds = _best(make, 2 if quick else 3)
            matched = make().filter("r is not null").count()
            found.append(
                {"join": name, "seconds": seconds, "rows_per_s": round(rows / seconds), "results": matched}
            )
    finally:
        session.stop()
        shutil.rmtree(folder, ignore_errors=True)
    assert len({row["results"] for row in found}) == 1, "the answers differ"
    table = Table(title=f"As-of joins of tables on Spark, {rows:,} rows a side, {KEYS:,} keys")
    for heading in ("join", "s", "left rows/s", "results"):
        table.add_column(heading, justify="left" if heading == "join" else "right")
    for row in found:
        table.add_row(row["join"], f"{row['seconds']:.2f}", f"{row['rows_per_s']:,}", f"{row['results']:,}")
    console.print(table)
    for other in found[1:]:
        ratio = other["seconds"] / found[0]["seconds"]
        console.print(f"against {other['join']}: {ratio:.1f}x ({mark(ratio >= TIMES, f'at least {TIMES}x')})")
    return found


def _best(make: Callable[[], Any], times: int) -> float:
    """The shortest of several runs into a sink that drops all; what takes long runs once."""
    seconds = []
    for _ in range(times + 1):  # the first starts the workers
        began = time.perf_counter()
        make().write.format("noop").mode("overwrite").save()
        seconds.append(time.perf_counter() - began)
        if seconds[-1] > LONG:
            break
    return min(seconds)
