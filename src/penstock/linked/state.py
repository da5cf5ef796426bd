"""The state of a stream query: it takes batches of triples, and can be snapshotted, restored and checked."""

from __future__ import annotations

import time as clock
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.errors import PenstockError
from penstock.joins.config import table_bytes
from penstock.kernels import counts
from penstock.kernels.drive import LOGGED, PAIRS
from penstock.kernels.hooks import match_key
from penstock.kernels.jit import interpreted
from penstock.kernels.layout import (
    ARRIVAL,
    ARRIVALS,
    COMPETE,
    EVICTED,
    EXPIRED,
    HIGH_TUPLE,
    LIVE,
    PEAK_TUPLES,
    REFUSED,
    RESULTS,
    ROW,
    STEPS,
    WARMUP,
    Store,
    new_store,
)
from penstock.kernels.linked import LinkedBatch, LinkedOut, drive_linked, new_expiry
from penstock.kernels.linked_find import (
    PENDING,
    SHORT,
    SHORT_LOG,
    SHORT_SCRATCH,
    Scratch,
    new_scratch,
)
from penstock.kernels.linked_index import Index, new_index, relink
from penstock.kernels.many_index import COUNTING
from penstock.kernels.stream import Expiry
from penstock.linked.binding import columns_of, masks_of
from penstock.linked.invariants import check_linked
from penstock.linked.parser import parse_query
from penstock.linked.plan import Plan, plan_of
from penstock.linked.results import Known, project, surviving
from penstock.linked.terms import Terms
from penstock.linked.triples import Scale, Triples
from penstock.policies.base import Policy, Setting

CHUNK = 1 << 16  # arrivals per call of the driver, where tables grow with the keys
FIRST_ROOM = 1 << 12  # partial solutions
FIRST_RESULTS = 1 << 16


@dataclass(frozen=True)
class LinkedConfig:
    """All that is needed to build the state of a query."""

    text: str
    scale: Scale
    policy: Policy
    limits: tuple[int, ...]  # tuples of each pool; one for all caches, or one per cache
    still: int = 0  # background triples
    rates: tuple[float, ...] | None = None  # triples that match each pattern
    gain: tuple[float, float] = (1.0, 0.5)
    warmup: int = 0
    seed: int = 0

    def plan(self) -> Plan:
        """The plan of the query."""
        return plan_of(parse_query(self.text), self.scale, self.rates, self.gain)

    def build(self, plan: Plan) -> tuple[Store, Index, Expiry, Any]:
        """Empty caches and the state of the policy."""
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
        store.meta[COMPETE] = self.policy.selective
        setting = Setting(capacities=limits, time_dtype=float64, horizons=(0.0,) * streams, streams=streams)
        state = self.policy.build(setting)
        counting = self.policy.counts_keys and self.policy.compiled
        heeds = match_key.on.__self__
        heeding = heeds.of(type(state)) is not heeds.default
        total = sum(limits)
        index = new_index(plan.scheme, total, counting, heeding, self.policy.by_recency)
        return store, index, new_expiry(total), state


@dataclass(frozen=True)
class LinkedOutput:
    """What a batch brought: the table of rows if it was asked for, and the results of each arrival."""

    rows: pa.Table | None
    solutions: np.ndarray  # per result and pattern: the row in its stream
    counts: np.ndarray
    times: np.ndarray
    log: np.ndarray


def bytes_of(store: Store, index: Index, expiry: Expiry, policy: Any) -> int:
    """Bytes of the tables of a query; exact counts of keys, which grow, are not among them."""
    fixed = tuple(part for name, part in index._asdict().items() if name != "counts")
    return table_bytes(store, fixed, expiry, policy)


