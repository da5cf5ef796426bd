"""What both caches share: computing a sub-query so that its results can be kept, and binding kept ones.

Sub-queries go by their form, so that equal ones share what is kept, whether in one pattern or in several.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from penstock.patterns.compile.analysis import EVENT, Node
from penstock.patterns.compile.forms import Form, part_form
from penstock.patterns.language.span import first_within
from penstock.patterns.published.cache_pool import RESULT_BYTES, SLOT_BYTES, CachePool
from penstock.patterns.published.iterative import Ends, Iterative
from penstock.policies import Policy

UNBOUND = "unbound"  # a key's value that is not known: the predicate is tested later


class Result(NamedTuple):
    """A match of a sub-query."""

    start: int
    end: int
    positions: tuple[int, ...]  # of its slots, -1 where a branch is not there
    branches: tuple[int, ...]  # of its ORs, -1 where one is not there


def bytes_of(results: list[Result]) -> int:
    """What the kept results of one sub-query take."""
    if not results:
        return 0
    slots = len(results[0].positions) + len(results[0].branches)
    return len(results) * (RESULT_BYTES + SLOT_BYTES * slots)


class SubqueryCaches:
    """What is kept of the sub-queries of all patterns of a stream, and under which numbers."""

    def __init__(self, budget: int | None, policy: Policy, seed: int = 0) -> None:
        self.pool = CachePool(budget, policy, seed)
        self.forms: dict[Form, int] = {}
        self.shared = 0  # answers with what was kept for another pattern

    def number(self, form: Form) -> int:
        """The number of a form."""
        return self.forms.setdefault(form, len(self.forms))

    def figures(self) -> dict[str, int]:
        """Hits, recomputations, bytes."""
        return self.pool.figures() | {"shared": self.shared}

    def purge(self, base: int) -> None:
        """Forget what is behind the window."""
        raise NotImplementedError

    def contents(self, evaluations: list[Any]) -> list[Any]:
        """What is kept now, in words and times."""
        raise NotImplementedError


class CachedPart(NamedTuple):
    """A nested part, as its cache needs to know it."""

    number: int  # of its form
    slots: tuple[int, ...]
    ors: tuple[int, ...]
    keys: list[tuple[int, int, list[Any]]]  # predicate, outer slot and its column, of correlated equalities
    crossing: list[Any]
    ignored: frozenset[int]


class Caching(Iterative):
    """An evaluation whose sub-queries are answered from a cache."""

    caches: Any

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.caches = arguments[-1]
        self.pool: CachePool = self.caches.pool
        every = range(len(self.analysis.negations))
        self.kept = [self.layout.keepable(g) and not self._two_sided(g) for g in every]
        self.outside = [self.layout.references(g) for g in every]
        late = frozenset().union(*self.layout.late.values())
        self.parts: dict[int, CachedPart] = {}  # by the identity of the node
        for node, number in self.layout.nodes():
            if node.kind != EVENT:
                self.parts[id(node)] = self._part(node, number, late)

    def _part(self, node: Node, number: int, late: frozenset[int]) -> CachedPart:
        scope, slots = self.layout.scope_of[id(node)], tuple(node.slots())
        keys = []
        for predicate in self.layout.keys[number]:
            outer = next(side for side in predicate.sides if side.slot not in slots)
            keys.append((predicate.number, outer.slot, self.columns[outer.attr]))
        negated = any(node is each for each in self.analysis.negations)
        form = (self.span.events, str(self.span), negated, part_form(self.analysis, node, scope, late))
        return CachedPart(
            self.caches.number(form),
            slots,
            tuple(self._ors(node)),
            keys,
            self.layout.crossing[number],
            self.layout.ignored.get(number, frozenset()),
        )

    def _two_sided(self, negation: int) -> bool:
        """Whether both ends of a negation's interval may be handed down, so that it may exceed the window."""
        scope = self.analysis.scopes[negation][:-1]
        return negation in self.layout.late[scope] and self.layout.parents[negation].kind == "AND"

    # Keys.

    def _name(self, part: CachedPart) -> tuple[Any, ...] | None:
        """Number and values of correlated equality predicates; None if one is null, so nothing matches."""
        if not part.keys:
            return (part.number,)
        name: list[Any] = [part.number]
        for predicate, slot, column in part.keys:
            position = self.env[slot]
            if position < 0 or predicate in self.ignored:
                name.append(UNBOUND)
                continue
            value = column[position - self.base]
            if value is None:
                return None
            name.append((value,))
        return tuple(name)

    def _negation_name(self, negation: int, node: Node) -> tuple[Any, ...]:
        sides, choices = self.outside[negation]
        name: list[Any] = [self.parts[id(node)].number]
        if not sides and not choices:
            return (name[0],)
        for side in sides:
            position = self.env[side.slot]
            name.append(UNBOUND if position < 0 else (self.columns[side.attr][position - self.base],))
        return (*name, *(self.branch.get(which, -1) for which in choices))

    # Results.

    def compute(self, node: Node, low: int, high: int, since: int, negated: bool = False) -> list[Result]:
        """Evaluate a sub-query as if nothing around it were bound but what its key says."""
        part, env, axis, base = self.parts[id(node)], self.env, self.axis, self.base
        slots, ors = part.slots, part.ors
        if base <= since < base + len(axis):  # what ends from there on begins within a window of it
            low = max(low, base - 1 + first_within(axis, axis[since - base], self.width))
        used, self.used = self.used, set()
        ignored, self.ignored = self.ignored, self.ignored | part.ignored
        counting, self.counting = self.counting, False
        found = []
        for start, end in self._solve(node, low, high, since):
            if axis[end - base] - axis[start - base] > self.width:
                continue
            branches = tuple([self.branch.get(which, -1) for which in ors]) if ors else ()
            found.append(Result(start, end, tuple([env[slot] for slot in slots]), branches))
            if negated:
                break
        if negated and found:
            self._unbind(node)
        self.used, self.ignored, self.counting = used, ignored, counting
        return found

    def bound(self, node: Node, results: list[Result]) -> Iterator[Ends]:
        """Bind each of the cached results that fits what is bound around it."""
        part, env, used = self.parts[id(node)], self.env, self.used
        slots, ors, crossing = part.slots, part.ors, part.crossing
        for result in results:
            positions = [position for position in result.positions if position >= 0]
            if not used.isdisjoint(positions):
                continue
            for slot, position in zip(slots, result.positions, strict=True):
                env[slot] = position
            taken = [
                (which, branch) for which, branch in zip(ors, result.branches, strict=True) if branch >= 0
            ]
            self.branch.update(taken)
            if not crossing or all(self._true(p) for p in crossing):
                used.update(positions)
                yield result.start, result.end
                used.difference_update(positions)
            for slot in slots:
                env[slot] = -1
            for which, _ in taken:
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


def labels(evaluations: list[Caching]) -> dict[int, tuple[Caching, Node]]:
    """Per number of a form a pattern that has such a part, and the part."""
    found: dict[int, tuple[Caching, Node]] = {}
    for each in evaluations:
        for node, _ in each.layout.nodes():
            if node.kind != EVENT:
                found.setdefault(each.parts[id(node)].number, (each, node))
    return found
