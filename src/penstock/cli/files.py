"""Read streams from CSV and Parquet files, and parse timestamps given as text."""

from __future__ import annotations

import difflib
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.errors import ColumnError, PenstockError, hint

if TYPE_CHECKING:
    import pandas as pd

CSV = (".csv", ".csv.gz")
PARQUET = (".parquet", ".pq")


def read_table(path: Path) -> pd.DataFrame:
    """Read a file as a data frame, by its extension.

    >>> import tempfile
    >>> from pathlib import Path
    >>> from penstock.cli.files import read_table
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(folder, "a.csv").write_text("key,ts\\n1,10\\n")
    ...     read_table(Path(folder, "a.csv")).to_dict("list")
    {'key': [1], 'ts': [10]}
    """
    name = path.name.lower()
    if not name.endswith(CSV + PARQUET):
        raise PenstockError(f"'{path}' has an unsupported extension; allowed are {', '.join(CSV + PARQUET)}.")
    if path.is_dir():
        raise PenstockError(f"'{path}' is a folder; give one of the files in it.")
    if not path.is_file():
        others = [p.name for p in path.parent.glob("*") if p.name.lower().endswith(CSV + PARQUET)]
        close = difflib.get_close_matches(path.name, others, n=1)
        raise PenstockError(
            f"There is no file '{path}'" + (f"; did you mean '{close[0]}'?" if close else ".")
        )
    import pandas as pd
    import pyarrow as pa

    try:
        if name.endswith(CSV):
            return pd.read_csv(path, low_memory=False)
        return pd.read_parquet(path)
    except (ValueError, OSError, EOFError, zlib.error, pa.ArrowException) as error:
        raise PenstockError(f"'{path}' cannot be read: {error}") from error


def read_text(path: Path, what: str) -> str:
    """Read a text file, such as a query.

    >>> import tempfile
    >>> from pathlib import Path
    >>> from penstock.cli.files import read_text
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(folder, "a.neel").write_text("PATTERN A")
    ...     read_text(Path(folder, "a.neel"), "a pattern")
    'PATTERN A'
    """
    if not path.is_file():
        raise PenstockError(f"There is no file '{path}' with {what}.")
    try:
        return path.read_text(encoding="utf-8")
    except ValueError as error:
        raise PenstockError(f"'{path}' is not a text file with {what}: {error}.") from error


def parse_times(
    tables: Sequence[pd.DataFrame], names: Sequence[str], sides: Sequence[str] = ("left", "right")
) -> bool:
    """Parse text columns of times into timestamps (UTC if no zone is given); return whether any was text.

    >>> import pandas as pd
    >>> from penstock.cli.files import parse_times
    >>> table = pd.DataFrame({"ts": ["2024-05-01T12:00:00", "2024-05-01T12:00:01.5"]})
    >>> parse_times([table, table.copy()], ["ts", "ts"]), str(table["ts"].dtype)
    (True, 'datetime64[ns, UTC]')
    """
    import pandas as pd

    texts, wrong = [], []
    for table, name, side in zip(tables, names, sides, strict=True):
        if name not in table.columns:
            raise ColumnError(f"The {side} stream has no column {name!r}{hint(name, table.columns)}")
        if not pd.api.types.is_string_dtype(table[name]) or len(table) == 0:
            continue
        stamps: Any = pd.to_datetime(table[name], format="ISO8601", utc=True, errors="coerce")
        texts.append((table, name, stamps))
        bad = stamps.isna() & table[name].notna()
        if bad.any():
            row = int(bad.to_numpy().argmax())
            wrong.append(f"{name!r} of the {side} stream has {table[name].iloc[row]!r} in row {row}")
    if wrong:
        which = "The time column " if len(wrong) == 1 else "The time columns "
        what = "" if len(wrong) == 1 else "cast both: "
        raise ColumnError(
            f"{which}{' and '.join(wrong)}; {what}allowed are numbers and ISO timestamps such as "
            "2024-05-01T12:00:00."
        )
    for table, name, stamps in texts:
        table[name] = stamps
    return bool(texts)
