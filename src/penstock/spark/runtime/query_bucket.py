"""Run a stream query in one bucket: distribute triples, order them, and process them.

It is driven by the streaming operator and by the batch one alike, and knows of Spark no more than that rows
come as Arrow tables.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.budget import Budget
from penstock.errors import SnapshotError
from penstock.linked.language.parser import parse_query
from penstock.linked.plan.plan import plan_of
from penstock.linked.plan.sharding import partition_variable, role_buckets
from penstock.linked.run.operands import masks_of
from penstock.linked.run.stream import QueryState, StreamOptions
from penstock.linked.terms import Terms
from penstock.linked.triples import triples_of
from penstock.patterns import snapshot
from penstock.spark.runtime.join_bucket import Batch
from penstock.spark.runtime.join_spec import fixed_types
from penstock.spark.runtime.packer import REGISTER, as_exact, from_blob, to_blob
from penstock.spark.runtime.payload_table import appended

LABEL, BUCKET, TASK, PIECE, LATEST, SKIPPED, BLOB = (
    *("label", "_penstock_bucket", "task", "piece", "latest", "skipped", "blob"),
)
START, END, STREAM = "start", "end", "_penstock_stream"
PACKED = f"{LABEL} int, {TASK} int, {PIECE} int, {LATEST} double, {SKIPPED} bigint, {BLOB} binary"
SORTED = (START, STREAM, "s", "p", "o", END)  # the order of processing: what is left of it decides ties
MOST_ROWS = 1 << 17


@dataclass(frozen=True)
class QuerySpec:
    """A query as every bucket runs it."""

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


def _chunked(column: Any) -> pa.ChunkedArray:
    return column if isinstance(column, pa.ChunkedArray) else pa.chunked_array([column])


@dataclass
class Figures:
    """What a bucket did in a batch."""

    triples: int = 0
    late: int = 0  # behind the lateness: dropped
    skipped: int = 0  # without a time or a term
    results: int = 0
    evicted: int = 0
    held: int = 0
    state_read: int = 0  # bytes
    state_written: int = 0
    replayed: int = 0  # batches
    choice: dict[str, Any] | None = None  # which policy runs, where one is followed; not a counter


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


def query_packer(spec: QuerySpec, tags: list[int]) -> Callable[[Any], Iterator[pa.RecordBatch]]:
    """A function for `mapInArrow`: a packed row per bucket and piece, which says how far times have come."""

    def pack(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        task, piece = (context.partitionId() if context is not None else 0), 0
        dealer = _Dealer(spec)
        held: list[pa.RecordBatch] = []
        for batch in batches:
            held.append(batch)
            if sum(each.num_rows for each in held) >= MOST_ROWS:
                yield from pieces(dealer, pa.Table.from_batches(held), task, piece)
                held, piece = [], piece + 1
        if held:
            yield from pieces(dealer, pa.Table.from_batches(held), task, piece)

    def pieces(dealer: _Dealer, table: pa.Table, task: int, piece: int) -> Iterator[pa.RecordBatch]:
        usable = _usable(table, spec)
        skipped = table.num_rows - usable.num_rows
        times = spec.times(usable)
        latest = float(times.max()) if len(times) else float("nan")
        rows, buckets = dealer.deal(usable) if len(times) else (np.empty(0, np.int64), np.empty(0, np.int64))
        if piece == 0:
            yield packed(REGISTER, task, piece, latest, 0, b"")
        for number, tag in enumerate(tags):
            part = usable.take(pa.array(rows[buckets == number]))
            yield packed(tag, task, piece, latest, skipped if number == 0 else 0, to_blob(part))

    def packed(label: int, task: int, piece: int, latest: float, skipped: int, blob: bytes) -> pa.RecordBatch:
        return pa.RecordBatch.from_arrays(
            [
                pa.array([label], pa.int32()),
                pa.array([task], pa.int32()),
                pa.array([piece], pa.int32()),
                pa.array([latest], pa.float64()),
                pa.array([skipped], pa.int64()),
                pa.array([blob], pa.binary()),
            ],
            names=[LABEL, TASK, PIECE, LATEST, SKIPPED, BLOB],
        )

    return pack


class Querier:
    """The state of a bucket, and the triples that wait until none before them can come."""

    def __init__(self, spec: QuerySpec) -> None:
        self.spec = spec
        self.state = spec.start()
        self.waiting: pa.Table | None = None
        self.latest: float | None = None  # the largest time seen
        self.released: float | None = None  # triples up to here have been processed
        self.figures = Figures()
        self._uncounted = 0  # evictions when the bucket adapted, to be told with the next batch

    def process(self, batch: Batch, quiet: bool = False) -> list[pa.Table]:
        """The rows that a batch completes; `quiet` is for a replay, of which they are known."""
        triples = pa.concat_tables([from_blob(blob) for _, blob in batch.blobs])
        self.figures = Figures(triples.num_rows, skipped=batch.skipped, evicted=self._uncounted)
        self._uncounted = 0
        times = self.spec.times(triples)
        if self.released is not None and len(times) and times.min() < self.released:
            fine = times >= self.released
            self.figures.late = int(np.count_nonzero(~fine))
            triples, times = triples.filter(pa.array(fine)), times[fine]
        own = float(times.max()) if len(times) else None
        seen = [time for time in (self.latest, batch.latest, own) if time is not None]
        if not seen:
            return []
        self.latest = max(seen)
        progress = self.latest - self.spec.lateness
        progress = progress if self.released is None else max(progress, self.released)
        if self.waiting is not None:
            triples = appended(self.waiting, triples)
            times, self.waiting = self.spec.times(triples), None
        ready = times <= progress
        if not ready.all():
            self.waiting = triples.filter(pa.array(~ready)).combine_chunks()
            triples = triples.filter(pa.array(ready))
        self.released = progress
        return self.ordered(_in_order(triples, self.spec), quiet)

    def ordered(self, triples: pa.Table, quiet: bool = False) -> list[pa.Table]:
        """Triples that are sorted already."""
        if not triples.num_rows:
            return []
        names = self.state.query.streams
        parts = {}
        for number in np.unique(triples[STREAM].to_numpy()).tolist():
            parts[names[number]] = triples.filter(pc.equal(triples[STREAM], number)).drop_columns([STREAM])
        before = self.state.totals.get("evicted", 0)
        found = self.state.process(parts, collect=not quiet).rows
        self.figures.results += 0 if found is None else found.num_rows
        self.figures.evicted += self.state.totals["evicted"] - before
        self.figures.held = self.state.totals["buffered"]
        self.figures.choice = None if self.state.choice is None else asdict(self.state.choice)
        return [as_texts(found, set(self.state.query.time_variables))] if found else []

    def adapt(self) -> bool:
        """Go on under the spec's budget and policy, where those of the state are others; whether it did."""
        before = self.state.totals.get("evicted", 0)
        adapted = self.state.adapt(self.spec.options)
        self._uncounted += self.state.totals.get("evicted", 0) - before
        return adapted

    def to_bytes(self) -> bytes:
        """The state of the bucket."""
        content = {
            "state": self.state.snapshot(),
            "waiting": None if self.waiting is None else to_blob(self.waiting),
            "latest": self.latest,
            "released": self.released,
        }
        return snapshot.pack(content)

    @classmethod
    def from_bytes(cls, spec: QuerySpec, data: bytes) -> Querier:
        """The counterpart; refuses what is not the state of a bucket."""
        content = snapshot.unpack(data)
        querier = cls(spec)
        try:
            querier.state = QueryState.restore(content["state"])
            querier.waiting = None if content["waiting"] is None else from_blob(content["waiting"])
            querier.latest, querier.released = content["latest"], content["released"]
        except (KeyError, TypeError, AttributeError, pa.ArrowException) as error:
            raise SnapshotError(f"The state of a bucket cannot be read: {error!r}") from error
        return querier


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
