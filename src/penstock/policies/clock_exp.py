"""CLOCK-EXP: CLOCK with scores that the hand multiplies by a factor instead of lowering by 1.

As for CLOCK, the step at which the hand would evict a tuple follows from its score. A match postpones that
step, for all tuples of the key, by more or less than one round, but to no earlier than a score of 1 lasts. So
matched tuples are not in the queue; instead their key is in a list ordered by last match. The front of the
queue is the victim as long as it is due before any tuple of the key matched longest ago can be. Otherwise
that key is removed from the list and its tuples are put into the queue one by one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple

import numpy as np

from penstock.arguments import is_number
from penstock.compiler.jit import jit
from penstock.compiler.references import prefetch
from penstock.engine.cache_loop import (
    Heap,
    entered,
    gone,
    lower,
    new_heap,
    push,
    raise_to,
    remove,
    score_of,
    used,
    worst,
)
from penstock.engine.hooks import enter, fetch, filed, leave, lowest, make_room, match_key, match_one, score
from penstock.engine.score_queue import Queue, file_again, file_newcomer, front, new_queue
from penstock.engine.store import (
    ARRIVAL,
    BASE,
    COUNT,
    ENTRY,
    HEAD,
    HIGH_TUPLE,
    NODE,
    PLACE,
    SIDE,
    STREAM,
    USE,
    Store,
)
from penstock.engine.tuple_cells import (
    BLOCK,
    SLOT,
    Cells,
    add_cell,
    cell_of,
    fetch_cells,
    new_cells,
    remove_cell,
)
from penstock.policies.base import CacheSetting, Policy, Setting
from penstock.policies.clock import (
    Ring,
    check_ring,
    in_larger_ring,
    new_ring,
    next_visit,
    refile_in_larger_ring,
    ring_for,
    strike,
    take_position,
)
from penstock.structures.bitset import bit_add
from penstock.structures.decaying_scores import (
    COLUMNS,
    KNOWN,
    LENGTH,
    POWERS,
    SINCE,
    VISIT,
    WEIGHT,
    WORTH,
    Logs,
    begin_log,
    give_log,
    new_logs,
    note,
    raise_by_log,
    raise_weights,
    rounds_left,
    take_log,
)
from penstock.structures.recency_list import LAST, NEWER, NOTED, Recency, forget, new_recency, oldest, touch

RHO_DEFAULT = 0.95
OTHER_RHOS = (0.5, 0.8, 0.99, 0.998)

# Parameters.
W0 = 0
THRESHOLD = 1
FIRST_ROUNDS = 2  # rounds that a newcomer survives without a match, plus one
SAFE_ROUNDS = 3  # rounds that a score of 1 survives, plus one


class ClockExpState(NamedTuple):
    """The ring; a queue of tuples by due step, a list of keys by last match, and a cell per tuple.

    `BASE` holds the step at which a tuple is due, or -1 if it is not in the queue.
    """

    ring: Ring
    queue: Queue
    recency: Recency
    cells: Cells
    logs: Logs
    parameters: np.ndarray
    powers: np.ndarray  # of rho


class ClockExpCache(NamedTuple):
    """In a cache: the ring, its entries by due step, and the score of each.

    A score is as of the step before `visit`, the next step at which the hand reaches the entry.
    """

    ring: Ring
    heap: Heap
    position: np.ndarray
    weight: np.ndarray
    visit: np.ndarray
    parameters: np.ndarray
    powers: np.ndarray


@dataclass(frozen=True)
class ClockExp(Policy):
    """Evict the first tuple whose score the hand lowers below the threshold.

    Each pass of the hand multiplies the score by `rho` (default 0.95). A `rho` near 1 forgets slowly and
    favours tuples that match often; a small one favours recent matches. `rho="auto"` tunes it while the join
    runs: several values are simulated on a sample of the keys, as `auto` does with policies.

    >>> import penstock as ps
    >>> left, right = {"key": [1, 2, 3], "ts": [0, 1, 3]}, {"key": [1, 1], "ts": [2, 4]}
    >>> join = ps.WindowJoin(within=10, budget=ps.Tuples(4), policy="clock-exp:rho=0.5")
    >>> join.run(left, right, on="key", time="ts").stats.results
    2
    """

    w0: float = 1.0
    rho: float | str = RHO_DEFAULT
    threshold: float = 0.01

    name: ClassVar[str] = "clock-exp"
    summary: ClassVar[str] = "a hand multiplies each score by rho and evicts the first below the threshold"
    wins: ClassVar[str] = (
        "recency matters most: with a small rho it is close to lru, with a large one to clock"
    )
    loses: ClassVar[str] = "popularity is fixed; also, rho has to fit the stream (rho=auto searches for it)"
    cost: ClassVar[str] = "O(log n) per arrival, O(1) per match"
    paper: ClassVar[str] = "Gao, Scharrenbach and Bernstein 2014, sections 3.2 and 4.4"
    candidate_for: ClassVar[Mapping[str, int]] = {"join": 2, "cache": 1}
    one_by_one: ClassVar[bool] = True
    grows: ClassVar[bool] = True
    caches: ClassVar[bool] = True
    margin: ClassVar[float] = 0.003  # with rho="auto": the lead that a switch requires
    trial_bytes: ClassVar[int] = 1 << 20  # with rho="auto": minimum bytes for the small buffers (else 5 %)

    def __post_init__(self) -> None:
        if isinstance(self.rho, str) and self.rho == "auto":
            # Set on this object only: the class attributes describe a fixed rho.
            for name, value in (("chooses", True), ("many", False), ("caches", False)):
                object.__setattr__(self, name, value)
            self._check_others()
            return
        self.require(
            is_number(self.rho) and 0 < float(self.rho) <= 0.9999,
            "rho",
            "above 0 and at most 0.9999 (a score that does not decay is never evicted), or 'auto'",
        )
        self._check_others()

    def _check_others(self) -> None:
        self.require(is_number(self.w0) and 0 <= self.w0 < float("inf"), "w0", "a number from 0 up")
        self.require(is_number(self.threshold) and self.threshold > 0, "threshold", "above 0")

    def among(self, operator: str = "join") -> list[ClockExp]:
        """What `rho="auto"` chooses from, the same in every operator.

        >>> from penstock import policies
        >>> [policy.rho for policy in policies.get("clock-exp:rho=auto").among()]
        [0.95, 0.5, 0.8, 0.99, 0.998]
        """
        return [replace(self, rho=rho) for rho in (RHO_DEFAULT, *OTHER_RHOS)]

    def build(self, setting: Setting) -> ClockExpState:
        """Build an empty ring per pool."""
        if self.rho == "auto":
            return self.among()[0].build(setting)
        powers = self._powers()
        first, safe = (rounds_left(weight, float(self.threshold), powers) for weight in (float(self.w0), 1.0))
        return ClockExpState(
            ring=ring_for(setting),
            queue=new_queue(setting.at_first),
            recency=new_recency(sum(setting.at_first) + 2, len(setting.capacities)),
            cells=new_cells(sum(setting.at_first), COLUMNS),
            # A key without a log has the same scores but for rounding, so there are as many as there can be.
            logs=new_logs(sum(setting.at_first) if setting.in_bytes else setting.total),
            parameters=np.array([self.w0, self.threshold, first, safe], np.float64),
            powers=powers,
        )

    def _powers(self) -> np.ndarray:
        return np.cumprod(np.concatenate([[1.0], np.full(POWERS - 1, float(self.rho))]))

    def build_cache(self, setting: CacheSetting) -> ClockExpCache:
        """Build an empty ring with a position per entry."""
        entries = setting.capacity + 1
        return ClockExpCache(
            ring=new_ring((setting.capacity,)),
            heap=new_heap(setting.capacity),
            position=np.zeros(entries, np.int64),
            weight=np.zeros(entries),
            visit=np.zeros(entries, np.int64),
            parameters=np.array([self.w0, self.threshold, self.rho], np.float64),
            powers=self._powers(),
        )

    def grow(self, state: ClockExpState, store: Store, rooms: tuple[int, ...]) -> ClockExpState:
        """Make room in all tables, and in the ring if it has fewer positions."""
        size, ring = state.ring.size, state.ring.grown(rooms)
        if not np.array_equal(size, ring.size):
            _move_steps(state, store, size, ring.size)
        return super().grow(state, store, rooms)._replace(ring=ring)

    def check(self, state: Any, store: Store) -> None:
        """Assert that positions are taken once, every tuple can be found, and logs are free or of one key."""
        check_ring(state.ring, store)
        rows = state.recency.rows
        live = np.flatnonzero(store.t64[: store.meta[4] + 1, ARRIVAL] >= 0)
        logs = set()
        for slot in live[live > 0]:
            entry, side = store.t32[slot, ENTRY], store.t32[slot, SIDE]
            row, cell = 2 * entry + side, cell_of(state.cells, store, slot)
            assert state.cells.words[cell, SLOT] == slot
            unmatched = state.cells.words[cell, SINCE] == store.k64[entry, USE + side]
            assert rows[row, NEWER] != 0 or (unmatched and store.t64[slot, BASE] >= 0), "a tuple is lost"
            if rows[row, NOTED] != 0:
                logs.add(int(rows[row, NOTED]))
        log = state.logs.steps[0, LENGTH]
        free = 0
        while log != 0:
            assert log not in logs, "a log is in use and free"
            log, free = state.logs.steps[log, LENGTH], free + 1
        assert free + len(logs) == len(state.logs.steps) - 1, "a log is lost"


def _move_steps(state: ClockExpState, store: Store, size: np.ndarray, larger: np.ndarray) -> None:
    """Move all steps of the hand to a larger ring."""
    refile_in_larger_ring(state.queue, size, larger)
    slots = np.flatnonzero(store.t64[: store.meta[HIGH_TUPLE] + 1, ARRIVAL] >= 0)[1:]
    few = store.t32[slots]
    pool = store.pool_of[few[:, STREAM]]
    cells = store.k32[few[:, ENTRY], BLOCK + few[:, SIDE]] + few[:, NODE]
    for steps, at in ((store.t64[:, BASE], slots), (state.cells.words[:, VISIT], cells)):
        moved = in_larger_ring(steps[at], size[pool], larger[pool])
        steps[at] = np.where(steps[at] < 0, steps[at], moved)
    rows = state.recency.rows
    keys = np.unique(2 * few[:, ENTRY].astype(np.int64) + few[:, SIDE])
    pool = store.pool_of[keys & 1]
    rows[keys, LAST] = in_larger_ring(rows[keys, LAST], size[pool], larger[pool])
    noted, pool = rows[keys, NOTED], pool[:, None]
    steps = state.logs.steps[noted, KNOWN:]
    state.logs.steps[noted, KNOWN:] = np.where(
        noted[:, None] > 0, in_larger_ring(steps, size[pool], larger[pool]), steps
    )


@fetch.on(ClockExpState)
def _fetch(policy, store, entry, side):
    fetch_cells(policy.cells, store, entry, side)
    prefetch(policy.recency.rows, 4 * (2 * entry + side))


@match_key.on(ClockExpState)
def _match_key(policy, store, entry, side, arrival):
    pool = store.pool_of[store.t32[store.k32[entry, HEAD + side], STREAM]]
    step, row = policy.ring.hand[pool], 2 * np.int64(entry) + side
    store.k64[entry, USE + side] += 1
    touch(policy.recency, pool, row, step)
    log = policy.recency.rows[row, NOTED]
    if log != 0:
        if note(policy.logs, log, step):
            _settle(policy, store, row, pool)
        return
    block, tuples = store.k32[entry, BLOCK + side], store.k32[entry, COUNT + side]
    raise_weights(policy.cells, policy.powers, block, block + tuples, step, policy.ring.size[pool])
    if tuples >= WORTH:
        log = take_log(policy.logs)
        policy.recency.rows[row, NOTED] = log
        if log != 0:
            begin_log(policy.logs, log, step)


@jit
def _settle(policy, store, row, pool):
    """Update the scores of a key's tuples to its last match."""
    log = policy.recency.rows[row, NOTED]
    if log != 0:
        entry, side = row >> 1, row & 1
        first = np.int64(store.k32[entry, BLOCK + side])
        after = first + store.k32[entry, COUNT + side]
        size, uses = policy.ring.size[pool], store.k64[entry, USE + side]
        raise_by_log(policy.cells, policy.powers, policy.logs, log, first, after, size, uses)


