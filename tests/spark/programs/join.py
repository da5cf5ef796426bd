"""A query with a bounded join, described by a JSON file: `python -m tests.spark.programs.join plan.json`.

It reads Parquet files, one of each side per batch, and writes the results as Parquet. The plan says with
`master` or `remote` where to run, with `join` what to call `bounded_join` with, and with `left`, `right`,
`output` and `checkpoint` where the data are. `batch` reads whole folders, and needs no checkpoint.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import penstock as ps
from penstock.spark import bounded_join

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


def options_of(plan: dict[str, Any]) -> dict[str, Any]:
    """The arguments of `bounded_join`; a budget that is a number is one of tuples."""
    options = dict(plan["join"])
    if isinstance(options["budget"], int):
        options["budget"] = ps.Tuples(options["budget"])
    return options


def run(spark: Any, plan: dict[str, Any]) -> None:
    """Run the query until it has read all files."""
    folders = plan["left"], plan["right"]
    if plan.get("batch"):
        left, right = (spark.read.parquet(folder) for folder in folders)
        bounded_join(left, right, **options_of(plan)).write.parquet(plan["output"])
        return
    left, right = (
        spark.readStream.schema(spark.read.parquet(folder).schema)
        .option("maxFilesPerTrigger", 1)
        .parquet(folder)
        for folder in folders
    )
    query = (
        bounded_join(left, right, **options_of(plan))
        .writeStream.format("parquet")
        .option("path", plan["output"])
        .option("checkpointLocation", plan["checkpoint"])
        .trigger(processingTime=plan.get("every", "100 milliseconds"))
        .start()
    )
    query.processAllAvailable()
    query.stop()


def main() -> None:
    """Read the plan, run it, and leave a file beside it that says so."""
    path = Path(sys.argv[1])
    plan = json.loads(path.read_text())
    spark = session_of(plan)
    run(spark, plan)
    spark.stop()
    path.with_suffix(".done").touch()


if __name__ == "__main__":
    main()
