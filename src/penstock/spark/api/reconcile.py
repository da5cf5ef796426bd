"""`reconcile`: a batch job that computes the results a bounded join missed."""

from __future__ import annotations

import datetime
import math
import os
from collections.abc import Callable, Sequence
from typing import Any

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from penstock.arguments import one_of
from penstock.errors import ColumnError, PenstockError, hint
from penstock.joins.kinds import kind_of
from penstock.spark.runtime.delta_table import is_delta, read_delta
from penstock.spark.runtime.figures import SIDES
from penstock.spark.runtime.join_bucket import EVENT, LEFT, RESULT, RIGHT, STREAM
from penstock.spark.runtime.join_schema import (
    ARCHIVED,
    keys_of,
    output_fields,
    quoted,
    sides_of,
    suffixes_for,
    times_of,
)
from penstock.spark.runtime.join_spec import JoinSide
from penstock.spark.runtime.keys import is_collated
from penstock.spark.runtime.where_column import condition_column
from penstock.window import Within, window_of

Frame = DataFrame | str | os.PathLike[str]
DAY = 86_400_000_000  # in microseconds


def reconcile(
    archive: Frame,
    left: DataFrame,
    right: DataFrame,
    *,
    on: Any,
    time: Any,
    within: Any,
    results: Frame,
    suffixes: tuple[str, str] = ("_left", "_right"),
    unit: str = "ms",
    how: str = "inner",
    late: str | None = None,
    where: str | None = None,
) -> DataFrame:
    """Compute the results that a bounded join missed; together with its own they are the exact join.

    A pair is missed only if one of its rows was evicted, dropped or late, and a row without a partner only if
    it is undecided. Spark joins the rows whose key is in the archive, and subtracts the known results, each
    as often as it occurs.

    Parameters
    ----------
    archive
        The rows that were evicted, dropped, late or undecided: a DataFrame, or the archive path of
        `write_split`, with Parquet files or a Delta table.
    left, right
        The complete input of both streams, as batch DataFrames.
    on, time, within, suffixes, unit, how, where
        The same values as for `bounded_join`.
    late
        `"include"`: late rows belong to the exact join, which is the default for inner joins. `"exclude"`:
        they do not. Any other `how` decides without them, and excludes them.
    results
        The results of the query: a DataFrame, or the results path of `write_split`.

    Returns
    -------
    Rows with the columns of the join. Map entries are compared in the order in which they are stored.

    Examples
    --------
    >>> from penstock.spark import bounded_join
    >>> from penstock.spark import reconcile
    >>> shown = spark.createDataFrame([("a", 0), ("b", 1), ("c", 2)], "ad string, ts long")
    >>> clicked = spark.createDataFrame([("c", 3), ("b", 4), ("a", 5)], "ad string, ts long")
    >>> join = {"on": "ad", "time": "ts", "within": 10}
    >>> rows = bounded_join(shown, clicked, **join, budget="2 tuples", policy="fifo", emit="all")
    >>> hits, lost = rows.filter("_event = 'result'"), rows.filter("_event != 'result'")
    >>> hits.count()
    1
    >>> reconcile(lost, shown, clicked, **join, results=hits).orderBy("ad").show()
    +---+-------+--------+
    | ad|ts_left|ts_right|
    +---+-------+--------+
    |  a|      0|       5|
    |  b|      1|       4|
    +---+-------+--------+
    <BLANKLINE>
    """
    _check_batch(left, "left")
    _check_batch(right, "right")
    window = window_of(within)
    if not isinstance(window, Within):
        raise PenstockError(f"within={within!r} is not a window of time, as bounded_join on Spark uses it.")
    keys, how = keys_of(left, right, on), kind_of(how, "all").how
    excludes = _excludes(late, how)
    times, unit, dtype = times_of(left, right, time, unit)
    sides = sides_of(left, right, keys, times, suffixes_for(how, suffixes))
    fields = output_fields(left, right, sides, keys, how)
    fields = [field for field in fields if ARCHIVED not in (field.metadata or {})]
    lost, found = _opened(archive, "archive", left), _opened(results, "results", left)
    _check_columns(lost, fields[: len(keys.left)], "archive", typed=False)
    _check_columns(found, fields, "results", typed=True)
    if EVENT in lost.columns:
        lost = lost.filter(F.col(EVENT) != RESULT)

    if excludes:
        left, right = (
            _without_late(frame, lost, SIDES[side], sides[side], keys.left)
            for side, frame in ((LEFT, left), (RIGHT, right))
        )
    # Columns are renamed to numbers meanwhile, because user names may be anything.
    gone = None  # without keys, every pair may have been missed
    if keys.types:
        gone = lost.select(*[key.alias(f"gone{i}") for i, key in enumerate(keys.compared(LEFT))]).distinct()
    own = [*keys.left, *sides[LEFT].sources]
    a = _among(gone, left, keys.compared(LEFT), times[LEFT], own, 0)
    theirs = [*sides[RIGHT].sources, *keys.right]
    b = _among(gone, right, keys.compared(RIGHT), times[RIGHT], theirs, len(own))
    known = _among(gone, found, keys.compared(LEFT), None, [field.name for field in fields], 0)
    near = _near(left.schema[times[LEFT]].dataType, window.resolve(unit).horizons, dtype)
    same = [F.col(f"a.key{i}") == F.col(f"b.key{i}") for i in range(len(keys.types))]
    named = ([f"a.out{i}" for i in range(len(own))], [f"b.out{len(own) + i}" for i in range(len(theirs))])
    places = [dict(zip(names, found, strict=True)) for names, found in zip((own, theirs), named, strict=True)]
    passing = []
    if where is not None:
        passing.append(condition_column(where, left, right, lambda side, name: F.col(places[side][name])))
    exact = a.alias("a").join(b.alias("b"), [*same, near, *passing], how)
    if how in ("right", "full"):
        first = len(own) + len(sides[RIGHT].sources)  # of the right keys
        for i, field in enumerate(fields[: len(keys.types)]):
            key = F.col(f"out{first + i}").cast(field.dataType)
            exact = exact.withColumn(
                f"out{i}", F.coalesce(F.col(f"out{i}").cast(field.dataType), key) if how == "full" else key
            )
    try:
        missed = _comparable(exact, fields).exceptAll(_comparable(known, fields))
        missed.columns  # noqa: B018 (a remote session says now what it thinks of the columns)
    except AnalysisException as error:
        raise ColumnError(
            "The results cannot be compared with the exact join, because Spark does not compare columns "
            f"of such a type: {str(error).splitlines()[0]}"
        ) from error
    return missed.select(
        *[_with_maps(F.col(f"out{i}"), field.dataType).alias(field.name) for i, field in enumerate(fields)]
    )


