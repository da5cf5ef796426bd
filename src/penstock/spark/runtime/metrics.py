"""The metrics of a running join, which Spark observes and passes to listeners with every batch.

At the end of a batch each bucket adds a row with its figures to its blobs. Here these rows are added up
and removed, and the blobs are unpacked, so that nobody downstream sees either.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql import Column, DataFrame, Observation
from pyspark.sql import functions as F
from pyspark.sql import types as T

from penstock.spark.monitor.progress import is_lookup
from penstock.spark.runtime.figures import Figures
from penstock.spark.runtime.join_bucket import EVENT, RESULT
from penstock.spark.runtime.join_schema import quoted
from penstock.spark.runtime.join_spec import Spec
from penstock.spark.runtime.output_blobs import FIGURES, ROWS, unpacker

METRIC = "join"  # the one observed metric: a row with the sums, and the buckets one by one


def observed(output_blobs: DataFrame, spec: Spec, fields: T.StructType, name: str | Observation) -> DataFrame:
    """The rows of a join; the figures among the output_blobs become an observed metric of this name."""
    rows = output_blobs.observe(name, _metric(spec.streams)).filter(F.col(ROWS).isNotNull()).select(ROWS)
    return rows.mapInArrow(unpacker(fields, {EVENT: RESULT} if spec.emit == "all" else {}), fields)


def _metric(streams: tuple[str, ...]) -> Column:
    kinds = {
        name: "bigint" if isinstance(value, int) else "double"
        for name, value in Figures.of(streams).flat().items()
    }
    schema = "bucket bigint, " + ", ".join(f"{quoted(name)} {kind}" for name, kind in kinds.items())
    buckets = F.transform(F.collect_list(F.col(FIGURES)), lambda text: F.from_json(text, schema))

    def summed(each: Column) -> Column:
        sums = [
            F.aggregate(each, F.lit(0).cast(kind), _adding(name)).alias(name) for name, kind in kinds.items()
        ]
        return F.struct(*sums, each.alias("buckets"))

    # A lambda is the one way to name a value that several expressions use.
    return F.element_at(F.transform(F.array(buckets), summed), 1).alias(METRIC)


def _adding(name: str) -> Any:
    return lambda total, row: total + row[name]


def figures_of(progress: Any, name: str = "penstock") -> dict[str, Any] | None:
    """The figures of a batch from a query's progress: sums, and `buckets`; None if it has none.

    Of a lookup of this name there is nothing to add up, and no recall that could be estimated.

    >>> from penstock.spark.runtime.metrics import figures_of
    >>> figures_of({"observedMetrics": {}}) is None
    True
    """
    row = progress["observedMetrics"].get(name)
    if is_lookup(row):
        return {"missed": None}
    if row is None or row[METRIC] is None:
        return None
    figures = row[METRIC]  # a row in a listener's event, a dict in what a query tells of the past
    return figures.asDict(recursive=True) if hasattr(figures, "asDict") else dict(figures)
