"""Trees of joins: what is chosen, what may be given, and that every tree is the plain simulation of it."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

import numpy as np
import pandas as pd
import pytest

import penstock as ps
from penstock.errors import PenstockError
from penstock.linked.language.parser import parse_query
from penstock.linked.plan.plan import plan_of
from penstock.linked.plan.tree import Observed, chosen, in_turn, joins, leaves
from penstock.linked.triples import Scale
from tests.linked import generated
from tests.linked.test_auto import facts
from tests.oracles.linked_tree import Simulation

E = generated.E
WIDTH = 6
# Four patterns each: a chain, a star with patterns that are alike, and a ring.
BODIES = [
    "?a e:p ?x ?T0 . ?x e:q ?b ?T1 . ?b e:p ?c ?T2 . ?c e:q ?d ?T3 . FILTER (?a != ?d)",
    "?a e:p ?x ?T0 . ?b e:p ?x ?T1 . ?c e:q ?x ?T2 . ?d e:q ?x ?T3 . FILTER (?a != ?b)",
    "?a e:p ?x ?T0 . ?b e:q ?x ?T1 . ?a e:q ?y ?T2 . ?b e:p ?y ?T3",
]
NEAR = " && ".join(f"(?T{i} - ?T{j}) <= {WIDTH}" for i in range(4) for j in range(i))


def text_of(body: str) -> str:
    return f"PREFIX e: <{E}> SELECT * FROM STREAM w {{ {body} }} CONTEXT ({NEAR})"


def events(random: Random, rows: int) -> pd.DataFrame:
    table = generated.stream(random, rows, facts=False)
    return table.assign(o=[random.choice(generated.IRIS) for _ in range(rows)])


@pytest.mark.interpreted
@pytest.mark.parametrize("policy", ["fifo", "lru", "lfu", "gdj", "clock"])
def test_a_tree_in_fixed_memory_is_the_simulation(policy: str) -> None:
    random = Random(policy)
    evicted = 0
    for body in BODIES:
        for _ in range(4):
            tree, gain = generated.tree(random, 4), random.choice([(1.0, 0.5), (1.0, 1.0), (2.0, 0.25)])
            budget, table = random.choice([4, 9, 25]), events(random, 28)
            run = ps.StreamQuery.parse(text_of(body)).run(
                {"w": table}, budget=ps.Tuples(budget), policy=policy, joins=tree, gain=gain
            )
            plain = Simulation(parse_query(text_of(body)), tree, WIDTH, budget, policy, gain)
            for triple in generated.triples_of(table):
                plain.process(triple)
            assert Counter(map(tuple, run.solutions.tolist())) == plain.solutions, (tree, body)
            assert run.stats.evicted == plain.evicted, (tree, body)
            evicted += plain.evicted
    assert evicted > 100


ENDS = [
    "(?E0 - ?T1) <= 9",
    "!?E0 < ?T1 && !?E1 < ?T2",
    "signed(?E0 - ?T1) >= 4 && (?T1 - ?T2) <= 20",
    "(?E0 - ?E1) <= 6",
    "?T2 < ?E0 || ?E1 < ?E0",
    "(?E1 - ?T1) <= 8 && ?E0 != ?E2",
]


@pytest.mark.filterwarnings("ignore::penstock.linked.UnboundedContextWarning")
@pytest.mark.parametrize("context", ENDS)
def test_no_tree_changes_what_is_found_where_facts_are_closed_later(context: str) -> None:
    body = "?a p ?x ?T0 ?E0 . ?b q ?x ?T1 ?E1 . ?c p ?x ?T2 ?E2"
    query = ps.StreamQuery.parse(f"SELECT * FROM STREAM w {{ {body} }} CONTEXT ({context})")
    some = 0
    for seed in range(6):
        table = facts(70, seed, keys=6)
        assert table.start.isna().any()
        found = [
            Counter(map(tuple, query.run({"w": table}, policy="lru", joins=tree).solutions.tolist()))
            for tree in (((0, 1), 2), ((0, 2), 1), (0, (1, 2)))
        ]
        assert found[0] == found[1] == found[2]
        some += found[0].total()
    assert some > 20


def bushy_case(n: int = 4_000) -> tuple[str, dict[str, Any]]:
    """Two pairs of which each has few solutions; what joins the pairs has a few values only."""
    rng = np.random.default_rng(1)
    text = """SELECT ?a ?d FROM STREAM w { ?a p ?x ?T0 . ?a q ?y ?T1 . ?d r ?y ?T2 . ?d s ?z ?T3 }
        CONTEXT ((?T0 - ?T1) <= 400 && (?T1 - ?T2) <= 400 && (?T2 - ?T3) <= 400)"""
    who = rng.integers(0, 2_000, n)
    table = {
        "s": [f"n{i}" for i in who],
        "p": rng.choice([*"pqrs"], n),
        "o": rng.integers(0, 3, n),
        "start": np.arange(n),
    }
    return text, table


def test_a_bushy_tree_is_chosen_where_it_makes_fewer_partial_solutions() -> None:
    text, table = bushy_case()
    query = ps.StreamQuery.parse(text)
    run = query.run({"w": table}, collect=False)
    assert "join 3: join 1 with join 2 on ?y" in run.plan
    deep = query.run({"w": table}, collect=False, joins=(((0, 1), 2), 3))
    assert run.stats.results == deep.stats.results > 0
    assert run.stats.bindings < 0.8 * deep.stats.bindings
    state = query.start(budget=ps.Tuples(10_000), policy="lru")
    state.process({"w": pd.DataFrame(table).iloc[:2_000]})
    tree = state.state.plan.tree
    assert all(isinstance(side, tuple) for side in tree)  # two pairs
    found = state.process({"w": pd.DataFrame(table).iloc[2_000:]}).counts.sum()
    assert found > 0
    assert type(state).restore(state.snapshot()).state.plan.tree == tree


def test_the_rarest_come_first_unless_another_tree_is_clearly_better() -> None:
    query = parse_query(text_of(BODIES[1]))
    limits = plan_of(query, Scale()).limits
    even = Observed((4.0, 3.0, 2.0, 1.0), ({"a": 1, "x": 1},) * 4, (0.0,) * 4, 1.0)
    names = [dict.fromkeys(pattern.names, 1) for pattern in query.patterns]
    assert chosen(query, Observed(even.rates, tuple(names), even.length, 1.0), limits) == (((3, 2), 1), 0)
    assert in_turn(query, even.rates) == (((3, 2), 1), 0)
    assert joins(((3, 2), 1)) == [(3, 2), ((3, 2), 1)]


def test_given_trees_and_rates_are_checked() -> None:
    query = ps.StreamQuery.parse(text_of(BODIES[0]))
    table = {"s": ["a"], "p": ["b"], "o": ["c"], "start": [0]}
    for wrong, message in (
        ((0, 1), "each of the patterns 0 to 3 once"),
        (((0, 1), (2, 2)), "once"),
        ("left-deep", "not a plan"),
        ((0, 1, 2, 3), "not a plan"),
    ):
        with pytest.raises(PenstockError, match=message):
            query.run({"w": table}, joins=wrong)
    with pytest.raises(PenstockError, match="not both"):
        query.start(budget=ps.Tuples(9), joins=((0, 1), (2, 3)), rates=[1, 1, 1, 1])
    for wrong in ([1, 2], [1, 2, 3, "4"], [1, 2, 3, -1]):
        with pytest.raises(PenstockError, match="each of the 4 patterns"):
            query.start(budget=ps.Tuples(9), rates=wrong)
    still = ps.StreamQuery.parse("SELECT * FROM STREAM w { ?a p ?x ?T . ?a q ?y . ?y r ?z }")
    with pytest.raises(PenstockError, match="no pattern with a time"):
        still.explain(joins=(0, (1, 2)))
    assert "join 2: join 1 with ?y <r> ?z on ?y" in still.explain()
    assert leaves(((0, 1), (2, 3))) == [0, 1, 2, 3]


def test_a_bushy_plan_says_what_waits_for_what() -> None:
    shown = ps.StreamQuery.parse(text_of(BODIES[0])).explain(joins=((0, 1), (2, 3)))
    assert "join 3: join 1 with join 2 on ?b" in shown
    assert "those of join 1 wait for join 2 in their own cache and expire with their first member" in shown
    assert "those of join 2 wait for join 1" in shown
