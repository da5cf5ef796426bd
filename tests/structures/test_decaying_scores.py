"""Scores raised by a log of matches against scores raised match by match."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.tuple_cells import new_cells
from penstock.structures import decaying_scores

POWERS = {
    rho: np.cumprod(np.r_[1.0, np.full(decaying_scores.POWERS - 1, rho)]) for rho in (0.1, 0.5, 0.95, 0.9999)
}


@pytest.mark.interpreted
@given(
    rho=st.sampled_from(sorted(POWERS)),
    size=st.integers(1, 30),
    gaps=st.lists(st.integers(0, 100) | st.just(0) | st.integers(0, 50_000), min_size=1, max_size=14),
    seed=st.integers(0, 10**6),
)
def test_a_log_is_the_same_as_one_match_after_the_other(
    rho: float, size: int, gaps: list[int], seed: int
) -> None:
    random = np.random.default_rng(seed)
    start, uses = int(random.integers(1_000)), int(random.integers(1, 9))
    steps = start + np.cumsum(gaps)
    logs, told = decaying_scores.new_logs(8), new_cells(size, decaying_scores.COLUMNS)
    log = decaying_scores.take_log(logs)
    decaying_scores.begin_log(logs, log, start)
    for cell in range(size):
        told.words[cell, decaying_scores.VISIT] = start + cell
        told.floats[cell, decaying_scores.WEIGHT] = random.choice([1.0, 1.5, 20.0])
        told.words[cell, decaying_scores.SINCE] = random.integers(uses)
        if random.random() < 0.3:  # it enters between two matches
            seen = int(random.integers(len(gaps) + 1))
            told.words[cell, decaying_scores.SINCE] = uses + seen
            told.words[cell, decaying_scores.VISIT] += [start, *steps][seen] - start
    asked = told._replace(words=told.words.copy()).with_views()
    for number, step in enumerate(steps.tolist()):
        for cell in range(size):
            if told.words[cell, decaying_scores.SINCE] <= uses + number:
                decaying_scores.raise_weights(told, POWERS[rho], cell, cell + 1, step, size)
        decaying_scores.note(logs, log, step)
    decaying_scores.raise_by_log(asked, POWERS[rho], logs, log, 0, size, size, uses + len(gaps))
    assert np.array_equal(asked.words[:, decaying_scores.VISIT], told.words[:, decaying_scores.VISIT])
    assert asked.floats[:, decaying_scores.WEIGHT] == pytest.approx(
        told.floats[:, decaying_scores.WEIGHT], rel=1e-12, abs=0
    )
    assert logs.steps[log, decaying_scores.LENGTH] == 1
    assert logs.steps[log, decaying_scores.KNOWN] == steps[-1]


@pytest.mark.interpreted
def test_a_log_says_when_it_is_full() -> None:
    logs = decaying_scores.new_logs(16)
    first, second = decaying_scores.take_log(logs), decaying_scores.take_log(logs)
    assert first != 0 != second != first
    assert decaying_scores.take_log(logs) == 0
    decaying_scores.begin_log(logs, first, 0)
    noted = [decaying_scores.note(logs, first, step) for step in range(1, decaying_scores.LOGGED)]
    assert noted == [False] * (decaying_scores.LOGGED - 2) + [True]
    decaying_scores.give_log(logs, first)
    assert decaying_scores.take_log(logs) == first
