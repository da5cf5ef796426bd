"""CLOCK-EXP: CLOCK with scores that fade by a factor instead of falling by 1.

As for CLOCK the step at which the hand would evict a tuple is known from its score. Here a match changes
it by more or less than one round, so scores are brought up to date tuple by tuple when they match. The
hand may have passed a tuple many times since: up to four times the score is multiplied by `rho` step by
step as a walk would, beyond that by a power from a table, which is the same but for rounding.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from penstock.kernels.bitset import bit_add
from penstock.kernels.cells import BLOCK, Cells, add_cell, cell_of, fetch_cells, new_cells, remove_cell
from penstock.kernels.hooks import enter, fetch, leave, lowest, make_room, match_key, match_one, score
from penstock.kernels.jit import jit
from penstock.kernels.layout import COUNT, HEAD, PLACE, STREAM, Store
from penstock.kernels.queue import Queue, file_newcomer, front, new_queue
from penstock.policies.base import Policy, Setting, is_number
from penstock.policies.clock import Ring, check_ring, new_ring, strike, take_position

# Columns of a cell.
WEIGHT = 1
VISIT = 2  # the step at which the hand comes next, as seen when the weight was brought up to date
DUE = 3  # the step at which the hand would evict; -1: to be found anew

POWERS = 1_024
STEPWISE = 4

# Parameters.
W0 = 0
THRESHOLD = 1
FIRST_ROUNDS = 2  # rounds that a newcomer survives without a match, plus one


class ClockExpState(NamedTuple):
    """The ring, the queue, and a cell per tuple: its score before the next visit of the hand."""

    ring: Ring
    queue: Queue
    cells: Cells
    parameters: np.ndarray
    powers: np.ndarray  # of rho


@dataclass(frozen=True)
class ClockExp(Policy):
    """Evict the first tuple whose score the hand brings below the threshold.

    Each passing of the hand multiplies the score by `rho`. A `rho` near 1 forgets slowly and weighs how
    often a tuple has matched, a small one weighs how recently.

    >>> import penstock as ps
    >>> left, right = {"key": [1, 2, 3], "ts": [0, 1, 3]}, {"key": [1, 1], "ts": [2, 4]}
    >>> join = ps.WindowJoin(within=10, budget=ps.Tuples(4), policy="clock-exp:rho=0.5")
    >>> join.run(left, right, on="key", time="ts").stats.results
    2
    """

    w0: float = 1.0
    rho: float = 0.95
    threshold: float = 0.01

    name: ClassVar[str] = "clock-exp"
    summary: ClassVar[str] = "a hand fades each score it passes; who falls below the threshold goes"
    cost: ClassVar[str] = "O(log n) per arrival, O(1) per match"
    paper: ClassVar[str] = "Gao, Scharrenbach and Bernstein 2014, sections 3.2 and 4.4"
    one_by_one: ClassVar[bool] = True

    def __post_init__(self) -> None:
        self.require(is_number(self.w0) and 0 <= self.w0 < float("inf"), "w0", "a number from 0 up")
        self.require(
            is_number(self.rho) and 0 < self.rho <= 0.9999,
            "rho",
            "above 0 and at most 0.9999 (a score that does not fade is never evicted)",
        )
        self.require(is_number(self.threshold) and self.threshold > 0, "threshold", "above 0")

    def build(self, setting: Setting) -> ClockExpState:
        """An empty ring per pool."""
        powers = np.cumprod(np.concatenate([[1.0], np.full(POWERS - 1, float(self.rho))]))
        rounds = _rounds(float(self.w0), float(self.threshold), powers)
        return ClockExpState(
            ring=new_ring(setting.capacities),
            queue=new_queue(setting.capacities),
            cells=new_cells(setting.total, 3),
            parameters=np.array([self.w0, self.threshold, rounds], np.float64),
            powers=powers,
        )

    def check(self, state: Any, store: Store) -> None:
        """Positions are taken once."""
        check_ring(state.ring, store)


@jit
def _faded(weight, passes, powers):
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
def _rounds(weight, threshold, powers):
    """How often the hand must pass until it evicts, at least once: from logarithms, then exactly."""
    passes = np.int64(1)
    if weight > threshold:
        passes = max(passes, np.int64(np.log(threshold / weight) / np.log(powers[1])))
    while passes > 1 and _faded(weight, passes - 1, powers) < threshold:
        passes -= 1
    while _faded(weight, passes, powers) >= threshold:
        passes += 1
    return passes


@fetch.on(ClockExpState)
def _fetch(policy, store, entry, side):
    fetch_cells(policy.cells, store, entry, side)


@match_key.on(ClockExpState)
def _match_key(policy, store, entry, side, arrival):
    pool = store.pool_of[store.t32[store.k32[entry, HEAD + side], STREAM]]
    block = store.k32[entry, BLOCK + side]
    cells = (block, block + store.k32[entry, COUNT + side])
    _raise_weights(
        policy.cells.words,
        policy.cells.floats,
        policy.powers,
        cells,
        policy.ring.hand[pool],
        policy.ring.size[pool],
    )


@match_one.on(ClockExpState)
def _match_one(policy, store, slot, arrival):
    pool = store.pool_of[store.t32[slot, STREAM]]
    cell = cell_of(policy.cells, store, slot)
    _raise_weights(
        policy.cells.words,
        policy.cells.floats,
        policy.powers,
        (cell, cell + 1),
        policy.ring.hand[pool],
        policy.ring.size[pool],
    )


@jit
def _raise_weights(words, floats, powers, cells, step, size):
    """Bring the scores of a stretch of cells up to the present step of the hand, and add 1 to each."""
    per_step = 1.0 / size
    for cell in range(cells[0], cells[1]):
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
                weight = _faded(weight, passes, powers)
        floats[cell, WEIGHT] = weight + 1.0
        words[cell, DUE] = -1


@enter.on(ClockExpState)
def _enter(policy, store, slot):
    pool = store.pool_of[store.t32[slot, STREAM]]
    position, visit = take_position(policy.ring, pool)
    store.t32[slot, PLACE] = position
    due = visit + (np.int64(policy.parameters[FIRST_ROUNDS]) - 1) * policy.ring.size[pool]
    cell = add_cell(policy.cells, store, slot)
    policy.cells.floats[cell, WEIGHT] = policy.parameters[W0]
    policy.cells.words[cell, VISIT] = visit
    policy.cells.words[cell, DUE] = due
    file_newcomer(policy.queue, store, pool, slot, np.float64(due))


@leave.on(ClockExpState)
def _leave(policy, store, slot):
    bit_add(policy.ring.free, store.pool_of[store.t32[slot, STREAM]], store.t32[slot, PLACE])
    remove_cell(policy.cells, store, slot)


@score.on(ClockExpState)
def _score(policy, store, slot):
    cell = cell_of(policy.cells, store, slot)
    words = policy.cells.words
    if words[cell, DUE] < 0:
        weight = policy.cells.floats[cell, WEIGHT]
        rounds = _rounds(weight, policy.parameters[THRESHOLD], policy.powers)
        size = policy.ring.size[store.pool_of[store.t32[slot, STREAM]]]
        words[cell, DUE] = words[cell, VISIT] + (rounds - 1) * size
    return np.float64(words[cell, DUE])


@lowest.on(ClockExpState)
def _lowest(policy, store, pool):
    return front(policy, policy.queue, store, pool)


@make_room.on(ClockExpState)
def _make_room(policy, store, pool, stream, entry):
    slot, step = lowest(policy, store, pool)
    strike(policy.ring, pool, store.t32[slot, PLACE], np.int64(step))
    return slot
