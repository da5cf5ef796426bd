"""A programme guide whose shows begin at round times, and the channel switches it causes."""

from __future__ import annotations

import numpy as np
import pandas as pd
from numpy.typing import NDArray

MINUTE = 60_000
DAY = 24 * 60 * MINUTE
SLOT = 5 * MINUTE


def _audience(time: NDArray[np.int64]) -> NDArray[np.float64]:
    """How many watch television at a time of day, relative to the mean; most do at half past eight."""
    return 1.0 + 0.8 * np.cos(2 * np.pi * (time / DAY - 20.5 / 24))


def programme_guide(programmes: int, channels: int, duration: int, rng: np.random.Generator) -> pd.DataFrame:
    """The programmes of each channel, end to end: starts drawn without replacement, round times first."""
    time = np.arange(SLOT, duration, SLOT)
    weight = np.ones(len(time))
    for minutes, preference in ((15, 5.0), (30, 25.0), (60, 100.0)):
        weight[time % (minutes * MINUTE) == 0] = preference
    # The largest of log(weight) + Gumbel noise are a weighted draw without replacement.
    noise = np.log(weight) + rng.gumbel(size=(channels, len(time)))
    ranks = np.argsort(np.argsort(-noise, axis=1), axis=1)
    per_channel = programmes // channels + (np.arange(channels) < programmes % channels)
    on, slot = np.nonzero(ranks < per_channel[:, None] - 1)
    channel = np.concatenate((np.arange(channels), on))
    start = np.concatenate((np.zeros(channels, dtype=np.int64), time[slot]))
    order = np.lexsort((start, channel))
    channel, start = channel[order], start[order]
    end = np.append(start[1:], duration) - 1
    end[:-1][channel[1:] != channel[:-1]] = duration - 1
    frame = pd.DataFrame({"channel": channel, "programme": np.arange(programmes), "start": start, "end": end})
    return frame.sort_values("start", kind="stable", ignore_index=True)


def switching_times(
    viewers: int,
    guide: pd.DataFrame,
    popularity: NDArray[np.float64],
    duration: int,
    boundary: float,
    rng: np.random.Generator,
) -> NDArray[np.int64]:
    """When viewers switch: shortly after a show has ended somewhere, or at any time."""
    minute = np.arange(0, duration, MINUTE)
    audience = _audience(minute)
    time = rng.choice(minute, viewers, p=audience / audience.sum()) + rng.uniform(0, MINUTE, viewers)
    ends = guide.loc[guide["end"] < duration - 1, ["channel", "end"]]
    if len(ends):
        weight = popularity[ends["channel"]] * _audience(ends["end"].to_numpy())
        prompted = np.flatnonzero(rng.random(viewers) < boundary)
        time[prompted] = rng.choice(ends["end"].to_numpy() + 1, len(prompted), p=weight / weight.sum())
        time[prompted] += rng.exponential(MINUTE / 2, len(prompted))
    return np.minimum(time.astype(np.int64), duration - 1)
