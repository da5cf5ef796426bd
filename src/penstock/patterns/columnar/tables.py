"""Compile a pattern to the integer tables that the kernels search with."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from penstock.patterns.columnar.events import Input, filtered
from penstock.patterns.columnar.search_kernel import Events, Program, SearchWork
from penstock.patterns.compile.alternatives import Absence, Alternative, alternatives, predicates_of
from penstock.patterns.compile.analysis import Analysis, Predicate, PredicateSide
from penstock.patterns.language.nodes import ConstantValue

COMPARISONS = {"<": 0, "<=": 1, "=": 2, "!=": 3, ">=": 4, ">": 5}
MIRRORED = {"<": ">", "<=": ">=", "=": "=", "!=": "!=", ">=": "<=", ">": "<"}


@dataclass
class _Block:
    """A match or a negated part under one choice of branches."""

    alternative: Alternative
    scope: tuple[int, ...]
    branches: frozenset[tuple[int, int]]
    places: dict[int, int] = field(default_factory=dict)  # of the slots filled outside, then of its own
    parent: int = -1
    absence: Absence | None = None
    order: list[int] = field(default_factory=list)
    table: int = -1
    left: list[int] = field(default_factory=list)
    right: list[int] = field(default_factory=list)


class Compiler:
    """Builds the program of one alternative, led by the slot of the last event.

    A slot of a negation occurs in every combination of the branches inside, so the program has *places*: one
    per slot and block.
    """

    def __init__(
        self,
        analysis: Analysis,
        given: Input,
        alternative: Alternative,
        lead: int,
        ends: np.ndarray | None = None,
        in_order: bool = False,
    ) -> None:
        """`ends` says of each event whether a match may end there; without it, any may be the last.

        `in_order`: after the lead, slots are filled in the order of a match's columns.
        """
        self.analysis, self.given, self.in_order = analysis, given, in_order
        self.lead, self.ends = lead, ends
        self.columns: dict[str | Predicate, int] = {name: i for i, name in enumerate(given.attributes)}
        self.blocks: list[_Block] = []
        self.candidates: list[np.ndarray] = []
        self.groups: list[np.ndarray] = []
        self.sizes = [0, 0]  # of candidates and groups so far
        self.latest: list[np.ndarray] = []
        self.span: list[tuple[int, int]] = []
        self.key: list[tuple[int, int, int]] = []
        self.after: list[list[int]] = []
        self.before: list[list[int]] = []
        self.other: list[list[int]] = []
        self.tests: list[list[tuple[int, ...]]] = []
        self.absent: list[list[int]] = []
        self.narrow: list[list[int]] = []
        self.guards: list[list[tuple[int, ...]]] = []
        self._add(_Block(alternative, (), alternative.branches), lead)

    def _type(self, slot: int) -> str:
        return self.analysis.slots[slot].type

    # One block after the other.

    def _add(self, block: _Block, lead: int | None = None) -> int:
        number = len(self.blocks)
        self.blocks.append(block)
        self.guards.append([])
        order = self._ordered(block, lead)
        for slot in order:
            self._place(block, slot)
        block.order = [block.places[slot] for slot in order]
        for predicate in predicates_of(self.analysis, block.scope, block.branches):
            if not predicate.slots & set(order):
                self.guards[number].append(self._guard(block, predicate))
        for absence in block.alternative.absences:
            scope = self.analysis.scopes[absence.negation]
            for each in alternatives(self.analysis.negations[absence.negation]):
                inner = _Block(each, scope, block.branches | each.branches, {}, number, absence)
                self._schedule(block, order, inner)
        return number

    def _ordered(self, block: _Block, lead: int | None) -> list[int]:
        """The lead, then slots that an equality ties to what is filled, the rarest first."""
        rest = [slot for slot in block.alternative.slots if slot != lead]
        order = [] if lead is None else [lead]
        filled = set(block.places) | set(order)
        equalities = [
            p
            for p in predicates_of(self.analysis, block.scope, block.branches)
            if p.op == "=" and len(p.slots) == 2
        ]
        if self.in_order and lead is not None:
            return [*order, *sorted(rest)]
        while rest:
            tied = [s for s in rest if any(s in p.slots and (p.slots - {s}) <= filled for p in equalities)]
            chosen = min(tied or rest, key=lambda slot: len(self.given.candidates[slot]))
            order.append(chosen)
            rest.remove(chosen)
            filled.add(chosen)
        return order

    def _place(self, block: _Block, slot: int) -> None:
        """What a slot must satisfy, given those filled before it."""
        place = len(self.span)
        after, before, other = [], [], []
        for earlier, where in block.places.items():
            if block.alternative.precedes(earlier, slot):
                after.append(where)
            elif block.alternative.precedes(slot, earlier):
                before.append(where)
            elif self._type(earlier) == self._type(slot):
                other.append(where)
        block.places[slot] = place
        tests: list[tuple[int, ...]] = []
        key: tuple[str, PredicateSide] | None = None
        for predicate in predicates_of(self.analysis, block.scope, block.branches):
            if slot not in predicate.slots or not predicate.slots <= set(block.places):
                continue
            if filtered(self.analysis, predicate):
                continue
            mine, theirs, op = predicate.left, predicate.right, predicate.op
            if not isinstance(mine, PredicateSide) or mine.slot != slot:
                mine, theirs, op = theirs, mine, MIRRORED[op]
            assert isinstance(mine, PredicateSide)
            if isinstance(theirs, PredicateSide) and theirs.slot != slot and op == "=" and key is None:
                key = mine.attr, theirs
                continue
            where, column = self._theirs(block, theirs, place, predicate)
            tests.append((self.columns[mine.attr], COMPARISONS[op], where, column))
        self.after.append(after)
        self.before.append(before)
        self.other.append(other)
        self.tests.append(tests)
        self.absent.append([])
        self.narrow.append([])
        self._candidates(block, slot, key)

    def _theirs(
        self, block: _Block, side: PredicateSide | ConstantValue, place: int, predicate: Predicate
    ) -> tuple[int, int]:
        """The place and the column of the other side of a comparison; a constant has a column of its own."""
        if isinstance(side, PredicateSide):
            return block.places[side.slot], self.columns[side.attr]
        return place, self.columns.setdefault(predicate, len(self.columns))

    def _candidates(self, block: _Block, slot: int, key: tuple[str, PredicateSide] | None) -> None:
        rows = self.given.candidates[slot]
        if slot == self.lead and self.ends is not None:
            rows = rows[self.ends[rows]]
        first = self.sizes[0]
        if key is None:
            self.key.append((-1, -1, -1))
        else:
            attr, theirs = key
            values = self.given.codes.columns[attr]
            rows = rows[values[rows] >= 0]
            rows = rows[np.argsort(values[rows], kind="stable")]
            most = max(
                int(values.max(initial=-1)), int(self.given.codes.columns[theirs.attr].max(initial=-1))
            )
            starts = np.searchsorted(values[rows], np.arange(most + 2)) + first
            self.key.append((self.sizes[1], block.places[theirs.slot], self.columns[theirs.attr]))
            self.groups.append(starts)
            self.sizes[1] += len(starts)
        self.span.append((first, first + len(rows)))
        self.candidates.append(rows)
        self.sizes[0] += len(rows)

    def _guard(self, block: _Block, predicate: Predicate) -> tuple[int, ...]:
        mine, theirs, op = predicate.left, predicate.right, predicate.op
        if not isinstance(mine, PredicateSide):
            mine, theirs, op = theirs, mine, MIRRORED[op]
        assert isinstance(mine, PredicateSide)
        place = block.places[mine.slot]
        return (
            place,
            self.columns[mine.attr],
            COMPARISONS[op],
            *self._theirs(block, theirs, place, predicate),
        )

    # When a negation is tested.

    def _schedule(self, block: _Block, order: list[int], inner: _Block) -> None:
        """Add a negation, to be tested as soon as all it depends on is filled."""
        absence = inner.absence
        assert absence is not None
        self._tabulate(block, inner)
        needed = set(absence.left) | set(absence.right)
        if absence.inherits:
            needed = set(order)
        for predicate in self.analysis.predicates:
            if predicate.scope[: len(inner.scope)] == inner.scope:
                needed |= predicate.slots & set(order)
        if inner.table < 0:
            negated = self.analysis.negations[absence.negation].every_slot()
            types = {self._type(slot) for slot in negated}
            needed |= {slot for slot in order if self._type(slot) in types}
        last = max(order.index(slot) for slot in needed) if needed else len(order) - 1
        own = set(order[last + 1 :])
        inner.places = {slot: place for slot, place in block.places.items() if slot not in own}
        inner.left = [block.places[slot] for slot in sorted(absence.left)]
        inner.right = [block.places[slot] for slot in sorted(absence.right)]
        narrows = inner.table >= 0 and absence.left == {order[last]} and bool(absence.right) and last > 0
        number = self._add(inner)
        (self.narrow if narrows else self.absent)[block.places[order[last]]].append(number)

    def _tabulate(self, block: _Block, inner: _Block) -> None:
        """Give a negation a table of latest starts, where nothing in it depends on the match."""
        absence, alternative = inner.absence, inner.alternative
        assert absence is not None
        if alternative.absences or (absence.inherits and block.parent >= 0):
            return
        if not absence.left and not absence.right and block.alternative.kind != "AND":
            return
        own = predicates_of(self.analysis, inner.scope, inner.branches)
        if any(not filtered(self.analysis, predicate) for predicate in own):
            return
        slots = alternative.slots
        types = [self._type(slot) for slot in slots]
        for slot in {*block.places, *block.alternative.slots}:
            if self._type(slot) in types and not self._outside(block, slot, absence):
                return
        if len(alternative.order) == len(slots) * (len(slots) - 1) // 2 and len(slots) <= 60:
            ordered = sorted(slots, key=lambda slot: sum(alternative.precedes(o, slot) for o in slots))
            latest = self.given.latest(tuple(ordered))
        elif not alternative.order and len(set(types)) == len(types):
            latest = self.given.latest(slots[:1])
            for slot in slots[1:]:
                latest = np.minimum(latest, self.given.latest((slot,)))
        else:
            return
        inner.table = len(self.latest)
        self.latest.append(latest)

    @staticmethod
    def _outside(block: _Block, slot: int, absence: Absence) -> bool:
        """Whether a slot of the match is known to lie outside of the interval of a negation."""
        precedes = block.alternative.precedes
        return any(slot == left or precedes(slot, left) for left in absence.left) or any(
            slot == right or precedes(right, slot) for right in absence.right
        )

    # The tables.

    def events(self, begins: np.ndarray) -> Events:
        """The events with the candidates in the order of this program."""
        size = len(self.given)
        codes = np.full((len(self.columns), size), -1, np.int64)
        for name, column in self.columns.items():
            if isinstance(name, Predicate):
                codes[column] = self.given.codes.constants[name]
            else:
                codes[column] = self.given.codes.columns[name]
        empty = np.empty(0, np.int64)
        return Events(
            self.given.first_in,
            self.given.last_in,
            codes,
            np.concatenate([empty, *self.candidates]).astype(np.int64),
            np.concatenate([empty, *self.groups]).astype(np.int64),
            np.vstack(self.latest) if self.latest else np.empty((0, max(size, 1)), np.int64),
            begins,
        )

    @property
    def slots(self) -> list[int]:
        """The slots of a match in the order of filling, which is that of the columns of `Work.out`."""
        places = {place: slot for slot, place in self.blocks[0].places.items()}
        return [places[place] for place in self.blocks[0].order]

    def program(self, settles: bool) -> Program:
        """The tables of the pattern."""
        root = self.blocks[0]
        last = root.order[-1]
        plain = (
            not settles
            and len(root.order) > 1
            and not (self.other[last] or self.tests[last] or self.absent[last])
        )
        blocks = self.blocks
        order, order_at = _lists([block.order for block in blocks])
        left, left_at = _lists([block.left for block in blocks])
        right, right_at = _lists([block.right for block in blocks])
        after, after_at = _lists(self.after)
        before, before_at = _lists(self.before)
        other, other_at = _lists(self.other)
        absent, absent_at = _lists(self.absent)
        narrow, narrow_at = _lists(self.narrow)
        tests, tests_at = _tables(self.tests, 4)
        guards, guards_at = _tables(self.guards, 5)
        return Program(
            order=order,
            order_at=order_at,
            span=np.array(self.span, np.int64),
            key=np.array(self.key, np.int64),
            after=after,
            after_at=after_at,
            before=before,
            before_at=before_at,
            other=other,
            other_at=other_at,
            tests=tests,
            tests_at=tests_at,
            guards=guards,
            guards_at=guards_at,
            absent=absent,
            absent_at=absent_at,
            narrow=narrow,
            narrow_at=narrow_at,
            left=left,
            left_at=left_at,
            right=right,
            right_at=right_at,
            parent=np.array([max(block.parent, 0) for block in blocks], np.int64),
            table=np.array([block.table for block in blocks], np.int64),
            closed=np.array([root.alternative.kind != "SEQ"], np.int64),
            plain=np.array([plain], np.int64),
            free=self._free(),
        )

    def work(self, room: int) -> SearchWork:
        """Empty space for a search."""
        slots, blocks = len(self.span), len(self.blocks)
        return SearchWork(
            np.full(slots, -1, np.int64),
            np.zeros((slots, 2), np.int64),
            np.zeros((slots, 2), np.int64),
            np.zeros((blocks, 2), np.int64),
            np.zeros((blocks, 2), np.int64),
            np.zeros((blocks, 2), np.int64),
            np.zeros(3, np.int64),
            np.empty((room, len(self.blocks[0].order)), np.int64),
            np.zeros((slots, 2), np.int64),
        )

    def _free(self) -> np.ndarray:
        """Per place whether its choice, with those before it, depends on the last event by the window only.

        Of a part of a match that no event fits, as in `a.x > b.x`, this is then known for later last events.
        """
        free = np.zeros(len(self.span), np.int64)
        lead, *rest = self.blocks[0].order
        if self.absent[lead] or self.narrow[lead]:
            return free
        for place in rest:
            tied = self.key[place][1] == lead or any(test[2] == lead for test in self.tests[place])
            if tied or self.narrow[place]:
                break
            free[place] = 1
            if self.absent[place]:
                break
        return free


def _lists(lists: list[list[int]]) -> tuple[np.ndarray, np.ndarray]:
    flat = [value for each in lists for value in each]
    return np.array(flat, np.int64), np.cumsum([0, *map(len, lists)]).astype(np.int64)


def _tables(lists: list[list[tuple[int, ...]]], width: int) -> tuple[np.ndarray, np.ndarray]:
    flat = [row for each in lists for row in each]
    table = np.array(flat, np.int64).reshape(len(flat), width)
    return table, np.cumsum([0, *map(len, lists)]).astype(np.int64)
