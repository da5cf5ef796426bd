"""`penstock asof`: the as-of join of files on Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from penstock.cli.join import Left, Master, On, Out, Right, Time, Unit, check_unit, run_batch, run_stream
from penstock.cli.output import Json, JsonOut, errors_in_one_line, parts_of, warnings_in_one_line
from penstock.cli.plan import budget_of_text, pair_of_names
from penstock.cli.session import format_of, read, spark_session


@errors_in_one_line
def asof(
    left: Left,
    right: Right,
    on: On,
    time: Time,
    budget: Annotated[
        str, typer.Option(help="'64 MiB' or '2000 tuples'; without --stream also '20 %'.", show_default=False)
    ],
    out: Out,
    tolerance: Annotated[
        str | None,
        typer.Option(help="How far apart times may be: '1 minute' or a number; default: no limit."),
    ] = None,
    direction: Annotated[str, typer.Option(help="backward, forward or nearest.")] = "backward",
    exact: Annotated[bool, typer.Option(help="Whether rows of the same time match.")] = True,
    policy: Annotated[str, typer.Option(help="Eviction policy.")] = "auto",
    archive: Annotated[Path | None, typer.Option(help="Folder for undecided, evicted and late rows.")] = None,
    stream: Annotated[
        bool, typer.Option("--stream", help="Run as a streaming query, one file per batch.")
    ] = False,
    lateness: Annotated[str, typer.Option(help="How late rows of a stream may arrive.")] = "0 seconds",
    unit: Unit = "ms",
    master: Master = "local[2]",
    json: Json = None,
) -> None:
    """Find for every left row the nearest right row in time, on Spark, in a fixed amount of memory."""
    from penstock.joins.asof import AsofJoin
    from penstock.units import time_unit
    from penstock.window import Within

    sink = JsonOut(json)
    for path in (left, right):
        format_of(path)
    span = None if tolerance is None else _span(tolerance)
    options: dict[str, Any] = {
        "budget": budget_of_text(budget),
        "tolerance": span,
        "direction": direction,
        "allow_exact_matches": exact,
        "policy": policy,
    }
    AsofJoin(**options)  # rejects what cannot work before Spark starts
    time_unit(unit)
    names = pair_of_names(time)
    with spark_session(master) as session:
        from pyspark.sql import Observation

        from penstock.errors import UnitWarning
        from penstock.spark import asof_join

        watch: Any = "penstock" if stream else Observation("penstock")
        frames = [read(session, path, streaming=stream) for path in (left, right)]
        if span is not None:
            with warnings_in_one_line(UnitWarning):
                check_unit(read(session, left), names[0], Within(span, span), unit)
        joined = asof_join(
            *frames,
            on=[pair_of_names(part) for part in parts_of(on)],
            time=names,
            lateness=lateness,
            emit="all" if archive else "results",
            unit=unit,
            name=watch,
            **options,
        )
        run = run_stream(session, joined, out, archive) if stream else run_batch(joined, out, archive, watch)
    sink.write({name: run[name] for name in run if name != "buckets"})
    rows = run["results"] + run["unmatched"]
    sink.screen.print(
        f"{rows:,} rows to {out}, {run['unmatched']:,} of them without a right row. "
        f"Undecided: {run['undecided']:,}; evicted: {run['evicted_right']:,} right; late: {run['late']:,}. "
        f"Peak state: {run['peak_bytes'] / 2**20:.1f} MiB."
    )


def _span(text: str) -> float | str:
    """Parse a tolerance: a bare number is in the unit of the time column."""
    try:
        return int(text) if text.isdigit() else float(text)
    except ValueError:
        return text
