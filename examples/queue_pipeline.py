"""Two bursty producers, a queue for each, a join in bounded memory, and Parquet files.

    python -m examples.queue_pipeline FOLDER

The producers push at their own pace, bursts included. The queues keep 1 MiB each in memory and the rest on
disk, and Spark takes from them what it can work off in a batch. Killed at any point and started again, the
pipeline continues from its checkpoint.
"""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa

from penstock.queues import QueueClient, QueueServer
from penstock.spark import bounded_join, register_queue_source
from penstock.workloads import bursty_pair


def produce(location: str, queue: str, rows: pd.DataFrame) -> None:
    """Push the rows of each quarter of a second as one batch."""
    times = pd.to_datetime(rows.ts, unit="ms", utc=True).astype("datetime64[us, UTC]")
    frame = pd.DataFrame({"ad": rows.key, "ts": times, queue: range(len(rows))})
    schema = pa.Schema.from_pandas(frame, preserve_index=False).remove_metadata()
    with QueueClient(location) as client, client.producer(queue, schema, name=queue) as producer:
        for _, part in frame.groupby(rows.ts // 250):
            producer.put(pa.RecordBatch.from_pandas(part, schema, preserve_index=False))


def run(spark: Any, folder: Path, seconds: float = 20, budget: str = "20000 tuples") -> int:
    """The whole pipeline on generated streams; how many results are in the Parquet files."""
    register_queue_source(spark)
    shown, clicked = bursty_pair(seconds, rate=100, factor=30, keys=500)
    with QueueServer(folder / "queues", memory="1 MiB") as server:
        producers = [
            threading.Thread(target=produce, args=(server.location, name, rows))
            for name, rows in (("shown", shown), ("clicked", clicked))
        ]
        for thread in producers:
            thread.start()
        for thread in producers:
            thread.join()
        streams = [
            spark.readStream.format("penstock_queue")
            .option("location", server.location)
            .option("queue", name)
            .option("maxRowsPerTrigger", 5_000)
            .load()
            for name in ("shown", "clicked")
        ]
        joined = bounded_join(*streams, on="ad", time="ts", within="1 second", budget=budget, policy="gdj")
        query = (
            joined.writeStream.format("parquet")
            .option("path", str(folder / "hits"))
            .option("checkpointLocation", str(folder / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        found: int = spark.read.parquet(str(folder / "hits")).count()
        return found


def main() -> None:
    """Run it once."""
    from pyspark.sql import SparkSession

    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "pipeline")
    spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
    print(f"{run(spark, folder):,} results in {folder / 'hits'}")


if __name__ == "__main__":
    main()
