"""`bounded_join`: join two DataFrames, streaming or batch, in a fixed amount of memory."""

from __future__ import annotations

import math
from typing import Any

from pyspark.sql import Column, DataFrame, Observation
from pyspark.sql import functions as F
from pyspark.sql import types as T

from penstock.arguments import one_of
from penstock.budget import Bytes, Fraction, Tuples, budget_of
from penstock.compiler.tiers import ahead
from penstock.errors import ColumnError, PenstockError
from penstock.joins.budgets import in_tuples
from penstock.joins.kinds import kind_of
from penstock.joins.sample_bias import unequal_shares, warn_biased
from penstock.joins.window import WindowJoin
from penstock.policies import get
from penstock.spark.runtime import session
from penstock.spark.runtime.bucket_labels import bucket_count, share
from penstock.spark.runtime.join_batch import in_one
from penstock.spark.runtime.join_bucket import AT, EVENT, LEFT, SAMPLED, SMALLEST, STREAM, WEIGHT
from penstock.spark.runtime.join_schema import (
    ARCHIVED,
    EVENT_TIME,
    LEFT_ONLY,
    JoinKeys,
    check_key_times,
    event_time_field,
    family_of,
    key_types_of,
    keys_of,
    output_fields,
    quoted,
    refuse_unpackable,
    row_bytes_of,
    sides_of,
    suffixes_for,
    times_of,
    types_of,
)
from penstock.spark.runtime.join_spec import JoinSpec
from penstock.spark.runtime.keys import names_of
from penstock.spark.runtime.packer import BUCKET, CHECK, KEY
from penstock.spark.runtime.run import run
from penstock.spark.runtime.where_column import condition_types
from penstock.window import Within, warn_unit, window_of

EMITS = ("results", "all")
SKETCH_SHARE = 0.05
SKETCH_LEAST = 64 * 1024
TUPLE_BYTES = 350  # approximate bytes of a tuple besides its row


