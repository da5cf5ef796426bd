"""Compute the expected benefit of a cache entry: H of the caching problem, from its first reference alone.

For independent values a first reference is a product. Where the last value decides what follows, a visit is
a first visit and then a return or none; weighed with exp(-d / alpha) that is a product too, so first visits
are visits over 1 plus returns. With other weights they are solved for step by step. The model is that of
stream 0 of an `Outlook`.
"""

from __future__ import annotations

import math

import numpy as np

from penstock.compiler.jit import jit
from penstock.models.kernels.benefit import build_walk, center, last_step, surface, walk_directly
from penstock.models.kernels.normal import cell
from penstock.models.kernels.outlook import (
    ALPHA,
    AUTO,
    EXPONENTIAL,
    FROM,
    GRID,
    KNOWN,
    LOW,
    MIXED,
    REACH,
    SD,
    SEASON,
    SPACING,
    SUBS,
    TABLE_LOW,
    TABLE_WIDTH,
    TREND,
    WALK,
    WHOLE,
    WIDTH,
    A,
    B,
)
from penstock.models.kernels.season import distance_from_mean, fill_far, near_sum

MOST_POINTS = 49  # a side, of the surface of an AR(1) that is learnt on the way


@jit
def build_first(outlook, most_points):
    """The tables of a model whose numbers, noise and weights are set."""
    kind, ints = outlook.kind[0], outlook.ints[0]
    ints[TABLE_WIDTH] = 0
    ints[GRID] = 0
    ints[SUBS] = 1
    if kind == TREND:
        _build_trend(outlook)
    elif kind == WALK:
        _build_walk(outlook)
    elif kind == AUTO:
        _build_surface(outlook, most_points)
    elif kind == SEASON:
        _build_season(outlook)


