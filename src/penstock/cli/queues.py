"""`penstock queues`: simulate planners, verify and inspect queue folders, and serve queues."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.files import read_text
from penstock.cli.output import Json, JsonOut, errors_in_one_line, parts_of, picture

if TYPE_CHECKING:
    from penstock.queues.store.inspection import FolderReport

queues = typer.Typer(
    help="Lossless queues in bounded memory: simulate, verify, inspect, serve.",
    epilog="Example: penstock queues simulate --pattern bursts --memory 8 --ticks 200",
    no_args_is_help=True,
)

FOLDER = typer.Argument(help="The folder of the queue.", show_default=False)


@queues.command(epilog="Example: penstock queues simulate --pattern bursts --memory 100 --ticks 5000")
@errors_in_one_line
def simulate(
    pattern: Annotated[
        str,
        typer.Option(
            help="steady, poisson, bursts or theorem-2.2; for several queues, theorem-4.3 or theorem-4.4."
        ),
    ] = "bursts",
    arrivals: Annotated[
        str | None, typer.Option(help="Your own arrivals: counts per tick, such as 3,0,3,3.")
    ] = None,
    memory: Annotated[int, typer.Option(help="Tuples that fit into memory.")] = 8,
    ticks: Annotated[int, typer.Option(help="Length of the pattern.")] = 200,
    queues: Annotated[int, typer.Option(help="Number of queues, for theorem-4.3.")] = 4,
    planners: Annotated[list[str] | None, typer.Option(help="Planners; default: all that can run.")] = None,
    block: Annotated[int | None, typer.Option(help="T = c0/c1; uses the extended cost model.")] = None,
    seed: Annotated[int, typer.Option(help="Seed for random patterns.")] = 0,
    json: Json = None,
    plot: Annotated[Path | None, typer.Option(help="Plot accesses over time to this PNG file.")] = None,
) -> None:
    """Compare planners on a pattern of arrivals: cost, ratio to the optimum, disk traffic."""
    sink = JsonOut(json)
    picture(plot)

    from penstock.queues.planning.comparison import compare
    from penstock.queues.planning.costs import ExtendedCost

    counted, order = _arrivals(pattern, arrivals, memory, ticks, queues, seed)
    number = 1 if getattr(counted, "ndim", 1) == 1 else counted.shape[1]
    names = parts_of(planners) if planners else _all_planners(memory, number, block)
    model = ExtendedCost(c0=block, c1=1) if block else None
    found = compare(counted, names, memory=memory, model=model, consume=order)
    sink.write({"best": found.best, "exact": found.exact, "rows": found.rows()})
    if plot is not None:
        found.plot(plot)
    _show_comparison(found, sink.screen)


def _arrivals(
    pattern: str, given: str | None, memory: int, ticks: int, queues: int, seed: int
) -> tuple[Any, Any]:
    from penstock.errors import PenstockError
    from penstock.queues.planning import arrivals

    if given is not None:
        try:
            return [int(part) for part in given.split(",")], "round-robin"
        except ValueError as error:
            raise PenstockError(
                f"Arrivals are whole numbers separated by commas; {given!r} was given."
            ) from error
    if pattern == "theorem-4.3":
        return arrivals.round_robin_adversary(memory, queues), "round-robin"
    if pattern == "theorem-4.4":
        return arrivals.adversary(memory, ticks)
    return arrivals.pattern(pattern, ticks, memory, seed), "round-robin"


def _all_planners(memory: int, queues: int, block: int | None) -> list[str]:
    from penstock.errors import PenstockError
    from penstock.queues.planning import planners

    names = []
    for name in planners.names():
        text = f"{name}:block={block}" if block and name in ("greedy-chunk", "hybrid") else name
        try:
            planners.planner(text).sized(memory, queues)
        except PenstockError:
            continue
        if block or name not in ("greedy-chunk", "hybrid"):
            names.append(text)
    return names


def _show_comparison(found: Any, out: Any) -> None:
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("planner", style="cyan", no_wrap=True)
    headings = ("cost", "ratio", "reads", "writes", "tuples read", "tuples written", "written again", "peak")
    for heading in headings:
        table.add_column(heading, justify="right")
    for row in found.rows():
        ratio = "–" if row["ratio"] is None else f"{row['ratio']:.2f}"
        cells = [f"{row['cost']:,g}", ratio]
        cells += [f"{row[k]:,}" for k in ("reads", "writes", "tuples_read", "tuples_written")]
        table.add_row(row["planner"], *cells, f"{row['written_again']:,}", f"{row['peak']:,}")
    out.print(table)
    if found.best is None:
        out.print("No ratios: the optimum is too large to compute, or costs nothing.")
    else:
        kind = "the optimum," if found.exact else "a lower bound on any algorithm's cost,"
        out.print(f"Ratios are relative to {kind} {found.best:g}.")


@queues.command(epilog="Example: penstock queues verify spool/clicks")
@errors_in_one_line
def verify(folder: Annotated[Path, FOLDER], json: Json = None) -> None:
    """Check every file of a queue; exit code 1 if anything is torn, damaged or missing."""
    sink = JsonOut(json)
    from penstock.queues.store.inspection import verify as look

    report = look(folder)
    sink.write(_plain(report))
    for shared in report.flaws:
        sink.screen.print(str(shared), markup=False, soft_wrap=True)
    for each in report.queues:
        for flaw in (*each.flaws, *each.missing):
            sink.screen.print(f"queue {each.queue}: {flaw}", markup=False, soft_wrap=True)
    if not report.whole:
        raise typer.Exit(1)
    items = sum(each.items for each in report.queues)
    chunks = sum(each.chunks for each in report.queues)
    sink.screen.print(f"no damage: {items:,} items in {chunks:,} chunks")


@queues.command(epilog="Example: penstock queues inspect spool/clicks")
@errors_in_one_line
def inspect(folder: Annotated[Path, FOLDER], json: Json = None) -> None:
    """Show what a queue holds."""
    sink = JsonOut(json)
    from penstock.queues.store.inspection import verify as look

    report = look(folder)
    sink.write(_plain(report))
    kind = "record batches" if report.arrow else "bytes"
    state = "closed" if report.clean else "open, or not closed cleanly"
    lines = [f"{report.folder}: {kind}, {'durable' if report.durable else 'not durable'}, {state}"]
    lines += [
        f"queue {each.queue}: {each.items:,} items ({each.first:,} to {each.after:,}), "
        f"{each.bytes:,} bytes in {each.files:,} files, {each.chunks:,} chunks, {len(each.flaws)} flaws"
        for each in report.queues
    ]
    lines += [str(flaw) for flaw in report.flaws]
    sink.screen.print("\n".join(lines), markup=False, soft_wrap=True)


def _plain(report: FolderReport) -> dict[str, Any]:
    """Return the report as plain data; flaws and gaps as text."""
    found: dict[str, Any] = {"folder": str(report.folder), "whole": report.whole}
    found |= {name: getattr(report, name) for name in ("durable", "arrow", "clean")}
    found["flaws"] = [str(flaw) for flaw in report.flaws]
    numbers = ("queue", "items", "first", "after", "delivered", "files", "bytes", "chunks")
    found["queues"] = [
        {name: getattr(each, name) for name in numbers}
        | {"flaws": [str(flaw) for flaw in each.flaws], "missing": [str(gap) for gap in each.missing]}
        for each in report.queues
    ]
    return found


@queues.command(epilog="Example: penstock queues serve spool --port 8815 --memory '256 MiB'")
@errors_in_one_line
def serve(
    folder: Annotated[Path, typer.Argument(help="Folder of the queues.", show_default=False)],
    port: Annotated[int, typer.Option(help="Port to listen on; 0 picks a free one.")] = 8815,
    host: Annotated[str, typer.Option(help="Address; any but loopback needs a token and TLS.")] = "127.0.0.1",
    memory: Annotated[str, typer.Option(help="Memory per queue.")] = "64 MiB",
    disk_limit: Annotated[
        str | None, typer.Option(help="Disk per queue; producers wait when it is full.")
    ] = None,
    policy: Annotated[str, typer.Option(help="The planner.")] = "half",
    token_file: Annotated[
        Path | None, typer.Option(help="A file with the token; or set PENSTOCK_QUEUE_TOKEN.")
    ] = None,
    certificate: Annotated[Path | None, typer.Option(help="TLS certificate (PEM).")] = None,
    key: Annotated[Path | None, typer.Option(help="TLS key (PEM).")] = None,
) -> None:
    """Serve queues to producers and consumers over Arrow Flight; stop with Ctrl-C."""
    import signal
    import sys

    from penstock.queues.server import QueueServer, use_little_memory

    token = read_text(token_file, "a token").strip() if token_file else os.environ.get("PENSTOCK_QUEUE_TOKEN")
    use_little_memory()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    try:
        server = QueueServer(
            folder,
            host,
            port,
            memory=memory,
            policy=policy,
            disk_limit=disk_limit,
            token=token,
            certificate=certificate,
            key=key,
        )
    except BaseException:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        raise
    typer.echo(f"serving {folder} on {server.location}")
    # Flight listens in its own threads; this one waits for a signal.
    signal.sigwait({signal.SIGINT, signal.SIGTERM})
    server.close()
    typer.echo("closed")
    sys.stdout.flush()
    os._exit(0)  # a producer's open call would keep the process alive
