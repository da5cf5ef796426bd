"""Search many streams of events at once with the strategy `columnar`.

Events are stored partition by partition, each in stream order, and no window crosses the end of its
partition. The ranges in which a search looks for events are thus within one partition, and one search finds
what a search per partition would find, for the cost of one call.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from penstock.patterns.batch import Member, type_names
from penstock.patterns.columnar.events import Shared
from penstock.patterns.columnar.search import EventMarks
from penstock.patterns.columnar.strategy import Search
from penstock.patterns.compile.values import Values
from penstock.patterns.options import limit_error
from penstock.patterns.pattern import Pattern
from penstock.patterns.quota import Quota
from penstock.structures.window_ends import partition_window_ends


@dataclass(frozen=True)
class PartitionedEvents:
    """Events of several partitions, one partition after the other."""

    starts: np.ndarray  # where each partition begins, and where the last one ends
    axis: np.ndarray  # times, or positions in the partition
    types: np.ndarray  # numbers of type names
    columns: dict[str, Values]
    new: np.ndarray  # whether an event has not been searched before
    before: Any  # the progress of each event's stream at the last search; None: never searched
    end: Any  # its current progress; None: the stream has ended

    def __len__(self) -> int:
        return len(self.axis)


class PartitionedSearch:
    """Finds matches, and says which events are no longer needed."""

    def __init__(self, pattern: Pattern, width: int | float, max_events: int | None = None) -> None:
        self.pattern, self.width, self.max_events = pattern, width, max_events
        member = Member(pattern.analysis, pattern.within)
        self.types = type_names([member])
        self.search = Search(member)

    @property
    def settles(self) -> bool:
        """Whether matches wait until their window has passed, so that time alone may complete some."""
        return self.search.ahead

    def process(self, events: PartitionedEvents) -> tuple[np.ndarray, np.ndarray]:
        """Return the positions of matches, one row each, and which events later matches may need."""
        if not len(events):
            return np.empty((0, len(self.pattern.analysis.columns)), np.int64), np.empty(0, bool)
        shared, width, by_events = Shared(), self.width, self.pattern.within.events
        first_in, _ = shared.get(
            ("window", by_events, width), lambda: partition_window_ends(events.axis, events.starts, width)
        )
        self._check_limit(first_in, events.new)
        if self.settles:
            marks = EventMarks(self._settled(events), None)
        else:
            marks = EventMarks(np.ones(len(events), bool), events.new)
        _, positions = self.search.positions(
            events.axis,
            width,
            events.types,
            {name: i for i, name in enumerate(self.types)},
            events.columns,
            marks,
            Quota(),
            shared,
        )
        return positions, self._needed(events, first_in)

    def _settled(self, events: PartitionedEvents) -> np.ndarray:
        """Return the events whose window has passed since the last search."""
        settled = np.ones(len(events), bool)
        if events.before is not None:
            settled &= self._in_window(events.axis, events.before)
        if events.end is not None:
            settled &= ~self._in_window(events.axis, events.end)
        return settled

    def _in_window(self, axis: np.ndarray, end: Any) -> np.ndarray:
        """Like `span.first_within`."""
        return np.asarray(axis - end >= -self.width)

    def _needed(self, events: PartitionedEvents, first_in: np.ndarray) -> np.ndarray:
        """Return the events that windows still cover: the last window of each partition, or the last two."""
        if events.end is None:
            return np.zeros(len(events), bool)
        needed = self._in_window(events.axis, events.end)
        if self.search.reach == 1:
            return needed
        # Those that the window before the first of these reaches, if there is a first.
        counts = np.append(0, np.cumsum(needed))
        parts = np.repeat(np.arange(len(events.starts) - 1), np.diff(events.starts))
        first = np.searchsorted(counts, counts[events.starts[:-1]], side="right") - 1
        some = counts[events.starts[1:]] > counts[events.starts[:-1]]
        reached = np.where(some, first_in[np.minimum(first, len(events) - 1)], len(events))
        return np.asarray(np.arange(len(events)) >= reached[parts])

    def _check_limit(self, first_in: np.ndarray, new: np.ndarray) -> None:
        """Reject events if a window of a partition would contain more than allowed."""
        if self.max_events is None or not new.any():
            return
        reach = first_in if self.search.reach == 1 else first_in[first_in]
        most_events = int((np.arange(len(reach)) - reach)[new].max()) + 1
        if most_events > self.max_events:
            raise limit_error(most_events, self.max_events, str(self.pattern.within))
