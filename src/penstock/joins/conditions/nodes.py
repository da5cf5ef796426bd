"""The syntax nodes of a condition. Each knows its place in the text, for messages."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

SIDES = ("left", "right")
COMPARISONS = ("=", "!=", "<", "<=", ">", ">=")
ARITHMETIC = ("+", "-", "*", "/", "%")


@dataclass(frozen=True)
class ColumnNode:
    """A column of one side.

    >>> from penstock.joins.conditions.nodes import ColumnNode
    >>> str(ColumnNode(0, "price")), str(ColumnNode(1, "unit price"))
    ('left.price', 'right.`unit price`')
    """

    side: int
    name: str
    place: int = field(default=0, compare=False)

    def __str__(self) -> str:
        name = self.name if self.name.isidentifier() else f"`{self.name.replace('`', '``')}`"
        return f"{SIDES[self.side]}.{name}"


@dataclass(frozen=True)
class Constant:
    """A number, a text, a boolean, a date or a timestamp.

    >>> from penstock.joins.conditions.nodes import Constant
    >>> str(Constant(True)), str(Constant("a"))
    ('true', "'a'")
    """

    value: Any
    place: int = field(default=0, compare=False)

    def __str__(self) -> str:
        if isinstance(self.value, bool):
            return str(self.value).lower()
        return repr(self.value) if isinstance(self.value, str) else str(self.value)


@dataclass(frozen=True)
class Operation:
    """An operator with its operands: `or`, `and`, `not`, `in`, `is null`, `neg`, a comparison, arithmetic.

    >>> from penstock.joins.conditions.nodes import ColumnNode, Operation
    >>> str(Operation("<", (ColumnNode(0, "a"), ColumnNode(1, "b"))))
    '(left.a < right.b)'
    """

    name: str
    operands: tuple[Any, ...]
    place: int = field(default=0, compare=False)

    def __str__(self) -> str:
        parts = [str(each) for each in self.operands]
        if self.name == "in":
            return f"({parts[0]} in ({', '.join(parts[1:])}))"
        if self.name == "is null":
            return f"({parts[0]} is null)"
        if len(parts) == 1:
            return f"({'-' if self.name == 'neg' else self.name + ' '}{parts[0]})"
        return "(" + f" {self.name} ".join(parts) + ")"


Node = ColumnNode | Constant | Operation


def columns_of(node: Node) -> Iterator[ColumnNode]:
    """The columns of a condition, in the order of the text, with repetitions.

    >>> from penstock.joins.conditions.nodes import ColumnNode, Operation, columns_of
    >>> [str(each) for each in columns_of(Operation("<", (ColumnNode(0, "a"), ColumnNode(1, "b"))))]
    ['left.a', 'right.b']
    """
    if isinstance(node, ColumnNode):
        yield node
    elif isinstance(node, Operation):
        for operand in node.operands:
            yield from columns_of(operand)


def depth_of(node: Node) -> int:
    """How deep operations are nested, without recursion.

    >>> from penstock.joins.conditions.nodes import ColumnNode, Operation, depth_of
    >>> depth_of(Operation("not", (Operation("is null", (ColumnNode(0, "a"),)),)))
    2
    """
    deepest, waiting = 0, [(node, 0)]
    while waiting:
        each, depth = waiting.pop()
        deepest = max(deepest, depth)
        if isinstance(each, Operation):
            waiting += [(operand, depth + 1) for operand in each.operands]
    return deepest
