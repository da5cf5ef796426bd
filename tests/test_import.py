"""What `import penstock` brings along, and what it leaves until it is needed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src"


def fresh(code: str) -> str:
    """What a new interpreter prints."""
    path = os.pathsep.join([str(SOURCE), os.environ.get("PYTHONPATH", "")])
    found = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=True,
    )
    return found.stdout.strip()


@pytest.mark.parametrize("package", ["matplotlib", "ortools", "pyspark", "scipy", "typer", "rich"])
def test_heavy_packages_wait(package: str) -> None:
    assert fresh(f"import penstock, sys; print({package!r} in sys.modules)") == "False"


def test_pandas_waits_for_a_table_of_pandas() -> None:
    """A third of the time that the import of the join would take."""
    code = """
import sys
import penstock as ps
ps.WindowJoin(within=1, budget=ps.Tuples(2))
ps.WindowJoin, ps.join_many, ps.plan, ps.optimal_join
print("pandas" in sys.modules)
"""
    assert fresh(code) == "False"


def test_names_that_are_promised_are_there() -> None:
    assert fresh("import penstock as p; print([n for n in p.__all__ if not hasattr(p, n)])") == "[]"
    assert fresh("import penstock as p; print(len(p.__all__) - len(set(p.__all__)))") == "0"


def test_import_prints_and_compiles_nothing() -> None:
    assert fresh("import penstock") == ""
    # Kernels are compiled when first called: after the import no function has any machine code.
    code = """
import penstock
from penstock.engine.join_loop import drive
print(len(getattr(drive, "signatures", [])))
"""
    assert fresh(code) == "0"
