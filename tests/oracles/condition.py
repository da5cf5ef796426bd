"""Conditions on pairs as a plain, slow evaluator: one pair at a time, with Python's own exact numbers.

`NULL` is SQL's null. A condition raises `UndefinedError` if what cannot be computed is needed when `and` and
`or` are evaluated from left to right.
"""

from __future__ import annotations

import datetime
import math
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

import numpy as np

from penstock.joins.conditions.nodes import ColumnNode, Constant, Node

NULL = None


class UndefinedError(ArithmeticError):
    """A division by zero, or a number that does not fit."""


def passes(node: Node, left: Mapping[str, Any], right: Mapping[str, Any]) -> bool:
    """Whether a pair of rows passes a condition."""
    return value_of(node, (left, right)) is True


def value_of(node: Node, rows: Any) -> Any:
    """True, False, a number, a text or null. Floats of 32 bits are NumPy's."""
    if isinstance(node, ColumnNode):
        return rows[node.side][node.name]
    if isinstance(node, Constant):
        return node.value
    name = node.name
    if name in ("and", "or"):
        return _junction(node, rows, name == "or")
    if name == "in":
        first, found = value_of(node.operands[0], rows), False
        for each in node.operands[1:]:
            equal = _compare("=", first, value_of(each, rows))
            if equal is True:
                return True
            found = NULL if equal is NULL else found
        return found
    if name == "is null":
        return value_of(node.operands[0], rows) is NULL
    if name == "not":
        inner = value_of(node.operands[0], rows)
        return NULL if inner is NULL else not inner
    values = [value_of(each, rows) for each in node.operands]
    if name == "neg":
        return NULL if values[0] is NULL else _arithmetic("-", _zero_like(values[0]), values[0])
    if name in "+-*/%":
        return NULL if NULL in [v if v is NULL else 0 for v in values] else _arithmetic(name, *values)
    return _compare(name, *values)


def _junction(node: Any, rows: Any, decides: bool) -> Any:
    outcome: Any = not decides
    for each in node.operands:
        value = value_of(each, rows)
        if value is decides:
            return decides
        outcome = NULL if value is NULL else outcome
    return outcome


def _compare(name: str, a: Any, b: Any) -> Any:
    if a is NULL or b is NULL:
        return NULL
    if isinstance(a, float | np.float32) or isinstance(b, float | np.float32):
        a, b = float(a), float(b)
        if math.isnan(a) or math.isnan(b):
            a, b = math.isnan(a), math.isnan(b)
    if isinstance(a, datetime.date) and isinstance(a, datetime.datetime) != isinstance(b, datetime.datetime):
        a, b = (datetime.datetime(t.year, t.month, t.day, getattr(t, "hour", 0)) for t in (a, b))
    return {"=": a == b, "!=": a != b, "<": a < b, "<=": a <= b, ">": a > b, ">=": a >= b}[name]


def _places(value: Any) -> int:
    """Decimal places of a column's type: 2 of `n`, and those that a constant is written with."""
    return -int(value.as_tuple().exponent) if isinstance(value, Decimal) else 0


def _zero_like(value: Any) -> Any:
    return type(value)(-0.0) if isinstance(value, float | np.float32) else type(value)(0)


def _arithmetic(name: str, a: Any, b: Any) -> Any:
    single = isinstance(a, np.float32) and isinstance(b, np.float32)
    real = isinstance(a, float | np.float32) or isinstance(b, float | np.float32)
    if real or (name == "/" and not isinstance(a, Decimal) and not isinstance(b, Decimal)):
        a, b = float(a), float(b)
        if name in "/%" and b == 0:
            raise UndefinedError
        with np.errstate(all="ignore"):
            x, y = np.float64(a), np.float64(b)
            found = {"+": x + y, "-": x - y, "*": x * y, "/": x / (y or 1.0), "%": np.fmod(x, y or 1.0)}[name]
            return np.float32(found) if single and name != "/" else float(found)
    if name == "%":
        if b == 0:
            raise UndefinedError
        return int(math.copysign(1, a)) * (abs(a) % abs(b))
    found = {"+": a + b, "-": a - b, "*": a * b}[name]
    digits = found
    if isinstance(found, Decimal):  # computed with whole numbers of 64 bits
        places = _places(a) + _places(b) if name == "*" else max(_places(a), _places(b))
        digits = int(found.scaleb(places))
        if name != "*" and any(abs(int(Decimal(each).scaleb(places))) >= 2**63 for each in (a, b)):
            raise UndefinedError
    if not -(2**63) <= digits < 2**63:
        raise UndefinedError
    return found
