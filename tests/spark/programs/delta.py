"""`write_split` and `reconcile` with Delta tables, in a session that has Delta Lake.

`python -m tests.spark.programs.delta plan.json` joins the files of `left` and `right` into two tables, runs
the last batch once more, and writes what it finds into `figures.json` in the folder of the plan. With
`"check": false` it only runs the query, in which it can be killed.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from examples.delta_join import missed, start
from penstock.errors import PenstockError
from penstock.spark import bounded_join, write_split
from tests.spark.programs.frame import main, stream_of
from tests.spark.programs.join import options_of

ONCE = {"availableNow": True}


def joined(spark: Any, plan: dict[str, Any]) -> Any:
    """The join of the streams of a plan."""
    left, right = (stream_of(spark, plan[side]) for side in ("left", "right"))
    return bounded_join(left, right, **options_of(plan), emit="all")


def tables(spark: Any, plan: dict[str, Any]) -> dict[str, list[Any]]:
    """The rows of each batch in both tables, and how many transactions each has."""
    found: dict[str, list[Any]] = {}
    for name in ("hits", "lost"):
        table = spark.read.format("delta").load(f"{plan['folder']}/{name}")
        found[name] = [tuple(row) for row in table.groupBy("batch").count().orderBy("batch").collect()]
        found[f"{name} log"] = [len(list(Path(plan["folder"], name, "_delta_log").glob("*.json")))]
    return found


def refusal(spark: Any, plan: dict[str, Any], **other: Any) -> str:
    """What is said instead of starting the query."""
    folder = plan["folder"]
    options = {"results": f"{folder}/hits", "archive": f"{folder}/lost", "format": "delta"}
    options |= {"checkpoint": plan["checkpoint"], "trigger": ONCE} | other
    try:
        write_split(joined(spark, plan), **options).awaitTermination()
    except PenstockError as error:
        return str(error)
    return ""


def run(spark: Any, plan: dict[str, Any]) -> None:
    """Run the query, and look at what it left."""
    start(joined(spark, plan), plan["folder"], ONCE).awaitTermination()
    if not plan["check"]:
        return
    figures: dict[str, Any] = {"first": tables(spark, plan)}
    # A crash after both sinks and before Spark's commit: the last batch is run once more.
    commits = Path(plan["checkpoint"], "commits")
    last = max((path for path in commits.iterdir() if path.name.isdigit()), key=lambda path: int(path.name))
    last.unlink()
    commits.joinpath(f".{last.name}.crc").unlink(missing_ok=True)
    query = start(joined(spark, plan), plan["folder"], ONCE)
    query.awaitTermination()
    figures["rerun"] = [each["batchId"] for each in query.recentProgress if each["numInputRows"]]
    figures["second"] = tables(spark, plan)

    left, right = (spark.read.parquet(plan[side]) for side in ("left", "right"))
    folder, join = plan["folder"], {name: plan["join"][name] for name in ("on", "time", "within")}
    recovered = missed(left, right, folder, **join)
    found = spark.read.format("delta").load(f"{folder}/hits").drop("batch")
    names = {name: f"{name}_left" for name in ("ts",)}
    exact = left.withColumnsRenamed(names).join(right.withColumnsRenamed({"ts": "ts_right"}), "k")
    exact = exact.where("abs(unix_micros(ts_left) - unix_micros(ts_right)) <= 120000000").select(
        *found.columns
    )
    whole = found.union(recovered)
    figures["found"], figures["missed"] = found.count(), recovered.count()
    figures["differ"] = whole.exceptAll(exact).count() + exact.exceptAll(whole).count()
    figures["refused"] = [
        refusal(spark, plan, format="parquet"),
        refusal(spark, plan, checkpoint=f"{folder}/another"),
        refusal(spark, plan, results=plan["left"]),
    ]
    Path(plan["folder"], "figures.json").write_text(json.dumps(figures))


if __name__ == "__main__":
    main(run)
