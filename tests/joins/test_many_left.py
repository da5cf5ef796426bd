"""Left joins of many streams against their plain simulation: no row comes out alone that is in a result."""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock as ps
from penstock.compiler.interpreter import interpreted
from penstock.compiler.tiers import only
from penstock.engine.join_loop import drive
from penstock.errors import PenstockError, SnapshotError
from penstock.joins import ManyState, ManyStreamState, many_state, start_many
from penstock.joins.many_left import fates_of_first
from tests.joins import test_many_windows as windows
from tests.oracles.many_left import LeftOutcome, simulate_left

POLICIES = windows.POLICIES
FINE = 12  # spans up to which a pane of the filter is one unit of time


@dataclass(frozen=True)
class Case(windows.Case):
    """One join over all streams, or a chain."""

    def simulate(self, policy: str, **options: Any) -> LeftOutcome:
        return simulate_left(
            self.rows, self.joins, self.windows, streams=self.streams,
            policy=policy, warmup=self.warmup, lateness=self.lateness,
            **{"budget": self.budget, "allocation": self.allocation} | options,
        )  # fmt: skip

    @property
    def fine(self) -> bool:
        """Whether the filter of lost keys cannot err by the width of its panes."""
        spans = [width for kind, width in self.windows.spans.values() if kind == "time"]
        near = [sum(pair) for pair in self.windows.pairs.values()]
        return sum(near) <= FINE if near else max(spans, default=0) <= FINE

    @property
    def nulls(self) -> list[int]:
        """The rows of the first stream that lack a key."""
        columns = [column for join in self.joins for s, column in join if s == 0]
        return [
            n
            for n, (s, _, keys) in enumerate(self.rows)
            if s == 0 and any(keys[column] is None for column in columns)
        ]


@st.composite
def cases(draw: st.DrawFn, ordered: bool, most: int = 4) -> Case:
    case = draw(windows.cases(ordered, most))
    joins = case.joins
    if not case.chain:
        column = st.sampled_from(windows.COLUMNS)
        joins = [tuple((s, draw(column)) for s in draw(st.permutations(range(case.streams))))]
    return Case(**{**vars(case), "joins": joins})


def agree(case: Case, came: set[int], undecided: set[int], expected: LeftOutcome) -> None:
    """The filter may say yes wrongly: then a row is undecided that is certain."""
    assert came <= set(expected.unmatched)
    assert set(expected.undecided) <= undecided
    assert came | undecided == set(expected.unmatched) | set(expected.undecided)
    if case.fine:
        assert came == set(expected.unmatched)


@pytest.mark.interpreted
@pytest.mark.parametrize("policy", POLICIES)
@given(case=cases(ordered=True))
@settings(max_examples=60)
def test_in_order_agrees_with_the_oracle(policy: str, case: Case) -> None:
    expected, own = case.simulate(policy), windows.own_rows(case)
    run = case.run(policy, how="left")
    assert run.results is not None
    assert run.events is not None
    rows = [tuple(row.values()) for row in run.results[0].to_pylist()]
    first = [s for s, _ in case.joins[0]].index(0) if not case.chain else 0
    results = [row for row in rows if None not in row]
    alone = [row[first] for row in rows if None in row]
    assert Counter(results) == Counter(tuple(own_of(case, own, found)) for _, found in expected.results)
    assert len(alone) == len(set(alone)) == run.stats.unmatched
    nulls = {own[row] for row in case.nulls}
    assert nulls <= set(alone)
    number = {own[row]: row for row, (s, _, _) in enumerate(case.rows) if s == 0}
    undecided = [e["row"] for e in run.events.to_pylist() if e["event"] == "undecided"]
    assert len(undecided) == len(set(undecided)) == run.stats.undecided
    agree(
        case, {number[row] for row in alone} - set(case.nulls), {number[row] for row in undecided}, expected
    )
    whole = case.simulate("fifo", budget=10_000, allocation="unified")
    assert not whole.undecided
    assert run.stats.exact == len(whole.results) + len(whole.unmatched) + len(nulls)
    assert {number[row] for row in alone} <= set(whole.unmatched) | set(case.nulls)
    if not expected.evicted:
        assert run.stats.recall == 1
    stats = run.stats
    assert stats.arrivals == stats.expired + stats.evicted
    assert stats.buffered == 0


