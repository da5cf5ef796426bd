"""Over Spark Connect, in batch and as a stream, the join gives what it gives otherwise."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tests.spark.conftest import write_files
from tests.spark.support import pieces, rows_of, run_join_program

PACKAGES = ("grpc", "grpc_status", "google.protobuf", "google.rpc", "zstandard")


def absent() -> list[str]:
    """The packages of Spark Connect that are not installed."""
    missing = []
    for name in PACKAGES:
        try:
            found = find_spec(name)
        except ModuleNotFoundError:
            found = None
        if found is None:
            missing.append(name)
    return missing


pytestmark = pytest.mark.skipif(bool(absent()), reason=f"Spark Connect needs {', '.join(absent())}")


@pytest.mark.parametrize("kind", ["batch", "stream"])
def test_equals_a_classic_session(spark: Any, tmp_path: Path, kind: str) -> None:
    from tests.spark.programs.join import run

    files = [
        write_files(tmp_path / name, pieces(seed, 3, 300, name[0]))
        for seed, name in enumerate(("left", "right"))
    ]
    join = {"on": "k", "time": "ts", "within": "2 minutes", "budget": 200, "buckets": 2, "emit": "all"}
    outputs = []
    for name in ("connect", "classic"):
        folder = tmp_path / name
        folder.mkdir()
        plan = {
            "left": str(files[0]),
            "right": str(files[1]),
            "output": str(folder / "output"),
            "checkpoint": str(folder / "checkpoint"),
            "batch": kind == "batch",
            "join": join,
        }
        if name == "connect":
            run_join_program(folder, plan | {"remote": "local[2]"})
        else:
            run(spark, plan)
        outputs.append(spark.read.parquet(plan["output"]).toPandas())
    assert set(outputs[1]["_event"]) >= {"result", "evicted"}
    assert rows_of(outputs[0]) == rows_of(outputs[1])
