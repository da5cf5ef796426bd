"""Pack output rows into Arrow blobs, and unpack them after Spark's row-by-row processing.

Millions of results are a few rows until the last step, so that taking the figures of the buckets out of the
stream, which touches every row, costs nothing. Such a row has a blob, a file with the results, or the figures
of a bucket. Workers that only unpack start without pandas and Numba.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import Row
from pyspark.sql import types as T

from penstock.spark.runtime.arrow_blobs import from_blob, numbers, texts, to_blob
from penstock.spark.runtime.arrow_types import arrow_schema
from penstock.spark.runtime.output_files import OutputPart, taken
from penstock.spark.runtime.worker_memory import give_back

ROWS, FILE, FIGURES = "rows", "file", "figures"
MOST_BYTES = 1 << 22  # of an output blob, about
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def blob_fields(event_time: str | None) -> T.StructType:
    """The columns of output blobs; with an event time if the operator has watermarks."""
    fields = [
        T.StructField(ROWS, T.BinaryType()),
        T.StructField(FILE, T.StringType()),
        T.StructField(FIGURES, T.StringType()),
    ]
    if event_time is not None:
        fields.append(T.StructField(event_time, T.TimestampType()))
    return T.StructType(fields)


def blobs_of(tables: Iterable[pa.Table]) -> Iterator[bytes]:
    """Tables as blobs, the large ones in pieces.

    >>> import pyarrow as pa
    >>> from penstock.spark.runtime.arrow_blobs import from_blob
    >>> from penstock.spark.runtime.output_blobs import blobs_of
    >>> [from_blob(blob)["a"].to_pylist() for blob in blobs_of([pa.table({"a": [1, 2]})])]
    [[1, 2]]
    """
    for table in tables:
        pieces = -(-table.nbytes // MOST_BYTES)
        size = -(-table.num_rows // max(pieces, 1))
        for start in range(0, table.num_rows, max(size, 1)):
            yield to_blob(table.slice(start, size))


def to_rows(outputs: Iterable[OutputPart], figures: str, **stamp: Any) -> Iterator[Row]:
    """Output as Spark's stateful processor wants it, with the figures in the last row.

    `stamp` is the event time of all rows, by the name of its column.
    """
    for output in outputs:
        yield Row(**{ROWS: output.blob, FILE: output.file, FIGURES: None}, **stamp)
    yield Row(**{ROWS: None, FILE: None, FIGURES: figures}, **stamp)


def after(watermark: int) -> datetime:
    """A time after the watermark, for output blobs: Spark lets none through that are behind it."""
    return EPOCH + timedelta(milliseconds=max(watermark, 0) + 1)


def to_batch(rows: bytes | None = None, figures: str | None = None) -> pa.RecordBatch:
    """One output blob as `mapInArrow` wants it."""
    arrays = [pa.array([rows], pa.binary()), pa.array([None], pa.string()), pa.array([figures], pa.string())]
    return pa.RecordBatch.from_arrays(arrays, names=[ROWS, FILE, FIGURES])


def unpacker(fields: T.StructType, fill: dict[str, Any]) -> Callable[[Any], Iterator[pa.RecordBatch]]:
    """A function for `mapInArrow` that unpacks blobs; columns that a blob lacks are null, or as `fill`."""

    def unpack(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        schema = arrow_schema(fields)
        for table in tables_of(batches):
            yield from shaped(table, schema, fill).to_batches()
        give_back()

    return unpack


def tables_of(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.Table]:
    """The output of a task, piece by piece, from blobs and files."""
    for batch in batches:
        files = batch.column(FILE) if FILE in batch.schema.names else [None] * batch.num_rows
        for blob, file in zip(batch.column(ROWS), files, strict=True):
            if blob.is_valid:
                yield from_blob(blob.as_buffer())
            if file is not None and file.is_valid:
                for piece in taken(file.as_py()):
                    yield pa.Table.from_batches([piece])


def shaped(table: pa.Table, schema: pa.Schema, fill: dict[str, Any]) -> pa.Table:
    """A table with the columns of a schema; those that are missing are null, or as `fill` says.

    >>> import pyarrow as pa
    >>> from penstock.spark.runtime.output_blobs import shaped
    >>> shaped(
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
            text = fill.get(field.name)
            columns.append(
                pa.nulls(count, field.type)
                if text is None
                else texts([text]).take(numbers(np.zeros(count, np.int64)))
            )
    return pa.table(columns, schema=schema)
