"""Keys are equal where Spark's own `=` says so: every pair of types, with ANSI on and off, or refused."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from itertools import combinations, combinations_with_replacement
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import functions as F

from penstock.errors import ColumnError
from penstock.spark import bounded_join, bounded_join_many, match_pattern, reconcile
from penstock.spark.runtime.keys import RETAIN_FRACTION, common_type
from tests.spark.support import same_rows

# Values that are close to each other: equal in one type and different in another, or equal by a collation.
NUMBERS = ("0", "1", "16777216", "16777217", "0.1")
TEXTS = ("'a'", "'A'", "'a '", "'á'", "'ß'", "'ss'", "'Σ'", "'ς'", "'İ'", "'i̇'")
VALUES: dict[str, tuple[str, ...]] = {
    "tinyint": ("0", "1", "16"),
    "smallint": ("0", "1", "16777"),
    "int": ("0", "1", "16777216", "16777217"),
    "bigint": ("0", "16777217", "9007199254740992", "9007199254740993"),
    "float": (*NUMBERS, "'NaN'", "'-0.0'", "9007199254740992"),
    "double": (*NUMBERS, "'NaN'", "'-0.0'", "9007199254740992", "cast(0.1 AS float)", "1.4"),
    "decimal(5,2)": ("0", "1", "0.1", "1.4"),
    "decimal(20,10)": ("0", "1", "0.1", "16777217", "9007199254"),
    "decimal(38,0)": (*NUMBERS, "9007199254740993"),
    "decimal(38,18)": (*NUMBERS, "1.4", "9007199254740993"),
    "boolean": ("true", "false"),
    "binary": ("'a'", "'A'", "''"),
    "string": (*TEXTS, "''", "'1'", "'0.1'", "'true'", "'2024-03-10'"),
    "string collate UTF8_LCASE": TEXTS,
    "string collate UTF8_BINARY_RTRIM": TEXTS,
    "string collate UNICODE": TEXTS,
    "string collate UNICODE_CI": TEXTS,
    "string collate UNICODE_CI_AI": TEXTS,
    "string collate UNICODE_CI_AI_RTRIM": TEXTS,
    "date": ("'2024-03-10'", "'2024-11-03'"),
    "timestamp": ("'2024-03-10'", "'2024-11-03 01:30:00-04:00'", "'2024-11-03 01:30:00-05:00'"),
    "timestamp_ntz": ("'2024-03-10'", "'2024-11-03 01:30:00'"),
    "interval year to month": ("interval '1-0' year to month", "interval '0-11' year to month"),
    "interval month": ("interval '12' month", "interval '11' month"),
    "interval day to second": ("interval '1 00:00:00' day to second", "interval '0 23:59:59' day to second"),
    "interval day": ("interval '1' day", "interval '2' day"),
    "array<int>": ("array()", "array(1, null)", "array(null, 1)", "array(1)", "array(null)"),
    "array<array<int>>": ("array(array(1), array(2))", "array(array(1, 2))", "array(array())", "array(null)"),
    "array<double>": ("array('NaN')", "array(0)", "array('-0.0')"),
    "array<string collate UNICODE_CI>": ("array('a')", "array('A', null)", "array('A')", "array(null, 'a')"),
    "struct<a:int,b:int>": (
        "named_struct('a', 1, 'b', null)",
        "named_struct('a', null, 'b', 1)",
        "named_struct('a', null, 'b', null)",
        "named_struct('a', 1, 'b', 1)",
    ),
    "struct<a:string collate UTF8_LCASE>": ("named_struct('a', 'x')", "named_struct('a', 'X')"),
    "map<string,int>": ("map('a', 1)",),
    "array<map<string,int>>": ("array(map('a', 1))",),
    "variant": ("parse_json('1')",),
}
NEVER = ("map<string,int>", "array<map<string,int>>", "variant", "interval year to month", "interval month")
ROWS = max(map(len, VALUES.values()))
NAMES = {kind: f"c{i}" for i, kind in enumerate(VALUES)}
PAIRS = list(combinations_with_replacement(VALUES, 2))


@contextlib.contextmanager
def ansi(spark: Any, on: bool) -> Iterator[None]:
    """The session in a mode."""
    spark.conf.set("spark.sql.ansi.enabled", str(on).lower())
    try:
        yield
    finally:
        spark.conf.unset("spark.sql.ansi.enabled")


def column(kind: str) -> str:
    """The values of a type, one per row; null where there are no more."""
    cases = "".join(f" WHEN {i} THEN cast({value} AS {kind})" for i, value in enumerate(VALUES[kind]))
    return f"CASE id{cases} ELSE cast(null AS {kind}) END AS {NAMES[kind]}"


@pytest.fixture(scope="module")
def table(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> str:
    """All values of all types in a file."""
    path = str(tmp_path_factory.mktemp("keys") / "all")
    kinds = ", ".join(column(kind) for kind in VALUES)
    spark.sql(f"SELECT id, 0L AS ts, {kinds} FROM range({ROWS})").coalesce(1).write.parquet(path)
    return path


def sides(frame: Any) -> tuple[Any, Any]:
    """The same table as two streams, with names of their own."""
    frame = frame.drop(*[NAMES[kind] for kind in NEVER])
    return tuple(frame.toDF(*[f"{side}_{name}" for name in frame.columns]) for side in "ab")  # type: ignore[return-value]


def accepted(spark: Any, frame: Any) -> dict[tuple[str, str], str]:
    """The pairs of types that Penstock compares, and in which type."""
    found = {}
    for pair in PAIRS:
        with contextlib.suppress(ColumnError):
            kinds = [frame.schema[NAMES[kind]].dataType for kind in pair]
            found[pair] = common_type(pair, kinds, spark).simpleString()
    return found


def joins_of(pairs: Any) -> list[Any]:
    return [(("a", f"a_{NAMES[one]}"), ("b", f"b_{NAMES[other]}")) for one, other in pairs]


def by_spark(frame: Any, pairs: Any) -> set[tuple[int, int, int]]:
    """What Spark's own join finds: the number of the pair of types, and both rows."""
    a, b = sides(frame)
    equal = [a[f"a_{NAMES[one]}"] == b[f"b_{NAMES[other]}"] for one, other in pairs]
    rows = a.crossJoin(b).select("a_id", "b_id", *[each.alias(f"e{i}") for i, each in enumerate(equal)])
    return {(i, row[0], row[1]) for row in rows.collect() for i in range(len(equal)) if row[i + 2]}


