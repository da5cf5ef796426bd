"""Sends impressions and clicks with bursts to two topics of Kafka, as fast as the clock, until it is stopped.

    spark-submit --packages org.apache.spark:spark-sql-kafka-0-10_2.13:4.3.0 \
        examples/kafka_producer.py broker:9092

Its rows are those that `examples/kafka_join.py` reads.
"""

from __future__ import annotations

import argparse
import itertools
import time
from typing import Any

import pandas as pd
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from penstock.workloads import bursty_pair


def send(spark: SparkSession, servers: str, topic: str, rows: pd.DataFrame, start: float) -> None:
    """Send rows as messages of JSON; their times count from `start`."""
    times = pd.to_datetime(rows.ts + round(start * 1_000), unit="ms", utc=True).astype("datetime64[us, UTC]")
    frame = spark.createDataFrame(pd.DataFrame({"ad": rows.key.astype(str), "ts": times}))
    stamp = F.date_format("ts", "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX").alias("ts")
    messages = frame.coalesce(1).select(
        F.col("ad").alias("key"), F.to_json(F.struct("ad", stamp)).alias("value")
    )
    writer = messages.write.format("kafka").option("kafka.bootstrap.servers", servers)
    writer.option("topic", topic).save()


def run(
    spark: SparkSession,
    servers: str,
    topics: tuple[str, str] = ("shown", "clicked"),
    *,
    length: int = 60,
    every: int = 5,
    rounds: int | None = None,
    **workload: Any,
) -> None:
    """Send streams of so many seconds one after the other, and what is due every so many seconds."""
    given = {"rate": 100, "factor": 30, "keys": 5_000} | workload
    for number in itertools.count() if rounds is None else range(rounds):
        start = time.time()
        streams = bursty_pair(length, seed=number, **given)
        for due in range(every, length + every, every):
            time.sleep(max(0.0, start + due - time.time()))
            for topic, rows in zip(topics, streams, strict=True):
                part = rows[(rows.ts >= (due - every) * 1_000) & (rows.ts < due * 1_000)]
                if len(part):
                    send(spark, servers, topic, part, start)


def main() -> None:
    """Send until it is stopped."""
    parser = argparse.ArgumentParser(description="Two bursty streams as topics of Kafka.")
    parser.add_argument("servers", help="the brokers, as host:port")
    given = parser.parse_args()
    run(SparkSession.builder.appName("kafka_producer").getOrCreate(), given.servers)


if __name__ == "__main__":
    main()
