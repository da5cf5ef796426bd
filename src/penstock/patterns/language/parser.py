"""Parse the text of a pattern, with errors that show the position."""

from __future__ import annotations

import datetime
import functools
import re
from importlib import resources
from itertools import pairwise
from typing import Any

from lark import Lark, Token, Transformer, v_args
from lark.exceptions import UnexpectedInput, VisitError
from lark.tree import Meta

from penstock.errors import PatternError, PatternSyntaxError, WindowError
from penstock.patterns.language.nodes import (
    DEEPEST,
    And,
    Attr,
    Compare,
    ConstantValue,
    E,
    Not,
    Or,
    Placed,
    ReturnItem,
    Seq,
)
from penstock.patterns.language.parse_errors import no_skipping, refuse
from penstock.patterns.language.span import Span, span_of
from penstock.syntax import too_deep
from penstock.units import time_unit

EVENTS = ("event", "events")
_GROUPS = {"SEQ": Seq, "AND": And, "OR": Or}


class _Conditions(tuple[Compare, ...]):
    """Several comparisons, to distinguish them from parts."""


@functools.cache
def _lark(start: str) -> Lark:
    grammar = (resources.files("penstock.patterns.language") / "grammar.lark").read_text(encoding="utf-8")
    return Lark(grammar, start=start, parser="lalr", propagate_positions=True)


def parse_pattern(text: str) -> tuple[Any, Span, tuple[ReturnItem, ...]]:
    """Return the expression, the window and the RETURN items of a pattern."""
    return _parsed(text, "start")


def parse_conditions(text: str) -> tuple[Compare, ...]:
    """Parse the comparisons of a text such as "a.x = b.x and b.y > 3", separated by `and` or commas.

    >>> from penstock.patterns.language.parser import parse_conditions
    >>> [str(each) for each in parse_conditions("a.x = b.x = c.x, c.y > 3")]
    ['a.x = b.x', 'b.x = c.x', 'c.y > 3']
    """
    # Parse them as arguments of a group, so that commas may separate them.
    _, conditions = _parsed(text, "conditions_only")
    return conditions


def _parsed(text: str, start: str) -> Any:
    if not isinstance(text, str):
        raise PatternError(f"A pattern is a text; {type(text).__name__} was given.")
    if (deep := too_deep(text, DEEPEST, "a flatter pattern")) is not None:
        raise PatternSyntaxError(deep)
    if start == "conditions_only":
        found: list[Compare] = []
        for piece, offset in _pieces(text):
            found += _run(piece, "conditions", text, offset)
        return None, tuple(found)
    return _run(text, start, text, 0)


def _pieces(text: str) -> list[tuple[str, int]]:
    """Split the text at commas outside quotes, with the position of each piece."""
    cuts, quote, at = [-1], "", 0
    while at < len(text):
        letter = text[at]
        if quote:
            if letter == "\\":
                at += 1
            elif letter == quote:
                quote = ""
        elif letter in "\"'":
            quote = letter
        elif letter == ",":
            cuts.append(at)
        at += 1
    cuts.append(len(text))
    return [(text[a + 1 : b], a + 1) for a, b in pairwise(cuts)]


def _run(piece: str, start: str, text: str, offset: int) -> Any:
    try:
        tree = _lark(start).parse(piece)
    except UnexpectedInput as error:
        refuse(error, _lark(start), piece, text, offset)
    try:
        return _Builder().transform(tree)
    except VisitError as error:
        if isinstance(error.orig_exc, PatternError):
            raise error.orig_exc.shown(text, offset) from None
        raise


def _unquoted(text: str) -> str:
    body, out, at = text[1:-1], [], 0
    while at < len(body):
        at += body[at] == "\\"
        out.append(body[at])
        at += 1
    return "".join(out)


def _name(token: Token) -> str:
    return _unquoted(token) if token.type == "STRING" else str(token)


def _number(text: str) -> int | float:
    try:
        return int(text)
    except ValueError:
        pass
    number = float(text)  # the grammar allows only numbers here
    if number in (float("inf"), float("-inf")):
        raise PatternError(f"The number {text[:40]} is too large.", expected="a smaller number")
    return number


