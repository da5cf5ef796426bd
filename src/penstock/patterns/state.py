"""A pattern at work on a stream: batches in, matches out, and the state in between as bytes."""

from __future__ import annotations

import dataclasses
import time as clock
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from penstock.budget import Bytes, budget_of
from penstock.columns import Table, column_names
from penstock.errors import BudgetError, ColumnError, EventLimitError, PatternError, SnapshotError, hint
from penstock.patterns.batch import Batch, batch_of
from penstock.patterns.columnar import Columnar, Found
from penstock.patterns.nodes import Attr
from penstock.patterns.result import PatternRun, PatternStats
from penstock.patterns.snapshot import pack, unpack
from penstock.patterns.values import NOTHING, Values
from penstock.payload import to_arrow
from penstock.policies import get
from penstock.units import time_unit

if TYPE_CHECKING:
    from penstock.patterns.pattern import Pattern

CACHE_POLICIES = ("fifo", "rand", "lru", "lfu", "gdj", "clock", "clock-exp")


@dataclass(frozen=True)
class Options:
    """How a pattern is run; validated when built."""

    pattern: Pattern
    type: str
    time: str
    strategy: str
    unit: str = "ms"
    count_only: bool = False
    limit: int | None = None
    max_events: int | None = None
    budget: Any = None
    policy: Any = "lru"
    seed: int = 0

    def __post_init__(self) -> None:
        time_unit(self.unit)
        for name in ("type", "time"):
            if not isinstance(getattr(self, name), str):
                raise ColumnError(f"{name} takes the name of a column; {getattr(self, name)!r} was given.")
        for name, least in (("limit", 0), ("max_events", 1)):
            given = getattr(self, name)
            whole = isinstance(given, int | np.integer) and not isinstance(given, bool)
            if given is not None and not (whole and given >= least):
                raise PatternError(
                    f"{name}={given!r} is not allowed; it must be a whole number from {least} up."
                )
        object.__setattr__(self, "policy", get(self.policy))
        if self.policy.name not in CACHE_POLICIES:
            raise PatternError(
                f"policy={self.policy.name!r} cannot manage a cache{hint(self.policy.name, CACHE_POLICIES)}"
            )
        if self.budget is not None:
            given = budget_of(Bytes(self.budget) if isinstance(self.budget, int) else self.budget)
            if not isinstance(given, Bytes):
                raise BudgetError(
                    f"The caches of a pattern take a budget in bytes; {self.budget!r} was given."
                )
            object.__setattr__(self, "budget", given)

    @property
    def room(self) -> int | None:
        """How many matches may be built; None: all."""
        return 0 if self.count_only else self.limit

    def plain(self) -> dict[str, Any]:
        """The same as plain values."""
        found = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        return found | {
            "pattern": str(self.pattern),
            "budget": None if self.budget is None else self.budget.n,
            "policy": self.policy.spell(),
        }


def backend_of(options: Options) -> Any:
    """The strategy of the options, ready for its first batch."""
    analysis, span = options.pattern.analysis, options.pattern.within
    if options.strategy == "columnar":
        return Columnar(analysis, span)
    from penstock.patterns.iterative import Iterative
    from penstock.patterns.object_cache import ObjectCaching
    from penstock.patterns.semantic_cache import SemanticCaching

    kind: Any = {"iterative": Iterative, "object": ObjectCaching, "semantic": SemanticCaching}[
        options.strategy
    ]
    budget = None if options.budget is None else options.budget.n
    return kind(analysis, span, budget=budget, policy=options.policy, seed=options.seed)


