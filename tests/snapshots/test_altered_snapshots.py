"""Snapshots with a right checksum and altered arrays: refused, or run without a crash or a hang."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.snapshots.operators import names

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def altering() -> Iterator[subprocess.Popen[str]]:
    """A process that runs cases in forks of its own."""
    with subprocess.Popen(
        [sys.executable, "-m", "tests.snapshots.altered"],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        yield process
        assert process.stdin is not None
        process.stdin.close()


def survives(altering: subprocess.Popen[str], name: str, cases: int) -> None:
    """Cases run in a process of their own; where it ends early, the case is named."""
    assert altering.stdin is not None
    assert altering.stdout is not None
    altering.stdin.write(json.dumps([name, "0", str(cases)]) + "\n")
    altering.stdin.flush()
    code, out, err = json.loads(altering.stdout.readline())
    done = out.split()
    assert code == 0, f"{name}: case {len(done)} ended with {code}: {err[-2000:]}"
    assert len(done) == cases
    refused = int(err.split()[-2])
    assert refused >= cases // 10, "hardly anything is looked at"


@pytest.mark.parametrize("name", names())
def test_altered_snapshots(altering: subprocess.Popen[str], name: str) -> None:
    survives(altering, name, 60)


@pytest.mark.soak
@pytest.mark.parametrize("name", names())
def test_many_altered_snapshots(altering: subprocess.Popen[str], name: str) -> None:
    survives(altering, name, 3_000)