def bounded_join(
    left: DataFrame,
    right: DataFrame,
    *,
    on: Any,
    time: Any,
    within: Any,
    budget: Any,
    policy: Any = "auto",
    allocation: str | None = None,
    lateness: Any = "0 seconds",
    buckets: int | None = None,
    emit: str = "results",
    suffixes: tuple[str, str] = ("_left", "_right"),
    how: str = "inner",
    matches: str = "all",
    unit: str = "ms",
    drop_rate: float = 0.0,
    drop_at: str = "admission",
    rates: tuple[float, float] | None = None,
    seed: int = 0,
    row_bytes: float | None = None,
    where: str | None = None,
    name: str | Observation = "penstock",
) -> DataFrame:
    """Join two DataFrames on equal keys within a window of time, in a fixed amount of memory.

    Parameters
    ----------
    left, right
        Two streaming or two batch DataFrames. Watermarks on their times are respected.
    on
        The key: a column name, a list of names, or of pairs `(left name, right name)`. `on=()`: no key; all
        rows are in one bucket, and every row looks at all that is buffered of the other stream.
    time
        The event-time column, or a pair of names: timestamps, dates or numbers.
    within
        How far apart two times may be: a duration or a number, or a pair `(before, after)`: a right row may
        be at most `after` later or `before` earlier than the left one.
    budget
        The memory of all buckets together: `"256 MiB"`, `Bytes(...)`, `Tuples(...)` or, for batch
        DataFrames, `Fraction(...)`.
    policy, allocation, drop_rate, drop_at, seed
        As for `penstock.WindowJoin`.
    lateness
        Without a watermark, how far a stream's progress stays behind its largest time. Default: 0.
    buckets
        The number of buckets that keys are hashed into; default: the number of shuffle partitions.
    emit
        `"results"`, or `"all"`: also the rows that were evicted, dropped, late or undecided (see
        `write_split`).
    suffixes
        Suffixes for columns that both sides have.
    how, matches
        As for `penstock.WindowJoin`. A row without a partner comes out when the progress of the other stream
        has passed it, or at the end of batch DataFrames; without a key or a usable time, at once. The key
        column is the left one's; with `how="right"` the right one's, with `"full"` whichever is there. Semi
        and anti joins have the left columns alone. Rows behind the progress of their own stream are late:
        with any `how` but `"inner"` they take no part.
    unit
        Unit of numeric times. Default: milliseconds.
    rates
        Arrivals of each stream per unit of time, if allocation, drop rate or policy need them: per
        microsecond if times are timestamps, else per unit of the column. Give the rates of the whole stream;
        each bucket gets its share, as of the budget.
    row_bytes
        Approximate bytes of a row, by which a byte budget sizes its tables; default: guessed from the types.
    where
        A condition beyond the keys, such as `"left.price < right.price"`, as for `penstock.WindowJoin`.
    name
        Name of the observed metrics (see `PipelineMonitor`); for batch DataFrames also an `Observation`.

    Returns
    -------
    The key columns once, then the left and then the right columns. If the inputs have watermarks, also
    `event_time`, the later of the two times, with a watermark, so that a windowed aggregation can follow.
    With `policy="sample"` also `_weight`, the number of exact results that a result stands for, `_t`, of
    which it is the inverse, and `_sampled`, the id of the row that was kept (see `estimate`).

    Examples
    --------
    >>> from penstock.spark import bounded_join
    >>> shown = spark.createDataFrame([("a", 0), ("b", 5)], "ad string, ts long")
    >>> clicked = spark.createDataFrame([("a", 3), ("b", 90)], "ad string, ts long")
    >>> bounded_join(shown, clicked, on="ad", time="ts", within=10, budget="1 MiB").show()
    +---+-------+--------+
    | ad|ts_left|ts_right|
    +---+-------+--------+
    |  a|      0|       3|
    +---+-------+--------+
    <BLANKLINE>
    """
    kind = kind_of(how, matches)
    one_of("emit", emit, EMITS)
    check_frames(left, right, "bounded_join", "penstock.WindowJoin")
    window = window_of(within)
    if not isinstance(window, Within):
        raise PenstockError(
            f"within={within!r} is not a window of time; on Spark, give a span or a pair (before, after)."
        )
    keys = keys_of(left, right, on)
    asked = condition_types(where, left, right)
    times, unit, dtype = times_of(left, right, time, unit)
    warn_unit(window, unit, None, stamped=family_of(left.schema[times[0]].dataType) != "number")
    sides = sides_of(left, right, keys, times, suffixes_for(kind.how, suffixes))
    streaming = left.isStreaming
    budget = _in_tuples(budget_of(budget), left, right, keys, times, window, unit, streaming)
    spark = left.sparkSession
    count = bucket_count(buckets, budget, session.partitions(spark))
    if not keys.types:
        count = _one_bucket(buckets)
    marked = any(side.watermark for side in sides)
    fields = output_fields(left, right, sides, keys, kind.how)
    check_key_times(keys, times, kind.how)
    if kind.how in LEFT_ONLY and emit == "results":
        fields = [field for field in fields if ARCHIVED not in (field.metadata or {})]
    refuse_unpackable([*left.schema.fields, *right.schema.fields])
    if marked:
        fields.append(event_time_field(left.schema[times[0]].dataType))
    if get(policy).weighs_results:
        fields += _weight_fields(fields)
    row_bytes = row_bytes_of(fields) / 2 if row_bytes is None else float(row_bytes)
    memory = budget.n if isinstance(budget, Bytes) else budget.n * (row_bytes + TUPLE_BYTES)
    sketch = max(int(SKETCH_SHARE * memory), SKETCH_LEAST)
    spec = JoinSpec(
        join=WindowJoin(
            within=window,
            budget=share(budget, count),
            policy=policy,
            allocation=allocation,
            drop_rate=drop_rate,
            drop_at=drop_at,
            seed=seed,
            how=kind.how,
            matches=kind.matches,
            where=where,
        ),
        left=sides[0],
        right=sides[1],
        buckets=count,
        unit=unit,
        dtype=dtype,
        hashed=keys.hashed,
        lateness=tuple(math.inf if side.watermark else lateness for side in sides),
        row_bytes=row_bytes,
        sketch_bytes=sketch // count,
        rates=rates,
        emit=emit,
        event_time=EVENT_TIME if marked else None,
        key_types=names_of((keys.left_types, keys.right_types), keys.types, spark),
        key_words=keys.words,
        column_types=tuple(types_of(frame) for frame in (left, right)),
        where_types=asked,
    )
    if count > 1 and spec.join.policy.needs_whole_stream:
        raise PenstockError(
            f"{spec.join.policy.name} with these models depends on time or the last value of a stream, but "
            f"each of {count} buckets sees only some of the keys; give buckets=1."
        )
    # Rejects what cannot work, and puts the kernels on disk before workers need them.
    with ahead():
        state = spec.start().warm()
    warn_biased(unequal_shares(state.config), stacklevel=2)
    if spec.weighs and drop_rate != 0:
        warn_biased("Rows that drop_rate= drops have results that no weight makes up for.", stacklevel=2)
    if emit == "all":
        fields += [
            T.StructField(EVENT, T.StringType()),
            T.StructField(STREAM, T.StringType()),
            T.StructField(AT, event_time_type(left.schema[times[0]].dataType)),
        ]
    sent = [prepared(frame, keys, side, spec, kind.how) for side, frame in enumerate((left, right))]
    return run(sent, spec, T.StructType(fields), name, lambda: in_one(sent, spec))


def _weight_fields(fields: list[T.StructField]) -> list[T.StructField]:
    """Return the columns that say how many exact results a result stands for."""
    taken = {field.name.lower() for field in fields} & {WEIGHT, SMALLEST, SAMPLED}
    if taken:
        raise ColumnError(f"Results get a column {min(taken)!r} with this policy; rename yours.")
    return [
        T.StructField(WEIGHT, T.DoubleType()),
        T.StructField(SMALLEST, T.DoubleType()),
        T.StructField(SAMPLED, T.LongType()),
    ]


