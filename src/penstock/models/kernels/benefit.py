"""Compute the expected benefit of a tuple (H of HEEB) from a model of the stream that it joins with.

Sums are taken from the next step on, for all kinds of models alike, so that tuples with the same prospects
have the same H to the last bit. Tables that need many sums are built once.
"""

from __future__ import annotations

import math

import numpy as np

from penstock.compiler.jit import jit
from penstock.models.kernels.normal import cell
from penstock.models.kernels.outlook import (
    AUTO,
    FOUND,
    FROM,
    GRID,
    KNOWN,
    LOW,
    MIXED,
    NONE,
    PLACES,
    REACH,
    ROWS_DEEP,
    SD,
    SEASON,
    SLOPE,
    SPACING,
    STATIC,
    STEP,
    TABLE_LOW,
    TABLE_WIDTH,
    TREND,
    WALK,
    WHOLE,
    WIDTH,
    A,
    B,
    new_outlook,
)
from penstock.models.kernels.season import distance_from_mean, near_sum


@jit
def build(outlook, r):
    """The tables of a model whose numbers, noise and weights are set."""
    kind = outlook.kind[r]
    outlook.ints[r, ROWS_DEEP] = 0
    outlook.ints[r, TABLE_WIDTH] = 0
    outlook.ints[r, GRID] = 0
    if kind == TREND:
        _build_trend(outlook, r)
    elif kind == WALK:
        build_walk(outlook, r)
    elif kind == AUTO:
        _build_surface(outlook, r)


@jit
def trend_width(low, width, slope, reach):
    """The distances at which a trend with a whole slope can bring anything: the first, and how many."""
    far = slope * reach
    first = low + min(slope, far)
    return first, low + width - 1 + max(slope, far) - first + 1


