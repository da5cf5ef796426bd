"""`penstock dashboard`: the live page of a pipeline, from the file that its monitor records to."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from penstock.cli.output import errors_in_one_line


@errors_in_one_line
def dashboard(
    file: Annotated[
        Path, typer.Argument(help="What PipelineMonitor(record=...) writes: JSON lines.", show_default=False)
    ],
    port: Annotated[int, typer.Option(help="0 is any free one.", min=0, max=65535)] = 8501,
    address: Annotated[str, typer.Option(help="The interface to listen on.")] = "127.0.0.1",
) -> None:
    """Show a running pipeline in the browser, until interrupted: memory, recall, rates, shares, state."""
    import threading

    from penstock.dashboard import Board, Dashboard, follow
    from penstock.errors import PenstockError

    if file.is_dir() or not file.parent.is_dir():
        raise PenstockError(f"'{file}' cannot be followed; give a file, which may come later.")
    board = Board(file.stem)
    over = threading.Event()
    with Dashboard(board, port, address) as served:
        typer.echo(f"showing {file} on {served.url}")
        try:
            for figures in follow(file, over.is_set):
                board.post(figures)
        except KeyboardInterrupt:
            typer.echo("closed")
