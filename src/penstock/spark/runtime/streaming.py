"""Run streaming DataFrames through the stateful operator: rows packed, grouped by bucket, joined."""

from __future__ import annotations

from functools import reduce

from pyspark.sql import DataFrame

from penstock.spark.runtime.bucket_labels import labels
from penstock.spark.runtime.join_spec import Spec
from penstock.spark.runtime.lazy_processor import LazyProcessor
from penstock.spark.runtime.output_blobs import blob_fields
from penstock.spark.runtime.packer import LABEL, PACKED, Packing, packer
from penstock.spark.runtime.processor import JoinProcessor


def joined_in_stream(prepared: list[DataFrame], spec: Spec, kind: type[JoinProcessor]) -> DataFrame:
    """All streams in one, each bucket by an operator of this kind; output_blobs come out."""
    tags = labels(spec.buckets)
    packed = [
        frame.mapInArrow(
            packer(Packing(side, spec.sides[side].time, spec.dtype, tuple(tags), spec.codes(side))), PACKED
        )
        for side, frame in enumerate(prepared)
    ]
    processor = LazyProcessor(kind(spec, {label: i for i, label in enumerate(tags)}))
    return (
        reduce(lambda some, more: some.union(more), packed)
        .groupBy(LABEL)
        .transformWithStateInPandas(
            processor,
            blob_fields(spec.event_time),
            "Append",
            "EventTime" if spec.event_time else "None",
            eventTimeColumnName=spec.event_time or "",
        )
    )
