"""Run a pattern in one bucket: order events, match them, and fill matches with their columns."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import SnapshotError
from penstock.patterns import Pattern, PatternState
from penstock.patterns.batch import width_of
from penstock.patterns.options import Options
from penstock.patterns.snapshot import pack, unpack
from penstock.spark.runtime.figures import Figures
from penstock.spark.runtime.keyed_streams import KeyedStreams
from penstock.spark.runtime.operator import Bucket, Spec, fixed_types
from penstock.spark.runtime.packer import EventPacking, PackedBatch, Packing, as_numbers, from_blob, to_blob
from penstock.spark.runtime.pattern_partitions import Partitions
from penstock.spark.runtime.payload_table import appended


@dataclass
class PatternFigures(Figures):
    """What a bucket did in a batch."""

    LAST = ("held",)

    events: int = 0
    late: int = 0  # behind the lateness: dropped
    skipped: int = 0  # without a time
    matches: int = 0
    held: int = 0


class PatternBucket(Bucket):
    """The streams of a bucket, and the events that wait until none before them can come."""

    def __init__(self, spec: PatternSpec) -> None:
        super().__init__(spec)
        together = spec.keys and spec.strategy == "columnar"
        self.partitions = Partitions(spec) if together else KeyedStreams(spec)
        self.waiting: pa.Table | None = None
        self.latest: Any = None  # the largest time seen
        self.released: Any = None  # events up to here are in the streams

    def process(self, batch: PackedBatch, quiet: bool = False) -> list[pa.Table]:
        """The matches that a batch completes; `quiet` is for a replay, of which they are known."""
        spec = self.spec
        events = batch.table()
        assert events is not None, "every bucket gets the columns"
        self.figures = PatternFigures(events=events.num_rows)
        times = as_numbers(events[spec.time], spec.dtype)
        if times.null_count:
            self.figures.skipped = times.null_count
            events = events.filter(pc.is_valid(times))
            times = times.drop_null()
        numbers = times.to_numpy()
        if self.released is not None and len(numbers) and numbers.min() < self.released:
            fine = numbers >= self.released
            self.figures.late = int(len(fine) - fine.sum())
            events, numbers = events.filter(pa.array(fine)), numbers[fine]
        latest = int(batch.latest) if batch.latest is not None and spec.dtype == "int64" else batch.latest
        seen = [
            t for t in (self.latest, latest, numbers.max().item() if len(numbers) else None) if t is not None
        ]
        if not seen:
            return []
        self.latest = max(seen)
        progress = self.latest - spec.lateness
        if self.released is not None:
            progress = max(progress, self.released)
        events = self._relevant(events)
        if self.waiting is not None:
            events = appended(self.waiting, events)
            self.waiting = None
        numbers = as_numbers(events[spec.time], spec.dtype).to_numpy()
        ready = numbers <= progress
        if not ready.all():
            self.waiting = events.filter(pa.array(~ready)).combine_chunks()
            events, numbers = events.filter(pa.array(ready)), numbers[ready]
        self.released = progress
        return self._matched(self.sorted(events, numbers), progress)

    def _relevant(self, events: pa.Table) -> pa.Table:
        """Events of the types of the pattern; in a window of events all count."""
        kind = events.schema.field(self.spec.type).type
        texts = pa.types.is_string(kind) or pa.types.is_large_string(kind)
        if self.spec.pattern.within.events or not texts:
            return events
        wanted = pc.is_in(events[self.spec.type], self.spec.types.cast(kind))
        return events if pc.all(wanted).as_py() else events.filter(wanted)

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
        return self._matched(self._relevant(rows.filter(pc.is_valid(times))), latest)

    def finish(self) -> list[pa.Table]:
        """The end of all streams."""
        found = self.partitions.finish()
        self.figures = PatternFigures(matches=sum(table.num_rows for table in found))
        return found

    def snapshot(self) -> bytes:
        """The state of the bucket, for a snapshot."""
        content = {
            "streams": self.partitions.dump(),
            "waiting": None if self.waiting is None else to_blob(self.waiting),
            "latest": self.latest,
            "released": self.released,
        }
        return pack(content)

    @classmethod
    def restore(cls, spec: PatternSpec, data: bytes) -> Self:
        """The counterpart; refuses what is not the state of a bucket."""
        content = unpack(data)
        bucket = cls(spec)
        try:
            bucket.partitions.load(content["streams"])
            bucket.waiting = None if content["waiting"] is None else from_blob(content["waiting"])
            bucket.latest, bucket.released = content["latest"], content["released"]
        except (KeyError, TypeError, AttributeError, pa.ArrowException) as error:
            raise SnapshotError(f"The state of a bucket cannot be read: {error!r}") from error
        return bucket


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
    def options(self) -> Options:
        """How the pattern is run."""
        return Options(
            type=self.type,
            time=self.time,
            strategy=self.strategy,
            unit=self.unit,
            max_events=self.max_events,
            budget=self.budget,
            policy=self.policy,
        )

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
