"""Tables in the shape that Spark expects of a function's output."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pyarrow as pa


def to_table(table: pa.Table, schema: pa.Schema, fill: dict[str, Any]) -> pa.Table:
    """A table with the columns of a schema; those that are missing are null, or as `fill` says.

    >>> import pyarrow as pa
    >>> from penstock.spark.frames import to_table
    >>> to_table(
    ...     pa.table({"a": [1, 2]}), pa.schema({"a": pa.int32(), "b": pa.string()}), {"b": "x"}
    ... ).to_pylist()
    [{'a': 1, 'b': 'x'}, {'a': 2, 'b': 'x'}]
    """
    count, columns = table.num_rows, []
    for field in schema:
        if field.name in table.column_names:
            column = table[field.name]
            columns.append(column if column.type == field.type else column.cast(field.type))
        else:
            columns.append(pa.repeat(pa.scalar(fill.get(field.name), field.type), count))
    return pa.table(columns, schema=schema)


def to_frame(table: pa.Table) -> pd.DataFrame:
    """The same as a pandas frame over Arrow arrays, which costs no copy; nested values become objects.

    >>> import pyarrow as pa
    >>> from penstock.spark.frames import to_frame
    >>> to_frame(pa.table({"a": [1, 2]}))["a"].sum()
    3
    """
    return pd.DataFrame({name: _series(table[name]) for name in table.column_names}, copy=False)


def _series(column: pa.ChunkedArray) -> pd.Series:
    if pa.types.is_nested(column.type):
        return pd.Series(column.to_pylist(maps_as_pydicts="strict"), dtype=object)
    whole = column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays(column.chunks)
    return pd.Series(pd.arrays.ArrowExtensionArray(whole))
