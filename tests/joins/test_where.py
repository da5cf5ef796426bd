"""Joins with a condition, against their plain simulations: every kind, streams in step and not, snapshots."""

from __future__ import annotations

import dataclasses
import itertools
from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock as ps
from penstock.errors import ConditionError, PenstockError
from penstock.joins.conditions import exact as exact_module
from penstock.joins.conditions.parser import parse_condition
from penstock.joins.stream import StreamState
from tests.joins.agreement import Case, cases, events, table
from tests.oracles.condition import passes
from tests.oracles.kinds import exact_rows, simulate_kind, simulate_kind_late

pytestmark = pytest.mark.interpreted

HOWS = ("inner", "left", "right", "full", "left_semi", "left_anti")
KINDS = [
    *((how, "all") for how in HOWS),
    *((how, matches) for matches in ("once", "one-to-one") for how in HOWS[:4]),
]
every_kind = pytest.mark.parametrize(("how", "matches"), KINDS)
CONDITIONS = (
    "left.v < right.w",
    "left.s <= right.s",
    "left.v + right.w > 3 or left.s = right.s",
    "not left.v = right.w",
    "left.v is null or left.v / 2e0 >= right.w",
    "left.v > 1",
    "right.s in ('a', left.s)",
)
POLICIES = ("fifo", "lru", "lfu", "prob", "life", "gdj", "clock")
TYPES = {"v": pa.int64(), "w": pa.float64(), "s": pa.string()}
ROW = st.fixed_dictionaries(
    {
        "v": st.none() | st.integers(0, 4),
        "w": st.none() | st.sampled_from([0.0, 1.0, 2.5, float("nan")]),
        "s": st.none() | st.sampled_from(["a", "b", "c", ""]),
    }
)


def columns(rows: list[dict[str, Any]]) -> dict[str, pa.Array]:
    return {name: pa.array([row[name] for row in rows], kind) for name, kind in TYPES.items()}


def out_of(run: ps.JoinRun) -> Counter[tuple[int, int]]:
    assert run.pairs is not None
    sides = [
        [-1 if row is None else row for row in run.pairs[name].to_pylist()]
        for name in ("left_row", "right_row")
    ]
    return Counter(zip(*sides, strict=True))


@every_kind
@settings(max_examples=20)
@given(data=st.data())
def test_same_results_and_same_fate_of_every_tuple(how: str, matches: str, data: st.DataObject) -> None:
    drawn = data.draw(cases("arrival"))
    case = Case(drawn.left, drawn.right, drawn.within, drawn.budget, drawn.allocation)
    rows = [
        data.draw(st.lists(ROW, min_size=len(side), max_size=len(side))) for side in (case.left, case.right)
    ]
    text, policy = data.draw(st.sampled_from(CONDITIONS)), data.draw(st.sampled_from(POLICIES))
    node = parse_condition(text)

    def passing(a: int, b: int) -> bool:
        return passes(node, rows[0][a], rows[1][b])

    join = case.join(policy, how=how, matches=matches, where=text)
    tables = [table(side) | columns(mine) for side, mine in zip((case.left, case.right), rows, strict=True)]
    run = join.run(*tables, on="key", time="ts", collect=True, log=True)
    expected = simulate_kind(
        case.left,
        case.right,
        within=case.within,
        budget=case.budget,
        policy=policy,
        how=how,
        matches=matches,
        allocation=case.allocation,
        passing=passing,
    )
    came, stats = out_of(run), run.stats
    exact = Counter(exact_rows(case.left, case.right, case.within, how, matches, passing))
    assert stats.exact == exact.total()
    assert Counter({p: n for p, n in came.items() if how == "left_semi" or min(p) >= 0}) == Counter(
        expected.pairs
    )
    ended = ("expired",) if (how, matches) != ("inner", "all") else ()  # otherwise some are still buffered
    for kind in ("evicted", "released", *ended):
        assert Counter(events(run, kind)) == Counter(getattr(expected, kind)), kind
    assert stats.results + stats.unmatched == came.total()
    assert {pair for pair in came if min(pair) < 0} <= set(exact)
    if matches == "all":
        assert came <= exact
    if not expected.evicted:
        assert came == exact
        assert stats.recall == 1
        assert stats.undecided == 0


