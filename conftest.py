"""The one Spark session that tests and the examples in docstrings share."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest

pytest_plugins = ["tests.costs"]

os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
# For every JVM that a test starts: none runs long enough for the second compiler of Java to pay.
os.environ.setdefault("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A local session with two cores and two partitions; nothing of it listens beyond this machine."""
    pytest.importorskip("pyspark", reason="pyspark is an extra")
    from pyspark.sql import SparkSession

    import penstock.spark  # noqa: F401 (sets the Python of the workers)

    folder = tmp_path_factory.mktemp("spark")
    # Spark's workers choose their tiers themselves, as those of users do: forced to compile, two of them
    # would compile the same kernels at the same time.
    tier = os.environ.pop("PENSTOCK_TIER", None)
    # Workers start in the folder where Spark was started, and import `tests` from there.
    before = os.getcwd()
    os.chdir(os.path.dirname(__file__))
    session = (
        SparkSession.builder.master("local[2]")
        .appName("penstock-tests")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "America/New_York")  # no time may depend on it
        .config("spark.sql.warehouse.dir", str(folder / "warehouse"))
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.sql.streaming.noDataMicroBatches.enabled", "false")
        .getOrCreate()
    )
    os.chdir(before)
    if tier is not None:
        os.environ["PENSTOCK_TIER"] = tier
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()


@pytest.fixture(autouse=True)
def _examples_have_spark(request: pytest.FixtureRequest, doctest_namespace: dict[str, Any]) -> None:
    """Examples of `penstock.spark` find a session under the name of spark."""
    if "penstock/spark/" in str(request.node.path) and type(request.node).__name__ == "DoctestItem":
        doctest_namespace["spark"] = request.getfixturevalue("spark")
