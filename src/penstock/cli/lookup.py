"""`penstock plan-lookup` and `penstock enrich`: the size of a cache, and a stream with a table's columns."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.files import read_table
from penstock.cli.output import (
    Json,
    JsonOut,
    console,
    errors_in_one_line,
    parts_of,
    picture,
    progress_bar,
    recall_table,
)
from penstock.cli.plan import budget_of_text, policies_of
from penstock.cli.signs import speaks

if TYPE_CHECKING:
    import pandas as pd

    from penstock.lookup import LookupPlan


@errors_in_one_line
@speaks("reading")
def plan_lookup(
    trace: Annotated[Path, typer.Argument(help="The requests: a CSV or Parquet file.", show_default=False)],
    key: Annotated[list[str], typer.Option(help="Key columns of the requests: a,b.", show_default=False)],
    sizes: Annotated[
        list[str] | None, typer.Option(help="Entries: 100,1000; or shares of the distinct keys: 1%.")
    ] = None,
    policies: Annotated[
        list[str] | None, typer.Option(help="Policies, with options if need be; by default all.")
    ] = None,
    target: Annotated[float | None, typer.Option(help="The hit rate to reach, such as 0.8.")] = None,
    seed: Annotated[int, typer.Option(help="For policies that draw.")] = 0,
    json: Json = None,
    plot: Annotated[
        Path | None, typer.Option(help="Write the curve as PNG.", show_default="plan-lookup.png")
    ] = None,
    no_plot: Annotated[bool, typer.Option("--no-plot", help="Write no curve.")] = False,
) -> None:
    """Hit rates for every policy and size of a cache, and the smallest size that reaches the target."""
    sink = JsonOut(json)
    drawing = picture(plot, "plan-lookup.png", wanted=not no_plot)
    with progress_bar() as report:
        import penstock as ps

        requests = _requests(read_table(trace), parts_of(key))
        found = ps.plan_lookup(
            requests,
            sizes=None if sizes is None else _sizes(parts_of(sizes), requests),
            policies=None if policies is None else policies_of(policies),
            target=target,
            seed=seed,
            progress=report,
        )
    sink.write(found.to_json())
    if drawing is not None:
        found.plot(drawing)
    _show(found, sink.screen)
    written = [str(path) for path in (drawing, sink.file) if path]
    if written:
        from rich.markup import escape

        sink.screen.print(f"[dim]Written: {escape(', '.join(written))}[/]")


def _requests(table: pd.DataFrame, names: list[str]) -> pd.DataFrame:
    """The key columns; rows without a key are left out."""
    from penstock.columns import column
    from penstock.errors import ColumnError

    if not names:
        raise ColumnError("--key names no column.")
    for name in names:
        column(table, name, "requesting")
    return table[list(dict.fromkeys(names))].dropna()


def _sizes(texts: list[str], requests: pd.DataFrame) -> list[int]:
    """Numbers of entries; a share is one of the distinct keys."""
    from penstock.budget import Fraction, Tuples
    from penstock.errors import BudgetError

    found = []
    for text in texts:
        budget = budget_of_text(text)
        if isinstance(budget, Fraction):
            budget = Tuples(max(1, round(budget.share * len(requests.drop_duplicates()))))
        if not isinstance(budget, Tuples):
            raise BudgetError(f"A size is a number of entries or a share such as 1%; {text!r} was given.")
        found.append(budget.n)
    return found


def _show(found: LookupPlan, out: Any) -> None:
    requests = found.rows[0].requests
    out.print(f"{requests:,} requests for {found.keys:,} keys.\n")
    out.print("[bold]Hit rate in %, by policy and entries (* best of its column)[/]")
    offline = {row.policy for row in found.rows if row.offline}
    everyone = {row.policy for row in found.rows}
    out.print(recall_table(found.table, offline if offline < everyone else ()))
    if offline:
        out.print(f"[dim]{', '.join(sorted(offline))}: with knowledge of the whole trace.[/]")
    if found.target is None:
        return
    aim, answer = f"{100 * found.target:g} %", found.answer
    if answer is None:
        out.print(f"No policy that works online reaches {aim}, whatever its size: first requests are misses.")
    else:
        out.print(
            f"{aim} of hits need [bold]{answer.size:,} entries[/] with [bold]{answer.policy}[/]: "
            f"a run with them gave {100 * answer.hit_rate:.2f} %."
        )


@errors_in_one_line
@speaks("reading")
def enrich(
    stream: Annotated[Path, typer.Argument(help="The stream: a CSV or Parquet file.", show_default=False)],
    table: Annotated[
        str, typer.Option(help="The table: URL#table, such as sqlite:///shop.db#items.", show_default=False)
    ],
    key: Annotated[
        list[str],
        typer.Option(help="Key columns: a,b; or a=b where those of the table are b.", show_default=False),
    ],
    budget: Annotated[str, typer.Option(help="Entries, or bytes such as '64 MiB'.", show_default=False)],
    out: Annotated[Path, typer.Option(help="The folder for the enriched stream.", show_default=False)],
    policy: Annotated[str, typer.Option(help="Who goes when memory is full.")] = "auto",
    missing: Annotated[str, typer.Option(help="Keys the table has not: null, drop or error.")] = "null",
    ttl: Annotated[str | None, typer.Option(help="How old entries may get: '10 minutes'.")] = None,
    batch: Annotated[int, typer.Option(help="Events that are answered together.")] = 10_000,
    malformed: Annotated[
        str, typer.Option(help="Keys the database cannot read: missing or error.")
    ] = "missing",
    timeout: Annotated[float, typer.Option(help="Seconds until a fetch is given up.")] = 30.0,
    no_negative: Annotated[
        bool, typer.Option("--no-negative", help="Do not remember keys that the table has not.")
    ] = False,
) -> None:
    """Add the columns of a database table to a stream, with a bounded part of the table in memory."""
    from penstock.cli.plan import pair_of_names
    from penstock.errors import PenstockError

    if out.exists() and not out.is_dir():
        raise PenstockError(f"'{out}' is a file; --out names a folder.")
    events = read_table(stream)

    import pyarrow.parquet as pq

    import penstock as ps

    pairs = [pair_of_names(part) for part in parts_of(key)]
    lookup = ps.LookupCache(
        table,
        key=[theirs for _, theirs in pairs],
        budget=budget_of_text(budget),
        policy=policy,
        missing=missing,
        malformed=malformed,
        ttl=ttl,
        batch=batch,
        timeout=timeout,
        negative=not no_negative,
    )
    run = lookup.run(events, on=[mine for mine, _ in pairs])
    out.mkdir(parents=True, exist_ok=True)
    pq.write_table(run.table, out / "part-00000.parquet")
    stats = run.stats
    console().print(
        f"{run.table.num_rows:,} events to {out}; {100 * stats.hit_ratio:.1f} % hits, {stats.loads:,} keys "
        f"in {stats.queries:,} queries, {stats.absent:,} requests for keys that the table has not"
        + (f", {stats.malformed:,} keys that it cannot read" if stats.malformed else "")
        + (f", {stats.failed_keys:,} keys for which the query fails." if stats.failed_keys else ".")
    )
