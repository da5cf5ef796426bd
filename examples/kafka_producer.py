"""Sends impressions and clicks with bursts to two topics of Kafka, as fast as the clock, until it is stopped.

    spark-submit --packages org.apache.spark:spark-sql-kafka-0-10_2.13:4.3.0 \
        examples/kafka_producer.py broker:9092

Its rows are those that `examples/kafka_join.py` reads.
"""

from __future__ import annotations

import argparse
import itertools
import time
from datetime import UTC, datetime
from typing import Any

import pandas as pd
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from penstock.workloads import bursty_pair

MINUTE = 60_000  # milliseconds


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


def run(spark: SparkSession, servers: str, minutes: int | None = None, **workload: Any) -> None:
    """Send a minute of two bursty streams after the other, each when its second has come."""
    for minute in itertools.count() if minutes is None else range(minutes):
        start = datetime.now(UTC).timestamp()
        streams = bursty_pair(60, seed=minute, **({"rate": 100, "factor": 30, "keys": 5_000} | workload))
        for until in range(5_000, MINUTE + 1, 5_000):
            time.sleep(max(0.0, start + until / 1_000 - time.time()))
            for topic, rows in zip(("shown", "clicked"), streams, strict=True):
                part = rows[(rows.ts >= until - 5_000) & (rows.ts < until)]
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
