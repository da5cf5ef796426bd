"""The caches of a query under one policy; they refer to triples by row numbers of their owner."""

from __future__ import annotations

import time as clock
from dataclasses import dataclass
from typing import Any

import numpy as np

from penstock.arrays import table_bytes
from penstock.compiler.interpreter import interpreted
from penstock.compiler.tiers import Pace
from penstock.engine.conditions import Columns
from penstock.engine.hooks import match_key
from penstock.engine.join_loop import LOGGED, PAIRS
from penstock.engine.many_index import COUNTING, HEEDING
from penstock.engine.pair_join_late import Expiry
from penstock.engine.store import (
    ALL_COMPETE,
    ARRIVAL,
    COMPETE,
    HIGH_TUPLE,
    LIVE,
    ROW,
    WARMUP,
    Store,
    new_store,
)
from penstock.engine.triple_index import EAGER, TALLYING, Index, new_index, relink
from penstock.engine.triple_join import LinkedBatch, LinkedOut, drive_linked, new_expiry
from penstock.engine.triple_search import (
    PENDING,
    PROBES,
    SHORT,
    SHORT_COUNTS,
    SHORT_LOG,
    SHORT_SCRATCH,
    Scratch,
    new_scratch,
)
from penstock.errors import BudgetError, PenstockError
from penstock.linked.language.parser import parse_query
from penstock.linked.plan.plan import QueryPlan, plan_of
from penstock.linked.plan.tree import Tree, leaves
from penstock.linked.run.invariants import check_linked
from penstock.linked.triples import Scale
from penstock.policies.base import Policy, Setting
from penstock.structures import key_counts

FIRST_ROOM = 1 << 12  # partial solutions
FIRST_RESULTS = 1 << 16
MOST_TUPLES = 1 << 40  # of a budget; arrays cannot be much larger


