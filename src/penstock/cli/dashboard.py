"""`penstock dashboard`: serve a live page of pipelines, from the files that their monitors record."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from penstock.cli.output import errors_in_one_line


@errors_in_one_line
def dashboard(
    files: Annotated[
        list[Path],
        typer.Argument(
            help="JSON lines files of PipelineMonitor(record=...), one per query.", show_default=False
        ),
    ],
    port: Annotated[
        int, typer.Option(help="Port to listen on; 0 picks a free one.", min=0, max=65535)
    ] = 8501,
    address: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
) -> None:
    """Show memory, recall, rates and late rows of running pipelines in the browser; stop with Ctrl-C."""
    import threading

    from penstock.dashboard import Board, Dashboard, follow
    from penstock.errors import PenstockError

    for file in files:
        if file.is_dir() or not file.parent.is_dir():
            raise PenstockError(f"'{file}' is not a file. Give a file; it need not exist yet.")
    over = threading.Event()
    boards = [Board(file.stem) for file in files]

    def watch(file: Path, board: Board) -> None:
        for figures in follow(file, over.is_set):
            board.post(figures)

    with Dashboard(boards, port, address) as served:
        typer.echo(f"showing {', '.join(map(str, files))} on {served.url}")
        for file, board in zip(files, boards, strict=True):
            threading.Thread(target=watch, args=(file, board), daemon=True).start()
        try:
            over.wait()
        except KeyboardInterrupt:
            over.set()
            typer.echo("closed")