def _excludes(late: str | None, how: str) -> bool:
    """Whether late rows are left out."""
    allowed = ("include", "exclude")
    if late is not None:
        one_of("late", late, allowed)
    if late == "include" and how != "inner":
        raise PenstockError(
            f"late='include' cannot be combined with how={how!r}: the query has told rows without a partner "
            "although a late row would match them. Leave out late."
        )
    return (late or ("include" if how == "inner" else "exclude")) == "exclude"


def _without_late(
    frame: DataFrame, lost: DataFrame, stream: str, own: JoinSide, keys: Sequence[str]
) -> DataFrame:
    """Return the rows of a stream without those that the archive, with the keys as `keys`, calls late."""
    missing = [name for name in (EVENT, STREAM) if name not in lost.columns]
    if missing:
        raise ColumnError(f"archive has no column {missing[0]!r}, which says what rows were late.")
    told = lost.filter((F.col(EVENT) == "late") & (F.col(STREAM) == stream))
    columns = list(zip([*own.key_sources, *own.sources], [*keys, *own.names], strict=True))
    kinds = {name: frame.schema[name].dataType for name, _ in columns}
    kept = [
        _without_maps(F.col(quoted(name)), kinds[name]).alias(f"out{i}")
        for i, (name, _) in enumerate(columns)
    ]
    late = [
        _without_maps(_as_kind(told, archived, kinds[name]), kinds[name]).alias(f"out{i}")
        for i, (name, archived) in enumerate(columns)
    ]
    rest = frame.select(*kept).exceptAll(told.select(*late))
    return rest.select(
        *[_with_maps(F.col(f"out{i}"), kinds[name]).alias(name) for i, (name, _) in enumerate(columns)]
    )


def _as_kind(frame: DataFrame, name: str, kind: T.DataType) -> Column:
    """Return a column of the archive in its type before the join: keys may come out in another one."""
    column = F.col(quoted(name))
    return column if frame.schema[name].dataType == kind else column.try_cast(kind)


def _check_batch(frame: Any, option: str) -> None:
    """Reject anything but a batch DataFrame."""
    if not hasattr(frame, "isStreaming") or not hasattr(frame, "exceptAll"):
        raise PenstockError(f"reconcile takes Spark DataFrames; {option} is a {type(frame).__name__}.")
    if frame.isStreaming:
        raise PenstockError(
            f"reconcile is a batch job, but {option} is a stream; read its data with spark.read."
        )


