"""The streams of the experiments: real ones from a folder, or generated ones of the same shape.

Every function gives a label with its streams, which goes into the tables: a report says what it ran on.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from penstock.workloads import gdj_pair

SYMBOLS = ("IPIX", "QQQ", "INTC", "MSFT", "CSCO", "RIMM", "AMAT", "ORCL", "DELL", "YHOO")


class Pair(NamedTuple):
    """Two streams to join on `key` and `ts`, their window, and where they are from."""

    left: pd.DataFrame
    right: pd.DataFrame
    within: int
    source: str

    def first(self, rows: int | None) -> Pair:
        """The first rows of both, all with None."""
        return self if rows is None else self._replace(left=self.left[:rows], right=self.right[:rows])


def file_of(data: str | None, name: str) -> Path | None:
    """A file of real data, or None."""
    path = None if data is None else Path(data) / name
    return path if path is not None and path.is_file() else None


def trades(data: str | None) -> tuple[pd.DataFrame, str]:
    """A day of trades: `ms`, `symbol`, `price`, `side`.

    >>> from penstock.reproduction.inputs import trades
    >>> frame, source = trades(None)
    >>> sorted(frame.columns), source
    (['ms', 'price', 'side', 'symbol'], 'generated trades')
    """
    path = file_of(data, "stock_trades.parquet")
    if path is not None:
        return pd.read_parquet(path, columns=["ms", "symbol", "price", "side"]), path.name
    rng = np.random.default_rng(1)
    n = 224_473
    gaps = np.where(rng.random(n) < 0.5, rng.integers(0, 3, n), rng.exponential(220, n).astype(int))
    share = np.array([20, 13, 12, 10, 9, 8, 8, 7, 7, 6]) / 100
    which = rng.choice(len(SYMBOLS), n, p=share)
    price = np.empty(n)
    for s in range(len(SYMBOLS)):  # each price walks in cents, and mostly stands still
        mine = np.flatnonzero(which == s)
        price[mine] = 20 + 10 * s + np.cumsum(rng.choice([-0.01, 0.0, 0.01], len(mine), p=[0.15, 0.7, 0.15]))
    side = np.where(rng.random(n) < 0.5, "B", "S")
    frame = {"ms": np.cumsum(gaps), "symbol": np.array(SYMBOLS)[which], "price": price.round(2), "side": side}
    return pd.DataFrame(frame), "generated trades"


def stock(data: str | None) -> Pair:
    """Buys and sells on symbol and price, within ten minutes.

    >>> from penstock.reproduction.inputs import stock
    >>> stock(None).within
    600000
    """
    frame, source = trades(data)
    key = pd.factorize(frame["symbol"].astype(str) + " " + frame["price"].astype(str))[0]
    keyed = pd.DataFrame({"key": key, "ts": frame["ms"].to_numpy(), "side": frame["side"].to_numpy()})
    sides = [keyed[keyed.side == side][["key", "ts"]].reset_index(drop=True) for side in "BS"]
    return Pair(sides[0], sides[1], 600_000, source)


def weather(data: str | None) -> Pair:
    """Dew points of two springs, a reading a minute as in the paper, within 600 minutes.

    The readings of the twelve stations of an hour follow each other. Generated, they are those of slow
    AR(1) series, one per station, around a spring that warms.

    >>> from penstock.reproduction.inputs import weather
    >>> weather(None).source
    'generated dew points'
    """
    path = file_of(data, "beijing_weather.parquet")
    sides = []
    if path is not None:
        frame = pd.read_parquet(path, columns=["time", "station", "DEWP"]).dropna()
        when = pd.to_datetime(frame["time"])
        for year in (2014, 2015):
            mine = frame[(when.dt.year == year) & when.dt.month.between(3, 5)].sort_values(
                ["time", "station"]
            )
            sides.append(np.rint(2 * mine["DEWP"].to_numpy()).astype(np.int64))
        source = path.name
    else:
        rng = np.random.default_rng(2)
        hours, stations = 24 * 92, 12
        for _ in range(2):
            region = _slow(hours, 0.97, 1.2, rng)
            own = np.stack([_slow(hours, 0.9, 0.6, rng) for _ in range(stations)], axis=1)
            dew = np.linspace(-8, 10, hours)[:, None] + region[:, None] + own
            sides.append(np.rint(2 * dew.ravel()).astype(np.int64))
        source = "generated dew points"
    left, right = (pd.DataFrame({"key": s, "ts": np.arange(len(s))}) for s in sides)
    return Pair(left, right, 600, source)


def _slow(length: int, phi: float, sigma: float, rng: np.random.Generator) -> np.ndarray:
    from scipy.signal import lfilter

    return np.asarray(lfilter([1.0], [1.0, -phi], rng.normal(0, sigma, length)))


def synthetic(data: str | None = None, *, within: int = 60, **options: Any) -> Pair:
    """The paper's generator: 100 values, skew 0.75, Pareto gaps, a day of minutes."""
    left, right = gdj_pair(**options)
    return Pair(left, right, within, "generator of section 5.1.1")


PAIRS = {"stock": stock, "weather": weather, "synthetic": synthetic}
