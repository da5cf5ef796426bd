"""The state of HEEB: models as tables, the competing tuples, and statistics of the streams."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from penstock.engine.score_queue import Queue
from penstock.errors import PolicyOptionError
from penstock.models import (
    AR1,
    LinearTrend,
    Model,
    RandomWalk,
    Seasonal,
    Sequence,
    Stationary,
)
from penstock.models.kernels.benefit import trend_width, walk_width
from penstock.models.kernels.outlook import (
    AUTO,
    KNOWN,
    LOW,
    MIXED,
    PLACES,
    SD,
    SEASON,
    SLOPE,
    STATIC,
    STEP,
    TREND,
    WALK,
    WHOLE,
    WIDTH,
    A,
    B,
    Outlook,
)
from penstock.policies.base import Setting

WAYS = ("auto", "direct", "time", "value", "table")

MOST_DEEP = 1 << 21  # maximum entries of a table with a row per remaining step
MOST_TABLE = 1 << 20
GRID_POINTS = 97  # per side, of the surface of AR(1)
MOST_ALPHA = 512.0  # maximum of an observed alpha
LEARNT_LEFT_OUT = 1e-4  # sum of the weights that a learnt model ignores
OBSERVE = 512  # arrivals between two updates of the average lifetime
HISTORY = 1_024  # values of a stream that a model is learnt from

# Counters.
TICKING = 0  # 1: time counts ticks, 0: the arrivals of each stream
TICK = 1  # the current tick
WAY = 2
LEARNING = 3  # +stream: 1 if its model is learnt
OBSERVING = 5  # 1: alpha follows the average lifetime
NUMERIC = 6  # 1: keys are numbers
ANCHOR = 7  # steps after which an updated benefit is recomputed
ALL = 8  # 1: all tuples compete, not only the oldest of a key
BUCKETS = 9  # buckets of the offset histograms; 0: no histograms
FORM = 10  # the kind of process, if known
HIGH = 11  # +stream: the largest offset of its histogram
FITTED = 13  # +stream: the kind of process of its histogram
COUNTERS = 15

DIRECT, TIMED, VALUED, TABLED = 1, 2, 3, 4

# Stored instead of the place of a tuple among the competing ones.
APART = -1  # an older tuple of its key competes
WAITING = -2  # the tuple is hopeless

# Moments.
BEGAN = 0  # the time of the first arrival
NOW = 1
LIVED = 2  # steps that tuples spent in memory since the last update
GONE = 3  # how many of them left
STARTED = 4  # 1 after the first arrival
COMMON_ALPHA = 5
FADING = 6  # weight that observations of the histograms keep from one fit to the next
MOMENTS = 7


class Hopeless(NamedTuple):
    """Tuples that will never match again, by arrival."""

    queue: Queue


class HeebState(NamedTuple):
    """The models, the competing tuples, and statistics of the streams.

    Tuples of one key and stream have the same prospects except for their windows, so only the oldest of them
    competes (all do if late arrivals make another tuple than the first the oldest). Tuples that a trend has
    passed are worth 0 for ever: they wait in a queue and are not examined again.
    """

    outlook: Outlook
    hopeless: Hopeless
    members: np.ndarray  # the competing tuples of each pool, unordered
    length: np.ndarray
    seen: np.ndarray  # arrivals of each stream
    last: np.ndarray  # the last value of each, as multiples of its step
    rate: np.ndarray  # arrivals per unit of time, 0 if unknown
    factor: np.ndarray  # relative number of arrivals of a stream per tick
    stretch: np.ndarray  # number of its own steps that a stream makes per common step
    counters: np.ndarray
    moments: np.ndarray
    history: np.ndarray
    values: np.ndarray  # of the key codes; empty: a code is its value
    buckets: np.ndarray  # stream, bucket


class Sizes:
    """The sizes that the tables of the models need."""

    def __init__(self, reach: int) -> None:
        self.width = self.places = self.spots = self.table = self.deep = self.history = 0
        self.reach = reach

    def need(self, model: Model | None, way: str, name: str, numeric: bool) -> None:
        """Make room for a model."""
        if model is not None and not numeric and not isinstance(model, Stationary):
            raise PolicyOptionError(
                f"{name}: {type(model).__name__} is a model of numbers, but the keys are not numbers. Use "
                "Stationary, or join on a numeric column."
            )
        if isinstance(model, Sequence):
            self.places = max(self.places, len(set(model.values)))
            self.spots = max(self.spots, len(model.values))
        elif isinstance(model, Stationary):
            self.width = max(self.width, len(model.values))
            self.places = max(self.places, len(model.values))
        elif isinstance(model, LinearTrend):
            noise = model.noise.table
            self.width = max(self.width, len(noise))
            if is_whole(model) and way in ("auto", "table"):
                slope = round(model.slope / model.step)
                self._tables(trend_width(model.noise.low, len(noise), slope, self.reach)[1])
        elif isinstance(model, RandomWalk):
            _, steps = model.steps
            self.width = max(self.width, len(steps))
            if way in ("auto", "table"):
                self._tables(walk_width(model.drift / model.step, _sd(model), self.reach)[1])
        elif isinstance(model, Seasonal):
            self.width = max(self.width, model.period)
        elif isinstance(model, AR1) and way in ("auto", "table"):
            self.table = max(self.table, GRID_POINTS**2)

    def _tables(self, width: int) -> None:
        if width <= MOST_TABLE:
            self.table = max(self.table, width)
            if width * self.reach <= MOST_DEEP:
                self.deep = max(self.deep, width * self.reach)

    def need_to_learn(self, room: int | None) -> None:
        """Make room for a learnt model, within the memory for counts if that is limited."""
        if room is None:
            self.history, places, table = HISTORY, HISTORY, 4_096
        else:
            words = max(0, room // 16 - 2 * self.reach)
            self.history = max(16, words // 8)
            places, table = self.history, max(16, words // 2)
        self.width, self.places = max(self.width, places), max(self.places, places)
        self.table = max(self.table, table)


def is_whole(model: LinearTrend) -> bool:
    """Whether all tuples at one distance from a trend have the same future."""
    return bool(model.slope != 0 and float(model.slope / model.step).is_integer())


def _sd(model: RandomWalk) -> float:
    """Return the spread of the rounded steps, in multiples of the model's step."""
    low, steps = model.steps
    numbers = np.arange(low, low + len(steps))
    return math.sqrt(float((numbers - numbers @ steps) ** 2 @ steps))


