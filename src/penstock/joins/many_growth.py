"""How the tables of a join of many streams grow, and how many bytes they take."""

from __future__ import annotations

import time as clock
from typing import Any

from penstock.arrays import table_bytes
from penstock.engine.many_fates import ManyFates
from penstock.engine.many_index import Index, grow_index
from penstock.engine.many_search import ManySearch
from penstock.engine.store import (
    P_GROW,
    P_LIMIT,
    P_LIVE,
    P_PEAK_USED,
    P_USED,
    PEAK_TUPLES,
    Store,
)
from penstock.errors import BudgetError
from penstock.joins.growth import grow, next_rooms, touched_bytes
from penstock.joins.many_config import ManyConfig
from penstock.joins.many_follower import ManyFollower
from penstock.policies.base import Policy


class GrowsTables:
    """A join of many streams whose tables grow with the tuples."""

    config: ManyConfig
    store: Store
    index: Index
    search: ManySearch | None
    known: ManyFates | None
    policy: Any
    follower: ManyFollower | None
    seconds: float
    peak: int

    @property
    def running(self) -> Policy:
        """The policy that currently decides: that of the join, or the one that it follows."""
        return self.config.policy if self.follower is None else self.follower.policy

    def _grow(self, stream: int) -> bool:
        """Make room for more tuples if the driver has come back for that, before an arrival of a stream."""
        pool = self.store.pools[self.store.pool_of[stream]]
        if pool[P_LIVE] < pool[P_LIMIT] or pool[P_USED] > pool[P_GROW]:
            return False
        rooms = next_rooms(self.config, self.store)
        if rooms is None:
            return False
        began = clock.perf_counter()
        self._note_peak()
        tables, index = self.store._asdict(), self.index._asdict()
        self.store = self.index = self.search = None  # type: ignore[assignment]  # tables go as they are copied
        try:
            self.store = grow(self.config, tables, rooms)
            self.policy = self.running.grow(self.policy, self.store, rooms)
            grow_index(index, sum(rooms))
            self.index = Index(**index)
            if self.known is not None:
                self.known = self.known.grown(sum(rooms), len(self.index.k64))
            self._grow_beyond(rooms)
        except MemoryError as error:
            raise BudgetError(
                f"This machine has no memory left to keep {sum(rooms):,} tuples, which the budget allows. "
                "Give a smaller budget, and start again from the last snapshot."
            ) from error
        self.search = self.config.build_search(self.index, rooms)
        self.seconds += clock.perf_counter() - began
        return True

    def _grow_beyond(self, rooms: tuple[int, ...]) -> None:
        """Make room for more tuples in what a state has besides the store, the index and the policy."""

    def _note_peak(self) -> None:
        """Before tables change, note how many bytes they and the payload took."""
        self.peak = max(self.peak, self.table_bytes + self._payload_bytes)
        self.store.pools[:, P_PEAK_USED] = self.store.pools[:, P_USED]

    @property
    def peak_bytes(self) -> int:
        """Peak memory in bytes: tables, scores and counts, and the payload of the tuples."""
        return max(self.peak, self.table_bytes + self._payload_bytes)

    @property
    def _payload_bytes(self) -> int:
        """Most bytes of payload since the tables changed last."""
        if self.config.payload is None:
            return int(self.store.meta[PEAK_TUPLES] * self.config.mean_row)
        return int(self.store.pools[:, P_PEAK_USED].sum())

    @property
    def table_bytes(self) -> int:
        """Bytes of all tables, including key counts."""
        small = 0 if self.follower is None else self.follower.bytes
        return touched_bytes(self.config, self.store, table_bytes(*self._tables) + small)

    @property
    def _tables(self) -> tuple[Any, ...]:
        """Everything that is kept."""
        return self.store, self.policy, self.index, self.search, self.known
