"""On a cluster of several processes: an executor that dies in mid-query changes nothing."""

from __future__ import annotations

import contextlib
import re
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.spark.conftest import write_files
from tests.spark.programs.join import run
from tests.spark.support import Program, committed, join_program, pieces, running, same_rows, until

JOIN = {"on": "k", "time": "ts", "within": "2 minutes", "budget": 200, "buckets": 2, "emit": "all"}
CONF = {"spark.executor.memory": "512m", "spark.executor.cores": "1", "spark.pyspark.python": sys.executable}


@contextlib.contextmanager
def cluster(folder: Path) -> Iterator[tuple[str, list[Program]]]:
    """A master and two workers of one core each on the loopback interface; its address, and the workers."""
    import pyspark

    home = Path(pyspark.__file__).parent
    env = {
        "SPARK_HOME": str(home),
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_NO_DAEMONIZE": "1",
        "SPARK_MASTER_OPTS": "-Dspark.master.rest.enabled=false",
        "PYSPARK_PYTHON": sys.executable,
    }
    place = ["--host", "127.0.0.1", "--port", "0", "--webui-port", "0"]
    deploy = [str(home / "bin" / "spark-class"), "org.apache.spark.deploy"]
    with contextlib.ExitStack() as stack:
        log = folder / "master.txt"
        master = stack.enter_context(running([deploy[0], f"{deploy[1]}.master.Master", *place], log, env))
        found = until(
            lambda: re.search(r"Starting Spark master at (spark://\S+)", log.read_text()), 180, master
        )
        workers = []
        for number in range(2):
            command = [deploy[0], f"{deploy[1]}.worker.Worker", *place, "--cores", "1", "--memory", "1g"]
            command += ["--work-dir", str(folder / f"work{number}"), found[1]]
            log_of = folder / f"worker{number}.txt"
            workers.append(stack.enter_context(running(command, log_of, env)))
        for worker in workers:
            until(partial(registered, worker), 180, worker)
        yield found[1], workers


def registered(worker: Program) -> bool:
    """Whether the master knows a worker."""
    return "Successfully registered with master" in worker.log.read_text()


def executors(worker: Program) -> list[psutil.Process]:
    """The executors of a worker."""
    found = []
    for one in worker.tree():
        with contextlib.suppress(psutil.NoSuchProcess):
            if any(part.endswith("CoarseGrainedExecutorBackend") for part in one.cmdline()):
                found.append(one)
    return found


def kill_executor(worker: Program, program: Program, checkpoint: Path, batches: int) -> None:
    """Kill the executor of a worker once so many batches are done, and wait for the next one."""
    until(lambda: committed(checkpoint) >= batches, 300, program)
    victim = until(lambda: executors(worker), 120, program)[0]
    victim.kill()
    print(f"killed an executor after {committed(checkpoint)} batches")
    until(lambda: any(one.pid != victim.pid for one in executors(worker)), 120, program)


def check(spark: Any, folder: Path, files: int, rows: int, kills: int) -> None:
    """Run on the cluster, kill executors on the way, and compare with a run in one process."""
    left = write_files(folder / "left", pieces(1, files, rows, "l"))
    right = write_files(folder / "right", pieces(2, files, rows, "r"))
    plans = {}
    for name in ("cluster", "local"):
        (folder / name).mkdir()
        places = {"output": str(folder / name / "output"), "checkpoint": str(folder / name / "checkpoint")}
        plans[name] = {"left": str(left), "right": str(right), "join": JOIN, **places}
    checkpoint = folder / "cluster" / "checkpoint"
    with cluster(folder) as (address, workers):
        plan = plans["cluster"] | {"master": address, "conf": CONF}
        with join_program(folder / "cluster", plan) as program:
            for number in range(kills):
                kill_executor(workers[number % 2], program, checkpoint, (number + 1) * files // (kills + 2))
            assert program.wait(600) == 0, program.said()
    run(spark, plans["local"])
    got, whole = (spark.read.parquet(plan["output"]) for plan in plans.values())
    assert {row[0] for row in whole.select("_event").distinct().collect()} >= {"result", "evicted"}
    assert same_rows(got, whole)  # in Spark: the long test has millions of rows


def test_an_executor_dies(spark: Any, tmp_path: Path) -> None:
    check(spark, tmp_path, files=8, rows=300, kills=1)


@pytest.mark.soak
def test_executors_die_again_and_again(spark: Any, tmp_path: Path) -> None:
    check(spark, tmp_path, files=40, rows=2_000, kills=8)
