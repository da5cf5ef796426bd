"""Recall on Spark is estimated, an upper bound, or unknown, but never far above the truth."""

from __future__ import annotations

import io
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from rich.console import Console

import penstock as ps
from penstock.errors import BiasedSampleWarning
from penstock.spark import bounded_join
from penstock.spark.monitor.pipeline import PipelineMonitor
from penstock.spark.monitor.prometheus import Exporter
from penstock.spark.monitor.totals import RunningTotals
from tests.spark.conftest import write_files
from tests.spark.support import START

pytestmark = pytest.mark.spark

FILES, ROWS = 5, 3_000


def cut(seed: int, late: float, value: str) -> list[pd.DataFrame]:
    """Five files of one side, a minute each; a share of the rows is in a later file, or all are shuffled."""
    rng = np.random.default_rng(seed)
    n = FILES * ROWS
    ts = START + pd.to_timedelta(np.sort(rng.integers(0, FILES * 60_000, n)), unit="ms")
    frame = pd.DataFrame({"k": np.minimum(rng.zipf(1.5, n), 300), "ts": ts.astype("datetime64[us, UTC]")})
    frame[value] = np.arange(n)
    part = np.arange(n) // ROWS
    if late == 1.0:
        part = rng.integers(0, FILES, n)
    part = np.where(rng.random(n) < late, np.minimum(part + rng.integers(1, 3, n), FILES - 1), part)
    return [frame[part == each] for each in range(FILES)]


@pytest.fixture
def ran(spark: Any, stream_of: Callable[[Path], DataFrame], tmp_path: Path) -> Callable[..., Any]:
    """Run a join over files that are so late; the monitor, and the true recall by Spark's own join."""

    def run(late: float, marked: bool = False, console: Any = False, **options: Any) -> tuple[Any, float]:
        names = "lr"
        for seed, name in enumerate(names):
            write_files(tmp_path / name, cut(seed, late, name))
        streams = [stream_of(tmp_path / name) for name in names]
        if marked:
            streams = [stream.withWatermark("ts", "5 seconds") for stream in streams]
        left, right = (spark.read.parquet(str(tmp_path / name)) for name in names)
        apart = F.abs(F.unix_micros(left["ts"]) - F.unix_micros(right["ts"])) <= 20_000_000
        exact = left.join(right, (left["k"] == right["k"]) & apart).count()
        joined = bounded_join(*streams, on="k", time="ts", within="20 seconds", buckets=2, **options)
        with PipelineMonitor(spark, console=console) as monitor:
            query = joined.writeStream.format("noop").trigger(availableNow=True).start()
            query.awaitTermination()
        return monitor, monitor.totals["results"] / exact

    return run


def exported(monitor: PipelineMonitor) -> dict[str, float]:
    """What Prometheus is told, of what has no labels."""
    return {family.name: family.samples[0].value for family in Exporter(monitor).collect() if family.samples}


def test_files_in_order_are_estimated(ran: Callable[..., Any]) -> None:
    monitor, truth = ran(0.0, budget=ps.Tuples(600), policy="gdj", drop_rate=0.3, drop_at="arrival")
    totals = monitor.totals
    print(truth, totals["recall"])
    assert not totals["recall_at_most"]
    assert totals["recall"] == pytest.approx(truth, abs=0.03)
    assert totals["advice"] is None
    assert exported(monitor)["penstock_recall"] == totals["recall"]
    assert exported(monitor)["penstock_recall_upper_bound"] == totals["recall"]


@pytest.mark.parametrize("marked", [False, True])
def test_late_rows_make_an_upper_bound_that_is_near(
    ran: Callable[..., Any], caplog: pytest.LogCaptureFixture, marked: bool
) -> None:
    console = Console(file=io.StringIO(), record=True, width=160)
    with caplog.at_level(logging.WARNING, logger="penstock"):
        monitor, truth = ran(0.04, marked=marked, console=console, budget=ps.Tuples(600), policy="gdj")
    totals = monitor.totals
    print(truth, totals["recall"], totals["late"], totals["behind_watermark"], totals["unestimated"])
    assert totals["recall_at_most"]
    assert truth - 0.03 < totals["recall"] < truth + 0.05
    assert any(each["recall_at_most"] for each in monitor.history)
    told = exported(monitor)
    assert "penstock_recall" not in told
    assert told["penstock_recall_upper_bound"] == totals["recall"]
    assert told["penstock_unestimated_rows"] == totals["unestimated"] > 0
    shown = console.export_text()
    assert f"at most {100 * totals['recall']:.1f} %" in shown
    for word in ("came late", "order of time", "maxFilesPerTrigger", "lateness="):
        assert word in totals["advice"]
        assert word in " ".join(shown.split())
    assert len(caplog.records) == 1
    assert "came late" in caplog.text


def test_shuffled_files_are_not_estimated(ran: Callable[..., Any]) -> None:
    monitor, truth = ran(1.0, budget=ps.Tuples(2_000), policy="gdj")
    totals = monitor.totals
    print(truth, totals["recall"], totals["late_share"])
    assert totals["recall"] is None
    assert totals["late_share"] > 0.5
    assert "Recall is unknown" in totals["advice"]
    assert "penstock_recall_upper_bound" not in exported(monitor)


