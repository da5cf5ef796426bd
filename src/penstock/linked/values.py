"""Evaluate expressions over columns of values, all rows at once, with SPARQL's three truth values."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from penstock.errors import QueryError
from penstock.linked.language.nodes import COMPARISONS, Call, ConstantTerm, Expression, Var
from penstock.linked.terms import (
    BLANK,
    BOOLEAN,
    DOUBLE,
    ERROR,
    EXACT,
    IRI,
    LANG,
    NAIVE,
    OTHER,
    STRING,
    TIME,
    XSD,
    Term,
    Terms,
    double_text,
    string,
    value_of,
)
from penstock.units import duration

LARGEST = 2.0**53  # above, whole numbers are distinguished by their terms


class Column(NamedTuple):
    """Values of many rows, or one value for all of them (arrays of length 1)."""

    kind: np.ndarray
    number: np.ndarray
    term: np.ndarray  # -1: computed
    value: np.ndarray  # -1: computed, or equal to nothing

    def take(self, rows: np.ndarray) -> Column:
        """Some of the rows."""
        if len(self.kind) == 1:
            return self
        return Column(*(part[rows] for part in self))

    def full(self, rows: int) -> Column:
        """The same with a row each."""
        return Column(*(np.broadcast_to(part, rows) for part in self)) if len(self.kind) == 1 else self


def from_terms(numbers: np.ndarray, terms: Terms) -> Column:
    """A column of terms."""
    worth = terms.worth()
    return Column(worth.kind[numbers], worth.number[numbers], numbers, worth.value[numbers])


def from_numbers(numbers: np.ndarray, whole: bool = True) -> Column:
    """A column of computed numbers."""
    none = np.full(len(numbers), -1, np.int64)
    kind = np.full(len(numbers), EXACT if whole else DOUBLE, np.int8)
    return Column(kind, np.asarray(numbers, np.float64), none, none)


def from_truths(truth: np.ndarray, wrong: np.ndarray) -> Column:
    """A column of truth values, with errors."""
    none = np.full(len(truth), -1, np.int64)
    return Column(
        np.where(wrong, ERROR, BOOLEAN).astype(np.int8),
        np.where(wrong, 0.0, truth.astype(np.float64)),
        none,
        none,
    )


Resolve = Callable[[str], Column | None]


def evaluate(expression: Expression, resolve: Resolve, terms: Terms) -> Column:
    """The values of an expression; `resolve` has the column of each variable, None if it is unbound.

    >>> import numpy as np
    >>> from penstock.linked.language.nodes import Call, ConstantTerm, Var
    >>> from penstock.linked.terms import Terms, from_native
    >>> from penstock.linked.values import evaluate, from_numbers
    >>> above = Call(">", (Var("x"), ConstantTerm(from_native(1))))
    >>> evaluate(above, {"x": from_numbers(np.array([1, 2]))}.get, Terms()).number.tolist()
    [0.0, 1.0]
    """
    if isinstance(expression, Var):
        found = resolve(expression.name)
        return _wrong(1) if found is None else found
    if isinstance(expression, ConstantTerm):
        return from_terms(np.array([terms.add(expression.term)]), terms)
    if expression.name == "bound":
        name = expression.arguments[0].name
        return from_truths(np.array([resolve(name) is not None]), np.array([False]))
    arguments = [evaluate(argument, resolve, terms) for argument in expression.arguments]
    return apply(expression.name, arguments, terms)


def apply(name: str, arguments: list[Column], terms: Terms) -> Column:
    """An operator or function on columns."""
    if name in ("=", "!="):
        return _equal(arguments[0], arguments[1], negated=name == "!=")
    if name in COMPARISONS:
        return _ordered(name, arguments[0], arguments[1], terms)
    if name in ("+", "-", "*", "/"):
        return _arithmetic(name, arguments[0], arguments[1])
    if name in ("neg", "abs"):
        (only,) = arguments
        numeric = _numeric(only)
        number = -only.number if name == "neg" else np.abs(only.number)
        none = np.full(len(number), -1, np.int64)
        return Column(np.where(numeric, only.kind, ERROR).astype(np.int8), number, none, none)
    if name in ("&&", "||"):
        return _junction(name, [truth_of(argument, terms) for argument in arguments])
    if name == "!":
        truth = truth_of(arguments[0], terms)
        return from_truths(truth.number == 0.0, truth.kind == ERROR)
    if name == "str":
        return _str(arguments[0], terms)
    if name == "regex":
        return _regex(arguments, terms)
    raise QueryError(f"{name} is not a function of the language.")


def holds(expression: Expression, resolve: Resolve, terms: Terms) -> np.ndarray:
    """Where an expression is true: neither false nor an error.

    >>> import numpy as np
    >>> from penstock.linked.language.nodes import Call, Var
    >>> from penstock.linked.terms import Terms
    >>> from penstock.linked.values import from_numbers, holds
    >>> holds(Call("!", (Var("x"),)), {"x": from_numbers(np.array([0, 2]))}.get, Terms()).tolist()
    [True, False]
    """
    truth = truth_of(evaluate(expression, resolve, terms), terms)
    return (truth.kind == BOOLEAN) & (truth.number != 0.0)


def truth_of(column: Column, terms: Terms) -> Column:
    """The effective boolean value of SPARQL."""
    kind, number = column.kind, column.number
    numeric = (kind == EXACT) | (kind == DOUBLE)
    truth = np.where(numeric, (number != 0.0) & (number == number), number != 0.0)
    texts = kind == STRING
    if texts.any():
        none = terms.add(string(""))
        empty = terms.worth().value[none]
        truth = np.where(texts, column.value != empty, truth)
    return from_truths(truth, ~(numeric | texts | (kind == BOOLEAN)))


def _wrong(rows: int) -> Column:
    return from_truths(np.zeros(rows, bool), np.ones(rows, bool))


def _numeric(column: Column) -> np.ndarray:
    return (column.kind == EXACT) | (column.kind == DOUBLE)


def _equal(left: Column, right: Column, negated: bool) -> Column:
    a, b = left.kind, right.kind
    numeric = _numeric(left) & _numeric(right)
    same_number = left.number == right.number
    known = (left.value >= 0) & (right.value >= 0)
    same_value = known & (left.value == right.value)
    large = known & (np.abs(left.number) >= LARGEST)
    by_number = ((a == b) & ((a == BOOLEAN) | (a == TIME) | (a == NAIVE))) | (numeric & ~large)
    truth = np.where(by_number, same_number, same_value & ((a == b) | numeric))
    nodes = (a == IRI) | (a == BLANK) | (b == IRI) | (b == BLANK)
    clock = ((a == TIME) & (b == NAIVE)) | ((a == NAIVE) & (b == TIME))
    unknown = ((a == OTHER) | (b == OTHER)) & ~nodes & ~same_value
    wrong = (a == ERROR) | (b == ERROR) | clock | unknown
    return from_truths(~truth if negated else truth, wrong)


def _ordered(name: str, left: Column, right: Column, terms: Terms) -> Column:
    a, b = left.kind, right.kind
    fine = (_numeric(left) & _numeric(right)) | ((a == b) & ((a == BOOLEAN) | (a == TIME) | (a == NAIVE)))
    texts = (a == STRING) & (b == STRING)
    first, second = left.number, right.number
    if texts.any():
        first, second = ordinal(left, terms).number, ordinal(right, terms).number
    compare = {"<": np.less, "<=": np.less_equal, ">": np.greater, ">=": np.greater_equal}[name]
    return from_truths(compare(first, second), ~(fine | texts))


def ordinal(column: Column, terms: Terms) -> Column:
    """The column with the places of texts in their order as their numbers."""
    texts = column.kind == STRING
    if not texts.any():
        return column
    places = terms.places()
    return column._replace(number=np.where(texts, places[np.where(texts, column.term, 0)], column.number))


def _arithmetic(name: str, left: Column, right: Column) -> Column:
    numeric = _numeric(left) & _numeric(right)
    double = (left.kind == DOUBLE) | (right.kind == DOUBLE)
    with np.errstate(all="ignore"):
        number = {"+": np.add, "-": np.subtract, "*": np.multiply, "/": np.divide}[name](
            left.number, right.number
        )
    if name == "/":
        numeric &= double | (right.number != 0.0)
    kind = np.where(numeric, np.where(double, DOUBLE, EXACT), ERROR).astype(np.int8)
    none = np.full(len(number), -1, np.int64)
    return Column(kind, number, none, none)


def _junction(name: str, truths: list[Column]) -> Column:
    """And: false wins over errors, errors over true. Or: true wins over errors, errors over false."""
    decisive = 0.0 if name == "&&" else 1.0
    decided, wrong = np.zeros(1, bool), np.zeros(1, bool)
    for truth in truths:
        bad = truth.kind == ERROR
        wrong = wrong | bad
        decided = decided | (~bad & (truth.number == decisive))
    return from_truths(decided if name == "||" else ~decided, wrong & ~decided)


def text_of(term: Term) -> str | None:
    """What `str` gives of a term; None for blank nodes, which have no text."""
    return None if term.form == "blank" else term.text


def number_text(number: float, kind: int) -> str:
    """A computed number as a text: whole ones without a point.

    >>> from penstock.linked.values import number_text
    >>> from penstock.linked.terms import DOUBLE, EXACT
    >>> number_text(3.0, EXACT), number_text(3.0, DOUBLE)
    ('3', '3.0')
    """
    return str(int(number)) if kind == EXACT and number == int(number) else double_text(number)


def _str(column: Column, terms: Terms) -> Column:
    kinds, numbers, codes = column.kind, column.number, column.term
    out = np.full(len(kinds), -1, np.int64)
    named = codes >= 0
    if named.any():
        distinct, places = np.unique(codes[named], return_inverse=True)
        texts = [text_of(terms.term(code)) for code in distinct.tolist()]
        coded = np.array([-1 if text is None else terms.add(string(text)) for text in texts], np.int64)
        out[named] = coded[places]
    for i in np.flatnonzero(~named & (kinds != ERROR)).tolist():
        text = (
            ("true" if numbers[i] else "false") if kinds[i] == BOOLEAN else number_text(numbers[i], kinds[i])
        )
        out[i] = terms.add(string(text))
    return _texts(out, terms)


def _texts(codes: np.ndarray, terms: Terms) -> Column:
    """A column of strings by their terms, -1 where there is none."""
    worth, some = terms.worth(), codes >= 0
    kind = np.where(some, STRING, ERROR).astype(np.int8)
    value = worth.value[np.where(some, codes, 0)] if len(worth.value) else codes
    return Column(kind, np.zeros(len(codes)), codes, np.where(some, value, -1))


def _regex(arguments: list[Column], terms: Terms) -> Column:
    text, pattern = arguments[:2]
    flags = 0
    if len(arguments) == 3:
        given = terms.term(int(arguments[2].term[0])).text
        for letter, flag in (("i", re.IGNORECASE), ("s", re.DOTALL), ("m", re.MULTILINE), ("x", re.VERBOSE)):
            flags |= flag if letter in given else 0
    rows = len(np.broadcast_arrays(text.kind, pattern.kind)[0])
    fine = np.broadcast_to(((text.kind == STRING) | (text.kind == LANG)) & (pattern.kind == STRING), rows)
    pairs = np.stack([np.broadcast_to(text.term, rows), np.broadcast_to(pattern.term, rows)], axis=1)
    truth, wrong = np.zeros(rows, bool), ~fine
    if fine.any():
        distinct, places = np.unique(pairs[fine], axis=0, return_inverse=True)
        found, bad = [], []
        for code, expression in distinct.tolist():
            try:
                matched = re.search(terms.term(expression).text, terms.term(code).text, flags) is not None
                found.append(matched)
                bad.append(False)
            except (re.error, OverflowError, RecursionError):
                found.append(False)
                bad.append(True)
        truth[fine], wrong[fine] = np.array(found)[places.ravel()], np.array(bad)[places.ravel()]
    return from_truths(truth, wrong)


def in_unit(expression: Expression, unit: str, bare: str | None, times: Any) -> Expression:
    """The expression with durations as numbers of a unit, and timestamps compared with time variables too.

    `bare` is the unit of bare numbers compared with timestamps; None: times are numbers themselves.

    >>> from penstock.linked.language.nodes import ConstantTerm
    >>> from penstock.linked.terms import XSD, Term
    >>> from penstock.linked.values import in_unit
    >>> in_unit(ConstantTerm(Term("literal", "2", XSD + "second"), "second"), "ms", None, ()).term.text
    '2000'
    """
    return _measured(expression, unit, bare, times)[0]


def _measured(expression: Expression, unit: str, bare: str | None, times: Any) -> tuple[Expression, bool]:
    """The expression in the unit, and whether it is an amount of it."""
    if isinstance(expression, ConstantTerm) and expression.unit:
        amount = duration(f"{expression.term.text} {expression.unit}", unit)
        kind = "integer" if isinstance(amount, int) else "decimal"
        return ConstantTerm(
            Term("literal", str(amount) if kind == "integer" else f"{amount:.12f}", XSD + kind)
        ), True
    if not isinstance(expression, Call):
        return expression, isinstance(expression, Var) and expression.name in times
    name = expression.name
    found = [_measured(argument, unit, bare, times) for argument in expression.arguments]
    if bare and any(isinstance(part, Var) and timed for part, timed in found):
        found = [_stamp_number(part, timed, unit) for part, timed in found]
    arguments, timed = [part for part, _ in found], [measured for _, measured in found]
    if bare and any(timed) and (name in ("+", "-") or name in COMPARISONS):
        factor = duration(f"1 {bare}", unit)
        arguments = [part if measured else _times(part, factor) for part, measured in found]
    amount_of_it = any(timed) and name in ("+", "-", "*", "/", "neg", "abs", "signed")
    return dataclasses.replace(expression, arguments=tuple(arguments)), amount_of_it and not (
        name == "/" and all(timed)
    )


def _stamp_number(part: Any, timed: bool, unit: str) -> tuple[Any, bool]:
    """A constant dateTime as a number of a unit."""
    if not isinstance(part, ConstantTerm) or (worth := value_of(part.term)).kind not in (TIME, NAIVE):
        return part, timed
    amount = worth.number * duration("1 microsecond", unit)
    return ConstantTerm(Term("literal", repr(float(amount)), XSD + "double")), True


def _times(part: Any, factor: float) -> Any:
    """An expression without times, multiplied."""
    if isinstance(part, Call) and part.name in ("neg", "abs", "+", "-"):
        return dataclasses.replace(part, arguments=tuple(_times(one, factor) for one in part.arguments))
    if isinstance(part, ConstantTerm) and (worth := value_of(part.term)).kind in (EXACT, DOUBLE):
        return ConstantTerm(_amount(worth.number * factor))
    return part if factor == 1 else Call("*", (part, ConstantTerm(_amount(factor))))


def _amount(number: float) -> Term:
    if abs(number) < LARGEST and number == int(number):
        return Term("literal", str(int(number)), XSD + "integer")
    return Term("literal", double_text(number), XSD + "double")
