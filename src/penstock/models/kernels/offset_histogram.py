"""Histograms over the offset from a stream's position (section 6.2), with buckets that split and merge.

The first tells how often a value at an offset comes, the second how short a tuple that enters at an offset
lives. A bucket has the number of its observations, their mean and the sum of their squared deviations, by a
recurrence and fading with time. The bucket whose observations are spread most is split where their mean
is, and the two neighbours that are spread least together become one.
"""

from __future__ import annotations

import numpy as np

from penstock.compiler.jit import jit
from penstock.models.kernels.benefit import center
from penstock.models.kernels.outlook import LOW, TREND, WIDTH

# Columns of a bucket.
EDGE = 0  # the smallest offset that belongs to it
SEEN = 1  # observations of offsets
MEAN = 2
SPREAD = 3  # sum of squared deviations
LIVED = 4  # observations of lifetimes
INVERSE = 5  # mean of the inverse lifetimes
DEVIATION = 6  # sum of squared deviations of these
COLUMNS = 7


@jit
def bucket_at(buckets, offset):
    """The bucket of an offset; the first also has all that is below."""
    found = 0
    for b in range(1, buckets.shape[0]):
        if offset < buckets[b, EDGE]:
            break
        found = b
    return found


@jit
def observe_offset(buckets, offset):
    """A value has come at this offset."""
    row = buckets[bucket_at(buckets, offset)]
    row[SEEN] += 1.0
    away = offset - row[MEAN]
    row[MEAN] += away / row[SEEN]
    row[SPREAD] += away * (offset - row[MEAN])


@jit
def offset_of(outlook, r, value, last, time):
    """The distance of a value from its stream's trend at that time, or from its last value."""
    if outlook.kind[r] == TREND:
        return value - center(outlook, r, time)
    return value - last


@jit
def observe_new_offset(buckets, offset, high):
    """A value has come at this offset, perhaps beyond all others; return the largest offset so far."""
    buckets[0, EDGE] = min(buckets[0, EDGE], offset)
    observe_offset(buckets, offset)
    return max(high, np.int64(offset))


@jit
def observe_lifetime(buckets, offset, steps):
    """A tuple that entered at this offset has left after so many steps."""
    row = buckets[bucket_at(buckets, offset)]
    inverse = 1.0 / max(steps, 1.0)
    row[LIVED] += 1.0
    away = inverse - row[INVERSE]
    row[INVERSE] += away / row[LIVED]
    row[DEVIATION] += away * (inverse - row[INVERSE])


@jit
def spread_buckets(buckets, low, high):
    """Begin with empty buckets of equal width between two offsets."""
    buckets[:] = 0.0
    n = buckets.shape[0]
    for b in range(n):
        buckets[b, EDGE] = low + np.floor(b * (high - low + 1.0) / n)


@jit
def start_again(buckets, outlook, r, values, first):
    """Fill new buckets with the offsets of consecutive values; return the largest offset.

    `first` is the time of the first value.
    """
    offsets = np.empty(values.shape[0] - 1, np.int64)
    for i in range(1, values.shape[0]):
        offsets[i - 1] = offset_of(outlook, r, values[i], values[i - 1], first + i)
    spread_buckets(buckets, np.float64(offsets.min()), np.float64(offsets.max()))
    for i in range(offsets.shape[0]):
        observe_offset(buckets, np.float64(offsets[i]))
    return offsets.max()


@jit
def fade(buckets, factor):
    """Let all observations count less."""
    for b in range(buckets.shape[0]):
        for column in (SEEN, SPREAD, LIVED, DEVIATION):
            buckets[b, column] *= factor


@jit
def _together(one, other):
    """The sum of squared deviations of two buckets taken as one."""
    n = one[SEEN] + other[SEEN]
    if n <= 0.0:
        return 0.0
    return one[SPREAD] + other[SPREAD] + (one[MEAN] - other[MEAN]) ** 2 * one[SEEN] * other[SEEN] / n


