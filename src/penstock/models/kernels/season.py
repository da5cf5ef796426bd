"""The expected benefit under a periodic mean with AR(1) noise around it.

`means` has the mean of each step of the period, `spread` is the long-run spread of what is around it. After
`mixed` steps the stream has forgotten where it was and only the season matters.
"""

from __future__ import annotations

import math

import numpy as np

from penstock.compiler.jit import jit
from penstock.models.kernels.normal import cell


@jit
def near_sum(means, phi, spread, weight, value, away, time, steps):
    """The weighed chances of a value in the next steps, from a distance `away` from the mean of `time`."""
    period = means.shape[0]
    kept, found = 1.0, 0.0
    for d in range(1, steps + 1):
        kept *= phi
        sd = spread * math.sqrt(1.0 - kept * kept)
        found += weight[d] * cell(value - means[(time + d) % period] - kept * away, sd)
    return found


@jit
def distance_from_mean(means, last, time):
    """How far the last value is from the mean of its time; before the first value, not at all."""
    return last - means[time % means.shape[0]] if time >= 0 else 0.0


@jit
def fill_far(means, spread, decay, reach, low, table):
    """By step of the period and value: the weighed chances of all later steps, with weights decay**d.

    They are added up from far away towards the present, once around for every period within reach.
    """
    period = means.shape[0]
    width = table.shape[0] // period
    chances = np.empty((period, width))
    for s in range(period):
        for c in range(width):
            chances[s, c] = cell(np.float64(low + c) - means[s], spread)
    now = np.zeros(width)
    for s in range((reach // period + 2) * period - 1, -1, -1):
        for c in range(width):
            now[c] = decay * (chances[(s + 1) % period, c] + now[c])
        if s < period:
            table[s * width : (s + 1) * width] = now
