"""`asof_join`: the nearest right row in time of every left row, in a fixed amount of memory."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F
from pyspark.sql import types as T

from penstock.arguments import one_of
from penstock.budget import Fraction, Tuples, budget_of
from penstock.compiler.tiers import ahead
from penstock.engine.asof_index import RIGHT_FIRST, tie_order
from penstock.errors import ColumnError
from penstock.joins.asof import AsofJoin
from penstock.joins.asof_config import DIRECTIONS, check_tuples, need_of, tolerance_of
from penstock.spark.api.join import EMITS, check_frames, event_time_type, prepared, time_number
from penstock.spark.runtime import session
from penstock.spark.runtime.asof_join import AsofSpec
from penstock.spark.runtime.bucket_labels import bucket_count, share
from penstock.spark.runtime.join_batch import in_one
from penstock.spark.runtime.join_bucket import AT, EVENT, STREAM
from penstock.spark.runtime.join_schema import (
    EVENT_TIME,
    JoinKeys,
    event_time_field,
    keys_of,
    output_fields,
    refuse_unpackable,
    row_bytes_of,
    sides_of,
    times_of,
    types_of,
)
from penstock.spark.runtime.keys import names_of
from penstock.spark.runtime.run import run


def asof_join(
    left: DataFrame,
    right: DataFrame,
    *,
    on: Any,
    time: Any,
    budget: Any,
    tolerance: Any = None,
    policy: Any = "auto",
    direction: str = "backward",
    allow_exact_matches: bool = True,
    lateness: Any = "0 seconds",
    buckets: int | None = None,
    emit: str = "results",
    suffixes: tuple[str, str] = ("_left", "_right"),
    unit: str = "ms",
    seed: int = 0,
    row_bytes: float | None = None,
    name: str | Observation = "penstock",
) -> DataFrame:
    """Find for every left row the nearest right row of its key in time, in a fixed amount of memory.

    On a stream a left row comes out once the progress of the right stream is past it, and past the rows that
    could be its answer. A left row whose answer may have been evicted does not come out: it is *undecided*,
    counted in the metrics, and shown with `emit="all"`. All others have the answer of `pandas.merge_asof`.

    Parameters
    ----------
    left, right
        Two streaming or two batch DataFrames. Watermarks on their times are respected.
    on
        The key: a column name, a list of names, or of pairs `(left name, right name)`.
    time
        The event-time column, or a pair of names: timestamps, dates or numbers.
    budget
        The memory of all buckets together: `"256 MiB"`, `Bytes(...)`, `Tuples(...)` or, for batch
        DataFrames, `Fraction(...)`.
    tolerance, policy, direction, allow_exact_matches, seed
        As for `penstock.AsofJoin`.
    lateness
        Without a watermark, how far a stream's progress stays behind its largest time. Default: 0. Rows
        behind the progress of their stream are late: they are counted and left out.
    buckets
        The number of buckets that keys are hashed into; default: the number of shuffle partitions.
    emit
        `"results"`, or `"all"`: also left rows that are undecided, right rows that were evicted, and rows
        that were late (see `write_split`).
    suffixes
        Suffixes for columns that both sides have.
    unit
        Unit of numeric times. Default: milliseconds.
    row_bytes
        Approximate bytes of a row, by which a byte budget sizes its tables; default: guessed from the types.
    name
        Name of the observed metrics (see `PipelineMonitor`); for batch DataFrames also an `Observation`.

    Returns
    -------
    The key columns once, then the left and then the right columns, which are null if there is no right row.
    If the inputs have watermarks, also `event_time`, the time of the left row, with a watermark.

    Examples
    --------
    >>> from penstock.spark import asof_join
    >>> trades = spark.createDataFrame([("A", 3), ("B", 4), ("A", 9)], "sym string, ts long")
    >>> quotes = spark.createDataFrame([("A", 1, 10.5), ("A", 8, 10.6)], "sym string, ts long, bid double")
    >>> asof_join(trades, quotes, on="sym", time="ts", tolerance=5, budget="1 MiB").orderBy("ts_left").show()
    +---+-------+--------+----+
    |sym|ts_left|ts_right| bid|
    +---+-------+--------+----+
    |  A|      3|       1|10.5|
    |  B|      4|    NULL|NULL|
    |  A|      9|       8|10.6|
    +---+-------+--------+----+
    <BLANKLINE>
    """
    one_of("emit", emit, EMITS)
    check_frames(left, right, "asof_join", "penstock.asof_join")
    if isinstance(on, tuple | list) and len(on) == 0:
        raise ColumnError("On Spark asof_join needs a key; give a constant column if all rows have one key.")
    join = AsofJoin(
        budget=budget_of(budget),
        tolerance=tolerance,
        direction=direction,
        allow_exact_matches=allow_exact_matches,
        policy=policy,
        seed=seed,
    )
    keys = keys_of(left, right, on)
    times, unit, dtype = times_of(left, right, time, unit)
    sides = sides_of(left, right, keys, times, suffixes)
    streaming, spark = left.isStreaming, left.sparkSession
    room = _in_tuples(join, left, right, keys, times, unit, dtype)
    count = bucket_count(buckets, room, session.partitions(spark))
    marked = streaming and any(side.watermark for side in sides)
    fields = output_fields(left, right, sides, keys)
    refuse_unpackable([*left.schema.fields, *right.schema.fields])
    row_bytes = row_bytes_of(fields) / 2 if row_bytes is None else float(row_bytes)
    if marked:
        fields.append(event_time_field(left.schema[times[0]].dataType))
    order = tie_order(DIRECTIONS[join.direction], bool(join.allow_exact_matches))
    spec = AsofSpec(
        join=AsofJoin(
            budget=share(room, count),
            tolerance=join.tolerance,
            direction=join.direction,
            allow_exact_matches=join.allow_exact_matches,
            policy=join.policy,
            seed=join.seed,
        ),
        left=sides[0],
        right=sides[1],
        streaming=streaming,
        right_first=order == RIGHT_FIRST,
        buckets=count,
        unit=unit,
        dtype=dtype,
        hashed=keys.hashed,
        lateness=tuple(math.inf if side.watermark else lateness for side in sides),
        row_bytes=row_bytes,
        emit=emit,
        event_time=EVENT_TIME if marked else None,
        key_types=names_of((keys.left_types, keys.right_types), keys.types, spark),
        key_words=keys.words,
        column_types=tuple(types_of(frame) for frame in (left, right)),
    )
    # Rejects what cannot work, and puts the kernels on disk before workers need them.
    with ahead():
        spec.start().warm()
    if emit == "all":
        fields += [
            T.StructField(EVENT, T.StringType()),
            T.StructField(STREAM, T.StringType()),
            T.StructField(AT, event_time_type(left.schema[times[0]].dataType)),
        ]
    sent = [prepared(frame, keys, side, spec) for side, frame in enumerate((left, right))]
    return run(sent, spec, T.StructType(fields), name, lambda: in_one(sent, spec, spec.right_first))


def _in_tuples(
    join: AsofJoin,
    left: DataFrame,
    right: DataFrame,
    keys: JoinKeys,
    times: tuple[str, str],
    unit: str,
    dtype: str,
) -> Any:
    """Return a budget that does not depend on the input; for a fraction, count the batch DataFrames."""
    if not isinstance(join.budget, Fraction):
        return join.budget
    if left.isStreaming:
        return share(join.budget, 1)  # refuses it
    rows, ends, distinct = [], [], 0
    for side, (frame, name) in enumerate(zip((left, right), times, strict=True)):
        columns = [key.alias(f"k{i}") for i, key in enumerate(keys.compared(side))]
        usable = frame.select(*columns, time_number(frame, name).cast("double").alias("t")).dropna()
        found = usable.agg(
            F.count("t").alias("n"),
            F.min("t").alias("first"),
            F.max("t").alias("last"),
            F.count_distinct(*[f"k{i}" for i in range(len(columns))]).alias("keys"),
        ).collect()[0]
        rows.append(found["n"])
        distinct = found["keys"]  # of the right stream, in the end
        ends += [end for end in (found["first"], found["last"]) if end is not None]
    span = max(ends) - min(ends) if ends else 0.0
    tolerance = tolerance_of(join.tolerance, unit, np.dtype(dtype))
    tuples = math.floor(
        join.budget.share * need_of((rows[0], rows[1]), distinct, span, tolerance, join.direction)
    )
    check_tuples(tuples, join.budget)
    return Tuples(tuples)
