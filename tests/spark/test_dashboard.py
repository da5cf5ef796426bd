"""The live page of a query that runs: the numbers move, in the file and in a browser."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame

import penstock as ps
from penstock.errors import PenstockError
from penstock.spark import PipelineMonitor, bounded_join
from penstock.spark.monitor.totals import RunningTotals
from penstock.spark.runtime.join_bucket import JoinBucket
from tests.dashboard.browser import Browser
from tests.spark.conftest import write_files
from tests.spark.packed import packed, spec_of
from tests.spark.support import pieces

pytestmark = pytest.mark.spark

FILES, ROWS, BUDGET = 3, 200, 60


def test_the_numbers_move(spark: Any, stream_of: Callable[[Path], DataFrame], tmp_path: Path) -> None:
    left, right = (
        stream_of(write_files(tmp_path / name, pieces(seed, FILES, ROWS, name)))
        for seed, name in enumerate("lr")
    )
    joined = bounded_join(
        left, right, on="k", time="ts", within="1 minute", budget=ps.Tuples(BUDGET), buckets=2
    )
    record = tmp_path / "join.jsonl"
    with (
        Browser(tmp_path / "profile") as browser,
        PipelineMonitor(spark, console=False, record=record) as monitor,
    ):
        served = monitor.serve()
        browser.open(served.url)
        browser.until("document.getElementById('state').textContent === 'waiting for a batch'")
        query = (
            joined.writeStream.format("noop")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        browser.until(f"batches.length === {FILES}")
        browser.until("document.getElementById('state').textContent === 'stopped'")
        assert f"of {BUDGET} rows" in browser.text()
        assert browser.look("batches.map(b => b.results)") == [b["results"] for b in monitor.history]
        browser.screenshot(Path(__file__).parents[2] / "artifacts" / "dashboard-spark.png")
    lines = [json.loads(line) for line in record.read_text().splitlines()]
    assert [line.get("batch") for line in lines] == [0, 1, 2, None]
    assert lines[-1]["state"] == "stopped"
    for line in lines[:FILES]:
        assert line["budget_rows"] == BUDGET
        assert line["buffered_left"] + line["buffered_right"] <= BUDGET
        assert line["streams"] == ["left", "right"]


@pytest.mark.parametrize(("budget", "share"), [(ps.Tuples(50), (50, 0)), (ps.Bytes("1 MiB"), (0, 2**20))])
def test_a_bucket_tells_its_budget(budget: Any, share: tuple[int, int]) -> None:
    bucket = JoinBucket(spec_of(budget))
    for _ in bucket.process(packed(1)):
        pass
    assert (bucket.figures.budget_rows, bucket.figures.budget_bytes) == share
    row = {"bucket": 0, **bucket.figures.flat()}
    totals = RunningTotals()
    for _ in range(2):
        totals.add(row | {"buckets": [row]}, batch=0)
    assert (totals.history[-1]["budget_rows"], totals.totals()["budget_bytes"]) == share


def test_a_record_that_cannot_be_written(spark: Any, tmp_path: Path) -> None:
    with pytest.raises(PenstockError, match="cannot be written"):
        PipelineMonitor(spark, record=tmp_path / "no" / "where.jsonl")


def test_two_monitors_share_a_page(spark: Any) -> None:
    with PipelineMonitor(spark, "ads", console=False) as ads:
        page = ads.serve()
        with PipelineMonitor(spark, "orders", console=False) as orders:
            assert orders.serve(page=page) is page
        assert [(board.name, board.closed) for board in page.boards] == [("ads", False), ("orders", True)]
        with urllib.request.urlopen(page.url + "batches.json?query=1", timeout=10) as answer:
            assert json.load(answer) == []  # the page outlives the monitor that joined it
    assert all(board.closed for board in page.boards)
