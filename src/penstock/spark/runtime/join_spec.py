"""The spec of a join on Spark for workers, without anything that needs Spark."""

from __future__ import annotations

import dataclasses
import math
from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from penstock.budget import Bytes, Tuples
from penstock.joins.conditions.parser import condition_columns
from penstock.joins.stream import StreamState
from penstock.joins.window import WindowJoin, check_rates
from penstock.spark.runtime.figures import SIDES, JoinFigures
from penstock.spark.runtime.join_bucket import EVENT, RESULT, JoinBucket
from penstock.spark.runtime.operator import Spec, fixed_types, seed_of
from penstock.spark.runtime.outer_bucket import OuterBucket
from penstock.spark.runtime.packer import CHECK, KEY, ArrivalPacking, Packing

LEFT_OVER = 16  # one part in so many of a byte budget is for rows that have left


@dataclass(frozen=True)
class JoinSide:
    """One stream: its columns as they come in, and what becomes of them."""

    sources: tuple[str, ...]  # the columns besides the keys as they come in
    names: tuple[str, ...]  # the same as they go out
    key_sources: tuple[str, ...]
    time_source: str
    watermark: bool  # its progress is told by Spark

    @property
    def columns(self) -> tuple[str, ...]:
        """Names for the sources on their way, for a user's names may have any character."""
        return tuple(f"c{i}" for i in range(len(self.sources)))

    @property
    def keys(self) -> tuple[str, ...]:
        """Names for the key columns on their way."""
        return tuple(f"k{i}" for i in range(len(self.key_sources)))

    @property
    def time(self) -> str:
        """The name of the time on its way."""
        if self.time_source in self.sources:
            return self.columns[self.sources.index(self.time_source)]
        return self.keys[self.key_sources.index(self.time_source)]


class StreamsSpec(Spec):
    """What joins of two and of many streams have in common."""

    kind = JoinBucket
    unit: str  # of the times
    dtype: str  # of the times: "int64" or "float64"
    emit: str

    @property
    def weighs(self) -> bool:
        """Whether results have weights."""
        return False

    @property
    @abstractmethod
    def streams(self) -> tuple[str, ...]:
        """The names of the streams."""

    @property
    @abstractmethod
    def sides(self) -> tuple[JoinSide, ...]:
        """The streams themselves."""

    @property
    @abstractmethod
    def keys(self) -> tuple[str, ...]:
        """The names of the key columns in the output."""

    @property
    def most_bytes(self) -> float:
        """What a bucket may take, rows that have left and wait to be forgotten included."""
        return math.inf

    @property
    @abstractmethod
    def share(self) -> tuple[int, int]:
        """What a bucket may keep: rows if the budget counts them, and bytes if it counts those; else 0."""

    @abstractmethod
    def codes(self, side: int) -> tuple[str, ...]:
        """The hidden columns of a stream with the numbers by which its keys are known."""

    @abstractmethod
    def checks(self, side: int) -> tuple[str, ...]:
        """The hidden columns with second numbers that must agree too, where keys are known by a hash."""

    def preserves(self, side: int) -> bool:
        """Whether rows of a stream without a result come out."""
        return False

    @abstractmethod
    def start(self) -> Any:
        """A fresh state for one bucket."""

    def asked(self, side: int) -> dict[str, str]:
        """The columns of a stream that a condition names, by their names on the way."""
        return {}

    @property
    def conditional(self) -> bool:
        """Whether there is a condition beyond the keys."""
        return False

    def figures(self) -> JoinFigures:
        """The figures of a bucket, those of each stream by its name."""
        return JoinFigures.of(self.streams)

    @property
    def fill(self) -> dict[str, Any]:
        """With `emit="all"` rows say what they are; results say nothing themselves."""
        return {EVENT: RESULT} if self.emit == "all" else {}

    @property
    def decides(self) -> bool:
        """Whether it counts of rows that they have no result."""
        return False

    def packings(self, labels: tuple[int, ...]) -> list[Packing]:
        """One per stream. Rows without a key come out of a preserved side; time moves on for all buckets."""
        return [
            ArrivalPacking(
                labels, side, each.time, self.dtype, self.codes(side), self.preserves(side), self.decides
            )
            for side, each in enumerate(self.sides)
        ]


