"""Arrays and tables into Arrow and back, without pandas: `pa.array` imports it, 21 MiB in every worker."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pyarrow as pa


def numbers(values: np.ndarray) -> pa.Array:
    """Numbers as an Arrow array, without a copy.

    >>> import numpy as np
    >>> from penstock.spark.runtime.arrow_blobs import numbers
    >>> numbers(np.array([3, 4])).to_pylist()
    [3, 4]
    """
    values = np.ascontiguousarray(values)
    return pa.Array.from_buffers(
        pa.from_numpy_dtype(values.dtype), len(values), [None, pa.py_buffer(values)], null_count=0
    )


def texts(values: Iterable[str]) -> pa.Array:
    """Texts as an Arrow array, without pandas.

    >>> from penstock.spark.runtime.arrow_blobs import texts
    >>> texts(["a", "", "bc"]).to_pylist()
    ['a', '', 'bc']
    """
    encoded = [each.encode() for each in values]
    ends = np.cumsum([0, *map(len, encoded)], dtype=np.int32)
    return pa.StringArray.from_buffers(len(encoded), pa.py_buffer(ends), pa.py_buffer(b"".join(encoded)))


def values_of(column: pa.ChunkedArray) -> np.ndarray:
    """The counterpart: numbers of which none is null, without a copy if they are in one piece.

    >>> import numpy as np
    >>> import pyarrow as pa
    >>> from penstock.spark.runtime.arrow_blobs import numbers, values_of
    >>> values_of(pa.chunked_array([numbers(np.array([3, 4])), numbers(np.array([5]))])).tolist()
    [3, 4, 5]
    """
    kind = column.type.to_pandas_dtype()
    parts = [
        np.frombuffer(chunk.buffers()[1], kind, len(chunk), chunk.offset * np.dtype(kind).itemsize)
        for chunk in column.chunks
        if len(chunk)
    ]
    return parts[0] if len(parts) == 1 else np.concatenate([np.empty(0, kind), *parts])


def to_blob(table: pa.Table) -> bytes:
    """A table as an Arrow stream."""
    sink = pa.BufferOutputStream()
    write_blob(sink, table)
    return sink.getvalue().to_pybytes()


def write_blob(sink: pa.NativeFile, table: pa.Table) -> None:
    """Write a table as a blob."""
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table.combine_chunks())


def from_blob(blob: bytes) -> pa.Table:
    """The counterpart."""
    return pa.ipc.open_stream(pa.py_buffer(blob)).read_all()