def own_of(case: Case, own: list[int], found: tuple[int, ...]) -> list[int]:
    """A result of the oracle, by the streams' order in the join and rows' numbers in their streams."""
    order = range(case.streams) if case.chain else [s for s, _ in case.joins[0]]
    return [own[found[s]] for s in order]


@pytest.mark.interpreted
@pytest.mark.parametrize("policy", POLICIES)
@given(case=cases(ordered=False))
@settings(max_examples=60)
def test_out_of_step_agrees_with_the_oracle(policy: str, case: Case) -> None:
    """Late rows take no part; snapshots and batches change nothing."""
    expected = case.simulate(policy)
    state = case.start(policy, how="left")
    state.late_watch = None
    parts = [case.feed(state, 0, case.cut)]
    state.check()
    state = ManyStreamState.restore(state.snapshot())
    parts += [case.feed(state, case.cut, len(case.rows)), state.finish(collect=True, log=True)]
    state.check()
    first = [s for s, _ in case.joins[0]].index(0) if not case.chain else 0
    rows = [tuple(row) for part in parts for row in part.rows[0].tolist()]
    order = range(case.streams) if case.chain else [s for s, _ in case.joins[0]]
    results = Counter(row for row in rows if -1 not in row)
    assert results == Counter(tuple(found[s] for s in order) for _, found in expected.results)
    alone = [row[first] for row in rows if -1 in row]
    assert sorted(alone) == sorted(row for part in parts for row in part.unmatched.tolist())
    log = np.concatenate([part.log for part in parts])
    named = {kind: [int(row) for k, _, row, _ in log if k == kind] for kind in (0, 3, 5)}
    assert named[0] == [row for _, row in expected.evicted]
    assert named[3] == expected.late
    agree(case, set(alone), set(named[5]), expected)
    totals = state.totals()
    assert (totals["unmatched"], totals["undecided"]) == (len(alone), len(named[5]))
    assert totals["late"] == len(expected.late)
    whole = case.simulate("fifo", budget=10_000, allocation="unified")
    assert set(alone) <= set(whole.unmatched)
    if not expected.evicted:
        assert set(alone) == set(whole.unmatched)
        assert state.recall.value == 1
    if named[5] and state.recall.value is not None:
        assert state.recall.at_most


@pytest.mark.interpreted
@given(case=cases(ordered=False, most=3), policy=st.sampled_from(["lru", "gdj", "prob"]))
@settings(max_examples=30)
def test_batches_do_not_matter(case: Case, policy: str) -> None:
    whole, piecewise = (case.start(policy, how="left") for _ in "ab")
    expected = [case.feed(whole, 0, len(case.rows)), whole.finish(collect=True, log=True)]
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(many_state, "FIRST_ROOM", 1)
        patched.setattr(many_state, "CHUNK", 3)
        parts = [case.feed(piecewise, 0, case.cut), case.feed(piecewise, case.cut, len(case.rows))]
        parts.append(piecewise.finish(collect=True, log=True))
    rows = [
        Counter(map(tuple, np.concatenate([o.rows[0] for o in outs]).tolist())) for outs in (expected, parts)
    ]
    assert rows[0] == rows[1]
    logs = [np.concatenate([out.log for out in outs]).tolist() for outs in (expected, parts)]
    assert logs[0] == logs[1]
    assert piecewise.totals() == whole.totals()


