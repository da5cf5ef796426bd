"""All strategies find what the oracle finds: whole, counted, and in batches with snapshots in between."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import penstock as ps
from tests.patterns.agreement import Case, assert_agrees, random_case

every_strategy = pytest.mark.parametrize("strategy", ps.patterns.STRATEGIES)
# A pattern with its stream takes many choices; that is what it is.
LARGE = settings(settings.get_profile("ci"), suppress_health_check=list(HealthCheck))
POLICIES = ["fifo", "rand", "lru", "lfu", "gdj", "clock", "clock-exp"]


@every_strategy
@settings(LARGE, max_examples=125)
@given(random=st.randoms(use_true_random=False))
def test_random_patterns(strategy: str, random: Random) -> None:
    case = random_case(random, size=12)
    assert_agrees(case, strategy, random)


@settings(LARGE, max_examples=30)
@given(random=st.randoms(use_true_random=False))
def test_texts_parse_to_the_same_pattern(random: Random) -> None:
    pattern = random_case(random).pattern
    assert ps.Pattern.parse(str(pattern)) == pattern
    assert pattern.explain().startswith(str(pattern))
    assert pattern.to_dot().endswith("}")


@pytest.mark.parametrize("strategy", ["object", "semantic"])
@pytest.mark.parametrize("policy", POLICIES)
@settings(LARGE, max_examples=6)
@given(random=st.randoms(use_true_random=False), budget=st.sampled_from([1, 400, 1_000, 3_000]))
def test_a_small_budget_costs_no_match(strategy: str, policy: str, budget: int, random: Random) -> None:
    assert_agrees(random_case(random, size=12), strategy, random, budget=budget, policy=policy)


@pytest.mark.soak
@pytest.mark.parametrize("part", range(40))
def test_many_random_patterns(part: int) -> None:
    """20,000 cases."""
    for seed in range(part * 500, (part + 1) * 500):
        case = random_case(Random(seed))
        for strategy in ps.patterns.STRATEGIES:
            assert_agrees(case, strategy, Random(seed))


@every_strategy
@pytest.mark.parametrize("where", ["c.x > 1", "c.x < c.y"])
def test_a_branch_may_have_conditions_on_an_event_outside_it(strategy: str, where: str) -> None:
    """Only where the branch is taken."""
    pattern = ps.Pattern.parse(f"PATTERN SEQ(OR(SEQ(A a, {where}), B b), C c) WITHIN 5")
    attrs = [{"x": 1, "y": 0, "s": "a"}, {"x": 2, "y": 3, "s": "a"}]
    events = [("A", 1, attrs[0]), ("B", 2, attrs[0]), ("C", 3, attrs[0]), ("C", 4, attrs[1])]
    case = Case(pattern, events)
    assert case.expected().total() == 3
    assert_agrees(case, strategy, Random(0))


@every_strategy
@pytest.mark.parametrize(
    ("first", "last", "within"), [(51.18, 52.13, 0.95), (0.15, 0.85, 0.7), (0.1, 0.3, 0.2)]
)
def test_a_window_bounds_the_difference_of_times(
    strategy: str, first: float, last: float, within: float
) -> None:
    """As computed: 52.13 - 0.95 is 51.18, but 52.13 - 51.18 is more than 0.95."""
    events = {"type": ["A", "B"], "ts": [first, last]}
    run = ps.Pattern.parse(f"PATTERN SEQ(A, B) WITHIN {within}").run(events, strategy=strategy)
    assert run.stats.matches == (last - first <= within)