@match_one.on(ClockExpState)
def _match_one(policy, store, slot, arrival):
    """Match a single tuple: here every tuple is in the queue, and keys do not count uses."""
    pool = store.pool_of[store.t32[slot, STREAM]]
    cell = cell_of(policy.cells, store, slot)
    raise_weights(policy.cells, policy.powers, cell, cell + 1, policy.ring.hand[pool], policy.ring.size[pool])
    store.t64[slot, BASE] = _due(policy, cell, pool)


@jit
def _release(policy, row):
    """Remove a key from the list and free its log."""
    forget(policy.recency, row)
    log = policy.recency.rows[row, NOTED]
    if log != 0:
        give_log(policy.logs, log)
        policy.recency.rows[row, NOTED] = 0


@jit
def _due(policy, cell, pool):
    """Return the step at which the hand would evict the tuple of an up-to-date cell."""
    rounds = rounds_left(policy.cells.floats[cell, WEIGHT], policy.parameters[THRESHOLD], policy.powers)
    return policy.cells.words[cell, VISIT] + (rounds - 1) * policy.ring.size[pool]


@jit
def _dissolve(policy, store, row, pool):
    """Put the tuples of a key that are not in the queue yet into the queue, one by one."""
    _settle(policy, store, row, pool)
    _release(policy, row)
    entry, side = row >> 1, row & 1
    words, uses = policy.cells.words, store.k64[entry, USE + side]
    first = np.int64(store.k32[entry, BLOCK + side])
    for cell in range(first, first + store.k32[entry, COUNT + side]):
        slot = words[cell, SLOT]
        queued = store.t64[slot, BASE] >= 0
        if words[cell, SINCE] != uses or not queued:
            due = _due(policy, cell, pool)
            words[cell, SINCE] = uses
            store.t64[slot, BASE] = due
            if not queued:
                file_again(policy.queue, store, pool, slot, np.float64(due))


