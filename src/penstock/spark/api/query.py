"""`stream_query`: continuous queries over DataFrames of timed triples, streaming or batch."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from penstock.budget import Budget, budget_of
from penstock.compiler.tiers import ahead
from penstock.errors import ColumnError, PenstockError, hint
from penstock.linked import StreamQuery
from penstock.linked.plan.sharding import partition_variable
from penstock.linked.query import warn_unbounded
from penstock.linked.triples import LONG_NAMES
from penstock.spark.runtime import session
from penstock.spark.runtime.bucket_labels import bucket_count, share
from penstock.spark.runtime.join_schema import quoted, types_of
from penstock.spark.runtime.packer import BUCKET
from penstock.spark.runtime.query_bucket import END, SORTED, START, STREAM, QuerySpec, query_dealer
from penstock.spark.runtime.run import in_buckets, run
from penstock.window import Within

XSD = "http://www.w3.org/2001/XMLSchema#"


def stream_query(
    query: StreamQuery | str,
    streams: Mapping[str, DataFrame],
    *,
    budget: Any,
    policy: Any = "auto",
    lateness: Any = "0 seconds",
    buckets: int | None = None,
    object: str = "literal",
    unit: str = "ms",
    name: str = "penstock",
) -> DataFrame:
    """Run a stream query over DataFrames of timed triples, streaming or batch.

    Parameters
    ----------
    query
        A `StreamQuery`, or its text.
    streams
        A dict of name to DataFrame with the columns `s`, `p`, `o`, `start` and, for facts, `end`.
    budget, policy, object, unit
        As for `StreamQuery.run`; the budget, in tuples or bytes, is for all buckets together.
    lateness
        How late a triple may arrive and still be put in order. Later ones are dropped and counted.
    buckets
        The number of states that divide the work, by the value of a variable that all patterns have;
        default: the shuffle partitions, or one if there is no such variable.
    name
        Name of the observed metrics: triples, late, skipped, results, evicted and held; `missed`, the
        estimated number of results that were missed, with `unestimated`, `guessed` and `variance`
        (`PipelineMonitor` shows the recall that follows from them); and `choices` if the policy follows
        others: per bucket, the running policy, since when, and the estimates for each.

    Returns
    -------
    One row per solution: the columns of SELECT, times in their input type and everything else as text.

    Examples
    --------
    >>> from penstock.spark import stream_query
    >>> wind = spark.createDataFrame(
    ...     [("a", "reports", 12, 0), ("b", "reports", 12, 100), ("c", "reports", 12, 900)],
    ...     "s string, p string, o int, start long",
    ... )
    >>> text = '''
    ...     SELECT ?a ?b ?T FROM STREAM wind WHERE { ?a reports ?v ?T . ?b reports ?v ?U . FILTER (?a != ?b) }
    ...     CONTEXT ((?T - ?U) <= 200^^xsd:millisecond)'''
    >>> stream_query(text, {"wind": wind}, budget="1000 tuples").orderBy("T").show()
    +---+---+---+
    |  a|  b|  T|
    +---+---+---+
    |  a|  b|  0|
    |  b|  a|100|
    +---+---+---+
    <BLANKLINE>
    """
    query = StreamQuery.parse(query) if isinstance(query, str) else query
    if not isinstance(query, StreamQuery):
        raise PenstockError(
            f"stream_query takes a StreamQuery or its text; {type(query).__name__} was given."
        )
    frames = _frames(query, streams)
    united, kind = _united(frames)
    cut = budget_of(budget)
    variable = partition_variable(query.query)
    count = bucket_count(buckets, cut, session.partitions(united.sparkSession))
    if variable is None and count > 1:
        warnings.warn(
            "No variable occurs in all patterns of the query, so one task does all the work.", stacklevel=2
        )
        count = 1
    spec = QuerySpec(
        text=query.text,
        budget=share(cut, count),
        policy=policy,
        objects=object,
        unit="us" if kind == "timestamp" else unit,
        stamps=kind == "timestamp",
        lateness=_span(lateness, "us" if kind == "timestamp" else unit),
        buckets=count,
        column_types=types_of(united.select("o")),
    )
    with ahead():
        _warm(query, spec, cut)
    fields = _fields(query, kind)
    found = run([united], spec, fields, name, lambda: _in_order(united, spec))
    return found.dropDuplicates() if query.query.distinct else found


def _frames(query: StreamQuery, streams: Any) -> list[DataFrame]:
    """Return the DataFrames of the streams in the order of FROM, with short column names."""
    if not isinstance(streams, Mapping):
        raise PenstockError(f"streams takes a dict of name to DataFrame; {type(streams).__name__} was given.")
    frames = []
    for stream in query.streams:
        if stream not in streams:
            raise ColumnError(
                f"The query reads the stream {stream!r}, which was not given{hint(stream, streams)}"
            )
        frame = streams[stream]
        if not hasattr(frame, "mapInArrow"):
            raise PenstockError(
                "stream_query takes Spark DataFrames; for in-process data use penstock.StreamQuery.run. "
                f"{type(frame).__name__} was given."
            )
        columns = []
        for short in ("s", "p", "o", "start"):
            given = next((n for n in (short, LONG_NAMES.get(short, short)) if n in frame.columns), None)
            if given is None:
                raise ColumnError(
                    f"The stream {stream!r} has no column {short!r}{hint(short, frame.columns)}"
                )
            columns.append(F.col(quoted(given)).alias(short))
        end = F.col("end") if "end" in frame.columns else F.col("start")
        frames.append(frame.select(*columns, end.alias("end")))
    return frames


def _united(frames: list[DataFrame]) -> tuple[DataFrame, str]:
    """Return all streams as one DataFrame, and the type of their times: long, double or timestamp."""
    kinds = {_time_kind(frame, name) for frame in frames for name in ("start", "end")}
    if "timestamp" in kinds and len(kinds) > 1:
        raise ColumnError("Either all streams have timestamps or none does; convert the others.")
    kind = "timestamp" if "timestamp" in kinds else "double" if "double" in kinds else "bigint"
    alike = len({frame.schema["o"].dataType.simpleString() for frame in frames}) == 1
    out = None
    for number, frame in enumerate(frames):
        thing = F.col("o") if alike else _as_term(frame)
        if isinstance(frame.schema["o"].dataType, T.StringType):
            thing = thing.cast(T.StringType())  # terms are compared and sorted as strings
        part = frame.select(
            F.col("s").cast("string").alias("s"),
            F.col("p").cast("string").alias("p"),
            thing.alias("o"),
            F.col("start").cast(kind).alias(START),
            F.col("end").cast(kind).alias(END),
            F.lit(number).cast("int").alias(STREAM),
        )
        out = part if out is None else out.unionAll(part)
    assert out is not None
    return out, kind


def _time_kind(frame: DataFrame, name: str) -> str:
    kind = frame.schema[name].dataType
    if isinstance(kind, T.TimestampType | T.TimestampNTZType):
        return "timestamp"
    if isinstance(kind, T.IntegralType):
        return "bigint"
    if isinstance(kind, T.FloatType | T.DoubleType):
        return "double"
    raise ColumnError(
        f"The time column {name!r} is {kind.simpleString()}; allowed are timestamps and numbers."
    )


def _as_term(frame: DataFrame) -> Any:
    """Return objects as N-Triples text, if streams have objects of different types."""
    kind, value = frame.schema["o"].dataType, F.col("o").cast("string")
    names = {
        T.BooleanType: "boolean",
        T.DecimalType: "decimal",
        T.FloatType: "double",
        T.DoubleType: "double",
    }
    if isinstance(kind, T.StringType):
        return value
    if isinstance(kind, T.IntegralType):
        named = "integer"
    elif type(kind) in names:
        named = names[type(kind)]
    elif isinstance(kind, T.TimestampType):
        utc = F.to_utc_timestamp("o", F.current_timezone())
        named, value = "dateTime", F.date_format(utc, "yyyy-MM-dd'T'HH:mm:ss.SSSSSS'Z'")
    else:
        raise ColumnError(
            f"The column 'o' is {kind.simpleString()}; allowed are texts, numbers and timestamps."
        )
    return F.concat(F.lit('"'), value, F.lit(f'"^^<{XSD}{named}>'))


def _span(lateness: Any, unit: str) -> float:
    return float(Within(lateness, lateness).resolve(unit).horizons[0])


def _fields(query: StreamQuery, kind: str) -> T.StructType:
    """Return the columns of the result."""
    times = {"timestamp": T.TimestampType(), "double": T.DoubleType(), "bigint": T.LongType()}[kind]
    fields = []
    for item in query.query.items:
        timed = getattr(item.expression, "name", None) in query.query.time_variables
        fields.append(T.StructField(item.name, times if timed else T.StringType()))
    return T.StructType(fields)


def _warm(query: StreamQuery, spec: QuerySpec, budget: Budget) -> None:
    """Reject what cannot work, and put the kernels on disk before workers need them."""
    state = spec.start()
    stamp = pa.timestamp("us", "UTC") if spec.stamps else pa.int64()
    empty = pa.table(
        {name: pa.array([], pa.string()) for name in "spo"}
        | {name: pa.array([], stamp) for name in ("start", "end")}
    )
    state.process(dict.fromkeys(query.streams, empty))
    assert state.state is not None
    state.state.warm()
    warn_unbounded(state.state.plan, budget)


def _in_order(united: DataFrame, spec: QuerySpec) -> DataFrame:
    """Deal triples to buckets, and sort them there."""
    dealt = T.StructType([*united.schema.fields, T.StructField(BUCKET, T.IntegerType())])
    return in_buckets(united.mapInArrow(query_dealer(spec), dealt), spec.buckets, *SORTED)
