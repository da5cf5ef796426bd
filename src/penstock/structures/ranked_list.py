"""A sorted list of (score, arrival) that supports ranks: blocks of at most 128 entries, in order.

Insertion and removal shift within a block, a rank adds up the lengths of the blocks before it:
O(n / 128 + 128) simple steps, all sequential, which for buffers up to a million tuples beats a tree.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from penstock.compiler.jit import jit
from penstock.structures.tables import enlarged, new_table

WIDTH = 128


class Blocks(NamedTuple):
    """Per pool the blocks and their order."""

    score: np.ndarray  # pool, block, position
    arrival: np.ndarray
    slot: np.ndarray
    length: np.ndarray  # pool, place in the order
    order: np.ndarray  # pool, place in the order -> block
    used: np.ndarray  # pool: blocks in use; block numbers behind them in `order` are free

    def grown(self, capacities: tuple[int, ...]) -> Blocks:
        """Return the lists with room for pools of these capacities."""
        pools, count = len(capacities), _count(capacities)
        before = self.order.shape[1]
        if count <= before:
            return self
        order = enlarged(self.order, (pools, count))
        order[:, before:] = np.arange(before, count)
        return Blocks(
            score=enlarged(self.score, (pools, count, WIDTH)),
            arrival=enlarged(self.arrival, (pools, count, WIDTH)),
            slot=enlarged(self.slot, (pools, count, WIDTH)),
            length=enlarged(self.length, (pools, count)),
            order=order,
            used=self.used,
        )


def new_blocks(capacities: tuple[int, ...]) -> Blocks:
    """Empty lists; blocks split in halves and merge below a quarter, so four times the room is enough."""
    pools, count = len(capacities), _count(capacities)
    return Blocks(
        score=new_table((pools, count, WIDTH)),
        arrival=new_table((pools, count, WIDTH), np.int64),
        slot=new_table((pools, count, WIDTH), np.int32),
        length=np.zeros((pools, count), np.int32),
        order=np.tile(np.arange(count, dtype=np.int32), (pools, 1)),
        used=np.zeros(pools, np.int64),
    )


def _count(capacities: tuple[int, ...]) -> int:
    return 4 * (max(capacities) + 1) // WIDTH + 4


@jit
def _before(score, arrival, other_score, other_arrival):
    return score < other_score or (score == other_score and arrival < other_arrival)


@jit
def _place(blocks, pool, score, arrival):
    """The place (in the order) of the block an entry belongs to: the last that starts at or before it."""
    low, high = 0, blocks.used[pool] - 1
    while low < high:
        middle = (low + high + 1) >> 1
        block = blocks.order[pool, middle]
        if _before(score, arrival, blocks.score[pool, block, 0], blocks.arrival[pool, block, 0]):
            high = middle - 1
        else:
            low = middle
    return low


@jit
def _position(blocks, pool, place, score, arrival):
    """How many entries of a block come before this one."""
    block = blocks.order[pool, place]
    low, high = 0, blocks.length[pool, place]
    while low < high:
        middle = (low + high) >> 1
        if _before(blocks.score[pool, block, middle], blocks.arrival[pool, block, middle], score, arrival):
            low = middle + 1
        else:
            high = middle
    return low


@jit
def block_rank(blocks, pool, score, arrival):
    """How many entries come before this one."""
    place = _place(blocks, pool, score, arrival)
    rank = 0
    for earlier in range(place):
        rank += blocks.length[pool, earlier]
    return rank + _position(blocks, pool, place, score, arrival)


@jit
def block_select(blocks, pool, rank):
    """The score and tuple of the entry with this many before it."""
    place = 0
    while rank >= blocks.length[pool, place]:
        rank -= blocks.length[pool, place]
        place += 1
    block = blocks.order[pool, place]
    return blocks.score[pool, block, rank], blocks.slot[pool, block, rank]


@jit
def block_insert(blocks, pool, score, arrival, slot):
    """Put an entry in its place."""
    if blocks.used[pool] == 0:
        blocks.used[pool] = 1
        blocks.length[pool, 0] = 0
    place = _place(blocks, pool, score, arrival)
    if blocks.length[pool, place] == WIDTH:
        _split(blocks, pool, place)
        place = _place(blocks, pool, score, arrival)
    at = _position(blocks, pool, place, score, arrival)
    block, length = blocks.order[pool, place], blocks.length[pool, place]
    for i in range(length, at, -1):
        _copy(blocks, pool, block, i, block, i - 1)
    blocks.score[pool, block, at] = score
    blocks.arrival[pool, block, at] = arrival
    blocks.slot[pool, block, at] = slot
    blocks.length[pool, place] = length + 1


@jit
def block_remove(blocks, pool, score, arrival):
    """Take an entry out."""
    place = _place(blocks, pool, score, arrival)
    at = _position(blocks, pool, place, score, arrival)
    block = blocks.order[pool, place]
    blocks.length[pool, place] -= 1
    length = blocks.length[pool, place]
    for i in range(at, length):
        _copy(blocks, pool, block, i, block, i + 1)
    if length == 0:
        _close(blocks, pool, place)
    elif length < WIDTH // 4:
        if place + 1 < blocks.used[pool] and length + blocks.length[pool, place + 1] <= WIDTH // 2:
            _merge(blocks, pool, place)
        elif place > 0 and length + blocks.length[pool, place - 1] <= WIDTH // 2:
            _merge(blocks, pool, place - 1)


@jit
def _copy(blocks, pool, to_block, to, from_block, at):
    blocks.score[pool, to_block, to] = blocks.score[pool, from_block, at]
    blocks.arrival[pool, to_block, to] = blocks.arrival[pool, from_block, at]
    blocks.slot[pool, to_block, to] = blocks.slot[pool, from_block, at]


@jit
def _split(blocks, pool, place):
    """Move the upper half of a full block to a new block behind it."""
    used = blocks.used[pool]
    fresh = blocks.order[pool, used]
    for i in range(used, place + 1, -1):
        blocks.order[pool, i] = blocks.order[pool, i - 1]
        blocks.length[pool, i] = blocks.length[pool, i - 1]
    blocks.order[pool, place + 1] = fresh
    blocks.used[pool] = used + 1
    half = WIDTH // 2
    for i in range(half, WIDTH):
        _copy(blocks, pool, fresh, i - half, blocks.order[pool, place], i)
    blocks.length[pool, place] = half
    blocks.length[pool, place + 1] = WIDTH - half


@jit
def _merge(blocks, pool, place):
    """Append the block behind to this one."""
    block, behind = blocks.order[pool, place], blocks.order[pool, place + 1]
    length = blocks.length[pool, place]
    for i in range(blocks.length[pool, place + 1]):
        _copy(blocks, pool, block, length + i, behind, i)
    blocks.length[pool, place] = length + blocks.length[pool, place + 1]
    _close(blocks, pool, place + 1)


@jit
def _close(blocks, pool, place):
    """Put a block behind those in use."""
    used = blocks.used[pool]
    block = blocks.order[pool, place]
    for i in range(place, used - 1):
        blocks.order[pool, i] = blocks.order[pool, i + 1]
        blocks.length[pool, i] = blocks.length[pool, i + 1]
    blocks.order[pool, used - 1] = block
    blocks.length[pool, used - 1] = 0
    blocks.used[pool] = used - 1
