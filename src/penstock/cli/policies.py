"""`penstock policies`: the registry as a table."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from penstock.cli.output import console, errors_in_one_line, writable


@errors_in_one_line
def policies(
    json: Annotated[Path | None, typer.Option(help="Write the list as JSON; - is stdout.")] = None,
) -> None:
    """The policies: who goes when memory is full, their options, cost and papers."""
    import json as encoder

    to_stdout = str(json) == "-"
    writable(None if to_stdout else json)
    found = entries()
    if json is not None:
        text = encoder.dumps(found, indent=2) + "\n"
        if to_stdout:
            typer.echo(text, nl=False)
            return
        json.write_text(text, encoding="utf-8")
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
