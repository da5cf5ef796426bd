"""The estimate of recall is within three points of the truth, on generated and on real streams."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

import penstock as ps
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
