"""The strategy `columnar`: per-slot columns of positions, range searches, and counting without building.

Not from the paper. Nested sequences are flattened, ORs become alternatives, a negation is a range that must
be empty. A batch is matched together with the events before it that its windows reach, and only matches that
end in the batch are built (or, where a match must wait for its window to pass, those settled by it).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from penstock.kernels.patterns import count_keyed, find
from penstock.patterns.alternatives import Alternative, alternatives, looks_ahead, looks_back, predicates_of
from penstock.patterns.analysis import Analysis
from penstock.patterns.batch import Batch, type_names, width_of
from penstock.patterns.compiled import Compiler, Input, candidates_of, filtered
from penstock.patterns.span import Span
from penstock.patterns.values import Values, codes_of, joined

ROOM, MOST_ROOM = 4_096, 1 << 20  # matches for which there is room at first: as many as events


@dataclass
class Found:
    """Matches: their number, and the rows of those that are kept, one column per slot of a match."""

    count: int = 0
    rows: np.ndarray = field(default_factory=lambda: np.empty((0, 0), np.int64))


class Columnar:
    """The events that later matches may need, in columns."""

    name = "columnar"

    def __init__(self, analysis: Analysis, span: Span, **_: Any) -> None:
        self.analysis, self.span = analysis, span
        self.ahead = looks_ahead(analysis)
        self.reach = 2 if self.ahead and looks_back(analysis) else 1  # windows that are held
        self.axis: np.ndarray | None = None
        self.types = np.empty(0, np.int64)
        self.rows = np.empty(0, np.int64)
        self.columns: dict[str, Values] = {}
        self.settled: Any = None  # matches whose window ends before this have been told
        self.peak = 0

    @property
    def held(self) -> int:
        """Events in memory."""
        return len(self.rows)

    @property
    def live_rows(self) -> np.ndarray:
        """The row numbers of the events in memory."""
        return self.rows

    def figures(self) -> dict[str, int]:
        """There is no cache."""
        return {}

    def dump(self) -> dict[str, Any]:
        """The state as plain values and arrays."""
        return {
            "axis": self.axis,
            "types": self.types,
            "rows": self.rows,
            "columns": {
                name: (v.kind, v.data.tolist() if v.data.dtype == object else v.data, v.null)
                for name, v in self.columns.items()
            },
            "settled": self.settled,
            "peak": self.peak,
        }

    def load(self, content: dict[str, Any]) -> None:
        """The counterpart."""
        self.axis, self.types, self.rows = content["axis"], content["types"], content["rows"]
        for name, (kind, data, null) in content["columns"].items():
            values = data
            if isinstance(data, list):
                values = np.empty(len(data), object)
                values[:] = data
            self.columns[name] = Values(kind, values, null)
        self.settled, self.peak = content["settled"], content["peak"]

    def check(self) -> None:
        """Assert the invariants."""
        if self.axis is not None:
            assert bool((self.axis[1:] >= self.axis[:-1]).all())
            assert len(self.axis) == len(self.types) == len(self.rows)
            assert all(len(values) == len(self.axis) for values in self.columns.values())

    def process(self, batch: Batch, room: int | None) -> Found:
        """The matches that a batch completes, at most `room` of them built."""
        first_new = self.held
        self._append(batch)
        self.peak = max(self.peak, self.held)
        found = self._found(batch.unit, first_new, batch.end, room)
        self._forget(batch)
        return found

    def finish(self, unit: str, room: int | None) -> Found:
        """The matches that waited for their window to pass."""
        if not self.ahead or self.axis is None:
            return Found(0, np.empty((0, len(self.analysis.columns)), np.int64))
        return self._found(unit, 0, None, room)

    def _append(self, batch: Batch) -> None:
        if self.axis is None or not self.held:
            self.axis, self.types, self.rows = batch.axis, batch.types, batch.rows
            self.columns = dict(batch.columns)
            return
        self.axis = np.concatenate([self.axis, batch.axis])
        self.types = np.concatenate([self.types, batch.types])
        self.rows = np.concatenate([self.rows, batch.rows])
        self.columns = {
            name: joined([values, batch.columns[name]], name) for name, values in self.columns.items()
        }

    def _forget(self, batch: Batch) -> None:
        """Keep what a window that is not over yet can reach."""
        assert self.axis is not None
        if batch.end is None:
            return
        width = width_of(self.span, batch.unit, self.axis)
        first = int(np.searchsorted(self.axis, batch.end - self.reach * width))
        if first:
            self.axis, self.types, self.rows = self.axis[first:], self.types[first:], self.rows[first:]
            self.columns = {
                name: values.take(np.arange(first, len(values))) for name, values in self.columns.items()
            }

    def drop_oldest(self, events: int) -> None:
        """Forget so many of the oldest events."""
        assert self.axis is not None
        self.axis, self.types, self.rows = self.axis[events:], self.types[events:], self.rows[events:]
        self.columns = {
            name: values.take(np.arange(events, len(values))) for name, values in self.columns.items()
        }

    def _found(self, unit: str, first_new: int, end: Any, room: int | None) -> Found:
        assert self.axis is not None
        width = width_of(self.span, unit, self.axis)
        first_from, first_to = 0, len(self.axis)
        if self.ahead:
            # Matches whose first event's window ended between the last batch and this one.
            if self.settled is not None:
                first_from = int(np.searchsorted(self.axis, self.settled - width))
            if end is not None:
                first_to = int(np.searchsorted(self.axis, end - width))
                self.settled = end
            first_new = first_from
        slots = len(self.analysis.columns)
        empty = Found(0, np.empty((0, slots), np.int64))
        if not len(self.axis) or first_to <= first_from:
            return empty
        codes = codes_of(self.analysis.predicates, self.columns)
        names = type_names(self.analysis)
        given = Input(self.axis, width, codes, candidates_of(self.analysis, self.types, names, codes))
        numbers = {slot.number: i for i, slot in enumerate(self.analysis.columns)}
        count = 0
        parts: list[np.ndarray] = []
        for alternative in alternatives(self.analysis.root):
            if room == 0 and not self.ahead:
                counted = self._counted(alternative, given, first_new)
                if counted is not None:
                    count += counted
                    continue
            for lead in alternative.maximal():
                if not len(given.candidates[lead]) or given.candidates[lead][-1] < first_new:
                    continue
                left = None if room is None else max(0, room - sum(len(part) for part in parts))
                each, built, order = self._searched(
                    alternative, lead, given, first_new, first_from, first_to, left
                )
                count += each
                if len(built):
                    whole = np.full((len(built), slots), -1, np.int64)
                    whole[:, [numbers[slot] for slot in order]] = built
                    parts.append(whole)
        if not parts:
            return Found(count, empty.rows)
        positions = np.concatenate(parts)
        keys = [*(positions[:, i] for i in range(slots - 1, -1, -1)), positions.max(axis=1)]
        positions = positions[np.lexsort(keys)]
        return Found(count, np.where(positions >= 0, self.rows[positions], -1))

    def _searched(
        self,
        alternative: Alternative,
        lead: int,
        given: Input,
        lead_from: int,
        first_from: int,
        first_to: int,
        room: int | None,
    ) -> tuple[int, np.ndarray, list[int]]:
        """Matches of one alternative with one slot the last: their number, and those built."""
        compiler = Compiler(self.analysis, given, alternative, lead)
        events, program = compiler.events(), compiler.program(self.ahead)
        size = max(ROOM, min(len(given), MOST_ROOM))
        size = size if room is None else min(room, size)
        while True:
            work = compiler.work(size)
            find(events, program, work, lead_from, first_from, first_to, size)
            count, stored = int(work.found[0]), int(work.found[1])
            wanted = count if room is None else min(count, room)
            if stored == wanted:
                return count, work.out[:stored], compiler.slots
            size = wanted

    def _counted(self, alternative: Alternative, given: Input, count_from: int) -> int | None:
        """The number of matches of a plain sequence, on equal keys or on none; None if it is not one."""
        slots = alternative.slots
        if alternative.absences or len(alternative.order) != len(slots) * (len(slots) - 1) // 2:
            return None
        if len(slots) > 60:
            return None
        linked: dict[str, list[frozenset[int]]] = {}
        for predicate in predicates_of(self.analysis, (), alternative.branches):
            if filtered(self.analysis, predicate):
                continue
            names = {side.attr for side in predicate.sides}
            if predicate.op != "=" or len(names) != 1 or len(predicate.slots) != 2:
                return None
            linked.setdefault(names.pop(), []).append(predicate.slots)
        if any(not _connected(slots, links) for links in linked.values()):
            return None
        fills = given.fills(slots)
        if linked:
            key = _combined([given.codes.columns[name] for name in linked])
            order = np.argsort(key, kind="stable")
            order = order[np.searchsorted(key[order], 0) :]
            starts = np.append(np.flatnonzero(np.diff(key[order], prepend=-1)), len(order))
        else:
            order, starts = np.arange(len(given)), np.array([0, len(given)])
        return int(count_keyed(given.first_in, fills, order, starts, len(slots), count_from))


def _connected(slots: tuple[int, ...], links: list[frozenset[int]]) -> bool:
    reached = {slots[0]}
    for _ in slots:
        for link in links:
            if link & reached:
                reached |= link
    return reached == set(slots)


def _combined(columns: list[np.ndarray]) -> np.ndarray:
    """One code for several columns, -1 where any is null."""
    whole = columns[0]
    for column in columns[1:]:
        null = (whole < 0) | (column < 0)
        mixed = whole * (int(column.max(initial=0)) + 1) + column
        codes = np.unique(np.where(null, -1, mixed), return_inverse=True)
        whole = np.where(null, -1, codes[1])
    return whole
