"""What a lookup asks: anything that finds the rows of some keys."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from penstock.errors import ColumnError

Key = tuple[Any, ...]


@dataclass
class Fetched:
    """The rows of some keys, without the key columns; per key its row, -1 if it has none."""

    rows: pa.Table
    place: np.ndarray
    seconds: np.ndarray  # what the fetch of each key took; a query's time is shared by its keys
    queries: int = 0
    malformed: tuple[int, ...] = ()  # the numbers of keys that the table cannot read; they have no row
    failed: tuple[tuple[int, str], ...] = ()  # those for which the query fails otherwise, with the reason


class KeyRefusedError(ColumnError):
    """A key that cannot be asked for, known by its number among those that were: its value is not told."""

    def __init__(self, at: int, text: str) -> None:
        super().__init__(text.format(row=f"request {at}"))
        self.at, self.text = at, text


class Source(Protocol):
    """Where rows come from. A source can be pickled, and opens what it needs when it is first asked."""

    key: tuple[str, ...]

    @property
    def whole(self) -> bool:
        """Whether a float that is a whole number may be asked for as that number: it finds the same row."""

    @property
    def schema(self) -> pa.Schema | None:
        """The columns of its rows without the key; None if only the rows can tell."""

    def fetch(self, keys: list[Key], failed: Any) -> Fetched:
        """The rows of these keys, each once; `failed` is called with every failure that is tried again."""

    def close(self) -> None:
        """Give back connections."""


def to_rows(rows: list[dict[str, Any]], schema: pa.Schema | None, known: Sequence[str] = ()) -> pa.Table:
    """Rows as a table of these columns, or of those they have; `known` ones are there without rows, too.

    >>> from penstock.lookup.source import to_rows
    >>> to_rows([{"a": 1}, {"a": None, "b": "x"}], None).column_names
    ['a', 'b']
    """
    found = dict.fromkeys([*known, *(name for row in rows for name in row)])
    names = schema.names if schema is not None else list(found)
    columns = []
    for name in names:
        values = [row.get(name) for row in rows]
        try:
            columns.append(pa.array(values, None if schema is None else schema.field(name).type))
        except (pa.ArrowException, TypeError, ValueError, OverflowError):
            kind = "one type" if schema is None else str(schema.field(name).type)
            kinds = sorted({type(value).__name__ for value in values if value is not None})
            fault = ColumnError(
                f"The column {name!r} of the table has values that do not fit {kind}; they are of type "
                f"{', '.join(kinds)}. Give the types with schema=."
            )
        else:
            continue
        raise fault  # not within `except`: Arrow's errors tell values
    return pa.table(columns, names=names) if schema is None else pa.table(columns, schema=schema)
