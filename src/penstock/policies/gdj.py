"""GreedyDual-Join: evicts the tuple with the least credit; matches earn credit.

A tuple enters with the credit of the `initial` quantile of its buffer, which gives it time to match, and
earns credit with each match. Section 5.2 of the paper compares three rules:

1. a match adds 1, and nothing is subtracted;
2. a match adds the rank of the tuple by credit, and all tuples lose 1;
3. a match adds 1, and all tuples lose the same amount so that the credits of the buffer keep their sum.

An equal loss for all tuples of a buffer does not change their order. Rule 3 therefore evicts the same
tuples as rule 1 and differs only in the credits it reports, and rule 2 skips the decrement.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from penstock.arguments import is_number
from penstock.compiler.jit import jit
from penstock.engine.cache_loop import LIVE as CACHED
from penstock.engine.cache_loop import USED, entered, gone, used, worst
from penstock.engine.credit_histogram import (
    BELOW,
    CREDIT,
    ORIGIN,
    POINTER,
    TOTAL,
    Histogram,
    add_credit,
    drop_credit,
    new_histogram,
    quantile,
    raise_credits,
)
from penstock.engine.hooks import (
    before_tick,
    enter,
    fetch,
    leave,
    lowest,
    match_key,
    match_some,
    newcomer,
    score,
)
from penstock.engine.score_queue import Queue, file_newcomer, front, new_queue
from penstock.engine.store import (
    ARRIVAL,
    BASE,
    COUNT,
    ENTRY,
    HEAD,
    LIVE,
    NEXT,
    P_LIVE,
    PLACE,
    SIDE,
    STREAM,
    USE,
    Store,
)
from penstock.engine.tuple_cells import BLOCK, Cells, add_cell, cell_of, fetch_cells, new_cells, remove_cell
from penstock.errors import PolicyOptionError
from penstock.policies.base import CacheSetting, Policy, Setting
from penstock.policies.greedy_dual import GreedyDualCache, new_greedy_dual
from penstock.structures.ranked_list import (
    Blocks,
    block_insert,
    block_rank,
    block_remove,
    block_select,
    new_blocks,
)

# The quantile, and the state of its tuning.
INITIAL = 0
SHARED = 1  # 1: newcomers take the credit in `shared`, set before their tick
AUTO = 2  # 1: the quantile is tuned
STEP = 3  # the factor by which the odds change, or its inverse
EARNED = 4  # credit earned in this epoch
ENTERED = 5  # arrivals entered in this epoch
BEFORE = 6  # credit per arrival of the epoch before
TUNING = 8

EPOCH = 1_000  # minimum arrivals of an epoch; it also has at least half as many as the buffer holds
ODDS_STEP = 1.6
LOWEST_ODDS, HIGHEST_ODDS = 0.5, 2_000.0


class GdjState(NamedTuple):
    """Rules 1 and 3: a queue of tuples by credit, and a histogram of the credits for the quantile.

    A use of a key earns all its tuples the same, so a tuple stores its credit minus the uses of its key: in
    its cell, for calculations over all tuples of a key, and in `BASE`.
    """

    queue: Queue
    cells: Cells
    histogram: Histogram
    tuning: np.ndarray
    shared: np.ndarray
    lost: np.ndarray  # rule 3: how much each tuple of the pool has lost; NaN under rule 1


class GdjRankState(NamedTuple):
    """Rule 2: a list of tuples sorted by credit that supports ranks."""

    blocks: Blocks
    tuning: np.ndarray
    shared: np.ndarray


class GdjCache(NamedTuple):
    """In a cache: a list of entries sorted by credit, then by last use, that supports ranks."""

    blocks: Blocks
    credit: np.ndarray  # per entry
    since: np.ndarray  # per entry, the use by which it is sorted
    tuning: np.ndarray
    ranks: np.ndarray  # 1: a hit earns the rank (rule 2)


@dataclass(frozen=True)
class GreedyDualJoin(Policy):
    """Evict the tuple with the least credit.

    `initial` is the quantile of the buffer's credits with which a newcomer enters (default 0.9). A high one
    gives newcomers time to match; a low one makes them match at once or be evicted. `"auto"` tunes it while
    the stream runs, by hill climbing: at the end of each epoch (half a buffer of arrivals, at least a
    thousand) the odds `initial / (1 - initial)` are multiplied or divided by 1.6. The direction stays if the
    epoch earned at least as much credit per arrival as the one before, and is reversed otherwise.

    >>> import penstock as ps
    >>> left, right = {"key": [1, 2, 3], "ts": [0, 1, 3]}, {"key": [1, 1], "ts": [2, 4]}
    >>> join = ps.WindowJoin(within=10, budget=ps.Tuples(4), policy="gdj:initial=0.8")
    >>> join.run(left, right, on="key", time="ts").stats.results
    2
    """

    initial: float | str = 0.9
    method: int = 1

    name: ClassVar[str] = "gdj"
    has_credits: ClassVar[bool] = True
    summary: ClassVar[str] = "evicts the tuple with the least credit; matches earn credit"
    wins: ClassVar[str] = (
        "keys come in clusters but some stay popular: credit remembers matches, and newcomers "
        "replace tuples that stopped matching"
    )
    loses: ClassVar[str] = (
        "popularity never changes: prob, which counts every arrival and may refuse newcomers, does better"
    )
    cost: ClassVar[str] = "O(log n) per arrival, O(1) per match (method 2: O(n/128) per match)"
    paper: ClassVar[str] = "Li, Chang, Bestavros and Kollios 2004, sections 4 and 5.2"
    candidate_for: ClassVar[Mapping[str, int]] = {"join": 2, "cache": 1, "query": 0}
    caches: ClassVar[bool] = True
    weighs_costs: ClassVar[bool] = True
    grows: ClassVar[bool] = True
    starter: ClassVar[bool] = True

    def check_many(self) -> None:
        """Reject method 2: a tuple has no single rank in joins of many streams."""
        if self.method == 2:
            raise PolicyOptionError(
                "gdj: method=2 is not defined for joins of many streams, because a tuple may match several "
                "times at once and has no single rank; use method 1 or 3."
            )

    def __post_init__(self) -> None:
        if isinstance(self.initial, str) and self.initial != "auto":
            raise PolicyOptionError(
                f"gdj: initial={self.initial!r} is not allowed; it must be a quantile from 0 to 1 or 'auto'."
            )
        if not isinstance(self.initial, str):
            fine = is_number(self.initial) and 0.0 <= self.initial <= 1.0
            self.require(fine, "initial", "a quantile from 0 to 1, or 'auto'")
        self.require(is_number(self.method) and self.method in (1, 2, 3), "method", "1, 2 or 3")

    def build(self, setting: Setting) -> GdjState | GdjRankState:
        """Build empty structures for the chosen rule."""
        pools = len(setting.capacities)
        tuning = self._tuning()
        if self.method == 2:
            return GdjRankState(new_blocks(setting.at_first), tuning, np.zeros(pools))
        return GdjState(
            queue=new_queue(setting.at_first),
            cells=new_cells(sum(setting.at_first), 1),
            histogram=new_histogram(setting.capacities),
            tuning=tuning,
            shared=np.zeros(pools),
            lost=np.full(pools, 0.0 if self.method == 3 else np.nan),
        )

    def _tuning(self) -> np.ndarray:
        tuning = np.zeros(TUNING)
        tuning[AUTO] = self.initial == "auto"
        tuning[INITIAL] = 0.9 if self.initial == "auto" else self.initial
        tuning[STEP] = ODDS_STEP
        return tuning

    def build_cache(self, setting: CacheSetting) -> GdjCache | GreedyDualCache:
        """Build an empty list, or the original GreedyDual if misses differ in cost."""
        if setting.costs:
            return new_greedy_dual(setting.capacity)
        return GdjCache(
            blocks=new_blocks((setting.capacity,)),
            credit=np.zeros(setting.capacity + 1),
            since=np.zeros(setting.capacity + 1, np.int64),
            tuning=self._tuning(),
            ranks=np.array([int(self.method == 2)]),
        )

    def check(self, state: Any, store: Store) -> None:
        """Assert that the list of credits agrees with the tuples."""
        live = np.flatnonzero(store.t64[:, ARRIVAL] >= 0)
        live = live[(live > 0) & (live <= store.meta[4])]
        for pool in range(len(store.pools)):
            mine = live[store.pool_of[store.t32[live, STREAM]] == pool]
            if isinstance(state, GdjState):
                histogram = state.histogram
                assert histogram.meta[pool, TOTAL] == store.pools[pool, P_LIVE]
                credits = np.array([_credit(state, store, slot) for slot in mine], np.int64)
                cells = [cell_of(state.cells, store, slot) for slot in mine]
                assert np.array_equal(state.cells.words[cells, CREDIT], store.t64[mine, BASE])
                at = credits - histogram.meta[pool, ORIGIN]
                inside = at[(at >= 0) & (at < histogram.bins.shape[1])]
                counted = np.bincount(inside, minlength=histogram.bins.shape[1])
                assert np.array_equal(counted, histogram.bins[pool]), "the histogram is wrong"
                if len(mine):
                    assert (at < histogram.meta[pool, POINTER]).sum() == histogram.meta[pool, BELOW]
            else:
                assert sum(state.blocks.length[pool]) == store.pools[pool, P_LIVE]


@jit
def tune(tuning, live):
    """Count an arrival that has entered; at the end of an epoch, move the quantile if it is tuned."""
    tuning[ENTERED] += 1.0
    if tuning[AUTO] == 0.0 or tuning[ENTERED] < max(EPOCH, live // 2):
        return
    rate = tuning[EARNED] / tuning[ENTERED]
    if rate < tuning[BEFORE]:
        tuning[STEP] = 1.0 / tuning[STEP]
    odds = tuning[INITIAL] / (1.0 - tuning[INITIAL]) * tuning[STEP]
    odds = min(max(odds, LOWEST_ODDS), HIGHEST_ODDS)
    tuning[INITIAL] = odds / (1.0 + odds)
    tuning[BEFORE] = rate
    tuning[EARNED] = 0.0
    tuning[ENTERED] = 0.0


@jit
def _quantile_rank(blocks, pool, tuples, quantile):
    """Return the credit of rank floor(quantile * (n - 1)) of a pool, 0 if it is empty."""
    if tuples == 0:
        return 0.0
    return block_select(blocks, pool, np.int64(np.floor(quantile * (tuples - 1))))[0]


@jit
def _earn(blocks, store, pool, slot, credit):
    """Add to the credit of a tuple and move it to its new position."""
    arrival = store.t64[slot, ARRIVAL]
    block_remove(blocks, pool, store.f64[slot, BASE], arrival)
    store.f64[slot, BASE] += credit
    block_insert(blocks, pool, store.f64[slot, BASE], arrival, slot)


@jit
def _credit(policy, store, slot):
    return store.t64[slot, BASE] + store.k64[store.t32[slot, ENTRY], USE + store.t32[slot, SIDE]]


@fetch.on(GdjState)
def _fetch(policy, store, entry, side):
    fetch_cells(policy.cells, store, entry, side)


@match_key.on(GdjState)
def _match_key(policy, store, entry, side, arrival):
    tuples = store.k32[entry, COUNT + side]
    pool = store.pool_of[store.t32[store.k32[entry, HEAD + side], STREAM]]
    uses, block = store.k64[entry, USE + side], store.k32[entry, BLOCK + side]
    raise_credits(policy.histogram, pool, policy.cells, block, tuples, uses)
    store.k64[entry, USE + side] = uses + 1
    policy.tuning[EARNED] += tuples
    policy.lost[pool] += tuples / policy.histogram.meta[pool, TOTAL]


@match_some.on(GdjState)
def _match_some(policy, store, slots, count, arrival):
    pool = store.pool_of[store.t32[slots[0], STREAM]]
    for i in range(count):
        slot = slots[i]
        uses = store.k64[store.t32[slot, ENTRY], USE + store.t32[slot, SIDE]]
        cell = cell_of(policy.cells, store, slot)
        raise_credits(policy.histogram, pool, policy.cells, cell, 1, uses)
        policy.cells.words[cell, CREDIT] += 1
        store.t64[slot, BASE] += 1
    policy.tuning[EARNED] += count
    policy.lost[pool] += count / policy.histogram.meta[pool, TOTAL]


@enter.on(GdjState)
def _enter(policy, store, slot):
    pool = store.pool_of[store.t32[slot, STREAM]]
    if policy.histogram.meta[pool, TOTAL] == 0:
        policy.lost[pool] *= 0.0  # an empty buffer starts again at 0
    cell = add_cell(policy.cells, store, slot)
    if policy.tuning[SHARED] != 0.0:
        credit = np.int64(policy.shared[pool])
    else:
        credit = quantile(policy.histogram, policy.cells, store, pool, policy.tuning[INITIAL], slot)
    uses = store.k64[store.t32[slot, ENTRY], USE + store.t32[slot, SIDE]]
    policy.cells.words[cell, CREDIT] = credit - uses
    store.t64[slot, BASE] = credit - uses
    add_credit(policy.histogram, pool, credit)
    file_newcomer(policy.queue, store, pool, slot, np.float64(credit))
    tune(policy.tuning, store.meta[LIVE])


@leave.on(GdjState)
def _leave(policy, store, slot):
    pool = store.pool_of[store.t32[slot, STREAM]]
    drop_credit(policy.histogram, pool, _credit(policy, store, slot))
    remove_cell(policy.cells, store, slot)


@score.on(GdjState)
def _score(policy, store, slot):
    return np.float64(_credit(policy, store, slot))


@lowest.on(GdjState)
def _lowest(policy, store, pool):
    return front(policy, policy.queue, store, pool)


@before_tick.on(GdjState)
def _before_tick(policy, store):
    policy.tuning[SHARED] = 1.0
    for pool in range(store.pools.shape[0]):
        policy.shared[pool] = quantile(policy.histogram, policy.cells, store, pool, policy.tuning[INITIAL], 0)


@newcomer.on(GdjState, GdjRankState)
def _newcomer(policy, store, stream, entry):
    return policy.shared[store.pool_of[stream]]


@match_key.on(GdjRankState)
def _match_key_rank(policy, store, entry, side, arrival):
    """Take all ranks before the first credit changes."""
    slot = store.k32[entry, HEAD + side]
    while slot != 0:
        _take_rank(policy, store, slot)
        slot = store.t32[slot, NEXT]
    slot = store.k32[entry, HEAD + side]
    while slot != 0:
        _earn_rank(policy, store, slot)
        slot = store.t32[slot, NEXT]


@match_some.on(GdjRankState)
def _match_some_rank(policy, store, slots, count, arrival):
    for i in range(count):
        _take_rank(policy, store, slots[i])
    for i in range(count):
        _earn_rank(policy, store, slots[i])


@jit
def _take_rank(policy, store, slot):
    """Store the rank of a tuple; the lowest is 1."""
    pool = store.pool_of[store.t32[slot, STREAM]]
    credit, number = store.f64[slot, BASE], store.t64[slot, ARRIVAL]
    store.t32[slot, PLACE] = block_rank(policy.blocks, pool, credit, number) + 1


@jit
def _earn_rank(policy, store, slot):
    """Add the stored rank to the credit of a tuple."""
    policy.tuning[EARNED] += 1.0
    pool = store.pool_of[store.t32[slot, STREAM]]
    _earn(policy.blocks, store, pool, slot, store.t32[slot, PLACE])


@enter.on(GdjRankState)
def _enter_rank(policy, store, slot):
    pool = store.pool_of[store.t32[slot, STREAM]]
    credit = policy.shared[pool]
    if policy.tuning[SHARED] == 0.0:
        credit = _quantile_rank(policy.blocks, pool, store.pools[pool, P_LIVE] - 1, policy.tuning[INITIAL])
    store.f64[slot, BASE] = credit
    block_insert(policy.blocks, pool, credit, store.t64[slot, ARRIVAL], slot)
    tune(policy.tuning, store.meta[LIVE])


@leave.on(GdjRankState)
def _leave_rank(policy, store, slot):
    pool = store.pool_of[store.t32[slot, STREAM]]
    block_remove(policy.blocks, pool, store.f64[slot, BASE], store.t64[slot, ARRIVAL])


@lowest.on(GdjRankState)
def _lowest_rank(policy, store, pool):
    credit, slot = block_select(policy.blocks, pool, 0)
    return slot, credit


@before_tick.on(GdjRankState)
def _before_tick_rank(policy, store):
    policy.tuning[SHARED] = 1.0
    for pool in range(store.pools.shape[0]):
        policy.shared[pool] = _quantile_rank(
            policy.blocks, pool, store.pools[pool, P_LIVE], policy.tuning[INITIAL]
        )


@entered.on(GdjCache)
def _entered(policy, cache, slot):
    others = cache.meta[CACHED] - 1
    policy.credit[slot] = _quantile_rank(policy.blocks, 0, others, policy.tuning[INITIAL])
    policy.since[slot] = cache.e64[slot, USED]
    block_insert(policy.blocks, 0, policy.credit[slot], policy.since[slot], slot)
    tune(policy.tuning, cache.meta[CACHED])


@used.on(GdjCache)
def _used(policy, cache, slot):
    earned = 1.0
    if policy.ranks[0] != 0:
        earned += block_rank(policy.blocks, 0, policy.credit[slot], policy.since[slot])
    block_remove(policy.blocks, 0, policy.credit[slot], policy.since[slot])
    policy.credit[slot] += earned
    policy.since[slot] = cache.e64[slot, USED]
    block_insert(policy.blocks, 0, policy.credit[slot], policy.since[slot], slot)
    policy.tuning[EARNED] += 1.0


@gone.on(GdjCache)
def _gone(policy, cache, slot):
    block_remove(policy.blocks, 0, policy.credit[slot], policy.since[slot])


@worst.on(GdjCache)
def _worst(policy, cache):
    return block_select(policy.blocks, 0, 0)[1]
