"""Windows per stream and per pair, chains, drops and warm-up, against their plain simulation."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock as ps
from penstock.errors import PenstockError
from penstock.joins import ManyStreamState, many_state, start_many
from tests.oracles.many import ManyOutcome
from tests.oracles.many_windows import Windows, simulate_windows
from tests.oracles.policies import POLICIES as ORACLES

EVICTED, EXPIRED, DROPPED = 0, 1, 2
NAMES = "abcd"
COLUMNS = ("k", "l")
POLICIES = [name for name in ORACLES if ps.policies.get(name).many]


@dataclass(frozen=True)
class Case:
    """Rows in the order in which they come, joins or the links of a chain, and windows."""

    streams: int
    chain: bool
    joins: list[tuple[tuple[int, str], ...]]
    rows: list[tuple[int, int, dict[str, Any]]]
    windows: Windows
    budget: int
    allocation: str
    lateness: list[int] | None
    cut: int
    warmup: int = 0

    @property
    def within(self) -> dict[Any, Any]:
        spans = {s: ps.Rows(n) if kind == "rows" else n for s, (kind, n) in self.windows.spans.items()}
        return spans | self.windows.pairs

    def simulate(self, policy: str, **options: Any) -> ManyOutcome:
        return simulate_windows(
            self.rows, self.joins, self.windows, streams=self.streams, chain=self.chain,
            policy=policy, warmup=self.warmup, lateness=self.lateness,
            **{"budget": self.budget, "allocation": self.allocation} | options,
        )  # fmt: skip

    def run(self, policy: Any, **options: Any) -> ps.ManyRun:
        """The same in process; rows of a table are numbered in it."""
        tables = {}
        for s in range(self.streams):
            mine = [row for row in self.rows if row[0] == s]
            tables[NAMES[s]] = {c: [keys[c] for _, _, keys in mine] for c in COLUMNS}
            tables[NAMES[s]]["ts"] = np.array([time for _, time, _ in mine], np.int64)
        named = [tuple((NAMES[s], column) for s, column in join) for join in self.joins]
        within = {
            tuple(NAMES[s] for s in key) if isinstance(key, tuple) else NAMES[key]: window
            for key, window in self.within.items()
        }
        given = {"budget": ps.Tuples(self.budget), "allocation": self.allocation, "warmup": self.warmup}
        on = ps.Chain(*named) if self.chain else named
        return ps.join_many(
            tables, on=on, time="ts", within=within, policy=policy, collect=True, log=True, **given | options
        )

    def start(self, policy: Any, **options: Any) -> ManyStreamState:
        given = {"budget": ps.Tuples(self.budget), "allocation": self.allocation, "warmup": self.warmup}
        members = [tuple(s for s, _ in join) for join in self.joins]
        return start_many(
            self.streams, members, within=self.within, chain=self.chain, policy=policy,
            lateness=tuple(self.lateness or ()), **given | options,
        )  # fmt: skip

    def feed(self, state: Any, first: int, last: int) -> Any:
        """Process some of the rows, but for those without the keys they need."""
        places = [
            [column for join in self.joins for t, column in join if t == s] for s in range(self.streams)
        ]
        most = max(map(len, places))
        stream, key, time, row = [], [], [], []
        for number in range(first, last):
            s, at, keys = self.rows[number]
            mine = [-1 if keys[column] is None else keys[column] for column in places[s]]
            if (min(mine) if self.chain else max(mine)) >= 0:
                stream.append(s), key.append(mine + [-1] * (most - len(mine)))
                time.append(at), row.append(number)
        return state.process(stream, np.array(key).reshape(-1, most), time, row, collect=True, log=True)


@st.composite
def cases(draw: st.DrawFn, ordered: bool, most: int = 4) -> Case:
    m = draw(st.integers(2, most))
    column = st.sampled_from(COLUMNS)
    chain = draw(st.booleans())
    if chain:
        links = [(draw(st.integers(0, s - 1)), s) for s in range(1, m)]
        if m > 2 and draw(st.booleans()):  # a ring, or two links between the same streams
            links.append(draw(st.sampled_from([(0, m - 1), links[0]])))
        joins = [tuple((s, draw(column)) for s in link) for link in links]
    elif draw(st.booleans()):
        joins = [tuple((s, draw(column)) for s in range(m))]
    else:
        joins = [tuple((s, draw(column)) for s in (a, (a + 1) % m)) for a in range(m if m > 2 else 1)]
    span = st.integers(0, 25)
    kinds = st.sampled_from(["time", "time", "rows"]) if ordered else st.just("time")
    windows = Windows({s: (draw(kinds), draw(span) + 1) for s in range(m)})
    if draw(st.booleans()):
        pairs = {tuple(join[i][0] for i in (n, n + 1)) for join in joins for n in range(len(join) - 1)}
        chosen = {
            pair: (draw(span), draw(span))
            for pair in sorted(pairs)
            if pair[::-1] not in pairs or pair < pair[::-1]
        }
        some = {
            s: ("time", width) for s, (_, width) in windows.spans.items() if s == 0 and draw(st.booleans())
        }
        windows = Windows(some, chosen)
    key = st.one_of(st.integers(0, 1), st.integers(0, 1), st.integers(0, 2), st.none())
    row = st.tuples(
        st.integers(0, m - 1), st.integers(0, 40), st.fixed_dictionaries(dict.fromkeys(COLUMNS, key))
    )
    rows = draw(st.lists(row, min_size=1, max_size=32))
    if ordered:
        rows = sorted(rows, key=lambda each: each[:2][::-1])
    return Case(
        streams=m,
        chain=chain,
        joins=joins,
        rows=rows,
        windows=windows,
        budget=draw(st.integers(m, 14)),
        allocation=draw(st.sampled_from(["unified", "equal"])),
        lateness=None if ordered else draw(st.lists(st.integers(0, 15), min_size=m, max_size=m)),
        cut=draw(st.integers(0, len(rows))),
        warmup=draw(st.sampled_from([0, 0, 5])),
    )


def results_of(run: ps.ManyRun) -> Counter[Any]:
    assert run.results is not None
    return Counter((j, tuple(row.values())) for j, each in enumerate(run.results) for row in each.to_pylist())


def own_rows(case: Case) -> list[int]:
    """The number of each row in its own stream."""
    seen: Counter[int] = Counter()
    numbers = []
    for s, _, _ in case.rows:
        numbers.append(seen[s])
        seen[s] += 1
    return numbers


@pytest.mark.interpreted
@pytest.mark.parametrize("policy", POLICIES)
@given(case=cases(ordered=True))
@settings(max_examples=60)
def test_in_order_agrees_with_the_oracle(policy: str, case: Case) -> None:
    expected, own = case.simulate(policy), own_rows(case)
    run = case.run(policy)
    assert run.results is not None
    assert run.events is not None
    found = Counter(
        (j, tuple(row.values())) for j, each in enumerate(run.results) for row in each.to_pylist()
    )
    assert found == Counter((j, tuple(own[row] for row in rows)) for j, rows in expected.results)
    fate = {
        event: [(NAMES.index(e["stream"]), e["row"]) for e in run.events.to_pylist() if e["event"] == event]
        for event in ("evicted", "expired")
    }
    assert fate["evicted"] == [(s, own[row]) for s, row in expected.evicted]
    assert sorted(fate["expired"]) == sorted((s, own[row]) for s, row in expected.expired)
    stats = run.stats
    assert (stats.results, stats.peak_tuples, sum(stats.null_keys)) == (
        len(expected.results), expected.peak, expected.nulls,
    )  # fmt: skip
    assert stats.arrivals == stats.buffered + stats.expired + stats.evicted
    whole = case.simulate("fifo", budget=10_000, allocation="unified")
    assert stats.exact == len(whole.results)
    assert stats.exact_per_join == tuple(
        Counter(j for j, _ in whole.results)[j] for j in range(len(stats.exact_per_join))
    )


@pytest.mark.interpreted
@pytest.mark.parametrize("policy", POLICIES)
@given(case=cases(ordered=False))
@settings(max_examples=60)
def test_out_of_step_agrees_with_the_oracle(policy: str, case: Case) -> None:
    expected = case.simulate(policy)
    state = case.start(policy)
    first = case.feed(state, 0, case.cut)
    state.check()
    state = ManyStreamState.restore(state.snapshot())
    parts = [first, case.feed(state, case.cut, len(case.rows))]
    state.check()
    found = [(j, tuple(row)) for part in parts for j, rows in enumerate(part.rows) for row in rows.tolist()]
    assert sorted(found) == sorted(expected.results)
    assert sum(int(part.counts.sum()) for part in parts) == len(found) == sum(state.per_join)
    log = np.concatenate([part.log for part in parts])
    named = {kind: [(int(s), int(row)) for k, s, row, _ in log if k == kind] for kind in (EVICTED, EXPIRED)}
    assert named[EVICTED] == expected.evicted
    assert sorted(named[EXPIRED]) == sorted(expected.expired)
    assert state.totals()["peak_tuples"] == expected.peak
    lost = state.totals()["evicted"] + state.late
    assert lost or (state.recall.value == 1.0 and state.missed == 0)
    if state.missed == 0 and lost and not state.config.estimable:
        assert state.recall.value is None or state.recall.at_most or len(parts[1].counts) == 0


@pytest.mark.interpreted
@given(case=cases(ordered=False, most=3), policy=st.sampled_from(["lru", "gdj"]))
@settings(max_examples=25)
def test_batches_do_not_matter_and_room_for_results_grows(case: Case, policy: str) -> None:
    whole, piecewise = case.start(policy), case.start(policy)
    expected = case.feed(whole, 0, len(case.rows))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(many_state, "FIRST_ROOM", 1)
        patched.setattr(many_state, "CHUNK", 3)
        parts = [case.feed(piecewise, 0, case.cut), case.feed(piecewise, case.cut, len(case.rows))]
    for j in range(len(expected.rows)):
        assert np.concatenate([part.rows[j] for part in parts]).tolist() == expected.rows[j].tolist()
    assert np.concatenate([part.log for part in parts]).tolist() == expected.log.tolist()
    assert piecewise.totals() == whole.totals()


@pytest.mark.interpreted
@given(case=cases(ordered=True, most=3), policy=st.sampled_from(["lru", "gdj"]))
@settings(max_examples=25)
def test_in_order_batches_do_not_matter(case: Case, policy: str) -> None:
    expected = case.run(policy)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(many_state, "FIRST_ROOM", 1)
        patched.setattr(many_state, "CHUNK", 3)
        run = case.run(policy)
    assert (run.results, run.events) == (expected.results, expected.events)


@pytest.mark.interpreted
@pytest.mark.parametrize("policy", ["fifo", "gdj", "prob"])
@given(case=cases(ordered=True, most=3), rate=st.sampled_from([0.3, 1.0]), seed=st.integers(0, 99))
@settings(max_examples=25)
def test_dropped_arrivals_probe_and_do_not_enter(policy: str, case: Case, rate: float, seed: int) -> None:
    run, own = case.run(policy, drop_rate=rate, seed=seed), own_rows(case)
    assert run.events is not None
    gone = {(e["stream"], e["row"]) for e in run.events.to_pylist() if e["event"] == "dropped"}
    dropped = {row for row, (s, _, _) in enumerate(case.rows) if (NAMES[s], own[row]) in gone}
    expected = case.simulate(policy, dropped=dropped)
    found = Counter(
        (j, tuple(row.values())) for j, each in enumerate(run.results) for row in each.to_pylist()
    )
    assert found == Counter((j, tuple(own[row] for row in rows)) for j, rows in expected.results)
    stats = run.stats
    assert stats.arrivals == stats.buffered + stats.expired + stats.evicted + stats.dropped
    assert stats.dropped == len(dropped)
    assert rate < 1 or stats.buffered == 0
    again = case.run(policy, drop_rate=rate, seed=seed)
    assert again.results == run.results


@pytest.mark.interpreted
@given(case=cases(ordered=False, most=3))
@settings(max_examples=20)
def test_another_budget_takes_over(case: Case) -> None:
    case = replace(case, warmup=0)
    old = case.start("lru", drop_rate=0.3)
    case.feed(old, 0, case.cut)
    fresh = case.start("gdj", budget=ps.Tuples(30), drop_rate=0.3)
    log, _ = fresh.take_over(old)
    fresh.check()
    assert fresh.buffered == old.buffered - len(log)
    case.feed(fresh, case.cut, len(case.rows))
    fresh.check()


def test_one_window_and_the_same_for_each_stream_are_one() -> None:
    rng = np.random.default_rng(1)
    data = {n: {"k": rng.integers(0, 9, 200), "ts": np.sort(rng.integers(0, 300, 200))} for n in "abc"}
    given = {"on": "k", "time": "ts", "budget": ps.Tuples(40), "collect": True}
    one = ps.join_many(data, within=30, **given)
    each = ps.join_many(data, within=dict.fromkeys("abc", 30), **given)
    pairs = ps.join_many(data, within={("a", "b"): 30, ("b", "c"): 30, ("a", "c"): 30}, **given)
    assert one.results is not None
    assert each.results == one.results
    assert pairs.results is not None
    assert sorted(map(str, pairs.results[0].to_pylist())) == sorted(map(str, one.results[0].to_pylist()))
    assert one.stats.evicted == pairs.stats.evicted > 0
    star = ps.Chain(("a.k", "b.k"), ("b.k", "c.k"))
    linked = ps.join_many(data, within=30, **given | {"on": star})
    assert linked.stats.exact == one.stats.exact
    enough = ps.join_many(data, within=30, **given | {"on": star, "budget": ps.Tuples(600)})
    assert (enough.stats.results, enough.stats.recall) == (one.stats.exact, 1.0)


def test_a_fraction_counts_each_streams_own_window() -> None:
    data = {n: {"k": np.arange(100), "ts": np.arange(100)} for n in "ab"}
    given = {"on": "k", "time": "ts", "policy": "fifo", "budget": ps.Fraction(0.5)}
    run = ps.join_many(data, within={"a": 10, "b": ps.Rows(30)}, **given)
    assert run.stats.limits == (int(0.5 * (100 * 10 / 99 + 30)),)


GOOD: dict[str, Any] = {
    "streams": {n: {"k": [1], "ts": [0]} for n in "abc"},
    "on": "k",
    "time": "ts",
    "within": 10,
    "budget": ps.Tuples(4),
    "policy": "fifo",
}


@pytest.mark.interpreted
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"within": {"a": 1, "b": 2}}, "no window for 'c'"),
        ({"within": {"a": 1, "b": 2, "d": 3}}, "'d', which is no stream"),
        ({"within": {"a": (1, 2), "b": 2, "c": 3}}, "window of one stream"),
        ({"within": {"a": ps.Landmark(5), "b": 2, "c": 3}}, "one for all streams"),
        ({"within": {("a", "b"): 5}}, "how far 'a' and 'c'"),
        ({"within": {("a", "b"): 5, ("b", "c"): ps.Rows(3)}}, "span or .before, after."),
        ({"within": {("a", "b"): 5, ("b", "c"): 5, "a": ps.Rows(3)}}, "cannot be combined"),
        ({"within": {("a", "a"): 5}}, "A pair of streams"),
        ({"within": ps.Rows(5)}, "a window of time.*dict"),
        ({"on": ps.Chain(("a.k", "b.k"))}, "none leads from 'a', 'b' to 'c'"),
        ({"on": ps.Chain(("a.k", "b.k"), ("b.k", "d.k"))}, "'d.k' is no column of a stream"),
        ({"on": ps.Chain(("a.k", "b.x"), ("b.k", "c.k"))}, "no column 'x'"),
        ({"on": ps.Chain(("a.k", "a.k"), ("b.k", "c.k"))}, "once"),
        (
            {"on": [(("a", "k"), ("b", "k")), (("b", "k"), ("c", "k"))], "within": {("a", "c"): 1}},
            "no join has both",
        ),
        ({"drop_rate": 1.5}, "probability from 0 to 1"),
        ({"drop_rate": "unbiased"}, "two streams"),
        ({"how": "full"}, "only 'inner' and 'left'"),
        ({"warmup": -1}, "whole number from 0 up"),
    ],
)
def test_what_is_refused(change: dict[str, Any], message: str) -> None:
    given = GOOD | change
    with pytest.raises(PenstockError, match=message):
        ps.join_many(given.pop("streams"), **given)


@pytest.mark.interpreted
@pytest.mark.parametrize("links", [(), ("a.k",), ("ab",), (("a.k", "b.k", "c.k"),)])
def test_what_is_no_chain(links: Any) -> None:
    with pytest.raises(PenstockError, match="takes links"):
        ps.Chain(*links)


def test_a_stream_out_of_step_has_no_window_of_rows() -> None:
    with pytest.raises(PenstockError, match="window of time"):
        start_many(2, [(0, 1)], within={0: ps.Rows(3), 1: 5}, budget="9 tuples")
