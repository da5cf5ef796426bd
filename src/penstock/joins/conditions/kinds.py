"""The types of the values in a condition, as Spark SQL with ANSI on has them, and their common types."""

from __future__ import annotations

import dataclasses
import datetime
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pyarrow as pa

MOST_DIGITS = 18  # of decimals that kernels compute with: as whole numbers they fit into 64 bits
SPARK_DIGITS = 38
UNITS = ("s", "ms", "us", "ns")
DAY = 86_400  # seconds


@dataclass(frozen=True)
class Kind:
    """The type of a value.

    `family` is one of `bool`, `int`, `decimal`, `float`, `text`, `binary`, `date`, `timestamp`, `time`,
    `duration` and `other`. Everything but floats, texts, binaries and wide decimals is computed with as a
    whole number of 64 bits.
    """

    family: str
    bits: int = 0  # of whole numbers and floats
    digits: int = 0  # of decimals
    places: int = 0  # of decimals, behind the point
    unit: str = ""  # of timestamps, times and durations
    zoned: bool = False  # timestamps are points in time
    packed: bool = False  # a decimal of more digits, in 64 bits nevertheless, as it is computed with
    name: str = ""  # of other types

    @property
    def ranked(self) -> bool:
        """Whether values are compared by their rank among all there are."""
        return self.family in ("text", "binary") or self.wide

    @property
    def wide(self) -> bool:
        """Whether this is a decimal that does not fit into 64 bits."""
        return self.family == "decimal" and self.digits > MOST_DIGITS and not self.packed

    @property
    def real(self) -> bool:
        """Whether values are floats."""
        return self.family == "float"

    @property
    def numeric(self) -> bool:
        """Whether values are numbers."""
        return self.family in ("int", "decimal", "float", "null")

    def __str__(self) -> str:
        """The type as Arrow names it, or nearly so."""
        if self.family == "int":
            return f"int{self.bits}"
        if self.family == "float":
            return "double" if self.bits == 64 else "float"
        if self.family == "decimal":
            return f"decimal({self.digits}, {self.places})"
        if self.family == "timestamp":
            return f"timestamp[{self.unit}]" + (" with time zone" if self.zoned else "")
        return self.name or {"text": "string"}.get(self.family, self.family)


NULLS = Kind("null")  # a column without values, whose type is not known
BOOL, DOUBLE, FLOAT = Kind("bool"), Kind("float", bits=64), Kind("float", bits=32)
INT, LONG = Kind("int", bits=32), Kind("int", bits=64)
TEXT, BINARY, DATE = Kind("text"), Kind("binary"), Kind("date")


def kind_of(arrow: pa.DataType) -> Kind:
    """The kind of the values of an Arrow column.

    >>> import pyarrow as pa
    >>> from penstock.joins.conditions.kinds import kind_of
    >>> str(kind_of(pa.int16())), str(kind_of(pa.decimal128(10, 2))), str(kind_of(pa.list_(pa.int8())))
    ('int16', 'decimal(10, 2)', 'list<item: int8>')
    """
    is_a = pa.types
    if is_a.is_dictionary(arrow):
        return kind_of(arrow.value_type)
    if is_a.is_null(arrow):
        return NULLS
    if is_a.is_boolean(arrow):
        return BOOL
    if is_a.is_uint64(arrow):
        return Kind("decimal", digits=20)
    if is_a.is_unsigned_integer(arrow):
        return Kind("int", bits=2 * arrow.bit_width)
    if is_a.is_integer(arrow):
        return Kind("int", bits=arrow.bit_width)
    if is_a.is_floating(arrow):
        return DOUBLE if arrow.bit_width == 64 else FLOAT
    if is_a.is_decimal(arrow) and arrow.scale >= 0 and arrow.precision <= SPARK_DIGITS:
        return Kind("decimal", digits=arrow.precision, places=arrow.scale)
    if is_a.is_string(arrow) or is_a.is_large_string(arrow) or arrow == pa.string_view():
        return TEXT
    if is_a.is_binary(arrow) or is_a.is_large_binary(arrow) or is_a.is_fixed_size_binary(arrow):
        return BINARY
    if is_a.is_date(arrow):
        return DATE
    if is_a.is_timestamp(arrow):
        return Kind("timestamp", unit=arrow.unit, zoned=arrow.tz is not None)
    for family, test in (("time", is_a.is_time), ("duration", is_a.is_duration)):
        if test(arrow):
            return Kind(family, unit=arrow.unit, name=str(arrow))
    return Kind("other", name=str(arrow))


def arrow_type(kind: Kind) -> pa.DataType:
    """The Arrow type of the values of a kind.

    >>> from penstock.joins.conditions.kinds import LONG, arrow_type
    >>> arrow_type(LONG)
    DataType(int64)
    """
    if kind.family == "int":
        return {8: pa.int8(), 16: pa.int16(), 32: pa.int32(), 64: pa.int64()}[kind.bits]
    if kind.family == "decimal":
        return pa.decimal128(kind.digits, kind.places)
    if kind.family == "float":
        return pa.float64() if kind.bits == 64 else pa.float32()
    if kind.family == "timestamp":
        return pa.timestamp(kind.unit, "UTC" if kind.zoned else None)
    if kind.family == "time":
        return pa.time32(kind.unit) if kind.unit in ("s", "ms") else pa.time64(kind.unit)
    if kind.family == "duration":
        return pa.duration(kind.unit)
    plain = {"bool": pa.bool_(), "text": pa.large_string(), "binary": pa.large_binary(), "date": pa.date32()}
    return plain.get(kind.family, pa.null())


