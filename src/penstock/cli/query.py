"""`penstock query`: a stream query over files of timed triples."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from penstock.cli.output import console, errors_in_one_line, writable

SHOWN = 20


@errors_in_one_line
def query(
    file: Annotated[Path, typer.Argument(help="A file with the query.", show_default=False)],
    stream: Annotated[
        list[str] | None,
        typer.Option(help="NAME=FILE, for each stream: .nt, .nq, .csv or .parquet.", show_default=False),
    ] = None,
    policy: Annotated[str, typer.Option(help="Who goes when memory is full.")] = "auto",
    budget: Annotated[
        str | None, typer.Option(help="'2000 tuples', '64 MiB' or '20 %'; no limit if not given.")
    ] = None,
    unit: Annotated[str, typer.Option(help="The unit of numeric times.")] = "ms",
    object_: Annotated[
        str, typer.Option("--object", help="What a text as object is: literal or iri.")
    ] = "literal",
    seed: Annotated[int, typer.Option(help="For policies that draw.")] = 0,
    explain: Annotated[bool, typer.Option("--explain", help="Show the plan and run nothing.")] = False,
    out: Annotated[
        Path | None, typer.Option(help="Write the rows as Parquet, or as CSV by its extension.")
    ] = None,
) -> None:
    """Run a continuous query over streams of timed triples."""
    from penstock.errors import PenstockError
    from penstock.linked import StreamQuery
    from penstock.units import time_unit

    writable(out)
    if not file.is_file():
        raise PenstockError(f"There is no file '{file}' with a query.")
    parsed = StreamQuery.parse(file.read_text(encoding="utf-8"))
    if explain:
        typer.echo(parsed.explain(time_unit(unit)))
        return
    files: dict[str, str | Path] = {}
    for given in stream or []:
        name, equals, path = given.partition("=")
        if not equals or not name or not path:
            raise PenstockError(f"--stream takes NAME=FILE; {given!r} was given.")
        files[name] = Path(path)
    run = parsed.run(files, budget=budget, policy=policy, unit=unit, object=object_, seed=seed)
    screen = console()
    assert run.rows is not None
    if out is None:
        from rich import box
        from rich.table import Table

        shown = Table(box=box.SIMPLE_HEAD, pad_edge=False)
        for name in run.rows.column_names:
            shown.add_column(name)
        for row in run.rows.slice(0, SHOWN).to_pylist():
            shown.add_row(*("" if value is None else str(value) for value in row.values()))
        screen.print(shown)
    elif out.suffix.lower() == ".csv":
        run.rows.to_pandas().to_csv(out, index=False)
    else:
        import pyarrow.parquet as pq

        pq.write_table(run.rows, out)
    stats = run.stats
    where = f", written to {out}" if out else ""
    if stats.choice is not None:
        where = f"; {policy} follows {stats.choice.policy} since triple {stats.choice.since:,}{where}"
    screen.print(
        f"{stats.results:,} results of {stats.exact:,} (recall {stats.recall:.3f}) in {stats.triples:,} "
        f"triples, {stats.evicted:,} evicted{where}"
    )
