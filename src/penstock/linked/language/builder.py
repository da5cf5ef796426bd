"""Build the nodes of a query from the parse tree."""

from __future__ import annotations

import re
from typing import Any

from lark import Token, Transformer, v_args

from penstock.errors import QueryError, hint, pointed
from penstock.linked.language.nodes import (
    Call,
    ConstantTerm,
    Expression,
    Query,
    SelectItem,
    TriplePattern,
    Var,
)
from penstock.linked.language.semantic_checks import checked, distances
from penstock.linked.terms import DOUBLE, EXACT, RDF_TYPE, XSD, Term, string, value_of

_UNITS = ("nanosecond", "microsecond", "millisecond", "second", "minute", "hour", "day")
MOST_OPERATORS = 100  # maximum in a sum or a product
_ESCAPED = {"t": "\t", "n": "\n", "r": "\r", "b": "\b", "f": "\f"}


def _unquoted(text: str) -> str:
    """The text between quotes, escapes undone."""
    body, out, at = text[1:-1], [], 0
    while at < len(body):
        letter = body[at]
        if letter == "\\":
            at += 1
            letter = _ESCAPED.get(body[at], body[at])
            digits = {"u": 4, "U": 8}.get(body[at])
            if digits:
                code = body[at + 1 : at + 1 + digits]
                known = len(code) == digits and re.fullmatch(r"[0-9a-fA-F]+", code)
                if not known or int(code, 16) > 0x10FFFF or 0xD800 <= int(code, 16) <= 0xDFFF:
                    raise QueryError(f"{text[:60]} has an invalid escape.")
                letter = chr(int(code, 16))
                at += digits
        out.append(letter)
        at += 1
    return "".join(out)


def _named(error_about: Any, token: Token | None, text: str) -> QueryError:
    at = token.start_pos if token is not None and token.start_pos is not None else 0
    return QueryError(pointed(text, at, repr(str(token)), str(error_about)))


