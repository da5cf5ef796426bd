"""Joins of many streams against their plain simulation, tuple for tuple, and what only they can do."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock as ps
from penstock.engine.apportion import apportion
from penstock.joins import ManyConfig, many_state
from penstock.joins.many_arrivals import joins_of, many_arrivals_of
from penstock.window import window_of
from tests.oracles.many import ManyOutcome, simulate_many
from tests.oracles.policies import POLICIES as ORACLES

NAMES = "abcde"
COLUMNS = ("k", "l")
POLICIES = [p.name for p in ps.policies.registered() if p.many and p.__module__.startswith("penstock.")]
COMPARED = [name for name in POLICIES if name in ORACLES]

Rows = list[tuple[int, dict[str, Any]]]  # (time, key by column); a key may be None


@dataclass(frozen=True)
class Case:
    """Streams and joins in the words of the oracle."""

    streams: list[Rows]
    joins: list[tuple[tuple[int, str], ...]]
    within: int
    budget: int
    allocation: str = "unified"

    @property
    def tables(self) -> dict[str, Any]:
        return {NAMES[s]: table(rows) for s, rows in enumerate(self.streams)}

    @property
    def on(self) -> list[Any]:
        return [tuple((NAMES[s], column) for s, column in join) for join in self.joins]

    def run(self, policy: Any, **options: Any) -> ps.ManyRun:
        settings = {"budget": ps.Tuples(self.budget), "within": self.within, "allocation": self.allocation}
        return ps.join_many(
            self.tables, on=self.on, time="ts", policy=policy, collect=True, log=True, **settings | options
        )

    def simulate(self, policy: str, **options: Any) -> ManyOutcome:
        settings = {"budget": self.budget, "within": self.within, "allocation": self.allocation}
        return simulate_many(self.streams, self.joins, policy=policy, **settings | options)


def table(rows: Rows) -> dict[str, Any]:
    keys = {c: pd.array([keys.get(c) for _, keys in rows], dtype="Int64") for c in COLUMNS}
    return keys | {"ts": np.array([time for time, _ in rows], np.int64)}


def found(run: ps.ManyRun) -> Counter[Any]:
    assert run.results is not None
    return Counter(
        (j, tuple(row.values())) for j, result in enumerate(run.results) for row in result.to_pylist()
    )


def fate(run: ps.ManyRun, event: str) -> list[tuple[int, int]]:
    assert run.events is not None
    return [(NAMES.index(e["stream"]), e["row"]) for e in run.events.to_pylist() if e["event"] == event]


def assert_agrees(run: ps.ManyRun, expected: ManyOutcome) -> None:
    stats = run.stats
    assert found(run) == Counter(expected.results)
    assert stats.results == len(expected.results) == sum(stats.per_join)
    assert fate(run, "evicted") == expected.evicted
    assert sorted(fate(run, "expired")) == sorted(expected.expired)
    assert (sum(stats.null_keys), stats.peak_tuples) == (expected.nulls, expected.peak)
    assert_accounts(stats)


def assert_accounts(stats: ps.ManyStats) -> None:
    assert stats.arrivals == stats.buffered + stats.expired + stats.evicted + stats.dropped
    assert stats.dropped == 0
    assert stats.refused <= stats.evicted


@st.composite
def joins(draw: st.DrawFn, streams: int) -> list[tuple[tuple[int, str], ...]]:
    """One join over all streams, or pairs and triples in which every stream takes part."""
    column = st.sampled_from(COLUMNS)
    if draw(st.booleans()):
        return [tuple((s, draw(column)) for s in range(streams))]
    chosen = []
    for stream in range(streams):
        others = [s for s in range(streams) if s != stream]
        partners = draw(st.lists(st.sampled_from(others), min_size=1, max_size=2, unique=True))
        chosen.append(tuple((s, draw(column)) for s in (stream, *partners)))
    return chosen


@st.composite
def cases(draw: st.DrawFn, most: int = 5, allocations: tuple[str, ...] = ("unified", "equal")) -> Case:
    """Few keys and times, so that there are ties, nulls, matches and evictions."""
    m = draw(st.integers(2, most))
    key = st.one_of(st.integers(0, 2), st.integers(0, 1), st.none())
    row = st.tuples(st.integers(0, 20), st.fixed_dictionaries(dict.fromkeys(COLUMNS, key)))
    return Case(
        streams=[draw(st.lists(row, max_size=14)) for _ in range(m)],
        joins=draw(joins(m)),
        within=draw(st.integers(0, 15)),
        budget=draw(st.integers(m, 14)),
        allocation=draw(st.sampled_from(allocations)),
    )


def random_streams(seed: int, streams: int, rows: int, keys: int) -> dict[str, dict[str, np.ndarray]]:
    """Streams of skewed keys over a time as long as they have rows."""
    rng = np.random.default_rng(seed)
    return {
        NAMES[s]: {
            "k": (keys * rng.random(rows) ** 2).astype(np.int64),
            "l": rng.integers(0, keys, rows),
            "ts": np.sort(rng.integers(0, rows, rows)),
        }
        for s in range(streams)
    }


@pytest.mark.interpreted
@pytest.mark.parametrize("policy", COMPARED)
@given(case=cases())
def test_same_results_and_same_fate_of_every_tuple(policy: str, case: Case) -> None:
    assert_agrees(case.run(policy), case.simulate(policy))


@pytest.mark.interpreted
@given(case=cases(), initial=st.sampled_from([0.0, 0.5, 0.99, 1.0]), method=st.sampled_from([1, 3]))
def test_gdj_with_options(case: Case, initial: float, method: int) -> None:
    run = case.run(ps.policies.GreedyDualJoin(initial=initial, method=method))
    assert_agrees(run, case.simulate("gdj", options={"initial": initial}))


@pytest.mark.interpreted
@pytest.mark.parametrize("seed", range(3))
def test_gdj_follows_credits_that_rise_far_while_tuples_come_and_go(seed: int) -> None:
    """The histogram of credits is laid out anew many times, from the tuples that are there at the time."""
    rng = np.random.default_rng(seed)
    times = np.cumsum(rng.choice([0, 0, 1, 9], 400))  # pauses in which most tuples expire
    rows = [(int(t), {"k": int(rng.integers(0, 2)), "l": 0}) for t in times]
    case = Case([rows[0::3], rows[1::3], rows[2::3]], [((0, "k"), (1, "k")), ((1, "k"), (2, "k"))], 12, 14)
    assert_agrees(case.run("gdj"), case.simulate("gdj"))


@pytest.mark.interpreted
@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("allocation", ["equal", "unified"])
def test_two_streams_are_a_window_join(policy: str, allocation: str) -> None:
    a, b = random_streams(1, 2, 300, 12).values()
    join = ps.WindowJoin(within=40, budget=ps.Tuples(31), policy=policy, allocation=allocation, seed=3)
    two = join.run(a, b, on="k", time="ts", collect=True, log=True)
    settings = {"on": "k", "time": "ts", "within": 40, "budget": ps.Tuples(31), "allocation": allocation}
    many = ps.join_many({"left": a, "right": b}, policy=policy, seed=3, collect=True, log=True, **settings)
    assert many.results is not None
    assert two.pairs is not None
    assert many.results[0].to_pylist() == two.pairs.to_pylist()
    logged = [run.events.select(["event", "row", "step"]).to_pylist() for run in (two, many)]
    assert logged[0] == logged[1]
    for figure in (
        "results",
        "exact",
        "evicted",
        "expired",
        "buffered",
        "refused",
        "peak_tuples",
        "arrivals",
    ):
        assert getattr(many.stats, figure) == getattr(two.stats, figure), figure


@pytest.mark.interpreted
@given(case=cases(), policy=st.sampled_from(["fifo", "gdj"]))
def test_exact_counts_are_those_of_unlimited_memory(case: Case, policy: str) -> None:
    whole = case.simulate("fifo", budget=1_000, allocation="unified")
    stats = case.run(policy).stats
    per_join = Counter(j for j, _ in whole.results)
    assert stats.exact_per_join == tuple(per_join[j] for j in range(len(case.joins)))
    assert stats.exact == len(whole.results)
    enough = case.run(policy, budget=ps.Tuples(1_000)).stats
    assert (enough.results, enough.evicted, enough.recall) == (stats.exact, 0, 1.0)


@pytest.mark.interpreted
@pytest.mark.parametrize("policy", POLICIES)
@given(case=cases(most=3), cut=st.integers(0, 30))
@settings(max_examples=25)
def test_a_restored_state_goes_on_and_invariants_hold(policy: str, case: Case, cut: int) -> None:
    arrivals = many_arrivals_of(case.tables, joins_of(case.tables, case.on), "ts", "ms")
    config = ManyConfig(
        streams=len(case.streams),
        joins=arrivals.joins,
        window=window_of(case.within).resolve("ms"),
        policy=ps.policies.get(policy),
        capacities=(case.budget,),
        seed=5,
    )
    columns = (arrivals.stream, arrivals.key, arrivals.time, arrivals.row)
    whole, state = ps.ManyState(config), ps.ManyState(config)
    expected = whole.process(*columns, collect=True, log=True)
    first = state.process(*(part[:cut] for part in columns), collect=True, log=True)
    state.check()
    state = ps.ManyState.restore(state.snapshot())
    second = state.process(*(part[cut:] for part in columns), collect=True, log=True)
    state.check()
    whole.check()
    for j in range(len(case.joins)):
        assert np.concatenate([first.rows[j], second.rows[j]]).tolist() == expected.rows[j].tolist()
    assert np.concatenate([first.counts, second.counts]).tolist() == expected.counts.tolist()
    assert np.concatenate([first.log, second.log]).tolist() == expected.log.tolist()
    assert state.totals() == whole.totals()


@pytest.mark.interpreted
def test_landmark_windows_join_tuples_of_one_period() -> None:
    rows = {"k": [1, 1], "ts": [8, 12]}
    settings = {"on": "k", "time": "ts", "within": ps.Landmark(10), "budget": ps.Tuples(9)}
    run = ps.join_many({"a": rows, "b": rows, "c": rows}, policy="fifo", collect=True, **settings)
    assert run.results is not None
    assert run.results[0].to_pylist() == [{"a_row": row, "b_row": row, "c_row": row} for row in (0, 1)]
    assert run.stats.exact == 2


def test_room_for_results_grows(monkeypatch: pytest.MonkeyPatch) -> None:
    data = random_streams(2, 3, 120, 4)
    settings = {"on": "k", "time": "ts", "within": 30, "budget": ps.Tuples(60), "policy": "fifo"}
    expected = ps.join_many(data, collect=True, **settings)
    monkeypatch.setattr(many_state, "FIRST_ROOM", 1)
    monkeypatch.setattr(many_state, "CHUNK", 7)
    run = ps.join_many(data, collect=True, **settings)
    assert run.results == expected.results
    assert run.stats.results == expected.stats.results > 1_000


def test_inputs_of_every_kind_give_the_same() -> None:
    data = random_streams(3, 3, 100, 6)
    settings = {"time": "ts", "within": "20 ms", "budget": ps.Tuples(20), "policy": "lru"}
    expected = ps.join_many(data, on="k", collect=True, **settings).results
    frames = {name: pd.DataFrame(columns) for name, columns in data.items()}
    arrows = {name: pa.table(columns) for name, columns in data.items()}
    words = {name: frame.assign(k=frame["k"].map("key {}".format)) for name, frame in frames.items()}
    stamps = {name: frame.assign(ts=pd.to_datetime(frame["ts"], unit="ms")) for name, frame in frames.items()}
    for streams in (frames, arrows, words, stamps):
        assert ps.join_many(streams, on="k", collect=True, **settings).results == expected
    listed = [tuple((name, "k") for name in data)]
    assert ps.join_many(data, on=listed, collect=True, **settings).results == expected
    named = {name: frame.rename(columns={"ts": f"at_{name}"}) for name, frame in frames.items()}
    times = {name: f"at_{name}" for name in data}
    run = ps.join_many(named, on="k", collect=True, **settings | {"time": times})
    assert run.results == expected


@pytest.mark.interpreted
def test_keys_of_several_columns() -> None:
    a = {"x": [1, 1, None], "y": [1, 2, 1], "ts": [0, 1, 2]}
    b = {"x": [1, 1], "y": [2, 2], "ts": [3, 4]}
    settings = {"time": "ts", "within": 9, "budget": ps.Tuples(9), "policy": "fifo"}
    run = ps.join_many({"a": a, "b": b}, on=["x", "y"], collect=True, **settings)
    assert run.results is not None
    assert run.results[0].to_pydict() == {"a_row": [1, 1], "b_row": [0, 1]}
    assert run.stats.null_keys == (1, 0)


def test_times_may_be_floats() -> None:
    data = random_streams(4, 3, 200, 6)
    floats = {name: columns | {"ts": columns["ts"] / 2.0} for name, columns in data.items()}
    settings = {"on": "k", "time": "ts", "budget": ps.Tuples(30), "policy": "fifo"}
    whole = ps.join_many(data, within=25, **settings).stats
    halves = ps.join_many(floats, within=12.5, **settings).stats
    assert (whole.results, whole.exact, whole.evicted) == (halves.results, halves.exact, halves.evicted)


@pytest.mark.interpreted
def test_a_fraction_is_of_what_the_exact_answer_needs() -> None:
    data = random_streams(5, 3, 200, 6)
    span = max(c["ts"][-1] for c in data.values()) - min(c["ts"][0] for c in data.values())
    run = ps.join_many(data, on="k", time="ts", within=20, budget=ps.Fraction(0.2), policy="fifo")
    assert run.stats.limits == (int(0.2 * 600 * 20 / span),)
    assert run.stats.peak_tuples <= run.stats.limits[0]


@pytest.mark.interpreted
@given(total=st.integers(5, 200), weights=st.lists(st.floats(0, 1e6), min_size=2, max_size=5))
def test_shares_are_whole_and_near_their_quota(total: int, weights: list[float]) -> None:
    shares = apportion(total, np.array(weights))
    assert shares.sum() == total
    assert shares.min() >= 1
    if sum(weights) > 0 and shares.min() > 1:
        quotas = total * np.array(weights) / sum(weights)
        assert (np.abs(shares - quotas) < 1.000001).all()


@pytest.mark.interpreted
def test_allocations() -> None:
    data = random_streams(6, 3, 120, 6)
    data["b"] = {name: column[:30] for name, column in data["b"].items()}
    settings = {"on": "k", "time": "ts", "within": 30, "budget": ps.Tuples(20), "policy": "fifo"}
    assert apportion(20, np.array([120.0, 30.0, 120.0])).tolist() == [9, 2, 9]
    for allocation, limits in (("unified", (20,)), ("equal", (7, 7, 6)), ("proportional", (9, 2, 9))):
        stats = ps.join_many(data, allocation=allocation, **settings).stats
        assert stats.limits == limits
        assert stats.peak_tuples <= 20
        assert_accounts(stats)


@pytest.mark.interpreted
@given(case=cases(allocations=("credit",)))
def test_credit_keeps_the_budget(case: Case) -> None:
    run = case.run("gdj")
    assert sum(run.stats.limits) == case.budget
    assert min(run.stats.limits) >= 1
    assert run.stats.peak_tuples <= case.budget
    assert_accounts(run.stats)


@pytest.mark.interpreted
@given(case=cases(most=3, allocations=("credit",)), cut=st.integers(0, 30))
@settings(max_examples=25)
def test_credit_does_not_depend_on_batches(case: Case, cut: int) -> None:
    arrivals = many_arrivals_of(case.tables, joins_of(case.tables, case.on), "ts", "ms")
    m = len(case.streams)
    config = ManyConfig(
        streams=m,
        joins=arrivals.joins,
        window=window_of(case.within).resolve("ms"),
        policy=ps.policies.get("gdj"),
        capacities=tuple(apportion(case.budget, np.ones(m)).tolist()),
        every=case.budget,
    )
    columns = (arrivals.stream, arrivals.key, arrivals.time, arrivals.row)
    whole, state = ps.ManyState(config), ps.ManyState(config)
    whole.process(*columns)
    for part in (slice(0, cut), slice(cut, cut), slice(cut, None)):
        state.process(*(column[part] for column in columns))
        state.check()
    assert state.totals() == whole.totals()
    assert state.limits == whole.limits


def test_credit_gives_the_memory_to_the_query_that_earns() -> None:
    """Two queries: the streams of one share hot keys, those of the other hardly ever meet."""
    rng = np.random.default_rng(7)
    n, ts = 4_000, np.arange(4_000)
    hot = {name: {"k": (300 * rng.random(n) ** 3).astype(int), "ts": ts} for name in "ab"}
    cold = {name: {"k": rng.integers(0, 50_000, n), "ts": ts} for name in "cd"}
    settings = {
        "on": [(("a", "k"), ("b", "k")), (("c", "k"), ("d", "k"))],
        "time": "ts",
        "within": 500,
        "budget": ps.Tuples(200),
    }
    runs = {
        allocation: ps.join_many(hot | cold, allocation=allocation, **settings).stats
        for allocation in ("equal", "credit", "unified")
    }
    assert runs["credit"].results > 1.2 * runs["equal"].results
    assert runs["credit"].results > runs["unified"].results > runs["equal"].results
    assert sum(runs["credit"].limits[:2]) > sum(runs["credit"].limits[2:])


class Latest(ps.policies.PythonPolicy):
    """LFU in plain Python, which counts what it is told of."""

    name = "latest"

    def start(self) -> dict[str, int]:
        return {"arrived": 0, "left": 0}

    def arrived(self, stream: int, key: int, memory: Any, now: Any) -> None:
        memory["arrived"] += 1

    def entered(self, item: ps.policies.Item, memory: Any) -> None:
        item.data = 0

    def matched(self, item: ps.policies.Item, memory: Any, now: Any) -> None:
        item.data += 1

    def left(self, item: ps.policies.Item, memory: Any) -> None:
        memory["left"] += 1

    def score(self, item: ps.policies.Item, now: Any) -> float:
        return item.data


@pytest.mark.interpreted
@given(case=cases())
@settings(max_examples=20)
def test_a_policy_in_plain_python(case: Case) -> None:
    assert_agrees(case.run(Latest()), case.simulate("lfu"))


@pytest.mark.interpreted
def test_a_selective_policy_in_plain_python_sees_the_newcomer() -> None:
    class Keys(Latest):
        name = "keys"
        selective = True

        def score(self, item: ps.policies.Item, now: Any) -> float:
            return -item.key

    rows = {"k": [0, 1, 2, 3], "ts": [0, 1, 2, 3]}
    none = {"k": [], "ts": []}
    settings = {"on": "k", "time": "ts", "within": 9, "budget": ps.Tuples(3), "policy": Keys()}
    run = ps.join_many({"a": rows, "b": none, "c": none}, log=True, **settings)
    assert run.stats.refused == 1
    assert fate(run, "evicted") == [(0, 3)]


@pytest.mark.interpreted
def test_empty_streams() -> None:
    none: dict[str, list[int]] = {"k": [], "ts": []}
    settings = {"on": "k", "time": "ts", "within": 9, "budget": ps.Tuples(3), "policy": "fifo"}
    run = ps.join_many({"a": none, "b": none, "c": none}, collect=True, log=True, **settings)
    assert (run.stats.arrivals, run.stats.recall) == (0, 1.0)


@pytest.mark.interpreted
def test_too_many_results_to_count_are_refused() -> None:
    streams = {name: {"k": np.zeros(2_200, int), "ts": np.zeros(2_200, int)} for name in "abcdefg"}
    settings = {"on": "k", "time": "ts", "within": 9, "budget": ps.Tuples(7), "policy": "fifo"}
    with pytest.raises(ps.PenstockError, match="too many to count"):
        ps.join_many(streams, **settings)


GOOD: dict[str, Any] = {
    "streams": {"a": {"k": [1], "ts": [0]}, "b": {"k": [1], "ts": [0]}},
    "on": "k",
    "time": "ts",
    "within": 10,
    "budget": ps.Tuples(4),
}
PAIR = (("a", "k"), ("b", "k"))


@pytest.mark.interpreted
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"streams": {"a": {"k": [1], "ts": [0]}}}, "at least two streams"),
        ({"streams": [1, 2]}, "a dict of name to table"),
        ({"streams": {"a": 1, "b": 2}}, "int was given"),
        ({"on": "kk"}, "no column 'kk'; did you mean 'k'"),
        ({"on": 7}, "list of joins"),
        ({"on": []}, "list of joins"),
        ({"on": [(("a", "k"),)]}, "at least two members"),
        ({"on": [("a", "b")]}, "A member of a join"),
        ({"on": [(("a", "k"), ("c", "k"))]}, "no stream 'c'"),
        ({"on": [(("a", "k"), ("a", "k"))]}, "once"),
        ({"on": [(("a", "k"), ("b", ["k", "ts"]))]}, "same number of key columns"),
        ({"on": [PAIR], "streams": GOOD["streams"] | {"c": {"k": [1], "ts": [0]}}}, "but 'c' does not"),
        ({"time": "at"}, "no column 'at'"),
        ({"time": {"a": "ts"}}, "has none for 'b'"),
        ({"within": -1}, "not negative"),
        ({"within": (0, 10)}, "must be symmetric"),
        ({"within": ps.Rows(5)}, "need a window of time"),
        ({"within": ps.Landmark(1.5)}, "whole number"),
        ({"budget": ps.Tuples(1)}, "at least one tuple per stream, 2 in all"),
        ({"budget": ps.Fraction(0.1)}, "is 0 tuples"),
        ({"budget": ps.Bytes("1 KiB")}, "too little for the tables"),
        ({"budget": ps.Bytes("1 MiB"), "allocation": "credit", "policy": "gdj"}, "in tuples"),
        ({"policy": "gjd"}, "did you mean 'gdj'"),
        ({"policy": "life"}, "not defined for joins of many streams.*fifo.*gdj"),
        ({"policy": "age"}, "not defined for joins of many streams.*fifo.*gdj"),
        ({"policy": "gdj:method=2"}, "method=2"),
        ({"allocation": "unifed"}, "did you mean 'unified'"),
        ({"allocation": "credit", "policy": "lru"}, "credits of gdj"),
        ({"seed": -1}, "seed"),
    ],
)
def test_what_is_refused(change: dict[str, Any], message: str) -> None:
    given = GOOD | change
    with pytest.raises(ps.PenstockError, match=message):
        ps.join_many(given.pop("streams"), **given)


@pytest.mark.interpreted
def test_a_state_refuses_keys_it_cannot_use() -> None:
    window, policy = window_of(5).resolve("ms"), ps.policies.get("fifo")
    state = ps.ManyState(ManyConfig(2, ((0, 1), (1, 0)), window, policy, (4,)))
    with pytest.raises(ps.PenstockError, match="1 x 2"):
        state.process([0], [3], [0], [0])
    with pytest.raises(ps.PenstockError, match="leave out"):
        state.process([0], [[-1, -1]], [0], [0])
    with pytest.raises(ps.PenstockError, match="Key codes"):
        state.process([0], [[1 << 62, 0]], [0], [0])


@pytest.mark.interpreted
def test_a_snapshot_of_another_operator_is_refused() -> None:
    state = ps.WindowJoin(within=5, budget=ps.Tuples(4), policy="fifo").start()
    with pytest.raises(ps.PenstockError, match="another operator"):
        ps.ManyState.restore(state.snapshot())
