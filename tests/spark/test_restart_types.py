"""At a restart, columns may become wider; other types are refused with one sentence of ours."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import functions as F

from penstock.errors import PenstockError
from penstock.spark import bounded_join, match_pattern
from penstock.spark.runtime.payload_table import PayloadTable
from penstock.spark.runtime.state_log import refuse_changes
from tests.spark.conftest import write_files

JOIN: dict[str, Any] = {"on": "k", "time": "ts", "within": 100, "budget": "50 tuples", "policy": "fifo"}
Shape = Callable[[Any], Any]


def rows(first: int) -> pd.DataFrame:
    """Ten rows, of which each has the key of one that came before them."""
    numbers = range(first, first + 10)
    return pd.DataFrame(
        {"k": [n % 10 for n in numbers], "ts": list(numbers), "n": list(numbers), "type": ["A", "B"] * 5}
    ).astype({"k": "int32", "n": "int32"})


def run(query: Any, checkpoint: Path) -> list[Any]:
    """The rows of a query over what there is."""
    parts: list[Any] = []
    started = (
        query.writeStream.foreachBatch(lambda frame, _: parts.extend(frame.collect()))
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    started.awaitTermination()
    return parts


def joined(stream: Any, shape: Shape, **changes: Any) -> Any:
    return bounded_join(shape(stream), stream, **(JOIN | changes))


def matched(stream: Any, shape: Shape) -> Any:
    pattern = "PATTERN SEQ(A a, B b, a.k = b.k) WITHIN 100 RETURN a.n AS n"
    return match_pattern(shape(stream), pattern, partition_by="k")


@pytest.fixture(scope="module")
def begun(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Path]:
    """A stream of two files, and the checkpoints of a join and a pattern that have seen the first."""
    folder = tmp_path_factory.mktemp("types")
    files = write_files(folder / "files", [rows(0)])
    stream = spark.readStream.schema(spark.read.parquet(str(files)).schema).parquet(str(files))
    for name, query in (("join", joined), ("match", matched)):
        run(query(stream, lambda frame: frame), folder / name)
    write_files(files, [rows(0), rows(10)])
    return stream, folder


def restarted(begun: Any, name: str, query: Any, tmp_path: Path) -> list[Any]:
    shutil.copytree(begun[1] / name, tmp_path / "checkpoint")
    return run(query, tmp_path / "checkpoint")


def cast(column: str, kind: str) -> Shape:
    return lambda frame: frame.withColumn(column, F.col(column).cast(kind))


@pytest.mark.parametrize(
    ("shape", "reason"),
    [
        (
            cast("n", "string"),
            "the type of 'n' of the left stream cannot .* was int and is now string",
        ),
        (cast("n", "smallint"), "the type of 'n' of the left stream cannot change"),
        (
            cast("k", "bigint"),
            "the type in which keys are compared .* was int and is now bigint",
        ),
        (lambda frame: frame.withColumnRenamed("n", "m"), "the columns cannot change"),
        (lambda frame: frame.drop("n"), "the columns cannot change"),
        (lambda frame: frame.withColumn("more", F.lit(1)), "the columns cannot change"),
    ],
)
def test_a_join_refuses_other_columns(begun: Any, tmp_path: Path, shape: Shape, reason: str) -> None:
    with pytest.raises(StreamingQueryException, match=f"PenstockError: {reason}") as caught:
        restarted(begun, "join", joined(begun[0], shape), tmp_path)
    assert "ArrowInvalid" not in str(caught.value)


def test_a_join_goes_on_with_wider_columns_and_another_lateness(begun: Any, tmp_path: Path) -> None:
    found = restarted(begun, "join", joined(begun[0], cast("n", "bigint"), lateness="1 second"), tmp_path)
    # Ten old rows a side, ten new ones: each new one with the old and the new one of its key.
    assert sorted((row["n_left"], row["n_right"]) for row in found) == sorted(
        pair for n in range(10) for pair in ((n, n + 10), (n + 10, n), (n + 10, n + 10))
    )
    # Afterwards the columns are as wide as they have become.
    write_files(begun[1] / "files", [rows(0), rows(10), rows(20)])
    with pytest.raises(StreamingQueryException, match="was bigint and is now int"):
        run(joined(begun[0], lambda frame: frame), tmp_path / "checkpoint")


def test_a_pattern_refuses_other_types(begun: Any, tmp_path: Path) -> None:
    with pytest.raises(StreamingQueryException, match="PenstockError: the type of 'n' of the event stream"):
        restarted(begun, "match", matched(begun[0], cast("n", "string")), tmp_path)


def test_states_of_an_older_version_which_noted_no_types(tmp_path: Path) -> None:
    """What does not fit is refused all the same, when the rows meet."""
    refuse_changes({"the window": "1"}, {"the window": "1", "the type of 'n' of the left stream": "string"})
    payload_table = PayloadTable()
    payload_table.append(pa.table({"n": pa.array([1], pa.int32())}))
    payload_table.append(pa.table({"n": pa.array([1 << 40], pa.int64())}))
    assert payload_table.take([0, 1])["n"].to_pylist() == [1, 1 << 40]
    with pytest.raises(PenstockError, match="one was int64 and is now string"):
        payload_table.append(pa.table({"n": ["x"]}))
    with pytest.raises(PenstockError, match="columns of a query cannot change"):
        payload_table.append(pa.table({"m": [1]}))


def test_a_session_in_another_time_zone_goes_on() -> None:
    payload_table = PayloadTable()
    for zone in ("America/New_York", "UTC"):
        payload_table.append(pa.table({"at": pa.array([0], pa.timestamp("us", zone))}))
    assert payload_table.take([0, 1])["at"].cast(pa.int64()).to_pylist() == [0, 0]
    with pytest.raises(PenstockError, match="types of columns cannot change"):
        payload_table.append(pa.table({"at": pa.array([0], pa.timestamp("us"))}))
