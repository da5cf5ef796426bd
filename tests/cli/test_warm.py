"""`penstock warm`: what one machine has compiled, no other has to compile."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
from typer.testing import CliRunner

from penstock.cli import app
from penstock.errors import PenstockError
from penstock.warm import warm

SOURCE = Path(__file__).parents[2] / "src"

USE = """
import numpy as np, penstock as ps
from penstock.caching import replay
from penstock.compiler.code_cache import touched
stream = {"k": np.arange(500) % 17, "ts": np.arange(500)}
run = ps.WindowJoin(within=40, budget=ps.Tuples(30), policy="lru").run(stream, stream, on="k", time="ts")
replay(stream["k"], "lru", budget=5)
print(run.stats.results, len(touched))
"""


def run(*command: str, source: Path = SOURCE, **environment: str) -> str:
    given = os.environ | {"PYTHONPATH": str(source)} | environment
    done = subprocess.run(command, env=given, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_second_install_compiles_nothing(tmp_path: Path) -> None:
    """Another folder, other file times, a cache that it may only read: the archive has all that it needs."""
    packed, told = tmp_path / "kernels.tar", tmp_path / "told.json"
    run(
        sys.executable, "-m", "penstock.cli", "warm", "--policies", "lru", "--operators", "join,cache",
        "--out", str(packed), "--json", str(told), PENSTOCK_CACHE_DIR=str(tmp_path / "first"),
    )  # fmt: skip
    kernels = json.loads(told.read_text())["kernels"]
    with tarfile.open(packed) as archive:
        assert kernels == len(archive.getnames())

    install, folder = tmp_path / "elsewhere", tmp_path / "unpacked"
    shutil.copytree(SOURCE / "penstock", install / "penstock", copy_function=shutil.copyfile)
    with tarfile.open(packed) as archive:
        archive.extractall(folder, filter="data")
    before = sorted(path.name for path in folder.iterdir())
    environment = {"PENSTOCK_CACHE_DIR": str(folder), "PENSTOCK_TIER": "compiled"}
    found, used = run(sys.executable, "-c", USE, source=install, **environment).split()
    assert sorted(path.name for path in folder.iterdir()) == before, "something was compiled"
    assert int(used) > 0
    plain = run(sys.executable, "-c", USE, PENSTOCK_TIER="interpreted").split()
    assert plain[0] == found


@pytest.mark.parametrize(
    ("policies", "operators", "message"),
    [(["lur"], None, "did you mean 'lru'"), (["lru"], ["jion"], "did you mean 'join'")],
)
def test_what_is_not_known_is_refused(policies: list[str], operators: list[str] | None, message: str) -> None:
    with pytest.raises(PenstockError, match=message):
        warm(policies, operators)


def test_the_command_refuses_in_one_line() -> None:
    done = CliRunner().invoke(app, ["warm", "--operators", "jion"])
    assert done.exit_code == 2
    assert done.output.startswith("error: There is no operator 'jion'")
