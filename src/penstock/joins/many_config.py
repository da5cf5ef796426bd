"""The resolved parameters of joins of many streams: windows in the unit of the data, budgets as limits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from penstock.arrays import table_bytes
from penstock.engine.hooks import match_key
from penstock.engine.lost_keys import new_lost_keys
from penstock.engine.many_fates import (
    DECIDING,
    FIRST,
    OWN_PART,
    RULES,
    TOGETHER,
    ManyFates,
    new_many_fates,
)
from penstock.engine.many_index import TALLYING, Index, new_index, new_scheme
from penstock.engine.many_join_late import ManyFlow, new_many_flow
from penstock.engine.many_search import ManySearch, new_search
from penstock.engine.pair_join_late import Expiry
from penstock.engine.result_sample import ResultSample, new_result_sample
from penstock.engine.store import ALL_COMPETE, COMPETE, WARMUP, WINDOW, Store, new_store
from penstock.joins.config import beginning
from penstock.joins.growth import TableCost, first_rooms, limit_pools
from penstock.joins.many_plan import new_search_plan
from penstock.joins.many_window import ManyWindow, as_many, bounds_of_horizons
from penstock.policies.base import Policy, Setting
from penstock.policies.candidates import checked_candidates
from penstock.structures.key_counts import new_counts, new_sketch, sketch_bytes_per_key
from penstock.structures.tables import new_table
from penstock.window import Resolved

INTEGER = np.dtype(np.int64)


@dataclass(frozen=True)
class ManyConfig:
    """Everything needed to build the state of a join of many streams."""

    streams: int
    joins: tuple[tuple[int, ...], ...]  # the streams that take part in each; or the links of a chain
    window: Resolved | ManyWindow
    policy: Policy
    capacities: tuple[int, ...]  # maximum tuples per pool, one or one per stream; in bytes: of average size
    time_dtype: np.dtype = INTEGER
    every: int = 0  # arrivals between two resizings of the pools by average score; 0: never
    seed: int = 0
    rates: tuple[float, ...] | None = None  # arrivals per unit of time and stream, if known
    lateness: tuple[float, ...] | None = None  # of each stream; None: arrivals come in order
    sample_bytes: int = 0  # for the estimate of the exact results
    chain: bool = False  # `joins` are the links of one join over all streams
    warmup: int = 0  # results of so many first arrivals do not count
    chance: float = 0.0  # the probability that an arrival is dropped
    payload: tuple[int, ...] | None = None  # under a byte budget: bytes of payload per pool
    costs: tuple[TableCost, ...] = ()  # of the policies that may run, if tables grow under a byte budget
    count_bytes: int | None = None  # under a byte budget: for key counts
    mean_row: float = 0.0  # average payload in bytes
    choosing_bytes: int | None = None  # under a byte budget, for the small joins of a policy that chooses
    how: str = "inner"
    lost_bytes: int = 0  # for the filter of the keys that left early

    @property
    def candidates(self) -> list[Policy]:
        """The policies that may run."""
        return checked_candidates(self.policy, "query") if self.policy.chooses else [self.policy]

    @property
    def windows(self) -> ManyWindow:
        """The window of each stream."""
        return as_many(self.window, self.streams)

    @property
    def results(self) -> tuple[tuple[int, ...], ...]:
        """The streams of the results of each join."""
        return (tuple(range(self.streams)),) if self.chain else self.joins

    @property
    def left(self) -> bool:
        """Whether rows of the first stream that are in no result come out, too."""
        return self.how == "left"

    @property
    def products(self) -> bool:
        """Whether the results of an arrival are all combinations of tuples with its key."""
        return not self.chain and self.windows.bounds is None

    @property
    def searches(self) -> bool:
        """Whether results are searched member by member: they are no products, or it counts who is in one."""
        return self.left or not self.products

    @property
    def estimable(self) -> bool:
        """Whether the results that were missed can be estimated from a sample of the keys."""
        return self.products and self.windows.uniform

    @property
    def grows(self) -> bool:
        """Whether tables grow with the tuples."""
        return all(policy.grows for policy in self.candidates) and not self.every

    def build(
        self, rooms: tuple[int, ...] | None = None, policy: Policy | None = None
    ) -> tuple[Store, Index, Any]:
        """Build an empty store, an empty index and the state of the policy, or of the one it follows.

        `rooms` are the tuples of each pool for which there is room; by default, those that there is room for
        at first.
        """
        rooms, most = rooms or first_rooms(self), self._most
        tables = most if self.every else rooms
        policy = policy or self.candidates[0]
        store = new_store(rooms, tables, self.time_dtype, self.seed, self.streams)
        limit_pools(self, store, rooms)
        windows = self.windows
        store.horizon[:] = windows.horizons
        store.meta[WINDOW] = windows.kind
        store.meta[WARMUP] = self.warmup
        store.chance[:] = self.chance
        store.meta[COMPETE] = ALL_COMPETE if policy.selective else 0
        state = policy.build(
            Setting(
                capacities=most,
                time_dtype=self.time_dtype,
                horizons=windows.horizons,
                rates=self.rates,
                streams=self.streams,
                apart=policy.compiled,
                rooms=tables,
                in_bytes=self.payload is not None,
            )
        )
        counting = policy.counts_keys and policy.compiled
        scheme = new_scheme(self.joins, self.streams)
        index = new_index(scheme, sum(rooms), counting, _heeds_matches(state), windows.by_rows)
        tallying = any(each.counts_keys for each in self.candidates) and self.policy.compiled
        index.meta[TALLYING] = tallying
        if tallying and self.count_bytes is None:
            index = index._replace(counts=new_counts())
        elif tallying and self.count_bytes is not None:
            sketch = new_sketch(max(1, self.count_bytes // sketch_bytes_per_key(1)), 1)
            index = index._replace(counts=sketch)
        return store, index, state

    def build_search(self, index: Index, rooms: tuple[int, ...]) -> ManySearch | None:
        """Build what searches results member by member; None if they are products."""
        if not self.searches:
            return None
        windows = self.windows
        bounds = windows.bounds or tuple(bounds_of_horizons(windows, join) for join in self.results)
        timed = windows.bounds is not None or self.lateness is not None
        plan = new_search_plan(index.scheme, self.streams, self.chain, bounds, self.time_dtype)
        return new_search(index, plan, sum(rooms), timed, self.time_dtype)

    def build_fates(self, index: Index, rooms: tuple[int, ...]) -> ManyFates | None:
        """Build what is known of the tuples of the first stream; None if nobody asks."""
        if not self.left:
            return None
        windows, together = self.windows, self.lateness is None
        others = [span for s, span in enumerate(windows.horizons) if s != FIRST and not windows.by_rows[s]]
        reach = max([1, *others])
        ahead = 0 if together or windows.by_rows[FIRST] else windows.horizons[FIRST]
        whole, longest = self.time_dtype == np.int64, max(reach, ahead)
        lost = new_lost_keys(self.lost_bytes, (True, False), (longest, longest), whole, together)
        rules = np.zeros(RULES, np.int64)
        rules[TOGETHER], rules[DECIDING] = together, 1
        rules[OWN_PART] = self.results[0].index(FIRST)
        return new_many_fates(index, sum(rooms), lost, reach, self.time_dtype, rules)

    def build_flow(self, rooms: tuple[int, ...] | None = None) -> ManyFlow:
        """Build the progress of streams that advance independently."""
        assert self.lateness is not None, "arrivals come in order"
        rooms = rooms or first_rooms(self)
        most = self._per_stream(self._most if self.every else rooms)
        candidates = (1, 1) if self.searches else (self._places, sum(rooms))
        start = beginning(self.time_dtype)
        return new_many_flow(self.results, candidates, most, self.time_dtype, self.lateness, start)

    def grow_flow(self, flow: ManyFlow, rooms: tuple[int, ...]) -> ManyFlow:
        """Return the progress of the streams with room for more tuples."""
        expiry = Expiry(flow.expiry.queue.grown(self._per_stream(rooms)))
        if self.searches:
            return flow._replace(expiry=expiry)
        shape = self._places, sum(rooms) + 1
        slot, time = new_table(shape, np.int64), new_table(shape, self.time_dtype)
        return flow._replace(expiry=expiry, slot=slot, time=time)

    def build_sample(self) -> ResultSample:
        """Build the sample of keys from which missed results are estimated."""
        assert self.lateness is not None, "arrivals come in order"
        scheme, whole = new_scheme(self.joins, self.streams), self.time_dtype == np.int64
        size = self.sample_bytes if self.estimable else 0
        return new_result_sample(scheme, size, float(self.windows.horizons[0]), self.lateness, whole)

    def bytes_of_tables(self, rooms: tuple[int, ...]) -> list[int]:
        """Return the bytes of the tables for a number of tuples, under each policy that may run."""
        found, policies = [], self.candidates
        beside = () if self.lateness is None else (self.build_flow(rooms), self.build_sample())
        for policy in policies[:1] if self.choosing_bytes == 0 else policies:
            parts = self.build(rooms, policy)
            more = self.build_search(parts[1], rooms), self.build_fates(parts[1], rooms)
            found.append(table_bytes(parts, more, beside) + (self.choosing_bytes or 0))
        return found

    def _per_stream(self, rooms: tuple[int, ...]) -> tuple[int, ...]:
        """Return the maximum number of tuples of each stream."""
        return rooms * self.streams if len(rooms) == 1 else rooms

    @property
    def _places(self) -> int:
        """Return the number of joins that a stream takes part in at most."""
        return max(sum(stream in join for join in self.joins) for stream in range(self.streams))

    @property
    def _most(self) -> tuple[int, ...]:
        """Return the maximum number of tuples that each pool can ever hold."""
        if not self.every:
            return self.capacities
        return (sum(self.capacities) - len(self.capacities) + 1,) * len(self.capacities)


def _heeds_matches(state: Any) -> bool:
    """Whether a policy reacts to matches."""
    registered = match_key.on.__self__
    return registered.of(type(state)) is not registered.default