@every_kind
@settings(max_examples=15)
@given(data=st.data())
def test_streams_that_advance_independently(how: str, matches: str, data: st.DataObject) -> None:
    """Snapshots and batches change nothing, though texts that arrive later move the ranks of others."""
    event = st.tuples(
        st.integers(0, 1), st.integers(0, 40), st.integers(0, data.draw(st.sampled_from([0, 3])))
    )
    feed = data.draw(st.lists(event, max_size=50))
    rows = data.draw(st.lists(ROW, min_size=len(feed), max_size=len(feed)))
    text, policy = data.draw(st.sampled_from(CONDITIONS)), data.draw(st.sampled_from(["fifo", "lru", "gdj"]))
    within, budget = (
        data.draw(st.tuples(st.integers(0, 20), st.integers(0, 20))),
        data.draw(st.sampled_from([3, 7, 200])),
    )
    lateness = data.draw(st.sampled_from([0, 50]))
    node = parse_condition(text)
    join = ps.WindowJoin(
        within=within, budget=ps.Tuples(budget), policy=policy, how=how, matches=matches, where=text
    )
    state: Any = join.start(lateness=lateness, columns=(TYPES, TYPES))
    state.late_watch = None
    cuts = sorted(data.draw(st.lists(st.integers(0, len(feed)), max_size=3)))
    came = []
    for first, last in zip([0, *cuts], [*cuts, len(feed)], strict=True):
        part, mine = feed[first:last], rows[first:last]
        sides = [
            pa.table(columns([row for (s, _, _), row in zip(part, mine, strict=True) if s == side]))
            for side in (0, 1)
        ]
        arrays = [[row[i] for row in part] for i in (0, 2, 1)]
        out = state.process(*arrays, list(range(first, last)), columns=sides, collect=True)
        came += out.pairs.tolist()
        state.check()
        state = StreamState.restore(state.snapshot())
    came += state.finish(collect=True).pairs.tolist()
    expected = simulate_kind_late(
        feed,
        within=within,
        budget=budget,
        policy=policy,
        how=how,
        matches=matches,
        lateness=lateness,
        passing=lambda a, b: passes(node, rows[a], rows[b]),
    )
    found = Counter(tuple(p) for p in came if how == "left_semi" or min(p) >= 0)
    assert found == Counter(expected.pairs)
    unmatched = {(0, a) if b < 0 else (1, b) for a, b in came if min(a, b) < 0 and how != "left_semi"}
    assert unmatched <= set(expected.unmatched)
    totals = state.totals()
    assert totals["results"] + totals["unmatched"] == len(came)


ONE = {"k": [1, 1, 2], "ts": [0, 1, 2], "v": [1, 5, 2], "s": ["a", "b", "c"]}
OTHER = {"k": [1, 2], "ts": [3, 4], "w": [3, 2], "s": ["b", "b"]}


def run(where: str | None, on: Any = "k", **options: Any) -> ps.JoinRun:
    join = ps.WindowJoin(**{"within": 10, "budget": ps.Tuples(10), "policy": "fifo", **options}, where=where)
    return join.run(ONE, OTHER, on=on, time="ts", collect=True)


def test_a_left_join_with_a_condition() -> None:
    found = run("left.v < right.w", how="left")
    assert found.pairs is not None
    assert found.pairs.to_pydict() == {"left_row": [0, 1, 2], "right_row": [0, None, None]}
    assert (found.stats.results, found.stats.unmatched, found.stats.exact) == (1, 2, 3)


@pytest.mark.parametrize("policy", ["auto", "learned", "gdj", "prob", "sample", "age"])
def test_policies(policy: str) -> None:
    assert run("left.v < right.w", policy=policy).stats.results == 1


