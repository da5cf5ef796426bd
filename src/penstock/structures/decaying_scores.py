"""Scores that a hand multiplies by a factor each time it passes, and that a match raises by 1.

The hand counts its steps round a ring. A cell has its score as of the last match it knows of, and the step
at which the hand comes to its tuple next; how often the hand has passed since follows from the steps alone.
So a match need not change every cell at once: a key with many tuples notes the steps of its matches in
a log, and when the log is full, or a score is asked for, each cell is read and written once for all of them.

What the matches of a log do to a score is to multiply and to add, and two tuples differ in by how much only
if the hand comes to one of them before, to the other after one of the matches in its round. A log of n
matches thus cuts the round into n + 1 stretches, and a cell only needs to know in which one it is.

Up to four passes multiply the score one by one as a walk would, more by a power from a table, a log by a
product and a sum of powers. It is the same but for rounding.

Cost: O(1) per match and tuple; with a log, O(1) per tuple for all of its matches.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from penstock.compiler.jit import jit

# Columns of a cell.
WEIGHT = 1
VISIT = 2  # the step at which the hand comes next, as seen when the score was brought up to date
SINCE = 3  # uses of its key when it was last filed; matches up to this use are none of its own, or known
COLUMNS = 3

POWERS = 1_024
STEPWISE = 4

WORTH = 8  # tuples from which on a key has a log

# Columns of a log.
LENGTH = 0  # in row 0: the first free log
KNOWN = 1  # the step of the last match that the cells include, then those of the matches after it
LOGGED = 15  # steps in a full log

# Columns of the plan of a calculation.
EDGE = 0
PASSED = 1
FACTOR = 0
GAIN = 1
STRETCHES = 16


class Logs(NamedTuple):
    """Logs of hand steps; row 0 is none. The rest is for the time of a calculation only."""

    steps: np.ndarray
    stretches: np.ndarray  # per stretch: where the next one begins, and how far its cells' visits move
    changes: np.ndarray  # per stretch: what its scores are multiplied by, and what is added
    shares: np.ndarray  # per match: what it adds to a score, seen from the last match
    order: np.ndarray  # the matches in the order of their place in the round


Logs.widths = {"steps": LOGGED + 1, "stretches": 2, "changes": 2}  # type: ignore[attr-defined]
Logs.tables = ("steps", "stretches", "changes")  # type: ignore[attr-defined]


def new_logs(capacity: int) -> Logs:
    """As many logs as there can be keys that are worth one."""
    steps = np.zeros((capacity // WORTH + 1, LOGGED + 1), np.int64)
    steps[:-1, LENGTH] = np.arange(1, len(steps))  # each free log has the next
    return Logs(
        steps=steps,
        stretches=np.zeros((STRETCHES, 2), np.int64),
        changes=np.zeros((STRETCHES, 2)),
        shares=np.zeros(STRETCHES),
        order=np.zeros(STRETCHES, np.int64),
    )


@jit
def take_log(logs):
    """A log, 0 if there is none."""
    steps = logs.steps
    log = steps[0, LENGTH]
    if log != 0:
        steps[0, LENGTH] = steps[log, LENGTH]
    return log


@jit
def begin_log(logs, log, step):
    """All cells know of the match at this step, and of no later one."""
    logs.steps[log, LENGTH] = 1
    logs.steps[log, KNOWN] = step


@jit
def note(logs, log, step):
    """Note a match; whether the log is full."""
    length = logs.steps[log, LENGTH]
    logs.steps[log, KNOWN + length] = step
    logs.steps[log, LENGTH] = length + 1
    return length + 1 == LOGGED


@jit
def give_log(logs, log):
    """Take back a log."""
    logs.steps[log, LENGTH] = logs.steps[0, LENGTH]
    logs.steps[0, LENGTH] = log


@jit
def faded(weight, passes, powers):
    """A score after so many passes of the hand."""
    while passes > POWERS - 1:
        weight *= powers[POWERS - 1]
        passes -= POWERS - 1
    if passes > STEPWISE:
        return weight * powers[passes]
    for _ in range(passes):
        weight *= powers[1]
    return weight


@jit
def rounds_left(weight, threshold, powers):
    """How often the hand must pass until it evicts, at least once: from logarithms, then exactly."""
    passes = np.int64(1)
    if weight > threshold:
        passes = max(passes, np.int64(math.log(threshold / weight) / math.log(powers[1])))
    while passes > 1 and faded(weight, passes - 1, powers) < threshold:
        passes -= 1
    while faded(weight, passes, powers) >= threshold:
        passes += 1
    return passes


@jit
def raise_one(words, floats, powers, cell, step, size, per_step):
    """Bring the score of a cell up to this step of the hand, and add 1."""
    behind = step - words[cell, VISIT]
    weight = floats[cell, WEIGHT]
    if behind > 0:
        passes = np.int64((behind - 1) * per_step) + 1
        # Rounding may be one off; a division would take as long as all the rest.
        if (passes - 1) * size >= behind:
            passes -= 1
        elif passes * size < behind:
            passes += 1
        words[cell, VISIT] += passes * size
        if STEPWISE < passes < POWERS:
            weight *= powers[passes]
        else:
            weight = faded(weight, passes, powers)
    floats[cell, WEIGHT] = weight + 1.0


@jit
def raise_weights(cells, powers, first, after, step, size):
    """A match at this step of the hand raises a stretch of cells."""
    words, floats, per_step = cells.words, cells.floats, 1.0 / size
    for cell in range(first, after):
        raise_one(words, floats, powers, cell, step, size, per_step)


@jit
def raise_by_log(cells, powers, logs, log, first, after, size, uses):
    """The matches of a log, the last of which was use number `uses` of the key, raise a stretch of cells."""
    words, floats, per_step = cells.words, cells.floats, 1.0 / size
    stretches, changes, steps = logs.stretches, logs.changes, logs.steps
    matches, known = steps[log, LENGTH] - 1, steps[log, KNOWN]
    if matches == 0:
        return
    _plan(powers, logs, log, size)
    for cell in range(first, after):
        missed = words[cell, SINCE] - (uses - matches)
        if missed < 0:
            away = words[cell, VISIT] - known
            at = 8 * np.int64(stretches[7, EDGE] <= away)
            at += 4 * np.int64(stretches[at + 3, EDGE] <= away)
            at += 2 * np.int64(stretches[at + 1, EDGE] <= away)
            at += np.int64(stretches[at, EDGE] <= away)
            words[cell, VISIT] += stretches[at, PASSED]
            floats[cell, WEIGHT] = floats[cell, WEIGHT] * changes[at, FACTOR] + changes[at, GAIN]
        else:  # it has entered since, and has not seen all of them
            for i in range(missed, matches):
                raise_one(words, floats, powers, cell, steps[log, KNOWN + 1 + i], size, per_step)
    begin_log(logs, log, steps[log, KNOWN + matches])


@jit
def _plan(powers, logs, log, size):
    """Work out what the matches of a log do to the scores in each stretch of the round.

    In the first stretch the hand comes before the matches, wherever in their rounds they are; from one
    stretch to the next, one match more comes before the hand, which then has passed once less till then.
    """
    steps, stretches, changes, shares = logs.steps, logs.stretches, logs.changes, logs.shares
    matches, known, rho = steps[log, LENGTH] - 1, steps[log, KNOWN], powers[1]
    last = matches - 1
    rounds = (steps[log, KNOWN + matches] - known) // size
    earlier = 0.0  # what all matches but the last add
    for i in range(matches):
        since = steps[log, KNOWN + 1 + i] - known
        shares[i] = faded(1.0, rounds - since // size, powers)
        if i < last:
            earlier += shares[i]
        at, edge = i, since % size
        while at > 0 and stretches[at - 1, EDGE] > edge:
            stretches[at, EDGE] = stretches[at - 1, EDGE]
            logs.order[at] = logs.order[at - 1]
            at -= 1
        stretches[at, EDGE] = edge
        logs.order[at] = i
    for at in range(matches, STRETCHES):
        stretches[at, EDGE] = size  # beyond the round
    passes, scale = rounds + 1, 1.0
    for at in range(matches + 1):
        stretches[at, PASSED] = passes * size
        changes[at, FACTOR] = faded(1.0, passes, powers)
        changes[at, GAIN] = earlier * scale + 1.0
        if at < matches:
            i = logs.order[at]
            if i == last:
                passes -= 1
                scale = 1.0 / rho
            else:
                earlier -= shares[i] * (1.0 - rho)
