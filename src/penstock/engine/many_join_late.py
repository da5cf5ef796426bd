"""Joins of many streams that advance each at its own pace; `many_join` has those in step:

- each stream has its own progress, and a tuple expires by the least progress of the *other* streams that
  share a join with it;
- arrivals may be late: a combination joins if no member is further behind the latest one than the window of
  its stream, whichever came first.

So an arrival may match some tuples of its key and not others, and of those it matches not every combination
counts. The candidates of a key and participant are gathered in order of time, the arrival being the only
candidate of its own. Every combination has one latest member: for each candidate as that member, those of the
other participants back to the beginning of their windows form a stretch, whose product is a set of results.
Stretches move backward only, so all of them are found in O(candidates * participants), and results come one
after the other without a look at any combination that is none. Where all candidates are close, as in streams
in order, there is one stretch only and nothing to sort.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from penstock.compiler.jit import jit
from penstock.compiler.references import prefetch
from penstock.engine.hooks import match_key
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
)
from penstock.engine.many_index import CHAIN, HEEDING, OLDEST, YOUNGER, Index, capped, times
from penstock.engine.many_join import count_or_tell, count_results, fetch_next, let_in, remove
from penstock.engine.pair_join_late import BORN_OLD, LATE, Expiry
from penstock.engine.score_queue import file_newcomer, front, new_queue
from penstock.engine.store import (
    EXPIRED,
    ROW,
    TIME,
    find_key,
    lived_out,
)
from penstock.structures.tables import new_table


class ManyFlow(NamedTuple):
    """How far the streams have come, and the candidates of the present arrival."""

    expiry: Expiry
    progress: np.ndarray
    behind: np.ndarray  # per stream: how far its progress stays behind its largest time
    near: np.ndarray  # stream, stream -> 1 if they share a join
    slot: np.ndarray  # place, candidate -> its tuple; 0: the arrival itself
    time: np.ndarray  # place, candidate
    first: np.ndarray  # place, participant -> its first candidate; one more for the end
    span: np.ndarray  # place, participant -> how far it may be behind the latest member
    close: np.ndarray  # place -> 1 if all candidates are in the windows of the latest
    head: np.ndarray  # per participant: the last candidate that has not been the latest member
    reach: np.ndarray  # the first candidate that is not too early for the present latest member
    low: np.ndarray  # where the present stretch begins
    high: np.ndarray  # and ends
    told: np.ndarray  # down to where the policy has been told
    cursor: np.ndarray  # the candidate of the result that is written out
    meta: np.ndarray


def new_many_flow(
    joins: tuple[tuple[int, ...], ...],
    candidates: tuple[int, int],
    capacities: tuple[int, ...],
    time_dtype: np.dtype,
    behind: tuple[float, ...],
    start: float,
) -> ManyFlow:
    """Streams that have not begun, at most so many tuples of each, and joins, each the streams in it.

    There is room for the candidates of so many joins of a stream, so many of each. `start` is a time before
    all others.
    """
    streams, widest = len(behind), max(len(join) for join in joins)
    most, tuples = candidates
    near = np.zeros((streams, streams), np.int64)
    for join in joins:
        for a in join:
            near[a, list(join)] = 1
    np.fill_diagonal(near, 0)
    return ManyFlow(
        expiry=Expiry(new_queue(capacities)),
        progress=np.full(streams, start, time_dtype),
        behind=np.array(behind, time_dtype),
        near=near,
        slot=new_table((most, tuples + 1), np.int64),
        time=new_table((most, tuples + 1), time_dtype),
        first=np.zeros((most, widest + 1), np.int64),
        span=np.zeros((most, widest), time_dtype),
        close=np.zeros(most, np.int64),
        head=np.zeros(widest, np.int64),
        reach=np.zeros(widest, np.int64),
        low=np.zeros(widest, np.int64),
        high=np.zeros(widest, np.int64),
        told=np.zeros(widest, np.int64),
        cursor=np.zeros(widest, np.int64),
        meta=np.zeros(4, np.int64),
    )


class ManyStream(NamedTuple):
    """The chains of all joins, and how far the streams have come."""

    chains: Index
    flow: ManyFlow


@room_for_results.on(ManyStream)
def _room(many, out):
    return out.rows.shape[0]


@begin.on(ManyStream)
def _begin(many, policy, store, out):
    begin_batch(policy, store, many.chains, many.flow, out)


@look_ahead.on(ManyStream)
def _look_ahead(many, policy, store, batch, i):
    fetch_next(many.chains, batch, i)


@advance.on(ManyStream)
def _advance(many, policy, store, out, stream, time):
    return come_further(policy, store, many.chains, many.flow, out, stream, time)


@probe.on(ManyStream)
def _probe(many, store, batch, i):
    stream = np.int64(batch.stream[i])
    return find_all(store, many.chains, many.flow, batch.key[i], stream, batch.time[i]), np.int64(0)


@arrived.on(ManyStream)
def _arrived(many, policy, store, batch, out, i, late, entry):
    if late:
        many.flow.meta[LATE] += 1
        log(store, out, LOG_LATE, np.int64(batch.stream[i]), batch.row[i])
    return count_or_tell(policy, store, many.chains, batch, i)


@matched.on(ManyStream)
def _matched(many, policy, store, batch, out, i, found, entry, arrival):
    index, stream = many.chains, np.int64(batch.stream[i])
    counts = count_results(store, index, out, i, stream, found)
    for place in range(index.scheme.degree[stream]):
        if index.product[place] > 0:
            if index.meta[HEEDING] != 0:
                match(policy, store, index, many.flow, stream, place, arrival)
            if counts and out.rows.shape[0] > 0:
                emit(store, index, many.flow, out, stream, place, batch.row[i])


@admit.on(ManyStream)
def _admit(many, policy, store, batch, out, i, entry, arrival):
    admit_in_time(policy, store, many.chains, many.flow, batch, out, i, entry, arrival)


@jit
def begin_batch(policy, store, index, flow, out):
    """Take out what has expired since the last batch, as a watermark may have come."""
    for stream in range(flow.progress.shape[0]):
        expire(policy, store, index, flow, out, stream)


@jit
def come_further(policy, store, index, flow, out, stream, time):
    """Time goes on to an arrival of a stream; whether it is late."""
    late = time < flow.progress[stream]
    if time - flow.behind[stream] > flow.progress[stream]:
        move_on(store, flow, stream, time - flow.behind[stream])
        for each in range(flow.progress.shape[0]):
            if flow.near[stream, each] != 0:
                expire(policy, store, index, flow, out, each)
    return late


@jit
def admit_in_time(policy, store, index, flow, batch, out, i, entry, arrival):
    """Let an arrival enter, unless it came so late that nothing can match it any more."""
    stream, time = np.int64(batch.stream[i]), batch.time[i]
    if store.clock[stream] - time > store.horizon[stream]:
        store.meta[EXPIRED] += 1
        flow.meta[BORN_OLD] += 1
        log(store, out, LOG_EXPIRED, stream, batch.row[i])
        return
    slot = let_in(policy, store, index, batch, out, i, time, entry, arrival)
    if slot != 0:
        file_newcomer(flow.expiry.queue, store, stream, slot, np.float64(time))


@jit
def expire(policy, store, index, flow, out, stream):
    """Take out every tuple of a stream that no other stream can match any more, but for late arrivals."""
    slot, _ = front(flow.expiry, flow.expiry.queue, store, stream)
    while slot != 0 and lived_out(store, slot):
        store.meta[EXPIRED] += 1
        log(store, out, LOG_EXPIRED, stream, store.t64[slot, ROW])
        remove(policy, store, index, slot)
        slot, _ = front(flow.expiry, flow.expiry.queue, store, stream)


@jit
def move_on(store, flow, stream, to):
    """A stream has come further, and with it the clocks of those that had to wait for it."""
    before, progress = flow.progress[stream], flow.progress
    progress[stream] = to
    for each in range(progress.shape[0]):
        if flow.near[stream, each] != 0 and store.clock[each] == before:
            least = to
            for other in range(progress.shape[0]):
                if flow.near[each, other] != 0:
                    least = min(least, progress[other])
            store.clock[each] = least


@jit
def advance_many(store, flow, reached):
    """Set the streams' progress to what a watermark says, if that is further."""
    for stream in range(reached.shape[0]):
        if reached[stream] > flow.progress[stream]:
            move_on(store, flow, stream, reached[stream])


