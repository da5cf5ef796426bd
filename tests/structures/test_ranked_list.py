"""The sorted list that knows ranks against a Python list, large enough for blocks to split and merge."""

from __future__ import annotations

import bisect

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.structures.ranked_list import (
    WIDTH,
    block_insert,
    block_rank,
    block_remove,
    block_select,
    new_blocks,
)


class Model:
    """(score, arrival, slot) in order."""

    def __init__(self, capacity: int) -> None:
        self.blocks = new_blocks((capacity, capacity))
        self.entries: list[tuple[float, int, int]] = []

    def insert(self, score: float, arrival: int) -> None:
        block_insert(self.blocks, 1, score, arrival, arrival % 1_000)
        bisect.insort(self.entries, (score, arrival, arrival % 1_000))

    def remove(self, at: int) -> None:
        score, arrival, _ = self.entries.pop(at)
        block_remove(self.blocks, 1, score, arrival)

    def check(self, at: int) -> None:
        score, arrival, slot = self.entries[at]
        assert block_rank(self.blocks, 1, score, arrival) == at
        assert block_select(self.blocks, 1, at) == (score, slot)
        used = int(self.blocks.used[1])
        assert self.blocks.length[1, :used].sum() == len(self.entries)
        assert (self.blocks.length[1, :used] > 0).all()
        assert sorted(self.blocks.order[1].tolist()) == list(range(self.blocks.order.shape[1]))
        assert self.blocks.used[0] == 0, "the other pool is untouched"


@settings(max_examples=30)
@given(
    operations=st.lists(
        st.tuples(st.booleans(), st.floats(0, 1), st.integers(0, 6)), min_size=1, max_size=120
    ),
)
def test_short_lists(operations: list[tuple[bool, float, int]]) -> None:
    model = Model(200)
    for arrival, (put, where, score) in enumerate(operations):
        if put or not model.entries:
            model.insert(float(score), arrival)
        else:
            model.remove(int(where * (len(model.entries) - 1)))
        if model.entries:
            model.check(int(where * (len(model.entries) - 1)))


@pytest.mark.parametrize("order", ["rising", "falling", "random", "equal"])
def test_long_lists(order: str) -> None:
    """Fill to several blocks, thin out to a tenth, fill again: never more blocks than there are."""
    random = np.random.default_rng(1)
    capacity = 6 * WIDTH
    model = Model(capacity)
    arrival = 0
    for round_number in range(3):
        while len(model.entries) < capacity:
            score = {"rising": arrival, "falling": -arrival, "random": random.integers(0, 50), "equal": 7}[
                order
            ]
            model.insert(float(score), arrival)
            arrival += 1
            if arrival % 97 == 0:
                model.check(int(random.integers(len(model.entries))))
        while len(model.entries) > capacity // 10:
            at = {0: 0, 1: len(model.entries) - 1, 2: int(random.integers(len(model.entries)))}[round_number]
            model.remove(at)
            if len(model.entries) % 97 == 0:
                model.check(int(random.integers(len(model.entries))))
        for at in range(0, len(model.entries), 11):
            model.check(at)


def test_blocks_thinned_one_by_one_do_not_run_out() -> None:
    """The worst case for merging: every block is left a little above the size at which it would merge."""
    random = np.random.default_rng(2)
    capacity = 8 * WIDTH
    model = Model(capacity)
    for arrival in range(40 * WIDTH):
        if len(model.entries) == capacity:
            model.remove(int(random.integers(capacity)))
        model.insert(float(random.normal() * (1 + arrival // WIDTH)), arrival)
        assert model.blocks.used[1] < model.blocks.order.shape[1]
    for at in range(0, capacity, 53):
        model.check(at)
