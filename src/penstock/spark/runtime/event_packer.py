"""Pack events into Arrow blobs, one per bucket, so that they cross the shuffle and into Python in bulk.

A separate module, so that workers that only pack start without Numba.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.spark.runtime.packer import REGISTER, as_numbers, to_blob

LABEL, BUCKET, TASK, PIECE, LATEST, BLOB = "label", "_penstock_bucket", "task", "piece", "latest", "blob"
PACKED = f"{LABEL} int, {TASK} int, {PIECE} int, {LATEST} double, {BLOB} binary"
MOST_ROWS = 1 << 17


def _latest(times: np.ndarray) -> float:
    """The largest time, rounded down where no float is equal to it: what comes after it is not late."""
    if not len(times):
        return float("nan")
    latest = float(times.max())
    return latest if latest <= times.max().item() else float(np.nextafter(latest, -np.inf))


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
        latest = _latest(times)
        bucket = table[BUCKET].to_numpy()
        table = table.drop_columns([BUCKET])
        order, cuts = np.argsort(bucket, kind="stable"), None
        if len(tags) > 1:
            cuts = np.searchsorted(bucket[order], np.arange(len(tags) + 1))
            table = table.take(pa.array(order))
        if piece == 0:
            yield packed(REGISTER, task, piece, latest, b"")
        for number, tag in enumerate(tags):
            part = table if cuts is None else table.slice(cuts[number], cuts[number + 1] - cuts[number])
            yield packed(tag, task, piece, latest, to_blob(part))

    def packed(label: int, task: int, piece: int, latest: float, blob: bytes) -> pa.RecordBatch:
        return pa.RecordBatch.from_arrays(
            [
                pa.array([label], pa.int32()),
                pa.array([task], pa.int32()),
                pa.array([piece], pa.int32()),
                pa.array([latest], pa.float64()),
                pa.array([blob], pa.binary()),
            ],
            names=[LABEL, TASK, PIECE, LATEST, BLOB],
        )

    return pack
