"""A join as a worker knows it, and packed batches for it, without Spark."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pyarrow as pa

import penstock as ps
from penstock.joins.window import WindowJoin
from penstock.spark.runtime.arrow_blobs import to_blob
from penstock.spark.runtime.join_bucket import EVENT
from penstock.spark.runtime.join_spec import JoinSide, JoinSpec
from penstock.spark.runtime.packer import KEY, TIME, PackedBatch
from penstock.window import window_of


def spec_of(budget: Any = None, **options: Any) -> JoinSpec:
    """A join of rows with a key, a time and a text within 1,000 ms, in one bucket."""
    given: dict[str, Any] = {"budget": budget or ps.Tuples(50), "policy": "gdj", "allocation": "unified"}
    return JoinSpec(
        join=WindowJoin(within=window_of(1_000), **(given | options)),
        left=JoinSide(("ts", "l"), ("ts_left", "l"), ("k",), "ts", False),
        right=JoinSide(("ts", "r"), ("ts_right", "r"), ("k",), "ts", False),
        buckets=1,
        unit="ms",
        dtype="int64",
        hashed=False,
        lateness=("0 seconds", "0 seconds"),
        rates=None,
        row_bytes=40.0,
        sketch_bytes=4_096,
        emit="all",
        event_time=None,
    )


def packed(number: int, rows: int = 40, span: int = 500, text: int = 8) -> PackedBatch:
    """The batch with this number: rows of both sides as the packer packs them."""
    rng = np.random.default_rng(number)
    blobs: list[tuple[int, Any]] = []
    for side in (0, 1):
        key = rng.integers(0, 10, rows)
        time = np.sort(rng.integers(number * span, (number + 1) * span, rows))
        texts = [f"{n:0{text}d}" for n in range(rows)]
        table = pa.table({KEY: key, "c0": time, "c1": texts, "k0": key, TIME: time})
        blobs.append((side, to_blob(table)))
    return PackedBatch(blobs, watermark=-1, skipped=3)


def divided(tables: Iterable[pa.Table]) -> tuple[list[pa.Table], list[pa.Table]]:
    """The output of a bucket: results, and the rows that left or were late."""
    every = list(tables)
    return [table for table in every if EVENT not in table.column_names], [
        table for table in every if EVENT in table.column_names
    ]
