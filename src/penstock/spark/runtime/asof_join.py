"""An as-of join on Spark: its spec, and the bucket that runs it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.budget import Bytes, Tuples
from penstock.engine.asof_index import ENDED
from penstock.engine.store import STEPS
from penstock.joins.asof import AsofJoin
from penstock.joins.asof_state import AsofState
from penstock.payload import row_bytes
from penstock.spark.runtime.figures import SIDES
from penstock.spark.runtime.join_bucket import CHUNK, LEFT, RIGHT, JoinBucket, latest
from penstock.spark.runtime.join_spec import LEFT_OVER, JoinSide, StreamsSpec
from penstock.spark.runtime.operator import fixed_types, seed_of
from penstock.spark.runtime.packer import CHECK, KEY, TIME, AsofPacking, PackedBatch, Packing, is_usable

Parts = list[tuple[np.ndarray, ...]]


class AsofBucket(JoinBucket):
    """The state of one bucket of an as-of join, and the rows it keeps."""

    _undecided_before = 0  # rows that became undecided when the bucket adapted, reported with the next batch

    def process(self, batch: PackedBatch, quiet: bool = False) -> Iterator[pa.Table]:
        """Run a batch; return the answers, and with `emit="all"` the rows that have none or were evicted."""
        figures = self.figures = self.spec.figures()
        figures.skipped = batch.skipped
        before = self.state.totals()
        if self.spec.streaming:
            self._follow_watermark(batch.watermark)
        keyless: list[pa.Table] = []
        parts = [self._take_in_all(side, batch, keyless) for side in range(2)]
        counts = [len(part[0]) for part in parts]
        stream = np.repeat(np.arange(2, dtype=np.int8), counts)
        key, time, row, size = (np.concatenate([part[i] for part in parts]) for i in range(4))
        order = np.lexsort((-stream if self.spec.right_first else stream, time))
        first = int(self.state.store.meta[STEPS])
        sized = (size[order],) if self._sized else ()
        outputs = [
            self.state.process(
                stream[order], key[order], time[order], row[order], *sized, collect=not quiet, log=True
            )
        ]
        if self.spec.streaming and self._follow_others(batch.latest_of, self.state.index):
            nothing = (np.empty(0, part.dtype) for part in (stream, key, time, row))
            outputs.append(self.state.process(*nothing, collect=not quiet, log=True))
        log = np.concatenate([out.log for out in outputs])
        self._count(before, log)
        unmatched = sum(table.num_rows for table in keyless)
        figures.arrived = {SIDES[LEFT]: counts[LEFT] + unmatched, SIDES[RIGHT]: counts[RIGHT]}
        figures.unmatched += unmatched
        if quiet:
            self._tidy()
            return iter(())
        return self._told(outputs, log, first, time[order], keyless)

    def finish(self) -> Iterator[pa.Table]:
        """Answer the left rows of a batch DataFrame that wait for a later right row."""
        self.figures = self.spec.figures()
        before, first = self.state.totals(), int(self.state.store.meta[STEPS])
        out = self.state.finish(collect=True, log=True)
        self._count(before, out.log)
        told = self._told([out], out.log, first, np.empty(0, self.spec.dtype), [])
        return chain(told, [pa.table({})])  # figures of a bucket without output count, too

    def _progress(self) -> np.ndarray:
        return self.state.index.progress

    def _wanted(self, side: int, table: pa.Table) -> pa.Table:
        return table if side == LEFT else super()._wanted(side, table)

    def adapt(self) -> bool:
        """As that of joins; left rows that there is no room for any more are undecided."""
        before = self.state.undecided
        changed = super().adapt()
        self._undecided_before += self.state.undecided - before
        return changed

    def _told(
        self, outputs: list[Any], log: np.ndarray, first: int, times: np.ndarray, keyless: list[pa.Table]
    ) -> Iterator[pa.Table]:
        """The answers as tables, then the archive."""
        archive, self._unreported = self._unreported, []
        if len(times) == 0 and len(log):  # nobody came: it happened when the right stream got this far
            progress = self._progress()
            times = np.array(
                [progress.min() if self.state.index.meta[ENDED] else progress.max()], progress.dtype
            )
        archive += self._archive(log, first, times)
        tables = tuple(each.table for each in self.payload_tables)  # as they are now: tidying renumbers
        results = chain(*(self._results(out, tables) for out in outputs if len(out.pairs)))
        lonely = [self._joined(table, None) for table in keyless if table.num_rows]
        self._tidy()
        return chain(results, lonely, archive)

    def _take_in_all(self, side: int, batch: PackedBatch, keyless: list[pa.Table]) -> tuple[np.ndarray, ...]:
        """Put the rows of a side into its table; left rows without a key or a time go to `keyless`."""
        table = batch.table(side)
        if table is None:
            table = pa.table({})
        if table.num_rows and side == LEFT:
            usable = is_usable(table, self.spec.codes(side))
            if not pc.all(usable).as_py():
                keyless.append(table.filter(pc.invert(usable)))
                table = table.filter(usable)
        if table.num_rows == 0:
            numbers = np.empty(0, np.int64)
            return numbers, np.empty(0, self.spec.dtype), numbers, numbers
        key, time = table[KEY].to_numpy(), table[TIME].to_numpy()
        table = table.drop_columns([KEY, TIME])
        size = row_bytes(table) if self._sized else np.zeros(len(key), np.int64)
        first = self.payload_tables[side].append(table)
        return key, time, np.arange(first, first + len(key)), size

    @staticmethod
    def _restored(data: bytes) -> Any:
        return AsofState.restore(data)

    def _estimate(self) -> dict[str, float]:
        """Nothing is estimated: what is undecided is counted."""
        return {}

    def _crowded(self) -> bool:
        return False

    def _count(self, before: dict[str, Any], log: np.ndarray) -> None:
        super()._count(before, log)
        after = self.state.totals()
        self.figures.unmatched = after["unmatched"] - before["unmatched"]
        self.figures.undecided = after["undecided"] - before["undecided"] + self._undecided_before
        self._undecided_before = 0
        self.figures.missed = float(self.figures.undecided)

    def _results(self, out: Any, tables: tuple[Any, ...]) -> Iterator[pa.Table]:
        """The answers as tables; the columns of the right row are null where there is none."""
        for start in range(0, len(out.pairs), CHUNK):
            part = out.pairs[start : start + CHUNK]
            left, right = tables[LEFT].take(pa.array(part[:, LEFT])), None
            if tables[RIGHT] is not None:
                right = tables[RIGHT].take(pa.array(part[:, RIGHT], mask=part[:, RIGHT] < 0))
                if self.spec.hashed:
                    # Two keys with one hash: whose right rows these are is not known.
                    same = pc.fill_null(pc.equal(left[CHECK], right[CHECK]), True)
                    if not pc.all(same).as_py():
                        left, right = left.filter(same), right.filter(same)
            yield self._joined(left, right)

    def _joined(self, left: pa.Table, right: pa.Table | None) -> pa.Table:
        if right is None:
            right = pa.table({})
        spec = self.spec
        columns = [left[name] for name in (*spec.left.keys, *spec.left.columns)]
        names = [*spec.keys, *spec.left.names]
        if right.num_columns:
            columns += [right[name] for name in spec.right.columns]
            names += spec.right.names
        if spec.event_time is not None:
            columns.append(self._event_time(left))
            names.append(spec.event_time)
        return pa.table(columns, names=names)

    def _event_time(self, left: pa.Table) -> pa.ChunkedArray:
        """The time of the left row, or after the watermark where it waited for that."""
        return latest([left[self.spec.left.time]], self.watermark)


@dataclass(frozen=True)
class AsofSpec(StreamsSpec):
    """An as-of join as every bucket runs it."""

    kind = AsofBucket

    join: AsofJoin  # with the share of one bucket as its budget
    left: JoinSide
    right: JoinSide
    streaming: bool
    right_first: bool  # at equal times
    buckets: int
    unit: str  # of the times
    dtype: str  # of the times: "int64" or "float64"
    hashed: bool  # keys are known by a hash, so that a second one must agree
    lateness: Any  # per stream, infinite where Spark tells the progress
    row_bytes: float
    emit: str
    event_time: str | None
    key_types: tuple[str, ...] = ()
    key_words: str = ""
    column_types: tuple[tuple[tuple[str, str], ...], ...] = ()

    @property
    def streams(self) -> tuple[str, ...]:
        """Left and right."""
        return SIDES

    @property
    def sides(self) -> tuple[JoinSide, JoinSide]:
        """Both streams."""
        return self.left, self.right

    @property
    def keys(self) -> tuple[str, ...]:
        """The names of the key columns in the output."""
        return self.left.key_sources

    @property
    def most_bytes(self) -> float:
        """What a bucket may take, rows that have left and wait to be forgotten included."""
        return self.join.budget.n if isinstance(self.join.budget, Bytes) else super().most_bytes

    @property
    def share(self) -> tuple[int, int]:
        """What a bucket may keep, in rows or in bytes."""
        budget = self.join.budget
        return (budget.n if isinstance(budget, Tuples) else 0, budget.n if isinstance(budget, Bytes) else 0)

    def codes(self, side: int) -> tuple[str, ...]:
        """The hidden column with the number by which a key is known."""
        return (KEY,)

    def checks(self, side: int) -> tuple[str, ...]:
        """The hidden column with a second hash of the key, if it is known by one."""
        return (CHECK,) if self.hashed else ()

    def packings(self, labels: tuple[int, ...]) -> list[Packing]:
        """One per stream."""
        return [
            AsofPacking(labels, side, each.time, self.dtype, self.codes(side))
            for side, each in enumerate(self.sides)
        ]

    def of_bucket(self, number: int) -> Self:
        """The same with the seed of one bucket: each draws numbers of its own."""
        join = dataclasses.replace(self.join, seed=seed_of(self.join.seed, number))
        return dataclasses.replace(self, join=join)

    def start(self) -> AsofState:
        """A fresh state for one bucket; of a budget in bytes it leaves some for rows that have left."""
        join = self.join
        if isinstance(join.budget, Bytes):
            join = dataclasses.replace(join, budget=Bytes(join.budget.n - join.budget.n // LEFT_OVER))
        return join.new_state(
            unit=self.unit,
            dtype=np.dtype(self.dtype),
            row_bytes=self.row_bytes,
            lateness=self.lateness if self.streaming else None,
            right_first=self.right_first,
        )

    def fixed(self) -> dict[str, str]:
        """What may not change when a query is restarted from its checkpoint, in words."""
        return {
            "the number of buckets": str(self.buckets),
            "the key": str((self.left.key_sources, self.right.key_sources)) + self.key_words,
            "the time": str((self.left.time_source, self.right.time_source, self.unit, self.dtype)),
            "the tolerance": str(self.join.tolerance),
            "the direction": f"{self.join.direction}, exact matches: {bool(self.join.allow_exact_matches)}",
            "the columns": str((self.left.sources, self.right.sources)),
            "emit": self.emit,
        } | fixed_types(SIDES, self.column_types, self.key_types)
