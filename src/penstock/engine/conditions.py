"""Conditions on the members of a solution: bounds on their times, and programs for a small stack machine.

A program works on values with a kind, a number and an identity, as expressions over columns do; an operand
is a column of one pattern's triple, one of its times, or a constant. Errors are a kind of their own.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from penstock.compiler.jit import jit

# Kinds of values, as in `penstock.linked.terms`.
ERROR, IRI, BLANK, STRING, LANG, EXACT, DOUBLE, BOOLEAN, TIME, NAIVE, OTHER = range(-1, 10)

# Instructions: (code, a, b).
COLUMN, START, END, CONSTANT = 0, 1, 2, 3  # a: pattern, b: column; a: pattern; a: number of the constant
EQUAL, UNEQUAL, LESS, LESS_EQUAL, GREATER, GREATER_EQUAL = 4, 5, 6, 7, 8, 9
PLUS, MINUS, TIMES, OVER, NEGATIVE, ABSOLUTE = 10, 11, 12, 13, 14, 15
NOT, AND, OR = 16, 17, 18

LARGEST = 2.0**53


class Columns(NamedTuple):
    """What is known of the triples in reach, by their rows."""

    start: np.ndarray
    end: np.ndarray
    mask: np.ndarray  # the patterns that a triple matches, a bit each
    leaf_key: np.ndarray  # per port of single triples: the key, -1 if there is none
    value: np.ndarray  # identities of subject, predicate and object
    mark: np.ndarray  # what keys are made of: the same, or hashes of values where keys outlast a batch
    kind: np.ndarray  # operands of programs: a row per column
    number: np.ndarray
    identity: np.ndarray


class Conditions(NamedTuple):
    """Per step of a plan, what a pair must fulfil: from `first[step]` to `first[step + 1]` of each kind."""

    same: np.ndarray  # two patterns and positions, and whether their values are equal (1) or are not (0)
    same_first: np.ndarray
    bound: np.ndarray  # two times and how they are compared
    most: np.ndarray
    bound_first: np.ndarray
    code: np.ndarray
    program: np.ndarray  # where each program begins, and an end
    program_first: np.ndarray
    constant: np.ndarray  # kind, number
    constant_identity: np.ndarray
    stack: np.ndarray  # kind and number
    stack_identity: np.ndarray


@jit
def passes(conditions, columns, rows, step):
    """Whether the triples of a partial solution go together; `rows` has the row of each pattern."""
    same, bound = conditions.same, conditions.bound
    for i in range(conditions.same_first[step], conditions.same_first[step + 1]):
        one = columns.value[rows[same[i, 0]], same[i, 1]]
        if (one == columns.value[rows[same[i, 2]], same[i, 3]]) != (same[i, 4] != 0):
            return False
    for i in range(conditions.bound_first[step], conditions.bound_first[step + 1]):
        a, b = _time(columns, rows, bound[i, 0]), _time(columns, rows, bound[i, 1])
        kind, most = bound[i, 2], conditions.most[i]
        if kind == 2:
            fine = a <= b
        elif kind == 3:
            fine = a < b
        elif kind == 1:
            fine = a - b < most
        else:
            fine = a - b <= most
        if not fine:
            return False
    for i in range(conditions.program_first[step], conditions.program_first[step + 1]):
        if not run(conditions, columns, rows, conditions.program[i], conditions.program[i + 1]):
            return False
    return True


@jit
def _time(columns, rows, number):
    """A time by its number: the start or the end of a pattern's triple, or the origin."""
    pattern = number >> 1
    if pattern >= rows.shape[0]:
        return 0.0
    return columns.start[rows[pattern]] if number & 1 == 0 else columns.end[rows[pattern]]


