"""The figures of a running join, as metrics that Spark observes and hands to listeners with every batch.

Each bucket says at the end of a batch what the batch did, in a row of its own; here these rows are added up
and taken out again, so that nobody downstream sees them.
"""

from __future__ import annotations

from dataclasses import fields as fields_of

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from penstock.spark.bucket import AT, EVENT, STREAM, Figures
from penstock.spark.processor import FIGURES, RESULT, STATS
from penstock.spark.schema import quoted
from penstock.spark.spec import JoinSpec

MOST_BUCKETS = 64  # whose evictions are told one by one


def observed(raw: DataFrame, spec: JoinSpec, names: list[str], name: str) -> DataFrame:
    """The join without the rows of figures, which become observed metrics of this name."""
    kinds = {"int": "bigint", "float": "double"}
    schema = "bucket bigint, " + ", ".join(f"{f.name} {kinds[str(f.type)]}" for f in fields_of(Figures))
    watched = raw.withColumn(STATS, F.from_json(F.col(STATS), schema)).observe(name, *_metrics(spec))
    columns = [F.col(quoted(each)) for each in names]
    if spec.emit == "all":
        return watched.filter(F.col(EVENT) != FIGURES).select(*columns, EVENT, STREAM, AT)
    return watched.filter(F.col(EVENT) == RESULT).select(*columns)


def _metrics(spec: JoinSpec) -> list[Column]:
    said = F.col(STATS)
    metrics = [F.sum(said[f.name]).alias(f.name) for f in fields_of(Figures)]
    evicted = said["evicted_left"] + said["evicted_right"]
    metrics.append(F.count(said["bucket"]).alias("buckets"))
    metrics.append(F.max(said["peak_bytes"]).alias("largest_bucket_bytes"))
    metrics.append(F.max_by(said["bucket"], evicted).alias("hottest_bucket"))
    metrics.append(F.max(evicted).alias("hottest_evicted"))
    if spec.buckets <= MOST_BUCKETS:
        each = [F.sum(F.when(said["bucket"] == i, evicted)) for i in range(spec.buckets)]
        metrics.append(F.array(*each).alias("evicted_per_bucket"))
    return metrics
