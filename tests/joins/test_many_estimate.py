"""The estimate of recall of joins of many streams, against the exact joins: generated and real streams."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
import pytest

import penstock as ps
from penstock.engine.result_sample import SHARE
from penstock.errors import SnapshotError
from penstock.joins import ManyConfig, ManyStreamState, start_many
from penstock.joins.many import exact_results
from penstock.joins.many_arrivals import ManyArrivals, joins_of, many_arrivals_of
from penstock.window import window_of
from tests.data import real

Streams = tuple[dict[str, pd.DataFrame], int]  # each with key and ts, and the window
HOUR = 3_600_000_000_000
SHARES = (0.05, 0.1, 0.2, 0.5)
POLICIES = ("fifo", "gdj", "prob", "clock")


def zipf(streams: int, keys: int, alpha: float, rows: int = 40_000) -> pd.DataFrame:
    rng = np.random.default_rng(7)
    weights = np.arange(1, keys + 1) ** -alpha
    drawn = rng.permutation(keys)[rng.choice(keys, rows, p=weights / weights.sum())]
    return pd.DataFrame({"key": drawn, "ts": np.arange(rows), "stream": rng.integers(0, streams, rows)})


def apart(frame: pd.DataFrame) -> dict[str, pd.DataFrame]:
    return {f"s{name}": part for name, part in frame.groupby("stream")}


def generated() -> Streams:
    return apart(zipf(3, keys=3_000, alpha=0.75)), 5_000


def skewed() -> Streams:
    """A few hot keys among very many, most of which do not fit into the sample."""
    return apart(zipf(3, keys=100_000, alpha=1.0)), 10_000


def two_symbols() -> Streams:
    """Two symbols whose prices cross, within ten minutes."""
    trades = pd.read_parquet(real("stock_trades.parquet"))
    some = {name: trades[trades["symbol"] == name] for name in ("IPIX", "ORCL")}
    return {name: pd.DataFrame({"key": of["price"], "ts": of["ms"]}) for name, of in some.items()}, 600_000


def three_symbols() -> Streams:
    """Three symbols on the last digit of the price: their dollars are far apart."""
    trades = pd.read_parquet(real("stock_trades.parquet"))
    digit = (trades["price"] * 100).round().astype(int) % 10
    frame = pd.DataFrame({"key": digit, "ts": trades["ms"], "stream": trades["symbol"]})
    return apart(frame[frame["stream"].isin(["MSFT", "INTC", "CSCO"])]), 600_000


def dealt() -> Streams:
    """Trades of all symbols dealt out to four streams, joined on symbol and price."""
    trades = pd.read_parquet(real("stock_trades.parquet"))
    key = trades["symbol"] + trades["price"].astype(str)
    return apart(pd.DataFrame({"key": key, "ts": trades["ms"], "stream": np.arange(len(trades)) % 4})), 60_000


def weather() -> Streams:
    """Three stations with the same dew point within a week."""
    hourly = pd.read_parquet(real("beijing_weather.parquet")).dropna(subset=["DEWP"])
    hours = pd.to_datetime(hourly["time"]).astype("datetime64[ns]").astype("int64") // HOUR
    frame = pd.DataFrame({"key": hourly["DEWP"], "ts": hours, "stream": hourly["station"]})
    return apart(frame[frame["stream"].isin(sorted(frame["stream"].unique())[:3])]), 7 * 24


def arrivals_of(streams: dict[str, pd.DataFrame]) -> ManyArrivals:
    return many_arrivals_of(streams, joins_of(streams, "key"), "ts", "ms")


def config_of(arrivals: ManyArrivals, within: int) -> ManyConfig:
    streams, window = len(arrivals.nulls), window_of(within).resolve("ms")
    return ManyConfig(streams, arrivals.joins, window, ps.policies.get("fifo"), (streams,))


def feed(state: ManyStreamState, arrivals: ManyArrivals, parts: int = 7) -> ManyStreamState:
    for rows in np.array_split(np.arange(len(arrivals)), parts):
        state.process(*(part[rows] for part in (arrivals.stream, arrivals.key, arrivals.time, arrivals.row)))
    return state


@pytest.mark.parametrize("streams", [generated, skewed, two_symbols, three_symbols, dealt, weather])
def test_the_estimated_recall_is_near_the_truth(streams: Callable[[], Streams]) -> None:
    tables, within = streams()
    arrivals = arrivals_of(tables)
    exact = sum(exact_results(arrivals, config_of(arrivals, within)))
    assert exact > 0
    off = {}
    for share in SHARES:
        tuples = ps.Fraction(share).tuples(arrivals.per_stream.tolist(), within, arrivals.span)
        for policy in POLICIES:
            state = start_many(
                len(tables),
                arrivals.joins,
                within=within,
                budget=ps.Tuples(max(len(tables), tuples)),
                policy=policy,
                dtype=arrivals.time.dtype,
            )
            feed(state, arrivals)
            state.check()
            assert state.estimated_recall is not None, (share, policy)
            assert not state.recall.at_most
            off[policy, share] = state.estimated_recall - state.totals()["results"] / exact
    print({cell: round(error, 4) for cell, error in off.items()})
    assert max(map(abs, off.values())) <= 0.03


def test_the_memory_of_the_sample_is_counted_and_bounded() -> None:
    tables, within = apart(zipf(3, keys=100_000, alpha=1.0)), 10_000
    arrivals = arrivals_of(tables)
    sizes = {}
    for sample_bytes in (1 << 14, 1 << 16, 1 << 18):
        options: dict[str, Any] = {"within": within, "budget": "100 tuples", "sample_bytes": sample_bytes}
        state = start_many(3, arrivals.joins, policy="fifo", **options)
        before = state.table_bytes
        feed(state, arrivals)
        assert state.table_bytes == before
        sizes[sample_bytes] = before
        assert state.sample.level[SHARE] < 1
    assert sizes[1 << 18] - sizes[1 << 16] == pytest.approx((1 << 18) - (1 << 16), rel=0.15)


@pytest.mark.interpreted
def test_a_sample_too_small_to_know_says_so() -> None:
    """Many keys of few results, all of which are missed, in a sample of a few keys."""
    frame = zipf(2, keys=3_000, alpha=0.0, rows=6_000)
    arrivals = arrivals_of(apart(frame))
    state = start_many(2, arrivals.joins, within=2_000, budget="300 tuples", policy="fifo", sample_bytes=1)
    feed(state, arrivals)
    truth = state.totals()["results"] / sum(exact_results(arrivals, config_of(arrivals, 2_000)))
    assert state.estimated_recall is None or abs(state.estimated_recall - truth) <= 0.05


@pytest.mark.interpreted
@pytest.mark.filterwarnings("ignore::penstock.errors.LateRowsWarning")
@pytest.mark.parametrize("streams", [2, 3])
def test_late_rows_are_part_of_the_estimate(streams: int) -> None:
    """Rows up to a window and a half late, against all combinations within the window."""
    rng = np.random.default_rng(3)
    n, within = 600, 64
    stream, key = rng.integers(0, streams, n), rng.integers(0, 4, n)
    time = np.arange(n) - rng.integers(0, 96, n) * (rng.random(n) < 0.3)
    state = start_many(streams, [tuple(range(streams))], within=within, budget="12 tuples", policy="lru")
    for rows in np.array_split(np.arange(n), 5):
        state.process(stream[rows], key[rows], time[rows], rows)
        state = ManyStreamState.restore(state.snapshot())
    exact = 0
    for each in range(4):
        sides = [np.sort(time[(key == each) & (stream == s)]) for s in range(streams)]
        exact += sum(max(found) - min(found) <= within for found in product(*sides))
    assert state.unestimated == 0
    estimated = state.totals()["results"] + state.missed
    assert estimated == pytest.approx(exact, rel=0.001 if streams == 2 else 0.03)


@pytest.mark.interpreted
@pytest.mark.filterwarnings("ignore::penstock.errors.LateRowsWarning")
def test_rows_too_late_for_the_estimate_make_it_a_bound_or_unknown() -> None:
    """A hot key whose rows come hours late has lost most of its results."""
    n = 2_000
    stream, key, time = np.arange(n) % 2, np.arange(n) // 2 % 25, np.arange(n)
    state = start_many(2, [(0, 1)], within=100, budget="200 tuples", policy="lru")
    state.process(stream, key, time, time)
    assert state.recall.value == 1.0
    state.process([0], [99], [5], [n])  # of a key that has no partners: nothing is lost as far as is known
    assert state.recall.at_most
    hot = np.full(50, 1)
    state.process(np.zeros(50, int), hot, np.arange(50), n + 1 + np.arange(50))
    assert state.unestimated == 51
    assert state.guessed == pytest.approx(50 * 2 * 3, abs=10)  # a key has up to three rows in a window
    state.process(np.zeros(800, int), np.full(800, 1), np.arange(800) % 100, 3_000 + np.arange(800))
    assert state.recall.value is None


@pytest.mark.interpreted
def test_several_joins_are_estimated_together() -> None:
    rng = np.random.default_rng(5)
    n, within = 1_500, 100
    stream, key = rng.integers(0, 3, n), rng.integers(0, 12, (n, 2))
    joins = [(0, 1, 2), (0, 1)]
    key[stream == 2, 1] = -1
    options: dict[str, Any] = {"within": within, "policy": "gdj", "sample_bytes": 1 << 20}
    small = start_many(3, joins, budget="20 tuples", **options)
    whole = start_many(3, joins, budget="1000 tuples", **options)
    for state in (small, whole):
        state.process(stream, key, np.arange(n), np.arange(n))
    exact = whole.totals()["results"]
    assert whole.missed == pytest.approx(0, abs=0.001 * exact)  # times that share a node are interpolated
    assert small.totals()["results"] + small.missed == pytest.approx(exact, rel=0.001)


@pytest.mark.interpreted
def test_an_idle_stream_costs_the_estimate_nothing_for_good() -> None:
    """While one stream waits, the sample fills with rows of the other; afterwards it recovers."""
    n, within, rng = 8_000, 50, np.random.default_rng(1)
    options: dict[str, Any] = {"within": within, "policy": "fifo", "sample_bytes": 20_000}
    state = start_many(2, [(0, 1)], budget="20 tuples", **options)
    state.process(np.zeros(4_000, int), rng.integers(0, 5_000, 4_000), np.arange(4_000), np.arange(4_000))
    assert state.sample.level[SHARE] < 1
    stream, key, time = rng.integers(0, 2, n), rng.integers(0, 10, n), 4_000 + np.arange(n)
    before = state.totals()["results"], state.missed
    state.process(stream, key, time, time)
    assert state.sample.level[SHARE] == 1
    whole = start_many(2, [(0, 1)], budget="5000 tuples", **options)
    whole.process(stream, key, time, time)
    found = state.totals()["results"] - before[0] + state.missed - before[1]
    assert found == pytest.approx(whole.totals()["results"], rel=0.1)


@pytest.mark.interpreted
def test_another_budget_keeps_the_estimate() -> None:
    rng = np.random.default_rng(2)
    n = 900
    stream, key, time = rng.integers(0, 2, n), rng.integers(0, 20, n), np.arange(n)
    options: dict[str, Any] = {"within": 200, "policy": "fifo"}
    state, fresh = (start_many(2, [(0, 1)], budget=f"{size} tuples", **options) for size in (30, 60))
    whole = start_many(2, [(0, 1)], budget="900 tuples", **options)
    state.process(stream[:500], key[:500], time[:500], time[:500])
    fresh.take_over(state)
    for each in (fresh, whole):
        rest = 500 if each is fresh else 0
        each.process(stream[rest:], key[rest:], time[rest:], time[rest:])
    exact = whole.totals()["results"]
    assert fresh.totals()["results"] + fresh.missed == pytest.approx(exact, rel=0.001)
    other = start_many(2, [(0, 1)], budget="60 tuples", sample_bytes=1 << 12, **options)
    other.take_over(fresh)
    assert other.missed == fresh.missed
    assert other.recall.value == fresh.recall.value
    ManyStreamState.restore(other.snapshot()).check()


@pytest.mark.interpreted
def test_a_damaged_sample_is_refused() -> None:
    state = start_many(2, [(0, 1)], within=10, budget="10 tuples", policy="fifo")
    state.process([0, 1, 0], [1, 1, 2], [0, 1, 2], [0, 1, 2])
    state.sample.nodes[1, 1] = 1  # a list that does not end
    with pytest.raises(SnapshotError, match="nodes"):
        ManyStreamState.restore(state.snapshot())
