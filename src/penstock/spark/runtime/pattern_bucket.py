"""Run a pattern in one bucket: order events, match them, and fill matches with their columns."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.patterns import Pattern, PatternState
from penstock.patterns.batch import width_of
from penstock.patterns.options import PatternOptions
from penstock.spark.runtime.figures import Figures
from penstock.spark.runtime.keyed_streams import KeyedStreams
from penstock.spark.runtime.operator import Spec, fixed_types
from penstock.spark.runtime.packer import EventPacking, PackedBatch, Packing, as_numbers
from penstock.spark.runtime.pattern_partitions import Partitions
from penstock.spark.runtime.time_order import TimeOrderedBucket


@dataclass
class PatternFigures(Figures):
    """What a bucket did in a batch."""

    LAST = ("held",)

    events: int = 0
    late: int = 0  # behind the lateness: dropped
    skipped: int = 0  # without a time
    matches: int = 0
    held: int = 0


class PatternBucket(TimeOrderedBucket):
    """The streams of a bucket, and the events that wait until none before them can come."""

    def __init__(self, spec: PatternSpec) -> None:
        super().__init__(spec)
        together = spec.keys and spec.strategy == "columnar"
        self.partitions = Partitions(spec) if together else KeyedStreams(spec)

    def process(self, batch: PackedBatch, quiet: bool = False) -> list[pa.Table]:
        """The matches that a batch completes, also in a replay."""
        events = batch.table()
        assert events is not None, "every bucket gets the columns"
        self.figures = PatternFigures(events=events.num_rows)
        timed = pc.is_valid(as_numbers(events[self.spec.time], self.spec.dtype))
        usable = events.filter(timed)
        self.figures.skipped = events.num_rows - usable.num_rows
        latest = batch.latest
        if latest is not None and self.spec.dtype == "int64":
            latest = int(latest)
        due = self.release(usable, latest)
        return [] if due is None else self._matched(self.sorted(due.rows, due.times), due.progress)

    def relevant(self, rows: pa.Table) -> pa.Table:
        """Events of the types of the pattern; in a window of events all count."""
        kind = rows.schema.field(self.spec.type).type
        texts = pa.types.is_string(kind) or pa.types.is_large_string(kind)
        if self.spec.pattern.within.events or not texts:
            return rows
        wanted = pc.is_in(rows[self.spec.type], self.spec.types.cast(kind))
        return rows if pc.all(wanted).as_py() else rows.filter(wanted)

    def sorted(self, events: pa.Table, numbers: np.ndarray) -> pa.Table:
        """Events in the order of time, then of the columns that decide between ties."""
        if len(numbers) < 2:
            return events
        order = np.arange(len(numbers))
        if bool((numbers[1:] < numbers[:-1]).any()):
            order = np.argsort(numbers, kind="stable")
            numbers = numbers[order]
        # To compare columns costs more than all the rest, so only events that have company are compared.
        same = np.append(numbers[1:] == numbers[:-1], False)
        tied = np.flatnonzero(same | np.append(False, same[:-1]))
        if len(tied):
            ties = [
                name for name in self.spec.order if not pa.types.is_nested(events.schema.field(name).type)
            ]
            part = events.select(ties).take(pa.array(order[tied]))
            groups = np.cumsum(np.append(True, numbers[tied][1:] != numbers[tied][:-1]))
            keys = pa.table([pa.array(groups), *part.columns], names=["group", *map(str, range(len(ties)))])
            within = pc.sort_indices(keys, [(name, "ascending") for name in keys.column_names])
            order[tied] = order[tied][within.to_numpy()]
        return events.take(pa.array(order))

    def _matched(self, events: pa.Table, progress: Any) -> list[pa.Table]:
        found = self.partitions.process(events, progress)
        self.figures.held = self.partitions.held
        self.figures.matches = sum(table.num_rows for table in found)
        return found

    def process_sorted(self, rows: pa.Table) -> list[pa.Table]:
        """Events of a stream that is sorted already, for batch DataFrames."""
        self.figures = PatternFigures(events=rows.num_rows)
        times = as_numbers(rows[self.spec.time], self.spec.dtype)
        latest = pc.max(times).as_py()  # none before it is to come
        return self._matched(self.relevant(rows.filter(pc.is_valid(times))), latest)

    def finish(self) -> list[pa.Table]:
        """The end of all streams."""
        found = self.partitions.finish()
        self.figures = PatternFigures(matches=sum(table.num_rows for table in found))
        return found

    def dump(self) -> dict[str, Any]:
        """The events of all streams."""
        return {"streams": self.partitions.dump()}

    def load(self, content: dict[str, Any]) -> None:
        """The inverse of `dump`."""
        self.partitions.load(content["streams"])


@dataclass(frozen=True)
class PatternSpec(Spec):
    """A pattern as every bucket runs it."""

    kind = PatternBucket

    pattern: Pattern
    type: str
    time: str
    dtype: str  # of the times as numbers
    unit: str
    lateness: float
    order: tuple[str, ...]  # columns that decide between events of one time
    keys: tuple[str, ...]  # of which every value is a stream of its own
    strategy: str
    budget: Any = None
    policy: str | None = None
    max_events: int | None = None
    buckets: int = 1
    column_types: tuple[tuple[str, str], ...] = ()

    @property
    def types(self) -> pa.Array:
        """The types of events that the pattern names."""
        return pa.array(sorted({slot.type for slot in self.pattern.analysis.slots}))

    @cached_property
    def plain(self) -> Pattern:
        """The pattern without RETURN: matches come as row numbers of all variables."""
        return Pattern(self.pattern.expression, self.pattern.within)

    @cached_property
    def width(self) -> int | float:
        """The window on the scale of the times as numbers."""
        return width_of(self.pattern.within, self.unit, np.empty(0, self.dtype))

    @cached_property
    def options(self) -> PatternOptions:
        """How the pattern is run."""
        return PatternOptions(
            type=self.type,
            time=self.time,
            strategy=self.strategy,
            unit=self.unit,
            max_events=self.max_events,
            budget=self.budget,
            policy=self.policy,
        )

    def times(self, events: pa.Table) -> np.ndarray:
        """The times of events that have one, as numbers."""
        numbers: np.ndarray = as_numbers(events[self.time], self.dtype).to_numpy()
        return numbers

    def start(self) -> PatternState:
        """A fresh state. There may be one per key, so what they have in common is made once."""
        return PatternState(self.plain, self.options)

    def fixed(self) -> dict[str, str]:
        """What may not change when a query is restarted from its checkpoint, in words."""
        return {
            "the pattern": str(self.pattern),
            "the columns of type and time": str((self.type, self.time, self.unit, self.dtype)),
            "the partitioning": str(self.keys),
            "the strategy": self.strategy,
            "the number of buckets": str(self.buckets),
        } | fixed_types(["event"], [self.column_types])

    def figures(self) -> PatternFigures:
        """The figures of a bucket."""
        return PatternFigures()

    def packings(self, labels: tuple[int, ...]) -> list[Packing]:
        """One: a pattern has one input."""
        return [EventPacking(labels, time=self.time, dtype=self.dtype)]
