"""A query with a pattern, described by a JSON file: `python -m tests.spark.programs.match plan.json`.

It reads Parquet files, one per batch, and writes the matches as Parquet. The plan says with `match` what to
call `match_pattern` with, and with `events` where the data are; the rest is in `frame`.
"""

from __future__ import annotations

from typing import Any

from penstock.spark import match_pattern
from tests.spark.programs.frame import main, stream_of, write_all


def run(spark: Any, plan: dict[str, Any]) -> None:
    """Run the query until it has read all files."""
    write_all(match_pattern(stream_of(spark, plan["events"]), **plan["match"]), plan)


if __name__ == "__main__":
    main(run)
