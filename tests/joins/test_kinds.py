"""Outer, semi and anti joins and joins with one match, against their plain simulations."""

from __future__ import annotations

import itertools
from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock as ps
from penstock.engine.lost_keys import may_be_lost, new_lost_keys, note_lost
from penstock.errors import PenstockError
from penstock.joins.budgets import lost_bytes_of
from penstock.joins.kinds import JoinKind
from penstock.joins.stream import StreamState
from tests.joins.agreement import Case, cases, events, online
from tests.oracles.kinds import Fate, exact_rows, simulate_kind, simulate_kind_late

pytestmark = pytest.mark.interpreted

HOWS = ("inner", "left", "right", "full", "left_semi", "left_anti")
KINDS = [
    *((how, "all") for how in HOWS[1:]),
    *((how, matches) for matches in ("once", "one-to-one") for how in HOWS[:4]),
]
every_kind = pytest.mark.parametrize(("how", "matches"), KINDS)
POLICIES = ("fifo", "lru", "lfu", "prob", "life", "gdj", "clock", "clock-exp")
FINE = 12  # horizons up to which a pane of the filter is one unit of time


def rows(run: ps.JoinRun) -> list[tuple[int, int]]:
    """The rows that came out; -1 for no row."""
    assert run.pairs is not None
    sides = [
        [-1 if row is None else row for row in run.pairs.column(name).to_pylist()]
        for name in run.pairs.column_names
    ]
    return list(zip(*sides, strict=True))


def fine(within: Any) -> bool:
    """Whether the filter of lost keys cannot err by the width of its panes."""
    if isinstance(within, tuple) and within[0] in ("rows", "landmark"):
        return within[1] <= FINE
    return max(within if isinstance(within, tuple) else (within,)) <= FINE


def assert_fates(case: Case, run: ps.JoinRun, expected: Fate, how: str, matches: str) -> None:
    """The same results and the same fate of every tuple; no row that the exact join does not have."""
    stats, came = run.stats, Counter(rows(run))
    nulls = {
        (s, row)
        for s, stream in enumerate((case.left, case.right))
        for row, (_, key) in enumerate(stream)
        if key is None
    }
    sides = {"left": (0,), "left_anti": (0,), "right": (1,), "full": (0, 1)}.get(how, ())
    kept_nulls = {name for name in nulls if name[0] in sides}
    unmatched = {(0, a) if b < 0 else (1, b) for a, b in came if (a < 0 or b < 0) and how != "left_semi"}
    found = Counter({pair: n for pair, n in came.items() if how == "left_semi" or min(pair) >= 0})
    assert found == Counter(expected.pairs)
    assert Counter(events(run, "evicted")) == Counter(expected.evicted)
    assert Counter(events(run, "expired")) == Counter(expected.expired)
    assert Counter(events(run, "released")) == Counter(expected.released)
    assert Counter(events(run, "dropped")) == Counter(expected.dropped)
    undecided = events(run, "undecided")
    assert len(undecided) == len(set(undecided)) == stats.undecided
    assert stats.unmatched == len(unmatched)
    # The filter may say yes wrongly: then a row is undecided that is certain.
    certain = set(expected.unmatched)
    assert kept_nulls <= unmatched <= certain | kept_nulls
    assert set(expected.undecided) <= set(undecided)
    if how != "left_semi":
        assert unmatched | set(undecided) == certain | kept_nulls | set(expected.undecided)
    if fine(case.within) and matches != "one-to-one":
        assert unmatched == certain | kept_nulls
        assert set(undecided) == set(expected.undecided)
    exact = Counter(exact_rows(case.left, case.right, case.within, how, matches))
    assert stats.exact == exact.total()
    assert stats.results + stats.unmatched == came.total()
    if matches == "all":
        assert came <= exact
    assert {pair for pair in came if min(pair) < 0} <= set(exact)
    if not expected.evicted and not expected.dropped:
        assert came == exact
        assert stats.recall == 1
        assert stats.undecided == 0
    gone = stats.expired + stats.evicted + stats.dropped + stats.released
    assert stats.arrivals == stats.buffered + gone


@every_kind
@settings(max_examples=60)
@given(data=st.data())
def test_same_results_and_same_fate_of_every_tuple(how: str, matches: str, data: st.DataObject) -> None:
    case = data.draw(cases("arrival"))
    case = Case(case.left, case.right, case.within, case.budget, case.allocation)
    policy = data.draw(st.sampled_from(POLICIES))
    run = case.run(policy, how=how, matches=matches)
    expected = simulate_kind(
        case.left,
        case.right,
        within=case.within,
        budget=case.budget,
        policy=policy,
        how=how,
        matches=matches,
        allocation=case.allocation,
    )
    assert_fates(case, run, expected, how, matches)


