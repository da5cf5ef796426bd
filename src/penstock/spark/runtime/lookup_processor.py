"""The stateful operator of `lookup_join`: Spark calls it once per bucket and batch."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterator
from typing import Any, ClassVar, NamedTuple

import pyarrow as pa
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from penstock.errors import SnapshotError
from penstock.lookup.cache import LookupCache
from penstock.lookup.state import LookupState
from penstock.lookup.stats import LookupStats
from penstock.spark.runtime.output_blobs import FIGURES, ROWS, blob_fields, blobs_of, to_frame
from penstock.spark.runtime.packer import BLOB, LABEL, PIECE, TASK, from_blob
from penstock.spark.runtime.state_log import IDLE, PART

PACKED_LOOKUP = f"{LABEL} int, {TASK} int, {PIECE} int, {BLOB} binary"


class Remembered(NamedTuple):
    """A bucket as this worker last used it."""

    state: LookupState
    at: float  # when, in seconds


class LookupProcessor(StatefulProcessor):
    """Runs the buckets of a `lookup_join`. A token identifies the current version of a cached bucket."""

    remembered: ClassVar[dict[str, Remembered]] = {}  # by the token of its last batch

    def __init__(self, lookup: LookupCache, names: tuple[str, ...]) -> None:
        self.lookup = lookup
        self.names = names

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Take the state store of this partition from Spark."""
        self.head = handle.getValueState("head", "token string, parts int")
        self.snapshot = handle.getMapState("snapshot", "part int", "data binary")

    def handleInputRows(  # noqa: N802
        self, key: Any, rows: Any, timerValues: Any
    ) -> Iterator[Any]:
        """Process the packed rows of one bucket for one batch."""
        pieces = [piece for frame in rows for piece in frame.itertuples(index=False)]
        pieces.sort(key=lambda piece: (getattr(piece, TASK), getattr(piece, PIECE)))
        events = pa.concat_tables([from_blob(getattr(piece, BLOB)) for piece in pieces])
        state = self._open()
        before = state.stats
        out = state.process(events, self.names)
        self._commit(state)
        fields = blob_fields(None)
        for blob in blobs_of([out]):
            yield to_frame(fields, **{ROWS: blob})
        yield to_frame(fields, **{FIGURES: json.dumps(told(before, state.stats))})

    def _open(self) -> LookupState:
        """Return the bucket as the last batch left it, or a new one. A failed batch leaves nothing behind."""
        now = time.monotonic()
        for token, (_, at) in list(self.remembered.items()):
            if now - at > IDLE:
                del self.remembered[token]
        stored = self.head.get()
        if stored is None:
            return self.lookup.start()
        token, parts = stored
        found = self.remembered.pop(token, None)
        if found is not None:
            return found.state
        values: list[Any] = [self.snapshot.getValue((i,)) for i in range(parts)]
        if any(value is None for value in values):
            raise SnapshotError("The state of a bucket is damaged: a part of its snapshot is missing.")
        return self.lookup.start().restore(b"".join(bytes(value[0]) for value in values))

    def _commit(self, state: LookupState) -> None:
        data = state.snapshot(rows=False)
        parts = [data[start : start + PART] for start in range(0, len(data), PART)]
        self.snapshot.clear()
        for i, part in enumerate(parts):
            self.snapshot.updateValue((i,), (part,))
        token = uuid.uuid4().hex
        self.head.update((token, len(parts)))
        self.remembered[token] = Remembered(state, time.monotonic())

    def close(self) -> None:
        """Close connections; buckets stay in memory for the next batch."""
        self.lookup.source.close()


def told(before: LookupStats, after: LookupStats) -> dict[str, float]:
    """Return the metrics of a batch: counts since `before`, cached sizes as they are now."""
    first, last = before.metrics(), after.metrics()
    return {name: last[name] - (0 if name.startswith("cached") else first[name]) for name in last}
