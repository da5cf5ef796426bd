"""Count the arrivals per key and stream: exact for every key seen, or the heaviest in fixed memory.

`Counts` with `sketch` False is an open-addressed table that its owner lets grow between batches. With
`sketch` True it is the space-saving summary (Metwally, Agrawal and El Abbadi 2005): a key that is not
among those kept takes the place of the least counted one, whose count it inherits as its possible error;
what is reported is the count less that error, which the key has certainly had.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from penstock.compiler.jit import jit

FILLED = 0  # +stream for sketches: entries in use
SKETCH = 2
ENTRY_BYTES = 32


class Counts(NamedTuple):
    """`key`, `tally` (per stream), and for sketches the error and the heap of each stream."""

    key: np.ndarray  # exact: table of keys; sketch: stream, entry
    tally: np.ndarray  # exact: table entry, stream; sketch: stream, entry
    error: np.ndarray  # exact: 1 where the table entry is taken; sketch: stream, entry
    heap: np.ndarray  # sketch: stream, heap position -> entry
    place: np.ndarray  # sketch: stream, entry -> heap position
    chain: np.ndarray  # sketch: stream, entry -> next entry of the bucket
    bucket: np.ndarray  # sketch: stream, bucket -> first entry + 1
    meta: np.ndarray


def new_counts(size: int = 1024) -> Counts:
    """An exact table with room for half as many keys as its size, a power of two."""
    return Counts(
        key=np.zeros((1, size), np.int64),
        tally=np.zeros((size, 2), np.int64),
        error=np.zeros((1, size), np.int64),
        heap=np.zeros((1, 1), np.int32),
        place=np.zeros((1, 1), np.int32),
        chain=np.zeros((1, 1), np.int32),
        bucket=np.zeros((1, 1), np.int32),
        meta=np.zeros(3, np.int64),
    )


def new_sketch(size: int, streams: int = 2) -> Counts:
    """A space-saving summary of at most `size` keys per stream."""
    meta = np.zeros(3, np.int64)
    meta[SKETCH] = 1
    buckets = 1 << max(0, (size - 1).bit_length())
    return Counts(
        key=np.zeros((streams, size), np.int64),
        tally=np.zeros((streams, size), np.int64),
        error=np.zeros((streams, size), np.int64),
        heap=np.zeros((streams, size), np.int32),
        place=np.zeros((streams, size), np.int32),
        chain=np.zeros((streams, size), np.int32),
        bucket=np.zeros((streams, buckets), np.int32),
        meta=meta,
    )


def sketch_bytes_per_key(streams: int = 2) -> int:
    """Upper bound of what one kept key costs in `new_sketch`."""
    return streams * (3 * 8 + 3 * 4 + 2 * 4)


def reserve(counts: Counts, arrivals: int) -> Counts:
    """The same counts with room for so many more keys; a sketch needs none."""
    if counts.meta[SKETCH]:
        return counts
    size = counts.key.shape[1]
    needed = 2 * (int(counts.meta[FILLED]) + arrivals)
    if size >= needed:
        return counts
    while size < needed:
        size *= 2
    grown = new_counts(size)
    _refill(counts, grown)
    return grown


@jit
def _mix(key):
    mixed = np.uint64(key) * np.uint64(0x9E3779B97F4A7C15)
    return (mixed ^ (mixed >> np.uint64(29))) * np.uint64(0xBF58476D1CE4E5B9) >> np.uint64(20)


@jit
def _refill(counts, grown):
    for at in range(counts.key.shape[1]):
        if counts.error[0, at] != 0:
            to = _slot(grown, counts.key[0, at])
            grown.key[0, to] = counts.key[0, at]
            grown.error[0, to] = 1
            for stream in range(
                2
            ):  # a whole row would bring Numba's messages on shapes along, 2 s to compile
                grown.tally[to, stream] = counts.tally[at, stream]
    grown.meta[FILLED] = counts.meta[FILLED]


@jit
def _slot(counts, key):
    """Where a key is in the exact table, or the free place for it."""
    mask = counts.key.shape[1] - 1
    at = np.int64(_mix(key) & np.uint64(mask))
    while counts.error[0, at] != 0 and counts.key[0, at] != key:
        at = (at + 1) & mask
    return at


@jit
def has_room(counts, keys):
    """Whether so many more keys can be counted before the table has to grow; a sketch always can."""
    return counts.meta[SKETCH] != 0 or 2 * (counts.meta[FILLED] + keys) <= counts.key.shape[1]


@jit
def count_key(counts, stream, key):
    """Count one more arrival of a stream with this key. O(1); O(log size) in a sketch."""
    if counts.meta[SKETCH] != 0:
        _sketch_count(counts, stream, key)
        return
    at = _slot(counts, key)
    if counts.error[0, at] == 0:
        counts.error[0, at] = 1
        counts.key[0, at] = key
        counts.meta[FILLED] += 1
    counts.tally[at, stream] += 1


@jit
def count_more(counts, stream, key, more):
    """Count so many arrivals of a stream with this key at once."""
    count_key(counts, stream, key)
    if counts.meta[SKETCH] != 0:
        entry = _sketch_find(counts, stream, key)
        counts.tally[stream, entry] += more - 1
        _sketch_down(counts, stream, counts.place[stream, entry])
    else:
        counts.tally[_slot(counts, key), stream] += more - 1


@jit
def counted(counts, stream, key):
    """How many arrivals of a stream had this key, as far as is known."""
    if counts.meta[SKETCH] != 0:
        entry = _sketch_find(counts, stream, key)
        if entry < 0:
            return 0
        return counts.tally[stream, entry] - counts.error[stream, entry]
    at = _slot(counts, key)
    return counts.tally[at, stream] if counts.error[0, at] != 0 else 0


@jit
def _sketch_find(counts, stream, key):
    at = np.int64(_mix(key) & np.uint64(counts.bucket.shape[1] - 1))
    entry = counts.bucket[stream, at] - 1
    while entry >= 0 and counts.key[stream, entry] != key:
        entry = counts.chain[stream, entry] - 1
    return entry


@jit
def _sketch_count(counts, stream, key):
    entry = _sketch_find(counts, stream, key)
    if entry < 0:
        size = counts.key.shape[1]
        if counts.meta[FILLED + stream] < size:
            entry = counts.meta[FILLED + stream]
            counts.meta[FILLED + stream] += 1
            counts.heap[stream, entry] = entry
            counts.place[stream, entry] = entry
            counts.tally[stream, entry] = 0
            _sketch_up(counts, stream, entry)
        else:
            entry = counts.heap[stream, 0]
            counts.error[stream, entry] = counts.tally[stream, entry]
            _sketch_unlink(counts, stream, entry)
        counts.key[stream, entry] = key
        at = np.int64(_mix(key) & np.uint64(counts.bucket.shape[1] - 1))
        counts.chain[stream, entry] = counts.bucket[stream, at]
        counts.bucket[stream, at] = entry + 1
    counts.tally[stream, entry] += 1
    _sketch_down(counts, stream, counts.place[stream, entry])


@jit
def _sketch_unlink(counts, stream, entry):
    at = np.int64(_mix(counts.key[stream, entry]) & np.uint64(counts.bucket.shape[1] - 1))
    if counts.bucket[stream, at] == entry + 1:
        counts.bucket[stream, at] = counts.chain[stream, entry]
        return
    before = counts.bucket[stream, at] - 1
    while counts.chain[stream, before] != entry + 1:
        before = counts.chain[stream, before] - 1
    counts.chain[stream, before] = counts.chain[stream, entry]


@jit
def _sketch_swap(counts, stream, a, b):
    heap, place = counts.heap[stream], counts.place[stream]
    heap[a], heap[b] = heap[b], heap[a]
    place[heap[a]] = a
    place[heap[b]] = b


@jit
def _sketch_up(counts, stream, at):
    tally, heap = counts.tally[stream], counts.heap[stream]
    while at > 0 and tally[heap[at]] < tally[heap[(at - 1) >> 1]]:
        _sketch_swap(counts, stream, at, (at - 1) >> 1)
        at = (at - 1) >> 1


@jit
def _sketch_down(counts, stream, at):
    tally, heap = counts.tally[stream], counts.heap[stream]
    length = counts.meta[FILLED + stream]
    while True:
        child = 2 * at + 1
        if child >= length:
            return
        if child + 1 < length and tally[heap[child + 1]] < tally[heap[child]]:
            child += 1
        if tally[heap[at]] <= tally[heap[child]]:
            return
        _sketch_swap(counts, stream, at, child)
        at = child
