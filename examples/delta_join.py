"""Two streams of files, a join in bounded memory, and Delta tables for results and for rows that were lost.

    spark-submit --packages io.delta:delta-spark_2.13:4.4.0 \
        --conf spark.sql.extensions=io.delta.sql.DeltaSparkSessionExtension \
        --conf spark.sql.catalog.spark_catalog=org.apache.spark.sql.delta.catalog.DeltaCatalog \
        examples/delta_join.py SHOWN CLICKED FOLDER

SHOWN and CLICKED are folders of Parquet files with the columns `ad` and `ts`. Delta Lake 4.4 runs on Spark
4.2.
"""

from __future__ import annotations

import argparse
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from penstock.spark import bounded_join, reconcile, write_split

JOIN: dict[str, Any] = {"on": "ad", "time": "ts", "within": ("0 s", "10 minutes")}


def start(joined: DataFrame, folder: str, trigger: Any) -> Any:
    """Write the output of a join with `emit="all"` to two tables, each batch once."""
    return write_split(
        joined,
        results=f"{folder}/hits",
        archive=f"{folder}/lost",
        format="delta",
        checkpoint=f"{folder}/checkpoint",
        trigger=trigger,
    )


def missed(left: DataFrame, right: DataFrame, folder: str, **join: Any) -> DataFrame:
    """The results of the exact join that are not in the table of results."""
    return reconcile(f"{folder}/lost", left, right, **join, results=f"{folder}/hits")


def main() -> None:
    """Run the query over the files that are there, then add what it has missed to a third table."""
    parser = argparse.ArgumentParser(
        description="Two streams of files, a join in bounded memory, Delta tables."
    )
    parser.add_argument("shown", help="a folder of Parquet files")
    parser.add_argument("clicked", help="a folder of Parquet files")
    parser.add_argument("folder", help="the folder for tables and checkpoint")
    parser.add_argument("--budget", default="64 MiB")
    given = parser.parse_args()
    spark = SparkSession.builder.appName("delta_join").getOrCreate()
    shown, clicked = (spark.read.parquet(path) for path in (given.shown, given.clicked))
    streams = (
        spark.readStream.schema(whole.schema).option("maxFilesPerTrigger", 1).parquet(path)
        for whole, path in ((shown, given.shown), (clicked, given.clicked))
    )
    joined = bounded_join(*streams, **JOIN, budget=given.budget, emit="all")
    start(joined, given.folder, {"availableNow": True}).awaitTermination()
    recovered = missed(shown, clicked, given.folder, **JOIN)
    recovered.write.format("delta").mode("overwrite").save(f"{given.folder}/recovered")


if __name__ == "__main__":
    main()
