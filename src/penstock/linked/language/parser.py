"""From text to a query, with errors that show the place."""

from __future__ import annotations

import functools
import re
from importlib import resources
from typing import NoReturn

from lark import Lark
from lark.exceptions import UnexpectedCharacters, UnexpectedEOF, UnexpectedInput, UnexpectedToken, VisitError

from penstock.errors import PenstockError, QueryError, QuerySyntaxError, UnsupportedQueryError, pointed
from penstock.linked.language.builder import Builder
from penstock.linked.language.nodes import Query

DEEPEST = 60  # parentheses within parentheses
_WORDS = {
    "PREFIX": "PREFIX",
    "SELECT": "SELECT",
    "DISTINCT": "DISTINCT",
    "FROM": "FROM",
    "STREAM": "STREAM",
    "WHERE": "WHERE",
    "FILTER": "FILTER",
    "CONTEXT": "CONTEXT",
    "AS": "AS",
    "FUNCTION": "a function (regex, str, bound, signed)",
    "BOOLEAN": "true or false",
    "A": "a",
    "STAR": "*",
    "NOT": "!",
    "VAR": "a variable",
    "IRIREF": "an IRI in brackets",
    "BLANK": "a blank node",
    "PNAME": "a prefixed name",
    "PNAME_NS": "a prefix",
    "STRING": "a text in quotes",
    "LANGTAG": "a language",
    "NUMBER": "a number",
    "PLUS_MINUS": "+ or -",
    "TIMES_OVER": "* or /",
    "COMPARISON": "a comparison such as = or <",
    "NAME": "a name",
    "LPAR": "'('",
    "RPAR": "')'",
    "LBRACE": "'{'",
    "RBRACE": "'}'",
    "COMMA": "','",
    "SEMICOLON": "';'",
    "DOT": "'.'",
    "__ANON_0": "'^^'",
    "__ANON_1": "'||'",
    "__ANON_2": "'&&'",
    "$END": "the end",
}
_FOREIGN = {
    "OPTIONAL": "a partner that may be missing is known only when its window is over",
    "UNION": "write two queries and take both results",
    "MINUS": "an absence is known only when its window is over; see ps.Pattern for negation",
    "NOT": "an absence is known only when its window is over; see ps.Pattern for negation",
    "EXISTS": "an absence is known only when its window is over; see ps.Pattern for negation",
    "GROUPS": "groups within groups have no meaning of their own here; write the patterns side by side",
    "GROUP": "group the rows that come out",
    "HAVING": "group the rows that come out",
    "COUNT": "aggregate the rows that come out",
    "SUM": "aggregate the rows that come out",
    "AVG": "aggregate the rows that come out",
    "MIN": "aggregate the rows that come out",
    "MAX": "aggregate the rows that come out",
    "SAMPLE": "aggregate the rows that come out",
    "ORDER": "rows come out in the order of the stream; sort them where they are used",
    "LIMIT": "a continuous query has no last row; cut where rows are used",
    "OFFSET": "a continuous query has no first row; cut where rows are used",
    "REDUCED": "use DISTINCT or plain SELECT",
    "BIND": "name expressions in SELECT: (?a + 1 AS ?b)",
    "VALUES": "give the values as background triples, FROM <file>",
    "SERVICE": "enrich the rows that come out, see ps.LookupCache",
    "GRAPH": "all patterns read the union of the streams",
    "NAMED": "all patterns read the union of the streams",
    "CONSTRUCT": "queries are SELECT queries",
    "ASK": "queries are SELECT queries",
    "DESCRIBE": "queries are SELECT queries",
    "INSERT": "queries are SELECT queries",
    "DELETE": "queries are SELECT queries",
    "WINDOW": "say it in CONTEXT: ((?T1 - ?T2) <= 200^^xsd:millisecond)",
    "RANGE": "say it in CONTEXT: ((?T1 - ?T2) <= 200^^xsd:millisecond)",
    "BASE": "write IRIs out, or use PREFIX",
}


@functools.cache
def _lark() -> Lark:
    grammar = (resources.files("penstock.linked.language") / "grammar.lark").read_text(encoding="utf-8")
    return Lark(grammar, parser="lalr", propagate_positions=False)


def parse_query(text: str) -> Query:
    """The query of a text.

    >>> from penstock.linked.language.parser import parse_query
    >>> query = parse_query("SELECT ?a FROM STREAM w WHERE { ?a reports ?v ?T }")
    >>> query.streams, str(query.patterns[0])
    (('w',), '?a <reports> ?v ?T')
    """
    if not isinstance(text, str):
        raise QueryError(f"A query is a text; {type(text).__name__} was given.")
    _refuse_depth(text)
    try:
        tree = _lark().parse(text)
    except UnexpectedInput as error:
        _refuse(error, text)
    try:
        return Builder(text).transform(tree)
    except VisitError as error:
        if isinstance(error.orig_exc, PenstockError):
            raise error.orig_exc from None
        if isinstance(error.orig_exc, RecursionError):
            raise QueryError("The expressions of the query are too deep; write them flatter.") from None
        raise


def _refuse_depth(text: str) -> None:
    if text.count("(") <= DEEPEST:
        return
    depth = 0
    for at, letter in enumerate(text):
        depth += (letter == "(") - (letter == ")")
        if depth > DEEPEST:
            raise QuerySyntaxError(
                pointed(text, at, f"more than {DEEPEST} parentheses within each other", "a flatter query")
            )


def _refuse(error: UnexpectedInput, text: str) -> NoReturn:
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
    at = len(text) if ended else (error.pos_in_stream or 0)
    whole = re.match(r"\w+", text[at:])
    word = whole.group() if whole else str(token) if token is not None and not ended else text[at : at + 1]
    found = "the end of the text" if ended else repr(word[:60])
    expected = ", ".join(sorted({_WORDS.get(each, each) for each in wanted})) or "nothing more"
    message = pointed(text, at, found, expected)
    before = re.findall(r"\w+", text[max(0, at - 40) : at])
    after = re.match(r"\W*(\w+)", text[at : at + 40])
    near = [word, *before[:-4:-1], after.group(1) if after and word == "[" else ""]
    if word == "{" and "RBRACE" in wanted:
        near += [*re.findall(r"\w+", text[at:])[:1_000], "GROUPS"]
    for candidate in map(str.upper, near):
        if not ended and candidate in _FOREIGN:
            raise UnsupportedQueryError(
                f"{message}\n{candidate} is not part of the language: {_FOREIGN[candidate]}."
            ) from None
    if word in ("/", "^", "|", "+", "*") and not {"TIMES_OVER", "STAR"} & wanted:
        raise UnsupportedQueryError(
            f"{message}\nProperty paths are not part of the language: write each step as a pattern."
        ) from None
    raise QuerySyntaxError(message) from None
