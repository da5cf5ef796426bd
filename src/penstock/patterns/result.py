"""The result of a pattern run: its matches and statistics."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa


@dataclass
class PatternStats:
    """Statistics of a run.

    >>> import penstock as ps
    >>> run = ps.Pattern.parse("PATTERN SEQ(A, B) WITHIN 5").run({"type": ["A", "B", "C"], "ts": [0, 1, 2]})
    >>> run.stats.matches, run.stats.events, run.stats.peak_events
    (1, 3, 2)
    """

    matches: int = 0  # all; with a `limit`, those up to the one that stopped the search
    cut: int = 0  # 1: there are matches beyond `limit`, which are neither built nor counted
    events: int = 0  # all events of the input
    held: int = 0  # events in memory at the end
    peak_events: int = 0  # maximum events in memory
    hits: int = 0  # sub-queries answered by a cache
    partial_hits: int = 0  # answered in part: the rest was computed
    recomputations: int = 0  # sub-queries computed from scratch
    shared: int = 0  # work taken over from another pattern of a set
    evicted: int = 0  # evicted cache entries
    cache_bytes: int = 0
    peak_bytes: int = 0  # of the caches
    seconds: float = 0.0  # of matching, without the conversion of the input

    def add(self, figures: dict[str, int]) -> None:
        """Add the cache statistics of a strategy."""
        for name, value in figures.items():
            setattr(self, name, value)


@dataclass(frozen=True)
class PatternRun:
    """The matches of a run, and its statistics.

    >>> import penstock as ps
    >>> run = ps.Pattern.parse("PATTERN AND(A a, A b) WITHIN 5").run({"type": ["A", "A"], "ts": [0, 1]})
    >>> run.matches.to_pydict()
    {'a': [0, 1], 'b': [1, 0]}
    """

    matches: pa.Table
    stats: PatternStats
    caches: list[Any] = field(default_factory=list)  # contents of the caches at the end, for debugging
