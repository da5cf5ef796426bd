"""Convert streams to Arrow tables without pandas, which would turn whole numbers with nulls into floats."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from penstock.columns import Table, row_count
from penstock.errors import ColumnError
from penstock.payload import to_arrow

_CANNOT = (pa.ArrowException, TypeError, ValueError, OverflowError)


def to_events(table: Table) -> pa.Table:
    """Convert a stream to an Arrow table. Errors name the types of values, never the values.

    >>> from penstock.lookup.events import to_events
    >>> to_events({"id": [9007199254740993, None]})["id"].to_pylist()
    [9007199254740993, None]
    """
    if isinstance(table, Mapping):
        row_count(table)
        return pa.table({str(name): _column(str(name), values) for name, values in table.items()})
    try:
        return to_arrow(table)
    except _CANNOT as error:
        if not hasattr(table, "columns"):
            raise
        cause = type(error.__cause__ or error).__name__
    raise ColumnError(
        f"The stream cannot be converted to an Arrow table ({cause}): a column mixes values of "
        f"incompatible types ({_mixed(table)})."
    )


def _column(name: str, values: Any) -> pa.Array | pa.ChunkedArray:
    if isinstance(values, pa.Array | pa.ChunkedArray):
        return values
    try:
        return pa.array(values, from_pandas=True)
    except _CANNOT:
        kinds = _kinds(values)
    raise ColumnError(
        f"The column {name!r} of the stream cannot be converted to Arrow: its values are of type {kinds}, "
        "which are incompatible or too large. Convert them to one type."
    )


def _kinds(values: Any) -> str:
    return ", ".join(sorted({type(value).__name__ for value in values}))


def _mixed(frame: Any) -> str:
    """Return the object columns of a DataFrame, with the types of their values."""
    found = [f"{name!r}: {_kinds(frame[name])}" for name in frame.columns if frame[name].dtype == object]
    return "; ".join(found) or "none has objects"
