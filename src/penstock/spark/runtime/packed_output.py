"""The output of an operator while it is still packed, for whoever wants it twice.

Blobs are few and large, so that Spark caches them in a fraction of the time that it takes for their rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from penstock.spark.runtime.arrow_blobs import numbers, to_blob
from penstock.spark.runtime.output_blobs import ROWS, tables_of, unpacker
from penstock.spark.runtime.worker_memory import give_back

ATTRIBUTE = "_penstock_output"  # of a DataFrame that an operator has returned
MARKED = "marked"


@dataclass(frozen=True)
class PackedOutput:
    """Blobs, and what becomes of them."""

    blobs: DataFrame
    fields: T.StructType
    fill: dict[str, Any]

    def rows(self) -> DataFrame:
        """The rows, as users get them; the DataFrame remembers where they come from."""
        rows = self.blobs.mapInArrow(unpacker(self.fields, self.fill), self.fields)
        setattr(rows, ATTRIBUTE, self)
        return rows

    def divided(self, column: str) -> DataFrame:
        """The blobs as rows that can be cached, with a mark if they have this column."""
        return self.blobs.mapInArrow(_divider(column), f"{MARKED} int, {ROWS} binary")


def unpacked(divided: DataFrame, marked: bool, fields: T.StructType, fill: dict[str, Any]) -> DataFrame:
    """The rows of the blobs that have a mark, or of those that have none."""
    blobs = divided.filter(F.col(MARKED) == int(marked)).select(ROWS)
    return blobs.mapInArrow(unpacker(fields, fill), fields)


def packed_output(frame: Any) -> PackedOutput | None:
    """What a DataFrame was before it was unpacked; None if it is not as an operator has returned it."""
    found = getattr(frame, "__dict__", {}).get(ATTRIBUTE)
    return found if isinstance(found, PackedOutput) else None


def _divider(column: str) -> Callable[[Any], Iterator[pa.RecordBatch]]:
    def divide(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for table in tables_of(batches):
            blob = to_blob(table)
            ends = pa.py_buffer(np.array([0, len(blob)], np.int32))
            marked = numbers(np.array([column in table.column_names], np.int32))
            packed = pa.Array.from_buffers(pa.binary(), 1, [None, ends, pa.py_buffer(blob)])
            yield pa.RecordBatch.from_arrays([marked, packed], names=[MARKED, ROWS])
        give_back()

    return divide
