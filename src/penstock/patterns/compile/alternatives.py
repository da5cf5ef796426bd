"""Expand a pattern into alternatives without OR: one per choice of branches, in which all slots are filled.

An alternative has no nesting: it consists of slots, their partial order and, for each negation, the slots
between which it is searched. An empty side stands for the inherited interval.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product

from penstock.errors import PatternError
from penstock.patterns.compile.analysis import EVENT, Analysis, Node, Predicate

MOST = 4_096


@dataclass(frozen=True)
class Absence:
    """A negation, and the slots after and before which it is searched."""

    negation: int
    left: frozenset[int] = frozenset()
    right: frozenset[int] = frozenset()

    @property
    def inherits(self) -> bool:
        """Whether an end of its interval is inherited."""
        return not self.left or not self.right


@dataclass(frozen=True)
class Alternative:
    """Slots that must all be filled, in partial order."""

    kind: str  # of the outermost group that is not an OR
    slots: tuple[int, ...]
    order: frozenset[tuple[int, int]] = frozenset()  # the first comes before the second; transitive
    absences: tuple[Absence, ...] = ()
    branches: frozenset[tuple[int, int]] = frozenset()

    def precedes(self, earlier: int, later: int) -> bool:
        """Whether one slot is known to come before another."""
        return (earlier, later) in self.order

    def maximal(self) -> list[int]:
        """The slots that may be the last."""
        return [s for s in self.slots if not any(self.precedes(s, other) for other in self.slots)]


def alternatives(node: Node) -> list[Alternative]:
    """All choices of branches of a node.

    >>> import penstock as ps
    >>> from penstock.patterns.compile.alternatives import alternatives
    >>> pattern = ps.Pattern.parse("PATTERN SEQ(A, OR(B, C)) WITHIN 5")
    >>> [each.slots for each in alternatives(pattern.analysis.root)]
    [(0, 1), (0, 2)]
    """
    if node.kind == EVENT:
        return [Alternative(EVENT, (node.slot,))]
    if node.kind == "OR":
        return [
            replace(each, branches=each.branches | {(node.branch_of, i)})
            for i, child in enumerate(node.children)
            for each in alternatives(child.node)
        ]
    choices = [alternatives(each) for each in node.positives]
    total = 1
    for choice in choices:
        total *= len(choice)
    if total > MOST:
        raise PatternError(
            f"The ORs of the pattern have more than {MOST:,} combinations of branches; split the pattern."
        )
    return [_together(node, parts) for parts in product(*choices)]


def _together(node: Node, parts: tuple[Alternative, ...]) -> Alternative:
    """The components of a SEQ or AND as one alternative."""
    sequence = node.kind == "SEQ"
    order = {pair for part in parts for pair in part.order}
    if sequence:
        for i, earlier in enumerate(parts):
            for later in parts[i + 1 :]:
                order |= set(product(earlier.slots, later.slots))
    absences: list[Absence] = []
    for i, part in enumerate(parts):
        if sequence:
            absences += [_bounded(absence, parts, i - 1, i + 1) for absence in part.absences]
        else:
            absences += part.absences
    passed = 0
    for child in node.children:
        if child.negation is None:
            passed += 1
        else:
            bare = Absence(child.negation)
            absences.append(_bounded(bare, parts, passed - 1, passed) if sequence else bare)
    return Alternative(
        node.kind,
        tuple(slot for part in parts for slot in part.slots),
        frozenset(order),
        tuple(absences),
        frozenset().union(*(part.branches for part in parts)),
    )


def _bounded(absence: Absence, parts: tuple[Alternative, ...], before: int, after: int) -> Absence:
    """The interval between two components, where it was handed down."""
    left = absence.left or (frozenset(parts[before].slots) if before >= 0 else frozenset())
    right = absence.right or (frozenset(parts[after].slots) if after < len(parts) else frozenset())
    return replace(absence, left=left, right=right)


def predicates_of(
    analysis: Analysis, scope: tuple[int, ...], branches: frozenset[tuple[int, int]]
) -> Iterator[Predicate]:
    """The predicates of a negation (of the match, if the scope is empty) under a choice of branches."""
    for predicate in analysis.predicates:
        if predicate.scope == scope and set(predicate.branches) <= branches:
            yield predicate


def looks_ahead(analysis: Analysis) -> bool:
    """Whether a match is settled only when its window has passed.

    >>> import penstock as ps
    >>> from penstock.patterns.compile.alternatives import looks_ahead
    >>> looks_ahead(ps.Pattern.parse("PATTERN SEQ(A, !B) WITHIN 5").analysis)
    True
    """
    return any(
        each.kind == "SEQ" and any(not absence.right for absence in each.absences)
        for each in alternatives(analysis.root)
    )


def looks_back(analysis: Analysis) -> bool:
    """Whether a negation may reach before the first event of a match."""
    return any(not absence.left for each in alternatives(analysis.root) for absence in each.absences)
