"""The command line: joins, plans, lookups, patterns, stream queries, queues, experiments and the demo.

Each command imports what it needs when it runs, so `penstock --help` does not wait for Numba.
"""

from __future__ import annotations

from typing import Annotated

import typer

from penstock.cli.asof import asof
from penstock.cli.dashboard import dashboard
from penstock.cli.demo import demo
from penstock.cli.doctor import doctor
from penstock.cli.init import init
from penstock.cli.join import join, reconcile
from penstock.cli.lookup import enrich, plan_lookup
from penstock.cli.match import match
from penstock.cli.plan import plan
from penstock.cli.policies import policies
from penstock.cli.query import query
from penstock.cli.queues import queues
from penstock.cli.reproduce import reproduce
from penstock.cli.signs import heeding_ctrl_c
from penstock.cli.warm import warm

__all__ = ["app", "main"]

app = typer.Typer(
    name="penstock",
    help="Stream processing in a fixed amount of memory.",
    epilog="Example: penstock plan buys.csv sells.csv --on symbol --time ts --within '10 minutes'\n\n"
    "Exit codes: 0 success, 1 failure, 2 invalid usage or input.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)
for command, example in (
    (
        plan,
        "penstock plan buys.csv sells.csv --on symbol,price --time ts --within '10 minutes' --target 0.95",
    ),
    (
        init,
        "penstock init job.py --left shown/ --right clicked/ --on ad --time ts --within '10 minutes'",
    ),
    (policies, "penstock policies --json policies.json"),
    (match, "penstock match query.neel events.parquet --type kind --time ts --out matches.parquet"),
    (
        query,
        "penstock query similar.rq --stream windSpeed=wind.nt --budget '2000 tuples' --out rows.csv",
    ),
    (
        join,
        "penstock join shown/ clicked/ --on ad --time ts --within '10 minutes' --budget '64 MiB' --out hits "
        "--archive lost --stream",
    ),
    (
        reconcile,
        "penstock reconcile shown/ clicked/ --on ad --time ts --within '10 minutes' --results hits "
        "--archive lost --out missed",
    ),
    (
        asof,
        "penstock asof trades.parquet quotes/ --on symbol --time ts --tolerance '1 minute' --budget '64 MiB' "
        "--out priced",
    ),
    (plan_lookup, "penstock plan-lookup requests.parquet --key item --target 0.8"),
    (
        enrich,
        "penstock enrich clicks.parquet --table sqlite:///shop.db#items --key item=id --budget 1000 "
        "--policy lru --out enriched",
    ),
    (reproduce, "penstock reproduce gdj clock --quick --data streams/ --out reproduction"),
    (dashboard, "penstock dashboard clicks.jsonl --port 8501"),
    (warm, "penstock warm --policies auto,lru --operators join --out kernels.tar"),
    (doctor, "penstock doctor --start"),
    (demo, "penstock demo --quick"),
):
    app.command(epilog=f"Example: {example}")(command)
app.add_typer(queues, name="queues")


def _show_version(wanted: bool) -> None:
    if wanted:
        from penstock import __version__

        typer.echo(f"penstock {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    pass


def main() -> None:
    """Run the command line.

    >>> from typer.testing import CliRunner
    >>> from penstock.cli import app
    >>> CliRunner().invoke(app, ["--version"]).output.startswith("penstock ")
    True
    """
    with heeding_ctrl_c():
        app()
