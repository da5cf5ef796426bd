"""A bucket: the operator state of one share of the keys with the payload of its tuples, in Arrow.

It takes the packed rows of a batch, and returns the results, the rows that left or were late, and metrics.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from itertools import chain, pairwise
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.engine.join_loop import LOG_DROPPED, LOG_EVICTED, LOG_LATE, LOG_UNDECIDED
from penstock.engine.store import STEPS
from penstock.errors import PenstockError, SnapshotError
from penstock.joins.stream import StreamState
from penstock.payload import row_bytes
from penstock.snapshots.encoding import Buffer
from penstock.spark.runtime.arrow_blobs import from_blob, write_blob
from penstock.spark.runtime.condition_columns import ConditionColumns
from penstock.spark.runtime.operator import Bucket
from penstock.spark.runtime.packer import CHECK, FARTHEST, KEY, SIDE, TIME, PackedBatch, is_usable, with_time
from penstock.spark.runtime.payload_table import PayloadTable

LEFT, RIGHT = 0, 1
CHUNK = 1 << 18  # results per table
SLACK = 1.25  # rows of tuples that have left may take a quarter of the others
EVENTS = {
    LOG_EVICTED: "evicted",
    LOG_DROPPED: "dropped",
    LOG_LATE: "late",
    LOG_UNDECIDED: "undecided",
}
TOTALS = "results", "expired", "dropped", "late", "released", "unmatched", "undecided"
ESTIMATE = "missed", "unestimated", "guessed", "variance"
RESULT = "result"  # the event of a result
EVENT, STREAM, AT = "_event", "_stream", "_at"
WEIGHT, SMALLEST, SAMPLED = "_weight", "_t", "_sampled"  # of results of a policy that weighs them
DRAWS = 44  # bits for the draws of a bucket; the others are for its number


class JoinBucket(Bucket):
    """The state of one bucket, and the rows it keeps; for two streams (`ManyBucket` is for many)."""

    def __init__(self, spec: Any, state: Any = None) -> None:
        super().__init__(spec)
        self.state = state or spec.start()
        self.payload_tables = [PayloadTable() for _ in spec.sides]
        self.watermark = -1  # of the previous batch: older rows are late by Spark's rules
        # Rows that left when the bucket adapted, and their number per side, reported with the next batch.
        self._unreported: list[pa.Table] = []
        self._uncounted = [0] * len(spec.sides)
        self._condition = ConditionColumns(spec)

    def process(self, batch: PackedBatch, quiet: bool = False) -> Iterator[pa.Table]:
        """Run a batch; return the results, and with `emit="all"` the rows that left or were late."""
        figures = self.figures = self.spec.figures()
        figures.skipped = batch.skipped
        before = self.state.totals() | self._estimate()
        self._condition.begin()
        parts = [self._take_in(side, batch.table(side)) for side in range(len(self.spec.sides))]
        counts = [len(part[0]) for part in parts]
        stream = np.repeat(np.arange(len(parts), dtype=np.int8), counts)
        key, time, row, size = (np.concatenate([part[i] for part in parts]) for i in range(4))
        order = np.argsort(time, kind="stable")  # rows of the first streams stand before the others
        first = int(self.state.store.meta[STEPS])
        sized = (size[order],) if self._sized else ()
        columns = (stream[order], key[order], time[order], row[order], *sized)
        self._condition.prepare(self.state, stream[order], counts, order)
        out = self._feed(columns, batch.watermark, not quiet)
        self._condition.end()
        self._count(before, out.log)
        figures.arrived = dict(zip(self.spec.streams, counts, strict=True))
        if quiet:
            self._tidy()
            return iter(())
        archive, self._unreported = self._unreported, []
        archive += self._archive(out.log, first, time[order])
        tables = tuple(each.table for each in self.payload_tables)  # as they are now: tidying renumbers
        results = self._results(out, tables)
        self._tidy()
        return chain(results, archive)

    def process_sorted(self, rows: pa.Table) -> Iterator[pa.Table]:
        """Run rows of all streams, as `join_batch` puts them into one table."""
        blobs: list[tuple[int, Any]] = []
        for side, mine in enumerate(self.spec.sides):
            own = rows.filter(pc.equal(rows[SIDE], side))
            hidden = (*self.spec.codes(side), *self.spec.checks(side))
            carried = [name for name in own.column_names if name.startswith(f"{side}_")]
            columns = {name.removeprefix(f"{side}_"): own[name] for name in carried}
            columns |= {name: own[name] for name in hidden}
            table = with_time(pa.table(columns), mine.time, self.spec.dtype)
            blobs.append((side, self._wanted(side, table)))
        skipped = rows.num_rows - sum(table.num_rows for _, table in blobs)
        return self.process(PackedBatch(blobs, skipped=skipped))

    def _wanted(self, side: int, table: pa.Table) -> pa.Table:
        """The rows of a batch DataFrame that are not skipped."""
        return table.filter(is_usable(table, self.spec.codes(side)))

    def _feed(self, columns: tuple[np.ndarray, ...], watermark: int, collect: bool) -> Any:
        """Process arrivals; what expires by the watermark has left before."""
        self._follow_watermark(watermark)
        return self.state.process(*columns, **self._condition.argument, collect=collect, log=True)

    def adapt(self) -> bool:
        """Continue under the spec's budget and policy, if those of the state differ; return whether they did.

        The buffered tuples enter a fresh state in order of arrival; a smaller budget evicts some, and scores
        start afresh. The streams' progress and the sketch are kept.
        """
        old, fresh = self.state, self.spec.start()
        if old.config == fresh.config:
            return False
        if fresh.config.policy.weighs_results:
            raise PenstockError(
                f"A query with policy={fresh.config.policy.name!r} continues only under the same policy, "
                "budget, seed and options: the rows in its state were not drawn for others, so their results "
                "would have wrong weights. Give the old ones, or start with a new checkpoint."
            )
        log, times = self._take_over(old, fresh)
        self.state = fresh
        self._unreported += self._archive(log, 0, times)
        self._uncounted = [sum(pair) for pair in zip(self._evicted(log), self._uncounted, strict=True)]
        self._tidy()
        return True

    def _take_over(self, old: Any, fresh: Any) -> tuple[np.ndarray, np.ndarray]:
        """Let the buffered tuples enter a fresh state; the log of the evictions, and the tuples' times."""
        sizes = None
        if fresh.config.payload is not None:
            sizes = [
                row_bytes(payload_table.table) if payload_table.rows else np.empty(0, np.int64)
                for payload_table in self.payload_tables
            ]
        log, times = fresh.take_over(old, sizes)
        return log, times

    @staticmethod
    def _restored(data: bytes) -> Any:
        """A state from its snapshot."""
        state = StreamState.restore(data)
        state.warns = False  # workers do not: `crowded` is among the figures
        return state

    def _estimate(self) -> dict[str, float]:
        """What the estimate of recall is made of, so far."""
        return {name: getattr(self.state, name) for name in ESTIMATE}

    def _crowded(self) -> bool:
        """Whether a sample that should be unbiased is not."""
        return self.state.crowded

    def _drop_behind(self, side: int, table: pa.Table) -> None:
        """Count rows that a watermark drops, and what they would have had."""
        self.figures.behind_watermark += table.num_rows
        self.state.miss(np.full(table.num_rows, side), self._keys(side, table), table[TIME].to_numpy())

    @property
    def _sized(self) -> bool:
        """Whether the budget counts the bytes of rows."""
        return self.state.config.payload is not None

    def _keys(self, side: int, table: pa.Table | None) -> np.ndarray:
        """The numbers by which the keys of rows are known; of no rows if there is no table."""
        return np.empty(0, np.int64) if table is None else table[KEY].to_numpy()

    def _take_in(self, side: int, table: pa.Table | None) -> tuple[np.ndarray, ...]:
        """Put the rows of a side into its payload_table; their keys, times, row numbers and sizes."""
        if table is None:
            return (
                self._keys(side, None),
                np.empty(0, self.spec.dtype),
                np.empty(0, np.int64),
                np.empty(0, np.int64),
            )
        if self.spec.sides[side].watermark and self.watermark >= 0:
            fresh = pc.greater(table[TIME], pa.scalar(self.watermark * 1_000, table[TIME].type))
            if pc.all(fresh).as_py() is False:  # None if there are no rows
                self._drop_behind(side, table.filter(pc.invert(fresh)))
                table = table.filter(fresh)
        key, time = self._keys(side, table), table[TIME].to_numpy()
        table = table.drop_columns([*self.spec.codes(side), TIME])
        texts = None
        if self.spec.conditional:
            table, texts = self._condition.take(side, table, self.state.config.where)
        size = row_bytes(table) if self._sized else np.zeros(len(key), np.int64)
        if self._sized and texts is not None:
            size = size + row_bytes(texts)
        first = self.payload_tables[side].append(table)
        return key, time, np.arange(first, first + len(key)), size

    def _follow_watermark(self, watermark: int) -> None:
        if watermark >= 0:
            micro = min(watermark * 1_000, FARTHEST - 1)  # rows beyond are skipped, but Spark follows them
            self.state.advance(*(micro if side.watermark else None for side in self.spec.sides))
            self.watermark = watermark

    def _follow_others(self, latest: dict[int, float], clock: Any) -> bool:
        """Let the streams advance as far as they have come in any bucket; whether they may have."""
        reached: list[Any] = [None] * len(self.spec.sides)
        for side, mine in enumerate(self.spec.sides):
            if side in latest and not mine.watermark:
                time = int(latest[side]) if self.spec.dtype == "int64" else latest[side]
                reached[side] = max(time - clock.behind[side].item(), clock.progress[side].item())
        if all(time is None for time in reached):
            return False
        self.state.advance(*reached)
        return True

    def _results(self, out: Any, tables: tuple[Any, ...]) -> Iterator[pa.Table]:
        """The results as tables; `tables` has the rows of each stream."""
        pairs = out.pairs
        for start in range(0, len(pairs), CHUNK):
            part = pairs[start : start + CHUNK]
            left = tables[LEFT].take(pa.array(part[:, LEFT]))
            right = tables[RIGHT].take(pa.array(part[:, RIGHT]))
            weights = self._weights(out, start, start + len(part)) if self.spec.weighs else None
            if self.spec.hashed:
                same = pc.equal(left[CHECK], right[CHECK])
                if not pc.all(same).as_py():
                    left, right = left.filter(same), right.filter(same)
                    weights = None if weights is None else weights.filter(same)
            results = self._joined(left, right)
            if weights is not None:
                for name in weights.column_names:
                    results = results.append_column(name, weights[name])
            yield results

    def _weights(self, out: Any, start: int, stop: int) -> pa.Table:
        """The number of exact results that each result stands for, and which of its rows was kept."""
        t = out.t[start:stop]
        sampled = out.kept[start:stop].astype(np.int64) + (self.spec.number << DRAWS)
        return pa.table({WEIGHT: 1.0 / t, SMALLEST: t, SAMPLED: sampled})

    def _joined(self, left: pa.Table, right: pa.Table) -> pa.Table:
        """Key columns once, then left, then right; the later of the two times if it is wanted."""
        spec = self.spec
        columns = [left[name] for name in spec.left.keys]
        columns += [left[name] for name in spec.left.columns]
        columns += [right[name] for name in spec.right.columns]
        names = [*spec.keys, *spec.left.names, *spec.right.names]
        if spec.event_time is not None:
            columns.append(latest([left[spec.left.time], right[spec.right.time]], self.watermark))
            names.append(spec.event_time)
        return pa.table(columns, names=names)

    def _archive(self, log: np.ndarray, first: int, times: np.ndarray) -> list[pa.Table]:
        """Return the rows that were evicted, dropped or late, each with the time when it happened."""
        if self.spec.emit != "all":
            return []
        tables = []
        for side in range(len(self.spec.sides)):
            told = log[(log[:, 1] == side) & np.isin(log[:, 0], list(EVENTS))]
            told = self._standing(told)
            if len(told) == 0:
                continue
            rows = self.payload_tables[side].take(told[:, 2])
            when = self._latest_time(len(told))
            if len(times):
                when = times[np.clip(told[:, 3] - first, 0, len(times) - 1)]
            tables.append(self._lost(side, rows, [EVENTS[kind] for kind in told[:, 0].tolist()], when))
        return tables

    def _standing(self, log: np.ndarray) -> np.ndarray:
        """The entries of one stream that the archive has."""
        return log

    def _lost(self, side: int, rows: pa.Table, events: list[str], when: np.ndarray) -> pa.Table:
        """Return rows of a side as the archive has them."""
        mine = self.spec.sides[side]
        columns = dict(zip(self.spec.keys, (rows[key] for key in mine.keys), strict=True))
        columns |= dict(zip(mine.names, (rows[name] for name in mine.columns), strict=True))
        columns[EVENT] = pa.array(events)
        columns[STREAM] = pa.array([self.spec.streams[side]] * len(events))
        columns[AT] = pa.array(when).cast(_told_as(rows.schema.field(mine.time).type))
        return pa.table(columns)

    def _latest_time(self, count: int) -> np.ndarray:
        """The time of events in a batch without rows: how far the streams have come."""
        progress = self._progress().max()
        return np.full(count, progress if progress > -FARTHEST else 0)

    def _progress(self) -> np.ndarray:
        """How far each stream has come."""
        return self.state.flow.progress

    def _count(self, before: dict[str, Any], log: np.ndarray) -> None:
        figures, after = self.figures, self.state.totals()
        for name in TOTALS:
            setattr(figures, name, getattr(figures, name) + after.get(name, 0) - before.get(name, 0))
        for name, total in self._estimate().items():
            known = total is not None and before[name] is not None
            setattr(figures, name, total - before[name] if known else None)
        figures.crowded = int(self._crowded())
        evicted = [sum(pair) for pair in zip(self._evicted(log), self._uncounted, strict=True)]
        figures.evicted = dict(zip(self.spec.streams, evicted, strict=True))
        self._uncounted = [0] * len(evicted)

    def _evicted(self, log: np.ndarray) -> list[int]:
        """How many tuples of each side a log says were evicted."""
        sides = log[log[:, 0] == LOG_EVICTED, 1]
        return np.bincount(sides, minlength=len(self.spec.sides)).tolist()

    def _tidy(self) -> None:
        """Drop the rows of tuples that have left, once they exceed a fifth or the budget is full."""
        for side, payload_table in enumerate(self.payload_tables):
            rows = self.state.rows(side)
            self.figures.buffered[self.spec.streams[side]] = len(rows)
            if payload_table.rows > SLACK * len(rows):
                self.state.rename_rows(side, payload_table.keep(rows))
        size = self._bytes()
        if size > self.spec.most_bytes:
            for side, payload_table in enumerate(self.payload_tables):
                self.state.rename_rows(side, payload_table.keep(self.state.rows(side)))
            size = self._bytes()
        self.figures.peak_bytes = size
        self.figures.budget_rows, self.figures.budget_bytes = self.spec.share

    def _bytes(self) -> int:
        kept = sum(payload_table.nbytes for payload_table in self.payload_tables)
        kept += self.state.value_bytes if self.spec.conditional else 0
        return self.state.table_bytes + self.state.peak_beyond + kept

    def snapshot(self) -> bytes:
        """All of it, for a snapshot."""
        return b"".join(self.snapshot_parts())

    def snapshot_parts(self) -> list[Buffer]:
        """The same in parts. Rows are compressed on their way, without a copy of all of them."""
        sink, sizes = pa.BufferOutputStream(), []
        with pa.CompressedOutputStream(sink, "zstd") as compressed:
            for each in self.payload_tables:
                before = compressed.tell()
                if each.table is not None:
                    write_blob(compressed, each.table)
                sizes.append(compressed.tell() - before)
        state = self.state.snapshot()
        head = struct.pack(f"<{1 + len(sizes)}Q", len(state), *sizes)
        packed = memoryview(sink.getvalue()) if any(sizes) else b""
        return [head, struct.pack("<q", self.watermark), state, packed]

    @classmethod
    def restore(cls, spec: Any, data: bytes) -> Self:
        """The inverse of `snapshot`; rejects anything but a bucket."""
        try:
            length, *sizes = struct.unpack_from(f"<{1 + len(spec.sides)}Q", data)
            at = 8 * (1 + len(sizes))
            (watermark,) = struct.unpack_from("<q", data, at)
            at += 8
            bucket = cls(spec, cls._restored(data[at : at + length]))
            at += length
            whole = b""
            if any(sizes):
                whole = pa.decompress(data[at:], decompressed_size=sum(sizes), codec="zstd", asbytes=True)
        except SnapshotError:
            raise
        except Exception as error:
            raise SnapshotError(f"The state of a bucket cannot be read: {error}") from error
        bucket.watermark = watermark
        ends = np.cumsum([0, *sizes])
        parts = [whole[first:last] for first, last in pairwise(ends.tolist())]
        bucket.payload_tables = [PayloadTable(from_blob(part) if part else None) for part in parts]
        return bucket


def latest(times: list[pa.ChunkedArray], watermark: int) -> pa.ChunkedArray:
    """The latest of several times each, and after the watermark, where Spark let a row in that is not."""
    least = pa.scalar((max(watermark, -1) + 1) * 1_000, pa.int64())
    numbers = pc.max_element_wise(*(time.cast(pa.int64()) for time in times), least)
    return numbers.cast(times[0].type)


def _told_as(kind: pa.DataType) -> pa.DataType:
    """The type in which the time of an event is told: that of the column, dates as timestamps."""
    if pa.types.is_date(kind):
        return pa.timestamp("us")
    return kind if pa.types.is_timestamp(kind) else pa.float64()
