"""The words and the table of the demo."""

from __future__ import annotations

import statistics
from dataclasses import asdict, dataclass
from typing import Any

from penstock.cli.demo.race import Side
from penstock.cli.demo.scenario import WITHIN, Scenario
from penstock.cli.demo.view import FATES, TITLES, last, mib, recall


@dataclass(frozen=True)
class ExactAnswer:
    """The exact answer, and what reconciling recovered."""

    online: int
    recovered: int
    exact: int
    same: bool  # online and recovered together are the exact answer, row for row
    seconds: float
    recovery_seconds: float


def intro(scenario: Scenario) -> str:
    """Return what is going to happen, in a few lines."""
    burst = f"{len(scenario.bursts)} minutes" if len(scenario.bursts) > 1 else "one minute"
    limit, heaps = mib(scenario.limit), (mib(scenario.spark_heap), mib(scenario.penstock_heap))
    return "\n".join(
        (
            f"[bold]Two streams are joined: views and buys of the same product, at most {WITHIN} apart.[/]",
            f"Each has {scenario.rows:,} rows a minute, in a burst of {burst} {scenario.factor} times that.",
            "Two Spark jobs read the same files as fast as they can. Each has one core, and "
            f"{limit} for all its processes.",
            f"[bold]{TITLES['spark']}[/] keeps every row for {WITHIN}. Its JVM has a heap of {heaps[0]}.",
            f"[bold]{TITLES['penstock']}[/] keeps the most useful rows, in {scenario.budget}. Its JVM's heap "
            f"has {heaps[1]}; the rest is for Python.",
            "",
        )
    )


def result_table(scenario: Scenario, sides: list[Side], answer: ExactAnswer) -> Any:
    """Return the table at the end."""
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for heading in ("", *(TITLES[side.name] for side in sides)):
        table.add_column(heading, justify="left" if not heading else "right")
    heaps = {"spark": scenario.spark_heap, "penstock": scenario.penstock_heap}
    rows: tuple[tuple[str, Any], ...] = (
        ("how it ended", ending),
        ("input rows read", lambda side: f"{side.rows:,} of {scenario.total:,}"),
        ("memory limit, all processes", lambda side: mib(side.limit)),
        ("of it for the heap of the JVM", lambda side: mib(heaps[side.name])),
        ("most memory used", lambda side: mib(side.peak)),
        ("of it for rows, as the join reports it", lambda side: mib(most_state(side))),
        ("seconds a minute, before the burst", lambda side: seconds_of(side, scenario, burst=False)),
        ("seconds a minute, in the burst", lambda side: seconds_of(side, scenario, burst=True)),
        (
            "late rows",
            lambda side: f"{side.late:,} {'dropped' if side.name == 'spark' else 'joined in part'}",
        ),
        ("results so far", lambda side: f"{side.results:,}"),
        ("share of the exact answer", lambda side: f"{side.results / max(1, answer.exact):.1%}"),
        ("as estimated while it ran", lambda side: recall(side) if side.name == "penstock" else "–"),
        ("recovered afterwards", lambda side: f"{answer.recovered:,}" if side.name == "penstock" else "–"),
        ("in the end", lambda side: in_the_end(side, answer)),
    )
    for label, cell in rows:
        table.add_row(label, *(cell(side) for side in sides))
    return table


def most_state(side: Side) -> int:
    """Return the most bytes that the join had for its rows after a minute of the stream."""
    return max((batch["state"] for batch in side.batches), default=0)


def ending(side: Side) -> str:
    """Return how a side ended, and when."""
    colour = "green" if side.fate == "done" else "bold red"
    return f"[{colour}]{FATES[side.fate or 'stopped'].lower()}[/] after {side.fate_at:.0f} s"


def seconds_of(side: Side, scenario: Scenario, burst: bool) -> str:
    """Return the median seconds of a minute of the stream; the first one, which starts Spark, is left out."""
    numbers = scenario.bursts if burst else range(1, min(scenario.bursts))
    found = [batch["seconds"] for batch in side.batches if batch["batch"] in numbers]
    return f"{statistics.median(found):.1f}" if found else "none finished"


def in_the_end(side: Side, answer: ExactAnswer) -> str:
    """Return whether a side has the exact answer after all."""
    if side.name == "penstock":
        return "[green]all results[/]" if answer.same else "[red]not the exact answer[/]"
    return f"{side.results / max(1, answer.exact):.1%} of the results"


def conclusion(scenario: Scenario, sides: list[Side], answer: ExactAnswer) -> str:
    """Return what happened and what was not achieved, in sentences."""
    spark, penstock = sides
    lines = []
    if spark.fate == "died":
        lines.append(f"Spark's own join died after {spark.fate_at:.0f} s ({spark.reason}).")
    elif spark.fate == "stopped":
        lines.append(
            f"Spark's own join had read {spark.rows:,} rows after {spark.fate_at:.0f} s and was stopped."
        )
    else:
        lines.append(
            "Spark's own join had enough memory for these streams: it finished with all its results."
        )
    if answer.same:
        lines.append(
            f"Penstock: {answer.online:,} results online and {answer.recovered:,} recovered in "
            f"{answer.recovery_seconds:.0f} s are the exact join, {answer.exact:,} rows. Spark's join with "
            "enough memory has the same rows (number and checksum)."
        )
    else:
        lines.append(
            f"[red]Penstock: {answer.online:,} results online and {answer.recovered:,} recovered are not the "
            f"{answer.exact:,} rows of the exact join.[/]"
        )
    lines.append(f"[bold]Not achieved:[/] {' '.join(shortcomings(scenario, spark, penstock, answer))}")
    return "\n".join(lines)


def shortcomings(scenario: Scenario, spark: Side, penstock: Side, answer: ExactAnswer) -> list[str]:
    """Return what the bounded join does not do as well."""
    found = []
    if answer.recovered:
        share = answer.recovered / max(1, answer.exact)
        found.append(f"{share:.0%} of the results came only after the stream, by the batch job.")
    if penstock.fate != "done":
        found.append(f"Penstock did not finish ({penstock.reason}).")
    before = range(1, min(scenario.bursts))
    quiet = [
        statistics.median([batch["seconds"] for batch in side.batches if batch["batch"] in before] or [0.0])
        for side in (spark, penstock)
    ]
    if 0 < quiet[0] < quiet[1]:
        found.append(
            f"Before the burst a minute took Spark's own join {quiet[0]:.1f} s, Penstock {quiet[1]:.1f} s."
        )
    estimate = last(penstock, "recall")
    actual = answer.online / max(1, answer.exact)
    if estimate is not None and penstock.batches and abs(estimate - actual) > 0.03:
        found.append(f"The estimate of recall was off by {100 * abs(estimate - actual):.0f} points.")
    found.append("With enough memory for the burst, Spark's own join loses nothing.")
    return found


def figures_of(scenario: Scenario, sides: list[Side], answer: ExactAnswer) -> dict[str, Any]:
    """Return everything that was measured as plain data."""
    return {
        "scenario": asdict(scenario),
        **{side.name: side.to_json() for side in sides},
        "answer": asdict(answer),
        "recall": answer.online / max(1, answer.exact),
        "estimated_recall": last(sides[1], "recall") if sides[1].batches else None,
        "estimated_recall_at_most": last(sides[1], "at_most") if sides[1].batches else False,
    }
