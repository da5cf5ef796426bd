"""Where keys lie, against a plain version with dictionaries."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.structures.key_positions import (
    LATELY,
    LISTED,
    NOWHERE,
    REACH,
    THEMSELVES,
    anew,
    listed_bytes,
    move,
    nearness,
    new_places,
)

pytestmark = pytest.mark.interpreted
VALUES = [1.5, -2.0, 4.0, math.inf, math.nan, 1.5]
LINES = [0, 1, 0, 1, 0, 1]
ARRIVALS = st.lists(st.tuples(st.integers(0, 1), st.integers(0, 5)), max_size=30)


class Plain:
    def __init__(self) -> None:
        self.current: dict[tuple[int, int], float] = {}
        self.usual: dict[int, float] = {}

    def distance(self, stream: int, line: int, value: float) -> float | None:
        other = self.current.get((line, 1 - stream), math.nan)
        distance = abs(value - other)
        return distance if distance < math.inf else None

    def move(self, stream: int, line: int, value: float) -> None:
        distance = self.distance(stream, line, value)
        if distance is not None:
            before = self.usual.get(line, 0.0)
            self.usual[line] = before + LATELY * (distance - before) if before else distance
        self.current[line, stream] = value

    def nearness(self, stream: int, line: int, value: float) -> float:
        distance = self.distance(stream, line, value)
        if distance is None:
            return 0.0
        usual = self.usual.get(line, 0.0)
        return math.exp(-distance / (REACH * usual)) if usual else float(distance == 0)


@given(arrivals=ARRIVALS, kind=st.sampled_from([THEMSELVES, LISTED]))
def test_nearness_is_relative_to_what_is_usual_on_a_line(arrivals: list[tuple[int, int]], kind: int) -> None:
    listed = kind == LISTED
    places = new_places(kind, np.array(LINES), np.array(VALUES)) if listed else new_places(kind)
    plain = Plain()
    with np.errstate(invalid="ignore"):  # without the JIT, NumPy warns of the difference of two infinities
        for stream, key in arrivals:
            line, value = (LINES[key], VALUES[key]) if listed else (0, float(key))
            move(places, stream, key)
            plain.move(stream, line, value)
            for side in (0, 1):
                for other in range(len(VALUES)):
                    line, value = (LINES[other], VALUES[other]) if listed else (0, float(other))
                    expected = plain.nearness(side, line, value)
                    assert nearness(places, side, other) == pytest.approx(expected, abs=1e-12)


def test_keys_that_lie_nowhere_are_near_to_nothing() -> None:
    places = new_places(NOWHERE)
    move(places, 0, 7)
    assert nearness(places, 1, 7) == 0.0
    assert np.isnan(places.current).all()


def test_a_list_is_shared_and_what_has_come_is_not() -> None:
    places = new_places(LISTED, np.array(LINES), np.array(VALUES))
    move(places, 0, 2)
    fresh = anew(places)
    assert fresh.value is places.value
    assert np.isnan(fresh.current).all()
    assert listed_bytes(places) == len(VALUES) * (4 + 8)
