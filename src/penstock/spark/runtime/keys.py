"""Compare keys as Spark's `=` does: the common type, and the values that identify equal keys.

Spark hashes nulls inside arrays and structs as if they were absent, nested arrays as if they were flat, and
collated strings by their bytes. `identity` gives values whose hashes are equal if the keys are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T

from penstock.errors import ColumnError

MOST_DIGITS = 38
DIGITS: dict[type[T.DataType], int] = {T.ByteType: 3, T.ShortType: 5, T.IntegerType: 10, T.LongType: 20}
EXACT_BITS: dict[type[T.DataType], int] = {  # whole numbers below two to this power are all different
    T.ByteType: 8,
    T.ShortType: 16,
    T.IntegerType: 32,
    T.LongType: 64,
    T.FloatType: 24,
    T.DoubleType: 53,
}
FLOATS = (T.FloatType, T.DoubleType)
TEXTS = (T.StringType, T.CharType, T.VarcharType)
PLAIN = "UTF8_BINARY"
RETAIN_FRACTION = "spark.sql.legacy.decimal.retainFractionDigitsOnTruncate"


def is_ansi(session: Any) -> bool:
    """Whether a session compares by the rules of ANSI SQL.

    >>> from penstock.spark.runtime.keys import is_ansi
    >>> is_ansi(spark)
    True
    """
    return str(session.conf.get("spark.sql.ansi.enabled", "true")).lower() == "true"


def retains_fraction(session: Any) -> bool:
    """Whether decimals that need more than 38 digits lose whole digits and not decimal places."""
    return str(session.conf.get(RETAIN_FRACTION, "false")).lower() == "true"


def common_type(names: tuple[str, str], kinds: Sequence[T.DataType], session: Any) -> T.DataType:
    """Return the type in which Spark's `=` would compare two columns; raise an error if it would not.

    >>> from penstock.spark.runtime.keys import common_type
    >>> from pyspark.sql.types import DecimalType, IntegerType
    >>> common_type(("a", "b"), [IntegerType(), DecimalType(5, 2)], spark)
    DecimalType(12,2)
    """
    left, right = kinds
    for name, kind in zip(names, kinds, strict=True):
        _refuse_incomparable(name, kind)
    if same_type(left, right):
        return left
    both = (left, right)
    if all(isinstance(kind, T.IntegralType) for kind in both):
        return T.LongType()
    if all(isinstance(kind, T.NumericType) for kind in both):
        return _common_number(both, session)
    if {type(left), type(right)} == {T.DateType, T.TimestampType}:
        return T.TimestampType()
    if all(isinstance(kind, TEXTS) for kind in both):
        if is_collated(left) or is_collated(right):
            raise ColumnError(
                f"The keys {names[0]!r} ({left.simpleString()}) and {names[1]!r} ({right.simpleString()}) "
                "have different collations, which Spark cannot compare. Give both one "
                f"collation, such as .cast('string collate {_collation(left)}')."
            )
        return T.StringType()
    raise ColumnError(
        f"The keys {names[0]!r} ({left.simpleString()}) and {names[1]!r} ({right.simpleString()}) are of "
        "different types. Cast one of them."
    )


def _common_number(kinds: tuple[T.DataType, T.DataType], session: Any) -> T.DataType:
    """The type in which two different types of numbers, of which one is not whole, are compared."""
    if any(isinstance(kind, FLOATS) for kind in kinds):
        whole = any(isinstance(kind, T.IntegralType) for kind in kinds)
        single = any(isinstance(kind, T.FloatType) for kind in kinds)
        return T.FloatType() if whole and single and not is_ansi(session) else T.DoubleType()
    places, whole_digits = max(map(_places, kinds)), max(map(_whole_digits, kinds))
    digits = whole_digits + places
    if digits > MOST_DIGITS and not retains_fraction(session):
        places = max(0, places - (digits - MOST_DIGITS))
    return T.DecimalType(min(MOST_DIGITS, digits), places)


def _places(kind: T.DataType) -> int:
    return kind.scale if isinstance(kind, T.DecimalType) else 0


def _whole_digits(kind: T.DataType) -> int:
    return kind.precision - kind.scale if isinstance(kind, T.DecimalType) else DIGITS[type(kind)]


def _collation(kind: T.DataType) -> str:
    return getattr(kind, "collation", PLAIN)


def keeps_apart(kind: T.DataType, other: T.DataType) -> bool:
    """Whether values of a type that differ also differ when they are cast to the other one.

    >>> from penstock.spark.runtime.keys import keeps_apart
    >>> from pyspark.sql.types import DoubleType, IntegerType, LongType
    >>> keeps_apart(IntegerType(), DoubleType()), keeps_apart(LongType(), DoubleType())
    (True, False)
    """
    if same_type(kind, other):
        return True
    if isinstance(other, FLOATS):
        return EXACT_BITS.get(type(kind), 64) <= EXACT_BITS[type(other)]
    if isinstance(other, T.DecimalType):
        return _places(kind) <= other.scale and _whole_digits(kind) <= other.precision - other.scale
    return True


def same_type(left: T.DataType, right: T.DataType) -> bool:
    """Whether two types are the same but for what may be null in them."""
    if isinstance(left, T.ArrayType) and isinstance(right, T.ArrayType):
        return same_type(left.elementType, right.elementType)
    if isinstance(left, T.StructType) and isinstance(right, T.StructType):
        return left.names == right.names and all(
            same_type(a.dataType, b.dataType) for a, b in zip(left.fields, right.fields, strict=True)
        )
    return left == right


def is_collated(kind: T.DataType) -> bool:
    """Whether a type is, or contains, a string whose equality is not that of its bytes.

    >>> from penstock.spark.runtime.keys import is_collated
    >>> from pyspark.sql.types import ArrayType, StringType
    >>> is_collated(StringType()), is_collated(ArrayType(StringType("UTF8_LCASE")))
    (False, True)
    """
    if isinstance(kind, T.ArrayType):
        return is_collated(kind.elementType)
    if isinstance(kind, T.StructType):
        return any(is_collated(field.dataType) for field in kind.fields)
    return _collation(kind) != PLAIN


def refuse_collated(name: str, kind: T.DataType, operator: str) -> None:
    """Reject collated strings for operators that compare bytes and would silently ignore the collation."""
    if is_collated(kind):
        raise ColumnError(
            f"{operator} compares the bytes of strings, but the column {name!r} is {kind.simpleString()}. "
            "Cast it to 'string', after lower() or rtrim() if case or trailing spaces should not matter."
        )


def _refuse_incomparable(name: str, kind: T.DataType) -> None:
    """Reject types that Spark's `=` does not compare, at any depth."""
    if isinstance(kind, T.MapType):
        raise ColumnError(f"A map cannot be a join key: {name!r}. Use its entries or a hash of them.")
    if isinstance(kind, T.VariantType | T.CalendarIntervalType | T.YearMonthIntervalType | T.NullType):
        raise ColumnError(f"A {kind.simpleString()} cannot be a join key: {name!r}. Cast it.")
    if isinstance(kind, T.ArrayType):
        _refuse_incomparable(name, kind.elementType)
    if isinstance(kind, T.StructType):
        for field in kind.fields:
            _refuse_incomparable(name, field.dataType)


