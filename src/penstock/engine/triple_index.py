"""The caches of a stream query: chains of tuples by port and key, and the plan that says which there are.

A port is a place where one step of a plan looks for the partners of what it has: the tuples there are found
by the values of the variables that both sides share. A cache has a port for each step that looks into it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from penstock.compiler.jit import jit
from penstock.compiler.references import borrow
from penstock.engine.many_index import COUNTING
from penstock.engine.store import FREE_KEY, HIGH_KEY, META, ROW, add_key, drop_key, find_key, power_of_two
from penstock.structures.key_counts import Counts, counted

# Columns of a row of the index, 32 bits wide; KEY and LINK are as in the store.
OLDEST, NEWEST, LENGTH = 8, 9, 10

# Columns of a link.
HELD, YOUNGER, OLDER, LINK_WIDTH = 0, 1, 2, 4

# Flags in the `meta` of the index, beside those of `many_index`.
EAGER = 10  # 1 if a share of a match counts as a match (scores by recency)
TALLYING = 11  # 1 if probes are counted, whether or not the counts are the score

# Columns of what a tuple has been used for.
USED, LAST_USE, USES = 0, 1, 2  # matches, shares of them included; and the arrival that made the last one


class Scheme(NamedTuple):
    """A plan: a tree of joins, the caches, and under which keys their tuples can be found.

    The joins are steps, numbered from 1 so that each comes after those that make its sides; the last one
    makes whole solutions. A side is a pattern, or minus the step that makes it.
    """

    side: np.ndarray  # per step: the left one and the right one
    members: np.ndarray  # per step: the patterns that it joins, a bit each
    waits: np.ndarray  # per step: the patterns of the other side that its solutions wait for
    cache_roles: np.ndarray  # per cache of single triples: the patterns that use it, a bit each
    degree: np.ndarray  # per cache: its ports
    port: np.ndarray  # cache, place -> port
    port_roles: np.ndarray  # the patterns for which a triple needs to be in a port
    port_step: np.ndarray  # of a port of partial solutions: the step they wait for
    port_side: np.ndarray  # and on which side of it they are
    port_of: np.ndarray  # per step and side: where its tuples are found
    twice: np.ndarray  # per step: whether what is new on one side may meet what is new on the other
    key_size: np.ndarray  # per step: the variables of the key
    key_part: np.ndarray  # step, side, variable -> pattern and position
    limit: np.ndarray  # pattern, other pattern, time -> how long after that time the other one may start
    partners: np.ndarray  # per pattern: those that can find it in its cache
    gain: np.ndarray  # what a full result and what a partial one adds to a score


Scheme.widths = {"side": 2, "port_of": 2}  # type: ignore[attr-defined]
Scheme.tables = ("side", "port_of")  # type: ignore[attr-defined]


class Index(NamedTuple):
    """The caches: chains of tuples by port and key, and what partial solutions consist of."""

    k64: np.ndarray
    k32: np.ndarray
    buckets: np.ndarray
    links: np.ndarray
    members: np.ndarray  # per tuple of a partial solution: the row of each pattern
    cache: np.ndarray  # per tuple
    owed: np.ndarray  # per tuple: shares of matches that are not a whole one yet
    uses: np.ndarray  # per tuple, if it may be told to another policy: how often it was used, and when last
    counts: Counts  # probes by port and key
    meta: np.ndarray

    def without_views(self) -> Index:
        """The same without the array that is a view of another, to be stored."""
        return self._replace(k32=self.k32[:0])

    def with_views(self) -> Index:
        """The counterpart."""
        return self._replace(k32=self.k64.view(np.int32))


Index.widths = {"k64": 8, "k32": 16}  # type: ignore[attr-defined]
Index.tables = ("k64", "k32")  # type: ignore[attr-defined]


def new_index(
    scheme: Scheme, tuples: int, counts: Counts, flags: dict[int, bool], tracking: bool = False
) -> Index:
    """Empty caches for so many tuples; tracking: with what each has been used for."""
    places, patterns = scheme.port.shape[1], len(scheme.partners)
    keys = tuples * places + 2
    k64 = np.zeros((keys, 8), np.int64)
    meta = np.zeros(META, np.int64)
    meta[list(flags)] = list(flags.values())
    return Index(
        k64=k64,
        k32=k64.view(np.int32),
        buckets=np.zeros(power_of_two(2 * keys), np.int32),
        links=np.zeros((tuples + 2, places, LINK_WIDTH), np.int32),
        members=np.zeros((tuples + 2 if patterns > 2 else 0, patterns), np.int64),
        cache=np.zeros(tuples + 2, np.int32),
        owed=np.zeros(tuples + 2),
        uses=np.zeros((tuples + 2 if tracking else 0, USES)),
        counts=counts,
        meta=meta,
    )


@jit
def side_key(scheme, columns, rows, step, side):
    """The key of a triple, or of a partial solution, on one side of a step."""
    part = scheme.side[step, side]
    if part >= 0:
        return columns.leaf_key[scheme.port_of[step, side], rows[part]]
    key = np.int64(0)
    for i in range(scheme.key_size[step]):
        place = scheme.key_part[step, side, i]
        value = columns.mark[rows[place[0]], place[1]]
        if value < 0:
            return np.int64(-1)
        key = value if i == 0 else mixed(key, value)
    return key


@jit
def mixed(key, value):
    """The key of several values: a hash; the values themselves are compared later."""
    hashed = np.uint64(key) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(value)
    hashed = (hashed ^ (hashed >> np.uint64(31))) * np.uint64(0xBF58476D1CE4E5B9)
    return np.int64(hashed >> np.uint64(16))


@jit
def mixed_keys(keys, values):
    """The same for arrays."""
    out = np.empty(keys.shape[0], np.int64)
    for i in range(keys.shape[0]):
        out[i] = mixed(keys[i], values[i]) if keys[i] >= 0 and values[i] >= 0 else -1
    return out


@jit
def port_key(scheme, columns, rows, port, leaf, row):
    """The key of a tuple in a port, -1 if it has no place there."""
    if leaf:
        if columns.mask[row] & scheme.port_roles[port] == 0:
            return np.int64(-1)
        return columns.leaf_key[port, row]
    return side_key(scheme, columns, rows, scheme.port_step[port], scheme.port_side[port])


@jit
def first_key(index, scheme, columns, rows, cache):
    """The key by which a policy knows a newcomer, and how often it was asked for in all its ports."""
    leaf, ports = cache < scheme.cache_roles.shape[0], scheme.port_roles.shape[0]
    first, count = np.int64(-1), np.int64(0)
    for place in range(scheme.degree[cache]):
        port = scheme.port[cache, place]
        key = port_key(scheme, columns, rows, port, leaf, rows[0])
        if key >= 0:
            if first < 0:
                first = key
            if index.meta[COUNTING] != 0:
                count += counted(index.counts, 0, key * ports + port)
    return max(first, 0), count


@jit
def place_of(index, scheme, slot, port):
    """Which link of a tuple is that of a port."""
    cache, place = index.cache[slot], np.int64(0)
    while place < scheme.degree[cache] - 1 and scheme.port[cache, place] != port:
        place += 1
    return place


@jit
def younger_in(index, slot, entry):
    """The next tuple of the chain of a row of the index."""
    for place in range(index.links.shape[1]):
        if index.links[slot, place, HELD] == entry:
            return np.int64(index.links[slot, place, YOUNGER])
    return np.int64(0)


@jit
def link(index, scheme, columns, rows, slot, place, leaf, row):
    """Append a tuple to its chain in one port. O(1)."""
    port = scheme.port[index.cache[slot], place]
    key = port_key(scheme, columns, rows, port, leaf, row)
    links, k32 = index.links, index.k32
    entry = np.int64(0)
    if key >= 0:
        code = key * scheme.port_roles.shape[0] + port
        entry = np.int64(find_key(index, code))
        if entry == 0:
            entry = np.int64(add_key(index, code))
        newest = k32[entry, NEWEST]
        links[slot, place, YOUNGER] = 0
        links[slot, place, OLDER] = newest
        if newest != 0:
            links[newest, place, YOUNGER] = slot
        else:
            k32[entry, OLDEST] = slot
        k32[entry, NEWEST] = slot
        k32[entry, LENGTH] += 1
    links[slot, place, HELD] = entry


@jit
def unlink(index, slot, place):
    """Take a tuple out of its chain in one port, and the key out of the index if that was the last. O(1)."""
    links, k32 = index.links, index.k32
    entry = np.int64(links[slot, place, HELD])
    if entry == 0:
        return
    older, younger = links[slot, place, OLDER], links[slot, place, YOUNGER]
    if older != 0:
        links[older, place, YOUNGER] = younger
    else:
        k32[entry, OLDEST] = younger
    if younger != 0:
        links[younger, place, OLDER] = older
    else:
        k32[entry, NEWEST] = older
    k32[entry, LENGTH] -= 1
    if k32[entry, LENGTH] == 0:
        drop_key(index, entry)


@jit
def relink(store, index, scheme, columns, slots):
    """Build the chains anew from the tuples in order of arrival: their keys have new numbers.

    The rows of the index have been zeroed before.
    """
    _relink(borrow(store), borrow(index), borrow(scheme), borrow(columns), slots)


@jit
def _relink(store, index, scheme, columns, slots):
    index.buckets[:] = 0
    index.meta[FREE_KEY] = 0
    index.meta[HIGH_KEY] = 0
    rows = np.zeros(scheme.partners.shape[0], np.int64)
    for i in range(slots.shape[0]):
        slot = slots[i]
        leaf = index.cache[slot] < scheme.cache_roles.shape[0]
        row = store.t64[slot, ROW]
        for pattern in range(rows.shape[0]):
            rows[pattern] = row if leaf else index.members[slot, pattern]
        for place in range(scheme.degree[index.cache[slot]]):
            link(index, scheme, columns, rows, slot, place, leaf, row)
