"""Search the matches of a batch: one search per alternative and slot of the last event."""

from __future__ import annotations

import time as clock
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np

from penstock.compiler.tiers import Pace, expecting
from penstock.patterns.columnar.events import Input
from penstock.patterns.columnar.search_kernel import Events, Program, SearchWork, find
from penstock.patterns.columnar.tables import Compiler
from penstock.patterns.compile.alternatives import Alternative
from penstock.patterns.compile.analysis import Analysis
from penstock.patterns.compile.forms import alternative_form

ROOM, MOST_ROOM = 4_096, 1 << 20  # matches for which there is room at first: as many as events
NEVER = 1 << 62


@dataclass(frozen=True)
class Limits:
    """Between which positions the last and the first event of a match must be."""

    last_from: int
    first_from: int
    first_to: int

    def begins(self, size: int) -> np.ndarray:
        """Per position whether a match may begin there."""
        at = np.arange(size)
        return (at >= self.first_from) & (at < self.first_to)

    @property
    def ends(self) -> np.ndarray | None:
        """Per position whether a match may end there; None: `last_from` says it."""
        return None


@dataclass(frozen=True, eq=False)
class EventMarks:
    """The same event by event, where events of several streams stand one after the other."""

    first: np.ndarray  # per position: whether a match may begin there
    ends: np.ndarray | None  # per position: whether a match may end there; None: anywhere
    last_from: int = 0

    def begins(self, size: int) -> np.ndarray:
        """Per position whether a match may begin there."""
        return self.first


class Stopped(NamedTuple):
    """What a search that need not go on to the end has found."""

    positions: np.ndarray  # one row per match
    at: int | None  # the event at which it stopped; None: it came to the end
    torn: bool  # it stopped amid the matches of this event


