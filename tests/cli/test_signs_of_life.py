"""Commands say something before they have finished, and Ctrl-C ends them.

How soon is measured by `make bench ARGS=startup`, where the bar is two seconds for each.
"""

from __future__ import annotations

import contextlib
import os
import pty
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

SOURCE = Path(__file__).parents[2] / "src"
ROWS = 200_000
PATIENCE = 60  # seconds after which a command hangs


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
    triples = pd.DataFrame(
        {
            "s": [f"n{i}" for i in rng.integers(0, 5_000, ROWS)],
            "p": rng.choice(["r", "s"], ROWS),
            "o": rng.integers(0, 500, ROWS),
            "start": np.arange(ROWS),
        }
    )
    triples.to_parquet(folder / "triples.parquet")
    (folder / "query.rq").write_text(
        "SELECT ?a ?b FROM STREAM w { ?a r ?x ?T . ?b s ?x ?U } CONTEXT ((?T - ?U) <= 900)"
    )
    return folder


COMMANDS = {
    "plan": "plan left.parquet right.parquet --on k --time ts --within 20000 --no-plot",
    "plan-lookup": "plan-lookup left.parquet --key k --no-plot",
    "match": "match pattern.neel events.parquet",
    "query": "query query.rq --stream w=triples.parquet --budget 20%",
    "reproduce": "reproduce all --quick --jobs 2",
}


def heeding_ctrl_c() -> None:
    """For a process whose parents, as those of a job in the background, ignore it."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@contextlib.contextmanager
def started(folder: Path, command: str, screen: int, **env: str) -> Iterator[subprocess.Popen[bytes]]:
    """A command whose outputs are a file that is given."""
    given = os.environ | {"PYTHONPATH": str(SOURCE), "PENSTOCK_TIER": ""} | env
    process = subprocess.Popen(
        [sys.executable, "-m", "penstock.cli", *command.split()],
        cwd=folder, env=given, stdout=screen, stderr=screen, start_new_session=True,
        preexec_fn=heeding_ctrl_c,
    )  # fmt: skip
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@pytest.mark.parametrize("kind", ["piped, nothing compiled", "in a terminal, what the tests have compiled"])
@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_says_something_and_ends_at_ctrl_c(
    folder: Path, tmp_path: Path, name: str, kind: str
) -> None:
    piped = kind.startswith("piped")
    reader, writer = os.pipe() if piped else pty.openpty()
    cache = {"PENSTOCK_CACHE_DIR": str(tmp_path)} if piped else {"TERM": "xterm"}
    with started(folder, COMMANDS[name], writer, **cache) as process:
        os.close(writer)
        ready, _, _ = select.select([reader], [], [], PATIENCE)
        assert ready, "nothing was said"
        assert os.read(reader, 100)
        time.sleep(2)  # amid compiling, or amid the work itself
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGINT)
        assert process.wait(PATIENCE) in (0, 130, -signal.SIGINT)  # the last if Python was ending by itself
    os.close(reader)


def test_what_fails_because_of_ctrl_c_ends_as_ctrl_c_does() -> None:
    """As a pool does whose workers, in the same group of processes, were interrupted as well."""
    code = """
import time
from penstock.cli.signs import heeding_ctrl_c
with heeding_ctrl_c():
    print("runs", flush=True)
    try:
        time.sleep(60)
    except KeyboardInterrupt:
        raise RuntimeError("a worker ended") from None
"""
    process = subprocess.Popen(
        [sys.executable, "-c", code], env=os.environ | {"PYTHONPATH": str(SOURCE)}, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, preexec_fn=heeding_ctrl_c,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"runs\n"
        process.send_signal(signal.SIGINT)
        _, message = process.communicate(timeout=PATIENCE)
        assert (process.returncode, message) == (130, b"")
    finally:
        process.kill()
        process.communicate()


def test_ctrl_c_ends_a_compiled_join() -> None:
    """One call for 20 million arrivals, which nothing could interrupt."""
    code = """
import numpy as np, penstock as ps
from penstock.compiler.tiers import only
state = ps.WindowJoin(within=1000, budget=ps.Tuples(100), policy="gdj").start()
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
        time.sleep(0.5)
        process.send_signal(signal.SIGINT)
        out, message = process.communicate(timeout=PATIENCE)
        assert b"KeyboardInterrupt" in message
        assert out == b""
    finally:
        process.kill()
        process.communicate()


def test_ctrl_c_ends_what_no_exception_reaches() -> None:
    """As one call into a compiler does, this keeps the main thread from Python for minutes."""
    code = """
import hashlib
from penstock.cli.signs import heeding_ctrl_c
with heeding_ctrl_c():
    print("runs", flush=True)
    hashlib.pbkdf2_hmac("sha256", b"password", b"salt", 200_000_000)  # one call of C
"""
    process = subprocess.Popen(
        [sys.executable, "-c", code], env=os.environ | {"PYTHONPATH": str(SOURCE)}, stdout=subprocess.PIPE,
        preexec_fn=heeding_ctrl_c,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"runs\n"
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE) == 130
    finally:
        process.kill()
        process.communicate()
