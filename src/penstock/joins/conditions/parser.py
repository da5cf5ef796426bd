"""Parse the text of a condition, with errors that show the position."""

from __future__ import annotations

import datetime
import functools
import re
from decimal import Decimal
from importlib import resources
from typing import Any, NoReturn

from lark import Lark, Transformer
from lark.exceptions import UnexpectedInput, VisitError

from penstock.errors import LONGEST, ConditionError, pointed
from penstock.joins.conditions.nodes import SIDES, ColumnNode, Constant, Node, Operation, columns_of, depth_of
from penstock.syntax import too_deep, unexpected

DEEPEST = 60  # maximum nesting of operations
_WORDS = {
    "COLUMN": "a column such as left.x or right.y",
    "NAME": "",
    "NUMBER": "a number",
    "STRING": "a text in quotes",
    "BOOLEAN": "true or false",
    "DATE": "a date",
    "TIMESTAMP": "a timestamp",
    "NULL": "",
    "OR": "or",
    "AND": "and",
    "NOT": "not",
    "IN": "in",
    "IS": "is",
    "COMPARISON": "a comparison such as = or <",
    "PLUS_MINUS": "+ or -",
    "TIMES_OVER": "*, / or %",
    "LPAR": "'('",
    "RPAR": "')'",
    "COMMA": "','",
    "$END": "the end",
}
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "\\": "\\", "'": "'", '"': '"'}
_ALIASES = {"==": "=", "<>": "!="}


@functools.cache
def _lark() -> Lark:
    grammar = (resources.files("penstock.joins.conditions") / "grammar.lark").read_text(encoding="utf-8")
    return Lark(grammar, parser="lalr", propagate_positions=False)


def parse_condition(text: str) -> Node:
    """Parse the text of a condition.

    >>> from penstock.joins.conditions.parser import parse_condition
    >>> str(parse_condition("left.price < right.price and not left.side in ('buy', 'sell')"))
    "((left.price < right.price) and (not (left.side in ('buy', 'sell'))))"
    >>> parse_condition("left.price <")
    Traceback (most recent call last):
        ...
    penstock.errors.ConditionError: line 1, column 13: found the end of the text, expected '(', + or -, ...
    """
    if not isinstance(text, str):
        raise ConditionError(
            f"where takes a text such as 'left.price < right.price'; {type(text).__name__} was given."
        )
    if (deep := too_deep(text, DEEPEST, "a flatter condition")) is not None:
        raise ConditionError(deep)
    try:
        tree = _lark().parse(text)
    except UnexpectedInput as error:
        _refuse(error, text)
    try:
        node = _Builder(text).transform(tree)
        if depth_of(node) > DEEPEST:
            raise RecursionError
        return node
    except VisitError as error:
        if isinstance(error.orig_exc, ConditionError):
            raise error.orig_exc from None
        if isinstance(error.orig_exc, RecursionError):
            _refuse_nesting()
        raise
    except RecursionError:
        _refuse_nesting()


def condition_columns(text: str, side: int) -> list[str]:
    """Return the columns of a side that a condition names.

    >>> from penstock.joins.conditions.parser import condition_columns
    >>> condition_columns("left.b < right.x and left.a > 0", 0)
    ['a', 'b']
    """
    return sorted({each.name for each in columns_of(parse_condition(text)) if each.side == side})


def _refuse_nesting() -> NoReturn:
    raise ConditionError(
        f"The condition is nested more than {DEEPEST} operations deep; write a flatter one."
    ) from None


def _refuse(error: UnexpectedInput, text: str) -> NoReturn:
    """Convert an error of the parser, with line, column, found, expected and a caret."""
    at, word, ended, _, message = unexpected(error, text, _WORDS)
    advice = {
        "&": "Write 'and'.",
        "&&": "Write 'and'.",
        "|": "Write 'or'.",
        "||": "Write 'or'.",
        "!": "Write 'not'.",
        "<=>": "Write 'a = b or (a is null and b is null)'.",
        "between": "Write 'a >= b and a <= c'.",
        "like": "Text patterns are not supported; compute a column with the answer first.",
        "cast": "Casts are not supported; cast the column first.",
        ".": "Only columns are supported; select the field as a column first.",
    }
    for start in (text[at : at + 3], text[at : at + 2], word.lower(), word[:1]):
        if not ended and start in advice:
            raise ConditionError(f"{message}\n{advice[start]}") from None
    if re.match(r"\w+\s*\(", text[at:]) or (word == "(" and re.search(r"\w\s*$", text[:at])):
        message += "\nFunctions are not supported; compute a column with their values first."
    raise ConditionError(message) from None


