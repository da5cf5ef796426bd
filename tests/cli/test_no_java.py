"""Without Java, every command that starts Spark says so in one line and names `penstock doctor`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="pyspark is an extra")

JOIN = ["--on", "k", "--time", "ts", "--within", "10"]
COMMANDS = [
    ["join", "left.csv", "right.csv", *JOIN, "--budget", "9 tuples", "--out", "out"],
    [
        "reconcile",
        "left.csv",
        "right.csv",
        *JOIN,
        "--results",
        "left.csv",
        "--archive",
        "right.csv",
        "--out",
        "out",
    ],
    ["demo", "--quick"],
]


def without_java(command: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    env = {name: value for name, value in os.environ.items() if name != "JAVA_HOME"}
    return subprocess.run(
        [sys.executable, "-m", "penstock.cli", *command],
        cwd=folder,
        env={**env, "PATH": str(folder / "nothing")},
        capture_output=True,
        text=True,
        timeout=300,
    )


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
def test_commands_name_the_doctor(command: list[str], tmp_path: Path) -> None:
    for name in ("left.csv", "right.csv"):
        (tmp_path / name).write_text("k,ts\n1,0\n")
    done = without_java(command, tmp_path)
    assert done.returncode == 1, done.stderr
    said = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert len(said) == 1, done.stderr
    assert "found no Java" in said[0]
    assert "penstock doctor" in said[0]
    assert "Traceback" not in done.stderr


def test_the_doctor_fails_and_says_what_to_do(tmp_path: Path) -> None:
    done = without_java(["doctor", "--json", "-"], tmp_path)
    assert done.returncode == 1
    found = {each["what"]: each for each in json.loads(done.stdout)}
    assert found["Java"]["state"] == "bad"
    assert "Install Java 17" in found["Java"]["remedy"]
