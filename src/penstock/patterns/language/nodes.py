"""The syntax nodes of patterns: events, SEQ, AND, OR, negations and comparisons, as frozen records."""

from __future__ import annotations

import datetime
import math
import re
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from penstock.errors import PatternError

OPERATORS = ("<", "<=", "=", "!=", ">=", ">")
_PLAIN = re.compile(r"[^\W\d]\w*")
_HYPHENED = re.compile(r"[^\W\d]\w*(?:-\w+)*")
_PART = "an event, SEQ, AND or OR"
DEEPEST = 100  # maximum nesting of parentheses
RESERVED = {"pattern", "within", "return", "as", "seq", "and", "or", "true", "false"}

Value = int | float | str | bool | datetime.datetime


def quoted(text: str) -> str:
    """Return a text in double quotes, as the language writes it.

    >>> from penstock.patterns.language.nodes import quoted
    >>> print(quoted('disk "full"'))
    "disk \\"full\\""
    """
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _check_word(name: Any) -> None:
    """Reject names that cannot be variables, such as a quoted type without a variable."""
    if not isinstance(name, str) or not _PLAIN.fullmatch(name):
        raise PatternError(
            f"{name!r} is not a variable; give the event a variable, a word such as 'a' or 'last_trade'.",
            expected="a variable",
        )


def _name(text: str, allowed: re.Pattern[str]) -> str:
    plain = allowed.fullmatch(text) is not None and text.lower() not in RESERVED
    return text if plain else quoted(text)


class Placed:
    """A node that may come from text; the parser sets its position, from first to after last character."""

    place: ClassVar[tuple[int, int] | None] = None
    depth: ClassVar[int] = 0  # nesting of parentheses in its text


def _set_depth(outer: Placed, own: int, parts: tuple[Any, ...]) -> None:
    depth = own + max((part.depth for part in parts), default=0)
    if depth > DEEPEST:
        raise PatternError(
            f"The pattern is nested more than {DEEPEST} levels deep; write a flatter pattern.",
            expected="fewer levels",
        )
    object.__setattr__(outer, "depth", depth)


@dataclass(frozen=True)
class Attr(Placed):
    """An attribute of a variable: `a.price`.

    >>> from penstock.patterns import Attr
    >>> str(Attr("o", "ins-type"))
    'o.ins-type'
    """

    var: str
    name: str

    def __post_init__(self) -> None:
        _check_word(self.var)
        if not isinstance(self.name, str) or not self.name:
            raise PatternError(
                f"The name of an attribute is a text; {self.name!r} was given.",
                expected="the name of a column",
            )

    def __str__(self) -> str:
        return f"{self.var}.{_name(self.name, _HYPHENED)}"


@dataclass(frozen=True)
class ConstantValue(Placed):
    """A number, text, boolean or timestamp in a comparison.

    >>> from penstock.patterns.language.nodes import ConstantValue
    >>> str(ConstantValue("surgery")), str(ConstantValue(2.5))
    ('"surgery"', '2.5')
    """

    value: Value

    def __post_init__(self) -> None:
        value: Any = self.value
        if isinstance(value, np.generic):
            value = value.item()
            object.__setattr__(self, "value", value)
        if isinstance(value, datetime.date) and not isinstance(value, datetime.datetime):
            object.__setattr__(self, "value", datetime.datetime(value.year, value.month, value.day))
        elif getattr(value, "nanosecond", 0):
            raise PatternError(
                f"{value} has a finer resolution than microseconds; use a coarser timestamp.",
                expected="a timestamp in microseconds",
            )
        elif hasattr(value, "to_pydatetime"):
            object.__setattr__(self, "value", value.to_pydatetime())
        elif not isinstance(value, int | float | str | datetime.datetime):
            raise PatternError(
                f"{value!r} cannot be compared with an attribute; allowed are numbers, texts, booleans "
                "and timestamps."
            )
        elif isinstance(value, float) and not math.isfinite(value):
            raise PatternError(f"{value!r} cannot be compared; give a finite number.")

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, ConstantValue)
            and type(self.value) is type(other.value)
            and bool(self.value == other.value)
        )

    def __hash__(self) -> int:
        return hash((type(self.value).__name__, self.value))

    def __str__(self) -> str:
        if isinstance(self.value, bool):
            return str(self.value).lower()
        if isinstance(self.value, str):
            return quoted(self.value)
        if isinstance(self.value, datetime.datetime):
            return self.value.isoformat()
        return repr(self.value)


Operand = Attr | ConstantValue


@dataclass(frozen=True)
class Compare(Placed):
    """One comparison of a predicate: `a.x < b.y`, `o.kind = "surgery"`.

    >>> from penstock.patterns import Attr, Compare
    >>> print(Compare(Attr("a", "x"), "<", 3))
    a.x < 3
    """

    left: Operand
    op: str
    right: Operand

    def __post_init__(self) -> None:
        for side in ("left", "right"):
            value: Any = getattr(self, side)
            if not isinstance(value, Attr | ConstantValue):
                object.__setattr__(self, side, ConstantValue(value))
        if self.op not in OPERATORS:
            raise PatternError(f"{self.op!r} is not a comparison. Allowed: {', '.join(OPERATORS)}")
        if isinstance(self.left, ConstantValue) and isinstance(self.right, ConstantValue):
            raise PatternError(
                f"{self} compares two constants; one side must be an attribute, such as a.price.",
                expected="an attribute on one side",
            )

    def __str__(self) -> str:
        return f"{self.left} {self.op} {self.right}"

    @property
    def attributes(self) -> tuple[Attr, ...]:
        """The sides that are attributes."""
        return tuple(side for side in (self.left, self.right) if isinstance(side, Attr))