@enter.on(ClockExpState)
def _enter(policy, store, slot):
    entry, side = np.int64(store.t32[slot, ENTRY]), np.int64(store.t32[slot, SIDE])
    pool = store.pool_of[store.t32[slot, STREAM]]
    position, visit = take_position(policy.ring, pool)
    store.t32[slot, PLACE] = position
    uses = store.k64[entry, USE + side]
    cell = add_cell(policy.cells, store, slot)
    policy.cells.floats[cell, WEIGHT] = policy.parameters[W0]
    policy.cells.words[cell, VISIT] = visit
    policy.cells.words[cell, SINCE] = uses
    first_rounds, safe_rounds = policy.parameters[FIRST_ROUNDS], policy.parameters[SAFE_ROUNDS]
    if uses != 0 and first_rounds >= safe_rounds and policy.recency.rows[2 * entry + side, NEWER] != 0:
        store.t64[slot, BASE] = -1  # it survives as long as the tuples that were matched last
        return
    due = visit + (np.int64(first_rounds) - 1) * policy.ring.size[pool]
    store.t64[slot, BASE] = due
    file_newcomer(policy.queue, store, pool, slot, np.float64(due))


@leave.on(ClockExpState)
def _leave(policy, store, slot):
    bit_add(policy.ring.free, store.pool_of[store.t32[slot, STREAM]], store.t32[slot, PLACE])
    entry, side = np.int64(store.t32[slot, ENTRY]), np.int64(store.t32[slot, SIDE])
    if store.k32[entry, COUNT + side] == 1 and store.k64[entry, USE + side] != 0:
        _release(policy, 2 * entry + side)
    remove_cell(policy.cells, store, slot)


