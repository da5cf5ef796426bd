"""A query that is killed again and again gives, in the end, what an undisturbed one gives."""

from __future__ import annotations

import json
import random
import time
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from tests.spark.conftest import write_files
from tests.spark.programs.join import run
from tests.spark.support import Program, committed, join_program, pieces, same_rows, until

JOIN = {"on": "k", "time": "ts", "within": "2 minutes", "budget": 200, "buckets": 2, "emit": "all"}


def plan_of(folder: Path, left: Path, right: Path, join: dict[str, Any]) -> dict[str, Any]:
    """The plan of a query whose output and checkpoint are in a folder."""
    folder.mkdir(exist_ok=True)
    return {
        "left": str(left),
        "right": str(right),
        "output": str(folder / "output"),
        "checkpoint": str(folder / "checkpoint"),
        "join": join,
    }


def kill_at(program: Program, checkpoint: Path, first_batch: bool, delay: float) -> bool:
    """Kill a query a while after its first tasks or its first commit; whether it was still at work."""
    before = committed(checkpoint)

    def ready() -> bool:
        if first_batch:
            return any("pyspark.daemon" in command for command in program.commands())
        return committed(checkpoint) > before

    until(lambda: ready() or program.starved(), 300, program)
    end = time.monotonic() + delay
    until(lambda: time.monotonic() >= end or program.poll() is not None)
    at_work = program.poll() is None
    program.kill()
    return at_work


def run_with_kills(folder: Path, plan: dict[str, Any], kills: int, longest: float, seed: int) -> int:
    """Start the query, kill it at a random moment, and so on; how many kills fell into its work.

    Every other kill may fall into the first batch, which restores the state; the others come after the
    first commit, so that there is progress. A query that ends because the machine has no time for its workers
    is started again, as anybody would.
    """
    rng, inside = random.Random(seed), 0
    for number in range(kills):
        with join_program(folder, plan) as program:
            inside += kill_at(program, Path(plan["checkpoint"]), number % 2 == 1, rng.uniform(0, longest))
    for _ in range(5):
        with join_program(folder, plan) as program:
            code = program.wait(600)
            if not program.starved():
                break
    assert code == 0, program.said()
    return inside


def batches_of(checkpoint: Path) -> list[tuple[list[str], ...]]:
    """The files of each batch, per source, as the logs of a query tell them."""
    files: list[dict[str, int]] = []
    for source in sorted((checkpoint / "sources").iterdir(), key=lambda path: int(path.name)):
        entries: dict[str, int] = {}
        for log in source.iterdir():
            if log.name.split(".")[0].isdigit():
                for line in log.read_text().splitlines()[1:]:
                    entry = json.loads(line)
                    entries[entry["path"].removeprefix("file://")] = entry["batchId"]
        files.append(entries)
    batches, reached = [], [-1] * len(files)
    for log in sorted(
        (p for p in (checkpoint / "offsets").iterdir() if p.name.isdigit()), key=lambda p: int(p.name)
    ):
        lines = log.read_text().splitlines()[2:]
        offsets = [json.loads(line)["logOffset"] if line != "-" else -1 for line in lines]
        batches.append(
            tuple(
                sorted(path for path, at in entries.items() if last < at <= offset)
                for entries, last, offset in zip(files, reached, offsets, strict=True)
            )
        )
        reached = [max(pair) for pair in zip(reached, offsets, strict=True)]
    return batches


def undisturbed(spark: Any, folder: Path, batches: list[tuple[list[str], ...]], join: dict[str, Any]) -> Any:
    """What a query in one go gives from the same batches.

    A kill between the steps in which the sources say what comes next can leave two files of one source for
    a batch; what is evicted depends on it. So the files of a batch are made one.
    """
    sides = []
    for side, name in enumerate(("left", "right")):
        frames = [[pd.read_parquet(path) for path in batch[side]] for batch in batches]
        empty = next(part for batch in frames for part in batch).iloc[:0]
        sides.append(write_files(folder / name, [pd.concat([empty, *batch]) for batch in frames]))
    plan = plan_of(folder, sides[0], sides[1], join)
    run(spark, plan)
    return spark.read.parquet(plan["output"])


def check(
    spark: Any, folder: Path, files: int, rows: int, kills: int, longest: float, **options: Any
) -> None:
    """Kill a query this often, and compare."""
    join = JOIN | options
    left = write_files(folder / "left", pieces(1, files, rows, "l"))
    right = write_files(folder / "right", pieces(2, files, rows, "r"))
    plan = plan_of(folder / "killed", left, right, join)
    seed = random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}")
    inside = run_with_kills(folder / "killed", plan, kills, longest, seed)
    assert inside >= 1
    batches = batches_of(Path(plan["checkpoint"]))
    assert {Path(path).parent.name for batch in batches for path in batch[0]} == {"left"}
    read = [path for batch in batches for side in batch for path in side]
    assert len(read) == len(set(read)) == 2 * files
    print(f"{inside} of {kills} kills fell into the work of the query, which took {len(batches)} batches")
    got, whole = spark.read.parquet(plan["output"]), undisturbed(spark, folder / "whole", batches, join)
    assert {row[0] for row in whole.select("_event").distinct().collect()} >= {"result", "evicted"}
    assert same_rows(got, whole)


def test_killed_three_times(spark: Any, tmp_path: Path) -> None:
    check(spark, tmp_path, files=8, rows=300, kills=3, longest=2)


def test_an_outer_join_is_killed_twice(spark: Any, tmp_path: Path) -> None:
    check(spark, tmp_path, files=6, rows=300, kills=2, longest=2, how="full")


def test_a_join_with_a_condition_is_killed_twice(spark: Any, tmp_path: Path) -> None:
    where = "left.l <= right.r + 50 and left.l_text <= right.r_text"
    check(spark, tmp_path, files=6, rows=300, kills=2, longest=2, how="full", where=where)


@pytest.mark.soak
def test_an_outer_join_is_killed_twenty_times(spark: Any, tmp_path: Path) -> None:
    check(spark, tmp_path, files=60, rows=500, kills=20, longest=6, how="full")


@pytest.mark.soak
def test_killed_twenty_times(spark: Any, tmp_path: Path) -> None:
    check(spark, tmp_path, files=60, rows=500, kills=20, longest=6)
