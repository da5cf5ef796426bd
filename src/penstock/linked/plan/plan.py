"""Plan a query: the order of joins, shared caches, keys, and where each condition is checked."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from penstock.engine import conditions
from penstock.engine.triple_index import Scheme
from penstock.linked.language.nodes import Call, Expression, Query, Var, calls, conjuncts, variables
from penstock.linked.plan.context import BEFORE, DIFFERENCE, TimeBound, bounds_of, simple_bounds, time_number
from penstock.linked.plan.scheme import scheme_of
from penstock.linked.plan.tree import Tree, in_turn, joins, leaves
from penstock.linked.triples import Scale
from penstock.linked.values import in_unit

_CODES = {
    "=": conditions.EQUAL,
    "!=": conditions.UNEQUAL,
    "<": conditions.LESS,
    "<=": conditions.LESS_EQUAL,
    ">": conditions.GREATER,
    ">=": conditions.GREATER_EQUAL,
    "+": conditions.PLUS,
    "-": conditions.MINUS,
    "*": conditions.TIMES,
    "/": conditions.OVER,
    "neg": conditions.NEGATIVE,
    "abs": conditions.ABSOLUTE,
    "!": conditions.NOT,
    "&&": conditions.AND,
    "||": conditions.OR,
}
_ORDERING = {"<", "<=", ">", ">="}
OBJECT = 2  # the position of the objects of triples


@dataclass(frozen=True)
class Operand:
    """A part of a condition that concerns one pattern (or none): a column computed before the join."""

    pattern: int  # -1: a constant
    expression: Expression
    truth: bool  # whether only its truth matters
    position: int | None = None  # of a bare variable: where it stands, in whichever pattern


@dataclass
class Step:
    """A join: its sides, the variables that they share, and what is checked of every pair."""

    sides: tuple[Tree, Tree]
    shared: list[str]
    same: list[tuple[int, int, int, int, int]] = field(default_factory=list)
    bounds: list[TimeBound] = field(default_factory=list)
    programs: list[list[tuple[int, Any, int]]] = field(default_factory=list)
    shown: list[str] = field(default_factory=list)  # the conditions in words

    @property
    def twice(self) -> bool:
        """Whether the triple that arrives may be on both sides at once."""
        single = all(isinstance(side, int) for side in self.sides)
        return not (single and any(at == there and not equal for _, at, _, there, equal in self.same))


@dataclass
class QueryPlan:
    """How a query is run. `scheme` is for the kernel, the rest is what rows are prepared and shown by."""

    query: Query
    scale: Scale
    tree: Tree
    caches: list[list[int]]  # per cache of single triples: the patterns that use it
    rows: list[list[Expression]]  # per pattern: what is checked before its cache
    steps: list[Step]  # each after those that make its sides
    late: list[Expression]  # what is checked on results
    ports: list[tuple[int, ...]]  # per port of single triples: the positions of its key
    limits: np.ndarray
    scheme: Scheme
    operands: list[Operand]
    constants: list[Operand]
    orders_texts: bool  # whether programs compare which of two texts comes first
    hashed: bool = False  # whether keys are hashes of values, which have to be compared after all

    @property
    def patterns(self) -> int:
        """How many patterns there are."""
        return len(self.query.patterns)

    @property
    def unbounded(self) -> list[int]:
        """The patterns whose triples the context never lets expire."""
        return [
            pattern
            for pattern in range(self.patterns)
            if any(
                (self.scheme.partners[pattern] >> other) & 1
                and not np.isfinite(self.limits[pattern, other]).any()
                for other in range(self.patterns)
            )
        ]


def plan_of(
    query: Query,
    scale: Scale,
    tree: Tree | None = None,
    gain: tuple[float, float] = (1.0, 0.5),
    hashed: bool = False,
) -> QueryPlan:
    """The plan of a query; without a tree, patterns are joined in the order in which they are written.

    `hashed` is for keys that must be the same however values are numbered.

    >>> from penstock.linked.language.parser import parse_query
    >>> from penstock.linked.plan.plan import plan_of
    >>> from penstock.linked.triples import Scale
    >>> text = "SELECT * FROM STREAM w { ?a p ?x ?T . ?b p ?x ?U } CONTEXT ((?T - ?U) <= 5)"
    >>> plan_of(parse_query(text), Scale()).caches
    [[0, 1]]
    """
    return _Planner(query, scale, hashed).plan(in_turn(query) if tree is None else tree, gain)


class _Planner:
    def __init__(self, query: Query, scale: Scale, hashed: bool) -> None:
        self.query, self.scale, self.hashed = query, scale, hashed
        self.times, self.homes = query.time_variables, query.homes
        self._ends = {name for name, (_, which) in self.times.items() if which == 1}
        self.operands: list[Operand] = []
        self.constants: list[Operand] = []
        self.orders_texts = False

    def plan(self, tree: Tree, gain: tuple[float, float]) -> QueryPlan:
        query, patterns = self.query, self.query.patterns
        filters = [part for one in query.filters for part in conjuncts(self._adapted(one))]
        context = [] if query.context is None else conjuncts(self._adapted(query.context))
        about_time = context + [part for part in filters if set(variables(part)) <= set(self.times)]
        matrix = bounds_of(about_time, self.times, len(patterns))
        steps = [self._step(pair) for pair in joins(tree)]
        rows: list[list[Expression]] = [[] for _ in patterns]
        late: list[Expression] = []
        for part in (*context, *filters):
            self._place(part, steps, rows, late)
        shapes: dict[Any, list[int]] = {}
        for pattern, one in enumerate(patterns):
            shapes.setdefault(one.shape, []).append(pattern)
        caches = list(shapes.values())
        limits = self._limits(matrix)
        shared = [step.shared for step in steps]
        twice = [step.twice for step in steps]
        scheme, ports = scheme_of(tree, shared, twice, caches, self._position, self._owner, limits, gain)
        return QueryPlan(
            query,
            self.scale,
            tree,
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
        return in_unit(
            expression, self.scale.unit, self.scale.bare if self.scale.stamps else None, self.times
        )

    def _step(self, pair: tuple[Tree, Tree]) -> Step:
        """A join: on the variables that its sides share."""
        first, second = ({name for i in leaves(side) for name in self._triple_names(i)} for side in pair)
        named = [name for i in leaves(pair[1]) for name in self._triple_names(i)]
        step = Step(pair, list(dict.fromkeys(name for name in named if name in first & second)))
        if len(step.shared) > 1 or self.hashed:
            for name in step.shared:
                one, other = (self._owner(side, name) for side in pair)
                step.same.append((one, self._position(one, name), other, self._position(other, name), 1))
        return step

    def _triple_names(self, pattern: int) -> tuple[str, ...]:
        return tuple(self.query.patterns[pattern].names)

    def _owner(self, tree: Tree, name: str) -> int:
        """The first pattern of a part of the tree that has a variable."""
        return next(i for i in leaves(tree) if name in self._triple_names(i))

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
            if not steps or not self._ends & names:
                return  # else open facts are let in, and asked again with the end that they have by then
        step = next(step for step in steps if self._patterns(part) <= set(leaves(step.sides)))
        bounds, complete = simple_bounds(part, self.times, len(self.query.patterns))
        if self._ends & names and not (complete and all(map(_stays, bounds))):
            step = steps[-1]  # an open fact may have been closed since a partial solution was made
        if complete:
            step.bounds += bounds
            step.shown.append(str(part))
            return
        unlike = self._unlike(part)
        if unlike is not None:
            step.same.append(unlike)
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

    def _unlike(self, part: Expression) -> tuple[int, int, int, int, int] | None:
        """Where two variables stand that must differ, if both are resources: NaN differs from itself."""
        if not isinstance(part, Call) or part.name != "!=":
            return None
        places = [self.homes.get(each.name) for each in part.arguments if isinstance(each, Var)]
        if len(places) < 2 or any(place is None or place[1] == OBJECT for place in places):
            return None
        (one, at), (other, there) = (place for place in places if place is not None)
        return one, at, other, there, 0

    def _names(self, pattern: int) -> set[str]:
        one = self.query.patterns[pattern]
        return {*one.names, *(name for name in (one.start, one.end) if name)}

    def _program(self, expression: Expression, truth: bool = True) -> list[tuple[int, Any, int]]:
        """The expression in postfix: what concerns one pattern is computed before, the rest by the kernel."""
        if isinstance(expression, Var) and expression.name in self.times:
            pattern, which = self.times[expression.name]
            kind = conditions.EXACT if self.scale.whole else conditions.DOUBLE
            return [(conditions.END if which else conditions.START, pattern, kind)]
        places = self._patterns(expression)
        if len(places) <= 1 and not self._ends & set(variables(expression)):
            operand = Operand(min(places, default=-1), expression, truth)
            if not places:
                self.constants.append(operand)
                return [(conditions.CONSTANT, len(self.constants) - 1, 0)]
            return [(conditions.COLUMN, operand.pattern, self._column(operand))]
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


def _stays(bound: TimeBound) -> bool:
    """Whether a bound that holds while a fact is open still holds when it is closed: at most, its end comes.

    That is so if another pattern's triple, which has come by then, must not start after that end.
    """
    if bound.a % 2 == 1:
        return False
    return bound.b % 2 == 0 or bound.kind == BEFORE or (bound.kind == DIFFERENCE and bound.most >= 0)


class _NotInKernelError(Exception):
    """A condition can only be checked on results."""
