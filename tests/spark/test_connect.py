"""Over Spark Connect, in batch and as a stream, the join gives what it gives otherwise."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tests.spark.conftest import write_files
from tests.spark.programs.frame import QUIET
from tests.spark.programs.join import run
from tests.spark.support import pieces, rows_of, run_join_program, running, until

JOIN = {"on": "k", "time": "ts", "within": "2 minutes", "budget": 200, "buckets": 2, "emit": "all"}

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


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A Connect server on the loopback interface, at a port that the system chose."""
    import pyspark

    folder = tmp_path_factory.mktemp("server")
    home = Path(pyspark.__file__).parent
    conf = QUIET | {
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": "0",
        "spark.pyspark.python": sys.executable,
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
    }
    command = [str(home / "bin" / "spark-submit"), "--master", "local[2]"]
    command += [part for name, value in conf.items() for part in ("--conf", f"{name}={value}")]
    command += ["--class", "org.apache.spark.sql.connect.service.SparkConnectServer", "spark-internal"]
    log = folder / "log.txt"
    with running(command, log, {"SPARK_HOME": str(home)}) as server:
        found = until(lambda: re.search(r"server started at: \S+?:(\d+)", log.read_text()), 300, server)
        yield f"sc://127.0.0.1:{found[1]}"


@pytest.mark.parametrize("kind", ["batch", "stream"])
def test_equals_a_classic_session(spark: Any, address: str, tmp_path: Path, kind: str) -> None:
    files = [
        write_files(tmp_path / name, pieces(seed, 3, 300, name[0]))
        for seed, name in enumerate(("left", "right"))
    ]
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
            "join": JOIN,
        }
        if name == "connect":
            run_join_program(folder, plan | {"remote": address})
        else:
            run(spark, plan)
        outputs.append(spark.read.parquet(plan["output"]).toPandas())
    assert set(outputs[1]["_event"]) >= {"result", "evicted"}
    assert rows_of(outputs[0]) == rows_of(outputs[1])
