"""`penstock demo`: a bounded streaming join under a burst, compared with Spark's own join."""

from __future__ import annotations

import tempfile
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.output import Json, JsonOut, console, errors_in_one_line, picture
from penstock.cli.session import spark_session
from penstock.extras import require

if TYPE_CHECKING:
    from penstock.joins.estimate import RecallEstimate

WITHIN = 20  # seconds
SHARE = 0.2  # of what the exact join needs at the average rate
FILES = 8
ON, TIME = "key", "ts"


@dataclass
class Seen:
    """Measurements of one of the two queries, per batch."""

    results: int = 0
    rows: list[int] = field(default_factory=list)  # per batch, like the fields below
    seconds: list[float] = field(default_factory=list)
    state: list[int] = field(default_factory=list)  # bytes

    def add(self, progress: Any, rows: int, state: int) -> None:
        """Note a batch."""
        self.rows.append(rows)
        self.seconds.append(progress["durationMs"]["triggerExecution"] / 1_000)
        self.state.append(state)

    @property
    def speed(self) -> float:
        """Rows per second, without the first batch, in which Spark starts its workers."""
        return sum(self.rows[1:]) / max(sum(self.seconds[1:]), 1e-9)


@errors_in_one_line
def demo(
    quick: Annotated[bool, typer.Option("--quick", help="A shorter stream.")] = False,
    plot: Annotated[
        Path | None, typer.Option(help="Plot memory over time to this PNG file.", show_default="demo.png")
    ] = None,
    master: Annotated[str, typer.Option(help="Spark master.")] = "local[2]",
    json: Json = None,
) -> None:
    """Run a bounded join under a burst: memory stays bounded, recall is estimated, lost results recovered."""
    from penstock.joins.estimate import RecallEstimate

    require("pyspark", "penstock demo")
    drawing = picture(plot, "demo.png")
    sink = JsonOut(json)
    out = sink.screen
    folder = Path(tempfile.mkdtemp(prefix="penstock-demo-"))
    rows, tuples = write_streams(folder, rate=40 if quick else 120)
    out.print(
        f"Two streams of {rows // 2:,} rows each, with bursts of 20 times the normal rate; rows join within "
        f"{WITHIN} seconds.\nThe bounded join may keep {tuples:,} rows, {SHARE:.0%} of what the exact join "
        "needs on average.\n"
    )
    with spark_session(master) as session:
        bounded, totals = run_bounded(session, folder, tuples, out)
        missed = run_reconcile(session, folder)
        native = run_native(session, folder)
    recall = RecallEstimate(totals["recall"], totals["recall_at_most"])
    figures = {
        "reconciled": missed,
        "recall": bounded.results / max(1, native.results),
        "estimated_recall": recall.value,
        "estimated_recall_at_most": recall.at_most,
        "bounded": asdict(bounded),
        "spark": asdict(native),
    }
    sink.write(figures)
    out.print(_table(bounded, native, missed, recall))
    whole = bounded.results + missed
    same = (
        "the same as the exact join" if whole == native.results else "[red]not the same as the exact join[/]"
    )
    out.print(
        f"{bounded.results:,} results online plus {missed:,} reconciled make {whole:,}, {same}.\n"
        f"Recall was {bounded.results / max(1, native.results):.1%}; the estimate while it ran was {recall}."
    )
    if drawing is not None:
        draw(bounded, native, drawing)
        out.print(f"Memory over time: {drawing}")


def write_streams(folder: Path, rate: float) -> tuple[int, int]:
    """Write two bursty streams to files; return the number of rows and the budget in tuples.

    >>> import tempfile
    >>> from pathlib import Path
    >>> from penstock.cli.demo import write_streams
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     rows, tuples = write_streams(Path(folder), rate=5)
    >>> 0 < tuples < rows
    True
    """
    import os

    import numpy as np
    import pandas as pd

    import penstock as ps
    from penstock.workloads import bursty_pair

    pair = bursty_pair(160, keys=20_000, rate=rate, factor=20, bursts=2, burst_seconds=6, seed=3)
    total = 0
    for name, side in zip(("left", "right"), pair, strict=True):
        (folder / name).mkdir()
        stamps = pd.to_datetime(side["ts"] + 1_700_000_000_000, unit="ms", utc=True)
        frame = pd.DataFrame({ON: side["key"], TIME: stamps, f"{name}_value": np.arange(len(side))})
        cuts = np.searchsorted(side["ts"], np.linspace(0, 160_000, FILES + 1)[1:-1])
        for i, part in enumerate(np.split(np.arange(len(frame)), cuts)):
            path = folder / name / f"{i}.parquet"
            frame.iloc[part].to_parquet(path, coerce_timestamps="us")
            os.utime(path, (1_700_000_000 + i,) * 2)
        total += len(frame)
    return total, ps.Fraction(SHARE).tuples(total, WITHIN, 160)