@pytest.mark.parametrize("drop_at", ["admission", "arrival"])
@pytest.mark.parametrize(
    ("how", "matches"), [("left", "all"), ("full", "all"), ("left_anti", "all"), ("full", "once")]
)
@settings(max_examples=40)
@given(data=st.data())
def test_dropped_arrivals(how: str, matches: str, drop_at: str, data: st.DataObject) -> None:
    """Who is dropped is undecided, and so is who may have lost a partner by that."""
    case = data.draw(cases("arrival", kinds="symmetric one-sided landmark"))
    case = Case(case.left, case.right, case.within, case.budget, case.allocation)
    rate, seed = data.draw(st.sampled_from([0.1, 0.5, 1.0])), data.draw(st.integers(0, 1_000))
    run = case.run("fifo", how=how, matches=matches, drop_rate=rate, drop_at=drop_at, seed=seed)
    gone = set(events(run, "dropped"))
    expected = simulate_kind(
        case.left,
        case.right,
        within=case.within,
        budget=case.budget,
        policy="fifo",
        how=how,
        matches=matches,
        allocation=case.allocation,
        dropped=[(s, row) in gone for _, s, row in case.arrivals],
        drop_at=drop_at,
    )
    assert_fates(case, run, expected, how, matches)


def log_of(log: Any, kind: str) -> list[tuple[int, int]]:
    """The tuples (stream, row) to which something happened."""
    number = ("evicted", "expired", "dropped", "late", "released", "undecided").index(kind)
    return [(s, row) for what, s, row, _ in log if what == number]


@every_kind
@settings(max_examples=50)
@given(data=st.data())
def test_streams_that_advance_independently(how: str, matches: str, data: st.DataObject) -> None:
    """Late rows take no part, unless it is an inner join; snapshots and batches change nothing."""
    event = st.tuples(
        st.integers(0, 1), st.integers(0, 40), st.integers(0, data.draw(st.sampled_from([1, 3, 8])))
    )
    feed = data.draw(st.lists(event, max_size=60))
    if data.draw(st.booleans()):
        feed.sort(key=lambda row: row[1] + 15 * row[0])  # one stream ahead of the other
    within = data.draw(st.tuples(st.integers(0, 20), st.integers(0, 20)))
    lateness, budget = data.draw(st.sampled_from([0, 3, 50])), data.draw(st.sampled_from([2, 4, 7, 200]))
    policy = data.draw(st.sampled_from(["fifo", "lru", "prob", "gdj"]))
    join = ps.WindowJoin(within=within, budget=ps.Tuples(budget), policy=policy, how=how, matches=matches)
    state: Any = join.start(lateness=lateness)
    state.late_watch = None
    cuts = sorted(data.draw(st.lists(st.integers(0, len(feed)), max_size=3)))
    outs = []
    for first, last in zip([0, *cuts], [*cuts, len(feed)], strict=True):
        part = feed[first:last]
        columns = [[row[i] for row in part] for i in (0, 2, 1)]
        outs.append(state.process(*columns, list(range(first, last)), collect=True, log=True))
        state.check()
        state = StreamState.restore(state.snapshot())
    outs.append(state.finish(collect=True, log=True))
    expected = simulate_kind_late(
        feed, within=within, budget=budget, policy=policy, how=how, matches=matches, lateness=lateness
    )
    came = [tuple(pair) for out in outs for pair in out.pairs.tolist()]
    log = [entry for out in outs for entry in out.log.tolist()]
    unmatched = {(0, a) if b < 0 else (1, b) for a, b in came if min(a, b) < 0 and how != "left_semi"}
    found = Counter(pair for pair in came if how == "left_semi" or min(pair) >= 0)
    assert found == Counter(expected.pairs)
    for kind in ("evicted", "expired", "released", "late"):
        if kind == "expired":  # late rows count as expired, and are logged as late
            mine = log_of(log, kind) + (log_of(log, "late") if how != "inner" else [])
        else:
            mine = log_of(log, kind)
        assert Counter(mine) == Counter(getattr(expected, kind)), kind
    undecided = log_of(log, "undecided")
    assert unmatched <= set(expected.unmatched)
    assert set(expected.undecided) <= set(undecided)
    if how != "left_semi":
        assert unmatched | set(undecided) == set(expected.unmatched) | set(expected.undecided)
    totals = state.totals()
    assert (totals["unmatched"], totals["undecided"]) == (len(unmatched), len(undecided))
    late = {row for _, row in expected.late}
    if matches == "all" and how != "inner":
        exact = exact_of(feed, late, within, how)
        assert Counter(came) <= exact
        if not expected.evicted:
            assert Counter(came) == exact


