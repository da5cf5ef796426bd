"""`lookup_join`: enrich a DataFrame, streaming or batch, from a table through bounded caches.

Rows are hashed to buckets by key, so each key is cached in one place only. A bucket is one lookup state.
Between the batches of a stream it stays in its worker, and its keys and scores are in Spark's state store: a
restarted worker fetches the rows again, but the policy loses nothing.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame, Observation
from pyspark.sql import functions as F
from pyspark.sql import types as T

from penstock.errors import ColumnError, PenstockError, hint
from penstock.lookup.cache import LookupCache
from penstock.lookup.state import LookupState
from penstock.lookup.stats import LookupStats
from penstock.spark.runtime import session
from penstock.spark.runtime.bucket_labels import bucket_count, labels, share
from penstock.spark.runtime.join_schema import mapped, quoted
from penstock.spark.runtime.lazy_processor import LazyProcessor
from penstock.spark.runtime.lookup_processor import PACKED_LOOKUP, LookupProcessor, told
from penstock.spark.runtime.output_blobs import FIGURES, ROWS, blob_fields, blobs_of, to_batch, unpacker
from penstock.spark.runtime.packer import BLOB, BUCKET, LABEL, PIECE, TASK, to_blob

HOW = {"left": "null", "inner": "drop"}


def lookup_join(
    stream: DataFrame,
    table: Any,
    *,
    on: str | Sequence[str],
    budget: Any,
    policy: Any = "auto",
    key: str | Sequence[str] | None = None,
    how: str = "left",
    buckets: int | None = None,
    name: str | Observation = "penstock-lookup",
    **options: Any,
) -> DataFrame:
    """Join a DataFrame with a table; only keys that are not cached are queried.

    Parameters
    ----------
    stream
        A streaming or batch DataFrame.
    table, policy, options
        As for `penstock.LookupCache`. Workers connect to the table; a SELECT or a function needs `schema=`,
        because Spark must know the columns in advance.
    on, key
        The key columns of the stream, and those of the table if their names differ.
    budget
        The memory of all buckets together.
    how
        `"left"` (the default), or `"inner"`, which drops rows whose key is not in the table.
    buckets
        The number of buckets that keys are hashed into; default: the number of shuffle partitions.
    name
        Name of the observed metrics: hitCount, missCount, loadCount, loadFailureCount, malformedCount,
        failedKeyCount, loadTime, cachedRecords and cachedBytes of each batch.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from penstock.spark import lookup_join
    >>> clicks = spark.createDataFrame([(1, "a"), (2, "b")], "item long, user string")
    >>> def fetch(keys):
    ...     names = {1: "tea", 3: "milk"}
    ...     return {key: {"name": names[key]} for key in keys if key in names}
    >>> lookup_join(clicks, fetch, on="item", budget=100, schema={"name": pa.string()}).orderBy("item").show()
    +----+----+----+
    |item|user|name|
    +----+----+----+
    |   1|   a| tea|
    |   2|   b|NULL|
    +----+----+----+
    <BLANKLINE>
    """
    if not hasattr(stream, "isStreaming") or not hasattr(stream, "mapInArrow"):
        raise PenstockError(
            f"lookup_join takes a Spark DataFrame; a {type(stream).__name__} was given. In process, use "
            "penstock.LookupCache."
        )
    if how not in HOW:
        raise PenstockError(f"how={how!r} is not known{hint(how, HOW)}")
    for fixed in ("missing", "batch", "clock"):
        if fixed in options:
            raise PenstockError(f"{fixed}= is not supported on Spark; use how= for missing keys.")
    names = (on,) if isinstance(on, str) else tuple(on)
    for each in names:
        if each not in stream.columns:
            raise ColumnError(f"The stream has no column {each!r}{hint(each, stream.columns)}")
    whole = LookupCache(table, key=names if key is None else key, budget=budget, policy=policy, **options)
    if len(whole.key) != len(names):
        raise ColumnError(
            f"on={on!r} and key={key!r} must have the same number of columns; they correspond one to one."
        )
    count = bucket_count(buckets, whole.budget, session.partitions(stream.sparkSession))
    if whole.policy.needs_whole_stream and count > 1:
        raise PenstockError(
            f"{whole.policy.name}: its model depends on the last value of the whole stream, but with "
            f"{count} buckets each sees only a part of it. Use buckets=1."
        )
    lookup = LookupCache(
        table,
        key=whole.key,
        budget=share(whole.budget, count),
        policy=policy,
        missing=HOW[how],
        **options,
    )
    lookup.start()  # rejects what cannot work before a worker has to
    fields = _fields(stream, lookup)
    tags = labels(count)
    hashed = F.pmod(F.hash(*[F.col(quoted(each)) for each in names]), F.lit(count)).cast("int")
    prepared = stream.withColumn(BUCKET, hashed)
    session.check_workers(stream.sparkSession)
    if stream.isStreaming:
        session.prepare(stream.sparkSession)
        output_blobs = (
            mapped(prepared, _packer(tags), PACKED_LOOKUP)
            .groupBy(LABEL)
            .transformWithStateInPandas(
                LazyProcessor(LookupProcessor(lookup, names)), blob_fields(None), "Append", "None"
            )
        )
    else:
        tag = F.element_at(F.array(*[F.lit(label) for label in tags]), F.col(BUCKET) + 1)
        sent = prepared.withColumn(LABEL, tag).repartition(count, LABEL).drop(LABEL)
        output_blobs = mapped(sent, _runner(lookup, names), blob_fields(None))
    rows = output_blobs.observe(name, *_metrics()).filter(F.col(ROWS).isNotNull()).select(ROWS)
    return rows.mapInArrow(unpacker(fields, {}), fields)


def _fields(stream: DataFrame, lookup: LookupCache) -> T.StructType:
    """Return the columns of the stream, then those of the table."""
    from pyspark.sql.pandas.types import from_arrow_type

    schema = lookup.source.schema
    lookup.source.close()
    if schema is None:
        raise PenstockError(
            "Spark must know the columns of a SELECT or a function in advance; give schema=, such as "
            "schema={'name': pyarrow.string()}."
        )
    fields = [T.StructField(field.name, field.dataType, True) for field in stream.schema]
    for field in schema:
        new = field.name
        while new in [each.name for each in fields]:
            new += lookup.suffix
        fields.append(T.StructField(new, from_arrow_type(field.type), True))
    return T.StructType(fields)


def _by_bucket(batch: pa.RecordBatch) -> Iterator[tuple[int, pa.Table]]:
    """Return the rows of each bucket, in their order."""
    table = pa.Table.from_batches([batch])
    bucket = table[BUCKET].to_numpy()
    table = table.drop_columns([BUCKET])
    for number in np.unique(bucket).tolist():
        yield number, table.take(pa.array(np.flatnonzero(bucket == number)))


def _packer(tags: list[int]) -> Callable[[Any], Iterator[pa.RecordBatch]]:
    """Return a function for `mapInArrow` that packs rows into a blob per bucket."""

    def pack(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        task = context.partitionId() if context is not None else 0
        for piece, batch in enumerate(batches):
            for number, rows in _by_bucket(batch):
                yield pa.RecordBatch.from_arrays(
                    [
                        pa.array([tags[number]], pa.int32()),
                        pa.array([task], pa.int32()),
                        pa.array([piece], pa.int32()),
                        pa.array([to_blob(rows)], pa.binary()),
                    ],
                    names=[LABEL, TASK, PIECE, BLOB],
                )

    return pack


def _runner(lookup: LookupCache, names: tuple[str, ...]) -> Callable[[Any], Iterator[pa.RecordBatch]]:
    """Return a function for `mapInArrow` that runs the buckets of a partition, usually one."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        fields = blob_fields(None)
        states: dict[int, LookupState] = {}
        for batch in batches:
            for number, rows in _by_bucket(batch):
                state = states.setdefault(number, lookup.start())
                for blob in blobs_of([state.process(rows, names)]):
                    yield to_batch(fields, **{ROWS: blob})
        lookup.source.close()
        for state in states.values():
            yield to_batch(fields, **{FIGURES: json.dumps(told(LookupStats(), state.stats))})

    return run


def _metrics() -> list[Column]:
    """Return the sums of the metrics of all buckets."""
    return [
        F.sum(
            F.get_json_object(FIGURES, f"$.{metric}").cast("double" if metric == "loadTime" else "long")
        ).alias(metric)
        for metric in LookupStats().metrics()
    ]
