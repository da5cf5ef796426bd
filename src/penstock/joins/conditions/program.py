"""Compile a condition for the kernel of a join: leaves of one side each, and a program that combines them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.engine import pair_condition as engine
from penstock.engine.pair_condition import PairCondition, new_pair_condition
from penstock.errors import ConditionError
from penstock.joins.conditions.cells import Evaluated, arrow_column, arrow_types, read, typed, units_in
from penstock.joins.conditions.evaluate import evaluate
from penstock.joins.conditions.kinds import Kind, kind_of
from penstock.joins.conditions.nodes import Node, columns_of
from penstock.joins.conditions.parser import parse_condition
from penstock.joins.conditions.semantic_checks import BOTH, LEFT, NO_SIDE, Typed, checked

_OPERATIONS = {
    "=": engine.EQUAL,
    "!=": engine.UNEQUAL,
    "<": engine.LESS,
    "<=": engine.LESS_EQUAL,
    ">": engine.GREATER,
    ">=": engine.GREATER_EQUAL,
    "+": engine.PLUS,
    "-": engine.MINUS,
    "*": engine.TIMES,
    "/": engine.OVER,
    "%": engine.MODULO,
    "neg": engine.NEGATIVE,
    "and": engine.AND,
    "or": engine.OR,
    "not": engine.NOT,
    "is null": engine.IS_NULL,
}
Place = tuple[int, int]  # of an operand, and its number there


@dataclass(frozen=True)
class ConditionProgram:
    """A condition whose columns have types, as the kernel runs it."""

    text: str
    leaves: tuple[tuple[Typed, ...], tuple[Typed, ...]]
    ranked: tuple[tuple[int, ...], tuple[int, ...]]  # per leaf the number of its ranks, -1 if it has none
    code: tuple[tuple[int, ...], ...]
    constants: tuple[tuple[int, int], ...]  # value, the bits of a float; state
    result: Place

    @property
    def width(self) -> int:
        """The most leaves of a side."""
        return max(len(each) for each in self.leaves)

    @property
    def groups(self) -> int:
        """How many ranks there are: columns that are compared share one."""
        return 1 + max((group for side in self.ranked for group in side), default=-1)

    def build(self, total: int) -> PairCondition:
        """Return the condition of a kernel with room for so many tuples."""
        constants = np.array(self.constants, np.int64).reshape(-1, 2)
        return new_pair_condition(
            np.array(self.code, np.int64).reshape(-1, engine.CODE),
            self.result,
            np.ascontiguousarray(constants[:, 0]),
            np.ascontiguousarray(constants[:, 1]),
            self.width,
            total,
        )

    def cells(self, side: int, table: Any) -> list[Evaluated]:
        """Return the leaves of a side for the rows of a table."""
        known: dict[str, Evaluated] = {}

        kinds = dict(pair for leaf in self.leaves[side] for pair in _columns_in(leaf))

        def column(_: int, name: str) -> Evaluated:
            if name not in known:
                values = typed(arrow_column(table, name, side), kinds[name], name, side)
                known[name] = read(values, kinds[name])
            return known[name]

        return [evaluate(leaf, column) for leaf in self.leaves[side]]

    def ranked_names(self, side: int) -> list[str]:
        """Return the columns of a side that are compared by rank."""
        ranked = zip(self.leaves[side], self.ranked[side], strict=True)
        return sorted({name for leaf, group in ranked if group >= 0 for name, _ in _columns_in(leaf)})

    def names(self, side: int) -> list[str]:
        """Return the columns of a side that the condition reads."""
        return sorted({name for leaf in self.leaves[side] for name, _ in _columns_in(leaf)})


def compile_condition(
    text: str, types: Sequence[dict[str, pa.DataType]], node: Node | None = None
) -> ConditionProgram:
    """Compile a condition, given the Arrow types of the columns of both sides.

    >>> import pyarrow as pa
    >>> from penstock.joins.conditions.program import compile_condition
    >>> types = {"v": pa.int64(), "w": pa.int64()}
    >>> program = compile_condition("left.v < right.w and left.v + 1 > 3", (types, types))
    >>> [len(side) for side in program.leaves], len(program.code)
    ([2, 1], 2)
    """
    node = parse_condition(text) if node is None else node
    kinds = tuple({name: kind_of(kind) for name, kind in side.items()} for side in types)
    return _Compiler().run(checked(node, text, kinds), text)


def column_types(node: Node, tables: Sequence[Any]) -> tuple[dict[str, pa.DataType], ...]:
    """Return the Arrow types of the columns of two tables, as far as a condition needs them."""
    wanted = [{each.name for each in columns_of(node) if each.side == side} for side in (0, 1)]
    return tuple(arrow_types(table, wanted[side], side) for side, table in enumerate(tables))


def compiled_for(text: str, tables: Sequence[Any]) -> ConditionProgram:
    """Compile a condition for two tables.

    >>> from penstock.joins.conditions.program import compiled_for
    >>> compiled_for("left.v < right.w", ({"v": [1]}, {"w": [2.5]})).names(1)
    ['w']
    """
    node = parse_condition(text)
    return compile_condition(text, column_types(node, tables), node)


class _Compiler:
    """Collects the leaves, the constants and the instructions."""

    def __init__(self) -> None:
        self.leaves: tuple[list[Typed], list[Typed]] = [], []
        self.ranked: tuple[list[int], list[int]] = [], []
        self.code: list[tuple[int, ...]] = []
        self.constants: list[tuple[int, int]] = []
        self.groups: dict[Kind, int] = {}

    def run(self, whole: Typed, text: str) -> ConditionProgram:
        result = self._place(whole)
        for side, leaves in zip(("left", "right"), self.leaves, strict=True):
            if len(leaves) > engine.MOST_LEAVES:
                raise ConditionError(
                    f"The condition compares {len(leaves)} expressions of the {side} stream with the other "
                    f"one, and {engine.MOST_LEAVES} are possible; write a shorter one."
                )
        return ConditionProgram(
            text=text,
            leaves=(tuple(self.leaves[0]), tuple(self.leaves[1])),
            ranked=(tuple(self.ranked[0]), tuple(self.ranked[1])),
            code=tuple(self.code),
            constants=tuple(self.constants),
            result=result,
        )

    def _place(self, part: Typed) -> Place:
        """Return where the value of a part will be."""
        if part.sides == NO_SIDE:
            return self._constant(part)
        if part.sides != BOTH:
            return self._leaf(part)
        kind = part.operands[0].kind
        if part.name == "to":
            return self._conversion(part, kind)
        operation, of = _OPERATIONS[part.name], engine.WHOLE
        if part.name in "+-*/%" or part.name == "neg":
            kind = part.kind if part.kind.real else kind
        if kind.real:
            of = engine.SINGLE if part.kind.real and part.kind.bits == 32 else engine.REAL
        elif part.kind.family == "int" and part.kind.bits < 64:
            of = part.kind.bits
        place = self._place(part.operands[0])
        if len(part.operands) == 1:
            return self._add(operation, of, place, (engine.CONSTANT, 0))
        for other in part.operands[1:]:
            place = self._add(operation, of, place, self._place(other))
        return place

    def _conversion(self, part: Typed, kind: Kind) -> Place:
        place = self._place(part.operands[0])
        if part.kind.real and kind.family == "decimal":
            return self._add(engine.DECIMAL_TO_REAL, engine.WHOLE, place, (0, 10**kind.places))
        if part.kind.real:
            return place if kind.real else self._add(engine.TO_REAL, engine.WHOLE, place, (0, 0))
        decimal = part.kind.family == "decimal"
        factor = 10 ** (part.kind.places - kind.places) if decimal else units_in(part.kind, kind)
        return self._add(engine.SCALE_UP, engine.WHOLE, place, (0, factor))

    def _leaf(self, part: Typed) -> Place:
        side = 0 if part.sides == LEFT else 1
        if part not in self.leaves[side]:
            self.leaves[side].append(part)
            group = self.groups.setdefault(part.kind, len(self.groups)) if part.kind.ranked else -1
            self.ranked[side].append(group)
        return side, self.leaves[side].index(part)

    def _constant(self, part: Typed) -> Place:
        found = evaluate(part, _no_columns)
        value = found.values.astype(np.float64 if part.kind.real else np.int64).view(np.int64)[0]
        self.constants.append((int(value), int(found.state[0])))
        return engine.CONSTANT, len(self.constants) - 1

    def _add(self, operation: int, of: int, one: Place, other: Place) -> Place:
        if other[1] >= 2**63:
            raise ConditionError("The condition needs decimals of more than 18 digits; multiply by 1e0.")
        self.code.append((operation, of, *one, *other))
        return engine.WORK, len(self.code) - 1


def _no_columns(side: int, name: str) -> Evaluated:
    raise AssertionError("a constant has no columns")


def _columns_in(part: Typed) -> list[tuple[str, Kind]]:
    if part.name == "column":
        return [(part.value, part.kind)]
    return [pair for each in part.operands for pair in _columns_in(each)]
