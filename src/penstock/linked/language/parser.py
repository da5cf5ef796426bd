"""Parse the text of a query, with errors that show the position."""

from __future__ import annotations

import functools
import re
from importlib import resources
from typing import NoReturn

from lark import Lark
from lark.exceptions import UnexpectedInput, VisitError

from penstock.errors import PenstockError, QueryError, QuerySyntaxError, UnsupportedQueryError
from penstock.linked.language.builder import Builder
from penstock.linked.language.nodes import Query
from penstock.syntax import too_deep, unexpected

DEEPEST = 60  # maximum nesting of parentheses
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
    "OPTIONAL": "a missing partner is known only when its window has passed",
    "UNION": "write two queries and combine their results",
    "MINUS": "an absence is known only when its window has passed; use ps.Pattern for negation",
    "NOT": "an absence is known only when its window has passed; use ps.Pattern for negation",
    "EXISTS": "an absence is known only when its window has passed; use ps.Pattern for negation",
    "GROUPS": "nested groups are not supported; write the patterns side by side",
    "GROUP": "group the resulting rows instead",
    "HAVING": "group the resulting rows instead",
    "COUNT": "aggregate the resulting rows instead",
    "SUM": "aggregate the resulting rows instead",
    "AVG": "aggregate the resulting rows instead",
    "MIN": "aggregate the resulting rows instead",
    "MAX": "aggregate the resulting rows instead",
    "SAMPLE": "aggregate the resulting rows instead",
    "ORDER": "rows are in the order of the stream; sort the resulting rows instead",
    "LIMIT": "a continuous query has no last row; limit the resulting rows instead",
    "OFFSET": "a continuous query has no first row; limit the resulting rows instead",
    "REDUCED": "use DISTINCT or plain SELECT",
    "BIND": "name expressions in SELECT: (?a + 1 AS ?b)",
    "VALUES": "give the values as background triples, FROM <file>",
    "SERVICE": "enrich the resulting rows instead, see ps.LookupCache",
    "GRAPH": "all patterns read the union of the streams",
    "NAMED": "all patterns read the union of the streams",
    "CONSTRUCT": "only SELECT queries are supported",
    "ASK": "only SELECT queries are supported",
    "DESCRIBE": "only SELECT queries are supported",
    "INSERT": "only SELECT queries are supported",
    "DELETE": "only SELECT queries are supported",
    "WINDOW": "use CONTEXT: ((?T1 - ?T2) <= 200^^xsd:millisecond)",
    "RANGE": "use CONTEXT: ((?T1 - ?T2) <= 200^^xsd:millisecond)",
    "BASE": "write IRIs out, or use PREFIX",
}


@functools.cache
def _lark() -> Lark:
    grammar = (resources.files("penstock.linked.language") / "grammar.lark").read_text(encoding="utf-8")
    return Lark(grammar, parser="lalr", propagate_positions=False)


def parse_query(text: str) -> Query:
    """Parse the text of a query.

    >>> from penstock.linked.language.parser import parse_query
    >>> query = parse_query("SELECT ?a FROM STREAM w WHERE { ?a reports ?v ?T }")
    >>> query.streams, str(query.patterns[0])
    (('w',), '?a <reports> ?v ?T')
    """
    if not isinstance(text, str):
        raise QueryError(f"A query is a text; {type(text).__name__} was given.")
    if (deep := too_deep(text, DEEPEST, "a flatter query")) is not None:
        raise QuerySyntaxError(deep)
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
            raise QueryError(
                "The expressions of the query are nested too deeply; write flatter ones."
            ) from None
        raise


def _refuse(error: UnexpectedInput, text: str) -> NoReturn:
    """Convert an error of the parser, with line, column, found, expected and a caret."""
    at, word, ended, wanted, message = unexpected(error, text, _WORDS)
    before = re.findall(r"\w+", text[max(0, at - 40) : at])
    after = re.match(r"\W*(\w+)", text[at : at + 40])
    near = [word, *before[:-4:-1], after.group(1) if after and word == "[" else ""]
    if word == "{" and "RBRACE" in wanted:
        near += [*re.findall(r"\w+", text[at:])[:1_000], "GROUPS"]
    for candidate in map(str.upper, near):
        if not ended and candidate in _FOREIGN:
            raise UnsupportedQueryError(
                f"{message}\n{candidate} is not supported: {_FOREIGN[candidate]}."
            ) from None
    if word in ("/", "^", "|", "+", "*") and not {"TIMES_OVER", "STAR"} & wanted:
        raise UnsupportedQueryError(
            f"{message}\nProperty paths are not supported: write each step as a pattern."
        ) from None
    raise QuerySyntaxError(message) from None
