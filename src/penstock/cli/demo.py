"""`penstock demo`: the bounded join on a generated stream."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.output import Report, console, errors_in_one_line, progress_bar, recall_table

if TYPE_CHECKING:
    from penstock.joins import Plan

POLICIES = ("fifo", "lru", "prob", "gdj")  # each takes seconds to compile the first time
QUICK = ("fifo", "prob")
SHARES = ("5 %", "10 %", "20 %", "35 %", "50 %", "75 %", "100 %")
WINDOW = 60  # minutes


@errors_in_one_line
def demo(
    quick: Annotated[bool, typer.Option("--quick", help="Two policies on a shorter stream.")] = False,
) -> None:
    """The join on a generated stream: recall by policy and budget, and what it kept in memory."""
    import penstock as ps
    from penstock.workloads import gdj_pair

    rate = 20 if quick else 100
    names = QUICK if quick else POLICIES
    left, right = gdj_pair(keys=500, rate=rate, seed=1)
    out = console()
    out.print(
        f"Two streams of {len(left):,} tuples over a day, {WINDOW} minutes apart at most. Keys are popular "
        "by Zipf's law and come in clusters (Pareto gaps), as in the GreedyDual-Join experiments.\n"
    )
    with progress_bar() as report:
        compile_in_parallel(names, report)
        found = ps.plan(
            left, right, on="key", time="ts", within=WINDOW, unit="min",
            budgets=SHARES, policies=names, progress=report,
        )  # fmt: skip
    out.print(
        f"[bold]Recall in %, by policy and share of the {found.need:,} tuples of the exact join (* best)[/]"
    )
    out.print(recall_table(found.table))
    _show_memory(found)
    within = all(row.peak_tuples <= (row.tuples or 0) for row in found.rows)
    out.print(
        f"\nThe exact join has {found.rows[0].exact:,} results. FIFO is a shorter window: its recall follows "
        "memory. The others learn which tuples are worth keeping. "
        + ("No run exceeded its budget." if within else "[red]A run exceeded its budget.[/]")
        + "\nWhat a clairvoyant policy could reach is not shown yet. "
        "[bold]penstock plan[/] does this for your own files."
    )


def compile_in_parallel(names: tuple[str, ...], report: Report) -> None:
    """Compile the kernels of several policies, or load them from the cache, on all cores.

    Compiling takes about ten seconds a policy, once on a machine, and Numba does it on one core.

    >>> from penstock.cli.demo import compile_in_parallel
    >>> compile_in_parallel((), print)
    """
    import multiprocessing
    import os
    from concurrent.futures import ProcessPoolExecutor, as_completed

    workers = min(os.cpu_count() or 1, len(names))
    if workers < 2 or os.environ.get("NUMBA_DISABLE_JIT", "0") not in ("", "0"):
        return
    label = "loading kernels (compiled once, about a minute)"
    report(0, len(names), label)
    with ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("spawn")) as pool:
        for done, _ in enumerate(
            as_completed([pool.submit(compile_policy, name) for name in names]), start=1
        ):
            report(done, len(names), label)


def compile_policy(name: str) -> None:
    """Run a policy on next to nothing, which leaves its kernel in the cache.

    >>> from penstock.cli.demo import compile_policy
    >>> compile_policy("fifo")
    """
    import penstock as ps

    data = {"key": [1, 2], "ts": [0, 1]}
    ps.WindowJoin(within=1, budget=ps.Tuples(2), policy=name).run(data, data, on="key", time="ts")


def _show_memory(found: Plan) -> None:
    """Per budget, the tuples that were allowed and the most that each policy kept at any moment."""
    from rich import box
    from rich.table import Table

    console().print("[bold]Memory: tuples allowed, and the most each policy kept[/]")
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    names = list(found.table.index)
    for column in ("budget", "allowed", *names):
        table.add_column(str(column), justify="left" if column == "budget" else "right")
    for budget in found.table.columns:
        rows = {row.policy: row for row in found.rows if row.budget == budget}
        peaks = [f"{rows[name].peak_tuples:,}" for name in names]
        table.add_row(str(budget), f"{rows[names[0]].tuples:,}", *peaks)
    console().print(table)
