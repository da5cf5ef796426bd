"""The strategy `iterative`: section II of the paper, the outer query first, then its sub-queries.

When an event arrives that may end a match, the single events of the outermost group are bound first. Each
such partial match hands every nested part a constraint window, in which the part is evaluated in the same
way. Negations are tested when what they stand between is bound.

This is the plain evaluation on which the two caches build: they replace `results` and `absent`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Generator, Iterator
from typing import Any, NamedTuple

from penstock.patterns.batch import Member
from penstock.patterns.compile.alternatives import looks_ahead, looks_back
from penstock.patterns.compile.analysis import EVENT, Node, Predicate, PredicateSide
from penstock.patterns.language.span import first_beyond, first_within
from penstock.patterns.published.layout import Layout
from penstock.patterns.published.memory import OPS, Memory
from penstock.patterns.quota import MatchTally

Ends = tuple[int, int]  # the positions of the first and the last event


class BindingPlan(NamedTuple):
    """How a SEQ or AND is bound."""

    parts: tuple[Node, ...]
    order: list[int]
    tests: list[tuple[int, int]]  # the part after a negation, and the negation


class Iterative:
    """Evaluates a pattern over the events in memory."""

    name = "iterative"

    def __init__(
        self, number: int, member: Member, layout: Layout, memory: Memory, caches: Any = None
    ) -> None:
        self.number, self.analysis, self.span = number, member.analysis, member.span
        self.layout, self.memory = layout, memory
        self.ahead = looks_ahead(self.analysis)
        self.reach = 2 if self.ahead and looks_back(self.analysis) else 1
        self.base = 0  # that of the memory
        self.axis = memory.axes[self.span.events]
        self.rows, self.columns, self.candidates = memory.rows, memory.columns, memory.candidates[number]
        self.constants = memory.constants
        self.waiting = 0  # the first position whose window is not over, where matches wait for that
        self.width: Any = 0
        self.plans: dict[int, BindingPlan] = {}
        # Where nothing is tested after the groups, matches are counted where they are found.
        self.bulky = self.analysis.root.kind == "SEQ" and not self.layout.late.get(())
        self.bulk = self._bulk() if self.bulky else None
        self.env: list[int] = [-1] * len(self.analysis.slots)
        self.used: set[int] = set()
        self.branch: dict[int, int] = {}
        self.ignored: frozenset[int] = frozenset()
        self.counting = False
        self.counted = 0

    def moved(self, base: int) -> None:
        """The memory begins here now."""
        self.base, self.waiting = base, max(self.waiting, base)

    def check(self) -> None:
        """Assert the invariants."""
        assert self.base == self.memory.base
        assert not self.used
        assert set(self.env) <= {-1}

    # Matches.

    def settle(self, now: Any, tally: MatchTally) -> None:
        """Matches whose first event's window is over by now."""
        stop = self.base + len(self.axis)
        if now is not None:
            stop = self.base + first_within(self.axis, now, self.width)
        while self.waiting < stop and not tally.full:
            first = self.waiting
            limit = self.base + first_beyond(self.axis, self.axis[first - self.base], self.width)
            for last in range(first, limit):
                self.collect(last, first, tally)
            self.waiting += 1
        self.waiting = max(self.waiting, stop)

    def collect(self, last: int, first: int | None, tally: MatchTally) -> None:
        """All matches that end with an event (and, if given, begin with one)."""
        if tally.full:
            return
        low = self.base + first_within(self.axis, self.axis[last - self.base], self.width) - 1
        start = low if first is None else first - 1
        self.window = low
        if tally.quota.counts and self.bulky and first is None:
            self.counting, self.counted = True, 0
            for _ in self._solve(self.analysis.root, start, last + 1, last):
                pass
            self.counting = False
            tally.count += self.counted
            return
        slots = [slot.number for slot in self.analysis.columns]
        ways = self._solve(self.analysis.root, start, last + 1, last)
        for begin, _ in ways:
            if first is not None and begin != first:
                continue
            if self._late((), self.analysis.root, low, self._high(begin, last)):
                tally.count += 1
                if tally.builds:
                    tally.rows.append(
                        [self.rows[self.env[s] - self.base] if self.env[s] >= 0 else -1 for s in slots]
                    )
                if tally.full:
                    self._leave(ways)
                    return

    def _leave(self, ways: Generator[Ends, None, None]) -> None:
        """End a search before its end: nothing stays bound."""
        ways.close()
        self.env[:] = [-1] * len(self.env)
        self.used.clear()
        self.branch.clear()

    def _high(self, first: int, last: int) -> int:
        """Where the interval handed down to the outermost group ends."""
        root = self.analysis.root
        while root.kind == "OR":
            root = root.children[self.branch[root.branch_of]].node
        if root.kind != "SEQ":
            return last + 1
        return self.base + first_beyond(self.axis, self.axis[first - self.base], self.width)

    def _solve(self, node: Node, low: int, high: int, since: int) -> Generator[Ends, None, None]:
        """Bind the slots of a part to events in an open interval, the last of them not before `since`."""
        if node.kind == EVENT:
            yield from self._events(node.slot, low, high, since)
        elif node.kind == "OR":
            scope = self.layout.scope_of[id(node)]
            for i, child in enumerate(node.children):
                self.branch[node.branch_of] = i
                tests = [p for p in self.layout.chosen[node.branch_of, i] if p.scope == scope]
                for ends in self._solve(child.node, low, high, since):
                    if all(self._true(p) for p in tests):
                        yield ends
                del self.branch[node.branch_of]
        else:
            yield from self._group(node, low, high, since)

    def _events(self, slot: int, low: int, high: int, since: int) -> Iterator[Ends]:
        positions = self.candidates[slot]
        env, used, checks = self.env, self.used, self.layout.checks[slot]
        for i in range(bisect_left(positions, max(low + 1, since)), bisect_left(positions, high)):
            position = positions[i]
            if position in used:
                continue
            env[slot] = position
            if checks and not all(self._true(p) for p in checks):
                continue
            used.add(position)
            yield position, position
            used.discard(position)
        env[slot] = -1

    def _plan(self, node: Node) -> BindingPlan:
        """In which order the parts of a group are bound, and which negations are tested after that."""
        parts = node.positives
        order = [i for i, part in enumerate(parts) if part.kind == EVENT]
        if node.kind == "SEQ" and order and order[-1] == len(parts) - 1:
            order = [order[-1], *order[:-1]]  # the event that triggers
        order += [i for i, part in enumerate(parts) if part.kind != EVENT]
        late = self.layout.late[self.layout.scope_of[id(node)]]
        tests = []
        for i, child in enumerate(node.children):
            if child.negation is not None and child.negation not in late:
                after = sum(other.negation is None for other in node.children[:i])
                tests.append((after, child.negation))
        return BindingPlan(parts, order, tests)

    def _group(self, node: Node, low: int, high: int, since: int) -> Iterator[Ends]:
        """SEQ or AND: single events first, then the parts within the windows these leave."""
        plan = self.plans.get(id(node))
        if plan is None:
            plan = self.plans[id(node)] = self._plan(node)
        parts, order, tests = plan
        sequence, size = node.kind == "SEQ", len(plan.parts)
        bound: list[Ends] = [(-1, -1)] * size  # (-1, -1): not yet
        counting = self.counting and node is self.analysis.root

        def whole() -> Ends | None:
            """All parts are bound: first and last event, unless a negation finds something."""
            first, last = bound[0][0], bound[-1][1]  # of a sequence; its last part is not before `since`
            if not sequence:
                first, last = min(ends[0] for ends in bound), max(ends[1] for ends in bound)
                if last < since:
                    return None
            for after, negation in tests:
                if not self.absent(negation, bound[after - 1][1], bound[after][0]):
                    return None
            if counting:
                self.counted += 1
                return None
            return first, last

        def fill(step: int) -> Iterator[Ends]:
            at = order[step]
            part = parts[at]
            begin, end, least = low, high, -1
            if sequence:
                for i in range(at):
                    begin = max(begin, bound[i][1])
                for i in range(at + 1, size):
                    if bound[i][0] >= 0:
                        end = bound[i][0]
                        break
                if at == size - 1:
                    least = since
            if part.kind == EVENT:
                found = self._events(part.slot, begin, end, least)
            elif counting and part is self.bulk:
                self.counted += self.count(part, begin, end)
                return
            else:
                found = self.results(part, begin, end, least)
            for ends in found:
                bound[at] = ends
                if step + 1 < size:
                    yield from fill(step + 1)
                    continue
                done = whole()
                if done is not None:
                    yield done
            bound[at] = (-1, -1)

        yield from fill(0)

    # Sub-queries.

    def results(self, part: Node, low: int, high: int, since: int) -> Iterator[Ends]:
        """The results of a nested part in its constraint window."""
        return self._solve(part, low, high, since)

    def count(self, part: Node, low: int, high: int) -> int:
        """How many results a nested part has."""
        return sum(1 for _ in self.results(part, low, high, -1))

    def absent(self, negation: int, low: int, high: int) -> bool:
        """Whether a negated part has no match in an interval that counts against the match around it."""
        if high - low < 2:
            return True
        scope = self.analysis.scopes[negation]
        if not all(self._true(p) for p in self.layout.guards[scope]):
            return True
        node = self.analysis.negations[negation]
        first, last = (min(self.used), max(self.used)) if self.used else (high, low)
        hit = False
        for begin, end in self._solve(node, low, high, -1):
            begin, end = min(begin, first), max(end, last)
            if self.axis[end - self.base] - self.axis[begin - self.base] > self.width:
                continue
            if self._late(scope, node, low, high):
                hit = True
                break
        if hit:
            self._unbind(node)
        return not hit

    def _unbind(self, node: Node) -> None:
        """Free the slots of a part whose search was left at its first hit."""
        for slot in node.slots():
            self.used.discard(self.env[slot])
            self.env[slot] = -1
        for which in self._ors(node):
            self.branch.pop(which, None)

    def _ors(self, node: Node) -> Iterator[int]:
        if node.kind == "OR":
            yield node.branch_of
        for child in node.positives:
            yield from self._ors(child)

    def _late(self, scope: tuple[int, ...], node: Node, low: int, high: int) -> bool:
        """Whether the negations that had to wait for a whole match find nothing."""
        late = self.layout.late.get(scope)
        if not late or node.kind == EVENT:
            return True
        if node.kind == "OR":
            return self._late(scope, node.children[self.branch[node.branch_of]].node, low, high)
        spans = [None if c.negation is not None else self._span(c.node) for c in node.children]
        for i, child in enumerate(node.children):
            left, right = low, high
            if node.kind == "SEQ":
                left = next((ends[1] for ends in reversed(spans[:i]) if ends), low)
                right = next((ends[0] for ends in spans[i + 1 :] if ends), high)
            if child.negation is None:
                if not self._late(scope, child.node, left, right):
                    return False
            elif child.negation in late and not self.absent(child.negation, left, right):
                return False
        return True

    def _span(self, node: Node) -> Ends:
        bound = [self.env[slot] for slot in node.slots() if self.env[slot] >= 0]
        return min(bound), max(bound)

    # Predicates.

    def _true(self, predicate: Predicate) -> bool:
        """Whether a predicate holds, or does not apply (yet)."""
        if predicate.number in self.ignored:
            return True
        for which, branch in predicate.branches:
            if self.branch.get(which) != branch:
                return True
        for each in predicate.sides:
            if self.env[each.slot] < 0:
                return True
        values = []
        for side in (predicate.left, predicate.right):
            if isinstance(side, PredicateSide):
                value = self.columns[side.attr][self.env[side.slot] - self.base]
                if value is None:
                    return False
            else:
                value = self.constants[predicate]
            values.append(value)
        return bool(OPS[predicate.op](values[0], values[1]))

    def _bulk(self) -> Node | None:
        """The nested part whose results need only be counted, if matches are only counted."""
        root = self.analysis.root
        parts = root.positives
        nested = [part for part in parts if part.kind != EVENT]
        if parts[-1].kind != EVENT or any(child.negation is not None for child in root.children):
            return None
        if len(nested) != 1 or self.layout.ignored[self.layout.number[id(nested[0])]]:
            return None
        return nested[0]