@pytest.mark.interpreted
@pytest.mark.parametrize("policy", ["fifo", "gdj", "prob"])
@given(case=cases(ordered=True, most=3), rate=st.sampled_from([0.3, 1.0]), seed=st.integers(0, 99))
@settings(max_examples=30)
def test_dropped_arrivals(policy: str, case: Case, rate: float, seed: int) -> None:
    """Who is dropped without a result is undecided, and so is who may have lost a member by that."""
    run, own = case.run(policy, drop_rate=rate, seed=seed, how="left"), windows.own_rows(case)
    assert run.events is not None
    assert run.results is not None
    events = run.events.to_pylist()
    gone = {(e["stream"], e["row"]) for e in events if e["event"] == "dropped"}
    dropped = {row for row, (s, _, _) in enumerate(case.rows) if (windows.NAMES[s], own[row]) in gone}
    expected = case.simulate(policy, dropped=dropped)
    number = {own[row]: row for row, (s, _, _) in enumerate(case.rows) if s == 0}
    column = run.results[0].column("a_row").to_pylist()
    others = run.results[0].column("b_row").to_pylist()
    alone = {number[row] for row, other in zip(column, others, strict=True) if other is None}
    undecided = {number[e["row"]] for e in events if e["event"] == "undecided"}
    agree(case, alone - set(case.nulls), undecided, expected)
    whole = case.simulate("fifo", budget=10_000, allocation="unified")
    assert alone - set(case.nulls) <= set(whole.unmatched)


@pytest.mark.interpreted
@given(case=cases(ordered=False, most=3), budget=st.sampled_from([4, 9, 40]))
@settings(max_examples=40)
def test_another_budget_takes_over(case: Case, budget: int) -> None:
    """Nothing wrong comes out, and every row of the first stream has one fate."""
    case = replace(case, warmup=0)
    state = case.start("lru", how="left")
    state.late_watch = None
    parts = [case.feed(state, 0, case.cut)]
    fresh = case.start("gdj", budget=ps.Tuples(budget), how="left")
    fresh.late_watch = None
    undecided = state.undecided
    log, _ = fresh.take_over(state)
    fresh.check()
    assert fresh.undecided >= undecided
    fresh = ManyStreamState.restore(fresh.snapshot())
    parts += [case.feed(fresh, case.cut, len(case.rows)), fresh.finish(collect=True, log=True)]
    whole = case.simulate("fifo", budget=10_000, allocation="unified")
    alone = [row for part in parts for row in part.unmatched.tolist()]
    assert len(alone) == len(set(alone)) == fresh.unmatched
    assert set(alone) <= set(whole.unmatched)
    first = [s for s, _ in case.joins[0]].index(0) if not case.chain else 0
    matched = {row[first] for part in parts for row in part.rows[0].tolist() if -1 not in row}
    mine = {row for row, (s, _, _) in enumerate(case.rows) if s == 0} - set(case.nulls) - set(whole.late)
    assert fresh.undecided == len(mine - matched - set(alone))
    if not len(log) and fresh.totals()["evicted"] == 0:
        assert set(alone) == set(whole.unmatched)


@pytest.mark.usefixtures("hasty")
@pytest.mark.parametrize("kind", ["star", "chain"])
def test_a_change_of_policy_forgets_nothing(kind: str) -> None:
    """`auto` gives the tuples other slots; what is known of them goes along."""
    rng = np.random.default_rng(2)
    n = 900
    stream, time = rng.integers(0, 3, n), np.arange(n) - rng.integers(0, 9, n)
    key = (60 * rng.random((n, 2)) ** 3).astype(np.int64)
    given: dict[str, Any] = {"joins": [(0, 1, 2)], "within": 80}
    if kind == "chain":
        given = {"joins": [(0, 1), (1, 2)], "chain": True, "within": {(0, 1): 80, (1, 2): 60}}
    key = key[:, :1] if kind == "star" else np.where((stream != 1)[:, None] & [[False, True]], -1, key)
    given |= {"lateness": 9, "how": "left"}
    exact = start_many(3, budget="5000 tuples", policy="fifo", **given)
    outs = [exact.process(stream, key, time, np.arange(n), collect=True), exact.finish(collect=True)]
    truth = {row for out in outs for row in out.unmatched.tolist()}
    state: Any = start_many(3, budget="60 tuples", policy="auto:candidates=fifo/prob", **given)
    fixed = start_many(3, budget="60 tuples", policy="fifo", **given)
    counts = []
    for each in (state, fixed):
        alone: list[int] = []
        for cut in np.array_split(np.arange(n), 6):
            out = each.process(stream[cut], key[cut], time[cut], cut, collect=True)
            alone += out.unmatched.tolist()
            each.check()
            each = ManyStreamState.restore(each.snapshot())
        alone += each.finish(collect=True).unmatched.tolist()
        assert set(alone) <= truth
        counts.append(len(alone))
        state = each if each.choice is not None else state
    assert state.choice.switches > 0
    assert counts[0] > 0


