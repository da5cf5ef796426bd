"""Fit models to the last values of a stream while it runs, and choose among them by BIC.

What `penstock.models.select` does with more care for a whole series: a stationary distribution, a linear
trend, a random walk and AR(1) are fitted by least squares, and the one with the lowest criterion is taken.
"""

from __future__ import annotations

import math

import numpy as np

from penstock.compiler.jit import jit
from penstock.models.kernels.outlook import (
    AUTO,
    FOUND,
    LEVEL,
    NONE,
    NUMBERS,
    PLACES,
    SD,
    SLOPE,
    STEP,
    TREND,
    WALK,
    WHOLE,
    WIDTH,
    A,
    B,
    fill_noise,
)

FIRST_FIT = 32  # values after which a model is fitted for the first time
EVERY = 256  # values between two fits later on
SMALLEST = 1.0 / 12.0  # variance of rounding: no fit is closer than that
# The square of the statistic of Dickey and Fuller that one walk in twenty exceeds: least squares finds every
# walk to lean towards its mean a little, and on a likelihood alone many would be taken for AR(1).
LEANS = 8.2


@jit
def fit_is_due(seen):
    """Whether a stream of which so many values have come is looked at: after 32, 64, 128, then every 256."""
    if seen % EVERY == 0:
        return seen > 0
    return seen == FIRST_FIT or seen == 2 * FIRST_FIT or seen == 4 * FIRST_FIT


@jit
def _normal(n, variance):
    """The log-likelihood of n values that a least-squares fit leaves with this variance."""
    return -0.5 * n * (math.log(2.0 * math.pi * max(variance, SMALLEST)) + 1.0)


@jit
def fit(outlook, r, values, first, numeric, form):
    """Set the model of stream r to what explains its last values best.

    `first` is the time of the first of them, `form` the kind of the model if that is known, else `NONE`.
    Weights must be set, and tables built, by the caller.
    """
    n = values.shape[0]
    weight = math.log(n)
    ordered = np.sort(values)
    criterion, distinct = _stationary(ordered)
    best = FOUND
    par = np.zeros(NUMBERS)
    if form != NONE and form != FOUND:
        criterion = np.inf
    if numeric and (form == NONE or form == TREND):
        found = _trend(values, first)
        score = 3.0 * weight - 2.0 * found[0] * (n - 1) / n
        if score < criterion:
            criterion, best = score, TREND
            par[A], par[B], par[SD] = found[1], found[2], found[3]
    if numeric and (form == NONE or form == WALK):
        found = _walk(values)
        score = (2.0 if found[1] != 0.0 else 1.0) * weight - 2.0 * found[0]
        if score < criterion:
            criterion, best = score, WALK
            par[A], par[SD] = found[1], found[2]
    if numeric and (form == NONE or form == AUTO):
        found = _auto(values)
        score = 3.0 * weight - 2.0 * found[0]
        if found[3] > 0.0 and score < criterion:
            best = AUTO
            par[A], par[B], par[SD] = found[1], found[2], found[3]
    outlook.kind[r] = best
    outlook.par[r, A], outlook.par[r, B], outlook.par[r, SD] = par[A], par[B], par[SD]
    outlook.par[r, STEP] = 1.0
    outlook.ints[r, WHOLE] = 0
    outlook.ints[r, SLOPE] = 0
    if best == FOUND:
        _keep_shares(outlook, r, ordered, distinct)
    elif best == TREND:
        _make_whole(outlook, r, first, n)
        fill_noise(outlook, r, 0.0, max(math.sqrt(max(par[SD] ** 2 - SMALLEST, 0.0)), 0.2))
    elif best == WALK:
        fill_noise(outlook, r, par[A], max(math.sqrt(max(par[SD] ** 2 - SMALLEST, 0.0)), 0.1))


@jit
def _make_whole(outlook, r, first, n):
    """Take the nearest whole slope for one that leads to the same values, for which there are tables."""
    slope = outlook.par[r, A]
    whole = math.floor(slope + 0.5)
    if whole != 0.0 and abs(slope - whole) * n < 1.0:
        end = first + n - 1
        outlook.par[r, B] = math.floor(slope * end + outlook.par[r, B] + 0.5) - whole * end
        outlook.par[r, A] = whole
        outlook.ints[r, WHOLE] = 1
        outlook.ints[r, SLOPE] = np.int64(whole)


