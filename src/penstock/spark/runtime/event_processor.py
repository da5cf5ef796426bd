"""The stateful operator of patterns and stream queries: Spark calls it once per bucket and batch."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any, ClassVar

import pandas as pd
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from penstock.spark.runtime.join_bucket import Batch
from penstock.spark.runtime.output_blobs import FIGURES, ROWS, blob_fields, blobs_of, to_frame
from penstock.spark.runtime.packer import REGISTER
from penstock.spark.runtime.state_log import StateLog


class EventProcessor(StatefulProcessor):
    """Runs the buckets of one operator, each a `kind`: takes packed events, returns tables."""

    kind: ClassVar[Any]

    def __init__(self, spec: Any) -> None:
        self.spec = spec

    def spec_of(self, label: int) -> Any:
        """Return the spec of the bucket with this label."""
        return self.spec

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Take the state store of this partition from Spark."""
        self.state_log = StateLog(handle, self.kind)

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[pd.DataFrame]:  # noqa: N802
        """Process the packed events of one bucket for one batch, or the progress of the whole query."""
        if int(key[0]) == REGISTER:
            self.state_log.register(self.spec)
            return
        pieces = [piece for frame in rows for piece in frame.itertuples(index=False)]
        pieces.sort(key=lambda piece: (piece.task, piece.piece))
        seen = [float(piece.latest) for piece in pieces if piece.latest == piece.latest]
        batch = Batch(
            [(0, bytes(piece.blob)) for piece in pieces],
            skipped=sum(int(getattr(piece, "skipped", 0)) for piece in pieces),
            latest=max(seen, default=None),
        )
        opened = self.state_log.open(self.spec_of(int(key[0])))
        found = opened.bucket.process(batch)
        figures = opened.bucket.figures
        figures.state_read, figures.replayed = opened.read, opened.replayed
        figures.state_written = self.state_log.commit(opened, batch)
        for blob in blobs_of(found):
            yield to_frame(blob_fields(None), **{ROWS: blob})
        yield to_frame(blob_fields(None), **{FIGURES: json.dumps(asdict(figures))})

    def close(self) -> None:
        """Do nothing: buckets stay in memory for the next batch."""
