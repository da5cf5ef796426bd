"""Check the policy states of joins in a snapshot, beyond the structures they consist of."""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock.engine.credit_histogram import CREDIT, POINTER, TOTAL, Histogram
from penstock.engine.store import (
    ARRIVAL,
    BASE,
    COUNT,
    ENTRY,
    HIGH_KEY,
    NODE,
    P_LIVE,
    PLACE,
    ROW,
    SIDE,
    STREAM,
    USE,
    Store,
)
from penstock.engine.tuple_cells import BLOCK, CLASSES, SLOT, WIDTHS, Cells
from penstock.policies.age import AgeState
from penstock.policies.clock_exp import ClockExpState
from penstock.policies.gdj import AUTO, INITIAL, SHARED, STEP, GdjRankState, GdjState
from penstock.policies.learned import LearnedState
from penstock.policies.opt import OptState
from penstock.policies.rand import RandState
from penstock.policies.sample import NOTED as RESULTS_NOTED
from penstock.policies.sample import Departures, SampleState
from penstock.snapshots.array_checks import (
    FAR,
    check_lists,
    check_numbers,
    check_same,
    check_within,
    followed,
    sound,
)
from penstock.states.checks.parts import CHECKS, Members, anything, checks
from penstock.states.checks.store import highest_key, live_tuples
from penstock.structures.decaying_scores import KNOWN, LENGTH, LOGGED, SINCE, VISIT, WEIGHT, Logs
from penstock.structures.recency_list import NEWER, NOTED, OLDER, Recency

ROUNDS = 1 << 24  # more than a score that is a number takes to fade: no hand is farther from a tuple
CREDITS = 1 << 60  # credits below it have exact differences

CHECKS[Logs] = anything  # looked at with their keys


def _blocks_of(cells: Cells, store: Store) -> tuple[np.ndarray, np.ndarray]:
    """The first cell of every block, of keys and free ones, and its size."""
    used, high = int(cells.used[0]), highest_key(store)
    first, width = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    for side in (0, 1):
        entry = np.flatnonzero(store.k32[: high + 1, COUNT + side])
        log = (store.k32[entry, WIDTHS].astype(np.int64) >> (8 * side)) & 255
        check_within(log, 0, CLASSES - 1, "the size of a block")
        sound((store.k32[entry, COUNT + side] <= (1 << log)).all(), "a block is too small")
        first.append(store.k32[entry, BLOCK + side].astype(np.int64))
        width.append(log)
    check_within(cells.free, 0, used, "a free block")
    links = np.append(0, cells.words[:used, SLOT])
    for log in np.flatnonzero(cells.free).tolist():
        found = followed(int(cells.free[log]), links, "free blocks")
        first.append(found - 1)
        width.append(np.full(len(found), log))
    return np.concatenate(first), np.concatenate(width)


@checks(Cells)
def _check_cells(cells: Cells, store: Store, fresh: Any) -> None:
    """Whether every tuple has its cell in a block of its key, and no two blocks overlap."""
    used = int(cells.used[0])
    sound(0 <= used <= len(cells.words), "more cells than there is room for")
    first, log = _blocks_of(cells, store)
    order = np.argsort(first, kind="stable")
    first, after = first[order], (first + (1 << log))[order]
    check_within(first, 0, used, "a block")
    check_within(after, 0, used, "a block")
    sound((first[1:] >= after[:-1]).all(), "two blocks overlap")
    live = live_tuples(store)
    entry, side, node = (store.t32[live, column] for column in (ENTRY, SIDE, NODE))
    check_within(node, 0, used, "the cell of a tuple")
    sound((node < store.k32[entry, COUNT + side]).all(), "the cell of a tuple is out of range")
    sound((cells.words[_cells_of(store, live), SLOT] == live).all(), "a cell has another tuple")


def _cells_of(store: Store, slots: np.ndarray) -> np.ndarray:
    entry, side = store.t32[slots, ENTRY], store.t32[slots, SIDE]
    return store.k32[entry, BLOCK + side].astype(np.int64) + store.t32[slots, NODE]


@checks(Histogram)
def _check_histogram(histogram: Histogram, store: Store, fresh: Any) -> None:
    check_within(histogram.meta[:, POINTER], 0, histogram.bins.shape[1], "the pointer of a histogram")
    check_same(histogram.meta[:, TOTAL], store.pools[:, P_LIVE], "the number of credits")
    check_within(histogram.bins, 0, len(store.t64), "a bin of a histogram")
    check_within(histogram.meta, -FAR, FAR, "a credit")


