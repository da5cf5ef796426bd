"""The history of keys: which keys it has, against a plain table, and what memory it touches."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.structures.key_history import (
    CLOCK,
    EVER,
    KEY,
    TAKEN,
    WAYS,
    find_row,
    new_history,
    note,
    take_row,
    tick,
)

ROWS, SHORTEST = 16, 4.0
MASK = 2**64 - 1


class PlainHistory:
    """Places with all that is known of their key."""

    def __init__(self) -> None:
        self.places: list[dict[str, float] | None] = [None] * (ROWS + WAYS)
        self.now = 0

    def _first(self, key: int) -> int:
        mixed = key * 0x9E3779B97F4A7C15 & MASK
        mixed = (mixed ^ mixed >> 29) * 0xBF58476D1CE4E5B9 & MASK
        return (mixed >> 32) & (ROWS - 1)

    def find(self, key: int) -> dict[str, float] | None:
        ways = self.places[self._first(key) : self._first(key) + WAYS]
        return next((place for place in ways if place is not None and place["key"] == key), None)

    def attend(self, key: int) -> None:
        self.now += 1
        place = self.find(key)
        if place is None:
            ways = range(self._first(key), self._first(key) + WAYS)
            at = next((at for at in ways if self.places[at] is None), None)
            if at is None:
                at = min(ways, key=self._weight)
            place = self.places[at] = {"key": key, "heavy": 0.0, "last": self.now, "ever": 0}
        place["heavy"] = place["heavy"] * math.exp((place["last"] - self.now) / (SHORTEST * 64)) + 1.0
        place["last"] = self.now
        place["ever"] += 1

    def _weight(self, at: int) -> float:
        place = self.places[at]
        assert place is not None
        return place["heavy"] * math.exp((place["last"] - self.now) / (SHORTEST * 64))


@pytest.mark.interpreted
@given(keys=st.lists(st.integers(0, 45), max_size=150))
def test_it_has_the_keys_of_a_plain_table(keys: list[int]) -> None:
    plain, history = PlainHistory(), new_history(ROWS, SHORTEST)
    for key in keys:
        plain.attend(key)
        tick(history)
        note(history, take_row(history, key), 0)
    assert history.meta[CLOCK] == len(keys)
    assert history.meta[TAKEN] == sum(place is not None for place in plain.places)
    for key in range(46):
        row, place = find_row(history, key), plain.find(key)
        assert (row < 0) == (place is None), key
        if place is not None:
            assert history.word[row, KEY] == key
            assert history.part[row, EVER] == place["ever"]


@pytest.mark.interpreted
def test_rows_are_taken_one_after_the_other() -> None:
    """What no key has needed is never touched, so it takes no memory."""
    history = new_history(1 << 12, 100.0)
    for key in np.random.default_rng(1).integers(-(2**62), 2**62, 200).tolist():
        tick(history)
        note(history, take_row(history, key), 0)
    assert history.meta[TAKEN] == 200
    assert history.word[:200, KEY + 1].all()
    assert not history.word[200:].any()
