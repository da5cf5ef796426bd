"""The events that the published strategies have in memory: plain lists, event by event.

All patterns over a stream share them. Positions count from the beginning of the stream, over the events of
all their types; `base` is the position of the first that is still there.
"""

from __future__ import annotations

import operator
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

from penstock.patterns.batch import EventBatch, Member, attribute_names, type_names
from penstock.patterns.compile.analysis import Predicate, PredicateSide
from penstock.patterns.compile.forms import Form, alone_form
from penstock.patterns.compile.values import NOTHING, constant
from penstock.patterns.language.nodes import ConstantValue

OPS = {
    "<": operator.lt,
    "<=": operator.le,
    "=": operator.eq,
    "!=": operator.ne,
    ">=": operator.ge,
    ">": operator.gt,
}


class Memory:
    """Events in stream order, and per kind of slot the positions of those that could fill it alone."""

    def __init__(self, members: Sequence[Member], alone: Sequence[list[list[Predicate]]]) -> None:
        """`alone` has, per pattern and slot, the predicates about that slot alone."""
        self.members = list(members)
        self.base = 0
        self.axes: dict[bool, list[Any]] = {member.span.events: [] for member in members}
        self.rows: list[int] = []
        self.columns: dict[str, list[Any]] = {name: [] for name in attribute_names(members)}
        self.peak = 0
        self.kinds: dict[str, str] = {}
        self.constants: dict[Predicate, Any] = {}
        self.fitting: dict[Form, list[int]] = {}
        self.shared = 0  # lists that more than one pattern uses
        names = type_names(members)
        number = {name: i for i, name in enumerate(names)}
        self.fills: list[list[tuple[list[int], list[Predicate]]]] = [[] for _ in names]  # by type
        self.candidates: list[list[list[int]]] = []  # by pattern and slot
        for member, tests in zip(members, alone, strict=True):
            mine = []
            known = set(self.fitting)
            for slot in member.analysis.slots:
                form = (slot.type, *(alone_form(predicate) for predicate in tests[slot.number]))
                if form not in self.fitting:
                    self.fitting[form] = []
                    self.fills[number[slot.type]].append((self.fitting[form], tests[slot.number]))
                self.shared += form in known
                mine.append(self.fitting[form])
            self.candidates.append(mine)

    def __len__(self) -> int:
        return len(self.rows)

    def learn(self, batch: EventBatch) -> None:
        """Of which kind the values of columns are, and so the constants that they are compared with."""
        for name, values in batch.columns.items():
            if values.kind != NOTHING:
                self.kinds[name] = values.kind
        self._fix_constants()

    def _fix_constants(self) -> None:
        for member in self.members:
            for predicate in member.analysis.predicates:
                for side in (predicate.left, predicate.right):
                    if isinstance(side, ConstantValue):
                        kind = self.kinds.get(predicate.sides[0].attr, NOTHING)
                        self.constants[predicate] = constant(side, kind, predicate.text)

    def feed(self, batch: EventBatch) -> Iterator[tuple[int, int, int]]:
        """Take in the events of a batch one by one: number in the batch, type and position of each."""
        rows, fills = self.rows, self.fills
        lists: list[tuple[list[Any], list[Any]]] = [(rows, batch.rows.tolist())]
        lists += [(axis, batch.axes[kind].tolist()) for kind, axis in self.axes.items()]
        lists += [(column, batch.columns[name].tolist()) for name, column in self.columns.items()]
        pairs = [(mine.append, new) for mine, new in lists]
        for i, kind in enumerate(batch.types.tolist()):
            position = self.base + len(rows)
            for append, new in pairs:
                append(new[i])
            for positions, tests in fills[kind]:
                if not tests or all(self._alone(predicate, position) for predicate in tests):
                    positions.append(position)
            yield i, kind, position
        self.peak = max(self.peak, len(rows))

    def _alone(self, predicate: Predicate, position: int) -> bool:
        """Whether an event passes a predicate about it alone."""
        values = []
        for side in (predicate.left, predicate.right):
            if isinstance(side, PredicateSide):
                values.append(self.columns[side.attr][position - self.base])
            else:
                values.append(self.constants[predicate])
        return None not in values and bool(OPS[predicate.op](values[0], values[1]))

    def drop(self, events: int) -> None:
        """Forget so many of the oldest events; the lists stay the same lists."""
        self.peak = max(self.peak, len(self.rows))
        self.base += events
        for values in (*self.axes.values(), self.rows, *self.columns.values()):
            del values[:events]
        for positions in self.fitting.values():
            del positions[: bisect_left(positions, self.base)]

    def dump(self) -> dict[str, Any]:
        """The events as plain values."""
        return {
            "base": self.base,
            "axes": self.axes,
            "rows": self.rows,
            "columns": self.columns,
            "fitting": list(self.fitting.values()),
            "peak": self.peak,
            "kinds": self.kinds,
        }

    def load(self, content: dict[str, Any]) -> None:
        """The counterpart; the lists stay the same lists."""
        self.base, self.peak, self.kinds = content["base"], content["peak"], content["kinds"]
        self.rows[:] = content["rows"]
        for name, values in content["columns"].items():
            self.columns[name][:] = values
        for kind, values in content["axes"].items():
            self.axes[kind][:] = values
        for mine, positions in zip(self.fitting.values(), content["fitting"], strict=True):
            mine[:] = positions
        self._fix_constants()

    def check(self) -> None:
        """Assert the invariants."""
        assert all(len(values) == len(self.rows) for values in self.columns.values())
        for axis in self.axes.values():
            assert len(axis) == len(self.rows)
            assert all(a <= b for a, b in pairwise(axis))
        for positions in self.fitting.values():
            assert all(a < b for a, b in pairwise(positions))
            assert not positions or self.base <= positions[0]
