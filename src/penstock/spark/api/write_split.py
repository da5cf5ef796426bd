"""`write_split`: write the results of a join to one sink, and the rows it lost to another."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.streaming.query import StreamingQuery

from penstock.arguments import one_of
from penstock.errors import PenstockError
from penstock.spark.runtime.delta_table import BATCH, DeltaSink, exists, is_delta, read_delta, require_delta
from penstock.spark.runtime.join_bucket import AT, EVENT, RESULT, STREAM
from penstock.spark.runtime.join_schema import ARCHIVED, quoted
from penstock.spark.runtime.packed_output import PackedOutput, packed_output, unpacked

FORMATS = ("parquet", "delta")
Sink = str | os.PathLike[str] | Callable[[DataFrame, int], None]
Target = str | DeltaSink | Callable[[DataFrame, int], None]  # text is a folder of batch=0, batch=1, ...


def write_split(
    stream: DataFrame,
    *,
    results: Sink,
    archive: Sink,
    format: str = "parquet",
    checkpoint: str | os.PathLike[str] | None = None,
    trigger: Mapping[str, Any] | str | None = None,
    query_name: str | None = None,
) -> StreamingQuery:
    """Start a query that writes the results of a join to one sink, and the rows it lost to another.

    A batch that is rerun after a crash leaves one copy: as Parquet, each batch has its own folder, which is
    overwritten; a Delta table skips a batch that it has. Read as a whole, a path has the additional column
    `batch`.

    Parameters
    ----------
    stream
        A streaming `bounded_join(..., emit="all")`.
    results
        A path, or a function of a DataFrame and the batch number. It gets the columns of the join. After a
        crash, a function may be called twice with the same number.
    archive
        The same for the rows that were evicted, dropped or late. `_event` says which of these, `_stream` is
        the side of the row, and `_at` the time at which it happened. See `reconcile`.
    format
        What paths are: `"parquet"` for folders of Parquet files, `"delta"` for tables of Delta Lake, which
        the session must have.
    checkpoint
        The folder for the progress and state of the query.
    trigger
        How often to run: a span such as `"10 seconds"`, or what `DataStreamWriter.trigger` takes, such as
        `{"availableNow": True}`.
    query_name
        Name of the query.

    Examples
    --------
    >>> import tempfile
    >>> from penstock.spark import bounded_join
    >>> from penstock.spark.api.write_split import write_split
    >>> folder = tempfile.mkdtemp()
    >>> for name, ts in ("shown", 0), ("clicked", 3):
    ...     frame = spark.createDataFrame([("a", ts), ("b", ts + 1)], "ad string, ts long")
    ...     frame.coalesce(1).write.parquet(f"{folder}/{name}")
    >>> shown, clicked = (
    ...     spark.readStream.schema("ad string, ts long").parquet(f"{folder}/{name}")
    ...     for name in ("shown", "clicked")
    ... )
    >>> joined = bounded_join(
    ...     shown, clicked, on="ad", time="ts", within=10, budget="3 tuples", policy="fifo", emit="all"
    ... )
    >>> query = write_split(
    ...     joined,
    ...     results=f"{folder}/hits",
    ...     archive=f"{folder}/lost",
    ...     checkpoint=f"{folder}/checkpoint",
    ...     trigger={"availableNow": True},
    ... )
    >>> query.awaitTermination()
    >>> spark.read.parquet(f"{folder}/hits").orderBy("ad").show()
    +---+-------+--------+-----+
    | ad|ts_left|ts_right|batch|
    +---+-------+--------+-----+
    |  a|      0|       3|    0|
    |  b|      1|       4|    0|
    +---+-------+--------+-----+
    <BLANKLINE>
    >>> spark.read.parquet(f"{folder}/lost").select("ad", "ts_left", "_event", "_stream").show()
    +---+-------+-------+-------+
    | ad|ts_left| _event|_stream|
    +---+-------+-------+-------+
    |  a|      0|evicted|   left|
    +---+-------+-------+-------+
    <BLANKLINE>
    """
    _check_stream(stream)
    one_of("format", format, FORMATS)
    given = _sink(results, "results", stream), _sink(archive, "archive", stream)
    if isinstance(given[0], str) and given[0] == given[1]:
        raise PenstockError(f"results and archive are the same path, {given[0]!r}; give two different ones.")
    place = os.fspath(checkpoint) if checkpoint is not None else None
    kept = _kept_checkpoint(stream, place, query_name)
    sinks = _target(given[0], stream, kept, format), _target(given[1], stream, kept, format)
    output = packed_output(stream)
    if output is None:  # something was done to the output of the join
        writer = stream.writeStream.foreachBatch(_splitter(*sinks, _parts_of_rows))
    else:
        writer = output.divided(EVENT).writeStream.foreachBatch(_splitter(*sinks, _parts_of_blobs(output)))
    writer = writer.outputMode("append")
    if place is not None:
        writer = writer.option("checkpointLocation", place)
    if trigger is not None:
        writer = writer.trigger(**({"processingTime": trigger} if isinstance(trigger, str) else trigger))
    if query_name is not None:
        writer = writer.queryName(query_name)
    return writer.start()


Parts = Callable[[DataFrame], tuple[DataFrame, DataFrame]]  # of a batch: results, and rows that were lost


def _parts_of_rows(batch: DataFrame) -> tuple[DataFrame, DataFrame]:
    """The parts of a batch of rows."""
    is_result = F.col(EVENT) == RESULT
    return batch.filter(is_result).select(*result_columns(batch)), batch.filter(~is_result)


def result_columns(joined: DataFrame) -> list[str]:
    """Return the columns of results, quoted: those of a join with emit="all" that are not for the archive."""
    return [quoted(field.name) for field in joined.schema.fields if _of_results(field)]


def _of_results(field: T.StructField) -> bool:
    """Whether results have a column, and not only rows in the archive."""
    return field.name not in (EVENT, STREAM, AT) and not (field.metadata or {}).get(ARCHIVED)


def _parts_of_blobs(output: PackedOutput) -> Parts:
    """Return a function for the parts of a batch of blobs: one has results, or rows that were lost."""
    plain = T.StructType([field for field in output.fields if _of_results(field)])

    fields, fill = output.fields, output.fill  # not the output itself, which has a DataFrame

    def parts(batch: DataFrame) -> tuple[DataFrame, DataFrame]:
        return unpacked(batch, False, plain, fill), unpacked(batch, True, fields, fill)

    return parts


def _splitter(results: Target, archive: Target, parts: Parts) -> Callable[[DataFrame, int], None]:
    """Return a function for `foreachBatch`."""

    def split(batch: DataFrame, number: int) -> None:
        """Write both parts of a batch to their sinks, from one run of the join."""
        batch.persist()
        try:
            if not isinstance(results, str):
                # A function may read only a few rows, and Delta Lake none of a batch that it has. Buckets
                # that no job requests would lose their state, and buckets that several jobs request would
                # count their metrics twice.
                batch.write.format("noop").mode("overwrite").save()
            found, lost = parts(batch)
            _write(found, number, results)
            _write(lost, number, archive)
        finally:
            batch.unpersist()

    return split


def _write(rows: DataFrame, number: int, sink: Target) -> None:
    """Write the rows of a batch to their sink; without rows, an empty file that has the columns."""
    if isinstance(sink, DeltaSink):
        sink.append(rows, number)
    elif callable(sink):
        sink(rows, number)
    else:
        rows.write.mode("overwrite").parquet(f"{sink.rstrip('/')}/{BATCH}={number}")


def _check_stream(stream: Any) -> None:
    """Reject anything but the output of a streaming join with emit="all"."""
    if not hasattr(stream, "isStreaming") or not hasattr(stream, "mapInArrow"):
        raise PenstockError(f"write_split takes a streaming DataFrame, not a {type(stream).__name__}.")
    missing = [name for name in (EVENT, STREAM, AT) if name not in stream.columns]
    if missing:
        raise PenstockError(
            f"write_split takes the output of bounded_join(..., emit='all'); this DataFrame has no column "
            f"{missing[0]!r}. Was emit='all' left out, or the column dropped?"
        )
    if not stream.isStreaming:
        raise PenstockError(
            "write_split takes a streaming DataFrame, but this is a batch one; filter it by "
            f"{EVENT} == {RESULT!r} and write both parts."
        )


def _sink(given: Any, option: str, stream: DataFrame) -> str | Callable[[DataFrame, int], None]:
    """Return a path as text, or a function."""
    if callable(given):
        return given
    if not isinstance(given, str | os.PathLike) or not os.fspath(given):
        raise PenstockError(
            f"{option}={given!r} is not a sink; give a path, or a function of a DataFrame and the number of "
            "the batch."
        )
    clash = [name for name in stream.columns if name.lower() == BATCH]
    if clash:
        raise PenstockError(
            f"The join has a column {clash[0]!r}, but {option} keeps the number of the batch in a column "
            f"{BATCH!r}. Rename the column, or give a function."
        )
    return os.fspath(given)


def _kept_checkpoint(stream: DataFrame, checkpoint: str | None, query_name: str | None) -> str | None:
    """Return the checkpoint from which the query can be restarted, if there is one."""
    if checkpoint is None:
        general = stream.sparkSession.conf.get("spark.sql.streaming.checkpointLocation", None)
        return f"{general}/{query_name}" if general and query_name else None
    return checkpoint


def _target(
    sink: str | Callable[[DataFrame, int], None], stream: DataFrame, checkpoint: str | None, format: str
) -> Target:
    """Return what to write to; reject a path that holds something else."""
    if callable(sink):
        return sink
    spark = stream.sparkSession
    delta = format == "delta"
    if delta:
        require_delta(spark, "format='delta' was given")
    there = is_delta(spark, sink)
    if there and not delta:
        raise PenstockError(f"{sink!r} is a Delta table; give format='delta', or another path.")
    if delta and not there and _columns(spark, sink, False):
        raise PenstockError(
            f"{sink!r} holds Parquet files that are no Delta table; give another path, or format='parquet'."
        )
    _refuse_foreign_batches(spark, sink, checkpoint, there)
    return DeltaSink(sink, checkpoint) if delta else sink


def _columns(spark: Any, path: str, delta: bool) -> list[str]:
    """Return the columns of what is at a path; none if there is nothing."""
    try:  # of two paths, for Spark logs a page of warnings if it reads one that is missing
        return list((read_delta(spark, path) if delta else spark.read.parquet(path, path)).columns)
    except AnalysisException:
        return []


def _refuse_foreign_batches(spark: Any, path: str, checkpoint: str | None, delta: bool) -> None:
    """Reject a new query, which starts at batch 0, on a path with the batches of another query."""
    if checkpoint is not None and exists(spark, f"{checkpoint.rstrip('/')}/metadata"):
        return  # the query continues
    if BATCH in _columns(spark, path, delta):
        would = "add its own to them" if delta else "overwrite them"
        raise PenstockError(
            f"{path!r} holds the batches of another query; a query with a new checkpoint would {would}. "
            "Give another path, or the checkpoint of that query."
        )
