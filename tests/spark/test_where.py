"""Joins with a condition on Spark: what Spark's own join with the same condition gives, for every type."""

from __future__ import annotations

import datetime
from collections import Counter
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import functions as F

import penstock as ps
from penstock.errors import ConditionError, PenstockError
from penstock.spark import bounded_join, reconcile
from penstock.spark.api.write_split import write_split
from penstock.spark.runtime.where_column import condition_column
from tests.spark.conftest import write_files

pytestmark = pytest.mark.spark

HOWS = ("inner", "left", "right", "full", "left_semi", "left_anti")
ENOUGH = ps.Tuples(100_000)
JOIN: dict[str, Any] = {"on": "k", "time": "ts", "within": 30}
WHERE = "left.l < right.r and left.a != right.b or left.a is null"

TYPES = (
    "b boolean, i8 tinyint, i16 smallint, i32 int, i64 bigint, f float, d double, m decimal(9,2), "
    "w decimal(30,3), s string, y binary, day date, at timestamp, local timestamp_ntz"
)
NATIVE = {
    "left.i64 < right.d": "l.i64 < r.d",
    "left.i8 + right.i16 > 3": "l.i8 + r.i16 > 3",
    "left.f = right.f": "l.f = r.f",
    "left.d <= right.d": "l.d <= r.d",
    "left.f * 0.1 < right.d": "l.f * 0.1 < r.d",
    "left.i32 / right.i64 > 0.5": "l.i32 / r.i64 > 0.5",
    "left.i32 % 3 = right.i64 % 3": "l.i32 % 3 = r.i64 % 3",
    "left.i32 * 0.1 >= right.m": "l.i32 * 0.1 >= r.m",
    "left.m < right.w": "l.m < r.w",
    "left.m + right.m > 1.5": "l.m + r.m > 1.5",
    "left.i64 > right.m": "l.i64 > r.m",
    "left.w != right.w": "l.w != r.w",
    "left.s < right.s": "l.s < r.s",
    "left.s in ('a', right.s)": "l.s in ('a', r.s)",
    "left.y >= right.y": "l.y >= r.y",
    "left.b or right.b": "l.b or r.b",
    "left.day < right.local": "l.day < r.local",
    "left.day = date '2026-01-02'": "l.day = date '2026-01-02'",
    "left.at > right.at": "l.at > r.at",
    "left.local <= timestamp '2026-01-02 12:00:00'": "l.local <= timestamp_ntz '2026-01-02 12:00:00'",
    "not (left.i32 < right.i32 and left.s is null)": "not (l.i32 < r.i32 and l.s is null)",
    "left.i32 not in (1, 2, 2.5)": "l.i32 not in (1, 2, 2.5)",
    "-left.i32 < right.i32 - 1": "-l.i32 < r.i32 - 1",
    "left.k + 1 > right.k": "l.k + 1 > r.k",
}


def values(rng: np.random.Generator) -> list[Any]:
    """A row of every type, with nulls."""
    n = int(rng.integers(1, 5))
    stamp = datetime.datetime(2026, 1, n, 12 * int(rng.integers(0, 2)))
    row = [
        bool(n % 2),
        n,
        n,
        n,
        n,
        float(n),
        float(rng.choice([0.0, -0.0, 1.5, np.nan, np.inf])),
        Decimal(n) / 4,
        Decimal(n) / 4 + Decimal(10) ** 20 * int(rng.integers(0, 2)),
        str(rng.choice(["a", "b", "", "\u00e9", "\U0001f600"])),
        bytes([n]),
        stamp.date(),
        stamp.replace(tzinfo=datetime.UTC),
        stamp,
    ]
    return [None if rng.random() < 0.15 else value for value in row]


@pytest.fixture(scope="module")
def typed(spark: Any) -> tuple[Any, Any]:
    rng = np.random.default_rng(8)
    schema = f"k int, ts long, {TYPES}"
    frames = []
    for _ in "lr":
        rows = [(int(rng.integers(0, 3)), t, *values(rng)) for t in range(40)]
        frames.append(spark.createDataFrame(rows, schema).repartition(1).cache())
    return frames[0], frames[1]


