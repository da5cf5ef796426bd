"""The stateful operator: Spark calls it once per bucket and batch."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, ClassVar

import pandas as pd
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from penstock.spark.runtime.figures import Figures
from penstock.spark.runtime.join_bucket import Batch, Bucket
from penstock.spark.runtime.join_spec import Spec
from penstock.spark.runtime.output_blobs import FIGURES, ROWS, blob_fields, blobs_of, to_frame
from penstock.spark.runtime.packer import BLOB, PIECE, REGISTER, SIDE, SKIPPED, TASK
from penstock.spark.runtime.state_log import StateLog


class JoinProcessor(StatefulProcessor):
    """Runs the buckets of a `bounded_join`."""

    kind: ClassVar[type[Bucket]] = Bucket

    def __init__(self, spec: Spec, buckets: dict[int, int]) -> None:
        self.spec = spec
        self.buckets = buckets  # label -> number of the bucket

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Spark hands over the state store of this partition."""
        self.state_log = StateLog(handle, self.kind)

    def handleInputRows(  # noqa: N802
        self, key: Any, rows: Any, timerValues: Any
    ) -> Iterator[Any]:
        """The packed rows of one bucket for one batch, or word of the query as a whole."""
        if int(key[0]) == REGISTER:
            self.state_log.register(self.spec)
            return
        batch = _gather(rows, timerValues.getCurrentWatermarkInMs())
        number = self.buckets[int(key[0])]
        opened = self.state_log.open(self.spec.of_bucket(number))
        results, archive = opened.bucket.process(batch)
        figures = opened.bucket.figures
        figures.state_read, figures.replayed = opened.read, opened.replayed
        figures.state_written = self.state_log.commit(opened, batch)
        fields, after = blob_fields(self.spec.event_time), {}
        if self.spec.event_time:
            after[self.spec.event_time] = _after(batch)
        for tables in (results, archive):
            for blob in blobs_of(tables):
                yield to_frame(fields, **{ROWS: blob}, **after)
        said = told(number, figures)
        yield to_frame(fields, **{FIGURES: said}, **after)

    def close(self) -> None:
        """Nothing to give back: buckets stay remembered for the next batch."""


def told(bucket: int, figures: Figures) -> str:
    """The figures of a bucket as text, for a row of their own."""
    return json.dumps({"bucket": bucket, **figures.flat()})


def _gather(rows: Iterator[pd.DataFrame], watermark: int) -> Batch:
    """The blobs in the order of their side, whatever order the shuffle brought them in."""
    pieces = [piece for frame in rows for piece in frame.itertuples(index=False)]
    pieces.sort(key=lambda piece: (getattr(piece, SIDE), getattr(piece, TASK), getattr(piece, PIECE)))
    return Batch(
        blobs=[(int(getattr(piece, SIDE)), bytes(getattr(piece, BLOB))) for piece in pieces],
        watermark=int(watermark),
        skipped=sum(int(getattr(piece, SKIPPED)) for piece in pieces),
    )


def _after(batch: Batch) -> pd.Timestamp:
    """A time after the watermark, for output_blobs: Spark lets none through that are behind it."""
    return pd.Timestamp(max(batch.watermark, 0) + 1, unit="ms", tz="UTC")