def check_tuning(tuning: np.ndarray, fresh: np.ndarray) -> None:
    """Whether a quantile is one, and can be tuned."""
    sound(np.isfinite(tuning).all(), "the tuning of a quantile is not a number")
    sound(0.0 <= tuning[INITIAL] <= 1.0 and tuning[STEP] > 0.0, "a quantile is out of range")
    sound(tuning[AUTO] == fresh[AUTO] and tuning[SHARED] in (0.0, 1.0), "a quantile is another")


@checks(GdjState)
def _check_gdj(state: GdjState, store: Store, fresh: GdjState) -> None:
    check_tuning(state.tuning, fresh.tuning)
    check_within(state.shared, -CREDITS, CREDITS, "a credit")
    live = live_tuples(store)
    credit, uses = store.t64[live, BASE], store.k64[store.t32[live, ENTRY], USE + store.t32[live, SIDE]]
    check_within(credit, -CREDITS, CREDITS, "a credit")
    check_within(uses, -CREDITS, CREDITS, "the uses of a key")
    check_same(state.cells.words[_cells_of(store, live), CREDIT], credit, "the credit of a tuple")


@checks(GdjRankState)
def _check_gdj_rank(state: GdjRankState, store: Store, fresh: GdjRankState) -> None:
    check_tuning(state.tuning, fresh.tuning)
    check_numbers(state.shared, "a credit")


@checks(RandState)
def _check_members(state: RandState, store: Store, fresh: Any) -> None:
    """Whether every tuple is at its place among the members of its pool."""
    check_same(state.length, store.pools[:, P_LIVE], "the number of members")
    check_within(state.turn, 0, state.drawn.shape[1] - 1, "the next draw")
    check_within(state.waiting, 0, 2**31, "the number of those that wait")
    sound(((state.drawn < 1.0) & (state.drawn >= -1.0)).all(), "a draw is out of range")
    check_within(state.members, 0, len(store.t64) - 1, "a member")
    members = Members(store)
    for pool in range(members.pools):
        mine = members.slots[members.pool == pool]
        check_placed(state.members[pool], mine, store.t32[mine, PLACE])


@checks(Departures)
def _check_departures(departures: Departures, store: Store, fresh: Any) -> None:
    """Whether there is room for those that are counted, and their priorities are such."""
    check_within(departures.length, 0, departures.during.shape[1], "the number of departures")
    for pool, length in enumerate(departures.length.tolist()):
        _check_priorities(departures.priority[pool, :length])


@checks(SampleState)
def _check_sample(state: SampleState, store: Store, fresh: Any) -> None:
    """Whether every tuple has a priority, and no result is noted that nobody waits for."""
    _check_priorities(store.f64[live_tuples(store), BASE])
    check_within(state.meta, 0, 2**62, "a number of draws")
    sound(state.meta[RESULTS_NOTED] == 0, "results are noted that nobody waits for")


def _check_priorities(priorities: np.ndarray) -> None:
    sound(((priorities > 0.0) & (priorities <= 1.0)).all(), "a priority is out of range")


def check_placed(table: np.ndarray, slots: np.ndarray, place: np.ndarray) -> None:
    """Whether members stand at the beginning of a table without gaps, each at its place."""
    check_within(place, 0, min(len(table), len(slots)) - 1, "a place")
    sound((table[place] == slots).all(), "a member is not at its place")


@checks(AgeState)
def _check_age(state: AgeState, store: Store, fresh: AgeState | None) -> None:
    if state.own.shape[1] > 0:
        check_within(store.t64[live_tuples(store), ROW], 0, state.own.shape[1] - 1, "a row")
        check_numbers(state.own, "an age")
    if fresh is not None:
        check_same(state.width, fresh.width, "the width of a bin")
        check_same(state.capacity, fresh.capacity, "the size of a pool")
    sound((state.width > 0.0).all(), "the width of a bin is another")


@checks(OptState)
def _check_opt(state: OptState, store: Store, fresh: Any) -> None:
    check_within(store.t64[live_tuples(store), ARRIVAL], 0, len(state.until) - 1, "an arrival")