def exact_of(feed: list[Any], late: set[int], within: Any, how: str, matches: str = "all") -> Counter[Any]:
    """The exact join of the rows that came in time, by their numbers in the feed."""
    sides: list[list[Any]] = [[], []]
    numbers: list[list[int]] = [[], []]
    for row, (s, time, key) in enumerate(feed):
        if row not in late:
            sides[s].append((time, key))
            numbers[s].append(row)
    rows = exact_rows(sides[0], sides[1], within, how, matches)
    return Counter((numbers[0][a] if a >= 0 else -1, numbers[1][b] if b >= 0 else -1) for a, b in rows)


@pytest.mark.parametrize("policy", [name for name in online() if name not in ("age", "sample")])
@pytest.mark.parametrize(("how", "matches"), [("full", "all"), ("left_semi", "all"), ("left", "one-to-one")])
def test_no_policy_tells_a_wrong_row(policy: str, how: str, matches: str) -> None:
    """Every policy, with a snapshot in the middle, in tuples and in bytes."""
    rng = np.random.default_rng(3)
    sides = [
        [
            (int(t), int(k))
            for t, k in zip(np.sort(rng.integers(0, 300, 120)), rng.zipf(1.4, 120) % 12, strict=True)
        ]
        for _ in "lr"
    ]
    exact = Counter(exact_rows(*sides, 25, how, matches))
    arrivals = sorted((t, s, row, k) for s, side in enumerate(sides) for row, (t, k) in enumerate(side))
    columns = [np.array([each[i] for each in arrivals]) for i in (1, 3, 0, 2)]
    budgets: list[Any] = [ps.Tuples(9)]
    if ps.policies.get(policy).counts_bytes:
        budgets.append(ps.Bytes(24_000))
    for budget in budgets:
        join = ps.WindowJoin(within=25, budget=budget, policy=policy, how=how, matches=matches, seed=5)
        sized = {"size": np.full(80, 40)} if isinstance(budget, ps.Bytes) else {}
        whole, halves = join.start(), join.start()
        came = []
        for state, cuts in ((whole, [0, 240]), (halves, [0, 80, 160, 240])):
            pairs = []
            for first, last in itertools.pairwise(cuts):
                part = [column[first:last] for column in columns]
                sizes = {name: np.full(last - first, 40) for name in sized}
                pairs += state.process(*part, **sizes, collect=True).pairs.tolist()
                state.check()
                state = ps.JoinState.restore(state.snapshot())
            pairs += state.finish(collect=True).pairs.tolist()
            totals = state.totals()
            assert totals["results"] + totals["unmatched"] == len(pairs)
            left = sum(totals[name] for name in ("buffered", "expired", "evicted", "dropped", "released"))
            assert totals["arrivals"] == left == 240
            came.append((Counter(map(tuple, pairs)), totals))
            if isinstance(budget, ps.Bytes):
                assert state.peak_bytes <= budget.n
        assert came[0] == came[1]
        nulls = {pair: n for pair, n in came[0][0].items() if min(pair) < 0}
        assert Counter(nulls) <= exact
        if matches == "all":
            assert came[0][0] <= exact


@settings(max_examples=40)
@given(data=st.data())
def test_another_budget_tells_no_wrong_row(data: st.DataObject) -> None:
    """A state that goes on with another budget and policy: who does not fit in is undecided."""
    event = st.tuples(st.integers(0, 1), st.integers(0, 2), st.integers(0, 5))
    feed, time = [], 0
    for s, gap, key in data.draw(st.lists(event, min_size=10, max_size=60)):
        time += gap
        feed.append((s, time, key))
    how = data.draw(st.sampled_from(HOWS[1:]))
    matches = data.draw(st.sampled_from(["all", "one-to-one"])) if how in HOWS[:4] else "all"
    kind: dict[str, Any] = {"within": 8, "how": how, "matches": matches}
    budgets = data.draw(st.sampled_from([(30, 3), (3, 30), (5, 5)]))
    states: list[Any] = [
        ps.WindowJoin(budget=ps.Tuples(budget), policy=policy, **kind).start(lateness=0)
        for budget, policy in zip(budgets, ("lru", "fifo"), strict=True)
    ]
    cut = data.draw(st.integers(0, len(feed)))
    columns = [[row[i] for row in feed] for i in (0, 2, 1)]
    numbers = list(range(len(feed)))
    out = states[0].process(*(column[:cut] for column in columns), numbers[:cut], collect=True)
    came = out.pairs.tolist()
    states[1].take_over(states[0])
    states[1].check()
    came += (
        states[1].process(*(column[cut:] for column in columns), numbers[cut:], collect=True).pairs.tolist()
    )
    came += states[1].finish(collect=True).pairs.tolist()
    exact = exact_of(feed, set(), 8, how, matches)
    totals = states[1].totals()
    found = Counter(map(tuple, came))
    assert totals["results"] + totals["unmatched"] == found.total()
    assert {pair for pair in found if min(pair) < 0} <= set(exact)
    if matches == "all":
        assert found <= exact
    if totals["evicted"] == 0:
        assert found == exact
    gone = sum(totals[name] for name in ("buffered", "expired", "evicted", "dropped", "released"))
    assert totals["arrivals"] == gone == len(feed)


