"""What the demo shows while the sides run, and the table at its end."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from penstock.cli.demo.race import Side
from penstock.cli.demo.scenario import MIB, Scenario

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

BAR = 20  # characters
TITLES = {"spark": "Spark's own join", "penstock": "Penstock"}
FATES = {"done": "finished", "died": "DIED", "stopped": "stopped"}


class RaceView:
    """Both sides as they are now."""

    def __init__(self, sides: list[Side], scenario: Scenario, clock: Any) -> None:
        self.sides, self.scenario, self.clock = sides, scenario, clock

    def __rich_console__(self, console: Console, options: Any) -> Iterator[RenderableType]:
        """Render a row per figure and a column per side."""
        from rich import box
        from rich.table import Table

        table = Table(
            box=box.SIMPLE_HEAD, pad_edge=False, title=f"{self.clock():.0f} s", title_justify="left"
        )
        table.add_column("", style="dim", no_wrap=True)
        for side in self.sides:
            table.add_column(TITLES[side.name], min_width=31, no_wrap=True)
        for label, cell in (
            ("now", self._now),
            ("memory, all processes", memory_bar),
            ("of it JVM and Python", lambda side: f"{mib(side.memory.java)} and {mib(side.memory.other)}"),
            ("input rows a second", speed),
            ("results", lambda side: f"{side.results:,}"),
            ("rows kept", lambda side: f"{last(side, 'kept'):,}"),
            ("late rows", late),
            ("estimated recall", recall),
        ):
            table.add_row(label, *(cell(side) for side in self.sides))
        yield table

    def _now(self, side: Side) -> str:
        if side.fate is not None:
            colour = "green" if side.fate == "done" else "red"
            return f"[bold {colour}]{FATES[side.fate]}[/] after {side.fate_at:.0f} s"
        if side.began is None:
            return "starting"
        number = len(side.batches)
        since = self.clock() - (side.batches[-1]["at"] if side.batches else side.began)
        burst = " [yellow](burst)[/]" if number in self.scenario.bursts else ""
        if number >= self.scenario.files:
            return "ending"
        return f"minute {number + 1} of {self.scenario.files}{burst}, for {since:.0f} s"


def memory_bar(side: Side) -> str:
    """Return the memory of a side as a bar up to its limit.

    >>> from penstock.cli.demo.process_tree import TreeMemory
    >>> from penstock.cli.demo.race import Side
    >>> from penstock.cli.demo.view import memory_bar
    >>> memory_bar(Side("spark", limit=100 << 20, samples=[(0.0, TreeMemory(50 << 20, 0))]))
    '[green]━━━━━━━━━━[/][dim]━━━━━━━━━━[/] 50 MiB'
    """
    share = min(1.0, side.memory.total / side.limit)
    full = round(BAR * share)
    colour = "red" if share > 0.9 else "yellow" if share > 0.75 else "green"
    return f"[{colour}]{'━' * full}[/][dim]{'━' * (BAR - full)}[/] {mib(side.memory.total)}"


def mib(size: float) -> str:
    """Format a size.

    >>> from penstock.cli.demo.view import mib
    >>> mib(3 << 20)
    '3 MiB'
    """
    return f"{size / MIB:,.0f} MiB"


def last(side: Side, name: str) -> Any:
    """A figure of the last batch."""
    return side.batches[-1][name] if side.batches else 0


def speed(side: Side) -> str:
    """The input rows a second of the last batch."""
    if not side.batches:
        return "–"
    batch = side.batches[-1]
    return f"{batch['rows'] / max(batch['seconds'], 1e-3):,.0f}"


def late(side: Side) -> str:
    """Late rows, and what becomes of them."""
    return f"{side.late:,} " + ("dropped" if side.name == "spark" else "joined as far as possible")


def recall(side: Side) -> str:
    """The estimated share of the results that was found."""
    if side.name == "spark":
        return "keeps all rows" if side.fate in (None, "done") else "–"
    if not side.batches:
        return "–"
    from penstock.joins.estimate import RecallEstimate

    return str(RecallEstimate(last(side, "recall"), last(side, "at_most")))