@pytest.mark.interpreted
def test_every_policy_and_bytes_tell_no_wrong_row() -> None:
    rng = np.random.default_rng(3)
    data = {n: {"k": rng.zipf(1.4, 150) % 12, "ts": np.sort(rng.integers(0, 300, 150))} for n in "abc"}
    given = {"on": "k", "time": "ts", "within": 25, "how": "left", "collect": True}
    whole = ps.join_many(data, budget=ps.Tuples(900), **given)
    assert whole.results is not None
    exact = Counter(tuple(row.values()) for row in whole.results[0].to_pylist())
    assert whole.stats.exact == exact.total()
    assert (whole.stats.recall, whole.stats.undecided) == (1, 0)
    for policy in ps.policies.registered():
        if not (policy.many or policy.chooses) or policy.needs_future:
            continue
        budgets = [ps.Tuples(12)] + ([ps.Bytes(60_000)] if policy.counts_bytes else [])
        for budget in budgets:
            run = ps.join_many(data, budget=budget, policy=policy, **given)
            assert run.results is not None
            assert Counter(tuple(row.values()) for row in run.results[0].to_pylist()) <= exact
            assert run.stats.results + run.stats.unmatched <= run.stats.exact
            if isinstance(budget, ps.Bytes):
                assert run.stats.peak_bytes <= budget.n


@pytest.mark.interpreted
def test_pools_that_follow_their_credits() -> None:
    """Tuples that leave because their pool shrinks have left early, too."""
    rng = np.random.default_rng(8)
    data = {n: {"k": rng.zipf(1.4, 200) % 12, "ts": np.sort(rng.integers(0, 400, 200))} for n in "abc"}
    given = {"on": "k", "time": "ts", "within": 40, "how": "left", "collect": True, "policy": "gdj"}
    runs = [
        ps.join_many(data, budget=ps.Tuples(n), allocation=allocation, **given)
        for n, allocation in ((900, "unified"), (40, "credit"))
    ]
    exact, few = (Counter(map(str, run.results[0].to_pylist())) for run in runs if run.results is not None)
    assert few <= exact
    assert runs[1].stats.unmatched > 0 < runs[1].stats.undecided


@pytest.mark.interpreted
@pytest.mark.parametrize("on", ["k", ps.Chain(("a.k", "b.k"), ("b.l", "c.l"))])
def test_no_row_is_wrong_whatever_left_early(on: Any) -> None:
    """Rows evicted at random, or dropped, between those of a result."""
    unmatched = undecided = 0
    for seed in range(6):
        rng = np.random.default_rng(seed)
        data = {
            name: {
                "k": rng.integers(0, 25, 150),
                "l": rng.integers(0, 15, 150),
                "ts": np.sort(rng.integers(0, 300, 150)),
            }
            for name in "abc"
        }
        given = {"on": on, "time": "ts", "within": 30, "how": "left", "collect": True, "policy": "rand"}
        whole = ps.join_many(data, budget=ps.Tuples(900), **given)
        assert whole.results is not None
        exact = Counter(map(str, whole.results[0].to_pylist()))
        for options in ({"budget": ps.Tuples(25)}, {"budget": ps.Tuples(400), "drop_rate": 0.15}):
            run = ps.join_many(data, seed=seed, **given, **options)
            assert run.results is not None
            assert Counter(map(str, run.results[0].to_pylist())) <= exact
            unmatched, undecided = unmatched + run.stats.unmatched, undecided + run.stats.undecided
    assert unmatched > 100 < undecided


