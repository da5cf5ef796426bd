"""Check and set the options that Penstock needs in a Spark session."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from typing import Any

from penstock import __version__
from penstock.errors import SparkSetupError, SparkSetupWarning, warn_user

PROVIDER = "spark.sql.streaming.stateStore.providerClass"
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
CHANGELOG = "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled"
SHARED = "spark.sql.streaming.stateStore.rocksdb.boundedMemoryUsage"
# RocksDB keeps what was written in up to two buffers of 64 MB per partition. Whatever is in them a batch has
# replaced before: a bucket writes its log and its snapshots again and again.
BUFFERS = {
    "spark.sql.streaming.stateStore.rocksdb.writeBufferSizeMB": "4",
    "spark.sql.streaming.stateStore.rocksdb.maxWriteBufferNumber": "2",
}


def prepare(session: Any) -> None:
    """Set what a stateful query needs; warn where the session does not let it be set.

    A platform's own RocksDB provider is as good as Spark's.

    >>> from penstock.spark.runtime.session import prepare
    >>> prepare(spark)
    >>> spark.conf.get("spark.sql.streaming.stateStore.providerClass").rpartition(".")[2]
    'RocksDBStateStoreProvider'
    """
    if "rocksdb" not in session.conf.get(PROVIDER, "").lower():
        _set(session, PROVIDER, ROCKSDB, "Spark keeps the state of Python operators in RocksDB only")
    if session.conf.get(CHANGELOG, "").lower() != "true":
        _set(session, CHANGELOG, "true", "without it every batch uploads the whole state")
    own = session.conf.get(PROVIDER, "") == ROCKSDB
    limited = session.conf.get(SHARED, "").lower() == "true"  # all partitions share their buffers
    if own and not limited:
        for name, value in BUFFERS.items():
            if session.conf.get(name, "-1") == "-1":
                _set(session, name, value, "otherwise the state store takes up to 128 MB per partition")


def _set(session: Any, name: str, value: str, reason: str) -> None:
    try:
        session.conf.set(name, value)
    except Exception as error:  # of Py4J, Spark, Connect or the platform
        warn_user(
            f"This session does not let {name} be set ({str(error).splitlines()[0]}). Start it with "
            f"{name}={value}: {reason}.",
            SparkSetupWarning,
        )


def partitions(session: Any) -> int:
    """The shuffle partitions of a session."""
    return int(session.conf.get("spark.sql.shuffle.partitions", "200"))


_checked: set[str] = set()  # sessions whose workers have been found to have Penstock


def check_workers(session: Any) -> None:
    """Refuse a session whose Python workers lack Penstock, or have another version of it.

    A session that was made before `penstock.spark` was imported may start another Python. One task is run for
    it, once per session.

    >>> from penstock.spark.runtime.session import check_workers
    >>> check_workers(spark)
    """
    name = _name_of(session)
    if name in _checked:
        return
    try:
        (found,) = session.range(0, 1, 1, 1).mapInArrow(worker_version, "version string").collect()
    except Exception as error:  # of Py4J, Spark or Connect; whatever it is, no query would run either
        raise SparkSetupError(
            f"Spark's Python workers cannot run Penstock: {_reason(str(error))}. {_remedy()}"
        ) from error
    if found["version"] != __version__:
        raise SparkSetupError(
            f"Spark's Python workers have Penstock {found['version']}, and the driver has {__version__}. "
            f"{_remedy()}"
        )
    _checked.add(name)


def worker_version(batches: Iterator[Any]) -> Iterator[Any]:
    """A function for `mapInArrow` that tells the version of Penstock in a worker."""
    import pyarrow as pa

    from penstock.spark.runtime.arrow_blobs import texts

    for _ in batches:
        yield pa.RecordBatch.from_arrays([texts([__version__])], names=["version"])


def _name_of(session: Any) -> str:
    """What tells sessions with workers of their own apart; those of one application share them."""
    return str(session.conf.get("spark.app.id", ""))


def _reason(error: str) -> str:
    """The one telling line of a worker's traceback."""
    known = (
        r"No module named '[\w.]+'",
        r"Python in worker has different version[^\n]*",
        r'Cannot run program "[^"]*"',
    )
    found = re.search("|".join(known), error)
    return found[0].rstrip(".") if found else error.strip().partition("\n")[0].rstrip(".")


def _remedy() -> str:
    return (
        "Before the session is made, set PYSPARK_PYTHON or spark.pyspark.python to a Python that has the "
        f"Penstock of the driver, which runs {sys.executable}; if the driver found it through sys.path, put "
        "that folder into PYTHONPATH, too."
    )
