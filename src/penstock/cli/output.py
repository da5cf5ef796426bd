"""Output of commands: tables, JSON, progress bars on stderr, and one-line errors."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ParamSpec

import typer

from penstock.cli.signs import Report, hush, speaking

if TYPE_CHECKING:
    import pandas as pd
    from rich.console import Console
    from rich.table import Table

P = ParamSpec("P")
Json = Annotated[
    Path | None,
    typer.Option("--json", help="Write the output as JSON to this file; - is stdout.", show_default=False),
]
SHOWN = 20  # rows of a table on the screen


def console(*, stderr: bool = False) -> Console:
    """Return a console on stdout or stderr that does not highlight numbers and quotes.

    >>> from penstock.cli.output import console
    >>> console(stderr=True).stderr
    True
    """
    from rich.console import Console

    return Console(stderr=stderr, highlight=False)


class JsonOut:
    """The target of a command's JSON: none, a file, or stdout (then nothing else is printed there).

    >>> from penstock.cli.output import JsonOut
    >>> out = JsonOut(Path("-"))
    >>> out.write([{"policy": "lru"}])
    [
      {
        "policy": "lru"
      }
    ]
    >>> out.screen.stderr
    True
    """

    def __init__(self, path: Path | None) -> None:
        self.alone = str(path) == "-"
        self.file = writable(None if self.alone else path)

    @property
    def screen(self) -> Console:
        """The console for human-readable output."""
        return console(stderr=self.alone)

    def write(self, data: Any) -> None:
        """Write plain data, or a text that is already JSON."""
        import json

        if not self.alone and self.file is None:
            return
        text = data if isinstance(data, str) else json.dumps(data, indent=2, default=str)
        text = text.rstrip("\n") + "\n"
        if self.file is not None:
            self.file.write_text(text, encoding="utf-8")
        else:
            typer.echo(text, nl=False)


def errors_in_one_line(command: Callable[P, None]) -> Callable[P, None]:
    """Decorate a command to print `error: ...` on stderr and exit with 2 for bad input, 1 for other errors.

    It is one line, unless it shows a line of a pattern or query with a caret under it.

    >>> from penstock.cli.output import errors_in_one_line
    >>> @errors_in_one_line
    ... def fine() -> None:
    ...     print("fine")
    >>> fine()
    fine
    """
    from penstock.errors import MissingExtraError, PenstockError, SparkSetupError

    @functools.wraps(command)
    def guarded(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            command(*args, **kwargs)
        except PenstockError as error:
            message, code = str(error), 1 if isinstance(error, SparkSetupError | MissingExtraError) else 2
        except (BrokenPipeError, typer.Exit):
            raise  # the reader closed the pipe, or the command has already reported its error
        except (OSError, ValueError, MemoryError, RuntimeError) as error:
            message, code = f"{type(error).__name__}: {error}", 1
        else:
            return
        typer.echo("error: " + in_lines(message), err=True)
        raise typer.Exit(code)

    return guarded


def in_lines(message: str) -> str:
    r"""Return a message in one line; a line of text with a caret under it stays as it is.

    >>> from penstock.cli.output import in_lines
    >>> print(in_lines("Two\nlines."))
    Two lines.
    >>> print(in_lines("line 1, column 5: found B\n  SEQ(B\n      ^\nWrite a comma,\nthen B."))
    line 1, column 5: found B
      SEQ(B
          ^
    Write a comma, then B.
    """
    lines, found = message.split("\n"), [""]
    for number, line in enumerate(lines):
        under = lines[number + 1] if number + 1 < len(lines) else ""
        if line.strip() == "^" or under.strip() == "^":
            found += [line.rstrip(), ""] if line.strip() == "^" else [line.rstrip()]
        else:
            found[-1] = f"{found[-1]} {line.strip()}".strip()
    return "\n".join(line for line in found if line)


@contextmanager
def warnings_in_one_line(*kinds: type[Warning]) -> Iterator[None]:
    """Print warnings of these kinds as `warning: ...` on stderr, without the source line.

    >>> from penstock.cli.output import warnings_in_one_line
    >>> with warnings_in_one_line(UserWarning):
    ...     warnings.warn("Check the unit.", UserWarning)
    """
    with warnings.catch_warnings():
        for kind in kinds:
            warnings.simplefilter("always", kind)
        warnings.showwarning = lambda message, *_args, **_options: typer.echo(f"warning: {message}", err=True)
        yield


@contextmanager
def progress_bar() -> Iterator[Report]:
    """Show a progress bar on stderr, removed at the end; without a terminal, log a line now and then.

    >>> from penstock.cli.output import progress_bar
    >>> with progress_bar() as report:
    ...     report(1, 2, "half way")
    """
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    target = console(stderr=True)
    if not target.is_terminal:
        with speaking("reading") as report:
            yield report
        return
    hush()
    columns = (BarColumn(24), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=target, transient=True) as bar:
        task = bar.add_task("reading", total=None)

        def report(done: int, total: int, label: str) -> None:
            bar.update(task, completed=done, total=total, description=label)

        yield report


@contextmanager
def working(what: str) -> Iterator[None]:
    """Show activity on stderr for work that cannot report progress.

    >>> from penstock.cli.output import working
    >>> with working("matching"):
    ...     pass
    """
    target = console(stderr=True)
    if target.is_terminal:
        hush()
        with target.status(what):
            yield
    else:
        with speaking(what):
            yield


def recall_table(
    recall: pd.DataFrame, bounds: Collection[str] = (), foot: Mapping[str, Sequence[str]] | None = None
) -> Table:
    """Return a table of recall in percent, policies down and budgets across, the best of each column marked.

    `bounds` are upper bounds, which are not marked. `foot` has further rows of text.

    >>> import pandas as pd
    >>> from penstock.cli.output import recall_table
    >>> recall_table(pd.DataFrame({"10 %": {"lru": 0.5}})).row_count
    1
    """
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("policy", style="cyan", no_wrap=True)
    for budget in recall.columns:
        table.add_column(str(budget), justify="right")
    best = recall.drop(index=list(bounds)).round(3).max()
    for policy, row in recall.iterrows():
        cells = []
        for budget, share in zip(recall.columns, row, strict=True):
            if share != share:  # NaN
                cells.append("–")
            elif policy not in bounds and round(share, 3) == best[budget]:
                cells.append(f"[bold green]*{100 * share:.1f}[/]")
            else:
                cells.append(f"{100 * share:.1f}")
        table.add_row(str(policy), *cells)
    if foot:
        table.add_section()
    for name, texts in (foot or {}).items():
        table.add_row(name, *texts, style="dim")
    return table


def rows_table(rows: list[dict[str, Any]], columns: Collection[str], justify: Any = "left") -> Table:
    """Return a table of the first rows of a result.

    >>> from penstock.cli.output import rows_table
    >>> rows_table([{"a": 1}, {"a": None}], ["a"]).row_count
    2
    """
    from rich import box
    from rich.markup import escape
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in columns:
        table.add_column(escape(name), justify=justify)
    for row in rows[:SHOWN]:
        table.add_row(*("" if row[name] is None else escape(str(row[name])) for name in columns))
    return table


def save_rows(table: Any, path: Path) -> None:
    """Write an Arrow table as Parquet, or as CSV if the name ends in .csv.

    >>> import tempfile
    >>> import pyarrow as pa
    >>> from penstock.cli.output import save_rows
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_rows(pa.table({"a": [1]}), Path(folder, "a.csv"))
    ...     Path(folder, "a.csv").read_text()
    'a\\n1\\n'
    """
    if path.suffix.lower() == ".csv":
        table.to_pandas().to_csv(path, index=False)
    else:
        import pyarrow.parquet as pq

        pq.write_table(table, path)


def writable(path: Path | None) -> Path | None:
    """Return the path if its folder exists, else raise an error before any work is done.

    >>> from pathlib import Path
    >>> from penstock.cli.output import writable
    >>> writable(Path("plan.png")).name
    'plan.png'
    """
    from penstock.errors import PenstockError

    if path is not None and (not path.parent.is_dir() or path.is_dir()):
        raise PenstockError(f"Cannot write to '{path}'; give a file in a folder that exists.")
    return path


def picture(path: Path | None, default: str | None = None, *, wanted: bool = True) -> Path | None:
    """The file a command draws to: the one asked for, else its default where matplotlib is installed.

    A picture that was asked for and cannot be drawn is an error before any work is done.

    >>> from pathlib import Path
    >>> from penstock.cli.output import picture
    >>> picture(None, "plan.png").name, picture(None, "plan.png", wanted=False)
    ('plan.png', None)
    """
    from penstock.extras import is_installed, require

    if not wanted or (path is None and default is None):
        return None
    if path is None and not is_installed("matplotlib"):
        typer.echo("note: no picture is drawn without matplotlib: pip install 'penstock[plots]'", err=True)
        return None
    require("matplotlib", "--plot")
    return writable(path or Path(str(default)))


def parts_of(given: list[str] | None) -> list[str]:
    """Split an option that may be repeated and may list several values separated by commas.

    >>> from penstock.cli.output import parts_of
    >>> parts_of(["a, b", "c"])
    ['a', 'b', 'c']
    """
    return [part.strip() for text in given or [] for part in text.split(",") if part.strip()]
