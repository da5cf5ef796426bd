"""The state of patterns on a stream: takes batches, returns matches; can be snapshotted and restored."""

from __future__ import annotations

import dataclasses
import time as clock
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from penstock.columns import Table
from penstock.errors import ColumnError, PatternError, PenstockError, SnapshotError
from penstock.patterns.batch import EventBatch, Member, attribute_names, batch_of, kinds_with, width_of
from penstock.patterns.columnar.strategy import Columnar
from penstock.patterns.compile.values import NOTHING, Values
from penstock.patterns.language.nodes import Attr
from penstock.patterns.options import PatternOptions, limit_error
from penstock.patterns.quota import FoundMatches, Quota
from penstock.patterns.result import PatternRun, PatternStats
from penstock.patterns.returned import Kept
from penstock.patterns.snapshot import pack, unpack
from penstock.payload import to_arrow
from penstock.policies import get as get_policy
from penstock.structures.window_ends import window_ends

if TYPE_CHECKING:
    from penstock.patterns.pattern import Pattern

FARTHEST = 2**62  # differences of times fit into 64 bits
Attribute = Callable[[str, np.ndarray], pa.ChunkedArray]


def backend_of(members: list[Member], options: PatternOptions) -> Any:
    """Return the strategy of the options, ready for its first batch."""
    if options.strategy == "columnar":
        return Columnar(members)
    from penstock.patterns.published.iterative import Iterative
    from penstock.patterns.published.object_cache import ObjectCaches, ObjectCaching
    from penstock.patterns.published.semantic_cache import SemanticCaches, SemanticCaching
    from penstock.patterns.published.stepwise import Stepwise

    if options.strategy == "iterative":
        return Stepwise(Iterative, members)
    budget = None if options.budget is None else options.budget.n
    policy, seed = options.policy or get_policy("lru"), options.seed or 0
    kind, caches = {
        "object": (ObjectCaching, ObjectCaches),
        "semantic": (SemanticCaching, SemanticCaches),
    }[options.strategy]
    return Stepwise(kind, members, caches(budget, policy, seed))


