"""`penstock policies`: the registry as a table."""

from __future__ import annotations

from typing import Any

from penstock.cli.output import Json, JsonOut, console, errors_in_one_line


@errors_in_one_line
def policies(
    json: Json = None,
) -> None:
    """The policies: who goes when memory is full, their options, cost and papers."""
    sink = JsonOut(json)
    found = entries()
    sink.write(found)
    if sink.alone:
        return
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_lines=False, expand=False)
    table.add_column("policy", style="bold cyan", no_wrap=True)
    for title, ratio in (("what goes", 5), ("options", 3), ("cost", 4), ("paper", 4)):
        table.add_column(title, ratio=ratio, overflow="fold")
    for entry in found:
        options = "\n".join(f"{name}={value}" for name, value in entry["options"].items()) or "–"
        table.add_row(entry["policy"], entry["summary"], options, entry["cost"], f"[dim]{entry['paper']}[/]")
        table.add_section()
    console().print(table)
    console().print("Options go behind a colon: [bold]gdj:initial=0.8,method=3[/]")


def entries() -> list[dict[str, Any]]:
    """The registry as plain data.

    >>> from penstock.cli.policies import entries
    >>> entries()[0]["policy"], entries()[0]["summary"]
    ('fifo', 'the oldest tuple goes')
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
