"""Outer, semi and anti joins on Spark: what Spark's own joins give, and with little memory no wrong row."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from pyspark.sql import functions as F

import penstock as ps
from penstock.errors import PenstockError
from penstock.spark import bounded_join, reconcile
from penstock.spark.api.write_split import write_split
from tests.spark.conftest import write_files
from tests.spark.support import figures

pytestmark = pytest.mark.spark

HOWS = ("left", "right", "full", "left_semi", "left_anti")
ENOUGH = ps.Tuples(100_000)
JOIN: dict[str, Any] = {"on": [("k", "key"), "name"], "time": "ts", "within": ("20 seconds", "60 seconds")}
FLUSH = 1_000_000  # seconds after the rows that matter


def rows_of(frame: pd.DataFrame) -> Counter[Any]:
    """The rows as a multiset; pandas makes floats of numbers beside nulls."""
    return Counter(tuple(map(shown, row)) for row in frame.itertuples(index=False))


def shown(value: Any) -> str:
    if pd.isna(value):
        return "null"
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def side(rng: np.random.Generator, n: int, first: int, last: int, key: str, value: str) -> pd.DataFrame:
    """Rows with ties and null keys, and many that have no partner; keys of two types."""
    keys = rng.integers(0, 40, n).astype(object)
    keys[rng.random(n) < 0.05] = None
    seconds = np.sort(rng.integers(first, last, n))
    return pd.DataFrame(
        {
            key: pd.array(keys, "Int32" if key == "k" else "Int64"),
            "name": pd.array(rng.choice(["x", "y", None], n, p=[0.6, 0.35, 0.05]), "string"),
            "ts": pd.to_datetime(1_700_000_000 + seconds, unit="s", utc=True).astype("datetime64[us, UTC]"),
            value: rng.integers(0, 1_000, n),
        }
    )


def flush(key: str, value: str, times: int) -> list[pd.DataFrame]:
    """Rows of many keys, long after all others: for every bucket time goes on."""
    frames = []
    for number in range(1, times + 1):
        seconds = 1_700_000_000 + number * FLUSH
        ts = pd.to_datetime(np.full(60, seconds), unit="s", utc=True).astype("datetime64[us, UTC]")
        frame = pd.DataFrame({key: np.arange(60) + 100 * number, "name": "z", "ts": ts, value: -1})
        types = {key: "Int32" if key == "k" else "Int64", "name": "string"}
        frames.append(frame.astype(types)[[key, "name", "ts", value]])
    return frames


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Two streams in four files each, and the same with two files more that let time go on."""
    rng, folder = np.random.default_rng(4), tmp_path_factory.mktemp("kinds")
    found = {}
    for key, value, name in (("k", "l", "left"), ("key", "r", "right")):
        parts = [side(rng, 150, start, start + 60, key, value) for start in (0, 60, 120, 180)]
        found[name] = write_files(folder / name, parts)
        found[f"{name}_flushed"] = write_files(folder / f"{name}_flushed", [*parts, *flush(key, value, 2)])
    return found


def native(left: Any, right: Any, how: str) -> Any:
    """Spark's own join."""
    a, b = left.alias("a"), right.alias("b")
    apart = F.unix_micros("b.ts") - F.unix_micros("a.ts")
    same = (F.col("a.k") == F.col("b.key")) & (F.col("a.name") == F.col("b.name"))
    joined = a.join(b, same & apart.between(-20_000_000, 60_000_000), how)
    if how in ("left_semi", "left_anti"):
        return joined.select("k", "name", "ts", "l")
    shown = {
        "right": (F.col("b.key"), F.col("b.name")),
        "full": (F.coalesce("a.k", "b.key"), F.coalesce("a.name", "b.name")),
    }.get(how, (F.col("a.k"), F.col("a.name")))
    key, name = (column.alias(word) for column, word in zip(shown, ("k", "name"), strict=True))
    return joined.select(key, name, F.col("a.ts").alias("ts_left"), "l", F.col("b.ts").alias("ts_right"), "r")


def read(spark: Any, folders: dict[str, Path], *names: str) -> list[Any]:
    return [spark.read.parquet(str(folders[name])) for name in names or ("left", "right")]


@pytest.mark.parametrize("how", HOWS)
def test_batches_give_what_sparks_join_gives(spark: Any, folders: dict[str, Path], how: str) -> None:
    left, right = read(spark, folders)
    joined = bounded_join(left, right, **JOIN, budget=ENOUGH, policy="lru", buckets=2, how=how)
    exact = native(left, right, how)
    assert joined.dtypes == exact.dtypes
    got, wanted = rows_of(joined.toPandas()), rows_of(exact.toPandas())
    assert wanted.total() > 100
    assert got == wanted


