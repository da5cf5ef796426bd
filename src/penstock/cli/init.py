"""`penstock init`: write a Spark job that joins two streams, from the answers to three questions."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from penstock.cli.output import errors_in_one_line, parts_of
from penstock.cli.plan import budget_of_text, pair_of_names, window_of_text
from penstock.cli.session import FORMATS, format_of
from penstock.errors import ColumnError, PenstockError, WindowError, hint

if TYPE_CHECKING:
    import pandas as pd

Answer = TypeVar("Answer")
LIKE_TIMES = ("ts", "time", "timestamp", "at", "event_time", "date")
WINDOW = "10 minutes"
SAMPLE = 1_000  # rows of a file that are looked at


@errors_in_one_line
def init(
    job: Annotated[Path, typer.Argument(help="The Python file to write.")] = Path("job.py"),
    left: Annotated[
        Path | None,
        typer.Option(help="The left stream: a file, or a folder with a file per batch.", show_default=False),
    ] = None,
    right: Annotated[Path | None, typer.Option(help="The right stream.", show_default=False)] = None,
    on: Annotated[
        list[str] | None,
        typer.Option(help="Key columns: a,b; or a=b if the names differ.", show_default=False),
    ] = None,
    time: Annotated[
        str | None, typer.Option(help="Time column; or a=b if the names differ.", show_default=False)
    ] = None,
    within: Annotated[
        str | None,
        typer.Option(
            help="The window: '10 minutes', or '0 s..10 minutes' (right before..after left).",
            show_default=False,
        ),
    ] = None,
    budget: Annotated[str, typer.Option(help="Memory of the join: '64 MiB' or '2000 tuples'.")] = "64 MiB",
    policy: Annotated[str, typer.Option(help="Eviction policy.")] = "auto",
    force: Annotated[bool, typer.Option("--force", help="Replace the file if it exists.")] = False,
) -> None:
    """Write a Spark job that joins two streams; what the options do not say is asked, in three questions."""
    from penstock import policies
    from penstock.budget import Fraction

    if job.suffix != ".py" or not job.parent.is_dir():
        raise PenstockError(f"Cannot write to '{job}'; give a Python file in a folder that exists.")
    if job.exists() and not force:
        raise PenstockError(f"'{job}' exists; give another name, or --force to replace it.")
    if isinstance(budget_of_text(budget), Fraction):
        raise PenstockError(
            f"{budget!r} is a share, and a stream has no end to take a share of; give '64 MiB'."
        )
    policies.get(policy)
    asked = _missing({"--left": left, "--right": right, "--on": on, "--time": time, "--within": within})
    if asked and not is_interactive():
        raise PenstockError(f"There is no terminal to ask questions in; give {', '.join(asked)} as well.")

    if left is None or right is None:
        question = "1. Which two streams? Two files or folders with CSV, JSON or Parquet files"
        left, right = _ask(question, "", _two_paths)
    sides = (InputFiles.opened(left, "left"), InputFiles.opened(right, "right"))
    if on is None or time is None:
        guess = _guess(sides)
        question = "2. Which columns are key and time? a=b if left and right differ"
        keys, times = _ask(question, guess, lambda text: _columns(text, sides))
    else:
        keys, times = [pair_of_names(part) for part in parts_of(on)], pair_of_names(time)
        _check_columns(keys, times, sides)
    unit = _unit(sides, times)
    if within is None:
        window = _ask(
            "3. How far apart may the times of two rows be?", WINDOW, lambda text: _window(text, unit)
        )
    else:
        window = _window(within, unit)
    arguments = {"on": keys, "time": times, "within": window} | ({"unit": unit} if unit else {})
    job.write_text(job_of(job.name, sides, arguments, budget, policy), encoding="utf-8")
    _tell(job)


def is_interactive() -> bool:
    """Whether there is somebody to ask.

    >>> from penstock.cli.init import is_interactive
    >>> is_interactive() in (True, False)
    True
    """
    return sys.stdin is not None and sys.stdin.isatty()


def _missing(options: dict[str, Any]) -> list[str]:
    return [name for name, value in options.items() if value is None]


def _ask(question: str, default: str, read: Callable[[str], Answer]) -> Answer:
    """Ask until the answer can be used."""
    while True:
        try:
            return read(typer.prompt(question, default=default or None, type=str))
        except PenstockError as error:
            typer.echo(f"   {error}", err=True)


def _two_paths(text: str) -> tuple[Path, Path]:
    try:
        words = [Path(word) for word in shlex.split(text.replace(",", " "))]
    except ValueError as error:
        raise PenstockError(f"{text!r} cannot be read: {error}.") from error
    if len(words) != 2:
        raise PenstockError(f"Two are needed, separated by a blank; {len(words)} given.")
    for word in words:
        format_of(word)
    return words[0], words[1]


@dataclass(frozen=True)
class InputFiles:
    """A stream of files, and its first rows."""

    path: Path
    side: str
    kind: str
    sample: pd.DataFrame

    @classmethod
    def opened(cls, path: Path, side: str) -> InputFiles:
        """Return the stream of a file or folder.

        >>> import tempfile
        >>> from pathlib import Path
        >>> from penstock.cli.init import InputFiles
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     _ = Path(folder, "a.csv").write_text("key,ts\\n1,10\\n")
        ...     InputFiles.opened(Path(folder), "left").columns
        ['key', 'ts']
        """
        kind = format_of(path)
        first = path
        if path.is_dir():
            first = sorted(each for each in path.rglob("*") if FORMATS.get(each.suffix.lower()) == kind)[0]
        return cls(path, side, kind, _first_rows(first, kind))

    @property
    def columns(self) -> list[str]:
        """The names of its columns."""
        return [str(name) for name in self.sample.columns]


def _first_rows(path: Path, kind: str) -> pd.DataFrame:
    import pandas as pd
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        if kind == "csv":
            return pd.read_csv(path, nrows=SAMPLE)
        if kind == "json":
            return pd.read_json(path, lines=True, nrows=SAMPLE)
        with pq.ParquetFile(path) as file:
            found = next(file.iter_batches(SAMPLE), None)
            return (file.schema_arrow.empty_table() if found is None else found).to_pandas()
    except (ValueError, OSError, pa.ArrowException) as error:
        raise PenstockError(f"'{path}' cannot be read: {error}") from error


Inputs = tuple[InputFiles, InputFiles]


def _guess(sides: Inputs) -> str:
    """Return a likely answer to the question for columns, or none."""
    both = [name for name in sides[0].columns if name in sides[1].columns]
    times = [name for name in both if name.lower() in LIKE_TIMES or _is_stamped(sides[0].sample[name])]
    keys = [name for name in both if name not in times]
    return f"{keys[0]}, {times[0]}" if keys and times else ""


def _columns(text: str, sides: Inputs) -> tuple[list[tuple[str, str]], tuple[str, str]]:
    """Parse keys and, last, the time."""
    names = [pair_of_names(part) for part in parts_of([text])]
    if len(names) < 2:
        raise PenstockError(f"A key and a time are needed, such as 'ad, ts'; {text!r} was given.")
    _check_columns(names[:-1], names[-1], sides)
    return names[:-1], names[-1]


def _check_columns(keys: list[tuple[str, str]], times: tuple[str, str], sides: Inputs) -> None:
    for i, side in enumerate(sides):
        for name in (*(key[i] for key in keys), times[i]):
            if name not in side.columns:
                raise ColumnError(f"The {side.side} stream has no column {name!r}{hint(name, side.columns)}")


def _is_stamped(column: pd.Series) -> bool:
    """Whether Spark will read a column as timestamps: it has the type, or it is text in ISO format."""
    import pandas as pd

    if pd.api.types.is_datetime64_any_dtype(column):
        return True
    if pd.api.types.infer_dtype(column, skipna=True) != "string":
        return False
    return bool(pd.to_datetime(column.dropna(), format="ISO8601", utc=True, errors="coerce").notna().all())


def _unit(sides: Inputs, times: tuple[str, str]) -> str | None:
    """Return the unit of numeric times, as far as can be told; None for timestamps."""
    import pandas as pd

    from penstock.units import epoch_unit

    columns = [side.sample[name] for side, name in zip(sides, times, strict=True)]
    stamped = [_is_stamped(column) for column in columns]
    if all(stamped):
        return None
    for side, name, column in zip(sides, times, columns, strict=True):
        if not pd.api.types.is_numeric_dtype(column) and not _is_stamped(column):
            first = [str(value) for value in column.dropna().iloc[:1]]
            raise ColumnError(
                f"The time column {name!r} of the {side.side} stream has "
                f"{first[0] if first else 'no value'!r}; "
                "allowed are numbers, timestamps and texts such as 2024-05-01T12:00:00."
            )
    if any(stamped):
        raise ColumnError("One time column has timestamps and the other numbers; convert one of them.")
    return epoch_unit(min(c.min() for c in columns), max(c.max() for c in columns)) or "ms"


def _window(text: str, unit: str | None) -> Any:
    """Parse and check a window; a bare number needs numeric times."""
    from penstock.window import Within, window_of

    window = window_of_text(text)
    resolved = window_of(window)
    if not isinstance(resolved, Within):
        raise WindowError(f"{text!r} is not a window of time; write '10 minutes' or '0 s..10 minutes'.")
    numbers = [span for span in (resolved.before, resolved.after) if not isinstance(span, str) and span]
    if unit is None and numbers:
        raise WindowError(
            f"The times are timestamps, so {text!r} needs a unit, such as '{numbers[0]:g} minutes'."
        )
    return window


def job_of(name: str, sides: Inputs, arguments: dict[str, Any], budget: str, policy: str) -> str:
    """Return the text of a job."""
    keys = arguments["on"]
    plain = {
        "on": [left if left == right else (left, right) for left, right in keys],
        "time": arguments["time"][0] if len(set(arguments["time"])) == 1 else arguments["time"],
    }
    if len(plain["on"]) == 1 and isinstance(plain["on"][0], str):
        plain["on"] = plain["on"][0]
    found = {
        "NAME": name,
        "LEFT": repr(str(sides[0].path)),
        "RIGHT": repr(str(sides[1].path)),
        "FORMATS": repr((sides[0].kind, sides[1].kind)),
        "JOIN": repr(arguments | plain),
        "BUDGET": repr(f"{budget} tuples" if budget.isdigit() else budget),
        "POLICY": repr(policy),
        "OUT": repr(f"{Path(name).stem}-out"),
    }
    text = files(__package__).joinpath("job_template.txt").read_text(encoding="utf-8")
    for each, value in found.items():
        text = text.replace("{{" + each + "}}", value)
    return text


def _tell(job: Path) -> None:
    from penstock.cli.doctor import java

    typer.echo(f"Written: {job}. Run it with: python {job}")
    if any(finding.state == "bad" for finding in java()):
        typer.echo(
            "note: Spark finds no Java that it can run; `penstock doctor` says how to get one.", err=True
        )
