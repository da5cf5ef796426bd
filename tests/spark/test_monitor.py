"""`PipelineMonitor` adds up what a query says of itself, shows it, and answers Prometheus."""

from __future__ import annotations

import io
import socket
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from prometheus_client.parser import text_string_to_metric_families
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame
from rich.console import Console

import penstock as ps
from penstock.errors import PenstockError
from penstock.queues import QueueClient, QueueServer
from penstock.spark import bounded_join, lookup_join, register_queue_source
from penstock.spark.monitor.pipeline import PipelineMonitor
from penstock.spark.monitor.totals import RunningTotals
from tests.spark.conftest import write_files
from tests.spark.support import pieces, until

pytestmark = pytest.mark.spark

FILES, ROWS = 3, 200


@pytest.fixture
def joined(spark: Any, stream_of: Callable[[Path], DataFrame], tmp_path: Path) -> DataFrame:
    """A join of two streams in too little memory."""
    left, right = (
        stream_of(write_files(tmp_path / name, pieces(seed, FILES, ROWS, name)))
        for seed, name in enumerate("lr")
    )
    return bounded_join(left, right, on="k", time="ts", within="1 minute", budget=ps.Tuples(60), buckets=2)


def started(frame: DataFrame, folder: Path, each: Any = None) -> Any:
    """A query over all files; `each` is called with every batch."""
    return (
        frame.writeStream.foreachBatch(
            each or (lambda rows, batch: rows.write.parquet(str(folder / str(batch))))
        )
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )


def scraped(url: str) -> dict[tuple[str, ...], float]:
    """The samples that Prometheus would get: name and labels, without that of the join."""
    with urllib.request.urlopen(url, timeout=10) as answer:
        text = answer.read().decode()
    samples = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            assert sample.labels.pop("join") == "penstock"
            samples[(sample.name, *sample.labels.values())] = sample.value
    return samples


def test_a_query_is_watched_shown_and_scraped(spark: Any, joined: DataFrame, tmp_path: Path) -> None:
    console = Console(file=io.StringIO(), record=True, width=90)
    with PipelineMonitor(spark, console=console, prometheus_port=0) as monitor:
        assert monitor.url is not None
        assert monitor.url.startswith("http://127.0.0.1:")
        url = monitor.url
        assert scraped(url)["penstock_batches_total",] == 0
        query = started(joined, tmp_path / "out")
        query.awaitTermination()
        until(lambda: len(monitor.history) == FILES)
        told = scraped(url)
    totals = monitor.totals
    results = sum(spark.read.parquet(str(tmp_path / "out" / str(batch))).count() for batch in range(FILES))
    assert totals["results"] == results > 0
    assert totals["arrived_left"] == totals["arrived_right"] == FILES * ROWS
    assert totals["evicted_left"] + totals["evicted_right"] == sum(totals["evicted_per_bucket"].values()) > 0
    assert 0 < totals["recall"] < 1
    assert totals["peak_bytes"] > 0
    assert [each["batch"] for each in monitor.history] == [0, 1, 2]
    assert sum(each["results"] for each in monitor.history) == results
    assert monitor.history[-1]["overall_recall"] == totals["recall"]
    assert monitor.state == "stopped"

    assert told["penstock_results_total",] == results
    assert told["penstock_arrived_rows_total", "left"] == FILES * ROWS
    assert told["penstock_evicted_rows_total", "right"] == totals["evicted_right"]
    assert told["penstock_bucket_evicted_rows_total", "1"] == totals["evicted_per_bucket"][1]
    assert told["penstock_buffered_rows", "left"] == totals["buffered_left"]
    assert told["penstock_recall",] == totals["recall"]
    weighed = [value for name, value in told.items() if name[0] == "penstock_worker_memory_bytes"]
    assert sum(weighed) == monitor.history[-1]["worker_bytes"] > 2**25
    assert all(name[0].startswith("penstock_") for name in told)

    shown = console.export_text()
    for part in ("penstock  stopped", "batch 2", "all", f"{results:,}", "estimated recall", "of workers"):
        assert part in shown
    assert max(len(line) for line in shown.splitlines()) <= 90

    assert monitor.url is None
    with pytest.raises(urllib.error.URLError):
        urllib.request.urlopen(url, timeout=10)
    started(joined, tmp_path / "unseen").awaitTermination()
    assert monitor.totals == totals


def test_a_query_that_fails_and_goes_on(spark: Any, joined: DataFrame, tmp_path: Path) -> None:
    failures = [1]

    def fail_once(rows: DataFrame, batch: int) -> None:
        if batch in failures:
            failures.remove(batch)
            raise RuntimeError("the sink is away")
        rows.write.format("noop").mode("overwrite").save()

    monitor = PipelineMonitor(spark, console=False)
    with pytest.raises(StreamingQueryException), monitor:
        started(joined, tmp_path / "out", fail_once).awaitTermination()
    assert monitor.state.startswith("failed: ")
    assert [each["batch"] for each in monitor.history] == [0]
    with monitor:
        started(joined, tmp_path / "out", fail_once).awaitTermination()
    assert monitor.state == "stopped"
    assert [each["batch"] for each in monitor.history] == [0, 1, 2]


