"""`write_split` leaves one copy of every row, and `reconcile` finds exactly what a bounded join missed."""

from __future__ import annotations

import datetime
import itertools
import os
from collections import Counter
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame

import penstock as ps
from penstock.errors import PenstockError
from penstock.spark import bounded_join, reconcile
from penstock.spark.api.write_split import write_split
from tests.spark.support import figures

pytestmark = pytest.mark.spark

JOIN: dict[str, Any] = {"on": [("k", "key")], "time": "ts", "within": ("10 seconds", "30 seconds")}
ONCE = {"availableNow": True}
FEW = ("gdj", "lru", "prob", "age")
OTHERS = ("fifo", "rand", "lfu", "life", "clock", "clock-exp")
EXACT = """
    select a.k, a.ts as ts_left, a.note as note_left, a.l, b.ts as ts_right, b.note as note_right, b.r
    from a join b on a.k = b.key
    where unix_micros(b.ts) - unix_micros(a.ts) between -10000000 and 30000000
"""


def rows_of(frame: DataFrame) -> Counter[Any]:
    """The rows as a multiset, whatever they hold."""
    return Counter(tuple(str(value) for value in row) for row in frame.collect())


def random_rows(rng: np.random.Generator, n: int, start: int, key: str, value: str) -> pa.Table:
    """Rows of a minute with ties, rows that are there twice, nulls, and maps."""
    which = rng.integers(0, n // 2, n)  # most are there more than once
    seconds = rng.integers(start, start + 60, n)[which]
    keys = rng.zipf(1.5, n)[which]
    kinds = {"k": pa.int32(), "key": pa.int64()}
    notes = [None if number % 7 == 0 else [(f"n{number % 3}", int(number % 2))] for number in which]
    return pa.table(
        {
            key: pa.array([None if k > 15 else k for k in keys.tolist()], kinds[key]),
            "ts": pa.array((1_700_000_000 + seconds) * 1_000_000, pa.timestamp("us", tz="UTC")),
            "note": pa.array(notes, pa.map_(pa.string(), pa.int32())),
            value: pa.array(which % 5, pa.int64()),
        }
    )


def add_files(folder: Path, tables: list[pa.Table]) -> Path:
    """One more file per table; a stream reads them in this order."""
    folder.mkdir(exist_ok=True)
    first = len(list(folder.iterdir()))
    for number, table in enumerate(tables, first):
        path = folder / f"{number:04d}.parquet"
        pq.write_table(table, path)
        os.utime(path, (1_700_000_000 + number, 1_700_000_000 + number))
    return folder


@pytest.fixture(scope="module")
def parts() -> list[tuple[list[pa.Table], list[pa.Table]]]:
    """What comes before and after a restart; the files are not in the order of their times."""
    rng = np.random.default_rng(7)
    lefts = [random_rows(rng, 150, start, "k", "l") for start in (60, 0, 120, 60)]
    rights = [random_rows(rng, 150, start, "key", "r") for start in (0, 60, 60, 120)]
    return [(lefts[:2], rights[:2]), (lefts[2:], rights[2:])]


@pytest.fixture
def join_of(stream_of: Callable[[Path], DataFrame], tmp_path: Path) -> Callable[..., DataFrame]:
    """A bounded join of the files that are there."""

    def join(**options: Any) -> DataFrame:
        options = {"budget": ps.Tuples(40), "policy": "fifo", "buckets": 2, "emit": "all"} | options
        return bounded_join(stream_of(tmp_path / "left"), stream_of(tmp_path / "right"), **JOIN, **options)

    return join


def run_split(frame: DataFrame, folder: Path, **options: Any) -> Any:
    """The stream to its end."""
    options = {"results": folder / "hits", "archive": folder / "lost"} | options
    query = write_split(frame, checkpoint=folder / "checkpoint", trigger=ONCE, **options)
    query.awaitTermination()
    return query


@pytest.mark.parametrize(
    "policy", [*FEW, *(pytest.param(policy, marks=pytest.mark.soak) for policy in OTHERS)]
)
def test_online_and_reconciled_are_the_exact_join(
    spark: Any, join_of: Any, tmp_path: Path, parts: Any, policy: str
) -> None:
    for lefts, rights in parts:
        add_files(tmp_path / "left", lefts)
        add_files(tmp_path / "right", rights)
        run_split(join_of(policy=policy, allocation="equal" if policy == "age" else "unified"), tmp_path)
    left, right = (spark.read.parquet(str(tmp_path / side)) for side in ("left", "right"))
    missed = reconcile(tmp_path / "lost", left, right, **JOIN, results=tmp_path / "hits")
    online, lost = (spark.read.parquet(str(tmp_path / name)) for name in ("hits", "lost"))
    left.createOrReplaceTempView("a")
    right.createOrReplaceTempView("b")
    exact = spark.sql(EXACT)
    assert missed.dtypes == exact.dtypes
    assert online.columns == [*exact.columns, "batch"]
    assert lost.columns == [*exact.columns, "_event", "_stream", "_at", "batch"]
    assert {row["_event"] for row in lost.select("_event").distinct().collect()} == {"evicted", "late"}
    found, later = rows_of(online.drop("batch")), rows_of(missed)
    assert min(found.total(), later.total()) > 100
    assert found + later == rows_of(exact)


def test_a_batch_that_is_run_again_leaves_one_copy(
    spark: Any, join_of: Any, tmp_path: Path, parts: Any
) -> None:
    for lefts, rights in parts:
        add_files(tmp_path / "left", lefts)
        add_files(tmp_path / "right", rights)
    kept: dict[int, Counter[Any]] = {}
    failures = [2]

    def keep(rows: DataFrame, batch: int) -> None:
        if batch in failures:
            failures.remove(batch)
            raise RuntimeError("the archive is away")
        kept[batch] = rows_of(rows)

    with pytest.raises(StreamingQueryException):
        run_split(join_of(), tmp_path, archive=keep)
    assert sorted(kept) == [0, 1]
    hits = spark.read.parquet(str(tmp_path / "hits"))
    assert hits.filter("batch = 2").count() > 0  # written by the batch that failed
    run_split(join_of(), tmp_path, archive=keep)
    whole = tmp_path / "whole"
    whole.mkdir()
    run_split(join_of(), whole)
    assert sorted(kept) == [0, 1, 2, 3]
    hits, all_hits, all_lost = (
        spark.read.parquet(str(path)) for path in (tmp_path / "hits", whole / "hits", whole / "lost")
    )
    assert rows_of(hits) == rows_of(all_hits)
    assert sum(kept.values(), Counter()) == rows_of(all_lost.drop("batch"))


def test_functions_that_look_at_little_lose_neither_state_nor_figures(
    spark: Any, join_of: Any, tmp_path: Path, parts: Any
) -> None:
    add_files(tmp_path / "left", parts[0][0])
    add_files(tmp_path / "right", parts[0][1])
    seen: list[tuple[int, list[str]]] = []

    def look(rows: DataFrame, batch: int) -> None:
        rows.head(1)
        seen.append((batch, rows.columns))

    query = run_split(join_of(), tmp_path, results=look, archive=look)
    assert [batch for batch, _ in seen] == [0, 0, 1, 1]
    assert seen[1][1] == [*seen[0][1], "_event", "_stream", "_at"]
    told = figures(query)
    assert [len(each["buckets"]) for each in told] == [2, 2]
    rows = sum(each["arrived_left"] + each["arrived_right"] + each["skipped"] for each in told)
    assert rows == sum(table.num_rows for side in parts[0] for table in side)


def test_nothing_to_write_can_be_read(spark: Any, join_of: Any, tmp_path: Path, parts: Any) -> None:
    (left, _), (right, _) = parts[0]
    add_files(tmp_path / "left", [left.slice(0, 5)])
    add_files(tmp_path / "right", [right.slice(0, 0)])
    run_split(join_of(), tmp_path)
    hits, lost = (spark.read.parquet(str(tmp_path / name)) for name in ("hits", "lost"))
    assert hits.count() == lost.count() == 0
    assert len(hits.columns) + 3 == len(lost.columns)
    frames = [spark.read.parquet(str(tmp_path / side)) for side in ("left", "right")]
    missed = reconcile(lost, *frames, **JOIN, results=hits)
    assert missed.columns == hits.columns[:-1]
    assert missed.count() == 0
    with pytest.raises(PenstockError, match="batches of another query"):
        write_split(join_of(), results=tmp_path / "hits", archive=tmp_path / "new")


def at(text: str) -> datetime.datetime:
    """A time in the spring of 2024; in New York an hour is missing on the tenth of March."""
    return datetime.datetime.fromisoformat(f"2024-03-{text}")


def utc(text: str) -> datetime.datetime:
    """The same in a zone."""
    return at(text).replace(tzinfo=datetime.UTC)


HOURS = ["10T05:00", "10T06:30", "10T06:59:59.999999", "10T07:00", "10T08:00", "10T08:00:00.000001"]
KINDS: dict[str, tuple[str, list[Any], Any, dict[str, Any]]] = {
    "timestamp": ("timestamp", [utc(text) for text in HOURS], ("30 minutes", "1 hour"), {}),
    "timestamp_ntz": ("timestamp_ntz", [at(text) for text in HOURS], ("30 minutes", "1 hour"), {}),
    "date": ("date", [at(f"{day:02d}").date() for day in range(8, 13)], ("0 days", "36 hours"), {}),
    "number": ("int", [0, 1, 2, 3, 5], ("999 ms", "2500 ms"), {"unit": "s"}),
    "fraction": ("double", [0.0, 0.25, 0.5, 2.75, 3.0, float("nan")], ("250 ms", "2500 ms"), {"unit": "s"}),
    "decimal": ("decimal(9,2)", [Decimal(n) / 4 for n in range(6)], 0.5, {}),
}


@pytest.mark.parametrize("kind", KINDS)
def test_times_of_every_kind(spark: Any, kind: str) -> None:
    name, times, within, options = KINDS[kind]
    values: list[Any] = [{"x": {1: "u"}}, {}, None]
    rows = [
        (key, time, [value])
        for (key, value), time in itertools.product(zip("aab", values, strict=True), times)
    ]
    schema = f"`the key` string, t {name}, v array<map<string, map<int, string>>>"
    left = spark.createDataFrame([*rows, ("a", None, None), (None, times[0], None)], schema)
    right = spark.createDataFrame(rows[::-1], schema)
    join: dict[str, Any] = {"on": "the key", "time": "t", "within": within} | options
    both = bounded_join(
        left, right, **join, budget=ps.Tuples(6), buckets=1, policy="fifo", emit="all"
    ).cache()
    online, lost = both.filter("_event = 'result'"), both.filter("_event != 'result'")
    missed = reconcile(lost, left, right, **join, results=online)
    exact = Counter(
        tuple(str(value) for value in (a[0], a[1], a[2], b[1], b[2]))
        for a, b in itertools.product(left.collect(), right.collect())
        if a[0] == b[0] and None not in (a[1], b[1]) and is_near(kind, b[1] - a[1])
    )
    found, later = rows_of(online.drop("_event", "_stream", "_at")), rows_of(missed)
    assert min(found.total(), later.total()) > 5
    assert found + later == exact
    assert missed.dtypes == online.dtypes[:-3]


def is_near(kind: str, apart: Any) -> bool:
    """The windows above in Python's own words."""
    hour = datetime.timedelta(hours=1)
    if kind.startswith("timestamp"):
        return -hour / 2 <= apart <= hour
    if kind == "date":
        return 0 <= apart.days <= 1
    least, most = {"number": (-0.999, 2.5), "fraction": (-0.25, 2.5), "decimal": (-0.5, 0.5)}[kind]
    return least <= apart <= most


def test_bad_calls_are_refused_before_any_work(
    spark: Any, join_of: Any, stream_of: Any, tmp_path: Path, parts: Any
) -> None:
    add_files(tmp_path / "left", parts[0][0])
    add_files(tmp_path / "right", parts[0][1])
    joined = join_of()
    splits: list[tuple[Any, dict[str, Any], str]] = [
        (join_of(emit="results"), {}, "emit='all'"),
        (joined.drop("_at"), {}, "no column '_at'"),
        ({"a": 1}, {}, "not a dict"),
        (
            spark.createDataFrame([("result", "left", 0)], "_event string, _stream string, _at int"),
            {},
            "batch",
        ),
        (joined, {"results": 3}, "not a sink"),
        (joined, {"archive": "x"}, "same path"),
        (joined.withColumnRenamed("l", "Batch"), {}, "a column 'Batch'"),
    ]
    for stream, change, message in splits:
        with pytest.raises(PenstockError, match=message):
            write_split(stream, **({"results": "x", "archive": "y"} | change))

    frame = spark.createDataFrame([(1, 2, "x")], "k int, ts long, s string")
    online = spark.createDataFrame(
        [(1, 2, "x", 2, "x")], "k int, ts_left long, s_left string, ts_right long, s_right string"
    )
    fine = {"archive": online, "left": frame, "right": frame, "results": online}
    fine |= {"on": "k", "time": "ts", "within": 10}
    calls: list[tuple[dict[str, Any], str]] = [
        ({"left": stream_of(tmp_path / "left")}, "a batch job"),
        ({"right": [1]}, "right is a list"),
        ({"archive": tmp_path / "nowhere"}, "cannot be read"),
        ({"archive": frame.drop("k")}, "archive has no column 'k'"),
        ({"results": online.drop("s_left")}, "no column 's_left', which the join has; did you mean"),
        ({"suffixes": ("_a", "_b")}, "no column 'ts_a'"),
        ({"results": online.selectExpr("k", "'' as ts_left", "s_left", "ts_right", "s_right")}, "cast it"),
        ({"within": ps.Rows(3)}, "window of time"),
        ({"on": "key"}, "no column 'key'; did you mean 'k'"),
    ]
    for change, message in calls:
        with pytest.raises(PenstockError, match=message):
            reconcile(**(fine | change))
    assert reconcile(**fine).count() == 0
