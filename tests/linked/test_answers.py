"""With unlimited memory the answers are those of brute force, and those of pyoxigraph's SPARQL."""

from __future__ import annotations

import warnings
from collections import Counter
from random import Random

import pandas as pd
import pyoxigraph
import pytest

import penstock as ps
from penstock.linked import UnboundedContextWarning
from penstock.linked.language.parser import parse_query
from penstock.linked.terms import parse_term
from tests.linked import generated
from tests.oracles import linked as oracle


def answers_of(text: str, table: pd.DataFrame, **options) -> Counter:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnboundedContextWarning)
        run = ps.StreamQuery.parse(text).run({"w": table}, **options)
    assert len(run.rows) == run.stats.results == len(run.solutions)
    return Counter(map(tuple, run.solutions.tolist()))


def sparql_answers(query, table: pd.DataFrame) -> Counter:
    store = pyoxigraph.Store()
    lines = []
    for i, row in enumerate(table.itertuples(index=False)):
        start, end = row.start, getattr(row, "end", row.start)
        for name, term in (("s", row.s), ("p", row.p), ("o", row.o)):
            lines.append(f"<row:{i}> <row:{name}> {term} .")
            lines.append(f'<row:{i}> <text:{name}> "{parse_term(term).text}" .')
        for name, time in (("t", start), ("e", end)):
            lines.append(f'<row:{i}> <row:{name}> "{time}"^^<{generated.XSD}integer> .')
    store.load("\n".join(lines).encode(), format=pyoxigraph.RdfFormat.N_TRIPLES)
    found: Counter = Counter()
    for solution in store.query(generated.as_sparql(query)):
        found[tuple(int(node.value[4:]) for node in solution)] += 1
    return found


def check(seed: int, patterns: int, rows: int) -> None:
    random = Random(seed)
    text = generated.query(random, patterns, alike=random.random() < 0.5)
    table = generated.stream(random, rows, facts=random.random() < 0.7)
    query = parse_query(text)
    joins = generated.tree(random, patterns) if random.random() < 0.7 else None
    found = answers_of(text, table, joins=joins)
    expected = oracle.answers(query, generated.triples_of(table))
    assert found == expected, f"{seed}: {text}"
    assert found == sparql_answers(query, table), f"{seed}: {text}"


@pytest.mark.parametrize("patterns", [1, 2, 3, 4])
def test_answers(patterns: int) -> None:
    for seed in range({1: 15, 2: 60, 3: 25, 4: 25}[patterns]):
        check(seed, patterns, {1: 20, 2: 25, 3: 12, 4: 8}[patterns])


@pytest.mark.soak
@pytest.mark.parametrize("patterns", [1, 2, 3, 4])
def test_many_answers(patterns: int) -> None:
    for seed in range(1_000, 3_000):
        check(seed, patterns, {1: 30, 2: 40, 3: 16, 4: 8}[patterns])


def test_resources_do_not_differ_from_themselves_but_nan_does() -> None:
    table = pd.DataFrame(
        {"s": ["a", "b", "_:c"], "p": "p", "o": [float("nan"), float("nan"), 1.0], "start": 0}
    )
    text = "SELECT * FROM STREAM w {{ ?a p ?x ?T . ?b p ?y ?U . FILTER ({}) }} CONTEXT ((?T - ?U) <= 1)"
    pairs = {(i, j) for i in range(3) for j in range(3)}
    same = {(i, i) for i in range(3)}
    assert set(answers_of(text.format("?a != ?b"), table)) == pairs - same
    assert set(answers_of(text.format("?x != ?y"), table)) == pairs - {(2, 2)}
    assert set(answers_of(text.format("?a != ?y"), table)) == pairs
    assert set(answers_of(text.format("!(?a = ?b)"), table)) == pairs - same


def test_batches_change_nothing() -> None:
    random = Random(3)
    for _ in range(10):
        text = generated.query(random, random.choice([2, 3, 4]), alike=True)
        table = generated.stream(random, 30, facts=True)
        joins = generated.tree(random, len(parse_query(text).patterns))
        whole = answers_of(text, table, budget=ps.Tuples(6), policy="lru", exact=False, joins=joins)
        state = ps.StreamQuery.parse(text).start(budget=ps.Tuples(6), policy="lru", joins=joins)
        found: Counter = Counter()
        at = 0
        while at < len(table):
            step = random.randrange(1, 9)
            part = table.iloc[at : at + step]
            out = state.process({"w": part})
            found.update(map(tuple, out.solutions.tolist()))
            state.check()
            if random.random() < 0.5:
                state = type(state).restore(state.snapshot())
            at += step
        assert found == whole, text


def test_streams_order_their_joins_by_the_first_batch_that_matches() -> None:
    text = """SELECT * FROM STREAM w { ?a p ?x ?T . ?a q ?y ?U . ?a r ?z ?V }
        CONTEXT ((?T - ?U) <= 9 && (?U - ?V) <= 9)"""
    query = ps.StreamQuery.parse(text)
    nothing = {"s": ["a"], "p": ["other"], "o": [1], "start": [0]}
    first = {"s": ["a"] * 6, "p": [*"pppqqr"], "o": [1] * 6, "start": range(1, 7)}
    later = {"s": ["a"] * 9, "p": [*"pqrrrrrrr"], "o": [1] * 9, "start": range(7, 16)}
    state, given = (query.start(budget=ps.Tuples(50), policy="lru", rates=r) for r in (None, [3, 2, 1]))
    found = []
    for one in (state, given):
        outs = [one.process({"w": table}) for table in (nothing, nothing, first)]
        one = type(one).restore(one.snapshot())
        assert one.state is not None
        assert one.state.plan.tree == ((2, 1), 0)
        outs.append(one.process({"w": later}))
        found.append([out.solutions.tolist() for out in outs])
        assert one.totals["triples"] == 17
    assert found[0] == found[1]
    assert len(found[0][2]) == 6
