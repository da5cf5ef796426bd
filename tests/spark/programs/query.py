"""A stream query, described by a JSON file: `python -m tests.spark.programs.query plan.json`.

It reads Parquet files, one per batch, and writes the rows as Parquet. The plan says with `query` what to call
`stream_query` with, and with `streams` where the data are; the rest is in `frame`.
"""

from __future__ import annotations

from typing import Any

from penstock.spark import stream_query
from tests.spark.programs.frame import main, stream_of, write_all


def run(spark: Any, plan: dict[str, Any]) -> None:
    """Run the query until it has read all files."""
    streams = {name: stream_of(spark, folder) for name, folder in plan["streams"].items()}
    write_all(stream_query(streams=streams, **plan["query"]), plan)


if __name__ == "__main__":
    main(run)