def _placed(make: Any, _rule: str, children: list[Any], meta: Meta) -> Any:
    """Call a rule of the builder, and give its node or error the position of the rule."""
    place = None if meta.empty else (meta.start_pos, meta.end_pos)
    try:
        made = make(*children)
    except PatternError as error:
        error.place = error.place or place
        raise
    if isinstance(made, Placed):
        object.__setattr__(made, "place", place)
    return made


def _of(token: Token) -> tuple[int, int]:
    """Return the position of a token."""
    start = token.start_pos or 0
    return start, start + len(token)


@v_args(wrapper=_placed)
class _Builder(Transformer[Token, Any]):
    """Convert the parse tree to nodes."""

    def start(self, _pattern: Token, expression: Any, *rest: Any) -> Any:
        span = next((each for each in rest if isinstance(each, Span)), None)
        items = next((each for each in rest if isinstance(each, tuple)), ())
        try:
            return expression, span_of(span), items
        except PatternError as error:
            end = expression.place[1]
            error.place = items[0].place if items else (end, end)
            raise

    def group(self, operator: Token, *arguments: Any) -> Any:
        parts = [each for each in arguments if not isinstance(each, _Conditions)]
        where = [c for each in arguments if isinstance(each, _Conditions) for c in each]
        return _GROUPS[operator.upper()](*parts, where=where)

    def negation(self, part: Any, *conditions: _Conditions) -> Not:
        return Not(part, tuple(c for each in conditions for c in each))

    def event(self, kind: str, variable: Token | None = None) -> E:
        try:
            return E(kind, None if variable is None else str(variable))
        except PatternError as error:
            error.place = _of(variable) if variable is not None and kind else None
            raise

    def type(self, token: Token) -> str:
        return _name(token)

    def conditions(self, *chains: Any) -> _Conditions:
        return _Conditions(c for chain in chains if isinstance(chain, list) for c in chain)

    def chain(self, *parts: Any) -> list[Compare]:
        spelled = {"<>": "!=", "==": "="}
        found = []
        for left, op, right in zip(parts[::2], parts[1::2], parts[2::2], strict=False):
            found.append(Compare(left, spelled.get(op, str(op)), right))
            object.__setattr__(found[-1], "place", (left.place[0], right.place[1]))
        return found

    def attribute(self, variable: Token, name: Token) -> Attr:
        return Attr(str(variable), _name(name))

    def number(self, token: Token) -> ConstantValue:
        return ConstantValue(_number(token))

    def string(self, token: Token) -> ConstantValue:
        return ConstantValue(_unquoted(token))

    def boolean(self, token: Token) -> ConstantValue:
        return ConstantValue(token.lower() == "true")

    def timestamp(self, token: Token) -> ConstantValue:
        fine = re.search(r"\.\d{6}(\d+)", token)
        if fine and fine.group(1).strip("0"):
            raise PatternError(
                f"{token} has a finer resolution than microseconds; use a coarser timestamp.",
                expected="a timestamp in microseconds",
            )
        try:
            return ConstantValue(datetime.datetime.fromisoformat(str(token)))
        except ValueError as error:
            raise PatternError(f"{token} is not a timestamp: {error}.", expected="a timestamp") from error

    def within(self, _within: Token, *amounts: tuple[str, str]) -> Span:
        if len(amounts) == 1:
            number, unit = amounts[0]
            if not unit:
                return Span(_number(number))
            if unit.lower() in EVENTS:
                return span_of(f"{number} EVENTS")
        return Span(" ".join(f"{number} {unit}".strip() for number, unit in amounts))

    def amount(self, number: Token, unit: Token | None = None) -> tuple[str, str]:
        if unit is None:
            return str(number), ""
        try:
            if unit.lower() not in EVENTS:
                time_unit(str(unit))
        except WindowError as error:
            refused = no_skipping(unit) or PatternError(
                f"WITHIN {number} {unit}: {error}", expected="a unit of time or EVENTS"
            )
            refused.place = _of(unit)
            raise refused from error
        return str(number), str(unit)

    def returns(self, _return: Token, *items: ReturnItem) -> tuple[ReturnItem, ...]:
        return items

    def item(self, what: Attr | str, *alias: Token) -> ReturnItem:
        return ReturnItem(what, _name(alias[1]) if alias else None)

    def variable(self, name: Token) -> str:
        return str(name)
