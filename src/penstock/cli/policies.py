"""`penstock policies`: list the eviction policies."""

from __future__ import annotations

from typing import Any

from penstock.cli.output import Json, JsonOut, errors_in_one_line

WIDE = 110  # terminal width from which papers are shown


@errors_in_one_line
def policies(
    json: Json = None,
) -> None:
    """List the eviction policies, with their options, cost and papers."""
    sink = JsonOut(json)
    found = entries()
    sink.write(found)
    if sink.alone:
        return
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_lines=False, expand=False)
    table.add_column("policy", style="bold cyan", no_wrap=True)
    titles = [("evicts", 5), ("options", 3), ("cost", 4), ("paper", 4)]
    if sink.screen.width < WIDE:
        titles.pop()
    for title, ratio in titles:
        table.add_column(title, ratio=ratio, overflow="fold")
    for entry in found:
        options = "\n".join(f"{name}={value}" for name, value in entry["options"].items()) or "–"
        cells = (entry["summary"], options, entry["cost"], f"[dim]{entry['paper']}[/]")
        table.add_row(entry["policy"], *cells[: len(titles)])
        table.add_section()
    sink.screen.print(table)
    sink.screen.print("Give options after a colon: [bold]gdj:initial=0.8,method=3[/]")
    sink.screen.print("For when each policy wins and loses, use --json - or see the documentation.")


def entries() -> list[dict[str, Any]]:
    """Return the registry as plain data.

    >>> from penstock.cli.policies import entries
    >>> entries()[0]["policy"], entries()[0]["summary"]
    ('fifo', 'evicts the oldest tuple')
    """
    import dataclasses

    from penstock.policies import registered

    return [
        {
            "policy": kind.name,
            "summary": kind.summary,
            "wins": kind.wins,
            "loses": kind.loses,
            "options": {
                field.name: None if field.default is dataclasses.MISSING else field.default
                for field in dataclasses.fields(kind)
            },
            "cost": kind.cost,
            "paper": kind.paper,
            "selective": kind.selective,
            "unified": kind.unified,
        }
        for kind in registered()
    ]
