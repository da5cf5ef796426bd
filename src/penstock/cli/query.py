"""`penstock query`: run a stream query over files of timed triples."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from penstock.cli.files import read_text
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
@speaks("querying")
def query(
    file: Annotated[Path, typer.Argument(help="A file with the query.", show_default=False)],
    stream: Annotated[
        list[str] | None,
        typer.Option(help="NAME=FILE for each stream: .nt, .nq, .csv or .parquet.", show_default=False),
    ] = None,
    policy: Annotated[str, typer.Option(help="Eviction policy.")] = "auto",
    budget: Annotated[
        str | None, typer.Option(help="'2000 tuples', '64 MiB' or '20 %'; default: no limit.")
    ] = None,
    unit: Annotated[str, typer.Option(help="Unit of numeric times.")] = "ms",
    object_: Annotated[
        str, typer.Option("--object", help="Read text in the object column as: literal or iri.")
    ] = "literal",
    seed: Annotated[int, typer.Option(help="Seed for randomised policies.")] = 0,
    explain: Annotated[
        bool, typer.Option("--explain", help="Show the plan without running; uses the streams if given.")
    ] = False,
    out: Annotated[
        Path | None, typer.Option(help="Write the rows to this file: Parquet, or CSV if it ends in .csv.")
    ] = None,
    json: Json = None,
) -> None:
    """Run a continuous query over streams of timed triples."""
    from dataclasses import asdict

    from penstock.errors import PenstockError
    from penstock.linked import StreamQuery
    from penstock.units import time_unit

    writable(out)
    sink = JsonOut(json)
    parsed = StreamQuery.parse(read_text(file, "a query"))
    files: dict[str, str | Path] = {}
    for given in stream or []:
        name, equals, path = given.partition("=")
        if not equals or not name or not path:
            raise PenstockError(f"--stream takes NAME=FILE; {given!r} was given.")
        files[name] = Path(path)
    if explain:
        shown = (
            parsed.plan_for(files, unit=unit, object=object_) if files else parsed.explain(time_unit(unit))
        )
        typer.echo(shown)
        return
    with working("querying"):
        run = parsed.run(files, budget=budget, policy=policy, unit=unit, object=object_, seed=seed)
    assert run.rows is not None
    if out is not None:
        save_rows(run.rows, out)
    stats = run.stats
    where = f", written to {out}" if out else ""
    if stats.choice is not None:
        where = f"; {policy} has followed {stats.choice.policy} since triple {stats.choice.since:,}{where}"
    figures = {name: getattr(stats, name) for name in ("results", "exact", "recall", "triples", "evicted")}
    choice = None if stats.choice is None else asdict(stats.choice)
    sink.write(figures | {"choice": choice, "rows": run.rows.to_pylist()})
    if out is None and not sink.alone:
        sink.screen.print(rows_table(run.rows.slice(0, SHOWN).to_pylist(), run.rows.column_names))
    sink.screen.print(
        f"{stats.results:,} results of {stats.exact:,} (recall {stats.recall:.3f}) in {stats.triples:,} "
        f"triples, {stats.evicted:,} evicted{where}"
    )
