"""`penstock join` and `penstock reconcile`: a bounded join of files on Spark, and the results it missed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.output import (
    Json,
    JsonOut,
    console,
    errors_in_one_line,
    parts_of,
    warnings_in_one_line,
)
from penstock.cli.plan import How, Matches, Where, budget_of_text, pair_of_names, window_of_text
from penstock.cli.session import format_of, read, spark_session

if TYPE_CHECKING:
    from penstock.joins.estimate import RecallEstimate

Left = Annotated[
    Path, typer.Argument(help="The left stream: a CSV, JSON or Parquet file or folder.", show_default=False)
]
Right = Annotated[Path, typer.Argument(help="The right stream.", show_default=False)]
On = Annotated[
    list[str], typer.Option(help="Key columns: a,b; or a=b if the names differ.", show_default=False)
]
Time = Annotated[str, typer.Option(help="Time column; or a=b if the names differ.", show_default=False)]
Within = Annotated[
    str, typer.Option(help="The window: '10 minutes', a number, or '0 s..10 minutes'.", show_default=False)
]
Out = Annotated[Path, typer.Option(help="Folder for the results, as Parquet.", show_default=False)]
Unit = Annotated[str, typer.Option(help="Unit of numeric time columns.")]
Master = Annotated[str, typer.Option(help="Spark master.")]


@errors_in_one_line
def join(
    left: Left,
    right: Right,
    on: On,
    time: Time,
    within: Within,
    budget: Annotated[
        str, typer.Option(help="'64 MiB' or '2000 tuples'; without --stream also '20 %'.", show_default=False)
    ],
    out: Out,
    policy: Annotated[str, typer.Option(help="Eviction policy.")] = "auto",
    archive: Annotated[Path | None, typer.Option(help="Folder for evicted rows, for `reconcile`.")] = None,
    stream: Annotated[
        bool, typer.Option("--stream", help="Run as a streaming query, one file per batch.")
    ] = False,
    lateness: Annotated[str, typer.Option(help="How late rows of a stream may arrive.")] = "0 seconds",
    how: How = "inner",
    matches: Matches = "all",
    where: Where = None,
    unit: Unit = "ms",
    master: Master = "local[2]",
    json: Json = None,
) -> None:
    """Join two files or folders on Spark in a fixed amount of memory."""
    from penstock import policies
    from penstock.joins.conditions.parser import parse_condition
    from penstock.joins.kinds import kind_of
    from penstock.window import window_of

    sink = JsonOut(json)
    for path in (left, right):
        format_of(path)
    what, room = _what(on, time, within, unit), budget_of_text(budget)
    policies.get(policy)
    kind_of(how, matches)
    if where is not None:
        parse_condition(where)
    with spark_session(master) as session:
        from pyspark.sql import Observation

        from penstock.errors import UnitWarning
        from penstock.spark import bounded_join
        from penstock.spark.monitor.totals import recall_of
        from penstock.spark.runtime.figures import JoinFigures

        watch: Any = "penstock" if stream else Observation("penstock")
        frames = [read(session, path, streaming=stream) for path in (left, right)]
        with warnings_in_one_line(UnitWarning):
            check_unit(read(session, left), what["time"][0], window_of(what["within"]), unit)
            joined = bounded_join(
                *frames,
                **what,
                budget=room,
                policy=policy,
                lateness=lateness,
                how=how,
                matches=matches,
                where=where,
                emit="all" if archive else "results",
                name=watch,
            )
        figures = (
            run_stream(session, joined, out, archive) if stream else run_batch(joined, out, archive, watch)
        )
        recall = recall_of(JoinFigures.from_flat(figures))
    estimate = {"recall": recall.value, "recall_at_most": recall.at_most}
    sink.write({name: figures[name] for name in figures if name != "buckets"} | estimate)
    if figures.get("advice"):
        sink.screen.print(figures["advice"])
    alone = ""
    if figures["unmatched"] or figures["undecided"]:
        alone = f" and {figures['unmatched']:,} rows without a partner ({figures['undecided']:,} undecided)"
    sink.screen.print(
        f"{figures['results']:,} results{alone} to {out}; {_share(recall)} of the exact join. "
        f"Evicted: {figures['evicted_left']:,} left, {figures['evicted_right']:,} right. "
        f"Peak state: {figures['peak_bytes'] / 2**20:.1f} MiB."
    )


def check_unit(frame: Any, name: str, window: Any, unit: str) -> None:
    """Warn if the times of a file are numbers that seem to be in another unit; looks at one row."""
    from pyspark.sql import functions, types

    from penstock.window import warn_unit

    kind = frame.schema[name].dataType if name in frame.columns else None  # the join rejects missing columns
    if not isinstance(kind, types.NumericType) or not window.has_unit:
        return
    time = functions.col(f"`{name.replace('`', '``')}`")
    row = frame.select(time.cast("double").alias("time")).filter(time.isNotNull()).first()
    if row is not None:
        warn_unit(window, unit, (row["time"], row["time"]))


def _share(recall: RecallEstimate) -> str:
    """Format a recall for the phrase "... of the exact join"."""
    if recall.value is None:
        return "an unknown share"
    return str(recall) if recall.at_most else f"about {recall}"


def run_batch(joined: Any, out: Path, archive: Path | None, watch: Any) -> dict[str, Any]:
    """Write the join of two tables; return the metrics that Spark observed meanwhile."""
    from pyspark.sql import functions

    results = joined
    if archive:
        joined = joined.persist()  # so that the join runs once
        from penstock.spark.api.write_split import result_columns

        results = joined.filter(functions.col("_event") == "result").select(*result_columns(joined))
    results.write.mode("overwrite").parquet(str(out))
    if archive:
        joined.filter(functions.col("_event") != "result").write.mode("overwrite").parquet(str(archive))
        joined.unpersist()
    return dict(watch.get["join"].asDict(recursive=True))


def run_stream(session: Any, joined: Any, out: Path, archive: Path | None) -> dict[str, Any]:
    """Run the join of two streams until all available files are read."""
    from penstock.spark import PipelineMonitor, write_split

    with PipelineMonitor(session) as monitor:
        checkpoint = str(out) + ".checkpoint"
        if archive:
            query = write_split(
                joined, results=out, archive=archive, checkpoint=checkpoint, trigger={"availableNow": True}
            )
        else:
            query = (
                joined.writeStream.format("parquet")
                .option("path", str(out))
                .option("checkpointLocation", checkpoint)
                .trigger(availableNow=True)
                .start()
            )
        query.awaitTermination()
    return monitor.totals


@errors_in_one_line
def reconcile(
    left: Left,
    right: Right,
    on: On,
    time: Time,
    within: Within,
    results: Annotated[Path, typer.Option(help="The results of `penstock join`.", show_default=False)],
    archive: Annotated[Path, typer.Option(help="Its archive.", show_default=False)],
    out: Out,
    how: How = "inner",
    where: Where = None,
    unit: Unit = "ms",
    master: Master = "local[2]",
) -> None:
    """Compute exactly the results that a bounded join missed."""
    from penstock.joins.conditions.parser import parse_condition
    from penstock.joins.kinds import kind_of

    for path in (left, right, results, archive):
        format_of(path)
    what = _what(on, time, within, unit)
    kind_of(how, "all")
    if where is not None:
        parse_condition(where)
    with spark_session(master) as session:
        from penstock.spark import reconcile as missed_by

        frames = [read(session, path) for path in (left, right)]
        missed = missed_by(str(archive), *frames, **what, results=str(results), how=how, where=where)
        missed.write.mode("overwrite").parquet(str(out))
        count = session.read.parquet(str(out)).count()
    console().print(f"{count:,} missed results written to {out}.")


def _what(on: list[str], time: str, within: str, unit: str) -> dict[str, Any]:
    """Check and collect the options, so that bad ones are rejected before Spark starts."""
    from penstock.units import time_unit
    from penstock.window import window_of

    window_of(window_of_text(within))
    time_unit(unit)
    return {
        "on": [pair_of_names(part) for part in parts_of(on)],
        "time": pair_of_names(time),
        "within": window_of_text(within),
        "unit": unit,
    }
