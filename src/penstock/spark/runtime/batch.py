"""Run a join on batch DataFrames: rows sorted by time within their bucket, streamed through the operator.

A bucket need not fit in memory: a task reads its sorted rows piece by piece.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from penstock.spark.runtime.bucket_labels import labels
from penstock.spark.runtime.join_bucket import Batch, Bucket
from penstock.spark.runtime.join_schema import quoted
from penstock.spark.runtime.join_spec import Spec
from penstock.spark.runtime.output_blobs import FIGURES, ROWS, blob_fields, blobs_of, to_batch
from penstock.spark.runtime.packer import BUCKET, LABEL, SIDE, is_usable, with_time
from penstock.spark.runtime.processor import told

ORDER, SORT = "_penstock_order", "_penstock_sort"


def joined_in_batch(prepared: list[DataFrame], spec: Spec, kind: type[Bucket] = Bucket) -> DataFrame:
    """Run all streams as one sorted table, bucket by bucket, through the operator; return output blobs."""
    tags = F.array(*[F.lit(label) for label in labels(spec.buckets)])
    sides = range(len(prepared))
    hidden = list(dict.fromkeys(name for side in sides for name in _hidden(spec, side)))
    both = None
    for side, frame in enumerate(prepared):
        columns = [
            F.element_at(tags, F.col(BUCKET) + 1).alias(LABEL),
            F.lit(side).cast("byte").alias(SIDE),
            F.monotonically_increasing_id().alias(ORDER),
            F.col(quoted(spec.sides[side].time)).try_cast(_sortable(spec, prepared)).alias(SORT),
            F.col(BUCKET),
        ]
        for name in hidden:
            own = name in _hidden(spec, side)
            columns.append((F.col(name) if own else F.lit(None).cast("long")).alias(name))
        for which, other in enumerate(prepared):
            for i, name in enumerate(_carried(other, spec, which)):
                value = F.col(quoted(name))
                if which != side:
                    value = F.lit(None).cast(other.schema[name].dataType)
                columns.append(value.alias(f"{which}_{i}"))
        part = frame.select(*columns)
        both = part if both is None else both.unionAll(part)
    assert both is not None
    ordered = both.repartition(spec.buckets, LABEL).sortWithinPartitions(LABEL, SORT, SIDE, ORDER)
    names = [_carried(frame, spec, side) for side, frame in enumerate(prepared)]
    return ordered.mapInArrow(_runner(spec, names, kind), blob_fields(None))


def _sortable(spec: Spec, prepared: list[DataFrame]) -> T.DataType:
    kind = prepared[0].schema[spec.sides[0].time].dataType
    if isinstance(kind, T.NumericType):
        return T.LongType() if spec.dtype == "int64" else T.DoubleType()
    return kind


def _hidden(spec: Spec, side: int) -> tuple[str, ...]:
    """Return the columns of a stream that identify its keys."""
    return *spec.codes(side), *spec.checks(side)


def _carried(frame: DataFrame, spec: Spec, side: int) -> list[str]:
    return [name for name in frame.columns if name not in (BUCKET, *_hidden(spec, side))]


def _runner(spec: Spec, names: list[list[str]], kind: type[Bucket]) -> Callable[[Any], Iterator[Any]]:
    """Return a function for `mapInArrow` that runs the buckets of a partition one after the other."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        bucket: Bucket | None = None
        number = -1
        for piece in batches:
            table = pa.Table.from_batches([piece])
            for which, rows in _runs(table):
                if which != number:
                    if bucket is not None:
                        yield _told(bucket, number)
                    bucket, number = kind(spec.of_bucket(which)), which
                assert bucket is not None
                blobs = [(side, _side(rows, side, spec, mine)) for side, mine in enumerate(names)]
                batch = Batch(blobs=blobs)
                batch.skipped = rows.num_rows - sum(part.num_rows for _, part in batch.blobs)
                for tables in bucket.process(batch):
                    for blob in blobs_of(tables):
                        yield to_batch(blob_fields(None), **{ROWS: blob})
        if bucket is not None:
            yield _told(bucket, number)

    return run


def _told(bucket: Bucket, number: int) -> pa.RecordBatch:
    """Return the metrics of a finished bucket."""
    return to_batch(blob_fields(None), **{FIGURES: told(number, bucket.whole)})


def _runs(table: pa.Table) -> Iterator[tuple[int, pa.Table]]:
    """Return the slice of each bucket in a table sorted by bucket."""
    bucket = table[BUCKET].to_numpy()
    cuts = [0, *(np.flatnonzero(bucket[1:] != bucket[:-1]) + 1).tolist(), len(bucket)]
    for first, last in pairwise(cuts):
        if last > first:
            yield int(bucket[first]), table.slice(first, last - first)


def _side(rows: pa.Table, side: int, spec: Spec, names: list[str]) -> pa.Table:
    """Return the rows of one side as the packer would have packed them."""
    mine = rows.filter(pc.equal(rows[SIDE], side))
    columns = {name: mine[f"{side}_{i}"] for i, name in enumerate(names)}
    columns |= {name: mine[name] for name in _hidden(spec, side)}
    table = with_time(pa.table(columns), spec.sides[side].time, spec.dtype)
    return table.filter(is_usable(table, spec.codes(side)))
