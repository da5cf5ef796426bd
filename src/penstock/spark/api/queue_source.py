"""The streaming source `penstock_queue`: rows of a queue server, exactly once with a checkpoint.

Offsets are row numbers. The server keeps rows until they are confirmed, so a batch can be read again. Spark
confirms a batch when the next one begins.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import pyspark
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructField, StructType

from penstock.errors import QueueError, hint
from penstock.queues.client import QueueClient
from penstock.spark.runtime.session import check_workers

try:
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxRows,
        SupportsTriggerAvailableNow,
    )
except ImportError as error:
    raise QueueError(
        f"Queues as a source of Spark need PySpark 4.2; this is {pyspark.__version__}."
    ) from error

OPTIONS = ("location", "queue", "token", "roots", "maxRowsPerTrigger", "partitions")
FEW = 20_000  # rows; a partition with fewer is not worth a task


@dataclass(frozen=True)
class QueueOptions:
    """The checked options of the source.

    >>> from penstock.spark.api.queue_source import QueueOptions
    >>> QueueOptions.of({"location": "grpc://127.0.0.1:1", "queue": "q", "maxRowsPerTrigger": "10"}).most
    10
    """

    location: str
    queue: str
    token: str | None
    roots: str | None
    most: int | None
    partitions: int

    @classmethod
    def of(cls, given: Any) -> QueueOptions:
        """Parse the options of a reader; names are case-insensitive, as everywhere in Spark."""
        known = {name.lower(): name for name in OPTIONS}
        options = {str(name).lower(): str(value) for name, value in dict(given).items()}
        for name in options:
            if name not in known:
                raise QueueError(f"penstock_queue has no option {name!r}{hint(name, OPTIONS)}")
        for name in ("location", "queue"):
            if not options.get(name):
                raise QueueError(
                    f"penstock_queue needs the option {name!r}; a location is like 'grpc://127.0.0.1:8815'."
                )
        return cls(
            options["location"],
            options["queue"],
            options.get("token"),
            options.get("roots"),
            _whole("maxRowsPerTrigger", options.get("maxrowspertrigger")),
            _whole("partitions", options.get("partitions")) or 2,
        )

    def connect(self) -> QueueClient:
        """Connect to the server."""
        return QueueClient(self.location, self.token, self.roots)


def _whole(name: str, text: str | None) -> int | None:
    if text is None:
        return None
    if not text.strip().isdecimal() or not 1 <= int(text) < 2**63:
        raise QueueError(f"{name} takes a whole number from 1 up; {text!r} was given.")
    return int(text)


@dataclass
class RowRange(InputPartition):
    """A range of rows for one task."""

    first: int
    after: int


def ranges(first: int, after: int, partitions: int) -> list[RowRange]:
    """Divide a range into about equal parts, or fewer if they would be small.

    >>> from penstock.spark.api.queue_source import ranges
    >>> [(part.first, part.after) for part in ranges(0, 100_000, 2)], ranges(5, 5, 2)
    ([(0, 50000), (50000, 100000)], [])
    """
    parts = max(1, min(partitions, (after - first) // FEW))
    edges = [first + (after - first) * part // parts for part in range(parts + 1)]
    return [RowRange(a, b) for a, b in pairwise(edges) if b > a]


class _Reading:
    """Common base of the batch reader and the stream reader."""

    def __init__(self, options: QueueOptions) -> None:
        self.options = options

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Return the rows of a range as record batches."""
        assert isinstance(partition, RowRange)
        with self.options.connect() as client:
            yield from client.read(self.options.queue, partition.first, partition.after)


class QueueReader(_Reading, DataSourceReader):
    """Reads all rows that are unconfirmed at planning time."""

    def partitions(self) -> list[InputPartition]:
        """Return the ranges of the tasks."""
        with self.options.connect() as client:
            first, after = client.offsets(self.options.queue)
        return list(ranges(first, after, self.options.partitions))


class QueueStreamReader(_Reading, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads rows as they arrive, at most `maxRowsPerTrigger` per batch."""

    def __init__(self, options: QueueOptions) -> None:
        super().__init__(options)
        self._goal: int | None = None

    def _offsets(self) -> tuple[int, int]:
        with self.options.connect() as client:
            return client.offsets(self.options.queue)

    def initialOffset(self) -> dict[str, int]:  # noqa: N802
        """Return the first unconfirmed row."""
        return {"row": self._offsets()[0]}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Return `maxRowsPerTrigger`, if given."""
        return ReadAllAvailable() if self.options.most is None else ReadMaxRows(self.options.most)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Fix the end: rows that arrive later belong to another run."""
        self._goal = self._offsets()[1]

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:  # noqa: N802
        """Return the end of the next batch."""
        committed, end = self._offsets()
        first = int(start["row"])
        if first < committed:
            raise QueueError(
                f"The checkpoint is at row {first} of {self.options.queue!r}; rows before {committed} are "
                "confirmed and deleted. A queue has one consumer: has another query read it?"
            )
        if self._goal is not None:
            end = min(end, self._goal)
        if isinstance(limit, ReadMaxRows):
            end = min(end, first + limit.max_rows)
        return {"row": max(end, first)}

    def reportLatestOffset(self) -> dict[str, Any]:  # noqa: N802
        """Return the end of the queue and its name, for monitors."""
        return {"queue": self.options.queue, "row": self._offsets()[1]}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        """Return the ranges of the tasks."""
        return list(ranges(int(start["row"]), int(end["row"]), self.options.partitions))

    def commit(self, end: dict[str, int]) -> None:
        """Confirm the rows before `end`, which are in the checkpoint; the server may delete them.

        They are deleted for every reader: a second query on the queue fails if its checkpoint is behind.
        """
        with self.options.connect() as client:
            client.commit(self.options.queue, int(end["row"]))


class QueueSource(DataSource):
    """The data source `penstock_queue`; `register_queue_source` registers it with a session."""

    @classmethod
    def name(cls) -> str:
        """Return the name for `format`."""
        return "penstock_queue"

    def _checked(self) -> QueueOptions:
        return QueueOptions.of(self.options)

    def schema(self) -> StructType:
        """Return the schema of the queue on the server."""
        from penstock.spark.runtime.arrow_types import spark_type

        options = self._checked()
        with options.connect() as client:
            fields = client.schema(options.queue)
        return StructType([StructField(each.name, spark_type(each.type), each.nullable) for each in fields])

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader for `spark.read`."""
        return QueueReader(self._checked())

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        """Return the reader for `spark.readStream`."""
        return QueueStreamReader(self._checked())


def register_queue_source(session: SparkSession) -> None:
    """Register `format("penstock_queue")` with a session.

    >>> import pyarrow as pa, tempfile
    >>> from penstock.queues import QueueClient, QueueServer
    >>> from penstock.spark import register_queue_source
    >>> register_queue_source(spark)
    >>> with QueueServer(tempfile.mkdtemp()) as server, QueueClient(server.location) as client:
    ...     batch = pa.record_batch({"n": [1, 2, 3]})
    ...     _ = client.producer("numbers", batch.schema).put(batch)
    ...     rows = (
    ...         spark.read.format("penstock_queue")
    ...         .option("location", server.location)
    ...         .option("queue", "numbers")
    ...         .load()
    ...         .collect()
    ...     )
    >>> [row.n for row in rows]
    [1, 2, 3]
    """
    check_workers(session)
    session.dataSource.register(QueueSource)
