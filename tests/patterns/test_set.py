"""Patterns in a set find what each finds alone, and share what they have in common."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock as ps
from penstock.errors import PatternError, SnapshotError
from penstock.patterns import Attr, Compare, E, Not, Or, Seq
from tests.patterns.agreement import TYPES, Case, found, random_case
from tests.patterns.test_agreement import LARGE, every_strategy


def renamed(part: Any, suffix: str) -> Any:
    """The same part with other variables."""

    def side(given: Any) -> Any:
        return Attr(given.var + suffix, given.name) if isinstance(given, Attr) else given

    if isinstance(part, E):
        return E(part.type, f"{part.var}{suffix}")
    where = [Compare(side(each.left), each.op, side(each.right)) for each in part.where]
    if isinstance(part, Not):
        return Not(renamed(part.part, suffix), tuple(where))
    return type(part)(*(renamed(piece, suffix) for piece in part.parts), where=where)


def family(random: Random, case: Case) -> list[Case]:
    """A pattern, others of which it is a part, and one that has nothing to do with it, over one stream."""
    whole = case.pattern.expression
    event = random.choice(TYPES)
    variants = [
        renamed(whole, "b"),
        Seq(E(event, "w0"), renamed(whole, "c"), where=random.choice([(), "w0.x >= 1"])),
        Or(renamed(whole, "d"), E(event, "w1")),
        Seq(E(event, "w2"), Not(renamed(whole, "e")), E(random.choice(TYPES), "w3")),
    ]
    windows = [case.pattern.within, case.pattern.within, random.randint(1, 6), "5 events"]
    patterns = [case.pattern, random_case(random, leaves=4).pattern]
    patterns += [ps.Pattern(variant, random.choice(windows)) for variant in random.sample(variants, 2)]
    random.shuffle(patterns)
    return [Case(pattern, case.events) for pattern in patterns]


def assert_all_agree(random: Random, strategy: str, **options: Any) -> int:
    """Whole, counted, and in batches with snapshots: what the oracle says of each. How much was shared."""
    cases = family(random, random_case(random, size=11, leaves=4))
    expected = [case.expected() for case in cases]
    said = "; ".join(str(case.pattern) for case in cases) + f" over {cases[0].events}"
    group, table = ps.PatternSet([case.pattern for case in cases]), cases[0].table
    runs = group.run(table(), strategy=strategy, **options)
    assert [found(run.matches) for run in runs.values()] == expected, said
    counted = group.run(table(), strategy=strategy, count_only=True, **options)
    assert [run.stats.matches for run in counted.values()] == [each.total() for each in expected], said
    state = group.start(strategy=strategy, **options)
    at, totals = 0, [Counter[Any]() for _ in cases]
    while at < len(cases[0].events):
        stop = at + random.randint(1, 6)
        for total, part in zip(totals, state.process(table(at, stop)).values(), strict=True):
            total += found(part)
        state.check()
        if random.random() < 0.3:
            state = ps.patterns.PatternSetState.restore(state.snapshot())
        at = stop
    for total, part in zip(totals, state.finish().values(), strict=True):
        total += found(part)
    assert totals == expected, said
    return runs["0"].stats.shared


@every_strategy
@settings(LARGE, max_examples=30)
@given(random=st.randoms(use_true_random=False))
def test_each_finds_what_it_finds_alone(strategy: str, random: Random) -> None:
    assert_all_agree(random, strategy)


@pytest.mark.parametrize("strategy", ["object", "semantic"])
@settings(LARGE, max_examples=8)
@given(random=st.randoms(use_true_random=False), budget=st.sampled_from([1, 400, 1_000, 3_000]))
def test_a_small_budget_costs_no_match(strategy: str, budget: int, random: Random) -> None:
    assert_all_agree(random, strategy, budget=budget, policy="gdj")


@pytest.mark.soak
@pytest.mark.parametrize("part", range(10))
def test_many_random_sets(part: int) -> None:
    for seed in range(part * 200, (part + 1) * 200):
        for strategy in ps.patterns.STRATEGIES:
            assert_all_agree(Random(seed), strategy)


INNER = "SEQ(A, SEQ(B b, C c, b.x = c.x), D)"
STREAM = {"type": list("ABCDBCD"), "ts": [1, 2, 3, 4, 5, 6, 7], "x": [0, 1, 1, 0, 2, 2, 0]}


@pytest.mark.parametrize("strategy", ["object", "semantic"])
def test_equal_sub_queries_are_computed_once(strategy: str) -> None:
    texts = [
        f"PATTERN {INNER} WITHIN 10",
        "PATTERN SEQ(A, SEQ(B u, C v, u.x = v.x), D, D) WITHIN 10",
    ]
    alone = [ps.Pattern.parse(text).run(STREAM, strategy=strategy).stats for text in texts]
    runs = ps.PatternSet(texts).run(STREAM, strategy=strategy)
    both = runs["0"].stats
    assert [run.stats.matches for run in runs.values()] == [each.matches for each in alone]
    assert both.recomputations + both.partial_hits < sum(e.recomputations + e.partial_hits for e in alone)
    assert both.shared > 0
    other = ps.PatternSet([texts[0], texts[1].replace("u.x = v.x", "u.x < v.x")])
    stats = other.run(STREAM, strategy=strategy)["0"].stats
    assert stats.recomputations == sum(each.recomputations for each in alone)  # not equal: nothing to take


def test_equal_searches_are_made_once() -> None:
    texts = {
        "plain": "PATTERN SEQ(A, !SEQ(B, C), D) WITHIN 10",
        "named": "PATTERN SEQ(A a, !SEQ(B b, C c), D d) WITHIN 10",
        "branch": "PATTERN OR(SEQ(A u, !SEQ(B, C), D v), C w) WITHIN 10",
    }
    runs = ps.PatternSet(texts).run(STREAM)
    for name, text in texts.items():
        assert found(runs[name].matches) == found(ps.Pattern.parse(text).run(STREAM).matches)
    searches = runs["plain"].stats.shared
    apart = {
        **texts,
        "named": texts["named"].replace("10", "9"),
        "branch": texts["branch"].replace("10", "8"),
    }
    assert ps.PatternSet(apart).run(STREAM)["plain"].stats.shared < searches
    assert ps.PatternSet([texts["plain"]]).run(STREAM)["0"].stats.shared == 0


def test_one_pattern_that_has_a_part_twice_shares_it_too() -> None:
    text = "PATTERN SEQ(A, SEQ(B, C), D, SEQ(B, C), D) WITHIN 10"
    run = ps.Pattern.parse(text).run(STREAM, strategy="object")
    assert run.stats.matches == ps.Pattern.parse(text).run(STREAM).stats.matches == 1
    assert len(run.caches) == 1


def test_return_limit_and_windows_of_both_kinds() -> None:
    group = ps.PatternSet(
        [
            "PATTERN SEQ(A, D d) WITHIN 10 RETURN d.x AS x",
            "PATTERN SEQ(B b, C c) WITHIN 2 EVENTS RETURN c.ts, b.x",
        ]
    )
    state, got = group.start(), [[], []]
    for i in range(7):
        tables = state.process({name: values[i : i + 1] for name, values in STREAM.items()})
        for part, table in zip(got, tables.values(), strict=True):
            part += table.to_pylist()
        state = ps.patterns.PatternSetState.restore(state.snapshot())
    assert got == [[{"x": 0}, {"x": 0}], [{"c.ts": 3, "b.x": 1}, {"c.ts": 6, "b.x": 2}]]
    runs = group.run(STREAM, limit=1)
    assert [(run.matches.num_rows, run.stats.cut) for run in runs.values()] == [(1, 1), (1, 1)]


def test_bad_sets_are_refused() -> None:
    for given_, said in (
        ([], "at least one"),
        ("PATTERN A WITHIN 5", "several patterns"),
        ([3], "neither a pattern nor the text"),
        (["PATTERN A WITHIN"], "line 1"),
    ):
        with pytest.raises(PatternError, match=said):
            ps.PatternSet(given_)
    group = ps.PatternSet(["PATTERN A WITHIN 5", "PATTERN B WITHIN 5"])
    with pytest.raises(PatternError, match="did you mean 'strategy'"):
        group.run(STREAM, strateg="object")
    with pytest.raises(SnapshotError, match="a set of patterns"):
        ps.patterns.PatternState.restore(group.start().snapshot())
