"""A model of a stream as arrays that kernels read.

A model is a kind and a few numbers; what the kind needs besides is in tables: `noise` (probabilities of the
noise, of the steps of a walk, or of values), `places` (the values these are of), `table` (H by the distance
from where the stream is, for tuples whose window is long enough) and `deep` (the same for shorter windows, a
row per number of steps left).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from penstock.compiler.jit import jit
from penstock.models.kernels.normal import cell

# Kinds of models.
NONE = 0  # nothing is known: H is 0
STATIC = 1  # `at` is an index into `noise`
FOUND = 2  # the same, but `at` is a value to be looked up in `places`
TREND = 3
WALK = 4
AUTO = 5  # AR(1)
KNOWN = 6  # an explicit sequence: `at` is an index into `starts`
SEASON = 7  # AR(1) around a mean that repeats: `noise` has the means of the period

# Whole numbers of a model.
LOW = 0  # the smallest noise or step
WIDTH = 1  # how many
TABLE_LOW = 2  # the distance of the first entry of `table`
TABLE_WIDTH = 3
ROWS_DEEP = 4  # rows of `deep`
SLOPE = 5  # of a trend whose slope is whole; `WHOLE` says whether it is
WHOLE = 6
REACH = 7  # steps after which weights are 0
MIXED = 8  # steps after which AR(1) has forgotten where it was
GRID = 9  # points a side of the surface of AR(1); 0: none
PLACES = 10
EXPONENTIAL = 11  # 1: weights are exp(-d / alpha)
SUBS = 12  # entries of the table of a cache's trend per whole number
INTS = 13

# Other numbers of a model.
A = 0  # slope of a trend, drift of a walk, phi
B = 1  # intercept of a trend, long-run mean of AR(1)
SD = 2  # of the steps of a walk; in the long run, of AR(1) and around a season
STEP = 3  # values are multiples of it
ALPHA = 4
FROM = 5  # where the surface of AR(1) begins
SPACING = 6
LEVEL = 7  # over how many values the mean of AR(1) follows the stream in a cache; 0: it stays
NUMBERS = 8


class Outlook(NamedTuple):
    """The models of the streams, one row each."""

    kind: np.ndarray
    ints: np.ndarray
    par: np.ndarray
    noise: np.ndarray
    places: np.ndarray
    starts: np.ndarray
    spots: np.ndarray
    table: np.ndarray
    deep: np.ndarray
    weight: np.ndarray  # L(d), 0 at d = 0
    total: np.ndarray  # their sums


def new_outlook(width: int, places: int, spots: int, table: int, deep: int, reach: int) -> Outlook:
    """Tables of these sizes, and no models."""
    return Outlook(
        kind=np.zeros(2, np.int64),
        ints=np.zeros((2, INTS), np.int64),
        par=np.zeros((2, NUMBERS)),
        noise=np.zeros((2, max(1, width))),
        places=np.zeros((2, max(1, places))),
        starts=np.zeros((2, max(1, places) + 1), np.int64),
        spots=np.zeros((2, max(1, spots)), np.int64),
        table=np.zeros((2, max(1, table))),
        deep=np.zeros((2, max(1, deep))),
        weight=np.zeros((2, reach + 1)),
        total=np.zeros((2, reach + 1)),
    )


@jit
def set_exponential(outlook, r, alpha, left_out):
    """Weights exp(-d / alpha), as far as there is room and they are not negligible."""
    reach = np.int64(outlook.weight.shape[1] - 1)
    wanted = -alpha * math.log(left_out)
    if wanted < reach:  # compared first: beyond 64 bits it cannot be converted
        reach = np.int64(math.ceil(wanted))
    outlook.par[r, ALPHA] = alpha
    outlook.ints[r, EXPONENTIAL] = 1
    outlook.ints[r, REACH] = max(reach, 1)
    sum_weights(outlook, r, True)


@jit
def sum_weights(outlook, r, exponential):
    """Fill in the weights if they are exponential, and add them up."""
    reach = outlook.ints[r, REACH]
    weight, total = outlook.weight[r], outlook.total[r]
    weight[0] = 0.0
    total[0] = 0.0
    for d in range(1, reach + 1):
        if exponential:
            weight[d] = math.exp(-d / outlook.par[r, ALPHA])
        total[d] = total[d - 1] + weight[d]


@jit
def fill_noise(outlook, r, mean, sd):
    """The noise is normal, rounded, and cut off where it is negligible or the room ends."""
    room = outlook.noise.shape[1]
    low = np.int64(math.floor(mean - 9.0 * sd))
    width = np.int64(math.ceil(mean + 9.0 * sd)) - low + 1
    if width > room:
        low += (width - room) // 2
        width = np.int64(room)
    sum_of = 0.0
    for i in range(width):
        outlook.noise[r, i] = cell(low + i - mean, sd)
        sum_of += outlook.noise[r, i]
    for i in range(width):
        outlook.noise[r, i] /= sum_of
    outlook.ints[r, LOW] = low
    outlook.ints[r, WIDTH] = width