class PatternSetState:
    """Takes the events of a stream batch by batch, for several patterns.

    >>> import penstock as ps
    >>> both = ps.PatternSet({"rise": "PATTERN SEQ(A, B) WITHIN 5", "alone": "PATTERN SEQ(A, !B) WITHIN 5"})
    >>> state = both.start()
    >>> found = state.process({"type": ["A", "B", "A"], "ts": [0, 1, 2]})
    >>> found["rise"].to_pylist(), found["alone"].to_pylist()
    ([{'A': 0, 'B': 1}], [])
    >>> state = ps.patterns.PatternSetState.restore(state.snapshot())
    >>> state.finish()["alone"].to_pylist()
    [{'A': 2}]
    """

    def __init__(self, patterns: dict[str, Pattern], options: PatternOptions) -> None:
        self.patterns, self.options = patterns, options
        self.members = [Member(each.analysis, each.within) for each in patterns.values()]
        self.backend = backend_of(self.members, options)
        self.stats = {name: PatternStats() for name in patterns}
        self.events = 0  # all that came
        self.unit: str | None = None
        self.last: Any = None  # the last time seen
        self.kinds: dict[str, str] = {}  # of the columns that predicates compare
        self.ended = False
        self.kept = Kept([item for each in patterns.values() for item in each.returns])

    # Batches.

    def process(self, events: Table) -> dict[str, pa.Table]:
        """Return the matches that a batch completes; row numbers continue from batch to batch."""
        self._check_open()
        first, batch = self.events, self._batch(events)
        self.kept.add(events, batch.rows, first)
        found = self._timed(lambda quotas: self.backend.process(batch, quotas))
        tables = self._tables(found, self.kept.attribute)
        self.kept.forget(self.backend.live_rows)
        return tables

    def advance(self, time: Any) -> dict[str, pa.Table]:
        """Return the matches that are settled because no event before this time will come.

        The time is a number in the unit of the stream. It does not affect windows of events.
        """
        self._check_open()
        number = isinstance(time, int | float | np.number) and not isinstance(time, bool)
        if not number or not -FARTHEST < time < FARTHEST:
            raise PatternError(
                f"advance takes a finite time in the stream's unit, between -2^62 and 2^62; "
                f"{time!r} was given."
            )
        if self.last is None or time <= self.last:
            self.last = time if self.last is None else self.last
            return self._tables([self._none(member) for member in self.members], self.kept.attribute)
        self.last = time
        nothing = self._nothing(time)
        found = self._timed(lambda quotas: self.backend.process(nothing, quotas))
        tables = self._tables(found, self.kept.attribute)
        self.kept.forget(self.backend.live_rows)
        return tables

    def finish(self) -> dict[str, pa.Table]:
        """End the stream; return the matches that waited for their window to pass."""
        self._check_open()
        self.ended = True
        found = self._timed(lambda quotas: self.backend.finish(self.unit or "ms", quotas))
        return self._tables(found, self.kept.attribute)

    def whole(self, events: Table) -> dict[str, PatternRun]:
        """Process a whole stream at once."""
        batch = self._batch(events)
        found = self._timed(lambda quotas: self.backend.process(batch, quotas))
        late = self._timed(lambda quotas: self.backend.finish(batch.unit, quotas))
        both = [
            FoundMatches(0, np.concatenate([some.rows, more.rows]) if len(more.rows) else some.rows)
            for some, more in zip(found, late, strict=True)
        ]
        source = to_arrow(events) if self.kept.names else None

        def attribute(name: str, wanted: np.ndarray) -> pa.ChunkedArray:
            assert source is not None
            return source[name].take(pa.array(wanted, pa.int64(), mask=wanted < 0))

        caches = self.backend.contents() if hasattr(self.backend, "contents") else []
        tables = self._tables(both, attribute)
        return {name: PatternRun(table, self.stats[name], caches) for name, table in tables.items()}

    def _check_open(self) -> None:
        if self.ended:
            raise PatternError("The stream has ended with finish(); start a new state for another stream.")

    @staticmethod
    def _none(member: Member) -> FoundMatches:
        return FoundMatches(0, np.empty((0, len(member.analysis.columns)), np.int64))

    def _nothing(self, end: Any) -> EventBatch:
        """Return a batch without events that ends at a time."""
        empty = np.empty(0, np.int64)
        columns = {name: Values(NOTHING, empty, empty.astype(bool)) for name in attribute_names(self.members)}
        wanted = {member.span.events for member in self.members}
        kind = np.float64 if isinstance(end, float) else np.int64
        axes = {by_events: np.empty(0, np.int64 if by_events else kind) for by_events in wanted}
        ends = {by_events: self.events if by_events else end for by_events in wanted}
        return EventBatch(axes, empty, empty, columns, 0, self.unit or "ms", ends)

    def _batch(self, events: Table) -> EventBatch:
        options = self.options
        batch = batch_of(events, self.members, options.type, options.time, options.unit, self.events)
        kinds = kinds_with(batch, self.kinds, self.members)
        self.kept.check(events)
        if batch.size:
            if self.unit not in (None, batch.unit):
                raise ColumnError(
                    f"The times were in {self.unit} and are now in {batch.unit}; use one unit for all."
                )
            if self.last is not None and batch.first_time < self.last:
                raise ColumnError(
                    f"A batch begins at {batch.first_time}, before the last event of the previous one "
                    f"({self.last}); sort the events by time first."
                )
            self._check_limit(batch)
            self.unit, self.last = batch.unit, batch.last_time
        elif self.last is not None and False in batch.ends:
            # Without events the unit of the time is unknown.
            unit = self.unit or batch.unit
            batch = dataclasses.replace(batch, ends=batch.ends | {False: self.last}, unit=unit)
        self.events += batch.size
        self.kinds = kinds
        return batch

    def _timed(self, work: Callable[[list[Quota]], list[FoundMatches]]) -> list[FoundMatches]:
        every = list(self.stats.values())
        quotas = [self.options.quota(each) for each in every]
        began = clock.perf_counter()
        found = work(quotas)
        seconds = clock.perf_counter() - began
        figures = self.backend.figures()
        for stats, each in zip(every, found, strict=True):
            stats.seconds += seconds
            stats.events = self.events
            stats.matches += each.count
            stats.cut += each.count - len(each.rows) if not self.options.count_only else 0
            stats.held, stats.peak_events = self.backend.buffered, self.backend.peak
            stats.add(figures)
        return found

    def _check_limit(self, batch: EventBatch) -> None:
        """Reject a batch if a window at one of its events would contain more than allowed."""
        most = self.options.max_events
        if most is None or not len(batch):
            return
        first = np.full(self.backend.buffered + len(batch), len(batch) + self.backend.buffered)
        for member, windows in zip(self.members, self.backend.windows, strict=True):
            by_events = member.span.events
            axis = np.concatenate([self.backend.axis(by_events), batch.axes[by_events]])
            mine, _ = window_ends(axis, width_of(member.span, batch.unit, axis))
            first = np.minimum(first, mine if windows == 1 else mine[mine])
        most_events = int((np.arange(len(first)) - first)[self.backend.buffered :].max()) + 1
        if most_events > most:
            spans = " or ".join(sorted({str(each.within) for each in self.patterns.values()}))
            raise limit_error(most_events, most, spans)

    def _tables(self, found: list[FoundMatches], attribute: Attribute) -> dict[str, pa.Table]:
        return {
            name: _table(pattern, each.rows, attribute)
            for (name, pattern), each in zip(self.patterns.items(), found, strict=True)
        }

    # The state as bytes.

    def snapshot(self) -> bytes:
        """Return the state as bytes; a restored one continues as this one would."""
        return pack(
            {
                "patterns": {name: str(pattern) for name, pattern in self.patterns.items()},
                "options": self.options.plain(),
                "stats": {name: dataclasses.asdict(stats) for name, stats in self.stats.items()},
                "events": self.events,
                "unit": self.unit,
                "last": self.last,
                "kept": self.kept.to_bytes(),
                "kept_rows": self.kept.rows,
                "kinds": self.kinds,
                "ended": self.ended,
                "backend": self.backend.dump(),
            }
        )

    @classmethod
    def restore(cls, data: bytes, options: PatternOptions | None = None) -> PatternSetState:
        """Return a state from its snapshot; `options` of the same strategy replace those in it."""
        from penstock.patterns.pattern import Pattern

        content = unpack(data)
        try:
            patterns = {name: Pattern.parse(text) for name, text in content["patterns"].items()}
            state = cls(patterns, options or PatternOptions.from_plain(content["options"]))
            state.stats = {name: PatternStats(**stats) for name, stats in content["stats"].items()}
            state.events, state.unit, state.last = content["events"], content["unit"], content["last"]
            state.kept.load(content["kept"], content["kept_rows"])
            state.kinds, state.ended = content["kinds"], content["ended"]
            state.backend.load(content["backend"])
        except PenstockError:
            raise
        except Exception as error:
            raise SnapshotError(f"The snapshot is of another version: {error}") from error
        return state

    def check(self) -> None:
        """Assert the invariants of the state."""
        for stats in self.stats.values():
            assert 0 <= stats.cut <= stats.matches
            assert stats.held == self.backend.buffered
        assert len(self.backend.live_rows) == self.backend.buffered
        self.backend.check()


