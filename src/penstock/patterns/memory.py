"""The events that the published strategies have in memory: plain lists, event by event.

All patterns over a stream share them. Positions count from the beginning of the stream, over the events of
all their types; `base` is the position of the first that is still there.
"""

from __future__ import annotations

import operator
from bisect import bisect_left
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from penstock.patterns.analysis import Predicate, Side
from penstock.patterns.batch import Batch, Member, attribute_names, type_names
from penstock.patterns.forms import Form, alone_form
from penstock.patterns.nodes import Const
from penstock.patterns.values import NOTHING, constant

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

    def learn(self, batch: Batch) -> None:
        """Of which kind the values of columns are, and so the constants that they are compared with."""
        for name, values in batch.columns.items():
            if values.kind != NOTHING:
                self.kinds[name] = values.kind
        self._fix_constants()

    def _fix_constants(self) -> None:
        for member in self.members:
            for predicate in member.analysis.predicates:
                for side in (predicate.left, predicate.right):
                    if isinstance(side, Const):
                        kind = self.kinds.get(predicate.sides[0].attr, NOTHING)
                        self.constants[predicate] = constant(side, kind, predicate.text)

    def append(self, kind: int, axes: list[tuple[list[Any], Any]], row: int, values: Sequence[Any]) -> int:
        """An event of a type: its position."""
        position = self.base + len(self.rows)
        for axis, now in axes:
            axis.append(now)
        self.rows.append(row)
        for column, value in zip(self.columns.values(), values, strict=True):
            column.append(value)
        for positions, tests in self.fills[kind]:
            if not tests or all(self._alone(predicate, position) for predicate in tests):
                positions.append(position)
        if len(self.rows) > self.peak:
            self.peak = len(self.rows)
        return position

    def _alone(self, predicate: Predicate, position: int) -> bool:
        """Whether an event passes a predicate about it alone."""
        values = []
        for side in (predicate.left, predicate.right):
            if isinstance(side, Side):
                values.append(self.columns[side.attr][position - self.base])
            else:
                values.append(self.constants[predicate])
        return None not in values and bool(OPS[predicate.op](values[0], values[1]))

    def drop(self, events: int) -> None:
        """Forget so many of the oldest events; the lists stay the same lists."""
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
