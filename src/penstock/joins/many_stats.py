"""What a run of `join_many` returns."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import pyarrow as pa

from penstock.engine.policy_race import Choice


@dataclass(frozen=True)
class ManyStats:
    """Counts of a run; arrivals = buffered + expired + evicted + dropped.

    With `how="left"`, `unmatched` counts rows of the first stream that came out alone, and `undecided` those
    of which it is not known whether they are in a result. `exact` counts all rows of the exact joins.
    """

    results: int
    exact: int
    per_join: tuple[int, ...]  # results of each join
    exact_per_join: tuple[int, ...]
    arrivals: int
    buffered: int
    expired: int
    evicted: int
    refused: int  # evicted tuples that never entered
    dropped: int
    null_keys: tuple[int, ...]  # per stream, rows without a key in any of their joins
    limits: tuple[int, ...]  # limits of the pools at the end, in tuples
    peak_tuples: int
    oversize: int  # refused tuples larger than their whole pool
    peak_bytes: int  # tables, index, scores, counts and the payload of the buffered rows
    seconds: float
    choice: Choice | None = None  # what a policy that chooses follows
    unmatched: int = 0
    undecided: int = 0

    @property
    def recall(self) -> float:
        """The share of the exact joins' rows that were found; 1 if there are none.

        >>> import penstock as ps
        >>> data = {"key": [1, 2], "ts": [0, 1]}
        >>> run = ps.join_many({"a": data, "b": data}, on="key", time="ts", within=5, budget=ps.Tuples(4))
        >>> run.stats.recall
        1.0
        """
        return (self.results + self.unmatched) / self.exact if self.exact else 1.0

    def as_dict(self) -> dict[str, Any]:
        """Return the counts by name, including recall.

        >>> import penstock as ps
        >>> data = {"key": [1, 2], "ts": [0, 1]}
        >>> run = ps.join_many({"a": data, "b": data}, on="key", time="ts", within=5, budget=ps.Tuples(4))
        >>> run.stats.as_dict()["results"]
        2
        """
        return {f.name: getattr(self, f.name) for f in fields(self)} | {"recall": self.recall}


@dataclass(frozen=True)
class ManyRun:
    """The outcome of `join_many`: its stats, and the results of each join if collected."""

    stats: ManyStats
    results: list[pa.Table] | None  # per join, a column of row numbers per stream; null for no row
    events: pa.Table | None = None  # when tuples entered and left, with log=True
