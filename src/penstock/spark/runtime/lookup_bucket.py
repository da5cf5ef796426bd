"""Run a lookup in one bucket. Its rows can be fetched again, so that only keys and scores are stored."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Self

import pyarrow as pa

from penstock.lookup.cache import LookupCache
from penstock.lookup.stats import LookupStats
from penstock.spark.runtime.figures import Figures
from penstock.spark.runtime.operator import Bucket, Spec
from penstock.spark.runtime.packer import PackedBatch, Packing


@dataclass
class LookupFigures(Figures):
    """What a bucket did in a batch, under the names that stream engines use."""

    counts: dict[str, float] = field(default_factory=lambda: LookupStats().metrics())

    def flat(self) -> dict[str, Any]:
        """Return all figures by name."""
        told = super().flat()
        return told.pop("counts") | told

    def add(self, later: Figures) -> None:
        """Add a later batch; of cached records and bytes the last value counts."""
        super().add(later)
        assert isinstance(later, LookupFigures)
        self.counts |= {name: count for name, count in later.counts.items() if name.startswith("cached")}


class LookupBucket(Bucket):
    """A cache, and the connection to its table."""

    replays = False  # the table may have changed since

    def __init__(self, spec: LookupSpec) -> None:
        super().__init__(spec)
        self.state = spec.lookup.start()

    def process(self, batch: PackedBatch, quiet: bool = False) -> list[pa.Table]:
        """The rows of a batch with the columns of the table."""
        rows = batch.table()
        assert rows is not None, "a lookup is told of nothing but rows"
        return self.process_sorted(rows)

    def process_sorted(self, rows: pa.Table) -> list[pa.Table]:
        """Rows in any order."""
        before = self.state.stats.metrics()
        found = self.state.process(rows, self.spec.names)
        after = self.state.stats.metrics()
        now = {name: count for name, count in after.items() if name.startswith("cached")}
        self.figures = LookupFigures({name: after[name] - before[name] for name in after} | now)
        return [found]

    def snapshot(self) -> bytes:
        """The keys and their scores."""
        return self.state.snapshot(rows=False)

    @classmethod
    def restore(cls, spec: LookupSpec, data: bytes) -> Self:
        """The inverse of `snapshot`; rejects the state of another lookup."""
        bucket = cls(spec)
        bucket.state.restore(data)
        return bucket

    def close(self) -> None:
        """Close the connections."""
        self.state.spec.source.close()


@dataclass(frozen=True)
class LookupSpec(Spec):
    """A lookup as every bucket runs it."""

    kind = LookupBucket

    lookup: LookupCache = field(compare=False)  # with the share of one bucket as its budget
    names: tuple[str, ...]  # the key columns of the stream
    buckets: int
    options: tuple[Any, ...] = field(init=False)  # by which lookups are compared

    def __post_init__(self) -> None:
        it = self.lookup
        options = (it.key, it.policy.spell(), it.budget, it.ttl, it.missing, it.malformed, it.negative)
        object.__setattr__(self, "options", (*options, it.suffix, it.seed))

    def figures(self) -> LookupFigures:
        """The figures of a bucket."""
        return LookupFigures()

    def packings(self, labels: tuple[int, ...]) -> list[Packing]:
        """One: a lookup has one input, in which rows of a key keep their order."""
        return [Packing(labels)]

    def fixed(self) -> dict[str, str]:
        """Nothing: a bucket that finds other keys than its own in its state forgets them in time."""
        return {}
