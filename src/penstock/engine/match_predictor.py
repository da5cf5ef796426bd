"""What is to come of a key, foretold from what has been: a history, examples from it, and a fit.

Some of the arrivals, chosen by chance, are followed: what is known of the key is taken down, and after a
span of arrivals compared with how often the other stream had the key meanwhile. A tuple that lives on is
taken down again, until it would have expired; whether it was in the buffer does not matter. From these
examples a regression learns which of the rates that the history keeps foretell matches best, and how much it
means that a key is near to where the other stream is now.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from penstock.compiler.jit import jit
from penstock.compiler.references import borrow
from penstock.engine.store import LANDMARK, ROWS, power_of_two
from penstock.structures.key_history import (
    CLOCK,
    EVER,
    FADING,
    KEY,
    RATES,
    ROW_BYTES,
    SCALES,
    WAYS,
    History,
    faded,
    new_history,
    note,
    take_row,
    tick,
)
from penstock.structures.key_positions import Places, anew, move, nearness, new_places
from penstock.structures.random import new_generators, uniform
from penstock.structures.regression import Regression, learn, new_regression, solve

# Features: the rates of the other stream, those of the own, a constant, and nearness on several scales.
CONSTANT = 2 * RATES
NEAR = CONSTANT + 1
SCALES_OF_NEARNESS = 3
FEATURES = NEAR + SCALES_OF_NEARNESS
SOLVE = 64  # examples between two fits
DEFAULT_SPAN = 0.2  # of the buffer, in arrivals over which the matches of an example are counted
DEFAULT_MEMORY = 4_000.0  # examples that count
LASTING = 0.6  # the share of what came ever, in the weights known beforehand; the rest is of what came lately
MOST_FOLLOWED = 512

# Parameters.
SPAN = 0  # arrivals over which the matches of an example are counted
CHANCE = 1  # that an arrival is followed
KEEP = 2  # what is left of an example when the next one comes
PULL = 3  # towards the weights known beforehand
FLOOR = 4  # of the variance of an example, as a share of the usual matches
PACE = 5  # + stream: arrivals per unit of its clock; 0 as long as unknown
USUAL = 7  # + stream: matches of an example, on average
TAUGHT = 9  # 1 if the weights are those of another, and not fitted
DOUBT = 10  # examples that the weights known beforehand count for
PARAMETERS = 11

# Counters.
OLDEST = 0  # of the examples under way
UNDER_WAY = 1
WINDOW = 2  # kind of window
COUNTERS = 3

# Columns of an example.
E_ROW = 0  # of its key in the history
E_DUE = 1  # the arrival at which its matches are counted
E_BORN = 2  # the arrival at which its tuple came
E_STREAM = 3
E_FROM = 4  # the arrival at which its features were taken
EXAMPLE = 5


class MatchPredictor(NamedTuple):
    """The history, the fit, and the examples under way."""

    history: History
    regression: Regression
    example: np.ndarray
    seen: np.ndarray  # features of each example under way, and the count of the other stream
    born: np.ndarray  # the time of its tuple, on the clock of its stream
    scratch: np.ndarray
    parameters: np.ndarray
    counters: np.ndarray
    clock: np.ndarray  # per stream
    horizon: np.ndarray  # per stream
    random: np.ndarray
    places: Places


def new_predictor(
    total: int,
    span: float,
    memory: float,
    time_dtype: np.dtype,
    horizons: tuple[float, ...],
    window: int,
    most_bytes: int | None = None,
    places: Places | None = None,
) -> MatchPredictor:
    """One that knows nothing yet, for a buffer of so many tuples; `places` say where keys lie."""
    rows, followed = max(4096, power_of_two(2 * total)), min(MOST_FOLLOWED, max(32, total // 8))
    if most_bytes is not None:
        per_example = 8 * (EXAMPLE + FEATURES + 2)
        followed = max(4, min(followed, most_bytes // 4 // per_example))
        most = (most_bytes - followed * per_example) // ROW_BYTES - WAYS
        rows = min(rows, 1 << max(most, 16).bit_length() - 1)
    prior = np.zeros(FEATURES)
    prior[:SCALES] = (1.0 - LASTING) / SCALES
    prior[SCALES] = LASTING
    parameters = np.zeros(PARAMETERS)
    parameters[SPAN] = max(2.0, round(span * total))
    parameters[CHANCE] = min(0.25, followed / (8.0 * total))
    parameters[KEEP] = 1.0 - 1.0 / memory
    parameters[PULL] = 1e-3
    parameters[DOUBT] = 8.0
    parameters[FLOOR] = 0.5
    counters = np.zeros(COUNTERS, np.int64)
    counters[WINDOW] = window
    return MatchPredictor(
        history=new_history(rows, max(4.0, total / 8.0)),
        regression=new_regression(prior),
        example=np.zeros((followed, EXAMPLE), np.int64),
        seen=np.zeros((followed, FEATURES + 1)),
        born=np.zeros(followed, time_dtype),
        scratch=np.zeros(FEATURES),
        parameters=parameters,
        counters=counters,
        clock=np.full(2, -1, time_dtype),
        horizon=np.array(horizons, time_dtype),
        random=new_generators(1),
        places=new_places() if places is None else anew(places),
    )


def teach(predictor: MatchPredictor, teacher: MatchPredictor) -> None:
    """Give the predictor of a sample, with few examples of its own, the weights of another."""
    predictor.regression.weight[:] = teacher.regression.weight
    predictor.parameters[TAUGHT] = 1.0


@jit
def attend(predictor, stream, key):
    """One more arrival; the clocks are set. Gives the row of its key, -1 if there is no room for it."""
    history = predictor.history
    tick(history)
    row = take_row(history, key)
    if row >= 0:
        note(history, row, stream)
    move(predictor.places, stream, key)
    counters = predictor.counters
    if counters[UNDER_WAY] > 0 and predictor.example[counters[OLDEST], E_DUE] <= history.meta[CLOCK]:
        _conclude(predictor)
    chosen = uniform(predictor.random, 0) < predictor.parameters[CHANCE]
    if chosen and row >= 0 and counters[UNDER_WAY] < predictor.example.shape[0]:
        _follow(predictor, row, stream, predictor.clock[stream], history.meta[CLOCK])
    return row


@jit
def attend_batch(predictor, stream, key, time, start, stop):
    """Attend to the arrivals of a batch from `start` to `stop`, setting the clocks by their times."""
    _attend_batch(borrow(predictor), stream, key, time, start, stop)


@jit
def _attend_batch(predictor, stream, key, time, start, stop):
    clock = predictor.clock
    for i in range(start, stop):
        mine = np.int64(stream[i])
        if predictor.counters[WINDOW] == ROWS:
            clock[mine] += 1
        else:
            for each in range(2):
                clock[each] = max(clock[each], time[i])
        attend(predictor, mine, key[i])


@jit
def rate(predictor, row, stream):
    """The matches per arrival that a tuple of this stream and the key of this row may expect."""
    history, weight = predictor.history, predictor.regression.weight[stream]
    usual = predictor.parameters[USUAL + stream] / predictor.parameters[SPAN]
    found = weight[CONSTANT] * usual
    if row >= 0:
        part, norm = history.part[row], history.norm
        fading = faded(history, row)
        other, own = FADING + (1 - stream) * SCALES, FADING + stream * SCALES
        for i in range(SCALES - 1, -1, -1):
            found += (weight[i] * part[other + i] + weight[RATES + i] * part[own + i]) * fading / norm[i]
            fading = fading * fading
            fading = fading * fading
        ever = part[EVER + 1 - stream] / norm[SCALES]
        found += weight[SCALES] * ever + weight[RATES + SCALES] * part[EVER + stream] / norm[SCALES]
        near = nearness(predictor.places, stream, history.word[row, KEY])
        for i in range(SCALES_OF_NEARNESS):
            found += weight[NEAR + i] * near * usual
            near = near * near
            near = near * near
        found = max(found, 1e-3 * ever)
    return max(found, 1e-12)


@jit
def time_left(predictor, stream, time):
    """How long a tuple of this time can still match, in the unit of its stream's clock."""
    clock, horizon = predictor.clock[stream], predictor.horizon[stream]
    if predictor.counters[WINDOW] == LANDMARK:
        return np.float64((time // horizon + 1) * horizon - clock)
    return np.float64(time + horizon - clock)


@jit
def worth(predictor, stream, row, time):
    """The matches to come of a tuple within the span, or until it expires."""
    found = rate(predictor, row, stream)
    pace = predictor.parameters[PACE + stream]
    if pace > 0.0:
        found *= max(0.0, min(1.0, time_left(predictor, stream, time) * pace / predictor.parameters[SPAN]))
    return found


@jit
def _follow(predictor, row, stream, time, born):
    """Take down what is known of a key, to compare it later with what came."""
    counters, history = predictor.counters, predictor.history
    now, part, norm = history.meta[CLOCK], history.part[row], history.norm
    at = (counters[OLDEST] + counters[UNDER_WAY]) % predictor.example.shape[0]
    counters[UNDER_WAY] += 1
    history.pins[row] += 1
    example, seen = predictor.example[at], predictor.seen[at]
    example[E_ROW] = row
    example[E_DUE] = now + np.int64(predictor.parameters[SPAN])
    example[E_BORN] = born
    example[E_STREAM] = stream
    example[E_FROM] = now
    predictor.born[at] = time
    fading = faded(history, row)
    other, own = FADING + (1 - stream) * SCALES, FADING + stream * SCALES
    for i in range(SCALES - 1, -1, -1):
        seen[i] = part[other + i] * fading / norm[i]
        seen[RATES + i] = part[own + i] * fading / norm[i]
        fading = fading * fading
        fading = fading * fading
    seen[SCALES] = part[EVER + 1 - stream] / norm[SCALES]
    seen[RATES + SCALES] = part[EVER + stream] / norm[SCALES]
    usual = predictor.parameters[USUAL + stream] / predictor.parameters[SPAN]
    seen[CONSTANT] = usual
    near = nearness(predictor.places, stream, history.word[row, KEY])
    for i in range(SCALES_OF_NEARNESS):
        seen[NEAR + i] = near * usual
        near = near * near
        near = near * near
    seen[FEATURES] = part[EVER + 1 - stream]


@jit
def _conclude(predictor):
    """Learn from the examples whose time is over; a tuple that still lives is the next example."""
    counters, parameters, history = predictor.counters, predictor.parameters, predictor.history
    now, regression = history.meta[CLOCK], predictor.regression
    while counters[UNDER_WAY] > 0:
        at = counters[OLDEST]
        example = predictor.example[at]
        if example[E_DUE] > now:
            return
        row, stream, time, born = example[E_ROW], example[E_STREAM], predictor.born[at], example[E_BORN]
        came = np.float64(history.part[row, EVER + 1 - stream]) - predictor.seen[at, FEATURES]
        span = np.float64(now - example[E_FROM])
        expected = 0.0
        for i in range(FEATURES):
            predictor.scratch[i] = span * predictor.seen[at, i]
            expected += predictor.scratch[i] * regression.weight[stream, i]
        usual = parameters[USUAL + stream]
        usual += (came - usual) / min(regression.examples[stream] + 1.0, 256.0)
        parameters[USUAL + stream] = usual
        if parameters[TAUGHT] != 0.0:
            regression.examples[stream] += 1
        else:
            importance = 1.0 / (max(expected, 0.0) + parameters[FLOOR] * usual + 1e-3)
            learn(regression, stream, predictor.scratch, came, importance, parameters[KEEP])
            if regression.examples[stream] % SOLVE == 0:
                known = min(np.float64(regression.examples[stream]), 1.0 / (1.0 - parameters[KEEP]))
                solve(regression, stream, parameters[PULL] + parameters[DOUBT] / known)
        elapsed = np.float64(predictor.clock[stream] - time)
        if elapsed > 0.0:
            pace, before = np.float64(now - born) / elapsed, parameters[PACE + stream]
            parameters[PACE + stream] = pace if before == 0.0 else before + (pace - before) / 64.0
        counters[OLDEST] = at + 1 if at + 1 < predictor.example.shape[0] else 0
        counters[UNDER_WAY] -= 1
        history.pins[row] -= 1
        if time_left(predictor, stream, time) * parameters[PACE + stream] > parameters[SPAN]:
            _follow(predictor, row, stream, time, born)


def check_predictor(predictor: MatchPredictor) -> None:
    """Assert that pins are those of the examples under way, and that these are in order."""
    pins = np.zeros_like(predictor.history.pins)
    due = []
    for i in range(int(predictor.counters[UNDER_WAY])):
        at = (int(predictor.counters[OLDEST]) + i) % len(predictor.example)
        pins[predictor.example[at, E_ROW]] += 1
        due.append(int(predictor.example[at, E_DUE]))
    assert np.array_equal(pins, predictor.history.pins), "a pin is lost"
    assert due == sorted(due), "an example is out of order"
