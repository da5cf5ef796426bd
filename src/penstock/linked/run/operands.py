"""Prepare rows for the kernel: which patterns a triple matches, its keys, and operands of conditions."""

from __future__ import annotations

import numpy as np

from penstock.engine.conditions import Columns, Conditions
from penstock.engine.triple_index import mixed_keys
from penstock.linked.language.nodes import ConstantTerm, Expression, TriplePattern, Var, variables
from penstock.linked.plan.plan import Operand, QueryPlan
from penstock.linked.terms import ERROR, Terms
from penstock.linked.triples import Triples
from penstock.linked.values import Column, evaluate, from_numbers, from_terms, holds, ordinal, truth_of


def masks_of(plan: QueryPlan, triples: Triples, terms: Terms) -> np.ndarray:
    """Which patterns each triple matches, their own filters included; a bit each."""
    mask = np.zeros(len(triples), np.int64)
    values = terms.worth().value[triples.terms] if len(terms) else np.empty((0, 3), np.int64)
    for number, pattern in enumerate(plan.query.patterns):
        fits = _matches(pattern, triples, values, terms)
        for expression in plan.rows[number]:
            names = set(variables(expression))
            if len(names) == 1 and (alone := Var(*names)) in pattern.triple:
                fits &= _by_term(expression, triples.terms[:, pattern.triple.index(alone)], terms)
            else:
                rows = np.flatnonzero(fits)
                fine = holds(expression, _Row(pattern, triples, rows, terms), terms)
                if plan.steps and pattern.end in names:  # an open fact may get an end with which it holds
                    fine |= np.isinf(triples.end[rows])
                fits[rows] = fine
        mask |= fits.astype(np.int64) << number
    return mask


def _matches(pattern: TriplePattern, triples: Triples, values: np.ndarray, terms: Terms) -> np.ndarray:
    """Where the constants and the repeated variables of a pattern fit."""
    fits = ~triples.closes
    if pattern.start:
        fits &= triples.stream >= 0
    first: dict[str, int] = {}
    for position, part in enumerate(pattern.triple):
        if isinstance(part, ConstantTerm):
            number = terms.add(part.term)
            wanted = terms.worth().value[number]
            fits &= (values[:, position] == wanted) & (wanted >= 0)
        elif part.name in first:
            fits &= (values[:, position] == values[:, first[part.name]]) & (values[:, position] >= 0)
        else:
            first[part.name] = position
    return fits


def _by_term(expression: Expression, numbers: np.ndarray, terms: Terms) -> np.ndarray:
    """Where a condition on one term holds: it is evaluated once per term, not once per row."""
    asked = np.zeros(len(terms), bool)
    asked[numbers] = True
    distinct = np.flatnonzero(asked)
    column = from_terms(distinct, terms)
    asked[distinct] = holds(expression, lambda name: column, terms)
    return asked[numbers]


class _Row:
    """The columns of the variables of one pattern, for some rows."""

    def __init__(self, pattern: TriplePattern, triples: Triples, rows: np.ndarray, terms: Terms) -> None:
        self.pattern, self.triples, self.rows, self.terms = pattern, triples, rows, terms

    def __call__(self, name: str) -> Column | None:
        triples, pattern = self.triples, self.pattern
        if Var(name) in pattern.triple:
            return from_terms(triples.terms[self.rows, pattern.triple.index(Var(name))], self.terms)
        whole = triples.scale.whole
        if name == pattern.start:
            return from_numbers(triples.start[self.rows], whole)
        if name == pattern.end:
            return from_numbers(triples.end[self.rows], whole)
        return None


