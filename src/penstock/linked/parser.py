"""From text to a query, with errors that show the place."""

from __future__ import annotations

import functools
import re
from importlib import resources
from typing import Any, NoReturn

from lark import Lark, Token, Transformer, v_args
from lark.exceptions import UnexpectedCharacters, UnexpectedEOF, UnexpectedInput, UnexpectedToken, VisitError

from penstock.errors import PenstockError, QueryError, QuerySyntaxError, UnsupportedQueryError, hint, pointed
from penstock.linked.nodes import Call, Const, Expression, Item, Pattern, Query, Var, calls, variables
from penstock.linked.terms import RDF_TYPE, XSD, Term, string

DEEPEST = 60  # parentheses within parentheses
MOST_PATTERNS = 16
_UNITS = ("nanosecond", "microsecond", "millisecond", "second", "minute", "hour", "day")
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
    grammar = (resources.files("penstock.linked") / "grammar.lark").read_text(encoding="utf-8")
    return Lark(grammar, parser="lalr", propagate_positions=False)


def parse_query(text: str) -> Query:
    """The query of a text.

    >>> from penstock.linked.parser import parse_query
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
        return _Builder(text).transform(tree)
    except VisitError as error:
        if isinstance(error.orig_exc, PenstockError):
            raise error.orig_exc from None
        raise


def _refuse_depth(text: str) -> None:
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
                if len(code) < digits or not re.fullmatch(r"[0-9a-fA-F]+", code) or int(code, 16) > 0x10FFFF:
                    raise QueryError(f"{text[:60]} has an escape that is no character.")
                letter = chr(int(code, 16))
                at += digits
        out.append(letter)
        at += 1
    return "".join(out)


def _named(error_about: Any, token: Token | None, text: str) -> QueryError:
    at = token.start_pos if token is not None and token.start_pos is not None else 0
    return QueryError(pointed(text, at, repr(str(token)), str(error_about)))


@v_args(inline=True)
class _Builder(Transformer[Token, Any]):
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

    def iri(self, token: Token) -> Const:
        if len(token) == 2:
            raise _named("an IRI that is not empty", token, self.text)
        return Const(Term("iri", str(token)[1:-1]))

    def prefixed(self, token: Token) -> Const:
        prefix, _, local = str(token).partition(":")
        if prefix not in self.prefixes:
            known = hint(prefix, [f"{name}:" for name in self.prefixes])
            raise _named(f"a prefix that was declared{known}", token, self.text)
        return Const(Term("iri", self.prefixes[prefix] + local))

    def blank(self, token: Token) -> Const:
        return Const(Term("blank", str(token)[2:]))

    def bare(self, token: Token) -> Const:
        return Const(Term("iri", str(token)))

    def rdf_type(self, _token: Token) -> Const:
        return Const(Term("iri", RDF_TYPE))

    def plain_string(self, token: Token) -> Const:
        return Const(string(_unquoted(token)))

    def language_string(self, token: Token, language: Token) -> Const:
        rdf = "http://www.w3.org/1999/02/22-rdf-syntax-ns#langString"
        return Const(Term("literal", _unquoted(token), rdf, str(language)[1:].lower()))

    def typed(self, token: Token, datatype: Const) -> Const:
        text = _unquoted(token) if token.type == "STRING" else str(token)
        iri = datatype.term.text
        unit = iri.removeprefix(XSD).lower().removesuffix("s") if iri.startswith(XSD) else ""
        if unit in _UNITS:
            if not re.fullmatch(r"[+-]?\d{1,15}(\.\d+)?", text):
                raise _named(f"a number of {unit}s", token, self.text)
            return Const(Term("literal", text, iri), unit)
        return Const(Term("literal", text, iri))

    def number(self, token: Token) -> Const:
        text = str(token)
        kind = "double" if "e" in text.lower() else "decimal" if "." in text else "integer"
        if len(text) > 200:
            raise _named("a number of fewer digits", token, self.text)
        return Const(Term("literal", text, XSD + kind))

    def boolean(self, token: Token) -> Const:
        return Const(Term("literal", str(token), XSD + "boolean"))

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
        return _folded(parts)

    def multiplied(self, *parts: Any) -> Expression:
        return _folded(parts)

    def signed_number(self, sign: Token, value: Any) -> Expression:
        if isinstance(value, Const) and value.term.datatype.startswith(XSD) and value.term.text[:1].isdigit():
            return Const(value.term._replace(text=("-" if sign == "-" else "") + value.term.text), value.unit)
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

    def same_subject(self, subject: Any, pairs: list[tuple[Any, Any]]) -> list[Pattern]:
        return [Pattern((subject, verb, term), start, end) for verb, (term, start, end) in pairs]

    def filter(self, _word: Token, expression: Any) -> Call:
        return Call("filter", (expression,))

    def body(self, *parts: Any) -> tuple[list[Pattern], list[Any]]:
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

    def items(self, *items: Item) -> list[Item]:
        return list(items)

    def plain_item(self, token: Token) -> Item:
        return Item(Var(str(token)[1:]), str(token)[1:])

    def named_item(self, expression: Any, _as: Token, token: Token) -> Item:
        return Item(expression, str(token)[1:])

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


def _folded(parts: tuple[Any, ...]) -> Expression:
    """A chain of binary operators of one level, from the left."""
    result = parts[0]
    for operator, operand in zip(parts[1::2], parts[2::2], strict=True):
        result = Call(str(operator), (result, operand))
    return result


def _check_regex(arguments: tuple[Any, ...], name: Token, text: str) -> None:
    """A constant expression is tried at once."""
    if len(arguments) == 3 and not (
        isinstance(arguments[2], Const) and re.fullmatch("[smixq]*", arguments[2].term.text)
    ):
        raise _named("regex with flags out of s, m, i, x and q", name, text)
    if isinstance(arguments[1], Const):
        try:
            re.compile(arguments[1].term.text)
        except (re.error, OverflowError, RecursionError) as error:
            raise _named(f"a regular expression ({error})", name, text) from error


def distances(expression: Expression) -> Expression:
    """The context with the differences of two time variables read as distances, unless they are `signed`.

    >>> from penstock.linked.nodes import Call, Var
    >>> from penstock.linked.parser import distances
    >>> str(distances(Call("-", (Var("a"), Var("b")))))
    'abs((?a - ?b))'
    """
    if not isinstance(expression, Call):
        return expression
    if expression.name == "signed":
        return expression.arguments[0]
    if expression.name == "-" and all(isinstance(part, Var) for part in expression.arguments):
        return Call("abs", (expression,))
    return Call(expression.name, tuple(distances(part) for part in expression.arguments))


def checked(query: Query) -> Query:
    """The query with `*` and repeated time variables resolved, or an error that says what makes no sense."""
    if not query.streams:
        raise QueryError("The query reads no stream; write FROM STREAM and its name.")
    if len(set(query.streams)) < len(query.streams):
        raise QueryError("The query names a stream twice in FROM STREAM.")
    if not query.patterns:
        raise QueryError("The query has no triple pattern between the braces.")
    if len(query.patterns) > MOST_PATTERNS:
        raise QueryError(
            f"The query has {len(query.patterns)} patterns; at most {MOST_PATTERNS} are allowed."
        )
    for pattern in query.patterns:
        _check_pattern(pattern)
    terms, times = set(query.homes), set(query.time_variables)
    both = sorted(terms & times)
    if both:
        raise QueryError(f"?{both[0]} is a time in one place and part of a triple in another.")
    for expression in query.filters:
        _check_variables(expression, terms | times, "FILTER")
        if "signed" in calls(expression):
            raise QueryError("signed() belongs into CONTEXT; in FILTER a difference is signed anyway.")
    if query.context is not None:
        _check_context(query.context, terms, times)
    known = [*query.homes, *query.time_variables]
    items = query.items or tuple(Item(Var(name), name) for name in known)
    for item in items:
        _check_variables(item.expression, terms | times, "SELECT")
        if item.name in terms | times and item.expression != Var(item.name):
            raise QueryError(f"(... AS ?{item.name}) would name a variable that the patterns bind.")
    names = [item.name for item in items]
    if len(set(names)) < len(names):
        raise QueryError("SELECT names a variable twice.")
    return _apart(Query(**(vars(query) | {"items": items})))


def _check_pattern(pattern: Pattern) -> None:
    subject, verb, _ = pattern.triple
    if isinstance(subject, Const) and subject.term.form == "literal":
        raise QueryError(
            f"The subject of '{pattern}' is a literal; it must be an IRI, a blank node or a variable."
        )
    if isinstance(verb, Const) and verb.term.form != "iri":
        raise QueryError(f"The predicate of '{pattern}' must be an IRI or a variable.")
    if pattern.start and pattern.start == pattern.end:
        raise QueryError(f"Start and end of '{pattern}' have one variable; leave the second out for events.")


def _check_variables(expression: Expression, known: set[str], clause: str) -> None:
    tested = _tested(expression)
    for name in variables(expression):
        if name not in known and name not in tested:
            raise QueryError(f"{clause} names ?{name}, which no pattern binds{hint(name, sorted(known))}")


def _tested(expression: Expression) -> set[str]:
    """The variables of `bound`, which need not be bound."""
    if not isinstance(expression, Call):
        return set()
    if expression.name == "bound":
        return set(variables(expression))
    return set().union(*(_tested(part) for part in expression.arguments)) if expression.arguments else set()


def _check_context(context: Expression, terms: set[str], times: set[str]) -> None:
    for name in variables(context):
        if name in terms:
            raise QueryError(f"CONTEXT is about times; ?{name} is part of a triple. Use FILTER for it.")
    _check_variables(context, times, "CONTEXT")
    foreign = {"regex", "str"} & set(calls(context))
    if foreign:
        raise QueryError(f"CONTEXT is about times; {sorted(foreign)[0]} is not. Use FILTER for it.")


def _apart(query: Query) -> Query:
    """A time variable of several patterns means that these times are equal: each gets its own name."""
    seen: set[str] = set()
    patterns, equal = [], []
    for i, pattern in enumerate(query.patterns):
        names = []
        for name in (pattern.start, pattern.end):
            if name and name in seen:
                other = f"{name} of {i + 1}"
                equal.append(Call("=", (Var(name), Var(other))))
                name = other
            seen.add(name)
            names.append(name)
        patterns.append(Pattern(pattern.triple, *names))
    if not equal:
        return query
    parts = tuple(equal) if query.context is None else (*equal, query.context)
    context = parts[0] if len(parts) == 1 else Call("&&", parts)
    return Query(**(vars(query) | {"patterns": tuple(patterns), "context": context}))