@dataclass(frozen=True)
class E(Placed):
    """An event of a type, with or without a variable.

    >>> from penstock.patterns import E
    >>> str(E("Recycle", "r")), str(E("disk full"))
    ('Recycle r', '"disk full"')
    """

    type: str
    var: str | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.type, str) or not self.type:
            raise PatternError(
                f"The type of an event is a text; {self.type!r} was given.", expected="the type of an event"
            )
        if self.var is not None and (
            not isinstance(self.var, str) or not _PLAIN.fullmatch(self.var) or self.var.lower() in RESERVED
        ):
            raise PatternError(
                f"{self.var!r} is not a variable; a variable is a word such as 'a' or 'last_trade'.",
                expected="a variable",
            )

    def __str__(self) -> str:
        return _name(self.type, _PLAIN) + (f" {self.var}" if self.var else "")


@dataclass(frozen=True)
class Not(Placed):
    """The absence of a part; `where` holds predicates of the absent part.

    >>> from penstock.patterns import E, Not
    >>> str(Not(E("B", "b"), where="b.x > 3"))
    '!(B b, b.x > 3)'
    """

    part: Part
    where: tuple[Compare, ...] = ()

    def __post_init__(self) -> None:
        if isinstance(self.part, Not):
            raise PatternError(
                f"!!{self.part.part} is not allowed: a double negation. Write {self.part.part} for what "
                "must occur, or negate a SEQ that contains the negation.",
                expected=_PART,
            )
        if not isinstance(self.part, E | Group):
            raise PatternError(f"Not takes an event, SEQ, AND or OR; {self.part!r} was given.")
        object.__setattr__(self, "where", conditions_of(self.where))
        _set_depth(self, 1 if self.where else 0, (self.part,))

    def __str__(self) -> str:
        if not self.where:
            return f"!{self.part}"
        return f"!({', '.join(str(each) for each in (self.part, *self.where))})"


@dataclass(frozen=True, init=False)
class Group(Placed):
    """SEQ, AND or OR of parts, with predicates."""

    parts: tuple[Part, ...]
    where: tuple[Compare, ...]
    op: ClassVar[str] = ""

    def __init__(self, *parts: Part, where: Any = ()) -> None:
        for part in parts:
            if not isinstance(part, E | Not | Group):
                raise PatternError(f"{self.op} takes events (E), Seq, And, Or and Not; {part!r} was given.")
        _set_depth(self, 1, parts)
        object.__setattr__(self, "parts", parts)
        object.__setattr__(self, "where", conditions_of(where))
        if not parts:
            raise PatternError(f"{self.op} has no events; name at least one.")
        if all(isinstance(part, Not) for part in parts):
            raise PatternError(
                f"{self.op} has only negations; at least one of its parts must not be negated.",
                expected="a part that is not negated",
            )

    def __str__(self) -> str:
        return f"{self.op}({', '.join(str(each) for each in (*self.parts, *self.where))})"


class Seq(Group):
    """Parts that occur one after the other.

    >>> from penstock.patterns import E, Not, Seq
    >>> print(Seq(E("A", "a"), Not(E("B")), E("C", "c"), where="a.id = c.id"))
    SEQ(A a, !B, C c, a.id = c.id)
    """

    op = "SEQ"


class And(Group):
    """Parts in any order.

    >>> from penstock.patterns import And, E
    >>> print(And(E("A"), E("B")))
    AND(A, B)
    """

    op = "AND"


class Or(Group):
    """One of its parts.

    >>> from penstock.patterns import E, Or
    >>> print(Or(E("A"), E("B")))
    OR(A, B)
    """

    op = "OR"

    def __init__(self, *parts: Part, where: Any = ()) -> None:
        for part in parts:
            if isinstance(part, Not):
                raise PatternError(
                    f"{part} is not allowed directly inside OR: a negation needs an interval, "
                    "and OR has none. Put it into a SEQ or AND with a part that is not negated.",
                    part,
                    _PART,
                )
        super().__init__(*parts, where=where)


Part = E | Not | Group


@dataclass(frozen=True)
class ReturnItem(Placed):
    """One column of RETURN: a variable or an attribute of one, optionally renamed.

    >>> from penstock.patterns.language.nodes import Attr, ReturnItem
    >>> print(ReturnItem(Attr("a", "price"), "paid"))
    a.price AS paid
    """

    what: Attr | str
    alias: str | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.what, Attr):
            _check_word(self.what)
        if self.alias is not None and (not isinstance(self.alias, str) or not self.alias):
            raise PatternError(f"AS takes a name; {self.alias!r} was given.", expected="the name of a column")

    @property
    def name(self) -> str:
        """The name of the column."""
        return self.alias if self.alias is not None else str(self.what)

    @property
    def var(self) -> str:
        """The variable it refers to."""
        return self.what if isinstance(self.what, str) else self.what.var

    def __str__(self) -> str:
        return str(self.what) + (f" AS {_name(self.alias, _HYPHENED)}" if self.alias is not None else "")


def conditions_of(given: Any) -> tuple[Compare, ...]:
    """Parse comparisons from a text such as "a.x = b.x and b.y > 3", from one, or from several."""
    if isinstance(given, str):
        from penstock.patterns.language.parser import parse_conditions

        return parse_conditions(given)
    if isinstance(given, Compare):
        return (given,)
    try:
        parts = tuple(given)
    except TypeError:
        parts = (given,)
    found: list[Compare] = []
    for part in parts:
        if isinstance(part, str):
            found += conditions_of(part)
        elif isinstance(part, Compare):
            found.append(part)
        else:
            raise PatternError(
                f"where takes a text such as 'a.x = b.x and b.y > 3' or comparisons; {part!r} was given."
            )
    return tuple(found)
