"""What the languages of queries, patterns and conditions have in common: errors at a place in a text."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from lark.exceptions import UnexpectedCharacters, UnexpectedEOF, UnexpectedInput, UnexpectedToken

from penstock.errors import END, LONGEST, pointed


class Unexpected(NamedTuple):
    """Where a parser could not go on: the position, the word there, and the tokens that could be."""

    at: int
    word: str
    ended: bool  # the text, that is
    wanted: set[str]
    message: str  # with line, column and a caret


def unexpected(error: UnexpectedInput, text: str, words: Mapping[str, str]) -> Unexpected:
    """Return what a parser's error says; `words` are the names of tokens in messages, empty for none.

    >>> from lark import Lark
    >>> from lark.exceptions import UnexpectedInput
    >>> from penstock.syntax import unexpected
    >>> parser = Lark('start: "a" "," "b"', parser="lalr")
    >>> try:
    ...     parser.parse("a;b")
    ... except UnexpectedInput as error:
    ...     print(unexpected(error, "a;b", {"COMMA": "a comma"}).message)
    line 1, column 2: found ';', expected a comma
      a;b
       ^
    """
    wanted: set[str] = set()
    if isinstance(error, UnexpectedCharacters):
        wanted = set(error.allowed or ())
    elif isinstance(error, UnexpectedToken):
        wanted = set(error.accepts or error.expected or ())
    elif isinstance(error, UnexpectedEOF):
        wanted = set(error.expected)
    token = getattr(error, "token", None)
    ended = isinstance(error, UnexpectedEOF) or (token is not None and token.type == "$END")
    at = len(text) if ended else (error.pos_in_stream or 0)
    whole = re.match(r"\w+", text[at:])
    word = whole.group() if whole else str(token) if token is not None and not ended else text[at : at + 1]
    named = sorted(filter(None, {words.get(each, each) for each in wanted}))
    found = END if ended else repr(word[:LONGEST])
    return Unexpected(at, word, ended, wanted, pointed(text, at, found, ", ".join(named) or "nothing more"))


def too_deep(text: str, deepest: int, what: str) -> str | None:
    """Return a message about parentheses that are nested too deeply in a text, None if none are.

    >>> from penstock.syntax import too_deep
    >>> print(too_deep("((1))", 1, "a flatter sum"))
    line 1, column 2: found more than 1 nested parentheses, expected a flatter sum
      ((1))
       ^
    """
    depth = 0
    for at, letter in enumerate(text):
        depth += (letter == "(") - (letter == ")")
        if depth > deepest:
            return pointed(text, at, f"more than {deepest} nested parentheses", what)
    return None
