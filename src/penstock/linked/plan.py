"""A query made into a plan: the order of joins, shared caches, keys, and where each condition is checked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from penstock.kernels import programs
from penstock.kernels.linked_index import Scheme
from penstock.linked.context import Bound, bounds_of, simple_bounds, time_number
from penstock.linked.nodes import Call, Expression, Query, Var, calls, conjuncts, variables
from penstock.linked.triples import Scale
from penstock.linked.values import in_unit

_CODES = {
    "=": programs.EQUAL,
    "!=": programs.UNEQUAL,
    "<": programs.LESS,
    "<=": programs.LESS_EQUAL,
    ">": programs.GREATER,
    ">=": programs.GREATER_EQUAL,
    "+": programs.PLUS,
    "-": programs.MINUS,
    "*": programs.TIMES,
    "/": programs.OVER,
    "neg": programs.NEGATIVE,
    "abs": programs.ABSOLUTE,
    "!": programs.NOT,
    "&&": programs.AND,
    "||": programs.OR,
}
_ORDERING = {"<", "<=", ">", ">="}


@dataclass(frozen=True)
class Operand:
    """A part of a condition that concerns one pattern (or none): a column computed before the join."""

    pattern: int  # -1: a constant
    expression: Expression
    truth: bool  # whether only its truth matters
    position: int | None = None  # of a bare variable: where it stands, in whichever pattern


@dataclass
class Step:
    """What is checked when a pattern is joined to those before it."""

    pattern: int
    shared: list[str]
    same: list[tuple[int, int, int, int]] = field(default_factory=list)
    bounds: list[Bound] = field(default_factory=list)
    programs: list[list[tuple[int, Any, int]]] = field(default_factory=list)
    shown: list[str] = field(default_factory=list)  # the conditions in words


@dataclass
class Plan:
    """How a query is run. `scheme` is for the kernel, the rest is what rows are prepared and shown by."""

    query: Query
    scale: Scale
    order: list[int]
    caches: list[list[int]]  # per cache of single triples: the patterns that use it
    rows: list[list[Expression]]  # per pattern: what is checked before its cache
    steps: list[Step]
    late: list[Expression]  # what is checked on results
    ports: list[tuple[int, ...]]  # per port of single triples: the positions of its key
    limits: np.ndarray
    scheme: Scheme
    operands: list[Operand]
    constants: list[Operand]
    orders_texts: bool  # whether programs compare which of two texts comes first
    hashed: bool = False  # whether keys are hashes of values, which have to be compared after all

    @property
    def unbounded(self) -> list[int]:
        """The patterns whose triples the context never lets expire."""
        return [
            pattern
            for pattern in range(len(self.order))
            if any(
                (self.scheme.partners[pattern] >> other) & 1
                and not np.isfinite(self.limits[pattern, other]).any()
                for other in range(len(self.order))
            )
        ]


def plan_of(
    query: Query,
    scale: Scale,
    rates: Sequence[float] | None = None,
    gain: tuple[float, float] = (1.0, 0.5),
    hashed: bool = False,
) -> Plan:
    """The plan of a query; `rates` say how many triples match each pattern.

    `hashed` is for keys that must be the same however values are numbered.

    >>> from penstock.linked.parser import parse_query
    >>> from penstock.linked.plan import plan_of
    >>> from penstock.linked.triples import Scale
    >>> text = "SELECT * FROM STREAM w { ?a p ?x ?T . ?b p ?x ?U } CONTEXT ((?T - ?U) <= 5)"
    >>> plan_of(parse_query(text), Scale()).caches
    [[0, 1]]
    """
    return _Planner(query, scale, hashed).plan(rates, gain)


class _Planner:
    def __init__(self, query: Query, scale: Scale, hashed: bool) -> None:
        self.query, self.scale, self.hashed = query, scale, hashed
        self.times, self.homes = query.time_variables, query.homes
        self.operands: list[Operand] = []
        self.constants: list[Operand] = []
        self.orders_texts = False

    def plan(self, rates: Sequence[float] | None, gain: tuple[float, float]) -> Plan:
        query, patterns = self.query, self.query.patterns
        filters = [part for one in query.filters for part in conjuncts(self._adapted(one))]
        context = [] if query.context is None else conjuncts(self._adapted(query.context))
        about_time = context + [part for part in filters if set(variables(part)) <= set(self.times)]
        matrix = bounds_of(about_time, self.times, len(patterns))
        order = self._order(rates)
        steps = [Step(order[0], [])] + [self._step(order, at) for at in range(1, len(order))]
        rows: list[list[Expression]] = [[] for _ in patterns]
        late: list[Expression] = []
        for part in (*context, *filters):
            self._place(part, order, steps, rows, late)
        shapes: dict[Any, list[int]] = {}
        for pattern, one in enumerate(patterns):
            shapes.setdefault(one.shape, []).append(pattern)
        caches = list(shapes.values())
        limits = self._limits(matrix)
        scheme, ports = self._scheme(order, caches, steps, limits, gain)
        return Plan(
            query,
            self.scale,
            order,
            caches,
            rows,
            steps,
            late,
            ports,
            limits,
            scheme,
            self.operands,
            self.constants,
            self.orders_texts,
            self.hashed,
        )

    def _adapted(self, expression: Expression) -> Expression:
        return in_unit(expression, self.scale.unit, self.scale.stamps, self.times)

    def _order(self, rates: Sequence[float] | None) -> list[int]:
        """Left-deep: the rarest pattern first, then always the rarest that shares a variable with them.

        Patterns with times come first: every partial solution then has a triple of a stream in it.
        """
        patterns = self.query.patterns
        weight = list(rates) if rates is not None else [1.0] * len(patterns)
        left = set(range(len(patterns)))
        order: list[int] = []
        known: set[str] = set()
        while left:
            linked = [i for i in left if known & set(patterns[i].names)] if order else []
            pool = linked or list(left)
            timed = [i for i in pool if patterns[i].start] or pool
            best = min(timed if not order else pool, key=lambda i: (weight[i], i))
            order.append(best)
            known |= set(patterns[best].names)
            left.discard(best)
        return order

    def _step(self, order: list[int], at: int) -> Step:
        """The join of a pattern: on the variables it shares with those before."""
        patterns = self.query.patterns
        before = {name for i in order[:at] for name in patterns[i].names}
        shared = [name for name in patterns[order[at]].names if name in before]
        step = Step(order[at], shared)
        if len(shared) > 1 or self.hashed:
            for name in shared:
                left, position = self._left(order, at, name)
                step.same.append((left, position, order[at], self._position(order[at], name)))
        return step

    def _left(self, order: list[int], at: int, name: str) -> tuple[int, int]:
        """The first of the patterns before that has a variable, and its position there."""
        pattern = next(i for i in order[:at] if name in self.query.patterns[i].names)
        return pattern, self._position(pattern, name)

    def _position(self, pattern: int, name: str) -> int:
        return self.query.patterns[pattern].triple.index(Var(name))

    # Where a condition is checked.

    def _patterns(self, expression: Expression) -> set[int]:
        """The patterns that bind the variables of an expression, each where it is bound first."""
        places = [self.times.get(name) or self.homes.get(name) for name in variables(expression)]
        return {place[0] for place in places if place is not None}

    def _place(
        self,
        part: Expression,
        order: list[int],
        steps: list[Step],
        rows: list[list[Expression]],
        late: list[Expression],
    ) -> None:
        everywhere = set().union(*map(self._names, range(len(self.query.patterns))))
        names = set(variables(part)) & everywhere  # the others are unbound in every solution
        whole = [i for i in range(len(self.query.patterns)) if names <= self._names(i)]
        first = self._patterns(part)
        if not {"str", "regex"} & set(calls(part)):
            targets = whole  # equal values give equal outcomes, in whichever pattern they are
        else:
            targets = [i for i in whole if first <= {i}][:1]
        if targets:
            for pattern in targets if names else targets[:1]:
                rows[pattern].append(part)
            return
        step = steps[max(order.index(pattern) for pattern in self._patterns(part))]
        bounds, complete = simple_bounds(part, self.times, len(self.query.patterns))
        if complete:
            step.bounds += bounds
            step.shown.append(str(part))
            return
        before = len(self.operands), len(self.constants)
        try:
            program = self._program(part)
        except _NotInKernelError:
            del self.operands[before[0] :], self.constants[before[1] :]
            late.append(part)
            return
        step.programs.append(program)
        step.shown.append(str(part))

    def _names(self, pattern: int) -> set[str]:
        one = self.query.patterns[pattern]
        return {*one.names, *(name for name in (one.start, one.end) if name)}

    def _program(self, expression: Expression, truth: bool = True) -> list[tuple[int, Any, int]]:
        """The expression in postfix: what concerns one pattern is computed before, the rest by the kernel."""
        if isinstance(expression, Var) and expression.name in self.times:
            pattern, which = self.times[expression.name]
            kind = programs.EXACT if self.scale.whole else programs.DOUBLE
            return [(programs.END if which else programs.START, pattern, kind)]
        places = self._patterns(expression)
        ends = {name for name, (_, which) in self.times.items() if which == 1}
        if len(places) <= 1 and not ends & set(variables(expression)):
            operand = Operand(min(places, default=-1), expression, truth)
            if not places:
                self.constants.append(operand)
                return [(programs.CONSTANT, len(self.constants) - 1, 0)]
            return [(programs.COLUMN, operand.pattern, self._column(operand))]
        if not isinstance(expression, Call) or expression.name not in _CODES:
            raise _NotInKernelError
        logical = expression.name in ("&&", "||", "!")
        self.orders_texts |= expression.name in _ORDERING
        program = [code for part in expression.arguments for code in self._program(part, logical)]
        return [*program, (_CODES[expression.name], len(expression.arguments), 0)]

    def _column(self, operand: Operand) -> int:
        """The number of an operand's column; a bare variable shares that of others at its place."""
        if isinstance(operand.expression, Var):
            position = self.homes[operand.expression.name][1]
            for number, known in enumerate(self.operands):
                if (known.position, known.truth) == (position, operand.truth):
                    return number
            operand = replace(operand, position=position)
        self.operands.append(operand)
        return len(self.operands) - 1

    # What the kernel gets.

    def _limits(self, matrix: np.ndarray) -> np.ndarray:
        """How long after the start and the end of a pattern's triple another's may start, and until when."""
        count = len(self.query.patterns)
        limits = np.full((count, count, 3), np.inf)
        for i in range(count):
            for other in range(count):
                start = time_number((other, 0))
                limits[i, other] = matrix[start, 2 * i], matrix[start, 2 * i + 1], matrix[start, 2 * count]
        return limits

    def _scheme(
        self,
        order: list[int],
        caches: list[list[int]],
        steps: list[Step],
        limits: np.ndarray,
        gain: tuple[float, float],
    ) -> tuple[Scheme, list[tuple[int, ...]]]:
        count = len(order)
        home = {pattern: c for c, users in enumerate(caches) for pattern in users}
        found: dict[tuple[int, tuple[int, ...]], int] = {}
        roles: list[int] = []

        def leaf_port(pattern: int, names: list[str]) -> int:
            key = home[pattern], tuple(self._position(pattern, name) for name in names)
            port = found.setdefault(key, len(found))
            if port == len(roles):
                roles.append(0)
            roles[port] |= 1 << pattern
            return port

        left, right = np.zeros(count, np.int64), np.zeros(count, np.int64)
        for at in range(1, count):
            right[at] = leaf_port(order[at], steps[at].shared)
            if at == 1:
                left[at] = leaf_port(order[0], steps[1].shared)
        leaves = len(found)
        port_step = [0] * leaves
        per_cache: list[list[int]] = [[] for _ in range(len(caches) + max(0, count - 2))]
        for (cache, _), port in found.items():
            per_cache[cache].append(port)
        for at in range(2, count):
            left[at] = len(port_step)
            per_cache[len(caches) + at - 2].append(len(port_step))
            port_step.append(at)
            roles.append(0)
        widest = max([len(step.shared) for step in steps] + [1])
        key_part = np.zeros((count, widest, 2), np.int64)
        for at in range(1, count):
            for i, name in enumerate(steps[at].shared):
                key_part[at, i] = self._left(order, at, name)
        partners = np.zeros(count, np.int64)
        for at, pattern in enumerate(order):
            others = order[1:2] if at == 0 else order[:at]
            partners[pattern] = sum(1 << other for other in others)
        degree = [len(ports) for ports in per_cache]
        port_table = np.zeros((len(per_cache), max([*degree, 1])), np.int64)
        for cache, ports in enumerate(per_cache):
            port_table[cache, : len(ports)] = ports
        scheme = Scheme(
            order=np.array(order, np.int64),
            cache_roles=np.array([sum(1 << i for i in users) for users in caches], np.int64),
            degree=np.array(degree, np.int64),
            port=port_table,
            port_roles=np.array(roles, np.int64),
            port_step=np.array(port_step, np.int64),
            left_port=left,
            right_port=right,
            key_size=np.array([len(step.shared) for step in steps], np.int64),
            key_part=key_part,
            limit=limits,
            partners=partners,
            gain=np.array(gain, np.float64),
        )
        return scheme, [positions for (_, positions), _ in sorted(found.items(), key=lambda item: item[1])]


class _NotInKernelError(Exception):
    """A condition can only be checked on results."""
