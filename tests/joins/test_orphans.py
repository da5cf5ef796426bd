"""Clicks without an impression: most come out at a tenth of the memory, and none wrongly."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest

import penstock as ps
from penstock.joins.arrivals import arrivals_of

IMPRESSIONS, WINDOW, MINUTES = 60_000, 900_000, 144


@functools.cache
def clicks_and_impressions() -> tuple[dict[str, Any], dict[str, Any], set[int]]:
    """Every other impression is clicked, four minutes later on average; as many clicks come from nowhere."""
    rng, span = np.random.default_rng(1), MINUTES * 60_000
    shown = np.sort(rng.integers(0, span, IMPRESSIONS))
    clicked = np.flatnonzero(rng.random(IMPRESSIONS) < 0.5)
    delay = rng.exponential(240_000, len(clicked)).astype(np.int64)
    stray = IMPRESSIONS - len(clicked)
    key = np.concatenate([clicked, IMPRESSIONS + np.arange(stray)])
    time = np.concatenate([shown[clicked] + delay, rng.integers(0, span, stray)])
    alone = np.concatenate([delay > WINDOW, np.ones(stray, bool)])
    order = np.argsort(time, kind="stable")
    clicks = {"id": key[order], "ts": time[order]}
    return clicks, {"id": np.arange(IMPRESSIONS), "ts": shown}, set(np.flatnonzero(alone[order]).tolist())


def tenth() -> ps.Tuples:
    return ps.Tuples(int(0.1 * IMPRESSIONS * WINDOW / (MINUTES * 60_000)))


@pytest.mark.parametrize("policy", ["fifo", "gdj", "learned", "auto"])
def test_most_come_out_and_none_wrongly(policy: str) -> None:
    clicks, impressions, alone = clicks_and_impressions()
    join = ps.WindowJoin(within=("15 minutes", "0 s"), budget=tenth(), policy=policy, how="left")
    run = join.run(clicks, impressions, on="id", time="ts", collect=True)
    assert run.pairs is not None
    left, right = (run.pairs.column(side).to_pylist() for side in ("left_row", "right_row"))
    found = {row for row, partner in zip(left, right, strict=True) if partner is None}
    assert found <= alone
    assert len(found) == run.stats.unmatched > 0.75 * len(alone)


@pytest.mark.parametrize("policy", ["fifo", "auto"])
def test_most_come_out_of_streams_that_advance_independently(policy: str) -> None:
    clicks, impressions, alone = clicks_and_impressions()
    join = ps.WindowJoin(within=("15 minutes", "0 s"), budget=tenth(), policy=policy, how="left")
    state = join.start(lateness=0)
    arrivals = arrivals_of(clicks, impressions, "id", "ts", "ms", sized=False)
    for rows in np.array_split(np.arange(len(arrivals.key)), 10):
        state.process(arrivals.stream[rows], arrivals.key[rows], arrivals.time[rows], arrivals.row[rows])
    state.finish()
    assert 0.6 * len(alone) < state.totals()["unmatched"] <= len(alone)
