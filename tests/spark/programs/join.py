"""A query with a bounded join, described by a JSON file: `python -m tests.spark.programs.join plan.json`.

It reads Parquet files, one of each side per batch, and writes the results as Parquet. The plan says with
`join` what to call `bounded_join` with, and with `left` and `right` where the data are; the rest is in
`frame`. `batch` reads whole folders, and needs no checkpoint.
"""

from __future__ import annotations

from typing import Any

import penstock as ps
from penstock.spark import bounded_join
from tests.spark.programs.frame import main, stream_of, write_all


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
    left, right = (stream_of(spark, folder) for folder in folders)
    write_all(bounded_join(left, right, **options_of(plan)), plan)


if __name__ == "__main__":
    main(run)
