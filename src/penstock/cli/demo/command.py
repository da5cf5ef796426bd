"""The command `penstock demo`: prepare the streams, run both sides, reconcile, compare and draw."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.demo.process_tree import ProcessTree
from penstock.cli.demo.race import Runner, Side, command_of, own_cores, race
from penstock.cli.demo.report import ExactAnswer, conclusion, figures_of, intro, result_table
from penstock.cli.demo.scenario import QUICK, Scenario, write_streams
from penstock.cli.demo.view import RaceView
from penstock.cli.output import Json, JsonOut, errors_in_one_line, picture, working
from penstock.cli.signs import time_to_clean_up
from penstock.errors import SparkSetupError
from penstock.extras import require

if TYPE_CHECKING:
    from rich.console import Console

CLEAN_UP = 10.0  # seconds after Ctrl-C
NEVER = 2**60  # a memory limit


@errors_in_one_line
def demo(
    quick: Annotated[
        bool, typer.Option("--quick", help="Small streams, which fit into memory: everything but the drama.")
    ] = False,
    plot: Annotated[
        Path | None,
        typer.Option(help="Draw memory and bursts to this PNG file.", show_default="demo.png"),
    ] = None,
    json: Json = None,
) -> None:
    """Run the same burst through Spark's own join and a bounded one, both within the same memory limit."""
    require("pyspark", "penstock demo")
    _check_java()
    drawing = picture(plot, "demo.png")
    sink = JsonOut(json)
    scenario = QUICK if quick else Scenario()
    out = sink.screen
    out.print(intro(scenario))
    with _folder() as folder:
        with working("writing the streams and, once per machine, compiling"):
            _prepare(folder, scenario)
        sides = _race(folder, scenario, out)
        with working("reconciling, and comparing with the exact join"):
            answer = _answer(folder, scenario)
    figures = figures_of(scenario, sides, answer)
    sink.write(figures)
    out.print(result_table(scenario, sides, answer))
    out.print(conclusion(scenario, sides, answer))
    if drawing is not None:
        from penstock.cli.demo.picture import draw

        draw(scenario, sides, drawing)
        out.print(f"The picture: {drawing}")
    if not answer.same:
        raise typer.Exit(1)


@contextlib.contextmanager
def _folder() -> Iterator[Path]:
    """A folder that is removed at the end, also at Ctrl-C and where the process is asked to end."""

    def end(*_: object) -> None:
        sys.exit(143)

    before = signal.signal(signal.SIGTERM, end)
    try:
        with (
            time_to_clean_up(CLEAN_UP),
            tempfile.TemporaryDirectory(prefix="penstock-demo-", ignore_cleanup_errors=True) as name,
        ):
            yield Path(name)
    finally:
        signal.signal(signal.SIGTERM, before)


def _check_java() -> None:
    """Refuse to start where Spark cannot."""
    from penstock.cli.doctor import java

    for finding in java():
        if finding.state == "bad":
            raise SparkSetupError(
                f"Spark found no Java that it can run: {finding.found}. Run `penstock doctor` to see what is "
                "missing and how to fix it."
            )


def _prepare(folder: Path, scenario: Scenario) -> None:
    """Write the streams; compile kernels meanwhile, which needs more memory than the sides may have."""
    command = [sys.executable, "-m", "penstock.cli", "warm", "--operators", "join"]
    command += ["--policies", scenario.policy.partition(":")[0]]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "stdin": subprocess.DEVNULL}
    compiling = subprocess.Popen(command, start_new_session=True, **quiet)  # type: ignore[call-overload]
    try:
        write_streams(folder, scenario)
        compiling.wait()
    finally:
        ProcessTree(compiling.pid).end()
        compiling.wait()


def _race(folder: Path, scenario: Scenario, out: Console) -> list[Side]:
    """Run both sides; show them live on a terminal, else tell of each batch in a line."""
    from rich.live import Live

    sides = [Side("spark", scenario.limit), Side("penstock", scenario.limit)]
    began = time.monotonic()

    def clock() -> float:
        return time.monotonic() - began

    view = RaceView(sides, scenario, clock)
    with contextlib.ExitStack() as open_until_the_end:
        runners = []
        for side, core in zip(sides, own_cores(), strict=True):
            (folder / side.name).mkdir()
            command = command_of(side.name, folder, scenario, core)
            runners.append(Runner(side, command, folder / f"{side.name}.log", clock))
            open_until_the_end.callback(runners[-1].close)
        if out.is_terminal:
            with Live(view, console=out, auto_refresh=False) as live:
                race(runners, scenario.patience, clock, live.refresh)
        else:
            race(runners, scenario.patience, clock, _lines(sides, out))
    return sides


def _lines(sides: list[Side], out: Console) -> Callable[[], None]:
    """Return a function that prints what is new since it was called last."""
    told = {side.name: 0 for side in sides}
    ended: set[str] = set()

    def show() -> None:
        from penstock.cli.demo.view import TITLES, mib

        for side in sides:
            for batch in side.batches[told[side.name] :]:
                told[side.name] += 1
                out.print(
                    f"{batch['at']:5.1f} s  {TITLES[side.name]}: minute {batch['batch'] + 1}, "
                    f"{batch['rows']:,} rows in {batch['seconds']:.1f} s, {mib(side.memory.total)}"
                )
            if side.fate is not None and side.name not in ended:
                ended.add(side.name)
                out.print(f"{side.fate_at:5.1f} s  {TITLES[side.name]}: {side.fate} {side.reason}".rstrip())

    return show


def _answer(folder: Path, scenario: Scenario) -> ExactAnswer:
    """Reconcile and compare, in a process without a limit."""
    began = time.monotonic()
    side = Side("answer", NEVER)
    (folder / side.name).mkdir()
    clock = _since(began)
    runner = Runner(side, command_of(side.name, folder, scenario, None), folder / "answer.log", clock)
    with contextlib.closing(runner):
        race([runner], float("inf"), clock)
    if side.fate != "done":
        raise RuntimeError(f"the exact answer could not be computed: {side.reason}")
    counted = {event["what"]: event for event in side.events if event["event"] == "counted"}
    (compared,) = (event for event in side.events if event["event"] == "compared")
    return ExactAnswer(
        online=counted["online"]["rows"],
        recovered=counted["recovered"]["rows"],
        exact=counted["exact"]["rows"],
        same=compared["same"],
        seconds=side.fate_at,
        recovery_seconds=counted["recovered"]["at"] - counted["online"]["at"],
    )


def _since(began: float) -> Callable[[], float]:
    return lambda: time.monotonic() - began