@v_args(inline=True)
class Builder(Transformer[Token, Any]):
    """The parse tree as nodes."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.text = text
        self.prefixes = {"xsd": XSD}

    # Prefixes come before all else in the text, and the tree is walked in its order.
    def prefix(self, _word: Token, name: Token, iri: Token) -> None:
        self.prefixes[str(name)[:-1]] = str(iri)[1:-1]

    # Terms.
    def variable(self, token: Token) -> Var:
        return Var(str(token)[1:])

    def iri(self, token: Token) -> ConstantTerm:
        if len(token) == 2:
            raise _named("an IRI that is not empty", token, self.text)
        return ConstantTerm(Term("iri", str(token)[1:-1]))

    def prefixed(self, token: Token) -> ConstantTerm:
        prefix, _, local = str(token).partition(":")
        if prefix not in self.prefixes:
            known = hint(prefix, [f"{name}:" for name in self.prefixes])
            raise _named(f"a declared prefix{known}", token, self.text)
        return ConstantTerm(Term("iri", self.prefixes[prefix] + local))

    def blank(self, token: Token) -> ConstantTerm:
        return ConstantTerm(Term("blank", str(token)[2:]))

    def bare(self, token: Token) -> ConstantTerm:
        return ConstantTerm(Term("iri", str(token)))

    def rdf_type(self, _token: Token) -> ConstantTerm:
        return ConstantTerm(Term("iri", RDF_TYPE))

    def plain_string(self, token: Token) -> ConstantTerm:
        return ConstantTerm(string(_unquoted(token)))

    def language_string(self, token: Token, language: Token) -> ConstantTerm:
        rdf = "http://www.w3.org/1999/02/22-rdf-syntax-ns#langString"
        return ConstantTerm(Term("literal", _unquoted(token), rdf, str(language)[1:].lower()))

    def typed(self, token: Token, datatype: ConstantTerm) -> ConstantTerm:
        text = _unquoted(token) if token.type == "STRING" else str(token)
        iri = datatype.term.text
        unit = iri.removeprefix(XSD).lower().removesuffix("s") if iri.startswith(XSD) else ""
        if unit in _UNITS:
            if not re.fullmatch(r"[+-]?\d{1,15}(\.\d+)?", text):
                raise _named(f"a number of {unit}s", token, self.text)
            return ConstantTerm(Term("literal", text, iri), unit)
        return ConstantTerm(Term("literal", text, iri))

    def number(self, token: Token) -> ConstantTerm:
        text = str(token)
        kind = "double" if "e" in text.lower() else "decimal" if "." in text else "integer"
        if len(text) > 200:
            raise _named("a number of fewer digits", token, self.text)
        return ConstantTerm(Term("literal", text, XSD + kind))

    def boolean(self, token: Token) -> ConstantTerm:
        return ConstantTerm(Term("literal", str(token), XSD + "boolean"))

    # Expressions.
    def either(self, *parts: Any) -> Expression:
        return Call("||", parts) if len(parts) > 1 else parts[0]

    def both(self, *parts: Any) -> Expression:
        return Call("&&", parts) if len(parts) > 1 else parts[0]

    def negated(self, *parts: Any) -> Expression:
        return Call("!", (parts[-1],)) if len(parts) % 2 == 0 else Call("!", (Call("!", (parts[-1],)),))

    def comparison(self, left: Any, operator: Token, right: Any) -> Call:
        return Call(str(operator), (left, right))

    def summed(self, *parts: Any) -> Expression:
        return self._folded(parts)

    def multiplied(self, *parts: Any) -> Expression:
        return self._folded(parts)

    def _folded(self, parts: tuple[Any, ...]) -> Expression:
        """A chain of binary operators of one level, from the left."""
        result = parts[0]
        if len(parts) > 2 * MOST_OPERATORS + 1:
            raise _named("a shorter sum or product", parts[2 * MOST_OPERATORS + 1], self.text)
        for operator, operand in zip(parts[1::2], parts[2::2], strict=True):
            result = Call(str(operator), (result, operand))
        return result

    def signed_number(self, sign: Token, value: Any) -> Expression:
        if isinstance(value, ConstantTerm) and _is_amount(value) and value.term.text[:1].isdigit():
            return ConstantTerm(
                value.term._replace(text=("-" if sign == "-" else "") + value.term.text), value.unit
            )
        return Call("neg", (value,)) if sign == "-" else value

    def signed_term(self, sign: Token, token: Token) -> Any:
        return self.signed_number(sign, self.number(token))

    def group(self, inner: Any) -> Any:
        return inner

    def call(self, name: Token, *arguments: Any) -> Call:
        lower = str(name).lower()
        counts = {"regex": (2, 3), "str": (1, 1), "bound": (1, 1), "signed": (1, 1), "abs": (1, 1)}[lower]
        if not counts[0] <= len(arguments) <= counts[1]:
            raise _named(f"{lower} with {counts[0]} argument{'s' * (counts[0] > 1)}", name, self.text)
        if lower == "bound" and not isinstance(arguments[0], Var):
            raise _named("bound with a variable", name, self.text)
        if lower == "regex":
            _check_regex(arguments, name, self.text)
        return Call(lower, tuple(arguments))

    # Patterns.
    def timed(self, term: Any, *times: Token) -> tuple[Any, str, str]:
        names = [str(token)[1:] for token in times]
        return term, names[0] if names else "", names[1] if len(names) > 1 else ""

    def object_list(self, *objects: Any) -> list[Any]:
        return list(objects)

    def predicate_list(self, *parts: Any) -> list[tuple[Any, Any]]:
        pairs = []
        for verb, objects in zip(parts[0::2], parts[1::2], strict=True):
            pairs += [(verb, each) for each in objects]
        return pairs

    def same_subject(self, subject: Any, pairs: list[tuple[Any, Any]]) -> list[TriplePattern]:
        return [TriplePattern((subject, verb, term), start, end) for verb, (term, start, end) in pairs]

    def filter(self, _word: Token, expression: Any) -> Call:
        return Call("filter", (expression,))

    def body(self, *parts: Any) -> tuple[list[TriplePattern], list[Any]]:
        patterns, filters = [], []
        for part in parts:
            if isinstance(part, list):
                patterns += part
            elif isinstance(part, Call):
                filters.append(part.arguments[0])
        return patterns, filters

    # Clauses.
    def everything(self, _star: Token) -> None:
        return None

    def items(self, *items: SelectItem) -> list[SelectItem]:
        return list(items)

    def plain_item(self, token: Token) -> SelectItem:
        return SelectItem(Var(str(token)[1:]), str(token)[1:])

    def named_item(self, expression: Any, _as: Token, token: Token) -> SelectItem:
        return SelectItem(expression, str(token)[1:])

    def bare_name(self, token: Token) -> str:
        return str(token)

    def quoted_name(self, token: Token) -> str:
        return _unquoted(token)

    def iri_name(self, token: Token) -> str:
        return str(token)[1:-1]

    def streams(self, _from: Token, _stream: Token, *names: str) -> tuple[str, list[str]]:
        return "streams", list(names)

    def background(self, _from: Token, iri: Token) -> tuple[str, list[str]]:
        return "background", [str(iri)[1:-1]]

    def context(self, _word: Token, expression: Any) -> Call:
        return Call("context", (expression,))

    def start(self, *parts: Any) -> Query:
        words = [part for part in parts if isinstance(part, Token)]
        rest = [part for part in parts if part is not None and not isinstance(part, Token)]
        items = next((part for part in rest if isinstance(part, list)), None)
        patterns, filters = next(
            part for part in rest if isinstance(part, tuple) and isinstance(part[0], list)
        )
        sources = [part for part in rest if isinstance(part, tuple) and isinstance(part[0], str)]
        context = next((part.arguments[0] for part in rest if isinstance(part, Call)), None)
        return checked(
            Query(
                items=() if items is None else tuple(items),
                distinct=any(word.type == "DISTINCT" for word in words),
                streams=tuple(name for kind, names in sources if kind == "streams" for name in names),
                background=tuple(name for kind, names in sources if kind == "background" for name in names),
                patterns=tuple(patterns),
                filters=tuple(filters),
                context=None if context is None else distances(context),
            )
        )


def _is_amount(constant: ConstantTerm) -> bool:
    return bool(constant.unit) or value_of(constant.term).kind in (EXACT, DOUBLE)


def _check_regex(arguments: tuple[Any, ...], name: Token, text: str) -> None:
    """A constant expression is tried at once."""
    if len(arguments) == 3 and not (
        isinstance(arguments[2], ConstantTerm) and re.fullmatch("[smixq]*", arguments[2].term.text)
    ):
        raise _named("regex with flags out of s, m, i, x and q", name, text)
    if isinstance(arguments[1], ConstantTerm):
        try:
            re.compile(arguments[1].term.text)
        except (re.error, OverflowError, RecursionError) as error:
            raise _named(f"a regular expression ({error})", name, text) from error