def test_without_keys_every_pair_in_the_window_is_asked() -> None:
    assert out_of(run("left.v < right.w", on=())) == Counter({(0, 0): 1, (0, 1): 1, (2, 0): 1})
    assert run(None, on=[]).stats.results == 6


def test_a_sample_estimates_the_pairs_that_pass() -> None:
    rng = np.random.default_rng(0)
    sides = [
        {
            "k": rng.integers(0, 10, 1_000),
            "ts": np.sort(rng.integers(0, 5_000, 1_000)),
            "v": rng.integers(0, 9, 1_000),
        }
        for _ in "lr"
    ]
    found, truth = [], 0
    for seed in range(30):
        join = ps.WindowJoin(
            within=300, budget=ps.Tuples(60), policy="sample", seed=seed, where="left.v < right.v"
        )
        done = join.run(*sides, on="k", time="ts")
        truth = done.stats.exact
        found.append(done.estimate("count").value)
    assert abs(np.mean(found) / truth - 1) < 0.1


@pytest.mark.parametrize("policy", ["auto", "lru"])
@pytest.mark.parametrize("budget", [ps.Tuples(40), ps.Bytes(40_000)])
def test_snapshots_and_batches_change_nothing(policy: str, budget: Any) -> None:
    rng = np.random.default_rng(1)
    n = 900
    stream, key, time = (
        rng.integers(0, 2, n).astype(np.int8),
        rng.zipf(1.4, n) % 12,
        np.sort(rng.integers(0, 900, n)),
    )
    names = np.array([f"n{i}" for i in rng.integers(0, 300, n)], object)
    join = ps.WindowJoin(within=60, budget=budget, policy=policy, how="full", where="left.s < right.s")
    came = []
    for cuts in ([0, n], [0, 100, 101, 500, n]):
        state: Any = join.start(columns=({"s": pa.string()},) * 2)
        pairs = []
        for first, last in itertools.pairwise(cuts):
            part = slice(first, last)
            sides = [{"s": names[part][stream[part] == side]} for side in (0, 1)]
            sizes = np.full(last - first, 30) if isinstance(budget, ps.Bytes) else None
            arrays = (stream[part], key[part], time[part], np.arange(first, last))
            pairs += state.process(*arrays, sizes, columns=sides, collect=True).pairs.tolist()
            state = ps.JoinState.restore(state.snapshot())
        pairs += state.finish(collect=True).pairs.tolist()
        came.append((Counter(map(tuple, pairs)), state.totals()))
        if isinstance(budget, ps.Bytes):
            assert state.peak_bytes <= budget.n
    assert came[0] == came[1]


@pytest.mark.parametrize("how", ["inner", "full"])
def test_another_budget_takes_the_values_along(how: str) -> None:
    rng = np.random.default_rng(2)
    n = 300
    stream, key = rng.integers(0, 2, n).astype(np.int8), rng.integers(0, 5, n)
    time, names = (
        np.sort(rng.integers(0, 300, n)),
        np.array([f"n{i}" for i in rng.integers(0, 99, n)], object),
    )
    join = ps.WindowJoin(within=40, budget=ps.Tuples(400), policy="lru", how=how, where="left.s < right.s")
    types = ({"s": pa.string()},) * 2
    halves = []
    for part in (slice(0, 150), slice(150, n)):
        sides = [{"s": names[part][stream[part] == side]} for side in (0, 1)]
        halves.append(((stream[part], key[part], time[part], np.arange(n)[part]), sides))
    first, second = (
        dataclasses.replace(join, policy=policy).start(lateness=0, columns=types) for policy in ("lru", "gdj")
    )
    pairs = first.process(*halves[0][0], columns=halves[0][1], collect=True).pairs.tolist()
    second.take_over(first)
    second.check()
    pairs += second.process(*halves[1][0], columns=halves[1][1], collect=True).pairs.tolist()
    pairs += second.finish(collect=True).pairs.tolist()
    whole = join.start(lateness=0, columns=types)
    both = [{"s": names[stream == side]} for side in (0, 1)]
    wanted = whole.process(stream, key, time, np.arange(n), columns=both, collect=True).pairs.tolist()
    wanted += whole.finish(collect=True).pairs.tolist()
    assert Counter(map(tuple, pairs)) == Counter(map(tuple, wanted))
    assert second.totals()["results"] == whole.totals()["results"]
    assert second.missed == whole.missed == 0