@pytest.mark.parametrize("part", range(4))
def test_every_type_as_spark_compares_it(spark: Any, typed: tuple[Any, Any], part: int) -> None:
    """The pairs that pass are Spark's own, and so are those of the condition as a column."""
    left, right = typed
    near = "l.k = r.k and abs(l.ts - r.ts) <= 30"
    for where in list(NATIVE)[part::4]:
        found = bounded_join(left, right, **JOIN, budget=ENOUGH, policy="lru", buckets=1, where=where)
        got = Counter(map(tuple, found.select("ts_left", "ts_right").collect()))
        both = left.alias("l").join(right.alias("r"), F.expr(near))
        shown = [F.col("l.ts"), F.col("r.ts")]
        assert got == Counter(map(tuple, both.filter(NATIVE[where]).select(*shown).collect())), where
        column = condition_column(where, left, right, lambda side, name: F.col(f"{'lr'[side]}.{name}"))
        assert got == Counter(map(tuple, both.filter(column).select(*shown).collect())), where


def pieces(seed: int, value: str, text: str) -> list[pd.DataFrame]:
    rng = np.random.default_rng(seed)
    frames = []
    for first in range(0, 240, 60):
        n = 120
        frames.append(
            pd.DataFrame(
                {
                    "k": rng.integers(0, 12, n),
                    "ts": np.sort(rng.integers(first, first + 60, n)),
                    value: rng.integers(0, 100, n),
                    text: pd.array(rng.choice(["x", "y", "z", None], n), "string"),
                    "id": np.arange(n) + 1_000 * first,
                }
            )
        )
    for number in (1, 2):  # for every bucket time goes on
        n = 60
        frames.append(
            pd.DataFrame(
                {
                    "k": np.arange(n) + 100 * number,
                    "ts": np.full(n, number * 100_000),
                    value: -1,
                    text: pd.array(["w"] * n, "string"),
                    "id": -1,
                }
            )
        )
    return frames


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("where")
    return write_files(folder / "left", pieces(1, "l", "a")), write_files(
        folder / "right", pieces(2, "r", "b")
    )


def native(left: Any, right: Any, how: str) -> Any:
    condition = "l.k = r.k and abs(l.ts - r.ts) <= 30 and ((l.l < r.r and l.a != r.b) or l.a is null)"
    joined = left.alias("l").join(right.alias("r"), F.expr(condition), how)
    ids = ["l.id"] if how in ("left_semi", "left_anti") else ["l.id", "r.id"]
    return joined.select(*ids)


def ids(frame: Any, how: str) -> Counter[Any]:
    names = ["id"] if how in ("left_semi", "left_anti") else ["id_left", "id_right"]
    rows = (tuple(row) for row in frame.select(*names).collect())
    return Counter(row for row in rows if -1 not in row)


def settled(frame: Any) -> Counter[Any]:
    return Counter(row for row in map(tuple, frame.collect()) if -1 not in row)


@pytest.mark.parametrize("how", HOWS)
def test_online_and_reconciled_are_the_exact_join(
    spark: Any, stream_of: Any, folders: tuple[Path, Path], tmp_path: Path, how: str
) -> None:
    left, right = (spark.read.parquet(str(folder)) for folder in folders)
    exact = settled(native(left, right, how))
    whole = bounded_join(left, right, **JOIN, budget=ENOUGH, policy="lru", buckets=2, how=how, where=WHERE)
    assert ids(whole, how) == exact
    joined = bounded_join(
        *map(stream_of, folders),
        **JOIN,
        budget=ps.Tuples(60),
        policy="fifo",
        buckets=2,
        emit="all",
        how=how,
        where=WHERE,
    )
    paths = {name: tmp_path / name for name in ("results", "archive", "checkpoint")}
    query = write_split(joined, **paths, trigger={"availableNow": True})
    query.awaitTermination()
    online = ids(spark.read.parquet(str(paths["results"])), how)
    missed = reconcile(paths["archive"], left, right, **JOIN, results=paths["results"], how=how, where=WHERE)
    later = ids(missed, how)
    assert online <= exact
    assert online + later == exact
    assert later.total() > 20


