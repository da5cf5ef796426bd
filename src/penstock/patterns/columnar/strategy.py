"""The strategy `columnar`: per-slot columns of positions, range searches, and counting without building.

Not from the paper. Nested sequences are flattened, ORs become alternatives, a negation is a range that must
be empty. A batch is matched together with the events before it that its windows reach, and only matches that
end in the batch are built (or, where a match must wait for its window to pass, those settled by it).

Several patterns search one set of events. What they have in common is found once: the numbering of values,
the events that fill a slot, the reach of windows, the tables of negated parts, and alternatives that two of
them share, be it as a whole pattern or as a branch of an OR.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from penstock.patterns.batch import EventBatch, Member, type_names, width_of
from penstock.patterns.columnar.chain_kernel import count_keyed
from penstock.patterns.columnar.event_buffer import EventBuffer
from penstock.patterns.columnar.events import Input, Shared, filtered, input_of
from penstock.patterns.columnar.search import EventMarks, Limits, Searches, first_matches, in_result_order
from penstock.patterns.compile.alternatives import (
    Alternative,
    alternatives,
    looks_ahead,
    looks_back,
    predicates_of,
)
from penstock.patterns.compile.forms import alternative_form
from penstock.patterns.compile.values import Values, codes_of
from penstock.patterns.language.span import first_within
from penstock.patterns.quota import FoundMatches, Quota


class Columnar:
    """Searches the events in memory for all patterns of a stream."""

    name = "columnar"

    def __init__(self, members: Sequence[Member], **_: Any) -> None:
        self.members = list(members)
        self.events = EventBuffer()
        self.searches = [Search(member) for member in members]
        self.shared = 0

    @property
    def buffered(self) -> int:
        """Events in memory."""
        return len(self.events)

    @property
    def peak(self) -> int:
        """The most events in memory."""
        return self.events.peak

    @property
    def live_rows(self) -> np.ndarray:
        """The row numbers of the events in memory."""
        return self.events.rows

    @property
    def windows(self) -> list[int]:
        """Per pattern: how many windows back events are held."""
        return [search.reach for search in self.searches]

    def axis(self, by_events: bool) -> np.ndarray:
        """The times, or positions, of the events in memory."""
        return np.empty(0, np.int64) if self.events.axes is None else self.events.axes[by_events]

    def figures(self) -> dict[str, int]:
        """There is no cache."""
        return {"shared": self.shared}

    def dump(self) -> dict[str, Any]:
        """The state as plain values and arrays."""
        return {
            "events": self.events.dump(),
            "settled": [each.settled for each in self.searches],
            "shared": self.shared,
        }

    def load(self, content: dict[str, Any]) -> None:
        """The counterpart."""
        self.events.load(content["events"])
        self.shared = content["shared"]
        for search, settled in zip(self.searches, content["settled"], strict=True):
            search.settled = settled

    def check(self) -> None:
        """Assert the invariants."""
        self.events.check()

    def process(self, batch: EventBatch, quotas: Sequence[Quota]) -> list[FoundMatches]:
        """The matches of each pattern that a batch completes, as many as are wanted."""
        first_new = self.buffered
        self.events.append(batch)
        found = self._found(batch.unit, first_new, batch.ends, quotas)
        self.events.drop(min(self._passed(member, search, batch) for member, search in self._each()))
        return found

    def finish(self, unit: str, quotas: Sequence[Quota]) -> list[FoundMatches]:
        """The matches that waited for their window to pass."""
        return self._found(unit, self.buffered, {}, quotas)

    def _each(self) -> Any:
        return zip(self.members, self.searches, strict=True)

    def _passed(self, member: Member, search: Search, batch: EventBatch) -> int:
        """How many events no window of a pattern reaches any more."""
        by_events = member.span.events
        end = batch.ends[by_events]
        if end is None or self.events.axes is None:
            return 0
        axis = self.events.axes[by_events]
        return first_within(axis, end, width_of(member.span, batch.unit, axis), search.reach)

    def _found(
        self, unit: str, first_new: int, ends: dict[bool, Any], quotas: Sequence[Quota]
    ) -> list[FoundMatches]:
        shared, out = Shared(), []
        numbers = {name: i for i, name in enumerate(type_names(self.members))}
        for i, search in enumerate(self.searches):
            shared.member = i
            out.append(search.found(self.events, unit, first_new, ends, quotas[i], numbers, shared))
        self.shared += shared.taken
        return out


class Search:
    """One pattern."""

    def __init__(self, member: Member) -> None:
        self.analysis, self.span = member
        self.ahead = looks_ahead(self.analysis)
        self.reach = 2 if self.ahead and looks_back(self.analysis) else 1  # windows that are held
        self.alternatives = alternatives(self.analysis.root)
        self.settled: Any = None  # matches whose window ends before this are out

    def found(
        self,
        events: EventBuffer,
        unit: str,
        first_new: int,
        ends: dict[bool, Any],
        quota: Quota,
        numbers: dict[str, int],
        shared: Shared,
    ) -> FoundMatches:
        """The matches that a batch completes; without its ends, those that wait."""
        nothing = FoundMatches(0, np.empty((0, len(self.analysis.columns)), np.int64))
        if events.axes is None or not len(events):
            self._settle(ends)
            return nothing
        axis = events.axes[self.span.events]
        width = width_of(self.span, unit, axis)
        limits = self._limits(axis, width, first_new, ends)
        if limits.first_to <= limits.first_from or limits.last_from >= len(axis) or quota.stop == 0:
            return nothing
        count, positions = self.positions(
            axis, width, events.types, numbers, events.columns, limits, quota, shared
        )
        return FoundMatches(count, np.where(positions >= 0, events.rows[positions], -1))

    def positions(
        self,
        axis: np.ndarray,
        width: Any,
        types: np.ndarray,
        numbers: dict[str, int],
        values: dict[str, Values],
        limits: Limits | EventMarks,
        quota: Quota,
        shared: Shared,
    ) -> tuple[int, np.ndarray]:
        """The matches within limits: their number, and the positions of those that are kept."""
        columns = {name: values[name] for name in self.analysis.attributes}
        codes = codes_of(self.analysis.predicates, columns, shared.get)
        given = input_of(self.analysis, axis, self.span.events, width, types, numbers, codes, shared)
        searches = Searches(self.analysis, self.alternatives, given, limits, self.ahead)
        if quota.stop is None:
            return self._all(searches, given, quota.counts)
        some = first_matches(searches, quota.stop)
        return len(some), some[: quota.build]

    def _settle(self, ends: dict[bool, Any]) -> None:
        if ends.get(self.span.events) is not None:
            self.settled = ends[self.span.events]

    def _limits(self, axis: np.ndarray, width: Any, first_new: int, ends: dict[bool, Any]) -> Limits:
        if not self.ahead:
            return Limits(first_new, 0, len(axis))
        # Matches whose first event's window ended between the last batch and this one.
        first_from, first_to, end = 0, len(axis), ends.get(self.span.events)
        if self.settled is not None:
            first_from = first_within(axis, self.settled, width)
        if end is not None:
            first_to = first_within(axis, end, width)
        self._settle(ends)
        return Limits(first_from, first_from, first_to)

    def _all(self, searches: Searches, given: Input, counts: bool) -> tuple[int, np.ndarray]:
        """The number of all matches, and their positions unless they are only counted."""
        count, parts = 0, [np.empty((0, len(self.analysis.columns)), np.int64)]
        for alternative in searches.promising():
            if counts and not self.ahead and self._countable(alternative):
                form = alternative_form(self.analysis, alternative, alternative.slots[-1])
                count += given.shared.get(
                    ("count", *searches.name, form),
                    partial(self._counted, alternative, given, searches.limits.last_from),
                )
                continue
            for lead in searches.leads(alternative):
                each, built = searches.all_matches(alternative, lead, not counts)
                count += each
                parts.append(built)
        return count, in_result_order(np.concatenate(parts))

    def _links(self, alternative: Alternative) -> dict[str, list[frozenset[int]]] | None:
        """Which slots must be equal in which attribute; None if predicates ask for more."""
        linked: dict[str, list[frozenset[int]]] = {}
        for predicate in predicates_of(self.analysis, (), alternative.branches):
            if filtered(self.analysis, predicate):
                continue
            names = {side.attr for side in predicate.sides}
            if predicate.op != "=" or len(names) != 1 or len(predicate.slots) != 2:
                return None
            linked.setdefault(names.pop(), []).append(predicate.slots)
        return linked

    def _countable(self, alternative: Alternative) -> bool:
        """Whether it is a plain sequence, on equal keys or on none."""
        slots = alternative.slots
        if alternative.absences or len(alternative.order) != len(slots) * (len(slots) - 1) // 2:
            return False
        linked = self._links(alternative)
        if linked is None or len(slots) > 60:
            return False
        return all(_connected(slots, links) for links in linked.values())

    def _counted(self, alternative: Alternative, given: Input, count_from: int) -> int:
        """The number of matches of such a sequence."""
        slots, linked = alternative.slots, self._links(alternative)
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
