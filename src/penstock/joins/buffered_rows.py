"""Buffered tuples as a caller knows them: by their rows."""

from __future__ import annotations

import numpy as np

from penstock.engine.store import (
    ARRIVAL,
    ARRIVALS,
    DROPPED,
    EVICTED,
    EXPIRED,
    HIGH_TUPLE,
    OVERSIZE,
    REFUSED,
    RESULTS,
    ROW,
    SAME_TICK,
    STEPS,
    STREAM,
    Store,
)

SO_FAR = [ARRIVALS, STEPS, RESULTS, SAME_TICK, DROPPED]  # go on when a state takes over from another
GONE = [EVICTED, EXPIRED, REFUSED, OVERSIZE]  # add up


class KeepsRows:
    """A state whose caller keeps the rows of the buffered tuples, and may number them anew."""

    store: Store

    def rows(self, stream: int) -> np.ndarray:
        """The rows of a stream's buffered tuples, in the order of their places in the table."""
        return self.store.t64[self._live(stream), ROW]

    def rename_rows(self, stream: int, rows: np.ndarray) -> None:
        """Give a stream's buffered tuples other rows, in the order of `rows()`."""
        self.store.t64[self._live(stream), ROW] = rows

    def _live(self, stream: int) -> np.ndarray:
        high = int(self.store.meta[HIGH_TUPLE]) + 1
        mine = (self.store.t64[:high, ARRIVAL] >= 0) & (self.store.t32[:high, STREAM] == stream)
        mine[0] = False
        return np.flatnonzero(mine)
