"""In fixed memory: what comes out, who goes, and that budgets and accounts hold."""

from __future__ import annotations

import warnings
from collections import Counter
from random import Random

import numpy as np
import pandas as pd
import pytest

import penstock as ps
from penstock.errors import BudgetError, ColumnError, PenstockError, SnapshotError, UnknownPolicyError
from penstock.linked import UnboundedContextWarning
from penstock.linked.language.parser import parse_query
from penstock.linked.run.stream import QueryState
from penstock.workloads import sensor_bursts, viewers_and_guide
from tests.data import real
from tests.linked import generated
from tests.linked.test_language import LISTING_1, LISTING_2
from tests.oracles import linked as oracle

SELF_JOIN = """SELECT * FROM STREAM w WHERE { ?a <http://e.org/p> ?x ?T ?E . ?b <http://e.org/p> ?x ?U ?F .
    FILTER (?a != ?b) } CONTEXT ((?T - ?U) <= 6)"""
FACTS = """SELECT * FROM STREAM w WHERE { ?a <http://e.org/p> ?x ?T ?E . ?b <http://e.org/p> ?x ?U ?F .
    FILTER (?a != <http://e.org/c>) } CONTEXT (!?E < ?U && !?F < ?T)"""


@pytest.mark.interpreted
@pytest.mark.parametrize("policy", ["fifo", "lru", "lfu", "prob", "life", "gdj", "clock", "clock-exp"])
def test_a_shared_cache_of_fixed_size_is_the_simulation(policy: str) -> None:
    random = Random(7)
    for _ in range(8):
        facts = random.random() < 0.5
        text = FACTS if facts else SELF_JOIN
        table = generated.stream(random, 60, facts=True)
        budget = random.choice([2, 3, 5, 9])
        run = ps.StreamQuery.parse(text).run({"w": table}, budget=ps.Tuples(budget), policy=policy)
        query = parse_query(text)
        triples = [t for t in generated.triples_of(table) if t.terms[1].text.endswith("p")]
        life = (lambda t: t.end) if facts else (lambda t: t.start + 6)
        numbered = [oracle.Triple(t.terms, t.start, t.end, i) for i, t in enumerate(triples)]
        found, evicted = oracle.bounded_pairs(query, numbered, life, budget, policy)
        rows = [t.number for t in triples]
        expected = Counter({(rows[a], rows[b]): count for (a, b), count in found.items()})
        assert Counter(map(tuple, run.solutions.tolist())) == expected
        assert run.stats.evicted == evicted
        assert run.stats.exact == sum(oracle.answers(query, triples).values())


@pytest.mark.interpreted
@pytest.mark.parametrize("policy", [name for name in ps.policies.names() if ps.policies.get(name).queries])
def test_every_policy_keeps_the_budget_and_the_accounts(policy: str) -> None:
    bursts = sensor_bursts(readings=4_000, seed=3)
    table = {
        "s": "station" + bursts.station.astype(str),
        "p": ["reports"] * len(bursts),
        "o": bursts.windspeed,
        "start": bursts.ts,
    }
    run = ps.StreamQuery.parse(LISTING_1).run({"windSpeed": table}, budget=ps.Tuples(20), policy=policy)
    stats = run.stats
    assert stats.peak_tuples <= 20
    assert stats.bindings == stats.buffered + stats.expired + stats.evicted
    assert 0 < stats.results < stats.exact
    assert stats.recall == stats.results / stats.exact
    assert run.counts.sum() == stats.results == len(run.rows)


def test_listing_1_on_real_observations() -> None:
    data = pd.read_csv(real("srbench_observations.csv"))
    stamps = data.samplingtime.str.replace(r"\+0:00$", "+00:00", regex=True)
    table = pd.DataFrame(
        {
            "s": "station" + data.stationid.astype(str),
            "p": "reports",
            "o": data.windspeed,
            "start": pd.to_datetime(stamps),
        }
    )
    exact = ps.StreamQuery.parse(LISTING_1.replace("10^^", "1^^")).run({"windSpeed": table})
    assert exact.stats.results == exact.stats.exact == 26_106
    wide = LISTING_1.replace("10^^", "1^^").replace("200^^xsd:millisecond", "30^^xsd:minutes")
    recall = {
        policy: ps.StreamQuery.parse(wide)
        .run({"windSpeed": table}, budget=ps.Tuples(100), policy=policy, collect=False)
        .stats.recall
        for policy in ("rand", "fifo", "lru", "clock")
    }
    assert recall["clock"] > max(recall["rand"], recall["fifo"])