def prepared(
    frame: DataFrame,
    keys: JoinKeys,
    side: int,
    spec: Any,
    how: str = "inner",
) -> DataFrame:
    """Select the columns to carry, the bucket, and the number that identifies the key."""
    compared, identities = keys.compared(side), keys.identities(side)
    missing = F.lit(False)
    for column in compared:
        missing = missing | column.isNull()
    if not compared:
        code = F.lit(0).cast("long")
    elif spec.hashed:
        code = F.xxhash64(*identities)
    elif isinstance(keys.types[0], T.DateType):
        code = F.datediff(compared[0], F.lit("1970-01-01").cast("date")).cast("long")
    else:
        code = compared[0].cast("long")
    mine, shown, shows_right = spec.sides[side], key_types_of(keys, how), how in ("right", "full")
    kept = [
        F.col(quoted(source)).alias(name) for source, name in zip(mine.sources, mine.columns, strict=True)
    ]
    own = (keys.left_types, keys.right_types)[side]
    for source, name, kind, mine_kind in zip(mine.key_sources, mine.keys, shown, own, strict=True):
        column = F.col(quoted(source))
        if kind == mine_kind or source == mine.time_source:
            column = column.alias(name)
        else:  # a key outside the type matches nothing
            column = column.try_cast(kind).alias(name)
        if side == LEFT or source == mine.time_source or spec.emit == "all" or shows_right:
            kept.append(column)
    for name, carried in spec.asked(side).items():
        if name not in mine.sources:  # a key, as the condition sees it
            kept.append(F.col(quoted(name)).alias(carried))
    number = F.pmod(F.hash(*identities), F.lit(spec.buckets)).cast("int") if compared else F.lit(0)
    hidden = [
        number.alias(BUCKET),
        F.when(~missing, code).alias(KEY),
    ]
    if spec.hashed:
        hidden.append(F.xxhash64(F.lit("penstock"), *identities).alias(CHECK))
    return frame.select(*hidden, *kept)


def _one_bucket(given: int | None) -> int:
    """Return the number of buckets of a join without keys."""
    if given not in (None, 1):
        raise PenstockError(
            f"on=() compares no keys, so that all rows are in one bucket; buckets={given!r} was given."
        )
    return 1


def _in_tuples(
    budget: Any,
    left: DataFrame,
    right: DataFrame,
    keys: JoinKeys,
    times: tuple[str, str],
    window: Within,
    unit: str,
    streaming: bool,
) -> Tuples | Bytes:
    """Return a budget that does not depend on the input; for a fraction, count the batch DataFrames."""
    if not isinstance(budget, Fraction):
        return budget
    if streaming:
        share(budget, 1)
    both = None
    for side, (frame, name) in enumerate(zip((left, right), times, strict=True)):
        arrives = F.lit(True)
        for key in keys.compared(side):
            arrives = arrives & key.isNotNull()
        mine = frame.filter(arrives).select(time_number(frame, name).alias("time")).filter(~F.isnan("time"))
        mine = mine.agg(F.count("time").alias("n"), F.min("time").alias("first"), F.max("time").alias("last"))
        both = mine if both is None else both.union(mine)
    assert both is not None
    found = both.collect()
    ends = [[row[end] for row in found if row[end] is not None] for end in ("first", "last")]
    span = max(ends[1]) - min(ends[0]) if ends[0] else 0
    return Tuples(in_tuples(budget, [row["n"] for row in found], window.resolve(unit), span))


def time_number(frame: DataFrame, name: str) -> Column:
    """Return a time as a number: microseconds for timestamps and dates."""
    kind, time = frame.schema[name].dataType, F.col(quoted(name))
    if isinstance(kind, T.TimestampType):
        return F.unix_micros(time)
    if isinstance(kind, T.TimestampNTZType | T.DateType):
        return F.unix_micros(time.cast("timestamp"))
    return time


def check_frames(left: Any, right: Any, what: str, in_process: str) -> None:
    """Reject anything but two DataFrames of one kind."""
    for side, frame in (("left", left), ("right", right)):
        if not hasattr(frame, "isStreaming") or not hasattr(frame, "mapInArrow"):
            raise PenstockError(
                f"{what} takes Spark DataFrames; {side} is a {type(frame).__name__}. In process, "
                f"use {in_process}."
            )
    if left.isStreaming != right.isStreaming:
        raise PenstockError(
            f"{what} takes two streaming or two batch DataFrames, not one of each. Spark joins a stream "
            "with a table without state."
        )


def event_time_type(kind: T.DataType) -> T.DataType:
    """Return the type of the time column of evictions."""
    if isinstance(kind, T.DateType):
        return T.TimestampNTZType()
    return kind if isinstance(kind, T.TimestampType | T.TimestampNTZType) else T.DoubleType()
