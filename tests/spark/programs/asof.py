"""A query with an as-of join, described by a JSON file: `python -m tests.spark.programs.asof plan.json`.

The plan is that of `programs.join`; its `join` says what to call `asof_join` with.
"""

from __future__ import annotations

from typing import Any

from penstock.spark import asof_join
from tests.spark.programs.frame import main, stream_of, write_all
from tests.spark.programs.join import options_of


def run(spark: Any, plan: dict[str, Any]) -> None:
    """Run the query until it has read all files."""
    left, right = (stream_of(spark, folder) for folder in (plan["left"], plan["right"]))
    write_all(asof_join(left, right, **options_of(plan)), plan)


if __name__ == "__main__":
    main(run)