def identity(column: Column, kind: T.DataType) -> Column:
    """Return a value that is equal for equal keys only, and whose hash distinguishes them.

    >>> from penstock.spark.runtime.keys import identity
    >>> from pyspark.sql.functions import col, xxhash64
    >>> pairs = spark.sql("SELECT array(1, null) AS a, array(null, 1) AS b")
    >>> kind = pairs.schema["a"].dataType
    >>> a, b = (xxhash64(identity(col(name), kind)) for name in ("a", "b"))
    >>> pairs.select(a == b, xxhash64("a") == xxhash64("b")).collect()[0][:]
    (False, True)
    """
    if isinstance(kind, T.ArrayType):
        parts = F.transform(column, lambda each: _or_null(each, kind.elementType))
        return F.struct(F.size(column), parts)
    if isinstance(kind, T.StructType):
        fields = [_or_null(column.getField(field.name), field.dataType) for field in kind.fields]
        return F.struct(F.lit(len(fields)), *fields)
    return collation_key(column, kind) if is_collated(kind) else column


def _or_null(column: Column, kind: T.DataType) -> Column:
    return F.struct(column.isNull(), identity(column, kind))


def collation_key(column: Column, kind: T.DataType) -> Column:
    """The bytes that Spark's own joins compare for a collated string; no public function gives them."""
    try:
        from pyspark import SparkContext
        from pyspark.sql.classic.column import Column as ClassicColumn

        if not isinstance(column, ClassicColumn):
            raise TypeError("a column of Spark Connect")
        spark = SparkContext._jvm.org.apache.spark.sql  # type: ignore[union-attr]
        found = spark.catalyst.expressions.CollationKey(spark.classic.ExpressionUtils.expression(column._jc))
        return ClassicColumn(spark.classic.ExpressionUtils.column(found))
    except Exception as error:
        raise ColumnError(
            f"A key is {kind.simpleString()}, and this session cannot say which of these strings are "
            "equal: only classic sessions can, not Spark Connect. Cast the keys of all streams to 'string', "
            "after lower() or rtrim() if case or trailing spaces should not matter."
        ) from error


def names_of(
    sides: Sequence[Sequence[T.DataType]], types: Sequence[T.DataType], session: Any
) -> tuple[str, ...]:
    """The names of the types in which keys are compared; where dates become timestamps, with the time zone.

    >>> from penstock.spark.runtime.keys import names_of
    >>> from pyspark.sql.types import LongType
    >>> names_of([[LongType()], [LongType()]], [LongType()], spark)
    ('bigint',)
    """
    names = []
    for kind, kinds in zip(types, zip(*sides, strict=True), strict=True):
        dated = isinstance(kind, T.TimestampType) and any(isinstance(each, T.DateType) for each in kinds)
        zone = f" in {session.conf.get('spark.sql.session.timeZone')}" if dated else ""
        names.append(kind.simpleString() + zone)
    return tuple(names)


def words_of(sides: Sequence[Sequence[T.DataType]], types: Sequence[T.DataType]) -> str:
    """How keys are compared, where an earlier version of Penstock knew them by other numbers; else nothing.

    A state from then must not meet numbers of today.
    """
    told = []
    for kind, kinds in zip(types, zip(*sides, strict=True), strict=True):
        nested = isinstance(kind, T.ArrayType | T.StructType)
        single = isinstance(kind, T.FloatType) and not all(isinstance(each, T.FloatType) for each in kinds)
        cut = isinstance(kind, T.DecimalType) and kind.scale < max(map(_places, kinds))
        if nested or single or cut or is_collated(kind):
            told.append(kind.simpleString())
    return f", compared as {', '.join(told)}" if told else ""