@jit
def _known(policy, store, slot):
    """Whether a tuple has not been matched since it was put into the queue."""
    uses = store.k64[store.t32[slot, ENTRY], USE + store.t32[slot, SIDE]]
    return uses == 0 or policy.cells.words[cell_of(policy.cells, store, slot), SINCE] == uses


@filed.on(ClockExpState)
def _filed(policy, store, slot):
    """Remove a matched tuple from the queue; the list of keys takes over."""
    if _known(policy, store, slot):
        return True
    store.t64[slot, BASE] = -1
    return False


@score.on(ClockExpState)
def _score(policy, store, slot):
    due = store.t64[slot, BASE]
    if due < 0 or not _known(policy, store, slot):
        row = 2 * np.int64(store.t32[slot, ENTRY]) + store.t32[slot, SIDE]
        pool = store.pool_of[store.t32[slot, STREAM]]
        _settle(policy, store, row, pool)
        due = _due(policy, cell_of(policy.cells, store, slot), pool)
    return np.float64(due)


@lowest.on(ClockExpState)
def _lowest(policy, store, pool):
    safe = (np.int64(policy.parameters[SAFE_ROUNDS]) - 1) * policy.ring.size[pool]
    while True:
        slot, due = front(policy, policy.queue, store, pool)
        row = oldest(policy.recency, pool)
        if row == 0 or (slot != 0 and due < policy.recency.rows[row, LAST] + safe):
            return slot, due
        _dissolve(policy, store, row, pool)


