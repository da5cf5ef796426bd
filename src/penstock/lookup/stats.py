"""The counts of a lookup, also under the metric names that stream engines use."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from penstock.engine.policy_race import Choice


@dataclass
class LookupStats:
    """Counts of a lookup. Requests with a null key are not looked up and counted separately.

    >>> from penstock.lookup import LookupStats
    >>> stats = LookupStats(hits=3, misses=1)
    >>> stats.requests, stats.hit_ratio, stats.metrics()["hitCount"]
    (4, 0.75, 3)
    """

    hits: int = 0
    misses: int = 0
    queries: int = 0  # successful round trips
    nulls: int = 0
    absent: int = 0  # requests whose key is not in the table
    malformed: int = 0  # requested keys that the table cannot read; they have no row
    failed_keys: int = 0  # keys whose query fails otherwise (a division by zero); they have no row
    evicted: int = 0
    refused: int = 0  # keys that were not admitted
    loads: int = 0  # keys that were fetched
    load_failures: int = 0  # round trips that failed, whether retried or not
    load_seconds: float = 0.0
    cached_records: int = 0
    cached_bytes: int = 0
    seconds: float = 0.0  # of the whole lookup
    choice: Choice | None = None  # if the policy follows others

    @property
    def requests(self) -> int:
        """Number of requests that have a key."""
        return self.hits + self.misses

    @property
    def hit_ratio(self) -> float:
        """The share of hits; 0 without requests."""
        return self.hits / self.requests if self.requests else 0.0

    def metrics(self) -> dict[str, float]:
        """Return the counts under the names that stream engines use; times are in milliseconds.

        >>> from penstock.lookup import LookupStats
        >>> list(LookupStats().metrics())[:3]
        ['hitCount', 'missCount', 'loadCount']
        """
        return {
            "hitCount": self.hits,
            "missCount": self.misses,
            "loadCount": self.loads,
            "loadFailureCount": self.load_failures,
            "malformedCount": self.malformed,
            "failedKeyCount": self.failed_keys,
            "loadTime": 1_000 * self.load_seconds,
            "cachedRecords": self.cached_records,
            "cachedBytes": self.cached_bytes,
        }


@dataclass(frozen=True)
class LookupRun:
    """The outcome of `LookupCache.run`: the stream with the columns of the table, and the counts."""

    table: pa.Table = field(repr=False)
    stats: LookupStats

    def to_pandas(self) -> Any:
        """Return the enriched stream as a pandas DataFrame.

        >>> import pyarrow as pa
        >>> from penstock.lookup import LookupRun, LookupStats
        >>> LookupRun(pa.table({"key": [1]}), LookupStats()).to_pandas().shape
        (1, 1)
        """
        return self.table.to_pandas()