def test_a_restart_with_another_budget_goes_on(spark: Any, stream_of: Any, tmp_path: Path) -> None:
    """The state keeps the values that it compares, also when its rows enter another one."""
    frames = pieces(3, "l", "a"), pieces(4, "r", "b")
    paths = {name: tmp_path / name for name in ("results", "archive", "checkpoint")}
    kind: dict[str, Any] = {"how": "full", "where": "left.a < right.b and left.l + right.r > 60"}
    for files, budget in ((3, ps.Tuples(150)), (6, ps.Tuples(60))):
        sides = [write_files(tmp_path / name, each[:files]) for name, each in zip("lr", frames, strict=True)]
        joined = bounded_join(
            *map(stream_of, sides), **JOIN, **kind, budget=budget, policy="lru", buckets=2, emit="all"
        )
        write_split(joined, **paths, trigger={"availableNow": True}).awaitTermination()
    left, right = (spark.read.parquet(str(tmp_path / name)) for name in "lr")
    condition = "l.k = r.k and abs(l.ts - r.ts) <= 30 and l.a < r.b and l.l + r.r > 60"
    exact = left.alias("l").join(right.alias("r"), F.expr(condition), "full").select("l.id", "r.id")
    online = ids(spark.read.parquet(str(paths["results"])), "full")
    later = ids(reconcile(paths["archive"], left, right, **JOIN, **kind, results=paths["results"]), "full")
    assert online + later == settled(exact)
    assert later.total() > 20
    write_files(tmp_path / "l", [*frames[0], frames[0][-1]])
    changed = kind | {"where": "left.a < right.b"}
    again = bounded_join(
        *map(stream_of, sides), **JOIN, **changed, budget=ps.Tuples(60), policy="lru", buckets=2, emit="all"
    )
    query = write_split(again, **paths, trigger={"availableNow": True})
    with pytest.raises(StreamingQueryException, match="the condition cannot change"):
        query.awaitTermination()


def test_columns_of_keys_and_budgets_in_bytes(spark: Any) -> None:
    """A condition may name a key, also that of the right side in its own type."""
    left = spark.createDataFrame([(1, 0, "a"), (2, 1, "b")], "k int, ts long, s string")
    right = spark.createDataFrame([(1, 2, "b"), (2, 3, "b"), (2**40, 4, "c")], "id long, ts long, s string")
    found = bounded_join(
        left,
        right,
        on=[("k", "id")],
        time="ts",
        within=10,
        budget="4 MiB",
        policy="auto",
        how="full",
        where="left.s < right.s and right.id < 5",
    )
    rows = {(row["k"], row["s_left"], row["s_right"]) for row in found.collect()}
    assert rows == {(1, "a", "b"), (2, "b", None), (2, None, "b"), (2**40, None, "c")}


def test_without_keys(spark: Any) -> None:
    """Band and inequality joins: one bucket, in which every pair is asked."""
    left, right = (
        spark.createDataFrame(
            [(t, int(v)) for t, v in enumerate(np.random.default_rng(seed).integers(0, 50, 60))],
            "ts long, v long",
        )
        for seed in (1, 2)
    )
    join: dict[str, Any] = {
        "on": (),
        "time": "ts",
        "within": 8,
        "where": "left.v + 5 < right.v",
        "how": "left",
    }
    near = F.expr("abs(l.ts - r.ts) <= 8 and l.v + 5 < r.v")
    exact = Counter(map(tuple, left.alias("l").join(right.alias("r"), near, "left").collect()))
    found = bounded_join(left, right, **join, budget=ENOUGH, policy="lru")
    assert Counter(map(tuple, found.select("ts_left", "v_left", "ts_right", "v_right").collect())) == exact
    small = bounded_join(left, right, **join, budget=ps.Tuples(6), policy="fifo", emit="all").cache()
    online = small.filter("_event = 'result'").drop("_event", "_stream", "_at")
    later = reconcile(small.filter("_event != 'result'"), left, right, **join, results=online)
    assert Counter(map(tuple, online.collect())) + Counter(map(tuple, later.collect())) == exact
    assert later.count() > 10
    with pytest.raises(PenstockError, match="one bucket"):
        bounded_join(left, right, **join, budget=ENOUGH, buckets=2)


def test_what_is_wrong_is_told_before_the_query_starts(spark: Any) -> None:
    frame = spark.createDataFrame([(1, 2, "a", [1])], "k int, ts long, s string, many array<int>")
    fine: dict[str, Any] = {"on": "k", "time": "ts", "within": 10, "budget": ENOUGH}
    for where, told in (
        ("left.ss = right.s", "did you mean 's'"),
        ("left.s < right.k", "cannot|can be compared"),
        ("left.many = right.many", "Select a field"),
        ("left.s <", "found the end"),
    ):
        with pytest.raises(ConditionError, match=told):
            bounded_join(frame, frame, **fine, where=where)
    collated = frame.withColumn("s", F.col("s").cast("string collate UTF8_LCASE"))
    with pytest.raises(PenstockError, match="compares the bytes"):
        bounded_join(collated, frame, **fine, where="left.s = right.s")
    assert bounded_join(frame, frame, **fine, where="left.many is not null").count() == 1
