"""Derive the schema of a join from DataFrames: keys, times, payload and output columns."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from penstock.errors import ColumnError, hint
from penstock.spark.runtime.arrow_types import arrow_schema
from penstock.spark.runtime.figures import SIDES
from penstock.spark.runtime.join_spec import JoinSide
from penstock.spark.runtime.keys import common_type, identity, words_of
from penstock.spark.runtime.packer import renamed

WATERMARK = "spark.watermarkDelayMs"  # how Spark marks the column of a watermark
CODED = (T.ByteType, T.ShortType, T.IntegerType, T.LongType, T.DateType, T.BooleanType)  # are their own code
EVENT_TIME = "event_time"
ARCHIVED = "penstock.archived"  # marks columns that only rows in the archive have
LEFT_ONLY = ("left_semi", "left_anti")  # whose results have left columns alone
WATERMARKED = {"spark.watermarkDelayMs": 0}  # how Spark knows a column by which windows may close


@dataclass(frozen=True)
class JoinKeys:
    """How both sides name their keys, and the type in which they are compared."""

    left: tuple[str, ...]
    right: tuple[str, ...]
    types: tuple[T.DataType, ...]
    left_types: tuple[T.DataType, ...]  # in which they go out
    right_types: tuple[T.DataType, ...]

    @property
    def hashed(self) -> bool:
        """Whether a key is known by a hash: if it is not one whole number."""
        return len(self.types) > 1 or not all(isinstance(kind, CODED) for kind in self.types)

    def compared(self, side: int) -> list[Column]:
        """The key columns of a side in the common type."""
        names = (self.left, self.right)[side]
        return [F.col(quoted(name)).cast(kind) for name, kind in zip(names, self.types, strict=True)]

    def identities(self, side: int) -> list[Column]:
        """Values of a side by whose hashes its keys are known."""
        return [identity(column, kind) for column, kind in zip(self.compared(side), self.types, strict=True)]

    @property
    def words(self) -> str:
        """How the keys are compared, if that must be told apart from how it was once done."""
        return words_of((self.left_types, self.right_types), self.types)


def keys_of(left: DataFrame, right: DataFrame, on: Any) -> JoinKeys:
    """The key columns from what the user gives: a name, several, or pairs of names; none for `on=()`."""
    pairs = [] if isinstance(on, tuple | list) and not on else _pairs(on, "on")
    types = []
    for names in pairs:
        kinds = [
            field_of(frame, name, side).dataType
            for side, frame, name in zip(SIDES, (left, right), names, strict=True)
        ]
        types.append(common_type(names, kinds, left.sparkSession))
    own = tuple(left.schema[name].dataType for name, _ in pairs)
    other = tuple(right.schema[name].dataType for _, name in pairs)
    return JoinKeys(tuple(a for a, _ in pairs), tuple(b for _, b in pairs), tuple(types), own, other)


def times_of(left: DataFrame, right: DataFrame, time: Any, unit: str) -> tuple[tuple[str, str], str, str]:
    """The time columns, the unit they are counted in, and the dtype of the numbers."""
    names = (time, time) if isinstance(time, str) else tuple(time)
    if len(names) != 2 or not all(isinstance(name, str) for name in names):
        raise ColumnError(f"time takes a column name or a pair of names; {time!r} was given.")
    kinds = [
        field_of(frame, name, side).dataType
        for side, frame, name in zip(SIDES, (left, right), names, strict=True)
    ]
    families = [family_of(kind) for kind in kinds]
    if None in families or families[0] != families[1]:
        raise ColumnError(
            f"time takes two columns of timestamps, of dates or of numbers; {names[0]!r} is "
            f"{kinds[0].simpleString()} and {names[1]!r} is {kinds[1].simpleString()}. "
            + _cast_advice(names, families)
        )
    return names, *scale_of(kinds, unit)


def _cast_advice(names: Sequence[str], families: Sequence[str | None]) -> str:
    """Return which of two time columns to cast."""
    wrong = [
        (name, side) for name, side, family in zip(names, SIDES, families, strict=True) if family is None
    ]
    if not wrong:
        return "Cast one of them to the type of the other."
    what = "both" if len(wrong) == 2 else f"{wrong[0][0]!r} of the {wrong[0][1]} stream"
    return f"Cast {what}, for example with to_timestamp."


def scale_of(kinds: Sequence[T.DataType], unit: str) -> tuple[str, str]:
    """The unit and the dtype in which times of these types, all of one family, are counted."""
    if family_of(kinds[0]) != "number":
        return "us", "int64"
    whole = all(isinstance(kind, T.IntegralType) or _scale(kind) == 0 for kind in kinds)
    return unit, "int64" if whole else "float64"


def has_watermark(frame: DataFrame, time: str, stream: str) -> bool:
    """Whether Spark provides the progress of this time; a watermark on another column does not help."""
    marked = [field.name for field in frame.schema.fields if WATERMARK in (field.metadata or {})]
    if marked and time not in marked:
        raise ColumnError(
            f"The watermark of the {stream} stream is on {marked[0]!r}, but time is {time!r}; a join "
            "can only use a watermark on its time column."
        )
    return bool(marked)


def sides_of(
    left: DataFrame, right: DataFrame, keys: JoinKeys, times: tuple[str, str], suffixes: Sequence[str]
) -> tuple[JoinSide, JoinSide]:
    """Return the output columns, with suffixes for names that both sides have."""
    rest = [
        [name for name in frame.columns if name not in names]
        for frame, names in ((left, keys.left), (right, keys.right))
    ]
    both = (set(rest[0]) & set(rest[1])) | (set(rest[1]) & set(keys.left))
    names = [
        tuple(name + suffix if name in both else name for name in columns)
        for columns, suffix in zip(rest, suffixes, strict=True)
    ]
    everything = [*keys.left, *names[0], *names[1]]
    doubled = {name for name in everything if everything.count(name) > 1}
    if doubled:
        raise ColumnError(
            f"The output would have {sorted(doubled)} more than once; give other suffixes, or rename columns."
        )
    left_side, right_side = (
        JoinSide(
            sources=tuple(rest[i]),
            names=names[i],
            key_sources=(keys.left, keys.right)[i],
            time_source=times[i],
            watermark=has_watermark(frame, times[i], SIDES[i]),
        )
        for i, frame in enumerate((left, right))
    )
    return left_side, right_side


def output_fields(
    left: DataFrame, right: DataFrame, sides: tuple[JoinSide, JoinSide], keys: JoinKeys, how: str = "inner"
) -> list[T.StructField]:
    """Return the columns of the results: keys once, then left, then right.

    Semi and anti joins have left columns alone; those of the right side are for the archive.
    """
    kinds = key_types_of(keys, how)
    fields = [T.StructField(name, kind) for name, kind in zip(sides[0].key_sources, kinds, strict=True)]
    for number, (frame, side) in enumerate(zip((left, right), sides, strict=True)):
        only = {ARCHIVED: True} if number == 1 and how in LEFT_ONLY else None
        for name, out in zip(side.sources, side.names, strict=True):
            fields.append(T.StructField(out, frame.schema[name].dataType, True, only))
    return fields


def key_types_of(keys: JoinKeys, how: str) -> tuple[T.DataType, ...]:
    """Return the types in which keys come out: those of the side that has them in every row."""
    return {"right": keys.right_types, "full": keys.types}.get(how, keys.left_types)


def _pairs(on: Any, option: str) -> list[tuple[str, str]]:
    given = [on] if isinstance(on, str) else on
    if isinstance(given, tuple) and len(given) == 2 and all(isinstance(part, str) for part in given):
        given = list(given)
    pairs = []
    for part in given if isinstance(given, list | tuple) else [None]:
        if isinstance(part, str):
            pairs.append((part, part))
        elif isinstance(part, tuple | list) and len(part) == 2 and all(isinstance(p, str) for p in part):
            pairs.append((part[0], part[1]))
        else:
            raise ColumnError(
                f"{option} takes a column name, a list of names, or a list of pairs (left, right); "
                f"{on!r} was given."
            )
    if not pairs:
        raise ColumnError(f"{option} needs at least one column; {on!r} was given.")
    return pairs


def field_of(frame: DataFrame, name: str, stream: str) -> T.StructField:
    """A column of a stream, or an error that says which it has."""
    names = frame.columns
    if names.count(name) > 1:
        raise ColumnError(f"The column {name!r} of the {stream} stream occurs more than once.")
    if name not in names:
        raise ColumnError(f"The {stream} stream has no column {name!r}{hint(name, names)}")
    return frame.schema[name]


def types_of(frame: DataFrame) -> tuple[tuple[str, str], ...]:
    """The columns of a stream with the names of their types."""
    return tuple((field.name, field.dataType.simpleString()) for field in frame.schema.fields)


def refuse_unpackable(fields: Sequence[T.StructField]) -> None:
    """Reject columns whose type Arrow lacks, so that they cannot be passed to Python."""
    for field in fields:
        try:
            arrow_schema(T.StructType([field]))
        except Exception as error:
            raise ColumnError(
                f"The column {field.name!r} is {field.dataType.simpleString()}, a type that Spark cannot "
                "pass to Python. Cast it, or drop it before the join."
            ) from error


def _scale(kind: T.DataType) -> int:
    if isinstance(kind, T.DecimalType):
        return kind.scale
    return 0 if isinstance(kind, T.IntegralType) else 1


def family_of(kind: T.DataType) -> str | None:
    """Which times can be compared with each other."""
    if isinstance(kind, T.NumericType):
        return "number"
    families: dict[type[T.DataType], str] = {
        T.TimestampType: "timestamp",
        T.TimestampNTZType: "timestamp_ntz",
        T.DateType: "date",
    }
    return families.get(type(kind))


def quoted(name: str) -> str:
    """A column name as it stands in an expression, whatever characters it has."""
    return "`" + name.replace("`", "``") + "`"


def mapped(
    frame: DataFrame, function: Callable[[Any], Iterator[pa.RecordBatch]], schema: str | T.StructType
) -> DataFrame:
    """`mapInArrow` whatever the columns are called: Spark's own finds none with a dot or a backtick in it."""
    plain = frame.toDF(*[f"_{number}" for number in range(len(frame.columns))])
    return plain.mapInArrow(renamed(function, frame.columns), schema)


