"""A session that was made before Penstock was imported, and whose workers lack it; prints what is refused."""

from __future__ import annotations

import sys

from pyspark.sql import SparkSession


def main(source: str) -> None:
    """Join with Penstock from the folder `source`, of which only the driver knows."""
    session = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
    sys.path.insert(0, source)

    from penstock.errors import PenstockError
    from penstock.spark import bounded_join

    frame = session.createDataFrame([(1, 0)], "k int, ts long")
    for _ in range(2):  # what failed is tried anew
        try:
            bounded_join(frame, frame, on="k", time="ts", within=1, budget="9 tuples", policy="fifo")
            print("accepted")
        except PenstockError as error:
            print("refused:", error)
    session.stop()


if __name__ == "__main__":
    main(sys.argv[1])
