"""A separate state for each stream of a bucket, for strategies that cannot search several at once.

There is one stream, or one per value of the keys for as long as its events can still matter.

What a batch costs follows its events and the streams that it changes. A stream without events in a batch is
visited only when the progress of time takes it on: a match that waited is settled, or an event leaves the
window. When none of its events is left it is released; should its key come again, it begins anew.

In a window of events nothing leaves by time, so a stream stays until later events of its own have pushed the
others out.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.spark.runtime.pattern_stream import PatternStream

if TYPE_CHECKING:
    from penstock.spark.runtime.pattern_bucket import PatternSpec


class KeyedStreams:
    """Streams by key, and which of them the progress of time takes on next."""

    def __init__(self, spec: PatternSpec) -> None:
        self.spec = spec
        self.streams: dict[str, PatternStream] = {}
        self.held = 0  # events in memory
        self.next: dict[str, Any] = {}  # by key: the time of the event that leaves its window next
        self.queue: list[tuple[Any, str]] = []  # the same in order, with entries that no longer hold

    def __len__(self) -> int:
        return len(self.streams)

    def process(self, events: pa.Table, progress: Any) -> list[pa.Table]:
        """The matches that events in order complete, and those that the progress settles."""
        out = []
        for key, part in self._split(events):
            out.append(self._visit(key, part, progress))
        nothing = events.slice(0, 0)
        while self.queue and progress is not None and progress - self.queue[0][0] > self.spec.width:
            time, key = heappop(self.queue)
            if self.next.get(key) == time:
                out.append(self._visit(key, nothing, progress))
        return [table for table in out if table is not None]

    def finish(self) -> list[pa.Table]:
        """The end of all streams."""
        found = [stream.finish() for stream in self.streams.values()]
        return [table for table in found if table is not None]

    def _visit(self, key: str, events: pa.Table, progress: Any) -> pa.Table | None:
        stream = self.streams.pop(key, None)
        self.next.pop(key, None)
        if stream is None:
            stream = PatternStream(self.spec)
        self.held -= stream.held
        found = stream.process(events, progress)
        self._keep(key, stream)
        return found

    def _keep(self, key: str, stream: PatternStream) -> None:
        """A stream stays if it holds anything."""
        if not stream.held:
            return
        self.streams[key] = stream
        self.held += stream.held
        if not self.spec.pattern.within.events:
            time = self.next[key] = stream.next_out
            heappush(self.queue, (time, key))

    def _split(self, events: pa.Table) -> Iterator[tuple[str, pa.Table]]:
        """The events of each value of the keys, in their order; the key that comes first is the first."""
        if not events.num_rows:
            return
        if not self.spec.keys:
            yield "", events
            return
        columns = [_comparable(events[name]) for name in self.spec.keys]
        codes = np.zeros(events.num_rows, np.int64)
        for column in columns:
            more = _codes(column)
            codes = np.unique(codes * (int(more.max()) + 1) + more, return_inverse=True)[1]
        order = np.argsort(codes, kind="stable")
        starts = np.flatnonzero(np.diff(codes[order], prepend=-1))
        ends = np.append(starts[1:], len(order))
        rows = events.take(pa.array(order)).combine_chunks()
        for i in np.argsort(order[starts]).tolist():
            key = repr([column[int(order[starts[i]])].as_py() for column in columns])
            yield key, rows.slice(starts[i], ends[i] - starts[i])

    def dump(self) -> dict[str, Any]:
        """The streams as plain values."""
        return {key: stream.dump() for key, stream in self.streams.items()}

    def load(self, content: dict[str, Any]) -> None:
        """The counterpart."""
        for key, part in content.items():
            self._keep(key, PatternStream.load(self.spec, part))

    def check(self) -> None:
        """Assert the invariants."""
        assert self.held == sum(stream.held for stream in self.streams.values())
        assert all(stream.held for stream in self.streams.values())
        assert set(self.next) == (set() if self.spec.pattern.within.events else set(self.streams))
        assert {(time, key) for key, time in self.next.items()} <= set(self.queue)


def _comparable(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Keys of which equal ones look alike: there is one zero."""
    return pc.add(column, pa.scalar(0.0, column.type)) if pa.types.is_floating(column.type) else column


def _codes(column: pa.ChunkedArray) -> np.ndarray:
    """A number for each value of a column, also for null."""
    try:
        encoded = column.combine_chunks().dictionary_encode(null_encoding="encode")
    except pa.ArrowNotImplementedError:  # structs and lists
        encoded = pa.array([repr(value.as_py()) for value in column]).dictionary_encode()
    codes: np.ndarray = encoded.indices.to_numpy().astype(np.int64)
    return codes
