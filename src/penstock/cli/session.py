"""Spark for the command line: start a session, and read files as DataFrames."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from penstock.errors import PenstockError, SparkSetupError
from penstock.extras import require

NO_JAVA = "JAVA_GATEWAY_EXITED"
FORMATS = {".csv": "csv", ".json": "json", ".jsonl": "json", ".parquet": "parquet", ".pq": "parquet"}


@contextmanager
def spark_session(master: str = "local[2]") -> Iterator[Any]:
    """Start a Spark session that logs to a file; the file is named only if something fails."""
    require("pyspark", "This command")
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    import penstock.spark  # noqa: F401 (sets the Python of the workers)

    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    folder = Path(tempfile.mkdtemp(prefix="penstock-"))
    with _stderr_to(folder / "spark.log"), _java_is_there(folder / "spark.log"):
        session = (
            SparkSession.builder.master(master)
            .appName("penstock")
            .config("spark.ui.enabled", "false")
            .config("spark.sql.shuffle.partitions", str(os.cpu_count() or 2))
            .config("spark.sql.session.timeZone", "UTC")
            .config("spark.ui.showConsoleProgress", "false")
            .config("spark.sql.warehouse.dir", str(folder / "warehouse"))
            .getOrCreate()
        )
        session.sparkContext.setLogLevel("ERROR")
    try:
        yield session
    except PenstockError:
        raise  # the message is complete
    except (PySparkException, Py4JError) as error:
        said = str(error).strip().partition("\n")[0]
        raise RuntimeError(f"{said} (Spark's log: {folder / 'spark.log'})") from error
    except Exception:
        print(f"Spark's log: {folder / 'spark.log'}", file=sys.stderr)
        raise
    finally:
        session.stop()


@contextmanager
def _java_is_there(log: Path) -> Iterator[None]:
    """If Spark's gateway fails because Java is missing, raise an error that says so."""
    from pyspark.errors import PySparkRuntimeError

    try:
        yield
    except (PySparkRuntimeError, FileNotFoundError, PermissionError) as error:
        if isinstance(error, PySparkRuntimeError) and error.getCondition() != NO_JAVA:
            raise
        raise SparkSetupError(
            "Spark did not start because it found no Java that it can run. Run `penstock doctor` to see what "
            f"is missing and how to fix it. (Spark's log: {log})"
        ) from error


@contextmanager
def _stderr_to(path: Path) -> Iterator[None]:
    """Send the stderr of processes started inside this block to a file."""
    sys.stderr.flush()
    kept = os.dup(2)
    with path.open("wb") as log:
        os.dup2(log.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(kept, 2)
            os.close(kept)


def read(session: Any, path: Path, streaming: bool = False) -> Any:
    """Read a file or a folder of files as a DataFrame; as a stream, one file per batch."""
    kind = format_of(path)
    reader = session.read
    if kind == "csv":
        reader = reader.option("header", True).option("inferSchema", True)
    frame = getattr(reader, kind)(str(path))
    if not streaming:
        return frame
    source = str(path if path.is_dir() else path.parent)
    stream = session.readStream.schema(frame.schema).option("maxFilesPerTrigger", 1)
    if path.is_file():
        stream = stream.option("pathGlobFilter", path.name)
    return (stream.option("header", True) if kind == "csv" else stream).format(kind).load(source)


def format_of(path: Path) -> str:
    """Return the format of a file by its extension; of a folder, by its first file.

    >>> from pathlib import Path
    >>> from penstock.cli.session import format_of
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     Path(folder, "clicks.csv").touch()
    ...     format_of(Path(folder, "clicks.csv")), format_of(Path(folder))
    ('csv', 'csv')
    """
    if not path.exists():
        raise PenstockError(f"There is no '{path}'.")
    name = path
    if path.is_dir():
        inside = sorted(p for p in path.rglob("*") if p.suffix.lower() in FORMATS)
        if not inside:
            raise PenstockError(f"'{path}' contains no file of a supported kind: {', '.join(FORMATS)}.")
        name = inside[0]
    kind = FORMATS.get(name.suffix.lower())
    if kind is None:
        raise PenstockError(f"'{path}' has an unsupported extension; allowed are {', '.join(FORMATS)}.")
    return kind