@dataclass(frozen=True)
class JoinSpec(StreamsSpec):
    """A bounded join as every bucket runs it."""

    join: WindowJoin  # with the share of one bucket as its budget
    left: JoinSide
    right: JoinSide
    buckets: int
    unit: str  # of the times
    dtype: str  # of the times: "int64" or "float64"
    hashed: bool  # keys are known by a hash, so that a second one must agree
    lateness: Any  # per stream, infinite where Spark tells the progress
    rates: tuple[float, float] | None  # of the whole streams; a bucket has its share, as of the budget
    row_bytes: float
    sketch_bytes: int
    emit: str
    event_time: str | None  # the column of the later of the two times, if there are watermarks
    key_types: tuple[str, ...] = ()  # in which keys are compared
    key_words: str = ""  # how, where that has changed since states were first written
    column_types: tuple[tuple[tuple[str, str], ...], ...] = ()
    number: int = 0  # of the bucket
    where_types: Any = None  # per stream the columns that a condition may name, with their Arrow types

    @property
    def conditional(self) -> bool:
        """Whether there is a condition beyond the keys."""
        return self.join.where is not None

    def asked(self, side: int) -> dict[str, str]:
        """The columns of a stream that the condition names, by their names on the way."""
        mine = self.sides[side]
        found: dict[str, str] = {}
        for name in [] if self.join.where is None else condition_columns(self.join.where, side):
            known = name in mine.sources
            found[name] = mine.columns[mine.sources.index(name)] if known else f"w{len(found)}"
        return found

    @property
    def weighs(self) -> bool:
        """Whether results have weights."""
        return self.join.policy.weighs_results

    @property
    def kind(self) -> type[JoinBucket]:  # type: ignore[override]
        """What runs it."""
        return JoinBucket if self.join.kind.plain else OuterBucket

    @property
    def streams(self) -> tuple[str, ...]:
        """Left and right."""
        return SIDES

    @property
    def decides(self) -> bool:
        """Whether a row may have no partner, and that counts."""
        return any(self.join.kind.tracked)

    def preserves(self, side: int) -> bool:
        """Whether rows of a stream without a partner come out."""
        return self.join.kind.preserved[side]

    @property
    def sides(self) -> tuple[JoinSide, JoinSide]:
        """Both streams."""
        return self.left, self.right

    def codes(self, side: int) -> tuple[str, ...]:
        """The hidden column with the number by which a key is known."""
        return (KEY,)

    def checks(self, side: int) -> tuple[str, ...]:
        """The hidden column with a second hash of the key, if it is known by one."""
        return (CHECK,) if self.hashed else ()

    @property
    def keys(self) -> tuple[str, ...]:
        """The names of the key columns in the output."""
        return self.left.key_sources

    @property
    def most_bytes(self) -> float:
        """What a bucket may take, rows that have left and wait to be forgotten included."""
        return self.join.budget.n if isinstance(self.join.budget, Bytes) else math.inf

    @property
    def share(self) -> tuple[int, int]:
        """What a bucket may keep, in rows or in bytes."""
        budget = self.join.budget
        return (budget.n if isinstance(budget, Tuples) else 0, budget.n if isinstance(budget, Bytes) else 0)

    def of_bucket(self, number: int) -> Self:
        """The same with the seed of one bucket: each draws numbers of its own."""
        return dataclasses.replace(
            self, join=dataclasses.replace(self.join, seed=seed_of(self.join.seed, number)), number=number
        )

    def start(self) -> StreamState:
        """A fresh state for one bucket; of a budget in bytes it leaves some for rows that have left."""
        join = self.join
        if isinstance(join.budget, Bytes):
            join = dataclasses.replace(join, budget=Bytes(join.budget.n - join.budget.n // LEFT_OVER))
        state = join.new_state(
            unit=self.unit,
            dtype=np.dtype(self.dtype),
            rates=None if self.rates is None else _shares_of(self.rates, self.buckets),
            row_bytes=self.row_bytes,
            lateness=self.lateness,
            sketch_bytes=self.sketch_bytes,
            numeric=not self.hashed,
            columns=None if self.where_types is None else tuple(map(dict, self.where_types)),
        )
        assert isinstance(state, StreamState)
        state.warns = False
        return state

    def fixed(self) -> dict[str, str]:
        """What may not change when a query is restarted from its checkpoint, in words."""
        return {
            "the number of buckets": str(self.buckets),
            "the key": str((self.left.key_sources, self.right.key_sources)) + self.key_words,
            "the time": str((self.left.time_source, self.right.time_source, self.unit, self.dtype)),
            "the window": str(self.join.within),
            "the columns": str((self.left.sources, self.right.sources)),
            "emit": self.emit,
            **({} if self.join.where is None else {"the condition": self.join.where}),
            **({} if self.join.kind.plain else {"the kind of join": f"{self.join.how}, {self.join.matches}"}),
        } | fixed_types(SIDES, self.column_types, self.key_types)


def _shares_of(rates: tuple[float, float], buckets: int) -> tuple[float, float]:
    """The rates that one bucket sees."""
    check_rates(rates)
    left, right = rates
    return left / buckets, right / buckets
