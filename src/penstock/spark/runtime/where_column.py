"""Conditions on pairs on Spark: their columns on the way, and the same condition as a Spark column."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from penstock.errors import ColumnError
from penstock.joins.conditions.kinds import kind_of
from penstock.joins.conditions.nodes import SIDES, columns_of
from penstock.joins.conditions.parser import parse_condition
from penstock.joins.conditions.semantic_checks import Typed, checked
from penstock.spark.runtime.arrow_types import arrow_schema
from penstock.spark.runtime.join_schema import field_of
from penstock.spark.runtime.keys import is_collated

ColumnTypes = tuple[tuple[tuple[str, Any], ...], ...]  # per side names and Arrow types


def condition_types(where: str | None, left: DataFrame, right: DataFrame) -> ColumnTypes | None:
    """Return the Arrow types of the columns that a condition may name, or raise an error about a column.

    >>> from penstock.spark.runtime.where_column import condition_types
    >>> frame = spark.createDataFrame([(1, 2)], "k int, v int")
    >>> condition_types("left.v < right.v", frame, frame)[0]
    (('k', DataType(null)), ('v', DataType(int32)))
    """
    if where is None:
        return None
    node = parse_condition(where)
    named = [{each.name for each in columns_of(node) if each.side == side} for side in (0, 1)]
    found = []
    for side, frame in enumerate((left, right)):
        for name in named[side] & set(frame.columns):
            kind = field_of(frame, name, SIDES[side]).dataType
            if is_collated(kind):
                raise ColumnError(
                    f"where compares the bytes of strings, but the column {name!r} of the {SIDES[side]} "
                    f"stream is {kind.simpleString()}. Cast it to 'string', after lower() or rtrim() if case "
                    "or trailing spaces should not matter."
                )
        found.append(
            tuple(
                (name, _arrow(frame, name) if name in named[side] else pa.null())
                for name in dict.fromkeys(frame.columns)
            )
        )
    kinds = [{name: kind_of(kind) for name, kind in side} for side in found]
    checked(node, where, kinds)
    return tuple(found)


def _arrow(frame: DataFrame, name: str) -> pa.DataType:
    try:
        return arrow_schema(T.StructType([frame.schema[name]])).types[0]
    except Exception:  # a type that Arrow lacks can be tested for null, and no more
        return pa.list_(pa.null())


def condition_column(
    where: str, left: DataFrame, right: DataFrame, column: Callable[[int, str], Column]
) -> Column:
    """Return the condition as a Spark column, true where a pair passes; `column` returns those of a side.

    It means the same with ANSI on and off. It is one expression that Spark does not take apart, so that its
    parts are evaluated from left to right.

    >>> from penstock.spark.runtime.where_column import condition_column
    >>> from pyspark.sql import functions as F
    >>> frame = spark.createDataFrame([(1, 2)], "v int, w int")
    >>> passing = condition_column("left.v < right.w", frame, frame, lambda side, name: F.col(name))
    >>> frame.filter(passing).count()
    1
    """
    types = condition_types(where, left, right)
    assert types is not None
    kinds = [{name: kind_of(kind) for name, kind in side} for side in types]
    truth = _column(checked(parse_condition(where), where, kinds), column)
    return F.when(truth, F.lit(True)).otherwise(F.lit(False))


def _column(part: Typed, column: Callable[[int, str], Column]) -> Column:
    if part.name == "column":
        return column(part.sides - 1, part.value)
    if part.name == "constant":
        return _constant(part)
    operands = [_column(each, column) for each in part.operands]
    first, second = operands[0], operands[-1]
    if part.name == "to":
        return first.cast("double") if part.kind.real else _as_stamp(part, first)
    if part.name in ("and", "or"):
        whole = first
        for each in operands[1:]:
            whole = whole & each if part.name == "and" else whole | each
        return whole
    if part.name == "not":
        return ~first
    if part.name == "is null":
        return first.isNull()
    if part.name == "in":
        return first.isin(*operands[1:])
    if part.name in _COMPARE:
        return _COMPARE[part.name](first, second)
    return _computed(part, first, second)


_COMPARE: dict[str, Callable[[Column, Column], Column]] = {
    "=": lambda one, other: one == other,
    "!=": lambda one, other: one != other,
    "<": lambda one, other: one < other,
    "<=": lambda one, other: one <= other,
    ">": lambda one, other: one > other,
    ">=": lambda one, other: one >= other,
}


def _as_stamp(part: Typed, value: Column) -> Column:
    """Dates are compared with timestamps at midnight; Spark converts all else as we do."""
    return value.cast("timestamp_ntz") if part.kind.family == "timestamp" else value


def _computed(part: Typed, first: Column, second: Column) -> Column:
    """Arithmetic with an error where there is no value, whether or not ANSI is on."""
    if part.name in "/%":
        zero = F.raise_error(F.lit("where divides by zero"))
        found = first / second if part.name == "/" else first % second
        return F.when(second == 0, zero.cast(_type_of(part))).otherwise(found)
    if part.name == "neg":
        first, second = F.lit(0).cast(_type_of(part)), first
        if part.kind.real:
            return -second
    if part.kind.real:
        return {"+": first + second, "-": first - second, "*": first * second}[part.name]
    tried = {"+": F.try_add, "-": F.try_subtract, "*": F.try_multiply}.get(part.name, F.try_subtract)
    found, over = tried(first, second), F.raise_error(F.lit("where needs a number that does not fit"))
    missing = first.isNull() | second.isNull()
    return F.when(missing | found.isNotNull(), found).otherwise(over.cast(_type_of(part)))


def _type_of(part: Typed) -> str:
    if part.kind.family == "decimal":
        return f"decimal({part.kind.digits}, {part.kind.places})"
    if part.kind.real:
        return "double" if part.kind.bits == 64 else "float"
    return {8: "tinyint", 16: "smallint", 32: "int"}.get(part.kind.bits, "bigint")


def _constant(part: Typed) -> Column:
    kind, value = part.kind, part.value
    if kind.family == "decimal":
        return F.lit(Decimal(value).scaleb(-kind.places)).cast(_type_of(part))
    if kind.family == "int":
        return F.lit(value).cast(_type_of(part))
    if kind.family == "date":
        return F.lit(datetime.date(1970, 1, 1) + datetime.timedelta(days=value))
    if kind.family == "timestamp":
        if kind.zoned:
            return F.timestamp_micros(F.lit(value).cast("bigint"))
        naive = datetime.datetime(1970, 1, 1) + datetime.timedelta(microseconds=value)
        return F.lit(str(naive)).cast("timestamp_ntz")
    return F.lit(value)
