"""The state of a stream query: processes batches of triples; can be snapshotted, restored and checked."""

from __future__ import annotations

import time as clock
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from penstock.compiler.tiers import expecting
from penstock.engine.policy_race import Choice
from penstock.engine.store import (
    ARRIVALS,
    EVICTED,
    EXPIRED,
    MATCHED,
    PEAK_TUPLES,
    REFUSED,
    RESULTS,
    STEPS,
)
from penstock.engine.triple_join import LinkedBatch
from penstock.joins.estimate import RecallEstimate, estimate_recall
from penstock.linked.run.caches import Findings, LinkedConfig, QueryCaches, exact_count_bytes
from penstock.linked.run.estimate import SolutionSample
from penstock.linked.run.follower import QueryFollower
from penstock.linked.run.operands import columns_of, masks_of
from penstock.linked.run.policy_switch import switched
from penstock.linked.run.results import Known, project, surviving
from penstock.linked.run.snapshot_checks import check_buffered_triples, check_caches
from penstock.linked.terms import Terms
from penstock.linked.triples import Triples

CHUNK = 1 << 16  # arrivals per call of the driver


@dataclass(frozen=True)
class LinkedOutput:
    """The output of a batch: the results per arrival and, if requested, the table of rows."""

    rows: pa.Table | None
    solutions: np.ndarray  # per result and pattern: the row in its stream
    counts: np.ndarray
    times: np.ndarray
    log: np.ndarray


