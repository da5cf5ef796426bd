"""Events packed into Arrow blobs, one per bucket, so that they cross the shuffle and into Python in bulk.

A module of its own, so that workers that only pack start without Numba.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.spark.pack import as_numbers, to_blob

LABEL, BUCKET, TASK, PIECE, LATEST, BLOB = "label", "_penstock_bucket", "task", "piece", "latest", "blob"
PACKED = f"{LABEL} int, {TASK} int, {PIECE} int, {LATEST} double, {BLOB} binary"
MOST_ROWS = 1 << 17


def event_packer(time: str, dtype: str, tags: list[int]) -> Callable[[Any], Iterator[pa.RecordBatch]]:
    """A function for `mapInArrow`: a row per bucket and piece, which also says how far times have come."""

    def pack(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        task, piece = (context.partitionId() if context is not None else 0), 0
        held: list[pa.RecordBatch] = []
        for batch in batches:
            held.append(batch)
            if sum(each.num_rows for each in held) >= MOST_ROWS:
                yield from pieces(pa.Table.from_batches(held), task, piece)
                held, piece = [], piece + 1
        if held:
            yield from pieces(pa.Table.from_batches(held), task, piece)

    def pieces(table: pa.Table, task: int, piece: int) -> Iterator[pa.RecordBatch]:
        times = as_numbers(table[time], dtype).drop_null().to_numpy()
        latest = float(times.max()) if len(times) else float("nan")
        bucket = table[BUCKET].to_numpy()
        table = table.drop_columns([BUCKET])
        for number, tag in enumerate(tags):
            rows = np.flatnonzero(bucket == number)
            part = table if len(rows) == len(bucket) else table.take(pa.array(rows))
            yield pa.RecordBatch.from_arrays(
                [
                    pa.array([tag], pa.int32()),
                    pa.array([task], pa.int32()),
                    pa.array([piece], pa.int32()),
                    pa.array([latest], pa.float64()),
                    pa.array([to_blob(part)], pa.binary()),
                ],
                names=[LABEL, TASK, PIECE, LATEST, BLOB],
            )

    return pack