@jit
def rearrange(buckets, high):
    """Split the bucket that is spread most and merge the two that are so least together, if that helps."""
    n = buckets.shape[0]
    widest = -1
    for b in range(n):
        end = buckets[b + 1, EDGE] - 1.0 if b + 1 < n else high
        if end > buckets[b, EDGE] and (widest < 0 or buckets[b, SPREAD] > buckets[widest, SPREAD]):
            widest = b
    closest, least = -1, 0.0
    for b in range(n - 1):
        if b != widest and b + 1 != widest:
            spread = _together(buckets[b], buckets[b + 1])
            if closest < 0 or spread < least:
                closest, least = b, spread
    if widest < 0 or closest < 0 or least >= 0.5 * buckets[widest, SPREAD]:
        return
    row = buckets[widest].copy()
    end = buckets[widest + 1, EDGE] - 1.0 if widest + 1 < n else high
    cut = min(max(np.floor(row[MEAN] + 0.5), row[EDGE] + 1.0), end)
    _merge(buckets, closest)
    at = widest if widest < closest else widest - 1
    # Make room behind the bucket that is split; the last row is free now.
    for b in range(n - 1, at + 1, -1):
        buckets[b] = buckets[b - 1]
    _halve(buckets, at, row, cut, end)


@jit
def _merge(buckets, b):
    """Bucket b takes in the next; those behind move up."""
    n = buckets.shape[0]
    one, other = buckets[b], buckets[b + 1]
    spread = _together(one, other)
    seen, lived = one[SEEN] + other[SEEN], one[LIVED] + other[LIVED]
    if seen > 0.0:
        one[MEAN] = (one[MEAN] * one[SEEN] + other[MEAN] * other[SEEN]) / seen
    if lived > 0.0:
        one[INVERSE] = (one[INVERSE] * one[LIVED] + other[INVERSE] * other[LIVED]) / lived
    one[SEEN], one[SPREAD], one[LIVED] = seen, spread, lived
    one[DEVIATION] += other[DEVIATION]
    for k in range(b + 1, n - 1):
        buckets[k] = buckets[k + 1]


@jit
def _halve(buckets, at, row, cut, end):
    """Two buckets from one, as if its observations were evenly spread over their halves."""
    below = (cut - row[EDGE]) / (end + 1.0 - row[EDGE])
    for k in range(2):
        part = buckets[at + k]
        share = below if k == 0 else 1.0 - below
        first = row[EDGE] if k == 0 else cut
        after = cut if k == 0 else end + 1.0
        width = after - first
        part[EDGE] = first
        part[SEEN] = row[SEEN] * share
        part[MEAN] = first + 0.5 * (width - 1.0)
        part[SPREAD] = part[SEEN] * (width * width - 1.0) / 12.0
        part[LIVED] = row[LIVED] * share
        part[INVERSE] = row[INVERSE]
        part[DEVIATION] = row[DEVIATION] * share


@jit
def adapt(buckets, high, outlook, r):
    """Rearrange the buckets and derive the noise of a stream from them."""
    for _ in range(buckets.shape[0]):
        rearrange(buckets, np.float64(high))
    noise_from(buckets, np.float64(high), outlook, r)


@jit
def noise_from(buckets, high, outlook, r):
    """The histogram as the probabilities of offsets: within a bucket all are equally likely."""
    n, room = buckets.shape[0], outlook.noise.shape[1]
    low = np.int64(buckets[0, EDGE])
    width = min(np.int64(high) - low + 1, np.int64(room))
    total = 0.0
    for b in range(n):
        total += buckets[b, SEEN]
    outlook.ints[r, LOW] = low
    outlook.ints[r, WIDTH] = width
    for b in range(n):
        first = np.int64(buckets[b, EDGE])
        after = np.int64(buckets[b + 1, EDGE]) if b + 1 < n else np.int64(high) + 1
        for offset in range(first, after):
            if offset - low < width:
                outlook.noise[r, offset - low] = buckets[b, SEEN] / total / (after - first)


@jit
def mean_inverse(buckets):
    """The mean inverse lifetime of all tuples, 0 if none has left."""
    lived, found = 0.0, 0.0
    for b in range(buckets.shape[0]):
        lived += buckets[b, LIVED]
        found += buckets[b, LIVED] * buckets[b, INVERSE]
    return found / lived if lived > 0.0 else 0.0
