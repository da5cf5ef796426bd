"""What Penstock needs of a Spark session, set if it can be."""

from __future__ import annotations

from typing import Any

from penstock.errors import PenstockError

NEEDED = {
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
        "the state of a bounded join lives in RocksDB",
    ),
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": (
        "true",
        "without it every batch would upload the whole state",
    ),
}


def prepare(session: Any) -> None:
    """Set what a stateful query needs; an error in one sentence where the session forbids it."""
    for name, (value, reason) in NEEDED.items():
        if session.conf.get(name, None) == value:
            continue
        try:
            session.conf.set(name, value)
        except Exception as error:
            raise PenstockError(
                f"Start the Spark session with {name}={value}: {reason}, and this session does not let it be "
                f"set ({str(error).splitlines()[0]})."
            ) from error


def partitions(session: Any) -> int:
    """The shuffle partitions of a session."""
    return int(session.conf.get("spark.sql.shuffle.partitions", "200"))
