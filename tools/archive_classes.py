"""Leave what the JVM has loaded for a small Spark query in an archive, from which later ones start faster.

    python tools/archive_classes.py .venv/spark.jsa

Half of the CPU time of a short Spark program is reading and checking classes. The JVM ignores an archive that
another Java or other jars have made. Without one, everything works as before.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

FLAGS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xlog:cds=off -Xlog:cds+dynamic=off -Xlog:class+path=off"


def main(archive: Path) -> None:
    """Run a streaming join that writes Parquet, with an archive made at the end."""
    part = archive.with_suffix(f".{os.getpid()}")
    os.environ["SPARK_SUBMIT_OPTS"] = f"{FLAGS} -XX:ArchiveClassesAtExit={part}"
    from pyspark.sql import SparkSession

    import penstock as ps
    from penstock.spark import bounded_join

    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    spark = builder.config("spark.sql.shuffle.partitions", "2").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    with tempfile.TemporaryDirectory() as folder:
        table = spark.range(100).selectExpr("id % 7 AS k", "timestamp_millis(id) AS ts", "id AS v")
        table.write.parquet(f"{folder}/table")
        sides = [spark.readStream.schema(table.schema).parquet(f"{folder}/table") for _ in range(2)]
        join = bounded_join(*sides, on="k", time="ts", within="1 second", budget=ps.Tuples(50), buckets=2)
        query = join.writeStream.format("parquet").option("path", f"{folder}/out")
        started = query.option("checkpointLocation", f"{folder}/check").trigger(availableNow=True).start()
        started.awaitTermination()
        spark.read.parquet(f"{folder}/out").count()
        both = table.join(table.withColumnRenamed("v", "w"), "k").groupBy("k").count()
        both.toPandas()
    spark.stop()
    gateway = spark.sparkContext._gateway
    if gateway is not None:
        gateway.shutdown()
        gateway.proc.stdin.close()
        gateway.proc.wait(120)
    part.replace(archive)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
