"""A bucket of an outer, semi or anti join, or of a join with one match per row.

Rows come out without a partner: when time has passed them, or at once if they have no key or no usable time.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.engine.join_loop import LOG_UNDECIDED
from penstock.joins.state import Output
from penstock.spark.runtime.join_bucket import CHUNK, LEFT, RIGHT, JoinBucket, latest
from penstock.spark.runtime.packer import CHECK, TIME, PackedBatch, is_usable


class OuterBucket(JoinBucket):
    """A bucket whose rows may come out alone."""

    def __init__(self, spec: Any, state: Any = None) -> None:
        super().__init__(spec, state)
        self._alone: list[tuple[int, pa.Table]] = []  # rows of this batch without a key or a time
        self._latest_of: dict[int, float] = {}  # how far each stream has come in any bucket
        self._newly_undecided = 0  # when the bucket adapted, reported with the next batch

    def process(self, batch: PackedBatch, quiet: bool = False) -> Iterator[pa.Table]:
        """Run a batch; rows without a key come out at once."""
        self._alone = []
        unreported, self._latest_of = self._unreported, batch.latest_of
        rows = super().process(batch, quiet)
        self.figures.undecided += self._newly_undecided
        self._newly_undecided = 0
        alone, self._alone = self._alone, []
        if quiet:  # what this batch has lost is told already
            self._unreported = unreported
            return rows
        return chain((self._single(side, table) for side, table in alone), rows)

    def finish(self) -> Iterator[pa.Table]:
        """Decide all that is still buffered."""
        self.figures = self.spec.figures()
        before = self.state.totals() | self._estimate()
        out = self.state.finish(collect=True, log=True)
        self._count(before, out.log)
        lost = self._archive(out.log, 0, np.empty(0, self.spec.dtype))
        tables = tuple(each.table for each in self.payload_tables)
        results = self._results(out, tables)
        self._tidy()
        return chain(results, lost)

    def adapt(self) -> bool:
        """Continue under another budget or policy; those who do not fit in may be undecided."""
        before = self.state.undecided
        adapted = super().adapt()
        self._newly_undecided += self.state.undecided - before
        return adapted

    def _feed(self, columns: tuple[np.ndarray, ...], watermark: int, collect: bool) -> Any:
        """Process arrivals, then what expires.

        As in Spark, rows behind the watermark of the batch before are late, those behind this one's are not.
        """
        out = self.state.process(*columns, **self._condition.argument, collect=collect, log=True)
        self._follow_watermark(watermark)
        if not self._follow_others(self._latest_of, self.state.flow) and watermark < 0:
            return out
        rest = self.state.process(*(column[:0] for column in columns), collect=collect, log=True)
        return self._both(out, rest)

    def _both(self, out: Any, rest: Any) -> Any:
        """The output of two calls as one."""
        parts = zip(_parts(out), _parts(rest), strict=True)
        return Output(*(np.concatenate(both) for both in parts))

    def _wanted(self, side: int, table: pa.Table) -> pa.Table:
        """The rows of a batch DataFrame that are processed: all of a preserved side."""
        return table if self.spec.preserves(side) else super()._wanted(side, table)

    def _standing(self, log: np.ndarray) -> np.ndarray:
        """A row that was evicted or dropped is undecided for that reason, and told once."""
        doubtful = log[:, 0] == LOG_UNDECIDED
        return log[~(doubtful & np.isin(log[:, 2], log[~doubtful, 2]))]

    def _take_in(self, side: int, table: pa.Table | None) -> tuple[np.ndarray, ...]:
        """Put aside the rows that cannot match."""
        if table is not None and self.spec.preserves(side):
            usable = is_usable(table, self.spec.codes(side))
            if pc.all(usable).as_py() is False:
                alone = table.filter(pc.invert(usable))
                if self.spec.sides[side].watermark and self.watermark >= 0:
                    fresh = pc.greater(alone[TIME], pa.scalar(self.watermark * 1_000, alone[TIME].type))
                    alone = alone.filter(pc.fill_null(fresh, True))
                self._alone.append((side, alone))
                self.figures.skipped += alone.num_rows
                self.figures.unmatched += alone.num_rows
                table = table.filter(usable)
        return super()._take_in(side, table)

    def _drop_behind(self, side: int, table: pa.Table) -> None:
        """Archive rows that a watermark drops: they are no rows of the exact join."""
        super()._drop_behind(side, table)
        if self.spec.emit == "all" and table.num_rows:
            times = table[TIME].to_numpy()
            late = self._lost(side, table, ["late"] * table.num_rows, times)
            self._unreported = [*self._unreported, late]

    def _single(self, side: int, rows: pa.Table) -> pa.Table:
        """Rows of one side that come out alone."""
        return self._row(rows, None) if side == LEFT else self._row(None, rows)

    def _results(self, out: Any, tables: tuple[Any, ...]) -> Iterator[pa.Table]:
        """The results as tables."""
        for start in range(0, len(out.pairs), CHUNK):
            part = out.pairs[start : start + CHUNK]
            halves = [_taken(tables[side], part[:, side]) for side in (LEFT, RIGHT)]
            left, right = halves
            if self.spec.hashed and left is not None and right is not None:
                same = pc.fill_null(pc.equal(left[CHECK], right[CHECK]), True)
                if not pc.all(same).as_py():
                    left, right = left.filter(same), right.filter(same)
            yield self._row(left, right)

    def _row(self, left: pa.Table | None, right: pa.Table | None) -> pa.Table:
        """Key columns once, then left, then right; what a row lacks is null."""
        spec, columns = self.spec, {}
        how = spec.join.how
        for name, mine, theirs in zip(spec.keys, spec.left.keys, spec.right.keys, strict=True):
            if how == "right":
                columns[name] = None if right is None else right[theirs]
            elif how == "full":
                there = [half[key] for half, key in ((left, mine), (right, theirs)) if half is not None]
                columns[name] = pc.coalesce(*there) if len(there) > 1 else there[0]
            else:
                columns[name] = None if left is None else left[mine]
        times = []
        halves = [(left, spec.left), (right, spec.right)]
        for half, side in halves[:1] if how in ("left_semi", "left_anti") else halves:
            if half is not None:
                columns |= dict(zip(side.names, (half[name] for name in side.columns), strict=True))
                times.append(half[side.time])
        if spec.event_time is not None:
            columns[spec.event_time] = latest(times, self.watermark)
        return pa.table({name: column for name, column in columns.items() if column is not None})


def _parts(out: Output) -> tuple[np.ndarray, ...]:
    return out.counts, out.pairs, out.log, out.unmatched


def _taken(table: pa.Table | None, rows: np.ndarray) -> pa.Table | None:
    """Rows of a stream, null where there is none; None if there are none at all."""
    if table is None or not (rows >= 0).any():
        return None
    return table.take(pa.array(rows, mask=rows < 0))