def test_rates_are_cut_like_the_budget(spark: Any, tmp_path: Path) -> None:
    """With the paper's drop rate, eight buckets drop what one does."""
    rng = np.random.default_rng(0)
    n = 4_000
    frames = []
    for name in "lr":
        frame = pd.DataFrame({"k": rng.integers(0, 1_000, n), "ts": np.arange(n), name: np.arange(n)})
        frames.append(spark.createDataFrame(frame))
    shares = []
    for buckets in (1, 8):
        options = {"within": 400, "budget": ps.Tuples(400), "policy": "fifo", "rates": (1.0, 1.0)}
        joined = bounded_join(
            *frames, on="k", time="ts", buckets=buckets, drop_rate="unbiased", emit="all", **options
        )
        events = joined.filter("_event = 'dropped'").count()
        shares.append(events / (2 * n))
    print(shares)
    assert shares == pytest.approx([0.5, 0.5], abs=0.02)
    with pytest.warns(BiasedSampleWarning, match="biased sample") as told:
        bounded_join(
            *frames, on="k", time="ts", within=400, budget=ps.Tuples(400), policy="fifo",
            rates=(1.0, 3.0), drop_rate="unbiased", allocation="equal", buckets=8,
        )  # fmt: skip
    assert len(told) == 1
    assert told[0].filename == __file__


def test_a_biased_sample_is_told_by_the_driver() -> None:
    totals = RunningTotals()
    totals.add({"crowded": 3, "buckets": []}, batch=0)
    advice = totals.advice()
    assert advice is not None
    assert "constant rate" in advice


@pytest.mark.parametrize(
    ("budget", "staggered"),
    [(400, True), (2_000, False)],  # half of it is for the left stream, of which 600 reach the best age
)
def test_age_divides_rates_among_buckets(spark: Any, budget: int, staggered: bool) -> None:
    """With eight buckets AGE decides as with one whether memory is short, and finds as much.

    A left row is matched at the age of 5 or 600, and half of them once more at 700. Where memory is short,
    AGE keeps some rows to the age of 600, and FIFO none. Where it is not, AGE is a FIFO; with the rates of
    the whole stream in every bucket it was staggered, gave up rows at 600 and lost to FIFO.
    """
    n, rng = 6_000, np.random.default_rng(0)
    at = np.arange(n)
    again = at[rng.random(n) < 0.5]
    right = pd.DataFrame(
        {
            "k": np.concatenate([at, again]),
            "ts": np.concatenate([at + np.where(rng.random(n) < 0.9, 600, 5), again + 700]),
        }
    )
    frames = [
        spark.createDataFrame(pd.DataFrame({"k": at, "ts": at})),
        spark.createDataFrame(right.sort_values("ts", kind="stable")),
    ]
    recall = {}
    for policy in ("age:k=600", "fifo"):
        for buckets in (1, 8):
            joined = bounded_join(
                *frames, on="k", time="ts", within=(0, 1_000), budget=ps.Tuples(budget), policy=policy,
                rates=(1.0, 1.5), allocation="equal", buckets=buckets,
            )  # fmt: skip
            recall[policy[:4].rstrip(":"), buckets] = joined.count() / len(right)
    print(recall)
    for policy in ("age", "fifo"):
        assert recall[policy, 8] == pytest.approx(recall[policy, 1], abs=0.03)
    for buckets in (1, 8):
        ahead = recall["age", buckets] - recall["fifo", buckets]
        assert ahead > 0.1 if staggered else ahead == pytest.approx(0, abs=1e-9)


@pytest.mark.parametrize("bursty", [False, True])
def test_a_biased_sample_is_told_while_the_query_runs(
    spark: Any,
    stream_of: Callable[[Path], DataFrame],
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    recwarn: pytest.WarningsRecorder,
    bursty: bool,
) -> None:
    """Bursts show only in the data, so the monitor tells of them; constant rates give nothing to tell."""
    rng = np.random.default_rng(0)
    gaps = np.r_[np.full(2_000, 10), np.full(2_000, 1), np.full(2_000, 19)] if bursty else np.full(6_000, 10)
    at = START + pd.to_timedelta(np.cumsum(gaps), unit="ms")
    streams = []
    for name in "lr":
        frame = pd.DataFrame({"k": rng.integers(0, 200, 6_000), "ts": at.astype("datetime64[us, UTC]")})
        parts = [frame.iloc[i : i + 1_500].assign(**{name: i}) for i in range(0, 6_000, 1_500)]
        streams.append(stream_of(write_files(tmp_path / name, parts)))
    joined = bounded_join(
        *streams, on="k", time="ts", within="5 seconds", budget=ps.Tuples(500), policy="fifo",
        rates=(1e-4, 1e-4), drop_rate="unbiased", buckets=4,
    )  # fmt: skip
    with (
        caplog.at_level(logging.WARNING, logger="penstock"),
        PipelineMonitor(spark, console=False) as monitor,
    ):
        joined.writeStream.format("noop").trigger(availableNow=True).start().awaitTermination()
    totals = monitor.totals
    assert totals["dropped"] > 2_000
    assert not [each for each in recwarn if each.category is BiasedSampleWarning]
    if bursty:
        assert "drop_rate='unbiased' assumes a constant rate" in totals["advice"]
        assert len(caplog.records) == 1
        assert "results of bursts are under-represented" in caplog.text
    else:
        assert totals["crowded"] == 0
        assert totals["advice"] is None
        assert not caplog.records
