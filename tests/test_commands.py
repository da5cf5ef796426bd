"""The commands of the README and of `docs/` run: in blocks, in lines of text, and in the notebooks.

- `penstock` with arguments is run in a folder that has the files it names, and must end with 0.
- What needs a cluster, a compiler or hours is run by the test that `ELSEWHERE` names.
- `make` names a target that is there, and `pip install` extras that are there; `make smoke` installs them.
- Every other line that is set as a command is refused, so that none escapes.
"""

from __future__ import annotations

import re
import shlex
import sqlite3
import tomllib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import penstock as ps

ROOT = Path(__file__).parents[1]
PAGES = [
    ROOT / "README.md",
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "docs/tutorials").glob("*.py")),
]
FENCE = re.compile(r"^```([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
INLINE = re.compile(r"`((?:penstock|make|pip) [^`\n]*)`")
FORMULAS = ("80 MiB +", "need =", "+ rows per second", "arrivals =")  # indented, but no commands
# How a command begins, and the test that runs it, or one that differs in names and sizes only.
ELSEWHERE = {
    "penstock doctor": "tests/cli/test_doctor.py",
    "penstock reproduce": "tests/reproduction/test_reproduce.py",
    "penstock dashboard": "tests/dashboard/test_dashboard.py",
    "penstock queues serve": "tests/cli/test_queues.py",
    "penstock warm": "tests/spark/test_cluster.py",
    "spark-submit --master spark://host:7077 --archives kernels.tar#kernels": "tests/spark/test_cluster.py",
}
# These need the network: packages from an index or from Maven.
NOT_HERE = (
    "python -m venv pipeline",
    "pipeline/bin/venv-pack",
    "PYSPARK_PYTHON=./environment/bin/python spark-submit --archives pipeline.tar.gz",
    "spark-submit --packages org.apache.spark:spark-sql-kafka",
    "source .venv/bin/activate",
)


def text_of(page: Path) -> str:
    """The Markdown of a page; of a notebook, that of its text cells."""
    source = page.read_text(encoding="utf-8")
    if page.suffix == ".md":
        return source
    from site_pages.notebooks import cells_of

    return "\n\n".join(cell.text for cell in cells_of(page) if cell.kind == "markdown")


def commands(page: Path) -> Iterator[str]:
    """Lines of plain blocks and indented ones, and commands with arguments in sentences."""
    text = text_of(page)
    plain = "\n".join(match[2] for match in FENCE.finditer(text) if not match[1].strip())
    text = FENCE.sub("", text)
    indented = "\n".join(re.findall(r"^    (\S.*)$", text, re.MULTILINE))
    blocks = re.sub(r"\\\n\s*", "", f"{indented}\n{plain}")
    yield from (line.partition("  #")[0].strip() for line in blocks.splitlines() if line.strip())
    yield from (found for found in INLINE.findall(text) if "..." not in found)


FOUND = sorted({(page.name, command) for page in PAGES for command in commands(page)})


def starting_with(word: str) -> list[str]:
    return sorted({command for _, command in FOUND if command.split()[0] == word})


def words_of(command: str) -> list[str]:
    return shlex.split(re.sub(r"\s#\s.*", "", command))


TO_RUN = [
    command
    for command in starting_with("penstock")
    if not command.startswith(tuple(ELSEWHERE)) and any(word.startswith("-") for word in words_of(command))
]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The files that the commands name."""
    rng = np.random.default_rng(3)
    n = 60

    def table(key: str) -> pd.DataFrame:
        return pd.DataFrame({key: rng.integers(0, 12, n), "ts": np.arange(n) * 30_000})

    for name in ("buys", "sells"):
        table("symbol").to_csv(tmp_path / f"{name}.csv", index=False)
    for name in ("shown", "bought"):
        table("product").assign(key=range(n)).to_parquet(tmp_path / f"{name}.parquet")
    for name in ("requests", "clicks"):
        table("item").to_parquet(tmp_path / f"{name}.parquet")
    with sqlite3.connect(tmp_path / "shop.db") as database:
        database.execute("CREATE TABLE items (id INTEGER PRIMARY KEY, name TEXT)")
        database.executemany("INSERT INTO items VALUES (?, ?)", [(i, f"item {i}") for i in range(9)])
    database.close()
    (tmp_path / "similar.rq").write_text(
        "SELECT ?a ?b FROM STREAM windSpeed WHERE { ?a reports ?v ?T1 . ?b reports ?v ?T2 } "
        "CONTEXT ((?T1 - ?T2) <= 200^^xsd:millisecond)"
    )
    (tmp_path / "wind.nt").write_text('<a> <reports> "12" 0 .\n<b> <reports> "12" 100 .\n')
    (tmp_path / "query.neel").write_text("PATTERN SEQ(A a, B b) WITHIN 10 minutes")
    kinds = pd.DataFrame({"kind": list("AB") * 5, "ts": np.arange(10) * 1_000})
    kinds.to_parquet(tmp_path / "events.parquet")
    with ps.SpillQueue(tmp_path / "DIR", memory="1 MiB") as queue:
        queue.put(b"item")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("command", TO_RUN)
def test_commands_run(command: str, folder: Path) -> None:
    from penstock.cli import app

    done = CliRunner().invoke(app, words_of(command)[1:])
    assert done.exit_code == 0, f"{command}\n{done.output}\n{done.exception!r}"


def test_commands_of_the_queue_folder_run(folder: Path) -> None:
    from penstock.cli import app

    for command in ("verify", "inspect"):
        assert any(each.startswith(f"penstock queues {command} DIR") for each in starting_with("penstock"))
        done = CliRunner().invoke(app, ["queues", command, "DIR"])
        assert done.exit_code == 0, done.output


@pytest.mark.parametrize(("command", "place"), ELSEWHERE.items(), ids=lambda text: text)
def test_other_tests_run_the_rest(command: str, place: str) -> None:
    """The test is there, and it runs the command."""
    assert any(found.startswith(command) for _, found in FOUND), "an exception that is no longer needed"
    word = command.removeprefix("penstock ").split()[0].removesuffix("-submit")
    assert word in (ROOT / place).read_text(encoding="utf-8")


def test_targets_of_make_are_there() -> None:
    targets = set(
        re.findall(r"^([a-z-]+):.*## ", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    )
    named = {words_of(command)[1] for command in starting_with("make")}
    assert named
    assert named <= targets


def test_extras_of_pip_are_there() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    for command in starting_with("pip"):
        for place, extras in re.findall(r"(penstock|\.)\[([a-z,]+)\]", command):
            assert place in ("penstock", ".")
            assert set(extras.split(",")) <= set(project["optional-dependencies"]), command


def test_no_command_escapes() -> None:
    known = ("penstock", "make", "pip", *FORMULAS, *NOT_HERE, *ELSEWHERE)
    language = ("PREFIX", "SELECT", "FROM", "WHERE", "CONTEXT")  # the grammar in docs/linked.md
    assert [command for _, command in FOUND if not command.startswith((*known, *language))] == []
