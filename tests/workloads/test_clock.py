"""The workloads of the CLOCK experiments: sensors, and viewers with a programme guide."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import PenstockError
from penstock.locality import stack_distance
from penstock.workloads import sensor_bursts, viewers_and_guide

HOUR = 3_600_000
DAY = 24 * HOUR


@settings(deadline=None, max_examples=40)
@given(
    stations=st.integers(1, 60),
    readings=st.integers(0, 300),
    burstiness=st.floats(0, 1),
    data=st.data(),
)
def test_sensors_have_the_shape_that_was_asked_for(stations, readings, burstiness, data) -> None:
    regions = data.draw(st.integers(1, stations))
    stream = sensor_bursts(stations, readings, burstiness=burstiness, regions=regions)
    assert list(stream.columns) == ["station", "windspeed", "ts"]
    assert (stream.dtypes == np.int64).all()
    assert len(stream) == readings
    assert stream.ts.is_monotonic_increasing
    assert stream.station.between(0, stations - 1).all()
    assert (stream[["windspeed", "ts"]] >= 0).all(axis=None)


def test_the_load_fluctuates_with_the_burstiness() -> None:
    def fluctuation(burstiness: float) -> float:
        windows = np.bincount(sensor_bursts(burstiness=burstiness).ts // 200)
        return windows.std() / windows.mean()

    spreads = [fluctuation(b) for b in (0, 0.4, 0.8, 1)]
    assert spreads == sorted(spreads)
    assert spreads[0] < 0.2
    assert spreads[2] > 0.7


def test_a_burst_is_a_region_whose_stations_report_once() -> None:
    stream = sensor_bursts(40, 200, burstiness=1, regions=4, rate=0.1)
    bursts = (stream.ts.diff() > 1_000).cumsum()
    for _, burst in stream.groupby(bursts):
        assert burst.station.is_unique
        assert len(burst) == 10
        assert burst.station.mod(4).nunique() == 1
        assert burst.ts.max() - burst.ts.min() <= 50


def test_readings_of_a_burst_are_alike() -> None:
    found = stack_distance(sensor_bursts().windspeed)
    assert found.hit_rate(5) > 1.2 * found.hit_rate(5, permuted=True)


def test_many_readings_pass_the_filter_of_the_query() -> None:
    assert 0.4 < (sensor_bursts().windspeed >= 10).mean() < 0.95


@pytest.fixture(scope="module")
def television():
    return viewers_and_guide()


def test_television_has_the_shape_that_was_asked_for(television) -> None:
    viewers, guide = television
    assert (len(viewers), len(guide)) == (20_000, 2_000)
    for stream in television:
        assert (stream.dtypes == np.int64).all()
        assert stream.start.is_monotonic_increasing
        assert (stream.start <= stream.end).all()
        assert stream.start.min() >= 0
        assert stream.end.max() < 3 * DAY


def test_every_channel_is_always_on_air_with_one_programme(television) -> None:
    guide = television.guide
    assert guide.programme.is_unique
    for _, shows in guide.sort_values("start").groupby("channel"):
        assert shows.start.iloc[0] == 0
        assert shows.end.iloc[-1] == 3 * DAY - 1
        assert (shows.start.iloc[1:].to_numpy() == shows.end.iloc[:-1].to_numpy() + 1).all()


def test_a_user_watches_one_channel_at_a_time(television) -> None:
    viewers = television.viewers.sort_values(["user", "start"])
    following = viewers.groupby("user").start.shift(-1)
    late = following.notna() & (following < viewers.end)
    assert not late.any()


def test_channels_differ_in_popularity(television) -> None:
    counts = television.viewers.channel.value_counts()
    assert counts.index[0] == 0
    assert counts.iloc[0] > 8 * counts.iloc[-1]


def test_show_boundaries_cause_bursts_of_switching() -> None:
    def peak(boundary: float) -> float:
        viewers = viewers_and_guide(boundary=boundary).viewers
        minutes = np.bincount(viewers.start // 60_000, minlength=3 * 1_440)
        return minutes.max() / minutes.mean()

    assert peak(0) < 6
    assert peak(0.6) > 3 * peak(0)


def test_evenings_are_busier_than_mornings(television) -> None:
    hour = television.viewers.start % DAY // HOUR
    assert hour.between(19, 22).mean() > 3 * hour.between(7, 10).mean()


@settings(deadline=None, max_examples=20)
@given(
    viewers=st.integers(0, 200),
    channels=st.integers(1, 12),
    per_channel=st.floats(1, 288),
    users=st.none() | st.integers(1, 10),
    boundary=st.floats(0, 1),
)
def test_television_of_any_size(viewers, channels, per_channel, users, boundary) -> None:
    size = int(channels * per_channel)
    events, guide = viewers_and_guide(
        viewers, size, channels=channels, users=users, days=1, boundary=boundary
    )
    assert (len(events), len(guide)) == (viewers, size)
    assert set(guide.channel) == set(range(channels))
    assert events.channel.isin(guide.channel).all()
    assert (events.start <= events.end).all()


def test_full_size_of_the_paper() -> None:
    viewers, guide = viewers_and_guide(1_887_256, 31_960)
    assert (len(viewers), len(guide)) == (1_887_256, 31_960)


def test_the_seed_decides() -> None:
    assert sensor_bursts().equals(sensor_bursts(seed=0))
    assert not sensor_bursts().equals(sensor_bursts(seed=1))
    for one, other in zip(viewers_and_guide(500), viewers_and_guide(500, seed=0), strict=True):
        pd.testing.assert_frame_equal(one, other)
    assert not viewers_and_guide(500).viewers.equals(viewers_and_guide(500, seed=1).viewers)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: sensor_bursts(0), r"stations=0"),
        (lambda: sensor_bursts(burstiness=1.5), r"burstiness=1\.5 was given; a number between 0 and 1"),
        (lambda: sensor_bursts(3, regions=4), r"regions=4 was given for 3 stations"),
        (lambda: viewers_and_guide(10, 5, channels=6), r"programmes=5 was given for 6 channels; .*1 and 864"),
        (lambda: viewers_and_guide(10, 900, channels=1), r"Hint: channels=9"),
        (lambda: viewers_and_guide(days=0), r"days=0"),
        (lambda: viewers_and_guide(boundary=-0.1), r"boundary=-0\.1"),
    ],
)
def test_errors_say_what_is_allowed(make, message: str) -> None:
    with pytest.raises(PenstockError, match=message):
        make()
