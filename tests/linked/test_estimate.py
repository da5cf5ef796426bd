"""The estimate of recall of stream queries against exact ones: the paper's listings, and generated ones."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import penstock as ps
from penstock.linked.run import stream
from penstock.linked.run.stream import QueryState
from penstock.reproduction.clock_queries import LISTING_1, LISTING_1_SAMPLE, LISTING_2
from penstock.workloads import sensor_bursts, viewers_and_guide
from tests.data import real

THREE = """SELECT ?a ?b ?c FROM STREAM w { ?a p ?x ?T . ?b q ?x ?U . ?c r ?x ?V }
    CONTEXT ((?T - ?U) <= 100 && (?T - ?V) <= 100 && (?U - ?V) <= 100)"""
SAME = "SELECT ?a ?b FROM STREAM w { ?a p ?x ?T . ?b p ?x ?U . FILTER (?a != ?b) } CONTEXT ((?T - ?U) <= 9)"
SHARES = (0.05, 0.1, 0.2, 0.5)


def frame(s: Any, verb: Any, o: Any, start: Any, end: Any = None) -> pd.DataFrame:
    columns = {"s": s, "p": verb, "o": o, "start": start}
    return pd.DataFrame(columns | ({} if end is None else {"end": end}))


def named(kind: str, numbers: Any) -> list[str]:
    return [f"{kind}{number}" for number in numbers]


def listing_1() -> tuple[str, dict[str, pd.DataFrame]]:
    found = sensor_bursts(readings=15_000, stations=400, seed=0)
    return LISTING_1, {"windSpeed": frame(named("s", found.station), "reports", found.windspeed, found.ts)}


def observations() -> tuple[str, dict[str, pd.DataFrame]]:
    """Listing 1 on the weather stations of SRBench."""
    found = pd.read_csv(real("srbench_observations.csv"))
    when = pd.to_datetime(found.samplingtime.str.slice(0, 19)).astype("datetime64[ms]").astype(np.int64)
    wind = frame(named("s", found.stationid), "reports", found.windspeed, when)
    return LISTING_1_SAMPLE, {"windSpeed": wind.sort_values("start", kind="stable")}


def listing_2() -> tuple[str, dict[str, pd.DataFrame]]:
    viewers, guide = viewers_and_guide(12_000, 200, seed=0)
    log = frame(named("u", viewers.user), "watches", named("c", viewers.channel), viewers.start, viewers.end)
    epg = frame(named("c", guide.channel), "plays", named("p", guide.programme), guide.start, guide.end)
    return LISTING_2, {"Log": log, "EPG": epg}


def three(rows: int = 2_500, seed: int = 0) -> tuple[str, dict[str, pd.DataFrame]]:
    rng = np.random.default_rng(seed)
    weights = np.arange(1, 31) ** -0.8
    keys = rng.choice(30, rows, p=weights / weights.sum())
    table = frame(named("a", range(rows)), rng.choice([*"pqr"], rows), keys, np.arange(rows))
    return THREE, {"w": table}


def parts(streams: dict[str, pd.DataFrame], number: int) -> list[dict[str, pa.Table]]:
    """The streams cut by time."""
    times = np.sort(np.concatenate([each.start for each in streams.values()]))
    cuts = [-np.inf, *np.quantile(times, np.linspace(0, 1, number + 1)[1:-1]), np.inf]
    found = []
    for low, high in pairwise(cuts):
        some = {name: each[(each.start > low) & (each.start <= high)] for name, each in streams.items()}
        tables = {
            name: pa.Table.from_pandas(each, preserve_index=False) for name, each in some.items() if len(each)
        }
        found += [tables] if tables else []
    return found


def fed(
    text: str, streams: dict[str, pd.DataFrame], tuples: int, number: int = 5, **options: Any
) -> QueryState:
    objects = "iri" if text == LISTING_2 else "literal"
    state = ps.StreamQuery.parse(text).start(budget=ps.Tuples(tuples), object=objects, **options)
    for each in parts(streams, number):
        state.process(each, collect=False)
    return state


@pytest.mark.parametrize("workload", [listing_1, observations, listing_2, three])
def test_the_estimated_recall_is_near_the_truth(workload: Any) -> None:
    text, streams = workload()
    query, objects = ps.StreamQuery.parse(text), "iri" if text == LISTING_2 else "literal"
    tables = {name: pa.Table.from_pandas(each, preserve_index=False) for name, each in streams.items()}
    exact = query.run(tables, object=objects, collect=False).stats.results
    assert exact > 1_000
    off = {}
    for share in SHARES:
        bounded = query.run(tables, budget=ps.Fraction(share), object=objects, collect=False, exact=False)
        tuples = bounded.stats.budget
        assert tuples is not None
        for policy in ("fifo", "clock"):
            state = fed(text, streams, tuples, policy=policy)
            state.check()
            assert state.recall.value is not None
            off[policy, share] = state.recall.value - state.totals["results"] / exact
    print({cell: round(error, 4) for cell, error in off.items()})
    assert max(map(abs, off.values())) <= 0.05


@pytest.mark.parametrize("size", [96, 40])
def test_a_small_sample_is_unbiased_and_knows_its_error(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of three patterns, the triples that wait for others are one or two."""
    monkeypatch.setattr(stream, "LEAST", size)
    off, claimed = [], []
    for seed in range(20):
        text, streams = three(1_500, seed)
        small, whole = (fed(text, streams, tuples, 1, policy="fifo") for tuples in (16, 2_000))
        assert whole.missed == 0
        assert small.state is not None
        assert small.state.sample is not None
        assert small.state.sample.halvings > 0
        exact = whole.totals["results"]
        off.append((small.state.sample.exact - exact) / exact)
        claimed.append(small.variance**0.5 / exact)
    spread = float(np.std(off))
    assert abs(np.mean(off)) < 3 * spread / len(off) ** 0.5
    assert 0.6 < np.mean(claimed) / spread < 1.8


