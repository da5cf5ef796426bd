"""Two bounded joins in one session: `python -m tests.spark.programs.two_joins plan.json`.

`queries` has a plan like that of `programs/join.py` for each.
"""

from __future__ import annotations

from typing import Any

from penstock.spark import bounded_join
from tests.spark.programs.frame import main, start, stream_of
from tests.spark.programs.join import options_of


def run(spark: Any, plan: dict[str, Any]) -> None:
    """Run both queries at the same time until each has read all files."""
    started = []
    for each in plan["queries"]:
        left, right = (stream_of(spark, each[side]) for side in ("left", "right"))
        started.append(start(bounded_join(left, right, **options_of(each)), each))
    for query in started:
        query.processAllAvailable()
        query.stop()


if __name__ == "__main__":
    main(run)
