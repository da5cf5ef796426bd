"""A stream query in fixed memory that is killed again and again finds what an undisturbed one finds."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from penstock.spark import stream_query
from tests.spark.conftest import write_files
from tests.spark.support import begun, committed
from tests.spark.test_kill import run_with_kills

TEXT = """SELECT ?a ?b ?v ?T FROM STREAM wind
    { ?a reports ?v ?T . ?b reports ?v ?U . FILTER (?a != ?b) } CONTEXT ((?T - ?U) <= 2^^xsd:second)"""
QUERY = {"query": TEXT, "budget": "24 tuples", "policy": "clock", "buckets": 2}


def readings(n: int) -> pd.DataFrame:
    rng = np.random.default_rng(7)
    return pd.DataFrame(
        {
            "s": [f"station{i}" for i in rng.integers(0, 40, n)],
            "p": "reports",
            "o": rng.integers(0, 9, n),
            "start": np.cumsum(rng.integers(1, 60, n)),
        }
    )


def bag(frame: pd.DataFrame) -> Counter[Any]:
    return Counter(zip(frame["a"], frame["b"], frame["v"].astype(str), frame["T"], strict=True))


def check(spark: Any, folder: Path, files: int, rows: int, kills: int, longest: float) -> None:
    """Kill a query this often, and compare with the same data in one batch."""
    frame = readings(files * rows)
    parts = [frame.iloc[at : at + rows] for at in range(0, len(frame), rows)]
    source = write_files(folder / "wind", parts)
    (folder / "killed").mkdir()
    plan = {
        "program": "query",
        "streams": {"wind": str(source)},
        "output": str(folder / "killed" / "output"),
        "checkpoint": str(folder / "killed" / "checkpoint"),
        "query": QUERY,
    }
    seed = random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}")
    inside = run_with_kills(folder / "killed", plan, kills, longest, seed)
    assert inside >= 1
    checkpoint = Path(plan["checkpoint"])
    assert files - kills <= committed(checkpoint) == begun(checkpoint) <= files
    whole = {"wind": spark.read.parquet(str(source))}
    bounded = bag(stream_query(streams=whole, **QUERY).toPandas())
    exact = bag(stream_query(streams=whole, **(QUERY | {"budget": "100000 tuples"})).toPandas())
    assert 0 < bounded.total() < 0.9 * exact.total()  # something had to go
    assert bounded <= exact
    assert bag(spark.read.parquet(plan["output"]).toPandas()) == bounded


def test_killed_once(spark: Any, tmp_path: Path) -> None:
    check(spark, tmp_path, files=5, rows=200, kills=1, longest=2)


@pytest.mark.soak
def test_killed_twenty_times(spark: Any, tmp_path: Path) -> None:
    check(spark, tmp_path, files=60, rows=400, kills=20, longest=6)
