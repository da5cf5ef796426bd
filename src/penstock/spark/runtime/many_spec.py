"""The spec of a join of many streams on Spark for workers, without anything that needs Spark."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Self

from penstock.budget import Tuples
from penstock.joins.many_stream import ManyStreamState, start_many
from penstock.policies import Policy
from penstock.spark.runtime.join_spec import Side, Spec, fixed_types, seed_of
from penstock.spark.runtime.packer import CHECK, KEY
from penstock.window import Window


@dataclass(frozen=True)
class ManySpec(Spec):
    """Joins of many streams as every bucket runs them."""

    names: tuple[str, ...]  # of the streams
    parts: tuple[Side, ...]  # the streams
    joins: tuple[tuple[int, ...], ...]  # the streams that take part in each
    on: str  # the joins in words
    within: Window
    budget: Tuples  # the share of one bucket
    policy: Policy
    allocation: str | None
    lateness: tuple[Any, ...]  # per stream, infinite where Spark tells the progress
    seed: int
    buckets: int
    unit: str
    dtype: str
    event_time: str | None
    emit: str = "results"
    key_types: tuple[str, ...] = ()  # in which keys are compared, join by join
    key_words: str = ""  # how, where that has changed since states were first written
    column_types: tuple[tuple[tuple[str, str], ...], ...] = ()

    @property
    def streams(self) -> tuple[str, ...]:
        """The names of the streams."""
        return self.names

    @property
    def sides(self) -> tuple[Side, ...]:
        """The streams."""
        return self.parts

    @property
    def keys(self) -> tuple[str, ...]:
        """The key columns of one join go out once, under the names of its first stream."""
        return self.parts[self.joins[0][0]].key_sources

    @property
    def share(self) -> tuple[int, int]:
        """What a bucket may keep, in rows; a join of many streams has no budget in bytes."""
        return self.budget.n, 0

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
        """A fresh state for one bucket."""
        state = start_many(
            len(self.names),
            self.joins,
            within=self.within,
            budget=self.budget,
            policy=self.policy,
            allocation=self.allocation,
            lateness=self.lateness,
            seed=self.seed,
            unit=self.unit,
            dtype=self.dtype,
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
        } | fixed_types([repr(name) for name in self.names], self.column_types, self.key_types)
