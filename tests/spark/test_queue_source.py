"""The source `penstock_queue`: a stream in batches of a given size, exactly once over restarts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from penstock.queues import QueueClient, QueueServer
from penstock.spark import register_queue_source

SCHEMA = pa.schema({"n": pa.int64(), "s": pa.string()})


def batch(first: int, rows: int) -> Any:
    return pa.record_batch({"n": list(range(first, first + rows)), "s": ["é"] * rows}, schema=SCHEMA)


def run(
    spark: Any, server: QueueServer, folder: Path, most: int | None, fail_at: int | None = None
) -> list[Any]:
    """One run until all is read; the rows of each batch, which are kept by batch id, as a good sink does."""
    sizes = []

    def keep(frame: Any, number: int) -> None:
        rows = [row.n for row in frame.collect()]
        sizes.append(len(rows))
        if fail_at is not None and len(sizes) > fail_at:
            raise RuntimeError("the sink fails")
        (folder / f"{number:05d}").write_text("\n".join(map(str, rows)))

    stream = (
        spark.readStream.format("penstock_queue").option("location", server.location).option("queue", "q")
    )
    if most is not None:
        stream = stream.option("maxRowsPerTrigger", most)
    query = (
        stream.load()
        .writeStream.foreachBatch(keep)
        .option("checkpointLocation", str(folder.parent / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return sizes


def test_a_stream_is_read_once(spark: Any, tmp_path: Path) -> None:
    register_queue_source(spark)
    out = tmp_path / "out"
    out.mkdir()
    with QueueServer(tmp_path / "server", memory="256 KiB") as server, QueueClient(server.location) as client:
        producer = client.producer("q", SCHEMA)
        producer.put_many([batch(at, 1_000) for at in range(0, 50_000, 1_000)])
        with pytest.raises(Exception, match="the sink fails"):
            run(spark, server, out, 20_300, fail_at=1)
        producer.put(batch(50_000, 77))
        port = server.port
    # The server is another one now, the checkpoint is the same: what failed is read again.
    with (
        QueueServer(tmp_path / "server", memory="256 KiB", port=port) as server,
        QueueClient(server.location) as client,
    ):
        assert run(spark, server, out, 20_300) == [20_300, 9_477]
        client.producer("q", SCHEMA).put(batch(50_077, 3))
        assert run(spark, server, out, None) == [3]
        rows = [int(n) for file in sorted(out.iterdir()) for n in file.read_text().split()]
        assert sorted(rows) == list(range(50_080))
        committed, end = client.offsets("q")
        assert end == 50_080
        assert committed >= 50_077
        loaded = spark.read.format("penstock_queue").option("location", server.location).option("queue", "q")
        assert loaded.load().count() == end - committed


def test_bad_options_are_refused(spark: Any) -> None:
    register_queue_source(spark)
    for options, word in (
        ({"queue": "q"}, "location"),
        ({"location": "grpc://127.0.0.1:1", "queue": "q", "maxRows": 3}, "did you mean"),
        ({"location": "grpc://127.0.0.1:1", "queue": "q", "maxRowsPerTrigger": "x"}, "whole number"),
    ):
        with pytest.raises(Exception, match=word):
            spark.read.format("penstock_queue").options(**options).load()


def test_a_wrong_token_is_told_of(spark: Any, tmp_path: Path) -> None:
    register_queue_source(spark)
    with QueueServer(tmp_path, token="secret") as server:
        with QueueClient(server.location, token="secret") as client:
            client.producer("q", SCHEMA).put(batch(0, 3))
        where = {"location": server.location, "queue": "q"}
        assert spark.read.format("penstock_queue").options(**where, token="secret").load().count() == 3
        for token in ({}, {"token": "wrong"}):
            with pytest.raises(Exception, match="requires a token") as caught:
                spark.read.format("penstock_queue").options(**where, **token).load()
            assert "QueueError" in str(caught.value)


def test_a_second_query_is_told_that_its_rows_are_gone(spark: Any, tmp_path: Path) -> None:
    """A queue has one consumer: what one query confirms is gone for the other, which fails and says so."""
    register_queue_source(spark)
    for name in ("a/out", "b/out"):
        (tmp_path / name).mkdir(parents=True)
    with QueueServer(tmp_path / "server") as server, QueueClient(server.location) as client:
        producer = client.producer("q", SCHEMA)
        producer.put(batch(0, 10))
        assert run(spark, server, tmp_path / "a" / "out", 5) == [5, 5]
        client.commit("q", 8)  # another consumer, ahead of the query's checkpoint at the next row
        producer.put(batch(10, 10))
        assert run(spark, server, tmp_path / "a" / "out", None) == [10]
        client.commit("q", 20)
        producer.put(batch(20, 10))
        client.commit("q", 25)
        with pytest.raises(Exception, match="A queue has one consumer"):
            run(spark, server, tmp_path / "a" / "out", None)
