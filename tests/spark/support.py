"""Data for queries, and programs that run them in processes of their own."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import psutil

ROOT = Path(__file__).parents[2]
STARVED = b"Timed out while waiting for the Python worker to connect back"
START = pd.Timestamp("2024-01-01", tz="UTC")


def rows_of(frame: pd.DataFrame) -> Counter[Any]:
    """The rows as a multiset, whatever their order and whatever they hold."""
    return Counter(zip(*(frame[name].astype(str) for name in frame.columns), strict=True))


def same_rows(got: Any, wanted: Any) -> bool:
    """Whether two Spark DataFrames have the same rows, as multisets; says how many differ."""
    missing, doubled = wanted.exceptAll(got).count(), got.exceptAll(wanted).count()
    if missing or doubled:
        print(f"{missing} rows are missing, {doubled} are too many")
    return missing == doubled == 0


def pieces(
    seed: int, files: int, rows: int, value: str, keys: int = 50, seconds: int = 60
) -> list[pd.DataFrame]:
    """Frames of one side, each of the next stretch of time: skewed keys, a number and a text per row."""
    rng = np.random.default_rng(seed)
    frames = []
    for i in range(files):
        at = np.sort(rng.choice(seconds * 1_000, rows, replace=False)) + i * seconds * 1_000
        frames.append(
            pd.DataFrame(
                {
                    "k": np.minimum(rng.zipf(1.3, rows), keys).astype(np.int64),
                    "ts": (START + pd.to_timedelta(at, unit="ms")).astype("datetime64[us, UTC]"),
                    value: np.arange(i * rows, (i + 1) * rows),
                    f"{value}_text": [f"{value}{n % 97}" * (n % 3) for n in range(rows)],
                }
            )
        )
    return frames


def until(condition: Callable[[], Any], seconds: float = 120, process: Any = None) -> Any:
    """Wait this long for a condition, and give what it gave; a process must not end meanwhile."""
    end = time.monotonic() + seconds
    while not (found := condition()):
        if process is not None and process.poll() is not None:
            raise AssertionError(f"the program ended with {process.poll()}:\n{process.said()}")
        if time.monotonic() > end:
            said = process.said() if process is not None else ""
            raise AssertionError(f"waited {seconds} s in vain\n{said}")
        time.sleep(0.05)
    return found


class Program:
    """A process in a group of its own, and all that it starts.

    Its kernels are interpreted until their code is there, as those of users are: a program that is killed
    while it compiles would begin anew each time.
    """

    def __init__(
        self, command: list[str], log: Path, env: dict[str, str] | None = None, cwd: Path = ROOT
    ) -> None:
        self.log = log
        self.begin = log.stat().st_size if log.exists() else 0
        with log.open("ab") as out:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                cwd=cwd,
                env={**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", "PENSTOCK_TIER": "", **(env or {})},
                start_new_session=True,
            )
        self.pid = self.process.pid

    def poll(self) -> int | None:
        """The exit code, once there is one."""
        return self.process.poll()

    def wait(self, seconds: float) -> int:
        """Wait for the end; the exit code."""
        return self.process.wait(seconds)

    def said(self) -> str:
        """The end of what it wrote, and before it the errors, which a plan may push far up."""
        text = self.log.read_text(errors="replace")
        errors = [line[:500] for line in text.splitlines() if "Error" in line or "Exception" in line]
        return "\n".join([*errors[-40:], "...", text[-6_000:]])

    def starved(self) -> bool:
        """Whether it gave up because a Python worker took longer to start than Spark allows."""
        with self.log.open("rb") as log:
            log.seek(self.begin)
            return self.poll() == 1 and STARVED in log.read()

    def tree(self) -> list[psutil.Process]:
        """Itself and its descendants."""
        with contextlib.suppress(psutil.NoSuchProcess):
            me = psutil.Process(self.pid)
            return [me, *me.children(recursive=True)]
        return []

    def commands(self) -> list[str]:
        """The command lines of all of these."""
        found = []
        for one in self.tree():
            with contextlib.suppress(psutil.Error):
                found.append(" ".join(one.cmdline()))
        return found

    def kill(self) -> None:
        """SIGKILL to it and to all it started, at once; Spark's Python workers have a group of their own."""
        family = self.tree()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        for one in family:
            with contextlib.suppress(psutil.NoSuchProcess):
                one.kill()
        psutil.wait_procs(family, timeout=30)
        self.process.wait(30)


@contextlib.contextmanager
def running(
    command: list[str], log: Path, env: dict[str, str] | None = None, cwd: Path = ROOT
) -> Iterator[Program]:
    """A program that does not outlive the block."""
    program = Program(command, log, env, cwd)
    try:
        yield program
    finally:
        program.kill()


@contextlib.contextmanager
def join_program(folder: Path, plan: dict[str, Any]) -> Iterator[Program]:
    """A program of `programs`, that of joins if the plan names none; the plan is written into the folder."""
    path = folder / "plan.json"
    path.write_text(json.dumps(plan))
    path.with_suffix(".done").unlink(missing_ok=True)
    module = f"tests.spark.programs.{plan.get('program', 'join')}"
    with running([sys.executable, "-m", module, str(path)], folder / "log.txt") as program:
        yield program


def run_join_program(folder: Path, plan: dict[str, Any], seconds: float = 300) -> None:
    """Run the program to its end, which must be a good one."""
    with join_program(folder, plan) as program:
        assert program.wait(seconds) == 0, program.said()


def python_workers() -> list[psutil.Process]:
    """The Python workers of this process's Spark session."""
    found = {}
    for one in psutil.Process(os.getpid()).children(recursive=True):
        with contextlib.suppress(psutil.Error):
            if "pyspark.daemon" in one.cmdline():
                found[one.pid] = one, one.ppid()
    return [one for one, parent in found.values() if parent in found]  # the others only start workers


def figures(query: Any) -> list[dict[str, Any]]:
    """What the join says of each batch of a query."""
    from penstock.spark.runtime.figures import figures_of

    return [found for each in query.recentProgress if (found := figures_of(each)) is not None]


def committed(checkpoint: Path) -> int:
    """Batches that a query has finished."""
    return sum(name.name.isdigit() for name in (checkpoint / "commits").glob("*"))


def begun(checkpoint: Path) -> int:
    """Batches that a query has begun."""
    return sum(name.name.isdigit() for name in (checkpoint / "offsets").glob("*"))