@make_room.on(ClockExpState)
def _make_room(policy, store, pool, stream, entry):
    slot, step = lowest(policy, store, pool)
    strike(policy.ring, pool, store.t32[slot, PLACE], np.int64(step))
    return slot


RHO = 2  # parameter of a cache


@jit
def _due_in_cache(policy, slot):
    """Return the step at which the hand would evict an entry whose score is up to date."""
    rounds = rounds_left(policy.weight[slot], policy.parameters[THRESHOLD], policy.powers)
    return np.float64(policy.visit[slot] + (rounds - 1) * policy.ring.size[0])


@entered.on(ClockExpCache)
def _entered(policy, cache, slot):
    position, visit = take_position(policy.ring, 0)
    policy.position[slot] = position
    policy.weight[slot] = policy.parameters[W0]
    policy.visit[slot] = visit
    push(policy.heap, cache, slot, _due_in_cache(policy, slot))


@used.on(ClockExpCache)
def _used(policy, cache, slot):
    """Decay the score by the passes of the hand since its last update, and add 1."""
    visit = next_visit(policy.ring, 0, policy.position[slot], policy.ring.hand[0])
    for _ in range((visit - policy.visit[slot]) // policy.ring.size[0]):
        policy.weight[slot] *= policy.parameters[RHO]
    policy.weight[slot] += 1.0
    policy.visit[slot] = visit
    due = _due_in_cache(policy, slot)
    if due < score_of(policy.heap, cache, slot):
        lower(policy.heap, cache, slot, due)
    else:
        raise_to(policy.heap, cache, slot, due)


@gone.on(ClockExpCache)
def _gone(policy, cache, slot):
    bit_add(policy.ring.free, 0, policy.position[slot])
    remove(policy.heap, cache, slot)


@worst.on(ClockExpCache)
def _worst(policy, cache):
    slot = policy.heap.slot[0]
    strike(policy.ring, 0, policy.position[slot], np.int64(policy.heap.score[0]))
    return slot
