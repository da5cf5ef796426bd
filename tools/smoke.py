"""Every operator once, with an installed Penstock: run from any folder, by the Python that has it.

Each check compares with an answer that is found here in the plainest way, or by Spark's own join.
"""

from __future__ import annotations

import itertools
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from smoke_checks import run_checks

import penstock as ps

WITHIN = 30
SETTINGS = {"on": "k", "time": "ts"}


def stream(seed: int, rows: int = 120, value: str = "v") -> pd.DataFrame:
    """Rows in order of time, with ties."""
    rng = np.random.default_rng(seed)
    return pd.DataFrame(
        {"k": rng.integers(0, 8, rows), "ts": np.sort(rng.integers(0, 400, rows)), value: np.arange(rows)}
    )


LEFT, RIGHT = stream(1, value="a"), stream(2, value="b")


def pairs_of(left: pd.DataFrame, right: pd.DataFrame) -> set[tuple[int, int]]:
    """The exact join, by row numbers."""
    near = {
        (x.Index, y.Index)
        for x, y in itertools.product(left.itertuples(), right.itertuples())
        if x.k == y.k and abs(x.ts - y.ts) <= WITHIN
    }
    return near


EXACT = pairs_of(LEFT, RIGHT)


def window_join() -> None:
    """Every policy: all results with enough memory, and some of them, all true, with little."""
    for policy in ps.policies.names():
        spec = ps.policies.get(policy)
        if spec.needs_model or spec.needs_future or spec.reads_values:
            continue
        for budget in (1_000, 8):
            join = ps.WindowJoin(within=WITHIN, budget=ps.Tuples(budget), policy=policy)
            run = join.run(LEFT, RIGHT, collect=True, **SETTINGS)
            found = {(row["left_row"], row["right_row"]) for row in run.pairs.to_pylist()}
            assert run.stats.exact == len(EXACT), policy
            assert found <= EXACT, policy
            assert found, policy
            assert (found == EXACT) == (budget == 1_000), policy
            assert run.stats.results == len(found), policy
            assert run.stats.peak_tuples <= budget, policy


def window_join_in_batches() -> None:
    """Batches and a restored snapshot give what one run gives."""
    join = ps.WindowJoin(within=WITHIN, budget=ps.Tuples(8), policy="gdj")
    whole = join.run(LEFT, RIGHT, **SETTINGS).stats.results
    both = pd.concat([LEFT.assign(stream=0, row=LEFT.index), RIGHT.assign(stream=1, row=RIGHT.index)])
    both = both.sort_values(["ts", "stream", "row"])
    state = join.start()
    found = 0
    for start in range(0, len(both), 50):
        part = both.iloc[start : start + 50]
        found += int(state.process(part.stream, part.k, part.ts, part.row).counts.sum())
        state = ps.JoinState.restore(state.snapshot())
    assert found == whole, (found, whole)


def optimum_and_plan() -> None:
    best = ps.optimal_join(LEFT, RIGHT, within=WITHIN, budget=ps.Tuples(8), **SETTINGS).stats.results
    plan = ps.plan(LEFT, RIGHT, within=WITHIN, budgets=[ps.Tuples(8)], policies=["fifo", "gdj"], **SETTINGS)
    most = plan.table.loc[["fifo", "gdj"]].to_numpy().max() * len(EXACT)
    assert most <= best + 1e-6
    assert best <= len(EXACT)


def join_many() -> None:
    third = stream(3, value="c")
    run = ps.join_many(
        {"a": LEFT, "b": RIGHT, "c": third}, within=WITHIN, budget=ps.Tuples(1_000), policy="lru", **SETTINGS
    )
    expected = 0
    for (x, y), z in itertools.product(EXACT, third.itertuples()):
        times = (LEFT.ts[x], RIGHT.ts[y], z.ts)
        expected += z.k == LEFT.k[x] and max(times) - min(times) <= WITHIN
    assert run.stats.results == expected, (run.stats.results, expected)


def database(folder: str) -> str:
    """An SQLite file with the names of four of the eight keys."""
    path = Path(folder) / "names.db"
    with sqlite3.connect(path) as made:
        made.execute("CREATE TABLE names (id INTEGER PRIMARY KEY, name TEXT)")
        made.executemany("INSERT INTO names VALUES (?, ?)", [(i, f"n{i}") for i in range(4)])
    made.close()
    return f"sqlite:///{path}"


def expected_names() -> list[str | None]:
    return [f"n{k}" if k < 4 else None for k in LEFT.k]


