"""`lookup_join`: enrich a DataFrame, streaming or batch, from a table through bounded caches.

Rows are hashed to buckets by key, so each key is cached in one place only. A bucket is one lookup state.
Between the batches of a stream it stays in its worker, and its keys and scores are in Spark's state store: a
restarted worker fetches the rows again, but the policy loses nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F
from pyspark.sql import types as T

from penstock.arguments import one_of
from penstock.errors import ColumnError, PenstockError, hint
from penstock.lookup.cache import LookupCache
from penstock.spark.runtime import session
from penstock.spark.runtime.arrow_types import spark_type
from penstock.spark.runtime.bucket_labels import bucket_count, share
from penstock.spark.runtime.join_schema import quoted
from penstock.spark.runtime.lookup_bucket import LookupSpec
from penstock.spark.runtime.packer import BUCKET
from penstock.spark.runtime.run import in_buckets, run

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
    one_of("how", how, HOW)
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
    hashed = F.pmod(F.hash(*[F.col(quoted(each)) for each in names]), F.lit(count)).cast("int")
    prepared = stream.withColumn(BUCKET, hashed)
    spec = LookupSpec(lookup, names, count)
    return run([prepared], spec, fields, name, lambda: in_buckets(prepared, count))


def _fields(stream: DataFrame, lookup: LookupCache) -> T.StructType:
    """Return the columns of the stream, then those of the table."""
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
        fields.append(T.StructField(new, spark_type(field.type), True))
    return T.StructType(fields)
