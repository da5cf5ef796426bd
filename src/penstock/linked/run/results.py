"""Convert solutions to rows: late conditions, and the columns of SELECT."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa

from penstock.linked.language.nodes import Expression, Var
from penstock.linked.plan.plan import QueryPlan
from penstock.linked.terms import BOOLEAN, DOUBLE, EXACT, NAIVE, TIME, Terms
from penstock.linked.triples import Triples
from penstock.linked.values import LARGEST, Column, evaluate, from_numbers, from_terms, holds


class Known(NamedTuple):
    """Triples, their ends after the batch, and the row by which each was closed, if any was."""

    triples: Triples
    end: np.ndarray
    closed_by: np.ndarray | None

    def ends(self, rows: np.ndarray, newest: np.ndarray) -> np.ndarray:
        """The ends of triples as they were known when the newest triple of a solution came."""
        if self.closed_by is None:
            return self.triples.end[rows]
        return np.where(self.closed_by[rows] < newest, self.end[rows], self.triples.end[rows])


class Solved:
    """The columns of all variables, one row per solution."""

    def __init__(self, plan: QueryPlan, known: Known, solutions: np.ndarray, terms: Terms) -> None:
        self.query, self.known, self.solutions, self.terms = plan.query, known, solutions, terms
        self.triples = known.triples

    def __call__(self, name: str) -> Column | None:
        home = self.query.homes.get(name)
        if home is not None:
            return from_terms(self.triples.terms[self.solutions[:, home[0]], home[1]], self.terms)
        times = self.times(name)
        return None if times is None else from_numbers(times, self.triples.scale.whole)

    def times(self, name: str) -> np.ndarray | None:
        """The times of a time variable."""
        place = self.query.time_variables.get(name)
        if place is None:
            return None
        rows = self.solutions[:, place[0]]
        if not place[1]:
            return self.triples.start[rows]
        return self.known.ends(rows, self.solutions.max(axis=1, initial=-1))


def surviving(plan: QueryPlan, known: Known, solutions: np.ndarray, terms: Terms) -> np.ndarray:
    """Which solutions fulfil the conditions that are checked at last."""
    fine = np.ones(len(solutions), bool)
    if len(solutions):
        for expression in plan.late:
            fine &= holds(expression, Solved(plan, known, solutions, terms), terms)
    return fine


def project(plan: QueryPlan, known: Known, solutions: np.ndarray, terms: Terms) -> pa.Table:
    """The columns of SELECT, as natural values; with DISTINCT the first of the rows of equal values."""
    solved = Solved(plan, known, solutions, terms)
    if plan.query.distinct and len(solutions):
        found = [evaluate(item.expression, solved, terms).full(len(solutions)) for item in plan.query.items]
        keys = pd.DataFrame(dict(enumerate(part for one in found for part in _keys(one))))
        solutions = solutions[~keys.duplicated().to_numpy()]
        solved = Solved(plan, known, solutions, terms)
    columns = {item.name: _column(item.expression, solved, len(solutions)) for item in plan.query.items}
    return pa.table(columns)


def _keys(column: Column) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """What rows of equal values have in common: the kind, and the number or else the value."""
    kind = np.where(column.kind == DOUBLE, EXACT, column.kind)
    large = (kind == EXACT) & (np.abs(column.number) >= LARGEST) & (column.value >= 0)
    numeric = np.isin(kind, (EXACT, BOOLEAN, TIME, NAIVE)) & ~large
    number = np.where(numeric, column.number + 0.0, 0.0)  # there is one zero
    return kind, number, np.where(numeric, -1, column.value)


def _column(expression: Expression, solved: Solved, rows: int) -> pa.Array:
    if isinstance(expression, Var):
        times = solved.times(expression.name)
        if times is not None:
            return solved.triples.scale.restored(times)
    column = evaluate(expression, solved, solved.terms).full(rows)
    return natural(column, solved.terms)


def natural(column: Column, terms: Terms) -> pa.Array:
    """Values as Arrow has them: numbers, truth values and timestamps if all are, else texts.

    IRIs and strings are their text, blank nodes and other literals are in N-Triples syntax; errors are null.
    """
    named = column.term >= 0
    if named.all() and len(named):
        places, distinct = pd.factorize(column.term)
        return _array([terms.natives(code) for code in distinct.tolist()]).take(pa.array(places))
    values: list[Any] = []
    for kind, number, term in zip(
        column.kind.tolist(), column.number.tolist(), column.term.tolist(), strict=True
    ):
        if term >= 0:
            values.append(terms.natives(term))
        elif kind < 0:
            values.append(None)
        elif kind == BOOLEAN:
            values.append(number != 0.0)
        else:
            values.append(int(number) if kind == EXACT and number == int(number) else number)
    return _array(values)


def _array(values: list[Any]) -> pa.Array:
    some = [value for value in values if value is not None]
    if not some:
        return pa.array(values, pa.string())
    if all(isinstance(value, bool) for value in some):
        return pa.array(values, pa.bool_())
    if all(isinstance(value, int | float) and not isinstance(value, bool) for value in some):
        whole = all(isinstance(value, int) and abs(value) < 2**63 for value in some)
        return pa.array(values if whole else [None if v is None else float(v) for v in values])
    if all(hasattr(value, "isoformat") for value in some):
        return pa.array(values, pa.timestamp("us", "UTC"))
    return pa.array([value if value is None or isinstance(value, str) else _text(value) for value in values])


def _text(value: Any) -> str:
    return (
        value.isoformat()
        if hasattr(value, "isoformat")
        else str(value).lower()
        if value in (True, False)
        else str(value)
    )
