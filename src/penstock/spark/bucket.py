"""A bucket: the operator state of one share of the keys with the payload of its tuples, in Arrow.

It takes the packed rows of a batch, and gives the results, the rows that left or came late, and figures.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import SnapshotError
from penstock.joins.stream import StreamState
from penstock.kernels.drive import LOG_DROPPED, LOG_EVICTED
from penstock.kernels.layout import STEPS
from penstock.kernels.stream import LOG_LATE
from penstock.payload import row_bytes
from penstock.spark.arena import Arena
from penstock.spark.pack import CHECK, KEY, TIME, from_blob, to_blob
from penstock.spark.spec import LEFT, RIGHT, SIDES, JoinSpec

CHUNK = 1 << 18  # results per table
SLACK = 1.25  # rows that have left may take a quarter of what is there
EVENTS = {LOG_EVICTED: "evicted", LOG_DROPPED: "dropped", LOG_LATE: "late"}
RESULT = "result"  # the event of a result
EVENT, STREAM, AT = "_event", "_stream", "_at"
_LENGTHS = struct.Struct("<QQQ")


@dataclass
class Figures:
    """What one batch did in one bucket."""

    arrived_left: int = 0
    arrived_right: int = 0
    results: int = 0
    missed: float = 0.0  # about how many results the exact join would have had besides
    evicted_left: int = 0
    evicted_right: int = 0
    expired: int = 0
    dropped: int = 0
    late: int = 0
    skipped: int = 0  # rows without a key or a time
    behind_watermark: int = 0  # late rows that a watermark drops
    buffered_left: int = 0
    buffered_right: int = 0
    peak_bytes: int = 0
    state_written: int = 0
    state_read: int = 0
    replayed: int = 0

    def add(self, later: Figures) -> None:
        """Add the figures of a later batch; of what is buffered and of memory, the last and the most."""
        for each in fields(self):
            mine, other = getattr(self, each.name), getattr(later, each.name)
            if each.name.startswith("buffered"):
                setattr(self, each.name, other)
            else:
                setattr(self, each.name, max(mine, other) if each.name == "peak_bytes" else mine + other)


@dataclass
class Batch:
    """The rows of one batch for one bucket, in order per side, and what Spark said of them."""

    blobs: list[tuple[int, Any]] = field(default_factory=list)  # (side, rows: packed, or a table)
    watermark: int = -1  # in milliseconds
    skipped: int = 0

    def to_bytes(self) -> bytes:
        """For the log."""
        head = json.dumps(
            {
                "blobs": [(side, len(blob)) for side, blob in self.blobs],
                "watermark": self.watermark,
                "skipped": self.skipped,
            }
        ).encode()
        return b"".join([struct.pack("<Q", len(head)), head, *(blob for _, blob in self.blobs)])

    @classmethod
    def from_bytes(cls, data: bytes) -> Batch:
        """The counterpart; refuses what is not a batch."""
        try:
            (length,) = struct.unpack_from("<Q", data)
            head = json.loads(data[8 : 8 + length])
            at, blobs = 8 + length, []
            for side, size in head["blobs"]:
                blobs.append((side, data[at : at + size]))
                at += size
            batch = cls(blobs, head["watermark"], head["skipped"])
        except Exception as error:
            raise SnapshotError(f"A batch in the log of a bucket cannot be read: {error}") from error
        if at != len(data):
            raise SnapshotError(f"A batch in the log of a bucket has {len(data)} bytes instead of {at}.")
        return batch


class Bucket:
    """The state of one bucket, and the rows it keeps."""

    def __init__(self, spec: JoinSpec, state: StreamState | None = None) -> None:
        self.spec = spec
        self.state = state or spec.start()
        self.arenas = (Arena(), Arena())
        self.watermark = -1  # of the batch before: what is older is late by Spark's rules
        self.figures = Figures()
        self.whole = Figures()  # of all batches
        # Rows that left when the bucket adapted, and how many per side, to be told with the next batch.
        self._unreported: list[pa.Table] = []
        self._uncounted = [0, 0]

    def process(self, batch: Batch, quiet: bool = False) -> tuple[Iterator[pa.Table], list[pa.Table]]:
        """Run a batch; the results in tables, and the rows that left or were late (with `emit="all"`).

        The results must be consumed before the next batch. `quiet` is for a replay: nothing is given out.
        """
        figures = self.figures = Figures(skipped=batch.skipped)
        before = self.state.totals() | {"missed": self._missed()}
        parts = [self._take_in(side, batch) for side in (LEFT, RIGHT)]
        self._follow_watermark(batch.watermark)
        stream = np.repeat(np.array([LEFT, RIGHT], np.int8), [len(part[0]) for part in parts])
        key, time, row, size = (np.concatenate([part[i] for part in parts]) for i in range(4))
        order = np.argsort(time, kind="stable")  # left rows stand before right ones
        first = int(self.state.store.meta[STEPS])
        sized = size[order] if self.state.config.payload is not None else None
        out = self.state.process(
            stream[order], key[order], time[order], row[order], sized, collect=not quiet, log=True
        )
        self._count(before, out.log)
        figures.arrived_left, figures.arrived_right = (len(part[0]) for part in parts)
        if quiet:
            self._tidy()
            return iter(()), []
        archive, self._unreported = self._unreported, []
        archive += self._archive(out.log, first, time[order])
        tables = tuple(arena.table for arena in self.arenas)  # as they are now: tidying renumbers
        results = self._results(out.pairs, tables)
        self._tidy()
        return results, archive

    def adapt(self) -> bool:
        """Go on under the spec's budget and policy, where those of the state are others.

        The buffered tuples enter a fresh state in the order in which they came, so that a smaller budget
        evicts and scores begin anew; the streams' progress and the sketch are kept. Says whether it did.
        """
        old, fresh = self.state, self.spec.start()
        if old.config == fresh.config:
            return False
        sizes = None
        if fresh.config.payload is not None:
            sizes = [row_bytes(arena.table) if arena.rows else np.empty(0, np.int64) for arena in self.arenas]
        log, times = fresh.take_over(old, sizes)
        self.state = fresh
        self._unreported += self._archive(log, 0, times)
        self._uncounted = [sum(pair) for pair in zip(_evicted(log), self._uncounted, strict=True)]
        self._tidy()
        return True

    def _missed(self) -> float:
        return float(self.state.sketch.missed[0])

    def _take_in(self, side: int, batch: Batch) -> tuple[np.ndarray, ...]:
        """Put the rows of a side into its arena; their keys, times, row numbers and sizes."""
        parts = [part for which, part in batch.blobs if which == side]
        tables = [part if isinstance(part, pa.Table) else from_blob(part) for part in parts]
        if not tables:
            return (
                np.empty(0, np.int64),
                np.empty(0, self.spec.dtype),
                np.empty(0, np.int64),
                np.empty(0, np.int64),
            )
        table = pa.concat_tables(tables)
        if self.spec.sides[side].watermark and self.watermark >= 0:
            fresh = pc.greater(table[TIME], pa.scalar(self.watermark * 1_000, table[TIME].type))
            kept = table.filter(fresh)
            self.figures.behind_watermark += table.num_rows - kept.num_rows
            table = kept
        key, time = table[KEY].to_numpy(), table[TIME].to_numpy()
        table = table.drop_columns([KEY, TIME])
        size = row_bytes(table) if self.state.config.payload is not None else np.zeros(len(key), np.int64)
        first = self.arenas[side].append(table)
        return key, time, np.arange(first, first + len(key)), size

    def _follow_watermark(self, watermark: int) -> None:
        if watermark >= 0:
            left, right = (watermark * 1_000 if side.watermark else None for side in self.spec.sides)
            self.state.advance(left, right)
            self.watermark = watermark

    def _results(self, pairs: np.ndarray, tables: tuple[Any, ...]) -> Iterator[pa.Table]:
        for start in range(0, len(pairs), CHUNK):
            part = pairs[start : start + CHUNK]
            left = tables[LEFT].take(pa.array(part[:, LEFT]))
            right = tables[RIGHT].take(pa.array(part[:, RIGHT]))
            if self.spec.hashed:
                same = pc.equal(left[CHECK], right[CHECK])
                if not pc.all(same).as_py():
                    left, right = left.filter(same), right.filter(same)
            yield self._joined(left, right)

    def _joined(self, left: pa.Table, right: pa.Table) -> pa.Table:
        """Key columns once, then left, then right; the later of the two times if it is wanted."""
        spec = self.spec
        columns = [left[name] for name in spec.left.keys]
        columns += [left[name] for name in spec.left.columns]
        columns += [right[name] for name in spec.right.columns]
        names = [*spec.keys, *spec.left.names, *spec.right.names]
        if spec.event_time is not None:
            columns.append(_later(left[spec.left.time], right[spec.right.time], self.watermark))
            names.append(spec.event_time)
        return pa.table(columns, names=names)

    def _archive(self, log: np.ndarray, first: int, times: np.ndarray) -> list[pa.Table]:
        """The rows that were evicted or dropped, or that came late, each with the time when it happened."""
        if self.spec.emit != "all":
            return []
        tables = []
        for side, mine in enumerate(self.spec.sides):
            told = log[(log[:, 1] == side) & np.isin(log[:, 0], list(EVENTS))]
            if len(told) == 0:
                continue
            rows = self.arenas[side].take(told[:, 2])
            columns = dict(zip(self.spec.keys, (rows[key] for key in mine.keys), strict=True))
            columns |= dict(zip(mine.names, (rows[name] for name in mine.columns), strict=True))
            columns[EVENT] = pa.array([EVENTS[kind] for kind in told[:, 0].tolist()])
            columns[STREAM] = pa.array([SIDES[side]] * len(told))
            when = times[np.clip(told[:, 3] - first, 0, len(times) - 1)]
            columns[AT] = pa.array(when).cast(_told_as(rows.schema.field(mine.time).type))
            tables.append(pa.table(columns))
        return tables

    def _count(self, before: dict[str, Any], log: np.ndarray) -> None:
        figures, after = self.figures, self.state.totals()
        for name in ("results", "expired", "dropped", "late"):
            setattr(figures, name, after[name] - before[name])
        figures.missed = self._missed() - before["missed"]
        uncounted, self._uncounted = self._uncounted, [0, 0]
        figures.evicted_left, figures.evicted_right = map(sum, zip(_evicted(log), uncounted, strict=True))

    def _tidy(self) -> None:
        """Forget the rows of tuples that have left, once they are more than a fifth or the budget is full."""
        for side, arena in enumerate(self.arenas):
            rows = self.state.rows(side)
            setattr(self.figures, f"buffered_{SIDES[side]}", len(rows))
            if arena.rows > SLACK * len(rows):
                self.state.rename_rows(side, arena.keep(rows))
        if self._bytes() > self.spec.most_bytes:
            for side, arena in enumerate(self.arenas):
                self.state.rename_rows(side, arena.keep(self.state.rows(side)))
        self.figures.peak_bytes = self._bytes()
        self.whole.add(self.figures)

    def _bytes(self) -> int:
        kept = sum(arena.nbytes for arena in self.arenas)
        return self.state.table_bytes + self.state.peak_beyond + kept

    def to_bytes(self) -> bytes:
        """All of it, for a snapshot."""
        payload = [to_blob(arena.table) if arena.table is not None else b"" for arena in self.arenas]
        state = self.state.snapshot()
        head = _LENGTHS.pack(len(state), len(payload[0]), len(payload[1]))
        packed = pa.compress(b"".join(payload), codec="zstd", asbytes=True) if any(payload) else b""
        return head + struct.pack("<q", self.watermark) + state + packed

    @classmethod
    def from_bytes(cls, spec: JoinSpec, data: bytes) -> Bucket:
        """The counterpart; refuses what is not a bucket."""
        try:
            sizes = _LENGTHS.unpack_from(data)
            at = _LENGTHS.size
            (watermark,) = struct.unpack_from("<q", data, at)
            at += 8
            bucket = cls(spec, StreamState.restore(data[at : at + sizes[0]]))
            at += sizes[0]
            both = b""
            if sizes[1] + sizes[2]:
                both = pa.decompress(
                    data[at:], decompressed_size=sizes[1] + sizes[2], codec="zstd", asbytes=True
                )
        except SnapshotError:
            raise
        except Exception as error:
            raise SnapshotError(f"The state of a bucket cannot be read: {error}") from error
        bucket.watermark = watermark
        parts = both[: sizes[1]], both[sizes[1] :]
        bucket.arenas = tuple(Arena(from_blob(part) if part else None) for part in parts)  # type: ignore[assignment]
        return bucket


def _evicted(log: np.ndarray) -> tuple[int, int]:
    """How many tuples of each side a log says were evicted."""
    sides = log[log[:, 0] == LOG_EVICTED, 1]
    return int((sides == LEFT).sum()), int((sides == RIGHT).sum())


def _later(left: pa.ChunkedArray, right: pa.ChunkedArray, watermark: int) -> pa.ChunkedArray:
    """The later of two times each, and after the watermark, where Spark's grace let a row in that is not."""
    least = pa.scalar((max(watermark, -1) + 1) * 1_000, pa.int64())
    numbers = pc.max_element_wise(left.cast(pa.int64()), right.cast(pa.int64()), least)
    return numbers.cast(left.type)


def _told_as(kind: pa.DataType) -> pa.DataType:
    """The type in which the time of an event is told: that of the column, dates as timestamps."""
    if pa.types.is_date(kind):
        return pa.timestamp("us")
    return kind if pa.types.is_timestamp(kind) else pa.float64()
