"""What is known of the tuples of the first of many streams: in a result, with partners, or in doubt.

What has left before a tuple came is asked of the filter of lost keys. What comes and leaves while it is
buffered is noted with the row of its key in the index, which is there as long as the tuple is: events are
numbered, and the last one of each kind is compared with the one at which the tuple entered. Of streams whose
key does not follow from the tuple's own (those further off in a chain), and of the past of streams whose
windows count rows, only the latest loss is known. `many_join_decided` decides by that.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from penstock.compiler.jit import jit
from penstock.engine.lost_keys import LostKeys, may_be_lost, note_lost
from penstock.engine.many_index import CHAIN, HELD, LENGTH, Index
from penstock.engine.store import LANDMARK, WINDOW, find_key
from penstock.structures.tables import enlarged, new_table

FIRST = 0  # the stream whose tuples come out alone

# In `ManyFates.rules`.
TOGETHER = 0  # the streams advance in step
DECIDING = 1  # 0 while tuples enter that another state has kept: nothing is decided by that
OWN_PART = 2  # which participant of the results the first stream is
RULES = 3

# In `ManyFates.meta`.
UNMATCHED = 0
UNDECIDED = 1
ENDED = 2  # the streams have ended: all that is buffered is decided
LATE_NOW = 3  # of the arrival at hand: it is late and takes no part
FOUND_NOW = 4  # it is in a result
EVENTS = 5  # arrivals, and tuples that left early
META = 6

# What is known of the tuples of a stream that left early, in `ManyFates.role`.
BY_KEY = 0  # their keys and times
LATEST = 1  # the latest one, as the window counts rows
UNLINKED = 2  # the same, as they need not have the key of the first stream

# Columns of a partner: a participant that must have a key of the first stream.
PLACE, PART, ITS_STREAM, PARTNER_WIDTH = 0, 1, 2, 3

# Bits of `ManyFates.fate`.
HAS_MATCHED = 1
MAYBE = 2  # a member of a result may have left early


class ManyFates(NamedTuple):
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

    def grown(self, tuples: int, rows: int) -> ManyFates:
        """Return the same with room for more tuples, and so many rows of the index."""
        return self._replace(
            fate=enlarged(self.fate, tuples + 2),
            met=enlarged(self.met, (tuples + 2, self.met.shape[1])),
            born=enlarged(self.born, tuples + 2),
            stamp=enlarged(self.stamp, (rows, self.stamp.shape[1])),
        )


def new_many_fates(
    index: Index, tuples: int, lost: LostKeys, reach: float, time_dtype: np.dtype, rules: np.ndarray
) -> ManyFates:
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
    return ManyFates(
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
