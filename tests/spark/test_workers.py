"""A session whose Python workers lack Penstock is refused before the query starts, with what to set."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.spark.support import ROOT

# A Python without Penstock: the one that runs the tests, but for this one package.
BLIND = """
import sys


class Blind:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "penstock":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


sys.meta_path.insert(0, Blind())
"""


def test_workers_without_penstock_are_found_out(tmp_path: Path) -> None:
    (tmp_path / "blind").mkdir()
    (tmp_path / "blind" / "sitecustomize.py").write_text(BLIND)
    other = tmp_path / "python"
    other.write_text(f'#!/bin/sh\nPYTHONPATH={tmp_path}/blind:$PYTHONPATH exec {sys.executable} "$@"\n')
    other.chmod(0o755)
    program = ROOT / "tests" / "spark" / "programs" / "early_session.py"
    done = subprocess.run(
        [sys.executable, str(program), str(ROOT / "src")],
        cwd=tmp_path,
        env={**os.environ, "PYSPARK_PYTHON": str(other), "PYSPARK_DRIVER_PYTHON": sys.executable},
        capture_output=True,
        text=True,
        timeout=600,
    )
    said = done.stdout.strip().splitlines()
    assert done.returncode == 0, done.stderr[-3_000:]
    assert len(said) == 2
    assert said[0] == said[1]
    assert said[0].startswith(
        "refused: Spark's Python workers cannot run Penstock: No module named 'penstock'. Before the session "
        "is made, set PYSPARK_PYTHON or spark.pyspark.python"
    )
    assert sys.executable in said[0]
