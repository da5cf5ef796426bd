"""What a batch of a join of many streams gives."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from penstock.engine.many_index import MOST
from penstock.errors import PenstockError

NOBODY = np.empty(0, np.int64)


@dataclass(frozen=True)
class ManyOutput:
    """The output of a batch: results per arrival and, if requested, the results and the log of tuples."""

    counts: np.ndarray
    rows: tuple[np.ndarray, ...]  # per join: a row number per participant; -1: none
    log: np.ndarray  # kind, stream, row, step
    unmatched: np.ndarray = field(default_factory=lambda: NOBODY)  # rows of the first stream that came alone


def countable(found: np.ndarray) -> list[int]:
    """Return the result counts, or raise an error if they are too large to count."""
    if (found >= MOST).any():
        raise PenstockError(
            f"A join has {MOST:,} results or more, too many to count; narrow the window or the join."
        )
    return [int(count) for count in found]
