"""Evaluate parts of a condition for many rows at once.

States go with the values, so that an error counts only where it decides the outcome: `and` and `or` are
evaluated from left to right, for each row.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from decimal import Context, Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.engine.pair_condition import BY_ZERO, EXACT, KNOWN, NULL, OVERFLOW
from penstock.joins.conditions.cells import Evaluated, as_arrow, constant, nulls, to_wide, units_in
from penstock.joins.conditions.kinds import Kind
from penstock.joins.conditions.nodes import ARITHMETIC
from penstock.joins.conditions.semantic_checks import Typed

_EXACTLY = Context(prec=100)
Columns = Callable[[int, str], Evaluated]

_COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    "=": np.equal,
    "!=": np.not_equal,
    "<": np.less,
    "<=": np.less_equal,
    ">": np.greater,
    ">=": np.greater_equal,
}

_ARITHMETIC: dict[str, Callable[[Any, Any], Any]] = {
    "+": np.add,
    "-": np.subtract,
    "*": np.multiply,
    "/": np.divide,
    "%": np.fmod,
}


def evaluate(part: Typed, columns: Columns) -> Evaluated:
    """Return a part of a condition for all rows; `columns` returns those of a side by name.

    >>> import pyarrow as pa
    >>> from penstock.joins.conditions.cells import read
    >>> from penstock.joins.conditions.evaluate import evaluate
    >>> from penstock.joins.conditions.kinds import LONG
    >>> from penstock.joins.conditions.parser import parse_condition
    >>> from penstock.joins.conditions.semantic_checks import checked
    >>> text = "left.a > 1 or left.a is null"
    >>> typed = checked(parse_condition(text), text, ({"a": LONG}, {}))
    >>> found = evaluate(typed, lambda side, name: read(pa.array([1, 2, None]), LONG))
    >>> found.values.tolist(), found.state.tolist()
    ([0, 1, 1], [0, 0, 0])
    """
    if part.name == "column":
        return columns(part.sides - 1, part.value)
    if part.name == "constant":
        return constant(part.value, part.kind)
    operands = [evaluate(each, columns) for each in part.operands]
    kinds = [each.kind for each in part.operands]
    if part.name == "to":
        return _converted(operands[0], kinds[0], part.kind)
    if part.name in ("and", "or"):
        decides = int(part.name == "or")
        return functools.reduce(lambda one, other: _junction(one, other, decides), operands)
    if part.name == "not":
        return Evaluated(1 - operands[0].values, operands[0].state)
    if part.name == "is null":
        state = operands[0].state
        return Evaluated((state == NULL).astype(np.int64), np.where(state == NULL, KNOWN, state))
    if part.name == "in":
        first, *others = _ranked(operands) if kinds[0].ranked else operands
        equal = [_compared("=", first, each, kinds[0]) for each in others]
        return functools.reduce(lambda one, other: _junction(one, other, 1), equal)
    if part.name in ARITHMETIC or part.name == "neg":
        with np.errstate(all="ignore"):
            return _computed(part, operands)
    one, other = _ranked(operands) if kinds[0].ranked else operands
    return _compared(part.name, one, other, kinds[0])


def ranks(arrays: Sequence[pa.Array]) -> tuple[list[np.ndarray], pa.Array]:
    """Return the rank of each value among all that there are, any for null, and these values in order.

    >>> import pyarrow as pa
    >>> from penstock.joins.conditions.evaluate import ranks
    >>> codes, values = ranks([pa.array(["b", None]), pa.array(["a", "b"])])
    >>> [each.tolist() for each in codes], values.to_pylist()
    ([[1, 1], [0, 1]], ['a', 'b'])
    """
    encoded = pa.concat_arrays(list(arrays)).dictionary_encode()
    order = pc.array_sort_indices(encoded.dictionary).to_numpy()
    rank = np.zeros(len(order), np.int64)
    rank[order] = np.arange(len(order))
    indices = encoded.indices.fill_null(0).to_numpy()
    codes = rank[indices] if len(rank) else np.zeros(len(indices), np.int64)
    ends = np.cumsum([len(each) for each in arrays])[:-1]
    return np.split(codes, ends), encoded.dictionary.take(as_arrow(order))


def _ranked(operands: Sequence[Evaluated]) -> list[Evaluated]:
    codes, _ = ranks([each.values for each in operands])
    return [Evaluated(code, each.state) for code, each in zip(codes, operands, strict=True)]


def _strict(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """The state of an operation that needs both operands, of which the first is evaluated first."""
    return np.where(one >= BY_ZERO, one, np.where(other >= BY_ZERO, other, np.maximum(one, other)))


def _junction(one: Evaluated, other: Evaluated, decides: int) -> Evaluated:
    """And or or: the value that decides alone is 0 for and, 1 for or."""
    first = (one.state >= BY_ZERO) | ((one.state == KNOWN) & (one.values == decides))
    second = ~first & ((other.state >= BY_ZERO) | ((other.state == KNOWN) & (other.values == decides)))
    values = np.where(first, one.values, np.where(second, other.values, 1 - decides))
    rest = np.maximum(one.state, other.state)
    return Evaluated(values, np.where(first, one.state, np.where(second, other.state, rest)))


def _compared(name: str, one: Evaluated, other: Evaluated, kind: Kind) -> Evaluated:
    x, y = one.values, other.values
    found = _COMPARE[name](x, y)
    if kind.real:  # NaN equals NaN and is greater than all others
        blank, theirs = np.isnan(x), np.isnan(y)
        found = np.where(blank | theirs, _COMPARE[name](blank.astype(int), theirs.astype(int)), found)
    return Evaluated(found.astype(np.int64), _strict(one.state, other.state))


def _computed(part: Typed, operands: Sequence[Evaluated]) -> Evaluated:
    """Arithmetic: on floats, or on whole numbers whose outcome must fit."""
    kind, one = part.kind, operands[0]
    other = operands[1] if len(operands) > 1 else one
    name = part.name
    if name == "neg":
        one, name = Evaluated(np.zeros(1, one.values.dtype), np.zeros(1, np.uint8)), "-"
    state = _strict(one.state, other.state)
    x, y = np.broadcast_arrays(one.values, other.values)
    if name in "/%":
        state = np.where((state == KNOWN) & (y == 0), BY_ZERO, state)
        y = np.where(y == 0, y.dtype.type(1), y)
    if kind.real:
        if part.name == "neg":
            found = -other.values
        else:
            found = _ARITHMETIC[name](x, y)
        return Evaluated(found.astype(np.float32).astype(np.float64) if kind.bits == 32 else found, state)
    found, over = whole_arithmetic(name, x, y)
    if kind.family == "int" and kind.bits < 64:
        over = over | (found >= 2 ** (kind.bits - 1)) | (found < -(2 ** (kind.bits - 1)))
    return Evaluated(found, np.where((state == KNOWN) & over, OVERFLOW, state))


def whole_arithmetic(name: str, a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the outcome on whole numbers of 64 bits, and where it does not fit; divisors are not zero.

    >>> import numpy as np
    >>> from penstock.joins.conditions.evaluate import whole_arithmetic
    >>> found, over = whole_arithmetic("*", np.array([3, 2**62]), np.array([4, 2]))
    >>> found.tolist()[0], over.tolist()
    (12, [False, True])
    """
    if name == "+":
        c = a + b
        return c, ((a ^ c) & (b ^ c)) < 0
    if name == "-":
        c = a - b
        return c, ((a ^ b) & (a ^ c)) < 0
    if name == "%":
        return np.where(b == -1, 0, np.fmod(a, np.where(b == -1, 1, b))), np.zeros(a.shape, bool)
    c, near = a * b, np.abs(a.astype(np.float64) * b.astype(np.float64)) >= 2.0**62
    over = np.zeros(c.shape, bool)
    for at in np.flatnonzero(near).tolist():
        over[at] = not -(2**63) <= int(a[at]) * int(b[at]) < 2**63
    return c, over