class LinkedState:
    """The mutable state of a `StreamQuery`; `StreamQuery.start` makes one.

    Batches are given as `Triples` in processing order, coded with the terms of this state.
    """

    def __init__(self, config: LinkedConfig, terms: Terms | None = None) -> None:
        self.config, self.plan = config, config.plan()
        self.follower = QueryFollower(config, self.plan) if config.policy.chooses else None
        self.sample: SolutionSample | None = None  # none for a query of one pattern, which misses nothing
        if config.sample_tuples and self.plan.patterns > 1:
            self.sample = SolutionSample(config, self.plan, config.sample_tuples)
        self.bounded = False  # whether the sample missed what came before
        self.caches = QueryCaches(config, self.plan, None if self.follower is None else self.follower.policy)
        self.terms = Terms() if terms is None else terms
        self.buffered: Triples | None = None  # what cached tuples refer to
        self.buffered_mask = np.empty(0, np.int64)
        self.seconds = 0.0
        self.late_dropped = 0
        self.single = 0  # results of a query of one pattern
        self.matched = self.unmatched = 0

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
        if self.buffered is not None and len(self.buffered):
            before = len(self.buffered)
            triples, mask = _joined(self.buffered, triples), np.concatenate([self.buffered_mask, mask])
        else:
            before = 0
        arrivals = np.arange(before, len(triples), dtype=np.int64)
        if self.plan.patterns == 1:
            return self._single(triples, arrivals, collect, began)
        columns, conditions = columns_of(self.plan, triples, mask, self.terms)
        closes = _closed(triples, before) if triples.closes.any() else np.empty(0, np.int64)
        batch = LinkedBatch(columns, conditions, arrivals, closes, np.empty(0, bool))
        beside = [] if self.follower is None else self.follower.open(triples, batch)
        shadow = None if self.sample is None else self.sample.open(triples, batch)
        findings = self._find(batch, beside, collect or bool(self.plan.late), log)
        found = findings.solutions
        known = Known(triples, columns.end, _closers(triples, closes, before))
        if self.sample is not None and shadow is not None:
            self.sample.observe(triples, shadow, known, self.terms)
        triples = Triples(**(vars(triples) | {"end": columns.end}))
        solutions, table = found, None
        if collect or self.plan.late:
            fine = surviving(self.plan, known, found, self.terms)
            self.late_dropped += len(found) - int(np.count_nonzero(fine))
            solutions = found if fine.all() else found[fine]
        self.seconds += clock.perf_counter() - began
        if collect:
            table = project(self.plan, known, solutions, self.terms)
        self.buffered, self.buffered_mask = triples, mask
        rows = triples.row[solutions] if len(solutions) else np.empty((0, self.plan.patterns), np.int64)
        return LinkedOutput(table, rows, findings.out.counts, triples.start[arrivals], findings.log)

    def _single(self, triples: Triples, arrivals: np.ndarray, collect: bool, began: float) -> LinkedOutput:
        """A query of one pattern needs no cache: each triple that matches is a result."""
        solutions = arrivals[~triples.closes[arrivals]][max(0, self.config.warmup - self.single) :, None]
        self.single += len(arrivals)
        known = Known(triples, triples.end, None)
        solutions = solutions[surviving(self.plan, known, solutions, self.terms)]
        self.caches.store.meta[RESULTS] += len(solutions)
        self.seconds += clock.perf_counter() - began
        table = project(self.plan, known, solutions, self.terms) if collect else None
        ones = np.ones(len(arrivals), np.int64)
        return LinkedOutput(
            table, triples.row[solutions], ones, triples.start[arrivals], np.empty((0, 4), np.int64)
        )

    def _find(self, batch: LinkedBatch, beside: list[LinkedBatch], collect: bool, log: bool) -> Findings:
        with expecting(len(batch.arrivals)):
            return self._drive(batch, beside, collect, log)

    def _drive(self, batch: LinkedBatch, beside: list[LinkedBatch], collect: bool, log: bool) -> Findings:
        """Run the kernel over the arrivals; between two stretches another policy may take over.

        `beside` is the batch as small caches see it, where a policy is followed.
        """
        patterns, n = self.plan.patterns, len(batch.arrivals)
        entries = self.caches.buffered + 4 * (n + patterns) if log else 0
        findings, done = Findings(patterns, n, collect, entries), 0
        while True:
            chunk = CHUNK if self.follower is None else min(CHUNK, self.follower.race.left)
            start, done = done, min(n, done + chunk)
            self.caches.run(batch, findings, start, done)
            if self.follower is not None:
                total = int(self.caches.store.meta[MATCHED])
                leader = self.follower.attend(beside, start, done, total)
                if leader is not None:
                    self.follower.change(leader)
                    self.caches = switched(self.caches, leader, batch.columns)
            if done == n:
                return findings

    def warm(self) -> LinkedState:
        """Load or compile the kernels by processing an empty batch."""
        nothing = Triples.none(self.config.scale)
        self.process(nothing, collect=False)
        if self.follower is not None and self.plan.patterns > 1:
            mask = np.empty(0, np.int64)
            columns, conditions = columns_of(self.plan, nothing, mask, self.terms)
            self.follower.warm(LinkedBatch(columns, conditions, mask, mask, np.empty(0, bool)))
        self.seconds = 0.0
        return self

    def compact(self) -> None:
        """Keep only the rows, and the terms, that cached tuples refer to."""
        if self.buffered is None:
            return
        small = self._beside
        rows = np.unique(np.concatenate([each.rows() for each in (self.caches, *small)]))
        places = np.zeros(len(self.buffered) + 1, np.int64)
        places[rows] = np.arange(len(rows))
        kept, self.buffered_mask = self.buffered.take(rows), self.buffered_mask[rows]
        self.terms, moved = self.terms.kept(kept.terms)
        kept = self.buffered = Triples(**(vars(kept) | {"terms": moved[kept.terms]}))
        columns, _ = columns_of(self.plan, kept, self.buffered_mask, self.terms)
        for each in (self.caches, *small):
            each.move(places, columns)

    @property
    def _beside(self) -> list[QueryCaches]:
        """The caches beside those of the query: small ones of a policy that chooses, and of the sample."""
        small = [] if self.follower is None else self.follower.small or []
        return small if self.sample is None else [*small, self.sample.caches]

    def recall(self, late: int = 0) -> RecallEstimate:
        """The estimated share of the exact solutions that was found; `late` triples were dropped before."""
        if self.plan.patterns == 1:
            return estimate_recall(self.results, 0.0, late, self.matched + late)
        if self.sample is None:
            return RecallEstimate(None)
        found = self.sample.recall(self.results, self.matched, late)
        return replace(found, at_most=found.at_most or (self.bounded and found.value is not None))

    @property
    def missed(self) -> float | None:
        """Estimated number of solutions that the exact query has in addition; None if unknown."""
        if self.plan.patterns == 1:
            return 0.0
        return None if self.sample is None else self.sample.exact - self.results

    def count_on_from(self, before: LinkedState) -> None:
        """Continue the counters of another state that this one replaces."""
        mine, old = self.caches.store.meta, before.caches.store.meta
        mine[EVICTED] += old[EVICTED]
        mine[[RESULTS, EXPIRED, REFUSED, STEPS]] = old[[RESULTS, EXPIRED, REFUSED, STEPS]]
        for name in (ARRIVALS, PEAK_TUPLES):
            mine[name] = max(mine[name], old[name])
        self.caches.store.random[:] = before.caches.store.random
        for counter in ("late_dropped", "single", "matched", "unmatched", "seconds"):
            setattr(self, counter, getattr(before, counter))
        self.bounded = True
        if self.sample is not None and before.sample is not None:
            for counter in ("exact", "variance", "unestimated"):
                setattr(self.sample, counter, getattr(before.sample, counter))
        elif self.sample is not None:
            self.sample.exact = float(self.results)

    @property
    def results(self) -> int:
        """Solutions since the start."""
        return int(self.caches.store.meta[RESULTS]) - self.late_dropped

    @property
    def choice(self) -> Choice | None:
        """Which policy runs and what the others are estimated to achieve, where a policy is followed."""
        return None if self.follower is None else self.follower.choice()

    @property
    def table_bytes(self) -> int:
        """Bytes of the tables, whose size is fixed, and of the small caches of a policy that chooses."""
        beside = [each for each in (self.follower, self.sample) if each is not None]
        return self.caches.bytes + sum(each.bytes for each in beside)

    @property
    def count_bytes(self) -> int:
        """Bytes of exact counts of keys, which grow."""
        return exact_count_bytes(self.caches.index) if self.config.tallies else 0

    def totals(self) -> dict[str, int]:
        """The counters since the start."""
        meta = self.caches.store.meta
        return {
            "results": self.results,
            "triples": self.matched + self.unmatched,
            "matched": self.matched,
            "bindings": int(meta[ARRIVALS]),
            "evicted": int(meta[EVICTED]),
            "refused": int(meta[REFUSED]),
            "expired": int(meta[EXPIRED]),
            "buffered": self.caches.buffered,
            "peak_tuples": int(meta[PEAK_TUPLES]),
        }

    def check_restored(self) -> None:
        """Reject arrays that would crash the kernels."""
        rows, columns = 0 if self.buffered is None else len(self.buffered), None
        if self.buffered is not None:
            check_buffered_triples(self.buffered, self.buffered_mask, self.terms, self.plan.patterns)
            columns, _ = columns_of(self.plan, self.buffered, self.buffered_mask, self.terms)
        running = None if self.follower is None else self.follower.policy
        check_caches(self.caches, self.config.build(self.plan, running), rows, columns)
        for each in self._beside:
            mine = each.running if self.sample is not None and each is self.sample.caches else None
            check_caches(each, each.config.build(self.plan, mine), rows, columns)

    def check(self) -> None:
        """Assert every invariant of the store, the caches and the policy."""
        for caches in (self.caches, *self._beside):
            caches.check()


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
