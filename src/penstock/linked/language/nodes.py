"""The syntax nodes of a query: patterns with times, expressions, and the clauses around them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from penstock.linked.terms import XSD, Term

_BARE = {  # literals that need no quotes
    "integer": r"[+-]?\d+",
    "decimal": r"[+-]?\d+\.\d+",
    "double": r"[+-]?\d+(\.\d+)?[eE][+-]?\d+",
    "boolean": "true|false",
}
COMPARISONS = ("=", "!=", "<", "<=", ">", ">=")


@dataclass(frozen=True)
class Var:
    """A variable.

    >>> from penstock.linked.language.nodes import Var
    >>> str(Var("sensor"))
    '?sensor'
    """

    name: str

    def __str__(self) -> str:
        return f"?{self.name}"


@dataclass(frozen=True)
class ConstantTerm:
    """A constant term; a duration such as `200^^xsd:millisecond` also has its unit.

    >>> from penstock.linked.language.nodes import ConstantTerm
    >>> from penstock.linked.terms import XSD, Term
    >>> str(ConstantTerm(Term("iri", "reports")))
    '<reports>'
    """

    term: Term
    unit: str = ""

    def __str__(self) -> str:
        text, kind = self.term.text, self.term.datatype.removeprefix(XSD)
        if self.term.datatype == XSD + kind and re.fullmatch(_BARE.get(kind, "(?!)"), text):
            return text
        if self.term.datatype.startswith(XSD) and kind != "string":
            return f"{Term('literal', text, XSD + 'string').ntriples()}^^xsd:{kind}"
        return self.term.ntriples()


@dataclass(frozen=True)
class Call:
    """An operator or a function with its arguments: `&&`, `!`, `=`, `+`, `regex`, `distance`, ...

    >>> from penstock.linked.language.nodes import Call, Var
    >>> str(Call("<", (Var("a"), Var("b"))))
    '(?a < ?b)'
    """

    name: str
    arguments: tuple[Any, ...]

    def __str__(self) -> str:
        parts = [str(argument) for argument in self.arguments]
        if self.name[0].isalpha():
            return f"{self.name}({', '.join(parts)})"
        if len(parts) == 1:
            return f"{'-' if self.name == 'neg' else self.name}{parts[0]}"
        return "(" + f" {self.name} ".join(parts) + ")"


Expression = Var | ConstantTerm | Call


def variables(expression: Expression) -> Iterator[str]:
    """The names of the variables of an expression, with repetitions.

    >>> from penstock.linked.language.nodes import Call, Var, variables
    >>> list(variables(Call("<", (Var("a"), Var("b")))))
    ['a', 'b']
    """
    if isinstance(expression, Var):
        yield expression.name
    elif isinstance(expression, Call):
        for argument in expression.arguments:
            yield from variables(argument)


def calls(expression: Expression) -> Iterator[str]:
    """The names of the operators and functions of an expression.

    >>> from penstock.linked.language.nodes import Call, Var, calls
    >>> list(calls(Call("!", (Call("bound", (Var("a"),)),))))
    ['!', 'bound']
    """
    if isinstance(expression, Call):
        yield expression.name
        for argument in expression.arguments:
            yield from calls(argument)


def conjuncts(expression: Expression) -> list[Expression]:
    """The parts of an expression that must all hold.

    >>> from penstock.linked.language.nodes import Call, Var, conjuncts
    >>> len(conjuncts(Call("&&", (Var("a"), Call("&&", (Var("b"), Var("c")))))))
    3
    """
    if isinstance(expression, Call) and expression.name == "&&":
        return [part for argument in expression.arguments for part in conjuncts(argument)]
    return [expression]


@dataclass(frozen=True)
class TriplePattern:
    """A triple pattern and the variables of its start and end; "" where it has none.

    >>> from penstock.linked.language.nodes import ConstantTerm, TriplePattern, Var
    >>> from penstock.linked.terms import XSD, Term
    >>> str(TriplePattern((Var("s"), ConstantTerm(Term("iri", "reports")), Var("o")), "T", ""))
    '?s <reports> ?o ?T'
    """

    triple: tuple[Any, Any, Any]
    start: str = ""
    end: str = ""

    def __str__(self) -> str:
        times = [f"?{name}" for name in (self.start, self.end) if name]
        return " ".join([*map(str, self.triple), *times])

    @property
    def names(self) -> list[str]:
        """The variables of the triple, each once, in order of position.

        >>> from penstock.linked.language.nodes import TriplePattern, Var
        >>> TriplePattern((Var("x"), Var("p"), Var("x"))).names
        ['x', 'p']
        """
        return list(dict.fromkeys(part.name for part in self.triple if isinstance(part, Var)))

    @property
    def shape(self) -> tuple[Any, ...]:
        """What patterns that are equal up to the names of variables have in common.

        >>> from penstock.linked.language.nodes import TriplePattern, Var
        >>> TriplePattern((Var("x"), Var("p"), Var("x"))).shape
        (0, 1, 0)
        """
        names = self.names
        return tuple(names.index(part.name) if isinstance(part, Var) else part for part in self.triple)


@dataclass(frozen=True)
class SelectItem:
    """One column of SELECT: an expression and its name."""

    expression: Expression
    name: str

    def __str__(self) -> str:
        return (
            f"?{self.name}" if self.expression == Var(self.name) else f"({self.expression} AS ?{self.name})"
        )


@dataclass(frozen=True)
class Query:
    """A query as it was written, checked."""

    items: tuple[SelectItem, ...]
    distinct: bool
    streams: tuple[str, ...]
    background: tuple[str, ...]  # files of triples without times
    patterns: tuple[TriplePattern, ...]
    filters: tuple[Expression, ...]
    context: Expression | None

    @property
    def time_variables(self) -> dict[str, tuple[int, int]]:
        """Which pattern each time variable belongs to, and whether it is its start (0) or end (1)."""
        found: dict[str, tuple[int, int]] = {}
        for i, pattern in enumerate(self.patterns):
            for which, name in enumerate((pattern.start, pattern.end)):
                if name:
                    found.setdefault(name, (i, which))
        return found

    @property
    def homes(self) -> dict[str, tuple[int, int]]:
        """The first pattern, and the position in it, that binds each variable of a term."""
        found: dict[str, tuple[int, int]] = {}
        for i, pattern in enumerate(self.patterns):
            for position, part in enumerate(pattern.triple):
                if isinstance(part, Var):
                    found.setdefault(part.name, (i, position))
        return found
