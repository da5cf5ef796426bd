"""Access to the caller's row numbers of buffered tuples."""

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

SO_FAR = [ARRIVALS, STEPS, RESULTS, SAME_TICK, DROPPED]  # copied when a state takes over from another
GONE = [EVICTED, EXPIRED, REFUSED, OVERSIZE]  # added up


class KeepsRows:
    """A state whose caller keeps the rows of the buffered tuples, and may renumber them."""

    store: Store

    def rows(self, stream: int) -> np.ndarray:
        """Return the rows of a stream's buffered tuples, in table order."""
        return self.store.t64[self._live(stream), ROW]

    def rename_rows(self, stream: int, rows: np.ndarray) -> None:
        """Renumber a stream's buffered tuples, in the order of `rows()`."""
        self.store.t64[self._live(stream), ROW] = rows

    def _live(self, stream: int) -> np.ndarray:
        high = int(self.store.meta[HIGH_TUPLE]) + 1
        mine = (self.store.t64[:high, ARRIVAL] >= 0) & (self.store.t32[:high, STREAM] == stream)
        mine[0] = False
        return np.flatnonzero(mine)
