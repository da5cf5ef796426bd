"""On a cluster of several processes: executors that die in mid-query, and kernels that come in an archive."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
import psutil
import pyspark
import pytest

from tests.spark.conftest import write_files
from tests.spark.programs.join import run
from tests.spark.support import ROOT, Program, committed, join_program, pieces, running, same_rows, until

SOURCE = ROOT / "src"
PROGRAM = ROOT / "tests" / "spark" / "programs" / "join.py"
SPARK_HOME = Path(pyspark.__file__).parent
JOIN = {"on": "k", "time": "ts", "within": "2 minutes", "budget": 200, "buckets": 2, "emit": "all"}
CONF = {"spark.executor.memory": "512m", "spark.executor.cores": "1", "spark.pyspark.python": sys.executable}


@contextlib.contextmanager
def cluster(
    folder: Path, count: int = 2, install: dict[str, str] | None = None
) -> Iterator[tuple[str, list[Program]]]:
    """A master and some workers of one core each on the loopback interface; its address, and the workers.

    `install` is what the workers' environment has of their own.
    """
    env = {
        "SPARK_HOME": str(SPARK_HOME),
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_NO_DAEMONIZE": "1",
        "SPARK_MASTER_OPTS": "-Dspark.master.rest.enabled=false",
        "PYSPARK_PYTHON": sys.executable,
    }
    place = ["--host", "127.0.0.1", "--port", "0", "--webui-port", "0"]
    deploy = [str(SPARK_HOME / "bin" / "spark-class"), "org.apache.spark.deploy"]
    with contextlib.ExitStack() as stack:
        log = folder / "master.txt"
        master = stack.enter_context(running([deploy[0], f"{deploy[1]}.master.Master", *place], log, env))
        found = until(
            lambda: re.search(r"Starting Spark master at (spark://\S+)", log.read_text()), 180, master
        )
        workers = []
        for number in range(count):
            command = [deploy[0], f"{deploy[1]}.worker.Worker", *place, "--cores", "1", "--memory", "1g"]
            command += ["--work-dir", str(folder / f"work{number}"), found[1]]
            log_of = folder / f"worker{number}.txt"
            workers.append(stack.enter_context(running(command, log_of, env | (install or {}))))
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


def shown(page: str, begin: str) -> list[str]:
    """The command of a page of the documentation that begins like this, as words."""
    text = (ROOT / "docs" / page).read_text().replace("\\\n", " ")
    (line,) = (line for line in text.splitlines() if line.startswith(f"    {begin}"))
    return shlex.split(line)


def kernels_in(folder: Path) -> list[str]:
    """The names of all compiled kernels below a folder."""
    return sorted(path.name for path in folder.rglob("*.nbc"))


def test_executors_compile_nothing_if_they_are_handed_the_kernels(tmp_path: Path) -> None:
    """The commands are those of `operations.md`; the executors have another installation and no cache.

    They are made to compile what they do not find, which would leave files in a folder that they know.
    """
    job, install, home = (tmp_path / name for name in ("job", "elsewhere", "home"))
    for folder in (job, home):
        folder.mkdir()
    shutil.copytree(SOURCE / "penstock", install / "penstock", ignore=shutil.ignore_patterns("__pycache__"))
    here = {"PYTHONPATH": os.pathsep.join(map(str, (SOURCE, ROOT)))}
    there = {"PYTHONPATH": os.pathsep.join(map(str, (install, ROOT))), "PENSTOCK_TIER": "compiled"}
    there |= dict.fromkeys(("HOME", "XDG_CACHE_HOME", "TMPDIR"), str(home)) | {"PENSTOCK_CACHE_DIR": ""}

    _, *words = shown("operations.md", "penstock warm --policies")
    subprocess.run([sys.executable, "-m", "penstock.cli", *words], cwd=job, env=os.environ | here, check=True)
    with tarfile.open(job / "kernels.tar") as archive:
        packed = sorted(archive.getnames())

    sides = {"left": pieces(1, 2, 100, "l"), "right": pieces(2, 2, 100, "r")}
    plan = {name: str(write_files(tmp_path / name, frames)) for name, frames in sides.items()}
    plan |= {"output": str(tmp_path / "output"), "checkpoint": str(tmp_path / "checkpoint")}
    join = {"on": "k", "time": "ts", "within": "9 seconds", "budget": 1_000, "policy": "gdj", "buckets": 1}
    with cluster(tmp_path, 1, there) as (address, _):
        (job / "plan.json").write_text(json.dumps(plan | {"join": join, "master": address, "conf": CONF}))
        _, *words, program = shown("operations.md", "spark-submit --master spark:")
        assert program == "job.py"
        words = [address if word.startswith("spark://") else word for word in words]
        command = [str(SPARK_HOME / "bin" / "spark-submit"), *words, str(PROGRAM), str(job / "plan.json")]
        with running(command, tmp_path / "log.txt", here | {"SPARK_HOME": str(SPARK_HOME)}, job) as submitted:
            assert submitted.wait(300) == 0, submitted.said()
        assert kernels_in(tmp_path / "work0") == packed
    assert kernels_in(home) == []

    found = pd.read_parquet(tmp_path / "output", columns=["l", "r"])
    both = pd.concat(sides["left"]).merge(pd.concat(sides["right"]), on="k")
    exact = both[(both["ts_x"] - both["ts_y"]).abs() <= pd.Timedelta("9s")]
    assert len(exact) > 0
    assert sorted(found.itertuples(index=False)) == sorted(exact[["l", "r"]].itertuples(index=False))
