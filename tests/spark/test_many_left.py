"""Left joins of many streams on Spark: what Spark's own joins give, and with little memory no wrong row."""

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
from penstock.spark import bounded_join_many, reconcile_many
from penstock.spark.api.write_split import write_split
from tests.spark.conftest import write_files
from tests.spark.support import figures
from tests.spark.test_kinds import rows_of

pytestmark = pytest.mark.spark

NAMES = ("seen", "clicked", "bought")
ENOUGH = ps.Tuples(100_000)
FLUSH = 1_000_000  # seconds after the rows that matter
STAR: dict[str, Any] = {"on": "k", "time": "ts", "within": "40 seconds"}
CHAIN: dict[str, Any] = {
    "on": ps.Chain(("seen.k", "clicked.k"), ("clicked.name", "bought.name")),
    "time": "ts",
    "within": {("seen", "clicked"): ("0 s", "30 s"), ("clicked", "bought"): ("5 s", "20 s")},
}


def part(rng: np.random.Generator, n: int, first: int, last: int, value: str) -> pd.DataFrame:
    """Rows with ties and null keys, and many that are in no result; keys of two types."""
    keys = rng.integers(0, 30, n).astype(object)
    keys[rng.random(n) < 0.05] = None
    seconds = 1_700_000_000 + np.sort(rng.integers(first, last, n))
    return pd.DataFrame(
        {
            "k": pd.array(keys, "Int32" if value == "s" else "Int64"),
            "name": pd.array(rng.choice(["x", "y", "z", None], n, p=[0.5, 0.3, 0.15, 0.05]), "string"),
            "ts": pd.to_datetime(seconds, unit="s", utc=True).astype("datetime64[us, UTC]"),
            value: rng.integers(0, 1_000, n),
        }
    )


def flush(value: str, number: int) -> pd.DataFrame:
    """Rows of many keys, long after all others: for every bucket time goes on."""
    at = pd.to_datetime(np.full(60, 1_700_000_000 + number * FLUSH), unit="s", utc=True)
    ts = at.astype("datetime64[us, UTC]")
    frame = pd.DataFrame({"k": np.arange(60) + 100 * number, "name": f"end{number}", "ts": ts, value: -1})
    return frame.astype({"k": "Int32" if value == "s" else "Int64", "name": "string"})


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Three streams in three files each, and the same with two files more that let time go on."""
    rng, folder = np.random.default_rng(4), tmp_path_factory.mktemp("left")
    found = {}
    for name in NAMES:
        parts = [part(rng, 90, start, start + 60, name[0]) for start in (0, 60, 120)]
        found[name] = write_files(folder / name, parts)
        ends = [flush(name[0], number) for number in (1, 2)]
        found[f"{name}_flushed"] = write_files(folder / f"{name}_flushed", [*parts, *ends])
    return found


def read(spark: Any, folders: dict[str, Path], ending: str = "") -> dict[str, Any]:
    return {name: spark.read.parquet(str(folders[name + ending])) for name in NAMES}


def native(frames: dict[str, Any], star: bool) -> Any:
    """Spark's own joins: the inner one, and the rows of the first stream that it does not have."""
    seen = frames["seen"].withColumn("id", F.struct("k", "name", "ts", "s"))
    a, b, c = seen.alias("a"), frames["clicked"].alias("b"), frames["bought"].alias("c")
    at = [F.unix_micros(f"{each}.ts") for each in "abc"]
    if star:
        same = (F.col("a.k") == F.col("b.k")) & (F.col("a.k") == F.col("c.k"))
        near = F.greatest(*at) - F.least(*at) <= 40_000_000
    else:
        same = (F.col("a.k") == F.col("b.k")) & (F.col("b.name") == F.col("c.name"))
        near = (at[1] - at[0]).between(0, 30_000_000) & (at[2] - at[1]).between(-5_000_000, 20_000_000)
    inner = a.join(b).join(c, same & near)
    alone = seen.alias("a").join(
        inner.select(F.col("a.id").alias("there")).distinct(),
        F.col("a.id").eqNullSafe(F.col("there")),
        "left_anti",
    )
    kinds = dict(frames["bought"].dtypes)
    shown = ["a.k"] if star else ["a.k k_seen"]
    shown += ["a.name name_seen", "a.ts ts_seen", "a.s"]
    for each, name in (("b", "clicked"), ("c", "bought")):
        shown += [] if star else [f"{each}.k k_{name}"]
        shown += [f"{each}.name name_{name}", f"{each}.ts ts_{name}", f"{each}.{name[0]}"]
    lone = [
        text
        if text.startswith("a.")
        else f"cast(null as {kinds.get(text.split()[0][2:], 'bigint')}) {text.split()[-1].split('.')[-1]}"
        for text in shown
    ]
    return inner.selectExpr(*shown).unionAll(alone.selectExpr(*lone))


@pytest.mark.parametrize("kind", ["star", "chain"])
def test_batches_give_what_sparks_joins_give(spark: Any, folders: dict[str, Path], kind: str) -> None:
    frames, join = read(spark, folders), STAR if kind == "star" else CHAIN
    joined = bounded_join_many(frames, **join, budget=ENOUGH, policy="lru", how="left")
    exact = native(frames, kind == "star")
    assert joined.columns == exact.columns
    got, wanted = rows_of(joined.toPandas()), rows_of(exact.toPandas())
    assert wanted.total() > 270
    assert any(row[-1] == "null" for row in wanted)
    assert got == wanted