ONLY = "pattern"


class PatternState:
    """Takes the events of a stream batch by batch.

    Batches must come in order of time; within a batch, events may be in any order.

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

    def __init__(self, pattern: Pattern, options: PatternOptions) -> None:
        self._set = PatternSetState({ONLY: pattern}, options)

    @property
    def backend(self) -> Any:
        """The strategy."""
        return self._set.backend

    @property
    def options(self) -> PatternOptions:
        """The options of the run."""
        return self._set.options

    @property
    def last(self) -> Any:
        """The last time seen, as a number in the unit of the stream; None before any event."""
        return self._set.last

    @property
    def stats(self) -> PatternStats:
        """The statistics so far."""
        return self._set.stats[ONLY]

    def process(self, events: Table) -> pa.Table:
        """Return the matches that a batch completes; row numbers continue from batch to batch."""
        return self._set.process(events)[ONLY]

    def advance(self, time: Any) -> pa.Table:
        """Return the matches that are settled because no event before this time will come.

        The time is a number in the unit of the stream. It does not affect windows of events.

        >>> import penstock as ps
        >>> state = ps.Pattern.parse("PATTERN SEQ(A, !B) WITHIN 2").start()
        >>> _ = state.process({"type": ["A"], "ts": [0]})
        >>> state.advance(3).to_pylist()
        [{'A': 0}]
        """
        return self._set.advance(time)[ONLY]

    def finish(self) -> pa.Table:
        """End the stream; return the matches that waited for their window to pass."""
        return self._set.finish()[ONLY]

    def whole(self, events: Table) -> PatternRun:
        """Process a whole stream at once."""
        return self._set.whole(events)[ONLY]

    def snapshot(self) -> bytes:
        """Return the state as bytes; a restored one continues as this one would."""
        return self._set.snapshot()

    @classmethod
    def restore(cls, data: bytes, options: PatternOptions | None = None) -> PatternState:
        """Return a state from its snapshot; `options` of the same strategy replace those in it."""
        state = cls.__new__(cls)
        state._set = PatternSetState.restore(data, options)
        if list(state._set.patterns) != [ONLY]:
            raise SnapshotError("The snapshot is of a set of patterns; restore it as a PatternSetState.")
        return state

    def check(self) -> None:
        """Assert the invariants of the state."""
        self._set.check()


def _table(pattern: Pattern, rows: np.ndarray, attribute: Attribute) -> pa.Table:
    """Return matches as a table: the columns of RETURN, or the row number of each variable."""
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


def _numbers(rows: np.ndarray) -> pa.Array:
    return pa.array(rows, pa.int64(), mask=rows < 0)
