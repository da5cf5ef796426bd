"""Check the models of HEEB in a snapshot, given or learnt, in joins and in caches."""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock.engine.store import ENTRY, PLACE, STREAM, USE, Store
from penstock.models.kernels import outlook as models
from penstock.models.kernels.offset_histogram import EDGE
from penstock.models.kernels.outlook import (
    FOUND,
    GRID,
    KNOWN,
    MIXED,
    NONE,
    PLACES,
    REACH,
    ROWS_DEEP,
    SEASON,
    SLOPE,
    STATIC,
    STEP,
    SUBS,
    TABLE_LOW,
    TABLE_WIDTH,
    TREND,
    WALK,
    WHOLE,
    Outlook,
)
from penstock.policies.heeb import cache as heeb_cache
from penstock.policies.heeb import state as heeb_state
from penstock.policies.heeb.cache import HeebCache
from penstock.policies.heeb.state import WAITING, HeebState, Hopeless
from penstock.snapshots.array_checks import FAR, check_same, check_within, sound
from penstock.states.checks.parts import CHECKS, Members, anything, checks
from penstock.states.checks.policies import check_placed

WIDEST = 2.0**32  # offsets that a histogram is laid out over, one by one
FARTHEST = 2.0**53

CHECKS[Hopeless] = anything

CHANGING = [REACH, TABLE_LOW, TABLE_WIDTH, ROWS_DEEP]  # with the weights, even of a model that is given
INDEXED = (STATIC, KNOWN)  # kinds of models that are never learnt: what is kept of a value is an index


@checks(Outlook)
def _check_outlook(outlook: Outlook, around: Any, fresh: Outlook) -> None:
    """Whether the models are within their tables."""
    check_within(outlook.kind, NONE, SEASON, "the kind of a model")
    sound(np.isfinite(outlook.par).all() and (outlook.par[:, STEP] >= 0.0).all(), "a model is not a number")
    check_within(outlook.ints, -FAR, FAR, "a number of a model")
    for kind, ints in zip(outlook.kind.tolist(), outlook.ints, strict=True):
        width, reach, places = int(ints[models.WIDTH]), int(ints[REACH]), int(ints[PLACES])
        table, deep, grid = int(ints[TABLE_WIDTH]), int(ints[ROWS_DEEP]), int(ints[GRID])
        sound(0 <= width <= outlook.noise.shape[1], "the noise of a model is out of range")
        sound(kind != SEASON or width > 0, "a season has no period")
        sound(0 <= reach < outlook.weight.shape[1], "the reach of a model is out of range")
        room = outlook.places.shape[1]
        room = min(room, outlook.noise.shape[1]) if kind in (STATIC, FOUND) else room
        sound(0 <= places <= room, "the values of a model are out of range")
        periods = max(1, width) if kind == SEASON else 1
        sound(table >= 0 and table * periods <= outlook.table.shape[1], "a table is out of range")
        sound(deep in (0, reach) and deep * table <= outlook.deep.shape[1], "a table is out of range")
        sound(grid == 0 or (grid >= 4 and grid * grid <= outlook.table.shape[1]), "a table is out of range")
        sound(ints[MIXED] >= 0 and 0 <= ints[SUBS] <= 1 << 20, "a number of a model is out of range")
        sound(kind != TREND or ints[WHOLE] == 0 or ints[SLOPE] != 0, "a trend does not move")
    check_within(outlook.starts, 0, outlook.spots.shape[1], "where a value comes")
    sound(np.isfinite(outlook.weight).all() and np.isfinite(outlook.total).all(), "a weight is not a number")


def _check_given(mine: Outlook, fresh: Outlook, r: int) -> None:
    """Whether a model that is given, and not learnt, is the same."""
    fixed = np.setdiff1d(np.arange(models.INTS), CHANGING)
    same = np.setdiff1d(np.arange(models.NUMBERS), [models.ALPHA])
    check_same(mine.kind[r], fresh.kind[r], "a model")
    check_same(mine.ints[r, fixed], fresh.ints[r, fixed], "a model")
    check_same(mine.par[r, same], fresh.par[r, same], "a model")
    for name in ("noise", "places", "starts", "spots"):
        check_same(getattr(mine, name)[r], getattr(fresh, name)[r], "a model")


