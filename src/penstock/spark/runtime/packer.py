"""Pack rows into Arrow blobs, one per bucket, so that they cross the shuffle and into Python in bulk.

A packed row has the label of its bucket, the number of its input, where it stands in the order of that input,
what the packer noticed, and the blob: an Arrow stream. Operators differ only in their `Packing`, which
divides a table among the buckets. Workers that only pack start without Numba.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import SnapshotError
from penstock.spark.runtime.arrow_blobs import from_blob, numbers, values_of, write_blob
from penstock.spark.runtime.worker_memory import give_back

LABEL, SIDE, TASK, PIECE, SKIPPED, LATEST, BLOB = (
    "label",
    "side",
    "task",
    "piece",
    "skipped",
    "latest",
    "blob",
)
KEY, CHECK, BUCKET, TIME = "_penstock_key", "_penstock_check", "_penstock_bucket", "_penstock_time"
PACKED = (
    f"{LABEL} int, {SIDE} tinyint, {TASK} int, {PIECE} int, {SKIPPED} bigint, {LATEST} double, {BLOB} binary"
)
ARROW = pa.schema(
    {
        LABEL: pa.int32(),
        SIDE: pa.int8(),
        TASK: pa.int32(),
        PIECE: pa.int32(),
        SKIPPED: pa.int64(),
        LATEST: pa.float64(),
        BLOB: pa.binary(),
    }
)
REGISTER = -1  # the label under which a query is told by every batch what it is, whichever buckets get rows

MOST_ROWS = 1 << 17  # per piece
MOST_BYTES = 1 << 22
FARTHEST = 2**61  # what states of streams can take, as `penstock.joins.config` has it
EXACT = 2**53  # floats tell whole numbers apart up to here
DAY = 86_400_000_000  # in microseconds
UNKNOWN = float("nan")  # the latest time of rows that have none


class Divided(NamedTuple):
    """A table divided among the buckets."""

    parts: list[pa.Table]  # one per bucket
    skipped: int = 0  # rows that cannot be used
    latest: float = UNKNOWN  # time


@dataclass(frozen=True)
class Packing:
    """What packing needs to know of an operator: little, so that its workers start fast."""

    labels: tuple[int, ...]  # of the buckets
    side: int = 0  # the number of the input

    @property
    def to_all(self) -> bool:
        """Whether buckets without rows are told of a batch, too, because time moves on for them."""
        return False

    def divide(self, table: pa.Table) -> Divided:
        """Divide a table by its column `BUCKET`."""
        return Divided(by_bucket(table, len(self.labels)))


@dataclass(frozen=True)
class ArrivalPacking(Packing):
    """For joins: rows without a key or a time are left out; `TIME` has the times as numbers."""

    time: str = ""  # the name of the time column
    dtype: str = "int64"  # of the times as numbers
    codes: tuple[str, ...] = (KEY,)  # the columns of the keys; a row needs one of them
    preserved: bool = False  # rows without a key or a time come out, so that they are not left out
    clocks: bool = False  # all buckets are told of every batch

    @property
    def to_all(self) -> bool:
        """Whether rows may come out because time has moved on."""
        return self.clocks

    def divide(self, table: pa.Table) -> Divided:
        """Divide the rows that can be used."""
        table = with_time(table, self.time, self.dtype)
        usable = is_usable(table, self.codes)
        latest = _latest(table.filter(usable)[TIME]) if self.clocks else UNKNOWN
        if self.preserved:
            return Divided(by_bucket(table, len(self.labels)), latest=latest)
        skipped = table.num_rows - pc.sum(usable, min_count=0).as_py()
        table = table.filter(usable) if skipped else table
        return Divided(by_bucket(table, len(self.labels)), skipped, latest)


@dataclass(frozen=True)
class AsofPacking(ArrivalPacking):
    """For as-of joins: all buckets are told how far each stream has come, and left rows are all kept."""

    @property
    def to_all(self) -> bool:
        """True."""
        return True

    def divide(self, table: pa.Table) -> Divided:
        """Divide the rows; the bucket answers left rows without a key or a time at once."""
        table = with_time(table, self.time, self.dtype)
        usable, count = is_usable(table, self.codes), table.num_rows
        arrivals = table.filter(usable)
        latest = _latest(arrivals[TIME])
        table = table if self.side == 0 else arrivals
        return Divided(by_bucket(table, len(self.labels)), count - table.num_rows, latest)


@dataclass(frozen=True)
class EventPacking(Packing):
    """For patterns: all buckets are told how far times have come."""

    time: str = ""
    dtype: str = "int64"

    @property
    def to_all(self) -> bool:
        """True."""
        return True

    def divide(self, table: pa.Table) -> Divided:
        """Divide all rows; the bucket counts those without a time."""
        times = as_numbers(table[self.time], self.dtype)
        return Divided(by_bucket(table, len(self.labels)), latest=_latest(times))


def by_bucket(table: pa.Table, buckets: int) -> list[pa.Table]:
    """The rows of each bucket, in their order."""
    bucket = values_of(table[BUCKET])
    table = table.drop_columns([BUCKET])
    if buckets == 1:
        return [table]
    order = np.argsort(bucket, kind="stable")
    cuts = np.searchsorted(bucket[order], np.arange(buckets + 1)).tolist()
    table = table.take(numbers(order))
    return [table.slice(first, last - first) for first, last in pairwise(cuts)]


def _latest(times: pa.ChunkedArray) -> float:
    """The largest time, rounded down where no float is equal to it: what comes after it is not late."""
    most = pc.max(times).as_py()
    if most is None:
        return UNKNOWN
    latest = float(most)
    return latest if latest <= most else float(np.nextafter(latest, -np.inf))


def packer(packing: Packing) -> Callable[[Any], Iterator[pa.RecordBatch]]:
    """A function for `mapInArrow` that packs the rows of one input."""

    def pack(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        task, piece = _task(), 0
        held: list[pa.RecordBatch] = []
        rows = size = 0
        for batch in batches:
            held.append(batch)
            rows, size = rows + batch.num_rows, size + batch.nbytes
            if rows >= MOST_ROWS or size >= MOST_BYTES:
                yield _packed(_table_of(held), packing, task, piece)
                rows = size = 0
                piece += 1
        if held:
            yield _packed(_table_of(held), packing, task, piece)
        give_back()

    return pack


def _table_of(held: list[pa.RecordBatch]) -> pa.Table:
    """Batches as a table; the list is emptied, so that nothing else holds them."""
    table = pa.Table.from_batches(held)
    held.clear()
    return table


def _task() -> int:
    from pyspark import TaskContext

    context = TaskContext.get()
    return context.partitionId() if context is not None else 0


def _packed(table: pa.Table, packing: Packing, task: int, piece: int) -> pa.RecordBatch:
    """A packed row per bucket that has something to learn."""
    parts, skipped, latest = packing.divide(table)
    del table
    labels = [REGISTER] if piece == 0 else []
    counts, ends = [0] * len(labels), [0] * (1 + len(labels))
    sink = pa.BufferOutputStream()  # of all blobs, one after the other: Arrow takes them from there
    for number, label in enumerate(packing.labels):
        part, mine = parts[number], skipped if number == 0 else 0  # the first bucket counts them
        if part.num_rows or mine or packing.to_all:
            write_blob(sink, part)
            labels.append(label)
            counts.append(mine)
            ends.append(sink.tell())
    del part, parts
    size = len(labels)
    places = pa.py_buffer(np.array(ends, np.int32))
    columns = {
        LABEL: numbers(np.array(labels, np.int32)),
        SIDE: numbers(np.full(size, packing.side, np.int8)),
        TASK: numbers(np.full(size, task, np.int32)),
        PIECE: numbers(np.full(size, piece, np.int32)),
        SKIPPED: numbers(np.array(counts, np.int64)),
        LATEST: numbers(np.full(size, latest, np.float64)),
        BLOB: pa.Array.from_buffers(pa.binary(), size, [None, places, sink.getvalue()]),
    }
    return pa.RecordBatch.from_arrays([columns[name] for name in ARROW.names], schema=ARROW)


def renamed(
    function: Callable[[Any], Iterator[pa.RecordBatch]], names: list[str]
) -> Callable[[Any], Iterator[pa.RecordBatch]]:
    """A function for `mapInArrow` that gets its columns under these names, whatever Spark calls them."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from function(batch.rename_columns(names) for batch in batches)

    return run