@jit
def find_all(store, index, flow, keys, stream, time):
    """Gather the candidates of an arrival, and count the results it completes in each of its joins."""
    scheme, found = index.scheme, np.int64(0)
    for place in range(scheme.degree[stream]):
        entry, product = np.int64(0), np.int64(0)
        if keys[place] >= 0:
            entry = np.int64(find_key(index, keys[place]))
            if entry != 0 and gather(store, index, flow, entry, stream, place, time):
                size = scheme.size[scheme.join[stream, place]]
                begin_stretches(flow, place, size)
                more = stretch(flow, place, size)
                while more > 0:
                    product = capped(product, more)
                    more = stretch(flow, place, size)
        index.entry[place] = entry
        index.product[place] = product
        found = capped(found, product)
    return found


@jit
def gather(store, index, flow, entry, stream, place, time):
    """Note the tuples of a key that are in the window of an arrival; whether every participant has some."""
    scheme, at = index.scheme, np.int64(0)
    join, own, horizon = scheme.join[stream, place], scheme.part[stream, place], store.horizon[stream]
    slots, noted, first, span = flow.slot[place], flow.time[place], flow.first[place], flow.span[place]
    late, behind = time, True
    for part in range(scheme.size[join]):
        first[part] = at
        span[part] = store.horizon[scheme.stream[join, part]]
        if part == own:
            slots[at], noted[at] = 0, time
            at += 1
        else:
            slot = np.int64(index.k32[entry, CHAIN + 3 * part + OLDEST])
            while slot != 0:
                younger = np.int64(index.links[slot, scheme.place[join, part], YOUNGER])
                prefetch(store.t64, 8 * younger)
                then = store.time[slot, TIME]
                if (then <= time and time - then <= span[part]) or (then > time and then - time <= horizon):
                    slots[at], noted[at] = slot, then
                    at += 1
                    late, behind = max(late, then), behind and then <= time
                slot = younger
            if at == first[part]:
                return False
    first[scheme.size[join]] = at
    flow.close[place] = 1 if behind or all_close(flow, place, scheme.size[join], late) else 0
    if flow.close[place] == 0:
        for part in range(scheme.size[join]):
            in_order(slots[first[part] : first[part + 1]], noted[first[part] : first[part + 1]])
    return True


