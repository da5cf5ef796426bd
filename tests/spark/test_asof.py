"""`asof_join` on Spark: the answers of `pandas.merge_asof`, on streams and tables, across restarts."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pyspark.sql import Observation

import penstock as ps
from penstock.errors import PenstockError
from penstock.spark import asof_join, write_split
from penstock.spark.runtime.asof_join import AsofBucket, AsofSpec
from penstock.spark.runtime.join_bucket import EVENT
from penstock.spark.runtime.join_spec import JoinSide
from penstock.spark.runtime.packer import BUCKET, KEY, AsofPacking, PackedBatch, packer
from tests.oracles.asof import exact_answers
from tests.spark.conftest import write_files
from tests.spark.support import figures, join_program, until

ENOUGH = ps.Tuples(100_000)
DIRECTIONS = ("backward", "forward", "nearest")


def random_side(seed: int, rows: int, first: int, last: int, value: str) -> pd.DataFrame:
    """Rows of a stretch of time with ties, and with keys that are null."""
    random = np.random.default_rng(seed)
    keys = random.integers(0, 12, rows).astype(object)
    keys[random.random(rows) < 0.05] = None
    seconds = np.sort(random.integers(first, last, rows))
    return pd.DataFrame(
        {
            "k": pd.array(keys, "Int64"),
            "name": random.choice(["x", "y"], rows),
            "ts": pd.to_datetime(1_700_000_000 + seconds, unit="s", utc=True).astype("datetime64[us, UTC]"),
            value: np.arange(rows) + 1_000 * seed,
        }
    )


def expected(
    left: pd.DataFrame, right: pd.DataFrame, seconds: int, direction: str, exact: bool
) -> Counter[Any]:
    """The values of each left row and its right row, as `merge_asof` has it."""
    merged = pd.merge_asof(
        left.dropna(subset="k").sort_values("ts", kind="stable"),
        right.dropna(subset="k").sort_values("ts", kind="stable"),
        on="ts",
        by=["k", "name"],
        tolerance=pd.Timedelta(seconds=seconds),
        direction=direction,
        allow_exact_matches=exact,
    )
    found = Counter(zip(merged["l"], merged["r"].fillna(-1).astype(int), strict=True))
    return found + Counter((value, -1) for value in left[left["k"].isna()]["l"])


def told(rows: pd.DataFrame) -> Counter[Any]:
    return Counter(zip(rows["l"].astype(int), rows["r"].fillna(-1).astype(int), strict=True))


@pytest.mark.parametrize(("direction", "exact"), [("backward", True), ("forward", False), ("nearest", True)])
def test_tables(spark: Any, direction: str, exact: bool) -> None:
    left, right = random_side(1, 400, 0, 500, "l"), random_side(2, 400, 0, 500, "r")
    watch = Observation("penstock")
    joined = asof_join(
        spark.createDataFrame(left).repartition(3),
        spark.createDataFrame(right).repartition(3),
        on=["k", "name"],
        time="ts",
        tolerance="30 s",
        budget=ENOUGH,
        direction=direction,
        allow_exact_matches=exact,
        policy="lru",
        name=watch,
    )
    assert joined.columns == ["k", "name", "ts_left", "l", "ts_right", "r"]
    got = told(joined.toPandas())
    # Which of several rows of one time is first is not defined in a table: compare the times.
    wanted = expected(left, right, 30, direction, exact)
    times = dict(zip(right["r"], right["ts"], strict=True)) | {-1: None}
    assert Counter((a, times[b]) for a, b in got.elements()) == Counter(
        (a, times[b]) for a, b in wanted.elements()
    )
    row = watch.get["join"]
    assert row["results"] + row["unmatched"] == 400
    assert (row["undecided"], row["evicted_right"]) == (0, 0)


def sides_in_files(folder: Path, files: int = 4) -> tuple[Path, Path, pd.DataFrame, pd.DataFrame]:
    """Streams whose right side runs ahead and falls behind, and ends with a row that lets all others out."""
    lefts = [random_side(10 + i, 120, 100 * i, 100 * i + 100, "l") for i in range(files)]
    rights = [random_side(20 + i, 120, 100 * i + 30, 100 * i + 130, "r") for i in range(files)]
    last = random_side(99, 1, 100_000, 100_001, "r").assign(k=pd.array([5], "Int64"))
    rights[-1] = pd.concat([rights[-1], last], ignore_index=True)
    left, right = write_files(folder / "left", lefts), write_files(folder / "right", rights)
    return left, right, pd.concat(lefts, ignore_index=True), pd.concat(rights, ignore_index=True)


@pytest.mark.parametrize("direction", ["backward", "nearest"])
def test_streams(spark: Any, stream_of: Any, collected: Any, tmp_path: Path, direction: str) -> None:
    left, right, every_left, every_right = sides_in_files(tmp_path)
    joined = asof_join(
        stream_of(left),
        stream_of(right),
        on=["k", "name"],
        time="ts",
        tolerance="30 s",
        budget=ENOUGH,
        direction=direction,
        policy="lru",
    )
    got, query = collected(joined)
    assert told(got) == expected(every_left, every_right, 30, direction, True)
    assert sum(each["undecided"] for each in figures(query)) == 0


@pytest.mark.slow
def test_watermarks(spark: Any, stream_of: Any, collected: Any, tmp_path: Path) -> None:
    left, right, every_left, every_right = sides_in_files(tmp_path)
    frames = [stream_of(path).withWatermark("ts", "10 seconds") for path in (left, right)]
    joined = asof_join(*frames, on=["k", "name"], time="ts", tolerance="30 s", budget=ENOUGH, policy="lru")
    assert joined.columns[-1] == "event_time"
    got, _ = collected(joined)
    wanted = expected(every_left, every_right, 30, "backward", True)
    assert len(got) > 200  # the last rows wait for the watermark
    assert not told(got) - wanted


@pytest.mark.slow
def test_a_small_budget_leaves_rows_undecided_and_none_wrong(
    spark: Any, stream_of: Any, tmp_path: Path
) -> None:
    left, right, every_left, every_right = sides_in_files(tmp_path)
    joined = asof_join(
        stream_of(left),
        stream_of(right),
        on=["k", "name"],
        time="ts",
        tolerance="30 s",
        budget=ps.Tuples(12),
        buckets=2,
        policy="lru",
        emit="all",
    )
    query = write_split(
        joined,
        results=tmp_path / "results",
        archive=tmp_path / "archive",
        checkpoint=tmp_path / "checkpoint",
        trigger={"availableNow": True},
    )
    query.awaitTermination()
    got = told(spark.read.parquet(str(tmp_path / "results")).toPandas())
    lost = spark.read.parquet(str(tmp_path / "archive")).toPandas()
    wanted = expected(every_left, every_right, 30, "backward", True)
    assert not got - wanted
    undecided = lost[lost["_event"] == "undecided"]
    assert set(undecided["_stream"]) == {"left"}
    assert Counter(row for row, _ in got.elements()) + Counter(undecided["l"].astype(int)) == Counter(
        every_left["l"]
    )
    assert set(lost["_event"]) == {"undecided", "evicted"}
    told_of = figures(query)
    assert sum(each["undecided"] for each in told_of) == len(undecided) > 0
    assert sum(each["results"] + each["unmatched"] for each in told_of) == sum(got.values())


@pytest.mark.slow
def test_killed_and_restarted(spark: Any, tmp_path: Path) -> None:
    left, right, every_left, every_right = sides_in_files(tmp_path, files=6)
    join = {
        "on": ["k", "name"],
        "time": "ts",
        "tolerance": "30 s",
        "budget": 10_000,
        "buckets": 2,
        "policy": "lru",
    }
    plan = {
        "program": "asof",
        "left": str(left),
        "right": str(right),
        "output": str(tmp_path / "output"),
        "checkpoint": str(tmp_path / "checkpoint"),
        "join": join | {"direction": "nearest"},
    }
    commits = tmp_path / "checkpoint" / "commits"
    for batches in (1, 3):
        with join_program(tmp_path, plan) as program:
            until(lambda: len(list(commits.glob("[0-9]*"))) >= batches, 300, program)  # noqa: B023
            program.kill()
    with join_program(tmp_path, plan) as program:
        assert program.wait(300) == 0, program.said()
    got = told(spark.read.parquet(str(tmp_path / "output")).toPandas())
    assert got == expected(every_left, every_right, 30, "nearest", True)


def spec_of(**options: Any) -> AsofSpec:
    """An as-of join of rows with a key, a time and a number, in two buckets."""
    given: dict[str, Any] = {"budget": ps.Tuples(1000), "tolerance": 20, "policy": "lru"}
    return AsofSpec(
        join=ps.AsofJoin(**(given | options)),
        left=JoinSide(("ts", "l"), ("ts_left", "l"), ("k",), "ts", False),
        right=JoinSide(("ts", "r"), ("ts_right", "r"), ("k",), "ts", False),
        streaming=True,
        right_first=True,
        buckets=2,
        unit="ms",
        dtype="int64",
        hashed=False,
        lateness=("0 seconds", "0 seconds"),
        row_bytes=40.0,
        emit="all",
        event_time=None,
    )


def packed(spec: AsofSpec, sides: list[list[tuple[Any, Any, int]]]) -> list[PackedBatch]:
    """Rows (key, time, number) of both sides as the packer sends them to each bucket."""
    pieces = []
    for side, rows in enumerate(sides):
        key, time, value = zip(*rows, strict=True) if rows else ((), (), ())
        keys = pa.array(key, pa.int64())
        table = pa.table(
            {
                BUCKET: pa.array([(each or 0) % 2 for each in key], pa.int32()),
                KEY: keys,
                "c0": pa.array(time, pa.int64()),
                "c1": pa.array(value, pa.int64()),
                "k0": keys,
            }
        )
        packing: AsofPacking = spec.packings((0, 1))[side]  # type: ignore[assignment]
        for batch in packer(packing)(iter(table.to_batches())):
            pieces += batch.to_pylist()
    return [PackedBatch.gather(iter([each for each in pieces if each["label"] == label])) for label in (0, 1)]


@pytest.mark.interpreted
@pytest.mark.parametrize("direction", DIRECTIONS)
def test_buckets_know_how_far_the_others_are(direction: str) -> None:
    """A left row comes out when the right stream is past it, even if all later right rows have other keys."""
    spec = spec_of(direction=direction)
    buckets = [AsofBucket(spec.of_bucket(number)) for number in range(2)]
    left = [(0, 10, 0), (1, 12, 1), (None, 5, 2), (2, None, 3)]
    right = [(0, 8, 0), (1, 11, 1), (1, 13, 2)]
    batches = [[left, right], [[], [(1, 15, 3), (1, 100, 4)]]]
    found: dict[int, Any] = {}
    for number, sides in enumerate(batches):
        for bucket, batch in zip(buckets, packed(spec, sides), strict=True):
            again = AsofBucket.restore(bucket.spec, bucket.snapshot())
            list(again.process(PackedBatch.from_bytes(batch.to_bytes()), quiet=True))
            for table in bucket.process(batch):
                assert EVENT not in table.column_names
                right_values = (
                    table["r"].to_pylist() if "r" in table.column_names else [None] * table.num_rows
                )
                found |= {
                    value: (number, r) for value, r in zip(table["l"].to_pylist(), right_values, strict=True)
                }
            assert again.state.totals() == bucket.state.totals()
            assert bucket.figures.undecided == 0
    keyed = [(key, time if time is not None else 0) for key, time, _ in left[:2]]
    answers = exact_answers(keyed, [(key, time) for key, time, _ in right], 20, direction)
    assert {row: found[row][1] for row in (0, 1)} == dict(enumerate(answers))
    assert found[2] == found[3] == (0, None)
    assert found[0][0] == (1 if direction == "forward" else 0)


def test_refusals(spark: Any) -> None:
    left = spark.createDataFrame([(1, 2)], "k long, ts long")
    with pytest.raises(PenstockError, match="needs a key"):
        asof_join(left, left, on=(), time="ts", budget="1 MiB")
    with pytest.raises(PenstockError, match="emit='some' is not known"):
        asof_join(left, left, on="k", time="ts", budget="1 MiB", emit="some")
    with pytest.raises(PenstockError, match="two streaming or two batch"):
        asof_join(left, spark.readStream.format("rate").load(), on="k", time="ts", budget="1 MiB")
    with pytest.raises(PenstockError, match="asof_join takes Spark DataFrames"):
        asof_join(left, [], on="k", time="ts", budget="1 MiB")
