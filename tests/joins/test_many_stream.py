"""Many streams out of step: against their plain simulation, and against the join of streams in order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock as ps
from penstock.errors import PenstockError
from penstock.joins import ManyConfig, ManyStreamState, many_state, start_many
from penstock.window import window_of
from tests.oracles.many_stream import simulate_many_stream
from tests.oracles.policies import POLICIES as ORACLES

EVICTED, EXPIRED, LATE = 0, 1, 3
COLUMNS = ("k", "l")
POLICIES = [name for name in ORACLES if ps.policies.get(name).many]

Row = tuple[int, int, dict[str, Any]]  # stream, time, key by column


@dataclass(frozen=True)
class Case:
    """Rows in the order in which they come, and joins, in the words of the oracle."""

    streams: int
    joins: list[tuple[tuple[int, str], ...]]
    rows: list[Row]
    within: int
    budget: int
    allocation: str
    lateness: list[int]
    cut: int  # where the state is taken down and restored
    watermark: list[int]  # what is told of the progress of the streams at the cut

    def start(self, policy: Any, **options: Any) -> ManyStreamState:
        given = {
            "within": self.within,
            "budget": ps.Tuples(self.budget),
            "allocation": self.allocation,
            "lateness": tuple(self.lateness),
        }
        members = [tuple(s for s, _ in join) for join in self.joins]
        return start_many(self.streams, members, policy=policy, **given | options)

    def feed(self, state: Any, first: int, last: int) -> Any:
        """Process some of the rows, but for those without a key."""
        places = [[dict(join)[s] for join in self.joins if s in dict(join)] for s in range(self.streams)]
        most = max(len(place) for place in places)
        rows = [(number, *self.rows[number]) for number in range(first, last)]
        keys = np.full((len(rows), most), -1)
        for i, (_, s, _, key) in enumerate(rows):
            for place, column in enumerate(places[s]):
                keys[i, place] = -1 if key[column] is None else key[column]
        some = [i for i in range(len(rows)) if (keys[i] >= 0).any()]
        kept = [rows[i] for i in some]
        number, stream, time = ([row[part] for row in kept] for part in range(3))
        return state.process(stream, keys[some], time, number, collect=True, log=True)


@st.composite
def cases(draw: st.DrawFn, ordered: bool = False) -> Case:
    """Few keys and times, so that there are ties, nulls, matches, evictions and late rows."""
    m = draw(st.integers(2, 4))
    column, key = st.sampled_from(COLUMNS), st.one_of(st.integers(0, 1), st.integers(0, 2), st.none())
    if draw(st.booleans()):
        joins = [tuple((s, draw(column)) for s in range(m))]
    else:
        joins = []
        for s in range(m):
            others = st.lists(
                st.sampled_from([o for o in range(m) if o != s]), min_size=1, max_size=2, unique=True
            )
            joins.append(tuple((each, draw(column)) for each in (s, *draw(others))))
    row = st.tuples(
        st.integers(0, m - 1), st.integers(0, 50), st.fixed_dictionaries(dict.fromkeys(COLUMNS, key))
    )
    rows = draw(st.lists(row, min_size=1, max_size=45))
    return Case(
        streams=m,
        joins=joins,
        rows=sorted(rows, key=lambda each: each[:2][::-1]) if ordered else rows,
        within=draw(st.integers(0, 30)),
        budget=draw(st.integers(m, 16)),
        allocation=draw(st.sampled_from(["unified", "equal"])),
        lateness=draw(st.lists(st.integers(0, 20), min_size=m, max_size=m)),
        cut=draw(st.integers(0, len(rows))),
        watermark=draw(st.lists(st.integers(0, 60), min_size=m, max_size=m)),
    )


@pytest.mark.interpreted
@pytest.mark.parametrize("policy", POLICIES)
@given(case=cases())
def test_agrees_with_the_oracle(policy: str, case: Case) -> None:
    told = {number: [float(each) for each in case.watermark] for number in range(case.cut, len(case.rows))}
    expected, late = simulate_many_stream(
        case.rows,
        case.joins,
        streams=case.streams,
        within=case.within,
        budget=case.budget,
        policy=policy,
        allocation=case.allocation,
        lateness=[float(each) for each in case.lateness],
        watermarks=told,
    )
    state = case.start(policy)
    first = case.feed(state, 0, case.cut)
    state.check()
    state = ManyStreamState.restore(state.snapshot())
    state.advance(*case.watermark)
    parts = [first, case.feed(state, case.cut, len(case.rows))]
    state.check()
    found = [(j, tuple(row)) for part in parts for j, rows in enumerate(part.rows) for row in rows.tolist()]
    assert sorted(found) == sorted(expected.results)
    assert sum(int(part.counts.sum()) for part in parts) == len(found) == sum(state.per_join)
    log = np.concatenate([part.log for part in parts])
    named = {kind: [(int(s), int(row)) for k, s, row, _ in log if k == kind] for kind in (0, 1, 3)}
    assert named[EVICTED] == expected.evicted
    gone, kept = sorted(expected.expired), sorted(expected.buffered)
    if parts[1].counts.size == 0:  # the watermark came, and no row after it
        gone, kept = sorted(gone + kept), []
        assert set(named[EXPIRED]) <= set(gone)
    else:
        assert sorted(named[EXPIRED]) == gone
        assert sorted((s, row) for s in range(case.streams) for row in state.rows(s).tolist()) == kept
    assert [row for _, row in named[LATE]] == late
    assert state.late == len(late)
    assert state.totals()["peak_tuples"] == expected.peak


@pytest.mark.interpreted
@pytest.mark.parametrize("policy", [p.name for p in ps.policies.registered() if p.many])
@given(case=cases(ordered=True))
@settings(max_examples=25)
def test_streams_in_order_are_joined_as_by_many_state(policy: str, case: Case) -> None:
    """With all streams known to have come as far as each arrival, the two joins are one."""
    state = case.start(policy, lateness=0, seed=3)
    config = state.config
    plain = ps.ManyState(
        ManyConfig(config.streams, config.joins, config.window, config.policy, config.capacities, seed=3)
    )
    for i, (_, time, _) in enumerate(case.rows):
        other = case.feed(plain, i, i + 1)
        if len(other.counts):  # the row has a key
            state.advance(*[time] * case.streams)
            one = case.feed(state, i, i + 1)
            assert [rows.tolist() for rows in one.rows] == [rows.tolist() for rows in other.rows]
            assert sorted(one.log[:, :3].tolist()) == sorted(other.log[:, :3].tolist())
            assert state.totals() == plain.totals() | {"late": 0}
    state.check()


@pytest.mark.interpreted
@given(case=cases(), policy=st.sampled_from(["lru", "gdj"]))
@settings(max_examples=30)
def test_batches_do_not_matter_and_room_for_results_grows(case: Case, policy: str) -> None:
    whole, piecewise = case.start(policy), case.start(policy)
    expected = case.feed(whole, 0, len(case.rows))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(many_state, "FIRST_ROOM", 1)
        patched.setattr(many_state, "CHUNK", 3)
        parts = [case.feed(piecewise, 0, case.cut), case.feed(piecewise, case.cut, len(case.rows))]
    for j in range(len(case.joins)):
        assert np.concatenate([part.rows[j] for part in parts]).tolist() == expected.rows[j].tolist()
    assert np.concatenate([part.log for part in parts]).tolist() == expected.log.tolist()
    assert piecewise.totals() == whole.totals()


@pytest.mark.interpreted
@given(case=cases(), policies=st.sampled_from([("gdj", "gdj"), ("lru", "gdj")]), budget=st.integers(4, 30))
@settings(max_examples=30)
def test_another_budget_takes_over(case: Case, policies: tuple[str, str], budget: int) -> None:
    old = case.start(policies[0])
    case.feed(old, 0, case.cut)
    fresh = case.start(policies[1], budget=ps.Tuples(budget))
    log, _ = fresh.take_over(old)
    fresh.check()
    assert fresh.buffered == old.buffered - len(log) <= budget
    assert (fresh.late, fresh.per_join) == (old.late, old.per_join)
    assert fresh.flow.progress.tolist() == old.flow.progress.tolist()
    kept = {(s, row) for s in range(case.streams) for row in fresh.rows(s).tolist()}
    gone = {(int(s), int(row)) for _, s, row, _ in log}
    assert kept | gone == {(s, row) for s in range(case.streams) for row in old.rows(s).tolist()}
    case.feed(fresh, case.cut, len(case.rows))
    fresh.check()


def test_a_stream_hours_ahead_loses_nothing() -> None:
    """One of three streams is read to its end before the others begin."""
    state = start_many(3, [(0, 1, 2)], within=10, budget=ps.Tuples(2_000))
    rng = np.random.default_rng(1)
    keys, times = rng.integers(0, 4, (3, 300)), np.sort(rng.integers(0, 3_000, (3, 300)), axis=1)
    found = []
    for stream in (2, 0, 1):
        rows = np.arange(300)
        out = state.process([stream] * 300, keys[stream], times[stream], rows, collect=True)
        found += [tuple(row) for row in out.rows[0].tolist()]
    exact = [
        (a, b, c)
        for a in range(300)
        for b in range(300)
        if keys[0, a] == keys[1, b] and abs(times[0, a] - times[1, b]) <= 10
        for c in range(300)
        if keys[2, c] == keys[0, a]
        and max(times[0, a], times[1, b], times[2, c]) - min(times[0, a], times[1, b], times[2, c]) <= 10
    ]
    assert sorted(found) == sorted(exact)
    assert len(exact) > 50


def test_times_of_floating_point_and_before_the_epoch() -> None:
    state = start_many(3, [(0, 1, 2)], within=0.5, budget=ps.Tuples(9), dtype=np.float64)
    out = state.process([0, 1, 2, 2], [1] * 4, [-7.25, -6.75, -7.0, -6.7], [0] * 4)
    assert out.counts.tolist() == [0, 0, 1, 0]


@pytest.mark.filterwarnings("ignore::penstock.errors.LateRowsWarning")
def test_a_policy_in_plain_python() -> None:
    class Oldest(ps.policies.PythonPolicy):
        name = "oldest of all"

        def score(self, item: ps.policies.Item, now: Any) -> float:
            return item.arrival

    rng = np.random.default_rng(5)
    rows = rng.integers(0, 3, 200), rng.integers(0, 5, 200), rng.integers(0, 100, 200), np.arange(200)
    plain, fifo = (
        start_many(3, [(0, 1, 2)], within=20, budget="12 tuples", policy=p) for p in (Oldest(), "fifo")
    )
    one, other = (state.process(*rows, collect=True, log=True) for state in (plain, fifo))
    assert one.rows[0].tolist() == other.rows[0].tolist()
    assert one.log.tolist() == other.log.tolist()
    plain.check()


@pytest.mark.interpreted
@given(case=cases())
@settings(max_examples=20)
def test_credit_keeps_the_budget(case: Case) -> None:
    state = case.start("gdj", allocation="credit")
    case.feed(state, 0, len(case.rows))
    state.check()
    assert sum(state.limits) == case.budget
    assert state.totals()["peak_tuples"] <= case.budget


@pytest.mark.interpreted
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"within": ps.Landmark(10)}, "window of time"),
        ({"within": (0, 5)}, "must be symmetric"),
        ({"budget": ps.Tuples(2)}, "3 in all"),
        ({"budget": ps.Fraction(0.5)}, "give Tuples"),
        ({"budget": ps.Bytes("1 KiB")}, "too little for the tables"),
        ({"policy": "life"}, "not defined for joins of many streams"),
        ({"allocation": "proportional"}, "use 'unified'"),
        ({"lateness": (0, 1)}, "a tuple of 3"),
        ({"lateness": -1}, "not negative"),
    ],
)
def test_what_is_refused(change: dict[str, Any], message: str) -> None:
    fine = {"within": 10, "budget": ps.Tuples(9), "policy": "fifo"}
    with pytest.raises(PenstockError, match=message):
        start_many(3, [(0, 1, 2)], **fine | change)


@pytest.mark.interpreted
def test_what_a_state_refuses() -> None:
    state = start_many(2, [(0, 1)], within=10, budget=ps.Tuples(9), policy="fifo")
    with pytest.raises(PenstockError, match="finite"):
        state.process([0], [1], [2**62], [0])
    with pytest.raises(PenstockError, match="each of the 2 streams"):
        state.advance(1, 2, 3)
    plain = ManyConfig(2, ((0, 1),), window_of(5).resolve("ms"), ps.policies.get("fifo"), (4,))
    with pytest.raises(PenstockError, match="streams in order"):
        ManyStreamState.restore(ps.ManyState(plain).snapshot())