@pytest.mark.interpreted
def test_a_loss_further_off_in_a_chain_leaves_a_row_undecided() -> None:
    """The row of c that would have completed the result leaves while a waits, and before b says its key."""
    a, b = {"k": [1], "ts": [0]}, {"k": [1], "l": [2], "ts": [3]}
    c = {"l": [2, 9], "ts": [1, 2]}
    chain = ps.Chain(("a.k", "b.k"), ("b.l", "c.l"))
    given = {"on": chain, "time": "ts", "within": 10, "how": "left", "policy": "fifo", "allocation": "equal"}
    stats = ps.join_many({"a": a, "b": b, "c": c}, budget=ps.Tuples(3), **given).stats
    assert (stats.exact, stats.results, stats.unmatched, stats.undecided) == (1, 0, 0, 1)
    stats = ps.join_many({"a": a, "b": b | {"k": [7]}, "c": c}, budget=ps.Tuples(3), **given).stats
    assert (stats.exact, stats.results, stats.unmatched, stats.undecided) == (1, 0, 1, 0)


def test_landmarks() -> None:
    rng = np.random.default_rng(4)
    data = {n: {"k": rng.integers(0, 8, 120), "ts": np.sort(rng.integers(0, 300, 120))} for n in "abc"}
    given = {"on": "k", "time": "ts", "within": ps.Landmark(20), "how": "left", "collect": True}
    tables = {n: list(zip(each["k"].tolist(), each["ts"].tolist(), strict=True)) for n, each in data.items()}
    truth = {
        row
        for row, (key, time) in enumerate(tables["a"])
        if not all(any((key, time // 20) == (k, t // 20) for k, t in tables[n]) for n in "bc")
    }
    for budget in (10, 400):
        run = ps.join_many(data, budget=ps.Tuples(budget), **given)
        assert run.results is not None
        alone = {row["a_row"] for row in run.results[0].to_pylist() if row["b_row"] is None}
        assert alone <= truth
        assert len(alone) == run.stats.unmatched
        assert budget == 10 or alone == truth


@pytest.mark.interpreted
def test_two_streams_are_as_window_join_has_them() -> None:
    """With two streams the rules are those of an outer join of two."""
    rng = np.random.default_rng(5)
    left, right = ({"k": rng.integers(0, 40, 400), "ts": np.sort(rng.integers(0, 900, 400))} for _ in "lr")
    many = ps.join_many(
        {"l": left, "r": right}, on="k", time="ts", within=50, budget=ps.Tuples(30), policy="fifo", how="left"
    )
    pair = ps.WindowJoin(within=50, budget=ps.Tuples(30), policy="fifo", how="left").run(
        left, right, on="k", time="ts"
    )
    assert many.stats.exact == pair.stats.exact
    assert many.stats.results == pair.stats.results
    assert pair.stats.unmatched <= many.stats.unmatched <= 1.02 * pair.stats.unmatched


@pytest.mark.interpreted
def test_what_is_known_is_a_part_of_the_snapshot() -> None:
    state = start_many(3, [(0, 1, 2)], within=10, budget="9 tuples", policy="lru", how="left")
    state.process([0, 1, 0], [7, 7, 8], [1, 2, 3], [0, 0, 1])
    assert state.known is not None
    fate, met = fates_of_first(state.known, state.store, state.index)
    assert (fate.tolist(), met.tolist()) == ([0, 0], [[1, 0], [0, 0]])
    state.known.stamp[1, 0] = 2**40
    with pytest.raises(SnapshotError, match="an event is out of range"):
        ManyStreamState.restore(state.snapshot())


@pytest.mark.interpreted
def test_after_the_end_no_row_comes() -> None:
    state = start_many(3, [(0, 1, 2)], within=10, budget="9 tuples", policy="lru", how="left")
    state.process([0, 1], [7, 7], [1, 2], [5, 0])
    assert state.finish(collect=True).rows[0].tolist() == [[5, -1, -1]]
    state = ManyStreamState.restore(state.snapshot())
    with pytest.raises(PenstockError, match="ended the streams"):
        state.process([1], [7], [3], [1])


@pytest.mark.interpreted
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"how": "full"}, "only 'inner' and 'left'"),
        ({"how": "lefty"}, "did you mean 'left'"),
        ({"how": "left", "on": [(("a", "k"), ("b", "k")), (("b", "k"), ("c", "k"))]}, "has 2 joins"),
    ],
)
def test_what_is_refused(change: dict[str, Any], message: str) -> None:
    given = windows.GOOD | change
    with pytest.raises(PenstockError, match=message):
        ps.join_many(given.pop("streams"), **given)