def orders(n: int, seed: int = 1) -> tuple[dict[str, Any], dict[str, Any]]:
    """Orders, each paid once after an exponential delay."""
    rng = np.random.default_rng(seed)
    at = np.sort(rng.integers(0, 20 * n, n))
    paid = at + rng.exponential(4_000, n).astype(np.int64)
    order = np.argsort(paid, kind="stable")
    return {"id": np.arange(n), "ts": at}, {"id": order, "ts": paid[order]}


@pytest.mark.parametrize("policy", ["fifo", "lru", "learned", "auto"])
def test_a_row_that_has_found_its_one_partner_leaves(policy: str) -> None:
    """A fifth of the memory finds more of the orders that are paid once each; without, fifo finds .61."""
    left, right = orders(4_000)
    found = {}
    for matches in ("all", "once", "one-to-one"):
        join = ps.WindowJoin(within=("0 s", "24 s"), budget=ps.Fraction(0.2), policy=policy, matches=matches)
        run = join.run(left, right, on="id", time="ts", collect=True)
        assert run.stats.results == len(set(rows(run)))
        found[matches] = run.stats.recall
    assert found["once"] >= 0.8 > found["all"]
    assert found["one-to-one"] >= 0.8


def test_a_stream_that_has_ended_takes_no_more() -> None:
    state = ps.WindowJoin(within=5, budget=ps.Tuples(4), policy="lru", how="left").start()
    state.process([0], [1], [0], [0])
    assert state.finish(collect=True).pairs.tolist() == [[0, -1]]
    assert state.finish(collect=True).pairs.tolist() == []
    with pytest.raises(PenstockError, match="finish"):
        state.process([0], [1], [0], [0])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"how": "lefty"}, "did you mean 'left'"),
        ({"how": "left", "step": "tick"}, "step='arrival'"),
        ({"matches": "one"}, "matches='one' is not known"),
        ({"how": "left_semi", "matches": "once"}, "leave out matches"),
        ({"how": "full", "policy": "opt"}, "inner join"),
        (
            {"how": "left", "within": ps.Rows(4), "drop_rate": 0.5, "drop_at": "arrival"},
            "drop_at='admission'",
        ),
    ],
)
def test_what_cannot_be_combined_is_refused(options: dict[str, Any], message: str) -> None:
    given_ = {"within": 5, "budget": ps.Tuples(4), "policy": "lru"} | options
    with pytest.raises(PenstockError, match=message):
        ps.WindowJoin(**given_)


@settings(max_examples=100)
@given(data=st.data())
def test_the_filter_of_lost_keys_never_says_no_wrongly(data: st.DataObject) -> None:
    horizon = data.draw(st.sampled_from([0, 3, 40, 1_000]))
    together = data.draw(st.booleans())
    lost = new_lost_keys(
        data.draw(st.sampled_from([0, 64, 4_096])), (True, False), (horizon, horizon), True, together
    )
    clock, entered = data.draw(st.sampled_from([0, -500])), []
    for _ in range(data.draw(st.integers(0, 40))):
        clock += data.draw(st.sampled_from([0, 1, 7, 300]))
        time = clock - data.draw(st.integers(0, horizon)) + data.draw(st.sampled_from([0, 0, 5_000]))
        key = data.draw(st.integers(0, 5))
        note_lost(lost, 0, key, time, clock - horizon)
        entered.append((key, time))
        low = data.draw(st.integers(clock - horizon, clock + 10))
        high = low + data.draw(st.integers(0, 6_000))
        for other in range(6):
            there = any(key == other and low <= time <= high for key, time in entered)
            assert may_be_lost(lost, 0, other, low, high) or not there
    assert not may_be_lost(lost, 1, 0, -10_000, 10_000)


def test_the_filter_of_lost_keys_seldom_says_yes_wrongly() -> None:
    """Sized as for a tenth of the memory, with keys of which no two are alike."""
    tuples, rng = 300, np.random.default_rng(2)
    lost = new_lost_keys(lost_bytes_of(JoinKind("left"), tuples), (False, True), (9_000, 9_000), True, True)
    keys = rng.integers(0, 2**62, 6_000)
    wrong = 0
    for at, key in enumerate(keys.tolist()):
        if at % 3 == 0:
            note_lost(lost, 1, key, 3 * at, 3 * at - 9_000)
        wrong += may_be_lost(lost, 1, key + 1, 3 * at - 9_000, 3 * at)
    assert wrong <= 0.01 * len(keys)