def values_of(setting: Setting) -> tuple[np.ndarray, bool]:
    """Return the number of each key code (empty: the code itself), and whether keys are numbers at all."""
    if setting.labels is None:
        return np.zeros(0), True
    labels = setting.labels
    if labels.dtype.kind not in "iuf":
        return np.zeros(0), False
    return np.ascontiguousarray(labels, np.float64), True


def encode(outlook: Outlook, r: int, model: Model | None, setting: Setting | None) -> int:
    """Write a model into the tables; return the value, in steps, that it starts from."""
    ints, par = outlook.ints[r], outlook.par[r]
    par[STEP] = 1.0
    if isinstance(model, Sequence):
        values = np.array(model.values)
        places = np.unique(values)
        order = np.argsort(values, kind="stable")
        outlook.kind[r] = KNOWN
        ints[PLACES] = len(places)
        outlook.places[r, : len(places)] = places
        outlook.starts[r, : len(places) + 1] = np.searchsorted(values[order], np.append(places, np.inf))
        outlook.spots[r, : len(values)] = order
    elif isinstance(model, Stationary):
        numbers, shares = _numbered(model, setting)
        outlook.kind[r] = STATIC
        ints[PLACES] = len(numbers)
        outlook.places[r, : len(numbers)] = numbers
        outlook.noise[r, : len(numbers)] = shares
    elif isinstance(model, LinearTrend):
        noise = model.noise.table
        outlook.kind[r] = TREND
        outlook.noise[r, : len(noise)] = noise
        ints[[LOW, WIDTH]] = model.noise.low, len(noise)
        ints[WHOLE] = is_whole(model)
        ints[SLOPE] = round(model.slope / model.step) if is_whole(model) else 0
        par[[A, B, STEP]] = model.slope / model.step, model.intercept / model.step, model.step
    elif isinstance(model, RandomWalk):
        low, steps = model.steps
        outlook.kind[r] = WALK
        outlook.noise[r, : len(steps)] = steps
        ints[[LOW, WIDTH]] = low, len(steps)
        par[[A, SD, STEP]] = model.drift / model.step, _sd(model), model.step
        return round(model.start / model.step)
    elif isinstance(model, AR1):
        outlook.kind[r] = AUTO
        par[[A, B, SD]] = model.phi, model.mean / model.step, model.spread / model.step
        par[STEP] = model.step
        return round(model.mean / model.step)
    elif isinstance(model, Seasonal):
        outlook.kind[r] = SEASON
        outlook.noise[r, : model.period] = np.array(model.means) / model.step
        ints[WIDTH] = model.period
        ints[MIXED] = max(1, math.ceil(-34.0 / math.log(abs(model.phi))))
        par[[A, SD, STEP]] = model.phi, model.spread / model.step, model.step
        return round(model.means[0] / model.step)
    return 0


def _numbered(model: Stationary, setting: Setting | None) -> tuple[np.ndarray, np.ndarray]:
    """Return the values of a distribution as ordered numbers; keys that are not numbers as their codes."""
    known: Any = model.values
    if setting is not None and setting.labels is not None and setting.labels.dtype.kind not in "iuf":
        codes = {label: code for code, label in enumerate(setting.labels.tolist())}
        pairs = [(float(codes[v]), p) for v, p in zip(known, model.probabilities, strict=True) if v in codes]
    else:
        try:
            pairs = [(float(v), p) for v, p in zip(known, model.probabilities, strict=True)]
        except (TypeError, ValueError) as error:
            raise PolicyOptionError(
                f"heeb: the values of the model are not numbers ({error}), but the keys are."
            ) from error
    pairs.sort()
    return np.array([v for v, _ in pairs], np.float64), np.array([p for _, p in pairs])
