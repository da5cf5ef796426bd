"""`drop_rate="unbiased"`: what it assumes, and that it warns where that does not hold."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

import penstock as ps
from penstock.errors import BiasedSampleWarning, PenstockWarning


def streams(rates: tuple[float, float], bursts: float = 1.0) -> tuple[dict[str, Any], dict[str, Any]]:
    """Poisson arrivals over 4,000 units of time; every tenth stretch of 100 has `bursts` times the rate."""
    rng = np.random.default_rng(1)
    both = []
    for rate in rates:
        parts = []
        for stretch in range(40):
            n = rng.poisson(100 * rate * (bursts if stretch % 10 == 9 else 1.0))
            parts.append(rng.integers(0, 100, n) + 100 * stretch)
        ts = np.sort(np.concatenate(parts))
        both.append({"key": rng.integers(0, 5, len(ts)), "ts": ts})
    return both[0], both[1]


def join(**changes: Any) -> ps.WindowJoin:
    given = {"within": 100, "budget": ps.Tuples(200), "policy": "fifo", "drop_rate": "unbiased"}
    return ps.WindowJoin(**given | {"allocation": "equal"} | changes)  # type: ignore[arg-type]


def left_is_older(run: Any, left: Any, right: Any) -> float:
    """The share of the results whose left tuple is the older one."""
    pairs = run.pairs
    return float(
        (left["ts"][pairs["left_row"].to_numpy()] <= right["ts"][pairs["right_row"].to_numpy()]).mean()
    )


def test_unequal_rates_under_equal_allocation_are_biased_and_warn() -> None:
    left, right = streams((1.5, 6.0))
    with pytest.warns(
        BiasedSampleWarning, match="68 % of the left tuples and 17 % of the right ones"
    ) as told:
        run = join().run(left, right, on="key", time="ts", collect=True)
    assert told[0].filename == __file__
    assert left_is_older(run, left, right) > 0.7
    for fair in ({"allocation": "proportional"}, {"allocation": "unified"}, {"drop_at": "arrival"}):
        run = join(**fair).run(left, right, on="key", time="ts", collect=True)  # a warning would be an error
        assert left_is_older(run, left, right) == pytest.approx(0.5, abs=0.06)


def test_bursts_warn_once() -> None:
    left, right = streams((4.0, 4.0), bursts=30.0)
    with pytest.warns(BiasedSampleWarning, match="constant rate") as told:
        run = join().run(left, right, on="key", time="ts")
    assert len(told) == 1
    assert told[0].filename == __file__
    assert issubclass(BiasedSampleWarning, PenstockWarning)
    thinned = (1 - run.stats.dropped / run.stats.arrivals) * run.stats.exact
    assert run.stats.results < 0.5 * thinned  # far fewer than an unbiased sample has


@pytest.mark.parametrize("tuples", [20, 200, 700])
def test_a_constant_rate_does_not_warn(tuples: int) -> None:
    left, right = streams((4.0, 4.0))
    stats = join(budget=ps.Tuples(tuples)).run(left, right, on="key", time="ts").stats
    thinned = (1 - stats.dropped / stats.arrivals) * stats.exact
    assert stats.results == pytest.approx(thinned, rel=0.2)


def test_a_state_warns_when_it_starts_and_when_rates_turn_out_wrong() -> None:
    with pytest.warns(BiasedSampleWarning, match="biased sample") as told:
        join().start(rates=(1.0, 4.0))
    assert told[0].filename == __file__
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        state = join().start(rates=(2.0, 2.0))
        for batch in range(6):  # twenty times the rate
            time = np.repeat(np.arange(100) + 100 * batch, 80)
            state.process(np.tile([0, 1], 4_000), np.zeros(8_000), time, np.arange(8_000))
    assert [each.category for each in found] == [BiasedSampleWarning]
    assert found[0].filename == __file__
    assert state.crowded
    join().start(rates=(2.0, 2.0), lateness=0)
    join(within=(0, 100)).start(rates=(2.0, 4.0))  # only left tuples are ever kept for later


def test_other_drop_rates_promise_nothing() -> None:
    left, right = streams((4.0, 4.0), bursts=30.0)
    join(drop_rate=0.3).run(left, right, on="key", time="ts")


def test_a_restored_state_warns_too() -> None:
    state = ps.JoinState.restore(join().start(rates=(2.0, 2.0)).snapshot())
    with pytest.warns(BiasedSampleWarning, match="constant rate"):
        state.process(np.zeros(4_000), np.zeros(4_000), np.arange(4_000) // 40, np.arange(4_000))


@pytest.mark.interpreted
def test_in_one_pool_the_drop_rate_goes_by_what_each_stream_needs() -> None:
    """With a click after its impression, the right stream needs no memory, so the left one gets all."""
    n, rng = 6_000, np.random.default_rng(0)
    left, right = ({"key": rng.integers(0, 50, n), "ts": np.arange(n)} for _ in range(2))
    options: dict[str, Any] = {"budget": ps.Tuples(300), "policy": "fifo", "drop_rate": "unbiased"}
    with warnings.catch_warnings(action="ignore"):
        run = ps.WindowJoin(within=(0, 600), **options).run(left, right, on="key", time="ts")
        chances = ps.WindowJoin(within=(300, 600), **options).start(rates=(1.0, 0.5)).config.chances
    assert run.stats.recall == pytest.approx(0.5, abs=0.02)  # 300 of 600 tuples; by rate it was a quarter
    assert run.stats.dropped == pytest.approx(n / 2, rel=0.03)
    assert chances == pytest.approx((1 - 240 / 600, 1 - 60 / 150))