@pytest.mark.parametrize(("how", "marked"), [(how, how in ("full", "left_semi")) for how in HOWS])
def test_streams_give_what_sparks_join_gives(
    spark: Any, stream_of: Any, collected: Any, folders: dict[str, Path], how: str, marked: bool
) -> None:
    """Rows without a partner come out when time has passed them, told by a watermark or by the rows."""
    streams = [stream_of(folders[name]) for name in ("left_flushed", "right_flushed")]
    if marked:
        streams = [stream.withWatermark("ts", "10 seconds") for stream in streams]
    joined = bounded_join(*streams, **JOIN, budget=ENOUGH, policy="lru", buckets=2, how=how)
    got, query = collected(joined)
    got = got.drop(columns="event_time", errors="ignore")
    wanted = native(*read(spark, folders), how).toPandas()
    values = [name for name in ("l", "r") if name in got.columns]
    got = got[(got[values] != -1).all(axis=1)]
    assert rows_of(got) == rows_of(wanted)
    sums = Counter()
    for each in figures(query):
        sums.update({name: each[name] for name in ("results", "unmatched", "undecided", "released")})
    assert sums["undecided"] == 0
    assert sums["results"] + sums["unmatched"] >= len(wanted)
    assert (sums["released"] > 0) == (how in ("left_semi", "left_anti"))


@pytest.mark.parametrize("how", HOWS)
def test_online_and_reconciled_are_the_exact_join(
    spark: Any, stream_of: Any, folders: dict[str, Path], tmp_path: Path, how: str
) -> None:
    """With little memory, every row that comes out is one of the exact join; the archive settles the rest."""
    streams = [stream_of(folders[name]) for name in ("left_flushed", "right_flushed")]
    joined = bounded_join(
        *streams, **JOIN, budget=ps.Tuples(60), policy="fifo", buckets=2, emit="all", how=how
    )
    query = write_split(
        joined,
        results=tmp_path / "hits",
        archive=tmp_path / "lost",
        checkpoint=tmp_path / "checkpoint",
        trigger={"availableNow": True},
    )
    query.awaitTermination()
    left, right = read(spark, folders, "left_flushed", "right_flushed")
    exact = native(left, right, how)
    online = spark.read.parquet(str(tmp_path / "hits")).drop("batch")
    missed = reconcile(tmp_path / "lost", left, right, **JOIN, results=tmp_path / "hits", how=how)
    assert online.dtypes == missed.dtypes == exact.dtypes
    # The last rows of all still wait for time to go on.
    values = [name for name in ("l", "r") if name in online.columns]
    found, later, whole = (frame.toPandas() for frame in (online, missed, exact))
    found, later, whole = (frame[(frame[values] != -1).all(axis=1)] for frame in (found, later, whole))
    assert rows_of(found) <= rows_of(whole)
    assert rows_of(found) + rows_of(later) == rows_of(whole)
    assert len(later) > 20
    assert sum(each["undecided"] for each in figures(query)) > 0


@pytest.mark.parametrize("matches", ["once", "one-to-one"])
def test_one_match_per_row(spark: Any, matches: str) -> None:
    left = spark.createDataFrame([(1, 0, "a"), (1, 1, "b"), (2, 2, "c")], "k int, ts long, l string")
    right = spark.createDataFrame([(1, 3, "x"), (1, 4, "y"), (3, 5, "z")], "k int, ts long, r string")
    joined = bounded_join(
        left, right, on="k", time="ts", within=10, budget=ENOUGH, policy="lru", how="full", matches=matches
    )
    found = {(row["l"], row["r"]) for row in joined.collect()}
    if matches == "once":
        assert found == {("a", "x"), ("b", "x"), ("c", None), (None, "y"), (None, "z")}
    else:
        assert found == {("a", "x"), ("b", "y"), ("c", None), (None, "z")}


def test_what_cannot_be_combined_is_refused(spark: Any) -> None:
    frame = spark.createDataFrame([(1, 2)], "k int, ts long")
    fine: dict[str, Any] = {"on": "k", "time": "ts", "within": 10}
    with pytest.raises(PenstockError, match="did you mean 'left'"):
        bounded_join(frame, frame, **fine, budget=ENOUGH, how="lefty")
    with pytest.raises(PenstockError, match="Leave out late"):
        reconcile(frame, frame, frame, **fine, results=frame, how="left", late="include")
