"""`penstock reproduce`: rerun the experiments of the papers and write a report."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.output import Json, JsonOut, errors_in_one_line, parts_of, progress_bar
from penstock.cli.signs import speaks

if TYPE_CHECKING:
    from penstock.reproduction import Outcome


@errors_in_one_line
@speaks("preparing")
def reproduce(
    papers: Annotated[
        list[str] | None,
        typer.Argument(help="gdj, heeb, clock, queues, neel, policies, or all.", show_default="all"),
    ] = None,
    only: Annotated[list[str] | None, typer.Option(help="Only these figures: figure-8,figure-15.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Fewer and smaller runs; a few minutes.")] = False,
    data: Annotated[
        Path | None, typer.Option(help="Folder of real streams; missing ones are generated.")
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder for tables, plots and the report.")] = Path(
        "reproduction"
    ),
    master: Annotated[
        str | None, typer.Option(help="Run the trials as tasks on this Spark master, such as local[4].")
    ] = None,
    jobs: Annotated[int | None, typer.Option(help="Processes; default: one per processor.", min=1)] = None,
    json: Json = None,
) -> None:
    """Rerun the papers' experiments: a CSV and a PNG per figure, each claim checked, one HTML report."""
    import contextlib
    import time

    from penstock.errors import PenstockError, hint
    from penstock.reproduction import EXPERIMENTS, Scope, figures_of, write_report
    from penstock.reproduction import reproduce as run
    from penstock.reproduction.report import claims_of

    if data is not None and not data.is_dir():
        raise PenstockError(f"--data takes a folder; '{data}' is not one.")
    if out.exists() and not out.is_dir():
        raise PenstockError(f"--out takes a folder; '{out}' is a file.")
    sink = JsonOut(json)
    wanted = list(dict.fromkeys(papers or ["all"]))
    if "all" in wanted:
        wanted = list(EXPERIMENTS)
    scope = Scope(quick=quick, data=None if data is None else data.resolve())
    figures = {name: figures_of(name, scope) for name in wanted}
    if only:
        known = [figure.name for each in figures.values() for figure in each]
        for name in parts_of(only):
            if name not in known:
                raise PenstockError(f"There is no figure {name!r} of {', '.join(wanted)}{hint(name, known)}")
        figures = {
            paper: [figure for figure in each if figure.name in parts_of(only)]
            for paper, each in figures.items()
        }
    began = time.perf_counter()
    with contextlib.ExitStack() as opened:
        session = None
        if master is not None:
            from penstock.cli.session import spark_session

            session = opened.enter_context(spark_session(master))
        report = opened.enter_context(progress_bar())
        outcomes = run(figures, out, jobs=jobs, spark=session, progress=report)
    page = write_report(outcomes, out, scope, seconds=time.perf_counter() - began)
    sink.write(claims_of(outcomes))
    _show(outcomes, sink.screen)
    sink.screen.print(f"Report: {page}", soft_wrap=True)


def _show(outcomes: list[Outcome], out: Any) -> None:
    from rich import box
    from rich.markup import escape
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("figure", style="cyan", no_wrap=True)
    for title in ("claimed", "measured", "verdict"):
        table.add_column(title, overflow="fold")
    colours = {True: "green", False: "red", None: "yellow"}
    for outcome in outcomes:
        for number, claim in enumerate(outcome.claims):
            name = "" if number else f"{outcome.paper} {outcome.figure.name}"
            verdict = f"[{colours[claim.holds]}]{claim.verdict}[/]"
            table.add_row(name, escape(claim.paper), escape(claim.measured), verdict)
    if table.row_count:
        out.print(table)
    for outcome in outcomes:
        if outcome.figure.layout is not None:
            _show_table(outcome, out)


def _show_table(outcome: Outcome, out: Any) -> None:
    """Print the table of a figure, with one column pivoted across."""
    from rich import box
    from rich.table import Table

    from penstock.reproduction.tables import wide

    assert outcome.figure.layout is not None
    cells = wide(outcome.table, *outcome.figure.layout)
    rows = [key if isinstance(key, tuple) else (key,) for key in cells.index]
    labels = [[str(name), *(str(row[i]) for row in rows)] for i, name in enumerate(cells.index.names)]
    columns = [[str(name), *map(_cell, cells[name])] for name in cells.columns]
    title: str | None = outcome.figure.title
    for part in _fitting(labels, columns, out.width):
        shown = Table(title=title, box=box.SIMPLE_HEAD, title_justify="left")
        for name, *_ in labels:
            shown.add_column(name, style="cyan", no_wrap=True)
        for name, *_ in part:
            shown.add_column(name, justify="right", no_wrap=True)
        for row in zip(*(each[1:] for each in (*labels, *part)), strict=True):
            shown.add_row(*row)
        out.print(shown)
        title = None
    noted = [name for name in ("runs", "data") if name in outcome.table]
    if noted:
        notes = [f"{name}: {', '.join(map(str, outcome.table[name].unique()))}" for name in noted]
        out.print(f"[dim]{'; '.join(notes)}[/]\n")


def _fitting(labels: list[list[str]], columns: list[list[str]], width: int) -> Iterator[list[list[str]]]:
    """Split the columns into groups that each fit next to the labels."""

    def room(column: list[str]) -> int:
        return max(map(len, column)) + 3  # with the space around it

    first = sum(map(room, labels)) + 2
    part: list[list[str]] = []
    for column in columns:
        if part and first + sum(map(room, part)) + room(column) > width:
            yield part
            part = []
        part.append(column)
    yield part


def _cell(value: float) -> str:
    if value != value:  # NaN
        return "–"
    return f"{value:.3f}" if abs(value) <= 2 else f"{value:,.0f}"
