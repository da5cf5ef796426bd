"""LEARNED: evicts the tuple with the fewest predicted matches, by weights learnt from the stream."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from penstock.arguments import is_number
from penstock.compiler.jit import jit
from penstock.engine.hooks import arrive, enter, leave, lowest, newcomer, open_key, score
from penstock.engine.match_predictor import (
    DEFAULT_MEMORY,
    DEFAULT_SPAN,
    MatchPredictor,
    attend,
    check_predictor,
    new_predictor,
    worth,
)
from penstock.engine.store import (
    ARRIVAL,
    COUNT,
    ENTRY,
    HEAD,
    HIGH_KEY,
    HIGH_TUPLE,
    NEXT,
    STREAM,
    TIME,
    USE,
    Store,
)
from penstock.engine.store import KEY as STORED_KEY
from penstock.policies.base import Policy, Setting
from penstock.structures.key_heap import Ranking, check_ranking, new_ranking, rank, unrank
from penstock.structures.key_history import KEY, find_row, last_of
from penstock.structures.key_positions import listed_bytes

RENEWED = 4  # keys whose score is updated at every arrival
AT_FRONT = 16  # maximum number of keys updated when a victim is needed


class LearnedState(NamedTuple):
    """Keys ordered by score, and the predictor of their matches.

    `USE` holds the row of a key in the history, plus one.
    """

    ranking: Ranking
    predictor: MatchPredictor
    hand: np.ndarray  # the key whose score is updated next
    sure: (
        np.ndarray
    )  # per stream: what a row is worth that comes out without a partner, if it may stay a moment


@dataclass(frozen=True)
class Learned(Policy):
    """Evict the tuple with the fewest predicted matches, or refuse the arrival.

    The prediction uses how often the key occurred in either stream, recently (on four time scales) and
    overall. Its weights are fitted while the join runs: randomly chosen tuples are followed through their
    whole lifetime, whether they are buffered or not, and their matches are compared with what was known about
    their keys before. A stream of independent keys thus gets weights like those of PROB; one whose popular
    keys change gets weights more like those of LRU. If keys are numbers or contain one (a price next to a
    symbol), the distance of a key from the other stream's current value counts too.

    Matches are predicted for `span` times as many arrivals as the buffer holds, or until the tuple expires;
    `memory` is the number of examples after which the weight of an old one has decayed to a third. A score is
    updated when its key arrives, when it is about to be the lowest, and in turn with all others, four keys
    per arrival. The history and the examples have a fixed size.

    >>> import penstock as ps
    >>> left, right = {"key": [1, 2, 1], "ts": [1, 2, 4]}, {"key": [1, 1, 2], "ts": [0, 3, 5]}
    >>> join = ps.WindowJoin(within=10, budget=ps.Tuples(2), policy="learned")
    >>> join.run(left, right, on="key", time="ts").stats.results
    3
    """

    span: float = DEFAULT_SPAN
    memory: float = DEFAULT_MEMORY

    name: ClassVar[str] = "learned"
    summary: ClassVar[str] = "evicts the fewest predicted matches, by weights learnt from the stream"
    wins: ClassVar[str] = (
        "popularity and recency both matter, or drift: it learns their weights from the stream, and "
        "beats every fixed rule on drifting and walking keys"
    )
    loses: ClassVar[str] = (
        "the stream is too short to learn from, or has just changed: it then trails the best fixed rule "
        "for some windows; also in a buffer of a few dozen tuples if keys match only after a while"
    )
    cost: ClassVar[str] = "O(log n) per arrival, nothing per match"
    paper: ClassVar[str] = "none; it learns the benefit of Xie, Yang and Chen 2005, section 5.3"
    candidate_for: ClassVar[Mapping[str, int]] = {"join": 0}
    selective: ClassVar[bool] = True
    lets_decide: ClassVar[bool] = True
    counts_keys: ClassVar[bool] = True
    sees_places: ClassVar[bool] = True
    many: ClassVar[bool] = False
    grows: ClassVar[bool] = True

    def __post_init__(self) -> None:
        self.require(is_number(self.span) and 0 < self.span <= 1000, "span", "above 0 and at most 1000")
        self.require(is_number(self.memory) and 1 < self.memory <= 1e12, "memory", "above 1, in examples")

    def build(self, setting: Setting) -> LearnedState:
        """Build a state that knows nothing yet."""
        predictor = new_predictor(
            setting.total,
            float(self.span),
            float(self.memory),
            setting.time_dtype,
            setting.horizons,
            setting.window,
            setting.count_bytes,
            setting.places,
        )
        sure = np.zeros(setting.streams)
        sure[:2] = setting.soon_decided
        return LearnedState(new_ranking(setting.at_first), predictor, np.zeros(1, np.int64), sure)

    def inform(self, state: LearnedState, predictor: MatchPredictor) -> LearnedState:
        """Take over the whole history."""
        return state._replace(predictor=predictor)

    def predictor_of(self, state: LearnedState) -> MatchPredictor:
        """Return the predictor that scores tuples."""
        return state.predictor

    def predictor_options(self) -> tuple[float, float]:
        """Return `span` and `memory`."""
        return float(self.span), float(self.memory)

    def bytes_beyond(self, state: LearnedState) -> int:
        """Bytes of the list of key positions, if there is one."""
        return listed_bytes(state.predictor.places)

    def check(self, state: Any, store: Store) -> None:
        """Assert the heap order, and that every key is in the heap by its oldest tuple."""
        check_ranking(state.ranking)
        check_predictor(state.predictor)
        live = np.flatnonzero(store.t64[: store.meta[HIGH_TUPLE] + 1, ARRIVAL] >= 0)
        heads = {}
        for slot in live[live > 0]:
            entry, stream = int(store.t32[slot, ENTRY]), int(store.t32[slot, STREAM])
            heads[2 * entry + stream] = int(store.k32[entry, HEAD + stream])
        assert set(np.flatnonzero(state.ranking.place)) == set(heads), "a key is not in the heap"
        for item, slot in heads.items():
            at = state.ranking.place[item] - 1
            found = state.ranking.arrival[store.pool_of[item & 1], at]
            assert found == store.t64[slot, ARRIVAL], "a key is not in the heap by its oldest tuple"


@jit
def _row_of(policy, store, entry):
    """Return the row of a buffered key in the history, -1 if the history has dropped it."""
    row, history = store.k64[entry, USE] - 1, policy.predictor.history
    if row >= 0 and (history.word[row, KEY] != store.k64[entry, STORED_KEY] or last_of(history, row) == 0):
        return np.int64(-1)
    return row


@jit
def _score_of(policy, stream, row, time):
    """Return what a tuple of a stream and time is expected to give."""
    return worth(policy.predictor, stream, row, time) + policy.sure[stream]


@jit
def _renew(policy, store, entry, stream):
    """Update the score of a key."""
    slot = np.int64(store.k32[entry, HEAD + stream])
    found = _score_of(policy, stream, _row_of(policy, store, entry), store.time[slot, TIME])
    item = 2 * np.int64(entry) + stream
    rank(policy.ranking, store.pool_of[stream], item, found, store.t64[slot, ARRIVAL])


@arrive.on(LearnedState)
def _arrive(policy, store, stream, key, entry):
    stream = np.int64(stream)
    for each in range(2):
        policy.predictor.clock[each] = store.clock[each]
    row = attend(policy.predictor, stream, key)
    if entry != 0:
        store.k64[entry, USE] = row + 1
        for side in range(2):
            if store.k32[entry, COUNT + side] > 0:
                _renew(policy, store, np.int64(entry), side)
    high = store.meta[HIGH_KEY]
    for _ in range(min(RENEWED, high)):
        policy.hand[0] = policy.hand[0] + 1 if policy.hand[0] < high else 1
        other = policy.hand[0]
        for side in range(2):
            if policy.ranking.place[2 * other + side] != 0:
                _renew(policy, store, other, side)


@open_key.on(LearnedState)
def _open_key(policy, store, entry):
    store.k64[entry, USE] = find_row(policy.predictor.history, store.k64[entry, STORED_KEY]) + 1


@enter.on(LearnedState)
def _enter(policy, store, slot):
    entry, stream = np.int64(store.t32[slot, ENTRY]), np.int64(store.t32[slot, STREAM])
    if store.k32[entry, HEAD + stream] == slot:
        _renew(policy, store, entry, stream)


@leave.on(LearnedState)
def _leave(policy, store, slot):
    """Put the next younger tuple of the key into the heap, or remove the key."""
    entry, stream = np.int64(store.t32[slot, ENTRY]), np.int64(store.t32[slot, STREAM])
    if store.k32[entry, HEAD + stream] == slot:
        after = store.t32[slot, NEXT]
        if after != 0:
            store.k32[entry, HEAD + stream] = after
            _renew(policy, store, entry, stream)
            store.k32[entry, HEAD + stream] = slot
        else:
            unrank(policy.ranking, store.pool_of[stream], 2 * entry + stream)


@score.on(LearnedState)
def _score(policy, store, slot):
    entry, stream = np.int64(store.t32[slot, ENTRY]), np.int64(store.t32[slot, STREAM])
    return _score_of(policy, stream, _row_of(policy, store, entry), store.time[slot, TIME])


@newcomer.on(LearnedState)
def _newcomer(policy, store, stream, entry):
    row = _row_of(policy, store, np.int64(entry))
    return _score_of(policy, np.int64(stream), row, store.entering[0])


@lowest.on(LearnedState)
def _lowest(policy, store, pool):
    ranking = policy.ranking
    for _ in range(AT_FRONT):
        item, before = np.int64(ranking.item[pool, 0]), ranking.score[pool, 0]
        _renew(policy, store, item >> 1, item & 1)
        if ranking.item[pool, 0] == item and ranking.score[pool, 0] <= before:
            break
    item = np.int64(ranking.item[pool, 0])
    return np.int64(store.k32[item >> 1, HEAD + (item & 1)]), ranking.score[pool, 0]