@jit
def all_close(flow, place, size, late):
    """Whether all candidates are in the windows of the latest."""
    for part in range(size):
        for at in range(flow.first[place, part], flow.first[place, part + 1]):
            if late - flow.time[place, at] > flow.span[place, part]:
                return False
    return True


@jit
def in_order(slots, noted):
    """Sort candidates by time, those of one time by arrival, in which order they come."""
    for i in range(1, noted.shape[0]):
        if noted[i] < noted[i - 1]:
            order = np.argsort(noted, kind="mergesort")
            slots[:] = slots[order]
            noted[:] = noted[order]
            return


@jit
def begin_stretches(flow, place, size):
    """Go back to the first stretch of candidates."""
    for part in range(size):
        flow.head[part] = flow.first[place, part + 1] - 1
        flow.reach[part] = flow.first[place, part + 1]
        flow.told[part] = flow.first[place, part + 1]


@jit
def stretch(flow, place, size):
    """The next stretch of candidates all of whose combinations join; how many these are, 0 if none is left.

    Its latest member comes last in (time, participant), so that no combination is in two stretches.
    """
    first, noted, head, reach = flow.first[place], flow.time[place], flow.head, flow.reach
    while True:
        latest = 0
        for part in range(size):
            if head[part] < first[part]:
                return np.int64(0)
            if noted[head[part]] > noted[head[latest]]:
                latest = part
        until, product = noted[head[latest]], np.int64(1)
        for part in range(size):
            if flow.close[place] != 0:
                reach[part] = first[part]
            while reach[part] > first[part] and until - noted[reach[part] - 1] <= flow.span[place, part]:
                reach[part] -= 1
            flow.low[part], flow.high[part] = reach[part], head[part] + 1
            if part == latest and flow.close[place] == 0:
                flow.low[part] = head[part]
            product = times(product, flow.high[part] - flow.low[part])
        if flow.close[place] != 0:
            head[0] = first[0] - 1
        else:
            head[latest] -= 1
        if product > 0:
            return product


@jit
def match(policy, store, index, flow, stream, place, arrival):
    """Tell the policy of every tuple that is in a result of this arrival and join, once."""
    size = index.scheme.size[index.scheme.join[stream, place]]
    begin_stretches(flow, place, size)
    while stretch(flow, place, size) > 0:
        for part in range(size):
            for at in range(flow.low[part], min(flow.high[part], flow.told[part])):
                if flow.slot[place, at] != 0:
                    match_key(policy, store, flow.slot[place, at], 0, arrival)
            flow.told[part] = min(flow.told[part], flow.low[part])


@jit
def emit(store, index, flow, out, stream, place, row):
    """Write the results of an arrival in one join, the tuples of the last participant changing fastest."""
    join = index.scheme.join[stream, place]
    size, cursor, at = index.scheme.size[join], flow.cursor, out.ends[PAIRS]
    begin_stretches(flow, place, size)
    product = stretch(flow, place, size)
    while product > 0:
        for part in range(size):
            cursor[part] = flow.low[part]
        for _ in range(product):
            out.rows[at, 0] = join
            for part in range(size):
                slot = flow.slot[place, cursor[part]]
                out.rows[at, 1 + part] = store.t64[slot, ROW] if slot != 0 else row
            at += 1
            for back in range(size):
                part = size - 1 - back
                cursor[part] += 1
                if cursor[part] < flow.high[part]:
                    break
                cursor[part] = flow.low[part]
        product = stretch(flow, place, size)
    out.ends[PAIRS] = at
