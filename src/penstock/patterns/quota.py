"""What a search is asked for and what it finds: how many matches it builds, and after how many it stops."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np


class Quota(NamedTuple):
    """The matches wanted from a batch; by default all of them.

    >>> from penstock.patterns.quota import Quota
    >>> Quota.first(10)
    Quota(build=10, stop=11)
    """

    build: int | None = None
    stop: int | None = None  # the search ends with this match

    @classmethod
    def first(cls, matches: int) -> Quota:
        """Return the quota for the first matches; one more shows that there are more, and ends the search."""
        return cls(matches, matches + 1)

    @property
    def counts(self) -> bool:
        """Whether all matches are counted and none is built."""
        return self.build == 0 and self.stop is None


@dataclass
class MatchTally:
    """The matches found so far, under a quota."""

    quota: Quota
    count: int = 0
    rows: list[list[int]] = field(default_factory=list)

    @property
    def full(self) -> bool:
        """Whether no further match is looked for."""
        return self.quota.stop is not None and self.count >= self.quota.stop

    @property
    def builds(self) -> bool:
        """Whether the next match is built."""
        return self.quota.build is None or len(self.rows) < self.quota.build


@dataclass
class FoundMatches:
    """Matches: their number, and the rows of those that are kept, one column per slot of a match."""

    count: int = 0
    rows: np.ndarray = field(default_factory=lambda: np.empty((0, 0), np.int64))
