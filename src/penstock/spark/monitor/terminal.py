"""Show the metrics of a monitor as a table in the terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from penstock.joins.estimate import RecallEstimate

if TYPE_CHECKING:
    from rich.console import Console, RenderableType


class View:
    """The table in the terminal: metrics as rows, the last batches and the totals as columns."""

    def __init__(
        self,
        title: str,
        state: str,
        streams: tuple[str, ...],
        batches: list[dict[str, Any]],
        totals: dict[str, Any],
    ) -> None:
        self.title, self.state, self.streams = title, state, streams
        self.batches, self.totals = batches, totals

    def __rich_console__(self, console: Console, options: Any) -> Iterator[RenderableType]:
        """Render as many batches as fit."""
        from rich import box
        from rich.table import Table
        from rich.text import Text

        colour = "red" if self.state.startswith("failed") else "green" if self.state == "running" else "dim"
        yield Text.assemble(
            (self.title, "bold"), "  ", (self.state, colour), no_wrap=True, overflow="ellipsis"
        )
        if not self.batches:
            return
        wide = any(each["recall_at_most"] for each in (*self.batches, self.totals))
        room = max(1, (options.max_width - 36) // (17 if wide else 12))
        shown = self.batches[-room:]
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1))
        table.add_column("", style="cyan", no_wrap=True)
        for each in shown:
            table.add_column(f"batch {each['batch']}", justify="right", no_wrap=True)
        table.add_column("all", justify="right", no_wrap=True, style="bold")
        lines = _lines(self.streams) | _lines_beside(self.totals)
        for label, cell in lines.items():
            table.add_row(label, *[cell(each) for each in shown], cell(self.totals))
        yield table
        if self.totals["advice"]:
            yield Text(self.totals["advice"], style="yellow")


def _count(number: float | None) -> str:
    """Format a number in few characters: 98,765 or 1.2 M."""
    if number is None:
        return "–"
    for size, unit in ((1e9, "G"), (1e6, "M")):
        if number >= size:
            return f"{number / size:.1f} {unit}"
    return f"{number:,.0f}"


def _bytes(number: int | None) -> str:
    """Format a size with its unit."""
    if number is None:
        return "–"
    for power, unit in ((3, "GiB"), (2, "MiB"), (1, "KiB")):
        if number >= 1024**power:
            return f"{number / 1024**power:.1f} {unit}"
    return f"{number} B"


def _memory(figures: dict[str, Any], streams: tuple[str, ...]) -> str:
    """Format the share of each stream in the buffered rows, in percentages that add up to 100."""
    rows = [figures[f"buffered_{stream}"] for stream in streams]
    if not sum(rows):
        return "–"
    shares = [round(100 * count / sum(rows)) for count in rows[:-1]]
    return " / ".join(map(str, [*shares, 100 - sum(shares)])) + " %"


def _recall(figures: dict[str, Any]) -> str:
    """Format the recall in percent, if there was anything to find."""
    if figures["recall"] is None:
        return "unknown" if figures["unestimated"] else "–"
    if not (figures["results"] or figures["unmatched"] or figures["missed"] > 0):
        return "–"
    return str(RecallEstimate(figures["recall"], figures["recall_at_most"]))


def _bucket(figures: dict[str, Any]) -> str:
    """Format the bucket with the most evictions, and its share of them."""
    if figures["hottest_bucket"] is None:
        return "–"
    return f"{figures['hottest_bucket']}: {100 * figures['hottest_share']:.0f} %"


def _lines(streams: tuple[str, ...]) -> dict[str, Callable[[dict[str, Any]], str]]:
    """Return the rows of the table: their labels and formatters."""
    evicted = {f"evicted, {stream}": _counted(f"evicted_{stream}") for stream in streams}
    return {
        "input rows/s": _counted("rows_per_second"),
        "results": _counted("results"),
        "estimated recall": _recall,
        **evicted,
        f"memory {' / '.join(streams)}": lambda f: _memory(f, streams),
        "peak memory": lambda f: _bytes(f["peak_bytes"]),
        "memory of workers": lambda f: _bytes(f["worker_bytes"]),
        "late rows": _counted("late"),
        "behind the watermark": _counted("behind_watermark"),
        "state written": lambda f: _bytes(f["state_written"]),
        "state read": lambda f: _bytes(f["state_read"]),
        "hottest bucket": _bucket,
    }


def _lines_beside(totals: dict[str, Any]) -> dict[str, Callable[[dict[str, Any]], str]]:
    """Return the rows for lookups and queues, if the query has any."""
    lines: dict[str, Callable[[dict[str, Any]], str]] = {}
    if totals["unmatched"] or totals["undecided"]:
        lines |= {"without a partner": _counted("unmatched"), "undecided": _counted("undecided")}
    if totals["requests"]:
        lines["lookup hits"] = lambda f: _share(f.get("hits"), f.get("requests"))
    if totals["malformed"]:
        lines["malformed keys"] = lambda f: _count(f.get("malformed", 0))
    if totals["failed_keys"]:
        lines["failed keys"] = lambda f: _count(f.get("failed_keys", 0))
    if totals["waiting"]:
        lines["waiting in queues"] = lambda f: _count(sum(f.get("waiting", {}).values()))
    return lines


def _share(part: int | None, whole: int | None) -> str:
    """In percent."""
    return f"{100 * (part or 0) / whole:.1f} %" if whole else "–"


def _counted(name: str) -> Callable[[dict[str, Any]], str]:
    """Return a formatter for a counter."""
    return lambda figures: _count(figures[name])
