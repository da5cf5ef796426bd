"""Positions of keys that are numbers or contain one, and their distance from the other stream's position.

Prices, temperatures and positions move: a key near the other stream's current value is likelier to be asked
for soon than one far off. A key of several parts lies on the line of its other parts (a price on that of its
symbol). Near is what is usual on a line: distances are relative to that between an arrival and the value at
which the other stream was then.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from penstock.compiler.jit import jit

# Where keys lie.
NOWHERE, THEMSELVES, LISTED = 0, 1, 2

LATELY = 1.0 / 32  # the weight of an arrival in the usual distance of its line
REACH = 8.0  # usual distances over which nearness falls to a third


class Places(NamedTuple):
    """The lines, what is known of them, and the place of each code where keys are not numbers themselves."""

    kind: np.ndarray
    line: np.ndarray  # per code
    value: np.ndarray  # per code
    current: np.ndarray  # line, stream -> its last value, NaN before the first
    usual: np.ndarray  # per line: the distance of an arrival from the other stream's value


def new_places(
    kind: int = NOWHERE, line: np.ndarray | None = None, value: np.ndarray | None = None
) -> Places:
    """Nothing has come yet; `line` and `value` of each code if the places are listed."""
    lines = 1 if line is None or len(line) == 0 else int(line.max()) + 1
    return Places(
        kind=np.array([kind], np.int64),
        line=np.empty(0, np.int32) if line is None else np.ascontiguousarray(line, np.int32),
        value=np.empty(0) if value is None else np.ascontiguousarray(value, np.float64),
        current=np.full((lines, 2), np.nan),
        usual=np.zeros(lines),
    )


def anew(places: Places) -> Places:
    """The same places before anything has come; the list is shared."""
    return places._replace(current=np.full_like(places.current, np.nan), usual=np.zeros_like(places.usual))


def listed_bytes(places: Places) -> int:
    """What the list takes, which grows with the keys."""
    return places.line.nbytes + places.value.nbytes


@jit
def _line(places, key):
    return np.int64(places.line[key]) if places.kind[0] == LISTED else np.int64(0)


@jit
def _value(places, key):
    return places.value[key] if places.kind[0] == LISTED else np.float64(key)


@jit
def move(places, stream, key):
    """An arrival: its stream is where its key lies from now on."""
    if places.kind[0] == NOWHERE:
        return
    line, value = _line(places, key), _value(places, key)
    distance = abs(value - places.current[line, 1 - stream])
    if distance < np.inf:  # and there is one
        before = places.usual[line]
        places.usual[line] = distance if before == 0.0 else before + LATELY * (distance - before)
    places.current[line, stream] = value


@jit
def nearness(places, stream, key):
    """From 0 (far) to 1: how near a key is to where the stream now is that a tuple of `stream` waits for."""
    if places.kind[0] == NOWHERE:
        return 0.0
    line = _line(places, key)
    distance = abs(_value(places, key) - places.current[line, 1 - stream])
    if not distance < np.inf:
        return 0.0
    return math.exp(-distance / (REACH * places.usual[line] + 1e-300))
