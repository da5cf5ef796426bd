"""What both caches share: computing a sub-query so that its results can be kept, and binding kept ones."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from penstock.patterns.analysis import EVENT, Analysis, Node
from penstock.patterns.cache_pool import CachePool
from penstock.patterns.iterative import Ends, Iterative
from penstock.patterns.span import Span
from penstock.policies import Policy

UNBOUND = "unbound"  # a key's value that is not known: the predicate is tested later


class Result(NamedTuple):
    """A match of a sub-query."""

    start: int
    end: int
    positions: tuple[int, ...]  # of its slots, -1 where a branch is not there
    branches: tuple[tuple[int, int], ...]


class Caching(Iterative):
    """An evaluation whose sub-queries are answered from a cache."""

    def __init__(
        self, analysis: Analysis, span: Span, budget: int | None, policy: Policy, seed: int = 0
    ) -> None:
        super().__init__(analysis, span)
        self.pool = CachePool(budget, policy, seed)
        self.slots: dict[int, tuple[int, ...]] = {}
        every = range(len(analysis.negations))
        self.kept = [self.layout.keepable(g) and not self._two_sided(g) for g in every]
        self.outside = [self.layout.references(g) for g in every]

    def _two_sided(self, negation: int) -> bool:
        """Whether both ends of a negation's interval may be handed down, so that it may exceed the window."""
        scope = self.analysis.scopes[negation][:-1]
        return negation in self.layout.late[scope] and self.layout.parents[negation].kind == "AND"

    def figures(self) -> dict[str, int]:
        """Hits, recomputations, bytes."""
        return self.pool.figures()

    # Keys.

    def _key(self, part: Node) -> tuple[Any, ...] | None:
        """The values of correlated equality predicates; None if one is null, so that nothing matches."""
        key: list[Any] = []
        inside = self._slots(part)
        for predicate in self.layout.keys[self.layout.number[id(part)]]:
            outer = next(side for side in predicate.sides if side.slot not in inside)
            position = self.env[outer.slot]
            if position < 0 or predicate.number in self.ignored:
                key.append(UNBOUND)
                continue
            value = self.columns[outer.attr][position - self.base]
            if value is None:
                return None
            key.append((value,))
        return tuple(key)

    def _negation_key(self, negation: int) -> tuple[Any, ...]:
        sides, choices = self.outside[negation]
        key: list[Any] = []
        for side in sides:
            position = self.env[side.slot]
            key.append(UNBOUND if position < 0 else (self.columns[side.attr][position - self.base],))
        return (*key, *(self.branch.get(which, -1) for which in choices))

    def _slots(self, part: Node) -> tuple[int, ...]:
        number = self.layout.number[id(part)]
        if number not in self.slots:
            self.slots[number] = tuple(part.slots())
        return self.slots[number]

    # Results.

    def compute(self, part: Node, low: int, high: int, since: int, negated: bool = False) -> Iterator[Result]:
        """Evaluate a sub-query as if nothing around it were bound but what its key says."""
        number = self.layout.number[id(part)]
        slots, env = self._slots(part), self.env
        ors = list(self._ors(part))
        used, self.used = self.used, set()
        ignored, self.ignored = self.ignored, self.ignored | self.layout.ignored.get(number, frozenset())
        counting, self.counting = self.counting, False
        found = []
        for start, end in self._solve(part, low, high, since):
            if self.axis[end - self.base] - self.axis[start - self.base] > self.width:
                continue
            branches = tuple((which, self.branch[which]) for which in ors if which in self.branch)
            found.append(Result(start, end, tuple(env[slot] for slot in slots), branches))
            if negated:
                break
        if negated and found:
            self._unbind(part)
        self.used, self.ignored, self.counting = used, ignored, counting
        return iter(found)

    def bound(self, part: Node, results: Iterator[Result]) -> Iterator[Ends]:
        """Bind each of the kept results that goes with what is bound around it."""
        slots, env, used = self._slots(part), self.env, self.used
        crossing = self.layout.crossing[self.layout.number[id(part)]]
        for result in results:
            positions = [position for position in result.positions if position >= 0]
            if not used.isdisjoint(positions):
                continue
            for slot, position in zip(slots, result.positions, strict=True):
                env[slot] = position
            for which, branch in result.branches:
                self.branch[which] = branch
            if not crossing or all(self._true(p) for p in crossing):
                used.update(positions)
                yield result.start, result.end
                used.difference_update(positions)
            for slot in slots:
                env[slot] = -1
            for which, _ in result.branches:
                self.branch.pop(which, None)

    def absent(self, negation: int, low: int, high: int) -> bool:
        """From the cache where the part is nested and depends on nothing but interval and key."""
        if high - low < 2:
            return True
        node = self.analysis.negations[negation]
        if node.kind == EVENT or not self.kept[negation]:
            if node.kind != EVENT:
                self.pool.computed += 1
            return super().absent(negation, low, high)
        if not all(self._true(p) for p in self.layout.guards[self.analysis.scopes[negation]]):
            return True
        return self.free(negation, node, low, high)

    def free(self, negation: int, node: Node, low: int, high: int) -> bool:
        """Whether a negated sub-query has no result in an interval."""
        return super().absent(negation, low, high)

    def time_of(self, position: int) -> Any:
        """The time (or number) of an event in memory, or just beyond it."""
        at = min(max(position - self.base, 0), len(self.axis) - 1)
        return self.axis[at]
