"""Commands that take long say so at once, and Ctrl-C ends them."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

SOURCE = Path(__file__).parents[2] / "src"
ROWS = 200_000


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("streams")
    rng = np.random.default_rng(0)
    for name in ("left", "right"):
        table = pd.DataFrame({"k": rng.zipf(1.3, ROWS) % 5_000, "ts": np.arange(ROWS)})
        table.to_parquet(folder / f"{name}.parquet")
    events = pd.DataFrame({"type": rng.choice(list("ABCD"), ROWS), "ts": np.arange(ROWS)})
    events.to_parquet(folder / "events.parquet")
    (folder / "pattern.neel").write_text("PATTERN SEQ(A a, B b, C c, D d) WITHIN 400")
    return folder


PLAN = "plan left.parquet right.parquet --on k --time ts --within 20000 --no-plot"
COMMANDS = {
    "plan": PLAN,
    "plan-lookup": "plan-lookup left.parquet --key k --no-plot",
    "match": "match pattern.neel events.parquet",
}


def heeding_ctrl_c() -> None:
    """For a process whose parents, as those of a job in the background, ignore it."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@contextmanager
def started(folder: Path, cache: Path, command: str) -> Iterator[subprocess.Popen[bytes]]:
    """A command with a cache of its own, whose outputs are pipes."""
    given = os.environ | {"PYTHONPATH": str(SOURCE), "PENSTOCK_CACHE_DIR": str(cache), "PENSTOCK_TIER": ""}
    process = subprocess.Popen(
        [sys.executable, "-m", "penstock.cli", *command.split()],
        cwd=folder, env=given, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
        preexec_fn=heeding_ctrl_c,
    )  # fmt: skip
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("name", COMMANDS)
def test_something_is_said_and_ctrl_c_ends_it(folder: Path, tmp_path: Path, name: str) -> None:
    with started(folder, tmp_path, COMMANDS[name]) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        ready, _, _ = select.select([process.stdout, process.stderr], [], [], 60)
        assert ready, "nothing was said"
        time.sleep(3)  # amid compiling, or amid the work itself
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGINT)
            process.wait(timeout=30)
        assert process.returncode in (0, 130, -signal.SIGINT), process.stderr.read()


def test_ctrl_c_ends_a_compiled_join(tmp_path: Path) -> None:
    """One call for 20 million arrivals, which nothing could interrupt."""
    code = """
import numpy as np, penstock as ps
from penstock.kernels.tiers import only
state = ps.WindowJoin(within=1000, budget=ps.Tuples(100), policy="fifo").start()
with only("compiled"):
    state.warm()
    rows = np.arange(20_000_000)
    stream, key = (rows % 2).astype(np.int8), rows % 1000
    print("runs", flush=True)
    state.process(stream, key, rows, rows)
print("done", flush=True)
"""
    given = os.environ | {"PYTHONPATH": str(SOURCE)}
    process = subprocess.Popen(
        [sys.executable, "-c", code], env=given, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        preexec_fn=heeding_ctrl_c,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"runs\n"
        time.sleep(1)
        process.send_signal(signal.SIGINT)
        out, told = process.communicate(timeout=30)
        assert b"KeyboardInterrupt" in told
        assert out == b""
    finally:
        process.kill()
        process.communicate()
