"""`bounded_join_many`: join many DataFrames, streaming or batch, in a fixed amount of memory."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from pyspark.sql import Column, DataFrame, Observation
from pyspark.sql import functions as F
from pyspark.sql import types as T

from penstock.budget import Budget, Bytes, Tuples, budget_of
from penstock.compiler.tiers import ahead
from penstock.errors import PenstockError, hint
from penstock.joins.many import joined_streams
from penstock.joins.many_arrivals import Chain, Joins
from penstock.joins.many_options import check_how, check_sampling
from penstock.joins.many_stream import SAMPLE_LEAST, SAMPLE_PER_TUPLE
from penstock.joins.many_window import many_window_of
from penstock.policies import get
from penstock.spark.api.join import EMITS, event_time_type
from penstock.spark.runtime import session
from penstock.spark.runtime.bucket_labels import bucket_count, share
from penstock.spark.runtime.join_batch import in_one
from penstock.spark.runtime.join_bucket import AT, EVENT, STREAM
from penstock.spark.runtime.join_schema import EVENT_TIME, quoted, refuse_unpackable, types_of
from penstock.spark.runtime.keys import identity, names_of, words_of
from penstock.spark.runtime.many_join import ManySpec
from penstock.spark.runtime.many_schema import (
    check_streams,
    key_types,
    many_fields,
    many_times_of,
    members_of,
    ordered_for,
    own_types,
    parts_of,
)
from penstock.spark.runtime.packer import BUCKET
from penstock.spark.runtime.run import run


def bounded_join_many(
    streams: Mapping[str, DataFrame],
    *,
    on: Any,
    time: Any,
    within: Any,
    budget: Any,
    policy: Any = "gdj",
    how: str = "inner",
    emit: str = "results",
    allocation: str | None = None,
    drop_rate: float = 0.0,
    lateness: Any = "0 seconds",
    buckets: int | None = None,
    seed: int = 0,
    unit: str = "ms",
    name: str | Observation = "penstock",
) -> DataFrame:
    """Join many DataFrames within a window of time in a fixed amount of memory; `join_many` on Spark.

    A result has one row of each stream of the join, all with the same key; the latest is within the window of
    the earliest, whichever arrived first.

    Parameters
    ----------
    streams
        A dict of name to DataFrame, all streaming or all batch. Its order breaks ties of time. Watermarks on
        their times are respected.
    on
        A column, or several (a composite key), that all streams share: one join over all of them. Or a list
        of joins, each a tuple of `(stream, column)` members: several joins in one memory. Or a
        `penstock.Chain`: one join over different columns. Several joins, and the links of a chain, have no
        common key by which rows could be divided into buckets, so they run in one bucket.
    time
        The event-time column of all streams, or a dict of stream to column.
    within
        How far apart the earliest and the latest time of a result may be: a duration or a number. Or a dict
        with a window per stream or per pair of streams, as for `penstock.join_many`, without `Rows(n)`.
    budget
        The memory of all buckets together: `"256 MiB"` or `"100000 tuples"`.
    policy, how, allocation, drop_rate, seed
        As for `penstock.join_many`; `allocation="proportional"` needs the whole input and is not supported.
    emit
        `"results"`, or `"all"`: also the rows that were evicted, dropped, late or, in a left join, undecided
        (see `write_split` and `reconcile_many`).
    lateness
        Without a watermark, how far a stream's progress stays behind its largest time. Default: 0.
    buckets
        The number of buckets that the keys of one join are hashed into; default: the shuffle partitions.
    unit
        Unit of numeric times. Default: milliseconds.
    name
        Name of the observed metrics (see `PipelineMonitor`); for batch DataFrames also an `Observation`.

    Returns
    -------
    For one join: the key columns once, then other columns of each stream. For a chain: the columns of each
    stream. For several: `_join` (the number
    of the join in the list) and the columns of each stream, null for streams that are not part of it. Columns
    that several streams have get a suffix, `_` and the stream's name. If the inputs have watermarks, also
    `event_time`, the latest time of the result, with a watermark.

    Examples
    --------
    >>> from penstock.spark import bounded_join_many
    >>> seen = spark.createDataFrame([("a", 0), ("b", 5)], "ad string, ts long")
    >>> clicked = spark.createDataFrame([("a", 3), ("b", 9)], "ad string, ts long")
    >>> bought = spark.createDataFrame([("a", 4, 20)], "ad string, ts long, price int")
    >>> streams = {"seen": seen, "clicked": clicked, "bought": bought}
    >>> bounded_join_many(streams, on="ad", time="ts", within=10, budget="1000 tuples").show()
    +---+-------+----------+---------+-----+
    | ad|ts_seen|ts_clicked|ts_bought|price|
    +---+-------+----------+---------+-----+
    |  a|      0|         3|        4|   20|
    +---+-------+----------+---------+-----+
    <BLANKLINE>
    """
    check_streams(streams)
    joins, chain = members_of(streams, on), isinstance(on, Chain)
    how = check_how(how, len(joins), chain)
    joins = ordered_for(how, joins, streams, chain)
    types = [key_types(streams, join) for join in joins]
    times, unit, dtype = many_times_of(streams, time, unit)
    parts = parts_of(streams, joins, times, chain)
    fields = many_fields(streams, joins, parts, chain)
    refuse_unpackable([field for frame in streams.values() for field in frame.schema.fields])
    if emit not in EMITS:
        raise PenstockError(f"emit={emit!r} is not known{hint(emit, EMITS)}")
    given = budget_of(budget)
    check_sampling(drop_rate, 0)
    names, frames = tuple(streams), list(streams.values())
    spark = frames[0].sparkSession
    count = _bucket_count(buckets, given, len(joins) == 1 and not chain, session.partitions(spark))
    own = share(given, count)
    assert isinstance(own, Tuples | Bytes)
    marked = any(part.watermark for part in parts)
    keyed = [(own_types(streams, join), kinds) for join, kinds in zip(joins, types, strict=True)]
    number = {each: s for s, each in enumerate(names)}
    spec = ManySpec(
        names=names,
        parts=parts,
        joins=tuple(tuple(number[each] for each, _ in join) for join in joins),
        on=str(joins),
        within=many_window_of(within, list(names), joined_streams(joins, list(names), chain)),
        budget=own,
        policy=get(policy),
        allocation=allocation,
        lateness=tuple(math.inf if part.watermark else lateness for part in parts),
        seed=seed,
        buckets=count,
        unit=unit,
        dtype=dtype,
        event_time=EVENT_TIME if marked else None,
        key_types=tuple(name for mine, kinds in keyed for name in names_of(mine, kinds, spark)),
        key_words="".join(words_of(mine, kinds) for mine, kinds in keyed),
        column_types=tuple(types_of(frame) for frame in frames),
        sample_bytes=max(SAMPLE_LEAST, SAMPLE_PER_TUPLE * given.n) // count
        if isinstance(given, Tuples)
        else None,
        chain=chain,
        drop_rate=float(drop_rate),
        how=how,
        emit=emit,
    )
    with ahead():  # rejects what cannot work, and puts the kernels on disk before workers need them
        spec.start().warm()
    if emit == "all":
        fields += [
            T.StructField(EVENT, T.StringType()),
            T.StructField(STREAM, T.StringType()),
            T.StructField(AT, event_time_type(frames[0].schema[times[names[0]]].dataType)),
        ]
    prepared = [_prepared(frames, side, spec, joins, types) for side in range(len(frames))]
    return run(prepared, spec, T.StructType(fields), name, lambda: in_one(prepared, spec))


def _bucket_count(given: int | None, budget: Budget, one_key: bool, partitions: int) -> int:
    """Return the number of buckets: one, if no single key divides the rows."""
    if one_key:
        return bucket_count(given, budget, partitions)
    if given not in (None, 1):
        raise PenstockError(
            "Several joins on different keys, and the links of a chain, share one memory and need buckets=1; "
            f"buckets={given!r} was given. Leave it out, or run each join as a separate query."
        )
    return 1


def _prepared(
    frames: list[DataFrame], side: int, spec: ManySpec, joins: Joins, types: list[list[T.DataType]]
) -> DataFrame:
    """Select the columns to carry, the bucket, and the key numbers per join of the stream."""
    frame, leader = frames[side], frames[spec.joins[0][0]]
    mine, stream = spec.sides[side], spec.streams[side]
    bucket, hidden, absent = F.lit(0), [], F.lit(False)
    if spec.chain:  # a row needs all of its keys
        for join in spec.joins_of(side):
            for key, kind in zip(dict(joins[join])[stream], types[join], strict=True):
                absent = absent | F.col(quoted(key)).cast(kind).isNull()
    for join, code, check in zip(spec.joins_of(side), spec.codes(side), spec.checks(side), strict=True):
        compared = [
            F.col(quoted(column)).cast(kind)
            for column, kind in zip(dict(joins[join])[stream], types[join], strict=True)
        ]
        missing: Column = absent
        for column in compared:
            missing = missing | column.isNull()
        identities = [identity(each, kind) for each, kind in zip(compared, types[join], strict=True)]
        number = F.xxhash64(*identities).bitwiseAND(F.lit(spec.mask))
        hidden += [
            F.when(~missing, number).alias(code),
            F.xxhash64(F.lit("penstock"), *identities).alias(check),
        ]
        if len(spec.joins) == 1 and not spec.chain:
            bucket = F.pmod(F.hash(*identities), F.lit(spec.buckets))
    kept = [F.col(quoted(source)).alias(to) for source, to in zip(mine.sources, mine.columns, strict=True)]
    shown = [spec.parts[spec.joins[0][0]].key_sources, mine.key_sources, mine.keys]
    for leading, source, to in zip(*shown, strict=True) if mine.keys else ():
        own, column = side == spec.joins[0][0] or source == mine.time_source, F.col(quoted(source))
        if own:
            kept.append(column.alias(to))
        elif spec.emit == "all":  # the archive has keys as the results have them
            kept.append(column.try_cast(leader.schema[leading].dataType).alias(to))
    return frame.select(bucket.cast("int").alias(BUCKET), *hidden, *kept)