class PatternState:
    """Takes the events of a stream batch by batch.

    Batches must come in order of time; within a batch events may stand in any order.

    >>> import penstock as ps
    >>> state = ps.Pattern.parse("PATTERN SEQ(A, !B) WITHIN 2").start()
    >>> state.process({"type": ["A", "A"], "ts": [0, 1]}).num_rows
    0
    >>> state = ps.patterns.PatternState.restore(state.snapshot())
    >>> state.process({"type": ["B"], "ts": [3]}).to_pylist()
    [{'A': 0}]
    >>> state.finish().to_pylist()
    []
    """

    def __init__(self, options: Options) -> None:
        self.options = options
        self.backend = backend_of(options)
        self.stats = PatternStats()
        self.unit: str | None = None
        self.last: Any = None  # the last time seen
        self.kept: pa.Table | None = None  # the attributes of RETURN, of the events in memory
        self.kept_rows = np.empty(0, np.int64)
        items = options.pattern.returns
        self.returned = sorted({item.what.name for item in items if isinstance(item.what, Attr)})

    # Batches.

    def process(self, events: Table) -> pa.Table:
        """The matches that a batch completes; row numbers go on from batch to batch."""
        batch = self._batch(events)
        self._keep(events, batch)
        found = self._timed(lambda room: self.backend.process(batch, room))
        self._check_limit()
        table = self._table(found.rows, self._attribute)
        self._forget()
        return table

    def advance(self, time: Any) -> pa.Table:
        """No event before this time is to come: the matches that this settles.

        The time is a number in the unit of the stream. Windows of events know no time and wait for events.

        >>> import penstock as ps
        >>> state = ps.Pattern.parse("PATTERN SEQ(A, !B) WITHIN 2").start()
        >>> _ = state.process({"type": ["A"], "ts": [0]})
        >>> state.advance(3).to_pylist()
        [{'A': 0}]
        """
        if self.options.pattern.within.events or self.last is None or time <= self.last:
            return self._table(np.empty((0, len(self.options.pattern.variables)), np.int64), self._attribute)
        self.last = time
        nothing = self._nothing(time)
        found = self._timed(lambda room: self.backend.process(nothing, room))
        table = self._table(found.rows, self._attribute)
        self._forget()
        return table

    def _nothing(self, end: Any) -> Batch:
        """A batch without events that ends at a time."""
        empty = np.empty(0, np.int64)
        columns = {
            name: Values(NOTHING, empty, empty.astype(bool))
            for name in self.options.pattern.analysis.attributes
        }
        kind = np.float64 if isinstance(end, float) else np.int64
        return Batch(np.empty(0, kind), empty, empty, columns, 0, self.unit or "ms", end)

    def finish(self) -> pa.Table:
        """The end of the stream: matches that waited for their window to pass."""
        found = self._timed(lambda room: self.backend.finish(self.unit or "ms", room))
        return self._table(found.rows, self._attribute)

    def whole(self, events: Table) -> PatternRun:
        """All of a stream at once."""
        batch = self._batch(events)
        found = self._timed(lambda room: self.backend.process(batch, room))
        self._check_limit()
        late = self._timed(lambda room: self.backend.finish(batch.unit, room))
        rows = np.concatenate([found.rows, late.rows]) if len(late.rows) else found.rows

        source = to_arrow(events) if self.returned else None

        def attribute(name: str, wanted: np.ndarray) -> pa.ChunkedArray:
            assert source is not None
            return source[name].take(pa.array(wanted, pa.int64(), mask=wanted < 0))

        caches = self.backend.contents() if hasattr(self.backend, "contents") else []
        return PatternRun(self._table(rows, attribute), self.stats, caches)

    def _batch(self, events: Table) -> Batch:
        options = self.options
        batch = batch_of(
            events,
            options.pattern.analysis,
            options.pattern.within,
            options.type,
            options.time,
            options.unit,
            self.stats.events,
        )
        names = column_names(events)
        for name in self.returned:
            if name not in names:
                raise ColumnError(f"RETURN: the events have no column {name!r}{hint(name, names)}")
        if batch.size:
            if self.unit not in (None, batch.unit):
                raise ColumnError(
                    f"The times were in {self.unit} and are now in {batch.unit}; give all batches one type."
                )
            if self.last is not None and batch.first_time < self.last:
                raise ColumnError(
                    f"A batch begins at {batch.first_time}, before the last event of the one before "
                    f"({self.last}); bring events into the order of time first."
                )
            self.unit, self.last = batch.unit, batch.last_time
        elif self.last is not None and not options.pattern.within.events:
            batch = dataclasses.replace(batch, end=self.last)
        self.stats.events += batch.size
        return batch

    def _timed(self, work: Any) -> Found:
        limit = self.options.room
        room = None if limit is None else max(0, limit - (self.stats.matches - self.stats.cut))
        began = clock.perf_counter()
        found: Found = work(room)
        stats = self.stats
        stats.seconds += clock.perf_counter() - began
        stats.matches += found.count
        stats.cut += found.count - len(found.rows) if not self.options.count_only else 0
        stats.held, stats.peak_events = self.backend.held, self.backend.peak
        stats.add(self.backend.figures())
        return found

    def _check_limit(self) -> None:
        most = self.options.max_events
        if most is not None and self.backend.held > most:
            raise EventLimitError(
                f"{self.backend.held:,} events are within reach of the window, and max_events is {most:,}; "
                f"allow more, or take a shorter window than {self.options.pattern.within}."
            )

    # Attributes of RETURN.

    def _keep(self, events: Table, batch: Batch) -> None:
        if not self.returned:
            return
        first = self.stats.events - batch.size
        names = {name: to_arrow(events)[name] for name in self.returned}
        part = pa.table(names).take(pa.array(batch.rows - first))
        self.kept = (
            part if self.kept is None else pa.concat_tables([self.kept, part], promote_options="default")
        )
        self.kept_rows = np.concatenate([self.kept_rows, batch.rows])

    def _forget(self) -> None:
        if self.kept is None:
            return
        live = np.isin(self.kept_rows, self.backend.live_rows)
        if live.sum() * 2 < len(live):
            self.kept, self.kept_rows = (
                self.kept.filter(pa.array(live)).combine_chunks(),
                self.kept_rows[live],
            )

    def _attribute(self, name: str, wanted: np.ndarray) -> pa.ChunkedArray:
        if self.kept is None:
            return pa.nulls(len(wanted))
        order = np.argsort(self.kept_rows, kind="stable")
        at = np.searchsorted(self.kept_rows, wanted, sorter=order)
        places = order[np.minimum(at, len(order) - 1)] if len(order) else np.zeros(len(wanted), np.int64)
        return self.kept[name].take(pa.array(places, pa.int64(), mask=wanted < 0))

    def _table(self, rows: np.ndarray, attribute: Any) -> pa.Table:
        """Matches as a table: what RETURN says, or the row number of each variable."""
        pattern = self.options.pattern
        columns = {slot.name: i for i, slot in enumerate(pattern.analysis.columns)}
        rows = rows.reshape(len(rows), len(columns))
        if not pattern.returns:
            return pa.table({name: _numbers(rows[:, i]) for name, i in columns.items()})
        out = {}
        for item in pattern.returns:
            wanted = np.ascontiguousarray(rows[:, columns[item.var]])
            out[item.name] = (
                attribute(item.what.name, wanted) if isinstance(item.what, Attr) else _numbers(wanted)
            )
        return pa.table(out)

    # The state as bytes.

    def snapshot(self) -> bytes:
        """The state as bytes; a restored one continues as this one would."""
        kept = None
        if self.kept is not None:
            sink = pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, self.kept.schema) as writer:
                writer.write_table(self.kept)
            kept = sink.getvalue().to_pybytes()
        return pack(
            {
                "options": self.options.plain(),
                "stats": dataclasses.asdict(self.stats),
                "unit": self.unit,
                "last": self.last,
                "kept": kept,
                "kept_rows": self.kept_rows,
                "backend": self.backend.dump(),
            }
        )

    @classmethod
    def restore(cls, data: bytes) -> PatternState:
        """A state from its snapshot."""
        from penstock.patterns.pattern import Pattern

        content = unpack(data)
        try:
            given = content["options"]
            given["pattern"] = Pattern.parse(given["pattern"])
            state = cls(Options(**given))
            state.stats = PatternStats(**content["stats"])
            state.unit, state.last = content["unit"], content["last"]
            state.kept_rows = content["kept_rows"]
            if content["kept"] is not None:
                state.kept = pa.ipc.open_stream(pa.py_buffer(content["kept"])).read_all()
            state.backend.load(content["backend"])
        except (KeyError, TypeError) as error:
            raise SnapshotError(f"The snapshot is of another version: {error}") from error
        return state

    def check(self) -> None:
        """Assert the invariants of the state."""
        assert 0 <= self.stats.cut <= self.stats.matches
        assert self.stats.held == self.backend.held
        assert len(self.backend.live_rows) == self.backend.held
        self.backend.check()


def _numbers(rows: np.ndarray) -> pa.Array:
    return pa.array(rows, pa.int64(), mask=rows < 0)
