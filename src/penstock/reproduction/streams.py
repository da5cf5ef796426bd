"""The streams of the experiments: real ones if their files are available, otherwise generated.

Each says how far it is known to the policies: `tuned` if parameters were tuned on it, `seen` if what policies
do on it was looked at while they took shape, `apart` if it was added when they were finished.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from penstock import workloads
from penstock.errors import PenstockError, hint
from penstock.reproduction.generated import (
    crowds,
    drift,
    news,
    periodic,
    popularity,
    regimes,
    sessions,
    split,
)

HOUR = 3_600_000


@dataclass(frozen=True)
class Stream:
    """Two streams to join, and how.

    >>> from penstock.reproduction.streams import streams
    >>> [found] = streams(names=["walk"], quick=True)
    >>> found.name, found.on, found.within
    ('walk', 'key', 200)
    """

    name: str
    about: str
    left: pd.DataFrame
    right: pd.DataFrame
    on: Any
    within: int
    kind: str  # tuned, seen or apart
    real: bool

    @property
    def arrivals(self) -> int:
        """Of both streams together."""
        return len(self.left) + len(self.right)

    @property
    def warmup(self) -> int:
        """The arrivals of the first two windows, but no more than half of all."""
        ts = np.sort(np.concatenate([self.left["ts"].to_numpy(), self.right["ts"].to_numpy()]))
        first = int(np.searchsorted(ts, ts[0] + 2 * self.within)) if len(ts) else 0
        return min(first, len(ts) // 2)


@dataclass(frozen=True)
class _Source:
    """Where a stream comes from: a function of the directory of the data (real) or of `quick`."""

    make: Callable[..., tuple[pd.DataFrame, pd.DataFrame]]
    about: str
    within: int
    on: Any = "key"
    kind: str = "apart"
    file: str = ""
    quick_within: int | None = None


def streams(
    data: str | Path | None = None, names: list[str] | None = None, quick: bool = False
) -> list[Stream]:
    """The streams asked for, or all of which the data are at hand.

    `quick` cuts each to its first tenth or so.

    >>> from penstock.reproduction.streams import streams
    >>> any(stream.real for stream in streams(quick=True))
    False
    """
    for name in names or []:
        if name not in _SOURCES:
            raise PenstockError(f"There is no stream {name!r}{hint(name, list(_SOURCES))}")
    if data is not None and not Path(data).is_dir():
        raise PenstockError(f"{data} is not a directory; give the one with the real streams.")
    found = []
    for name, source in _SOURCES.items():
        if names is not None and name not in names:
            continue
        if source.file:
            if data is None or not (Path(data) / source.file).exists():
                continue
            left, right = source.make(Path(data) / source.file)
            if quick:
                left, right = (_head(part, left, right) for part in (left, right))
        else:
            left, right = source.make(quick)
        within = source.quick_within if quick and source.quick_within else source.within
        found.append(
            Stream(name, source.about, left, right, source.on, within, source.kind, bool(source.file))
        )
    return found


def available(data: str | Path | None = None) -> list[str]:
    """The names of the streams that can be had: those that are generated, and those whose files are there.

    >>> from penstock.reproduction.streams import available
    >>> "zipf" in available(), "stock" in available()
    (True, False)
    """
    absent = missing(data)
    return [name for name in _SOURCES if name not in absent]


def held_apart(name: str) -> bool:
    """Whether a stream was added when the policies were finished.

    >>> from penstock.reproduction.streams import held_apart
    >>> held_apart("zipf"), held_apart("news")
    (False, True)
    """
    return _SOURCES[name].kind == "apart"


def missing(data: str | Path | None = None, names: list[str] | None = None) -> dict[str, str]:
    """The streams whose files are not at hand, with the name of the file.

    >>> from penstock.reproduction.streams import missing
    >>> missing()["stock"]
    'stock_trades.parquet'
    """
    return {
        name: source.file
        for name, source in _SOURCES.items()
        if source.file
        and (names is None or name in names)
        and (data is None or not (Path(data) / source.file).exists())
    }


def _head(part: pd.DataFrame, left: pd.DataFrame, right: pd.DataFrame) -> pd.DataFrame:
    """The part of a stream before the time at which a tenth of both has come."""
    ts = np.sort(np.concatenate([left["ts"].to_numpy(), right["ts"].to_numpy()]))
    return part[part["ts"] <= ts[len(ts) // 10]].reset_index(drop=True)


def _milliseconds(times: pd.Series) -> np.ndarray:
    return pd.to_datetime(times, utc=True).astype("datetime64[ms, UTC]").astype(np.int64).to_numpy()


def _stock(path: Path) -> tuple[pd.DataFrame, pd.DataFrame]:
    trades = pd.read_parquet(path, columns=["ms", "symbol", "price", "side"]).rename(columns={"ms": "ts"})
    return split(trades, trades["side"] == "B")


def _stock_volume(path: Path) -> tuple[pd.DataFrame, pd.DataFrame]:
    trades = pd.read_parquet(path, columns=["ms", "symbol", "volume", "side"]).rename(columns={"ms": "ts"})
    return split(trades, trades["side"] == "B")


def _beijing(*keys: str) -> Callable[[Path], tuple[pd.DataFrame, pd.DataFrame]]:
    """Every other station with the others, on some of what they measure."""

    def make(path: Path) -> tuple[pd.DataFrame, pd.DataFrame]:
        hourly = pd.read_parquet(path, columns=["time", "station", *keys]).dropna()
        return split(_keyed(hourly, keys, "time"), hourly["station"].rank(method="dense") % 2 == 1)

    return make


def _keyed(table: pd.DataFrame, keys: tuple[str, ...], time: str) -> pd.DataFrame:
    """The columns of the key, which is called so if it is one, and the time."""
    names = {keys[0]: "key"} if len(keys) == 1 else {}
    return table[[*keys]].rename(columns=names).assign(ts=_milliseconds(table[time]))


def _nyc(*keys: str, whole: bool = False) -> Callable[[Path], tuple[pd.DataFrame, pd.DataFrame]]:
    """Newark with the other two airports, on some of what they measure; `whole`: rounded."""

    def make(path: Path) -> tuple[pd.DataFrame, pd.DataFrame]:
        hourly = pd.read_parquet(path, columns=["time_hour", "origin", *keys]).dropna()
        hourly = hourly.sort_values(["time_hour", "origin"], kind="stable")
        if whole:
            hourly = hourly.round(dict.fromkeys(keys, 0))
        return split(_keyed(hourly, keys, "time_hour"), hourly["origin"] == "EWR")

    return make


def _srbench(path: Path) -> tuple[pd.DataFrame, pd.DataFrame]:
    found = pd.read_csv(path, usecols=["samplingtime", "stationid", "dewpoint"]).dropna()
    ts = _milliseconds(found["samplingtime"].str.slice(0, 19))
    order = np.argsort(ts, kind="stable")
    table = pd.DataFrame({"key": found["dewpoint"].to_numpy()[order], "ts": ts[order]})
    return split(table, found["stationid"].to_numpy()[order] % 2 == 0)


def _sensors(path: Path) -> tuple[pd.DataFrame, pd.DataFrame]:
    found = pd.read_parquet(path)
    found = found[found["Variable"] == "RelativeAirHumidity"].sort_values("Fecha", kind="stable")
    table = pd.DataFrame({"key": found["Valor"].round(0), "ts": _milliseconds(found["Fecha"])})
    return split(table, found["Sitio"].rank(method="dense") % 2 == 1)


def _shop(path: Path) -> tuple[pd.DataFrame, pd.DataFrame]:
    key = pd.read_parquet(path)["key"].to_numpy()
    table = pd.DataFrame({"key": key, "ts": np.arange(len(key))})
    return split(table, np.arange(len(key)) % 2 == 0)


def _sensors_temp(path: Path) -> tuple[pd.DataFrame, pd.DataFrame]:
    found = pd.read_parquet(path)
    found = found[found["Variable"] == "AirTemperature"].sort_values("Fecha", kind="stable")
    table = pd.DataFrame({"key": found["Valor"].round(1), "ts": _milliseconds(found["Fecha"])})
    return split(table, found["Sitio"].rank(method="dense") % 2 == 1)


def _melbourne(path: Path) -> tuple[pd.DataFrame, pd.DataFrame]:
    daily = pd.read_csv(path)
    half = len(daily) // 2
    table = pd.DataFrame({"key": daily["maxtemp"], "ts": daily["day"] % half})
    return split(table, daily["day"] < half)


_SOURCES: dict[str, _Source] = {
    "stock": _Source(
        _stock,
        "buys with sells on symbol and price, 10 minutes",
        600_000,
        ["symbol", "price"],
        kind="tuned",
        file="stock_trades.parquet",
    ),
    "beijing": _Source(
        _beijing("DEWP"),
        "stations on dew point, 7 days",
        168 * HOUR,
        kind="tuned",
        file="beijing_weather.parquet",
    ),
    "stock-volume": _Source(
        _stock_volume,
        "buys with sells on symbol and volume, 2 minutes",
        120_000,
        ["symbol", "volume"],
        kind="seen",
        file="stock_trades.parquet",
    ),
    "nyc": _Source(
        _nyc("dewp"), "airports on dew point, 14 days", 336 * HOUR, kind="seen", file="nyc_weather.parquet"
    ),
    "srbench": _Source(
        _srbench, "stations on dew point, 1 hour", HOUR, kind="seen", file="srbench_observations.csv"
    ),
    "sensors": _Source(
        _sensors, "sites on humidity, 1 day", 24 * HOUR, kind="seen", file="wind_sensors.parquet"
    ),
    "shop": _Source(
        _shop,
        "even with odd requests for pages, 10,000 requests",
        10_000,
        kind="seen",
        file="shop_requests.parquet",
    ),
    "zipf": _Source(
        lambda quick: workloads.zipf_pair(4_000 if quick else 40_000),
        "stationary Zipf 0.75, 1,000 keys, 5 seconds",
        5_000,
        kind="tuned",
        quick_within=500,
    ),
    "walk": _Source(
        lambda quick: workloads.walk(steps=2_000 if quick else 20_000),
        "two random walks, 1,000 ticks",
        1_000,
        kind="tuned",
        quick_within=200,
    ),
    "bursts": _Source(
        lambda quick: workloads.bursty_pair(20 if quick else 120, bursts=2 if quick else 12),
        "Zipf 0.75 with bursts of 50 times the rate, 5 seconds",
        5_000,
        kind="tuned",
    ),
    "gdj": _Source(
        lambda quick: workloads.gdj_pair(rate=2 if quick else 20),
        "GDJ's Pareto gaps, 100 keys, 60 minutes",
        60,
        kind="tuned",
    ),
    "gdj-1000": _Source(
        lambda quick: workloads.gdj_pair(rate=2 if quick else 20, keys=1_000, alpha=0.5, seed=3),
        "GDJ's Pareto gaps, 1,000 keys, 120 minutes",
        120,
        kind="seen",
    ),
    "zipf-inverse": _Source(
        lambda quick: workloads.zipf_pair(4_000 if quick else 40_000, correlation="inverse", seed=4),
        "Zipf with inverse ranks, 5 seconds",
        5_000,
        kind="seen",
        quick_within=500,
    ),
    "drift": _Source(
        drift, "Zipf 0.9 whose keys are renewed, 5,000 arrivals", 5_000, kind="seen", quick_within=1_000
    ),
    "tower": _Source(
        lambda quick: workloads.tower(steps=2_000 if quick else 20_000, seed=2),
        "HEEB's TOWER: a linear trend with noise, 100 ticks",
        100,
        kind="seen",
    ),
    "regimes": _Source(
        lambda quick: regimes(3_000 if quick else 40_000),
        "Zipf, then a walk, then bursts of keys, 5,000 arrivals",
        5_000,
        kind="seen",
        quick_within=800,
    ),
    "beijing-pressure": _Source(
        _beijing("PRES"),
        "stations on air pressure, 3 days",
        72 * HOUR,
        kind="seen",
        file="beijing_weather.parquet",
    ),
    "nyc-wind": _Source(
        _nyc("wind_dir", "wind_speed"),
        "airports on direction and speed of the wind, 7 days",
        168 * HOUR,
        ["wind_dir", "wind_speed"],
        kind="seen",
        file="nyc_weather.parquet",
    ),
    "sensors-temp": _Source(
        _sensors_temp, "sites on air temperature, 1 day", 24 * HOUR, kind="seen", file="wind_sensors.parquet"
    ),
    "melbourne": _Source(
        _melbourne,
        "five years with the next five on the day's maximum, 60 days",
        60,
        kind="seen",
        file="melbourne_daily_max_temp.csv",
    ),
    "popularity": _Source(
        popularity,
        "1,000 keys whose popularity wanders, 5,000 arrivals",
        5_000,
        kind="seen",
        quick_within=1_000,
    ),
    "periodic": _Source(
        periodic,
        "400 keys, each with a period of its own, 5,000 ticks",
        5_000,
        kind="seen",
        quick_within=1_000,
    ),
    "sessions": _Source(
        sessions,
        "keys of one session each, never seen again, 2,000 ticks",
        2_000,
        kind="seen",
        quick_within=400,
    ),
    "beijing-temp": _Source(
        _beijing("TEMP"), "stations on temperature, 2 days", 48 * HOUR, file="beijing_weather.parquet"
    ),
    "beijing-wind": _Source(
        _beijing("wd", "WSPM"),
        "stations on direction and speed of the wind, 1 day",
        24 * HOUR,
        ["wd", "WSPM"],
        file="beijing_weather.parquet",
    ),
    "nyc-humid": _Source(
        _nyc("humid", whole=True), "airports on humidity, 10 days", 240 * HOUR, file="nyc_weather.parquet"
    ),
    "crowds": _Source(
        crowds, "Zipf 0.6 with crowds around one key at a time, 4,000 arrivals", 4_000, quick_within=800
    ),
    "news": _Source(
        news, "items whose popularity falls with their age, 6,000 arrivals", 6_000, quick_within=1_000
    ),
}