@dataclass(frozen=True)
class LinkedConfig:
    """All that is needed to build the state of a query."""

    text: str
    scale: Scale
    policy: Policy
    limits: tuple[int, ...]  # tuples of each pool; one for all caches, or one per cache
    still: int = 0  # background triples
    joins: Tree | None = None  # which patterns are joined with which; as they are written if not given
    gain: tuple[float, float] = (1.0, 0.5)
    warmup: int = 0
    seed: int = 0
    count_bytes: int | None = None  # under a byte budget: what key counts may take
    choosing_bytes: int | None = None  # and what the small caches of a policy that chooses may
    sample_tuples: int = 0  # of the sample from which recall is estimated; 0: it is not

    @property
    def tallies(self) -> bool:
        """Whether probes are counted: keys are hashes of values then, which stay the same for ever."""
        return self.policy.counts_keys and self.policy.compiled

    def plan(self) -> QueryPlan:
        """The plan of the query."""
        return plan_of(parse_query(self.text), self.scale, self.joins, self.gain, hashed=self.tallies)

    def build(self, plan: QueryPlan, policy: Policy | None = None) -> tuple[Store, Index, Expiry, Any]:
        """Empty caches and the state of the policy, or of one that it follows."""
        try:
            if sum(self.limits) <= MOST_TUPLES:
                return self._build(plan, policy)
        except MemoryError:
            pass
        raise BudgetError(
            f"There is no memory for caches of {sum(self.limits):,} tuples; give a smaller budget."
        )

    def _build(self, plan: QueryPlan, policy: Policy | None) -> tuple[Store, Index, Expiry, Any]:
        tracking, policy = policy is not None, policy or self.policy
        caches = len(plan.scheme.degree)
        streams = caches + (self.still > 0)
        limits = (*self.limits, self.still) if self.still else self.limits
        float64 = np.dtype(np.float64)
        store = new_store(limits, limits, float64, self.seed, streams)
        store.pool_of[:] = (
            0 if len(self.limits) == 1 else np.minimum(np.arange(streams), len(self.limits) - 1)
        )
        if self.still:
            store.pool_of[caches] = len(self.limits)
        store.meta[WARMUP] = self.warmup
        store.meta[COMPETE] = ALL_COMPETE if policy.selective else 0
        state = policy.build(
            Setting(
                capacities=limits,
                time_dtype=float64,
                horizons=(0.0,) * streams,
                streams=streams,
                apart=policy.compiled,
            )
        )
        heeds = match_key.on.__self__
        flags = {
            COUNTING: policy.counts_keys and policy.compiled,
            TALLYING: self.tallies,
            HEEDING: heeds.of(type(state)) is not heeds.default,
            EAGER: policy.by_recency,
        }
        total = sum(limits)
        index = new_index(plan.scheme, total, self._counts(), flags, tracking)
        return store, index, new_expiry(total), state

    def _counts(self) -> key_counts.Counts:
        """Exact counts, or a sketch where the memory for them is limited."""
        if not self.tallies:
            return key_counts.new_sketch(1, streams=1)
        if self.count_bytes is None:
            return key_counts.new_counts()
        return key_counts.new_sketch(
            max(1, self.count_bytes // key_counts.sketch_bytes_per_key(1)), streams=1
        )


def bytes_of(store: Store, index: Index, expiry: Expiry, policy: Any) -> int:
    """Bytes of the tables of a query; exact counts of keys, which grow, are not among them."""
    return table_bytes(store, tuple(index), expiry, policy) - exact_count_bytes(index)


def exact_count_bytes(index: Index) -> int:
    """Bytes of exact counts of keys; those of a sketch are part of the tables."""
    return 0 if index.counts.meta[key_counts.SKETCH] else sum(array.nbytes for array in index.counts)


class Findings:
    """What the kernel writes, in room that grows as it asks for it."""

    def __init__(self, patterns: int, arrivals: int, collect: bool = False, entries: int = 0) -> None:
        self.out = LinkedOut(
            np.zeros(arrivals, np.int64),
            np.empty((FIRST_RESULTS if collect else 0, patterns), np.int64),
            np.empty((entries, 4), np.int64),
            np.zeros(2, np.int64),
        )
        self._earlier: list[np.ndarray] = []

    def more_log(self, entries: int) -> None:
        """Room for so many more entries of the log."""
        log = self.out.log
        self.out = self.out._replace(log=np.concatenate([log, np.empty((len(log) + entries, 4), np.int64)]))

    def more_results(self) -> None:
        """Room for more results: those so far are put aside, or if there are none there is twice as much."""
        rows, ends = self.out.rows, self.out.ends
        if ends[PAIRS] > 0:
            self._earlier.append(rows[: ends[PAIRS]].copy())
            ends[PAIRS] = 0
        else:
            self.out = self.out._replace(rows=np.empty((2 * len(rows), rows.shape[1]), np.int64))

    @property
    def solutions(self) -> np.ndarray:
        """The results so far: the row of each pattern."""
        last = self.out.rows[: self.out.ends[PAIRS]]
        return np.concatenate([*self._earlier, last]) if self._earlier else last

    @property
    def log(self) -> np.ndarray:
        """What became of tuples."""
        return self.out.log[: self.out.ends[LOGGED]]


class QueryCaches:
    """The mutable part of a query: caches, and the state of a policy."""

    def __init__(self, config: LinkedConfig, plan: QueryPlan, policy: Policy | None = None) -> None:
        self.config, self.plan = config, plan
        self.running = policy or config.policy
        self.parts = config.build(plan, policy)

    @property
    def parts(self) -> tuple[Store, Index, Expiry, Any]:
        """All that has to be stored."""
        return self.store, self.index, self.expiry, self.policy

    @parts.setter
    def parts(self, parts: tuple[Store, Index, Expiry, Any]) -> None:
        self.store, self.index, self.expiry, self.policy = parts
        patterns = self.plan.patterns
        self.scratch: Scratch = new_scratch(
            patterns, len(self.index.owed) - 2, FIRST_ROOM if patterns > 2 else 2
        )
        self._pace = Pace()
        self._kernel = drive_linked if self.running.compiled else interpreted(drive_linked)

    def run(self, batch: LinkedBatch, findings: Findings, start: int, stop: int) -> None:
        """Process the arrivals of a batch from `start` to `stop`."""
        self.policy = self.running.reserve(self.policy, stop - start)
        while True:
            cut = self._pace.cut(start, stop)
            began = clock.perf_counter()
            reached = self._kernel(
                self.policy,
                self.store,
                self.index,
                self.expiry,
                self.plan.scheme,
                batch._replace(arrivals=batch.arrivals[:cut]),
                self.scratch,
                findings.out,
                start,
            )
            self._pace.took(reached - start, clock.perf_counter() - began)
            start = reached
            if start == stop:
                return
            if start == cut:
                continue
            short = self.scratch.ends[SHORT]
            if short == SHORT_SCRATCH:
                self._more_room()
            elif short == SHORT_COUNTS:
                known = self.index.counts
                keys = int(self.scratch.ends[PROBES]) + known.key.shape[1] // 2
                self.index = self.index._replace(counts=key_counts.reserve(known, keys))
            elif short == SHORT_LOG:
                findings.more_log(int(self.scratch.ends[PENDING]))
            else:
                findings.more_results()

    def _more_room(self) -> None:
        """Scratch memory for twice as many partial solutions."""
        total, room = len(self.index.owed) - 2, 2 * len(self.scratch.rows)
        if room > 1 << 26:
            raise PenstockError(
                "One triple makes more than 60 million partial solutions; narrow the context, or order the "
                "patterns so that those that share variables are next to each other."
            )
        self.scratch = new_scratch(self.plan.patterns, total, room)

    @property
    def live(self) -> np.ndarray:
        """The cached tuples in order of arrival."""
        arrival = self.store.t64[: int(self.store.meta[HIGH_TUPLE]) + 1, ARRIVAL]
        slots = np.flatnonzero(arrival >= 0)
        slots = slots[slots > 0]
        return slots[np.argsort(arrival[slots])]

    @property
    def buffered(self) -> int:
        """Tuples in the caches."""
        return int(self.store.meta[LIVE])

    def _partial(self, live: np.ndarray) -> np.ndarray:
        return live[self.index.cache[live] >= len(self.plan.caches)]

    def rows(self) -> np.ndarray:
        """The rows that cached tuples refer to, some more than once."""
        live, singles = self.live, len(self.plan.caches)
        used = [self.store.t64[live, ROW]]
        for slot in self._partial(live):
            step = self.plan.steps[int(self.index.cache[slot]) - singles]
            used.append(self.index.members[slot, leaves(step.sides)])
        return np.concatenate(used)

    def move(self, places: np.ndarray, columns: Columns) -> None:
        """Rows have other places now, and keys may be others: the chains are built anew."""
        live = self.live
        partial = self._partial(live)
        self.store.t64[live, ROW] = places[self.store.t64[live, ROW]]
        if len(partial):
            members = np.clip(self.index.members[partial], 0, len(places) - 1)  # of other patterns: anything
            self.index.members[partial] = places[members]
        self.index.k64[:] = 0
        relink(self.store, self.index, self.plan.scheme, columns, live)

    @property
    def bytes(self) -> int:
        """Bytes of the tables, whose size is fixed."""
        return bytes_of(*self.parts) - self.running.bytes_beyond(self.policy)

    def check(self) -> None:
        """Assert every invariant of the store, the caches and the policy."""
        check_linked(self.store, self.index, self.plan.scheme)
        self.running.check(self.policy, self.store)
