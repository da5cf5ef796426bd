"""Queues of 100-byte records beside persist-queue, diskcache.Deque and raw chunked files; planners in ticks.

Batched: put all in batches of 10,000, then get all in batches of 10,000. Raw: join the records of 1 MB,
write, read, split. The queue has a memory of a quarter of the data, so that most of it goes through the
disk.
"""

from __future__ import annotations

import shutil
import statistics
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.growth import mark

RECORD = 100
BATCH = 10_000


def run(console: Console, quick: bool) -> list[dict[str, Any]]:
    """Everything in one run, in folders of one file system."""
    many = 100_000 if quick else 1_000_000
    few = 1_000 if quick else 5_000
    repetitions = 1 if quick else 3
    records = [b"%0100d" % i for i in range(many)]
    folder = Path(tempfile.mkdtemp(prefix="penstock-bench-"))
    rows: list[dict[str, Any]] = []

    def measure(what: str, how: Callable[[Path, list[bytes]], Any], amount: int) -> float:
        return together({what: how}, amount)[0]

    def together(ways: dict[str, Callable[[Path, list[bytes]], Any]], amount: int) -> list[float]:
        """Ways by turns, so that whatever else the machine does falls on all of them."""
        rates: dict[str, list[float]] = {what: [] for what in ways}
        for number in range(repetitions):
            for what, how in ways.items():
                place = folder / f"{len(rows)}-{number}"
                start = time.perf_counter()
                seconds = how(place, records[:amount])  # of put and get alone, if it says
                rates[what].append(amount / (seconds or time.perf_counter() - start))
                shutil.rmtree(place, ignore_errors=True)
        medians = {what: statistics.median(each) for what, each in rates.items()}
        rows.extend({"what": what, "per_second": round(rate)} for what, rate in medians.items())
        return list(medians.values())

    try:
        batched, raw = together({"batched, SpillQueue": _batched, "batched, raw chunked files": _raw}, many)
        measure("batched, persist-queue (FileQueue)", _persist, few)
        deque = measure("batched, diskcache.Deque with transact", _deque_batched, few)
        single = measure("item-wise, SpillQueue", _single, many // 5)
        deque_single = measure("item-wise, diskcache.Deque", _deque_single, few // 2)
        measure("item-wise, persist-queue (FileQueue)", _persist, few // 2)
        durable = measure("durable, SpillQueue, group commit of 8 threads", _durable, few * 4)
        durable_batched = measure("durable, SpillQueue, batches of 100", _durable_batched, few * 20)
        deque_durable = measure("durable, diskcache.Deque, full sync", _deque_durable, few // 5)
        spark = _spark(rows, folder, 300_000 if quick else 6_000_000)
        planners = _planners(rows, 500_000 if quick else 5_000_000)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    table = Table(title=f"Put and get of {RECORD}-byte records, or ticks; median of {repetitions}")
    table.add_column("what")
    table.add_column("a second", justify="right")
    for row in rows:
        table.add_row(row["what"], f"{row['per_second']:,}")
    console.print(table)
    for text, value, bar in (
        ("batched against diskcache.Deque", batched / deque, 20),
        ("batched against raw chunked files", batched / raw, 0.5),
        ("item-wise against diskcache.Deque", single / deque_single, 10),
        ("durable with group commit against diskcache with full sync", durable / deque_durable, 10),
        ("durable in batches against diskcache with full sync", durable_batched / deque_durable, 10),
        ("through Flight to Spark, rows/s in thousands", spark / 1e3, 500),
        ("slowest planner, millions of ticks", planners / 1e6, 5),
    ):
        rows.append({"what": text, "ratio": round(value, 2), "bar": bar})
        console.print(f"{text}: {value:.1f} ({mark(value >= bar, f'at least {bar:g}')})")
    return rows


def _queue(place: Path, records: list[bytes], **options: Any) -> Any:
    import penstock as ps

    return ps.SpillQueue(place, memory=max(1 << 20, len(records) * RECORD // 4), **options)


def _batched(place: Path, records: list[bytes]) -> float:
    with _queue(place, records) as queue:
        start = time.perf_counter()
        for at in range(0, len(records), BATCH):
            queue.put_many(records[at : at + BATCH])
        for at in range(0, len(records), BATCH):
            assert len(queue.get_many(BATCH)) == min(BATCH, len(records) - at)
        return time.perf_counter() - start


def _raw(place: Path, records: list[bytes]) -> float:
    place.mkdir()
    start = time.perf_counter()
    per_chunk = (1 << 20) // RECORD
    for number, at in enumerate(range(0, len(records), per_chunk)):
        (place / str(number)).write_bytes(b"".join(records[at : at + per_chunk]))
    for number, at in enumerate(range(0, len(records), per_chunk)):
        raw = (place / str(number)).read_bytes()
        split = [raw[i : i + RECORD] for i in range(0, len(raw), RECORD)]
        assert split[0] == records[at]
    return time.perf_counter() - start


def _single(place: Path, records: list[bytes]) -> None:
    with _queue(place, records) as queue:
        for record in records:
            queue.put(record)
        for _ in records:
            queue.get()


def _persist(place: Path, records: list[bytes]) -> None:
    import persistqueue

    queue = persistqueue.Queue(str(place))
    for record in records:
        queue.put(record)
    for _ in records:
        queue.get()
    queue.task_done()


def _deque_batched(place: Path, records: list[bytes]) -> None:
    from diskcache import Deque

    queue = Deque(directory=str(place))
    with queue.transact():
        queue.extend(records)
    with queue.transact():
        for _ in records:
            queue.popleft()
    queue.cache.close()


def _deque_single(place: Path, records: list[bytes]) -> None:
    from diskcache import Deque

    queue = Deque(directory=str(place))
    for record in records:
        queue.append(record)
    for _ in records:
        queue.popleft()
    queue.cache.close()


def _deque_durable(place: Path, records: list[bytes]) -> None:
    from diskcache import Cache, Deque

    queue = Deque.fromcache(Cache(str(place), sqlite_synchronous=2, eviction_policy="none"))
    for record in records:
        queue.append(record)
    for _ in records:
        queue.popleft()
    queue.cache.close()


def _durable(place: Path, records: list[bytes]) -> None:
    """Eight producers, each with ten records a call; calls that wait share a sync."""
    with _queue(place, records, durable=True) as queue:

        def produce(mine: list[bytes]) -> None:
            for at in range(0, len(mine), 10):
                queue.put_many(mine[at : at + 10])

        threads = [threading.Thread(target=produce, args=(records[n::8],)) for n in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(queue.get_many(len(records))) == len(records)
        queue.commit()


def _durable_batched(place: Path, records: list[bytes]) -> None:
    with _queue(place, records, durable=True) as queue:
        for at in range(0, len(records), 100):
            queue.put_many(records[at : at + 100])
        assert len(queue.get_many(len(records))) == len(records)
        queue.commit()


def _planners(rows: list[dict[str, Any]], ticks: int) -> float:
    """Ticks a second of each planner on Poisson arrivals, one queue; the slowest."""
    from penstock.queues import simulate

    arrivals = np.random.default_rng(0).poisson(1.0, ticks)
    rates = []
    for name in ("half", "half-late", "greedy", "greedy-chunk:block=20", "buffered-head"):
        simulate(arrivals[:10], name, memory=1_000)
        start = time.perf_counter()
        done = simulate(arrivals, name, memory=1_000).ticks
        rates.append(done / (time.perf_counter() - start))
        rows.append({"what": f"planner {name}, ticks", "per_second": round(rates[-1])})
    return min(rates)


def _spark(rows: list[dict[str, Any]], folder: Path, number: int) -> float:
    """Rows a second from a server process through Flight to Spark on local[2], without the first batch."""
    import subprocess
    import sys

    import pyarrow as pa

    from benchmarks.spark import local_session
    from penstock.queues import QueueClient
    from penstock.spark import register_queue_source

    command = [sys.executable, "-m", "penstock.cli", "queues", "serve", str(folder / "served"), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            location = server.stdout.readline().split()[-1]
            with QueueClient(location) as client:
                text = ["x" * (RECORD - 8)] * BATCH
                batch = pa.record_batch({"n": np.arange(BATCH), "s": text})
                start = time.perf_counter()
                with client.producer("q", batch.schema) as producer:
                    producer.put_many([batch] * (number // BATCH))
                pushed = number / (time.perf_counter() - start)
            rows.append({"what": "pushed to the server, rows", "per_second": round(pushed)})
            session = local_session()
            register_queue_source(session)
            query = (
                session.readStream.format("penstock_queue")
                .option("location", location)
                .option("queue", "q")
                .option("maxRowsPerTrigger", number // 3)
                .load()
                .writeStream.format("noop")
                .option("checkpointLocation", str(folder / "checkpoint"))
                .trigger(availableNow=True)
                .start()
            )
            query.awaitTermination()
            batches = [p for p in query.recentProgress if p["numInputRows"]]
            assert sum(p["numInputRows"] for p in batches) == number
            rates = [p["numInputRows"] / p["durationMs"]["triggerExecution"] * 1e3 for p in batches[1:]]
            session.stop()
        finally:
            server.kill()
    rows.append({"what": "read by Spark, rows", "per_second": round(statistics.median(rates))})
    return statistics.median(rates)
