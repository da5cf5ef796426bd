"""From text to a pattern, with errors that show the place."""

from __future__ import annotations

import datetime
import functools
from importlib import resources
from itertools import pairwise
from typing import Any, NoReturn

from lark import Lark, Token, Transformer, v_args
from lark.exceptions import UnexpectedCharacters, UnexpectedEOF, UnexpectedInput, UnexpectedToken, VisitError

from penstock.errors import KleeneError, PatternError, PatternSyntaxError, SkipStrategyError, pointed
from penstock.patterns.nodes import And, Attr, Compare, Const, E, Item, Not, Or, Seq
from penstock.patterns.span import Span, span_of

DEEPEST = 100  # parentheses within parentheses
_WORDS = {
    "PATTERN": "PATTERN",
    "WITHIN": "WITHIN",
    "RETURN": "RETURN",
    "AS": "AS",
    "OPERATOR": "SEQ(, AND( or OR(",
    "AND_WORD": "and",
    "BOOLEAN": "true or false",
    "TIMESTAMP": "a timestamp",
    "NUMBER": "a number",
    "UNIT": "a unit of time or EVENTS",
    "NAME": "a name",
    "ATTRIBUTE": "an attribute",
    "STRING": "a text in quotes",
    "COMPARISON": "a comparison such as = or <",
    "LPAR": "'('",
    "RPAR": "')'",
    "COMMA": "','",
    "BANG": "'!'",
    "DOT": "'.'",
    "$END": "the end",
}
_SKIPS = {"skip", "strict", "contiguity", "consecutive", "followed", "next", "strategy", "partition"}
_GROUPS = {"SEQ": Seq, "AND": And, "OR": Or}


class _Conditions(tuple[Compare, ...]):
    """Several comparisons, told from parts."""


@functools.cache
def _lark(start: str) -> Lark:
    grammar = (resources.files("penstock.patterns") / "grammar.lark").read_text(encoding="utf-8")
    return Lark(grammar, start=start, parser="lalr", propagate_positions=False)


def parse_pattern(text: str) -> tuple[Any, Span, tuple[Item, ...]]:
    """The expression, the window and the RETURN items of a pattern."""
    return _parsed(text, "start")


def parse_conditions(text: str) -> tuple[Compare, ...]:
    """The comparisons of a text such as "a.x = b.x and b.y > 3", separated by `and` or commas.

    >>> from penstock.patterns.parser import parse_conditions
    >>> [str(each) for each in parse_conditions("a.x = b.x = c.x, c.y > 3")]
    ['a.x = b.x', 'b.x = c.x', 'c.y > 3']
    """
    # As the arguments of a group, so that commas may separate them.
    _, conditions = _parsed(text, "conditions_only")
    return conditions


def _parsed(text: str, start: str) -> Any:
    if not isinstance(text, str):
        raise PatternError(f"A pattern is a text; {type(text).__name__} was given.")
    _refuse_depth(text)
    if start == "conditions_only":
        found: list[Compare] = []
        for piece, offset in _pieces(text):
            found += _run(piece, "conditions", text, offset)
        return None, tuple(found)
    return _run(text, start, text, 0)


def _pieces(text: str) -> list[tuple[str, int]]:
    """The text cut at its commas outside quotes, with the place of each piece."""
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
        _refuse(error, text, offset)
    try:
        return _Builder().transform(tree)
    except VisitError as error:
        if isinstance(error.orig_exc, PatternError):
            raise error.orig_exc from None
        raise


def _refuse_depth(text: str) -> None:
    depth = 0
    for at, letter in enumerate(text):
        depth += (letter == "(") - (letter == ")")
        if depth > DEEPEST:
            raise PatternSyntaxError(
                pointed(text, at, f"more than {DEEPEST} parentheses within each other", "a flatter pattern")
            )


