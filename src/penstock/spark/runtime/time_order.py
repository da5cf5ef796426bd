"""A bucket that processes rows in order of time: early ones wait until none before them can come."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, NamedTuple, Self

import numpy as np
import pyarrow as pa

from penstock.errors import SnapshotError
from penstock.patterns.snapshot import pack, unpack
from penstock.spark.runtime.arrow_blobs import from_blob, to_blob
from penstock.spark.runtime.operator import Bucket
from penstock.spark.runtime.payload_table import appended


class Released(NamedTuple):
    """Rows that wait no longer, in any order, and how far time has come."""

    rows: pa.Table
    times: np.ndarray
    progress: Any


class TimeOrderedBucket(Bucket):
    """The rows that wait, and how far time has come."""

    def __init__(self, spec: Any) -> None:
        super().__init__(spec)
        self.waiting: pa.Table | None = None
        self.latest: Any = None  # the largest time seen
        self.released: Any = None  # rows up to here have been processed

    def release(self, rows: pa.Table, latest: Any) -> Released | None:
        """Take rows that have a time; return those that are due. Late ones are counted and dropped.

        `latest` is the largest time that other buckets have seen. None: no time is known yet.
        """
        times = self.spec.times(rows)
        if self.released is not None and len(times) and times.min() < self.released:
            fine = times >= self.released
            self.figures.late = int(np.count_nonzero(~fine))
            rows, times = rows.filter(pa.array(fine)), times[fine]
        own = times.max().item() if len(times) else None
        seen = [time for time in (self.latest, latest, own) if time is not None]
        if not seen:
            return None
        self.latest = max(seen)
        progress = self.latest - self.spec.lateness
        progress = progress if self.released is None else max(progress, self.released)
        rows = self.relevant(rows)
        if self.waiting is not None:
            rows, self.waiting = appended(self.waiting, rows), None
        times = self.spec.times(rows)
        due = times <= progress
        if not due.all():
            self.waiting = rows.filter(pa.array(~due)).combine_chunks()
            rows, times = rows.filter(pa.array(due)), times[due]
        self.released = progress
        return Released(rows, times, progress)

    def relevant(self, rows: pa.Table) -> pa.Table:
        """The rows that are worth keeping."""
        return rows

    @abstractmethod
    def dump(self) -> dict[str, Any]:
        """The state of the operator as plain values."""

    @abstractmethod
    def load(self, content: dict[str, Any]) -> None:
        """The inverse of `dump`."""

    def snapshot(self) -> bytes:
        """The state of the operator, and the rows that wait."""
        waiting = None if self.waiting is None else to_blob(self.waiting)
        times = {"waiting": waiting, "latest": self.latest, "released": self.released}
        return pack(self.dump() | times)

    @classmethod
    def restore(cls, spec: Any, data: bytes) -> Self:
        """The inverse of `snapshot`; refuses what is not the state of a bucket."""
        content = unpack(data)
        bucket = cls(spec)
        try:
            bucket.load(content)
            bucket.waiting = None if content["waiting"] is None else from_blob(content["waiting"])
            bucket.latest, bucket.released = content["latest"], content["released"]
        except (KeyError, TypeError, AttributeError, pa.ArrowException) as error:
            raise SnapshotError(f"The state of a bucket cannot be read: {error!r}") from error
        return bucket
