"""The published strategies event by event: one memory, and each pattern evaluated over it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from penstock.patterns.batch import EventBatch, Member, type_names, width_of
from penstock.patterns.compile.alternatives import alternatives
from penstock.patterns.language.span import first_within
from penstock.patterns.published.iterative import Iterative
from penstock.patterns.published.layout import Layout
from penstock.patterns.published.memory import Memory
from penstock.patterns.quota import FoundMatches, MatchTally, Quota

SLACK = 1_024  # events that may wait to be forgotten together


class Stepwise:
    """All patterns of a stream under one strategy; `caches` are what its evaluations share."""

    def __init__(self, kind: type[Iterative], members: Sequence[Member], caches: Any = None) -> None:
        layouts = [Layout(member.analysis) for member in members]
        self.memory = Memory(members, [layout.local for layout in layouts])
        self.caches = caches
        self.evaluations = [
            kind(i, member, layout, self.memory, caches)
            for i, (member, layout) in enumerate(zip(members, layouts, strict=True))
        ]
        self.roomy = SLACK  # with fewer events in memory, none is forgotten
        self.ahead = [each for each in self.evaluations if each.ahead]
        self.ends: list[list[Iterative]] = []  # by type: the patterns that such an event may end
        for name in type_names(members):
            self.ends.append(
                [each for each in self.evaluations if not each.ahead and name in _last_types(each)]
            )

    @property
    def buffered(self) -> int:
        """Events in memory."""
        return len(self.memory)

    @property
    def peak(self) -> int:
        """The most events in memory."""
        return self.memory.peak

    @property
    def live_rows(self) -> np.ndarray:
        """The row numbers of the events in memory."""
        return np.array(self.memory.rows, np.int64)

    @property
    def windows(self) -> list[int]:
        """Per pattern: how many windows back events are held."""
        return [each.reach for each in self.evaluations]

    def axis(self, by_events: bool) -> np.ndarray:
        """The times, or positions, of the events in memory."""
        axis = self.memory.axes[by_events]
        return np.array(axis) if axis else np.empty(0, np.int64)

    def figures(self) -> dict[str, int]:
        """What the caches did."""
        figures = {} if self.caches is None else self.caches.figures()
        return figures | {"shared": figures.get("shared", 0) + self.memory.shared}

    def contents(self) -> list[Any]:
        """What the caches hold now."""
        return [] if self.caches is None else self.caches.contents(self.evaluations)

    def dump(self) -> dict[str, Any]:
        """The state as plain values; caches are filled anew."""
        return {
            "memory": self.memory.dump(),
            "waiting": [each.waiting for each in self.evaluations],
            "widths": [each.width for each in self.evaluations],
        }

    def load(self, content: dict[str, Any]) -> None:
        """The counterpart."""
        self.memory.load(content["memory"])
        for i, each in enumerate(self.evaluations):
            each.base = self.memory.base
            each.waiting, each.width = content["waiting"][i], content["widths"][i]

    def check(self) -> None:
        """Assert the invariants."""
        self.memory.check()
        for each in self.evaluations:
            each.check()
        if self.caches is not None:
            self.caches.pool.check()

    def process(self, batch: EventBatch, quotas: Sequence[Quota]) -> list[FoundMatches]:
        """The matches that a batch completes."""
        memory = self.memory
        memory.learn(batch)
        for each in self.evaluations:
            each.width = width_of(each.span, batch.unit, batch.axes[each.span.events])
        tallies = [MatchTally(quota) for quota in quotas]
        ends = self.ends
        for i, kind, position in memory.feed(batch):
            if self.ahead or len(memory.rows) > self.roomy:
                now = {by_events: axis[i].item() for by_events, axis in batch.axes.items()}
                self._settle(now, tallies)
                if len(memory.rows) > self.roomy:
                    self._forget(now)
                    self.roomy = len(memory.rows) + SLACK
            for each in ends[kind]:
                each.collect(position, None, tallies[each.number])
        if None not in batch.ends.values():
            self._settle(batch.ends, tallies)
            self._forget(batch.ends)
        return self._found(tallies)

    def finish(self, unit: str, quotas: Sequence[Quota]) -> list[FoundMatches]:
        """The matches that waited for their window to pass."""
        tallies = [MatchTally(quota) for quota in quotas]
        self._settle({}, tallies)
        return self._found(tallies)

    def _settle(self, now: dict[bool, Any], tallies: list[MatchTally]) -> None:
        for each in self.ahead:
            each.settle(now.get(each.span.events), tallies[each.number])

    def _found(self, tallies: list[MatchTally]) -> list[FoundMatches]:
        return [
            FoundMatches(tally.count, np.array(tally.rows, np.int64).reshape(-1, len(each.analysis.columns)))
            for each, tally in zip(self.evaluations, tallies, strict=True)
        ]

    def _forget(self, now: dict[bool, Any]) -> None:
        """Purge what no window can reach any more."""
        first = min(
            first_within(each.axis, now[each.span.events], each.width, each.reach)
            for each in self.evaluations
        )
        if first:
            self.memory.drop(first)
            for each in self.evaluations:
                each.moved(self.memory.base)
            if self.caches is not None:
                self.caches.purge(self.memory.base)


def _last_types(each: Iterative) -> set[str]:
    """The types of events that may be the last of a match."""
    analysis = each.analysis
    return {
        analysis.slots[slot].type
        for alternative in alternatives(analysis.root)
        for slot in alternative.maximal()
    }
