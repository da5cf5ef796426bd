"""Run an operator on DataFrames: streams through the stateful processor, batch ones bucket by bucket."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import reduce
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame, Observation
from pyspark.sql import functions as F
from pyspark.sql import types as T

from penstock.spark.runtime import session
from penstock.spark.runtime.bucket_labels import labels
from penstock.spark.runtime.figures import Figures, observed
from penstock.spark.runtime.join_schema import mapped
from penstock.spark.runtime.operator import Bucket, Spec
from penstock.spark.runtime.output_blobs import blob_fields, blobs_of, to_batch
from penstock.spark.runtime.packer import BUCKET, LABEL, PACKED, packer
from penstock.spark.runtime.processor import BucketProcessor


def run(
    frames: list[DataFrame],
    spec: Spec,
    fields: T.StructType,
    name: str | Observation,
    in_order: Callable[[], DataFrame],
) -> DataFrame:
    """The rows that an operator makes of its inputs, which have a column `BUCKET`.

    `in_order` gives batch DataFrames as one, which `in_buckets` has divided.
    """
    spark = frames[0].sparkSession
    session.check_workers(spark)
    if frames[0].isStreaming:
        session.prepare(spark)
        blobs = _in_stream(frames, spec)
    else:
        blobs = mapped(in_order(), _runner(spec), blob_fields(None))
    return observed(blobs, spec, fields, name)


def _in_stream(frames: list[DataFrame], spec: Spec) -> DataFrame:
    """Pack all inputs, group them by bucket, and process each bucket; output blobs come out."""
    tags = tuple(labels(spec.buckets))
    packed = [
        mapped(frame, packer(packing), PACKED)
        for frame, packing in zip(frames, spec.packings(tags), strict=True)
    ]
    return (
        reduce(lambda some, more: some.union(more), packed)
        .groupBy(LABEL)
        .transformWithState(
            BucketProcessor(spec, tags),
            blob_fields(spec.event_time),
            "Append",
            "EventTime" if spec.event_time else "None",
            eventTimeColumnName=spec.event_time or "",
        )
    )


def in_buckets(frame: DataFrame, buckets: int, *order: Column | str) -> DataFrame:
    """Send the rows of each bucket to a partition of their own, and sort them."""
    tags = F.array(*[F.lit(label) for label in labels(buckets)])
    sent = frame.repartition(buckets, F.element_at(tags, F.col(BUCKET) + 1))
    return sent.sortWithinPartitions(BUCKET, *order) if order else sent


def _runner(spec: Spec) -> Callable[[Any], Iterator[pa.RecordBatch]]:
    """A function for `mapInArrow` that runs the buckets of a partition; they need not fit in memory."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        bucket, number, total = None, -1, spec.figures()
        for which, rows in _runs(batches):
            if which != number:
                yield from _finished(bucket, number, total)
                bucket, number, total = spec.kind(spec.of_bucket(which)), which, spec.figures()
            assert bucket is not None
            for blob in blobs_of(bucket.process_sorted(rows)):
                yield to_batch(rows=blob)
            total.add(bucket.figures)
        yield from _finished(bucket, number, total)

    return run


def _finished(bucket: Bucket | None, number: int, total: Figures) -> Iterator[pa.RecordBatch]:
    """What a bucket has to say in the end."""
    if bucket is None:
        return
    before = bucket.figures
    last = list(bucket.finish())
    if last or bucket.figures is not before:
        total.add(bucket.figures)
    for blob in blobs_of(last):
        yield to_batch(rows=blob)
    yield to_batch(figures=total.to_json(number))
    bucket.close()


def _runs(batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[int, pa.Table]]:
    """The rows of each bucket, piece by piece."""
    for batch in batches:
        table = pa.Table.from_batches([batch])
        bucket = table[BUCKET].to_numpy()
        table = table.drop_columns([BUCKET])
        cuts = [0, *(np.flatnonzero(np.diff(bucket)) + 1).tolist(), len(bucket)]
        for first, last in pairwise(cuts):
            if last > first:
                yield int(bucket[first]), table.slice(first, last - first)
