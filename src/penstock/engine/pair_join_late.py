"""Joins of two streams that advance each at its own pace; `pair_join` has those in step:

- each stream has its own progress, and a tuple expires by the progress of the *other* stream;
- arrivals may be late: a pair joins if its times are within the window, whichever came first, so an arrival
  may match some of the buffered tuples of its key and not others;
- what is evicted, dropped or expired is counted in a sketch, from which the results of the exact join are
  estimated, those that late and dropped arrivals miss included.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from penstock.compiler.jit import jit
from penstock.engine.hooks import arrive, match_some, score
from penstock.engine.join_loop import (
    LOG_EXPIRED,
    LOG_LATE,
    PAIRS,
    admit,
    advance,
    arrived,
    begin,
    log,
    look_ahead,
    matched,
    probe,
    room_for_results,
    shed,
)
from penstock.engine.loss_sketch import MISSED, count_gone, count_missed, guess_missed
from penstock.engine.pair_join import fetch_next, let_in, pin, remove, unpin
from penstock.engine.score_queue import Queue, file_newcomer, front, new_queue
from penstock.engine.store import (
    ENTRY,
    EXPIRED,
    HEAD,
    KEY,
    MATCHED,
    NEXT,
    RESULTS,
    ROW,
    STEPS,
    TIME,
    WARMUP,
    find_key,
    lived_out,
)
from penstock.structures.tables import new_table

# Counters in `Flow.meta`.
LATE = 0
BORN_OLD = 1  # of the expired, those that never entered


class Expiry(NamedTuple):
    """Per stream, its tuples in order of time; those that came in order are a sorted run."""

    queue: Queue


class Flow(NamedTuple):
    """How far the streams have come."""

    expiry: Expiry
    progress: np.ndarray
    behind: np.ndarray  # per stream: how far its progress stays behind its largest time
    matched: np.ndarray  # the tuples that an arrival has matched
    meta: np.ndarray

    def grown(self, capacities: tuple[int, ...]) -> Flow:
        """Return the same with room for more tuples."""
        total = sum(capacities)
        expiry = Expiry(self.expiry.queue.grown((total, total)))
        return self._replace(expiry=expiry, matched=new_table(total + 1, np.int64))


def new_flow(
    capacities: tuple[int, ...], time_dtype: np.dtype, behind: tuple[float, ...], start: float
) -> Flow:
    """Streams that have not begun; `start` is a time before all others."""
    total = sum(capacities)
    return Flow(
        expiry=Expiry(new_queue((total, total))),
        progress=np.full(2, start, time_dtype),
        behind=np.array(behind, time_dtype),
        matched=new_table(total + 1, np.int64),
        meta=np.zeros(4, np.int64),
    )


@score.on(Expiry)
def _time(expiry, store, slot):
    return np.float64(store.time[slot, TIME])


@room_for_results.on(Flow)
def _room(flow, out):
    return out.pairs.shape[0]


@begin.on(Flow)
def _begin(flow, policy, store, out):
    for stream in range(2):
        expire(policy, store, flow, out, stream)


@look_ahead.on(Flow)
def _look_ahead(flow, policy, store, batch, i):
    fetch_next(policy, store, batch, i)


@shed.on(Flow)
def _shed(flow, store, batch, out, i):
    if store.meta[STEPS] >= store.meta[WARMUP]:
        count_absent(store, flow, out.sketch, np.int64(batch.stream[i]), batch.key[i], batch.time[i])


@advance.on(Flow)
def _advance(flow, policy, store, out, stream, time):
    other = 1 - stream
    late = time < flow.progress[stream]
    flow.progress[stream] = max(flow.progress[stream], time - flow.behind[stream])
    store.clock[other] = max(store.clock[other], flow.progress[stream])
    expire(policy, store, flow, out, other)
    return late


@probe.on(Flow)
def _probe(flow, store, batch, i):
    stream, time, entry = np.int64(batch.stream[i]), batch.time[i], find_key(store, batch.key[i])
    other = 1 - stream
    low, high = time - store.horizon[other], time + store.horizon[stream]
    return find_matches(store, flow, entry, other, low, high), entry


@arrived.on(Flow)
def _arrived(flow, policy, store, batch, out, i, late, entry):
    stream, key, time = np.int64(batch.stream[i]), batch.key[i], batch.time[i]
    if late:
        flow.meta[LATE] += 1
        log(store, out, LOG_LATE, stream, batch.row[i])
    arrive(policy, store, stream, key, entry)
    if store.meta[STEPS] >= store.meta[WARMUP]:
        estimate_missed(store, flow, out.sketch, stream, key, entry, time)
    return entry


@matched.on(Flow)
def _matched(flow, policy, store, batch, out, i, found, entry, arrival):
    match_some(policy, store, flow.matched, found, arrival)
    store.meta[MATCHED] += found
    if store.meta[STEPS] >= store.meta[WARMUP]:
        store.meta[RESULTS] += found
        out.counts[i] += found
        if out.pairs.shape[0] > 0:
            emit(store, flow, out, found, np.int64(batch.stream[i]), batch.row[i])


@admit.on(Flow)
def _admit(flow, policy, store, batch, out, i, entry, arrival):
    stream, key, time = np.int64(batch.stream[i]), batch.key[i], batch.time[i]
    if store.clock[stream] - time > store.horizon[stream]:
        store.meta[EXPIRED] += 1
        flow.meta[BORN_OLD] += 1
        count_gone(out.sketch, store, stream, key, time)
        log(store, out, LOG_EXPIRED, stream, batch.row[i])
        return
    entry = pin(policy, store, key, entry)
    slot = let_in(policy, store, batch, out, i, time, entry, arrival)
    if slot != 0:
        file_newcomer(flow.expiry.queue, store, stream, slot, np.float64(time))
    unpin(store)


@jit
def expire(policy, store, flow, out, stream):
    """Take out every tuple of a stream that the other stream can match no more, but for late arrivals."""
    slot, _ = front(flow.expiry, flow.expiry.queue, store, stream)
    while slot != 0 and lived_out(store, slot):
        store.meta[EXPIRED] += 1
        key = store.k64[store.t32[slot, ENTRY], KEY]
        count_gone(out.sketch, store, stream, key, store.time[slot, TIME])
        log(store, out, LOG_EXPIRED, stream, store.t64[slot, ROW])
        remove(policy, store, slot)
        slot, _ = front(flow.expiry, flow.expiry.queue, store, stream)


@jit
def estimate_missed(store, flow, sketch, stream, key, entry, time):
    """Estimate what an arrival missed."""
    low, high = time - store.horizon[1 - stream], time + store.horizon[stream]
    gone, known = count_missed(sketch, 1 - stream, key, low, high)
    if not known:
        guess(store, flow, sketch, stream, key, entry, gone, time)


@jit
def count_absent(store, flow, sketch, stream, key, time):
    """Count the results that an arrival would have had so far, if it is not to probe."""
    other = 1 - stream
    low, high = time - store.horizon[other], time + store.horizon[stream]
    entry = find_key(store, key)
    gone, known = count_missed(sketch, other, key, low, high)
    sketch.missed[MISSED] += find_matches(store, flow, entry, other, low, high)
    if not known:
        guess(store, flow, sketch, stream, key, entry, gone, time)


@jit
def guess(store, flow, sketch, stream, key, entry, gone, time):
    """Guess what an arrival missed that came too late to know: as much as there is around a later time."""
    other, high = 1 - stream, flow.progress[stream]
    low = high - store.horizon[stream] - store.horizon[other]
    others = -gone
    slot = store.k32[entry, HEAD + other]
    while slot != 0:
        then = store.time[slot, TIME]
        if low <= then <= high:
            others += 1.0
        if time - store.horizon[other] <= then <= time + store.horizon[stream]:
            others -= 1.0
        slot = store.t32[slot, NEXT]
    guess_missed(sketch, other, key, low, high, others)


@jit
def miss(store, flow, sketch, stream, key, time):
    """Count arrivals that somebody else has dropped, with the results that they would have had."""
    for i in range(key.shape[0]):
        side = np.int64(stream[i])
        count_absent(store, flow, sketch, side, key[i], time[i])
        count_gone(sketch, store, side, key[i], time[i])


@jit
def find_matches(store, flow, entry, other, low, high):
    """Note the buffered tuples of a key and stream with times from `low` to `high`, in order of arrival."""
    matches = np.int64(0)
    slot = store.k32[entry, HEAD + other]
    while slot != 0:
        time = store.time[slot, TIME]
        if low <= time <= high:
            flow.matched[matches] = slot
            matches += 1
        slot = store.t32[slot, NEXT]
    return matches


@jit
def emit(store, flow, out, matches, stream, row):
    """Write the pairs of an arrival with the tuples that it matched."""
    at = out.ends[PAIRS]
    for i in range(matches):
        out.pairs[at + i, stream] = row
        out.pairs[at + i, 1 - stream] = store.t64[flow.matched[i], ROW]
    out.ends[PAIRS] = at + matches


@jit
def advance_to(store, flow, times):
    """Set the streams' progress to what a watermark says, if that is further."""
    for stream in range(2):
        flow.progress[stream] = max(flow.progress[stream], times[stream])
        store.clock[1 - stream] = max(store.clock[1 - stream], flow.progress[stream])