def viewing(viewers: int, programmes: int) -> dict[str, pd.DataFrame]:
    log, guide = viewers_and_guide(viewers, programmes)
    return {
        "Log": pd.DataFrame(
            {
                "s": "user" + log.user.astype(str),
                "p": "watches",
                "o": "channel" + log.channel.astype(str),
                "start": log.start,
                "end": log.end,
            }
        ),
        "EPG": pd.DataFrame(
            {
                "s": "channel" + guide.channel.astype(str),
                "p": "plays",
                "o": "programme" + guide.programme.astype(str),
                "start": guide.start,
                "end": guide.end,
            }
        ),
    }


def test_listing_2_is_an_overlap_of_validity() -> None:
    streams = viewing(2_000, 200)
    run = ps.StreamQuery.parse(LISTING_2).run(streams, object="iri", exact=False)
    log, guide = streams["Log"], streams["EPG"]
    pairs = log.merge(guide, left_on="o", right_on="s")
    expected = pairs[(pairs.end_x >= pairs.start_y) & (pairs.end_y >= pairs.start_x)]
    assert run.stats.results == len(expected)
    found = Counter(zip(run.rows["userID"].to_pylist(), run.rows["programID"].to_pylist(), strict=True))
    assert found == Counter(zip(expected.s_x, expected.o_y, strict=True))
    few = ps.StreamQuery.parse(LISTING_2).run(streams, object="iri", budget=ps.Fraction(0.2), policy="clock")
    assert few.stats.exact == len(expected)
    assert 0 < few.stats.recall < 1


@pytest.mark.interpreted
def test_shares_of_partial_results_add_up() -> None:
    random = Random(2)
    text = """SELECT * FROM STREAM w { ?a <http://e.org/p> ?x ?T ?E . ?b <http://e.org/q> ?x ?U ?F .
        ?b <http://e.org/p> ?y ?V ?G } CONTEXT ((?T - ?U) <= 9 && (?U - ?V) <= 9)"""
    table = generated.stream(random, 300, facts=True)
    query = ps.StreamQuery.parse(text)
    for gain in ((1.0, 0.5), (1.0, 0.0), (2.0, 1.0)):
        run = query.run({"w": table}, budget=ps.Tuples(12), policy="clock", gain=gain, log=True)
        assert len(run.events) == run.stats.evicted + run.stats.expired
        assert run.stats.bindings == run.stats.buffered + run.stats.expired + run.stats.evicted
        assert 0 < run.stats.results < run.stats.exact
    whole = query.run({"w": table})
    assert whole.stats.recall == 1.0
    assert "join 2" in query.explain()


@pytest.mark.interpreted
def test_the_log_of_an_arrival_that_evicts_many_is_complete() -> None:
    """It makes five partial solutions with the first pattern and 25 with the third."""
    text = """SELECT * FROM STREAM w { ?a p ?x ?T . ?b q ?x ?U . ?b r ?y ?V . ?b s ?z ?W }
        CONTEXT ((?T - ?U) <= 900 && (?U - ?V) <= 900 && (?U - ?W) <= 900)"""
    state = ps.StreamQuery.parse(text).start(budget=ps.Tuples(10), policy="fifo", rates=[1, 1, 1, 1])
    cached = {"s": [*"vwxyz", *"bbbbb"], "p": [*"ppppp", *"rrrrr"], "o": [7] * 10, "start": range(10)}
    first = state.process({"w": cached}, log=True)
    second = state.process({"w": {"s": ["b"], "p": ["q"], "o": [7], "start": [60]}}, log=True)
    assert (len(first.log), len(second.log)) == (0, 31)
    assert state.state.totals()["evicted"] == 31


@pytest.mark.interpreted
def test_an_open_fact_is_valid_until_it_is_closed() -> None:
    text = """SELECT ?u ?q FROM STREAM w { ?u watches ?c ?T ?E . ?c plays ?q ?S ?F }
        CONTEXT (!?E < ?S && !?F < ?T)"""
    table = pd.DataFrame(
        {
            "s": ["anna", "<c1>", "anna", "<c1>"],
            "p": ["watches", "plays", "watches", "plays"],
            "o": ["<c1>", "<news>", "<c1>", "<film>"],
            "start": [0, 10, None, 30],
            "end": [None, 19, 20, 40],
        }
    )
    run = ps.StreamQuery.parse(text).run({"w": table})
    assert run.rows.to_pylist() == [{"u": "anna", "q": "news"}]
    assert run.stats.expired >= 1
    late = ps.StreamQuery.parse(text).run({"w": table.iloc[[0, 1, 3]]})
    assert len(late.rows) == 2