def _opened(given: Any, option: str, beside: DataFrame) -> DataFrame:
    """Return a DataFrame, read from its path if necessary."""
    if not isinstance(given, str | os.PathLike):
        _check_batch(given, option)
        return given
    spark, path = beside.sparkSession, os.fspath(given)
    try:
        frame = read_delta(spark, path) if is_delta(spark, path) else spark.read.parquet(path)
        frame.columns  # noqa: B018 (a remote session looks only now)
        return frame
    except AnalysisException as error:
        raise PenstockError(
            f"{option}={path!r} cannot be read as Parquet: {str(error).splitlines()[0]}"
        ) from error


def _check_columns(frame: DataFrame, fields: list[T.StructField], option: str, typed: bool) -> None:
    """Check that the required columns exist and have the types of the join."""
    for field in fields:
        if field.name not in frame.columns:
            raise ColumnError(
                f"{option} has no column {field.name!r}, which the join has{hint(field.name, frame.columns)}"
            )
        kind, given = field.dataType.simpleString(), frame.schema[field.name].dataType.simpleString()
        if typed and kind != given:
            raise ColumnError(
                f"The column {field.name!r} of {option} is {given}, but {kind} in the join of these inputs; "
                "cast it."
            )


def _among(
    gone: DataFrame | None,
    frame: DataFrame,
    keys: list[Column],
    time: str | None,
    names: Sequence[str],
    first: int,
) -> DataFrame:
    """Return the rows whose key is in the archive: their keys, time, and columns renamed to numbers."""
    columns = [key.alias(f"key{i}") for i, key in enumerate(keys)]
    if time is not None:
        columns.append(F.col(quoted(time)).alias("time"))
    columns += [F.col(quoted(name)).alias(f"out{i}") for i, name in enumerate(names, first)]
    if gone is None:
        return frame.select(*columns)
    same = [F.col(f"key{i}") == F.col(f"gone{i}") for i in range(len(keys))]
    return frame.select(*columns).join(gone, same, "left_semi")


def _near(kind: T.DataType, horizons: tuple[Any, Any], dtype: str) -> Column:
    """Whether the time of a pair's right row is within the window of the left one."""
    after, before = horizons
    left, right = F.col("a.time"), F.col("b.time")
    if dtype == "float64":
        return (right.try_cast("double") - left.try_cast("double")).between(-float(before), float(after))
    after, before = math.floor(after), math.floor(before)
    if isinstance(kind, T.TimestampNTZType):  # as numbers they would depend on the time zone
        earliest, latest = (datetime.timedelta(microseconds=span) for span in (-before, after))
        return (right - left).between(F.lit(earliest), F.lit(latest))
    if isinstance(kind, T.TimestampType):
        apart = F.unix_micros(right) - F.unix_micros(left)
    elif isinstance(kind, T.DateType):
        apart = F.datediff(right, left).cast("long") * DAY
    else:
        apart = F.try_subtract(right.try_cast("long"), left.try_cast("long"))
    return apart.between(-before, after)


def _comparable(frame: DataFrame, fields: list[T.StructField]) -> DataFrame:
    """Return the columns of the join in a form that Spark can compare."""
    return frame.select(
        *[_without_maps(F.col(f"out{i}"), field.dataType).alias(f"out{i}") for i, field in enumerate(fields)]
    )


def _without_maps(value: Column, kind: T.DataType) -> Column:
    """Replace maps by arrays of entries, and collated strings by plain ones, at any depth.

    Under a collation, a row could be subtracted in place of another one.
    """
    if isinstance(kind, T.MapType):
        return _inside(F.map_entries(value), _entries(kind), _without_maps)
    if isinstance(kind, T.StringType) and is_collated(kind):
        return value.cast(T.StringType())
    return _inside(value, kind, _without_maps)


def _with_maps(value: Column, kind: T.DataType) -> Column:
    """The inverse of `_without_maps`; `kind` is the type with the maps."""
    if isinstance(kind, T.MapType):
        return F.map_from_entries(_inside(value, _entries(kind), _with_maps))
    if isinstance(kind, T.StringType) and is_collated(kind):
        return value.cast(kind)
    return _inside(value, kind, _with_maps)


def _inside(value: Column, kind: T.DataType, change: Callable[[Column, T.DataType], Column]) -> Column:
    """Apply a change to everything inside a value."""
    if "map<" not in kind.simpleString() and " collate " not in kind.simpleString():
        return value
    if isinstance(kind, T.ArrayType):
        return F.transform(value, lambda each: change(each, kind.elementType))
    assert isinstance(kind, T.StructType)
    parts = [change(value[field.name], field.dataType).alias(field.name) for field in kind.fields]
    return F.when(value.isNotNull(), F.struct(*parts))


def _entries(kind: T.MapType) -> T.ArrayType:
    """Return the type of the entries of a map."""
    entry = [T.StructField("key", kind.keyType), T.StructField("value", kind.valueType)]
    return T.ArrayType(T.StructType(entry))