@jit
def _build_trend(outlook):
    """By the distance from the trend; finer than whole numbers where its slope is not whole."""
    ints, par = outlook.ints[0], outlook.par[0]
    slope, reach = par[A], ints[REACH]
    if ints[WHOLE] == 0:
        # The wider the noise, the less a fraction of a step changes.
        ints[SUBS] = max(1, min(16, np.int64(256 // max(1, ints[WIDTH]))))
    subs = ints[SUBS]
    first = np.int64(math.floor(ints[LOW] + min(slope * reach, 0.0))) - 1
    last = np.int64(math.ceil(ints[LOW] + ints[WIDTH] + max(slope * reach, 0.0))) + 1
    width = (last - first) * subs + 1
    if width > outlook.table.shape[1]:  # what comes last has least
        if slope < 0.0:
            first += (width - outlook.table.shape[1]) // subs + 1
        width = np.int64(outlook.table.shape[1])
    ints[TABLE_LOW] = first * subs
    ints[TABLE_WIDTH] = width
    for c in range(width):
        outlook.table[0, c] = _trend_at(outlook, np.float64(first) + c / subs)


@jit
def _trend_at(outlook, distance):
    """The benefit of a value at this distance from the present trend."""
    ints, slope = outlook.ints[0], outlook.par[0, A]
    found, missed = 0.0, 1.0
    for d in range(1, ints[REACH] + 1):
        i = np.int64(math.ceil(distance - slope * d - 0.5)) - ints[LOW]
        if 0 <= i < ints[WIDTH]:
            p = outlook.noise[0, i]
            found += outlook.weight[0, d] * p * missed
            missed *= 1.0 - p
        elif (slope > 0.0 and i < 0) or (slope < 0.0 and i >= ints[WIDTH]) or slope == 0.0:
            break
    return found


@jit
def _build_walk(outlook):
    ints = outlook.ints[0]
    build_walk(outlook, 0)
    width, zero = ints[TABLE_WIDTH], -ints[TABLE_LOW]
    if ints[EXPONENTIAL] != 0:
        outlook.table[0, :width] /= 1.0 + outlook.table[0, zero]
        return
    reach = ints[REACH]
    visits = np.zeros((reach, width))
    now = np.zeros(width)
    now[zero] = 1.0
    for d in range(reach):
        then = visits[d]
        for c in range(width):
            if now[c] > 1e-22:
                for i in range(ints[WIDTH]):
                    to = c + ints[LOW] + i
                    if 0 <= to < width:
                        then[to] += now[c] * outlook.noise[0, i]
        now = then
    returns = visits[:, zero].copy()
    column = np.empty(reach)
    for c in range(width):
        for d in range(reach):
            column[d] = visits[d, c]
        outlook.table[0, c] = _weighed_first(column, returns, outlook.weight[0])


@jit
def _weighed_first(visits, returns, weight):
    """First visits solved for from visits and returns, and weighed."""
    found, n = 0.0, visits.shape[0]
    first = np.empty(n)
    for d in range(n):
        p = visits[d]
        for k in range(d):
            p -= first[k] * returns[d - 1 - k]
        first[d] = p
        found += weight[d + 1] * min(max(p, 0.0), 1.0)
    return found


@jit
def _build_surface(outlook, most_points):
    ints, par = outlook.ints[0], outlook.par[0]
    _set_mixed(outlook)
    grid = min(np.int64(math.floor(math.sqrt(outlook.table.shape[1]))), np.int64(most_points))
    if grid < 8:
        return
    reach = 6.0 * par[SD]
    par[FROM] = par[B] - reach
    par[SPACING] = 2.0 * reach / (grid - 1)
    for i in range(grid):
        for j in range(grid):
            value, last = par[FROM] + i * par[SPACING], par[FROM] + j * par[SPACING]
            outlook.table[0, i * grid + j] = _auto_at(outlook, value, last)
    ints[GRID] = grid


@jit
def _set_mixed(outlook):
    outlook.ints[0, MIXED] = max(1, np.int64(math.ceil(-34.0 / math.log(abs(outlook.par[0, A])))))


@jit
def _auto_at(outlook, value, last):
    """First visits of AR(1)."""
    ints, par = outlook.ints[0], outlook.par[0]
    if ints[EXPONENTIAL] != 0:
        steps = min(ints[REACH], ints[MIXED])
        rest = (outlook.total[0, ints[REACH]] - outlook.total[0, steps]) * cell(value - par[B], par[SD])
        mean = np.full(1, par[B])
        visits = near_sum(mean, par[A], par[SD], outlook.weight[0], value, last - par[B], 0, steps)
        returns = near_sum(mean, par[A], par[SD], outlook.weight[0], value, value - par[B], 0, steps)
        return (visits + rest) / (1.0 + returns + rest)
    n = ints[REACH]
    visits, returns = np.empty(n), np.empty(n)
    kept = 1.0
    for d in range(n):
        kept *= par[A]
        sd = par[SD] * math.sqrt(1.0 - kept * kept)
        visits[d] = cell(value - par[B] - kept * (last - par[B]), sd)
        returns[d] = cell((1.0 - kept) * (value - par[B]), sd)
    return _weighed_first(visits, returns, outlook.weight[0])


@jit
def _build_season(outlook):
    ints, par = outlook.ints[0], outlook.par[0]
    _set_mixed(outlook)
    means = outlook.noise[0, : ints[WIDTH]]
    low = np.int64(math.floor(means.min() - 6.0 * par[SD]))
    width = np.int64(math.ceil(means.max() + 6.0 * par[SD])) - low + 1
    if ints[EXPONENTIAL] == 0 or width * ints[WIDTH] > outlook.table.shape[1]:
        return
    ints[TABLE_LOW] = low
    ints[TABLE_WIDTH] = width
    decay = math.exp(-1.0 / par[ALPHA])
    fill_far(means, par[SD], decay, ints[REACH], low, outlook.table[0, : width * ints[WIDTH]])


@jit
def _season_at(outlook, at, time, last):
    """Visits over 1 plus returns, as if the season stood still until the first: near ones, and all later."""
    ints, par, weight = outlook.ints[0], outlook.par[0], outlook.weight[0]
    means = outlook.noise[0, : ints[WIDTH]]
    value = np.float64(at)
    away = distance_from_mean(means, np.float64(last), time)
    steps, far = ints[REACH], 0.0
    c = at - ints[TABLE_LOW]
    if ints[TABLE_WIDTH] > 0 and ints[MIXED] < steps:
        steps = ints[MIXED]
        if 0 <= c < ints[TABLE_WIDTH]:
            then = (time + steps) % ints[WIDTH]
            far = weight[steps] * outlook.table[0, then * ints[TABLE_WIDTH] + c]
    visits = far + near_sum(means, par[A], par[SD], weight, value, away, time, steps)
    home = distance_from_mean(means, value, time)
    returns = far + near_sum(means, par[A], par[SD], weight, value, home, time, steps)
    return visits / (1.0 + returns)


@jit
def first_directly(outlook, at, time, last):
    """H of an entry without tables: slow, to compare with, and where there is no table."""
    kind, ints = outlook.kind[0], outlook.ints[0]
    if kind == TREND:
        found, missed = 0.0, 1.0
        for d in range(1, last_step(outlook, 0, at, time) + 1):
            i = at - center(outlook, 0, time + d) - ints[LOW]
            if 0 <= i < ints[WIDTH]:
                found += outlook.weight[0, d] * outlook.noise[0, i] * missed
                missed *= 1.0 - outlook.noise[0, i]
        return found
    if kind == WALK:
        visits = walk_directly(outlook, 0, at - last, ints[REACH])
        return visits / (1.0 + walk_directly(outlook, 0, 0, ints[REACH]))
    if kind == AUTO:
        return _auto_at(outlook, np.float64(at), np.float64(last))
    if kind == SEASON:
        return _season_at(outlook, at, time, last)
    return 0.0


@jit
def first_benefit(outlook, at, time, last):
    """H of an entry whose value is `at`, from the tables computed beforehand as far as they reach."""
    kind, ints = outlook.kind[0], outlook.ints[0]
    if kind == KNOWN:
        return _next_known(outlook, at, time)
    if kind == TREND and ints[TABLE_WIDTH] > 0:
        if ints[WHOLE] != 0:
            c = at - center(outlook, 0, time) - ints[TABLE_LOW]
        else:
            distance = at - (outlook.par[0, A] * time + outlook.par[0, B])
            c = np.int64(math.floor(distance * ints[SUBS] + 0.5)) - ints[TABLE_LOW]
        if 0 <= c < ints[TABLE_WIDTH]:
            return outlook.table[0, c]
    elif kind == WALK:
        c = at - last - ints[TABLE_LOW]
        return outlook.table[0, c] if 0 <= c < ints[TABLE_WIDTH] else 0.0
    elif kind == AUTO and ints[GRID] > 0:
        found = surface(outlook, 0, np.float64(at), np.float64(last))
        if found >= 0.0:
            return found
    return first_directly(outlook, at, time, last)


@jit
def _next_known(outlook, at, time):
    """The weight of the step at which a value comes next in a known sequence."""
    if at < 0:
        return 0.0
    low, end = outlook.starts[0, at], outlook.starts[0, at + 1]
    high = end
    while low < high:
        middle = (low + high) >> 1
        if outlook.spots[0, middle] <= time:
            low = middle + 1
        else:
            high = middle
    if low == end:
        return 0.0
    d = outlook.spots[0, low] - time
    if d <= outlook.ints[0, REACH]:
        return outlook.weight[0, d]
    return math.exp(-d / outlook.par[0, ALPHA]) if outlook.ints[0, EXPONENTIAL] != 0 else 0.0
