"""Jars that Spark does not bring, fetched once from Maven's registry by the Ivy that Spark brings.

They stay in `~/.cache/penstock-tests`, or in the folder that `PENSTOCK_JARS` names. Connectors are tied to a
version of Spark. If the registry does not have the one of this PySpark, the nearest that works stands in.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

import pyspark

SPARK_JARS = Path(pyspark.__file__).parent / "jars"
PATIENCE = 300  # seconds to fetch one set of jars


class Jar(NamedTuple):
    """A module of the registry; `alone` is without what it depends on."""

    org: str
    name: str
    version: str
    alone: bool = False


class JarSet(NamedTuple):
    """Jars that are used together, under a name of their own in the cache."""

    name: str
    jars: tuple[Jar, ...]


class MissingJarsError(Exception):
    """The registry cannot be reached, or does not have the jars."""


def cache() -> Path:
    """Where jars stay."""
    given = os.environ.get("PENSTOCK_JARS")
    if given:
        return Path(given)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "penstock-tests"


def fetch(*choices: JarSet) -> list[Path]:
    """The files of the first set that the registry has."""
    said = ""
    for choice in choices:
        folder = cache() / choice.name
        if not folder.is_dir():
            said = _resolve(choice, folder)
        if folder.is_dir():
            return sorted(folder.glob("*.jar"))
    names = " or ".join(choice.name for choice in choices)
    raise MissingJarsError(f"{names} cannot be fetched: {said}")


def _resolve(wanted: JarSet, folder: Path) -> str:
    """Fetch a set into a folder, all of it or nothing; what Ivy says if there is nothing."""
    ivy = next(SPARK_JARS.glob("ivy-*.jar"), None)
    if ivy is None:
        return f"there is no Ivy in {SPARK_JARS}"
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f"{wanted.name}-", dir=folder.parent) as name:
        place = Path(name)
        (place / "ivy.xml").write_text(_description(wanted))
        java = Path(os.environ["JAVA_HOME"], "bin", "java") if "JAVA_HOME" in os.environ else "java"
        retrieve = f"{place}/jars/[artifact]-[revision](-[classifier]).[ext]"
        command = [java, "-jar", ivy, "-cache", place / "cache", "-ivy", place / "ivy.xml"]
        command += ["-retrieve", retrieve, "-types", "jar", "bundle"]
        try:
            ran = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
        except (OSError, subprocess.TimeoutExpired) as error:
            return str(error)
        if ran.returncode:
            lines = ran.stdout.splitlines()
            return "; ".join(line.strip() for line in lines if line.rstrip().endswith("not found")) or (
                lines[-1] if lines else ran.stderr[-300:]
            )
        if not folder.is_dir():  # another process may have been faster
            shutil.move(place / "jars", folder)
    return ""


def _description(wanted: JarSet) -> str:
    """The set as Ivy reads it."""
    lines = [
        f'<dependency org="{jar.org}" name="{jar.name}" rev="{jar.version}" conf="default" '
        f'transitive="{"false" if jar.alone else "true"}"/>'
        for jar in wanted.jars
    ]
    return (
        '<ivy-module version="2.0"><info organisation="penstock" module="tests"/>'
        f"<dependencies>{''.join(lines)}</dependencies></ivy-module>"
    )


SPARK = "org.apache.spark"
SQL, TOKENS = "spark-sql-kafka-0-10_2.13", "spark-token-provider-kafka-0-10_2.13"

KAFKA_BROKER = JarSet("kafka-4.3.1", (Jar("org.apache.kafka", "kafka_2.13", "4.3.1"),))

KAFKA_CONNECTOR = (
    JarSet(f"spark-sql-kafka-{pyspark.__version__}", (Jar(SPARK, SQL, pyspark.__version__),)),
    # The registry may lag behind the index of Python packages, as that of November 2026 did: nothing of
    # Spark 4.3, and no token provider between these two.
    JarSet(
        "spark-sql-kafka-4.2.0",
        (
            Jar(SPARK, SQL, "4.2.0", alone=True),
            Jar(SPARK, TOKENS, "4.1.0-preview1", alone=True),
            Jar("org.apache.kafka", "kafka-clients", "3.9.2", alone=True),
            Jar("org.apache.commons", "commons-pool2", "2.13.1", alone=True),
        ),
    ),
)

# A release of Delta Lake is built for some versions of Spark; 4.4 runs on 4.2, and not on 4.3, whose
# LogicalRDD has another constructor.
DELTA_SPARK = "4.2.0"
DELTA = JarSet("delta-4.4.0", (Jar("io.delta", "delta-spark_2.13", "4.4.0"),))


def delta() -> tuple[list[Path], dict[str, str]]:
    """The jars of Delta Lake, and the environment in which a program finds a PySpark that they run on."""
    jars = [path for path in fetch(DELTA) if path.name.startswith(("delta-", "unitycatalog-"))]
    if pyspark.__version__.rpartition(".")[0] == DELTA_SPARK.rpartition(".")[0]:
        return jars, {}
    folder = cache() / f"pyspark-{DELTA_SPARK}"
    if not folder.is_dir():
        _install(f"pyspark=={DELTA_SPARK}", folder)
    return jars, {"PYTHONPATH": f"{folder}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"}


def _install(package: str, folder: Path) -> None:
    """Install a package, without what it needs, into a folder of its own: all of it or nothing."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f"{folder.name}-", dir=folder.parent) as name:
        place = Path(name, "packages")
        command = [
            sys.executable,
            "-m",
            "pip",
            "install",
            "--quiet",
            "--no-deps",
            "--target",
            str(place),
            package,
        ]
        try:
            ran = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
        except subprocess.TimeoutExpired as error:
            raise MissingJarsError(f"{package} cannot be installed: {error}") from error
        if ran.returncode:
            raise MissingJarsError(f"{package} cannot be installed: {ran.stderr.strip().splitlines()[-1]}")
        if not folder.is_dir():
            shutil.move(place, folder)
