"""Run a pattern in one bucket: order events, match them, and fill matches with their columns.

It is driven by the streaming operator and by the batch one alike, and knows of Spark no more than that rows
come as Arrow tables.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import SnapshotError
from penstock.patterns import snapshot
from penstock.spark.runtime.join_bucket import Batch
from penstock.spark.runtime.keyed_streams import KeyedStreams
from penstock.spark.runtime.packer import as_numbers, from_blob, to_blob
from penstock.spark.runtime.pattern_partitions import Partitions
from penstock.spark.runtime.pattern_stream import MatchSpec
from penstock.spark.runtime.payload_table import appended


@dataclass
class Figures:
    """What a bucket did in a batch."""

    events: int = 0
    late: int = 0  # behind the lateness: dropped
    skipped: int = 0  # without a time
    matches: int = 0
    held: int = 0
    state_read: int = 0  # bytes
    state_written: int = 0
    replayed: int = 0  # batches


class Matcher:
    """The streams of a bucket, and the events that wait until none before them can come."""

    def __init__(self, spec: MatchSpec) -> None:
        self.spec = spec
        together = spec.keys and spec.strategy == "columnar"
        self.partitions = Partitions(spec) if together else KeyedStreams(spec)
        self.waiting: pa.Table | None = None
        self.latest: Any = None  # the largest time seen
        self.released: Any = None  # events up to here are in the streams
        self.figures = Figures()

    def process(self, batch: Batch, quiet: bool = False) -> list[pa.Table]:
        """The matches that a batch completes; `quiet` is for a replay, of which they are known."""
        spec = self.spec
        tables = [from_blob(blob) for _, blob in batch.blobs]
        events = pa.concat_tables(tables)
        self.figures = Figures(events=events.num_rows)
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

    def ordered(self, events: pa.Table) -> list[pa.Table]:
        """Events of a stream that is sorted already, for batch DataFrames."""
        times = as_numbers(events[self.spec.time], self.spec.dtype)
        latest = pc.max(times).as_py()  # none before it is to come
        return self._matched(self._relevant(events.filter(pc.is_valid(times))), latest)

    def finish(self) -> list[pa.Table]:
        """The end of all streams."""
        return self.partitions.finish()

    def adapt(self) -> bool:
        """There is nothing to adapt: caches are filled anew, within whatever budget."""
        return False

    def to_bytes(self) -> bytes:
        """The state of the bucket, for a snapshot."""
        content = {
            "streams": self.partitions.dump(),
            "waiting": None if self.waiting is None else to_blob(self.waiting),
            "latest": self.latest,
            "released": self.released,
        }
        return snapshot.pack(content)

    @classmethod
    def from_bytes(cls, spec: MatchSpec, data: bytes) -> Matcher:
        """The counterpart; refuses what is not the state of a bucket."""
        content = snapshot.unpack(data)
        matcher = cls(spec)
        try:
            matcher.partitions.load(content["streams"])
            matcher.waiting = None if content["waiting"] is None else from_blob(content["waiting"])
            matcher.latest, matcher.released = content["latest"], content["released"]
        except (KeyError, TypeError, AttributeError, pa.ArrowException) as error:
            raise SnapshotError(f"The state of a bucket cannot be read: {error!r}") from error
        return matcher
