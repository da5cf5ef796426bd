"""Check structures of a snapshot that order tuples: queues, heaps, sorted lists, tournaments, rings."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

from penstock.engine.score_queue import HEAD_AT, HEAP_LENGTH, RUN_LENGTH, Queue
from penstock.engine.store import ARRIVAL, BASE, COUNT, ENTRY, P_LIMIT, PLACE, STREAM, Store
from penstock.engine.tournament import Tournament
from penstock.policies.clock import Ring
from penstock.snapshots.array_checks import FAR, check_numbers, check_same, check_within, sound
from penstock.states.checks.parts import CHECKS, Members, anything, checks
from penstock.states.checks.store import highest_key, live_tuples
from penstock.structures.bitset import Bitset, new_bitset
from penstock.structures.key_heap import Ranking
from penstock.structures.ranked_list import WIDTH, Blocks

CHECKS[Bitset] = anything  # that of a ring, which looks at it


@checks(Queue)
def check_queue(queue: Queue, store: Store, fresh: Any = None, owner: np.ndarray | None = None) -> None:
    """Whether a queue names tuples that there are, and its ends are in range.

    `owner` says per tuple in which queue it belongs; if not given, in that of its pool.
    """
    size, rows = queue.run_score.shape[1], len(store.t64)
    check_within(queue.ends[:, HEAD_AT], 0, size - 1, "the head of a queue")
    check_within(queue.ends[:, [RUN_LENGTH, HEAP_LENGTH]], 0, size, "the length of a queue")
    check_within(queue.run_tuple[:, :, 1], 0, rows - 1, "a tuple in a queue")
    check_within(queue.heap_slot, 0, rows - 1, "a tuple in a queue")
    check_numbers(queue.run_score, "a score")
    check_numbers(queue.heap, "a score")
    if owner is None:
        owner = store.pool_of[np.clip(store.t32[:, STREAM], 0, len(store.pool_of) - 1)]
    for each, (head, length, heaped) in enumerate(queue.ends.tolist()):
        at = (head + np.arange(length)) % size
        number, slot = queue.run_tuple[each, at].T
        filed = store.t64[slot, ARRIVAL] == number
        sound((owner[slot[filed]] == each).all(), "a tuple is in the queue of others")
        slot, number = queue.heap_slot[each, :heaped], queue.heap[each, 1 : 2 * heaped : 2]
        check_within(number, -FAR, FAR, "a number in a queue")
        filed = store.t64[slot, ARRIVAL] == number.astype(np.int64)
        sound((owner[slot[filed]] == each).all(), "a tuple is in the queue of others")


@checks(Tournament)
def _check_tournament(tournament: Tournament, store: Store, fresh: Any) -> None:
    """Whether the leaves are the keys that there are, and every winner has won a game."""
    leaves = tournament.until.shape[1]
    check_same(tournament.side, fresh.side, "the side of a stream")
    check_numbers(tournament.until, "a time")
    sound(np.isfinite(tournament.origin).all(), "a time is not finite")
    live = live_tuples(store)
    for stream, winner in enumerate(tournament.winner):
        mine = store.t32[live[store.t32[live, STREAM] == stream], ENTRY]
        expected = np.zeros(leaves, np.int64)
        expected[mine] = mine
        sound(np.array_equal(winner[leaves:], expected), "a tournament has other keys")
        children = winner[2:].reshape(-1, 2)
        sound((winner[1:leaves, None] == children[: leaves - 1]).any(axis=1).all(), "a winner has not played")


@checks(Ranking)
def _check_ranking(ranking: Ranking, store: Store, fresh: Any) -> None:
    """Whether all keys with tuples are in the heap of their pool, each where it is said to be."""
    high = highest_key(store)
    items = np.flatnonzero(store.k32[: high + 1, COUNT : COUNT + 2].reshape(-1))
    check_numbers(ranking.score, "a score")
    check_within(ranking.length, 0, ranking.score.shape[1], "the length of a heap")
    sound(np.array_equal(np.flatnonzero(ranking.place), items), "a heap has other keys")
    for pool, length in enumerate(ranking.length.tolist()):
        mine = items[store.pool_of[items & 1] == pool]
        here = ranking.item[pool, :length]
        sound(np.array_equal(np.sort(here), mine), "a heap has other keys")
        sound((ranking.place[here] == np.arange(1, length + 1)).all(), "a key is not at its place")


@checks(Blocks)
def _check_blocks(blocks: Blocks, around: Any, fresh: Any) -> None:
    """Whether the blocks have every member once, in order."""
    members, (pools, count) = Members(around), blocks.length.shape
    check_within(blocks.used, 0, count, "the number of blocks")
    check_within(blocks.length, 0, WIDTH, "the length of a block")
    for pool in range(pools):
        used, order = int(blocks.used[pool]), blocks.order[pool]
        sound(np.array_equal(np.sort(order), np.arange(count)), "a block is lost")
        length = blocks.length[pool].astype(np.int64)
        sound((length[:used] > 0).all() and (length[used:] == 0).all(), "a block is empty")
        filled = np.arange(WIDTH) < length[:used, None]
        score, arrival, slot = (table[pool, order[:used]][filled] for table in blocks[:3])
        mine = members.slots[members.pool == pool]
        sound(np.array_equal(np.sort(slot), mine), "a list has other tuples")
        check_numbers(score, "a score")
        later = (score[1:] > score[:-1]) | ((score[1:] == score[:-1]) & (arrival[1:] > arrival[:-1]))
        sound(later.all(), "a list is out of order")
        if members.of_store:
            filed = (arrival == around.t64[slot, ARRIVAL]) & (score == around.f64[slot, BASE])
            sound(filed.all(), "a tuple is not at its place")


def check_positions(ring: Ring, pool: np.ndarray, place: np.ndarray) -> None:
    """Whether every member, of this pool, has a position of its own in its ring, and all others are free."""
    check_within(ring.hand, 0, FAR, "the hand of a ring")
    fresh = new_bitset(len(ring.size), int(ring.size.max()))
    check_same(ring.free.offsets, fresh.offsets, "the levels of a ring")
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


@checks(Ring)
def _check_ring(ring: Ring, around: Any, fresh: Any) -> None:
    check_same(ring.size, fresh.size, "the size of a ring")
    if isinstance(around, Store):
        sound((ring.size >= around.pools[:, P_LIMIT]).all(), "a ring is too small")
        members = Members(around)
        check_positions(ring, members.pool, around.t32[members.slots, PLACE])
