"""Generated streams of the experiments, with different patterns of key popularity."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from penstock import workloads

PARTS = ("zipf", "walk", "bursts")  # of `regimes`


def split(table: pd.DataFrame, is_left: Any) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The rows of a table that are of the left stream, and the others.

    >>> import pandas as pd
    >>> from penstock.reproduction.generated import split
    >>> [side["key"].tolist() for side in split(pd.DataFrame({"key": [1, 2, 3]}), [True, False, True])]
    [[1, 3], [2]]
    """
    mine = np.asarray(is_left)
    return tuple(table[side].reset_index(drop=True) for side in (mine, ~mine))  # type: ignore[return-value]


def drift(quick: bool) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Zipf's law over 1,000 keys of which the ranks move on: every 100 arrivals one key is renewed.

    >>> from penstock.reproduction.generated import drift
    >>> sum(map(len, drift(quick=True)))
    8000
    """
    n, keys = (8_000 if quick else 80_000), 1_000
    rng = np.random.default_rng(11)
    probabilities = workloads.zipf_probabilities(keys, 0.9)
    ts = np.arange(n)
    ranks = rng.choice(keys, n, p=probabilities)
    born = rng.integers(0, 40_000, keys)
    key = ranks + keys * ((ts + born[ranks]) // 40_000)
    left = rng.random(n) < 0.5
    return split(pd.DataFrame({"key": key, "ts": ts}), left)


def regimes(part: int = 40_000, seed: int = 5) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Zipf, then a random walk, then bursts of keys: `part` arrivals of each in both streams together.

    >>> from penstock.reproduction.generated import regimes
    >>> left, right = regimes(300)
    >>> len(left) + len(right)
    900
    """
    rng = np.random.default_rng(seed)
    zipf = rng.choice(1_000, part, p=workloads.zipf_probabilities(1_000, 0.75))
    walk = 10_000 + np.cumsum(rng.choice([-1, 0, 1], part)) + np.rint(rng.normal(0, 10, part)).astype(int)
    hot = 10**6 + np.repeat(rng.integers(0, 10**6, part // 50 + 1), 50)[:part]
    place = np.maximum(0, np.arange(part) - rng.exponential(100, part).astype(int))
    key = np.concatenate([zipf, walk, hot[place]])
    table = pd.DataFrame({"key": key, "ts": np.arange(len(key))})
    return split(table, rng.random(len(key)) < 0.5)


def popularity(quick: bool) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Every 500 arrivals the logarithm of each key's popularity makes a step, and is drawn to its mean.

    >>> from penstock.reproduction.generated import popularity
    >>> sum(map(len, popularity(quick=True)))
    8000
    """
    n, keys, every = (8_000 if quick else 80_000), 1_000, 500
    rng = np.random.default_rng(21)
    weight, parts = rng.normal(0, 1.5, keys), []
    for _ in range(n // every):
        weight = 0.97 * weight + rng.normal(0, 1.5 * np.sqrt(1 - 0.97**2), keys)
        share = np.exp(weight)
        parts.append(rng.choice(keys, every, p=share / share.sum()))
    return split(pd.DataFrame({"key": np.concatenate(parts), "ts": np.arange(n)}), rng.random(n) < 0.5)


def periodic(quick: bool) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Each key comes again after its period, from 200 to 20,000 ticks, give or take a fiftieth of it.

    >>> from penstock.reproduction.generated import periodic
    >>> left, right = periodic(quick=True)
    >>> left["key"].nunique() <= 400
    True
    """
    ticks, keys = (10_000 if quick else 100_000), 400
    rng = np.random.default_rng(22)
    period = 200 * 100 ** rng.random(keys)
    sides = []
    for _ in range(2):
        key = np.repeat(np.arange(keys), (ticks / period).astype(int) + 1)
        turn = np.arange(len(key)) - np.searchsorted(key, key)
        ts = (turn + rng.random(keys)[key] + rng.normal(0, 0.02, len(key))) * period[key]
        side = pd.DataFrame({"key": key, "ts": ts.astype(np.int64)})
        sides.append(side[(ts >= 0) & (ts < ticks)].sort_values("ts", kind="stable", ignore_index=True))
    return sides[0], sides[1]


def sessions(quick: bool) -> tuple[pd.DataFrame, pd.DataFrame]:
    """A session has an event of the left stream or a few, which more of either follow after a while.

    >>> from penstock.reproduction.generated import sessions
    >>> left, right = sessions(quick=True)
    >>> left["key"].nunique()
    2000
    """
    n, ticks = (2_000, 10_000) if quick else (20_000, 100_000)
    rng = np.random.default_rng(23)
    begin, sides = rng.random(n) * ticks, []
    for first, more in ((1, 0.5), (0, 1.5)):
        key = np.repeat(np.arange(n), first + rng.poisson(more, n))
        delay = rng.lognormal(np.log(300), 1.0, len(key))
        if first:
            delay[np.searchsorted(key, np.arange(n))] = 0.0
        side = pd.DataFrame({"key": key, "ts": (begin[key] + delay).astype(np.int64)})
        sides.append(side.sort_values("ts", kind="stable", ignore_index=True))
    return sides[0], sides[1]


def crowds(quick: bool) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Zipf's law over 2,000 keys; for 1,500 arrivals at a time a key drawn at random has a fifth of them.

    >>> from penstock.reproduction.generated import crowds
    >>> sum(map(len, crowds(quick=True)))
    8000
    """
    n, keys, lasts = (8_000 if quick else 80_000), 2_000, 1_500
    rng = np.random.default_rng(31)
    key = rng.choice(keys, n, p=workloads.zipf_probabilities(keys, 0.6))
    hot = rng.integers(0, keys, n // lasts + 1)
    key = np.where(rng.random(n) < 0.2, hot[np.arange(n) // lasts], key)
    return split(pd.DataFrame({"key": key, "ts": np.arange(n)}), rng.random(n) < 0.5)


def news(quick: bool) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Every 20 arrivals an item appears; an item is asked for the less the older it is, by a power law.

    >>> from penstock.reproduction.generated import news
    >>> left, right = news(quick=True)
    >>> int(max(left["key"].max(), right["key"].max())) < 400
    True
    """
    n, every = (8_000 if quick else 80_000), 20
    rng = np.random.default_rng(32)
    ts = np.arange(n)
    age = np.floor(np.exp(rng.random(n) * np.log(1 + ts / every)) - 1).astype(np.int64)
    return split(pd.DataFrame({"key": ts // every - age, "ts": ts}), rng.random(n) < 0.5)
