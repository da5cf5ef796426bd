"""LIFE: evicts the tuple with the lowest key count in the other stream times remaining lifetime."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from penstock.engine.hooks import arrive, changed, enter, leave, lowest, newcomer, open_key
from penstock.engine.match_predictor import MatchPredictor
from penstock.engine.store import (
    ARRIVAL,
    COUNT,
    ENTRY,
    HEAD,
    KEY,
    NEXT,
    SIDE,
    STREAM,
    USE,
)
from penstock.engine.tournament import Tournament, champion, enrol, line_score, new_tournament, worth
from penstock.policies.base import Policy, Setting
from penstock.policies.prob import counts_beyond, key_counts
from penstock.structures.key_counts import Counts, count_key, counted, reserve
from penstock.structures.key_history import TAKEN, count_from_history


class LifeState(NamedTuple):
    """A tournament among the keys of each stream; tuples of one key differ only in age."""

    tournament: Tournament
    counts: Counts


@dataclass(frozen=True)
class Life(Policy):
    """Evict the tuple with the lowest product of key count and remaining lifetime, or refuse the arrival.

    Like PROB, but a tuple that is about to expire is worth less. The oldest tuple of a key is evicted
    first, so keys compete by their oldest tuple.

    >>> import penstock as ps
    >>> left, right = {"key": [1, 2, 1], "ts": [1, 2, 4]}, {"key": [1, 1, 2], "ts": [0, 3, 5]}
    >>> join = ps.WindowJoin(within=10, budget=ps.Tuples(2), policy="life")
    >>> join.run(left, right, on="key", time="ts").stats.results
    3
    """

    name: ClassVar[str] = "life"
    summary: ClassVar[str] = "evicts the lowest count in the other stream times remaining lifetime"
    wins: ClassVar[str] = (
        "popularity lasts and windows are long against the memory: of two equally popular tuples the "
        "younger stays"
    )
    loses: ClassVar[str] = (
        "keys lose their popularity, as for prob; or follow a trend, where remaining life means little"
    )
    cost: ClassVar[str] = "O(log n) per arrival, with the constant of a kinetic tournament; nothing per match"
    paper: ClassVar[str] = "Das, Gehrke and Riedewald 2003"
    candidate_for: ClassVar[Mapping[str, int]] = {"join": 1}
    selective: ClassVar[bool] = True
    counts_keys: ClassVar[bool] = True
    many: ClassVar[bool] = False
    grows: ClassVar[bool] = True

    def build(self, setting: Setting) -> LifeState:
        """Build empty tournaments and counts."""
        sides = (0,) * setting.streams if setting.apart else (0, 1)
        tournament = new_tournament(sum(setting.at_first) + 2, setting.time_dtype, sides)
        return LifeState(tournament, key_counts(setting))

    @property
    def queries(self) -> bool:
        """True: the context of a query says how long a tuple can be of use."""
        return True

    def reserve(self, state: LifeState, arrivals: int) -> LifeState:
        """Make room for more exact counts."""
        return state._replace(counts=reserve(state.counts, arrivals))

    def inform(self, state: LifeState, predictor: MatchPredictor) -> LifeState:
        """Take the counts from a history of the stream."""
        counts = reserve(state.counts, int(predictor.history.meta[TAKEN]))
        count_from_history(counts, predictor.history)
        return state._replace(counts=counts)

    def bytes_beyond(self, state: Any) -> int:
        """Bytes of the exact counts."""
        return counts_beyond(state.counts)


@arrive.on(LifeState)
def _arrive(policy, store, stream, key, entry):
    origin = policy.tournament.origin
    if origin[1] == 0:
        origin[0], origin[1] = store.clock[stream], 1
    count_key(policy.counts, stream, key)
    if entry != 0:
        store.k64[entry, USE + 1 - stream] += 1
        if store.k32[entry, COUNT + 1 - stream] > 0:
            enrol(policy.tournament, store, 1 - stream, entry)


@open_key.on(LifeState)
def _open_key(policy, store, entry):
    key = store.k64[entry, KEY]
    store.k64[entry, USE] = counted(policy.counts, 1, key)
    store.k64[entry, USE + 1] = counted(policy.counts, 0, key)


@enter.on(LifeState)
def _enter(policy, store, slot):
    entry, stream = store.t32[slot, ENTRY], store.t32[slot, STREAM]
    origin = policy.tournament.origin
    if origin[1] == 0 and store.clock[stream] > -np.inf:
        origin[0], origin[1] = store.clock[stream], 1
    if store.k32[entry, HEAD + store.t32[slot, SIDE]] == slot:
        enrol(policy.tournament, store, stream, entry)


@changed.on(LifeState)
def _changed(policy, store, slot):
    enrol(policy.tournament, store, store.t32[slot, STREAM], store.t32[slot, ENTRY])


@leave.on(LifeState)
def _leave(policy, store, slot):
    """Replace the key's line by that of the next younger tuple, or remove it."""
    entry, stream, side = store.t32[slot, ENTRY], store.t32[slot, STREAM], store.t32[slot, SIDE]
    if store.k32[entry, HEAD + side] == slot:
        store.k32[entry, HEAD + side] = store.t32[slot, NEXT]
        store.k32[entry, COUNT + side] -= 1
        enrol(policy.tournament, store, stream, entry)
        store.k32[entry, HEAD + side] = slot
        store.k32[entry, COUNT + side] += 1


@newcomer.on(LifeState)
def _newcomer(policy, store, stream, entry):
    return worth(store, stream, store.k64[entry, USE + stream], store.entering[0])


@lowest.on(LifeState)
def _lowest(policy, store, pool):
    best, low, arrival = 0, 0.0, np.int64(0)
    for stream in range(store.pool_of.shape[0]):
        if store.pool_of[stream] == pool:
            entry = champion(policy.tournament, store, stream)
            if entry != 0:
                slot = store.k32[entry, HEAD + policy.tournament.side[stream]]
                value = line_score(policy.tournament, store, stream, entry)
                number = store.t64[slot, ARRIVAL]
                if best == 0 or value < low or (value == low and number < arrival):
                    best, low, arrival = slot, value, number
    return best, low
