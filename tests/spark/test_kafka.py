"""With a real broker and Spark's connector: topics are joined, kills included, and searched for patterns."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import penstock as ps
from examples.kafka_join import EXACT, missed, results_of, rows_of, stream, table
from examples.kafka_producer import run as produce
from penstock.spark import match_pattern
from penstock.workloads import bursty_pair
from tests.spark.programs.kafka import run
from tests.spark.support import START, committed, same_rows
from tests.spark.systems.broker import broker
from tests.spark.systems.jars import KAFKA_BROKER, KAFKA_CONNECTOR, MissingJarsError, fetch
from tests.spark.test_kill import run_with_kills

pytestmark = pytest.mark.spark

JOIN = {"budget": 60, "policy": "lru", "buckets": 2}
LIMIT = 150  # messages of a topic in a batch
PATTERN = """
    PATTERN SEQ(login a, !fail f, buy b, a.who = b.who, a.who = f.who) WITHIN 5 minutes
    RETURN a.who AS who, a.ts AS began, b.ts AS bought
"""


@pytest.fixture(scope="module")
def connector() -> list[Path]:
    """The jars of Spark's connector."""
    try:
        return fetch(*KAFKA_CONNECTOR)
    except MissingJarsError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def servers(spark: Any, connector: list[Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a broker, in a session that has the connector."""
    try:
        jars = fetch(KAFKA_BROKER)
    except MissingJarsError as error:
        pytest.skip(str(error))
    for jar in connector:
        spark.sql(f"ADD JAR '{jar}'")
    with broker(jars, tmp_path_factory.mktemp("kafka")) as address:
        yield address


def some_rows(seed: int, rows: int, start: int, minutes: int = 30) -> pd.DataFrame:
    """Rows of half an hour, in order of their times, which differ: skewed keys, and microseconds."""
    rng = np.random.default_rng(seed)
    at = np.sort(rng.choice(minutes * 60_000_000, rows, replace=False)) + start * 60_000_000
    times = (START + pd.to_timedelta(at, unit="us")).astype("datetime64[us, UTC]")
    return pd.DataFrame({"ad": [f"a{n}" for n in np.minimum(rng.zipf(1.3, rows), 40)], "ts": times})


def send(spark: Any, servers: str, topic: str, rows: pd.DataFrame) -> None:
    """Send rows as JSON, in their order; the first column is the key and decides the partition."""
    frame = spark.createDataFrame(rows).coalesce(1)
    value = F.to_json(F.struct(*frame.columns), EXACT).alias("value")
    messages = frame.select(F.col(frame.columns[0]).cast("string").alias("key"), value)
    writer = messages.write.format("kafka").option("kafka.bootstrap.servers", servers)
    writer.option("topic", topic).save()


def plan_of(servers: str, folder: Path, topics: list[str]) -> dict[str, Any]:
    """The plan of a query with its checkpoint and archive in a folder."""
    folder.mkdir()
    places = {"folder": str(folder), "checkpoint": str(folder / "checkpoint")}
    return {"program": "kafka", "servers": servers, "topics": topics, "limit": LIMIT, "join": JOIN, **places}


def exact(spark: Any, servers: str, topics: list[str]) -> DataFrame:
    """Spark's own join of all that is in the topics."""
    shown, clicked = (
        rows_of(table(spark, servers, topic)).withColumnsRenamed({"ts": f"ts_{side}", "id": f"id_{side}"})
        for topic, side in zip(topics, ("left", "right"), strict=False)
    )
    both = shown.join(clicked, "ad")
    return both.where("ts_right between ts_left and ts_left + interval 10 minutes")


def test_topics_are_joined_into_a_topic_and_an_archive(spark: Any, servers: str, tmp_path: Path) -> None:
    topics = ["shown-1", "clicked-1", "hits-1"]
    plan = plan_of(servers, tmp_path / "query", topics)
    for part in range(2):
        for topic in topics[:2]:
            send(spark, servers, topic, some_rows(part + 10 * (topic > "d"), 400, part * 30))
        sizes = [each["numInputRows"] for each in run(spark, plan).recentProgress if each["numInputRows"]]
        assert sum(sizes) == 800  # nothing is read twice
        assert len(sizes) == 3
        assert max(sizes) <= 2 * LIMIT
    sent = table(spark, servers, topics[2])
    assert sent.count() == sent.select("key").distinct().count()
    found = results_of(spark, servers, topics[2])
    recovered = missed(spark, servers, plan["folder"], tuple(topics))  # type: ignore[arg-type]
    assert found.count() > 100
    assert recovered.count() > 100
    whole = exact(spark, servers, topics).select(*found.columns)
    assert same_rows(found.union(recovered), whole)


def check_kills(
    spark: Any, servers: str, connector: list[Path], folder: Path, rows: int, kills: int, longest: float
) -> None:
    """Kill a query this often; what it gives is what an undisturbed one gives."""
    names = [f"shown-{kills}-kills", f"clicked-{kills}-kills"]
    for seed, topic in enumerate(names):
        send(spark, servers, topic, some_rows(seed, rows, 0, minutes=rows // 15))
    killed = plan_of(servers, folder / "killed", [*names, f"hits-{kills}-kills"])
    killed["conf"] = {"spark.jars": ",".join(map(str, connector))}
    seed = random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}")
    inside = run_with_kills(folder / "killed", killed, kills, longest, seed)
    assert inside >= 1
    whole = plan_of(servers, folder / "whole", [*names, f"hits-{kills}-undisturbed"])
    run(spark, whole)
    batches = [committed(Path(plan["checkpoint"])) for plan in (killed, whole)]
    assert batches[0] == batches[1] >= rows // LIMIT
    sent = [table(spark, servers, plan["topics"][2]).count() for plan in (killed, whole)]
    print(
        f"{inside} of {kills} kills fell into the work of the query; {sent[0] - sent[1]} results sent twice"
    )
    results = [results_of(spark, servers, plan["topics"][2]) for plan in (killed, whole)]
    assert sent[1] == results[1].count()  # an undisturbed query sends each once
    assert same_rows(*results)
    assert same_rows(*(spark.read.parquet(f"{plan['folder']}/lost") for plan in (killed, whole)))


def test_killed(spark: Any, servers: str, connector: list[Path], tmp_path: Path) -> None:
    check_kills(spark, servers, connector, tmp_path, rows=900, kills=1, longest=2)


@pytest.mark.soak
def test_killed_ten_times(spark: Any, servers: str, connector: list[Path], tmp_path: Path) -> None:
    check_kills(spark, servers, connector, tmp_path, rows=9_000, kills=10, longest=6)


def test_the_producer_sends_what_the_join_reads(spark: Any, servers: str) -> None:
    topics = "shown-produced", "clicked-produced"
    produce(spark, servers, topics, length=2, every=1, rounds=1, rate=50)
    for topic, rows in zip(topics, bursty_pair(2, seed=0, rate=50, factor=30, keys=5_000), strict=True):
        got = rows_of(table(spark, servers, topic))
        assert got.count() == got.dropna().count() == len(rows)
        first, last = got.agg(F.unix_millis(F.min("ts")), F.unix_millis(F.max("ts"))).first()
        assert last - first == rows.ts.max() - rows.ts.min()


def test_patterns_of_a_topic(spark: Any, servers: str, tmp_path: Path) -> None:
    events = some_rows(3, 600, 0).rename(columns={"ad": "who"})
    events["type"] = np.random.default_rng(3).choice(["login", "fail", "buy"], len(events))
    last = pd.DataFrame(
        {"who": ["nobody"], "ts": events.ts.max() + pd.Timedelta("2 hours"), "type": ["login"]}
    )
    send(spark, servers, "events", events)
    send(spark, servers, "events", last.astype(events.dtypes.to_dict()))  # whatever waits is over by then
    rows = rows_of(stream(spark, servers, "events", LIMIT), "who string, ts timestamp, type string")
    found = match_pattern(rows, PATTERN, time="ts", lateness="5 minutes")
    query = (
        found.writeStream.format("parquet")
        .option("path", str(tmp_path / "found"))
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    assert committed(tmp_path / "checkpoint") == 5
    expected = ps.Pattern.parse(PATTERN).run(events, type="type", time="ts").matches.to_pylist()
    got = spark.read.parquet(str(tmp_path / "found")).select(
        "who", F.unix_micros("began"), F.unix_micros("bought")
    )
    assert len(expected) > 10
    assert sorted(map(tuple, got.collect())) == sorted(
        (row["who"], *(round(row[name].timestamp() * 1_000_000) for name in ("began", "bought")))
        for row in expected
    )
