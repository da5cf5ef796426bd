"""`match_pattern`: find nested event patterns in a DataFrame, streaming or batch."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame, Observation
from pyspark.sql import functions as F
from pyspark.sql import types as T

from penstock.compiler.tiers import ahead
from penstock.errors import ColumnError, PatternError, PenstockError, hint
from penstock.patterns import Attr, Pattern
from penstock.patterns.compile.show import partition_attributes
from penstock.patterns.options import PatternOptions
from penstock.spark.runtime import session
from penstock.spark.runtime.arrow_types import arrow_schema
from penstock.spark.runtime.join_schema import quoted, types_of
from penstock.spark.runtime.keys import is_collated, refuse_collated
from penstock.spark.runtime.packer import BUCKET
from penstock.spark.runtime.pattern_bucket import PatternSpec
from penstock.spark.runtime.pattern_stream import END, START
from penstock.spark.runtime.run import in_buckets, run
from penstock.window import Within


def match_pattern(
    events: DataFrame,
    pattern: Pattern | str,
    *,
    type: str = "type",
    time: str = "ts",
    partition_by: str | Sequence[str] | None = None,
    lateness: Any = "0 seconds",
    order: str | Sequence[str] | None = None,
    budget: Any = None,
    policy: str | None = None,
    strategy: str = "columnar",
    max_events: int | None = None,
    unit: str = "ms",
    name: str | Observation = "penstock",
) -> DataFrame:
    """Find an event pattern in a DataFrame, streaming or batch.

    Parameters
    ----------
    events
        A DataFrame with a type column, a time column and any attributes.
    pattern
        A `Pattern`, or its text.
    partition_by
        Columns whose every combination of values is a separate stream. It is released when its events have
        left the window (in a window of events, only later events with the same values make that happen).
        Default: equality predicates that link all events of the pattern divide the work; without such
        predicates there is one partition.
    lateness
        How late an event may arrive and still be put in order. Later ones are dropped and counted.
    order
        The columns that order events of the same time; default: all columns.
    budget, policy, strategy, max_events
        As for `Pattern.run`; the budget is for all partitions together. Budget and policy apply to the caches
        of the strategies `object` and `semantic`; the others reject them.
    unit
        Unit of numeric times. Default: milliseconds.
    name
        Name of the observed metrics: events, late, skipped, matches, held, bytes of state read and written.

    Returns
    -------
    One row per match: the columns of RETURN, in which a variable is a struct of its event, and the times of
    the first and the last event, `match_start` and `match_end`.

    Examples
    --------
    >>> from penstock.spark import match_pattern
    >>> events = spark.createDataFrame(
    ...     [("A", 0, 1), ("B", 5, 1), ("B", 6, 2)], "type string, ts long, id int"
    ... )
    >>> found = match_pattern(
    ...     events, "PATTERN SEQ(A a, B b, a.id = b.id) WITHIN 10 RETURN a.id AS id, b.ts AS t"
    ... )
    >>> found.show()
    +---+---+-----------+---------+
    | id|  t|match_start|match_end|
    +---+---+-----------+---------+
    |  1|  5|          0|        5|
    +---+---+-----------+---------+
    <BLANKLINE>
    """
    if not hasattr(events, "isStreaming") or not hasattr(events, "mapInArrow"):
        raise PenstockError(
            "match_pattern takes a Spark DataFrame; for in-process data use penstock.Pattern.run. "
            f"{events.__class__.__name__} was given."
        )
    pattern = pattern if isinstance(pattern, Pattern) else Pattern.parse(pattern)
    returned = [item.what.name for item in pattern.returns if isinstance(item.what, Attr)]
    given, ties = _names(partition_by, "partition_by"), _names(order, "order")
    for column in (type, time, *pattern.analysis.attributes, *returned, *given, *ties):
        if column not in events.columns:
            raise ColumnError(f"The events have no column {column!r}{hint(column, events.columns)}")
    if BUCKET in events.columns:
        raise ColumnError(f"The events have a column {BUCKET!r}, a name that Penstock uses; rename it.")
    if not isinstance(name, str | Observation) or not name:
        raise PenstockError(f"name is the name of the observed metrics, a text; {name!r} was given.")
    for column in (type, *pattern.analysis.attributes, *given):
        refuse_collated(column, events.schema[column].dataType, "match_pattern")
    dtype, unit = _time_kind(events, time, unit)
    inferred = [] if pattern.within.events else partition_attributes(pattern.analysis)
    keys = given or inferred
    buckets = session.partitions(events.sparkSession) if keys else 1
    share = PatternOptions(strategy=strategy, budget=budget, policy=policy, max_events=max_events).budget
    spec = PatternSpec(
        pattern=pattern,
        type=type,
        time=time,
        dtype=dtype,
        unit=unit,
        lateness=_span(lateness, unit, dtype),
        order=tuple(ties if order is not None else [c for c in events.columns if c != time]),
        keys=_stream_keys(given, inferred, strategy),
        strategy=strategy,
        budget=None if share is None else max(1, share.n // buckets),
        policy=policy,
        max_events=max_events,
        buckets=buckets,
        column_types=types_of(events),
    )
    fields = _fields(events, pattern, time)
    with ahead():
        _warm(spec, events.schema)
    if not keys:
        warnings.warn(
            "No equality predicate links all events of the pattern, so one task does all the work; give "
            "partition_by= if every value of a column is a separate stream.",
            stacklevel=2,
        )
    hashed = F.pmod(F.hash(*[F.col(quoted(key)) for key in keys]), F.lit(buckets)) if keys else F.lit(0)
    prepared = events.withColumn(BUCKET, hashed.cast("int"))
    return run([prepared], spec, T.StructType(fields), name, lambda: _in_order(prepared, spec))


def _stream_keys(given: list[str], inferred: list[str], strategy: str) -> tuple[str, ...]:
    """Return the columns of which every value is run as a separate stream.

    Predicates may already separate such streams. `columnar` still benefits: a batch then costs only its own
    streams. The other strategies have a state per stream, which costs more than it saves.

    >>> from penstock.spark.api.match import _stream_keys
    >>> _stream_keys(["k"], ["k", "u"], "columnar"), _stream_keys(["k"], ["k", "u"], "semantic")
    (('k',), ())
    """
    told_apart = set(given) <= set(inferred)
    return () if told_apart and strategy != "columnar" else tuple(given)


def _time_kind(events: DataFrame, time: str, unit: str) -> tuple[str, str]:
    kind = events.schema[time].dataType
    if isinstance(kind, T.TimestampType | T.TimestampNTZType):
        return "int64", "us"
    if isinstance(kind, T.IntegralType):
        return "int64", unit
    if isinstance(kind, T.FloatType | T.DoubleType):
        return "float64", unit
    raise ColumnError(
        f"The time column {time!r} is {kind.simpleString()}; allowed are timestamps and numbers."
    )


def _span(lateness: Any, unit: str, dtype: str) -> float:
    span = Within(lateness, lateness).resolve(unit).horizons[0]
    return math.ceil(span) if dtype == "int64" else span


def _names(given: Any, option: str) -> list[str]:
    """Return the columns that an option names: none, one or several."""
    if isinstance(given, str):
        return [given]
    if given is not None and not isinstance(given, Iterable):
        raise ColumnError(f"{option} takes the name of a column, or several; {given!r} was given.")
    return list(given or [])


def _fields(events: DataFrame, pattern: Pattern, time: str) -> list[T.StructField]:
    """Return the columns of the result."""
    fields = []
    for name, what in [(i.name, i.what) for i in pattern.returns] or [(v, v) for v in pattern.variables]:
        kind = events.schema[what.name].dataType if isinstance(what, Attr) else events.schema
        if name.lower() in (START, END):
            raise PatternError(
                f"A match already has the columns {START!r} and {END!r}; rename {name!r} with AS."
            )
        fields.append(T.StructField(name, kind))
    kind = events.schema[time].dataType
    return [*fields, T.StructField(START, kind), T.StructField(END, kind)]


def _warm(spec: PatternSpec, schema: T.StructType) -> None:
    """Reject what cannot work, and put the kernels on disk before workers need them."""
    arrow = arrow_schema(schema)
    names = sorted({slot.type for slot in spec.pattern.analysis.slots})
    columns = {}
    for field in arrow:
        if field.name == spec.type:
            columns[field.name] = pa.array(names) if _is_plain(field.type) else _some(field.type, len(names))
        elif field.name == spec.time:
            columns[field.name] = pa.array([0] * len(names), pa.int64()).cast(field.type)
        else:
            columns[field.name] = _some(field.type, len(names))
    state = spec.start()
    state.process(pa.table(columns))
    state.finish()


def _is_plain(kind: pa.DataType) -> bool:
    return not pa.types.is_nested(kind) and not pa.types.is_binary(kind)


def _some(kind: pa.DataType, size: int) -> pa.Array:
    """Return sample values of a type, so that bad comparisons are detected before any event arrives."""
    samples: tuple[Any, ...] = (0, "", False, b"", [], {})
    for value in samples:
        try:
            return pa.array([value] * size, kind)
        except (pa.ArrowException, TypeError):
            continue
    return pa.nulls(size, kind)


def _in_order(prepared: DataFrame, spec: PatternSpec) -> DataFrame:
    """Sort the events of each bucket by time."""
    ties = [name for name in spec.order if isinstance(prepared.schema[name].dataType, T.AtomicType)]
    # Nulls last, as Arrow sorts them in a stream.
    columns = [_sortable(prepared, name).asc_nulls_last() for name in (spec.time, *ties)]
    return in_buckets(prepared, spec.buckets, *columns)


def _sortable(frame: DataFrame, name: str) -> Column:
    """Return a column that sorts as Arrow does in a stream: strings by their bytes."""
    column = F.col(quoted(name))
    return column.cast(T.StringType()) if is_collated(frame.schema[name].dataType) else column
