"""Event patterns by enumeration: all combinations of events, then every rule one after the other.

Every event of the pattern needs a variable of its own. Events are (type, time, attributes) in stream order.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator
from typing import Any

from penstock.patterns import And, Attr, Compare, E, Not, Or, Pattern, Seq

Event = tuple[str, Any, dict[str, Any]]
Binding = dict[str, int]
OPS = {
    "<": operator.lt,
    "<=": operator.le,
    "=": operator.eq,
    "!=": operator.ne,
    ">=": operator.ge,
    ">": operator.gt,
}


class Oracle:
    def __init__(self, pattern: Pattern, events: list[Event], width: Any) -> None:
        self.pattern, self.events, self.width = pattern, events, width
        by_events = pattern.within.events
        self.axis = [i if by_events else time for i, (_, time, _) in enumerate(events)]
        self.chain: dict[str, tuple[Not, ...]] = {}  # the negations around each variable
        self.written: list[tuple[Compare, tuple[Not, ...], list[Any]]] = []
        self._read(pattern.expression, (), [])

    def _read(self, part: Any, chain: tuple[Not, ...], branches: list[Any]) -> None:
        if isinstance(part, E):
            self.chain[part.var or ""] = chain
            return
        inner = (*chain, part) if isinstance(part, Not) else chain
        self.written += [(compare, inner, branches) for compare in part.where]
        for piece in [part.part] if isinstance(part, Not) else part.parts:
            self._read(piece, inner, [*branches, piece] if isinstance(part, Or) else branches)

    def matches(self) -> Iterator[Binding]:
        for m in self.combinations(self.pattern.expression):
            if not self.in_window(m) or not self.predicates((), m):
                continue
            root = self.pattern.expression
            while isinstance(root, Or):
                root = next(part for part in root.parts if self.span(part, m))
            first, last = min(m.values()), max(m.values())
            low = max((i for i, at in enumerate(self.axis) if self.axis[last] - at > self.width), default=-1)
            high = last + 1
            if isinstance(root, Seq):
                after = (i for i, at in enumerate(self.axis) if at - self.axis[first] > self.width)
                high = min(after, default=len(self.events))
            if self.holds(root, m, low, high):
                yield m

    def combinations(self, part: Any) -> Iterator[Binding]:
        """Events for the positive variables of a part, in an order that it allows."""
        if isinstance(part, E):
            yield from ({part.var or "": i} for i, event in enumerate(self.events) if event[0] == part.type)
        elif isinstance(part, Or):
            for piece in part.parts:
                yield from self.combinations(piece)
        else:
            partial: list[Binding] = [{}]
            for piece in part.parts:
                if not isinstance(piece, Not):
                    more = list(self.combinations(piece))
                    partial = [{**a, **b} for a in partial for b in more if self.fit(part, a, b)]
            yield from partial

    @staticmethod
    def fit(part: Any, a: Binding, b: Binding) -> bool:
        if isinstance(part, Seq):
            return not a or max(a.values()) < min(b.values())
        return not set(a.values()) & set(b.values())

    def span(self, part: Any, m: Binding) -> tuple[int, int] | None:
        """First and last event of a part in a match; None if it is not there."""
        found = [m[v] for v in self.variables(part) if v in m]
        return (min(found), max(found)) if found else None

    def variables(self, part: Any) -> Iterator[str]:
        if isinstance(part, E):
            yield part.var or ""
        elif not isinstance(part, Not):
            for piece in part.parts:
                yield from self.variables(piece)

    def in_window(self, m: Binding) -> bool:
        return self.axis[max(m.values())] - self.axis[min(m.values())] <= self.width

    def predicates(self, chain: tuple[Not, ...], m: Binding) -> bool:
        """The predicates that belong to a negation (to the match, if there is none)."""
        for compare, written, branches in self.written:
            chains = [written, *(self.chain[attr.var] for attr in compare.attributes)]
            mine = max(chains, key=len)
            if len(mine) != len(chain) or any(a is not b for a, b in zip(mine, chain, strict=True)):
                continue
            bound = all(attr.var in m for attr in compare.attributes)
            if not bound or any(self.span(branch, m) is None for branch in branches):
                continue
            left, right = (self.value(side, m) for side in (compare.left, compare.right))
            if left is None or right is None or not OPS[compare.op](left, right):
                return False
        return True

    def value(self, side: Any, m: Binding) -> Any:
        return self.events[m[side.var]][2].get(side.name) if isinstance(side, Attr) else side.value

    def holds(self, part: Any, m: Binding, low: int, high: int, chain: tuple[Not, ...] = ()) -> bool:
        """Whether nothing that a part negates is there, in the interval handed down to it."""
        if isinstance(part, E):
            return True
        pieces = [p for p in part.parts if isinstance(p, Not) or self.span(p, m)]
        for i, piece in enumerate(pieces):
            left, right = low, high
            if isinstance(part, Seq):
                before = [self.span(p, m) for p in pieces[:i] if not isinstance(p, Not)]
                after = [self.span(p, m) for p in pieces[i + 1 :] if not isinstance(p, Not)]
                left, right = before[-1][1] if before else low, after[0][0] if after else high
            if not isinstance(piece, Not):
                if not self.holds(piece, m, left, right, chain):
                    return False
            elif self.exists(piece, m, left, right, (*chain, piece)):
                return False
        return True

    def exists(self, negation: Not, m: Binding, low: int, high: int, chain: tuple[Not, ...]) -> bool:
        for found in self.combinations(negation.part):
            inside = all(low < i < high for i in found.values())
            if not inside or set(found.values()) & set(m.values()):
                continue
            both = {**m, **found}
            if self.in_window(both) and self.predicates(chain, both):
                root = negation.part
                while isinstance(root, Or):
                    root = next(part for part in root.parts if self.span(part, found))
                if self.holds(root, both, low, high, chain):
                    return True
        return False


__all__ = ["And", "Oracle"]
