"""Pack output rows into Arrow blobs, and unpack them after Spark's row-by-row processing.

Millions of results are a few rows until the last step, so that taking the figures of the buckets out of the
stream, which touches every row, costs nothing. Such a row has a blob, or the figures of a bucket.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import pandas as pd
import pyarrow as pa
from pyspark.sql import types as T

from penstock.spark.runtime.arrow_types import arrow_schema
from penstock.spark.runtime.packer import from_blob, to_blob

ROWS, FIGURES = "rows", "figures"
MOST_BYTES = 1 << 24  # of an output blob, about


def blob_fields(event_time: str | None) -> T.StructType:
    """The columns of output blobs; with an event time if the operator has watermarks."""
    fields = [T.StructField(ROWS, T.BinaryType()), T.StructField(FIGURES, T.StringType())]
    if event_time is not None:
        fields.append(T.StructField(event_time, T.TimestampType()))
    return T.StructType(fields)


def blobs_of(tables: Iterable[pa.Table]) -> Iterator[bytes]:
    """Tables as blobs, the large ones in pieces.

    >>> import pyarrow as pa
    >>> from penstock.spark.runtime.packer import from_blob
    >>> from penstock.spark.runtime.output_blobs import blobs_of
    >>> [from_blob(blob)["a"].to_pylist() for blob in blobs_of([pa.table({"a": [1, 2]})])]
    [[1, 2]]
    """
    for table in tables:
        pieces = -(-table.nbytes // MOST_BYTES)
        size = -(-table.num_rows // max(pieces, 1))
        for start in range(0, table.num_rows, max(size, 1)):
            yield to_blob(table.slice(start, size))


def to_frames(tables: Iterable[pa.Table], figures: str, **stamp: Any) -> Iterator[pd.DataFrame]:
    """Output blobs as Spark's stateful processor wants them: few frames, with the figures in the last row.

    `stamp` is the event time of all rows, by the name of its column.
    """
    held: list[bytes] = []
    for blob in blobs_of(tables):
        held.append(blob)
        if sum(map(len, held)) >= MOST_BYTES:
            yield _frame(held, [None] * len(held), stamp)
            held = []
    yield _frame([*held, None], [*[None] * len(held), figures], stamp)


def _frame(
    rows: Sequence[bytes | None], figures: Sequence[str | None], stamp: dict[str, Any]
) -> pd.DataFrame:
    return pd.DataFrame({ROWS: rows, FIGURES: figures}, dtype=object).assign(**stamp)


def after(watermark: int) -> pd.Timestamp:
    """A time after the watermark, for output blobs: Spark lets none through that are behind it."""
    return pd.Timestamp(max(watermark, 0) + 1, unit="ms", tz="UTC")


def to_batch(rows: bytes | None = None, figures: str | None = None) -> pa.RecordBatch:
    """One output blob as `mapInArrow` wants it."""
    arrays = [pa.array([rows], pa.binary()), pa.array([figures], pa.string())]
    return pa.RecordBatch.from_arrays(arrays, names=[ROWS, FIGURES])


def unpacker(fields: T.StructType, fill: dict[str, Any]) -> Callable[[Any], Iterator[pa.RecordBatch]]:
    """A function for `mapInArrow` that unpacks blobs; columns that a blob lacks are null, or as `fill`."""

    def unpack(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        schema = arrow_schema(fields)
        for batch in batches:
            for blob in batch.column(ROWS):
                yield from shaped(from_blob(blob.as_buffer()), schema, fill).to_batches()

    return unpack


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
            columns.append(pa.repeat(pa.scalar(fill.get(field.name), field.type), count))
    return pa.table(columns, schema=schema)
