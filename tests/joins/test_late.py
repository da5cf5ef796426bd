"""Many late rows warn, once, where a state takes batches in process."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import penstock as ps
from penstock.errors import LateRowsWarning
from penstock.joins import start_many
from penstock.joins.late import FEWEST


def _two(within: int = 10) -> ps.JoinState:
    return ps.WindowJoin(within=within, budget=ps.Tuples(1_000), policy="fifo").start(lateness=5)


def _many(within: int = 10):
    return start_many(2, [(0, 1)], within=within, budget="1000 tuples", policy="fifo", lateness=5)


def _times(late: int, n: int = 1_000) -> np.ndarray:
    """Times that grow by one, except for late ones spread among them."""
    times = np.arange(n) + 1_000
    places = np.linspace(n // 10, n - 1, late).astype(int)
    times[places] -= 500
    return times


def _feed(state, times: np.ndarray, batch: int) -> list[str]:
    with warnings.catch_warnings(record=True, action="always") as caught:
        for start in range(0, len(times), batch):
            part = times[start : start + batch]
            row = np.arange(start, start + len(part))
            state.process(row % 2, row % 7, part, row)
    assert all(each.category is LateRowsWarning for each in caught)
    assert all(each.filename == __file__ for each in caught)
    return [str(each.message) for each in caught]


@pytest.mark.parametrize("start", [_two, _many])
@pytest.mark.parametrize("batch", [10, FEWEST, 1_000])
def test_many_late_rows_warn_once(start, batch: int) -> None:
    """Whatever the size of the batches."""
    state = start()
    messages = _feed(state, _times(late=100), batch)
    assert state.late == 100
    assert len(messages) == 1
    assert "came late" in messages[0]
    assert "lateness=" in messages[0]


@pytest.mark.parametrize("start", [_two, _many])
def test_few_late_rows_do_not_warn(start) -> None:
    """Two in a hundred are allowed, and so are rows within the lateness."""
    state = start()
    assert _feed(state, _times(late=20), 1_000) == []
    assert state.late == 20
    assert _feed(start(), np.arange(1_000) + np.resize([0, 4, -4], 1_000) + 10, 100) == []


@pytest.mark.parametrize("start", [_two, _many])
def test_rows_handed_over_do_not_warn(start) -> None:
    """To the new state, half of them are behind the progress that it takes over."""
    old, new = start(within=1_000), start(within=1_000)
    assert _feed(old, np.arange(1_000), 1_000) == []
    old.advance(5_000, None)
    with warnings.catch_warnings(action="error"):
        new.take_over(old)
    assert new.buffered > 2 * FEWEST
    assert new.late == old.late == 0
    messages = _feed(new, np.arange(1_000, 2_000), 1_000)
    assert len(messages) == 1
    assert messages[0].startswith("50 % of the rows since row 1,000")
