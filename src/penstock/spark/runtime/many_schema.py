"""Derive the schema of a join of many streams from DataFrames: keys, times, payload and output columns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from itertools import combinations
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import types as T

from penstock.errors import ColumnError, PenstockError
from penstock.joins.many_arrivals import Joins, joins_of, time_column
from penstock.spark.runtime.join_schema import (
    EVENT_TIME,
    event_time_field,
    family_of,
    field_of,
    has_watermark,
    scale_of,
)
from penstock.spark.runtime.join_spec import JoinSide
from penstock.spark.runtime.keys import common_type, keeps_apart
from penstock.spark.runtime.many_join import JOIN

Streams = Mapping[str, DataFrame]


def check_streams(streams: Any) -> None:
    """Reject anything but two or more DataFrames, all streaming or all batch."""
    if not isinstance(streams, Mapping) or len(streams) < 2:
        given = f"a dict of {len(streams)}" if isinstance(streams, Mapping) else type(streams).__name__
        raise PenstockError(
            "bounded_join_many takes a dict of name to DataFrame with at least two streams; "
            f"{given} was given."
        )
    for name, frame in streams.items():
        if not isinstance(name, str) or not name:
            raise PenstockError(f"The name of a stream is a text; {name!r} was given.")
        if not hasattr(frame, "isStreaming") or not hasattr(frame, "mapInArrow"):
            raise PenstockError(
                f"bounded_join_many takes Spark DataFrames; {name!r} is a {type(frame).__name__}. In process "
                "use penstock.join_many."
            )
    kinds = {name: "streaming" if frame.isStreaming else "batch" for name, frame in streams.items()}
    if len(set(kinds.values())) > 1:
        told = ", ".join(f"{name!r} is {kind}" for name, kind in kinds.items())
        raise PenstockError(
            f"bounded_join_many takes streaming or batch DataFrames, not some of each: {told}. Spark joins "
            "a stream with a table without state."
        )


def members_of(streams: Streams, on: Any) -> Joins:
    """The joins that `on` means, with columns that are there."""
    joins = joins_of({name: {} for name in streams}, on)
    for join in joins:
        for name, columns in join:
            for column in columns:
                field_of(streams[name], column, repr(name))
    return joins


def ordered_for(how: str, joins: Joins, streams: Streams, chain: bool) -> Joins:
    """The joins; of a left join with the first stream in front, because keys go out as it has them."""
    if how == "inner" or chain:
        return joins
    first = next(iter(streams))
    return (tuple(sorted(joins[0], key=lambda member: member[0] != first)),)


def key_types(streams: Streams, join: Any) -> list[T.DataType]:
    """The types in which the keys of a join are compared, one per key column.

    Every two streams must be compared as Spark's `=` would compare these two alone.
    """
    types = []
    for position in range(len(join[0][1])):
        members = [
            (columns[position], streams[name].schema[columns[position]].dataType) for name, columns in join
        ]
        session = streams[join[0][0]].sparkSession
        name, kind = members[0]
        for other, theirs in members[1:]:
            kind = common_type((name, other), [kind, theirs], session)
        for (one, mine), (other, theirs) in combinations(members, 2):
            pair = common_type((one, other), [mine, theirs], session)
            if not keeps_apart(pair, kind):
                raise ColumnError(
                    f"The keys {one!r} ({mine.simpleString()}) and {other!r} ({theirs.simpleString()}) would "
                    f"be compared as {kind.simpleString()} because of another stream, and different keys "
                    "would become equal. Cast the keys of all streams to one type."
                )
        types.append(kind)
    return types


def own_types(streams: Streams, join: Any) -> list[list[T.DataType]]:
    """The types that the keys of a join have, stream by stream."""
    return [[streams[name].schema[each].dataType for each in columns] for name, columns in join]


def many_times_of(streams: Streams, time: Any, unit: str) -> tuple[dict[str, str], str, str]:
    """The time column of each stream, the unit they are counted in, and the dtype of the numbers."""
    columns = {name: time_column(time, name) for name in streams}
    kinds = {name: field_of(streams[name], column, repr(name)).dataType for name, column in columns.items()}
    families = {family_of(kind) for kind in kinds.values()}
    if None in families or len(families) > 1:
        told = ", ".join(
            f"{columns[name]!r} of {name!r} is {kind.simpleString()}" for name, kind in kinds.items()
        )
        raise ColumnError(
            "time takes columns that are all timestamps, all dates or all numbers; "
            f"{told}. Cast {'all' if families == {None} else 'some'} of them."
        )
    return columns, *scale_of(list(kinds.values()), unit)


def parts_of(
    streams: Streams, joins: Joins, times: Mapping[str, str], chain: bool = False
) -> tuple[JoinSide, ...]:
    """The columns that go out, with the stream's name after those that several streams have."""
    single = len(joins) == 1 and not chain
    keys = dict(joins[0]) if single else {}
    once = joins[0][0][1] if single else ()
    rest = {
        name: [column for column in frame.columns if column not in keys.get(name, ())]
        for name, frame in streams.items()
    }
    counts = Counter(column for columns in rest.values() for column in columns)
    counts.update(once)
    parts = tuple(
        JoinSide(
            sources=tuple(columns),
            names=tuple(f"{each}_{name}" if counts[each] > 1 else each for each in columns),
            key_sources=tuple(keys.get(name, ())),
            time_source=times[name],
            watermark=has_watermark(streams[name], times[name], repr(name)),
        )
        for name, columns in rest.items()
    )
    everything = [*once, *(each for part in parts for each in part.names)]
    everything += [] if single or chain else [JOIN]
    everything += [EVENT_TIME] if any(part.watermark for part in parts) else []
    doubled = sorted(name for name, count in Counter(everything).items() if count > 1)
    if doubled:
        raise ColumnError(
            f"The output would have {doubled} more than once; rename columns or streams (names of streams "
            "are appended to columns that several streams have)."
        )
    return parts


def many_fields(
    streams: Streams, joins: Joins, parts: tuple[JoinSide, ...], chain: bool = False
) -> list[T.StructField]:
    """The columns of the results: which join, if there are several; keys once; then those of each stream."""
    fields = []
    if chain:
        pass  # keys differ from link to link, and are columns of their streams
    elif len(joins) > 1:
        fields.append(T.StructField(JOIN, T.IntegerType()))
    else:
        name, columns = joins[0][0]
        fields += [T.StructField(column, streams[name].schema[column].dataType) for column in columns]
    for frame, part in zip(streams.values(), parts, strict=True):
        for source, out in zip(part.sources, part.names, strict=True):
            fields.append(T.StructField(out, frame.schema[source].dataType))
    if any(part.watermark for part in parts):
        first = next(iter(streams.values()))
        fields.append(event_time_field(first.schema[parts[0].time_source].dataType))
    return fields
