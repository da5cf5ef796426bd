"""Run a stream query in one bucket: distribute triples, order them, and process them.

Which buckets a triple goes to follows from the patterns that it matches, so workers that pack know the query.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column
from pyspark.sql import functions as F

from penstock.budget import Budget
from penstock.linked.language.parser import parse_query
from penstock.linked.plan.plan import plan_of
from penstock.linked.plan.sharding import partition_variable, role_buckets
from penstock.linked.run.operands import masks_of
from penstock.linked.run.stream import QueryState, StreamOptions
from penstock.linked.terms import Terms
from penstock.linked.triples import triples_of
from penstock.spark.runtime.figures import Figures
from penstock.spark.runtime.operator import Spec, fixed_types
from penstock.spark.runtime.output_blobs import FIGURES
from penstock.spark.runtime.packer import (
    BUCKET,
    Divided,
    PackedBatch,
    Packing,
    as_exact,
)
from penstock.spark.runtime.time_order import TimeOrderedBucket

START, END, STREAM = "start", "end", "_penstock_stream"
SORTED = (START, STREAM, "s", "p", "o", END)  # the order of processing: what is left of it decides ties


def _chunked(column: Any) -> pa.ChunkedArray:
    return column if isinstance(column, pa.ChunkedArray) else pa.chunked_array([column])


@dataclass
class QueryFigures(Figures):
    """What a bucket did in a batch."""

    LAST = ("held", "choice")

    triples: int = 0
    late: int = 0  # behind the lateness: dropped
    skipped: int = 0  # without a time or a term
    results: int = 0
    missed: float = 0.0  # estimated number of results that were missed
    unestimated: int = 0  # triples that may have missed more: late ones, or all if nothing is known
    guessed: float = 0.0  # results that these would have if they had as many as the others
    variance: float = 0.0  # of `missed`, which is estimated from a sample of the triples
    evicted: int = 0
    held: int = 0
    choice: dict[str, Any] | None = None  # which policy runs, where one is followed; not a counter

    def metrics(self) -> list[Column]:
        """The sums, and the choices of all buckets."""
        choices = F.collect_list(F.get_json_object(FIGURES, "$.choice")).alias("choices")
        return [*super().metrics(), choices]


class _Dealer:
    """Says to which buckets each triple goes; those that match no pattern go nowhere."""

    def __init__(self, spec: QuerySpec) -> None:
        self.spec, self.query = spec, parse_query(spec.text)
        self.variable = partition_variable(self.query)

    def deal(self, table: pa.Table) -> tuple[np.ndarray, np.ndarray]:
        """Rows and their buckets, a row as often as it has buckets."""
        terms, count = Terms(), table.num_rows
        plain = table.append_column("number", pa.array(np.arange(count)))
        triples = triples_of({"w": plain}, ["w"], terms, unit=self.spec.unit, objects=self.spec.objects)
        mask = masks_of(plan_of(self.query, triples.scale), triples, terms)
        if self.spec.buckets == 1 or self.variable is None:
            rows = triples.row[(mask != 0) | triples.closes]
            return rows, np.zeros(len(rows), np.int64)
        mask = np.where(triples.closes, (1 << len(self.query.patterns)) - 1, mask)
        roles = role_buckets(self.query, self.variable, triples, mask, terms, self.spec.buckets)
        # As one number each: to sort pairs takes ten times as long.
        pairs = np.unique((triples.row * self.spec.buckets + roles)[roles >= 0])
        return np.divmod(pairs, self.spec.buckets)


def _usable(table: pa.Table, spec: QuerySpec) -> pa.Table:
    """The rows that have terms and a time."""
    fine = pa.array(~np.isnan(spec.times(table)))
    for name in "spo":
        fine = pc.and_(fine, pc.is_valid(table[name]))
    return table.filter(fine)


def query_dealer(spec: QuerySpec) -> Callable[[Any], Iterator[pa.RecordBatch]]:
    """A function for `mapInArrow` that gives every row its buckets, for batch DataFrames."""

    def deal(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        dealer = _Dealer(spec)
        for batch in batches:
            table = _usable(pa.Table.from_batches([batch]), spec)
            if table.num_rows:
                rows, buckets = dealer.deal(table)
                dealt = table.take(pa.array(rows)).append_column(BUCKET, pa.array(buckets.astype(np.int32)))
                yield from dealt.combine_chunks().to_batches()

    return deal


@dataclass(frozen=True)
class QueryPacking(Packing):
    """A triple goes to every bucket that may need it; all buckets are told how far times have come."""

    spec: Any = None

    @cached_property
    def _dealer(self) -> _Dealer:
        return _Dealer(self.spec)

    @property
    def to_all(self) -> bool:
        """True."""
        return True

    def divide(self, table: pa.Table) -> Divided:
        """Divide the triples that can be used."""
        usable = _usable(table, self.spec)
        times, skipped = self.spec.times(usable), table.num_rows - usable.num_rows
        if not len(times):
            return Divided([usable] * len(self.labels), skipped)
        rows, buckets = self._dealer.deal(usable)
        parts = [usable.take(pa.array(rows[buckets == number])) for number in range(len(self.labels))]
        return Divided(parts, skipped, float(times.max()))


class QueryBucket(TimeOrderedBucket):
    """The state of a bucket, and the triples that wait until none before them can come."""

    def __init__(self, spec: QuerySpec) -> None:
        super().__init__(spec)
        self.state = spec.start()
        self._uncounted = 0  # evictions when the bucket adapted, to be told with the next batch

    def process(self, batch: PackedBatch, quiet: bool = False) -> list[pa.Table]:
        """The rows that a batch completes; `quiet` is for a replay, of which they are known."""
        triples = batch.table()
        assert triples is not None, "every bucket gets the columns"
        self.figures = QueryFigures(triples.num_rows, skipped=batch.skipped, evicted=self._uncounted)
        self._uncounted = 0
        due = self.release(triples, batch.latest)
        found = [] if due is None else self._found(_in_order(due.rows, self.spec), quiet)
        self.figures.unestimated += self.figures.late
        self.figures.guessed = self.state.guessed(self.figures.late)
        return found

    def process_sorted(self, rows: pa.Table) -> list[pa.Table]:
        """Triples that are sorted already."""
        self.figures = QueryFigures(triples=rows.num_rows)
        return self._found(rows)

    def _found(self, triples: pa.Table, quiet: bool = False) -> list[pa.Table]:
        """The rows that triples in order complete."""
        if not triples.num_rows:
            return []
        names = self.state.query.streams
        parts = {}
        for number in np.unique(triples[STREAM].to_numpy()).tolist():
            parts[names[number]] = triples.filter(pc.equal(triples[STREAM], number)).drop_columns([STREAM])
        before, missed, variance = self.state.totals.get("evicted", 0), self.state.missed, self.state.variance
        found = self.state.process(parts, collect=not quiet).rows
        self.figures.results += 0 if found is None else found.num_rows
        self.figures.evicted += self.state.totals["evicted"] - before
        if self.state.missed is None or missed is None:
            self.figures.unestimated += triples.num_rows
        else:
            self.figures.missed += self.state.missed - missed
            self.figures.variance += self.state.variance - variance
        self.figures.held = self.state.totals["buffered"]
        self.figures.choice = None if self.state.choice is None else asdict(self.state.choice)
        return [as_texts(found, set(self.state.query.time_variables))] if found else []

    def adapt(self) -> bool:
        """Go on under the spec's budget and policy, where those of the state are others; whether it did."""
        before = self.state.totals.get("evicted", 0)
        adapted = self.state.adapt(self.spec.options)
        self._uncounted += self.state.totals.get("evicted", 0) - before
        return adapted

    def dump(self) -> dict[str, Any]:
        """The caches of the query."""
        return {"state": self.state.snapshot()}

    def load(self, content: dict[str, Any]) -> None:
        """The inverse of `dump`."""
        self.state = QueryState.restore(content["state"])