@dataclass
class PackedBatch:
    """The rows of one batch for one bucket, in the order of their input, and what is known of them."""

    blobs: list[tuple[int, Any]] = field(default_factory=list)  # (side, rows: packed, or a table)
    watermark: int = -1  # in milliseconds
    skipped: int = 0
    latest: float | None = None  # the largest time that the packers of all buckets have seen
    latest_of: dict[int, float] = field(default_factory=dict)  # the same for each input

    @classmethod
    def gather(cls, rows: Iterator[Any], watermark: int = -1) -> PackedBatch:
        """Gather packed rows, in whatever order the shuffle brought them."""
        wanted = (SIDE, TASK, PIECE, SKIPPED, LATEST, BLOB)
        pieces = [tuple(row[name] for name in wanted) for row in rows]
        pieces.sort(key=lambda piece: piece[:3])
        latest_of: dict[int, float] = {}
        for side, *_, latest, _ in pieces:
            if _is_known(latest):
                latest_of[side] = max(latest, latest_of.get(side, latest))
        return cls(
            blobs=[(side, bytes(blob)) for side, *_, blob in pieces],
            watermark=int(watermark),
            skipped=sum(skipped for *_, skipped, _, _ in pieces),
            latest=max(latest_of.values(), default=None),
            latest_of=latest_of,
        )

    def table(self, side: int = 0) -> pa.Table | None:
        """The rows of one input, or None if it has none."""
        parts = [rows for which, rows in self.blobs if which == side]
        tables = [rows if isinstance(rows, pa.Table) else from_blob(rows) for rows in parts]
        return pa.concat_tables(tables) if tables else None

    @property
    def nbytes(self) -> int:
        """What the packed rows take."""
        return sum(len(blob) for _, blob in self.blobs)

    def to_bytes(self) -> bytes:
        """For the log."""
        return b"".join(self.parts())

    def parts(self) -> list[bytes]:
        """The same in parts, for which no blob is copied."""
        head = json.dumps(
            {
                "blobs": [(side, len(blob)) for side, blob in self.blobs],
                "watermark": self.watermark,
                "skipped": self.skipped,
                "latest": self.latest,
                "latest_of": sorted(self.latest_of.items()),
            }
        ).encode()
        return [struct.pack("<Q", len(head)), head, *(blob for _, blob in self.blobs)]

    @classmethod
    def from_bytes(cls, data: bytes) -> PackedBatch:
        """The inverse of `to_bytes`; rejects anything but a batch."""
        try:
            (length,) = struct.unpack_from("<Q", data)
            head = json.loads(data[8 : 8 + length])
            at, blobs = 8 + length, []
            for side, size in head["blobs"]:
                blobs.append((side, data[at : at + size]))
                at += size
            latest_of = {int(side): float(latest) for side, latest in head.get("latest_of", [])}
            batch = cls(blobs, head["watermark"], head["skipped"], head.get("latest"), latest_of)
        except Exception as error:
            raise SnapshotError(f"A batch in the log of a bucket cannot be read: {error}") from error
        if at != len(data):
            raise SnapshotError(f"A batch in the log of a bucket has {len(data)} bytes instead of {at}.")
        return batch


def _is_known(latest: float | None) -> bool:
    """Whether there is a latest time; Spark may make NaN of what is unknown, or null."""
    return latest is not None and latest == latest


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
