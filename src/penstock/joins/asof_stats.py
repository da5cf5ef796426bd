"""The outcome of an as-of join in process."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import pyarrow as pa

from penstock.engine.policy_race import Choice


@dataclass(frozen=True)
class AsofStats:
    """Counts of a run; arrivals = buffered + expired + evicted + dropped + released + late.

    `results` are left rows with a right row, `unmatched` those that have none for certain, and `undecided`
    those whose right row may have been evicted. `exact` is the number of left rows: each has one answer.
    """

    results: int
    unmatched: int
    undecided: int
    exact: int
    arrivals: int
    buffered: int
    expired: int  # right rows that were no use any more
    evicted: int
    refused: int
    oversize: int
    dropped: int
    released: int  # left rows that were answered, or known to be undecided
    late: int
    null_keys: tuple[int, int]
    peak_tuples: int
    peak_bytes: int
    seconds: float
    choice: Choice | None  # if the policy follows others

    @property
    def recall(self) -> float:
        """The share of the left rows whose answer is known; 1 if there are none.

        >>> import penstock as ps
        >>> trades, quotes = {"k": [1, 2], "ts": [5, 6]}, {"k": [1], "ts": [3]}
        >>> ps.asof_join(trades, quotes, on="k", time="ts", budget=ps.Tuples(4)).stats.recall
        1.0
        """
        return (self.results + self.unmatched) / self.exact if self.exact else 1.0

    def as_dict(self) -> dict[str, Any]:
        """Return the counts by name, including recall.

        >>> import penstock as ps
        >>> trades, quotes = {"k": [1, 2], "ts": [5, 6]}, {"k": [1], "ts": [3]}
        >>> stats = ps.asof_join(trades, quotes, on="k", time="ts", budget=ps.Tuples(4)).stats
        >>> stats.as_dict()["unmatched"]
        1
        """
        return {each.name: getattr(self, each.name) for each in fields(self)} | {"recall": self.recall}


@dataclass(frozen=True)
class AsofRun:
    """The outcome of `asof_join`: its stats, and the right row of each left row that is decided."""

    stats: AsofStats
    pairs: pa.Table | None  # left_row in ascending order, right_row or null; undecided rows are not in it
