"""Snapshots with a right checksum and altered arrays: refused, or run without a crash or a hang."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parent / "altered.py"
QUEUED = (
    "fifo",
    "rand",
    "lru",
    "lfu",
    "prob",
    "life",
    "age",
    "gdj",
    "clock",
)  # policies all of whose tables are checked


def survives(policy: str, lateness: int | None, cases: int) -> None:
    """Cases run in a process of their own; where it ends early, the case is named."""
    run = subprocess.run(
        [sys.executable, str(PROGRAM), policy, str(lateness), "0", str(cases)],
        capture_output=True,
        text=True,
        timeout=550,
        check=False,
    )
    done = run.stdout.split()
    assert run.returncode == 0, (
        f"{policy}: case {len(done)} ended with {run.returncode}: {run.stderr[-2000:]}"
    )
    assert len(done) == cases


@pytest.mark.parametrize("lateness", [None, 5])
@pytest.mark.parametrize("policy", QUEUED)
def test_altered_snapshots(policy: str, lateness: int | None) -> None:
    survives(policy, lateness, 60)


@pytest.mark.soak
@pytest.mark.parametrize("lateness", [None, 5])
@pytest.mark.parametrize("policy", QUEUED)
def test_many_altered_snapshots(policy: str, lateness: int | None) -> None:
    survives(policy, lateness, 3_000)
