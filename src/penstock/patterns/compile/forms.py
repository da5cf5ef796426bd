"""Canonical forms of pattern parts, without names and numbers of variables: equal forms have equal results.

Slots, ORs and negations are numbered in their order in the part. References of predicates to the outside are
left open; the caller adds their values. So patterns over one stream recognise common parts.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from penstock.patterns.compile.alternatives import Alternative, predicates_of
from penstock.patterns.compile.analysis import EVENT, Analysis, Node, Predicate, PredicateSide
from penstock.patterns.language.nodes import ConstantValue

Form = tuple[Any, ...]


def alone_form(predicate: Predicate) -> Form:
    """A predicate about one event alone."""
    return _sides(predicate, {}, {}), predicate.op


def part_form(
    analysis: Analysis,
    node: Node,
    scope: tuple[int, ...],
    late: Collection[int] = (),
    outside: Mapping[int, int] | None = None,
    branches: Collection[tuple[int, int]] = (),
) -> Form:
    """The form of a part in a scope.

    `late` are negations that are tested later than the part is found. Slots that `outside` numbers are known
    by these numbers; `branches` are those that are known to be taken.
    """
    inside = {slot: i for i, slot in enumerate(node.every_slot())}
    ors = {which: i for i, which in enumerate(_every_or(node))}
    negations = {number: i for i, number in enumerate(_negations(node))}

    def shape(part: Node) -> Form:
        if part.kind == EVENT:
            return EVENT, analysis.slots[part.slot].type
        children = (
            (child.negation is None, child.negation in late, shape(child.node)) for child in part.children
        )
        return part.kind, *children

    mine = []
    for predicate in analysis.predicates:
        deeper = predicate.scope[len(scope) :] if predicate.scope[: len(scope)] == scope else None
        if deeper is None or (deeper and deeper[0] not in negations):
            continue
        touches = predicate.slots & inside.keys() or any(which in ors for which, _ in predicate.branches)
        if not touches and not deeper and not scope:
            continue
        chosen = [each for each in predicate.branches if each not in branches]
        if outside is not None and any(which not in ors for which, _ in chosen):
            continue  # of a branch that is not taken
        mine.append((predicate, tuple(negations[number] for number in deeper), chosen))
    others = sorted({which for _, _, chosen in mine for which, _ in chosen if which not in ors})
    number = {**{which: -1 - i for i, which in enumerate(others)}, **ors}
    forms = [
        (_sides(p, inside, outside or {}), p.op, where, tuple(sorted((number[w], b) for w, b in chosen)))
        for p, where, chosen in mine
    ]
    return shape(node), tuple(forms)


def alternative_form(analysis: Analysis, alternative: Alternative, lead: int) -> Form:
    """The form of an alternative of a whole pattern, led by a slot."""
    numbers = {slot: i for i, slot in enumerate(alternative.slots)}
    absences = []
    for absence in alternative.absences:
        node, scope = analysis.negations[absence.negation], analysis.scopes[absence.negation]
        absences.append(
            (
                tuple(sorted(numbers[slot] for slot in absence.left)),
                tuple(sorted(numbers[slot] for slot in absence.right)),
                part_form(analysis, node, scope, (), numbers, alternative.branches),
            )
        )
    return (
        alternative.kind,
        tuple(analysis.slots[slot].type for slot in alternative.slots),
        tuple(sorted((numbers[a], numbers[b]) for a, b in alternative.order)),
        tuple(absences),
        tuple((_sides(p, numbers, {}), p.op) for p in predicates_of(analysis, (), alternative.branches)),
        numbers[lead],
    )


def _sides(predicate: Predicate, inside: Mapping[int, int], outside: Mapping[int, int]) -> Form:
    """Both sides of a comparison."""

    def side_form(side: PredicateSide | ConstantValue) -> Form:
        if isinstance(side, ConstantValue):
            return "constant", type(side.value).__name__, side.value
        if side.slot in inside:
            return "inside", inside[side.slot], side.attr
        return "outside", outside.get(side.slot, -1), side.attr

    return side_form(predicate.left), side_form(predicate.right)


def _every_or(node: Node) -> Iterator[int]:
    if node.kind == "OR":
        yield node.branch_of
    for child in node.children:
        yield from _every_or(child.node)


def _negations(node: Node) -> Iterator[int]:
    for child in node.children:
        if child.negation is not None:
            yield child.negation
        yield from _negations(child.node)
