"""Whether the arrays of a snapshot can be given to kernels, which check nothing.

A checksum tells of accidents on the way. It does not tell of arrays that were wrong before they were sealed,
and an index out of range ends the process. So a restored state is looked at as a whole: every array has the
type and shape that a fresh one has, every index is in range, lists end, and the accounts agree. What is no
index (a credit, a time) cannot be told from a right one.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

from penstock.errors import SnapshotError
from penstock.kernels.bitset import new_bitset
from penstock.kernels.cells import BLOCK, CLASSES, SLOT, WIDTHS, Cells
from penstock.kernels.counts import FILLED, SKETCH, Counts
from penstock.kernels.histogram import POINTER, TOTAL, Histogram
from penstock.kernels.kinetic import Tournament
from penstock.kernels.layout import (
    ARRIVAL,
    COMPETE,
    COUNT,
    ENTRY,
    FREE_KEY,
    FREE_TUPLE,
    HEAD,
    HIGH_KEY,
    HIGH_TUPLE,
    KEY,
    LINK,
    LIVE,
    NEXT,
    NODE,
    P_BYTES,
    P_LIMIT,
    P_LIVE,
    P_USED,
    PINNED,
    PLACE,
    PREV,
    SHED,
    SIDE,
    SIZE,
    STREAM,
    TAIL,
    WINDOW,
    Store,
)
from penstock.kernels.queue import HEAD_AT, HEAP_LENGTH, RUN_LENGTH, Queue
from penstock.policies.clock import Ring
from penstock.policies.rand import RandState

FIXED = ("pool_of", "horizon", "chance")  # what a store is built with and keeps
FIXED_META = (COMPETE, WINDOW, SHED)
GROWING = {"Counts", "Places", "History", "Scholar", "Shares"}  # tables that follow what has come


def sound(fine: Any, what: str) -> None:
    """Refuse a snapshot in which something is not as it must be."""
    if not bool(fine):
        raise SnapshotError(f"The snapshot is damaged: {what}.")


def check_shapes(part: Any, fresh: Any, name: str = "the state") -> None:
    """Whether nested tuples have the same classes, and arrays of the same types and shapes, as fresh ones."""
    if isinstance(fresh, np.ndarray):
        sound(isinstance(part, np.ndarray) and part.dtype == fresh.dtype, f"{name} has another type")
        sound(part.shape == fresh.shape, f"{name} has another size")
        sound(part.flags.c_contiguous and part.flags.writeable, f"{name} is not laid out as it should be")
    elif isinstance(fresh, tuple):
        sound(type(part) is type(fresh) and len(part) == len(fresh), f"{name} is something else")
        if type(fresh).__name__ in GROWING:
            check_types(part, fresh, name)
            return
        fields = getattr(fresh, "_fields", range(len(fresh)))
        for field, mine, other in zip(fields, part, fresh, strict=True):
            check_shapes(mine, other, f"{type(fresh).__name__}.{field}")


def check_types(part: Any, fresh: Any, name: str) -> None:
    """The same without the sizes, for tables that grow."""
    if isinstance(fresh, np.ndarray):
        sound(isinstance(part, np.ndarray) and part.dtype == fresh.dtype, f"{name} has another type")
        sound(part.ndim == fresh.ndim and part.flags.c_contiguous, f"{name} has another shape")
    elif isinstance(fresh, tuple):
        sound(type(part) is type(fresh) and len(part) == len(fresh), f"{name} is something else")
        for field, mine, other in zip(range(len(fresh)), part, fresh, strict=True):
            check_types(mine, other, f"{type(fresh).__name__}.{field}")


def check_within(numbers: np.ndarray, least: int, most: int, what: str) -> None:
    """Whether all numbers are in a range."""
    if numbers.size:
        sound(least <= numbers.min() and numbers.max() <= most, f"{what} is out of range")


def check_tuples(store: Store, fresh: Store) -> np.ndarray:
    """Whether the rows of tuples, their free list and the pools are sound; the rows in use."""
    check_shapes(store, fresh, "the store")
    for name in FIXED:
        sound(np.array_equal(getattr(store, name), getattr(fresh, name)), f"{name} is another")
    for counter in FIXED_META:
        sound(store.meta[counter] == fresh.meta[counter], "a setting is another")
    check_within(store.meta, 0, 2**62, "a counter")
    high, rows = int(store.meta[HIGH_TUPLE]), len(store.t64)
    sound(high < rows, "more tuples than there is room for")
    live = np.flatnonzero(store.t64[1 : high + 1, ARRIVAL] >= 0) + 1
    sound(len(live) == store.meta[LIVE], "the number of tuples is wrong")
    stream = store.t32[live, STREAM]
    check_within(stream, 0, len(store.clock) - 1, "the stream of a tuple")
    check_within(store.t32[live, SIDE], 0, 1, "the side of a tuple")
    check_within(store.t32[live, SIZE], 0, 2**31 - 1, "the size of a tuple")
    arrival = store.t64[live, ARRIVAL]
    sound(len(np.unique(arrival)) == len(live), "two tuples have one number")
    free = _walked(int(store.meta[FREE_TUPLE]), store.t32[:, NEXT], high, "the free tuples")
    sound(len(free) == high - len(live) and (store.t64[free, ARRIVAL] < 0).all(), "tuples are lost")
    _check_pools(store, fresh, live, stream)
    return live


def _check_pools(store: Store, fresh: Store, live: np.ndarray, stream: np.ndarray) -> None:
    pool, pools = store.pool_of[stream], len(store.pools)
    tuples = np.bincount(pool, minlength=pools)
    used = np.bincount(pool, store.t32[live, SIZE], pools)
    sound(np.array_equal(store.pools[:, P_LIVE], tuples), "the tuples of a pool are not as many as it says")
    sound(np.array_equal(store.pools[:, P_USED], used), "the bytes of a pool are not as many as it says")
    sound(np.array_equal(store.pools[:, P_BYTES], fresh.pools[:, P_BYTES]), "a pool has another limit")
    check_within(store.pools[:, P_LIMIT], 0, len(store.t64), "the limit of a pool")
    sound(store.pools[:, P_LIMIT].sum() == fresh.pools[:, P_LIMIT].sum(), "a pool has another limit")
    sound((store.pools[:, P_LIVE] <= store.pools[:, P_LIMIT]).all(), "a pool has more than its limit")


def check_rings(store: Store, live: np.ndarray) -> None:
    """Whether the rings of arrivals have every tuple once, at its place."""
    size = store.ring.shape[1]
    check_within(store.ends, 0, 2**62, "the end of a ring")
    length = store.ends[:, 1] - store.ends[:, 0]
    check_within(length, 0, size, "the length of a ring")
    stream, place = store.t32[live, STREAM], store.place[live]
    check_within(place, 0, size - 1, "a place in a ring")
    sound((store.ring[stream, place] == live).all(), "a tuple is not at its place")
    sound(((place - store.ends[stream, 0]) % size < length[stream]).all(), "a place is outside of its ring")
    for each in range(len(store.ring)):
        entries = store.ring[each, np.arange(store.ends[each, 0], store.ends[each, 1]) % size]
        sound(np.count_nonzero(entries) == np.count_nonzero(stream == each), "a ring has other tuples")
    check_within(store.ring, 0, len(store.t64) - 1, "an entry of a ring")


def check_chains(store: Store, live: np.ndarray) -> None:
    """Whether every tuple is in the chain of its key, in order, and every key in its bucket."""
    high = int(store.meta[HIGH_KEY])
    sound(high < len(store.k64), "more keys than there is room for")
    t32, k32, arrival = store.t32, store.k32, store.t64[:, ARRIVAL]
    entry, side = t32[live, ENTRY], t32[live, SIDE]
    check_within(entry, 1, high, "the key of a tuple")
    older, younger = t32[live, PREV], t32[live, NEXT]
    is_live = np.zeros(len(t32), bool)
    is_live[live] = True
    for near, back in ((older, NEXT), (younger, PREV)):
        check_within(near, 0, len(t32) - 1, "a link of a chain")
        linked, there = live[near > 0], near[near > 0]
        sound(is_live[there].all() and (t32[there, back] == linked).all(), "a chain is broken")
        sound((t32[there, ENTRY] == t32[linked, ENTRY]).all(), "a chain has two keys")
        sound((t32[there, SIDE] == t32[linked, SIDE]).all(), "a chain has two streams")
    sound((arrival[younger[younger > 0]] > arrival[live[younger > 0]]).all(), "a chain is out of order")
    count = np.zeros((high + 1, 2), np.int64)
    np.add.at(count, (entry, side), 1)
    sound(np.array_equal(k32[1 : high + 1, COUNT : COUNT + 2], count[1:]), "the length of a chain is wrong")
    for end, first in ((HEAD, older), (TAIL, younger)):
        ends = np.zeros((high + 1, 2), np.int64)
        ends[entry[first == 0], side[first == 0]] = live[first == 0]
        sound(np.array_equal(k32[1 : high + 1, end : end + 2], ends[1:]), "a chain has other ends")
    starts = np.bincount(2 * entry[older == 0] + side[older == 0], minlength=1)
    sound(starts.max(initial=0) <= 1, "a chain has two ends")
    sound((k32[0, [HEAD, HEAD + 1, TAIL, TAIL + 1, COUNT, COUNT + 1]] == 0).all(), "no key has tuples")
    sound(0 <= store.meta[PINNED] <= high, "a key that is in use is out of range")
    _check_buckets(store, np.flatnonzero(count.any(axis=1)), high)


def _check_buckets(store: Store, used: np.ndarray, high: int) -> None:
    """Whether the keys in use are in their buckets, and the others free."""
    links = store.k32[:, LINK]
    check_within(store.buckets, 0, high, "a bucket")
    free = _walked(int(store.meta[FREE_KEY]), links, high, "the free keys")
    heads = np.flatnonzero(store.buckets)
    found: list[int] = []
    where: list[int] = []
    for bucket, entry in zip(heads.tolist(), store.buckets[heads].tolist(), strict=True):
        chain = _walked(entry, links, high, "a bucket")
        sound(len(found) + len(chain) <= high, "a key is in two buckets")
        found += chain
        where += [bucket] * len(chain)
    sound(len(free) + len(found) == high, "keys are lost")
    sound(np.array_equal(np.sort(np.array(found, np.int64)), used), "a bucket has a key without tuples")
    sound(np.array_equal(buckets_of(store, np.array(found, np.int64)), where), "a key is in another bucket")


def buckets_of(store: Any, entries: np.ndarray) -> np.ndarray:
    """The buckets in which keys belong, as `bucket_of` has it."""
    with np.errstate(over="ignore"):
        mixed = store.k64[entries, KEY].astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        mixed = (mixed ^ (mixed >> np.uint64(29))) * np.uint64(0xBF58476D1CE4E5B9)
    return ((mixed >> np.uint64(32)) & np.uint64(store.buckets.shape[0] - 1)).astype(np.int64)


def _walked(first: int, links: np.ndarray, high: int, what: str) -> list[int]:
    """The entries of a list that ends with 0, each in range and none twice."""
    found: list[int] = []
    at = first
    while at != 0:
        sound(0 < at <= high and len(found) < high, f"the list of {what} does not end")
        found.append(at)
        at = int(links[at])
    return found


def check_store(store: Store, fresh: Store) -> None:
    """Whether a store of two streams is sound."""
    live = check_tuples(store, fresh)
    check_rings(store, live)
    check_chains(store, live)


def check_parts(part: Any, store: Store) -> None:
    """Whether the queues and counts in the state of a policy are sound."""
    if isinstance(part, Queue):
        check_queue(part, len(store.t64))
    elif isinstance(part, Counts):
        check_counts(part)
    elif isinstance(part, Cells):
        check_cells(part, store)
    elif isinstance(part, Histogram):
        check_within(part.meta[:, POINTER], 0, part.bins.shape[1], "the pointer of a histogram")
        check_within(part.meta[:, TOTAL], 0, len(store.t64), "the number of credits")
        check_within(part.bins, 0, len(store.t64), "a bin of a histogram")
    elif isinstance(part, RandState):
        check_members(part, store)
    elif isinstance(part, Tournament):
        check_tournament(part, store)
    elif isinstance(part, Ring):
        check_positions(part, store)
    elif isinstance(part, tuple):
        for each in part:
            check_parts(each, store)


def check_queue(queue: Queue, rows: int) -> None:
    """Whether a queue names tuples that there are, and its ends are in range."""
    size = queue.run_score.shape[1]
    check_within(queue.ends[:, HEAD_AT], 0, size - 1, "the head of a queue")
    check_within(queue.ends[:, [RUN_LENGTH, HEAP_LENGTH]], 0, size, "the length of a queue")
    check_within(queue.run_tuple[:, :, 1], 0, rows - 1, "a tuple in a queue")
    check_within(queue.heap_slot, 0, rows - 1, "a tuple in a queue")
    sound(not np.isnan(queue.run_score).any() and not np.isnan(queue.heap).any(), "a score is no number")


def check_counts(counts: Counts) -> None:
    """Whether a table of counts can be searched to the end."""
    size = counts.key.shape[1]
    sound(counts.meta[SKETCH] in (0, 1), "counts are of another kind")
    if not counts.meta[SKETCH]:
        sound(counts.tally.shape[0] == counts.error.shape[1] == size, "counts have another size")
        sound(size & (size - 1) == 0, "counts have another size")
        taken = np.count_nonzero(counts.error)
        sound(taken == counts.meta[FILLED] and 2 * taken <= size, "counts are not as many as they say")
        return
    check_within(counts.meta[:2], 0, size, "the number of counts")
    for stream in range(len(counts.key)):
        filled = int(counts.meta[FILLED + stream])
        order, place = counts.heap[stream, :filled], counts.place[stream, :filled]
        check_within(order, 0, filled - 1, "a count")
        check_within(place, 0, filled - 1, "the place of a count")
        sound((order[place] == np.arange(filled)).all(), "a count is not at its place")
        check_within(counts.bucket[stream], 0, filled, "a bucket of counts")
        check_within(counts.chain[stream], 0, filled, "a chain of counts")
        found = 0
        links = np.append(0, counts.chain[stream])
        for entry in counts.bucket[stream][counts.bucket[stream] > 0].tolist():
            found += len(_walked(entry, links, filled, "counts"))
            sound(found <= filled, "a count is in two buckets")
        sound(found == filled, "counts are lost")


def check_cells(cells: Cells, store: Store) -> None:
    """Whether every tuple has its cell in a block of its key, and no two blocks overlap."""
    used, high = int(cells.used[0]), int(store.meta[HIGH_KEY])
    sound(0 <= used <= len(cells.words), "more cells than there is room for")
    taken = np.zeros(used, bool)
    blocks = []
    for side in (0, 1):
        entry = np.flatnonzero(store.k32[: high + 1, COUNT + side])
        width = (store.k32[entry, WIDTHS].astype(np.int64) >> (8 * side)) & 255
        check_within(width, 0, CLASSES - 1, "the size of a block")
        sound((store.k32[entry, COUNT + side] <= (1 << width)).all(), "a block is too small")
        blocks += list(zip(store.k32[entry, BLOCK + side].tolist(), width.tolist(), strict=True))
    for width, first in enumerate(cells.free.tolist()):
        sound(0 <= first <= used, "a free block is out of range")
        links = cells.words[:used, SLOT]
        free = _walked(first, np.append(0, links), used, "the free blocks")
        blocks += [(block - 1, width) for block in free]
    for block, width in blocks:
        sound(block >= 0 and block + (1 << width) <= used, "a block is out of range")
        sound(not taken[block : block + (1 << width)].any(), "two blocks overlap")
        taken[block : block + (1 << width)] = True
    live = np.flatnonzero(store.t64[: int(store.meta[HIGH_TUPLE]) + 1, ARRIVAL] >= 0)
    live = live[live > 0]
    entry, side, node = (store.t32[live, column] for column in (ENTRY, SIDE, NODE))
    check_within(node, 0, used, "the cell of a tuple")
    sound((node < store.k32[entry, COUNT + side]).all(), "the cell of a tuple is out of range")
    sound(
        (cells.words[store.k32[entry, BLOCK + side] + node, SLOT] == live).all(), "a cell has another tuple"
    )


def check_members(state: RandState, store: Store) -> None:
    """Whether every tuple is at its place among the members of its pool."""
    sound(np.array_equal(state.length, store.pools[:, P_LIVE]), "a pool has other members")
    check_within(state.turn, 0, state.drawn.shape[1] - 1, "the next draw")
    check_within(state.waiting, 0, 2**31, "the number of those that wait")
    sound(((state.drawn < 1.0) & (state.drawn >= -1.0)).all(), "a draw is out of range")
    check_within(state.members, 0, len(store.t64) - 1, "a member")
    for pool, length in enumerate(state.length.tolist()):
        sound(length <= state.members.shape[1], "a pool has more members than there is room for")
        members = state.members[pool, :length]
        sound((store.t32[members, PLACE] == np.arange(length)).all(), "a member is not at its place")
        sound((store.t64[members, ARRIVAL] >= 0).all(), "a member has left")


def check_tournament(tournament: Tournament, store: Store) -> None:
    """Whether the leaves are the keys that there are, and every winner has won a game."""
    leaves = tournament.until.shape[1]
    sound(np.array_equal(tournament.side, np.arange(len(tournament.side))), "a stream has another side")
    sound(not np.isnan(tournament.until).any(), "a time is no number")
    rows = np.arange(int(store.meta[HIGH_KEY]) + 1)
    for winner, side in zip(tournament.winner, tournament.side.tolist(), strict=True):
        expected = np.zeros(leaves, np.int64)
        expected[rows] = np.where(store.k32[rows, COUNT + side] > 0, rows, 0)
        sound(np.array_equal(winner[leaves:], expected), "a tournament has other keys")
        children = winner[2:].reshape(-1, 2)
        sound((winner[1:leaves, None] == children[: leaves - 1]).any(axis=1).all(), "a winner has not played")


def check_positions(ring: Ring, store: Store) -> None:
    """Whether every tuple has a position of its own, and all others are free."""
    sound(np.array_equal(ring.size, store.pools[:, P_LIMIT]), "a ring has another size")
    check_within(ring.hand, 0, 2**62, "the hand of a ring")
    live = np.flatnonzero(store.t64[: int(store.meta[HIGH_TUPLE]) + 1, ARRIVAL] >= 0)
    live = live[live > 0]
    place, pool = store.t32[live, PLACE], store.pool_of[store.t32[live, STREAM]]
    fresh = new_bitset(len(ring.size), int(ring.size.max()))
    sound(np.array_equal(ring.free.offsets, fresh.offsets), "a ring has other levels")
    for each, size in enumerate(ring.size.tolist()):
        mine = place[pool == each]
        check_within(mine, 0, size - 1, "a position")
        free = np.ones(size, bool)
        free[mine] = False
        sound(np.count_nonzero(~free) == len(mine), "two tuples have one position")
        landing = int(ring.landing[each])
        sound(-1 <= landing < size and (landing < 0 or free[landing]), "the next position is out of range")
        for first, last in pairwise(fresh.offsets.tolist()):
            bits = np.zeros(64 * (last - first), np.uint8)
            bits[: len(free)] = free
            words = np.packbits(bits, bitorder="little").view("<u8")
            sound(np.array_equal(ring.free.words[each, first:last], words), "the free positions are others")
            free = words != 0
