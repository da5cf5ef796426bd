"""The CLOCK paper's experiments: its queries and streams, what is measured, and how claims are judged."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import penstock as ps
from penstock.errors import PenstockError
from penstock.reproduction import Scope, figures_of
from penstock.reproduction.clock_bytes import POLICIES
from penstock.reproduction.clock_bytes import judge as judge_bytes
from penstock.reproduction.clock_queries import LISTING_1, SRBENCH, workload_of
from penstock.reproduction.clock_rho import FIXED
from penstock.reproduction.clock_rho import judge as judge_rho
from penstock.reproduction.clock_trials import exact, need, recalls, workloads
from tests.data import real

SMALL = {"workload": "sensors", "size": 4_000, "seed": 1, "data": None}


def test_the_real_sample_has_the_answers_that_are_known() -> None:
    data = str(real(SRBENCH).parent)
    sample = workload_of("srbench", 0, 0, data)
    as_published = ps.StreamQuery.parse(LISTING_1.replace("10^^", "1^^"))
    assert as_published.run(sample.streams, collect=False).stats.results == 26_106
    wind = sample.streams["windSpeed"].to_pandas()
    wind = wind[wind.o >= 1]
    pairs = wind.merge(wind, on="o")
    near = (pairs.start_x - pairs.start_y).abs() <= 30 * 60_000
    assert sample.run().stats.results == int((near & (pairs.s_x != pairs.s_y)).sum())
    assert workloads(Scope(data=real(SRBENCH).parent)) == ["sensors", "srbench", "television"]


def test_without_its_file_the_sample_is_left_out() -> None:
    with pytest.raises(PenstockError, match=SRBENCH):
        workload_of("srbench", 0, 0)
    with pytest.raises(PenstockError, match="did you mean 'sensors'"):
        workload_of("sensor", 100, 0)
    given = [trial.given["workload"] for figure in figures_of("clock", Scope()) for trial in figure.trials]
    assert set(given) == {"sensors", "television", "regimes"}


def test_the_memory_that_is_needed() -> None:
    """As many as have come in the last 200 ms, counted one by one."""
    rows = need(**SMALL, points=10)
    wind = workload_of("sensors", 4_000, 1).streams["windSpeed"].to_pandas()
    start = wind.start[wind.o >= 10].to_numpy()
    kept = np.array([(start[: i + 1] >= start[i] - 200).sum() for i in range(len(start))])
    span = np.ceil((start[-1] - start[0]) / 10)
    part = np.minimum((start - start[0]) // span, 9)
    assert [row["most"] for row in rows] == [kept[part == i].max() for i in range(10)]
    assert [row["mean"] for row in rows] == pytest.approx([kept[part == i].mean() for i in range(10)])
    assert exact("sensors", 4_000, 1, None).peak == kept.max()


def test_recall_is_of_what_comes_after_the_warm_up() -> None:
    whole = exact("sensors", 4_000, 1, None)
    run = workload_of("sensors", 4_000, 1).run(budget=ps.Tuples(20), policy="lru")
    first = len(run.counts) // 3
    (row,) = recalls(**SMALL, policy="lru", share=20 / whole.peak + 1e-9, budget="tuples")
    assert (row["tuples"], row["results"]) == (20, run.counts[first:].sum())
    assert row["exact"] == whole.counts[first:].sum()
    seconds = ((run.times - run.times[0]) // 1_000).astype(int)
    load = np.bincount(seconds)
    busy = (load > load.mean())[seconds] & (np.arange(len(seconds)) >= first)
    assert 0 < busy.sum() < len(busy) - first
    assert row["stressed"] == run.counts[busy].sum() / whole.counts[busy].sum() != row["recall"]
    (row,) = recalls(**SMALL, policy="lru", share=1.0, budget="tuples")
    assert row["recall"] == row["stressed"] == 1.0


def test_in_equal_bytes_scores_take_the_room_of_tuples() -> None:
    held = {}
    for policy in ("fifo", "clock", "clock-exp"):
        (row,) = recalls(**SMALL, policy=policy, share=0.5, budget="bytes")
        held[policy] = row["tuples"]
        run = workload_of("sensors", 4_000, 1).run(budget=ps.Bytes(row["bytes"]), policy=policy)
        assert run.stats.peak_bytes <= row["bytes"]
    tuples = int(0.5 * exact("sensors", 4_000, 1, None).peak)
    assert 0.9 * tuples <= held["fifo"] <= tuples
    assert held["fifo"] > held["clock"] > held["clock-exp"] > 0


def cells(policies: tuple[str, ...], workload: str, recall: dict[str, float], **more: object) -> pd.DataFrame:
    rows = [
        {
            "workload": workload,
            "share": share,
            "policy": policy,
            "recall": recall.get(policy, 0.5),
            "tuples": 9,
        }
        for policy in policies
        for share in (0.1, 0.2)
    ]
    return pd.DataFrame(rows).assign(**more)


@pytest.mark.parametrize(
    ("auto", "verdicts"), [(0.51, [True] * 3), (0.497, [True, True, False]), (0.49, [False] * 3)]
)
def test_how_a_rate_that_tunes_itself_is_judged(auto: float, verdicts: list[bool]) -> None:
    policies = tuple(f"clock-exp:rho={rho}" for rho in (*FIXED, "auto"))
    recall = {"clock-exp:rho=auto": auto, "clock-exp:rho=0.5": 0.4}
    table = pd.concat([cells(policies, name, recall) for name in ("sensors", "regimes")])
    assert [claim.holds for claim in judge_rho(table)] == verdicts


def test_how_equal_bytes_are_judged() -> None:
    equal = cells(POLICIES, "sensors", {"clock": 0.6, "lru": 0.7}, budget="tuples")
    taken = cells(POLICIES, "sensors", {"clock": 0.55, "fifo": 0.58, "lru": 0.7}, budget="bytes")
    taken.loc[taken.policy == "clock", "tuples"] = 7
    taken.loc[(taken.policy == "lru") & (taken.share == 0.1), "tuples"] = 7
    claims = judge_bytes(pd.concat([equal, taken]))
    assert [claim.holds for claim in claims] == [True, False, False, True, None]
    assert "CLOCK has 78% of its tuples, fewer at 2 of 2 sizes" in claims[0].measured
    assert "fewer at 1 of 2 sizes" in claims[1].measured
    assert "+0.100 recall on average; at 0 of these with equal bytes, -0.030" in claims[2].measured