@jit
def _build_trend(outlook, r):
    ints = outlook.ints[r]
    if ints[WHOLE] == 0:
        return
    low, slope, reach = ints[LOW], ints[SLOPE], ints[REACH]
    first, width = trend_width(low, ints[WIDTH], slope, reach)
    if slope == 0 or width > outlook.table.shape[1]:
        return
    ints[TABLE_LOW] = first
    ints[TABLE_WIDTH] = width
    rows = min(reach, outlook.deep.shape[1] // width)
    if rows < reach:
        rows = 0
    ints[ROWS_DEEP] = rows
    table, deep = outlook.table[r], outlook.deep[r]
    for c in range(width):
        found = 0.0
        for d in range(1, reach + 1):
            at = first + c - slope * d - low
            if 0 <= at < ints[WIDTH]:
                found += outlook.weight[r, d] * outlook.noise[r, at]
            if rows > 0:
                deep[(d - 1) * width + c] = found
            elif (slope > 0 and at < 0) or (slope < 0 and at >= ints[WIDTH]):
                break
        table[c] = found


@jit
def walk_width(drift, sd, reach):
    """The distances that a walk may come to while it matters: the first, and how many."""
    far = drift * reach
    first = np.int64(math.floor(min(far, 0.0) - 9.0 * sd * math.sqrt(reach))) - 2
    last = np.int64(math.ceil(max(far, 0.0) + 9.0 * sd * math.sqrt(reach))) + 2
    return first, last - first + 1


@jit
def build_walk(outlook, r):
    ints = outlook.ints[r]
    reach = ints[REACH]
    first, width = walk_width(outlook.par[r, A], outlook.par[r, SD], reach)
    room = np.int64(outlook.table.shape[1])
    if width > room:  # what is farthest has least
        cut = width - room
        first += cut // 2
        width = room
    ints[TABLE_LOW] = first
    ints[TABLE_WIDTH] = width
    rows = min(reach, outlook.deep.shape[1] // width)
    ints[ROWS_DEEP] = rows if rows == reach else 0
    weights = outlook.weight[r, 1 : reach + 1]
    _sum_walk(
        outlook.noise[r, : ints[WIDTH]],
        ints[LOW],
        weights,
        first,
        outlook.table[r, :width],
        outlook.deep[r, : ints[ROWS_DEEP] * width],
    )


@jit
def _sum_walk(steps, low, weights, first, table, deep):
    """Add up the distributions of the sums of 1, 2, ... steps, weighed."""
    width = table.shape[0]
    now, then = np.zeros(width), np.zeros(width)
    table[:] = 0.0
    if 0 <= -first < width:
        now[-first] = 1.0
    left, right = -first, -first  # where `now` is not 0
    for d in range(weights.shape[0]):
        new_left = max(0, left + low)
        new_right = min(width - 1, right + low + steps.shape[0] - 1)
        for c in range(new_left, new_right + 1):
            then[c] = 0.0
        for c in range(max(left, 0), min(right, width - 1) + 1):
            p = now[c]
            if p > 1e-22:
                begin = max(0, -(c + low))
                end = min(steps.shape[0], width - c - low)
                for i in range(begin, end):
                    then[c + low + i] += p * steps[i]
        for c in range(max(left, 0), min(right, width - 1) + 1):
            now[c] = 0.0
        now, then = then, now
        left, right = new_left, new_right
        while left < right and now[left] < 1e-22:
            now[left] = 0.0
            left += 1
        while right > left and now[right] < 1e-22:
            now[right] = 0.0
            right -= 1
        for c in range(left, right + 1):
            table[c] += weights[d] * now[c]
        if deep.shape[0] > 0:
            for c in range(width):
                deep[d * width + c] = table[c]


@jit
def _build_surface(outlook, r):
    """The surface h2 of AR(1) at equally spaced points, for bicubic interpolation."""
    ints, par = outlook.ints[r], outlook.par[r]
    phi = abs(par[A])
    mixed = 1 if phi < 1e-12 else np.int64(math.ceil(-34.0 / math.log(phi)))
    ints[MIXED] = max(1, mixed)
    grid = np.int64(math.floor(math.sqrt(outlook.table.shape[1])))
    if grid < 8:
        return
    reach = 6.0 * par[SD]
    par[FROM] = par[B] - reach
    par[SPACING] = 2.0 * reach / (grid - 1)
    for i in range(grid):
        value = par[FROM] + i * par[SPACING]
        for j in range(grid):
            last = par[FROM] + j * par[SPACING]
            outlook.table[r, i * grid + j] = _auto(outlook, r, value, last, ints[REACH])
    ints[GRID] = grid


@jit
def _auto(outlook, r, value, last, left):
    """H under AR(1), added up until the stream has forgotten where it was."""
    par, ints = outlook.par[r], outlook.ints[r]
    left = min(left, ints[REACH])
    kept, found = 1.0, 0.0
    for d in range(1, min(left, ints[MIXED]) + 1):
        kept *= par[A]
        sd = par[SD] * math.sqrt(1.0 - kept * kept)
        found += outlook.weight[r, d] * cell(value - par[B] - kept * (last - par[B]), sd)
    if left > ints[MIXED]:
        rest = outlook.total[r, left] - outlook.total[r, ints[MIXED]]
        found += rest * cell(value - par[B], par[SD])
    return found


@jit
def _cubic(p0, p1, p2, p3, x):
    return p1 + 0.5 * x * (
        p2 - p0 + x * (2.0 * p0 - 5.0 * p1 + 4.0 * p2 - p3 + x * (3.0 * (p1 - p2) + p3 - p0))
    )


@jit
def surface(outlook, r, value, last):
    """Bicubic interpolation on the surface; -1 outside."""
    par, grid = outlook.par[r], outlook.ints[r, GRID]
    u, v = (value - par[FROM]) / par[SPACING], (last - par[FROM]) / par[SPACING]
    i, j = np.int64(math.floor(u)), np.int64(math.floor(v))
    if i < 1 or j < 1 or i > grid - 3 or j > grid - 3:
        return -1.0
    u -= i
    v -= j
    table = outlook.table[r]
    rows = np.empty(4)
    for k in range(4):
        at = (i - 1 + k) * grid + j
        rows[k] = _cubic(table[at - 1], table[at], table[at + 1], table[at + 2], v)
    return max(0.0, _cubic(rows[0], rows[1], rows[2], rows[3], u))


@jit
def find_place(outlook, r, value):
    """The index of a value among `places`, -1 if it is not there."""
    low, high = 0, outlook.ints[r, PLACES]
    places = outlook.places[r]
    while low < high:
        middle = (low + high) >> 1
        if places[middle] < value:
            low = middle + 1
        else:
            high = middle
    return low if low < outlook.ints[r, PLACES] and places[low] == value else -1


@jit
def locate(outlook, r, value):
    """What is kept of a value for the model of stream r: an index, or its multiple of the step."""
    kind = outlook.kind[r]
    if kind == STATIC or kind == KNOWN:
        return np.int64(find_place(outlook, r, value))
    return np.int64(np.rint(value / outlook.par[r, STEP]))


@jit
def center(outlook, r, time):
    """A trend at some time, rounded."""
    return np.int64(math.floor(outlook.par[r, A] * time + outlook.par[r, B] + 0.5))


@jit
def chance(outlook, r, at, time):
    """The probability of a value at a time, for independent streams."""
    kind = outlook.kind[r]
    if kind == TREND:
        i = at - center(outlook, r, time) - outlook.ints[r, LOW]
        return outlook.noise[r, i] if 0 <= i < outlook.ints[r, WIDTH] else 0.0
    if kind == STATIC:
        return outlook.noise[r, at] if at >= 0 else 0.0
    if kind == FOUND:
        i = find_place(outlook, r, np.float64(at))
        return outlook.noise[r, i] if i >= 0 else 0.0
    return 0.0


@jit
def last_step(outlook, r, at, time):
    """The number of steps after which a trend has surely passed a value; `REACH` if that is sooner."""
    ints, slope = outlook.ints[r], outlook.par[r, A]
    reach = ints[REACH]
    if slope == 0.0:
        return reach
    offset = at - (slope * time + outlook.par[r, B])
    if slope > 0.0:
        far = (offset - ints[LOW] + 0.5) / slope
    else:
        far = (ints[LOW] + ints[WIDTH] - 1 + 0.5 - offset) / -slope
    return min(reach, max(np.int64(0), np.int64(math.floor(far)) + 1))


@jit
def added_up(outlook, r, at, time, last, left):
    """H the direct way: the sum over the steps that a tuple has left."""
    kind, ints = outlook.kind[r], outlook.ints[r]
    left = min(left, ints[REACH])
    if left <= 0 or kind == NONE:
        return 0.0
    if kind == STATIC or kind == FOUND:
        return chance(outlook, r, at, time) * outlook.total[r, left]
    if kind == AUTO:
        return _auto(outlook, r, np.float64(at), np.float64(last), left)
    if kind == SEASON:
        means, par = outlook.noise[r, : ints[WIDTH]], outlook.par[r]
        away = distance_from_mean(means, np.float64(last), time)
        return near_sum(means, par[A], par[SD], outlook.weight[r], np.float64(at), away, time, left)
    found = 0.0
    if kind == TREND:
        for d in range(1, min(left, last_step(outlook, r, at, time)) + 1):
            p = chance(outlook, r, at, time + d)
            if p > 0.0:
                found += outlook.weight[r, d] * p
    elif kind == KNOWN and at >= 0:
        low, high = outlook.starts[r, at], outlook.starts[r, at + 1]
        end = high
        while low < high:
            middle = (low + high) >> 1
            if outlook.spots[r, middle] <= time:
                low = middle + 1
            else:
                high = middle
        while low < end and outlook.spots[r, low] - time <= left:
            found += outlook.weight[r, outlook.spots[r, low] - time]
            low += 1
    elif kind == WALK:
        found = walk_directly(outlook, r, at - last, left)
    return found


@jit
def walk_directly(outlook, r, offset, left):
    """H of a walk the direct way, without tables: slow, to compare with."""
    ints = outlook.ints[r]
    first, width = walk_width(outlook.par[r, A], outlook.par[r, SD], left)
    table = np.zeros(width)
    steps = outlook.noise[r, : ints[WIDTH]]
    _sum_walk(steps, ints[LOW], outlook.weight[r, 1 : left + 1], first, table, np.zeros(0))
    c = offset - first
    return table[c] if 0 <= c < width else 0.0


@jit
def looked_up(outlook, r, at, time, last, left):
    """H from the tables computed beforehand, as far as they reach."""
    kind, ints = outlook.kind[r], outlook.ints[r]
    reach = ints[REACH]
    if left <= 0:
        return 0.0
    width = ints[TABLE_WIDTH]
    if kind == TREND and width > 0:
        offset = at - center(outlook, r, time)
        c = offset - ints[TABLE_LOW]
        if c < 0 or c >= width:
            return 0.0
        slope = ints[SLOPE]
        if slope > 0:
            needed = (offset - ints[LOW]) // slope
        else:
            needed = (ints[LOW] + ints[WIDTH] - 1 - offset) // -slope
        if left >= needed or left >= reach:
            return outlook.table[r, c]
        if ints[ROWS_DEEP] > 0:
            return outlook.deep[r, (left - 1) * width + c]
    elif kind == WALK:
        c = at - last - ints[TABLE_LOW]
        if c < 0 or c >= width:
            return 0.0
        if left >= reach or ints[ROWS_DEEP] == 0:
            # Without room for the others, a window counts by the share of the weights that it has left.
            return outlook.table[r, c] * (outlook.total[r, min(left, reach)] / outlook.total[r, reach])
        return outlook.deep[r, (left - 1) * width + c]
    elif kind == AUTO and ints[GRID] > 0 and left >= min(reach, ints[MIXED]):
        found = surface(outlook, r, np.float64(at), np.float64(last))
        if found >= 0.0:
            if left < reach:
                rest = outlook.total[r, reach] - outlook.total[r, left]
                found -= rest * cell(np.float64(at) - outlook.par[r, B], outlook.par[r, SD])
            return max(found, 0.0)
    return added_up(outlook, r, at, time, last, left)


def walk_table(steps: np.ndarray, low: int, weights: np.ndarray) -> tuple[int, np.ndarray]:
    """h1 of Theorem 3 for a walk whose smallest step is `low`: its first distance and its values."""
    numbers = np.arange(low, low + len(steps))
    mean = float(numbers @ steps)
    sd = math.sqrt(float((numbers - mean) ** 2 @ steps))
    first, width = walk_width(mean, sd, len(weights))
    table = np.zeros(width)
    _sum_walk(np.ascontiguousarray(steps), int(low), np.ascontiguousarray(weights), first, table, np.zeros(0))
    return int(first), table


def trend_table(noise: np.ndarray, low: int, slope: int, weights: np.ndarray) -> tuple[int, np.ndarray]:
    """The like of h1 for a trend with a whole slope: its first distance and values."""
    first, width = trend_width(low, len(noise), slope, len(weights))
    outlook = new_outlook(len(noise), 1, 1, width, 0, len(weights))
    outlook.kind[:] = TREND
    outlook.noise[:] = noise
    outlook.ints[:, [LOW, WIDTH, SLOPE, WHOLE, REACH]] = [low, len(noise), slope, 1, len(weights)]
    outlook.weight[:, 1:] = weights
    build(outlook, 0)
    return int(first), outlook.table[0]
