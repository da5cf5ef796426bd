"""Estimate the solutions that a query missed: caches that keep a sample of the triples, and evict nothing.

Every triple asks these caches, but only those of the sample are let in, and what they make with others. A
solution is found if all of its triples that had to wait for others are of the sample. So it counts as often
as there are solutions like it: 2 to the number of such triples, if half of the triples are in the sample.
When room runs out, the sample is halved. Background triples are in it always.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from penstock.compiler.tiers import expecting
from penstock.engine.conditions import Columns
from penstock.engine.key_sample import sampled
from penstock.engine.store import EVICTED, EXPIRED
from penstock.engine.triple_join import LinkedBatch
from penstock.engine.triple_switch import reenter_triples
from penstock.joins.estimate import RecallEstimate, estimate_recall
from penstock.joins.policy_switch import OF_THE_STORE
from penstock.linked.plan.plan import QueryPlan
from penstock.linked.plan.tree import Tree, leaves
from penstock.linked.run.caches import Findings, LinkedConfig, QueryCaches
from penstock.linked.run.follower import row_bytes
from penstock.linked.run.policy_switch import carried_tuples
from penstock.linked.run.results import Known, surviving
from penstock.linked.terms import Terms
from penstock.linked.triples import Triples
from penstock.policies import get

LEAST = 512  # tuples of the sample, for a budget in tuples
PART = 4  # or this part of the budget
MOST_HALVINGS = 40


class SolutionSample:
    """The caches of the sample, and what they say the query should have found."""

    def __init__(self, config: LinkedConfig, plan: QueryPlan, tuples: int) -> None:
        self.config = dataclasses.replace(config, policy=get("fifo"), limits=(tuples,), warmup=0)
        self.plan, self.halvings = plan, 0
        self.caches = self._fresh()
        self.exact = self.variance = 0.0
        self.unestimated = 0  # triples that may have made more: they came when the sample did not know enough

    def _fresh(self) -> QueryCaches:
        return QueryCaches(self.config, self.plan, self.config.policy)

    def open(self, triples: Triples, batch: LinkedBatch) -> LinkedBatch:
        """A batch as the sample sees it; facts are closed in its own time."""
        columns = batch.columns
        if len(batch.closes):
            columns = columns._replace(end=columns.end.copy())
        return batch._replace(columns=columns, kept=self._inside(triples)[batch.arrivals])

    def _inside(self, triples: Triples) -> np.ndarray:
        return sampled(triples.row * 64 + triples.stream, self.halvings) | (triples.stream < 0)

    def observe(self, triples: Triples, batch: LinkedBatch, known: Known, terms: Terms) -> None:
        """Process the arrivals of a batch, as the query has done, and count what it should have found."""
        done, arrivals, limit = 0, len(batch.arrivals), self.config.limits[0]
        inside = self._inside(triples)
        roles = max(1, len(self.plan.scheme.degree))
        while done < arrivals:
            while self._room(limit) < limit // 4 and self.halvings < MOST_HALVINGS:
                self._halve(triples, batch.columns)
                inside = self._inside(triples)
            # Not all roles are taken, and what is too much is noticed.
            stop = min(arrivals, done + max(16, self._room(limit) * 2**self.halvings // roles))
            evicted = self._evicted
            self._run(triples, batch, inside, slice(done, stop), known, terms)
            if self._evicted > evicted:
                self.unestimated += stop - done
            done = stop

    def _room(self, limit: int) -> int:
        return limit - self.caches.buffered

    @property
    def _evicted(self) -> int:
        return int(self.caches.store.meta[EVICTED])

    def _run(
        self,
        triples: Triples,
        batch: LinkedBatch,
        inside: np.ndarray,
        which: slice,
        known: Known,
        terms: Terms,
    ) -> None:
        arrivals = batch.arrivals[which]
        closes = batch.closes[which] if len(batch.closes) else batch.closes
        part = batch._replace(arrivals=arrivals, closes=closes, kept=inside[arrivals])
        collect = self.halvings > 0 or bool(self.plan.late)
        findings = Findings(self.plan.patterns, len(arrivals), collect)
        with expecting(len(arrivals)):
            self.caches.run(part, findings, 0, len(arrivals))
        if not collect:
            self.exact += float(findings.out.counts.sum())
            return
        found = findings.solutions
        if self.plan.late and len(found):
            found = found[surviving(self.plan, known, found, terms)]
        if not len(found):
            return
        waited = waiting(self.plan.tree, found)
        waited[triples.stream[waited] < 0] = -1
        weight = 2.0 ** (self.halvings * _distinct(waited))
        self.exact += float(weight.sum())
        if self.halvings:
            for place in range(self.plan.patterns):  # the solutions of a triple come and go with it
                some = waited[:, place] >= 0
                _, owner = np.unique(waited[some, place], return_inverse=True)
                of_triple = np.bincount(owner.ravel(), weight[some])
                self.variance += float((of_triple**2).sum()) * (1 - 0.5**self.halvings)

    def _halve(self, triples: Triples, columns: Columns) -> None:
        """Keep the half of the sample, and the partial solutions that it makes."""
        self.halvings += 1
        before, carried = self.caches, carried_tuples(self.caches)
        inside, singles = self._inside(triples), len(self.plan.caches)
        kept = inside[carried.row]
        for number, step in enumerate(self.plan.steps):
            mine = np.flatnonzero(carried.cache == singles + number)
            if len(mine):
                waited = waiting(step.sides, carried.members[mine], alone=True)
                kept[mine] = (inside[waited] | (waited < 0)).all(axis=1)
        few = {name: part[kept] if len(part) else part for name, part in carried._asdict().items()}
        carried = carried._replace(**few)
        after = self._fresh()
        store, old = after.store, before.store
        own = store.meta[OF_THE_STORE].copy()
        store.meta[:] = old.meta
        store.meta[OF_THE_STORE] = own
        store.meta[EXPIRED] += np.count_nonzero(~kept)  # in the accounts
        store.clock[:] = old.clock
        n = len(carried.row)
        with expecting(n, apart=True):
            reenter_triples(
                after.policy,
                store,
                after.index,
                after.expiry,
                after.plan.scheme,
                columns,
                carried,
                np.arange(n),
            )
        self.caches = after

    def recall(self, results: int, arrived: int, late: int = 0) -> RecallEstimate:
        """The estimated share of the solutions that were found.

        The guess is that triples that came too late would have made as many solutions as the others.
        """
        return estimate_recall(
            results,
            self.exact - results,
            self.unestimated + late,
            arrived,
            guessed=self.guessed(late, arrived),
            variance=self.variance,
        )

    def guessed(self, late: int, arrived: int) -> float:
        """How many solutions late triples would have made, if they are like those that arrived."""
        return late * self.plan.patterns * self.exact / arrived if arrived else 0.0

    @property
    def bytes(self) -> int:
        """What it takes, with the triples it refers to."""
        return self.caches.bytes + int(self.config.limits[0] * row_bytes(self.plan))

    @property
    def parts(self) -> tuple[Any, ...]:
        """What makes it up, to be stored."""
        counters = (self.halvings, self.exact, self.variance, self.unestimated)
        return self.config, counters, self.caches.parts

    @parts.setter
    def parts(self, stored: tuple[Any, ...]) -> None:
        self.config, counters, parts = stored
        self.halvings, self.exact, self.variance, self.unestimated = counters
        self.caches = self._fresh()
        self.caches.parts = parts


def waiting(tree: Tree, rows: np.ndarray, alone: bool = False) -> np.ndarray:
    """Per solution and pattern, the triple if it had to wait in a cache of single triples; else -1.

    `rows` has the row of each pattern, in order of arrival. `alone` says that the solutions are partial ones,
    in a cache themselves: one that a triple makes with itself alone is there if that triple is.

    >>> import numpy as np
    >>> from penstock.linked.run.estimate import waiting
    >>> waiting(((0, 1), 2), np.array([[3, 5, 7], [3, 5, 4], [6, 6, 6]])).tolist()
    [[3, -1, -1], [3, -1, 4], [-1, -1, -1]]
    """
    waited = np.full(rows.shape, -1, np.int64)
    end = _wait(tree, rows, waited)
    if alone:
        _alone(tree, waited, end, np.ones(len(rows), bool))
    return waited


def _wait(tree: Tree, rows: np.ndarray, waited: np.ndarray) -> np.ndarray:
    """Note which triples had to wait; when each solution of a part of the tree was complete."""
    if isinstance(tree, int):
        return rows[:, tree]
    ends = [_wait(side, rows, waited) for side in tree]
    for side, mine, other in zip(tree, ends, reversed(ends), strict=True):
        first = mine < other
        if isinstance(side, int):
            waited[first, side] = mine[first]
        else:
            _alone(side, waited, mine, first)
    return np.maximum(*ends)


def _alone(tree: Tree, waited: np.ndarray, end: np.ndarray, which: np.ndarray) -> None:
    """A partial solution that one triple makes alone waits in the name of this triple."""
    members = leaves(tree)
    bare = which & (waited[:, members] < 0).all(axis=1)
    waited[bare, members[0]] = end[bare]


def _distinct(rows: np.ndarray) -> np.ndarray:
    """How many different rows there are in each line, -1 apart."""
    ordered = np.sort(rows, axis=1)
    fresh = np.ones(ordered.shape, bool)
    fresh[:, 1:] = ordered[:, 1:] != ordered[:, :-1]
    return np.count_nonzero(fresh & (ordered >= 0), axis=1)
