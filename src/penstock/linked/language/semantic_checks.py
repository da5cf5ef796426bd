"""Semantic checks of a parsed query, and the expansion of its short forms."""

from __future__ import annotations

from penstock.errors import QueryError, hint
from penstock.linked.language.nodes import (
    Call,
    ConstantTerm,
    Expression,
    Query,
    SelectItem,
    TriplePattern,
    Var,
    calls,
    variables,
)

MOST_PATTERNS = 16


def distances(expression: Expression) -> Expression:
    """The context with the differences of two time variables read as distances, unless they are `signed`.

    >>> from penstock.linked.language.nodes import Call, Var
    >>> from penstock.linked.language.semantic_checks import distances
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
    """Return the query with `*` and repeated time variables resolved; raise an error if it is invalid."""
    if not query.streams:
        raise QueryError("The query reads no stream; add FROM STREAM and its name.")
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
        raise QueryError(f"?{both[0]} is used as a time and as part of a triple.")
    for expression in query.filters:
        _check_variables(expression, terms | times, "FILTER")
        if "signed" in calls(expression):
            raise QueryError("signed() is for CONTEXT only; in FILTER a difference is always signed.")
    if query.context is not None:
        _check_context(query.context, terms, times)
    known = [*query.homes, *query.time_variables]
    items = query.items or tuple(SelectItem(Var(name), name) for name in known)
    for item in items:
        _check_variables(item.expression, terms | times, "SELECT")
        if item.name in terms | times and item.expression != Var(item.name):
            raise QueryError(f"(... AS ?{item.name}) uses the name of a variable that the patterns bind.")
    names = [item.name for item in items]
    if len(set(names)) < len(names):
        raise QueryError("SELECT names a variable twice.")
    return _apart(Query(**(vars(query) | {"items": items})))


def _check_pattern(pattern: TriplePattern) -> None:
    subject, verb, _ = pattern.triple
    if isinstance(subject, ConstantTerm) and subject.term.form == "literal":
        raise QueryError(
            f"The subject of '{pattern}' is a literal; it must be an IRI, a blank node or a variable."
        )
    if isinstance(verb, ConstantTerm) and verb.term.form != "iri":
        raise QueryError(f"The predicate of '{pattern}' must be an IRI or a variable.")
    if pattern.start and pattern.start == pattern.end:
        raise QueryError(f"Start and end of '{pattern}' are the same variable; omit the second for events.")


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
        patterns.append(TriplePattern(pattern.triple, *names))
    if not equal:
        return query
    parts = tuple(equal) if query.context is None else (*equal, query.context)
    context = parts[0] if len(parts) == 1 else Call("&&", parts)
    return Query(**(vars(query) | {"patterns": tuple(patterns), "context": context}))
