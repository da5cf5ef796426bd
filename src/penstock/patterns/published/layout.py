"""What the published strategies need to know of a pattern before the first event comes.

A nested part is a *sub-query*. Its results may be kept for later if they depend on nothing but the interval
in which they are looked for, and on values that can be made part of a key. A negation inside a sub-query that
depends on more (on the interval handed down, or on events around the sub-query) is *late*: it is tested when
the whole match, or the whole negated part it stands in, is there.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from penstock.patterns.compile.analysis import EVENT, Analysis, Node, Predicate, PredicateSide


class Layout:
    """Per part: how it is filled, which predicates reach out of it, what may be kept."""

    def __init__(self, analysis: Analysis) -> None:
        self.analysis = analysis
        slots = analysis.slots
        self.checks: list[list[Predicate]] = [[] for _ in slots]  # tested when the slot is bound
        self.local: list[list[Predicate]] = [[] for _ in slots]  # about the event alone
        self.guards: dict[tuple[int, ...], list[Predicate]] = defaultdict(list)
        self.chosen: dict[tuple[int, int], list[Predicate]] = defaultdict(list)  # tested on choosing a branch
        for predicate in analysis.predicates:
            own = [slot for slot in predicate.slots if slots[slot].scope == predicate.scope]
            if not own:
                self.guards[predicate.scope].append(predicate)
            for slot in own:
                alone = predicate.local and set(predicate.branches) <= set(slots[slot].branches)
                (self.local if alone else self.checks)[slot].append(predicate)
            for branch in predicate.branches:
                self.chosen[branch].append(predicate)
        self.late: dict[tuple[int, ...], set[int]] = defaultdict(set)
        self.parents: dict[int, Node] = {}
        self.chained: dict[int, bool] = {}  # per negation: only SEQ and OR around it, up to its scope
        self.number: dict[int, int] = {}  # of nodes, by identity
        self.scope_of: dict[int, tuple[int, ...]] = {}
        self._walk(analysis.root, (), True)
        self.crossing = {
            number: list(self._crossing(node)) for node, number in self.nodes() if node.kind != EVENT
        }
        self.keys = {
            number: [p for p in found if p.op == "=" and not p.branches and len(p.slots) == 2]
            for number, found in self.crossing.items()
        }
        self.ignored = {
            number: frozenset(p.number for p in found) - {p.number for p in self.keys[number]}
            for number, found in self.crossing.items()
        }
        for negated in analysis.negations:  # their keys have all that they refer to
            self.ignored[self.number[id(negated)]] = frozenset()

    def nodes(self) -> Iterator[tuple[Node, int]]:
        """All parts with their numbers."""

        def below(node: Node) -> Iterator[Node]:
            yield node
            for child in node.children:
                yield from below(child.node)

        return ((node, self.number[id(node)]) for node in below(self.analysis.root))

    def _walk(self, node: Node, scope: tuple[int, ...], chained: bool) -> None:
        self.number[id(node)] = len(self.number)
        self.scope_of[id(node)] = scope
        for i, child in enumerate(node.children):
            alone = chained and (node.kind != "AND" or len(node.positives) == 1)
            if child.negation is None:
                self._walk(child.node, scope, alone)
                continue
            self.parents[child.negation] = node
            self.chained[child.negation] = alone and not scope
            self._walk(child.node, (*scope, child.negation), True)
            if not self._closed(node, i, child.negation, scope):
                self.late[scope].add(child.negation)

    def _closed(self, node: Node, index: int, negation: int, scope: tuple[int, ...]) -> bool:
        """Whether all that a negation depends on is below the node that it is a component of."""
        between = [child.negation is None for child in node.children]
        if node.kind != "SEQ" or not any(between[:index]) or not any(between[index + 1 :]):
            return False
        inside = set(node.every_slot())
        ors = set(_ors(node))
        chain = (*scope, negation)
        for predicate in self.within(chain):
            if not predicate.slots <= inside or any(which not in ors for which, _ in predicate.branches):
                return False
        slots = self.analysis.slots
        types = {slots[slot].type for slot in self.analysis.negations[negation].every_slot()}
        around = [s for s in slots if s.number not in inside and scope[: len(s.scope)] == s.scope]
        return not any(slot.type in types for slot in around)

    def within(self, chain: tuple[int, ...]) -> list[Predicate]:
        """The predicates of a negation and of those inside of it."""
        return [p for p in self.analysis.predicates if p.scope[: len(chain)] == chain]

    def _crossing(self, node: Node) -> Iterator[Predicate]:
        """Predicates of a part's own scope that need more than the part to be decided."""
        inside, ors = set(node.slots()), set(_ors(node))
        scope = self.scope_of[id(node)]
        for predicate in self.analysis.predicates:
            touches = predicate.slots & inside or any(which in ors for which, _ in predicate.branches)
            if predicate.scope != scope or not touches:
                continue
            if not predicate.slots <= inside or any(which not in ors for which, _ in predicate.branches):
                yield predicate

    def references(self, negation: int) -> tuple[list[PredicateSide], list[int]]:
        """Attributes outside, and ORs outside, on which the existence of a negated part depends."""
        node = self.analysis.negations[negation]
        inside, ors = set(node.every_slot()), set(_ors(node))
        predicates = self.within(self.analysis.scopes[negation])
        sides = [side for p in predicates for side in p.sides if side.slot not in inside]
        choices = sorted({which for p in predicates for which, _ in p.branches if which not in ors})
        return sides, choices

    def keepable(self, negation: int) -> bool:
        """Whether the existence of a negated part depends on an interval and a key alone."""
        scope = self.analysis.scopes[negation]
        if any(late for chain, late in self.late.items() if chain[: len(scope)] == scope):
            return False
        node, slots = self.analysis.negations[negation], self.analysis.slots
        if self.chained[negation]:
            return True
        types = {slots[slot].type for slot in node.every_slot()}
        inside = set(node.every_slot())
        return not any(
            slot.type in types
            for slot in slots
            if slot.number not in inside and scope[: len(slot.scope)] == slot.scope
        )


def _ors(node: Node) -> Iterator[int]:
    if node.kind == "OR":
        yield node.branch_of
    for child in node.children:
        yield from _ors(child.node)
