"""Tables of Delta Lake: told from folders of Parquet, and appended to once per batch of a query."""

from __future__ import annotations

import json
import uuid
from typing import Any

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from penstock.errors import PenstockError

BATCH = "batch"  # the column that says which batch wrote a row
SETTINGS = (
    "start it with --packages io.delta:delta-spark_2.13:..., "
    "spark.sql.extensions=io.delta.sql.DeltaSparkSessionExtension and "
    "spark.sql.catalog.spark_catalog=org.apache.spark.sql.delta.catalog.DeltaCatalog"
)


def exists(spark: Any, path: str) -> bool:
    """Whether there is a file or a folder at a path, on whatever file system."""
    try:  # Spark logs a page of warnings if it reads one missing path, but not if it reads two
        spark.read.text([path, path]).columns  # noqa: B018 (a remote session looks only now)
    except AnalysisException:
        return False
    return True


def is_delta(spark: Any, path: str) -> bool:
    """Whether a path holds a Delta table. Read as Parquet, it would show deleted rows, too."""
    return exists(spark, f"{path.rstrip('/')}/_delta_log")


def read_delta(spark: Any, path: str) -> DataFrame:
    """Return a Delta table."""
    require_delta(spark, f"{path!r} is a Delta table")
    return spark.read.format("delta").load(path)


def require_delta(spark: Any, why: str) -> None:
    """Reject a session that has no Delta Lake."""
    try:
        spark.read.format("delta").load(f"/{uuid.uuid4()}").columns  # noqa: B018 (as above)
    except AnalysisException as error:
        if error.getCondition() == "DATA_SOURCE_NOT_FOUND" or "WITH_EXTENSION_AND_CATALOG" in str(error):
            raise PenstockError(f"{why}, but this session has no Delta Lake; {SETTINGS}.") from None


class DeltaSink:
    """A Delta table that takes each batch of a query once, even if the batch is rerun after a crash.

    Delta Lake stores the number of the batch with its rows, in one transaction, and skips what it has. The
    query is told from others by its id, which is in its checkpoint; one without a checkpoint cannot be rerun.
    """

    def __init__(self, path: str, checkpoint: str | None) -> None:
        self.path = path
        self._checkpoint = checkpoint
        self._query: str | None = None  # not kept beyond a start, for a checkpoint may be deleted

    def append(self, rows: DataFrame, number: int) -> None:
        """Append the rows of a batch, unless they are there."""
        if self._query is None:
            self._query = self._query_id(rows.sparkSession)
        numbered = rows.withColumn(BATCH, F.lit(number).cast("long"))
        once = numbered.write.format("delta").mode("append").option("txnAppId", f"penstock-{self._query}")
        once.option("txnVersion", number).save(self.path)

    def _query_id(self, spark: Any) -> str:
        """Return the id that a query keeps across restarts."""
        if self._checkpoint is None:
            return str(uuid.uuid4())
        (line,) = spark.read.text(f"{self._checkpoint.rstrip('/')}/metadata").collect()
        return str(json.loads(line[0])["id"])