def test_a_condition_without_a_value_is_an_error() -> None:
    with pytest.raises(ConditionError, match="divides by zero for left row 0 and right row 0"):
        run("left.v / (right.w - 3) > 1")
    assert run("right.w != 3 and left.v / (right.w - 3) > 1").stats.results == 0


def test_above_so_many_pairs_the_exact_join_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exact_module, "MOST_PAIRS", 2)
    stats = run("left.v < right.w").stats
    assert (stats.exact, stats.recall, stats.results) == (None, None, 1)
    with pytest.raises(PenstockError, match="not known"):
        stats.recalls(every=1)
    with pytest.raises(PenstockError, match="shorter sample"):
        ps.plan(ONE, OTHER, on="k", time="ts", within=3, budgets=["4 tuples"], where="left.v < right.w")


def test_a_plan_with_a_condition() -> None:
    plan = ps.plan(
        ONE,
        OTHER,
        on="k",
        time="ts",
        within=3,
        budgets=["9 tuples"],
        policies="all",
        where="left.v < right.w",
    )
    assert {(row.exact, row.recall) for row in plan.rows} == {(1, 1.0)}


def test_the_estimate_of_recall_counts_pairs_that_pass() -> None:
    rng = np.random.default_rng(5)
    n = 20_000
    stream, key, time = (
        rng.integers(0, 2, n).astype(np.int8),
        rng.integers(0, 50, n),
        np.sort(rng.integers(0, n, n)),
    )
    value = rng.random(n)
    text = "left.v < 0.3 * right.v"
    join = ps.WindowJoin(within=2_000, budget=ps.Tuples(600), policy="fifo", where=text)
    state: Any = join.start(lateness=0, columns=({"v": pa.float64()},) * 2)
    sides = [{"v": value[stream == side]} for side in (0, 1)]
    state.process(stream, key, time, np.arange(n), columns=sides)
    tables = [{"k": key[stream == s], "ts": time[stream == s], "v": value[stream == s]} for s in (0, 1)]
    truth = join.run(*tables, on="k", time="ts").stats.recall
    assert truth is not None
    assert abs(state.recall.value - truth) < 0.03


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"step": "tick"}, "step='tick' cannot be combined with where="),
        ({"policy": "opt"}, "cannot be combined with where="),
        ({"where": "left.v <"}, "found the end of the text"),
        ({"where": 3}, "where takes a text"),
    ],
)
def test_what_cannot_be_combined(options: dict[str, Any], told: str) -> None:
    with pytest.raises(PenstockError, match=told):
        ps.WindowJoin(**{"within": 5, "budget": ps.Tuples(4), "where": "left.v < right.w", **options})


def test_a_stream_needs_the_types_and_the_columns() -> None:
    join = ps.WindowJoin(within=5, budget=ps.Tuples(4), policy="fifo", where="left.v < right.v")
    with pytest.raises(PenstockError, match="start needs columns="):
        join.start()
    with pytest.raises(ConditionError, match="has no column 'v'"):
        join.start(columns=({"w": pa.int64()}, {"v": pa.int64()}))
    state = join.start(columns=(pa.schema({"v": pa.int64()}),) * 2)
    with pytest.raises(PenstockError, match="needs columns="):
        state.process([0], [1], [0], [0])
    with pytest.raises(PenstockError, match="a row per arrival"):
        state.process([0], [1], [0], [0], columns=({"v": [1, 2]}, {"v": []}))
    with pytest.raises(PenstockError, match="for joins with where"):
        ps.WindowJoin(within=5, budget=ps.Tuples(4), policy="fifo").start(columns=({}, {}))


def test_a_missing_column_is_told_before_any_work() -> None:
    with pytest.raises(ConditionError, match="did you mean 'v'"):
        run("left.vv < right.w")
