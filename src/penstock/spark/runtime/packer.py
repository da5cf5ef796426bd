"""Pack rows into Arrow blobs, one per bucket, so that they cross the shuffle and into Python in bulk.

A packed row has the label of its bucket, which side it is of, where it stands in the order of its side, and
the blob: an Arrow stream with the columns `KEY`, `TIME`, `CHECK` if keys are hashed, and the payload.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

LABEL, SIDE, TASK, PIECE, SKIPPED, BLOB = "label", "side", "task", "piece", "skipped", "blob"
KEY, CHECK, BUCKET, TIME = "_penstock_key", "_penstock_check", "_penstock_bucket", "_penstock_time"
PACKED = f"{LABEL} int, {SIDE} tinyint, {TASK} int, {PIECE} int, {SKIPPED} bigint, {BLOB} binary"

REGISTER = -1  # the label under which a query is told by every batch what it is, whichever buckets get rows

MOST_ROWS = 1 << 17  # per piece
FARTHEST = 2**61  # what states of streams can take, as `penstock.joins.config` has it
EXACT = 2**53  # floats tell whole numbers apart up to here
DAY = 86_400_000_000  # in microseconds
MOST_BYTES = 1 << 26


@dataclass(frozen=True)
class Packing:
    """What packing needs to know of a join: little, so that its workers start fast."""

    side: int
    time: str  # the name of the time column
    dtype: str  # of the times as numbers
    labels: tuple[int, ...]  # of the buckets
    codes: tuple[str, ...] = (KEY,)  # the columns of the keys; a row needs one of them


def packer(packing: Packing) -> Callable[[Any], Iterator[pa.RecordBatch]]:
    """A function for `mapInArrow` that packs the prepared rows of one side."""

    def pack(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        task, piece = _task(), 0
        held: list[pa.RecordBatch] = []
        for batch in batches:
            held.append(batch)
            rows, size = sum(b.num_rows for b in held), sum(b.nbytes for b in held)
            if rows >= MOST_ROWS or size >= MOST_BYTES:
                yield from _pieces(pa.Table.from_batches(held), packing, task, piece)
                held, piece = [], piece + 1
        if held:
            yield from _pieces(pa.Table.from_batches(held), packing, task, piece)

    return pack


def renamed(
    function: Callable[[Any], Iterator[pa.RecordBatch]], names: list[str]
) -> Callable[[Any], Iterator[pa.RecordBatch]]:
    """A function for `mapInArrow` that gets its columns under these names, whatever Spark calls them."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from function(batch.rename_columns(names) for batch in batches)

    return run


def _task() -> int:
    from pyspark import TaskContext

    context = TaskContext.get()
    return context.partitionId() if context is not None else 0


def _pieces(table: pa.Table, packing: Packing, task: int, piece: int) -> Iterator[pa.RecordBatch]:
    """One packed row per bucket."""
    table, buckets = with_time(table, packing.time, packing.dtype), len(packing.labels)
    usable = is_usable(table, packing.codes)
    skipped = table.num_rows - pc.sum(usable, min_count=0).as_py()
    if skipped:
        table = table.filter(usable)
    bucket = table[BUCKET].to_numpy()
    table = table.drop_columns([BUCKET])
    order = np.argsort(bucket, kind="stable")
    cuts = np.searchsorted(bucket[order], np.arange(buckets + 1))
    table = table.take(pa.array(order)) if buckets > 1 else table
    if piece == 0:
        yield _packed(REGISTER, packing.side, task, piece, 0, b"")
    for number in range(buckets):
        first, last = cuts[number], cuts[number + 1]
        told = skipped if number == 0 else 0
        if last > first or told:
            blob = to_blob(table.slice(first, last - first))
            yield _packed(packing.labels[number], packing.side, task, piece, told, blob)


def _packed(label: int, side: int, task: int, piece: int, skipped: int, blob: bytes) -> pa.RecordBatch:
    """One packed row."""
    return pa.RecordBatch.from_arrays(
        [
            pa.array([label], pa.int32()),
            pa.array([side], pa.int8()),
            pa.array([task], pa.int32()),
            pa.array([piece], pa.int32()),
            pa.array([skipped], pa.int64()),
            pa.array([blob], pa.binary()),
        ],
        names=[LABEL, SIDE, TASK, PIECE, SKIPPED, BLOB],
    )


def is_usable(table: pa.Table, codes: tuple[str, ...]) -> pa.ChunkedArray:
    """Which rows have a time, and a key in any of their joins."""
    keyed = pc.is_valid(table[codes[0]])
    for other in codes[1:]:
        keyed = pc.or_(keyed, pc.is_valid(table[other]))
    return pc.and_(keyed, pc.is_valid(table[TIME]))


def with_time(table: pa.Table, time: str, dtype: str) -> pa.Table:
    """The table with its times as numbers; null where a time is missing or cannot be used."""
    return table.append_column(TIME, as_numbers(table[time], dtype))


def as_numbers(times: pa.ChunkedArray, dtype: str) -> pa.ChunkedArray:
    """Times as numbers: timestamps and dates as microseconds.

    Null where a time is missing, not finite, 2^61 or more from zero (see `check_times`), or beyond 2^53 where
    it would be rounded to a float.
    """
    kind = times.type
    if pa.types.is_timestamp(kind):
        return _within(times.cast(pa.timestamp("us", tz=kind.tz)).cast(pa.int64()), FARTHEST)
    if pa.types.is_date(kind):
        days = times.cast(pa.date32()).cast(pa.int32()).cast(pa.int64())
        return pc.multiply(_within(days, FARTHEST // DAY), DAY)
    whole = pa.types.is_integer(kind) or (pa.types.is_decimal(kind) and kind.scale == 0)
    if dtype == "int64" and whole:
        return _within(times, FARTHEST).cast(pa.int64())
    numbers = (_within(times, EXACT) if whole else times).cast(pa.float64())
    numbers = pc.if_else(pc.is_finite(numbers), numbers, pa.scalar(None, pa.float64()))
    return _within(numbers, FARTHEST)


def as_exact(times: pa.ChunkedArray) -> pa.ChunkedArray:
    """Times as floats, null also where one would round them."""
    stamped = pa.types.is_timestamp(times.type)
    return as_numbers(as_numbers(times, "int64") if stamped else times, "float64")


def _within(numbers: pa.ChunkedArray, limit: int) -> pa.ChunkedArray:
    """Numbers less than a limit from zero, null in place of the others."""
    if pa.types.is_integer(numbers.type) and numbers.type.bit_width < 64:
        numbers = numbers.cast(pa.int64())
    if numbers.null_count == len(numbers):
        return numbers
    bounds = pc.min_max(numbers).as_py()
    if -limit < bounds["min"] and bounds["max"] < limit:
        return numbers
    bound = float(limit) if pa.types.is_floating(numbers.type) else limit
    fine = pc.and_(pc.greater(numbers, -bound), pc.less(numbers, bound))
    return pc.if_else(fine, numbers, pa.scalar(None, numbers.type))


def to_blob(table: pa.Table) -> bytes:
    """A table as an Arrow stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table.combine_chunks())
    return sink.getvalue().to_pybytes()


def from_blob(blob: bytes) -> pa.Table:
    """The counterpart."""
    return pa.ipc.open_stream(pa.py_buffer(blob)).read_all()
