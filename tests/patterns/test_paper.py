"""The paper's queries, and its examples with the cache contents that its text states."""

from __future__ import annotations

from typing import Any

import pytest

import penstock as ps

Q1 = """PATTERN SEQ(Amazon a,
AND(Dell d, Lenovo l, Apple ap, d.drop > 0, l.drop > 0, ap.drop > 0), a.drop > 0)
WITHIN 1 hour"""
Q2 = """PATTERN SEQ(Recycle r, Washing w,
!AND(Sharpen s, Disinfect d, Checking c, s.id = d.id = c.id = o.id),
Operate o, r.id = w.id = o.id and o.ins-type = "surgery")
WITHIN 1 hour"""
Q3 = "PATTERN SEQ(Recycle r, SEQ(Wash w, Dry dr, Sharpen s), Disinfect d, Operate o) WITHIN 100"
every_strategy = pytest.mark.parametrize("strategy", ps.patterns.STRATEGIES)
TYPES = {"r": "Recycle", "w": "Wash", "y": "Dry", "s": "Sharpen", "d": "Disinfect", "o": "Operate"}


def stream(text: str) -> dict[str, list[Any]]:
    """Events as the paper writes them: r1 w3 ..., a letter for the type and the time."""
    words = text.split()
    return {"type": [TYPES.get(w[0], w[0]) for w in words], "ts": [int(w[1:]) for w in words]}


@every_strategy
def test_query_1(strategy: str) -> None:
    events = {
        "type": ["Amazon", "Lenovo", "Apple", "Dell", "Dell", "Apple"],
        "ts": [0, 600_000, 700_000, 800_000, 900_000, 3_700_000],
        "drop": [1.5, 0.5, 0.1, 0.0, 2.0, 1.0],
    }
    run = ps.Pattern.parse(Q1).run(events, strategy=strategy)
    assert run.matches.to_pylist() == [{"a": 0, "d": 4, "l": 1, "ap": 2}]


@every_strategy
def test_query_2(strategy: str) -> None:
    kinds = ["Recycle", "Washing", "Checking", "Sharpen", "Disinfect", "Operate"]
    clean = {"type": kinds, "ts": list(range(6)), "id": [1] * 6, "ins-type": [None] * 5 + ["surgery"]}
    pattern = ps.Pattern.parse(Q2)
    assert pattern.run(clean, strategy=strategy).stats.matches == 0
    other_tool = clean | {"id": [1, 1, 1, 2, 1, 1]}
    assert pattern.run(other_tool, strategy=strategy).matches.to_pylist() == [{"r": 0, "w": 1, "o": 5}]
    no_surgery = other_tool | {"ins-type": [None] * 5 + ["other"]}
    assert pattern.run(no_surgery, strategy=strategy).stats.matches == 0


@every_strategy
def test_example_1(strategy: str) -> None:
    """The sub-window of both outer results is [1, 5]: nothing is dried or sharpened in it."""
    run = ps.Pattern.parse(Q3).run(stream("r1 a2 w3 c4 d5 c6 o7 o8"), strategy=strategy)
    assert run.stats.matches == 0
    if strategy == "semantic":
        assert (run.stats.recomputations, run.stats.hits) == (1, 1)
        assert [cache.interval for cache in run.caches] == [(1, 5)]


EXAMPLE = "r1 w2 y4 s6 d8 w9 y10 s12 {}d15 o26"


def test_example_2() -> None:
    """The rightBound of the cache is 8 after o14, and 15 after o26."""
    state = ps.Pattern.parse(Q3).start(strategy="object")
    assert state.process(stream("r1 w2 y4 s6 d8 w9 y10 s12 o14")).num_rows == 1
    (cache,) = state.backend.contents()
    assert (cache.subquery, cache.right_bound, cache.results) == ("SEQ(w, dr, s)", 8, 1)
    # w2 y4 s6 for d8; for d15 also s12 with either w and y: w2 y4 s12, w2 y10 s12, w9 y10 s12.
    assert state.process(stream("d15 o26")).num_rows == 5
    (cache,) = state.backend.contents()
    assert (cache.right_bound, cache.results) == (15, 4)
    assert (state.stats.recomputations, state.stats.partial_hits, state.stats.hits) == (1, 1, 1)


def test_example_3() -> None:
    """The cache intervals are [1, 8], then also [1, 15], which shares the results of the first."""
    state = ps.Pattern.parse(Q3).start(strategy="semantic")
    state.process(stream("r1 w2 y4 s6 d8 w9 y10 s12 o14"))
    assert [(c.interval, c.results) for c in state.backend.contents()] == [((1, 8), 1)]
    state.process(stream("d15 o26"))
    assert [(c.interval, c.results) for c in state.backend.contents()] == [((1, 8), 1), ((1, 15), 4)]
    before = state.stats.recomputations, state.stats.partial_hits
    assert state.process(stream("o30")).num_rows == 5
    assert (state.stats.recomputations, state.stats.partial_hits) == before


@pytest.mark.parametrize("strategy", ["object", "semantic"])
def test_the_negated_form_keeps_flags(strategy: str) -> None:
    negated = Q3.replace("SEQ(Wash", "!SEQ(Wash")
    run = ps.Pattern.parse(negated).run(stream("r1 w2 d8 w9 y10 s12 d15 o26 o30"), strategy=strategy)
    assert run.matches.to_pylist() == [{"r": 0, "d": 2, "o": 7}, {"r": 0, "d": 2, "o": 8}]
    assert run.stats.hits >= 2
    if strategy == "semantic":
        assert [(c.interval, c.results) for c in run.caches] == [((1, 8), 0)]


@every_strategy
def test_the_query_of_the_experiments(strategy: str) -> None:
    text = "PATTERN SEQ(YHOO y, SEQ(QQQ q, AMAT a, DELL d), ORCL o, IPIX i) WITHIN 10"
    kinds = ["YHOO", "QQQ", "QQQ", "AMAT", "DELL", "ORCL", "IPIX", "IPIX"]
    events = {"type": kinds, "ts": list(range(8))}
    assert ps.Pattern.parse(text).run(events, strategy=strategy).stats.matches == 4
    negated = text.replace(" SEQ(QQQ", " !SEQ(QQQ")
    assert ps.Pattern.parse(negated).run(events, strategy=strategy).stats.matches == 0