def _streams(session: Any, folder: Path) -> list[Any]:
    schemas = [session.read.parquet(str(folder / name)).schema for name in ("left", "right")]
    return [
        session.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(folder / name))
        for name, schema in zip(("left", "right"), schemas, strict=True)
    ]


def run_bounded(session: Any, folder: Path, tuples: int, screen: Any = None) -> tuple[Seen, dict[str, Any]]:
    """Run the bounded join as a streaming query with live metrics; return its measurements and totals."""
    import penstock as ps
    from penstock.spark import PipelineMonitor, bounded_join, write_split
    from penstock.spark.runtime.figures import figures_of

    joined = bounded_join(
        *_streams(session, folder),
        on=ON,
        time=TIME,
        within=f"{WITHIN} seconds",
        budget=ps.Tuples(tuples),
        policy="gdj",
        emit="all",
    )
    with PipelineMonitor(session, console=screen or console()) as monitor:
        query = write_split(
            joined,
            results=folder / "results",
            archive=folder / "archive",
            checkpoint=folder / "checkpoint",
            trigger={"availableNow": True},
        )
        query.awaitTermination()
    seen = Seen()
    for progress in query.recentProgress:
        figures = figures_of(progress)
        if figures is not None and figures["buckets"]:
            seen.results += figures["results"]
            seen.add(progress, figures["arrived_left"] + figures["arrived_right"], figures["peak_bytes"])
    return seen, monitor.totals


def run_reconcile(session: Any, folder: Path) -> int:
    """Return the results that the query missed."""
    from penstock.spark import reconcile

    left, right = (session.read.parquet(str(folder / name)) for name in ("left", "right"))
    missed = reconcile(
        str(folder / "archive"),
        left,
        right,
        on=ON,
        time=TIME,
        within=f"{WITHIN} seconds",
        results=str(folder / "results"),
    )
    return int(missed.count())


def run_native(session: Any, folder: Path) -> Seen:
    """Run Spark's own join of the same streams, which keeps every row as long as it can match."""
    left, right = (each.withWatermark(TIME, "0 seconds") for each in _streams(session, folder))
    condition = (
        f"a.{ON} = b.{ON} and b.{TIME} between a.{TIME} - interval {WITHIN} seconds "
        f"and a.{TIME} + interval {WITHIN} seconds"
    )
    from pyspark.sql import functions

    joined = left.alias("a").join(right.alias("b"), functions.expr(condition))
    output = str(folder / "native")
    query = (
        joined.select("a.*", *(functions.col(f"b.{name}").alias(f"{name}_right") for name in right.columns))
        .writeStream.format("parquet")
        .option("path", output)
        .option("checkpointLocation", str(folder / "native-checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    seen = Seen(results=session.read.parquet(output).count())
    for progress in query.recentProgress:
        if progress["numInputRows"]:
            seen.add(progress, progress["numInputRows"], progress["stateOperators"][0]["memoryUsedBytes"])
    return seen


def _table(bounded: Seen, native: Seen, missed: int, recall: RecallEstimate) -> Any:
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for heading in ("", "bounded join", "Spark's own join"):
        table.add_column(heading, justify="left" if not heading else "right")
    table.add_row("results online", f"{bounded.results:,}", f"{native.results:,}")
    table.add_row("estimated recall", str(recall), "")
    table.add_row("results reconciled", f"{missed:,}", "")
    both = (bounded, native)
    table.add_row("peak state", *(f"{max(seen.state, default=0) / 2**20:.1f} MiB" for seen in both))
    table.add_row("rows per second after the first batch", *(f"{seen.speed:,.0f}" for seen in both))
    return table


def draw(bounded: Seen, native: Seen, path: Path) -> None:
    """Plot the state size of both joins after each batch."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(7, 3.6), layout="constrained")
    for seen, label, colour in (
        (native, "Spark's own join", "tab:gray"),
        (bounded, "bounded join", "tab:blue"),
    ):
        axes.plot(
            range(1, len(seen.state) + 1),
            [size / 2**20 for size in seen.state],
            marker="o",
            label=label,
            color=colour,
        )
    axes.set(xlabel="batch", ylabel="state in MiB", title="Memory under bursts", ylim=(0, None))
    axes.legend(frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=150)
    plt.close(figure)