def test_background_triples_join_and_cost_no_budget(tmp_path) -> None:
    still = tmp_path / "places.ttl"
    still.write_text("<http://e.org/a> <http://e.org/in> <http://e.org/north> .\n" * 1)
    text = f"""PREFIX e: <http://e.org/> SELECT ?s ?place ?v FROM STREAM w FROM <{still}>
        {{ ?s e:reports ?v ?T . ?s e:in ?place }} CONTEXT (?T >= 0)"""
    table = {"s": ["http://e.org/a", "http://e.org/b"] * 3, "p": ["http://e.org/reports"] * 6, "o": range(6)}
    with pytest.warns(UnboundedContextWarning, match="only the budget"):
        run = ps.StreamQuery.parse(text).run({"w": table | {"start": range(6)}}, budget=ps.Tuples(1))
    assert run.rows.column("v").to_pylist() == [0, 2, 4]
    assert set(run.rows.column("place").to_pylist()) == {"http://e.org/north"}


def test_a_snapshot_of_another_version_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    state = ps.StreamQuery.parse(SELF_JOIN).start(budget=ps.Tuples(9), policy="lru")
    state.process({"w": generated.stream(Random(1), 20, facts=True)})
    data = state.snapshot()
    monkeypatch.setattr("penstock.linked.run.stream.VERSION", 99)
    with pytest.raises(SnapshotError, match="this Penstock reads 99"):
        QueryState.restore(data)


def test_what_bounds_nothing_is_said() -> None:
    text = "SELECT * FROM STREAM w { ?a p ?x ?T . ?b p ?x ?U } CONTEXT ((?T - ?U) > 5)"
    table = {"s": ["a", "b"], "p": ["p", "p"], "o": [1, 1], "start": [0, 9]}
    with pytest.warns(UnboundedContextWarning, match=r"only the budget .*5 tuples.* bounds their memory"):
        run = ps.StreamQuery.parse(text).run({"w": table}, budget=ps.Tuples(5))
    assert run.stats.results == 2
    assert "never" in ps.StreamQuery.parse(text).explain()


def test_distinct_and_expressions() -> None:
    text = (
        "SELECT DISTINCT ?x (?x * 2 AS ?y) FROM STREAM w { ?a p ?x ?T . ?b p ?x ?U } CONTEXT ((?T - ?U) <= 5)"
    )
    table = {"s": ["a", "b", "c"], "p": ["p"] * 3, "o": [1, 1, 2], "start": [0, 1, 2]}
    run = ps.StreamQuery.parse(text).run({"w": table})
    assert sorted(map(tuple, (row.values() for row in run.rows.to_pylist()))) == [(1, 2), (2, 4)]
    assert run.stats.results == 5


def test_budgets_in_bytes_and_fractions() -> None:
    bursts = sensor_bursts(readings=2_000, seed=4)
    table = {
        "s": "s" + bursts.station.astype(str),
        "p": ["reports"] * len(bursts),
        "o": bursts.windspeed,
        "start": bursts.ts,
    }
    query = ps.StreamQuery.parse(LISTING_1.replace("10^^", "1^^"))
    sized = query.run({"windSpeed": table}, budget=ps.Bytes("24 KiB"), policy="clock")
    assert sized.stats.budget >= 10
    assert sized.stats.peak_bytes <= 24 * 1024
    half = query.run({"windSpeed": table}, budget=ps.Fraction(0.5), policy="fifo")
    matched = bursts[bursts.windspeed >= 1]
    assert half.stats.budget == int(0.5 * len(matched) * 200 / (matched.ts.iloc[-1] - matched.ts.iloc[0]))
    lighter = query.run({"windSpeed": table}, budget=ps.Bytes("24 KiB"), policy="fifo")
    assert lighter.stats.budget > sized.stats.budget  # scores take room


@pytest.mark.parametrize(
    ("options", "error", "said"),
    [
        (
            {"policy": "opt"},
            UnknownPolicyError,
            "opt is not defined for stream queries: it must know the whole",
        ),
        ({"policy": "heeb"}, UnknownPolicyError, "needs a model of each of two streams"),
        ({"policy": "flowexpect"}, UnknownPolicyError, "needs a model of each of two streams"),
        ({"policy": "age"}, UnknownPolicyError, "defined for two streams.* are: fifo, rand, .*life.*auto"),
        ({"policy": "learned"}, UnknownPolicyError, "defined for two streams"),
        ({"policy": "lfd"}, UnknownPolicyError, "whole stream|caches only"),
        ({"policy": "gdj:method=2"}, UnknownPolicyError, "use 1 or 3"),
        (
            {"policy": "auto:candidates=lru/learned"},
            PenstockError,
            "learned cannot be a candidate for a query",
        ),
        ({"budget": ps.Bytes(10)}, BudgetError, "too little"),
        ({"budget": "much"}, BudgetError, "not a size"),
        ({"allocation": "half"}, PenstockError, "not known"),
        ({"warmup": -1}, PenstockError, "warmup"),
        ({"gain": (1, -1)}, PenstockError, "gain"),
        ({"object": "blank"}, ColumnError, "not known"),
    ],
)
def test_bad_options_are_refused(options: dict, error: type, said: str) -> None:
    table = {"s": ["a"], "p": ["reports"], "o": [1], "start": [0]}
    with pytest.raises(error, match=said):
        ps.StreamQuery.parse(LISTING_1).run({"windSpeed": table}, **options)


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ({"s": ["a"], "p": ["q"], "start": [0]}, "no column 'o'"),
        ({"s": ["a"], "p": ["q"], "o": [1]}, "no column 'start'"),
        ({"s": ["a", None], "p": ["q", "q"], "o": [1, 2], "start": [0, 1]}, "is null in row 1"),
        ({"s": [1.5], "p": ["q"], "o": [1], "start": [0]}, "IRIs as texts"),
        ({"s": [""], "p": ["q"], "o": [1], "start": [0]}, "is not an IRI"),
        ({"s": ["a"], "p": ["q"], "o": [1], "start": [5], "end": [4]}, "ends before"),
        ({"s": ["a"], "p": ["q"], "o": [b"x"], "start": [5]}, "allowed are"),
    ],
)
def test_bad_tables_are_refused(table: dict, said: str) -> None:
    with pytest.raises(PenstockError, match=said):
        ps.StreamQuery.parse(LISTING_1).run({"windSpeed": table})


