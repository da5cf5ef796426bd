"""Joins of many streams whose members meet one by one: chains over different columns, and windows of pairs.

Members of one join need not share a key, nor is the window the same for any two of them, so the results of an
arrival are no product of lengths. They are searched: from the arrival along its links to tuples of the next
stream, and on from these, back as soon as two members do not fit. The index of keys is that of `many_index`,
where every link of a chain is a join of its own between two streams. Each arrival is searched twice, once to
count its results and once to write them and to tell the policy. O(partial results).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from penstock.compiler.jit import jit
from penstock.engine.hooks import match_key
from penstock.engine.join_loop import (
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
    retreat,
    room_for_results,
)
from penstock.engine.many_index import CHAIN, HEEDING, HELD, OLDEST, YOUNGER, Index, capped
from penstock.engine.many_join import (
    count_found,
    count_or_tell,
    expire,
    fetch_next,
    let_in,
    set_clocks,
    turn_back,
)
from penstock.engine.many_join_late import ManyFlow, admit_in_time, begin_batch, come_further
from penstock.engine.pair_join_late import LATE
from penstock.engine.store import ROW, TIME, find_key
from penstock.structures.tables import new_table

# Columns of a step: the participant at whose tuple it begins, and which of its links it follows; the
# participant it leads to, which of its links that is, and which side of the link it is.
FROM, ALONG, TO, BY, PART, CHECKS, STEP_WIDTH = 0, 1, 2, 3, 4, 5, 6
# Columns of a check: another participant whose key must be the same, which of its links that is, and which
# of the newcomer's.
OTHER, THEIRS, OURS, CHECK_WIDTH = 0, 1, 2, 3

DEPTH, STAMP, TIMED, SEARCH_META = 0, 1, 2, 3  # in `meta`; TIMED: 1 if pairs of members have windows


class SearchPlan(NamedTuple):
    """How to find the results of an arrival, by its stream and the place of the join among those it is in."""

    size: np.ndarray  # join -> participants
    degree: np.ndarray  # stream -> joins
    join: np.ndarray  # stream, place -> join
    part: np.ndarray  # stream, place -> which participant the stream is
    step: np.ndarray  # stream, place, number -> step
    check: np.ndarray  # stream, place, number of the step, number -> check
    bound: np.ndarray  # join, participant, other participant -> how much later the other may be at most


class ManySearch(NamedTuple):
    """The chains of keys, the plan, and the result at hand."""

    chains: Index
    plan: SearchPlan
    slot: np.ndarray  # participant -> its tuple; 0: the arrival
    time: np.ndarray  # participant -> its time
    next: np.ndarray  # number of a step -> the tuple to try next
    told: np.ndarray  # tuple -> the search by which the policy was told of it last
    meta: np.ndarray


class ManyStreamSearch(NamedTuple):
    """The same for streams that advance each at its own pace."""

    search: ManySearch
    flow: ManyFlow


def new_search(chains: Index, plan: SearchPlan, tuples: int, timed: bool, time_dtype: np.dtype) -> ManySearch:
    """A search that has found nothing, among so many tuples."""
    widest = plan.step.shape[2] + 1
    meta = np.zeros(SEARCH_META, np.int64)
    meta[TIMED] = timed
    return ManySearch(
        chains=chains,
        plan=plan,
        slot=np.zeros(widest, np.int64),
        time=np.zeros(widest, time_dtype),
        next=np.zeros(widest, np.int64),
        told=new_table(tuples + 2, np.int64),
        meta=meta,
    )


@room_for_results.on(ManySearch)
def _room(search, out):
    return out.rows.shape[0]


@look_ahead.on(ManySearch)
def _look_ahead(search, policy, store, batch, i):
    fetch_next(search.chains, batch, i)


@advance.on(ManySearch)
def _advance(search, policy, store, out, stream, time):
    set_clocks(store, search.chains, stream, time)
    expire(policy, store, search.chains, out)
    return False


@retreat.on(ManySearch)
def _retreat(search, store, stream):
    turn_back(store, search.chains, stream)


@probe.on(ManySearch)
def _probe(search, store, batch, i):
    return count_all(search, store, batch, i), np.int64(0)


@arrived.on(ManySearch)
def _arrived(search, policy, store, batch, out, i, late, entry):
    return count_or_tell(policy, store, search.chains, batch, i)


@matched.on(ManySearch)
def _matched(search, policy, store, batch, out, i, found, entry, arrival):
    tell_all(search, policy, store, batch, out, i, found, arrival)


@admit.on(ManySearch)
def _admit(search, policy, store, batch, out, i, entry, arrival):
    time = store.clock[np.int64(batch.stream[i])]
    let_in(policy, store, search.chains, batch, out, i, time, entry, arrival)


@room_for_results.on(ManyStreamSearch)
def _stream_room(many, out):
    return out.rows.shape[0]


@begin.on(ManyStreamSearch)
def _stream_begin(many, policy, store, out):
    begin_batch(policy, store, many.search.chains, many.flow, out)


@look_ahead.on(ManyStreamSearch)
def _stream_look_ahead(many, policy, store, batch, i):
    fetch_next(many.search.chains, batch, i)


@advance.on(ManyStreamSearch)
def _stream_advance(many, policy, store, out, stream, time):
    return come_further(policy, store, many.search.chains, many.flow, out, stream, time)


@probe.on(ManyStreamSearch)
def _stream_probe(many, store, batch, i):
    return count_all(many.search, store, batch, i), np.int64(0)


@arrived.on(ManyStreamSearch)
def _stream_arrived(many, policy, store, batch, out, i, late, entry):
    if late:
        many.flow.meta[LATE] += 1
        log(store, out, LOG_LATE, np.int64(batch.stream[i]), batch.row[i])
    return count_or_tell(policy, store, many.search.chains, batch, i)


@matched.on(ManyStreamSearch)
def _stream_matched(many, policy, store, batch, out, i, found, entry, arrival):
    tell_all(many.search, policy, store, batch, out, i, found, arrival)


@admit.on(ManyStreamSearch)
def _stream_admit(many, policy, store, batch, out, i, entry, arrival):
    admit_in_time(policy, store, many.search.chains, many.flow, batch, out, i, entry, arrival)


@jit
def count_all(search, store, batch, i):
    """Find the rows of an arrival's keys, and count the results it completes in each of its joins."""
    index, plan, stream = search.chains, search.plan, np.int64(batch.stream[i])
    find_entries(index, batch, i)
    total = np.int64(0)
    for place in range(plan.degree[stream]):
        found = np.int64(0)
        start(search, stream, place, batch.time[i])
        while find_next(search, store, stream, place):
            found += 1
        index.product[place] = found
        total = capped(total, found)
    return total