def differing(got: Any, wanted: set[tuple[int, int, int]], pairs: Any) -> set[tuple[Any, ...]]:
    """The pairs of types and of rows on which the two do not agree."""
    found = {(row["_join"], row["a_id"], row["b_id"]) for row in got}
    return {(list(pairs)[i], *ids) for i, *ids in found ^ wanted}


def joined(frame: Any, pairs: Any) -> Any:
    """What Penstock finds, all pairs of types in one query."""
    rows = bounded_join_many(
        dict(zip("ab", sides(frame), strict=True)),
        on=joins_of(pairs),
        time={"a": "a_ts", "b": "b_ts"},
        within=10,
        budget="1000 tuples",
        policy="fifo",
    )
    return rows.select("_join", "a_id", "b_id")


@pytest.mark.parametrize("on", [True, False], ids=["ANSI", "not ANSI"])
def test_every_pair_of_types_is_compared_as_spark_does(spark: Any, table: str, on: bool) -> None:
    with ansi(spark, on):
        frame = spark.read.parquet(table)
        pairs = accepted(spark, frame)
        wanted = by_spark(frame, pairs)
        assert differing(joined(frame, pairs).collect(), wanted, pairs) == set()


@pytest.mark.parametrize("on", [True, False], ids=["ANSI", "not ANSI"])
def test_streams_compare_every_pair_of_types_as_spark_does(
    spark: Any, table: str, on: bool, tmp_path: Path
) -> None:
    with ansi(spark, on):
        batch = spark.read.parquet(table)
        pairs = accepted(spark, batch)
        parts: list[Any] = []
        query = (
            joined(spark.readStream.schema(batch.schema).parquet(table), pairs)
            .writeStream.foreachBatch(lambda rows, _: parts.extend(rows.collect()))
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        assert differing(parts, by_spark(batch, pairs), pairs) == set()


# Which pairs of types are refused, as docs/spark.md says; all that are compared are checked above.
FAMILY = {
    **dict.fromkeys(["tinyint", "smallint", "int", "bigint", "float", "double"], "number"),
    **{kind: "number" for kind in VALUES if kind.startswith("decimal")},
    **dict.fromkeys(["date", "timestamp"], "date or timestamp"),
}


def test_which_pairs_of_types_are_refused(spark: Any, table: str) -> None:
    pairs = accepted(spark, spark.read.parquet(table))
    for one, other in PAIRS:
        alike = FAMILY.get(one, one) == FAMILY.get(other, other)
        assert ((one, other) in pairs) == (alike and one not in NEVER), (one, other)


def test_decimals_are_compared_in_the_type_of_spark(spark: Any, table: str) -> None:
    """Whole digits are kept before decimal places, unless the session asks for the old way."""
    kinds = [spark.read.parquet(table).schema[NAMES[f"decimal(38,{scale})"]].dataType for scale in (0, 18)]
    assert common_type(("a", "b"), kinds, spark).simpleString() == "decimal(38,0)"
    spark.conf.set(RETAIN_FRACTION, "true")
    try:
        assert common_type(("a", "b"), kinds, spark).simpleString() == "decimal(38,18)"
    finally:
        spark.conf.unset(RETAIN_FRACTION)


LEFT = [("Tea", 0, 1), ("tea", 0, 1), ("TEA", 1, 2), ("ox", 2, 3), ("OX", 3, 4), ("tëa", 4, 5)]
RIGHT = [("teA", 5, 1), ("Ox", 6, 2), ("oX", 7, 3), ("TÉA", 8, 4), ("tea", 9, 5)]


@pytest.mark.parametrize("collation", ["UTF8_LCASE", "UNICODE_CI_AI"])
def test_collated_keys_that_were_evicted_are_reconciled(spark: Any, collation: str) -> None:
    left, right = (
        spark.createDataFrame(rows, f"k string, ts long, {value} long").selectExpr(
            f"cast(k AS string collate {collation}) AS k", "ts", value
        )
        for rows, value in ((LEFT, "l"), (RIGHT, "r"))
    )
    join: dict[str, Any] = {"on": "k", "time": "ts", "within": 100}
    rows = bounded_join(left, right, **join, budget="4 tuples", policy="fifo", emit="all", buckets=2).cache()
    hits, lost = rows.filter("_event = 'result'"), rows.filter("_event != 'result'")
    missed = reconcile(lost, left, right, **join, results=hits)
    # Compared by their letters, so that a row is not taken for another one.
    spelled = ["cast(k AS string) AS k", "ts_left", "l", "ts_right", "r"]
    exact = left.withColumnRenamed("ts", "ts_left").join(right.withColumnRenamed("ts", "ts_right"), "k")
    both = hits.selectExpr(*spelled).unionAll(missed.selectExpr(*spelled))
    assert hits.count() > 0
    assert missed.count() > 0
    assert same_rows(both, exact.selectExpr(*spelled))


@pytest.mark.parametrize("on", [True, False], ids=["ANSI", "not ANSI"])
def test_whole_numbers_and_floats_are_reconciled_in_the_mode_of_the_session(spark: Any, on: bool) -> None:
    left = spark.createDataFrame([(16777216, 0), (16777217, 1), (5, 2)], "k int, ts long")
    right = spark.createDataFrame([(16777216.0, 3), (5.0, 4), (16777216.0, 5)], "k float, ts long")
    join: dict[str, Any] = {"on": "k", "time": "ts", "within": 100}
    with ansi(spark, on):
        rows = bounded_join(left, right, **join, budget="2 tuples", policy="fifo", emit="all", buckets=1)
        rows = rows.cache()
        hits, lost = rows.filter("_event = 'result'"), rows.filter("_event != 'result'")
        missed = reconcile(lost, left, right, **join, results=hits)
        both = hits.select("ts_left", "ts_right").unionAll(missed.select("ts_left", "ts_right"))
        exact = left.toDF("a", "ts_left").join(right.toDF("b", "ts_right"), F.col("a") == F.col("b"))
        assert exact.count() == (3 if on else 5)
        assert same_rows(both, exact.select("ts_left", "ts_right"))


def test_several_arrays_as_one_key_are_not_run_together(spark: Any) -> None:
    left = spark.createDataFrame([([1], [2, 3], 0)], "a array<int>, b array<int>, ts long")
    right = spark.createDataFrame([([1, 2], [3], 1), ([1], [2, 3], 2)], "a array<int>, b array<int>, ts long")
    rows = bounded_join(left, right, on=["a", "b"], time="ts", within=100, budget="100 tuples", policy="fifo")
    assert [row["ts_right"] for row in rows.collect()] == [2]


def test_different_collations_are_refused_as_spark_refuses_them(spark: Any) -> None:
    kinds = "string collate UTF8_LCASE", "string collate UNICODE_CI", "string"
    for one, other in combinations(kinds, 2):
        left, right = (spark.sql(f"SELECT cast('a' AS {kind}) AS k, 0L AS ts") for kind in (one, other))
        with pytest.raises(AnalysisException, match="COLLATION"):
            left.toDF("a", "ts").join(right.toDF("b", "ts"), F.col("a") == F.col("b"))
        with pytest.raises(ColumnError, match="different collations"):
            bounded_join(left, right, on="k", time="ts", within=1, budget="9 tuples")


def test_keys_of_three_streams_are_compared_two_by_two(spark: Any) -> None:
    """As floats, which the third stream would bring, two different whole numbers are equal."""
    streams = {
        kind: spark.sql(f"SELECT cast(1 AS {kind}) AS k, 0L AS ts") for kind in ("int", "bigint", "float")
    }
    with ansi(spark, False), pytest.raises(ColumnError, match="because of another stream"):
        bounded_join_many(streams, on="k", time="ts", within=1, budget="100 tuples")


def test_patterns_refuse_collated_columns_that_they_would_compare_by_letters(spark: Any) -> None:
    events = spark.sql("SELECT 'A' AS type, 0L AS ts, cast('x' AS string collate UTF8_LCASE) AS id")
    for pattern, options in (
        ("PATTERN SEQ(A a, B b) WITHIN 10", {"partition_by": "id"}),
        ("PATTERN SEQ(A a, B b, a.id = b.id) WITHIN 10", {}),
    ):
        with pytest.raises(ColumnError, match=r"'id' is string collate UTF8_LCASE\. Cast it to 'string'"):
            match_pattern(events, pattern, **options)


def test_columns_that_cannot_cross_to_python_are_refused(spark: Any) -> None:
    frame = spark.sql("SELECT 1 AS k, 0L AS ts, interval '1' month AS age")
    with pytest.raises(ColumnError, match="'age' is interval month"):
        bounded_join(frame, frame, on="k", time="ts", within=1, budget="9 tuples")
