"""What the programs share: a session, files as a stream, a Parquet sink, and a plan in a JSON file.

A plan says with `master` or `remote` where to run, and with `output` and `checkpoint` where the data are.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

QUIET = {
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
}


def session_of(plan: dict[str, Any]) -> Any:
    """The Spark session of a plan."""
    from pyspark.sql import SparkSession

    builder = SparkSession.builder
    if "remote" in plan:  # a server has its own settings
        return builder.remote(plan["remote"]).getOrCreate()
    for name, value in (QUIET | plan.get("conf", {})).items():
        builder = builder.config(name, value)
    session = builder.master(plan.get("master", "local[2]")).getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session


def stream_of(spark: Any, folder: str) -> Any:
    """The Parquet files of a folder, one per batch."""
    files = spark.readStream.schema(spark.read.parquet(folder).schema)
    return files.option("maxFilesPerTrigger", 1).parquet(folder)


def start(frame: Any, plan: dict[str, Any]) -> Any:
    """Start a streaming frame that writes into the output of a plan; the query."""
    return (
        frame.writeStream.format("parquet")
        .option("path", plan["output"])
        .option("checkpointLocation", plan["checkpoint"])
        .trigger(processingTime=plan.get("every", "100 milliseconds"))
        .start()
    )


def write_all(frame: Any, plan: dict[str, Any]) -> None:
    """Run a streaming frame into the output of a plan until it has read all files."""
    query = start(frame, plan)
    query.processAllAvailable()
    query.stop()


def main(run: Callable[[Any, dict[str, Any]], None]) -> None:
    """Read the plan, run it, and leave a file beside it that says so."""
    path = Path(sys.argv[1])
    plan = json.loads(path.read_text())
    spark = session_of(plan)
    run(spark, plan)
    spark.stop()
    path.with_suffix(".done").touch()
