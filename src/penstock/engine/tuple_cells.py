"""Cells: per-tuple data of a policy, stored together for all tuples of a key.

A match concerns all tuples of a key. Going through their chain costs a cache miss each; here their cells
lie in one block, which is read at the speed of memory. Blocks have a power of two of cells and move to the
next size as the key gains or loses tuples. When no block can be had, all are packed anew.

Cost: O(1) amortised to add or remove a cell.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from penstock.compiler.jit import jit
from penstock.compiler.references import prefetch
from penstock.engine.store import COUNT, ENTRY, HEAD, HIGH_KEY, HIGH_TUPLE, NODE, SIDE
from penstock.structures.tables import enlarged, new_table

# Columns of a key (32 bits) that belong to its blocks.
WIDTHS = 7  # logarithm of the size of its block, a byte per side
BLOCK = 14  # +side: first cell of its block

SLOT = 0  # first column of a cell: its tuple
CLASSES = 32


class Cells(NamedTuple):
    """The cells of all keys, as integers and as floats."""

    words: np.ndarray
    floats: np.ndarray
    free: np.ndarray  # per size: first free block + 1; the cell has the next
    used: np.ndarray  # cells up to here have been handed out

    def without_views(self) -> Cells:
        """The same without the arrays that are views of others, to be stored."""
        return self._replace(floats=self.floats[:0])

    def with_views(self) -> Cells:
        """The counterpart."""
        return self._replace(floats=self.words.view(np.float64))

    def grown(self, capacities: tuple[int, ...]) -> Cells:
        """Return the cells with room for pools of these capacities."""
        words = enlarged(self.words, (3 * sum(capacities) + 64, self.words.shape[1]))
        return self._replace(words=words, floats=words.view(np.float64))


def new_cells(capacity: int, columns: int) -> Cells:
    """Room for the cells of so many tuples, with so many columns besides the tuple itself.

    Packed blocks take at most two cells a tuple; the third keeps packing rare.
    """
    words = new_table((3 * capacity + 64, columns + 1), np.int64)
    return Cells(words, words.view(np.float64), np.zeros(CLASSES, np.int64), np.zeros(1, np.int64))


@jit
def cell_of(cells, store, slot):
    """The cell of a tuple."""
    entry, side = store.t32[slot, ENTRY], store.t32[slot, SIDE]
    return store.k32[entry, BLOCK + side] + store.t32[slot, NODE]


@jit
def fetch_cells(cells, store, entry, side):
    """Ask for the first cells of a key; the processor sees the rest coming."""
    first = np.int64(store.k32[entry, BLOCK + side]) * cells.words.shape[1]
    prefetch(cells.words, first)
    prefetch(cells.words, first + 8)
    prefetch(store.t64, 8 * np.int64(store.k32[entry, HEAD + side]))


@jit
def _width(store, entry, side):
    return (np.int64(store.k32[entry, WIDTHS]) >> (8 * side)) & 255


@jit
def _set_block(store, entry, side, block, width):
    store.k32[entry, BLOCK + side] = block
    others = store.k32[entry, WIDTHS] & (255 << (8 * (1 - side)))
    store.k32[entry, WIDTHS] = others | (width << (8 * side))


@jit
def add_cell(cells, store, slot):
    """A cell for a tuple that has been linked to its key; the other columns are for the policy to fill."""
    entry, side = np.int64(store.t32[slot, ENTRY]), np.int64(store.t32[slot, SIDE])
    before = np.int64(store.k32[entry, COUNT + side]) - 1
    width = _width(store, entry, side)
    if before == 0:
        _set_block(store, entry, side, _take(cells, store, np.int64(0)), np.int64(0))
    elif before == 1 << width:
        _resize(cells, store, entry, side, before, width + 1)
    cell = store.k32[entry, BLOCK + side] + before
    cells.words[cell, SLOT] = slot
    store.t32[slot, NODE] = before
    return cell


@jit
def remove_cell(cells, store, slot):
    """Give back the cell of a tuple that is still linked: the last cell of the block takes its place."""
    entry, side = np.int64(store.t32[slot, ENTRY]), np.int64(store.t32[slot, SIDE])
    block, last = np.int64(store.k32[entry, BLOCK + side]), np.int64(store.k32[entry, COUNT + side]) - 1
    place = store.t32[slot, NODE]
    if place != last:
        for column in range(cells.words.shape[1]):
            cells.words[block + place, column] = cells.words[block + last, column]
        store.t32[cells.words[block + place, SLOT], NODE] = place
    width = _width(store, entry, side)
    if last == 0:
        _give(cells, block, width)
        _set_block(store, entry, side, np.int64(0), np.int64(0))
    elif width > 0 and last <= (1 << width) >> 2:
        _resize(cells, store, entry, side, last, width - 1)


@jit
def _resize(cells, store, entry, side, length, width):
    """Move the cells of a key to a block of another size."""
    fresh = _take(cells, store, width)
    # Packing may have moved the old block.
    old, old_width = np.int64(store.k32[entry, BLOCK + side]), _width(store, entry, side)
    for i in range(length):
        for column in range(cells.words.shape[1]):
            cells.words[fresh + i, column] = cells.words[old + i, column]
    _give(cells, old, old_width)
    _set_block(store, entry, side, fresh, width)


@jit
def _take(cells, store, width):
    """A block of a size."""
    if cells.free[width] == 0 and cells.used[0] + (1 << width) > cells.words.shape[0]:
        _pack(cells, store)
    head = cells.free[width]
    if head != 0:
        cells.free[width] = cells.words[head - 1, SLOT]
        return head - 1
    block = cells.used[0]
    cells.used[0] += 1 << width
    return block


@jit
def _give(cells, block, width):
    """Put a block on the free list of its size."""
    cells.words[block, SLOT] = cells.free[width]
    cells.free[width] = block + 1


@jit
def _pack(cells, store):
    """Lay all blocks out anew, each as small as it can be."""
    columns = cells.words.shape[1]
    old = np.empty((cells.used[0], columns), np.int64)
    for i in range(cells.used[0]):
        for column in range(columns):
            old[i, column] = cells.words[i, column]
    at = np.int64(0)
    for entry in range(1, max(store.meta[HIGH_KEY], store.meta[HIGH_TUPLE]) + 1):
        for side in range(2):
            block, room = store.k32[entry, BLOCK + side], 1 << _width(store, np.int64(entry), np.int64(side))
            length = min(store.k32[entry, COUNT + side], room)
            if length > 0:
                width = np.int64(0)
                while 1 << width < length:
                    width += 1
                for i in range(length):
                    for column in range(columns):
                        cells.words[at + i, column] = old[block + i, column]
                _set_block(store, np.int64(entry), np.int64(side), at, width)
                at += 1 << width
    cells.used[0] = at
    cells.free[:] = 0
