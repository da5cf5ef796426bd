"""Drivers, executors and Python workers die in the middle of batches, under two queries of one session.

Speculation runs a second copy of slow tasks, and tasks that died are tried again. In the end, each query has
given what an undisturbed one gives.
"""

from __future__ import annotations

import contextlib
import random
import time
from collections import Counter
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.spark.conftest import write_files
from tests.spark.support import Program, committed, join_program, pieces, same_rows, until
from tests.spark.test_cluster import CONF, cluster, executors
from tests.spark.test_kill import batches_of, undisturbed

VICTIMS = ("driver", "executor", "python worker")
JOINS = (
    {"on": "k", "time": "ts", "within": "2 minutes", "budget": 200, "buckets": 2, "emit": "all"},
    {
        "on": "k",
        "time": "ts",
        "within": "1 minute",
        "budget": 80,
        "policy": "gdj",
        "buckets": 3,
        "emit": "all",
    },
)
UNQUIET = {
    "spark.speculation": "true",
    "spark.speculation.interval": "50ms",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.quantile": "0.3",
    "spark.speculation.minTaskRuntime": "20ms",
    "spark.task.maxFailures": "20",
    "spark.deploy.maxExecutorRetries": "-1",
    "spark.excludeOnFailure.enabled": "false",
}


def is_worker(one: psutil.Process) -> bool:
    """Whether a process is a Python worker of an executor, and not the one that starts them."""
    with contextlib.suppress(psutil.Error):
        parent = one.parent()
        return (
            "pyspark.daemon" in one.cmdline() and parent is not None and "pyspark.daemon" in parent.cmdline()
        )
    return False


def victim_of(
    kind: str, program: Program, workers: list[Program], rng: random.Random
) -> psutil.Process | None:
    """The process to kill; None while there is no such one."""
    if kind == "driver":
        return psutil.Process(program.pid)
    living = [one for worker in workers for one in executors(worker)]
    if kind == "python worker":
        children = [child for one in living for child in one.children(recursive=True)]
        living = [one for one in children if is_worker(one)]
    return rng.choice(living) if living else None


def finished(plans: list[dict[str, Any]]) -> int:
    """The batches that the queries have finished in all."""
    return sum(committed(Path(plan["checkpoint"])) for plan in plans)


def kill_all_kinds(
    folder: Path, plan: dict[str, Any], workers: list[Program], kills: int, rng: random.Random
) -> Counter[str]:
    """Run the queries to their end and kill one process after another on the way; how many of each kind.

    Every kill waits for a commit after the one before, so that there is progress, and then for a moment at
    random, so that it falls into the middle of a batch.
    """
    done: Counter[str] = Counter()
    kinds = [VICTIMS[number % len(VICTIMS)] for number in range(kills)]
    while True:
        with join_program(folder, plan) as program:
            while kinds:
                before = finished(plan["queries"])
                until(lambda: finished(plan["queries"]) > before or program.poll() is not None, 300)  # noqa: B023
                time.sleep(rng.uniform(0.0, 0.6))
                if program.poll() is not None:
                    break
                kind = kinds.pop(0)
                victim = until(lambda: victim_of(kind, program, workers, rng), 120, program)  # noqa: B023
                with contextlib.suppress(psutil.NoSuchProcess):
                    victim.kill()
                    done[kind] += 1
                if kind == "driver":
                    break
            else:
                assert program.wait(900) == 0, program.said()
                return done
            if program.poll() == 0:
                return done
            program.kill()


def check(spark: Any, folder: Path, files: int, rows: int, kills: int, adaptive: bool) -> Counter[str]:
    """Kill processes under two queries this often, and compare each with an undisturbed one."""
    queries = []
    for number, join in enumerate(JOINS):
        home = folder / f"query{number}"
        sides = {
            side: str(write_files(home / side, pieces(2 * number + seed, files, rows, side[0])))
            for seed, side in enumerate(("left", "right"))
        }
        places = {"output": str(home / "output"), "checkpoint": str(home / "checkpoint")}
        queries.append(sides | places | {"join": join})
    seed = random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}")
    with cluster(folder) as (address, workers):
        conf = CONF | UNQUIET | {"spark.sql.adaptive.enabled": str(adaptive).lower()}
        plan = {"program": "two_joins", "queries": queries, "master": address, "conf": conf}
        done = kill_all_kinds(folder, plan, workers, kills, random.Random(seed))
    print(f"killed {dict(done)}, adaptive execution {'on' if adaptive else 'off'}")
    for number, query in enumerate(queries):
        batches = batches_of(Path(query["checkpoint"]))
        read = [path for batch in batches for side in batch for path in side]
        assert len(read) == len(set(read)) == 2 * files
        whole = undisturbed(spark, folder / f"whole{number}", batches, query["join"])
        assert {row[0] for row in whole.select("_event").distinct().collect()} >= {"result", "evicted"}
        assert same_rows(spark.read.parquet(query["output"]), whole)
    return done


@pytest.mark.soak
@pytest.mark.parametrize("adaptive", [False, True])
def test_twenty_processes_die(spark: Any, tmp_path: Path, adaptive: bool) -> None:
    done = check(spark, tmp_path, files=60, rows=500, kills=20, adaptive=adaptive)
    assert sum(done.values()) == 20
    assert all(done[kind] >= 6 for kind in VICTIMS)
