"""Give every part of a condition its type, and reject what cannot be compared, pointing at the place."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from penstock.errors import ConditionError, hint, pointed
from penstock.joins.conditions.kinds import (
    BOOL,
    INT,
    NULLS,
    SPARK_DIGITS,
    Kind,
    as_decimal,
    common,
    constant_kind,
    packed,
    plain_constant,
    result_of,
)
from penstock.joins.conditions.nodes import COMPARISONS, SIDES, ColumnNode, Constant, Node

NO_SIDE, LEFT, RIGHT, BOTH = 0, 1, 2, 3


@dataclass(frozen=True)
class Typed:
    """A part of a condition with its type; conversions are operations of their own, named `to`."""

    name: str  # "column", "constant", "to", or an operator
    kind: Kind
    operands: tuple[Typed, ...] = ()
    value: Any = None  # of a constant; the name of a column
    sides: int = NO_SIDE  # the sides it depends on


class Checker:
    """Types the nodes of a condition, given the types of the columns of each side."""

    def __init__(self, text: str, kinds: Sequence[Mapping[str, Kind]]) -> None:
        self.text, self.kinds = text, kinds

    def condition(self, node: Node) -> Typed:
        """The whole condition, which must be true or false."""
        return self._truth(node, "a condition")

    def _typed(self, node: Node) -> Typed:
        if isinstance(node, ColumnNode):
            return self._column(node)
        if isinstance(node, Constant):
            kind = constant_kind(node.value)
            return Typed("constant", kind, value=plain_constant(node.value, kind))
        name = node.name
        if name in ("and", "or", "not"):
            return _made(
                name, BOOL, tuple(self._truth(each, f"a condition for {name}") for each in node.operands)
            )
        if name == "is null":
            return _made(name, BOOL, (self._typed(node.operands[0]),))
        if name in COMPARISONS or name == "in":
            return self._compared(node)
        return self._computed(node)

    def _column(self, node: ColumnNode) -> Typed:
        known = self.kinds[node.side]
        if node.name not in known:
            self._refuse(
                node.place,
                str(node),
                f"a column of the {SIDES[node.side]} stream",
                f"The {SIDES[node.side]} stream has no column {node.name!r}{hint(node.name, known)}",
            )
        return Typed("column", known[node.name], value=node.name, sides=1 << node.side)

    def _truth(self, node: Node, what: str) -> Typed:
        typed = self._typed(node)
        if typed.kind == NULLS:
            return converted(typed, BOOL)
        if typed.kind != BOOL:
            self._refuse(
                _first_place(node),
                str(node),
                what,
                f"{node} is of type {typed.kind}, not true or false.",
            )
        return typed

    def _compared(self, node: Any) -> Typed:
        parts = [self._typed(each) for each in node.operands]
        both: Kind | None = parts[0].kind
        for each, other in zip(node.operands[1:], parts[1:], strict=True):
            both = None if both is None else common(both, other.kind)
            if both is None:
                self._refuse_comparison(node, each, parts[0].kind, other.kind)
        assert both is not None
        if both.digits > SPARK_DIGITS:
            self._refuse(
                node.place,
                node.name,
                "decimals of fewer digits",
                f"Their common type would have {both.digits} digits, but at most {SPARK_DIGITS} are "
                "possible. Cast one column to fewer digits.",
            )
        if node.name == "in" and _crosses(parts):
            equal = tuple(self._same_kind("=", [parts[0], other], both) for other in parts[1:])
            return equal[0] if len(equal) == 1 else _made("or", BOOL, equal)
        return self._same_kind(node.name, parts, both)

    def _same_kind(self, name: str, parts: Sequence[Typed], both: Kind) -> Typed:
        """Values as they are compared: decimals in 64 bits where an operand depends on both sides."""
        if any(each.sides == BOTH for each in parts):
            both = packed(both)
        return _made(name, BOOL, tuple(converted(each, both) for each in parts))

    def _refuse_comparison(self, node: Any, operand: Node, one: Kind, other: Kind) -> NoReturn:
        first = node.operands[0]
        advice = "Cast one column to the type of the other."
        if {one.family, other.family} & {"date", "timestamp"} and "text" in (one.family, other.family):
            advice = "Write date '2026-11-19' or timestamp '2026-11-19 12:00:00'."
        elif {one.family, other.family} <= {"date", "timestamp"}:
            advice = "One has a time zone and the other has none; cast one of them, or add Z to the constant."
        elif "other" in (one.family, other.family):
            advice = "Select a field or an element of it as a column first."
        self._refuse(
            node.place,
            node.name,
            "operands that can be compared",
            f"{first} is of type {one}, {operand} is of type {other}. {advice}",
        )

    def _computed(self, node: Any) -> Typed:
        parts = [self._typed(each) for each in node.operands]
        for each, typed in zip(node.operands, parts, strict=True):
            if not typed.kind.numeric:
                advice = ""
                if typed.kind.family in ("timestamp", "date"):
                    advice = " To bound the distance of two times, use within=."
                self._refuse(
                    _first_place(each), str(each), "a number", f"{each} is of type {typed.kind}.{advice}"
                )
        name, kind = node.name, parts[0].kind
        if name == "neg":
            if parts[0].name == "constant":
                return dataclasses.replace(parts[0], value=-parts[0].value)
            kind = INT if kind == NULLS else kind
            return _made(name, packed(kind), (converted(parts[0], packed(kind)),))
        result = result_of(name, *(each.kind for each in parts))
        if result is None:
            self._refuse(
                node.place,
                name,
                "other operands",
                f"{name} of {parts[0].kind} and {parts[1].kind} is not supported for decimals; multiply one "
                "operand by 1e0 to compute with doubles.",
            )
        if result.family == "decimal" and name == "*":
            forms = [packed(as_decimal(INT if each.kind == NULLS else each.kind)) for each in parts]
        elif result.family == "decimal":
            forms = [result, result]
        else:
            forms = [result] * 2
        return _made(name, result, tuple(map(converted, parts, forms)))

    def _refuse(self, at: int, found: str, expected: str, message: str) -> NoReturn:
        raise ConditionError(f"{pointed(self.text, at, found, expected)}\n{message}")


def checked(node: Node, text: str, kinds: Sequence[Mapping[str, Kind]]) -> Typed:
    """Return the condition with the types of all its parts, or raise an error that points at the place.

    >>> from penstock.joins.conditions.kinds import LONG, TEXT
    >>> from penstock.joins.conditions.parser import parse_condition
    >>> from penstock.joins.conditions.semantic_checks import checked
    >>> text = "left.price < right.name"
    >>> checked(parse_condition(text), text, ({"price": LONG}, {"name": TEXT}))
    Traceback (most recent call last):
        ...
    penstock.errors.ConditionError: line 1, column 12: found <, expected operands that can be compared
      left.price < right.name
                 ^
    left.price is of type int64, right.name is of type string. Cast one column to the type of the other.
    """
    return Checker(text, kinds).condition(node)


def converted(part: Typed, kind: Kind) -> Typed:
    """Return a part as a value of another kind."""
    mine = part.kind
    if mine == NULLS == kind:
        return _made("to", INT, (part,))
    if mine == kind or (mine.family == kind.family == "int"):
        return part  # all are whole numbers of 64 bits
    if kind.family == "decimal" and not kind.wide and not mine.wide and mine.places == kind.places:
        return part  # so are they
    return _made("to", kind, (part,))


def _made(name: str, kind: Kind, operands: tuple[Typed, ...]) -> Typed:
    sides = NO_SIDE
    for each in operands:
        sides |= each.sides
    return Typed(name, kind, operands, sides=sides)


def _crosses(parts: Sequence[Typed]) -> bool:
    sides = NO_SIDE
    for each in parts:
        sides |= each.sides
    return sides == BOTH


def _first_place(node: Node) -> int:
    """Where a part of a condition begins."""
    if isinstance(node, ColumnNode | Constant):
        return node.place
    first = node.operands[0]
    return min(node.place, _first_place(first))
