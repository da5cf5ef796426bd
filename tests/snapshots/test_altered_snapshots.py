"""Snapshots with a right checksum and altered arrays: refused, or run without a crash or a hang."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.snapshots.operators import names

ROOT = Path(__file__).parents[2]


def survives(name: str, cases: int) -> None:
    """Cases run in a process of their own; where it ends early, the case is named."""
    run = subprocess.run(
        [sys.executable, "-m", "tests.snapshots.altered", name, "0", str(cases)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=550,
        check=False,
    )
    done = run.stdout.split()
    assert run.returncode == 0, f"{name}: case {len(done)} ended with {run.returncode}: {run.stderr[-2000:]}"
    assert len(done) == cases
    refused = int(run.stderr.split()[-2])
    assert refused >= cases // 10, "hardly anything is looked at"


@pytest.mark.parametrize("name", names())
def test_altered_snapshots(name: str) -> None:
    survives(name, 60)


@pytest.mark.soak
@pytest.mark.parametrize("name", names())
def test_many_altered_snapshots(name: str) -> None:
    survives(name, 3_000)
