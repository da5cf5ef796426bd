"""Streams from files, and their results. The session is in the `conftest.py` above all tests."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

pytest.importorskip("pyspark", reason="pyspark is an extra")

from pyspark.sql import DataFrame, SparkSession


def write_files(folder: Path, frames: list[pd.DataFrame]) -> Path:
    """One Parquet file per frame, in the order in which a stream will read them."""
    folder.mkdir(parents=True, exist_ok=True)
    for i, frame in enumerate(frames):
        path = folder / f"{i:04d}.parquet"
        frame.to_parquet(path, coerce_timestamps="us")
        os.utime(path, (1_700_000_000 + i, 1_700_000_000 + i))
    return folder


@pytest.fixture
def stream_of(spark: SparkSession) -> Callable[[Path], DataFrame]:
    """A stream that reads one file of a folder per batch."""

    def read(folder: Path) -> DataFrame:
        schema = spark.read.parquet(str(folder)).schema
        return spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(folder))

    return read


@pytest.fixture
def collected(tmp_path: Path) -> Callable[..., Any]:
    """Run a streaming DataFrame to its end; its rows as pandas, and the query."""

    def run(
        frame: DataFrame, checkpoint: str = "checkpoint", mode: str = "append"
    ) -> tuple[pd.DataFrame, Any]:
        parts: dict[int, pd.DataFrame] = {}

        def keep(batch: DataFrame, number: int) -> None:
            parts[number] = batch.toPandas()

        query = (
            frame.writeStream.foreachBatch(keep)
            .outputMode(mode)
            .option("checkpointLocation", str(tmp_path / checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        rows = [parts[number] for number in sorted(parts)]
        return (pd.concat(rows, ignore_index=True) if rows else pd.DataFrame(columns=frame.columns)), query

    return run
