"""What one batch did in one bucket, as numbers that add up, and how Spark passes their sums to listeners.

At the end of a batch each bucket adds a row with its figures to its output blobs. `observed` adds these rows
up, removes them and unpacks the blobs, so that nobody downstream sees either.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, ClassVar

from pyspark.sql import Column, DataFrame, Observation
from pyspark.sql import functions as F
from pyspark.sql import types as T

from penstock.spark.monitor.progress import is_lookup
from penstock.spark.runtime.output_blobs import FIGURES, FILE, ROWS
from penstock.spark.runtime.packed_output import PackedOutput
from penstock.spark.runtime.worker_memory import recent_private_bytes, worker_number

if TYPE_CHECKING:
    from penstock.spark.runtime.operator import Spec

SIDES = ("left", "right")
JOIN_METRIC = "join"  # the one observed metric of a join: a row with the sums, and the buckets one by one
QUERY_METRIC = "triples"  # which only a stream query counts
PER_STREAM = ("arrived", "evicted", "buffered")
MOST = ("peak_bytes", "budget_rows", "budget_bytes")


@dataclass
class Figures:
    """What all operators count; each adds fields of its own."""

    LAST: ClassVar[tuple[str, ...]] = ()  # of several batches the last value counts
    MOST: ClassVar[tuple[str, ...]] = ()  # the maximum counts; all others are added up

    state_written: int = field(default=0, kw_only=True)  # bytes
    state_read: int = field(default=0, kw_only=True)
    replayed: int = field(default=0, kw_only=True)  # batches

    def flat(self) -> dict[str, Any]:
        """Return all figures by name."""
        return {each.name: getattr(self, each.name) for each in fields(self)}

    def note_worker(self) -> None:
        """Note which worker the bucket is in, and how much memory that has."""

    def to_json(self, bucket: int) -> str:
        """The figures of a bucket as text, for a row of their own."""
        return json.dumps({"bucket": bucket, **self.flat()})

    def add(self, later: Figures) -> None:
        """Add the figures of a later batch of the same bucket."""
        for each in fields(self):
            mine, other = getattr(self, each.name), getattr(later, each.name)
            if each.name in self.LAST:
                setattr(self, each.name, other)
            elif each.name in self.MOST:
                setattr(self, each.name, max(mine, other))
            elif isinstance(other, dict):
                setattr(self, each.name, {name: mine.get(name, 0) + count for name, count in other.items()})
            else:
                setattr(self, each.name, None if mine is None or other is None else mine + other)

    def metrics(self) -> list[Column]:
        """What Spark observes: the sum of each figure over all buckets."""
        return [
            F.coalesce(F.sum(F.get_json_object(FIGURES, f"$.{name}").cast(kind)), F.lit(0)).alias(name)
            for name, kind in _kinds(self).items()
        ]


def _zeros() -> dict[str, int]:
    return dict.fromkeys(SIDES, 0)


@dataclass
class JoinFigures(Figures):
    """Metrics of one batch in one bucket; some are per stream, such as `evicted_left` in flat form.

    >>> from penstock.spark.runtime.figures import JoinFigures
    >>> figures = JoinFigures.of(("seen", "bought"), results=3)
    >>> figures.evicted["seen"] += 2
    >>> figures.evicted_seen, figures.flat()["evicted_bought"]
    (2, 0)
    """

    LAST = ("buffered", "worker", "worker_bytes")
    MOST = MOST

    arrived: dict[str, int] = field(default_factory=_zeros)
    results: int = 0
    missed: float | None = 0.0  # estimated number of results that were missed; None: unknown
    unestimated: int = 0  # rows that may have missed more, because they were too late for the estimate
    guessed: float = 0.0  # results that those rows would have if their keys were as frequent as lately
    variance: float = 0.0  # of `missed`, where it is estimated from a sample of the keys
    evicted: dict[str, int] = field(default_factory=_zeros)
    expired: int = 0
    dropped: int = 0
    released: int = 0  # rows whose first match was their last
    unmatched: int = 0  # rows that came out without a partner
    undecided: int = 0  # rows of which it is not known whether they have one
    crowded: int = 0  # buckets whose arrivals exceed the rates that `drop_rate="unbiased"` assumes
    late: int = 0  # rows behind the progress of their stream
    skipped: int = 0  # rows without a key or a time
    behind_watermark: int = 0  # late rows that a watermark drops
    buffered: dict[str, int] = field(default_factory=_zeros)
    peak_bytes: int = 0
    budget_rows: int = 0  # the budget, in rows or in bytes; 0 if it is given in the other
    budget_bytes: int = 0
    worker: int = 0  # the number of the Python worker that has the bucket
    worker_bytes: int | None = 0  # memory that this worker has to itself; None: unknown

    def note_worker(self) -> None:
        """Note which worker the bucket is in, and how much memory that has."""
        self.worker, self.worker_bytes = worker_number(), recent_private_bytes()

    @classmethod
    def of(cls, streams: Iterable[str], **figures: Any) -> JoinFigures:
        """Return metrics of these streams; those not given are 0."""
        streams = list(streams)
        return cls(**{name: dict.fromkeys(streams, 0) for name in PER_STREAM} | figures)

    @classmethod
    def from_flat(cls, flat: Mapping[str, Any]) -> JoinFigures:
        """The inverse of `flat`; missing metrics are 0."""
        streams = streams_of(flat)
        given: dict[str, Any] = {
            name: {stream: flat.get(f"{name}_{stream}") or 0 for stream in streams} for name in PER_STREAM
        }
        plain = [each.name for each in fields(cls) if each.name not in PER_STREAM]
        given |= {name: flat[name] for name in plain if flat.get(name) is not None}
        return cls(**given | ({"missed": None} if flat.get("missed", 0.0) is None else {}))

    def __getattr__(self, name: str) -> int:
        """Return a metric of one stream by its flat name."""
        figure, _, stream = name.partition("_")
        if figure in PER_STREAM and stream in vars(self).get(figure, {}):
            return int(vars(self)[figure][stream])
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def flat(self) -> dict[str, Any]:
        """Return all metrics by name, each a number."""
        told: dict[str, Any] = {}
        for each in fields(self):
            value = getattr(self, each.name)
            if each.name in PER_STREAM:
                told |= {f"{each.name}_{stream}": number for stream, number in value.items()}
            else:
                told[each.name] = value
        return told

    def metrics(self) -> list[Column]:
        """What Spark observes: one row with the sums, and the buckets one by one."""
        kinds = _kinds(self)
        schema = "bucket bigint, " + ", ".join(
            f"`{name.replace('`', '``')}` {k}" for name, k in kinds.items()
        )
        buckets = F.transform(F.collect_list(F.col(FIGURES)), lambda text: F.from_json(text, schema))

        def summed(each: Column) -> Column:
            sums = [
                F.aggregate(each, F.lit(0).cast(kind), _adding(name)).alias(name)
                for name, kind in kinds.items()
            ]
            return F.struct(*sums, each.alias("buckets"))

        # A lambda is the one way to name a value that several expressions use.
        return [F.element_at(F.transform(F.array(buckets), summed), 1).alias(JOIN_METRIC)]


def streams_of(flat: Mapping[str, Any]) -> tuple[str, ...]:
    """The streams that flat figures are of.

    >>> from penstock.spark.runtime.figures import streams_of
    >>> streams_of({"evicted_left": 1}), streams_of({"evicted_a": 1, "evicted_b": 0, "results": 5})
    (('left', 'right'), ('a', 'b'))
    """
    named = [name.partition("_") for name in flat]
    found = dict.fromkeys(stream for figure, _, stream in named if figure in PER_STREAM and stream)
    return SIDES if set(found) <= set(SIDES) else tuple(found)


def _kinds(blank: Figures) -> dict[str, str]:
    """The SQL types of figures, from those of a bucket that has done nothing."""
    numbers = {name: value for name, value in blank.flat().items() if isinstance(value, int | float)}
    return {name: "bigint" if isinstance(value, int) else "double" for name, value in numbers.items()}


def _adding(name: str) -> Any:
    return lambda total, row: total + row[name]


def observed(blobs: DataFrame, spec: Spec, fields: T.StructType, name: str | Observation) -> DataFrame:
    """The output rows; the figures among the output blobs become observed metrics under this name."""
    every = blobs.observe(name, *spec.figures().metrics())
    return PackedOutput(every.filter(F.col(FIGURES).isNull()).select(ROWS, FILE), fields, spec.fill).rows()


def figures_of(progress: Any, name: str = "penstock") -> dict[str, Any] | None:
    """The figures of a batch from a query's progress: sums, and `buckets`; None if it has none.

    Of a lookup of this name there is nothing to add up, and no recall that could be estimated.

    >>> from penstock.spark.runtime.figures import figures_of
    >>> figures_of({"observedMetrics": {}}) is None
    True
    """
    row = progress["observedMetrics"].get(name)
    if is_lookup(row):
        return {"missed": None}
    if row is None:
        return None
    # A row in a listener's event, a dict in what a query tells of the past.
    whole = row.asDict(recursive=True) if hasattr(row, "asDict") else dict(row)
    if QUERY_METRIC in whole:
        return _of_query(whole)
    figures = whole.get(JOIN_METRIC)
    return None if figures is None else dict(figures)


def _of_query(row: dict[str, Any]) -> dict[str, Any]:
    """The figures of a stream query as those of a join of one stream, its triples, in one bucket."""
    renamed = {QUERY_METRIC: "arrived", "evicted": "evicted", "held": "buffered"}
    figures = {name: value for name, value in row.items() if name not in renamed and name != "choices"}
    figures |= {f"{name}_{QUERY_METRIC}": row[old] or 0 for old, name in renamed.items()}
    return figures | {"buckets": [{"bucket": 0} | figures]}
