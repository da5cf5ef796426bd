"""`policy="sample"` on Spark: weights of results, and what `estimate` makes of them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pyspark.sql import functions as F

import penstock as ps
from penstock.errors import BiasedSampleWarning, ColumnError
from penstock.joins.weighted_sums import interval_of, moments_of
from penstock.spark import bounded_join, estimate
from penstock.spark.runtime.join_bucket import SAMPLED, SMALLEST, WEIGHT, JoinBucket
from tests.joins.test_sample import bursty, truth_of
from tests.spark.conftest import write_files
from tests.spark.packed import divided, packed, spec_of
from tests.spark.support import pieces, rows_of

JOIN: dict[str, Any] = {"on": "key", "time": "ts", "within": 200, "policy": "sample"}


def results_of(bucket: JoinBucket, batches: range, restoring: bool = False) -> pa.Table:
    """The results of a bucket, which may be snapshotted and restored before each batch."""
    tables = []
    for number in batches:
        if restoring:
            bucket = JoinBucket.restore(bucket.spec, bucket.snapshot())
        tables += divided(bucket.process(packed(number)))[0]
    return pa.concat_tables(tables)


def test_a_restart_changes_no_weight() -> None:
    spec = spec_of(ps.Tuples(30), policy="sample", seed=3).of_bucket(1)
    whole = results_of(JoinBucket(spec), range(5))
    assert results_of(JoinBucket(spec), range(5), restoring=True).equals(whole)
    assert min(whole[SMALLEST].to_pylist()) < 1.0
    assert np.array_equal(1.0 / whole[SMALLEST].to_numpy(), whole[WEIGHT].to_numpy())


def test_buckets_draw_on_their_own() -> None:
    found = [
        results_of(JoinBucket(spec_of(ps.Tuples(30), policy="sample", seed=3).of_bucket(number)), range(3))
        for number in (0, 1)
    ]
    ids = [set(table[SAMPLED].to_pylist()) for table in found]
    assert not ids[0] & ids[1]
    assert found[0][SMALLEST].to_pylist() != found[1][SMALLEST].to_pylist()


@pytest.mark.parametrize("change", [{"budget": ps.Tuples(60)}, {"seed": 4}, {"allocation": "equal"}], ids=str)
def test_a_restart_under_other_options_is_refused(change: dict[str, Any]) -> None:
    spec = spec_of(ps.Tuples(30), policy="sample", seed=3)
    bucket = JoinBucket(spec)
    results_of(bucket, range(2))
    other = dataclasses.replace(spec, join=dataclasses.replace(spec.join, **change))
    with pytest.raises(ps.PenstockError, match="same policy, budget, seed"):
        JoinBucket.restore(other, bucket.snapshot()).adapt()
    assert not JoinBucket.restore(spec, bucket.snapshot()).adapt()


def test_a_restart_from_another_policy_is_refused() -> None:
    bucket = JoinBucket(spec_of(ps.Tuples(30), policy="lru"))
    results_of(bucket, range(2))
    with pytest.raises(ps.PenstockError, match="not drawn"):
        JoinBucket.restore(spec_of(ps.Tuples(30), policy="sample"), bucket.snapshot()).adapt()


def in_process(results: pd.DataFrame, what: str, value: np.ndarray, group: np.ndarray) -> list[list[float]]:
    """Value, lower, upper and standard error of each group, by the arrays of `run.estimate`."""
    order = np.argsort(-results[SMALLEST].to_numpy(), kind="stable")
    kept, t = results[SAMPLED].to_numpy()[order], results[SMALLEST].to_numpy()[order]
    moments = moments_of(what, group[order], group.max() + 1, kept, t, value[order])
    return np.transpose([moments.value, *interval_of(moments, 0.95), np.sqrt(moments.variance)]).tolist()


COPIES = 40


@pytest.fixture(scope="module")
def copies(spark: Any) -> tuple[Any, dict[str, float]]:
    """Results of many copies of two streams in one join of four buckets, and the exact answer for each."""
    left, right = bursty(300, seed=3)
    frames = []
    for name, rows in (("l", left), ("r", right)):
        one = pd.DataFrame(rows).rename(columns={"amount": name})
        every = pd.concat([one.assign(copy=number) for number in range(COPIES)])
        frames.append(spark.createDataFrame(every.sample(frac=1.0, random_state=1)))
    options = JOIN | {"on": ["copy", "key"], "budget": ps.Tuples(20 * COPIES), "buckets": 4, "seed": 2}
    return bounded_join(*frames, **options).cache(), truth_of(left, right, within=200)


@pytest.mark.spark
def test_estimates_are_unbiased_across_buckets(copies: Any) -> None:
    hits, truth = copies
    assert len({sampled >> 44 for (sampled,) in hits.select(SAMPLED).distinct().collect()}) == 4
    assert hits.count() < 0.8 * COPIES * truth["count"]
    for what, column, exact in (
        ("count", None, truth["count"]),
        ("sum", "r", truth["right.amount"]),
    ):
        found = estimate(hits, what, column, by="copy").toPandas()
        assert len(found) == COPIES
        error = found["value"].std() / np.sqrt(COPIES)
        assert abs(found["value"].mean() - exact) <= max(0.01 * exact, 3 * error)
        assert ((found["lower"] <= exact) & (exact <= found["upper"])).mean() >= 0.85
        whole = estimate(hits, what, column).toPandas().iloc[0]
        assert whole["value"] == pytest.approx(found["value"].sum())
        assert whole["lower"] <= COPIES * exact <= whole["upper"]


@pytest.mark.spark
def test_estimates_are_those_in_process(copies: Any) -> None:
    hits, _ = copies
    rows = hits.toPandas()
    code, groups = pd.factorize(rows["key"], sort=True)
    for what, column in (("count", None), ("sum", "l"), ("mean", "r")):
        value = np.ones(len(rows)) if column is None else rows[column].to_numpy()
        got = estimate(hits, what, column, by="key").orderBy("key").toPandas()
        assert got["key"].tolist() == groups.tolist()
        expected = in_process(rows, what, value, code)
        np.testing.assert_allclose(got.drop(columns="key").to_numpy(), expected, rtol=1e-6, atol=1e-6)


@pytest.mark.spark
def test_by_expressions_and_missing_values(spark: Any, copies: Any) -> None:
    hits, _ = copies
    by_time = estimate(hits, "count", by=[F.window(F.timestamp_seconds("ts_left"), "1000 seconds"), "copy"])
    assert by_time.columns == ["window", "copy", "value", "lower", "upper", "std_error"]
    total = by_time.agg(F.sum("value")).first()[0]
    assert total == pytest.approx(estimate(hits, "count").first()["value"])
    some = hits.withColumn("l", F.when(F.col("key") > 1, F.col("l")))
    with_value = estimate(hits.filter("key > 1"), "count").first()["value"]
    assert estimate(some, "count", "l").first()["value"] == pytest.approx(with_value)
    nothing = hits.filter("key < 0")
    assert estimate(nothing, "sum", "l").first().asDict() == {
        "value": 0.0, "lower": 0.0, "upper": 0.0, "std_error": 0.0
    }  # fmt: skip
    assert estimate(nothing, "mean", "l").first()["value"] is None
    renamed = hits.withColumnRenamed("key", "v").withColumnRenamed("copy", "variance")
    assert estimate(renamed, "mean", "l", by=["v", "variance"]).count() > COPIES


@pytest.mark.spark
def test_questions_that_make_no_sense(spark: Any, copies: Any) -> None:
    hits, _ = copies
    for frame, question, options, message in (
        (hits, ("median", "l"), {}, "what=.median. is not known"),
        (hits, ("sum", "price"), {}, "no column 'price'"),
        (hits, ("sum", "text"), {}, "not a number"),
        (hits, ("sum",), {}, "needs a column"),
        (hits, ("count",), {"by": "kye"}, "did you mean 'key'"),
        (hits, ("count",), {"by": F.col("key").alias("upper")}, "rename"),
        (hits, ("count",), {"confidence": 2.0}, "between 0 and 1"),
        (spark.range(3), ("count",), {}, 'policy="sample"'),
        ([1], ("count",), {}, "Spark DataFrame"),
    ):
        frame = frame.withColumn("text", F.lit("x")) if hasattr(frame, "withColumn") else frame
        with pytest.raises(ps.PenstockError, match=message):
            estimate(frame, *question, **options)


@pytest.mark.spark
def test_what_the_join_refuses(spark: Any) -> None:
    rows = spark.createDataFrame([(1, 0)], "key int, ts long")
    with pytest.raises(ColumnError, match="_weight"):
        bounded_join(rows.withColumn("_weight", F.lit(1)), rows, budget=ps.Tuples(20), **JOIN)
    with pytest.warns(BiasedSampleWarning, match="no weight makes up for"):
        bounded_join(rows, rows, budget=ps.Tuples(20), buckets=1, drop_rate=0.5, **JOIN)


@pytest.mark.spark
@pytest.mark.slow
def test_streams_windows_and_restarts(
    spark: Any, tmp_path: Path, stream_of: Callable[..., Any], collected: Callable[..., Any]
) -> None:
    """Weights are the same after a restart; windows of a stream have the estimates of what it has written."""
    frames = [pieces(side, 2, 200, name) for side, name in ((1, "l"), (2, "r"))]
    options = {"on": "k", "time": "ts", "within": "20 seconds", "policy": "sample", "buckets": 2, "seed": 1}

    def hits(files: int) -> Any:
        sides = [
            stream_of(write_files(tmp_path / name, side[:files])).withWatermark("ts", "5 seconds")
            for name, side in zip("lr", frames, strict=True)
        ]
        return bounded_join(*sides, budget=ps.Tuples(80), **options)

    first, _ = collected(hits(1))
    second, _ = collected(hits(2))
    whole, _ = collected(hits(2), checkpoint="whole")
    assert rows_of(pd.concat([first, second])) == rows_of(whole)
    assert whole["_t"].min() < 1.0

    windows = estimate(hits(2), "sum", "r", by=F.window("event_time", "20 seconds"))
    told, _ = collected(windows, checkpoint="windows")
    written = spark.createDataFrame(whole)
    expected = estimate(written, "sum", "r", by=F.window("event_time", "20 seconds")).toPandas()
    for table in (told, expected):
        table["start"] = [window["start"] for window in table["window"]]
    both = told.merge(expected, on="start", suffixes=("_told", ""))
    assert len(both) == len(told) >= 2
    for name in ("value", "lower", "upper", "std_error"):
        np.testing.assert_allclose(both[f"{name}_told"], both[name], rtol=1e-9)
    with pytest.raises(ps.PenstockError, match="no end"):
        estimate(hits(2), "count")
