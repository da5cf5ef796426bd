"""The statistics of a query run."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.engine.policy_race import Choice


@dataclass(frozen=True)
class LinkedStats:
    """Counts of a run; bindings = buffered + expired + evicted."""

    results: int
    exact: int | None  # with unlimited memory; None if it was not wanted
    triples: int
    matched: int  # of the triples, those that match a pattern and its filters
    bindings: int  # tuples made for caches: triples, and partial solutions of longer queries
    evicted: int
    refused: int  # of the evicted, those that never entered
    expired: int
    buffered: int
    budget: int | None  # in tuples
    peak_tuples: int
    peak_bytes: int
    seconds: float  # without the reading of the input, the building of rows and the exact count
    choice: Choice | None = None  # where the policy follows others

    @property
    def recall(self) -> float | None:
        """The share of the exact results that came out; 1 if there were none to find.

        >>> import penstock as ps
        >>> table = {"s": ["a", "b"], "p": ["r", "r"], "o": [5, 5], "start": [0, 1]}
        >>> text = "SELECT * FROM STREAM w { ?a r ?x ?T . ?b r ?x ?U } CONTEXT ((?T - ?U) <= 5)"
        >>> ps.StreamQuery.parse(text).run({"w": table}).stats.recall
        1.0
        """
        if self.exact is None:
            return None
        return self.results / self.exact if self.exact else 1.0

    def as_dict(self) -> dict[str, Any]:
        """The figures by name, recall included.

        >>> import penstock as ps
        >>> table = {"s": ["a", "b"], "p": ["r", "r"], "o": [5, 5], "start": [0, 1]}
        >>> text = "SELECT * FROM STREAM w { ?a r ?x ?T . ?b r ?x ?U } CONTEXT ((?T - ?U) <= 5)"
        >>> ps.StreamQuery.parse(text).run({"w": table}).stats.as_dict()["results"]
        4
        """
        return {field.name: getattr(self, field.name) for field in fields(self)} | {"recall": self.recall}


@dataclass(frozen=True)
class LinkedRun:
    """The outcome of `StreamQuery.run`: its rows if they were collected, its stats, and a timeline.

    `times` and `counts` have, per triple that matched, when it came and the results it completed; with
    `log=True`, `events` has what became of cached tuples. `plan` is the plan in words, as `explain` gives it.
    """

    rows: pa.Table | None
    stats: LinkedStats
    solutions: np.ndarray  # with the rows: which row of its stream each pattern has
    times: np.ndarray
    counts: np.ndarray
    events: pa.Table | None = None
    plan: str = ""
