"""The estimate of recall is within three points of the truth, on generated and on real streams."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

import penstock as ps
from penstock.errors import LateRowsWarning
from penstock.joins import start_many
from penstock.joins.stream import StreamState
from tests.data import real

Streams = tuple[pd.DataFrame, pd.DataFrame, int]  # each with key and ts, and the window
HOUR = 3_600_000_000_000


def generated() -> Streams:
    """Zipf keys, an arrival per unit of time."""
    rng, n, keys = np.random.default_rng(7), 60_000, 3_000
    weights = np.arange(1, keys + 1) ** -0.75
    both = pd.DataFrame({"key": rng.choice(keys, n, p=weights / weights.sum()), "ts": np.arange(n)})
    left = rng.random(n) < 0.5
    return both[left], both[~left], 5_000


def stock() -> Streams:
    """Buys and sells on symbol and price within ten minutes."""
    trades = pd.read_parquet(real("stock_trades.parquet"))
    both = pd.DataFrame({"key": trades["symbol"] + trades["price"].astype(str), "ts": trades["ms"]})
    return both[trades["side"] == "B"], both[trades["side"] == "S"], 600_000


def weather() -> Streams:
    """Two stations on the dew point within a week."""
    hourly = pd.read_parquet(real("beijing_weather.parquet")).dropna(subset=["DEWP"])
    hours = pd.to_datetime(hourly["time"]).astype("datetime64[ns]").astype("int64") // HOUR
    both = pd.DataFrame({"key": hourly["DEWP"], "ts": hours})
    first, second = sorted(hourly["station"].unique())[:2]
    return both[hourly["station"] == first], both[hourly["station"] == second], 7 * 24


def arrivals(left: pd.DataFrame, right: pd.DataFrame) -> tuple[np.ndarray, ...]:
    """Both streams in processing order: streams, codes of keys, times, rows."""
    both = pd.concat([left, right])
    stream = np.repeat([0, 1], [len(left), len(right)])
    order = np.lexsort((stream, both["ts"]))
    codes = pd.factorize(both["key"])[0]
    return stream[order], codes[order], both["ts"].to_numpy()[order], np.arange(len(both))


@pytest.mark.parametrize("streams", [generated, stock, weather])
def test_the_estimated_recall_is_near_the_truth(streams: Any) -> None:
    left, right, within = streams()
    batch = arrivals(left, right)
    span = float(batch[2].max() - batch[2].min())
    exact = ps.WindowJoin(within=within, budget=ps.Tuples(4), policy="fifo").run(
        left, right, on="key", time="ts"
    )
    off = {}
    for share in (0.05, 0.2, 0.5):
        tuples = ps.Tuples(ps.Fraction(share).tuples(len(batch[0]), within, span))
        for policy in ("fifo", "gdj", "prob", "clock-exp"):
            join = ps.WindowJoin(within=within, budget=tuples, policy=policy, allocation="unified")
            state = join.start(lateness=0)
            assert isinstance(state, StreamState)
            state.process(*batch)
            truth = state.totals()["results"] / exact.stats.exact
            assert state.estimated_recall is not None
            assert not state.recall.at_most
            off[policy, share] = state.estimated_recall - truth
    print({cell: round(error, 4) for cell, error in off.items()})
    assert max(map(abs, off.values())) <= 0.03


@pytest.mark.filterwarnings("ignore::penstock.errors.LateRowsWarning")
@pytest.mark.parametrize("many", [False, True])
@pytest.mark.parametrize("late", [0.004, 0.01, 0.03])
def test_few_rows_that_come_too_late_with_a_hot_key_do_not_flatter(many: bool, late: float) -> None:
    """They lose far more than their share, in panes that the sketch has forgotten."""
    rng, n, within = np.random.default_rng(1), 20_000, 500
    stream, key, time = rng.integers(0, 2, n), rng.integers(0, 2_000, n), np.arange(n)
    key[rng.random(n) < 0.2] = 0
    behind = rng.random(n) < late
    behind[: n // 2] = False
    key[behind] = 0
    time[behind] -= rng.integers(3_000, 9_000, behind.sum())
    exact = 0
    for each in range(2_000):
        left, right = (np.sort(time[(key == each) & (stream == side)]) for side in (0, 1))
        near = np.searchsorted(right, left + within, "right") - np.searchsorted(right, left - within)
        exact += int(near.sum())
    options: dict[str, Any] = {"within": within, "budget": ps.Tuples(5_000), "policy": "fifo"}
    state: Any = start_many(2, [(0, 1)], **options) if many else ps.WindowJoin(**options).start(lateness=0)
    for rows in np.array_split(np.arange(n), 20):
        state.process(stream[rows], key[rows], time[rows], rows)
    truth = state.totals()["results"] / exact
    assert state.recall.value is None or (state.recall.at_most and state.recall.value <= truth + 0.08)
    if not many:
        restored = StreamState.restore(state.snapshot())
        assert (restored.guessed, str(restored.recall)) == (state.guessed, str(state.recall))


def test_rows_that_come_too_late_for_a_key_that_was_hot_do_not_flatter() -> None:
    """Of a sale that was over long before, a hundred rows of 54,100 come late, with 4,000 partners each."""
    rng, within, n = np.random.default_rng(5), 100, 50_000
    usual = [(time, int(rng.integers(0, 2)), int(rng.integers(100, 5_000)), time) for time in range(n)]
    sale = [(1_000 + i / 40, 0, 1, int(1_000 + i / 40)) for i in range(4_000)]
    late = [
        (1_000 + time + within * after, 1, 1, int(1_000 + time))
        for time, after in zip(rng.uniform(0, 100, 100), rng.uniform(100, 300, 100), strict=True)
    ]
    arrivals = np.array([each[1:] for each in sorted([*usual, *sale, *late])])
    join = ps.WindowJoin(within=within, budget=ps.Tuples(20_000), policy="gdj")
    state = join.start(lateness=0)

    def process_all() -> None:
        for rows in np.array_split(np.arange(len(arrivals)), 100):
            rows = rows[np.argsort(arrivals[rows, 2], kind="stable")]
            state.process(arrivals[rows, 0], arrivals[rows, 1], arrivals[rows, 2], rows)

    with pytest.warns(LateRowsWarning, match="so recall is unknown"):
        process_all()
    assert isinstance(state, StreamState)
    missed = 100 * 2_000  # each late row has at least half of the sale as partners
    assert state.totals()["results"] < 0.01 * missed
    assert str(state.recall) == "unknown"
    assert StreamState.restore(state.snapshot()).guessed == state.guessed
