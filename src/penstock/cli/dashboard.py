"""`penstock dashboard`: serve a live page of a pipeline, from the file its monitor records."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from penstock.cli.output import errors_in_one_line


@errors_in_one_line
def dashboard(
    file: Annotated[
        Path, typer.Argument(help="The JSON lines file of PipelineMonitor(record=...).", show_default=False)
    ],
    port: Annotated[
        int, typer.Option(help="Port to listen on; 0 picks a free one.", min=0, max=65535)
    ] = 8501,
    address: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
) -> None:
    """Show memory, recall, rates, shares and state of a running pipeline in the browser; stop with Ctrl-C."""
    import threading

    from penstock.dashboard import Board, Dashboard, follow
    from penstock.errors import PenstockError

    if file.is_dir() or not file.parent.is_dir():
        raise PenstockError(f"'{file}' is not a file. Give a file; it need not exist yet.")
    board = Board(file.stem)
    over = threading.Event()
    with Dashboard(board, port, address) as served:
        typer.echo(f"showing {file} on {served.url}")
        try:
            for figures in follow(file, over.is_set):
                board.post(figures)
        except KeyboardInterrupt:
            typer.echo("closed")