@jit
def _stationary(ordered):
    """BIC of the shares of the values, and how many there are."""
    n = ordered.shape[0]
    found, distinct, run = 0.0, 0, 0
    for i in range(n):
        run += 1
        if i == n - 1 or ordered[i + 1] != ordered[i]:
            found += run * math.log(run / n)
            distinct += 1
            run = 0
    return (distinct - 1) * math.log(n) - 2.0 * found * (n - 1) / n, distinct


@jit
def _keep_shares(outlook, r, ordered, distinct):
    """The values and their shares; where there is no room for all, every so many are left out."""
    n, room = ordered.shape[0], min(outlook.places.shape[1], outlook.noise.shape[1])
    kept, run = 0, 0
    for i in range(n):
        run += 1
        if i == n - 1 or ordered[i + 1] != ordered[i]:
            if kept < room and (distinct <= room or run > 1):
                outlook.places[r, kept] = ordered[i]
                outlook.noise[r, kept] = run / n
                kept += 1
            run = 0
    outlook.ints[r, PLACES] = kept
    outlook.ints[r, WIDTH] = kept


@jit
def _trend(values, first):
    """Least squares: log-likelihood, slope, intercept at time 0, and the spread of the rest."""
    n = values.shape[0]
    middle, mean = 0.5 * (n - 1), 0.0
    for i in range(n):
        mean += values[i]
    mean /= n
    both, square, spread = 0.0, 0.0, 0.0
    for i in range(n):
        both += (i - middle) * (values[i] - mean)
        square += (i - middle) ** 2
        spread += (values[i] - mean) ** 2
    slope = both / square
    variance = max(spread - slope * both, 0.0) / n
    return np.array([_normal(n, variance), slope, mean - slope * (middle + first), math.sqrt(variance)])


@jit
def _walk(values):
    """Mean and spread of the steps: log-likelihood, drift, spread.

    A drift that the steps do not show for sure is none: by an error of a tenth of their spread a walk would
    be thought elsewhere after a few steps.
    """
    n = values.shape[0] - 1
    drift = np.float64(values[n] - values[0]) / n
    variance = 0.0
    for i in range(n):
        variance += (values[i + 1] - values[i] - drift) ** 2
    variance /= n
    if drift * drift * n <= math.log(n + 1.0) * max(variance, SMALLEST):
        variance += drift * drift
        drift = 0.0
    return np.array([_normal(n, variance), drift, math.sqrt(max(variance, SMALLEST))])


@jit
def _auto(values):
    """AR(1): log-likelihood, phi, long-run mean and spread; the last is 0 if there is no such fit."""
    n = values.shape[0] - 1
    x, y = 0.0, 0.0
    for i in range(n):
        x += values[i]
        y += values[i + 1]
    x /= n
    y /= n
    both, square, spread = 0.0, 0.0, 0.0
    for i in range(n):
        both += (values[i] - x) * (values[i + 1] - y)
        square += (values[i] - x) ** 2
        spread += (values[i + 1] - y) ** 2
    none = np.zeros(4)
    if square <= 0.0:
        return none
    phi = both / square
    if not 0.02 < abs(phi) < 0.995:
        return none
    variance = max(spread - phi * both, 0.0) / n
    if (1.0 - phi) ** 2 * square < LEANS * max(variance, SMALLEST):
        return none
    long_run = math.sqrt(max(variance, SMALLEST) / (1.0 - phi * phi))
    return np.array([_normal(n, variance), phi, (y - phi * x) / (1.0 - phi), long_run])


@jit
def follow_level(outlook, values):
    """Let the mean of the AR(1) of stream 0 follow the stream, if that explains its last values better.

    The mean is then an average in which a value counts exp(-age / memory), and AR(1) is around it.
    """
    n = values.shape[0] - 1
    outlook.par[0, LEVEL] = 0.0
    highest = _auto(values)[0] + 0.5 * math.log(n)
    for trial in range(5):
        memory = 16.0 * 2.0**trial
        level, first = 0.0, min(n, np.int64(memory))
        for i in range(first):
            level += values[i] / first
        both, square, spread = 0.0, 0.0, 0.0
        for i in range(n):
            level += (values[i] - level) / memory
            x, y = values[i] - level, values[i + 1] - level
            both += x * y
            square += x * x
            spread += y * y
        if square <= 0.0:
            continue
        phi = min(max(both / square, 0.02), 0.995)
        variance = max((spread - 2.0 * phi * both + phi * phi * square) / n, SMALLEST)
        found = _normal(n, variance)
        if found > highest:
            highest = found
            outlook.par[0, A] = phi
            outlook.par[0, B] = level + (values[n] - level) / memory
            outlook.par[0, SD] = math.sqrt(variance / (1.0 - phi * phi))
            outlook.par[0, LEVEL] = memory