@pytest.mark.parametrize("marked", [False, True])
def test_streams_give_what_sparks_joins_give(
    spark: Any, stream_of: Any, collected: Any, folders: dict[str, Path], marked: bool
) -> None:
    """Rows in no result come out when time has passed them, told by a watermark or by the rows."""
    streams = {name: stream_of(folders[f"{name}_flushed"]) for name in NAMES}
    if marked:
        streams = {name: stream.withWatermark("ts", "10 seconds") for name, stream in streams.items()}
    joined = bounded_join_many(streams, **STAR, budget=ENOUGH, policy="lru", buckets=2, how="left")
    got, query = collected(joined)
    got = got.drop(columns="event_time", errors="ignore")
    got = got[got["s"] != -1]
    assert rows_of(got) == rows_of(native(read(spark, folders), True).toPandas())
    sums: Counter[str] = Counter()
    for each in figures(query):
        sums.update({name: each[name] for name in ("results", "unmatched", "undecided")})
    assert sums["undecided"] == 0
    assert sums["unmatched"] >= sum(got["b"].isna())


@pytest.mark.parametrize("kind", ["star", "chain", "inner star"])
def test_online_and_reconciled_are_the_exact_join(
    spark: Any, stream_of: Any, folders: dict[str, Path], tmp_path: Path, kind: str
) -> None:
    """With little memory, every row that comes out is one of the exact join; the archive settles the rest."""
    streams = {name: stream_of(folders[f"{name}_flushed"]) for name in NAMES}
    join = {**(CHAIN if kind == "chain" else STAR), "how": "inner" if kind == "inner star" else "left"}
    joined = bounded_join_many(streams, **join, budget=ps.Tuples(60), policy="fifo", emit="all")
    query = write_split(
        joined,
        results=tmp_path / "hits",
        archive=tmp_path / "lost",
        checkpoint=tmp_path / "checkpoint",
        trigger={"availableNow": True},
    )
    query.awaitTermination()
    frames = read(spark, folders, "_flushed")
    hits = spark.read.parquet(str(tmp_path / "hits")).drop("batch")
    missed = reconcile_many(tmp_path / "lost", frames, **join, results=tmp_path / "hits")
    online, later = (rows_of(each.toPandas()) for each in (hits, missed))
    exact = native(frames, kind != "chain").toPandas()
    if kind == "inner star":
        exact = exact[exact["b"].notna()]
    wanted = rows_of(exact)
    assert online <= wanted
    still = Counter({row: n for row, n in wanted.items() if "-1" in row})  # not passed by time yet
    assert online + later <= wanted + still
    assert wanted - (online + later) <= still
    assert later.total() > 10
    if kind == "star":
        told = figures(query)
        assert sum(each["undecided"] for each in told) > 0 < sum(each["unmatched"] for each in told)
        lost = spark.read.parquet(str(tmp_path / "lost"))
        assert {row[0] for row in lost.select("_event").distinct().collect()} >= {"evicted"}


def test_a_restart_with_another_budget(spark: Any, stream_of: Any, tmp_path: Path) -> None:
    """What is known of the rows goes along; those that do not fit in any more are archived."""
    rng = np.random.default_rng(9)
    files: dict[str, list[pd.DataFrame]] = {name: [] for name in NAMES}
    for number, budget in enumerate((200, 24, 60)):
        for name in NAMES:
            files[name].append(part(rng, 90, 60 * number, 60 * number + 60, name[0]))
            if number == 2:
                files[name] += [flush(name[0], 1), flush(name[0], 2)]
            write_files(tmp_path / name, files[name])
        joined = bounded_join_many(
            {name: stream_of(tmp_path / name) for name in NAMES},
            **STAR, budget=ps.Tuples(budget), policy="lru", buckets=2, emit="all", how="left",
        )  # fmt: skip
        write_split(
            joined,
            results=tmp_path / "hits",
            archive=tmp_path / "lost",
            checkpoint=tmp_path / "checkpoint",
            trigger={"availableNow": True},
        ).awaitTermination()
    frames = {name: spark.read.parquet(str(tmp_path / name)) for name in NAMES}
    hits = spark.read.parquet(str(tmp_path / "hits")).drop("batch")
    missed = reconcile_many(tmp_path / "lost", frames, **STAR, how="left", results=tmp_path / "hits")
    online, later = (rows_of(each.toPandas()) for each in (hits, missed))
    wanted = rows_of(native(frames, True).toPandas())
    still = Counter({row: n for row, n in wanted.items() if "-1" in row})  # not passed by time yet
    assert online <= wanted
    assert wanted - (online + later) <= still
    assert online + later <= wanted + still
    assert any("null" in row[-1] for row in online)


def test_what_is_refused(spark: Any) -> None:
    frames = dict.fromkeys(NAMES, spark.createDataFrame([(1, 2, 3)], "k int, l int, ts long"))
    join: dict[str, Any] = {"time": "ts", "within": 5}
    two = [(("seen", "k"), ("clicked", "k")), (("clicked", "l"), ("bought", "l"))]
    with pytest.raises(PenstockError, match="has 2 joins"):
        bounded_join_many(frames, on=two, **join, budget=ENOUGH, how="left")
    with pytest.raises(PenstockError, match="only 'inner' and 'left'"):
        bounded_join_many(frames, on="k", **join, budget=ENOUGH, how="full")
    with pytest.raises(PenstockError, match="emit='some' is not known"):
        bounded_join_many(frames, on="k", **join, budget=ENOUGH, emit="some")
    with pytest.raises(PenstockError, match="one join or a Chain"):
        reconcile_many(frames["seen"], frames, on=two, **join, results=frames["seen"])
    with pytest.raises(PenstockError, match="late='include' cannot be combined"):
        reconcile_many(
            frames["seen"], frames, on="k", **join, results=frames["seen"], how="left", late="include"
        )
