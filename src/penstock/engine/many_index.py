"""The index of joins of many streams, and what unlimited memory would have given.

A row per join and key, with a chain of tuples per participant; per tuple a link for each join of its
stream. The rows hang in hash buckets as the keys of a store do.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from penstock.compiler.jit import jit
from penstock.compiler.references import borrow
from penstock.engine.store import HIGH_KEY, META, add_key, drop_key, find_key, power_of_two, spread_keys
from penstock.structures.key_counts import Counts, new_sketch
from penstock.structures.tables import enlarged, new_table

# Columns of a row of the index, 32 bits wide; KEY and LINK are as in the store.
TUPLES = 7  # of all participants
CHAIN = 8  # + 3 * participant: oldest tuple, newest tuple, number of tuples
OLDEST, NEWEST, LENGTH = 0, 1, 2

# Columns of a link.
HELD, YOUNGER, OLDER, LINK_WIDTH = 0, 1, 2, 4  # row of the index, neighbours in its chain

# Flags in the `meta` of an index, beside those of its free list.
COUNTING = 8  # 1: the score of a tuple is a count of arrivals, kept in its own key row
HEEDING = 9  # 1: the policy wants to know of matches
MIXED = 10  # 1: some windows count rows
TALLYING = 11  # 1: arrivals are counted though they are no score, for a policy that may take over

MOST = (1 << 62) - 1  # counts of results stop here


class Scheme(NamedTuple):
    """Who takes part in what. Participants of a join and joins of a stream are numbered in their order."""

    size: np.ndarray  # join -> participants
    stream: np.ndarray  # join, participant -> its stream
    place: np.ndarray  # join, participant -> which of its stream's joins this is
    degree: np.ndarray  # stream -> joins
    join: np.ndarray  # stream, place -> join; -1: none
    part: np.ndarray  # stream, place -> which participant the stream is


class Index(NamedTuple):
    """The chains of all joins, and what has been found."""

    scheme: Scheme
    k64: np.ndarray
    k32: np.ndarray
    buckets: np.ndarray
    links: np.ndarray  # tuple, place -> link
    counts: Counts  # arrivals by key and participant, if they are the score
    found: np.ndarray  # results per join
    entry: np.ndarray  # of the present arrival, per place: the row of the index
    product: np.ndarray  # and the results
    cursor: np.ndarray  # per participant, the tuple of the result that is written out
    by_rows: np.ndarray  # per stream: 1 if its tuples expire by its arrivals, not by time
    meta: np.ndarray


def new_scheme(joins: tuple[tuple[int, ...], ...], streams: int) -> Scheme:
    """The tables of a list of joins, each the streams that take part in it."""
    widest = max(len(join) for join in joins)
    degree = np.bincount([stream for join in joins for stream in join], minlength=streams)
    scheme = Scheme(
        size=np.array([len(join) for join in joins], np.int64),
        stream=np.zeros((len(joins), widest), np.int64),
        place=np.zeros((len(joins), widest), np.int64),
        degree=np.zeros(streams, np.int64),
        join=np.full((streams, int(degree.max())), -1, np.int64),
        part=np.zeros((streams, int(degree.max())), np.int64),
    )
    for j, join in enumerate(joins):
        for p, stream in enumerate(join):
            place = scheme.degree[stream]
            scheme.stream[j, p], scheme.place[j, p] = stream, place
            scheme.join[stream, place], scheme.part[stream, place] = j, p
            scheme.degree[stream] += 1
    return scheme


def new_index(
    scheme: Scheme, tuples: int, counting: bool, heeding: bool, by_rows: tuple[bool, ...] = ()
) -> Index:
    """An empty index for so many tuples, without room for counts.

    `by_rows` says which streams have windows of rows.
    """
    widest, most = scheme.stream.shape[1], scheme.join.shape[1]
    keys = tuples * most + 2
    k64 = new_table((keys, CHAIN // 2 + (3 * widest + 1) // 2), np.int64)
    meta = np.zeros(META, np.int64)
    meta[COUNTING], meta[HEEDING], meta[MIXED] = counting, heeding, any(by_rows)
    return Index(
        scheme=scheme,
        k64=k64,
        k32=k64.view(np.int32),
        buckets=new_table(power_of_two(2 * keys), np.int32),
        links=new_table((tuples + 2, most, LINK_WIDTH), np.int32),
        counts=new_sketch(1, 1),
        found=np.zeros(len(scheme.size), np.int64),
        entry=np.zeros(most, np.int64),
        product=np.zeros(most, np.int64),
        cursor=np.zeros(widest, np.int64),
        by_rows=np.array(by_rows or (False,) * len(scheme.degree), np.int64),
        meta=meta,
    )


def grow_index(tables: dict[str, Any], tuples: int) -> None:
    """Enlarge the arrays of an index, given by name, for so many tuples; the caller keeps no others."""
    most, k64 = tables["links"].shape[1], tables["k64"]
    keys = tuples * most + 2
    tables["k32"] = None
    tables["k64"] = k64 = enlarged(k64, (keys, k64.shape[1]))
    tables["k32"] = k32 = k64.view(np.int32)
    tables["links"] = enlarged(tables["links"], (tuples + 2, most, LINK_WIDTH))
    size = power_of_two(2 * keys)
    if size > len(tables["buckets"]):
        high = int(tables["meta"][HIGH_KEY])
        tables["buckets"] = spread_keys(k64, k32, k32[:, TUPLES] > 0, high, size)


@jit
def find_all(index, keys, stream):
    """Find the rows of an arrival's keys, and how many results it completes in each of its joins."""
    scheme, found = index.scheme, np.int64(0)
    for place in range(scheme.degree[stream]):
        entry, product = np.int64(0), np.int64(0)
        if keys[place] >= 0:
            entry = np.int64(find_key(index, keys[place]))
            if entry != 0:
                product = np.int64(1)
                for part in range(scheme.size[scheme.join[stream, place]]):
                    if part != scheme.part[stream, place] and product > 0:
                        product = times(product, np.int64(index.k32[entry, CHAIN + 3 * part + LENGTH]))
        index.entry[place] = entry
        index.product[place] = product
        found = capped(found, product)
    return found


