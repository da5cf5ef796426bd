"""`auto` in stream queries: it follows the leader, keeps what is cached, and does not depend on batches."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock as ps
from penstock.engine.store import STEPS
from penstock.linked.run.policy_switch import switched
from penstock.linked.run.state import LinkedState
from penstock.linked.run.stream import QueryState
from penstock.linked.terms import Terms, parse_term
from penstock.reproduction.clock_queries import workload_of
from tests.linked.test_bounded import viewing
from tests.linked.test_language import LISTING_2

FEW = "auto:candidates=fifo/prob/lru"
PAIRS = """SELECT ?a ?b FROM STREAM w { ?a p ?x ?T ?E . ?b q ?x ?U ?F . FILTER (?a != ?b) }
    CONTEXT (!?E < ?U && !?F < ?T)"""
CHAIN = """SELECT * FROM STREAM w { ?a p ?x ?T . ?b q ?x ?U . ?c p ?x ?V }
    CONTEXT ((?T - ?U) <= 30 && (?U - ?V) <= 30)"""


def facts(n: int, seed: int, keys: int = 20) -> pd.DataFrame:
    """Triples with popular objects and popular subjects, some of them open facts that are closed later."""
    rng = np.random.default_rng(seed)
    start = np.cumsum(rng.integers(0, 3, n)).astype(float)
    table = pd.DataFrame(
        {
            "s": [f"s{i}" for i in rng.integers(0, 9, n)],
            "p": rng.choice(["p", "q"], n),
            "o": np.minimum(rng.zipf(1.4, n), keys),
            "start": start,
            "end": start + rng.integers(0, 40, n),
        }
    )
    open_ = rng.random(n) < 0.1
    closing = table[open_].assign(start=np.nan, end=lambda each: each.end)
    table.loc[open_, "end"] = np.nan
    whole = pd.concat([table, closing])
    return whole.iloc[np.argsort(whole.start.fillna(whole.end), kind="stable")].reset_index(drop=True)


def started(policy: str, text: str = PAIRS, budget: Any = None, **options: Any) -> QueryState:
    rates = [1.0] * text.count("?x")
    return ps.StreamQuery.parse(text).start(
        budget=budget or ps.Tuples(16), policy=policy, rates=rates, **options
    )


def trajectory(state: QueryState, table: pd.DataFrame, cuts: list[int]) -> list[Any]:
    """All that comes out, and what becomes of tuples, with the batches put together again."""
    found: list[Any] = []
    for first, last in zip([0, *cuts], [*cuts, len(table)], strict=True):
        if last > first:
            out = state.process({"w": table.iloc[first:last]}, log=True)
            found += [*out.counts.tolist(), *map(tuple, out.log[:, [0, 1, 3]].tolist())]
    return sorted(found, key=repr)


def test_it_follows_the_leader() -> None:
    streams, query = viewing(20_000, 340), ps.StreamQuery.parse(LISTING_2)
    found = {
        policy: query.run(streams, object="iri", budget=ps.Tuples(60), policy=policy, collect=False).stats
        for policy in ("fifo", "prob", "auto:candidates=fifo/prob")
    }
    stats = found["auto:candidates=fifo/prob"]
    choice = stats.choice
    assert choice is not None
    assert (choice.policy, choice.switches) == ("prob", 1)
    assert choice.since < 8_000
    assert choice.estimates["prob"] == 1.0 > choice.estimates["fifo"]
    assert found["fifo"].recall < 0.7 * found["prob"].recall < stats.recall
    assert found["fifo"].choice is None
    assert stats.as_dict()["choice"] is choice


@pytest.mark.usefixtures("hasty")
@pytest.mark.parametrize("text", [PAIRS, CHAIN])
@settings(max_examples=8, suppress_health_check=[], deadline=None)
@given(seed=st.integers(0, 99), cuts=st.lists(st.integers(0, 400), max_size=5))
def test_changes_do_not_depend_on_batches(text: str, seed: int, cuts: list[int]) -> None:
    table = facts(400, seed)
    one, many = started(FEW, text), started(FEW, text)
    whole = trajectory(one, table, [])
    assert trajectory(many, table, sorted(cuts)) == whole
    assert many.choice == one.choice
    assert many.totals == one.totals
    one.check()


@pytest.mark.usefixtures("hasty")
@pytest.mark.parametrize("text", [PAIRS, CHAIN])
def test_a_restored_state_chooses_alike(text: str) -> None:
    changed = 0
    for seed in range(6):
        table = facts(500, seed)
        original, beside = started(FEW, text), started(FEW, text)
        for state in (original, beside):
            state.process({"w": table.iloc[:260]})
        copy = QueryState.restore(original.snapshot())
        copy.check()
        rest = table.iloc[260:]
        expected = trajectory(beside, rest, [])
        assert trajectory(copy, rest, [50, 51]) == expected
        assert trajectory(original, rest, [120]) == expected
        assert copy.choice == original.choice == beside.choice
        copy.check()
        assert copy.choice is not None
        changed += copy.choice.switches
    assert changed > 0


def regimes(n: int) -> pd.DataFrame:
    """First the same few of many objects come again and again, then each comes in a burst of its own."""
    rng = np.random.default_rng(4)
    popular = np.where(rng.random(n) < 0.5, rng.integers(0, 15, n), 1_000 + rng.integers(0, 5_000, n))
    bursts = 10_000 + np.arange(n) // 8
    return pd.DataFrame(
        {
            "s": [f"s{i}" for i in rng.integers(0, 99, 2 * n)],
            "p": rng.choice(["p", "q"], 2 * n),
            "o": np.concatenate([popular, bursts]),
            "start": np.arange(2 * n),
            "end": np.arange(2 * n) + 300,
        }
    )


def test_a_contest_pauses_and_still_notices_another_regime() -> None:
    n = 40_000
    table, state = regimes(n), started("auto:candidates=lru/prob", budget=ps.Tuples(60))
    state.process({"w": table.iloc[:n]}, collect=False)
    follower = _inside(state).follower
    assert follower is not None
    assert (state.choice.policy, state.choice.switches) == ("prob", 1)
    seen = [int(caches.store.meta[STEPS]) for caches in follower.small]
    assert max(seen) < 0.5 * n
    state.process({"w": table.iloc[n:]}, collect=False)
    assert state.choice.policy == "lru"
    assert state.choice.since < 1.2 * n


@pytest.mark.parametrize("policy", ["lru", "prob", "life"])
@pytest.mark.parametrize("text", [PAIRS, CHAIN])
def test_a_change_is_as_if_it_had_always_been_so(text: str, policy: str) -> None:
    """Where nothing was evicted before, scores after a change are those of the policy from the beginning."""
    table = facts(300, 7)
    rates, gain = [1.0] * text.count("?x"), (1.0, 1.0)
    always = ps.StreamQuery.parse(text).start(budget=ps.Tuples(14), policy=policy, rates=rates, gain=gain)
    other = ps.StreamQuery.parse(text).start(
        budget=ps.Tuples(14), policy=f"auto:candidates=fifo/{policy}", rates=rates, gain=gain
    )
    at = 10
    for state in (always, other):
        state.process({"w": table.iloc[:at]})
        assert state.totals["evicted"] == 0
        assert state.totals["buffered"] > 3
    inside = _inside(other)
    assert inside.follower is not None
    before = inside.caches.rows().tolist()
    new = ps.policies.get(policy)
    inside.compact()
    inside.follower.change(new)
    inside.caches = switched(inside.caches, new, _columns(inside))
    other.check()
    assert len(inside.caches.rows()) == len(before)
    assert other.totals == always.totals
    rest = table.iloc[at:]
    assert trajectory(other, rest, []) == trajectory(always, rest, [])
    assert always.totals["evicted"] > 20


def _inside(state: QueryState) -> LinkedState:
    assert state.state is not None
    return state.state


def _columns(state: LinkedState) -> Any:
    from penstock.linked.run.operands import columns_of

    assert state.buffered is not None
    return columns_of(state.plan, state.buffered, state.buffered_mask, state.terms)[0]


def test_the_small_caches_keep_to_their_share() -> None:
    table = facts(2_000, 3, keys=300)
    for budget in (ps.Tuples(500), ps.Tuples(60_000), ps.Bytes("2 MiB"), ps.Bytes("96 KiB")):
        state = started("auto", budget=budget)
        state.process({"w": table})
        inside = _inside(state)
        assert inside.follower is not None
        memory = budget.n if isinstance(budget, ps.Bytes) else inside.caches.bytes
        assert inside.follower.bytes <= max(0.05 * memory, 64 << 10)
        if isinstance(budget, ps.Bytes):
            held = state.totals["peak_tuples"] * 160
            assert inside.table_bytes + inside.count_bytes + held <= 1.05 * budget.n
            assert inside.count_bytes == 0
        state.check()


def test_where_it_cannot_choose_the_first_candidate_runs_alone() -> None:
    single = ps.StreamQuery.parse("SELECT * FROM STREAM w { ?a p ?x ?T }")
    table = facts(200, 1).dropna()
    run = single.run({"w": table}, budget=ps.Tuples(20), policy=FEW)
    assert run.stats.choice is not None
    assert (run.stats.choice.policy, run.stats.choice.sample) == ("fifo", 0.0)
    few = started(FEW, budget=ps.Bytes("12 KiB"))
    few.process({"w": table})
    assert few.choice is not None
    assert few.choice.sample == 0.0
    whole = ps.StreamQuery.parse(PAIRS).run({"w": table})
    assert whole.stats.choice is None  # without a budget nobody has to go
    assert whole.stats.recall == 1.0


def test_rho_is_tuned() -> None:
    table = facts(3_000, 5, keys=200)
    run = ps.StreamQuery.parse(PAIRS).run(
        {"w": table}, budget=ps.Tuples(30), policy="clock-exp:rho=auto", collect=False
    )
    assert run.stats.choice is not None
    assert len(run.stats.choice.estimates) == 5
    assert 0 < run.stats.recall < 1


@pytest.mark.parametrize("viewers_first", [True, False])
def test_rho_follows_a_change_of_regime(viewers_first: bool) -> None:
    """Viewers are best forgotten fast, popular keys slowly; no one rho is best for both."""
    regimes = workload_of("regimes", 120_000, seed=0)
    streams = {name: table.to_pandas() for name, table in regimes.streams.items()}
    if not viewers_first:
        later = {
            name: each.s.str.startswith("key") | each.o.str.startswith("key")
            for name, each in streams.items()
        }
        begun = min(int(each.start[later[name]].min()) for name, each in streams.items())
        ended = max(int(each.end.max()) for each in streams.values())
        for name, each in streams.items():
            shift = np.where(later[name], -begun, ended)
            each = each.assign(start=each.start + shift, end=each.end + shift)
            streams[name] = each.sort_values("start", kind="stable")
    found = {}
    for rho in (0.25, 0.5, 0.75, 0.8, 0.9, 0.95, 0.99, 0.998, "auto"):
        found[rho] = regimes.query.run(
            streams,
            object=regimes.objects,
            budget=ps.Tuples(150),
            policy=f"clock-exp:rho={rho}",
            collect=False,
            exact=False,
        ).stats
    choice = found["auto"].choice
    assert choice is not None
    assert choice.switches > 0
    best = found.pop("auto").results
    assert best > max(stats.results for stats in found.values())


@pytest.mark.filterwarnings("ignore::penstock.linked.UnboundedContextWarning")
def test_background_is_part_of_the_sample(tmp_path: Any) -> None:
    still = tmp_path / "kinds.nt"
    still.write_text("".join(f"<k{i}> <kind> <c{i % 7}> .\n" for i in range(50)))
    text = f"""SELECT * FROM STREAM w FROM <{still}> {{ ?a p ?x ?T . ?b q ?x ?U . ?x <kind> ?k }}
        CONTEXT ((?T - ?U) <= 30)"""
    table = facts(1_500, 2).dropna().assign(o=lambda each: "k" + each.o.astype(str))
    query = ps.StreamQuery.parse(text)
    runs = [query.run({"w": table}, object="iri", budget=ps.Tuples(12), policy=p) for p in ("lru", "auto")]
    assert runs[1].stats.choice.sample > 0
    assert runs[1].stats.results >= 0.8 * runs[0].stats.results > 0


@pytest.mark.parametrize("policy", ["prob", "life"])
def test_counts_in_a_budget_of_bytes(policy: str) -> None:
    """In a sketch: nearly as good as exact counts, with dictionaries that do not grow with the stream."""
    rng = np.random.default_rng(2)
    n = 30_000
    keys = np.where(rng.random(n) < 0.7, rng.zipf(1.5, n) % 50, 1_000 + np.arange(n))
    table = pd.DataFrame({"s": "a", "p": rng.choice(["p", "q"], n), "o": keys, "start": np.arange(n)})
    text = "SELECT * FROM STREAM w { ?a p ?x ?T . ?b q ?x ?U } CONTEXT ((?T - ?U) <= 2000)"
    query = ps.StreamQuery.parse(text)
    sized = query.run({"w": table}, budget=ps.Bytes("48 KiB"), policy=policy, collect=False)
    assert sized.stats.peak_bytes <= 48 << 10
    exact = query.run({"w": table}, budget=ps.Tuples(sized.stats.budget), policy=policy, collect=False)
    assert sized.stats.results >= 0.95 * exact.stats.results > 0
    assert exact.stats.peak_bytes > sized.stats.peak_bytes
    state = query.start(budget=ps.Bytes("48 KiB"), policy=policy)
    found = sum(
        int(state.process({"w": table.iloc[i : i + 1_000]}, collect=False).counts.sum())
        for i in range(0, n, 1_000)
    )
    state.snapshot()
    # The texts of terms count as well, so there are fewer tuples than in a run over all triples.
    tuples = ps.Tuples(_inside(state).config.limits[0])
    exact = query.run({"w": table}, budget=tuples, policy=policy, collect=False, exact=False)
    assert found >= 0.95 * exact.stats.results > 0
    assert tuples.n > 0.85 * sized.stats.budget
    assert len(_inside(state).terms) < 2_000


def test_an_arrival_may_ask_for_more_keys_than_have_been_counted() -> None:
    """One triple makes as many partial solutions as there are cached ones, each with a key of its own."""
    text = """SELECT * FROM STREAM w { ?a p ?x ?T . ?x q ?y ?U . ?y r ?z ?V }
        CONTEXT ((?T - ?U) <= 9000 && (?U - ?V) <= 9000)"""
    n = 1_500
    state = ps.StreamQuery.parse(text).start(budget=ps.Tuples(6_000), policy="prob", rates=[1, 1, 1])
    names = [f"<y{i}>" for i in range(n)]
    first = pd.DataFrame({"s": "<k>", "p": "q", "o": names, "start": range(n)})
    state.process({"w": first})
    state.process({"w": {"s": ["a"], "p": ["p"], "o": ["<k>"], "start": [n]}})
    last = pd.DataFrame({"s": names, "p": "r", "o": 1, "start": n + 1})
    assert state.process({"w": last}).counts.sum() == n
    state.check()


def test_a_mark_is_of_the_value_in_every_dictionary() -> None:
    xsd = "http://www.w3.org/2001/XMLSchema#"
    one, other = Terms(), Terms()
    other.add(parse_term("<something>"))
    equal = [[f'"10"^^<{xsd}int>', f'"10.0"^^<{xsd}decimal>', f'"1e1"^^<{xsd}double>'], ["<a>"], ["_:a"]]
    equal += [['"a"'], ['"a"@en'], [f'"true"^^<{xsd}boolean>', f'"1"^^<{xsd}boolean>'], ['"10"']]
    stamp = "2004-08-08T06:05:00"
    equal += [[f'"{stamp}Z"^^<{xsd}dateTime>', f'"{stamp}.0+00:00"^^<{xsd}dateTime>']]
    equal += [[f'"{stamp}"^^<{xsd}dateTime>'], [f'"INF"^^<{xsd}double>'], [f'"1"^^<{xsd}int>']]
    marks = [
        {
            int(terms.marks(np.array([terms.add(parse_term(text))]))[0])
            for terms in (one, other)
            for text in group
        }
        for group in equal
    ]
    assert [len(group) for group in marks] == [1] * len(equal)
    assert len(set.union(*marks)) == len(equal)
    assert one.marks(np.array([one.add_native(10), one.add_native(10.0)])).tolist() == [*marks[0]] * 2
    assert one.marks(np.array([one.add_native(float("nan"))])).tolist() == [-1]