def lookup() -> None:
    with tempfile.TemporaryDirectory() as folder:
        cache = ps.LookupCache((database(folder), "names"), key="id", budget=ps.Tuples(2), policy="lru")
        run = cache.run(LEFT, on="k")
        assert run.table["name"].to_pylist() == expected_names()
        assert run.stats.hits + run.stats.misses == len(LEFT)


def queue() -> None:
    items = [f"item {i}".encode() * 20 for i in range(5_000)]
    with tempfile.TemporaryDirectory() as folder:
        with ps.SpillQueue(f"{folder}/one", memory="64 KiB", durable=True) as made:
            made.put_many(items)
            assert made.get_many(1_000) == items[:1_000]
            made.commit()
        with ps.SpillQueue(f"{folder}/one", memory="64 KiB", durable=True) as made:
            assert made.get_many(5_000) == items[1_000:]
        with ps.SpillQueues(f"{folder}/two", queues=2, memory="64 KiB") as both:
            both.put_many(0, items)
            both.put_many(1, items[:10])
            assert both.get_many(1, 10) == items[:10]
            assert both.get_many(0, 5_000) == items


EVENTS = {
    "type": ["A", "B", "C", "A", "C", "B"],
    "ts": [0, 1, 2, 3, 4, 50],
    "x": [1, 1, 1, 2, 1, 1],
}


def pattern() -> None:
    """A, then C of the same x within 10, with no B between."""
    text = "PATTERN SEQ(A a, !B b, C c) WITHIN 10"
    for strategy in ("columnar", "semantic", "object", "iterative"):
        run = ps.Pattern.parse(text).run(EVENTS, type="type", time="ts", strategy=strategy)
        assert run.matches.to_pylist() == [{"a": 3, "c": 4}], strategy


TRIPLES = {"s": list("abcd"), "p": ["reports"] * 4, "o": [12, 12, 7, 12], "start": [0, 100, 150, 250]}
QUERY = """
    SELECT ?x, ?y FROM STREAM wind
    WHERE { ?x reports ?w ?T1 . ?y reports ?w ?T2 . FILTER (?x != ?y) . }
    CONTEXT ((?T1 - ?T2) <= 200^^xsd:millisecond) .
"""
ANSWER = {("b", "a"), ("a", "b"), ("d", "b"), ("b", "d")}


def stream_query() -> None:
    run = ps.StreamQuery.parse(QUERY).run({"wind": TRIPLES}, budget=ps.Tuples(100), policy="clock")
    assert {(row["x"], row["y"]) for row in run.rows.to_pylist()} == ANSWER


def command_line() -> None:
    with tempfile.TemporaryDirectory() as folder:
        for name, frame in (("left", LEFT), ("right", RIGHT)):
            frame.to_csv(f"{folder}/{name}.csv", index=False)
        command = Path(sys.executable).parent / "penstock"
        files = ["left.csv", "right.csv", "--on", "k", "--time", "ts", "--within", str(WITHIN)]
        for words in (["policies"], ["plan", *files, "--policies", "fifo,lru", "--json", "plan.json"]):
            done = subprocess.run([command, *words], cwd=folder, capture_output=True, text=True, timeout=300)
            assert done.returncode == 0, done.stderr
        assert "fifo" in Path(folder, "plan.json").read_text()


def on_spark() -> None:
    """Batch and streaming joins, reconciliation, and the other operators, in one session."""
    import pyspark
    from pyspark.sql import SparkSession

    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    try:
        with tempfile.TemporaryDirectory() as folder:
            for check in (
                spark_join,
                spark_stream,
                spark_asof,
                spark_many,
                spark_lookup,
                spark_pattern,
                spark_query,
            ):
                check(spark, folder)
                print("   ", check.__name__)
            if pyspark.__version__ >= "4.2":  # the source of queues needs it
                spark_queue(spark, folder)
    finally:
        spark.stop()


def spark_join(spark: Any, folder: str) -> None:
    from penstock.spark import bounded_join

    frames = [spark.createDataFrame(each) for each in (LEFT, RIGHT)]
    hits = bounded_join(*frames, within=WITHIN, budget="1 MiB", policy="gdj", **SETTINGS)
    assert {(row.a, row.b) for row in hits.collect()} == EXACT


