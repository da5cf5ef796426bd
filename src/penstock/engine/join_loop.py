"""The driver of joins, one arrival at a time: expire, probe, admit.

It is the same for two streams and for many, in step or each at its own pace. What differs is where tuples are
found and how far time has come: the index. Its class decides what the hooks below do (`pair_join`,
`pair_join_late`, `many_join`, `many_join_late`). Unlike the hooks of a policy, these are bound when the
driver is compiled.

A batch is processed up to its end, to the point where the room for results is used up, or to an arrival
before which the tables have to grow; what the driver returns is where to go on.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from penstock.compiler.driver import driver
from penstock.compiler.hook_calls import hook
from penstock.compiler.jit import jit
from penstock.compiler.references import borrow
from penstock.engine.hooks import left_early, lost
from penstock.engine.store import ARRIVALS, DROPPED, SHED, STEPS, wants_rows
from penstock.structures.random import DROPS, uniform

# What a log entry says of a tuple.
LOG_EVICTED = 0
LOG_EXPIRED = 1
LOG_DROPPED = 2
LOG_LATE = 3  # an arrival behind its stream's progress, which may have missed what had expired
LOG_RELEASED = 4  # its match has decided all there was to decide
LOG_UNDECIDED = 5  # it leaves, and whether it has a partner is not known; after the entry that says why

PAIRS = 0
LOGGED = 1


class Batch(NamedTuple):
    """Arrivals in the order in which they are processed."""

    stream: np.ndarray
    key: np.ndarray
    time: np.ndarray
    row: np.ndarray
    size: np.ndarray


class Out(NamedTuple):
    """Where a driver writes; arrays without room mean that this is not wanted."""

    counts: np.ndarray  # results per arrival
    pairs: np.ndarray  # left and right row of each result
    log: np.ndarray  # what became of tuples: (kind, stream, row, arrival during which it happened)
    ends: np.ndarray  # how much of pairs and log is filled, and of more that an index writes


@hook
def room_for_results(index, out):
    """How many results `out` has room for in all; 0 if they are only counted."""
    return 0


@hook
def begin(index, policy, store, out):
    """A batch, or the rest of one, begins."""


@hook
def look_ahead(index, policy, store, batch, i):
    """Have the memory on its way that the arrivals after arrival i will need."""


@hook
def shed(index, store, batch, out, i):
    """Arrival i is dropped before it probes: a chance to count what it would have found."""


@hook
def advance(index, policy, store, out, stream, time):
    """Time goes on to an arrival, and tuples expire by it. Whether the arrival is late."""
    return False


@hook
def retreat(index, store, stream):
    """Take back the advance for an arrival that will be processed later."""


@hook
def probe(index, store, batch, i):
    """How many results arrival i completes, and the row of its key."""
    return np.int64(0), np.int64(0)


@hook
def arrived(index, policy, store, batch, out, i, late, entry):
    """Arrival i counts from now on; what it is admitted with: the row of its key, or a count."""
    return entry


@hook
def matched(index, policy, store, batch, out, i, found, entry, arrival):
    """Arrival i completes results: the policy is told, and they are counted and written."""


@hook
def settled(index, policy, store, batch, out, i, found):
    """Whether arrival i is done with and need not enter, be it dropped or not."""
    return False


@hook
def admit(index, policy, store, batch, out, i, entry, arrival):
    """Let arrival i enter, at the expense of others where need be."""


@driver
def drive(policy, store, index, batch, out, start):
    """Process a batch from `start`; the first arrival not processed, if results or rows ran out of room."""
    return _drive(borrow(policy), borrow(store), borrow(index), borrow(batch), borrow(out), start)


@jit
def _drive(policy, store, index, batch, out, start):
    meta = store.meta
    room = room_for_results(index, out)
    begin(index, policy, store, out)
    for i in range(start, batch.stream.shape[0]):
        look_ahead(index, policy, store, batch, i)
        stream = np.int64(batch.stream[i])
        if wants_rows(store, stream):
            return i
        dropped = draw_drop(store, stream)
        if dropped and meta[SHED] != 0:
            shed(index, store, batch, out, i)
            count_dropped(store, out, batch, i)
            meta[STEPS] += 1
            continue
        late = advance(index, policy, store, out, stream, batch.time[i])
        found, entry = probe(index, store, batch, i)
        if room > 0 and out.ends[PAIRS] + found > room:
            undraw_drop(store, stream)
            retreat(index, store, stream)
            return i
        arrival = meta[ARRIVALS]
        meta[ARRIVALS] += 1
        entry = arrived(index, policy, store, batch, out, i, late, entry)
        if found > 0:
            matched(index, policy, store, batch, out, i, found, entry, arrival)
        if settled(index, policy, store, batch, out, i, found):
            pass
        elif dropped:
            count_dropped(store, out, batch, i)
        else:
            admit(index, policy, store, batch, out, i, entry, arrival)
        meta[STEPS] += 1
    return batch.stream.shape[0]


@jit
def count_dropped(store, out, batch, i):
    """Count an arrival that was dropped by chance."""
    stream = np.int64(batch.stream[i])
    store.meta[DROPPED] += 1
    lost(out, store, stream, batch.key[i], batch.time[i])
    log(store, out, LOG_DROPPED, stream, batch.row[i])
    left_early(out, store, stream, np.int64(0), batch.row[i], batch.key[i], batch.time[i])


@jit
def draw_drop(store, stream):
    """Whether chance drops this arrival: one draw, none if the probability is 0."""
    return store.chance[stream] > 0.0 and uniform(store.random, DROPS) < store.chance[stream]


@jit
def undraw_drop(store, stream):
    """Take back the draw for an arrival that will be processed later."""
    if store.chance[stream] > 0.0:
        store.random[DROPS] -= np.uint64(0x9E3779B97F4A7C15)


@jit
def log(store, out, kind, stream, row):
    """Note what became of a tuple, if that is wanted."""
    at = out.ends[LOGGED]
    if at < out.log.shape[0]:
        out.log[at, 0] = kind
        out.log[at, 1] = stream
        out.log[at, 2] = row
        out.log[at, 3] = store.meta[STEPS]
        out.ends[LOGGED] = at + 1
