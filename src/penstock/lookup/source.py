"""The interface of lookup sources: anything that returns the rows of some keys."""

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
    """The rows of some keys, without the key columns; and per key its row number, -1 if it has none."""

    rows: pa.Table
    place: np.ndarray
    seconds: np.ndarray  # fetch time per key; the time of a query is divided among its keys
    queries: int = 0
    malformed: tuple[int, ...] = ()  # numbers of keys that the table cannot read; they have no row
    failed: tuple[tuple[int, str], ...] = ()  # numbers of keys whose query fails otherwise, with the reason


class KeyRefusedError(ColumnError):
    """A key that cannot be queried, identified by its number; the value is not disclosed."""

    def __init__(self, at: int, text: str) -> None:
        super().__init__(text.format(row=f"request {at}"))
        self.at, self.text = at, text


class Source(Protocol):
    """A source of rows. It can be pickled, and opens its resources at the first query."""

    key: tuple[str, ...]

    @property
    def whole(self) -> bool:
        """Whether a whole float may be requested as a whole number, because it finds the same row."""

    @property
    def schema(self) -> pa.Schema | None:
        """Return the columns of its rows without the key, or None if only rows can tell."""

    def fetch(self, keys: list[Key], failed: Any) -> Fetched:
        """Return the rows of these distinct keys; `failed` is called with every failure that is retried."""

    def close(self) -> None:
        """Close connections."""


def to_rows(rows: list[dict[str, Any]], schema: pa.Schema | None, known: Sequence[str] = ()) -> pa.Table:
    """Convert rows to a table of these columns, or of their own; `known` columns exist even without rows.

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
                f"The column {name!r} of the table has values that do not fit {kind}; their types are "
                f"{', '.join(kinds)}. Give the types with schema=."
            )
        else:
            continue
        raise fault  # outside `except`: Arrow's errors contain values
    return pa.table(columns, names=names) if schema is None else pa.table(columns, schema=schema)
