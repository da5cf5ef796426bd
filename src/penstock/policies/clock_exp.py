"""CLOCK-EXP: CLOCK with scores that fade by a factor instead of falling by 1.

As for CLOCK the step at which the hand would evict a tuple is known from its score. Here a match changes
it by more or less than one round, so scores are brought up to date tuple by tuple when they match: by as
many multiplications as the hand has passed the tuple since, which gives the same float64 as a walk would.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from penstock.kernels.bitset import bit_add
from penstock.kernels.cells import BLOCK, Cells, add_cell, cell_of, new_cells, remove_cell
from penstock.kernels.hooks import enter, leave, lowest, make_room, match_key, score
from penstock.kernels.jit import jit
from penstock.kernels.layout import COUNT, HEAD, PLACE, STREAM, Store
from penstock.kernels.queue import Queue, file_newcomer, front, new_queue
from penstock.policies.base import Policy, Setting, is_number
from penstock.policies.clock import Ring, check_ring, new_ring, strike, take_position

# Columns of a cell.
WEIGHT = 1
VISIT = 2  # the step at which the hand comes next, as seen when the weight was brought up to date
DUE = 3  # the step at which the hand would evict; -1: to be found anew

# Parameters.
W0 = 0
RHO = 1
THRESHOLD = 2
FIRST_ROUNDS = 3  # rounds that a newcomer survives without a match, plus one


class ClockExpState(NamedTuple):
    """The ring, the queue, and a cell per tuple: its score before the next visit of the hand."""

    ring: Ring
    queue: Queue
    cells: Cells
    parameters: np.ndarray


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
        rounds = _rounds(float(self.w0), float(self.rho), float(self.threshold))
        return ClockExpState(
            ring=new_ring(setting.capacities),
            queue=new_queue(setting.capacities),
            cells=new_cells(setting.total, 3),
            parameters=np.array([self.w0, self.rho, self.threshold, rounds], np.float64),
        )

    def fixed_bytes(self, state: Any) -> int:
        """The set of free positions."""
        return int(state.ring.free.words.nbytes)

    def check(self, state: Any, store: Store) -> None:
        """Positions are taken once."""
        check_ring(state.ring, store)


@jit
def _rounds(weight, rho, threshold):
    """How often the hand must pass until it evicts: at least once."""
    passes = 0
    while True:
        weight *= rho
        passes += 1
        if weight < threshold:
            return passes


@match_key.on(ClockExpState)
def _match_key(policy, store, entry, side, arrival):
    pool = store.pool_of[store.t32[store.k32[entry, HEAD + side], STREAM]]
    step, size, rho = policy.ring.hand[pool], policy.ring.size[pool], policy.parameters[RHO]
    words, floats = policy.cells.words, policy.cells.floats
    block = store.k32[entry, BLOCK + side]
    for cell in range(block, block + store.k32[entry, COUNT + side]):
        weight, visit = floats[cell, WEIGHT], words[cell, VISIT]
        while visit < step:
            weight *= rho
            visit += size
        floats[cell, WEIGHT] = weight + 1.0
        words[cell, VISIT] = visit
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
        rounds = _rounds(weight, policy.parameters[RHO], policy.parameters[THRESHOLD])
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
