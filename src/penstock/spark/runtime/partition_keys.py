"""The values that identify the partitions of a stream, as numbers and as dictionary keys."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc


def number_partitions(events: pa.Table, names: Sequence[str]) -> tuple[np.ndarray, list[Hashable]]:
    """The number of each event's partition, from 0 in the order of appearance, and the key of each.

    Nulls are equal here, and so are NaNs and both zeros.

    >>> import pyarrow as pa
    >>> from penstock.spark.runtime.partition_keys import number_partitions
    >>> events = pa.table({"a": ["x", None, "x"], "b": [0.0, 1.5, -0.0]})
    >>> codes, keys = number_partitions(events, ["a", "b"])
    >>> codes.tolist(), keys
    ([0, 1, 0], [('x', 0.0), (None, 1.5)])
    """
    columns = [_encoded(events[name]) for name in names]
    if len(columns) == 1:
        return columns[0]
    codes = np.zeros(events.num_rows, np.int64)
    for more, values in columns:
        codes = np.unique(codes * max(len(values), 1) + more, return_inverse=True)[1]
    _, first, codes = np.unique(codes, return_index=True, return_inverse=True)
    order = np.argsort(first)
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    shown = [[values[code] for code in more[first[order]].tolist()] for more, values in columns]
    return rank[codes], list(zip(*shown, strict=True))


def _encoded(column: pa.ChunkedArray) -> tuple[np.ndarray, list[Any]]:
    """A number for each value of a column, also for null, and the values."""
    kind = column.type
    if pa.types.is_floating(kind):
        column = pc.add(column, pa.scalar(0.0, kind))  # one zero
    elif pa.types.is_timestamp(kind):
        column = column.cast(pa.int64())
    elif pa.types.is_nested(kind):
        column = pa.chunked_array([pa.array([repr(value.as_py()) for value in column], pa.string())])
    encoded = column.combine_chunks().dictionary_encode(null_encoding="encode")
    if isinstance(encoded, pa.ChunkedArray):
        encoded = pa.concat_arrays(encoded.chunks)
    values = encoded.dictionary.to_pylist()
    if pa.types.is_floating(kind):
        values = ["NaN" if value is not None and value != value else value for value in values]
    return encoded.indices.to_numpy().astype(np.int64), values
