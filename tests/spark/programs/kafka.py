"""The query of `examples.kafka_join`, by a JSON file: `python -m tests.spark.programs.kafka plan.json`.

The plan says with `servers` and `topics` what to read and write, with `folder` where checkpoint and archive
are, and with `limit` and `join` the rest of the arguments of `start`.
"""

from __future__ import annotations

from typing import Any

from examples.kafka_join import start
from tests.spark.programs.frame import main
from tests.spark.programs.join import options_of


def run(spark: Any, plan: dict[str, Any]) -> Any:
    """Run the query until it has read all that is in the topics when it starts; the query."""
    places = plan["servers"], plan["folder"]
    options: dict[str, Any] = {"limit": plan["limit"], "trigger": {"availableNow": True}}
    query = start(spark, *places, topics=tuple(plan["topics"]), **options, **options_of(plan))
    query.awaitTermination()
    return query


if __name__ == "__main__":
    main(run)
