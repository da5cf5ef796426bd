"""A query that is restarted from its checkpoint goes on where it was, and with which changes it may."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import psutil
import pytest

import penstock as ps
from penstock.spark import bounded_join
from tests.spark.conftest import write_files
from tests.spark.support import figures, pieces, rows_of

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
    spark: Any, folders: tuple[Path, Path], checkpoint: Path, **changes: Any
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


def end_workers() -> int:
    """Kill the idle Python workers of this process's Spark, so that others must restore their state."""
    killed = 0
    for child in psutil.Process(os.getpid()).children():
        for daemon in child.children() if "java" in child.name() else []:
            for worker in daemon.children():
                worker.kill()
                killed += 1
    return killed


@pytest.fixture(scope="module")
def frames() -> tuple[list[pd.DataFrame], list[pd.DataFrame]]:
    """The pieces of both sides, with another column that could be a key."""
    left, right = pieces(1, 3 + MORE, 300, "l"), pieces(2, 3 + MORE, 300, "r")
    return left, right


@pytest.fixture(scope="module")
def begun(
    spark: Any, tmp_path_factory: pytest.TempPathFactory, frames: Any
) -> tuple[tuple[Path, Path], Path, pd.DataFrame]:
    """A query that has run over some files, to which others have come since."""
    folder = tmp_path_factory.mktemp("begun")
    names = ("left", "right")
    sides = tuple(write_files(folder / name, side[:-MORE]) for name, side in zip(names, frames, strict=True))
    rows, metrics = run(spark, sides, folder / "checkpoint")
    assert metrics[-1]["buffered_left"] + metrics[-1]["buffered_right"] == BUDGET
    for name, side in zip(names, frames, strict=True):
        write_files(folder / name, side)
    return sides, folder / "checkpoint", rows


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


@pytest.mark.parametrize("workers", ["the same", "others"])
def test_it_goes_on_exactly(
    spark: Any, tmp_path: Path, begun: Any, restart: Any, frames: Any, workers: str
) -> None:
    if workers == "others":
        assert end_workers() > 0
    second, metrics = restart()
    if workers == "others":
        assert metrics[0]["state_read"] > 0
    whole, _ = run(spark, begun[0], tmp_path / "whole")
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
    assert not (rows.loc[rows["_event"] == "evicted", "_at"] < rows["_at"].min()).any()
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