def spark_stream(spark: Any, folder: str) -> None:
    """With little memory, what comes out online and what is reconciled are together the exact join."""
    from penstock.spark import bounded_join, reconcile, write_split

    sides = []
    for name, frame in (("left", LEFT), ("right", RIGHT)):
        path = Path(folder) / name
        path.mkdir()
        for part in range(2):
            frame.iloc[part * 60 : part * 60 + 60].to_parquet(path / f"{part}.parquet")
        schema = spark.createDataFrame(frame).schema
        read = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1)
        sides.append((read.parquet(str(path)), spark.read.schema(schema).parquet(str(path))))
    join = {"within": WITHIN, **SETTINGS}
    hits = bounded_join(*(each[0] for each in sides), budget="8 tuples", policy="lru", emit="all", **join)
    query = write_split(
        hits,
        results=f"{folder}/hits",
        archive=f"{folder}/lost",
        checkpoint=f"{folder}/checkpoint",
        trigger={"availableNow": True},
    )
    query.awaitTermination()
    online = {(row.a, row.b) for row in spark.read.parquet(f"{folder}/hits").collect()}
    rest = reconcile(f"{folder}/lost", *(each[1] for each in sides), **join, results=f"{folder}/hits")
    missed = {(row.a, row.b) for row in rest.collect()}
    assert 0 < len(online) < len(EXACT)
    assert not online & missed
    assert online | missed == EXACT


def spark_asof(spark: Any, folder: str) -> None:
    from penstock.spark import asof_join

    sides = spark.createDataFrame(LEFT), spark.createDataFrame(RIGHT)
    found = asof_join(*sides, tolerance=WITHIN, budget="1000 tuples", policy="lru", **SETTINGS).toPandas()
    right = RIGHT.assign(ts_right=RIGHT.ts)
    exact = pd.merge_asof(LEFT, right, on="ts", by="k", tolerance=WITHIN)
    exact, found = (each.sort_values("a").ts_right.fillna(-1).tolist() for each in (exact, found))
    assert found == exact


def spark_many(spark: Any, folder: str) -> None:
    from penstock.spark import bounded_join_many

    frames = {"x": spark.createDataFrame(LEFT), "y": spark.createDataFrame(RIGHT)}
    found = bounded_join_many(frames, within=WITHIN, budget="1000 tuples", policy="fifo", **SETTINGS)
    assert {(row.a, row.b) for row in found.collect()} == EXACT


def spark_lookup(spark: Any, folder: str) -> None:
    from penstock.spark import lookup_join

    table = (database(folder), "names")
    rows = lookup_join(spark.createDataFrame(LEFT), table, on="k", key="id", budget="2 tuples", policy="lru")
    found = {row.a: row.name for row in rows.select("a", "name").collect()}
    assert [found[a] for a in LEFT.a] == expected_names()


def spark_pattern(spark: Any, folder: str) -> None:
    from penstock.spark import match_pattern

    events = spark.createDataFrame(pd.DataFrame(EVENTS))
    text = "PATTERN SEQ(A a, !B b, C c) WITHIN 10"
    found = match_pattern(events, text, type="type", time="ts").select("a.ts", "c.ts").collect()
    assert [tuple(row) for row in found] == [(3, 4)]


def spark_query(spark: Any, folder: str) -> None:
    from penstock.spark import stream_query as run

    triples = spark.createDataFrame(pd.DataFrame(TRIPLES))
    found = run(QUERY, {"wind": triples}, budget="100 tuples", policy="clock").collect()
    assert {(row.x, row.y) for row in found} == ANSWER


def spark_queue(spark: Any, folder: str) -> None:
    """Rows that a producer pushed over Arrow Flight come out of Spark's source."""
    from penstock.queues import QueueClient, QueueServer
    from penstock.spark import register_queue_source

    register_queue_source(spark)
    batch = pa.RecordBatch.from_pandas(LEFT, preserve_index=False).replace_schema_metadata()
    with QueueServer(Path(folder) / "queues", memory="1 MiB") as server:
        with (
            QueueClient(server.location) as client,
            client.producer("rows", batch.schema, name="p") as producer,
        ):
            producer.put(batch)
        source = spark.readStream.format("penstock_queue").option("location", server.location)
        sink = source.option("queue", "rows").load().writeStream.format("parquet")
        sink = sink.option("path", f"{folder}/rows").option("checkpointLocation", f"{folder}/rows-checkpoint")
        sink.trigger(availableNow=True).start().awaitTermination()
        assert sorted(row.a for row in spark.read.parquet(f"{folder}/rows").collect()) == LEFT.a.tolist()


CHECKS: list[Callable[[], None]] = [
    window_join,
    window_join_in_batches,
    optimum_and_plan,
    join_many,
    lookup,
    queue,
    pattern,
    stream_query,
    command_line,
    on_spark,
]


if __name__ == "__main__":
    sys.exit(run_checks(CHECKS))