class _Builder(Transformer):  # type: ignore[type-arg]
    """Turns the tree of the parser into nodes."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.text = text

    def start(self, parts: list[Any]) -> Node:
        return parts[0]

    def either(self, parts: list[Any]) -> Node:
        return Operation("or", tuple(parts[::2]), parts[1].start_pos)

    def both(self, parts: list[Any]) -> Node:
        return Operation("and", tuple(parts[::2]), parts[1].start_pos)

    def negated(self, parts: list[Any]) -> Node:
        return Operation("not", (parts[1],), parts[0].start_pos)

    def comparison(self, parts: list[Any]) -> Node:
        name = _ALIASES.get(str(parts[1]), str(parts[1]))
        return Operation(name, (parts[0], parts[2]), parts[1].start_pos)

    def among(self, parts: list[Any]) -> Node:
        return Operation("in", (parts[0], *parts[2:]), parts[1].start_pos)

    def not_among(self, parts: list[Any]) -> Node:
        inner = Operation("in", (parts[0], *parts[3:]), parts[2].start_pos)
        return Operation("not", (inner,), parts[1].start_pos)

    def is_null(self, parts: list[Any]) -> Node:
        return Operation("is null", (parts[0],), parts[1].start_pos)

    def is_not_null(self, parts: list[Any]) -> Node:
        return Operation("not", (self.is_null(parts),), parts[1].start_pos)

    def sum(self, parts: list[Any]) -> Node:
        node = parts[0]
        for operator, operand in zip(parts[1::2], parts[2::2], strict=True):
            node = Operation(str(operator), (node, operand), operator.start_pos)
        return node

    product = sum

    def signed(self, parts: list[Any]) -> Node:
        return Operation("neg", (parts[1],), parts[0].start_pos) if parts[0] == "-" else parts[1]

    def group(self, parts: list[Any]) -> Node:
        return parts[0]

    def column(self, parts: list[Any]) -> Node:
        side, _, name = str(parts[0]).partition(".")
        name = name.strip()
        if name.startswith("`"):
            name = name[1:-1].replace("``", "`")
        return ColumnNode(SIDES.index(side.strip().lower()), name, parts[0].start_pos)

    def number(self, parts: list[Any]) -> Node:
        text, at = str(parts[0]), parts[0].start_pos
        value: Any = int(text) if text.isdigit() else float(text) if "e" in text.lower() else Decimal(text)
        digits = len(value.as_tuple().digits) if isinstance(value, Decimal) else 0
        if (isinstance(value, int) and value >= 2**63) or digits > 18 or value == float("inf"):
            self._refuse(at, text, "a number of at most 18 digits, or one such as 1e20")
        return Constant(value, at)

    def string(self, parts: list[Any]) -> Node:
        return Constant(self._unquoted(parts[0]), parts[0].start_pos)

    def boolean(self, parts: list[Any]) -> Node:
        return Constant(str(parts[0]).lower() == "true", parts[0].start_pos)

    def date(self, parts: list[Any]) -> Node:
        text = self._unquoted(parts[1])
        try:
            return Constant(datetime.date.fromisoformat(text), parts[0].start_pos)
        except ValueError:
            self._refuse(parts[1].start_pos, text, "a date such as '2026-11-19'")

    def timestamp(self, parts: list[Any]) -> Node:
        text = self._unquoted(parts[1])
        try:
            return Constant(datetime.datetime.fromisoformat(text), parts[0].start_pos)
        except ValueError:
            self._refuse(parts[1].start_pos, text, "a timestamp such as '2026-11-19 12:00:00'")

    def null(self, parts: list[Any]) -> Node:
        at = parts[0].start_pos
        message = pointed(self.text, at, "'null'", "a column or a value")
        raise ConditionError(
            f"{message}\nNothing is equal or unequal to null; write 'is null' or leave it out."
        )

    def bare(self, parts: list[Any]) -> Node:
        name, at = str(parts[0]), parts[0].start_pos
        message = pointed(self.text, at, repr(name[:LONGEST]), "a column with its side")
        if re.match(r"\s*\(", self.text[at + len(name) :]):
            raise ConditionError(f"{message}\nFunctions are not supported; compute a column first.")
        raise ConditionError(
            f"{message}\nSay which stream the column is of: left.{name} or right.{name}. Texts are in quotes."
        )

    def _unquoted(self, token: Any) -> str:
        inner, at = str(token)[1:-1], token.start_pos + 1

        def letter(found: re.Match[str]) -> str:
            if found[1] not in _ESCAPES:
                self._refuse(at + found.start(), found[0], "one of \\n \\t \\r \\\\ \\' \\\"")
            return _ESCAPES[found[1]]

        return re.sub(r"\\(.)", letter, inner, flags=re.DOTALL)

    def _refuse(self, at: int, found: str, expected: str) -> NoReturn:
        raise ConditionError(pointed(self.text, at, repr(found[:LONGEST]), expected))