@pytest.mark.interpreted
@pytest.mark.parametrize("size", [512, 24])
def test_the_estimate_survives_a_restart(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the batches, and wherever the state is taken down."""
    monkeypatch.setattr(stream, "LEAST", size)
    text, streams = three(700)
    whole, state = fed(text, streams, 12, 6, policy="lru"), None
    for each in parts(streams, 6):
        state = state or ps.StreamQuery.parse(text).start(budget=ps.Tuples(12), policy="lru")
        state.process(each, collect=False)
        state = QueryState.restore(state.snapshot())
        state.check()
    assert state is not None
    assert (state.missed, state.variance, state.totals) == (whole.missed, whole.variance, whole.totals)
    assert str(state.recall) == str(whole.recall)


@pytest.mark.interpreted
def test_another_budget_makes_the_estimate_a_bound() -> None:
    text, streams = three(700)
    first, second = parts(streams, 2)
    state = ps.StreamQuery.parse(text).start(budget=ps.Tuples(12), policy="lru")
    state.process(first, collect=False)
    before = state.missed
    other = ps.StreamQuery.parse(text).start(budget=ps.Tuples(24), policy="lru")
    assert not state.recall.at_most
    assert state.adapt(other.options)
    assert state.missed == before
    assert state.recall.at_most
    state.process(second, collect=False)
    assert state.recall.value is not None
    assert state.state is not None
    assert state.state.sample is not None
    state.state.sample.caches.check()


@pytest.mark.interpreted
def test_the_sample_counts_towards_a_budget_in_bytes() -> None:
    text, streams = three(700)
    for budget in ("300 KiB", "1 MiB"):
        state = ps.StreamQuery.parse(text).start(budget=budget, policy="fifo")
        for each in parts(streams, 3):
            state.process(each, collect=False)
        assert state.state is not None
        assert state.state.sample is not None
        assert state.state.table_bytes <= ps.Bytes(budget).n
        assert state.state.sample.bytes <= 0.11 * ps.Bytes(budget).n
    tiny = ps.StreamQuery.parse(text).start(budget="9 KiB", policy="fifo")
    tiny.process(parts(streams, 1)[0], collect=False)
    assert str(tiny.recall) == "unknown"
    assert tiny.missed is None


@pytest.mark.interpreted
def test_closed_facts_and_background_are_part_of_the_estimate(tmp_path: Any) -> None:
    """Nothing is missed where nothing is evicted, and what is evicted is estimated."""
    known = tmp_path / "known.nt"
    known.write_text("".join(f"<http://e/a{i}> <http://e/in> <http://e/city{i % 3}> .\n" for i in range(9)))
    text = f"""PREFIX e: <http://e/> SELECT * FROM <{known}> FROM STREAM w
        {{ ?s e:on ?x ?T ?E . ?o e:on ?x ?U ?F . ?s e:in ?city
        . FILTER (?s != ?o) }} CONTEXT (!?E < ?U && !?F < ?T)"""
    rng, n = np.random.default_rng(3), 300
    start = np.arange(n)
    end = np.where(rng.random(n) < 0.5, start + rng.integers(1, 30, n), np.nan)
    table = {
        "s": [f"http://e/a{i}" for i in rng.integers(0, 9, n)],
        "p": ["http://e/on"] * n,
        "o": rng.integers(0, 4, n),
        "start": start.astype(float),
        "end": np.where(np.isnan(end), start + 40.0, end),
    }
    query = ps.StreamQuery.parse(text)
    whole, small = (query.start(budget=ps.Tuples(size), policy="fifo") for size in (5_000, 8))
    for state in (whole, small):
        state.process({"w": table}, collect=False)
    assert whole.missed == 0
    assert small.missed == whole.totals["results"] - small.totals["results"] > 0


def test_a_query_of_one_pattern_misses_nothing() -> None:
    state = ps.StreamQuery.parse("SELECT ?s FROM STREAM w { ?s r ?x ?T }").start(budget=ps.Tuples(1))
    assert str(state.recall) == "100.0 %"
    state.process({"w": {"s": ["a"], "p": ["r"], "o": [1], "start": [0]}})
    assert (state.missed, str(state.recall)) == (0.0, "100.0 %")