def _check_learnt(outlook: Outlook, r: int, fitted: int, high: int, buckets: np.ndarray) -> None:
    sound(outlook.kind[r] not in INDEXED, "a model that is learnt is of another kind")
    sound(fitted in (NONE, TREND, WALK), "a histogram is of another kind")
    if fitted != NONE:
        edge = buckets[:, EDGE]
        check_within(edge, -FARTHEST, FARTHEST, "the edge of a bucket")
        sound((np.diff(edge) >= 0.0).all(), "buckets are out of order")
        sound(edge[0] <= high <= edge[0] + WIDEST, "the last bucket is out of range")
        sound(edge[-1] - edge[0] <= WIDEST, "the last bucket is out of range")
        sound(not np.isnan(buckets).any(), "a bucket is not a number")


@checks(HeebState)
def _check_heeb(state: HeebState, store: Store, fresh: HeebState) -> None:
    s = heeb_state
    fixed = [s.TICKING, s.WAY, s.LEARNING, s.LEARNING + 1, s.OBSERVING, s.ANCHOR, s.ALL, s.BUCKETS, s.FORM]
    check_same(state.counters[fixed], fresh.counters[fixed], "a setting")
    for name in ("rate", "factor", "stretch"):
        check_same(getattr(state, name), getattr(fresh, name), "a rate")
    check_within(state.seen, 0, FAR, "a counter")
    sound(-1 <= state.counters[s.TICK] <= FAR, "a counter is out of range")
    sound(np.isfinite(state.moments).all(), "a moment is not a number")
    for r in (0, 1):
        if state.counters[s.LEARNING + r]:
            fitted, high = int(state.counters[s.FITTED + r]), int(state.counters[s.HIGH + r])
            _check_learnt(state.outlook, r, fitted, high, state.buckets[r])
        else:
            _check_given(state.outlook, fresh.outlook, r)
    members = Members(store)
    place = store.t32[members.slots, PLACE]
    check_within(place, WAITING, state.members.shape[1] - 1, "a place")
    check_within(state.length, 0, state.members.shape[1] - 1, "the number of members")
    for pool in range(members.pools):
        mine = (members.pool == pool) & (place >= 0)
        sound(state.length[pool] == np.count_nonzero(mine), "a pool has other members")
        check_placed(state.members[pool], members.slots[mine], place[mine])
    _check_indexes(state, store, members)


def _check_indexes(state: HeebState, store: Store, members: Members) -> None:
    stream = store.t32[members.slots, STREAM]
    for side in (0, 1):
        if state.outlook.kind[1 - side] in INDEXED:
            at = store.k64[store.t32[members.slots[stream == side], ENTRY], USE + side]
            check_within(at, -1, int(state.outlook.ints[1 - side, PLACES]) - 1, "the value of a key")


@checks(HeebCache)
def _check_heeb_cache(state: HeebCache, cache: Any, fresh: HeebCache) -> None:
    c = heeb_cache
    fixed = [c.LEARNING, c.DIRECT, c.BUCKETS, c.FORM]
    check_same(state.counters[fixed], fresh.counters[fixed], "a setting")
    sound(np.isfinite(state.moments[1:]).all(), "a moment is not a number")
    if state.counters[c.LEARNING]:
        fitted, high = int(state.counters[c.FITTED]), int(state.counters[c.HIGH])
        _check_learnt(state.outlook, 0, fitted, high, state.buckets)
    else:
        _check_given(state.outlook, fresh.outlook, 0)
        sound(state.counters[c.FITTED] == NONE, "a histogram is of another kind")
    if state.outlook.kind[0] in INDEXED:
        at = state.at[Members(cache).slots]
        check_within(at, -1, int(state.outlook.ints[0, PLACES]) - 1, "the value of a key")
