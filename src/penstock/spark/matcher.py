"""A pattern at work in one bucket: events put in order, matched, and matches filled with their columns.

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
from penstock.patterns import Attr, Pattern, PatternState, snapshot
from penstock.spark.arena import appended
from penstock.spark.bucket import Batch
from penstock.spark.pack import as_numbers, from_blob, to_blob
from penstock.spark.spec import fixed_types

START, END = "match_start", "match_end"


@dataclass(frozen=True)
class MatchSpec:
    """A pattern as every bucket runs it."""

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
    policy: str = "lru"
    max_events: int | None = None
    buckets: int = 1
    column_types: tuple[tuple[str, str], ...] = ()

    @property
    def types(self) -> pa.Array:
        """The types of events that the pattern names."""
        return pa.array(sorted({slot.type for slot in self.pattern.analysis.slots}))

    def start(self) -> PatternState:
        """A fresh state; matches come as row numbers of all variables."""
        plain = Pattern(self.pattern.expression, self.pattern.within)
        return plain.start(
            self.type,
            self.time,
            strategy=self.strategy,
            unit=self.unit,
            max_events=self.max_events,
            budget=self.budget,
            policy=self.policy,
        )

    def fixed(self) -> dict[str, str]:
        """What may not change when a query is restarted from its checkpoint, in words."""
        return {
            "the pattern": str(self.pattern),
            "the columns of type and time": str((self.type, self.time, self.unit, self.dtype)),
            "the partitioning": str(self.keys),
            "the strategy": self.strategy,
            "the number of buckets": str(self.buckets),
        } | fixed_types(["event"], [self.column_types])


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


class Stream:
    """One stream of events: the state of the pattern, and the rows that matches may still need."""

    def __init__(self, spec: MatchSpec) -> None:
        self.spec = spec
        self.state = spec.start()
        self.rows = np.empty(0, np.int64)
        self.table: pa.Table | None = None

    def process(self, events: pa.Table, progress: Any) -> pa.Table | None:
        """The matches that events in order complete, and those that the progress settles."""
        parts = []
        if events.num_rows:
            first = self.state.stats.events
            self.rows = np.concatenate([self.rows, first + np.arange(events.num_rows)])
            self.table = appended(self.table, events)
            parts.append(self._filled(self.state.process(events)))
        if progress is not None:
            parts.append(self._filled(self.state.advance(progress)))
        self._forget()
        found = [part for part in parts if part is not None]
        return pa.concat_tables(found) if found else None

    def finish(self) -> pa.Table | None:
        """The end of the stream."""
        return self._filled(self.state.finish())

    def _forget(self) -> None:
        if self.table is None:
            return
        live = np.isin(self.rows, self.state.backend.live_rows)
        if not live.all():
            self.rows, self.table = self.rows[live], self.table.filter(pa.array(live)).combine_chunks()

    def _filled(self, matches: pa.Table) -> pa.Table | None:
        """Row numbers replaced by what RETURN asks for, with the time of the first and the last event."""
        if not matches.num_rows or self.table is None:
            return None
        spec = self.spec
        places = {}
        for name in matches.column_names:
            numbers = matches[name].fill_null(-1).to_numpy()
            at = np.minimum(np.searchsorted(self.rows, numbers), len(self.rows) - 1)
            places[name] = pa.array(at, pa.int64(), mask=numbers < 0)
        out = {}
        items = spec.pattern.returns
        for name, what in [(i.name, i.what) for i in items] or [(v, v) for v in spec.pattern.variables]:
            if isinstance(what, Attr):
                out[name] = self.table[what.name].take(places[what.var])
            else:
                out[name] = _struct(self.table, places[what])
        # Rows stand in stream order, so the first and the last of a match are the smallest and the largest.
        every = np.column_stack([place.fill_null(-1).to_numpy() for place in places.values()])
        last = every.max(axis=1)
        first = np.where(every < 0, last[:, None], every).min(axis=1)
        out[START] = self.table[spec.time].take(pa.array(first))
        out[END] = self.table[spec.time].take(pa.array(last))
        return pa.table(out)

    def dump(self) -> dict[str, Any]:
        """The state as plain values."""
        table = None if self.table is None else to_blob(self.table)
        return {"state": self.state.snapshot(), "rows": self.rows.tobytes(), "table": table}

    @classmethod
    def load(cls, spec: MatchSpec, content: dict[str, Any]) -> Stream:
        """The counterpart."""
        stream = cls(spec)
        stream.state = PatternState.restore(content["state"], stream.state.options)
        stream.rows = np.frombuffer(content["rows"], np.int64)
        stream.table = None if content["table"] is None else from_blob(content["table"])
        return stream


def _struct(table: pa.Table, places: pa.Array) -> pa.Array:
    """Whole events, null where a variable is not bound."""
    taken = table.take(places)
    arrays = [pa.concat_arrays(taken[name].chunks) for name in table.column_names]
    return pa.StructArray.from_arrays(arrays, fields=list(taken.schema), mask=pc.is_null(places))


class Matcher:
    """The streams of a bucket, and the events that wait until none before them can come."""

    def __init__(self, spec: MatchSpec) -> None:
        self.spec = spec
        self.streams: dict[str, Stream] = {}
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
        out = []
        parts = self._split(events)
        for key, part in parts.items():
            stream = self.streams.get(key)
            if stream is None:
                stream = self.streams[key] = Stream(self.spec)
            out.append(stream.process(part, progress))
        for key, stream in self.streams.items():
            if key not in parts:
                out.append(stream.process(events.slice(0, 0), progress))
        self.figures.held = sum(stream.state.backend.held for stream in self.streams.values())
        found = [table for table in out if table is not None]
        self.figures.matches = sum(table.num_rows for table in found)
        return found

    def _split(self, events: pa.Table) -> dict[str, pa.Table]:
        """The events of each value of the keys, in their order."""
        if not self.spec.keys or not events.num_rows:
            return {"": events} if events.num_rows else {}
        frame = pa.table({str(i): events[name] for i, name in enumerate(self.spec.keys)}).to_pandas()
        codes = frame.groupby(list(frame.columns), dropna=False, sort=False).ngroup().to_numpy()
        parts = {}
        for code in range(codes.max() + 1):
            part = events.filter(pa.array(codes == code))
            parts[repr([part[name][0].as_py() for name in self.spec.keys])] = part
        return parts

    def ordered(self, events: pa.Table) -> list[pa.Table]:
        """Events of a stream that is sorted already, for batch DataFrames."""
        valid = pc.is_valid(as_numbers(events[self.spec.time], self.spec.dtype))
        return self._matched(self._relevant(events.filter(valid)), None)

    def finish(self) -> list[pa.Table]:
        """The end of all streams."""
        found = [stream.finish() for stream in self.streams.values()]
        return [table for table in found if table is not None]

    def adapt(self) -> bool:
        """There is nothing to adapt: caches are filled anew, within whatever budget."""
        return False

    def to_bytes(self) -> bytes:
        """The state of the bucket, for a snapshot."""
        content = {
            "streams": {key: stream.dump() for key, stream in self.streams.items()},
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
            matcher.streams = {key: Stream.load(spec, part) for key, part in content["streams"].items()}
            matcher.waiting = None if content["waiting"] is None else from_blob(content["waiting"])
            matcher.latest, matcher.released = content["latest"], content["released"]
        except (KeyError, TypeError, AttributeError, pa.ArrowException) as error:
            raise SnapshotError(f"The state of a bucket cannot be read: {error!r}") from error
        return matcher