def test_other_queries_are_not_counted(spark: Any, joined: DataFrame, tmp_path: Path) -> None:
    with PipelineMonitor(spark, "another", console=False) as monitor:
        started(joined, tmp_path / "out").awaitTermination()
    assert monitor.history == []
    assert monitor.totals["batches"] == 0
    assert monitor.totals["recall"] == 1.0


def test_lookups_and_queues_are_told_of(spark: Any, tmp_path: Path) -> None:
    batch = pa.record_batch({"item": [1, 2, 1, 1, 3, 3]})
    register_queue_source(spark)

    def fetch(keys: list[Any]) -> dict[Any, dict[str, str]]:
        return {key: {"name": f"item {key}"} for key in keys}

    console = Console(file=io.StringIO(), record=True, width=90)
    with QueueServer(tmp_path / "queues") as server, QueueClient(server.location) as client:
        client.producer("clicks", batch.schema).put(batch)
        clicks = (
            spark.readStream.format("penstock_queue")
            .option("location", server.location)
            .option("queue", "clicks")
            .option("maxRowsPerTrigger", 4)
            .load()
        )
        named = lookup_join(clicks, fetch, on="item", budget=10, buckets=1, schema={"name": pa.string()})
        with PipelineMonitor(spark, "penstock-lookup", console=console, prometheus_port=0) as monitor:
            assert monitor.url is not None
            started(named, tmp_path / "out").awaitTermination()
            until(lambda: len(monitor.history) == 2)
            with urllib.request.urlopen(monitor.url, timeout=10) as answer:
                told = answer.read().decode()
    assert [(each["hits"], each["requests"]) for each in monitor.history] == [(2, 4), (1, 2)]
    assert [each["waiting"] for each in monitor.history] == [{"clicks": 2}, {"clicks": 0}]
    totals = monitor.totals
    assert (totals["hits"], totals["requests"], totals["waiting"]) == (3, 6, {"clicks": 0})
    assert totals["recall"] is None  # there is no join
    assert "penstock_recall" not in told
    assert 'penstock_lookup_hits_total{join="penstock-lookup"} 3.0' in told
    assert 'penstock_queue_waiting_rows{join="penstock-lookup",queue="clicks"} 0.0' in told
    shown = console.export_text()
    assert "lookup hits" in shown
    assert "50.0 %" in shown
    assert "waiting in queues" in shown


def test_a_port_that_is_taken(spark: Any) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(PenstockError, match=f"Cannot listen on 127.0.0.1:{port}"):
            PipelineMonitor(spark, console=False, prometheus_port=port).__enter__()


def told(*buckets: dict[str, Any]) -> dict[str, Any]:
    """Figures as a query tells them, from those of its buckets."""
    names = {name for each in buckets for name in each} - {"bucket"}
    return {name: sum(each.get(name, 0) for each in buckets) for name in names} | {"buckets": list(buckets)}


def test_a_bucket_that_says_nothing_keeps_what_it_had() -> None:
    totals = RunningTotals()
    totals.add(told({"bucket": 0, "buffered_left": 5}, {"bucket": 1, "buffered_left": 7, "peak_bytes": 10}))
    totals.add(told({"bucket": 0, "buffered_left": 1, "peak_bytes": 2}))
    totals.add({"results": None, "buckets": []})
    totals = totals.totals()
    assert totals["buffered_left"] == 8
    assert totals["peak_bytes"] == 12
    assert totals["batches"] == 3
    assert totals["advice"] is None


def test_the_memory_of_workers_is_told_once_per_worker() -> None:
    totals = RunningTotals()
    one, other = ({"bucket": i, "worker": 7 + i, "worker_bytes": 100 + i} for i in range(2))
    totals.add(told(one, other, {"bucket": 2, "worker": 7, "worker_bytes": 100}))
    assert totals.history[-1]["worker_bytes"] == 201
    assert (totals.history[-1]["workers"], totals.history[-1]["worker_most_bytes"]) == (2, 101)
    # Its buckets move to another worker: the first is of no account.
    totals.add(told(other, *({"bucket": i, "worker": 9, "worker_bytes": 50} for i in (0, 2))))
    assert totals.history[-1]["worker_bytes"] == 151
    assert totals.totals()["workers"] == {8: 101, 9: 50}
    assert totals.totals()["worker_bytes"] == 201
    # A system that does not say.
    silent = RunningTotals()
    silent.add(told({"bucket": 0, "worker": 7}))
    assert (silent.history[-1]["worker_bytes"], silent.totals()["workers"]) == (None, {})


def test_a_hot_bucket_is_worth_a_word() -> None:
    totals = RunningTotals()
    totals.add(told(*[{"bucket": i, "evicted_left": 10} for i in range(8)]))
    assert totals.advice() is None
    totals.add(told({"bucket": 3, "evicted_left": 100, "evicted_right": 20}))
    advice = totals.advice()
    assert advice is not None
    assert advice.startswith("Bucket 3 has 65 % of all evictions, 5.2 times its share.")
    for word in ("memory", "buckets", "salt"):
        assert word in advice
