"""A tree of joins in a fixed number of tuples, as its definition reads: lists, and every pair tried.

Everything that is cached is in one pool: triples, once for each shape of pattern that they match, and partial
solutions of every join but the last. Contexts are windows of one width around every pair of patterns.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from penstock.linked.language.nodes import Query, variables

from .linked import Triple, extended, holds
from .policies import Arrival, Clock, Fifo, Gdj, Lfu, Lru, Now, Policy, Pool, TimeWindow

KINDS: dict[str, Any] = {"fifo": Fifo, "lru": Lru, "lfu": Lfu, "gdj": Gdj, "clock": Clock}


def leaves(tree: Any) -> list[int]:
    return [tree] if isinstance(tree, int) else [*leaves(tree[0]), *leaves(tree[1])]


def joins(tree: Any) -> list[Any]:
    return [] if isinstance(tree, int) else [*joins(tree[0]), *joins(tree[1]), tree]


@dataclass
class Found:
    """A solution with the arrival at hand, whole or partial, and the cached tuples in it."""

    triples: dict[int, Triple]
    used: list[Arrival] = field(default_factory=list)


class Simulation:
    """The caches of a query, and what comes out of them."""

    def __init__(self, query: Query, tree: Any, width: int, budget: int, policy: str, gain: Any) -> None:
        self.query, self.tree, self.width, self.gain = query, tree, width, gain
        self.steps = joins(tree)
        self.pool, self.now = Pool(budget), Now(TimeWindow(0, 0))
        self.rules: Policy = KINDS[policy]()
        self.rules.prepare([], [self.pool])
        self.eager = policy == "lru"
        self.owed: dict[int, float] = {}
        self.solutions: Counter[tuple[int, ...]] = Counter()
        self.evicted = self.arrived = 0
        homes = query.homes | query.time_variables
        self.conditions = [
            (condition, {homes[name][0] for name in variables(condition) if name in homes})
            for condition in [*query.filters, query.context]
        ]

    def fits(self, triples: dict[int, Triple]) -> bool:
        """Whether triples go together, in their terms and by all conditions on what is bound here."""
        binding: Any = {}
        for pattern in sorted(triples):
            binding = extended(self.query, pattern, triples[pattern], binding)
            if binding is None:
                return False
        return all(
            holds(condition, binding)
            for condition, homes in self.conditions
            if homes <= set(triples) or (len(triples) == 1 and set(variables(condition)) <= set(binding))
        )

    def life(self, part: Any, triples: dict[int, Triple]) -> float:
        """The last time at which a partner may come: a window after the first of them."""
        return min(triple.start for triple in triples.values()) + self.width

    def cached(self, side: Any) -> list[tuple[Arrival, dict[int, Triple]]]:
        """The cached tuples of one side of a join, in order of arrival."""
        out = []
        for y in self.pool.members:
            part, triples = y.key
            if isinstance(side, int) and isinstance(part, frozenset) and side in part:
                out.append((y, {side: triples[0]}))
            elif part == side and not isinstance(part, frozenset):
                out.append((y, triples))
        return out

    def process(self, triple: Triple) -> None:
        self.now.time = triple.start
        for y in [y for y in self.pool.members if y.time < triple.start]:
            self.pool.members.remove(y)
            self.rules.gone(y, self.pool)
        new: dict[Any, list[Found]] = {
            i: [Found({i: triple})] if self.fits({i: triple}) else [] for i in leaves(self.tree)
        }
        gained: dict[int, tuple[Arrival, float]] = {}
        for step in self.steps:
            left, right = step
            new[step] = []
            for one in new[left]:
                self.meet(new[step], one, [(Found(t, []), [y]) for y, t in self.cached(right)])
                self.meet(new[step], one, [(other, []) for other in new[right]])
            for one in new[right]:
                self.meet(new[step], one, [(Found(t, []), [y]) for y, t in self.cached(left)])
            share = self.gain[0] if step == self.tree else self.gain[1]
            for found in new[step]:
                for y in found.used:
                    before = gained.get(y.number, (y, 0.0))[1]
                    gained[y.number] = y, max(before, share)
        for found in new[self.tree]:
            self.solutions[tuple(found.triples[i].number for i in sorted(found.triples))] += 1
        x = Arrival(0, triple.number, triple.start, None, number=self.arrived)
        for y, share in gained.values():
            owed = self.owed.get(y.number, 0.0) + share
            while owed >= 1.0 and not self.eager:
                owed -= 1.0
                self.rules.matched(x, [y], self.pool)
            if self.eager:
                self.rules.matched(x, [y], self.pool)
            self.owed[y.number] = owed
        shapes: dict[Any, list[int]] = {}
        for i, pattern in enumerate(self.query.patterns):
            shapes.setdefault(pattern.shape, []).append(i)
        for users in shapes.values():
            roles = [i for i in users if new[i]]
            if roles:
                self.admit(frozenset(roles), {0: triple}, triple)
        for step in self.steps[:-1]:
            for found in new[step]:
                self.admit(step, found.triples, triple)

    def meet(self, out: list[Found], one: Found, others: list[tuple[Found, list[Arrival]]]) -> None:
        for other, cached in others:
            both = one.triples | other.triples
            if self.fits(both):
                out.append(Found(both, [*one.used, *other.used, *cached]))

    def admit(self, part: Any, triples: dict[int, Triple], newest: Triple) -> None:
        x = Arrival(0, newest.number, self.life(part, triples), (part, triples), number=self.arrived)
        self.arrived += 1
        if x.time < newest.start:
            return
        if len(self.pool.members) >= self.pool.capacity:
            victim = self.rules.victim(x, self.pool, self.now)
            self.evicted += 1
            self.pool.members.remove(victim)
            self.rules.gone(victim, self.pool)
        self.rules.enter([x], self.pool)
        self.pool.members.append(x)
