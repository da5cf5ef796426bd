"""`penstock asof` refuses what cannot work before Spark starts; `tests/spark/test_cli.py` runs it."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from penstock.cli import app


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--direction", "sideways"], "direction='sideways' is not known"),
        (["--tolerance", "soon"], "is not a duration"),
        (["--policy", "age"], "cannot run an as-of join"),
    ],
)
def test_what_cannot_work_is_refused(options: list[str], message: str, tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("k,ts\n1,2\n")
    common = ["asof", str(path), str(path), "--on", "k", "--time", "ts", "--budget", "9", "--out", "out"]
    done = CliRunner().invoke(app, [*common, *options])
    assert done.exit_code == 2
    assert message in " ".join(done.output.split())
