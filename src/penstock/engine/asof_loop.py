"""The driver of as-of joins, one arrival at a time: time goes on, left rows are answered, rows enter.

It is the same for two streams in step and for two that advance each at its own pace; see `asof_index` for
what is kept, and `asof_answer` for what an answer is.
"""

from __future__ import annotations

import numpy as np

from penstock.compiler.driver import driver
from penstock.compiler.jit import jit
from penstock.compiler.references import borrow
from penstock.engine.asof_answer import (
    MATCHED as FOUND,
)
from penstock.engine.asof_answer import (
    OPEN,
    NewRow,
    find_answer,
    nobody_new,
)
from penstock.engine.asof_answer import (
    UNDECIDED as DOUBTFUL,
)
from penstock.engine.asof_index import (
    BACKWARD,
    CLOSED,
    DIRECTION,
    ENDED,
    EXACT,
    FAR,
    FORWARD,
    IN_STEP,
    LATE,
    LEFT,
    LEFT_FIRST,
    RELEASED,
    RIGHT,
    RIGHT_FIRST,
    TIES,
    UNDECIDED,
    UNMATCHED,
    earlier_than,
    first_of,
    last_of,
    later_than,
    left_done,
    link_in_time,
    passed,
    reached,
    within_reach,
)
from penstock.engine.asof_memory import let_in, remove
from penstock.engine.evicted_keys import maybe_evicted
from penstock.engine.hooks import arrive, changed, match_some
from penstock.engine.join_loop import LOG_EXPIRED, LOG_LATE, LOG_UNDECIDED, PAIRS, log
from penstock.engine.pair_join import fetch_next, pin, unpin
from penstock.engine.score_queue import file_newcomer, front, lowest_bound
from penstock.engine.store import (
    ARRIVAL,
    ARRIVALS,
    ENTRY,
    EXPIRED,
    HIGH_TUPLE,
    KEY,
    MATCHED,
    P_PEAK_USED,
    P_USED,
    PINNED,
    RESULTS,
    ROW,
    SIZE,
    STEPS,
    STREAM,
    TIME,
    find_key,
    wants_rows,
)

SWEPT = 2  # in `ENDED`: what waited for the end is done


@driver
def drive_asof(policy, store, index, batch, out, start):
    """Process a batch from `start`; the first arrival not processed, if the tables have to grow."""
    return _drive(borrow(policy), borrow(store), borrow(index), borrow(batch), borrow(out), start)


@jit
def _drive(policy, store, index, batch, out, start):
    meta = store.meta
    pass_time(index, policy, store, out, start)
    for i in range(start, batch.stream.shape[0]):
        fetch_next(policy, store, batch, i)
        stream = np.int64(batch.stream[i])
        if wants_rows(store, stream):
            return i
        late = advance(index, store, stream, batch.time[i])
        if late:
            index.meta[LATE] += 1
            log(store, out, LOG_LATE, stream, batch.row[i])
        else:
            pass_time(index, policy, store, out, i)
            if stream == LEFT:
                take_left(index, policy, store, batch, out, i)
            else:
                take_right(index, policy, store, batch, out, i)
        meta[ARRIVALS] += 1
        meta[STEPS] += 1
    return batch.stream.shape[0]


@jit
def advance(index, store, stream, time):
    """Time goes on to an arrival; whether the arrival is behind its stream's progress."""
    progress, meta, other = index.progress, index.meta, 1 - stream
    late = time < progress[stream]
    if meta[IN_STEP] != 0:
        if not late:
            progress[stream] = progress[other] = time
            first = (meta[TIES] == LEFT_FIRST and stream == RIGHT) or (
                meta[TIES] == RIGHT_FIRST and stream == LEFT
            )
            meta[CLOSED + stream] = 0
            meta[CLOSED + other] = 1 if first else 0
    else:
        progress[stream] = max(progress[stream], time - index.behind[stream])
    for each in range(2):
        store.clock[each] = max(store.clock[each], progress[1 - each])
    return late


@jit
def pass_time(index, policy, store, out, i):
    """Do what is due: answer left rows, and take out right rows that are no use any more."""
    agenda, announced = index.agenda, index.announced
    if index.meta[ENDED] == 1:
        answer_the_rest(index, policy, store, out, i)
    left, right = np.float64(index.progress[LEFT]), np.float64(index.progress[RIGHT])
    # Right rows first: where one is settled, those before it go, and answers are found in a few steps.
    while lowest_bound(agenda.kept, 0) <= left:
        slot, _ = front(agenda, agenda.kept, store, 0)
        if slot == 0:
            break
        if index.settled[slot] != 0:
            if not expire(index, policy, store, out, i, slot):
                break
        elif not settle(index, policy, store, out, i, slot):
            break
    while lowest_bound(announced.queue, 0) <= right:
        slot, _ = front(announced, announced.queue, store, 0)
        if slot == 0 or not reached(index, RIGHT, store.time[slot, TIME]):
            break
        announced.done[slot] = 1
        entry, time = np.int64(store.t32[slot, ENTRY]), store.time[slot, TIME]
        inclusive = index.meta[DIRECTION] == FORWARD and index.meta[EXACT] != 0
        answer_up_to(index, policy, store, out, i, entry, time, inclusive, nobody_new(time))
    while lowest_bound(agenda.waiting, 0) <= right:
        slot, _ = front(agenda, agenda.waiting, store, 0)
        if slot == 0 or not passed(index, RIGHT, agenda.due[slot]):
            if slot == 0 or index.meta[EXACT] != 0 or not reached(index, RIGHT, agenda.due[slot]):
                break
        if not answer_waiting(index, policy, store, out, i, slot, nobody_new(agenda.due[slot])):
            break


