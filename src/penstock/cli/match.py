"""`penstock match`: find an event pattern in a file of events."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from penstock.cli.files import parse_times, read_table, read_text
from penstock.cli.output import (
    SHOWN,
    Json,
    JsonOut,
    errors_in_one_line,
    rows_table,
    save_rows,
    working,
    writable,
)
from penstock.cli.signs import speaks


@errors_in_one_line
@speaks("matching")
def match(
    query: Annotated[Path, typer.Argument(help="A file with the pattern.", show_default=False)],
    events: Annotated[Path, typer.Argument(help="The events: CSV or Parquet.", show_default=False)],
    type_: Annotated[str, typer.Option("--type", help="Column of the event type.")] = "type",
    time: Annotated[str, typer.Option(help="Time column.")] = "ts",
    unit: Annotated[str, typer.Option(help="Unit of numeric times.")] = "ms",
    strategy: Annotated[
        str, typer.Option(help="Matching strategy: columnar, semantic, object or iterative.")
    ] = "columnar",
    limit: Annotated[
        int | None, typer.Option(help="Stop after this many matches; default: no limit.")
    ] = None,
    explain: Annotated[bool, typer.Option("--explain", help="Show the plan without matching.")] = False,
    out: Annotated[
        Path | None, typer.Option(help="Write the matches to this file: Parquet, or CSV if it ends in .csv.")
    ] = None,
    json: Json = None,
) -> None:
    """Find an event pattern in a stream of events."""
    from penstock.patterns import Pattern

    writable(out)
    sink = JsonOut(json)
    pattern = Pattern.parse(read_text(query, "a pattern"))
    if explain:
        typer.echo(pattern.explain())
        return
    with working("matching"):
        table = read_table(events)
        parse_times([table], [time], ["event"])
        run = pattern.run(table, type=type_, time=time, unit=unit, strategy=strategy, limit=limit)
    if out is not None:
        save_rows(run.matches, out)
    stats = run.stats
    more = " (limit reached; there are more)" if stats.cut else ""
    where = f", written to {out}" if out else ""
    figures = {"matches": run.matches.num_rows, "cut": stats.cut, "events": stats.events}
    sink.write(figures | {"rows": run.matches.to_pylist()})
    if out is None and not sink.alone:
        shown = run.matches.slice(0, SHOWN).to_pylist()
        sink.screen.print(rows_table(shown, run.matches.column_names, justify="right"))
    sink.screen.print(f"{run.matches.num_rows:,} matches{more} in {stats.events:,} events{where}")
