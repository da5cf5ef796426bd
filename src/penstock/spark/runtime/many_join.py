"""A join of many streams on Spark: its spec, and the bucket that runs it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.budget import Bytes, Tuples
from penstock.joins.many_output import ManyOutput
from penstock.joins.many_stream import ManyStreamState, start_many
from penstock.policies import Policy
from penstock.spark.runtime.join_bucket import CHUNK, JoinBucket, latest
from penstock.spark.runtime.join_spec import LEFT_OVER, JoinSide, StreamsSpec
from penstock.spark.runtime.operator import fixed_types, seed_of
from penstock.spark.runtime.outer_bucket import OuterBucket
from penstock.spark.runtime.packer import CHECK, KEY, TIME

FIRST = 0  # the stream whose rows are kept in a left join
JOIN = "_join"  # the column that says which of several joins a result is of


class ManyBucket(JoinBucket):
    """The state of one bucket of many streams, and the rows it keeps."""

    @staticmethod
    def _restored(data: bytes) -> ManyStreamState:
        return ManyStreamState.restore(data)

    def _crowded(self) -> bool:
        return False

    def _drop_behind(self, side: int, table: pa.Table) -> None:
        self.figures.behind_watermark += table.num_rows
        stream = np.full(table.num_rows, side)
        self.state.miss(stream, self._keys(side, table), table[TIME].to_numpy())

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
            for part, stream in enumerate(spec.results[join])
        }
        same = pa.repeat(True, len(rows))
        for number in range(len(spec.joins)) if spec.chain else (join,):
            first, *others = (parts[stream][f"{CHECK}{number}"] for stream in spec.joins[number])
            for other in others:
                same = pc.and_(same, pc.equal(first, other))
        if not pc.all(same).as_py():
            parts = {stream: part.filter(same) for stream, part in parts.items()}
        leader = parts[spec.results[join][0]]
        columns = dict(zip(spec.keys, (leader[f"k{i}"] for i in range(len(spec.keys))), strict=True))
        for stream, part in parts.items():
            side = spec.sides[stream]
            columns |= dict(zip(side.names, (part[name] for name in side.columns), strict=True))
        if len(spec.results) > 1:
            columns[JOIN] = pa.repeat(pa.scalar(join, pa.int32()), leader.num_rows)
        if spec.event_time is not None:
            times = [part[spec.sides[stream].time] for stream, part in parts.items()]
            columns[spec.event_time] = latest(times, self.watermark)
        return pa.table(columns)


class ManyLeftBucket(OuterBucket, ManyBucket):
    """A bucket whose rows of the first stream may come out alone."""

    def _both(self, out: ManyOutput, rest: ManyOutput) -> ManyOutput:
        return ManyOutput(
            np.concatenate([out.counts, rest.counts]),
            tuple(np.concatenate(both) for both in zip(out.rows, rest.rows, strict=True)),
            np.concatenate([out.log, rest.log]),
            np.concatenate([out.unmatched, rest.unmatched]),
        )

    def _results(self, out: ManyOutput, tables: tuple[Any, ...]) -> Iterator[pa.Table]:
        (rows,) = out.rows
        whole = ManyOutput(out.counts, (rows[(rows >= 0).all(axis=1)],), out.log)
        yield from ManyBucket._results(self, whole, tables)
        for start in range(0, len(out.unmatched), CHUNK):
            yield self._single(FIRST, tables[FIRST].take(pa.array(out.unmatched[start : start + CHUNK])))

    def _single(self, side: int, rows: pa.Table) -> pa.Table:
        spec, mine = self.spec, self.spec.sides[side]
        columns = dict(zip(spec.keys, (rows[key] for key in mine.keys), strict=True))
        columns |= dict(zip(mine.names, (rows[name] for name in mine.columns), strict=True))
        if spec.event_time is not None:
            columns[spec.event_time] = latest([rows[mine.time]], self.watermark)
        return pa.table(columns)


@dataclass(frozen=True)
class ManySpec(StreamsSpec):
    """Joins of many streams as every bucket runs them."""

    names: tuple[str, ...]  # of the streams
    parts: tuple[JoinSide, ...]  # the streams
    joins: tuple[tuple[int, ...], ...]  # the streams that take part in each; or the links of a chain
    on: str  # the joins in words
    within: Any
    budget: Tuples | Bytes  # the share of one bucket
    policy: Policy
    allocation: str | None
    lateness: tuple[Any, ...]  # per stream, infinite where Spark tells the progress
    seed: int
    buckets: int
    unit: str
    dtype: str
    event_time: str | None
    emit: str = "results"
    sample_bytes: int | None = None  # of one bucket, for the estimate of recall
    key_types: tuple[str, ...] = ()  # in which keys are compared, join by join
    key_words: str = ""  # how, where that has changed since states were first written
    column_types: tuple[tuple[tuple[str, str], ...], ...] = ()
    chain: bool = False
    drop_rate: float = 0.0
    how: str = "inner"

    @property
    def kind(self) -> type[ManyBucket]:  # type: ignore[override]
        """What runs them."""
        return ManyLeftBucket if self.decides else ManyBucket

    @property
    def decides(self) -> bool:
        """Whether rows of the first stream without a result come out."""
        return self.how == "left"

    def preserves(self, side: int) -> bool:
        """Whether rows of a stream without a result come out."""
        return self.decides and side == FIRST

    @property
    def results(self) -> tuple[tuple[int, ...], ...]:
        """The streams of the results of each join."""
        return (tuple(range(len(self.names))),) if self.chain else self.joins

    @property
    def streams(self) -> tuple[str, ...]:
        """The names of the streams."""
        return self.names

    @property
    def sides(self) -> tuple[JoinSide, ...]:
        """The streams."""
        return self.parts

    @property
    def keys(self) -> tuple[str, ...]:
        """The key columns of one join go out once, under the names of its first stream."""
        return self.parts[self.joins[0][0]].key_sources

    @property
    def share(self) -> tuple[int, int]:
        """What a bucket may keep, in rows or in bytes."""
        return (0, self.budget.n) if isinstance(self.budget, Bytes) else (self.budget.n, 0)

    @property
    def most_bytes(self) -> float:
        """What a bucket may take, rows that have left and wait to be forgotten included."""
        return self.budget.n if isinstance(self.budget, Bytes) else math.inf

    def joins_of(self, side: int) -> tuple[int, ...]:
        """The joins that a stream takes part in."""
        return tuple(j for j, members in enumerate(self.joins) if side in members)

    def codes(self, side: int) -> tuple[str, ...]:
        """The hidden columns with the numbers of the keys, one per join of the stream."""
        return tuple(f"{KEY}{join}" for join in self.joins_of(side))

    def checks(self, side: int) -> tuple[str, ...]:
        """The hidden columns with their second hashes."""
        return tuple(f"{CHECK}{join}" for join in self.joins_of(side))

    @property
    def mask(self) -> int:
        """What a hash is cut to so that it is a code: the state tells joins and participants by the rest."""
        parts = len(self.joins) * max(len(members) for members in self.joins)
        return int((1 << (63 - parts.bit_length())) - 1)

    def of_bucket(self, number: int) -> Self:
        """The same with the seed of one bucket: each draws numbers of its own."""
        return replace(self, seed=seed_of(self.seed, number))

    def start(self) -> ManyStreamState:
        """A fresh state for one bucket; of a budget in bytes it leaves some for rows that have left."""
        budget = self.budget
        if isinstance(budget, Bytes):
            budget = Bytes(budget.n - budget.n // LEFT_OVER)
        state = start_many(
            len(self.names),
            self.joins,
            within=self.within,
            budget=budget,
            policy=self.policy,
            allocation=self.allocation,
            lateness=self.lateness,
            seed=self.seed,
            unit=self.unit,
            dtype=self.dtype,
            sample_bytes=self.sample_bytes,
            chain=self.chain,
            drop_rate=self.drop_rate,
            how=self.how,
        )
        state.unit_watch = state.late_watch = None  # the driver warns, not every worker
        return state

    def fixed(self) -> dict[str, str]:
        """What may not change when a query is restarted from its checkpoint, in words."""
        return {
            "the number of buckets": str(self.buckets),
            "the streams": str(self.names),
            "the joins": self.on + self.key_words,
            "the time": str(([part.time_source for part in self.parts], self.unit, self.dtype)),
            "the window": str(self.within),
            "the columns": str([part.sources for part in self.parts]),
            **({"the kind of join": self.how} if self.decides else {}),
            **({"emit": self.emit} if self.emit != "results" else {}),
        } | fixed_types([repr(name) for name in self.names], self.column_types, self.key_types)
