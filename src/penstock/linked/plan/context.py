"""Derive bounds on time differences from the context of a query, and thus when triples expire.

Times are numbered: start and end of each pattern, and finally the origin. `bounds[a, b]` is the maximum by
which time a may exceed time b in any solution. Bounds add up along chains (a shortest-path closure), so a
context also bounds times that it does not mention: a fact starts before it ends.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from penstock.linked.language.nodes import Call, ConstantTerm, Expression, Var, conjuncts
from penstock.linked.terms import DOUBLE, EXACT, value_of

_MIRROR = {"<": ">", ">": "<", "<=": ">=", ">=": "<=", "=": "=", "!=": "!="}
_OPPOSITE = {"<": ">=", ">": "<=", "<=": ">", ">=": "<", "=": "!=", "!=": "="}

# How a simple bound is checked.
DIFFERENCE = 0  # a - b <= c
STRICT = 1  # a - b < c
BEFORE = 2  # a <= b
STRICTLY_BEFORE = 3  # a < b

Times = Mapping[str, tuple[int, int]]  # variable -> pattern, start (0) or end (1)


class TimeBound(NamedTuple):
    """A simple bound on two times, by their numbers."""

    a: int
    b: int
    kind: int
    most: float


def time_number(place: tuple[int, int]) -> int:
    """The number of a time: of a pattern, its start or its end.

    >>> from penstock.linked.plan.context import time_number
    >>> time_number((1, 0))
    2
    """
    return 2 * place[0] + place[1]


def bounds_of(conditions: list[Expression], times: Times, patterns: int) -> np.ndarray:
    """What conditions that must all hold say of the differences of times.

    >>> from penstock.linked.plan.context import bounds_of
    >>> from penstock.linked.language.parser import parse_query
    >>> text = "SELECT * FROM STREAM w { ?a p ?x ?T . ?b p ?x ?U } CONTEXT ((?T - ?U) <= 5)"
    >>> query = parse_query(text)
    >>> bounds_of([query.context], query.time_variables, 2)[0, 2]
    np.float64(5.0)
    """
    matrix = _free(patterns)
    for pattern in range(patterns):
        matrix[2 * pattern, 2 * pattern + 1] = 0.0
    for condition in conditions:
        matrix = np.minimum(matrix, _bounds(condition, times, patterns))
    return _closed(matrix)


def _free(patterns: int) -> np.ndarray:
    matrix = np.full((2 * patterns + 1, 2 * patterns + 1), np.inf)
    np.fill_diagonal(matrix, 0.0)
    return matrix


def _closed(matrix: np.ndarray) -> np.ndarray:
    for via in range(len(matrix)):
        matrix = np.minimum(matrix, matrix[:, via, None] + matrix[None, via, :])
    return matrix


def _bounds(expression: Expression, times: Times, patterns: int) -> np.ndarray:
    matrix = _free(patterns)
    if not isinstance(expression, Call):
        return matrix
    if expression.name == "&&":
        for part in expression.arguments:
            matrix = np.minimum(matrix, _bounds(part, times, patterns))
        return _closed(matrix)
    if expression.name == "||":
        return np.max([_bounds(part, times, patterns) for part in expression.arguments], axis=0)
    if expression.name == "!":
        inner = negated(expression.arguments[0])
        return matrix if inner is None else _bounds(inner, times, patterns)
    for bound in simple_bounds(expression, times, patterns)[0]:
        matrix[bound.a, bound.b] = min(matrix[bound.a, bound.b], bound.most)
    return matrix


def negated(expression: Expression) -> Expression | None:
    """The opposite of an expression about times, with the negation moved inwards; None if that fails.

    >>> from penstock.linked.plan.context import negated
    >>> from penstock.linked.language.nodes import Call, Var
    >>> str(negated(Call("<", (Var("a"), Var("b")))))
    '(?a >= ?b)'
    """
    if not isinstance(expression, Call):
        return None
    if expression.name == "!":
        return expression.arguments[0]
    if expression.name in _OPPOSITE:
        return Call(_OPPOSITE[expression.name], expression.arguments)
    if expression.name in ("&&", "||"):
        parts = [negated(part) for part in expression.arguments]
        if all(part is not None for part in parts):
            return Call("||" if expression.name == "&&" else "&&", tuple(parts))
    return None


def simple_bounds(expression: Expression, times: Times, patterns: int) -> tuple[list[TimeBound], bool]:
    """The bounds that a condition implies, and whether they say all that it says."""
    if isinstance(expression, Call) and expression.name == "!":
        inner = negated(expression.arguments[0])
        return ([], False) if inner is None else simple_bounds(inner, times, patterns)
    if isinstance(expression, Call) and expression.name == "&&":
        found: list[TimeBound] = []
        whole = True
        for part in conjuncts(expression):
            bounds, all_of_it = simple_bounds(part, times, patterns)
            found, whole = found + bounds, whole and all_of_it
        return found, whole
    if not isinstance(expression, Call) or expression.name not in _MIRROR:
        return [], False
    name, (left, right) = expression.name, expression.arguments
    if _constant(left) is not None and _constant(right) is None:
        name, left, right = _MIRROR[name], right, left
    most = _constant(right)
    if isinstance(left, Call) and left.name == "abs" and most is not None:
        difference = _linear(left.arguments[0], times, patterns)
        if difference is None or name not in ("<", "<=", "="):
            return [], False
        a, b, shift = difference
        kind = STRICT if name == "<" else DIFFERENCE
        return [TimeBound(a, b, kind, most - shift), TimeBound(b, a, kind, most + shift)], name != "="
    difference = _linear(Call("-", (left, right)), times, patterns)
    if difference is None or name == "!=":
        return [], False
    a, b, shift = difference
    if name in (">", ">="):
        a, b, shift, name = b, a, -shift, _MIRROR[name]
    plain = isinstance(left, Var) and isinstance(right, Var)
    kind = {"<": STRICTLY_BEFORE if plain else STRICT}.get(name, BEFORE if plain else DIFFERENCE)
    bounds = [TimeBound(a, b, kind, -shift)]
    if name == "=":
        bounds.append(TimeBound(b, a, kind, shift))
    return bounds, True


def _constant(expression: Expression) -> float | None:
    """The number of an expression without variables, None if it has some or is none."""
    linear = _form(expression, {}, 0)
    return linear[1] if linear is not None and not linear[0] else None


def _linear(expression: Expression, times: Times, patterns: int) -> tuple[int, int, float] | None:
    """An expression as time a - time b + shift."""
    form = _form(expression, times, patterns)
    if form is None:
        return None
    factors = {time: factor for time, factor in form[0].items() if factor != 0}
    origin = 2 * patterns
    plus = [time for time, factor in factors.items() if factor == 1]
    minus = [time for time, factor in factors.items() if factor == -1]
    if len(plus) + len(minus) != len(factors) or len(plus) > 1 or len(minus) > 1 or not factors:
        return None
    return plus[0] if plus else origin, minus[0] if minus else origin, form[1]


def _form(expression: Expression, times: Times, patterns: int) -> tuple[dict[int, float], float] | None:
    """An expression as a sum of times with factors and a number; None if it is none."""
    if isinstance(expression, Var):
        place = times.get(expression.name)
        return None if place is None else ({time_number(place): 1.0}, 0.0)
    if isinstance(expression, ConstantTerm):
        worth = value_of(expression.term)
        return ({}, worth.number) if worth.kind in (EXACT, DOUBLE) and worth.number == worth.number else None
    parts = [_form(argument, times, patterns) for argument in expression.arguments]
    if expression.name == "neg" and parts[0] is not None:
        return {time: -factor for time, factor in parts[0][0].items()}, -parts[0][1]
    if expression.name not in ("+", "-") or parts[0] is None or parts[1] is None:
        return None
    sign = 1.0 if expression.name == "+" else -1.0
    factors = dict(parts[0][0])
    for time, factor in parts[1][0].items():
        factors[time] = factors.get(time, 0.0) + sign * factor
    return factors, parts[0][1] + sign * parts[1][1]
