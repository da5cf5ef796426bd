"""A query with a pattern, described by a JSON file: `python -m tests.spark.programs.match plan.json`.

It reads Parquet files, one per batch, and writes the matches as Parquet. The plan says with `match` what to
call `match_pattern` with, and with `events`, `output` and `checkpoint` where the data are.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from penstock.spark import match_pattern
from tests.spark.programs.join import session_of


def run(spark: Any, plan: dict[str, Any]) -> None:
    """Run the query until it has read all files."""
    events = (
        spark.readStream.schema(spark.read.parquet(plan["events"]).schema)
        .option("maxFilesPerTrigger", 1)
        .parquet(plan["events"])
    )
    query = (
        match_pattern(events, **plan["match"])
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
