"""A bucket of a join of many streams, and the operator that runs such buckets."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.joins.many_stream import ManyStreamState
from penstock.spark.runtime.join_bucket import CHUNK, Bucket, latest
from penstock.spark.runtime.packer import CHECK
from penstock.spark.runtime.processor import JoinProcessor

JOIN = "_join"  # the column that says which of several joins a result is of


class ManyBucket(Bucket):
    """The state of one bucket of many streams, and the rows it keeps."""

    @staticmethod
    def _restored(data: bytes) -> ManyStreamState:
        return ManyStreamState.restore(data)

    def _take_over(self, old: Any, fresh: Any) -> tuple[np.ndarray, np.ndarray]:
        log, times = fresh.take_over(old)
        return log, times

    def _missed(self) -> None:
        """None: a sketch of pairs cannot estimate how many combinations were lost."""

    def _unestimated(self) -> int:
        return 0

    def _crowded(self) -> bool:
        return False

    def _drop_behind(self, side: int, table: pa.Table) -> None:
        self.figures.behind_watermark += table.num_rows

    @property
    def _sized(self) -> bool:
        return False

    def _keys(self, side: int, table: pa.Table | None) -> np.ndarray:
        most = max(len(self.spec.codes(each)) for each in range(len(self.spec.sides)))
        keys = np.full((0 if table is None else table.num_rows, most), -1, np.int64)
        if table is not None:
            for place, name in enumerate(self.spec.codes(side)):
                keys[:, place] = table[name].fill_null(-1).to_numpy()
        return keys

    def _results(self, out: Any, tables: tuple[Any, ...]) -> Iterator[pa.Table]:
        for join, rows in enumerate(out.rows):
            for start in range(0, len(rows), CHUNK):
                yield self._combined(join, rows[start : start + CHUNK], tables)

    def _combined(self, join: int, rows: np.ndarray, tables: tuple[Any, ...]) -> pa.Table:
        """Results of one join: key columns once if it is the only one, then those of each stream in it."""
        spec = self.spec
        parts = {
            stream: tables[stream].take(pa.array(rows[:, part]))
            for part, stream in enumerate(spec.joins[join])
        }
        checks = [part[f"{CHECK}{join}"] for part in parts.values()]
        same = pc.equal(checks[0], checks[1])
        for other in checks[2:]:
            same = pc.and_(same, pc.equal(checks[0], other))
        if not pc.all(same).as_py():
            parts = {stream: part.filter(same) for stream, part in parts.items()}
        first = parts[spec.joins[join][0]]
        columns = dict(zip(spec.keys, (first[f"k{i}"] for i in range(len(spec.keys))), strict=True))
        for stream, part in parts.items():
            side = spec.sides[stream]
            columns |= dict(zip(side.names, (part[name] for name in side.columns), strict=True))
        if len(spec.joins) > 1:
            columns[JOIN] = pa.repeat(pa.scalar(join, pa.int32()), first.num_rows)
        if spec.event_time is not None:
            times = [part[spec.sides[stream].time] for stream, part in parts.items()]
            columns[spec.event_time] = latest(times, self.watermark)
        return pa.table(columns)


class ManyProcessor(JoinProcessor):
    """Runs the buckets of a `bounded_join_many`."""

    kind: ClassVar[type[Bucket]] = ManyBucket