def plain_constant(value: Any, kind: Kind) -> Any:
    """A constant as it is computed with: a date is a number of days, 1.50 is 150.

    >>> from decimal import Decimal
    >>> from penstock.joins.conditions.kinds import constant_kind, plain_constant
    >>> plain_constant(Decimal("1.50"), constant_kind(Decimal("1.50")))
    150
    """
    if isinstance(value, datetime.datetime):
        start = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC if kind.zoned else None)
        return (value - start) // datetime.timedelta(microseconds=1)
    if isinstance(value, datetime.date):
        return (value - datetime.date(1970, 1, 1)).days
    return int(value.scaleb(kind.places)) if isinstance(value, Decimal) else value


def constant_kind(value: Any) -> Kind:
    """The kind of a constant, as Spark SQL has it: 1 is an int, 1.5 a decimal and 1e0 a double.

    >>> from decimal import Decimal
    >>> from penstock.joins.conditions.kinds import constant_kind
    >>> [str(constant_kind(value)) for value in (1, 2**40, Decimal("1.50"), 1.5, "a")]
    ['int32', 'int64', 'decimal(3, 2)', 'double', 'string']
    """
    if isinstance(value, bool):
        return BOOL
    if isinstance(value, int):
        return INT if -(2**31) <= value < 2**31 else LONG
    if isinstance(value, float):
        return DOUBLE
    if isinstance(value, Decimal):
        _, digits, exponent = value.as_tuple()
        places = -int(exponent)
        return Kind("decimal", digits=max(len(digits), places, 1), places=places)
    if isinstance(value, datetime.datetime):
        return Kind("timestamp", unit="us", zoned=value.tzinfo is not None)
    if isinstance(value, datetime.date):
        return DATE
    return TEXT


def as_decimal(kind: Kind) -> Kind:
    """The decimal that holds the values of a kind of whole numbers or decimals."""
    if kind.family == "decimal":
        return kind
    return Kind("decimal", digits={8: 3, 16: 5, 32: 10, 64: 20}[kind.bits])


def common(left: Kind, right: Kind) -> Kind | None:
    """The kind in which two values are compared; None if they cannot be.

    >>> from penstock.joins.conditions.kinds import BOOL, DOUBLE, FLOAT, INT, Kind, common
    >>> str(common(INT, FLOAT)), str(common(INT, Kind("decimal", digits=5, places=2))), common(BOOL, INT)
    ('double', 'decimal(12, 2)', None)
    """
    families = {left.family, right.family}
    if "other" in families:
        return None
    if "null" in families:
        return left if right.family == "null" else right
    if left.numeric and right.numeric:
        return common_number(left, right)
    if left == right:
        return left
    if families == {"date", "timestamp"}:
        stamp = left if left.family == "timestamp" else right
        return None if stamp.zoned else stamp
    if len(families) == 1 and left.zoned == right.zoned and left.unit and right.unit:
        return max(left, right, key=lambda kind: UNITS.index(kind.unit))
    return None


def common_number(left: Kind, right: Kind) -> Kind:
    """The kind in which two numbers are compared."""
    if left == right or right.family == "null":
        return left
    if left.family == "null":
        return right
    if left.real or right.real:
        return DOUBLE
    if left.family == right.family == "int":
        return max(left, right, key=lambda kind: kind.bits)
    one, other = as_decimal(left), as_decimal(right)
    places = max(one.places, other.places)
    whole = max(one.digits - one.places, other.digits - other.places)
    return Kind("decimal", digits=whole + places, places=places)


def packed(kind: Kind) -> Kind:
    """The same, in 64 bits where that is a matter of choice.

    >>> from penstock.joins.conditions.kinds import Kind, packed
    >>> Kind("decimal", digits=20).wide, packed(Kind("decimal", digits=20)).wide
    (True, False)
    """
    return dataclasses.replace(kind, packed=True) if kind.wide else kind


def result_of(operator: str, left: Kind, right: Kind) -> Kind | None:
    """The kind of the outcome of arithmetic on two numbers; None if it is not supported.

    >>> from penstock.joins.conditions.kinds import INT, LONG, Kind, result_of
    >>> cents = Kind("decimal", digits=9, places=2)
    >>> [str(result_of("*", INT, other)) for other in (LONG, cents)], str(result_of("/", INT, LONG))
    (['int64', 'decimal(20, 2)'], 'double')
    """
    left, right = (INT if kind.family == "null" else kind for kind in (left, right))
    both = common_number(left, right)
    if both.family != "decimal":
        return DOUBLE if operator == "/" else both
    one, other = as_decimal(left), as_decimal(right)
    if operator in "+-":
        kind = Kind("decimal", digits=both.digits + 1, places=both.places)
    elif operator == "*":
        kind = Kind("decimal", digits=one.digits + other.digits + 1, places=one.places + other.places)
    else:
        return None
    return packed(kind) if kind.digits <= SPARK_DIGITS else None