def event_time_field(kind: T.DataType) -> T.StructField:
    """The column of a result's latest time, with a watermark.

    >>> from penstock.spark.runtime.join_schema import event_time_field
    >>> from pyspark.sql.types import TimestampType
    >>> event_time_field(TimestampType()).name
    'event_time'
    """
    return T.StructField(EVENT_TIME, kind, True, WATERMARKED)


def row_bytes_of(fields: Sequence[T.StructField]) -> float:
    """Estimate the bytes of a row from its types; texts and nested values count as 32 bytes."""
    widths: dict[type[T.DataType], int] = {
        T.BooleanType: 1,
        T.ByteType: 1,
        T.ShortType: 2,
        T.IntegerType: 4,
        T.FloatType: 4,
        T.DateType: 4,
    }
    total = 0.0
    for field in fields:
        kind = field.dataType
        if isinstance(kind, T.DecimalType):
            total += 16
        elif isinstance(kind, T.StringType | T.BinaryType | T.ArrayType | T.MapType | T.StructType):
            total += 32
        else:
            total += widths.get(type(kind), 8)
    return total


def suffixes_for(how: str, suffixes: Sequence[str]) -> Sequence[str]:
    """Return the suffixes of columns that both sides have: semi and anti joins keep the left names.

    >>> from penstock.spark.runtime.join_schema import suffixes_for
    >>> suffixes_for("left_semi", ("_left", "_right")), suffixes_for("left", ("_left", "_right"))
    (('', '_right'), ('_left', '_right'))
    """
    return ("", suffixes[1] or "_right") if how in LEFT_ONLY else suffixes


def check_key_times(keys: JoinKeys, times: tuple[str, str], how: str) -> None:
    """Reject a time that is also a key and would come out in another type."""
    shown = key_types_of(keys, how)
    for names, kinds, time in zip(
        (keys.left, keys.right), (keys.left_types, keys.right_types), times, strict=True
    ):
        for name, kind, wanted in zip(names, kinds, shown, strict=True):
            if how in ("right", "full") and name == time and kind != wanted:
                raise ColumnError(
                    f"The time {name!r} is also a key, and is {kind.simpleString()} on one side and "
                    f"{wanted.simpleString()} in the results of how={how!r}. Cast one of them."
                )
