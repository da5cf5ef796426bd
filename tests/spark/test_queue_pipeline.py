"""The example pipeline gives what the join in process gives."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import penstock as ps
from examples.queue_pipeline import run
from penstock.workloads import bursty_pair


def test_bursty_producers_to_parquet(spark: Any, tmp_path: Path) -> None:
    left, right = bursty_pair(4, rate=100, factor=30, keys=500)
    exact = ps.WindowJoin(within=1_000, budget=ps.Tuples(100_000), policy="fifo").run(
        left, right, on="key", time="ts"
    )
    assert run(spark, tmp_path, seconds=4) == exact.stats.results == exact.stats.exact
