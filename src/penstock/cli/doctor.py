"""`penstock doctor`: check that this machine has what Penstock needs, and say how to fix what is missing."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from penstock.cli.output import Json, JsonOut, console, errors_in_one_line
from penstock.extras import EXTRAS

OLDEST_JAVA = 17
PACKAGES = ("numpy", "numba", "pandas", "pyarrow", "google-crc32c", "lark", "rich", "typer")
OLDEST_SPARK = (4, 1)


@dataclass(frozen=True)
class Finding:
    """Result of a check: `state` is ok, note (a feature will not work) or bad; `remedy` is how to fix it."""

    what: str
    state: str
    found: str
    remedy: str = ""


@errors_in_one_line
def doctor(
    start: Annotated[
        bool, typer.Option("--start", help="Also start Spark and run a task in a Python worker.")
    ] = False,
    json: Json = None,
) -> None:
    """Check Python, packages, Java, Spark and the kernel cache; exit code 1 if anything is missing."""
    sink = JsonOut(json)
    looks: list[Callable[[], list[Finding]]] = [python, packages, java, kernels]
    if start:
        looks.append(spark)
    findings = [finding for look in looks for finding in look()]
    sink.write([asdict(finding) for finding in findings])
    if not sink.alone:
        _show(findings)
    if any(finding.state == "bad" for finding in findings):
        raise typer.Exit(1)


def python() -> list[Finding]:
    """Check the Python version.

    >>> from penstock.cli.doctor import python
    >>> python()[0].state
    'ok'
    """
    found = ".".join(map(str, sys.version_info[:3]))
    fine = sys.version_info >= (3, 11)
    return [
        Finding("Python", "ok" if fine else "bad", found, "" if fine else "Install Python 3.11 or newer.")
    ]


def packages() -> list[Finding]:
    """Check Penstock, its dependencies and the packages of its extras.

    >>> from penstock.cli.doctor import packages
    >>> {finding.state for finding in packages()} <= {"ok", "note"}
    True
    """
    from importlib.metadata import PackageNotFoundError, version

    from penstock import __version__

    findings = [Finding("penstock", "ok", __version__)]
    for name in (*PACKAGES, *EXTRAS):
        try:
            found = version(name)
            old = name == "pyspark" and release_of(found) < OLDEST_SPARK
            newer = "Run pip install 'penstock[spark]' to get 4.1 or newer." if old else ""
            findings.append(Finding(name, "bad" if old else "ok", found, newer))
        except PackageNotFoundError:
            extra = EXTRAS.get(name)
            remedy = f"Optional: pip install 'penstock[{extra}]'" if extra else f"pip install {name}"
            findings.append(Finding(name, "note" if extra else "bad", "not installed", remedy))
    return findings


def release_of(version: str) -> tuple[int, ...]:
    """Return the first two numbers of a version.

    >>> from penstock.cli.doctor import release_of
    >>> release_of("4.1.0.dev2") >= (4, 1), release_of("3.5.7") >= (4, 1)
    (True, False)
    """
    return tuple(int(part) for part in re.findall(r"\d+", version)[:2])


def java() -> list[Finding]:
    """Check the Java that Spark would start: the one in JAVA_HOME, else the one on the PATH."""
    home = os.environ.get("JAVA_HOME")
    command = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    install = "Install Java 17 (Debian, Ubuntu: openjdk-17-jre-headless), or set JAVA_HOME."
    if command is None or not Path(command).exists():
        where = f"none in JAVA_HOME={home}" if home else "none on the PATH, and JAVA_HOME is not set"
        if find_spec("pyspark") is None:
            return [Finding("Java", "note", where, install + " Only Spark needs it.")]
        return [Finding("Java", "bad", where, install + " Spark does not start without it.")]
    try:
        said = subprocess.run([command, "-version"], capture_output=True, text=True, timeout=60).stderr
    except (OSError, subprocess.TimeoutExpired) as error:
        return [Finding("Java", "bad", f"{command} does not run: {error}", install)]
    major = major_of(said)
    if major is None:
        return [Finding("Java", "bad", f"{command} does not report its version", install)]
    fine = major >= OLDEST_JAVA
    return [Finding("Java", "ok" if fine else "bad", f"{major} ({command})", "" if fine else install)]


def major_of(text: str) -> int | None:
    """Parse the Java release from the output of `java -version`; Java 8 reports itself as 1.8.

    >>> from penstock.cli.doctor import major_of
    >>> major_of('openjdk version "17.0.9" 2023-10-17'), major_of('java version "1.8.0_392"'), major_of("?")
    (17, 8, None)
    """
    match = re.search(r'version "(?:1\.)?(\d+)', text)
    return int(match[1]) if match else None


def kernels() -> list[Finding]:
    """Check the folder of compiled kernels, and count them."""
    if os.environ.get("NUMBA_DISABLE_JIT", "0") not in ("", "0"):
        return [
            Finding("Numba", "note", "NUMBA_DISABLE_JIT is set", "Unset it: all code runs as plain Python.")
        ]
    from penstock.compiler.code_cache import CacheFolderWarning, folder

    with warnings.catch_warnings():
        warnings.simplefilter("error", CacheFolderWarning)
        try:
            where = folder()
        except CacheFolderWarning as warning:
            remedy = "Set PENSTOCK_CACHE_DIR to a writable folder that Spark's workers share."
            return [Finding("Compiled kernels", "note", str(warning).partition(";")[0], remedy)]
    kept = list(where.glob("*.nbc"))
    size = sum(path.stat().st_size for path in kept) / 2**20
    found = f"{len(kept)} kernels, {size:.0f} MiB in {where}"
    hint = (
        ""
        if kept
        else "The first run of each policy compiles for a few seconds; later runs load its kernels."
    )
    return [Finding("Compiled kernels", "ok" if kept else "note", found, hint)]


def spark() -> list[Finding]:
    """Start Spark and import Penstock in a worker."""
    from penstock.cli.session import spark_session

    def look(_: int) -> str:
        import penstock

        return penstock.__version__

    try:
        with spark_session("local[1]") as session:
            version = session.sparkContext.parallelize([0], 1).map(look).collect()[0]
            return [Finding("Spark runs", "ok", f"{session.version}, its workers have penstock {version}")]
    except Exception as error:  # any failure is the finding
        words = " ".join(str(error).split())[:200]
        return [
            Finding("Spark runs", "bad", words, "See the log named above, and the rows for Java and pyspark.")
        ]


def _show(findings: list[Finding]) -> None:
    from rich import box
    from rich.markup import escape
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for title in ("", "what", "found", "what to do"):
        table.add_column(title, overflow="fold")
    marks = {"ok": "[green]ok[/]", "note": "[yellow]note[/]", "bad": "[red]bad[/]"}
    for each in findings:
        table.add_row(marks[each.state], each.what, escape(each.found), escape(each.remedy))
    console().print(table)
    worst = {finding.state for finding in findings}
    if "bad" in worst:
        console().print("[red]Something is missing.[/]")
    else:
        console().print("Everything required is installed." + (" See the notes." if "note" in worst else ""))
