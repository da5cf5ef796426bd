"""Run a pattern on one stream of events, and fill matches with the columns of their events."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.patterns import Attr, PatternState
from penstock.patterns.language.span import first_within
from penstock.spark.runtime.arrow_blobs import from_blob, to_blob

if TYPE_CHECKING:
    from penstock.spark.runtime.pattern_bucket import PatternSpec

START, END = "match_start", "match_end"


class PatternStream:
    """One stream of events: the state of the pattern, and the rows that matches may still need."""

    def __init__(self, spec: PatternSpec) -> None:
        self.spec = spec
        self.state = spec.start()
        self.rows = np.empty(0, np.int64)
        self.table: pa.Table | None = None

    @property
    def held(self) -> int:
        """Events in memory."""
        return int(self.state.backend.buffered)

    @property
    def next_out(self) -> Any:
        """The time of the event that leaves its window next: until then, time alone changes nothing."""
        axis = self.state.backend.axis(False)
        # Events before it may be there for a negation that looks back.
        first = first_within(axis, self.state.last, self.spec.width)
        return axis[min(first, len(axis) - 1)].item()

    def process(self, events: pa.Table, progress: Any) -> pa.Table | None:
        """The matches that events in order complete, and those that the progress settles."""
        parts = []
        if events.num_rows:
            first = self.state.stats.events
            self.rows = np.concatenate([self.rows, first + np.arange(events.num_rows)])
            self.table = events if self.table is None else pa.concat_tables([self.table, events])
            parts.append(self._filled(self.state.process(events)))
        timed = progress is not None and self.held and not self.spec.pattern.within.events
        if timed and progress - self.next_out > self.spec.width:
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
        """Row numbers replaced by what RETURN asks for."""
        if not matches.num_rows or self.table is None:
            return None
        places = {}
        for name in matches.column_names:
            numbers = matches[name].fill_null(-1).to_numpy()
            at = np.minimum(np.searchsorted(self.rows, numbers), len(self.rows) - 1)
            places[name] = pa.array(at, pa.int64(), mask=numbers < 0)
        return fill(self.spec, self.table, places)

    def dump(self) -> dict[str, Any]:
        """The state as plain values."""
        table = None if self.table is None else to_blob(self.table)
        return {"state": self.state.snapshot(), "rows": self.rows.tobytes(), "table": table}

    @classmethod
    def load(cls, spec: PatternSpec, content: dict[str, Any]) -> PatternStream:
        """The counterpart."""
        stream = cls(spec)
        stream.state = PatternState.restore(content["state"], spec.options)
        stream.rows = np.frombuffer(content["rows"], np.int64)
        stream.table = None if content["table"] is None else from_blob(content["table"])
        return stream


def fill(spec: PatternSpec, events: pa.Table, places: dict[str, pa.Array]) -> pa.Table:
    """What RETURN asks for, given the place of each variable's event, and the times of first and last.

    The events of a match stand in stream order; a variable that is not bound has no place.
    """
    out = {}
    items = spec.pattern.returns
    for name, what in [(i.name, i.what) for i in items] or [(v, v) for v in spec.pattern.variables]:
        if isinstance(what, Attr):
            out[name] = events[what.name].take(places[what.var])
        else:
            out[name] = _struct(events, places[what])
    every = np.column_stack([place.fill_null(-1).to_numpy() for place in places.values()])
    last = every.max(axis=1)
    first = np.where(every < 0, last[:, None], every).min(axis=1)
    out[START] = events[spec.time].take(pa.array(first))
    out[END] = events[spec.time].take(pa.array(last))
    return pa.table(out)


def _struct(table: pa.Table, places: pa.Array) -> pa.Array:
    """Whole events, null where a variable is not bound."""
    taken = table.take(places)
    arrays = [pa.concat_arrays(taken[name].chunks) for name in table.column_names]
    return pa.StructArray.from_arrays(arrays, fields=list(taken.schema), mask=pc.is_null(places))