@jit
def find_entries(index, batch, i):
    """Find the rows of an arrival's keys."""
    for place in range(index.scheme.degree[np.int64(batch.stream[i])]):
        index.entry[place] = 0
        if batch.key[i, place] >= 0:
            index.entry[place] = np.int64(find_key(index, batch.key[i, place]))


@jit
def tell_all(search, policy, store, batch, out, i, found, arrival):
    """Count the results of an arrival, write them, and tell the policy once of every tuple in them."""
    index, plan, stream = search.chains, search.plan, np.int64(batch.stream[i])
    counts = count_found(store, index, out, i, found)
    writes, heeds = counts and out.rows.shape[0] > 0, index.meta[HEEDING] != 0
    for place in range(plan.degree[stream]):
        join, product = plan.join[stream, place], index.product[place]
        if counts:
            index.found[join] = capped(index.found[join], product)
            if out.each.shape[0] > 0:
                out.each[i, place] = product
        if product == 0 or not (writes or heeds):
            continue
        search.meta[STAMP] += 1
        start(search, stream, place, batch.time[i])
        while find_next(search, store, stream, place):
            if writes:
                write(search, store, out, join, batch.row[i])
            if heeds:
                tell(search, policy, store, plan.size[join], arrival)


@jit
def write(search, store, out, join, row):
    """Write the result at hand."""
    at = out.ends[PAIRS]
    out.rows[at, 0] = join
    for part in range(search.plan.size[join]):
        slot = search.slot[part]
        out.rows[at, 1 + part] = store.t64[slot, ROW] if slot != 0 else row
    out.ends[PAIRS] = at + 1


@jit
def tell(search, policy, store, size, arrival):
    """Tell the policy of the tuples of the result at hand of which it was not told in this search."""
    for part in range(size):
        slot = search.slot[part]
        if slot != 0 and search.told[slot] != search.meta[STAMP]:
            search.told[slot] = search.meta[STAMP]
            match_key(policy, store, slot, 0, arrival)


@jit
def start(search, stream, place, time):
    """Stand before the first result of an arrival in one of its joins."""
    own = search.plan.part[stream, place]
    search.slot[own] = 0
    search.time[own] = time
    search.meta[DEPTH] = 0
    search.next[0] = first_of(search, stream, place, 0)


@jit
def first_of(search, stream, place, number):
    """The oldest tuple to which a step leads, 0 if none."""
    step, index = search.plan.step[stream, place, number], search.chains
    slot = search.slot[step[FROM]]
    entry = index.entry[step[ALONG]] if slot == 0 else np.int64(index.links[slot, step[ALONG], HELD])
    if entry == 0:
        return np.int64(0)
    return np.int64(index.k32[entry, CHAIN + 3 * step[PART] + OLDEST])


@jit
def find_next(search, store, stream, place):
    """Go on to the next result of an arrival; whether there is one."""
    plan, index = search.plan, search.chains
    last = plan.size[plan.join[stream, place]] - 2
    depth = search.meta[DEPTH]
    while depth >= 0:
        slot = search.next[depth]
        if slot == 0:
            depth -= 1
            continue
        to = plan.step[stream, place, depth, TO]
        search.next[depth] = np.int64(index.links[slot, plan.step[stream, place, depth, BY], YOUNGER])
        search.slot[to] = slot
        search.time[to] = store.time[slot, TIME]
        if not suits(search, stream, place, depth):
            continue
        if depth == last:
            search.meta[DEPTH] = depth
            return True
        depth += 1
        search.next[depth] = first_of(search, stream, place, depth)
    return False


@jit
def suits(search, stream, place, depth):
    """Whether the newest member of a partial result fits to all others."""
    plan, index = search.plan, search.chains
    steps = plan.step[stream, place]
    to, slot = steps[depth, TO], search.slot[steps[depth, TO]]
    for number in range(steps[depth, CHECKS]):
        check = plan.check[stream, place, depth, number]
        other = search.slot[check[OTHER]]
        theirs = index.entry[check[THEIRS]]
        if other != 0:
            theirs = np.int64(index.links[other, check[THEIRS], HELD])
        if theirs == 0 or theirs != index.links[slot, check[OURS], HELD]:
            return False
    if search.meta[TIMED] == 0:
        return True
    bound, time = plan.bound[plan.join[stream, place]], search.time
    for number in range(-1, depth):
        other = plan.part[stream, place] if number < 0 else steps[number, TO]
        apart = time[other] - time[to]
        if apart > bound[to, other] or -apart > bound[other, to]:
            return False
    return True
