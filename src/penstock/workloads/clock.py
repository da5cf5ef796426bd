"""The two workloads of the CLOCK experiments: sensors that report in clusters, and television viewers."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from penstock.arguments import draws
from penstock.errors import PenstockError
from penstock.workloads import _check
from penstock.workloads._draw import Seed, draw_ranks
from penstock.workloads._television import DAY, MINUTE, SLOT, programme_guide, switching_times
from penstock.workloads.zipf import zipf_probabilities


def sensor_bursts(
    stations: int = 400,
    readings: int = 20_000,
    *,
    burstiness: float = 0.8,
    regions: int = 8,
    spread: int = 50,
    rate: float = 250.0,
    seed: Seed = 0,
) -> pd.DataFrame:
    """Wind speeds of weather stations that cluster their reports, to be joined with itself on the speed.

    In a burst all stations of a region report once within `spread` milliseconds; the other readings come from
    any station at any time. Every region has a wind of its own that changes slowly, so the readings of a
    burst are much alike: what was matched a moment ago will be matched again. The paper's query looks for
    stations with equal wind speed, at least 10, within 200 ms.

    Parameters
    ----------
    stations
        Number of stations, numbered from 0.
    readings
        Rows of the stream; SRBench has 603,642.
    burstiness
        Share of the readings that come in bursts, from 0 (even load) to 1.
    regions
        Number of groups of stations that report together.
    spread
        Length of a burst in milliseconds.
    rate
        Mean readings a second.
    seed
        Seed, or a NumPy generator to draw from.

    Returns
    -------
    DataFrame
        Columns `station`, `windspeed` (miles per hour) and `ts` (milliseconds from 0), all int64, sorted by
        `ts`.

    Examples
    --------
    >>> from penstock.workloads import sensor_bursts
    >>> even, bursty = (sensor_bursts(burstiness=b).ts // 200 for b in (0, 1))
    >>> bool(bursty.value_counts().max() > 2 * even.value_counts().max())
    True

    References
    ----------
    Gao et al., The CLOCK Data-Aware Eviction Approach (ESWC 2014), section 4.1, listing 1 and figure 2a.
    """
    stations = _check.whole("stations", stations)
    readings = _check.whole("readings", readings, least=0)
    burstiness = _check.number("burstiness", burstiness, 0.0, 1.0, " It is a share of the readings.")
    regions = _check.whole("regions", regions)
    if regions > stations:
        raise PenstockError(f"regions={regions} was given for {stations} stations; a region needs a station.")
    spread = _check.whole("spread", spread)
    rate = _check.positive("rate", rate, " It is in readings per second.")
    duration = max(readings / rate * 1_000, spread + 1.0)
    rng = draws(seed)

    clustered = round(readings * burstiness)
    scattered = readings - clustered
    region = rng.integers(regions, size=-(-clustered // (stations // regions)))
    sizes = (stations - region - 1) // regions + 1
    member = np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    in_bursts = (np.repeat(region, sizes) + regions * member)[:clustered]
    begins = np.repeat(rng.uniform(0, duration - spread, len(region)), sizes)[:clustered]

    station = np.concatenate((in_bursts, rng.integers(stations, size=scattered)))
    ts = np.concatenate((begins + rng.uniform(0, spread, clustered), rng.uniform(0, duration, scattered)))
    level = _winds(regions, rng)
    wind = level[station % regions, (ts / duration * level.shape[1]).astype(np.int64)]
    speed = np.rint(wind * np.exp(rng.normal(0.0, 0.1, readings)))
    frame = pd.DataFrame({"station": station, "windspeed": speed, "ts": ts}).astype(np.int64)
    return frame.sort_values("ts", kind="stable", ignore_index=True)


class ViewerGuide(NamedTuple):
    """Viewers and the programme guide, two streams of facts valid from `start` to `end`, sorted by `start`.

    >>> from penstock.workloads import viewers_and_guide
    >>> viewers, guide = viewers_and_guide(100, 20)
    >>> list(viewers.columns), list(guide.columns)
    (['user', 'channel', 'start', 'end'], ['channel', 'programme', 'start', 'end'])
    """

    viewers: pd.DataFrame
    guide: pd.DataFrame


def viewers_and_guide(
    viewers: int = 20_000,
    programmes: int = 2_000,
    *,
    channels: int | None = None,
    users: int | None = None,
    days: int = 3,
    boundary: float = 0.6,
    alpha: float = 1.0,
    seed: Seed = 0,
) -> ViewerGuide:
    """Viewers switching channels, and the guide that says what is on: to be joined on the channel.

    Shows prefer to begin on the hour and the half hour, on many channels at once, and when a show ends its
    viewers switch: that is where the load bursts, most of all in the evening. A join partner is a programme
    whose validity overlaps the viewing.

    Parameters
    ----------
    viewers, programmes
        Rows of the two streams. The paper's three days have 1,887,256 and 31,960, which takes a few seconds.
    channels
        Number of channels, by default one per 100 programmes; Zipf popularity with skew `alpha`.
    users
        Number of viewers' boxes, by default one per 20 events. A user watches one channel at a time.
    days
        Length of the streams.
    boundary
        Share of the switches that are due to the end of a show, from 0 to 1; the others come at any time.
    alpha
        Skew of the channels' popularity.
    seed
        Seed, or a NumPy generator to draw from.

    Returns
    -------
    ViewerGuide
        `viewers` with `user`, `channel`, `start`, `end`, and `guide` with `channel`, `programme`, `start`,
        `end`; all int64, times in milliseconds from midnight of the first day, both ends included.

    Examples
    --------
    >>> from penstock.workloads import viewers_and_guide
    >>> viewers, guide = viewers_and_guide()
    >>> on_the_hour = (viewers.start % 3_600_000 < 120_000).mean()
    >>> bool(on_the_hour > 4 * 120_000 / 3_600_000)
    True

    References
    ----------
    Gao et al., The CLOCK Data-Aware Eviction Approach (ESWC 2014), section 4.1, listing 2 and figure 2b.
    """
    viewers = _check.whole("viewers", viewers, least=0)
    programmes = _check.whole("programmes", programmes)
    channels = _check.whole("channels", -(-programmes // 100) if channels is None else channels)
    users = _check.whole("users", max(1, viewers // 20) if users is None else users)
    boundary = _check.number("boundary", boundary, 0.0, 1.0, " It is a share of the switches.")
    duration = _check.whole("days", days) * DAY
    slots = duration // SLOT
    if not channels <= programmes <= channels * slots:
        raise PenstockError(
            f"programmes={programmes} was given for {channels} channels; a channel has between 1 and "
            f"{slots} of them in {days} days. Hint: channels={-(-programmes // 100)} gives each about 100."
        )
    popularity = zipf_probabilities(channels, alpha)
    rng = draws(seed)
    guide = programme_guide(programmes, channels, duration, rng)
    starts = switching_times(viewers, guide, popularity, duration, boundary, rng)

    user = rng.integers(users, size=viewers)
    order = np.lexsort((starts, user))
    user, start = user[order], starts[order]
    end = np.minimum(start + (rng.standard_exponential(viewers) * 40 * MINUTE).astype(np.int64), duration - 1)
    goes_on = user[1:] == user[:-1]
    end[:-1][goes_on] = np.minimum(end[:-1], start[1:] - 1)[goes_on]
    columns = {"user": user, "channel": draw_ranks(viewers, popularity, rng) - 1, "start": start}
    frame = pd.DataFrame({**columns, "end": np.maximum(end, start)})
    return ViewerGuide(frame.sort_values("start", kind="stable", ignore_index=True), guide)


def _winds(regions: int, rng: np.random.Generator, steps: int = 200) -> NDArray[np.float64]:
    """The wind of each region over time: the exponential of a slow AR(1) series, around 12 miles per hour."""
    series = np.empty((regions, steps))
    series[:, 0] = rng.standard_normal(regions)
    for step in range(1, steps):
        series[:, step] = 0.98 * series[:, step - 1] + 0.2 * rng.standard_normal(regions)
    return 12.0 * np.exp(0.4 * series)