class LinkedState:
    """The mutable state of a `StreamQuery`; `StreamQuery.start` makes one.

    Batches are given as `Triples` in processing order, coded with the terms of this state.
    """

    def __init__(self, config: LinkedConfig, terms: Terms | None = None) -> None:
        self.config, self.plan = config, config.plan()
        self.store, self.index, self.expiry, self.policy = config.build(self.plan)
        self.terms = Terms() if terms is None else terms
        self.held: Triples | None = None  # what cached tuples refer to
        self.held_mask = np.empty(0, np.int64)
        self.seconds = 0.0
        self.late_dropped = 0
        self.single = 0  # results of a query of one pattern
        self.matched = self.unmatched = 0
        self.ready()

    def ready(self) -> None:
        """Scratch memory and the kernel."""
        total = len(self.index.owed) - 2
        patterns = len(self.plan.order)
        self.scratch: Scratch = new_scratch(patterns, total, FIRST_ROOM if patterns > 2 else 2)
        self._kernel = drive_linked if self.config.policy.compiled else interpreted(drive_linked)

    def process(
        self, triples: Triples, *, collect: bool = True, log: bool = False, mask: np.ndarray | None = None
    ) -> LinkedOutput:
        """Process a batch; with `mask` given, the patterns that each triple matches are known already."""
        began = clock.perf_counter()
        mask = masks_of(self.plan, triples, self.terms) if mask is None else mask
        wanted = np.flatnonzero((mask != 0) | triples.closes)
        self.matched += int(np.count_nonzero(mask))
        self.unmatched += len(triples) - len(wanted)
        if len(wanted) < len(triples):
            triples, mask = triples.take(wanted), mask[wanted]
        if self.held is not None and len(self.held):
            before = len(self.held)
            triples, mask = _joined(self.held, triples), np.concatenate([self.held_mask, mask])
        else:
            before = 0
        arrivals = np.arange(before, len(triples), dtype=np.int64)
        if len(self.plan.order) == 1:
            return self._single(triples, arrivals, collect, began)
        columns, conditions = columns_of(self.plan, triples, mask, self.terms)
        closes = _closed(triples, before) if triples.closes.any() else np.empty(0, np.int64)
        batch = LinkedBatch(columns, conditions, arrivals, closes)
        out, found = self._drive(batch, collect or bool(self.plan.late), log)
        known = Known(triples, columns.end, _closers(triples, closes, before))
        triples = Triples(**(vars(triples) | {"end": columns.end}))
        solutions, table = found, None
        if collect or self.plan.late:
            fine = surviving(self.plan, known, found, self.terms)
            self.late_dropped += len(found) - int(np.count_nonzero(fine))
            solutions = found if fine.all() else found[fine]
        self.seconds += clock.perf_counter() - began
        if collect:
            table = project(self.plan, known, solutions, self.terms)
        self.held, self.held_mask = triples, mask
        rows = triples.row[solutions] if len(solutions) else np.empty((0, len(self.plan.order)), np.int64)
        return LinkedOutput(table, rows, out.counts, triples.start[arrivals], out.log[: out.ends[LOGGED]])

    def _single(self, triples: Triples, arrivals: np.ndarray, collect: bool, began: float) -> LinkedOutput:
        """A query of one pattern needs no cache: each triple that matches is a result."""
        solutions = arrivals[~triples.closes[arrivals]][max(0, self.config.warmup - self.single) :, None]
        self.single += len(arrivals)
        known = Known(triples, triples.end, None)
        solutions = solutions[surviving(self.plan, known, solutions, self.terms)]
        self.store.meta[RESULTS] += len(solutions)
        self.seconds += clock.perf_counter() - began
        table = project(self.plan, known, solutions, self.terms) if collect else None
        ones = np.ones(len(arrivals), np.int64)
        return LinkedOutput(
            table, triples.row[solutions], ones, triples.start[arrivals], np.empty((0, 4), np.int64)
        )

    def _drive(self, batch: LinkedBatch, collect: bool, log: bool) -> tuple[LinkedOut, np.ndarray]:
        """Run the kernel over the arrivals, with more room where it asks for it."""
        patterns, n = len(self.plan.order), len(batch.arrivals)
        entries = int(self.store.meta[LIVE]) + 4 * (n + patterns) if log else 0
        out = LinkedOut(
            np.zeros(n, np.int64),
            np.empty((FIRST_RESULTS if collect else 0, patterns), np.int64),
            np.empty((entries, 4), np.int64),
            np.zeros(2, np.int64),
        )
        found: list[np.ndarray] = []
        start, limit = 0, 0
        while True:
            if start == limit:
                if limit == n and n > 0:
                    break
                limit = min(n, limit + CHUNK)
                self._reserve(limit - start)
            start = self._kernel(
                self.policy,
                self.store,
                self.index,
                self.expiry,
                self.plan.scheme,
                batch._replace(arrivals=batch.arrivals[:limit]),
                self.scratch,
                out,
                start,
            )
            if start < limit:
                if self.scratch.ends[SHORT] == SHORT_SCRATCH:
                    self._more_room()
                elif self.scratch.ends[SHORT] == SHORT_LOG:
                    more = np.empty((len(out.log) + int(self.scratch.ends[PENDING]), 4), np.int64)
                    out = out._replace(log=np.concatenate([out.log, more]))
                elif out.ends[PAIRS] > 0:
                    found.append(out.rows[: out.ends[PAIRS]].copy())
                    out.ends[PAIRS] = 0
                else:
                    out = out._replace(rows=np.empty((2 * len(out.rows), patterns), np.int64))
            elif n == 0:
                break
        found.append(out.rows[: out.ends[PAIRS]])
        return out, np.concatenate(found) if len(found) > 1 else found[0]

    def _more_room(self) -> None:
        """Scratch memory for twice as many partial solutions."""
        total, room = len(self.index.owed) - 2, 2 * len(self.scratch.rows)
        if room > 1 << 26:
            raise PenstockError(
                "One triple makes more than 60 million partial solutions; narrow the context, or order the "
                "patterns so that those that share variables follow each other."
            )
        self.scratch = new_scratch(len(self.plan.order), total, room)

    def _reserve(self, arrivals: int) -> None:
        if self.index.meta[COUNTING]:
            keys = 4 * arrivals * len(self.plan.order)
            self.index = self.index._replace(counts=counts.reserve(self.index.counts, keys))
        else:
            self.policy = self.config.policy.reserve(self.policy, arrivals)

    def compact(self) -> None:
        """Keep only the rows, and the terms, that cached tuples refer to."""
        if self.held is None:
            return
        live = np.flatnonzero(self.store.t64[: int(self.store.meta[HIGH_TUPLE]) + 1, ARRIVAL] >= 0)
        live = live[live > 0]
        leaves = len(self.plan.caches)
        partial = live[self.index.cache[live] >= leaves]
        used = [self.store.t64[live, ROW]]
        for slot in partial:
            step = int(self.index.cache[slot]) - leaves + 2
            used.append(self.index.members[slot, self.plan.order[:step]])
        rows = np.unique(np.concatenate(used))
        places = np.full(len(self.held) + 1, 0, np.int64)
        places[rows] = np.arange(len(rows))
        self.store.t64[live, ROW] = places[self.store.t64[live, ROW]]
        if len(partial):
            members = np.clip(self.index.members[partial], 0, len(self.held))  # of other patterns: anything
            self.index.members[partial] = places[members]
        kept, self.held_mask = self.held.take(rows), self.held_mask[rows]
        if not self.index.meta[COUNTING]:  # counts are by value, and values would get new numbers
            self.terms, moved = self.terms.kept(kept.terms)
            kept = Triples(**(vars(kept) | {"terms": moved[kept.terms]}))
        self.held = kept
        columns, _ = columns_of(self.plan, kept, self.held_mask, self.terms)
        self.index.k64[:] = 0
        relink(
            self.store, self.index, self.plan.scheme, columns, live[np.argsort(self.store.t64[live, ARRIVAL])]
        )

    def count_on_from(self, before: LinkedState) -> None:
        """This state takes the place of another, whose triples it has: its counters go on from there."""
        mine, old = self.store.meta, before.store.meta
        mine[EVICTED] += old[EVICTED]
        mine[[RESULTS, EXPIRED, REFUSED, STEPS]] = old[[RESULTS, EXPIRED, REFUSED, STEPS]]
        for name in (ARRIVALS, PEAK_TUPLES):
            mine[name] = max(mine[name], old[name])
        self.store.random[:] = before.store.random
        for counter in ("late_dropped", "single", "matched", "unmatched", "seconds"):
            setattr(self, counter, getattr(before, counter))

    @property
    def results(self) -> int:
        """Solutions since the start."""
        return int(self.store.meta[RESULTS]) - self.late_dropped

    @property
    def table_bytes(self) -> int:
        """Bytes of the tables, whose size is fixed."""
        beyond = self.config.policy.bytes_beyond(self.policy)
        return bytes_of(self.store, self.index, self.expiry, self.policy) - beyond

    def totals(self) -> dict[str, int]:
        """The counters since the start."""
        meta = self.store.meta
        return {
            "results": self.results,
            "triples": self.matched + self.unmatched,
            "matched": self.matched,
            "bindings": int(meta[ARRIVALS]),
            "evicted": int(meta[EVICTED]),
            "refused": int(meta[REFUSED]),
            "expired": int(meta[EXPIRED]),
            "buffered": int(meta[LIVE]),
            "peak_tuples": int(meta[PEAK_TUPLES]),
        }

    def check(self) -> None:
        """Assert every invariant of the store, the caches and the policy."""
        check_linked(self.store, self.index, self.plan.scheme)
        self.config.policy.check(self.policy, self.store)