@checks(Recency)
def _check_recency(recency: Recency, store: Store, fresh: Recency) -> None:
    """Whether the rows of keys that are in a list are linked to a ring, each in that of its pool."""
    rows = recency.rows
    check_same(recency.ends, fresh.ends, "the end of a list")
    inside = np.flatnonzero(rows[:, NEWER])
    older, newer = rows[inside, OLDER], rows[inside, NEWER]
    for near in (older, newer):
        check_within(near, 1, len(rows) - 1, "a link of a list")
    sound((rows[older, NEWER] == inside).all() and (rows[newer, OLDER] == inside).all(), "a list is broken")
    pool = np.full(len(rows), -1, np.int64)
    live = live_tuples(store)
    key = 2 * store.t32[live, ENTRY].astype(np.int64) + store.t32[live, SIDE]
    pool[key] = store.pool_of[store.t32[live, STREAM]]
    pool[recency.ends] = np.arange(len(recency.ends))
    sound(
        (pool[inside] >= 0).all() and np.isin(recency.ends, inside).all(), "a list has a key without tuples"
    )
    sound((pool[newer] == pool[inside]).all(), "a list has keys of two pools")


@checks(ClockExpState)
def _check_clock_exp(state: ClockExpState, store: Store, fresh: ClockExpState) -> None:
    """Whether no hand is so far from a tuple that its score would fade for ever, and logs are of one key."""
    check_same(state.parameters, fresh.parameters, "a parameter")
    check_same(state.powers, fresh.powers, "a parameter")
    members = Members(store)
    hand, size = state.ring.hand[members.pool], state.ring.size[members.pool]
    cells = _cells_of(store, members.slots)
    words, weight = state.cells.words[cells], state.cells.floats[cells, WEIGHT]
    sound((np.isfinite(weight) & (weight >= 0.0)).all(), "a score is out of range")
    check_within(words[:, VISIT], 0, FAR, "a step of a hand")
    check_within(store.t64[members.slots, BASE], -1, FAR, "a step of a hand")
    for step in (words[:, VISIT], store.t64[members.slots, BASE]):
        sound((np.abs(hand - np.where(step < 0, hand, step)) <= ROUNDS * size).all(), "a hand is far off")
    uses = store.k64[store.t32[members.slots, ENTRY], USE + store.t32[members.slots, SIDE]]
    check_within(uses, 0, FAR, "the uses of a key")
    check_within(words[:, SINCE], 0, FAR, "the uses of a key")
    _check_logs(state, store)


def _check_logs(state: ClockExpState, store: Store) -> None:
    steps, rows = state.logs.steps, state.recency.rows
    with_log = np.flatnonzero(rows[:, NOTED])
    log = rows[with_log, NOTED]
    check_within(log, 1, len(steps) - 1, "a log")
    sound((rows[with_log, NEWER] != 0).all(), "a key has a log and no match")
    sound(len(np.unique(log)) == len(log), "two keys have one log")
    free = np.setdiff1d(np.arange(1, len(steps)), log)
    check_lists(steps[0, [LENGTH]], steps[:, LENGTH], free, "free logs")
    length = steps[log, LENGTH]
    check_within(length, 1, LOGGED - 1, "the length of a log")
    live = live_tuples(store)
    pool = np.zeros(len(rows), np.int64)
    pool[2 * store.t32[live, ENTRY].astype(np.int64) + store.t32[live, SIDE]] = store.pool_of[
        store.t32[live, STREAM]
    ]
    hand, size = state.ring.hand[pool[with_log]], state.ring.size[pool[with_log]]
    noted = np.arange(LOGGED) < length[:, None]
    when = np.where(noted, steps[log, KNOWN:], hand[:, None])
    sound(((when >= 0) & (when <= hand[:, None])).all(), "a log tells of the future")
    sound((hand[:, None] - when <= ROUNDS * size[:, None]).all(), "a hand is far off")
    sound((np.diff(when, axis=1) >= 0).all(), "a log is out of order")


@checks(LearnedState)
def _check_learned(state: LearnedState, store: Store, fresh: LearnedState) -> None:
    check_within(state.hand, 0, int(store.meta[HIGH_KEY]), "the next key")
    entry = store.t32[live_tuples(store), ENTRY]
    check_within(store.k64[entry, USE], 0, len(state.predictor.history.pins), "the row of a key")
