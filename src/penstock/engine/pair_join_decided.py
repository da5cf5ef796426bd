"""Joins of two streams in which a tuple's own fate counts: outer, semi and anti joins, at most one match.

Each buffered tuple carries whether it has matched, and whether a partner of it may have left early. The
latter is known when it arrives: whoever comes later finds it. So a tuple that expires without a match
certainly has none (`unmatched`), or it is not known (`undecided`). Tuples whose first match decides all are
`released`.

Streams may be in step, in any kind of window, or advance each at its own pace (`Flow`). Where all tuples of a
key match alike (in step, every match counts, and no condition), a match is noted once with the key, as in
`pair_join`; otherwise partners are found pair by pair.

A condition on pairs plugs in here (`pair_condition`): `passes` is asked for every pair, and `keep` is told of
every tuple that enters. The class of `Decided.condition` selects their implementations.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from penstock.compiler.hook_calls import hook
from penstock.compiler.jit import jit
from penstock.compiler.references import prefetch
from penstock.engine import arrival_ring
from penstock.engine.hooks import arrive, left_early, lost, match_key, match_some
from penstock.engine.join_loop import (
    LOG_EXPIRED,
    LOG_LATE,
    LOG_RELEASED,
    LOG_UNDECIDED,
    PAIRS,
    admit,
    advance,
    arrived,
    begin,
    log,
    look_ahead,
    matched,
    probe,
    retreat,
    room_for_results,
    settled,
    shed,
)
from penstock.engine.loss_sketch import Sketch, count_gone
from penstock.engine.lost_keys import LostKeys, may_be_lost, note_lost
from penstock.engine.pair_join import AHEAD, fetch_next, let_in, pin, remove, set_clocks, turn_back, unpin
from penstock.engine.pair_join_late import BORN_OLD, LATE, Flow, count_absent, estimate_missed
from penstock.engine.score_queue import file_newcomer, front
from penstock.engine.store import (
    ARRIVAL,
    COUNT,
    ENTRY,
    EXPIRED,
    HEAD,
    KEY,
    LANDMARK,
    MATCHED,
    NEXT,
    PINNED,
    RELEASED,
    RESULTS,
    ROW,
    ROWS,
    STEPS,
    STREAM,
    TIME,
    WARMUP,
    WINDOW,
    bucket_of,
    find_key,
    lived_out,
)
from penstock.structures.tables import enlarged, new_table

# In `Decided.rules`.
TOGETHER = 0  # the streams advance in step
ALIKE = 1  # all tuples of a key match alike
EMIT = 2  # what a match gives, below
MOST = 3  # partners of a row, below
STRICT = 4  # late arrivals neither join nor decide anything
TRACKED = 5  # +stream: of a tuple without a match it is asked whether it has none
NULLS = 7  # +stream: if so, it comes out as a row without a partner
RELEASES = 9  # +stream: its first match is its last
RULES = 11

# What a match gives.
EMIT_PAIRS = 0
EMIT_LEFT = 1  # the left row, once
EMIT_NOTHING = 2

# How many partners a row has.
ALL = 0
ONCE = 1  # a left row at most one: the first
ONE_TO_ONE = 2  # every row at most one

# In `Decided.meta`.
UNMATCHED = 0
UNDECIDED = 1
ENDED = 2  # the streams have ended: all that is buffered is decided
LATE_NOW = 3  # of the arrival at hand: it is late and takes no part
FOUND_NOW = 4  # it has matched
MAYBE_NOW = 5  # a partner of it may have left early
FITTING = 6  # how many buffered tuples it could match
META = 8

# Bits of `Decided.fate`.
HAS_MATCHED = 1
MAYBE = 2  # a partner may have left early

NULL_ROWS = 2  # in `Out.ends`: how much of `nulls` is filled


class AnyPair(NamedTuple):
    """The condition that every pair passes."""

    nothing: np.ndarray

    def grown(self, total: int) -> AnyPair:
        """Return the same."""
        return self


class Decided(NamedTuple):
    """How far the streams have come, what is known of each tuple, and the keys that left early."""

    flow: Flow  # its queue is used by streams out of step only
    fate: np.ndarray  # per tuple
    last: np.ndarray  # per key and stream: the last arrival that matched all its tuples
    lost: LostKeys
    condition: Any  # `AnyPair`, or one of `pair_condition`
    rules: np.ndarray
    meta: np.ndarray

    def grown(self, capacities: tuple[int, ...]) -> Decided:
        """Return the same with room for more tuples."""
        total = sum(capacities)
        if self.rules[TOGETHER]:
            flow = self.flow._replace(matched=new_table(total + 1, np.int64))
        else:
            flow = self.flow.grown(capacities)
        return self._replace(
            flow=flow,
            fate=enlarged(self.fate, total + 2),
            last=enlarged(self.last, (total + 2, 2)),
            condition=self.condition.grown(total),
        )


class Decisions(NamedTuple):
    """What the driver writes to: as `join_loop.Out`, the sketch, rows without a partner, and the index."""

    counts: np.ndarray
    pairs: np.ndarray
    log: np.ndarray
    ends: np.ndarray
    sketch: Sketch
    nulls: np.ndarray  # stream and row
    decided: Decided


def new_decided(
    flow: Flow, capacities: tuple[int, ...], lost_keys: LostKeys, rules: np.ndarray, condition: Any
) -> Decided:
    """An index whose streams have not begun."""
    total = sum(capacities)
    return Decided(
        flow=flow._replace(matched=new_table(total + 1, np.int64)),
        fate=new_table(total + 2, np.uint8),
        last=new_table((total + 2, 2), np.int64),
        lost=lost_keys,
        condition=condition,
        rules=rules,
        meta=np.zeros(META, np.int64),
    )


@hook
def passes(condition, store, batch, i, slot):
    """Whether arrival i and this buffered tuple of the other stream, whose keys and times fit, join."""
    return True


@hook
def keep(condition, store, batch, i, slot):
    """Arrival i has entered as this tuple: a chance to keep what the condition needs of it."""


@hook
def fetch_kept(condition, slot):
    """The condition will be asked about a buffered tuple in a moment."""


@hook
def begin_probe(condition):
    """An arrival looks for partners."""


@hook
def count_probe(condition):
    """The arrival that has looked for partners counts: it is not to be processed later."""


@room_for_results.on(Decided)
def _room(index, out):
    return out.pairs.shape[0]


@begin.on(Decided)
def _begin(index, policy, store, out):
    if index.rules[TOGETHER] == 0 or index.meta[ENDED] != 0:
        for stream in range(2):
            expire(index, policy, store, out, stream)


@look_ahead.on(Decided)
def _look_ahead(index, policy, store, batch, i):
    fetch_next(policy, store, batch, i)
    if index.rules[ALIKE] == 0 and i + AHEAD < batch.key.shape[0]:
        entry = store.buckets[bucket_of(store, batch.key[i + AHEAD])]
        slot = np.int64(store.k32[entry, HEAD + 1 - np.int64(batch.stream[i + AHEAD])])
        prefetch(store.t64, 8 * slot)
        prefetch(index.fate, slot)
        fetch_kept(index.condition, slot)


@shed.on(Decided)
def _shed(index, store, batch, out, i):
    """An arrival is dropped before it probes: who could have matched it may have lost a partner."""
    meta, stream = index.meta, np.int64(batch.stream[i])
    meta[FOUND_NOW] = meta[MAYBE_NOW] = 0
    together = index.rules[TOGETHER] != 0
    late = not together and batch.time[i] < index.flow.progress[stream]
    meta[LATE_NOW] = 1 if late and index.rules[STRICT] != 0 else 0
    if meta[LATE_NOW] != 0:
        return
    if index.rules[TRACKED] + index.rules[TRACKED + 1] != 0:
        for each in range(find_fitting(index, store, batch, i, find_key(store, batch.key[i]), True)):
            index.fate[index.flow.matched[each]] |= MAYBE
    if not together and store.meta[STEPS] >= store.meta[WARMUP]:
        count_absent(store, index.flow, out.sketch, stream, batch.key[i], batch.time[i])


@advance.on(Decided)
def _advance(index, policy, store, out, stream, time):
    if index.rules[TOGETHER] != 0:
        set_clocks(store, stream, time)
        for each in range(2):
            expire(index, policy, store, out, each)
        return False
    flow, other = index.flow, 1 - stream
    late = time < flow.progress[stream]
    flow.progress[stream] = max(flow.progress[stream], time - flow.behind[stream])
    store.clock[other] = max(store.clock[other], flow.progress[stream])
    expire(index, policy, store, out, other)
    index.meta[LATE_NOW] = 1 if late and index.rules[STRICT] != 0 else 0
    return late


@retreat.on(Decided)
def _retreat(index, store, stream):
    if index.rules[TOGETHER] != 0:
        turn_back(store, stream)


@probe.on(Decided)
def _probe(index, store, batch, i):
    entry, rules = find_key(store, batch.key[i]), index.rules
    if index.meta[LATE_NOW] != 0:
        return np.int64(0), entry
    if rules[ALIKE] != 0:
        return np.int64(store.k32[entry, COUNT + 1 - np.int64(batch.stream[i])]), entry
    begin_probe(index.condition)
    found = find_fitting(index, store, batch, i, entry, False)
    index.meta[FITTING] = found
    if rules[MOST] == ONE_TO_ONE or (rules[MOST] == ONCE and batch.stream[i] == 0):
        found = min(found, np.int64(1))
    return found, entry


@arrived.on(Decided)
def _arrived(index, policy, store, batch, out, i, late, entry):
    stream, key = np.int64(batch.stream[i]), batch.key[i]
    if late:
        index.flow.meta[LATE] += 1
        log(store, out, LOG_LATE, stream, batch.row[i])
    if index.meta[LATE_NOW] != 0:
        return entry
    count_probe(index.condition)
    arrive(policy, store, stream, key, entry)
    if index.rules[TOGETHER] == 0 and store.meta[STEPS] >= store.meta[WARMUP]:
        estimate_missed(store, index.flow, out.sketch, stream, key, entry, batch.time[i])
    return entry


@matched.on(Decided)
def _matched(index, policy, store, batch, out, i, found, entry, arrival):
    rules, slots, stream = index.rules, index.flow.matched, np.int64(batch.stream[i])
    other = 1 - stream
    store.meta[PINNED] = entry
    if rules[ALIKE] != 0:
        match_key(policy, store, entry, other, arrival)
        index.last[entry, other] = arrival
    else:
        match_some(policy, store, slots, found, arrival)
        for each in range(found):
            index.fate[slots[each]] |= HAS_MATCHED
    store.meta[MATCHED] += found
    results = np.int64(0)
    if rules[EMIT] == EMIT_PAIRS:
        results = found
    elif rules[EMIT] == EMIT_LEFT:
        results = found if stream == 1 else np.int64(1)
    if results > 0 and store.meta[STEPS] >= store.meta[WARMUP]:
        store.meta[RESULTS] += results
        out.counts[i] += results
        if out.pairs.shape[0] > 0:
            emit(index, store, out, results, entry, stream, batch.row[i])
    if rules[MOST] == ONE_TO_ONE and rules[TRACKED] + rules[TRACKED + 1] != 0:
        spread_doubt(index, store, batch, i)
    if rules[RELEASES + other] != 0:
        release(index, policy, store, out, found, entry, other)
    unpin(store)


@settled.on(Decided)
def _settled(index, policy, store, batch, out, i, found):
    meta, stream = index.meta, np.int64(batch.stream[i])
    meta[FOUND_NOW], meta[MAYBE_NOW] = (1 if found > 0 else 0), 0
    if meta[LATE_NOW] != 0:
        store.meta[EXPIRED] += 1
        return True
    if found > 0:
        if index.rules[RELEASES + stream] != 0:
            store.meta[RELEASED] += 1
            log(store, out, LOG_RELEASED, stream, batch.row[i])
            return True
    elif may_have_lost(index, store, batch, i):
        meta[MAYBE_NOW] = 1
    return False


@admit.on(Decided)
def _admit(index, policy, store, batch, out, i, entry, arrival):
    stream, key, together = np.int64(batch.stream[i]), batch.key[i], index.rules[TOGETHER] != 0
    time = store.clock[stream] if together else batch.time[i]
    if not together and store.clock[stream] - time > store.horizon[stream]:
        store.meta[EXPIRED] += 1
        index.flow.meta[BORN_OLD] += 1
        count_gone(out.sketch, store, stream, key, time)
        log(store, out, LOG_EXPIRED, stream, batch.row[i])
        decide(index, store, out, stream, batch.row[i], fate_now(index))
        return
    if index.rules[RELEASES + 1 - stream] != 0:
        entry = find_key(store, key)  # it may have gone with the tuples that were released
    entry = pin(policy, store, key, entry)
    slot = let_in(policy, store, batch, out, i, time, entry, arrival)
    if slot != 0:
        index.fate[slot] = fate_now(index)
        keep(index.condition, store, batch, i, slot)
        if not together:
            file_newcomer(index.flow.expiry.queue, store, stream, slot, np.float64(time))
    unpin(store)


@lost.on(Decisions)
def _lost(out, store, stream, key, time):
    if out.decided.rules[TOGETHER] == 0:
        count_gone(out.sketch, store, stream, key, time)


@left_early.on(Decisions)
def _left_early(out, store, stream, slot, row, key, time):
    index = out.decided
    if index.meta[LATE_NOW] != 0 and slot == 0:
        return
    fate = fate_now(index)
    if slot != 0:
        fate = fate_of(index, store, slot)
    elif store.meta[WINDOW] == ROWS:
        time = store.clock[stream]
    note_lost(index.lost, stream, key, time, edge(store, stream))
    if index.rules[TRACKED + stream] != 0 and fate & HAS_MATCHED == 0:
        index.meta[UNDECIDED] += 1
        log(store, out, LOG_UNDECIDED, stream, row)


@jit
def expire(index, policy, store, out, stream):
    """Take out every tuple of a stream that can match no more, and say what is known of it."""
    together, ended = index.rules[TOGETHER] != 0, index.meta[ENDED] != 0
    while True:
        if together:
            slot = np.int64(arrival_ring.oldest(store, stream))
        else:
            found, _ = front(index.flow.expiry, index.flow.expiry.queue, store, stream)
            slot = np.int64(found)
        if slot == 0 or not (ended or lived_out(store, slot)):
            break
        store.meta[EXPIRED] += 1
        row = store.t64[slot, ROW]
        if not together:
            count_gone(
                out.sketch, store, stream, store.k64[store.t32[slot, ENTRY], KEY], store.time[slot, TIME]
            )
        log(store, out, LOG_EXPIRED, stream, row)
        decide(index, store, out, stream, row, fate_of(index, store, slot))
        remove(policy, store, slot)


@jit
def decide(index, store, out, stream, row, fate):
    """Say of a row that can match no more whether it has no partner."""
    if index.rules[TRACKED + stream] == 0 or fate & HAS_MATCHED != 0:
        return
    if fate & MAYBE != 0:
        index.meta[UNDECIDED] += 1
        log(store, out, LOG_UNDECIDED, stream, row)
    elif index.rules[NULLS + stream] != 0 and store.meta[STEPS] >= store.meta[WARMUP]:
        index.meta[UNMATCHED] += 1
        at = out.ends[NULL_ROWS]
        if at < out.nulls.shape[0]:
            out.nulls[at, 0] = stream
            out.nulls[at, 1] = row
            out.ends[NULL_ROWS] = at + 1


@jit
def fate_now(index):
    """What is known of the arrival at hand."""
    fate = np.int64(0)
    if index.meta[FOUND_NOW] != 0:
        fate |= HAS_MATCHED
    if index.meta[MAYBE_NOW] != 0:
        fate |= MAYBE
    return fate


@jit
def fate_of(index, store, slot):
    """What is known of a buffered tuple."""
    fate = np.int64(index.fate[slot])
    if index.rules[ALIKE] != 0:
        if index.last[store.t32[slot, ENTRY], store.t32[slot, STREAM]] > store.t64[slot, ARRIVAL]:
            fate |= HAS_MATCHED
    return fate


@jit
def edge(store, stream):
    """The time before which no tuple of a stream can match what comes."""
    if store.meta[WINDOW] == LANDMARK:
        return store.clock[stream] // store.horizon[stream] * store.horizon[stream]
    return store.clock[stream] - store.horizon[stream]


@jit
def may_have_lost(index, store, batch, i):
    """Whether a partner that arrival i would have found may have left early."""
    stream, key = np.int64(batch.stream[i]), batch.key[i]
    other = 1 - stream
    rules = index.rules
    asked = rules[TRACKED + stream] != 0
    if rules[MOST] == ONE_TO_ONE:
        asked = asked or rules[TRACKED + other] != 0
    if not asked:
        return False
    low, high = edge(store, other), store.clock[other]
    if rules[TOGETHER] == 0:
        low = max(low, batch.time[i] - store.horizon[other])
        high = batch.time[i] + store.horizon[stream]
    return may_be_lost(index.lost, other, key, low, high)


@jit
def find_fitting(index, store, batch, i, entry, whole):
    """Note the buffered tuples that arrival i may join, in order of arrival: all, or those that matter."""
    stream, time, rules = np.int64(batch.stream[i]), batch.time[i], index.rules
    other, together = 1 - stream, rules[TOGETHER] != 0
    low, high = time - store.horizon[other], time + store.horizon[stream]
    first_only = not whole and rules[MOST] == ONCE and stream == 0
    if not whole and rules[MOST] == ONE_TO_ONE:
        first_only = rules[TRACKED] + rules[TRACKED + 1] == 0
    found = np.int64(0)
    slot = np.int64(store.k32[entry, HEAD + other])
    while slot != 0:
        after = np.int64(store.t32[slot, NEXT])
        prefetch(store.t64, 8 * after)
        fetch_kept(index.condition, after)
        fits = low <= store.time[slot, TIME] <= high
        if together:
            fits = not whole or not outlived(store, slot, time)
        if fits:
            if passes(index.condition, store, batch, i, slot):
                index.flow.matched[found] = slot
                found += 1
                if first_only:
                    break
        slot = after
    return found


@jit
def outlived(store, slot, time):
    """Whether a tuple can match no more at a time to which the clocks have not advanced."""
    horizon = store.horizon[store.t32[slot, STREAM]]
    if store.meta[WINDOW] == LANDMARK:
        return time // horizon > store.time[slot, TIME] // horizon
    if store.meta[WINDOW] == ROWS:
        return False
    return time - store.time[slot, TIME] > horizon


@jit
def spread_doubt(index, store, batch, i):
    """One to one, arrival i takes the first of those that fit, but with more memory may have taken another.

    Then nobody knows who of them is taken: those that stay may have lost a partner, and those that leave are
    as if lost, for they may be there for somebody else.
    """
    stream, slots, fitting = np.int64(batch.stream[i]), index.flow.matched, index.meta[FITTING]
    other = 1 - stream
    doubt = may_have_lost(index, store, batch, i)
    for each in range(fitting):
        if index.fate[slots[each]] & MAYBE != 0:
            doubt = True
    if not doubt:
        return
    for each in range(fitting):
        index.fate[slots[each]] |= MAYBE
    time = store.clock[stream] if index.rules[TOGETHER] != 0 else batch.time[i]
    note_lost(index.lost, stream, batch.key[i], time, edge(store, stream))
    note_lost(index.lost, other, batch.key[i], store.time[slots[0], TIME], edge(store, other))


@jit
def release(index, policy, store, out, found, entry, stream):
    """Take out the tuples of a stream that an arrival has just matched."""
    slot = np.int64(store.k32[entry, HEAD + stream])
    for each in range(found):
        if index.rules[ALIKE] == 0:
            slot = index.flow.matched[each]
        after = np.int64(store.t32[slot, NEXT])
        store.meta[RELEASED] += 1
        log(store, out, LOG_RELEASED, stream, store.t64[slot, ROW])
        remove(policy, store, slot)
        slot = after


@jit
def emit(index, store, out, results, entry, stream, row):
    """Write the results of an arrival: pairs, or left rows alone."""
    at = out.ends[PAIRS]
    slot = np.int64(store.k32[entry, HEAD + 1 - stream])
    for each in range(results):
        if index.rules[ALIKE] == 0:
            slot = index.flow.matched[each]
        out.pairs[at + each, stream] = row
        out.pairs[at + each, 1 - stream] = store.t64[slot, ROW]
        if index.rules[EMIT] == EMIT_LEFT:
            out.pairs[at + each, 1] = -1
        slot = np.int64(store.t32[slot, NEXT])
    out.ends[PAIRS] = at + results