def test_foreign_snapshots_are_refused() -> None:
    with pytest.raises(SnapshotError):
        QueryState.restore(b"something else")
    join = ps.WindowJoin(within=1, budget=ps.Tuples(2)).start()
    with pytest.raises(SnapshotError):
        QueryState.restore(join.snapshot())


def test_warm_up_is_not_counted() -> None:
    table = {"s": list("abcd"), "p": ["reports"] * 4, "o": [20] * 4, "start": [0, 1, 2, 3]}
    query = ps.StreamQuery.parse(LISTING_1)
    assert query.run({"windSpeed": table}).stats.results == 12
    assert query.run({"windSpeed": table}, warmup=3).stats.results == 6


def test_values_are_compared_by_value() -> None:
    xsd = "http://www.w3.org/2001/XMLSchema#"
    objects = [
        10,
        10.0,
        f'"10"^^<{xsd}int>',
        f'"10.00"^^<{xsd}decimal>',
        f'"1e1"^^<{xsd}double>',
        '"10"',
        "10",
    ]
    table = {"s": [f"s{i}" for i in range(7)], "p": ["reports"] * 7, "o": objects, "start": list(range(7))}
    text = "SELECT ?a ?b FROM STREAM w { ?a reports ?x ?T . ?b reports ?x ?U } CONTEXT ((?T - ?U) <= 9)"
    run = ps.StreamQuery.parse(text).run({"w": table})
    assert run.stats.results == 5 * 5 + 2 * 2
    stamps = [f'"2004-08-08T06:05:00{zone}"^^<{xsd}dateTime>' for zone in ("Z", "+00:00", ".0Z", "")]
    table = {"s": list("abcd"), "p": ["reports"] * 4, "o": stamps, "start": [0, 1, 2, 3]}
    assert ps.StreamQuery.parse(text).run({"w": table}).stats.results == 9 + 1


def test_timestamps_come_back_as_they_were() -> None:
    start = pd.to_datetime(["2024-05-01T12:00:00Z", "2024-05-01T12:00:00.1Z"], format="ISO8601")
    text = """SELECT ?a ?T FROM STREAM w { ?a p ?x ?T . ?b p ?x ?U . FILTER (?a != ?b) }
        CONTEXT ((?T - ?U) <= 100^^xsd:millisecond && ?T >= "2024-05-01T12:00:00Z"^^xsd:dateTime)"""
    run = ps.StreamQuery.parse(text).run(
        {"w": pd.DataFrame({"s": list("ab"), "p": "p", "o": 1, "start": start})}
    )
    assert sorted(run.rows["T"].to_pandas()) == list(start)
    narrow = text.replace("100^^", "99^^")
    table = pd.DataFrame({"s": list("ab"), "p": "p", "o": 1, "start": start})
    assert ps.StreamQuery.parse(narrow).run({"w": table}).stats.results == 0


def test_unions_of_streams_and_warnings_are_quiet_where_bounded() -> None:
    text = "SELECT ?a ?b FROM STREAM v, w { ?a p ?x ?T . ?b q ?x ?U } CONTEXT ((?T - ?U) <= 2)"
    v = {"s": ["a", "b"], "p": ["p", "q"], "o": [1, 1], "start": [0, 5]}
    w = {"s": ["c", "d"], "p": ["q", "p"], "o": [1, 1], "start": [1, 6]}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run = ps.StreamQuery.parse(text).run({"v": v, "w": w})
    assert run.rows.to_pylist() == [{"a": "a", "b": "c"}, {"a": "d", "b": "b"}]
    assert np.array_equal(run.times, [0, 1, 5, 6])