@jit
def times(a, b):
    """A product that stops at the largest count."""
    return a * b if np.float64(a) * np.float64(b) < 4.6e18 else np.int64(MOST)


@jit
def capped(a, b):
    """A sum that stops at the largest count."""
    return min(a + b, np.int64(MOST))


@jit
def link(index, slot, place, part, key):
    """Append a tuple to its chain in one join. O(1)."""
    links, k32 = index.links, index.k32
    entry = np.int64(0)
    if key >= 0:
        entry = np.int64(find_key(index, key))
        if entry == 0:
            entry = np.int64(add_key(index, key))
        chain = CHAIN + 3 * part
        newest = k32[entry, chain + NEWEST]
        links[slot, place, YOUNGER] = 0
        links[slot, place, OLDER] = newest
        if newest != 0:
            links[newest, place, YOUNGER] = slot
        else:
            k32[entry, chain + OLDEST] = slot
        k32[entry, chain + NEWEST] = slot
        k32[entry, chain + LENGTH] += 1
        k32[entry, TUPLES] += 1
    links[slot, place, HELD] = entry


@jit
def unlink(index, slot, place, part):
    """Take a tuple out of its chain in one join, and the key out of the index if that was the last. O(1)."""
    links, k32 = index.links, index.k32
    entry = links[slot, place, HELD]
    if entry == 0:
        return
    chain = CHAIN + 3 * part
    older, younger = links[slot, place, OLDER], links[slot, place, YOUNGER]
    if older != 0:
        links[older, place, YOUNGER] = younger
    else:
        k32[entry, chain + OLDEST] = younger
    if younger != 0:
        links[younger, place, OLDER] = older
    else:
        k32[entry, chain + NEWEST] = older
    k32[entry, chain + LENGTH] -= 1
    k32[entry, TUPLES] -= 1
    if k32[entry, TUPLES] == 0:
        drop_key(index, entry)


@jit
def exact_many(scheme, stream, key, time, first, landmark, horizon, by_rows, order, warmup):
    """Results per join without a limit of memory. O(n * (members + streams)).

    Keys are dense codes per join; `first` is where the counts of each join begin, with one at the end.
    `order` has the arrivals of the first stream, then those of the next, and so on.
    """
    return _exact_many(borrow(scheme), stream, key, time, first, (landmark, warmup), horizon, by_rows, order)


@jit
def _exact_many(scheme, stream, key, time, first, numbers, horizon, by_rows, order):
    landmark, warmup = numbers
    live = np.zeros(first[-1], np.int64)  # by join, code and participant
    found = np.zeros(scheme.size.shape[0], np.int64)
    streams = horizon.shape[0]
    begin = np.zeros(streams + 1, np.int64)  # of the arrivals of each stream in `order`
    for i in range(stream.shape[0]):
        begin[stream[i] + 1] += 1
    for each in range(streams):
        begin[each + 1] += begin[each]
    gone, came = begin[:streams].copy(), begin[:streams].copy()
    for i in range(stream.shape[0]):
        came[stream[i]] += 1
        for each in range(streams):
            while gone[each] < begin[each + 1] and order[gone[each]] < i:
                then = order[gone[each]]
                if by_rows[each] != 0:
                    late = came[each] - gone[each] - 1 > horizon[each]
                elif landmark:
                    late = time[i] // horizon[each] > time[then] // horizon[each]
                else:
                    late = time[i] - time[then] > horizon[each]
                if not late:
                    break
                _note(scheme, live, first, each, key[then], -1)
                gone[each] += 1
        for place in range(scheme.degree[stream[i]] if i >= warmup else 0):
            if key[i, place] >= 0:
                join, own = scheme.join[stream[i], place], scheme.part[stream[i], place]
                at = first[join] + key[i, place] * scheme.size[join]
                product = np.int64(1)
                for part in range(scheme.size[join]):
                    if part != own:
                        product = times(product, live[at + part])
                found[join] = capped(found[join], product)
        _note(scheme, live, first, stream[i], key[i], 1)
    return found


@jit
def _note(scheme, live, first, stream, keys, by):
    """Count a tuple in or out in each of its joins."""
    for place in range(scheme.degree[stream]):
        if keys[place] >= 0:
            join = scheme.join[stream, place]
            live[first[join] + keys[place] * scheme.size[join] + scheme.part[stream, place]] += by
