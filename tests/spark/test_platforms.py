"""Sessions of platforms that bring their own state store, or do not let options be set."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from penstock.errors import SparkSetupWarning
from penstock.spark.runtime.session import BUFFERS, CHANGELOG, PROVIDER, ROCKSDB, SHARED, prepare

SOURCE = Path(__file__).parents[2] / "src" / "penstock"

# Where classic sessions are reached into: what starts Spark itself, and the bytes of collated strings, which
# no public function gives (a session without them is told to cast).
CLASSIC = {"cli/demo/side.py", "cli/doctor.py", "cli/session.py", "spark/runtime/keys.py"}


@pytest.fixture
def conf(spark: Any) -> Any:
    """The options of the session, as they were afterwards."""
    before = {name: spark.conf.get(name, None) for name in (PROVIDER, CHANGELOG, SHARED, *BUFFERS)}
    yield spark.conf
    for name, value in before.items():
        if value is None:
            spark.conf.unset(name)
        else:
            spark.conf.set(name, value)


def test_a_provider_of_the_platform_stays(spark: Any, conf: Any) -> None:
    conf.set(PROVIDER, "com.example.streaming.state.RocksDbStateStoreProviderV2")
    prepare(spark)
    assert conf.get(PROVIDER) == "com.example.streaming.state.RocksDbStateStoreProviderV2"
    assert conf.get(CHANGELOG) == "true"


def test_sparks_store_in_memory_is_replaced(spark: Any, conf: Any) -> None:
    conf.set(PROVIDER, "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider")
    prepare(spark)
    assert conf.get(PROVIDER) == ROCKSDB


def test_write_buffers_are_small_unless_somebody_has_set_them(spark: Any, conf: Any) -> None:
    size, count = BUFFERS
    conf.set(PROVIDER, ROCKSDB)
    conf.set(size, "16")
    conf.unset(count)
    prepare(spark)
    assert (conf.get(size), conf.get(count)) == ("16", BUFFERS[count])
    conf.unset(size)
    conf.set(SHARED, "true")
    prepare(spark)
    assert conf.get(size, "-1") == "-1"


class Locked:
    """A session that shows its options and lets none be set."""

    def __init__(self, session: Any) -> None:
        self.conf, self._conf = self, session.conf

    def get(self, *name: Any) -> Any:
        return self._conf.get(*name)

    def set(self, name: str, value: str) -> None:
        raise PermissionError(f"{name} is managed by the platform")


def test_an_option_that_may_not_be_set_is_a_warning(spark: Any, conf: Any) -> None:
    prepare(spark)  # sets the others
    conf.set(CHANGELOG, "false")
    with pytest.warns(SparkSetupWarning) as caught:
        prepare(Locked(spark))
    (warning,) = caught
    assert str(warning.message) == (
        f"This session does not let {CHANGELOG} be set ({CHANGELOG} is managed by the platform). "
        f"Start it with {CHANGELOG}=true: without it every batch uploads the whole state."
    )
    assert conf.get(CHANGELOG) == "false"


def test_nothing_else_reaches_into_a_classic_session() -> None:
    found = {
        path.relative_to(SOURCE).as_posix()
        for path in SOURCE.rglob("*.py")
        if re.search(r"\b_jvm\b|\b_jdf\b|\b_jc\b|\b_jsparkSession\b|\bsparkContext\b", path.read_text())
    }
    assert {name for name in found if not name.startswith("reproduction/")} <= CLASSIC
