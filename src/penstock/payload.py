"""Payload: the size in bytes of the rows of a table, for columns of any type."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.columns import Table, column_names, row_count
from penstock.errors import ColumnError
from penstock.lazy import Lazy

if TYPE_CHECKING:
    import pandas as pd
else:
    pd = Lazy("pandas")

_VARIABLE = (
    pa.types.is_string,
    pa.types.is_binary,
    pa.types.is_large_string,
    pa.types.is_large_binary,
)


def row_bytes(table: Table) -> np.ndarray:
    """Return the payload of each row of a table, in bytes of Arrow buffers.

    >>> from penstock.payload import row_bytes
    >>> row_bytes({"key": ["a", "bcd"], "ts": [1, 2]}).tolist()
    [14, 16]
    """
    arrow = to_arrow(table)
    total = np.full(arrow.num_rows, -(-arrow.num_columns // 8), np.int64)  # validity bits
    for name in arrow.schema.names:
        chunks = arrow.column(name).chunks
        if chunks:
            total += np.concatenate([_value_bytes(chunk) for chunk in chunks])
    return total


def mean_row_bytes(table: Table) -> float:
    """Return the average payload of a row, from a sample; 8 bytes per column if it cannot be measured."""
    rows = row_count(table)
    if rows == 0:
        return 0.0
    if isinstance(table, pa.Table | pa.RecordBatch):
        return float(table.nbytes) / rows
    step = max(1, rows // 1000)
    if isinstance(table, pd.DataFrame):
        sample: Table = table.iloc[::step]
    else:
        sample = {name: values[::step] for name, values in table.items()}
    try:
        return float(row_bytes(sample).mean())
    except ColumnError:  # values that Arrow has no type for, such as tuples of several kinds
        return 8.0 * len(column_names(table))


def to_arrow(table: Table) -> pa.Table:
    """Convert a table to an Arrow table.

    >>> from penstock.payload import to_arrow
    >>> to_arrow({"key": [1]}).num_rows
    1
    """
    column_names(table)
    if isinstance(table, pa.Table):
        return table
    if isinstance(table, pa.RecordBatch):
        return pa.Table.from_batches([table])
    frame = table if isinstance(table, pd.DataFrame) else pd.DataFrame(dict(table))
    try:
        return pa.Table.from_pandas(frame, preserve_index=False)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError) as error:
        raise ColumnError(f"A payload column cannot be measured in bytes: {error}") from error


def _value_bytes(array: pa.Array) -> np.ndarray:
    """Return the bytes per value of an Arrow array."""
    kind = array.type
    if pa.types.is_dictionary(kind):
        array, kind = array.cast(kind.value_type), kind.value_type
    length = len(array)
    if pa.types.is_null(kind):
        return np.zeros(length, np.int64)
    if pa.types.is_boolean(kind):
        return np.ones(length, np.int64)
    if any(is_kind(kind) for is_kind in _VARIABLE):
        lengths = pc.fill_null(pc.binary_length(array), 0).to_numpy(zero_copy_only=False)
        return lengths.astype(np.int64) + (8 if "large" in str(kind) else 4)
    if pa.types.is_struct(kind):
        parts = [_value_bytes(array.field(i)) for i in range(kind.num_fields)]
        return np.asarray(sum(parts, np.zeros(length, np.int64)))
    if pa.types.is_string_view(kind) or pa.types.is_binary_view(kind):
        plain = array.cast(pa.large_string() if pa.types.is_string_view(kind) else pa.large_binary())
        return _value_bytes(plain) + 8
    if pa.types.is_fixed_size_list(kind):
        items = _value_bytes(array.flatten()) if not array.null_count else _value_bytes(array.values)
        first = 0 if not array.null_count else array.offset * kind.list_size
        items = items[first : first + length * kind.list_size]
        return np.asarray(items.reshape(length, kind.list_size).sum(axis=1))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_map(kind):
        offsets = array.offsets.to_numpy()
        child = array.keys if pa.types.is_map(kind) else array.values
        sizes = _value_bytes(child)
        if pa.types.is_map(kind):
            sizes = sizes + _value_bytes(array.items)
        sums = np.concatenate([[0], np.cumsum(sizes)])
        return np.asarray(sums[offsets[1:]] - sums[offsets[:-1]] + offsets.itemsize)
    try:
        return np.full(length, -(-kind.bit_width // 8), np.int64)
    except ValueError as error:
        raise ColumnError(f"A payload column of type {kind} cannot be measured in bytes.") from error
