"""Bursts of fifty times the average rate: the state keeps its budget, and the workers' memory stays flat."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import psutil
import pytest

import penstock as ps
from penstock.spark import bounded_join
from tests.spark.conftest import write_files
from tests.spark.support import START, committed, figures, python_workers

BUDGET = ps.Bytes("8 MiB")
USUAL, BURST = 600, 30_000  # rows a side and batch
MEGABYTE = 1 << 20


def side(seed: int, files: int, bursts: set[int], value: str) -> list[pd.DataFrame]:
    """Frames of a minute each, with texts of many lengths."""
    rng = np.random.default_rng(seed)
    frames = []
    for i in range(files):
        rows = BURST if i in bursts else USUAL
        at = np.sort(rng.integers(i * 60_000, (i + 1) * 60_000, rows))
        letters = rng.choice(list("abcdefgh"), 400)
        frames.append(
            pd.DataFrame(
                {
                    "k": rng.integers(0, 20_000, rows),
                    "ts": (START + pd.to_timedelta(at, unit="ms")).astype("datetime64[us, UTC]"),
                    value: ["".join(letters[:length]) for length in rng.integers(0, 300, rows)],
                }
            )
        )
    return frames


def resident() -> list[int]:
    """The memory of each Python worker, in bytes."""
    found = []
    for worker in python_workers():
        with contextlib.suppress(psutil.Error):
            found.append(worker.memory_info().rss)
    return found


def check(spark: Any, folder: Path, files: int, every: int) -> None:
    """Run batches with a burst every so often, and watch state and workers."""
    bursts = set(range(every // 2, files, every))
    sides = [write_files(folder / name, side(seed, files, bursts, name)) for seed, name in enumerate("lr")]
    left, right = (
        spark.readStream.schema(spark.read.parquet(str(one)).schema)
        .option("maxFilesPerTrigger", 1)
        .parquet(str(one))
        for one in sides
    )
    joined = bounded_join(left, right, on="k", time="ts", within="20 minutes", budget=BUDGET, buckets=2)
    spark.conf.set("spark.sql.streaming.numRecentProgressUpdates", str(files + 10))
    checkpoint = folder / "checkpoint"
    query = (
        joined.writeStream.format("parquet")
        .option("path", str(folder / "output"))
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    memory: list[tuple[int, int]] = []  # batches done, and the largest worker
    try:
        while not query.awaitTermination(0.1):  # type: ignore[arg-type]
            memory.append((committed(checkpoint), max(resident(), default=0)))
    finally:
        query.stop()
    metrics = figures(query)
    assert len(metrics) == files
    peaks = [each["peak_bytes"] for each in metrics]
    assert max(each["arrived_left"] for each in metrics) == 50 * USUAL
    assert sum(each["evicted_left"] + each["evicted_right"] for each in metrics) > BURST
    warm = max(bursts) if len(bursts) == 1 else sorted(bursts)[1] + 2  # a burst has been there, and a second
    before = max(rss for batch, rss in memory if batch <= warm)
    after = max(rss for batch, rss in memory if batch > warm)
    print(
        f"{files} batches, {len(bursts)} bursts: state at most {max(peaks):,} of {BUDGET.n:,} bytes, "
        f"a worker at most {before / MEGABYTE:.0f} MB in the first {warm} batches, "
        f"{after / MEGABYTE:.0f} MB after"
    )
    assert max(peaks) <= BUDGET.n, [i for i, peak in enumerate(peaks) if peak > BUDGET.n]
    assert after <= 1.1 * before + 20 * MEGABYTE


def test_sixteen_batches(spark: Any, tmp_path: Path) -> None:
    check(spark, tmp_path, files=16, every=5)


@pytest.mark.soak
def test_two_hundred_batches(spark: Any, tmp_path: Path) -> None:
    check(spark, tmp_path, files=200, every=20)
