"""LEARNED: how many matches a tuple still has before it, learnt from the stream itself."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from penstock.kernels.history import (
    EVER,
    FADING,
    KEY,
    LAST,
    RATES,
    ROW_BYTES,
    SCALES,
    WAYS,
    History,
    find_row,
    new_history,
    note,
    take_row,
    tick,
)
from penstock.kernels.hooks import arrive, enter, leave, lowest, newcomer, open_key, score
from penstock.kernels.jit import jit
from penstock.kernels.layout import (
    ARRIVAL,
    COUNT,
    ENTRY,
    HEAD,
    HIGH_KEY,
    NEXT,
    STREAM,
    TIME,
    USE,
    Store,
    lifetime,
    power_of_two,
)
from penstock.kernels.layout import KEY as STORED_KEY
from penstock.kernels.random import POLICY, uniform
from penstock.kernels.ranking import Ranking, check_ranking, new_ranking, rank, unrank
from penstock.kernels.regression import Regression, learn, new_regression, solve
from penstock.policies.base import Policy, Setting, is_number

FEATURES = 2 * RATES + 1
SOLVE = 64  # examples between two fits
RENEWED = 4  # keys whose score is brought up to date at every arrival
AT_FRONT = 16  # and at most so many when a victim is looked for

# Parameters.
SPAN = 0  # arrivals over which the matches of an example are counted
CHANCE = 1  # that an arrival is followed
KEEP = 2
PULL = 3
FLOOR = 4
PACE = 5  # + stream: arrivals per unit of its clock; 0 as long as unknown
USUAL = 7  # + stream: matches of an example, on average
PARAMETERS = 9

# Counters.
OLDEST = 0  # of the examples under way
UNDER_WAY = 1
HAND = 2  # the key whose score is brought up to date next

# Columns of an example.
E_ROW = 0  # of its key in the history
E_DUE = 1  # the arrival at which its matches are counted
E_BORN = 2  # the arrival at which its tuple came
E_STREAM = 3
E_FROM = 4  # the arrival at which its features were taken
EXAMPLE = 5


class LearnedState(NamedTuple):
    """Keys by score, what is known of all keys, the fit, and the examples under way."""

    ranking: Ranking
    history: History
    regression: Regression
    example: np.ndarray
    seen: np.ndarray  # features of each example under way, and the count of the other stream
    time: np.ndarray  # of its tuple
    scratch: np.ndarray
    parameters: np.ndarray
    counters: np.ndarray


@dataclass(frozen=True)
class Learned(Policy):
    """Evict the tuple with the fewest matches to come while it is likely to stay, or refuse the arrival.

    What is to come is foretold from how often the key has come in either stream, lately (on five time
    scales) and ever, by weights that are fitted while the join runs: some of the tuples, chosen by chance,
    are followed through their whole lifetime whether they are in the buffer or not, and their matches
    compared with what was known of their keys before. So a stream of independent keys gets weights like
    those of PROB, one whose popular keys come and go weights more like those of LRU. Matches count over
    `span` times as many arrivals as the buffer holds, or until the tuple expires.

    >>> import penstock as ps
    >>> left, right = {"key": [1, 2, 1], "ts": [1, 2, 4]}, {"key": [1, 1, 2], "ts": [0, 3, 5]}
    >>> join = ps.WindowJoin(within=10, budget=ps.Tuples(2), policy="learned")
    >>> join.run(left, right, on="key", time="ts").stats.results
    3
    """

    span: float = 1.0
    memory: int = 4_000

    name: ClassVar[str] = "learned"
    summary: ClassVar[str] = "fewest matches to come, foretold by weights learnt from the stream, goes"
    cost: ClassVar[str] = "O(log n) per arrival, nothing per match"
    paper: ClassVar[str] = "none; it learns the benefit of Xie, Yang and Chen 2005, section 5.3"
    selective: ClassVar[bool] = True
    counts_keys: ClassVar[bool] = True
    many: ClassVar[bool] = False

    def __post_init__(self) -> None:
        self.require(is_number(self.span) and 0 < self.span <= 1000, "span", "above 0 and at most 1000")
        self.require(is_number(self.memory) and self.memory >= 1, "memory", "examples, at least 1")

    def build(self, setting: Setting) -> LearnedState:
        """Nothing known: the prior weights."""
        total = setting.total
        rows, followed = power_of_two(2 * total), min(512, max(32, total // 8))
        if setting.count_bytes is None:
            rows = max(rows, 4096)
        else:
            per_example = 8 * (EXAMPLE + FEATURES + 2)
            followed = max(4, min(followed, setting.count_bytes // 8 // per_example))
            most = (setting.count_bytes - followed * per_example) // ROW_BYTES - WAYS
            rows = max(16, min(rows, 1 << max(most, 16).bit_length() - 1))
        prior = np.zeros(FEATURES)
        prior[:RATES] = 1.0 / RATES
        parameters = np.zeros(PARAMETERS)
        parameters[SPAN] = max(2.0, round(self.span * total))
        parameters[CHANCE] = min(0.25, followed / (8.0 * total))
        parameters[KEEP] = 1.0 - 1.0 / self.memory
        parameters[PULL] = 1e-3
        parameters[FLOOR] = 0.5
        return LearnedState(
            ranking=new_ranking(setting.capacities),
            history=new_history(rows, max(4.0, total / 8.0)),
            regression=new_regression(prior),
            example=np.zeros((followed, EXAMPLE), np.int64),
            seen=np.zeros((followed, FEATURES + 1)),
            time=np.zeros(followed, setting.time_dtype),
            scratch=np.zeros(FEATURES),
            parameters=parameters,
            counters=np.zeros(3, np.int64),
        )

    def check(self, state: Any, store: Store) -> None:
        """The heap is one, every key is in it by its oldest tuple, and pins are those of the examples."""
        check_ranking(state.ranking)
        live = np.flatnonzero(store.t64[: store.meta[4] + 1, ARRIVAL] >= 0)
        heads = {}
        for slot in live[live > 0]:
            entry, stream = int(store.t32[slot, ENTRY]), int(store.t32[slot, STREAM])
            heads[2 * entry + stream] = int(store.k32[entry, HEAD + stream])
        assert set(np.flatnonzero(state.ranking.place)) == set(heads), "a key is not in the heap"
        for item, slot in heads.items():
            pool = store.pool_of[item & 1]
            at = state.ranking.place[item] - 1
            assert state.ranking.arrival[pool, at] == store.t64[slot, ARRIVAL], "it is not by its oldest tuple"
        pins = np.zeros_like(state.history.pins)
        for i in range(int(state.counters[UNDER_WAY])):
            at = (int(state.counters[OLDEST]) + i) % len(state.example)
            pins[state.example[at, E_ROW]] += 1
        assert np.array_equal(pins, state.history.pins), "a pin is lost"


@jit
def _rate(policy, row, stream):
    """The matches per arrival that a tuple of this stream and the key of this row may expect."""
    history, weight = policy.history, policy.regression.weight[stream]
    found = weight[2 * RATES] * policy.parameters[USUAL + stream] / policy.parameters[SPAN]
    if row >= 0:
        part, norm = history.part[row], history.norm
        fading = math.exp(np.float64(history.word[row, LAST] - history.meta[0]) / history.scale[SCALES - 1])
        other, own = FADING + (1 - stream) * SCALES, FADING + stream * SCALES
        for i in range(SCALES - 1, -1, -1):
            found += (weight[i] * part[other + i] + weight[RATES + i] * part[own + i]) * fading / norm[i]
            fading = fading * fading
            fading = fading * fading
        found += (
            weight[SCALES] * part[EVER + 1 - stream] + weight[RATES + SCALES] * part[EVER + stream]
        ) / norm[SCALES]
        found = max(found, 1e-3 * part[EVER + 1 - stream] / norm[SCALES])
    return max(found, 1e-12)


@jit
def _observe(policy, row, stream, features):
    """What is known of a key at the moment, as rates per arrival."""
    history, part, norm = policy.history, policy.history.part[row], policy.history.norm
    fading = math.exp(np.float64(history.word[row, LAST] - history.meta[0]) / history.scale[SCALES - 1])
    other, own = FADING + (1 - stream) * SCALES, FADING + stream * SCALES
    for i in range(SCALES - 1, -1, -1):
        features[i] = part[other + i] * fading / norm[i]
        features[RATES + i] = part[own + i] * fading / norm[i]
        fading = fading * fading
        fading = fading * fading
    features[SCALES] = part[EVER + 1 - stream] / norm[SCALES]
    features[RATES + SCALES] = part[EVER + stream] / norm[SCALES]
    features[2 * RATES] = policy.parameters[USUAL + stream] / policy.parameters[SPAN]


@jit
def _worth(policy, store, stream, row, time):
    """The matches to come within the span, or until the tuple expires."""
    worth = _rate(policy, row, stream)
    pace = policy.parameters[PACE + stream]
    if pace > 0.0:
        left = np.float64(lifetime(store, stream, time)) * pace
        worth *= max(0.0, min(1.0, left / policy.parameters[SPAN]))
    return worth


@jit
def _row_of(policy, store, entry):
    """The row of a buffered key in the history, -1 if that has forgotten it."""
    row = store.k64[entry, USE] - 1
    if row >= 0 and (
        policy.history.word[row, KEY] != store.k64[entry, STORED_KEY] or policy.history.word[row, LAST] == 0
    ):
        return -1
    return row


@jit
def _renew(policy, store, entry, stream):
    """Bring the score of a key up to date."""
    slot = np.int64(store.k32[entry, HEAD + stream])
    worth = _worth(policy, store, stream, _row_of(policy, store, entry), store.time[slot, TIME])
    item = 2 * np.int64(entry) + stream
    rank(policy.ranking, store.pool_of[stream], item, worth, store.t64[slot, ARRIVAL])


@arrive.on(LearnedState)
def _arrive(policy, store, stream, key, entry):
    history, counters = policy.history, policy.counters
    tick(history)
    row = take_row(history, key)
    if row >= 0:
        note(history, row, stream)
    if entry != 0:
        store.k64[entry, USE] = row + 1
        for side in range(2):
            if store.k32[entry, COUNT + side] > 0:
                _renew(policy, store, entry, side)
    if counters[UNDER_WAY] > 0:
        _conclude(policy, store)
    if uniform(store.random, POLICY) < policy.parameters[CHANCE] and row >= 0:
        if counters[UNDER_WAY] < policy.example.shape[0]:
            _follow(policy, row, np.int64(stream), store.clock[stream], history.meta[0])
    high = store.meta[HIGH_KEY]
    for _ in range(min(RENEWED, high)):
        counters[HAND] = counters[HAND] + 1 if counters[HAND] < high else 1
        other = counters[HAND]
        for side in range(2):
            if policy.ranking.place[2 * other + side] != 0:
                _renew(policy, store, other, side)


@jit
def _follow(policy, row, stream, time, born):
    """Take down what is known of a key, to compare it later with what came."""
    counters, now = policy.counters, policy.history.meta[0]
    at = (counters[OLDEST] + counters[UNDER_WAY]) % policy.example.shape[0]
    counters[UNDER_WAY] += 1
    policy.history.pins[row] += 1
    example = policy.example[at]
    example[E_ROW] = row
    example[E_DUE] = now + np.int64(policy.parameters[SPAN])
    example[E_BORN] = born
    example[E_STREAM] = stream
    example[E_FROM] = now
    policy.time[at] = time
    _observe(policy, row, stream, policy.seen[at])
    policy.seen[at, FEATURES] = policy.history.part[row, EVER + 1 - stream]


@jit
def _conclude(policy, store):
    """Learn from the examples whose time is over; a tuple that still lives is the next example."""
    counters, parameters, history = policy.counters, policy.parameters, policy.history
    while counters[UNDER_WAY] > 0:
        at = counters[OLDEST]
        example = policy.example[at]
        if example[E_DUE] > history.meta[0]:
            return
        row, stream, time = example[E_ROW], example[E_STREAM], policy.time[at]
        came = np.float64(history.part[row, EVER + 1 - stream]) - policy.seen[at, FEATURES]
        span = np.float64(history.meta[0] - example[E_FROM])
        expected = 0.0
        for i in range(FEATURES):
            policy.scratch[i] = span * policy.seen[at, i]
            expected += policy.scratch[i] * policy.regression.weight[stream, i]
        usual = parameters[USUAL + stream]
        if policy.regression.examples[stream] < 64:
            usual += (came - usual) / (policy.regression.examples[stream] + 1.0)
        else:
            usual += (came - usual) / 256.0
        importance = 1.0 / (max(expected, 0.0) + parameters[FLOOR] * usual + 1e-3)
        learn(policy.regression, stream, policy.scratch, came, importance, parameters[KEEP])
        parameters[USUAL + stream] = usual
        if policy.regression.examples[stream] % SOLVE == 0:
            solve(policy.regression, stream, parameters[PULL])
        elapsed = np.float64(store.clock[stream] - time)
        if elapsed > 0.0:
            pace = np.float64(history.meta[0] - example[E_BORN]) / elapsed
            before = parameters[PACE + stream]
            parameters[PACE + stream] = pace if before == 0.0 else before + (pace - before) / 64.0
        counters[OLDEST] = at + 1 if at + 1 < policy.example.shape[0] else 0
        counters[UNDER_WAY] -= 1
        history.pins[row] -= 1
        if np.float64(lifetime(store, stream, time)) * parameters[PACE + stream] > parameters[SPAN]:
            _follow(policy, row, stream, time, example[E_BORN])


@open_key.on(LearnedState)
def _open_key(policy, store, entry):
    store.k64[entry, USE] = find_row(policy.history, store.k64[entry, STORED_KEY]) + 1


@enter.on(LearnedState)
def _enter(policy, store, slot):
    entry, stream = store.t32[slot, ENTRY], np.int64(store.t32[slot, STREAM])
    if store.k32[entry, HEAD + stream] == slot:
        _renew(policy, store, entry, stream)


@leave.on(LearnedState)
def _leave(policy, store, slot):
    """The key is in the heap by the next younger tuple from now on, or no more."""
    entry, stream = store.t32[slot, ENTRY], np.int64(store.t32[slot, STREAM])
    if store.k32[entry, HEAD + stream] == slot:
        after = store.t32[slot, NEXT]
        if after != 0:
            store.k32[entry, HEAD + stream] = after
            _renew(policy, store, entry, stream)
            store.k32[entry, HEAD + stream] = slot
        else:
            unrank(policy.ranking, store.pool_of[stream], 2 * np.int64(entry) + stream)


@score.on(LearnedState)
def _score(policy, store, slot):
    stream = np.int64(store.t32[slot, STREAM])
    return _worth(policy, store, stream, _row_of(policy, store, store.t32[slot, ENTRY]), store.time[slot, TIME])


@newcomer.on(LearnedState)
def _newcomer(policy, store, stream, entry):
    return _worth(policy, store, stream, _row_of(policy, store, entry), store.entering[0])


@lowest.on(LearnedState)
def _lowest(policy, store, pool):
    ranking = policy.ranking
    for _ in range(AT_FRONT):
        item = np.int64(ranking.item[pool, 0])
        before = ranking.score[pool, 0]
        _renew(policy, store, item >> 1, item & 1)
        if ranking.item[pool, 0] == item and ranking.score[pool, 0] <= before:
            break
    item = np.int64(ranking.item[pool, 0])
    return store.k32[item >> 1, HEAD + (item & 1)], ranking.score[pool, 0]
