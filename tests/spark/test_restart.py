"""A query that is restarted from its checkpoint goes on where it was, and with which changes it may."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import penstock as ps
from penstock.spark import bounded_join
from penstock.spark.runtime.join_bucket import JoinBucket
from penstock.spark.runtime.join_spec import JoinSpec
from penstock.spark.runtime.packer import PackedBatch
from tests.spark.conftest import write_files
from tests.spark.packed import divided, packed, spec_of
from tests.spark.support import figures, pieces, python_workers, rows_of

MORE = 3  # files that come after the restart
BUDGET = 200
JOIN: dict[str, Any] = {
    "on": "k",
    "time": "ts",
    "within": "2 minutes",
    "budget": ps.Tuples(BUDGET),
    "buckets": 2,
    "emit": "all",
}
RESULT = ["k", "ts_left", "l", "l_text", "ts_right", "r", "r_text"]


def run(
    spark: Any, folders: Sequence[Path], checkpoint: Path, **changes: Any
) -> tuple[pd.DataFrame, list[Any]]:
    """Run the query over what there is; its rows, and the metrics of its batches."""
    parts: dict[int, pd.DataFrame] = {}
    left, right = (
        spark.readStream.schema(spark.read.parquet(str(folder)).schema)
        .option("maxFilesPerTrigger", 1)
        .parquet(str(folder))
        for folder in folders
    )
    query = (
        bounded_join(left, right, **(JOIN | changes))
        .writeStream.foreachBatch(lambda frame, number: parts.__setitem__(number, frame.toPandas()))
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    metrics = figures(query)
    return pd.concat([parts[number] for number in sorted(parts)], ignore_index=True), metrics


@pytest.fixture(scope="module")
def frames() -> tuple[list[pd.DataFrame], list[pd.DataFrame]]:
    """The pieces of both sides."""
    return pieces(1, 3 + MORE, 300, "l"), pieces(2, 3 + MORE, 300, "r")


@pytest.fixture(scope="module")
def begun(
    spark: Any, tmp_path_factory: pytest.TempPathFactory, frames: Any
) -> tuple[list[Path], Path, pd.DataFrame]:
    """A query that has run over some files, to which others have come since."""
    folder = tmp_path_factory.mktemp("begun")
    names = ("left", "right")
    sides = [write_files(folder / name, side[:-MORE]) for name, side in zip(names, frames, strict=True)]
    rows, metrics = run(spark, sides, folder / "checkpoint")
    assert metrics[-1]["buffered_left"] + metrics[-1]["buffered_right"] == BUDGET
    for name, side in zip(names, frames, strict=True):
        write_files(folder / name, side)
    return sides, folder / "checkpoint", rows


@pytest.fixture(scope="module")
def whole(spark: Any, tmp_path_factory: pytest.TempPathFactory, begun: Any) -> pd.DataFrame:
    """What a query gives that reads all files in one go."""
    return run(spark, begun[0], tmp_path_factory.mktemp("whole") / "checkpoint")[0]


@pytest.fixture
def restart(spark: Any, tmp_path: Path, begun: Any) -> Callable[..., tuple[pd.DataFrame, list[Any]]]:
    """Go on from a copy of the checkpoint with these changes."""

    def go_on(**changes: Any) -> tuple[pd.DataFrame, list[Any]]:
        shutil.copytree(begun[1], tmp_path / "checkpoint")
        return run(spark, begun[0], tmp_path / "checkpoint", **changes)

    return go_on


def exact_pairs(frames: Any) -> set[tuple[int, int]]:
    """All pairs of the exact join, by the numbers of their rows."""
    left, right = (pd.concat(side) for side in frames)
    both = left.merge(right, on="k", suffixes=("_left", "_right"))
    near = (both["ts_left"] - both["ts_right"]).abs() <= pd.Timedelta("2 minutes")
    return set(zip(both.loc[near, "l"], both.loc[near, "r"], strict=True))


def pairs_of(rows: pd.DataFrame) -> list[tuple[int, int]]:
    """The pairs among the rows of an output."""
    found = rows[rows["_event"] == "result"]
    return list(zip(found["l"].astype(int), found["r"].astype(int), strict=True))


def check_pairs(rows: pd.DataFrame, begun: Any, frames: Any) -> int:
    """No pair that the exact join has not, and none twice; how many."""
    pairs = pairs_of(begun[2]) + pairs_of(rows)
    assert len(pairs) == len(set(pairs))
    assert set(pairs) <= exact_pairs(frames)
    return len(pairs)


@pytest.mark.parametrize("by", ["the same workers", "others"])
def test_it_goes_on_exactly(begun: Any, restart: Any, whole: pd.DataFrame, frames: Any, by: str) -> None:
    if by == "others":
        workers = python_workers()  # idle ones; those that come next must restore the state
        assert workers
        for worker in workers:
            worker.kill()
    second, metrics = restart()
    if by == "others":
        assert metrics[0]["state_read"] > 0
    assert rows_of(pd.concat([begun[2], second])) == rows_of(whole)
    assert (whole["_event"] == "evicted").sum() > BUDGET
    check_pairs(second, begun, frames)


@pytest.mark.parametrize("budget", [ps.Tuples(60), ps.Bytes(96 * 1024)], ids=str)
def test_a_smaller_budget_evicts_and_is_kept(restart: Any, begun: Any, frames: Any, budget: Any) -> None:
    rows, metrics = restart(budget=budget)
    assert len(metrics) == MORE
    if isinstance(budget, ps.Tuples):
        assert all(each["buffered_left"] + each["buffered_right"] <= budget.n for each in metrics)
    else:
        assert all(each["peak_bytes"] <= budget.n for each in metrics)
    # What was buffered and what came has expired, is there still, or was told to be gone.
    arrived = sum(each["arrived_left"] + each["arrived_right"] for each in metrics)
    left = metrics[-1]["buffered_left"] + metrics[-1]["buffered_right"]
    expired = sum(each["expired"] for each in metrics)
    assert (rows["_event"] == "evicted").sum() == BUDGET + arrived - left - expired
    check_pairs(rows, begun, frames)


def test_a_larger_budget_is_filled(restart: Any, begun: Any, frames: Any) -> None:
    rows, metrics = restart(budget=ps.Tuples(5_000))
    assert sum(each["evicted_left"] + each["evicted_right"] for each in metrics) == 0
    assert not (rows["_event"] == "evicted").any()
    assert max(each["buffered_left"] + each["buffered_right"] for each in metrics) > BUDGET
    check_pairs(rows, begun, frames)
    # Pairs of rows that both came after the restart are all there.
    new = 3 * 300
    wanted = {pair for pair in exact_pairs(frames) if min(pair) >= new}
    assert wanted <= set(pairs_of(rows))


@pytest.mark.parametrize("policy", ["gdj:initial=0.5", "lru"])
def test_another_policy_takes_over(restart: Any, begun: Any, frames: Any, policy: str) -> None:
    rows, metrics = restart(policy=policy)
    assert all(each["buffered_left"] + each["buffered_right"] <= BUDGET for each in metrics)
    assert check_pairs(rows, begun, frames) > len(pairs_of(begun[2]))


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"buckets": 4}, "the number of buckets cannot change"),
        ({"on": [("k", "r")]}, "the key cannot change"),
        ({"within": "3 minutes"}, "the window cannot change"),
        ({"emit": "results"}, "emit cannot change"),
    ],
    ids=lambda value: str(value) if isinstance(value, dict) else "",
)
def test_changes_of_the_join_itself_are_refused(restart: Any, change: dict[str, Any], reason: str) -> None:
    from pyspark.errors import StreamingQueryException

    with pytest.raises(StreamingQueryException, match=reason):
        restart(**change)


def test_other_buckets_are_refused_whichever_keys_come(spark: Any, tmp_path: Path) -> None:
    """Even if no row comes for a bucket that is there under either number."""
    from pyspark.errors import StreamingQueryException

    found = spark.sql("SELECT id FROM range(200) WHERE pmod(hash(id), 4) = 0").toPandas()["id"]
    sides = pieces(1, 2, 100, "l"), pieces(2, 2, 100, "r")
    for _, last in sides:
        last["k"] = found[0]
    folders = [write_files(tmp_path / name, side[:1]) for name, side in zip("lr", sides, strict=True)]
    run(spark, folders, tmp_path / "checkpoint")
    for folder, side in zip(folders, sides, strict=True):
        write_files(folder, side)
    with pytest.raises(StreamingQueryException, match="the number of buckets cannot change"):
        run(spark, folders, tmp_path / "checkpoint", buckets=4)


def full_bucket(spec: JoinSpec, text: int = 8) -> JoinBucket:
    """A bucket with a few batches behind it of which nothing has expired."""
    bucket = JoinBucket(spec)
    for number in range(5):
        for _ in bucket.process(packed(number, span=100, text=text)):
            pass
    assert bucket.figures.expired == 0
    return bucket


def adapted(bucket: JoinBucket, spec: JoinSpec) -> JoinBucket:
    """The bucket as a query with another spec restores it."""
    restored = JoinBucket.restore(spec, bucket.snapshot())
    assert restored.adapt()
    restored.state.check()
    return restored


@pytest.mark.parametrize(
    "change",
    [{"budget": ps.Tuples(40)}, {"budget": ps.Bytes(60_000)}, {"policy": "lru"}, {"drop_rate": 0.5}],
    ids=str,
)
def test_nothing_leaves_untold_when_a_bucket_adapts(change: dict[str, Any]) -> None:
    bucket = full_bucket(spec_of(budget=ps.Tuples(300)))
    before = bucket.state.buffered
    other = adapted(bucket, spec_of(**({"budget": ps.Tuples(300)} | change)))
    results, gone = divided(other.process(PackedBatch()))
    assert sum(table.num_rows for table in results) == 0
    assert before == other.state.buffered + sum(table.num_rows for table in gone)
    assert other.figures.evicted_left + other.figures.evicted_right == before - other.state.buffered


@pytest.mark.parametrize("text", [8, 2_000])
def test_a_budget_of_bytes_in_place_of_one_of_tuples_is_kept(text: int) -> None:
    budget = ps.Bytes(150_000)
    other = adapted(full_bucket(spec_of(budget=ps.Tuples(300)), text), spec_of(budget=budget))
    assert other.figures.peak_bytes <= budget.n