def _refuse(error: UnexpectedInput, text: str, offset: int) -> NoReturn:
    """The error of the parser as one of ours, with line, column, found, expected and a caret."""
    wanted: set[str] = set()
    if isinstance(error, UnexpectedCharacters):
        wanted = set(error.allowed or ())
    elif isinstance(error, UnexpectedToken):
        wanted = set(error.accepts or error.expected or ())
    elif isinstance(error, UnexpectedEOF):
        wanted = set(error.expected)
    token = getattr(error, "token", None)
    ended = isinstance(error, UnexpectedEOF) or (token is not None and token.type == "$END")
    at = len(text) if ended else (error.pos_in_stream or 0) + offset
    word = str(token) if token is not None and not ended else text[at : at + 1]
    found = "the end of the text" if ended else repr(word)
    expected = ", ".join(sorted({_WORDS.get(each, each) for each in wanted})) or "nothing more"
    message = pointed(text, at, found, expected)
    before = text[:at].rstrip()
    if word in ("+", "*", "{") or (word.startswith("+") and not ended):
        raise KleeneError(
            f"{message}\nRepetition (Kleene {word[0]}) is not part of the language. Write the events out, or "
            "count matches."
        ) from None
    if word.lower() in _SKIPS or word in ("->", ";"):
        raise SkipStrategyError(
            f"{message}\nThere are no skip strategies: all combinations match (skip till any match). Use a "
            "negation between two parts to forbid what may not come in between."
        ) from None
    if word == "!" and before.endswith("!"):
        raise PatternError(
            f"{message}\n!! is refused: the absence of an absence. Leave both out, or negate a SEQ that "
            "contains the negation."
        ) from None
    raise PatternSyntaxError(message) from None


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
    number = float(text)  # the grammar lets nothing else through
    if number in (float("inf"), float("-inf")):
        raise PatternError(f"The number {text[:40]} is too large.")
    return number


@v_args(inline=True)
class _Builder(Transformer[Token, Any]):
    """The parse tree as nodes."""

    def start(self, _pattern: Token, expression: Any, *rest: Any) -> Any:
        span = next((each for each in rest if isinstance(each, Span)), None)
        items = next((each for each in rest if isinstance(each, tuple)), ())
        return expression, span_of(span), items

    def group(self, operator: Token, *arguments: Any) -> Any:
        parts = [each for each in arguments if not isinstance(each, _Conditions)]
        where = [c for each in arguments if isinstance(each, _Conditions) for c in each]
        return _GROUPS[operator.upper()](*parts, where=where)

    def negation(self, part: Any, *conditions: _Conditions) -> Not:
        return Not(part, tuple(c for each in conditions for c in each))

    def event(self, kind: str, variable: Token | None = None) -> E:
        return E(kind, None if variable is None else str(variable))

    def type(self, token: Token) -> str:
        return _name(token)

    def conditions(self, *chains: Any) -> _Conditions:
        return _Conditions(c for chain in chains if isinstance(chain, list) for c in chain)

    def chain(self, *parts: Any) -> list[Compare]:
        spelled = {"<>": "!=", "==": "="}
        return [
            Compare(parts[i], spelled.get(parts[i + 1], str(parts[i + 1])), parts[i + 2])
            for i in range(0, len(parts) - 2, 2)
        ]

    def attribute(self, variable: Token, name: Token) -> Attr:
        return Attr(str(variable), _name(name))

    def number(self, token: Token) -> Const:
        return Const(_number(token))

    def string(self, token: Token) -> Const:
        return Const(_unquoted(token))

    def boolean(self, token: Token) -> Const:
        return Const(token.lower() == "true")

    def timestamp(self, token: Token) -> Const:
        try:
            return Const(datetime.datetime.fromisoformat(str(token)))
        except ValueError as error:
            raise PatternError(f"{token} is not a timestamp: {error}.") from error

    def within(self, _within: Token, *amounts: tuple[str, str]) -> Span:
        if len(amounts) == 1:
            number, unit = amounts[0]
            if not unit:
                return Span(_number(number))
            if unit.lower() in ("event", "events"):
                return span_of(f"{number} EVENTS")
        return Span(" ".join(f"{number} {unit}".strip() for number, unit in amounts))

    def amount(self, number: Token, unit: Token | None = None) -> tuple[str, str]:
        return str(number), "" if unit is None else str(unit)

    def returns(self, _return: Token, *items: Item) -> tuple[Item, ...]:
        return items

    def item(self, what: Attr | str, *alias: Token) -> Item:
        return Item(what, _name(alias[1]) if alias else None)

    def variable(self, name: Token) -> str:
        return str(name)
