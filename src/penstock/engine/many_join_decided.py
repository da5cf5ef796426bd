"""Left joins of many streams: which tuples of the first stream are certainly in no result.

Results are searched as in `many_search`. Beside that it is known of each buffered tuple of the first stream:

- whether it has been in a result;
- of each participant that must have its key (all others of a join on one key, the neighbours in a chain):
  whether a tuple with that key has been there, or may have been;
- whether a tuple that could have been in a result with it may have left early: evicted, refused or dropped.

So a tuple that expires without a result is certainly in none (`unmatched`) if nothing has left early, or if a
participant had nothing to offer; otherwise nobody knows (`undecided`).

What has left before a tuple came is asked of the filter of lost keys. What comes and leaves while it is
buffered is noted with the row of its key in the index, which is there as long as the tuple is: events are
numbered, and the last one of each kind is compared with the one at which the tuple entered. Of streams whose
key does not follow from the tuple's own (those further off in a chain), and of the past of streams whose
windows count rows, only the latest loss is known.
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
from penstock.engine.lost_keys import LostKeys, may_be_lost, note_lost
from penstock.engine.many_index import CHAIN, HELD, LENGTH, Index
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
    LANDMARK,
    ROW,
    STEPS,
    STREAM,
    TIME,
    WARMUP,
    WINDOW,
    find_key,
    lived_out,
)
from penstock.structures.tables import enlarged, new_table

FIRST = 0  # the stream whose tuples come out alone

# In `Known.rules`.
TOGETHER = 0  # the streams advance in step
DECIDING = 1  # 0 while tuples enter that another state has kept: nothing is decided by that
OWN_PART = 2  # which participant of the results the first stream is
RULES = 3

# In `Known.meta`.
UNMATCHED = 0
UNDECIDED = 1
ENDED = 2  # the streams have ended: all that is buffered is decided
LATE_NOW = 3  # of the arrival at hand: it is late and takes no part
FOUND_NOW = 4  # it is in a result
EVENTS = 5  # arrivals, and tuples that left early
META = 6

# What is known of the tuples of a stream that left early, in `Known.role`.
BY_KEY = 0  # their keys and times
LATEST = 1  # the latest one, as the window counts rows
UNLINKED = 2  # the same, as they need not have the key of the first stream

# Columns of a partner: a participant that must have a key of the first stream.
PLACE, PART, ITS_STREAM, PARTNER_WIDTH = 0, 1, 2, 3

# Bits of `Known.fate`.
HAS_MATCHED = 1
MAYBE = 2  # a member of a result may have left early

ALONE = 2  # in `ManyDecisions.ends`: how much of `alone` is filled


class Known(NamedTuple):
    """What is known of the tuples of the first stream, and of the others that left early."""

    fate: np.ndarray  # per tuple
    met: np.ndarray  # tuple, partner -> 1 if there was one, or may have been, when the tuple came
    born: np.ndarray  # tuple -> the last event before it was there
    # Row of the index, participant -> the last event at which one came; behind them, at which one left early.
    stamp: np.ndarray
    lost: LostKeys
    newest: np.ndarray  # stream -> the latest tuple that left early, by the clock of the stream
    left: np.ndarray  # stream -> the last event at which one left early
    role: np.ndarray  # stream -> what is known of these
    partner: np.ndarray
    reach: np.ndarray  # how much older than what comes a lost tuple may be that still counts
    rules: np.ndarray
    meta: np.ndarray

    def grown(self, tuples: int, rows: int) -> Known:
        """Return the same with room for more tuples, and so many rows of the index."""
        return self._replace(
            fate=enlarged(self.fate, tuples + 2),
            met=enlarged(self.met, (tuples + 2, self.met.shape[1])),
            born=enlarged(self.born, tuples + 2),
            stamp=enlarged(self.stamp, (rows, self.stamp.shape[1])),
        )


class ManyDecided(NamedTuple):
    """The search for results, how far the streams have come, and what is known of the tuples."""

    search: ManySearch
    flow: ManyFlow  # used by streams out of step only
    known: Known


class ManyDecisions(NamedTuple):
    """What the driver writes to: as `many_join.ManyOut`, and rows that are in no result."""

    counts: np.ndarray
    rows: np.ndarray
    each: np.ndarray  # -1 in the first place of an arrival that took no part
    log: np.ndarray
    ends: np.ndarray
    alone: np.ndarray
    decided: ManyDecided


def new_known(
    index: Index, tuples: int, lost: LostKeys, reach: float, time_dtype: np.dtype, rules: np.ndarray
) -> Known:
    """What is known before anything has come; the join is one over all streams, or a chain of links."""
    scheme = index.scheme
    streams, widest = len(scheme.degree), scheme.stream.shape[1]
    partners = [
        (place, part, scheme.stream[join, part])
        for place, join in enumerate(scheme.join[FIRST, : scheme.degree[FIRST]].tolist())
        for part in range(scheme.size[join])
        if part != scheme.part[FIRST, place]
    ]
    role = np.full(streams, UNLINKED, np.int64)
    for _, _, stream in partners:
        role[stream] = LATEST if index.by_rows[stream] else BY_KEY
    earliest = np.iinfo(np.int64).min if time_dtype == np.int64 else -np.inf
    return Known(
        fate=new_table(tuples + 2, np.uint8),
        met=new_table((tuples + 2, len(partners)), np.uint8),
        born=new_table(tuples + 2, np.int64),
        stamp=new_table((len(index.k64), widest + 1), np.int64),
        lost=lost,
        newest=np.full(streams, earliest, time_dtype),
        left=np.zeros(streams, np.int64),
        role=role,
        partner=np.array(partners, np.int64).reshape(-1, PARTNER_WIDTH),
        reach=np.array([reach], time_dtype),
        rules=rules,
        meta=np.zeros(META, np.int64),
    )


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


@jit
def meet(index, store, keys, time, slot):
    """Note what is known of a tuple of the first stream when it comes."""
    chains, known = index.search.chains, index.known
    fate = HAS_MATCHED if known.meta[FOUND_NOW] != 0 else 0
    for each in range(known.partner.shape[0]):
        partner = known.partner[each]
        key, stream = keys[partner[PLACE]], partner[ITS_STREAM]
        entry = np.int64(find_key(chains, key))
        there = entry != 0 and chains.k32[entry, CHAIN + 3 * partner[PART] + LENGTH] > 0
        gone = may_have_left(index, store, stream, partner[PART], key, time)
        known.met[slot, each] = 1 if there or gone else 0
        if gone:
            fate |= MAYBE
    for stream in range(1, known.role.shape[0]):
        if known.role[stream] == UNLINKED and known.newest[stream] >= oldest_fitting(
            index, store, stream, time
        ):
            fate |= MAYBE
    known.fate[slot] = fate
    known.born[slot] = known.meta[EVENTS]


@jit
def may_have_left(index, store, stream, part, key, time):
    """Whether a tuple that would suit one of the first stream, at this time, may have left early."""
    known = index.known
    low = oldest_fitting(index, store, stream, time)
    if known.role[stream] != BY_KEY:
        return known.newest[stream] >= low
    high = store.clock[stream] if known.rules[TOGETHER] != 0 else time + store.horizon[FIRST]
    return may_be_lost(known.lost, FIRST, filter_key(index, key, part), low, high)


@jit
def oldest_fitting(index, store, stream, time):
    """The time before which no tuple of a stream suits one of the first stream that comes at this time."""
    if index.known.rules[TOGETHER] == 0:
        return time - store.horizon[stream]
    if store.meta[WINDOW] == LANDMARK:
        return store.clock[stream] // store.horizon[stream] * store.horizon[stream]
    return store.clock[stream] - store.horizon[stream]


@jit
def filter_key(index, key, part):
    """The key of a participant as the filter has it."""
    return key * index.search.chains.scheme.stream.shape[1] + part


@jit
def note_event(known, stream, time):
    """A tuple of another stream leaves early."""
    known.meta[EVENTS] += 1
    known.left[stream] = known.meta[EVENTS]
    known.newest[stream] = max(known.newest[stream], time)


@jit
def note_key(index, store, stream, place, key, entry, time):
    """Note a key of a tuple that leaves early; `entry` is its row of the index, 0 if it has none."""
    chains, known = index.search.chains, index.known
    if entry != 0:
        known.stamp[entry, known.stamp.shape[1] - 1] = known.meta[EVENTS]
    if known.role[stream] != BY_KEY or not is_of_first(chains, chains.scheme.join[stream, place]):
        return
    edge = index.flow.progress[FIRST] - known.reach[0]
    if known.rules[TOGETHER] != 0:
        edge = store.clock[stream] - known.reach[0]
        if store.meta[WINDOW] == LANDMARK:
            edge = oldest_fitting(index, store, stream, time)
    part = chains.scheme.part[stream, place]
    note_lost(known.lost, FIRST, filter_key(index, key, part), time, edge)


@jit
def is_of_first(chains, join):
    """Whether the first stream takes part in a join."""
    for place in range(chains.scheme.degree[FIRST]):
        if chains.scheme.join[FIRST, place] == join:
            return True
    return False


@jit
def lacks_partner(index, slot):
    """Whether a participant has had nothing to offer to a tuple in all its time."""
    chains, known = index.search.chains, index.known
    for each in range(known.partner.shape[0]):
        partner = known.partner[each]
        entry = chains.links[slot, partner[PLACE], HELD]
        if known.met[slot, each] == 0 and known.stamp[entry, partner[PART]] <= known.born[slot]:
            return True
    return False


@jit
def lacks_now(known, slot):
    """The same of a tuple that has only just come."""
    for each in range(known.partner.shape[0]):
        if known.met[slot, each] == 0:
            return True
    return False


@jit
def doubt_by_events(index, slot):
    """Note with a tuple that members of its results may have left early since it came."""
    chains, known = index.search.chains, index.known
    born = known.born[slot]
    for each in range(known.partner.shape[0]):
        entry = chains.links[slot, known.partner[each, PLACE], HELD]
        if known.stamp[entry, known.stamp.shape[1] - 1] > born:
            known.fate[slot] |= MAYBE
    for stream in range(1, known.role.shape[0]):
        if known.role[stream] == UNLINKED and known.left[stream] > born:
            known.fate[slot] |= MAYBE
