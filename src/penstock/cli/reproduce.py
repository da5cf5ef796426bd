"""`penstock reproduce`: the tables and figures of a paper, from one command."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.output import console, errors_in_one_line, parts_of, progress_bar

if TYPE_CHECKING:
    import pandas as pd

    from penstock.experiments import Experiment


@errors_in_one_line
def reproduce(
    paper: Annotated[str, typer.Argument(help="Which: heeb, policies, ...", show_default=False)],
    only: Annotated[list[str] | None, typer.Option(help="Some of its figures: figure-8,figure-15.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Shorter streams and fewer runs.")] = False,
    runs: Annotated[int | None, typer.Option(min=1, help="Runs, instead of the paper's number.")] = None,
    data: Annotated[Path | None, typer.Option(help="The folder with real data.")] = None,
    out: Annotated[Path | None, typer.Option(help="A folder for the tables as CSV.")] = None,
    json: Annotated[Path | None, typer.Option(help="Write all rows as JSON; - is stdout.")] = None,
) -> None:
    """Run the experiments of a paper anew, and show its tables."""
    from penstock.errors import PenstockError, hint
    from penstock.experiments import PAPERS, Options

    if paper not in PAPERS:
        raise PenstockError(f"There is no paper {paper!r}{hint(paper, PAPERS)}")
    known = {each.name: each for each in PAPERS[paper]}
    wanted = parts_of(only) or list(known)
    for name in wanted:
        if name not in known:
            raise PenstockError(f"{paper} has no {name!r}{hint(name, known)}")
    if data is not None and not data.is_dir():
        raise PenstockError(f"--data: there is no folder '{data}'.")
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
    to_stdout = str(json) == "-"
    screen = console(stderr=to_stdout)
    rows: dict[str, Any] = {}
    for name in wanted:
        with progress_bar() as report:
            table = known[name].run(Options(quick=quick, runs=runs, data=data, report=report))
        _show(known[name], table, screen)
        if out is not None:
            table.to_csv(out / f"{paper}-{name}.csv", index=False)
        rows[name] = table.astype(object).where(table.notna(), None).to_dict("records")  # type: ignore[call-overload]
    if json is not None:
        import json as encoder

        text = encoder.dumps({"paper": paper, "quick": quick, "experiments": rows}, indent=2) + "\n"
        if to_stdout:
            typer.echo(text, nl=False)
        else:
            json.write_text(text, encoding="utf-8")


def _show(experiment: Experiment, table: pd.DataFrame, screen: Any) -> None:
    """The table with one column across."""
    from rich import box
    from rich.table import Table

    index = experiment.index.split(",")
    if experiment.columns:
        wide = table.pivot(index=index, columns=experiment.columns, values=experiment.value)
        keys = list(dict.fromkeys(map(tuple, table[index].itertuples(index=False, name=None))))
        wide = wide.loc[keys if len(index) > 1 else [key[0] for key in keys]]
        wide = wide[list(dict.fromkeys(table[experiment.columns]))]
    else:
        wide = table.set_index(index)[[experiment.value]]
    shown = Table(title=experiment.title, box=box.SIMPLE_HEAD, title_justify="left")
    for name in index:
        shown.add_column(name, style="cyan", no_wrap=True)
    for name in wide.columns:
        shown.add_column(str(name), justify="right")
    for key, row in wide.iterrows():
        labels = key if isinstance(key, tuple) else (key,)
        shown.add_row(*map(str, labels), *(_cell(value) for value in row))
    screen.print(shown)
    notes = [
        f"{name}: {', '.join(map(str, table[name].unique()))}" for name in ("runs", "data") if name in table
    ]
    if notes:
        screen.print(f"[dim]{'; '.join(notes)}[/]\n")


def _cell(value: float) -> str:
    if value != value:  # NaN
        return "–"
    return f"{value:.3f}" if abs(value) <= 2 else f"{value:,.0f}"