def _joined(first: Triples, second: Triples) -> Triples:
    parts = {
        name: np.concatenate([getattr(first, name), getattr(second, name)])
        for name in ("terms", "start", "end", "stream", "row", "closes")
    }
    return Triples(**parts, scale=second.scale)


def _closers(triples: Triples, closes: np.ndarray, before: int) -> np.ndarray | None:
    """Per row, the row that closes it, or one behind all others; None if nothing is closed."""
    if not len(closes):
        return None
    by = np.full(len(triples), len(triples), np.int64)
    by[closes[closes >= 0]] = before + np.flatnonzero(closes >= 0)
    return by


def _closed(triples: Triples, before: int) -> np.ndarray:
    """Per arrival, the row of the fact that it closes: the last open one of the same triple; -1: none."""
    open_facts: dict[tuple[int, ...], list[int]] = {}
    closes = np.full(len(triples) - before, -1, np.int64)
    for row in np.flatnonzero(~np.isfinite(triples.end) | triples.closes).tolist():
        key = tuple(triples.terms[row].tolist())
        if triples.closes[row]:
            if row >= before and open_facts.get(key):
                closes[row - before] = open_facts[key].pop()
        elif triples.stream[row] >= 0:
            open_facts.setdefault(key, []).append(row)
    return closes
