"""Chains, windows per stream and pair, and byte budgets of joins of many DataFrames."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from pyspark.sql import Observation
from pyspark.sql import functions as F

import penstock as ps
from penstock.spark import bounded_join_many
from tests.spark.conftest import write_files
from tests.spark.support import figures, rows_of

ENOUGH = ps.Tuples(100_000)


def orders_of(rng: np.random.Generator, rows: int, first: int) -> dict[str, pd.DataFrame]:
    """Orders of customers and items, with ties and nulls, times in no order."""

    def keys(most: int) -> Any:
        found = rng.integers(0, most, rows).astype(object)
        found[rng.random(rows) < 0.05] = None
        return pd.array(found, "Int64")

    def times() -> Any:
        return first + rng.integers(0, 200, rows)

    return {
        "orders": pd.DataFrame({"customer": keys(15), "item": keys(15), "ts": times()}),
        "customers": pd.DataFrame({"id": keys(15), "ts": times(), "name": rng.random(rows).round(3)}),
        "items": pd.DataFrame({"id": keys(15), "ts": times(), "price": rng.random(rows).round(3)}),
    }


CHAIN = ps.Chain(("orders.customer", "customers.id"), ("orders.item", "items.id"))
WITHIN = {("orders", "customers"): (50, 10), ("orders", "items"): (5, 40)}


def native(frames: dict[str, Any]) -> Any:
    """Spark's own join."""
    o, c, i = (frames[name].alias(name) for name in ("orders", "customers", "items"))
    joined = o.join(c, F.expr("orders.customer = customers.id")).join(i, F.expr("orders.item = items.id"))
    return joined.where(
        "customers.ts - orders.ts between -50 and 10 and items.ts - orders.ts between -5 and 40"
    ).selectExpr(
        "orders.customer", "orders.item", "orders.ts ts_orders",
        "customers.id id_customers", "customers.ts ts_customers", "customers.name",
        "items.id id_items", "items.ts ts_items", "items.price",
    )  # fmt: skip


def test_a_chain_with_windows_of_pairs_is_sparks_join(
    spark: Any, stream_of: Any, collected: Any, tmp_path: Path
) -> None:
    rng = np.random.default_rng(1)
    parts = [orders_of(rng, 60, first) for first in (0, 100)]
    folders = {name: write_files(tmp_path / name, [part[name] for part in parts]) for name in parts[0]}
    whole = {name: spark.read.parquet(str(folder)) for name, folder in folders.items()}
    exact = native(whole).toPandas()
    assert len(exact) > 50
    settings: dict[str, Any] = {"on": CHAIN, "time": "ts", "within": WITHIN, "budget": ENOUGH}
    batch = bounded_join_many(whole, **settings, name=(seen := Observation("chain"))).toPandas()
    assert list(batch.columns) == list(exact.columns)
    assert rows_of(batch) == rows_of(exact)
    assert seen.get["join"]["results"] == len(exact)
    streams = {name: stream_of(folder) for name, folder in folders.items()}
    got, query = collected(bounded_join_many(streams, **settings, lateness=1_000))
    assert rows_of(got) == rows_of(exact)
    assert sum(each["unestimated"] for each in figures(query)) == 0


def test_a_byte_budget_and_a_window_per_stream(spark: Any) -> None:
    rng = np.random.default_rng(2)
    frames = {
        name: spark.createDataFrame(
            pd.DataFrame(
                {
                    "k": rng.integers(0, 400, 1_500),
                    "ts": rng.integers(0, 3_000, 1_500),
                    "text": ["x" * n for n in rng.integers(0, 300, 1_500)],
                }
            )
        )
        for name in "abc"
    }
    settings: dict[str, Any] = {"on": "k", "time": "ts", "within": {"a": 900, "b": 500, "c": 300}}
    a, b, c = (frames[name].alias(name) for name in "abc")
    exact = (
        a.join(b, F.expr("a.k = b.k"))
        .join(c, F.expr("a.k = c.k"))
        .withColumn("newest", F.greatest("a.ts", "b.ts", "c.ts"))
        .where("newest - a.ts <= 900 and newest - b.ts <= 500 and newest - c.ts <= 300")
        .selectExpr(
            "a.k", "a.ts ts_a", "a.text text_a", "b.ts ts_b", "b.text text_b", "c.ts ts_c", "c.text text_c"
        )
        .toPandas()
    )
    enough = bounded_join_many(frames, **settings, budget="64 MiB", buckets=2).toPandas()
    assert rows_of(enough) == rows_of(exact)
    seen = Observation("little")
    little = bounded_join_many(frames, **settings, budget="300 KiB", buckets=2, name=seen).toPandas()
    told = seen.get["join"]
    assert 0 < len(little) < len(exact)
    assert not rows_of(little) - rows_of(exact)
    assert told["peak_bytes"] <= told["budget_bytes"] <= 300 * 1024
    assert sum(told[f"evicted_{name}"] for name in "abc") > 0