@dataclass(frozen=True)
class QuerySpec(Spec):
    """A query as every bucket runs it."""

    kind = QueryBucket

    text: str
    budget: Budget  # of one bucket
    policy: Any
    objects: str
    unit: str
    stamps: bool
    lateness: float
    buckets: int
    bucket: int = 0  # which of them
    column_types: tuple[tuple[str, str], ...] = ()

    def start(self) -> QueryState:
        """A fresh state."""
        return QueryState(self.options)

    @property
    def options(self) -> StreamOptions:
        """The options of the operator."""
        return StreamOptions(
            text=self.text,
            budget=self.budget,
            policy=self.policy,
            objects=self.objects,
            unit=self.unit,
            shard=(self.bucket, self.buckets),
        )

    def fixed(self) -> dict[str, str]:
        """What may not change when a query is restarted from its checkpoint, in words."""
        return {
            "the query": self.text,
            "the times": str((self.unit, self.stamps)),
            "the number of buckets": str(self.buckets),
        } | fixed_types(["triple"], [self.column_types])

    def times(self, table: pa.Table) -> np.ndarray:
        """The starts, or the ends of rows that close a fact, as numbers; NaN where there is neither, or where
        one of the two cannot be used.
        """
        given = [_chunked(table[name]) for name in (START, END)]
        numbers = [as_exact(each) for each in given]
        times = pc.coalesce(*numbers).to_numpy(zero_copy_only=False)
        for raw, number in zip(given, numbers, strict=True):
            if number.null_count == raw.null_count:
                continue
            missing = pc.is_null(raw, nan_is_null=True)
            unusable = pc.and_(pc.is_null(number), pc.invert(missing)).to_numpy()
            times = np.where(unusable, np.nan, times)
        return times

    def of_bucket(self, number: int) -> Self:
        """The same for one bucket, with its share of the values."""
        return replace(self, bucket=number)

    def figures(self) -> QueryFigures:
        """The figures of a bucket."""
        return QueryFigures()

    def packings(self, labels: tuple[int, ...]) -> list[Packing]:
        """One: all streams come as one input."""
        return [QueryPacking(labels, spec=self)]


def _in_order(triples: pa.Table, spec: QuerySpec) -> pa.Table:
    """Triples in the order of processing; rows that close a fact stand at their end."""
    if triples.num_rows < 2:
        return triples
    stood = triples.append_column("_time", pa.array(spec.times(triples)))
    ordered = stood.sort_by([("_time", "ascending"), *((name, "ascending") for name in SORTED[1:])])
    return ordered.drop_columns(["_time"])


def as_texts(table: pa.Table, times: set[str]) -> pa.Table:
    """Rows with all but times as texts."""
    columns = {}
    for name in table.column_names:
        column = table[name]
        if name not in times and not pa.types.is_string(column.type):
            column = pa.chunked_array([pa.array([_text(value) for value in column.to_pylist()], pa.string())])
        columns[name] = column
    return pa.table(columns)


def _text(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    return value.isoformat() if hasattr(value, "isoformat") else str(value)
