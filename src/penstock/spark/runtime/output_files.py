"""Hand output to the next Python worker of the same task in files, on the local disks that Spark uses.

Through Spark, every blob of results would be copied about eight times: out of one worker, into Spark's
rows and out of them, into the next worker. A file is written once and read once. The reader is in the
same task as the writer, so it runs on the same machine; it deletes the file. What nobody has read because the
task failed is deleted a day later, or by Spark with its local folders.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
import time
from collections.abc import Iterable, Iterator
from itertools import chain, groupby
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

from penstock.spark.runtime.arrow_blobs import to_blob

INLINE = 1 << 16  # bytes: less output than this is passed on as it is
PIECE = 1 << 20  # bytes per record batch, about
PREFIX, SUFFIX = "penstock-", ".arrow"  # of the names of files
SWEEP, LEFTOVER = 3_600, 86_400  # seconds: how often to look for leftovers, and how old they are


class OutputPart(NamedTuple):
    """A part of the output: a blob, or the file that has it."""

    blob: bytes | None
    file: str | None = None


_swept: dict[str, float] = {}  # when a folder was last searched for leftovers


def hand_over(tables: Iterable[pa.Table]) -> Iterator[OutputPart]:
    """Write tables into files; a little output is passed on as blobs.

    >>> import pyarrow as pa
    >>> from penstock.spark.runtime.output_files import hand_over, taken
    >>> large = pa.table({"a": range(100_000)})
    >>> passed = list(hand_over([pa.table({"a": [1]}), large, large]))
    >>> [output.file is None for output in passed]
    [True, False]
    >>> sum(batch.num_rows for batch in taken(passed[1].file))
    200000
    """
    room = INLINE
    for _, same in groupby(tables, key=lambda table: table.schema):
        for table in filter(len, same):
            if table.nbytes > room:
                yield OutputPart(None, _written(chain([table], same)))  # noqa: B031 (and all that follow)
            else:
                room -= table.nbytes
                yield OutputPart(to_blob(table))


def _written(tables: Iterator[pa.Table]) -> str:
    """Write tables of one schema into a file."""
    first = next(tables)
    folder = _folder()
    _remove_leftovers(folder)
    number, path = tempfile.mkstemp(prefix=PREFIX, suffix=SUFFIX, dir=folder)
    os.close(number)
    with pa.OSFile(path, "wb") as sink, pa.ipc.new_stream(sink, first.schema) as writer:
        _write(writer, first)
        del first
        for table in tables:
            _write(writer, table)
    return path


def _write(writer: pa.RecordBatchWriter, table: pa.Table) -> None:
    """Write a table in pieces: whoever reads it holds one of them."""
    pieces = max(1, -(-table.nbytes // PIECE))
    writer.write_table(table, max_chunksize=max(1, -(-table.num_rows // pieces)))


def taken(path: str) -> Iterator[pa.RecordBatch]:
    """Read a file, and delete it."""
    try:
        with pa.OSFile(path, "rb") as source, pa.ipc.open_stream(source) as reader:
            yield from reader
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)


def _remove_leftovers(folder: str) -> None:
    """Remove files of tasks that failed. A task that runs may read its files late, when its sink is slow."""
    now = time.time()
    if now < _swept.get(folder, 0) + SWEEP:
        return
    _swept[folder] = now
    for path in Path(folder).glob(f"{PREFIX}*{SUFFIX}"):
        with contextlib.suppress(OSError):
            if now - path.stat().st_mtime > LEFTOVER:
                path.unlink()


def _folder() -> str:
    """One of the folders that Spark has for such files, or that of the system."""
    folders = os.environ.get("SPARK_LOCAL_DIRS", "").split(",")
    usable = [folder for folder in folders if folder and os.access(folder, os.W_OK | os.X_OK)]
    return usable[os.getpid() % len(usable)] if usable else tempfile.gettempdir()
