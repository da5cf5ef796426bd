"""The stateful processor of all operators: Spark calls it once per bucket and batch.

At the start of a query Spark starts a Python process on the driver and loads the processor there, only to ask
which state variables it has. Loading Numba, pandas and an operator takes two seconds, so this module imports
nothing but Spark. The spec travels as bytes, and is loaded when the first rows come.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pyspark import cloudpickle
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle
from pyspark.sql.types import BinaryType, IntegerType, StringType, StructField, StructType

if TYPE_CHECKING:
    from penstock.spark.runtime.operator import Spec
    from penstock.spark.runtime.state_log import StateLog

# As types, not as text: for each text a worker would ask the JVM twice, in every batch.
DATA = StructType([StructField("data", BinaryType())])
PART = StructType([StructField("part", IntegerType())])
TOKEN_AND_PART = StructType([StructField("token", StringType()), StructField("part", IntegerType())])


LARGE = 1 << 20  # bytes: after a larger batch, freed memory is given back before the task ends
BATCH = "streaming.sql.batchId"  # under which Spark tells tasks the number of their batch


class BucketProcessor(StatefulProcessor):
    """Runs the buckets of an operator."""

    def __init__(self, spec: Spec, labels: tuple[int, ...]) -> None:
        self._packed: bytes = cloudpickle.dumps(spec)  # type: ignore[no-untyped-call]
        self._labels = labels  # of the buckets
        self._spec: Spec | None = None
        self._running = False  # whether this task has had rows

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Take the state store of this partition from Spark."""
        self.variables = (
            handle.getValueState("head", DATA),
            handle.getMapState("snapshot", PART, DATA),
            handle.getMapState("log", TOKEN_AND_PART, DATA),
        )

    @property
    def spec(self) -> Spec:
        """The spec of the operator, loaded when it is first needed."""
        if self._spec is None:
            self._spec = cloudpickle.loads(self._packed)
        return self._spec

    @property
    def state_log(self) -> StateLog:
        """The state of the bucket whose rows are being processed."""
        from penstock.spark.runtime.state_log import StateLog

        return StateLog(*self.variables, _batch())

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Any]:  # noqa: N802
        """Process the packed rows of one bucket for one batch, or note what the query is."""
        from penstock.spark.runtime.output_blobs import after, to_rows
        from penstock.spark.runtime.output_files import hand_over
        from penstock.spark.runtime.packer import REGISTER, PackedBatch
        from penstock.spark.runtime.worker_memory import give_back, keep_pandas_out

        if not self._running:
            keep_pandas_out()
            self._running = True
        label, state_log, event_time = int(key[0]), self.state_log, self.spec.event_time
        if label == REGISTER:
            state_log.register(self.spec)
            return
        batch = PackedBatch.gather(rows, timerValues.getCurrentWatermarkInMs() if event_time else -1)
        number = self._labels.index(label)
        opened = state_log.open(self.spec.of_bucket(number))
        outputs, figures = list(hand_over(opened.bucket.process(batch))), opened.bucket.figures
        figures.state_read, figures.replayed = opened.read, opened.replayed
        figures.state_written = state_log.commit(opened, batch)
        watermark, large = batch.watermark, batch.nbytes > LARGE
        del batch
        if large:
            give_back()
        figures.note_worker()
        stamp = {event_time: after(watermark)} if event_time else {}
        yield from to_rows(outputs, figures.to_json(number), **stamp)

    def close(self) -> None:
        """Give back the memory that the task has freed; buckets stay in memory for the next batch."""
        if self._running:
            from penstock.spark.runtime.worker_memory import give_back

            give_back()


def _batch() -> tuple[str, int] | None:
    """The query that this task belongs to, and the number of its batch; None if Spark does not say."""
    from pyspark import TaskContext

    context = TaskContext.get()
    if context is None:
        return None
    query, number = (context.getLocalProperty(name) for name in ("sql.streaming.queryId", BATCH))
    return (query, int(number)) if query and number and number.isdigit() else None