@jit
def answer_the_rest(index, policy, store, out, i):
    """The right stream has ended: every left row that waits gets its answer."""
    index.meta[ENDED] = SWEPT
    for slot in range(1, store.meta[HIGH_TUPLE] + 1):
        if store.t64[slot, ARRIVAL] >= 0 and store.t32[slot, STREAM] == LEFT:
            time = store.time[slot, TIME]
            answer_waiting(index, policy, store, out, i, np.int64(slot), nobody_new(time))


@jit
def answer_waiting(index, policy, store, out, i, slot, other):
    """Answer a left row that waits, and let it go; False if its answer is not final."""
    entry, time = np.int64(store.t32[slot, ENTRY]), store.time[slot, TIME]
    key = store.k64[entry, KEY]
    outcome, row, found, due = find_answer(index, store, entry, key, time, other)
    if outcome == OPEN:
        later = due > index.agenda.due[slot]
        if later:
            index.agenda.due[slot] = due
        return later  # so that whoever goes by what is due looks on
    deliver(index, policy, store, out, i, store.t64[slot, ROW], outcome, row, found)
    index.meta[RELEASED] += 1
    remove(index, policy, store, slot)
    return True


@jit
def answer_up_to(index, policy, store, out, i, entry, time, inclusive, other):
    """Answer the left rows of a key that wait, up to a time; whether none of them goes on waiting."""
    slot, all_done = first_of(index, store, entry, LEFT), True
    while slot != 0:
        then, after = store.time[slot, TIME], later_than(index, store, slot)
        if then > time or (then == time and not inclusive):
            break
        arrival = store.t64[slot, ARRIVAL]
        answer_waiting(index, policy, store, out, i, slot, other)
        all_done = all_done and store.t64[slot, ARRIVAL] != arrival
        slot = after
    return all_done


@jit
def deliver(index, policy, store, out, i, left_row, outcome, right_row, found):
    """Write the answer of a left row, and tell the policy which tuple was of use."""
    if outcome == DOUBTFUL:
        index.meta[UNDECIDED] += 1
        log(store, out, LOG_UNDECIDED, LEFT, left_row)
        return
    if outcome == FOUND:
        store.meta[RESULTS] += 1
        store.meta[MATCHED] += 1
        if i < out.counts.shape[0]:
            out.counts[i] += 1
        if found != 0:
            index.matched[0] = found
            match_some(policy, store, index.matched, np.int64(1), store.meta[ARRIVALS])
    else:
        index.meta[UNMATCHED] += 1
    if out.pairs.shape[0] > 0:
        at = out.ends[PAIRS]
        out.pairs[at, LEFT] = left_row
        out.pairs[at, RIGHT] = right_row
        out.ends[PAIRS] = at + 1


@jit
def settle(index, policy, store, out, i, slot):
    """A right row that left rows to come prefer to those before it; False if that is not so yet."""
    entry, time, meta = np.int64(store.t32[slot, ENTRY]), store.time[slot, TIME], index.meta
    if not (reached(index, RIGHT, time) and left_done(index, time)):
        return False
    if meta[DIRECTION] == FORWARD:
        answer_up_to(index, policy, store, out, i, entry, time, meta[EXACT] != 0, nobody_new(time))
        drop(index, policy, store, out, slot)
        return True
    if answer_up_to(index, policy, store, out, i, entry, time, meta[EXACT] == 0, nobody_new(time)):
        drop_earlier(index, policy, store, out, slot)
    index.settled[slot] = 1
    index.agenda.due[slot] = within_reach(index, time)
    return True


@jit
def expire(index, policy, store, out, i, slot):
    """A right row that is too old for every left row to come; False if it is not."""
    entry, time, tolerance = np.int64(store.t32[slot, ENTRY]), store.time[slot, TIME], index.tolerance[0]
    until = index.agenda.due[slot]
    if not (index.progress[LEFT] > until and index.progress[RIGHT] > until):
        return False
    if answer_up_to(index, policy, store, out, i, entry, within_reach(index, time), True, nobody_new(time)):
        drop(index, policy, store, out, slot)
    else:  # somebody may still choose it
        index.agenda.due[slot] = min(until + max(tolerance, 1), FAR)
    return True


@jit
def drop_earlier(index, policy, store, out, slot):
    """Take out the right rows of a key before one of them."""
    slot = earlier_than(index, store, slot)
    while slot != 0:
        before = earlier_than(index, store, slot)
        drop(index, policy, store, out, slot)
        slot = before


