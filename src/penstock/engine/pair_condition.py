"""A condition that a pair must pass beyond its keys and times: a program for a small machine.

What depends on one side alone has been computed before, for whole batches: the *leaves*. A row of
`arriving` (of a batch) and of `kept` (of the buffered tuples) has a word with the states of its leaves, two
bits each, and their values. The program combines leaves of both sides with constants.

Logic has three values, as in SQL; a value that cannot be computed is an error only if it decides the outcome,
evaluated from left to right.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from penstock.compiler.jit import jit
from penstock.compiler.references import prefetch
from penstock.engine.pair_join_decided import begin_probe, count_probe, fetch_kept, keep, passes
from penstock.structures.tables import enlarged, new_table

# States of a value.
KNOWN = 0
NULL = 1
BY_ZERO = 2  # it would divide by zero
OVERFLOW = 3  # it does not fit into its type

# Columns of the code: an instruction, the kind of its operands, and where these are.
OPERATION = 0
OF = 1
A_PLACE = 2
A_NUMBER = 3
B_PLACE = 4
B_NUMBER = 5
CODE = 6

# Instructions.
EQUAL, UNEQUAL, LESS, LESS_EQUAL, GREATER, GREATER_EQUAL = 0, 1, 2, 3, 4, 5
PLUS, MINUS, TIMES, OVER, MODULO, NEGATIVE = 6, 7, 8, 9, 10, 11
AND, OR, NOT, IS_NULL = 12, 13, 14, 15
TO_REAL, SCALE_UP, DECIMAL_TO_REAL = 16, 17, 18  # the number of the second operand: a factor, decimal places

# Kinds of operands.
WHOLE = 0  # 64 bits; other widths have their bits instead
REAL = 1
SINGLE = 2  # rounded to 32 bits

# Places of operands.
LEFT_LEAF, RIGHT_LEAF, CONSTANT, WORK = 0, 1, 2, 3

# In `meta`.
TESTED = 0  # pairs that were asked for
PASSED = 1
TESTED_NOW = 2  # by the arrival at hand
PASSED_NOW = 3
ERROR = 4  # the state of the first pair without an answer, 0 if all have one
ERROR_LEFT = 5  # its rows
ERROR_RIGHT = 6
META = 8

EXACT = 2**53  # whole numbers up to here are exact as floats
LEAST, MOST = -(2**63), 2**63 - 1
MOST_LEAVES = 31  # of a side: their states fit into a word


class PairCondition(NamedTuple):
    """The program, and the leaves of arrivals and tuples."""

    code: np.ndarray
    result: np.ndarray  # place and number of the outcome
    constant: np.ndarray
    constant_real: np.ndarray  # the same as floats
    constant_state: np.ndarray
    work: np.ndarray  # outcomes of instructions
    work_real: np.ndarray
    work_state: np.ndarray
    arriving: np.ndarray
    arriving_real: np.ndarray
    kept: np.ndarray
    kept_real: np.ndarray
    meta: np.ndarray

    def grown(self, total: int) -> PairCondition:
        """Return the same with room for more tuples."""
        kept = enlarged(self.kept, (total + 2, self.kept.shape[1]))
        return self._replace(kept=kept, kept_real=kept.view(np.float64))

    def hearing(self, arriving: np.ndarray) -> PairCondition:
        """Return the same with the leaves of the arrivals to come."""
        return self._replace(arriving=arriving, arriving_real=arriving.view(np.float64))

    def without_views(self) -> PairCondition:
        """The same without the arrays that are views of others, to be stored."""
        empty = np.empty((0, self.kept.shape[1]))
        return self._replace(
            constant_real=self.constant_real[:0],
            work_real=self.work_real[:0],
            arriving=empty.astype(np.int64),
            arriving_real=empty,
            kept_real=empty,
        )

    def with_views(self) -> PairCondition:
        """The counterpart."""
        return self._replace(
            constant_real=self.constant.view(np.float64),
            work_real=self.work.view(np.float64),
            arriving_real=self.arriving.view(np.float64),
            kept_real=self.kept.view(np.float64),
        )


def new_pair_condition(
    code: np.ndarray,
    result: tuple[int, int],
    constant: np.ndarray,
    constant_state: np.ndarray,
    width: int,
    total: int,
) -> PairCondition:
    """A condition that no pair has been asked about, with so many leaves a side and room for tuples."""
    work, arriving = np.zeros(len(code), np.int64), np.empty((0, 1 + width), np.int64)
    kept = new_table((total + 2, 1 + width), np.int64)
    return PairCondition(
        code=code,
        result=np.array(result, np.int64),
        constant=constant,
        constant_real=constant.view(np.float64),
        constant_state=constant_state,
        work=work,
        work_real=work.view(np.float64),
        work_state=np.zeros(len(code), np.int64),
        arriving=arriving,
        arriving_real=arriving.view(np.float64),
        kept=kept,
        kept_real=kept.view(np.float64),
        meta=np.zeros(META, np.int64),
    )


@passes.on(PairCondition)
def _passes(condition, store, batch, i, slot):
    stream = np.int64(batch.stream[i])
    state, truth = outcome(condition, stream, i, slot)
    condition.meta[TESTED_NOW] += 1
    if state >= BY_ZERO and condition.meta[ERROR] == 0:
        condition.meta[ERROR] = state
        condition.meta[ERROR_LEFT + stream] = batch.row[i]
        condition.meta[ERROR_RIGHT - stream] = store.t64[slot, 0]
    if state == KNOWN and truth:
        condition.meta[PASSED_NOW] += 1
        return True
    return False


@keep.on(PairCondition)
def _keep(condition, store, batch, i, slot):
    for column in range(condition.kept.shape[1]):
        condition.kept[slot, column] = condition.arriving[i, column]


@fetch_kept.on(PairCondition)
def _fetch_kept(condition, slot):
    prefetch(condition.kept, slot * condition.kept.shape[1])


@begin_probe.on(PairCondition)
def _begin_probe(condition):
    condition.meta[TESTED_NOW] = condition.meta[PASSED_NOW] = 0


@count_probe.on(PairCondition)
def _count_probe(condition):
    condition.meta[TESTED] += condition.meta[TESTED_NOW]
    condition.meta[PASSED] += condition.meta[PASSED_NOW]
    condition.meta[TESTED_NOW] = condition.meta[PASSED_NOW] = 0


@jit
def outcome(condition, stream, i, slot):
    """The state of the condition for arrival i of a stream and a tuple, and whether it is true."""
    code = condition.code
    if code.shape[0] == 1 and code[0, OPERATION] <= GREATER_EQUAL:  # the most frequent condition
        a, x, s = operand(condition, code[0, A_PLACE], code[0, A_NUMBER], stream, i, slot)
        b, y, t = operand(condition, code[0, B_PLACE], code[0, B_NUMBER], stream, i, slot)
        if code[0, OF] == REAL:
            return strict(s, t), compare_reals(code[0, OPERATION], x, y)
        return strict(s, t), compare_wholes(code[0, OPERATION], a, b)
    for at in range(code.shape[0]):
        operation, of = code[at, OPERATION], code[at, OF]
        a, x, s = operand(condition, code[at, A_PLACE], code[at, A_NUMBER], stream, i, slot)
        if operation <= GREATER_EQUAL:
            b, y, t = operand(condition, code[at, B_PLACE], code[at, B_NUMBER], stream, i, slot)
            condition.work_state[at] = strict(s, t)
            truth = compare_reals(operation, x, y) if of == REAL else compare_wholes(operation, a, b)
            condition.work[at] = np.int64(truth)
        elif operation <= MODULO:
            b, y, t = operand(condition, code[at, B_PLACE], code[at, B_NUMBER], stream, i, slot)
            s = strict(s, t)
            if of == REAL or of == SINGLE:
                if s == KNOWN and operation >= OVER and y == 0.0:
                    s = np.int64(BY_ZERO)
                elif s == KNOWN:
                    x = compute_reals(operation, x, y)
                    condition.work_real[at] = np.float64(np.float32(x)) if of == SINGLE else x
            elif s == KNOWN:
                a, s = compute_wholes(operation, a, b, of)
                condition.work[at] = a
            condition.work_state[at] = s
        elif operation == AND or operation == OR:
            b, y, t = operand(condition, code[at, B_PLACE], code[at, B_NUMBER], stream, i, slot)
            decides = np.int64(operation == OR)
            truth, s = junction(a, s, b, t, decides)
            condition.work[at], condition.work_state[at] = truth, s
        elif operation == NOT:
            condition.work[at], condition.work_state[at] = 1 - a, s
        elif operation == IS_NULL:
            condition.work[at] = np.int64(s == NULL)
            condition.work_state[at] = s if s >= BY_ZERO else np.int64(KNOWN)
        elif operation == NEGATIVE:
            if of == REAL or of == SINGLE:
                condition.work_real[at] = -x
            elif s == KNOWN:
                a, s = compute_wholes(np.int64(MINUS), np.int64(0), a, of)
                condition.work[at] = a
            condition.work_state[at] = s
        elif operation == TO_REAL:
            condition.work_real[at], condition.work_state[at] = np.float64(a), s
        elif operation == SCALE_UP:
            if s == KNOWN:
                a, s = compute_wholes(np.int64(TIMES), a, code[at, B_NUMBER], np.int64(WHOLE))
                condition.work[at] = a
            condition.work_state[at] = s
        else:  # DECIMAL_TO_REAL
            if s == KNOWN and abs(a) > EXACT:
                s = np.int64(OVERFLOW)
            condition.work_real[at] = np.float64(a) / np.float64(code[at, B_NUMBER])
            condition.work_state[at] = s
    a, x, s = operand(condition, condition.result[0], condition.result[1], stream, i, slot)
    return s, a != 0


@jit
def operand(condition, place, number, stream, i, slot):
    """An operand as a whole number and as a float, and its state."""
    if place <= RIGHT_LEAF:
        if place == stream:
            state = (condition.arriving[i, 0] >> (2 * number)) & 3
            return condition.arriving[i, 1 + number], condition.arriving_real[i, 1 + number], state
        state = (condition.kept[slot, 0] >> (2 * number)) & 3
        return condition.kept[slot, 1 + number], condition.kept_real[slot, 1 + number], state
    if place == CONSTANT:
        return condition.constant[number], condition.constant_real[number], condition.constant_state[number]
    return condition.work[number], condition.work_real[number], condition.work_state[number]


@jit
def strict(s, t):
    """The state of an operation that needs both operands, of which the first is evaluated first."""
    if s >= BY_ZERO:
        return s
    if t >= BY_ZERO:
        return t
    return max(s, t)


@jit
def junction(a, s, b, t, decides):
    """And or or of two truths: the value that decides alone is 0 for and, 1 for or."""
    if s >= BY_ZERO or (s == KNOWN and a == decides):
        return a, s
    if t >= BY_ZERO or (t == KNOWN and b == decides):
        return b, t
    return 1 - decides, max(s, t)


@jit
def compare_wholes(operation, a, b):
    """Compare whole numbers."""
    if operation == EQUAL:
        return a == b
    if operation == UNEQUAL:
        return a != b
    if operation == LESS:
        return a < b
    if operation == LESS_EQUAL:
        return a <= b
    if operation == GREATER:
        return a > b
    return a >= b


@jit
def compare_reals(operation, x, y):
    """Compare floats: NaN equals NaN and is greater than all others."""
    if x == x and y == y:
        if operation == EQUAL:
            return x == y
        if operation == UNEQUAL:
            return x != y
        if operation == LESS:
            return x < y
        if operation == LESS_EQUAL:
            return x <= y
        if operation == GREATER:
            return x > y
        return x >= y
    return compare_wholes(operation, np.int64(x != x), np.int64(y != y))


@jit
def compute_reals(operation, x, y):
    """Arithmetic on floats; the divisor is not zero."""
    if operation == PLUS:
        return x + y
    if operation == MINUS:
        return x - y
    if operation == TIMES:
        return x * y
    if operation == OVER:
        return x / y
    return np.fmod(x, y)


@jit
def compute_wholes(operation, a, b, of):
    """Arithmetic on whole numbers: the outcome, and its state."""
    state = np.int64(KNOWN)
    if operation == PLUS:
        c = a + b
        if ((a ^ c) & (b ^ c)) < 0:
            state = np.int64(OVERFLOW)
    elif operation == MINUS:
        c = a - b
        if ((a ^ b) & (a ^ c)) < 0:
            state = np.int64(OVERFLOW)
    elif operation == TIMES:
        c = a * b
        if a == -1 or b == -1:
            if a == LEAST or b == LEAST:
                state = np.int64(OVERFLOW)
        elif a != 0 and b != 0 and (c // b != a or c % b != 0):
            state = np.int64(OVERFLOW)
    elif b == 0:
        return np.int64(0), np.int64(BY_ZERO)
    elif b == -1:
        c = np.int64(0)
    else:
        c = a % b
        if c != 0 and (a < 0) != (b < 0):  # the sign is that of the dividend
            c -= b
    if of > SINGLE:
        most = np.int64(1) << (of - 1)
        if c >= most or c < -most:
            state = np.int64(OVERFLOW)
    return c, state
