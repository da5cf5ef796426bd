"""Left joins of many streams: which tuples of the first stream are certainly in no result.

Results are searched as in `many_search`. Beside that it is known of each buffered tuple of the first stream
(see `many_fates`):

- whether it has been in a result;
- of each participant that must have its key (all others of a join on one key, the neighbours in a chain):
  whether a tuple with that key has been there, or may have been;
- whether a tuple that could have been in a result with it may have left early: evicted, refused or dropped.

So a tuple that expires without a result is certainly in none (`unmatched`) if nothing has left early, or if a
participant had nothing to offer; otherwise nobody knows (`undecided`).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from penstock.compiler.jit import jit
from penstock.engine import arrival_ring
from penstock.engine.hooks import left_early
from penstock.engine.join_loop import (
    LOG_EXPIRED,
    LOG_LATE,
    LOG_UNDECIDED,
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
)
from penstock.engine.many_fates import (
    DECIDING,
    ENDED,
    EVENTS,
    FIRST,
    FOUND_NOW,
    HAS_MATCHED,
    LATE_NOW,
    MAYBE,
    OWN_PART,
    TOGETHER,
    UNDECIDED,
    UNMATCHED,
    ManyFates,
    doubt_by_events,
    lacks_now,
    lacks_partner,
    meet,
    note_event,
    note_key,
)
from penstock.engine.many_index import HELD
from penstock.engine.many_join import (
    count_or_tell,
    fetch_next,
    let_in,
    note_evicted,
    remove,
    set_clocks,
    turn_back,
)
from penstock.engine.many_join_late import ManyFlow, move_on
from penstock.engine.many_search import ManySearch, find_entries, find_next, start, tell_all
from penstock.engine.pair_join_late import BORN_OLD, LATE
from penstock.engine.score_queue import file_newcomer, front
from penstock.engine.store import (
    EXPIRED,
    KEY,
    ROW,
    STEPS,
    STREAM,
    TIME,
    WARMUP,
    find_key,
    lived_out,
)

ALONE = 2  # in `ManyDecisions.ends`: how much of `alone` is filled


class ManyDecided(NamedTuple):
    """The search for results, how far the streams have come, and what is known of the tuples."""

    search: ManySearch
    flow: ManyFlow  # used by streams out of step only
    known: ManyFates


class ManyDecisions(NamedTuple):
    """What the driver writes to: as `many_join.ManyOut`, and rows that are in no result."""

    counts: np.ndarray
    rows: np.ndarray
    each: np.ndarray  # -1 in the first place of an arrival that took no part
    log: np.ndarray
    ends: np.ndarray
    alone: np.ndarray
    decided: ManyDecided


@room_for_results.on(ManyDecided)
def _room(index, out):
    return out.rows.shape[0]


@begin.on(ManyDecided)
def _begin(index, policy, store, out):
    if index.known.rules[TOGETHER] == 0 or index.known.meta[ENDED] != 0:
        for stream in range(store.clock.shape[0]):
            expire(index, policy, store, out, stream)


@look_ahead.on(ManyDecided)
def _look_ahead(index, policy, store, batch, i):
    fetch_next(index.search.chains, batch, i)


@advance.on(ManyDecided)
def _advance(index, policy, store, out, stream, time):
    flow, rules, meta = index.flow, index.known.rules, index.known.meta
    meta[LATE_NOW] = 0
    if rules[TOGETHER] != 0:
        set_clocks(store, index.search.chains, stream, time)
        for each in range(store.clock.shape[0]):
            expire(index, policy, store, out, each)
        return False
    late = time < flow.progress[stream]
    if time - flow.behind[stream] > flow.progress[stream]:
        move_on(store, flow, stream, time - flow.behind[stream])
        for each in range(flow.progress.shape[0]):
            if flow.near[stream, each] != 0:
                expire(index, policy, store, out, each)
    meta[LATE_NOW] = 1 if late and rules[DECIDING] != 0 else 0
    return late


@retreat.on(ManyDecided)
def _retreat(index, store, stream):
    if index.known.rules[TOGETHER] != 0:
        turn_back(store, index.search.chains, stream)


@probe.on(ManyDecided)
def _probe(index, store, batch, i):
    search, known, stream = index.search, index.known, np.int64(batch.stream[i])
    if known.meta[LATE_NOW] != 0:
        return np.int64(0), np.int64(0)
    find_entries(search.chains, batch, i)
    found = np.int64(0)
    start(search, stream, 0, batch.time[i])
    while find_next(search, store, stream, 0):
        found += 1
        if stream != FIRST:
            known.fate[search.slot[known.rules[OWN_PART]]] |= HAS_MATCHED
    search.chains.product[0] = found
    return found, np.int64(0)


@arrived.on(ManyDecided)
def _arrived(index, policy, store, batch, out, i, late, entry):
    chains, known, stream = index.search.chains, index.known, np.int64(batch.stream[i])
    if late:
        index.flow.meta[LATE] += 1
        log(store, out, LOG_LATE, stream, batch.row[i])
    if known.meta[LATE_NOW] != 0:
        if out.each.shape[0] > 0:
            out.each[i, 0] = -1
        return np.int64(0)
    known.meta[EVENTS] += 1
    for place in range(chains.scheme.degree[stream]):
        if chains.entry[place] != 0:
            known.stamp[chains.entry[place], chains.scheme.part[stream, place]] = known.meta[EVENTS]
    return count_or_tell(policy, store, chains, batch, i)


@matched.on(ManyDecided)
def _matched(index, policy, store, batch, out, i, found, entry, arrival):
    tell_all(index.search, policy, store, batch, out, i, found, arrival)


@settled.on(ManyDecided)
def _settled(index, policy, store, batch, out, i, found):
    meta = index.known.meta
    meta[FOUND_NOW] = 1 if found > 0 else 0
    if meta[LATE_NOW] != 0:
        store.meta[EXPIRED] += 1
        return True
    return False


@admit.on(ManyDecided)
def _admit(index, policy, store, batch, out, i, entry, arrival):
    flow, known, stream = index.flow, index.known, np.int64(batch.stream[i])
    together = known.rules[TOGETHER] != 0
    time = store.clock[stream] if together else batch.time[i]
    spare = known.fate.shape[0] - 1  # stands for an arrival that does not enter
    if not together and store.clock[stream] - time > store.horizon[stream]:
        store.meta[EXPIRED] += 1
        flow.meta[BORN_OLD] += 1
        log(store, out, LOG_EXPIRED, stream, batch.row[i])
        if stream == FIRST:
            meet(index, store, batch.key[i], time, spare)
            decide(index, store, out, batch.row[i], spare, lacks_now(known, spare))
        return
    slot = let_in(policy, store, index.search.chains, batch, out, i, time, entry, arrival)
    if slot == 0:
        return
    if not together:
        file_newcomer(flow.expiry.queue, store, stream, slot, np.float64(time))
    if stream == FIRST:
        meet(index, store, batch.key[i], time, slot)


@left_early.on(ManyDecisions)
def _left_early(out, store, stream, slot, row, keys, time):
    index = out.decided
    chains, known = index.search.chains, index.known
    if stream == FIRST:
        if known.meta[FOUND_NOW] == 0:
            leave_undecided(known, store, out, row)
        return
    if known.rules[TOGETHER] != 0:
        time = store.clock[stream]
    note_event(known, stream, time)
    for place in range(chains.scheme.degree[stream]):
        note_key(index, store, stream, place, keys[place], find_key(chains, keys[place]), time)


@note_evicted.on(ManyDecisions)
def _note_evicted(out, store, slot):
    index = out.decided
    chains, known = index.search.chains, index.known
    stream = np.int64(store.t32[slot, STREAM])
    if stream == FIRST:
        if known.fate[slot] & HAS_MATCHED == 0:
            leave_undecided(known, store, out, store.t64[slot, ROW])
        return
    time = store.time[slot, TIME]
    note_event(known, stream, time)
    for place in range(chains.scheme.degree[stream]):
        held = np.int64(chains.links[slot, place, HELD])
        note_key(index, store, stream, place, chains.k64[held, KEY], held, time)


@jit
def expire(index, policy, store, out, stream):
    """Take out every tuple of a stream that can match no more, and say what is known of the first one's."""
    flow, known, chains = index.flow, index.known, index.search.chains
    while True:
        if known.rules[TOGETHER] != 0:
            slot = np.int64(arrival_ring.oldest(store, stream))
        else:
            found, _ = front(flow.expiry, flow.expiry.queue, store, stream)
            slot = np.int64(found)
        if slot == 0 or not (known.meta[ENDED] != 0 or lived_out(store, slot)):
            break
        store.meta[EXPIRED] += 1
        log(store, out, LOG_EXPIRED, stream, store.t64[slot, ROW])
        if stream == FIRST:
            doubt_by_events(index, slot)
            decide(index, store, out, store.t64[slot, ROW], slot, lacks_partner(index, slot))
        remove(policy, store, chains, slot)


@jit
def decide(index, store, out, row, slot, lacks):
    """Say of a tuple that can match no more whether it is in no result; `lacks`: it has had no partner."""
    known = index.known
    if known.rules[DECIDING] == 0 or known.fate[slot] & HAS_MATCHED != 0:
        return
    if known.fate[slot] & MAYBE != 0 and not lacks:
        leave_undecided(known, store, out, row)
    elif store.meta[STEPS] >= store.meta[WARMUP]:
        known.meta[UNMATCHED] += 1
        at = out.ends[ALONE]
        if at < out.alone.shape[0]:
            out.alone[at] = row
            out.ends[ALONE] = at + 1


@jit
def leave_undecided(known, store, out, row):
    """Of a row of the first stream it will not be known whether it is in a result."""
    if known.rules[DECIDING] != 0:
        known.meta[UNDECIDED] += 1
        log(store, out, LOG_UNDECIDED, FIRST, row)