@jit
def drop(index, policy, store, out, slot):
    """Take out a right row that is no use any more."""
    store.meta[EXPIRED] += 1
    log(store, out, LOG_EXPIRED, RIGHT, store.t64[slot, ROW])
    remove(index, policy, store, slot)


@jit
def take_left(index, policy, store, batch, out, i):
    """Answer a left row at once if its answer is final; otherwise it waits in memory."""
    key, time, entry = batch.key[i], batch.time[i], find_key(store, batch.key[i])
    arrive(policy, store, LEFT, key, entry)
    outcome, row, found, due = find_answer(index, store, entry, key, time, nobody_new(time))
    if outcome != OPEN:
        deliver(index, policy, store, out, i, batch.row[i], outcome, row, found)
        index.meta[RELEASED] += 1
        return
    entry = pin(policy, store, key, entry)
    slot = let_in(index, policy, store, batch, out, i, entry)
    if slot != 0:
        index.agenda.due[slot] = due
        link_in_time(index, store, slot)
        file_newcomer(index.agenda.waiting, store, 0, slot, np.float64(index.agenda.due[slot]))
    unpin(store)


@jit
def take_right(index, policy, store, batch, out, i):
    """Answer the left rows that waited for a right row, and keep it if others may need it."""
    key, time, row, entry = batch.key[i], batch.time[i], batch.row[i], find_key(store, batch.key[i])
    forward, exact = index.meta[DIRECTION] == FORWARD, index.meta[EXACT] != 0
    arrive(policy, store, RIGHT, key, entry)
    store.meta[PINNED] = entry
    known = reached(index, RIGHT, time)
    if known and entry != 0 and index.meta[DIRECTION] != BACKWARD:
        other = NewRow(True, time, row)
        answer_up_to(index, policy, store, out, i, entry, time, forward and exact, other)
    settled = known and left_done(index, time)
    if forward and settled:
        store.meta[EXPIRED] += 1
        log(store, out, LOG_EXPIRED, RIGHT, row)
    else:
        if settled and entry != 0:
            tail = last_of(index, store, entry, RIGHT)
            if tail != 0 and store.time[tail, TIME] <= time:
                settled = answer_up_to(index, policy, store, out, i, entry, time, not exact, nobody_new(time))
                if settled:
                    drop_earlier(index, policy, store, out, tail)
                    settled = not replace(index, policy, store, batch, out, i, tail)
                    if not settled:
                        unpin(store)
                        return
        entry = pin(policy, store, key, entry)
        slot = let_in(index, policy, store, batch, out, i, entry)
        if slot != 0:
            keep(index, policy, store, out, slot, known, settled)
    if store.meta[PINNED] != 0:
        unpin(store)


@jit
def replace(index, policy, store, batch, out, i, slot):
    """Let a right row take the place and the score of the one before it; False if it needs more room."""
    size = batch.size[i] if batch.size.shape[0] > 0 else np.int64(0)
    before = np.int64(store.t32[slot, SIZE])
    if size > before:
        drop(index, policy, store, out, slot)
        return False
    store.meta[EXPIRED] += 1
    log(store, out, LOG_EXPIRED, RIGHT, store.t64[slot, ROW])
    time = batch.time[i]
    store.t64[slot, ROW] = batch.row[i]
    store.time[slot, TIME] = time
    store.t32[slot, SIZE] = size
    pool = store.pools[store.pool_of[RIGHT]]
    pool[P_USED] -= before - size
    pool[P_PEAK_USED] = max(pool[P_PEAK_USED], pool[P_USED])
    index.settled[slot] = 1
    index.agenda.due[slot] = within_reach(index, time)
    index.doubt[slot] = later_gone(index, batch.key[i], time)
    changed(policy, store, slot)
    return True


@jit
def later_gone(index, key, time):
    """1 if a right row of a key that is later than this time may have been evicted."""
    return 1 if index.evicted.latest[0] > time and maybe_evicted(index.evicted, key, time) else 0


@jit
def keep(index, policy, store, out, slot, known, settled):
    """Put a right row that has just entered where it will be looked for."""
    agenda, announced, time = index.agenda, index.announced, store.time[slot, TIME]
    link_in_time(index, store, slot)
    index.doubt[slot] = later_gone(index, store.k64[store.t32[slot, ENTRY], KEY], time)
    index.settled[slot] = 1 if settled else 0
    agenda.due[slot] = within_reach(index, time) if settled else time
    announced.done[slot] = 1
    if settled:
        drop_earlier(index, policy, store, out, slot)
    elif not known and index.meta[DIRECTION] != BACKWARD:
        announced.done[slot] = 0
        file_newcomer(announced.queue, store, 0, slot, np.float64(time))
    if agenda.due[slot] < FAR:
        file_newcomer(agenda.kept, store, 0, slot, np.float64(agenda.due[slot]))


@jit
def advance_to(index, store, times):
    """Set the streams' progress to what a watermark says, if that is further."""
    for stream in range(2):
        if times[stream] > index.progress[stream]:
            index.progress[stream] = times[stream]
            index.meta[CLOSED + stream] = 0
        store.clock[1 - stream] = max(store.clock[1 - stream], index.progress[stream])