@pytest.mark.parametrize("together", [True, False])
@pytest.mark.parametrize("kind", ["star", "chain"])
def test_compiling_changes_nothing(kind: str, together: bool) -> None:
    rng = np.random.default_rng(7)
    n = 1_500
    stream, time = rng.integers(0, 3, n), np.arange(n) - (0 if together else rng.integers(0, 9, n))
    given: dict[str, Any] = {"joins": [(0, 1, 2)], "within": 100}
    key = rng.integers(0, 40, (n, 1))
    if kind == "chain":
        given = {"joins": [(0, 1), (1, 2)], "chain": True, "within": {(0, 1): 100, (1, 2): (100, 60)}}
        key = np.where((stream != 1)[:, None] & [[False, True]], -1, rng.integers(0, 40, (n, 2)))
    found = []
    for tier in ("interpreted", "compiled"):
        with only("compiled"):
            state: Any = start_many(3, budget="60 tuples", policy="gdj", how="left", lateness=5, **given)
            if together:
                state = ManyState(replace(state.config, lateness=None))
            state.late_watch = None
            if tier == "interpreted":
                state._kernel = interpreted(drive)
            outs = [state.process(stream, key, time, np.arange(n), collect=True, log=True)]
            outs.append(state.finish(collect=True, log=True))
            state.check()
        rows, log = (
            np.concatenate(parts).tolist() for parts in zip(*((o.rows[0], o.log) for o in outs), strict=True)
        )
        found.append((rows, log, state.totals()))
    assert found[0] == found[1]
    assert found[0][2]["unmatched"] > 0 < found[0][2]["undecided"]


def test_in_step_snapshots_change_nothing() -> None:
    rng = np.random.default_rng(6)
    n = 400
    columns = rng.integers(0, 3, n), rng.integers(0, 20, n), np.sort(rng.integers(0, 500, n)), np.arange(n)
    config = replace(
        start_many(3, [(0, 1, 2)], within=40, budget="14 tuples", policy="gdj", how="left").config,
        lateness=None,
    )
    found = []
    for pieces in (1, 7):
        state, outs = ManyState(config), []
        for cut in np.array_split(np.arange(n), pieces):
            outs.append(state.process(*(column[cut] for column in columns), collect=True, log=True))
            state.check()
            state = ManyState.restore(state.snapshot())
        outs.append(state.finish(collect=True, log=True))
        found.append(
            (
                Counter(itertools.chain.from_iterable(map(tuple, out.rows[0].tolist()) for out in outs)),
                np.concatenate([out.log for out in outs]).tolist(),
                state.totals(),
            )
        )
    assert found[0] == found[1]
    assert found[0][2]["unmatched"] > 0 < found[0][2]["undecided"]
