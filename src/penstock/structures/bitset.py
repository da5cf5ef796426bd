"""A set of small integers that finds the next member at or after a position in O(log64 n).

Level 0 has a bit per integer, each further level a bit per word of the level below.
"""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import numpy as np

from penstock.compiler.jit import jit


class Bitset(NamedTuple):
    """Per set the words of all levels in one array, with the offset of each level."""

    words: np.ndarray
    offsets: np.ndarray

    def extended(self, sizes: list[int], larger: list[int]) -> Bitset:
        """Return larger sets: with their members below their size, and all integers from there on.

        >>> from penstock.structures.bitset import bit_next, new_bitset
        >>> larger = new_bitset(1, 100).extended([100], [102])
        >>> [int(bit_next(larger, 0, start)) for start in (0, 101, 102)]
        [100, 101, -1]
        """
        found = new_bitset(len(self.words), max(larger))
        for which, (size, after) in enumerate(zip(sizes, larger, strict=True)):
            low = self.words[which, : self.offsets[1]].astype("<u8").view(np.uint8)
            bits = np.ones(after, bool)
            bits[:size] = np.unpackbits(low, bitorder="little")[:size]
            for start, end in pairwise(found.offsets.tolist()):
                padded = np.zeros(64 * (end - start), np.uint8)
                padded[: len(bits)] = bits
                found.words[which, start:end] = np.packbits(padded, bitorder="little").view("<u8")
                bits = found.words[which, start:end] != 0
        return found


def new_bitset(sets: int, size: int) -> Bitset:
    """Empty sets of integers below `size`."""
    offsets, width = [0], size
    while True:
        width = (width + 63) // 64
        offsets.append(offsets[-1] + width)
        if width == 1:
            break
    return Bitset(np.zeros((sets, offsets[-1]), np.uint64), np.array(offsets, np.int64))


@jit
def bit_add(bitset, which, member):
    """Put a member in."""
    at = member
    for level in range(bitset.offsets.shape[0] - 1):
        bitset.words[which, bitset.offsets[level] + (at >> 6)] |= np.uint64(1) << np.uint64(at & 63)
        at >>= 6


@jit
def bit_remove(bitset, which, member):
    """Take a member out."""
    at = member
    for level in range(bitset.offsets.shape[0] - 1):
        word = bitset.offsets[level] + (at >> 6)
        bitset.words[which, word] &= ~(np.uint64(1) << np.uint64(at & 63))
        if bitset.words[which, word] != 0:
            return
        at >>= 6


@jit
def bit_next(bitset, which, start):
    """The smallest member >= start, -1 if there is none."""
    at = start
    level = 0
    levels = bitset.offsets.shape[0] - 1
    while level < levels:
        index = at >> 6
        if index >= bitset.offsets[level + 1] - bitset.offsets[level]:
            return -1
        word = bitset.words[which, bitset.offsets[level] + index] >> np.uint64(at & 63)
        if word != 0:
            at += _lowest_bit(word)
            while level > 0:
                level -= 1
                at = (at << 6) + _lowest_bit(bitset.words[which, bitset.offsets[level] + at])
            return at
        at = index + 1
        level += 1
    return -1


@jit
def _lowest_bit(word):
    """The position of the lowest bit set in a word that is not 0."""
    position = 0
    for width in (32, 16, 8, 4, 2, 1):
        if word & ((np.uint64(1) << np.uint64(width)) - np.uint64(1)) == 0:
            word >>= np.uint64(width)
            position += width
    return position