def columns_of(
    plan: QueryPlan, triples: Triples, mask: np.ndarray, terms: Terms
) -> tuple[Columns, Conditions]:
    """What the kernel needs of the triples, and the conditions with their constants."""
    count = len(triples)
    operands = [_operand(operand, plan, triples, mask, terms) for operand in plan.operands]
    constants = [evaluate(operand.expression, lambda name: None, terms) for operand in plan.constants]
    constants = [
        truth_of(column, terms) if operand.truth else column
        for column, operand in zip(constants, plan.constants, strict=True)
    ]
    if plan.orders_texts:
        operands = [ordinal(column, terms) for column in operands]
        constants = [ordinal(column, terms) for column in constants]
    values = terms.worth().value[triples.terms] if count else np.empty((0, 3), np.int64)
    marks = _marks(plan, triples, values, terms)
    keys = np.zeros((max(len(plan.ports), 1), count), np.int64)
    for port, positions in enumerate(plan.ports):
        for i, position in enumerate(positions):
            own = marks[:, position]
            keys[port] = own if i == 0 else mixed_keys(keys[port], np.ascontiguousarray(own))
    columns = Columns(
        start=triples.start,
        end=triples.end.copy(),
        mask=mask,
        leaf_key=keys,
        value=np.ascontiguousarray(values),
        mark=np.ascontiguousarray(marks),
        kind=_stacked([column.kind for column in operands], np.int8, count),
        number=_stacked([column.number for column in operands], np.float64, count),
        identity=_stacked([column.value for column in operands], np.int64, count),
    )
    return columns, _conditions(plan, constants)


def _marks(plan: QueryPlan, triples: Triples, values: np.ndarray, terms: Terms) -> np.ndarray:
    """What keys are made of: values, or hashes of them where a plan wants keys that stay the same."""
    if not plan.hashed:
        return values
    marks, scheme = values.copy(), plan.scheme
    used = {position for port in plan.ports for position in port}
    for at, size in enumerate(scheme.key_size):
        used |= set(scheme.key_part[at, :, :size, 1].ravel().tolist())
    for position in used:
        marks[:, position] = terms.marks(triples.terms[:, position])
    return marks


def _stacked(parts: list[np.ndarray], dtype: type, count: int) -> np.ndarray:
    out: np.ndarray = np.empty((len(parts), count), dtype)
    for i, part in enumerate(parts):
        out[i] = part
    return out


def _operand(operand: Operand, plan: QueryPlan, triples: Triples, mask: np.ndarray, terms: Terms) -> Column:
    """A column of a condition: computed where the triple matches the pattern, or for a term at once."""
    if operand.position is not None:
        column = from_terms(triples.terms[:, operand.position], terms)
        return truth_of(column, terms) if operand.truth else column
    rows = np.flatnonzero((mask >> operand.pattern) & 1)
    pattern = plan.query.patterns[operand.pattern]
    column = evaluate(operand.expression, _Row(pattern, triples, rows, terms), terms)
    if operand.truth:
        column = truth_of(column, terms)
    if len(rows) == len(triples):
        return column.full(len(rows))
    count = len(triples)
    whole = Column(
        np.full(count, ERROR, np.int8),
        np.zeros(count),
        np.full(count, -1, np.int64),
        np.full(count, -1, np.int64),
    )
    for target, part in zip(whole, column.full(len(rows)), strict=True):
        target[rows] = part
    return whole


def _conditions(plan: QueryPlan, constants: list[Column]) -> Conditions:
    """The conditions of all steps as tables; steps are numbered from 1."""
    same, bounds, most, code, programs = [], [], [], [], [0]
    same_first, bound_first, program_first = [0, 0], [0, 0], [0, 0]
    for step in plan.steps:
        same += step.same
        bounds += [(bound.a, bound.b, bound.kind) for bound in step.bounds]
        most += [bound.most for bound in step.bounds]
        for program in step.programs:
            code += program
            programs.append(len(code))
        same_first.append(len(same))
        bound_first.append(len(bounds))
        program_first.append(len(programs) - 1)
    deepest = max((len(program) for step in plan.steps for program in step.programs), default=0) + 2
    return Conditions(
        same=np.array(same, np.int64).reshape(-1, 5),
        same_first=np.array(same_first, np.int64),
        bound=np.array(bounds, np.int64).reshape(-1, 3),
        most=np.array(most, np.float64),
        bound_first=np.array(bound_first, np.int64),
        code=np.array(code, np.int64).reshape(-1, 3),
        program=np.array(programs, np.int64),
        program_first=np.array(program_first, np.int64),
        constant=np.array([(column.kind[0], column.number[0]) for column in constants]).reshape(-1, 2),
        constant_identity=np.array([column.value[0] for column in constants], np.int64),
        stack=np.zeros((deepest, 2)),
        stack_identity=np.zeros(deepest, np.int64),
    )
