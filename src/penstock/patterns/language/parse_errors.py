"""Syntax errors of patterns: the position, what was found, and what was expected."""

from __future__ import annotations

import contextlib
import re
from typing import NoReturn

from lark import Lark
from lark.exceptions import UnexpectedCharacters, UnexpectedInput, UnexpectedToken

from penstock.errors import (
    END,
    LONGEST,
    KleeneError,
    PatternError,
    PatternSyntaxError,
    SkipStrategyError,
    pointed,
)

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
# SKIP TILL NEXT MATCH, skip_till_next_match, AFTER MATCH SKIP ..., STRICT, PARTITION CONTIGUITY, ...
_SKIP = re.compile(
    r"(?:(?:using|after|match|with|partition|selection)\s+){0,3}"
    r"(?:(?:skip|strict)(?:_\w+)?|contigu(?:ity|ous)|consecutive|followed|next|strategy|partition|selection)\b",
    re.IGNORECASE,
)
_REPEATED = re.compile(r"[\w\"')]\s*$")  # what may be followed by a repetition: a name, a text or a group


def no_skipping(words: str) -> PatternError | None:
    """Return the error for a skip strategy, if the text asks for one."""
    if not _SKIP.match(words):
        return None
    return SkipStrategyError(
        "Skip strategies are not supported: all combinations match (skip till any match). Use a negation "
        "between two parts to exclude events in between.",
        expected="RETURN or the end",
    )


def refuse(error: UnexpectedInput, lark: Lark, piece: str, text: str, offset: int) -> NoReturn:
    """Convert an error of the parser; `piece` is what was parsed, `offset` its position in the text."""
    token = getattr(error, "token", None)
    ended = token is not None and token.type == "$END"
    at = len(text) if ended else (error.pos_in_stream or 0) + offset
    whole = re.compile(r"\w+").match(text, at)
    word = "" if ended else whole.group() if whole else str(token or text[at : at + 1])
    wanted = _wanted(error, lark, piece)
    found = END if ended else repr(word[:LONGEST])
    expected = ", ".join(sorted({_WORDS.get(each, each) for each in wanted})) or "nothing more"
    message = pointed(text, at, found, expected)
    before = piece[max(0, at - offset - 100) : at - offset]
    repeats = word[:1] in ("+", "*", "?", "{", "[") and _REPEATED.search(before)
    if repeats and wanted & {"RPAR", "WITHIN"} and not wanted & {"COMPARISON", "AS"}:
        raise KleeneError(
            f"{message}\nRepetition (Kleene {word[0]}) is not supported. Write the events out, or "
            "count matches."
        ) from None
    last = re.search(r"\w+\s*$", before) if "$END" in wanted else None
    for place in [at] if last is None else [at, at - len(last.group())]:
        skipping = no_skipping(text[place:])
        if text[place : place + 2] == "->" or (text[place : place + 1] == ";" and "RPAR" in wanted):
            skipping = no_skipping("skip")
        if skipping is not None and not ended:
            skipping.place, skipping.expected = (place, _end(text, place)), expected
            raise skipping.shown(text) from None
    if word == "!" and before.rstrip().endswith("!"):
        raise PatternError(
            f"{message}\n!! is not allowed: a double negation. Leave both out, or negate a SEQ that "
            "contains the negation."
        ) from None
    raise PatternSyntaxError(message) from None


def _end(text: str, at: int) -> int:
    found = re.compile(r"\w+|->|.", re.DOTALL).match(text, at)
    return at if found is None else found.end()


def _wanted(error: UnexpectedInput, lark: Lark, piece: str) -> set[str]:
    """Return what could be at the position of an error."""
    if isinstance(error, UnexpectedToken):
        return set(error.accepts or error.expected or ())
    # The lexer allows everything that its table has for a state, which is more than the parser accepts.
    parser = lark.parse_interactive(piece)
    with contextlib.suppress(UnexpectedCharacters):
        parser.exhaust_lexer()
    accepted: set[str] = parser.accepts()  # type: ignore[no-untyped-call]
    return accepted