def _converted(cells: Evaluated, mine: Kind, kind: Kind) -> Evaluated:
    if mine.family == "null":
        return nulls(len(cells.state), kind)
    if kind.real:
        return Evaluated(_reals(cells, mine), cells.state)
    if kind.wide:
        return to_wide(cells, mine, kind)
    if mine.wide:
        return _packed(cells, kind)
    factor = 10 ** (kind.places - mine.places) if kind.family == "decimal" else units_in(kind, mine)
    if factor >= 2**63:  # 10^18 is the most that decimals of 64 bits have
        over = (cells.state == KNOWN) & (cells.values != 0)
        return Evaluated(np.zeros_like(cells.values), np.where(over, OVERFLOW, cells.state))
    with np.errstate(all="ignore"):
        found, over = whole_arithmetic("*", cells.values, np.full(cells.values.shape, factor, np.int64))
    return Evaluated(found, np.where((cells.state == KNOWN) & over, OVERFLOW, cells.state))


def _reals(cells: Evaluated, mine: Kind) -> np.ndarray:
    """Numbers as floats, each the nearest one."""
    values = cells.values
    if mine.family != "decimal":
        return values.astype(np.float64)
    if not isinstance(values, np.ndarray):
        return np.array([float(each or 0) for each in values.to_pylist()], np.float64)
    found = values / 10.0**mine.places
    for at in np.flatnonzero(np.abs(values) > EXACT).tolist():
        found[at] = float(Decimal(int(values[at])).scaleb(-mine.places))
    return found


def _packed(cells: Evaluated, kind: Kind) -> Evaluated:
    """Decimals of many digits as whole numbers of 64 bits, where they fit."""
    found, state = np.zeros(len(cells.state), np.int64), cells.state.copy()
    for at, value in enumerate(cells.values.to_pylist()):
        if value is not None:
            digits = int(value.scaleb(kind.places, _EXACTLY))
            if -(2**63) <= digits < 2**63:
                found[at] = digits
            else:
                state[at] = OVERFLOW
    return Evaluated(found, state)
