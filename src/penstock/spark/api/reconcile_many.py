"""`reconcile_many`: a batch job that computes the results that a bounded join of many streams missed."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from functools import reduce
from typing import Any

import numpy as np
from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from penstock.errors import ColumnError, PenstockError
from penstock.joins.many import joined_streams
from penstock.joins.many_arrivals import Chain, Joins
from penstock.joins.many_options import check_how
from penstock.joins.many_window import bounds_of_horizons, many_window_of
from penstock.spark.api.reconcile import (
    DAY,
    Frame,
    _check_columns,
    _comparable,
    _excludes,
    _opened,
    _with_maps,
    _without_late,
)
from penstock.spark.runtime.join_bucket import EVENT, RESULT
from penstock.spark.runtime.join_schema import EVENT_TIME, quoted
from penstock.spark.runtime.join_spec import JoinSide
from penstock.spark.runtime.many_schema import (
    check_streams,
    key_types,
    many_fields,
    many_times_of,
    members_of,
    ordered_for,
    parts_of,
)


def reconcile_many(
    archive: Frame,
    streams: Mapping[str, DataFrame],
    *,
    on: Any,
    time: Any,
    within: Any,
    results: Frame,
    how: str = "inner",
    late: str | None = None,
    unit: str = "ms",
) -> DataFrame:
    """Compute the results that `bounded_join_many` missed; together with its own they are the exact join.

    Spark joins the complete inputs, and subtracts the known results, each as often as it occurs. Of a join on
    one key it looks only at keys in the archive.

    Parameters
    ----------
    archive
        The rows that were evicted, dropped, late or undecided: a DataFrame, or the archive path of
        `write_split`.
    streams
        The complete input of all streams, as batch DataFrames, in the same order.
    on, time, within, how, unit
        The same values as for `bounded_join_many`. One join, or a `Chain`.
    results
        The results of the query: a DataFrame, or the results path of `write_split`.
    late
        As for `reconcile`: `"include"` for inner joins by default; left joins exclude late rows.

    Returns
    -------
    Rows with the columns of the join.

    Examples
    --------
    >>> from penstock.spark import bounded_join_many, reconcile_many
    >>> seen = spark.createDataFrame([("a", 0), ("b", 1), ("c", 2)], "ad string, ts long")
    >>> clicked = spark.createDataFrame([("a", 3), ("b", 4)], "ad string, ts long")
    >>> bought = spark.createDataFrame([("a", 5)], "ad string, ts long")
    >>> streams = {"seen": seen, "clicked": clicked, "bought": bought}
    >>> join = {"on": "ad", "time": "ts", "within": 10, "how": "left"}
    >>> rows = bounded_join_many(streams, **join, budget="4 tuples", policy="fifo", emit="all", buckets=1)
    >>> hits, lost = rows.filter("_event = 'result'"), rows.filter("_event != 'result'")
    >>> hits.count()
    1
    >>> reconcile_many(lost, streams, **join, results=hits).orderBy("ad").show()
    +---+-------+----------+---------+
    | ad|ts_seen|ts_clicked|ts_bought|
    +---+-------+----------+---------+
    |  a|      0|         3|        5|
    |  b|      1|      NULL|     NULL|
    +---+-------+----------+---------+
    <BLANKLINE>
    """
    check_streams(streams)
    if any(frame.isStreaming for frame in streams.values()):
        raise PenstockError("reconcile_many is a batch job, but it was given streams; read with spark.read.")
    chain = isinstance(on, Chain)
    joins = members_of(streams, on)
    if len(joins) > 1 and not chain:
        raise PenstockError(
            f"reconcile_many takes one join or a Chain, but on= has {len(joins)} joins; their results are "
            "archived in one place, and each is a join of its own."
        )
    how = check_how(how, len(joins), chain)
    joins = ordered_for(how, joins, streams, chain)
    excludes = _excludes(late, how)
    times, unit, dtype = many_times_of(streams, time, unit)
    parts = parts_of(streams, joins, times, chain)
    fields = [field for field in many_fields(streams, joins, parts, chain) if field.name != EVENT_TIME]
    beside = next(iter(streams.values()))
    lost, found = _opened(archive, "archive", beside), _opened(results, "results", beside)
    once = () if chain else joins[0][0][1]
    _check_columns(lost, [field for field in fields if field.name in once], "archive", typed=False)
    _check_columns(found, fields, "results", typed=True)
    if EVENT in lost.columns:
        lost = lost.filter(F.col(EVENT) != RESULT)
    inputs = dict(streams)
    if excludes:
        inputs = {
            name: _without_late(frame, lost, name, part, once)
            for (name, frame), part in zip(streams.items(), parts, strict=True)
        }
    types = [key_types(streams, join) for join in joins]
    sides = {
        name: _numbered(
            frame,
            name,
            s,
            joins,
            types,
            _number(frame, times[name], dtype),
            [field.name for field in fields],
            parts[s],
            once,
        )
        for s, (name, frame) in enumerate(inputs.items())
    }
    names = list(streams)
    window = many_window_of(within, names, joined_streams(joins, names, chain))
    exact = _exact(
        sides, joins, _bounds(window.resolve(unit, np.dtype(dtype)), joins, names, chain), len(fields), how
    )
    known = found.select(*[F.col(quoted(field.name)).alias(f"out{i}") for i, field in enumerate(fields)])
    if once:
        gone = lost.select(
            *[
                F.col(quoted(key)).try_cast(kind).alias(f"gone{i}")
                for i, (key, kind) in enumerate(zip(once, types[0], strict=True))
            ]
        ).distinct()
        exact, known = (
            frame.join(
                gone,
                [F.col(f"out{i}").try_cast(kind) == F.col(f"gone{i}") for i, kind in enumerate(types[0])],
                "left_semi",
            )
            for frame in (exact, known)
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


def _numbered(
    frame: DataFrame,
    name: str,
    s: int,
    joins: Joins,
    types: list[list[T.DataType]],
    time: Column,
    places: list[str],
    part: JoinSide,
    once: tuple[str, ...],
) -> DataFrame:
    """Return a stream with its time, the keys of its joins as they are compared, and numbered columns."""
    columns = [time.alias(f"time{s}")]
    for j, join in enumerate(joins):
        for member, keys in join:
            if member == name:
                columns += [
                    F.col(quoted(key)).cast(kind).alias(f"key{s}_{j}_{i}")
                    for i, (key, kind) in enumerate(zip(keys, types[j], strict=True))
                ]
    if once and joins[0][0][0] == name:
        columns += [F.col(quoted(key)).alias(f"out{i}") for i, key in enumerate(part.key_sources)]
    columns += [
        F.col(quoted(source)).alias(f"out{places.index(out)}")
        for source, out in zip(part.sources, part.names, strict=True)
    ]
    return frame.select(*columns)


def _exact(sides: dict[str, DataFrame], joins: Joins, bounds: Any, width: int, how: str) -> DataFrame:
    """Return the exact join of numbered streams."""
    number = {name: s for s, name in enumerate(sides)}
    equal = [
        (
            {number[one], number[other]},
            F.col(f"key{number[one]}_{j}_{i}") == F.col(f"key{number[other]}_{j}_{i}"),
        )
        for j, join in enumerate(joins)
        for (one, keys), (other, _) in itertools.pairwise(join)
        for i in range(len(keys))
    ]
    frames, joined = list(sides.values()), {0}
    whole, waiting = frames[0], list(range(1, len(frames)))
    while waiting:
        # A stream with a key in common with those that are there, so that nothing is a product.
        s = next(
            each for each in waiting if any(pair <= joined | {each} and each in pair for pair, _ in equal)
        )
        waiting.remove(s)
        on = [same for pair, same in equal if pair <= joined | {s} and s in pair]
        on += [
            F.col(f"time{late}") - F.col(f"time{early}") <= bounds[early][late]
            for other in joined
            for early, late in ((s, other), (other, s))
            if bounds[early][late] != math.inf
        ]
        joined.add(s)
        whole = whole.join(frames[s], reduce(lambda some, more: some & more, on))
    outs = [f"out{i}" for i in range(width)]
    if how == "inner":
        return whole.select(*outs)
    # Whether a row is in a result depends on its keys and its time alone.
    first = frames[0]
    telling = [name for name in first.columns if not name.startswith("out")]
    there = whole.select(*[F.col(name).alias(f"there_{name}") for name in telling]).distinct()
    same = [F.col(name).eqNullSafe(F.col(f"there_{name}")) for name in telling]
    alone = first.join(there, reduce(lambda some, more: some & more, same), "left_anti")
    kinds = {field.name: field.dataType for field in whole.schema.fields}
    return whole.select(*outs).unionAll(
        alone.select(
            *[
                F.col(name) if name in first.columns else F.lit(None).cast(kinds[name]).alias(name)
                for name in outs
            ]
        )
    )


def _bounds(window: Any, joins: Joins, names: list[str], chain: bool) -> list[list[float]]:
    """How much later each stream may be than each other, by their numbers."""
    (join,) = joined_streams(joins, names, chain)
    found = bounds_of_horizons(window, join) if window.bounds is None else window.bounds[0]
    bounds = [[math.inf] * len(names) for _ in names]
    for a, one in enumerate(join):
        for b, other in enumerate(join):
            bounds[one][other] = found[a][b]
    return bounds


def _number(frame: DataFrame, name: str, dtype: str) -> Column:
    """Return a time as a number, null if it has none."""
    kind, time = frame.schema[name].dataType, F.col(quoted(name))
    if isinstance(kind, T.TimestampType):
        return F.unix_micros(time)
    if isinstance(kind, T.TimestampNTZType):  # as text it depends on no time zone
        return F.expr(f"timestampdiff(MICROSECOND, TIMESTAMP_NTZ'1970-01-01', {quoted(name)})")
    if isinstance(kind, T.DateType):
        return F.unix_date(time).cast("long") * DAY
    if dtype == "float64":
        number = time.try_cast("double")
        return F.when(~F.isnan(number), number)
    return time.try_cast("long")
