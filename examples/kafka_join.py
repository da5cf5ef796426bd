"""Two topics of Kafka, a join in bounded memory, a topic of results, and an archive of rows that were lost.

    spark-submit --packages org.apache.spark:spark-sql-kafka-0-10_2.13:4.3.0 \
        examples/kafka_join.py broker:9092 FOLDER

It reads the topics `shown` and `clicked`, whose messages are JSON with the columns of `SCHEMA`, and joins a
click with the impressions of its ad in the ten minutes before. Killed at any point and started again, it
continues from its checkpoint. A batch that was interrupted sends its results again, each under the key that
it had before.
`--reconcile` sends the results that the query has missed so far.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from penstock.spark import PipelineMonitor, bounded_join, reconcile, write_split

SCHEMA = "ad string, ts timestamp"
JOIN: dict[str, Any] = {"on": "ad", "time": "ts", "within": ("0 s", "10 minutes")}
TOPICS = ("shown", "clicked", "hits")  # both inputs, and the results
EXACT = {"timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX"}  # JSON has milliseconds by default


def rows_of(messages: DataFrame, schema: str = SCHEMA) -> DataFrame:
    """The rows in the messages of a topic; `id` is the place of a message, which no other message has."""
    row = F.from_json(F.col("value").cast("string"), schema, EXACT)
    return messages.select(row.alias("row"), F.concat_ws(":", "partition", "offset").alias("id")).select(
        "row.*", "id"
    )


def stream(spark: SparkSession, servers: str, topic: str, limit: int) -> DataFrame:
    """A topic from its beginning, at most so many messages in a batch."""
    reader = spark.readStream.format("kafka").option("kafka.bootstrap.servers", servers)
    reader = reader.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", limit)
    return reader.option("subscribe", topic).load()


def table(spark: SparkSession, servers: str, topic: str) -> DataFrame:
    """All messages of a topic that are there now."""
    reader = spark.read.format("kafka").option("kafka.bootstrap.servers", servers)
    return reader.option("subscribe", topic).load()


def to_topic(servers: str, topic: str) -> Callable[[DataFrame, int], None]:
    """A sink that sends results; the key of a message is made of the places of the two rows."""

    def send(results: DataFrame, batch: int) -> None:
        key = F.concat_ws("/", "id_left", "id_right").alias("key")
        messages = results.select(key, F.to_json(F.struct(*results.columns), EXACT).alias("value"))
        writer = messages.write.format("kafka").option("kafka.bootstrap.servers", servers)
        writer.option("topic", topic).save()

    return send


def results_of(spark: SparkSession, servers: str, topic: str) -> DataFrame:
    """The results in a topic. Those that were sent twice have the same key; one of them stays."""
    messages = table(spark, servers, topic).dropDuplicates(["key"])
    schema = "ad string, ts_left timestamp, id_left string, ts_right timestamp, id_right string"
    return rows_of(messages, schema).drop("id")


def start(
    spark: SparkSession,
    servers: str,
    folder: str,
    *,
    budget: Any,
    limit: int,
    trigger: Any,
    topics: tuple[str, str, str] = TOPICS,
    **options: Any,
) -> Any:
    """Start the query: results go to a topic, and rows that were lost to an archive."""
    shown, clicked = (rows_of(stream(spark, servers, topic, limit)) for topic in topics[:2])
    joined = bounded_join(shown, clicked, **JOIN, budget=budget, emit="all", name="clicks", **options)
    return write_split(
        joined,
        results=to_topic(servers, topics[2]),
        archive=f"{folder}/lost",
        checkpoint=f"{folder}/checkpoint",
        trigger=trigger,
    )


def missed(
    spark: SparkSession, servers: str, folder: str, topics: tuple[str, str, str] = TOPICS
) -> DataFrame:
    """The results of the exact join that are not in the topic of results."""
    shown, clicked = (rows_of(table(spark, servers, topic)) for topic in topics[:2])
    found = results_of(spark, servers, topics[2])
    return reconcile(f"{folder}/lost", shown, clicked, **JOIN, results=found)


def main() -> None:
    """Run the query until it is stopped, or find what it has missed."""
    parser = argparse.ArgumentParser(description="Two topics, a join in bounded memory, a topic of results.")
    parser.add_argument("servers", help="the brokers, as host:port")
    parser.add_argument("folder", help="the folder for checkpoint and archive")
    parser.add_argument("--budget", default="64 MiB")
    parser.add_argument("--policy", default="auto")
    parser.add_argument("--limit", type=int, default=200_000, help="messages of a topic in a batch")
    parser.add_argument("--every", default="5 seconds", help="time from one batch to the next")
    parser.add_argument("--metrics", type=int, help="port for Prometheus on all addresses")
    parser.add_argument("--reconcile", action="store_true", help="send what the query has missed so far")
    given = parser.parse_args()
    spark = SparkSession.builder.appName("kafka_join").getOrCreate()
    if given.reconcile:
        to_topic(given.servers, TOPICS[2])(missed(spark, given.servers, given.folder), -1)
        return
    with PipelineMonitor(spark, "clicks", prometheus_port=given.metrics, address="0.0.0.0"):
        start(
            spark,
            given.servers,
            given.folder,
            budget=given.budget,
            limit=given.limit,
            trigger=given.every,
            policy=given.policy,
        ).awaitTermination()


if __name__ == "__main__":
    main()