@dataclass(frozen=True)
class Searches:
    """The searches of one pattern over the events of a batch."""

    analysis: Analysis
    alternatives: Sequence[Alternative]
    given: Input
    limits: Limits | EventMarks
    ahead: bool  # matches are settled when their window has passed

    def promising(self) -> Iterator[Alternative]:
        """The alternatives for which there are enough events."""
        given = self.given
        for each in self.alternatives:
            if len(each.slots) <= len(given) and all(len(given.candidates[slot]) for slot in each.slots):
                yield each

    def leads(self, alternative: Alternative) -> Iterator[int]:
        """The slots that the last event of a match may fill."""
        for lead in alternative.maximal():
            found = self.given.candidates[lead]
            if len(found) and found[-1] >= self.limits.last_from:
                yield lead

    @property
    def name(self) -> tuple[bool, float, Limits | EventMarks]:
        """What two patterns must have in common to share a search."""
        return self.given.by_events, self.given.width, self.limits

    def all_matches(self, alternative: Alternative, lead: int, build: bool) -> tuple[int, np.ndarray]:
        """The number of matches, and their positions if they are to be built."""
        form = alternative_form(self.analysis, alternative, lead)
        count, built = self.given.shared.get(
            ("search", *self.name, build, self.ahead, form), partial(self._all, alternative, lead, build)
        )
        return count, self._by_column(alternative, built)

    def _all(self, alternative: Alternative, lead: int, build: bool) -> tuple[int, np.ndarray]:
        compiler = Compiler(self.analysis, self.given, alternative, lead, self.limits.ends)
        events = compiler.events(self.limits.begins(len(self.given)))
        program = compiler.program(self.ahead)
        size = max(ROOM, min(len(self.given), MOST_ROOM)) if build else 0
        while True:
            work = compiler.work(size)
            self._search(events, program, work, (self.limits.last_from, NEVER), NEVER, NEVER)
            count, stored = int(work.found[0]), int(work.found[1])
            if stored == count or not build:
                return count, self._by_slot(compiler, alternative, work.out[:stored])
            size = count

    def some_matches(
        self, alternative: Alternative, lead: int, last: tuple[int, int], enough: int, most: int, sort: bool
    ) -> Stopped:
        """Matches whose last event is from one position to before another, in the order of these events.

        The search stops after the event with which there are `enough`, or at once when there are `most`.
        With `sort` those of one event come in the order of their columns.
        """
        form = alternative_form(self.analysis, alternative, lead)
        stopped: Stopped = self.given.shared.get(
            ("some", *self.name, last, enough, most, sort, self.ahead, form),
            partial(self._some, alternative, lead, last, enough, most, sort),
        )
        return stopped._replace(positions=self._by_column(alternative, stopped.positions))

    def _some(
        self, alternative: Alternative, lead: int, last: tuple[int, int], enough: int, most: int, sort: bool
    ) -> Stopped:
        compiler = Compiler(self.analysis, self.given, alternative, lead, self.limits.ends, in_order=sort)
        events = compiler.events(self.limits.begins(len(self.given)))
        program = compiler.program(self.ahead)
        size = min(most, ROOM)
        while True:
            work = compiler.work(size)
            self._search(events, program, work, last, enough, size)
            count, at = int(work.found[1]), int(work.found[2])
            torn = count == size
            if not torn or size == most:
                found = self._by_slot(compiler, alternative, work.out[:count])
                return Stopped(found, at if at >= 0 else None, torn)
            size = min(most, 4 * size)

    def _search(
        self,
        events: Events,
        program: Program,
        work: SearchWork,
        last: tuple[int, int],
        enough: int,
        most: int,
    ) -> None:
        """Search slice by slice of the events that may be the last of a match."""
        begin, end = program.span[program.order[0]]
        leads = events.candidates[begin:end]
        at, stop = (int(found) for found in np.searchsorted(leads, last))
        pace = Pace(first=1)  # one event may be the last of very many
        with expecting(stop - at):
            while True:
                cut = pace.cut(at, stop)
                until = leads[cut] if cut < stop else last[1]
                began = clock.perf_counter()
                find(
                    events, program, work, leads[at] if at < stop else last[0], until,
                    len(work.out), enough, most,
                )  # fmt: skip
                pace.took(cut - at, clock.perf_counter() - began)
                at = cut
                if at == stop or work.found[2] >= 0:
                    return

    @staticmethod
    def _by_slot(compiler: Compiler, alternative: Alternative, out: np.ndarray) -> np.ndarray:
        """Matches with a column per slot of the alternative, whatever the order of the search."""
        return out[:, [compiler.slots.index(slot) for slot in alternative.slots]]

    def _by_column(self, alternative: Alternative, found: np.ndarray) -> np.ndarray:
        """Matches with a column per slot of the pattern, -1 where it is not there."""
        places = {slot.number: i for i, slot in enumerate(self.analysis.columns)}
        whole = np.full((len(found), len(places)), -1, np.int64)
        whole[:, [places[slot] for slot in alternative.slots]] = found
        return whole


def in_result_order(positions: np.ndarray) -> np.ndarray:
    """Matches in the order of their last events, then of their columns."""
    keys = [*(positions[:, i] for i in range(positions.shape[1] - 1, -1, -1)), positions.max(axis=1)]
    return positions[np.lexsort(keys)] if len(positions) else positions


# Within one event, results are ordered by their columns, which may be a bad order to search in. So an event
# is searched in the best order first and, if it has more matches than this, in the order of the columns.
ONE_EVENT = 4_096


def first_matches(searches: Searches, wanted: int) -> np.ndarray:
    """The first so many matches in the order of the result; the search ends with the last of them."""
    every = [(each, lead) for each in searches.promising() for lead in searches.leads(each)]
    found, last_from, last_to, torn = [], searches.limits.last_from, len(searches.given), False
    for alternative, lead in every:
        part = searches.some_matches(
            alternative, lead, (last_from, last_to), wanted, wanted + ONE_EVENT, sort=False
        )
        found.append(part.positions)
        if part.at is not None:
            torn = part.torn or (torn and part.at + 1 == last_to)
            last_to = part.at + 1
    if not found:
        return np.empty((0, len(searches.analysis.columns)), np.int64)
    # All have been searched up to the last event in question; `torn`: not to the end of that one.
    positions = np.concatenate(found)
    whole = positions[positions.max(axis=1) < last_to - torn]
    if torn and len(whole) < wanted:
        left = wanted - len(whole)
        last = [
            searches.some_matches(*each, (last_to - 1, last_to), left, left, sort=True).positions
            for each in every
        ]
        whole = np.concatenate([whole, *last])
    return in_result_order(whole)[:wanted]
