"""What the Python workers of a query weigh, as the system counts it; they live within a real limit."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark import cloudpickle
from pyspark.sql import types as T

from penstock.budget import Bytes
from penstock.spark import bounded_join
from penstock.spark.runtime.arrow_blobs import to_blob
from penstock.spark.runtime.output_blobs import ROWS, unpacker
from penstock.spark.runtime.packed_output import _divider
from penstock.spark.runtime.packer import BUCKET, KEY, ArrivalPacking, EventPacking, packer, renamed
from penstock.spark.runtime.session import worker_version
from tests.spark.support import ROOT, join_program

MIB = 2**20
BATCHES, ROWS_A_SIDE, TEXT = 4, 40_000, 100
BUDGET = MIB

needs_linux = pytest.mark.skipif(not Path("/proc/self/smaps_rollup").exists(), reason="Linux says it")

# What a worker of Spark does with a function for `mapInArrow`, and what it has imported by then.
WORKER = """
import sys
import pyarrow as pa
import pyspark.daemon, pyspark.worker
from pyspark import cloudpickle

with open(sys.argv[1], "rb") as file:
    function = cloudpickle.load(file)
with pa.OSFile(sys.argv[2]) as file:
    batches = list(pa.ipc.open_stream(file))
rows = sum(batch.num_rows for batch in function(iter(batches)))
heavy = [name for name in ("pandas", "numba", "llvmlite", "scipy") if name in sys.modules]
print(rows, *heavy)
"""


def shipped(tmp_path: Path, function: Any, batch: pa.RecordBatch) -> list[str]:
    """Run a function on a batch in a process of its own; the rows it makes, and what it has imported."""
    code, data = tmp_path / "function", tmp_path / "data"
    code.write_bytes(cloudpickle.dumps(function))
    with pa.OSFile(str(data), "wb") as sink, pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    command = [sys.executable, "-c", WORKER, str(code), str(data)]
    return subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT).stdout.split()


def blob_row(table: pa.Table) -> pa.RecordBatch:
    """A table as a row of packed output."""
    return pa.RecordBatch.from_pydict({ROWS: [to_blob(table)]})


def arrivals() -> pa.RecordBatch:
    """Rows for two buckets, one of them without a time."""
    times = pa.array([1, None, 3, 4], pa.timestamp("us"))
    return pa.RecordBatch.from_pydict(
        {BUCKET: pa.array([0, 1, 1, 0], pa.int32()), KEY: [7, 8, 9, 9], "t": times}
    )


FIELDS = T.StructType([T.StructField("a", T.LongType()), T.StructField("_event", T.StringType())])


@pytest.mark.parametrize(
    ("function", "batch", "rows"),
    [
        (packer(ArrivalPacking((3, 4), 1, "t", "int64")), arrivals(), 3),
        (renamed(packer(EventPacking((3, 4), 0, "t", "int64")), [BUCKET, KEY, "t"]), arrivals(), 3),
        (unpacker(FIELDS, {"_event": "result"}), blob_row(pa.table({"a": [1, 2]})), 2),
        (_divider("_event"), blob_row(pa.table({"a": [1, 2]})), 1),
        (worker_version, arrivals(), 1),
    ],
    ids=["pack arrivals", "pack events", "unpack", "divide", "version"],
)
def test_workers_that_only_pack_import_neither_pandas_nor_numba(
    tmp_path: Path, function: Any, batch: pa.RecordBatch, rows: int
) -> None:
    assert shipped(tmp_path, function, batch) == [str(rows)]


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """A query whose Python workers may have no more data than the limit in `docs/operations.md`."""
    folder = tmp_path_factory.mktemp("weights")
    rng = np.random.default_rng(1)
    for side in ("left", "right"):
        (folder / side).mkdir()
        for number in range(BATCHES):
            micros = 1_700_000_000_000_000 + 1_000 * (np.arange(ROWS_A_SIDE) + number * ROWS_A_SIDE)
            table = pa.table(
                {
                    "k": rng.integers(0, 100_000, ROWS_A_SIDE),
                    "ts": pa.array(micros, pa.timestamp("us", tz="UTC")),
                    side: [f"{n:0{TEXT}d}" for n in range(ROWS_A_SIDE)],
                }
            )
            pq.write_table(table, folder / side / f"{number}.parquet")
    limited = folder / "python"
    limited.write_text(
        f'#!/bin/sh\nulimit -d {LIMIT >> 10}\nOPENBLAS_NUM_THREADS=1 exec {sys.executable} "$@"\n'
    )
    limited.chmod(0o755)
    options = {"on": "k", "time": "ts", "within": "60 seconds", "budget": f"{BUDGET} B", "policy": "gdj"}
    plan = {
        "program": "memory",
        "left": str(folder / "left"),
        "right": str(folder / "right"),
        "checkpoint": str(folder / "checkpoint"),
        "weights": str(folder / "weights.json"),
        "join": options | {"buckets": 2},
        "conf": {"spark.pyspark.python": str(limited)},
    }
    with join_program(folder, plan) as program:
        assert program.wait(500) == 0, program.said()
    return json.loads((folder / "weights.json").read_text())


BATCH = 2 * ROWS_A_SIDE * (TEXT + 30)  # bytes
LIMIT = 1_024 * MIB  # of the data of one worker; what it reserves and does not use counts here, too


@needs_linux
@pytest.mark.spark
def test_workers_weigh_what_the_formula_says(weights: dict[str, Any]) -> None:
    """The worked example of `docs/operations.md`."""
    text = (ROOT / "docs" / "operations.md").read_text()
    found = re.search(r"(\d+) MiB \+ cores × (\d+) MiB \+ 2 × budget \+ 3 × batch", text)
    assert found is not None
    fixed, per_core = (int(number) * MIB for number in found.groups())
    formula = fixed + 2 * per_core + 2 * BUDGET + 3 * BATCH
    print({name: weights[name] for name in ("together", "holding", "others", "told", "state")}, formula)
    assert formula / 2 < weights["together"] <= formula


@needs_linux
@pytest.mark.spark
def test_only_workers_with_state_load_kernels(weights: dict[str, Any]) -> None:
    assert len(weights["holding"]) == 2
    assert not weights["pandas"]
    assert max(weights["others"].values()) < 110 * MIB


@needs_linux
@pytest.mark.spark
def test_workers_tell_what_they_weigh(weights: dict[str, Any]) -> None:
    """The figure is of the end of a batch, and less than the peak that was seen from outside."""
    peak = max(weights["holding"].values())
    assert len(weights["told"]) == weights["batches"] == BATCHES
    assert all(0.4 * peak < told < 1.1 * peak for told in weights["told"])


@pytest.mark.spark
def test_the_state_store_takes_little_more_than_the_budget(spark: Any, tmp_path: Path) -> None:
    """Rows of 2 KB, of which the budget has room for two batches; on average over the batches."""
    rows, budget = 2_000, 16 * MIB
    for number in range(6):
        start = number * rows
        table = pa.table(
            {
                "k": np.random.default_rng(number).integers(0, 1_000, rows),
                "ts": np.arange(start, start + rows),
                "text": [os.urandom(1_000).hex() for _ in range(rows)],
            }
        )
        pq.write_table(table, tmp_path / f"{number}.parquet")
    stream = spark.readStream.schema("k long, ts long, text string").option("maxFilesPerTrigger", 1)
    left, right = stream.parquet(str(tmp_path)), stream.parquet(str(tmp_path))
    joined = bounded_join(
        left, right, on="k", time="ts", within=100_000, budget=Bytes(budget), policy="fifo", buckets=2
    )
    query = joined.writeStream.format("noop").trigger(availableNow=True).start()
    assert query.awaitTermination(120)
    used = [state["memoryUsedBytes"] for batch in query.recentProgress for state in batch["stateOperators"]]
    assert len(used) == 6
    print(f"the state store of a budget of {budget / MIB:.0f} MiB: {np.array(used) / MIB} MiB")
    assert np.mean(used) <= 1.3 * budget
