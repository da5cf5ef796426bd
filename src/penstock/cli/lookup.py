"""`penstock plan-lookup` and `penstock enrich`: size a cache, and add a table's columns to a stream."""

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
        list[str] | None,
        typer.Option(help="Cache sizes in entries: 100,1000; or shares of the distinct keys: 1%."),
    ] = None,
    policies: Annotated[
        list[str] | None, typer.Option(help="Policies, optionally with options; default: all.")
    ] = None,
    target: Annotated[float | None, typer.Option(help="Hit rate to reach, such as 0.8.")] = None,
    seed: Annotated[int, typer.Option(help="Seed for randomised policies.")] = 0,
    json: Json = None,
    plot: Annotated[
        Path | None, typer.Option(help="Plot the curve to this PNG file.", show_default="plan-lookup.png")
    ] = None,
    no_plot: Annotated[bool, typer.Option("--no-plot", help="Do not plot the curve.")] = False,
) -> None:
    """Compute the hit rate of every policy and cache size, and the smallest size that reaches the target."""
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
    """Return the key columns, without rows that have a null key."""
    from penstock.columns import column
    from penstock.errors import ColumnError

    if not names:
        raise ColumnError("--key does not name a column.")
    for name in names:
        column(table, name, "requesting")
    return table[list(dict.fromkeys(names))].dropna()


def _sizes(texts: list[str], requests: pd.DataFrame) -> list[int]:
    """Parse cache sizes; a share refers to the number of distinct keys."""
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
        out.print(f"[dim]{', '.join(sorted(offline))}: knows the whole trace in advance.[/]")
    if found.target is None:
        return
    aim, answer = f"{100 * found.target:g} %", found.answer
    if answer is None:
        out.print(f"No online policy reaches {aim} at any size, because the first request for a key misses.")
    else:
        out.print(
            f"A hit rate of {aim} needs [bold]{answer.size:,} entries[/] with [bold]{answer.policy}[/]; "
            f"a run with this size reached {100 * answer.hit_rate:.2f} %."
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
        typer.Option(help="Key columns: a,b; or a=b if the table's column is b.", show_default=False),
    ],
    budget: Annotated[str, typer.Option(help="Entries, or bytes such as '64 MiB'.", show_default=False)],
    out: Annotated[Path, typer.Option(help="The folder for the enriched stream.", show_default=False)],
    policy: Annotated[str, typer.Option(help="Eviction policy.")] = "auto",
    missing: Annotated[str, typer.Option(help="For keys not in the table: null, drop or error.")] = "null",
    ttl: Annotated[
        str | None, typer.Option(help="Maximum age of an entry: '10 minutes'; default: no limit.")
    ] = None,
    batch: Annotated[int, typer.Option(help="Events answered together.")] = 10_000,
    malformed: Annotated[
        str, typer.Option(help="For keys the database cannot read: missing or error.")
    ] = "missing",
    timeout: Annotated[float, typer.Option(help="Seconds before a fetch fails.")] = 30.0,
    no_negative: Annotated[
        bool, typer.Option("--no-negative", help="Do not cache keys that are not in the table.")
    ] = False,
) -> None:
    """Add the columns of a database table to a stream, with a bounded cache of the table in memory."""
    from penstock.cli.plan import pair_of_names
    from penstock.errors import PenstockError

    if out.exists() and not out.is_dir():
        raise PenstockError(f"'{out}' is a file; --out takes a folder.")
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
        f"in {stats.queries:,} queries, {stats.absent:,} requests for keys not in the table"
        + (f", {stats.malformed:,} keys that the database cannot read" if stats.malformed else "")
        + (f", {stats.failed_keys:,} keys whose query failed." if stats.failed_keys else ".")
    )
