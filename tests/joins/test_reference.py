"""Counts of an independent simulation on a day of stock trades."""

from __future__ import annotations

import pandas as pd
import pytest

import penstock as ps
from tests.data import real

EXACT = 6_288_222
RESULTS = {
    "fifo": 1_687_232,
    "lru": 1_941_509,
    "lfu": 766_539,
    "prob": 1_145_923,
    "life": 1_393_513,
    "gdj": 1_888_449,
    "clock": 1_852_214,
    "clock-exp": 1_969_950,
}


@pytest.fixture(scope="module")
def trades() -> tuple[pd.DataFrame, pd.DataFrame]:
    """Buys and sells."""
    found = pd.read_parquet(real("stock_trades.parquet"), columns=["ms", "symbol", "price", "side"])
    return found[found["side"] == "B"], found[found["side"] == "S"]


@pytest.mark.parametrize("policy", RESULTS)
def test_reference_counts(policy: str, trades: tuple[pd.DataFrame, pd.DataFrame]) -> None:
    join = ps.WindowJoin(within=600_000, budget=ps.Tuples(576), policy=policy, allocation="equal")
    stats = join.run(*trades, on=["symbol", "price"], time="ms").stats
    assert stats.exact == EXACT
    assert stats.results == RESULTS[policy]
    assert stats.peak_tuples == 576
    assert stats.arrivals == stats.buffered + stats.expired + stats.evicted


def test_collected_pairs_are_right(trades: tuple[pd.DataFrame, pd.DataFrame]) -> None:
    """Every pair of a collected run has one key and is close enough in time, and none comes twice."""
    buys, sells = (side.reset_index(drop=True) for side in trades)
    join = ps.WindowJoin(within=600_000, budget=ps.Tuples(576), policy="lru", allocation="equal")
    found = join.run(buys, sells, on=["symbol", "price"], time="ms", collect=True).pairs.to_pandas()
    assert len(found) == RESULTS["lru"]
    assert not found.duplicated().any()
    left, right = (
        side.iloc[found[name]].reset_index(drop=True)
        for side, name in ((buys, "left_row"), (sells, "right_row"))
    )
    assert (left["symbol"] == right["symbol"]).all()
    assert (left["price"] == right["price"]).all()
    assert (left["ms"] - right["ms"]).abs().max() <= 600_000


def test_the_same_from_arrow_and_from_timestamps(trades: tuple[pd.DataFrame, pd.DataFrame]) -> None:
    stamped = [side.assign(ms=pd.to_datetime(side["ms"], unit="ms")) for side in trades]
    join = ps.WindowJoin(within="10 minutes", budget=ps.Tuples(576), policy="fifo", allocation="equal")
    assert join.run(*stamped, on=["symbol", "price"], time="ms").stats.results == RESULTS["fifo"]