@jit
def run(conditions, columns, rows, first, after):
    """Whether a program ends with true."""
    stack, identity = conditions.stack, conditions.stack_identity
    top = -1
    for at in range(first, after):
        code, a, b = conditions.code[at, 0], conditions.code[at, 1], conditions.code[at, 2]
        if code <= CONSTANT:
            top += 1
            identity[top] = -1
            if code == COLUMN:
                row = rows[a]
                stack[top, 0], stack[top, 1] = columns.kind[b, row], columns.number[b, row]
                identity[top] = columns.identity[b, row]
            elif code == CONSTANT:
                stack[top, 0], stack[top, 1] = conditions.constant[a, 0], conditions.constant[a, 1]
                identity[top] = conditions.constant_identity[a]
            else:
                stack[top, 0] = b
                stack[top, 1] = columns.start[rows[a]] if code == START else columns.end[rows[a]]
        elif code == NOT:
            truth, wrong = _truth(stack[top, 0], stack[top, 1])
            stack[top, 0], stack[top, 1] = _kind_of(wrong), np.float64(not truth)
        elif code == NEGATIVE or code == ABSOLUTE:
            if not _is_number(stack[top, 0]):
                stack[top, 0] = ERROR
            elif code == NEGATIVE:
                stack[top, 1] = -stack[top, 1]
            else:
                stack[top, 1] = abs(stack[top, 1])
            identity[top] = -1
        elif code == AND or code == OR:
            top = _junction(stack, identity, top, a, code == OR)
        else:
            top -= 1
            kind, number = _binary(
                code,
                stack[top, 0],
                stack[top, 1],
                identity[top],
                stack[top + 1, 0],
                stack[top + 1, 1],
                identity[top + 1],
            )
            stack[top, 0], stack[top, 1], identity[top] = kind, number, -1
    truth, wrong = _truth(stack[0, 0], stack[0, 1])
    return truth and not wrong


@jit
def _kind_of(wrong):
    return np.float64(ERROR) if wrong else np.float64(BOOLEAN)


@jit
def _is_number(kind):
    return kind == EXACT or kind == DOUBLE


@jit
def _truth(kind, number):
    """The effective boolean value, and whether there is none; texts have been turned into truths before."""
    if kind == BOOLEAN:
        return number != 0.0, False
    if _is_number(kind):
        return number != 0.0 and number == number, False
    return False, True


@jit
def _junction(stack, identity, top, count, either):
    """And or or of the topmost `count` values."""
    decided, wrong = False, False
    for i in range(top - count + 1, top + 1):
        truth, bad = _truth(stack[i, 0], stack[i, 1])
        if bad:
            wrong = True
        elif truth == either:
            decided = True
    top = top - count + 1
    stack[top, 0] = _kind_of(wrong and not decided)
    stack[top, 1] = np.float64(decided == either)
    identity[top] = -1
    return top


@jit
def _binary(code, a, x, i, b, y, j):
    """A comparison or an operation on two values: kind and number of the outcome."""
    if a == ERROR or b == ERROR:
        return np.float64(ERROR), 0.0
    numbers = _is_number(a) and _is_number(b)
    timelike = a == b and (a == BOOLEAN or a == TIME or a == NAIVE)
    if code >= PLUS:
        if not numbers or (code == OVER and y == 0.0 and a == EXACT and b == EXACT):
            return np.float64(ERROR), 0.0
        kind = np.float64(EXACT if a == EXACT and b == EXACT else DOUBLE)
        if code == PLUS:
            return kind, x + y
        if code == MINUS:
            return kind, x - y
        if code == TIMES:
            return kind, x * y
        return kind, x / y
    if code >= LESS:
        if not numbers and not timelike and not (a == STRING and b == STRING):
            return np.float64(ERROR), 0.0
        if code == LESS:
            return np.float64(BOOLEAN), np.float64(x < y)
        if code == LESS_EQUAL:
            return np.float64(BOOLEAN), np.float64(x <= y)
        if code == GREATER:
            return np.float64(BOOLEAN), np.float64(x > y)
        return np.float64(BOOLEAN), np.float64(x >= y)
    known = i >= 0 and j >= 0
    same = known and i == j
    if timelike or (numbers and not (known and abs(x) >= LARGEST)):
        equal = x == y
    else:
        equal = same and (a == b or numbers)
        nodes = a == IRI or a == BLANK or b == IRI or b == BLANK
        if not nodes and not equal:
            if a == OTHER or b == OTHER or (a == TIME and b == NAIVE) or (a == NAIVE and b == TIME):
                return np.float64(ERROR), 0.0
    return np.float64(BOOLEAN), np.float64(equal if code == EQUAL else not equal)
